"""The engine must agree with the oracle on random rules and traces, however the events arrive.

New seeds every run, for HEADWATER_FUZZ_SECONDS (default 120); HEADWATER_FUZZ_SEED repeats a run. Failing cases are kept
in tests/law/seeds (``scripts/fuzz --keep``) and failing seeds in tests/kit/kept_seeds.py.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.kit.first_seed import first_seed
from tests.kit.kept_seeds import SEEDS
from tests.law.fuzzing import Mismatch, check_case, check_seed, kept_case, minimise, report, run_seeds
from tests.law.generators import random_case

CASES = sorted((Path(__file__).parent.parent / "law" / "seeds").glob("*.case"))


def test_random_seeds() -> None:
    seconds = float(os.environ.get("HEADWATER_FUZZ_SECONDS", "120"))
    first = first_seed()
    outcome = run_seeds(first, None, seconds)
    print(f"{outcome.cases} cases from seed {first}, {outcome.matched} with matches, {outcome.matches} matches")
    for seed, mismatch in outcome.failures:
        pytest.fail(report(mismatch, seed, minimise(mismatch.case, mismatch, seed)), pytrace=False)
    assert outcome.matched


@pytest.mark.parametrize("seed", SEEDS)
def test_kept_seeds(seed: int) -> None:
    check_seed(seed)


@pytest.mark.parametrize("path", CASES, ids=[path.stem for path in CASES])
def test_kept_cases(path: Path) -> None:
    check_case(kept_case(path.read_text(encoding="utf-8")), count=8)


@settings(
    max_examples=300,
    derandomize=True,  # like all random tests here: new draws are what scripts/fuzz is for
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],  # our own minimiser knows rules and traces and does better than shrinking draws
)
@given(st.randoms(use_true_random=False), st.integers(0, 2**32))
def test_cases_that_hypothesis_draws(rng: random.Random, schedule_seed: int) -> None:
    """Hypothesis draws every choice of the generator itself, and so likes the extremes that a seed seldom reaches."""
    case = random_case(rng, size=10, equal=rng if rng.random() < 0.2 else None)
    try:
        check_case(case, schedule_seed)
    except Mismatch as mismatch:
        pytest.fail(report(mismatch, None, minimise(case, mismatch, schedule_seed)), pytrace=False)
