"""The command behind ``scripts/fuzz functions``: the law on random networks whose rules call functions of a file."""

from __future__ import annotations

import argparse
import secrets
import sys
import time
from collections.abc import Sequence

from tests.law.called import called_case, calls_functions
from tests.law.fuzz_networks import Failure, Tally
from tests.law.law import SERVED, check
from tests.law.networks import describe


def run_seeds(
    first: int,
    count: int | None,
    seconds: float,
    strategies: Sequence[str] = SERVED,
    faults: Sequence[bool] = (False, True),
) -> tuple[int, Tally]:
    """How many seeds were looked at, and what those gave whose rules call functions; stops at the first failure."""
    until = time.monotonic() + seconds
    seed, tally = first, Tally()
    while time.monotonic() < until and (count is None or seed < first + count) and not tally.failures:
        case = called_case(seed)
        if calls_functions(case):
            tally.networks += 1
            for strategy, failing in ((strategy, failing) for strategy in strategies for failing in faults):
                verdict = check(case, strategy, failing)
                if verdict.wrong:
                    tally.failures.append(Failure(seed, "small", strategy, failing, tuple(verdict.wrong), verdict.kind))
                if verdict.unjudged:
                    tally.unjudged += 1
                    break
                tally.runs += 1
                tally.matches += verdict.matches
        seed += 1
    return seed - first, tally


def reported(failure: Failure) -> str:
    again = f"scripts/fuzz functions --seed {failure.seed} --count 1 --strategies {failure.strategy}"
    case = describe(called_case(failure.seed))
    return "\n".join(
        [f"seed {failure.seed} under {failure.strategy}", *failure.wrong[:6], case, f"repeat with {again}"]
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/fuzz functions", description="Networks that call user functions.")
    parser.add_argument("--seed", type=int, help="first seed (default: a new random one)")
    parser.add_argument("--count", type=int, help="how many seeds")
    parser.add_argument("--seconds", type=float, default=60.0, help="stop after this time")
    parser.add_argument("--strategies", default=",".join(SERVED))
    options = parser.parse_args()
    first = options.seed if options.seed is not None else secrets.randbelow(10**9)
    seeds, tally = run_seeds(first, options.count, options.seconds, options.strategies.split(","))
    print(f"{seeds} seeds from {first}: {tally}", flush=True)
    for failure in tally.failures:
        print(reported(failure))
        sys.exit(1)


if __name__ == "__main__":
    main()
