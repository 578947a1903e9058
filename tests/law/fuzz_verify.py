"""The command behind scripts/fuzz verify."""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from headwater.pipeline.spark.session import spark_session
from tests.law.verified import Outcome, check_seed, for_small_data


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/fuzz verify", description="headwater verify against the oracle on random rules and traces."
    )
    parser.add_argument("--seed", type=int, help="first seed (default: a new random one)")
    parser.add_argument("--count", type=int, default=100, help="how many seeds (default 100)")
    parser.add_argument("--failures", type=int, default=1, help="stop after this many failing seeds (default 1)")
    options = parser.parse_args()
    first = options.seed if options.seed is not None else secrets.randbelow(10**9)
    print(f"from seed {first}", flush=True)
    outcome, failed, started = Outcome(), 0, time.monotonic()
    with tempfile.TemporaryDirectory() as folder, spark_session("fuzz verify") as spark, for_small_data(spark):
        for seed in range(first, first + options.count):
            try:
                check_seed(spark, seed, Path(folder), outcome)
            except Exception as error:
                failed += 1
                print(f"seed {seed}: {error}", flush=True)
                if failed >= options.failures:
                    break
            if (seed - first) % 20 == 19:
                print(f"{seed - first + 1} seeds, {time.monotonic() - started:.0f} s", flush=True)
    for reason, number in Counter(each.split(": ", 1)[1] for each in outcome.refused).most_common(20):
        print(f"{number:5d} x {reason}")
    print(
        f"{outcome.verified} rules verified with {outcome.matches} matches, {len(outcome.refused)} refused, "
        f"{failed} seeds failed, {time.monotonic() - started:.0f} s"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
