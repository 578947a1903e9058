"""Headwater's commands for spark-submit: spark-submit --py-files headwater.zip headwater_job.py traces .."""

import sys

try:
    from headwater.deploy.cli.command import main
except ModuleNotFoundError as error:
    sys.exit(
        f"headwater: the driver's Python ({sys.executable}) has no module {error.name}; give --py-files headwater.zip, "
        "and install there what Headwater needs: pip install 'headwater[spark]'"
    )

if __name__ == "__main__":
    main()
