"""The command behind scripts/fuzz remote."""

from __future__ import annotations

import argparse
import logging
import secrets
import tempfile
import time
from pathlib import Path

from tests.law.behind import check_behind, fill


def run_seeds(first: int, count: int | None, seconds: float, database: Path) -> tuple[int, int, int]:
    """How many seeds were looked at, how many of their cases look something up, and how many matches these have."""
    until = time.monotonic() + seconds
    seed, cases, matches = first, 0, 0
    while time.monotonic() < until and (count is None or seed < first + count):
        try:
            found = check_behind(seed, database)
        except BaseException:
            print(f"seed {seed}: repeat with scripts/fuzz remote --seed {seed} --count 1", flush=True)
            raise
        cases += found is not None
        matches += found or 0
        seed += 1
    return seed - first, cases, matches


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/fuzz remote", description="Remote tables behind providers.")
    parser.add_argument("--seed", type=int, help="first seed (default: a new random one)")
    parser.add_argument("--count", type=int, help="how many seeds")
    parser.add_argument("--seconds", type=float, default=60.0, help="stop after this time")
    options = parser.parse_args()
    logging.getLogger("headwater.remote").setLevel(logging.ERROR)  # that requests fail is what is tried
    first = options.seed if options.seed is not None else secrets.randbelow(10**9)
    with tempfile.TemporaryDirectory() as folder:
        fill(Path(folder) / "elements.db")
        seeds, cases, matches = run_seeds(first, options.count, options.seconds, Path(folder) / "elements.db")
    print(
        f"{seeds} seeds from {first}: {cases} cases with remote tables, {matches} matches, all as the oracle has them"
    )


if __name__ == "__main__":
    main()
