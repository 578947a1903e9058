"""The command behind scripts/fuzz remote."""

from __future__ import annotations

import argparse
import logging
import secrets
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.law.awaited import check_awaited
from tests.law.behind import check_behind, fill
from tests.law.foreseen import check_foreseen

Check = Callable[[int], int | None]
"""The number of matches of a seed's case, or None if none of its rules looks anything up."""


def run_seeds(first: int, count: int | None, seconds: float, check: Check) -> tuple[int, int, int]:
    """How many seeds were looked at, how many of their cases look something up, and how many matches these have."""
    until = time.monotonic() + seconds
    seed, cases, matches = first, 0, 0
    while time.monotonic() < until and (count is None or seed < first + count):
        try:
            case_matches = check(seed)
        except BaseException:
            print(f"seed {seed}: repeat with scripts/fuzz remote --seed {seed} --count 1", flush=True)
            raise
        cases += case_matches is not None
        matches += case_matches or 0
        seed += 1
    return seed - first, cases, matches


def shown(runs: Counter[str]) -> str:
    """How many runs each policy and each cache has had, and what came of fetching ahead."""
    return ", ".join(f"{policy} {number}" for policy, number in sorted(runs.items()))


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="scripts/fuzz remote", description="Remote tables behind providers, and elements that come late."
    )
    parser.add_argument("--seed", type=int, help="first seed (default: a new random one)")
    parser.add_argument("--count", type=int, help="how many seeds")
    parser.add_argument("--seconds", type=float, default=60.0, help="stop after this time")
    options = parser.parse_args()
    logging.getLogger("headwater.remote").setLevel(logging.ERROR)  # that requests fail is what is tried
    first = options.seed if options.seed is not None else secrets.randbelow(10**9)
    by_policy: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "elements.db"
        fill(database)

        def both(seed: int) -> int | None:
            check_behind(seed, database, by_policy)
            if seed % 3 == 0:
                check_foreseen(seed, by_policy)
            return check_awaited(seed, by_policy)

        seeds, cases, matches = run_seeds(first, options.count, options.seconds, both)
    print(
        f"{seeds} seeds from {first}: {cases} cases with remote tables, {matches} matches, all as the oracle has them; "
        f"runs by policy: {shown(by_policy)}"
    )


if __name__ == "__main__":
    main()
