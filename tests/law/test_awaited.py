"""Remote elements that come late, in random cases against the oracle, for HEADWATER_REMOTE_SECONDS."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from headwater.node.remote.caches import CACHES
from headwater.node.remote.policies import POLICIES
from tests.kit.first_seed import first_seed
from tests.law.awaited import check_awaited
from tests.law.foreseen import check_foreseen
from tests.law.fuzz_remote import run_seeds, shown

SECONDS = 40.0
ONCE_WRONG = (221, 437, 687, 820, 1418, 1560, 4134, 4402, 5729, 6194, 6245, 6495, 10592, 14929, 104239)


@pytest.mark.parametrize("seed", ONCE_WRONG)
def test_cases_that_once_went_wrong(seed: int) -> None:
    check_awaited(seed)


def test_what_was_restored_has_learnt_what_it_was_restored_from_had() -> None:
    counts: Counter[str] = Counter()
    for seed in range(400):
        check_foreseen(seed, counts)
    assert counts.keys() >= POLICIES.keys() | CACHES.keys()
    assert min(counts["prefetched"], counts["prefetched late"], counts["prefetched and never used"]) > 0


def test_matches_do_not_depend_on_when_elements_come() -> None:
    seconds = float(os.environ.get("HEADWATER_REMOTE_SECONDS", SECONDS))
    by_policy: Counter[str] = Counter()
    seeds, cases, matches = run_seeds(first_seed(), None, seconds, lambda seed: check_awaited(seed, by_policy))
    print(f"{cases} cases of {seeds} seeds, {matches} matches: {shown(by_policy)}")
    assert matches
    assert seeds < 100 or by_policy.keys() >= POLICIES.keys()
