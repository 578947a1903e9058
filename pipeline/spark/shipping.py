"""Headwater's own code as one zip file, which Spark takes to wherever its tasks run."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path
from typing import Final

PACKAGES: Final = ("protocol", "node", "coordinator", "pipeline", "deploy")
HOME: Final = Path(__file__).parent.parent
"""The folder of all packages, or the zip file that they were loaded from."""

_DATE: Final = (2020, 1, 1, 0, 0, 0)  # of every file, so that equal code makes equal zip files


def is_shipped() -> bool:
    """Whether this code was itself loaded from a zip file, which is already wherever tasks run."""
    return HOME.is_file()


def write_code(target: Path) -> None:
    """Pack all packages with the files that they read. Python loads them from there as from a folder."""
    if is_shipped():
        shutil.copyfile(HOME, target)
        return
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as packed:
        for package in PACKAGES:
            for file in sorted((HOME / package).rglob("*")):
                if file.is_file() and "__pycache__" not in file.parts:
                    entry = zipfile.ZipInfo(file.relative_to(HOME).as_posix(), _DATE)
                    entry.compress_type = zipfile.ZIP_DEFLATED
                    packed.writestr(entry, file.read_bytes())
