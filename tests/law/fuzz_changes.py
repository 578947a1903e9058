"""The command behind ``scripts/fuzz changes``: the law while rules, sinks and sources come and go, and links and nodes
are lost for good."""

from __future__ import annotations

import argparse
import multiprocessing
import secrets
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from headwater.protocol.strategy import STRATEGIES
from tests.law.churn import check, churn_case, falling
from tests.law.late import late_case
from tests.law.law import Verdict
from tests.law.losses import busy_case, check_busy, check_loss, check_storm, loss_case, storm_case
from tests.law.networks import Draw, small_case

LATE = "late "

KINDS = (
    "changes", "changes+faults", "losses", "storms", "busy", "changes+losses", "changes+storms",
    "fall-backs", "fall-backs+storms",
    "late changes", "late changes+faults", "late losses", "late storms", "late busy", "late changes+losses",
    "late changes+storms", "late fall-backs", "late fall-backs+storms",
)  # fmt: skip
"""What happens; late: where events come later than windows are long (``tests.law.late``)."""


def judge(kind: str, seed: int, strategy: str) -> Verdict | None:
    """The verdict on one run; None if the seed has no case of the kind."""
    draw = late_case if kind.startswith(LATE) else small_case
    try:
        return _judge(kind.removeprefix(LATE), seed, draw, strategy)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return Verdict(wrong=[f"raised {type(error).__name__} in {place.filename}, line {place.lineno}: {error}"])


def _judge(kind: str, seed: int, draw: Draw, strategy: str) -> Verdict | None:
    if kind == "losses":
        lossy = loss_case(seed, draw)
        return None if lossy is None else check_loss(lossy, strategy)
    if kind == "busy":
        found = busy_case(seed, draw)
        return None if found is None else check_busy(*found, strategy)
    if kind in ("storms", "changes+storms"):
        stormy = storm_case(seed, draw, changes=kind == "changes+storms")
        return None if stormy is None else check_storm(stormy, strategy)
    if kind == "fall-backs+storms":
        stormy = falling(storm_case(seed, draw, changes=seed % 2 == 0))
        return None if stormy is None else check_storm(stormy, strategy)
    case = churn_case(seed, draw, faults=kind == "changes+faults" or (kind == "fall-backs" and seed % 2 == 0))
    if kind == "fall-backs":
        case = falling(case)
    if case is not None and kind == "changes+losses":
        lossy = loss_case(seed, draw)
        case = None if lossy is None else replace(case, faults=lossy.faults)
    return None if case is None else check(case, strategy)


def _judged(task: tuple[str, int, str]) -> tuple[tuple[str, int, str], Verdict | None]:
    return task, judge(*task)


def run(first: int, count: int, strategies: Sequence[str], kinds: Sequence[str], jobs: int) -> int:
    tasks = [
        (kind, seed, strategy) for seed in range(first, first + count) for kind in kinds for strategy in strategies
    ]
    runs: Counter[str] = Counter()
    failures = 0
    started = shown = time.monotonic()
    with multiprocessing.Pool(jobs) as pool:
        for (kind, seed, strategy), verdict in pool.imap_unordered(_judged, tasks, chunksize=10):
            if verdict is not None:
                runs[kind] += 1
                runs["matches"] += verdict.matches
                runs["left out"] += verdict.unjudged
                if verdict.wrong:
                    failures += 1
                    print(f"{kind}, seed {seed}, {strategy}: {'; '.join(verdict.wrong[:3])[:600]}")
                    again = f"scripts/fuzz changes --seed {seed} --count 1 --strategies {strategy} --kinds '{kind}'"
                    print(f"  again: {again}")
            if time.monotonic() - shown > 10:
                shown = time.monotonic()
                print(f"  {dict(runs)} after {shown - started:.0f} s", flush=True)
    print(f"{dict(runs)} in {time.monotonic() - started:.0f} s, {failures} failures")
    return 1 if failures else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/fuzz changes", description=__doc__)
    parser.add_argument("--seed", type=int, help="first seed (default: a new random one)")
    parser.add_argument("--count", type=int, default=100, help="how many seeds")
    parser.add_argument("--strategies", default=",".join(STRATEGIES))
    parser.add_argument("--kinds", default=",".join(KINDS), help=f"of {', '.join(KINDS)}")
    parser.add_argument("--jobs", type=int, default=multiprocessing.cpu_count())
    options = parser.parse_args()
    first = options.seed if options.seed is not None else secrets.randbelow(10**9)
    print(f"from seed {first}", flush=True)
    return run(first, options.count, options.strategies.split(","), options.kinds.split(","), options.jobs)


if __name__ == "__main__":
    sys.exit(main())
