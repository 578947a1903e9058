"""The command behind scripts/fuzz."""

from __future__ import annotations

import argparse
import multiprocessing
import secrets
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from multiprocessing.pool import AsyncResult, Pool
from pathlib import Path

from tests.law.describing import describe
from tests.law.fuzzing import IGNORED, Mismatch, Outcome, check_case, kept_case, minimise, report, run_seeds

SEEDS = Path(__file__).parent / "seeds"
STRETCH = 50  # seeds that a worker takes at a time


Task = tuple[int, int, int]
"""The first seed, how many, and the failures after which to stop."""


def stretch(task: Task) -> tuple[int, Outcome]:
    first, count, failures_max = task
    return first, run_seeds(first, count, None, failures_max)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/fuzz", description="Engine against oracle on random rules and traces."
    )
    parser.add_argument("--seed", type=int, help="first seed (default: a new random one)")
    parser.add_argument("--count", type=int, help="how many seeds (default: until --seconds, else 1000)")
    parser.add_argument("--seconds", type=float, help="stop after this time")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--failures", type=int, default=1, help="stop after this many failing seeds (default 1)")
    parser.add_argument("--minimise", type=float, default=20.0, help="seconds to spend on making each failure small")
    parser.add_argument("--keep", action="store_true", help="write the small failing cases into tests/law/seeds")
    parser.add_argument("--ignore", action="append", default=[], help="do not check properties with these words")
    parser.add_argument("--case", type=Path, help="check one kept case instead")
    options = parser.parse_args()
    IGNORED.extend(options.ignore)
    if options.case is not None:
        check_case(kept_case(options.case.read_text(encoding="utf-8")), count=20)
        print(f"{options.case}: fine")
        return 0
    first = options.seed if options.seed is not None else secrets.randbelow(10**9)
    count = options.count if options.count is not None or options.seconds is not None else 1000
    print(f"from seed {first}", flush=True)

    total, started, shown = Outcome(), time.monotonic(), 0.0
    tasks = (
        (seed, STRETCH if count is None else min(STRETCH, first + count - seed), options.failures)
        for seed in range(first, first + (count or 10**9), STRETCH)
    )
    with multiprocessing.Pool(options.jobs) as pool:
        outcomes = pool.imap_unordered(stretch, tasks) if count is not None else map_lazily(pool, tasks, options.jobs)
        for _, outcome in outcomes:
            total.cases += outcome.cases
            total.matched += outcome.matched
            total.matches += outcome.matches
            total.failures += outcome.failures
            elapsed = time.monotonic() - started
            if elapsed - shown > 5:
                shown = elapsed
                print(f"{total.cases} cases, {total.matches} matches, {elapsed:.0f} s", flush=True)
            late = options.seconds is not None and elapsed > options.seconds
            if len(total.failures) >= options.failures or late:
                pool.terminate()
                break
    for seed, mismatch in sorted(total.failures, key=lambda failure: failure[0])[: options.failures]:
        tell(seed, mismatch, options.minimise, options.keep)
    kinds = Counter(mismatch.property for _, mismatch in total.failures)
    for kind, number in kinds.most_common():
        print(f"{number:5d} x {kind}")
    print(
        f"{total.cases} cases from seed {first}, {total.matched} with matches, {total.matches} matches, "
        f"{len(total.failures)} failures, {time.monotonic() - started:.0f} s"
    )
    return 1 if total.failures else 0


def map_lazily(pool: Pool, tasks: Iterable[Task], jobs: int) -> Iterator[tuple[int, Outcome]]:
    """Like imap, but takes tasks only as workers become free: the tasks are endless."""
    running: list[AsyncResult[tuple[int, Outcome]]] = []
    for task in tasks:
        running.append(pool.apply_async(stretch, (task,)))
        while len(running) > jobs:
            yield running.pop(0).get()


def tell(seed: int, mismatch: Mismatch, seconds: float, keep: bool) -> None:
    small = minimise(mismatch.case, mismatch, seed, seconds) if seconds else (mismatch.case, mismatch)
    print(report(mismatch, seed, small), end="\n\n", flush=True)
    if keep:
        path = SEEDS / f"{seed}.case"
        path.write_text(f"# {small[1].property}\n{describe(small[0])}\n", encoding="utf-8")
        print(f"kept as {path}")


if __name__ == "__main__":
    sys.exit(main())
