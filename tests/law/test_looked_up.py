"""Rules that look into remote tables, in random networks against the oracle, for HEADWATER_LOOKUPS_SECONDS."""

from __future__ import annotations

import os

import pytest

from headwater.node.remote.policies import POLICIES
from tests.kit.first_seed import first_seed
from tests.law.behind import looks_up
from tests.law.fuzz_lookups import reported, run_seeds
from tests.law.law import SERVED, run
from tests.law.looked_up import looked_up_case, tables_of

SECONDS = 60.0


def test_every_policy_and_every_way_to_answer_is_drawn() -> None:
    drawn = [
        tables
        for seed in range(200)
        for strategy in SERVED[:2]
        for faults in (False, True)
        if (tables := tables_of(looked_up_case(seed, "small"), strategy, faults=faults)) is not None
    ]
    assert {tables.strategy for tables in drawn} == set(POLICIES)
    assert any(tables.loss and tables.repeats and tables.outages for tables in drawn)
    assert any(tables.latency_us == (0, 0) for tables in drawn)
    assert any(tables.latency_us[0] for tables in drawn)


@pytest.mark.parametrize("strategy", SERVED)
def test_the_same_seed_gives_the_same_run(strategy: str) -> None:
    for seed in range(40):
        case = looked_up_case(seed, "small")
        if any(map(looks_up, case.network.rules)):
            one, other = run(case, strategy, True), run(case, strategy, True)
            assert one.delivered == other.delivered
            assert one.traffic == other.traffic
            assert one.finished_us == other.finished_us


def test_sinks_receive_what_rules_find_that_have_all_tables_at_hand() -> None:
    seconds = float(os.environ.get("HEADWATER_LOOKUPS_SECONDS", SECONDS))
    seeds, tally = run_seeds(first_seed(), None, seconds)
    print(f"{seeds} seeds: {tally}")
    for failure in tally.failures:
        pytest.fail(reported(failure), pytrace=False)
    assert tally.matches
