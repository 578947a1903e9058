"""The command behind ``scripts/fuzz lookups``: the law on random networks whose rules look into remote tables."""

from __future__ import annotations

import argparse
import random
import secrets
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack

from headwater.deploy.simulation.outcome import Outcome
from tests.law.behind import looks_up
from tests.law.fuzz_networks import Failure, Tally, report, shrink
from tests.law.law import SERVED, check, run
from tests.law.looked_up import looked_up_case
from tests.law.networks import NetworkCase, Size
from tests.law.twins import hasty, twin_nodes

SHRINK_SECONDS = 30.0
HASTY = 0.7
WITH_TWINS = 0.4


def run_with_twins(case: NetworkCase, strategy: str, faults: bool = False) -> Outcome:
    """A run in which, now and then, what is restored of nodes must do what these do; and decisions come early."""
    rng = random.Random(f"twins {case.seed} {strategy} {faults}")
    with ExitStack() as stack:
        if rng.random() < HASTY:
            stack.enter_context(hasty(rng))
        if rng.random() < WITH_TWINS:
            stack.enter_context(twin_nodes(rng))
        return run(case, strategy, faults)


def run_seeds(
    first: int,
    count: int | None,
    seconds: float,
    strategies: Sequence[str] = SERVED,
    size: Size | None = "small",
    faults: Sequence[bool] = (False, True),
) -> tuple[int, Tally]:
    """How many seeds were looked at, and what those gave whose rules look something up; stops at the first failure."""
    until = time.monotonic() + seconds
    seed, tally = first, Tally()
    while time.monotonic() < until and (count is None or seed < first + count) and not tally.failures:
        case = looked_up_case(seed, size)
        if any(map(looks_up, case.network.rules)):
            tally.networks += 1
            for strategy, failing in ((strategy, failing) for strategy in strategies for failing in faults):
                verdict = check(case, strategy, failing, run_with_twins)
                if verdict.wrong:
                    tally.failures.append(Failure(seed, size, strategy, failing, tuple(verdict.wrong), verdict.kind))
                if verdict.unjudged:
                    tally.unjudged += 1
                    break
                tally.runs += 1
                tally.matches += verdict.matches
        seed += 1
    return seed - first, tally


def reported(failure: Failure) -> str:
    """The failure with the smallest case that has it."""
    case = looked_up_case(failure.seed, failure.size)
    small = shrink(case, failure.strategy, failure.faults, failure.kind, SHRINK_SECONDS)
    again = f"scripts/fuzz lookups --seed {failure.seed} --count 1 --strategies {failure.strategy}"
    return f"{report(failure, *small)}\nrepeat with {again}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/fuzz lookups", description="Networks that look into remote tables.")
    parser.add_argument("--seed", type=int, help="first seed (default: a new random one)")
    parser.add_argument("--count", type=int, help="how many seeds")
    parser.add_argument("--seconds", type=float, default=60.0, help="stop after this time")
    parser.add_argument("--strategies", default=",".join(SERVED))
    parser.add_argument("--size", choices=("small", "large"), default="small")
    options = parser.parse_args()
    first = options.seed if options.seed is not None else secrets.randbelow(10**9)
    seeds, tally = run_seeds(first, options.count, options.seconds, options.strategies.split(","), options.size)
    print(f"{seeds} seeds from {first}: {tally}", flush=True)
    for failure in tally.failures:
        print(reported(failure))
        sys.exit(1)


if __name__ == "__main__":
    main()
