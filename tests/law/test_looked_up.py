"""Rules that look into remote tables, in random networks against the oracle, for HEADWATER_LOOKUPS_SECONDS."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from dataclasses import replace

import pytest

from headwater.node.remote.caches import CACHES
from headwater.node.remote.policies import POLICIES
from tests.kit.first_seed import first_seed
from tests.law.behind import looks_up
from tests.law.churn import check as check_churn
from tests.law.churn import churn_case
from tests.law.fuzz_lookups import reported, run_seeds
from tests.law.law import SERVED, run
from tests.law.looked_up import lasting_case, looked_up_case, tables_of
from tests.law.losses import check_loss, check_storm, loss_case, storm_case
from tests.law.twins import hasty, twin_nodes

SECONDS = 60.0


def test_every_policy_and_every_way_to_answer_is_drawn() -> None:
    drawn = [
        tables
        for seed in range(200)
        for strategy in SERVED[:2]
        for faults in (False, True)
        if (tables := tables_of(looked_up_case(seed, "small"), strategy, faults=faults)) is not None
    ]
    assert {(tables.strategy, tables.cache) for tables in drawn} == {(p, c) for p in POLICIES for c in CACHES}
    assert any(tables.loss and tables.repeats and tables.outages for tables in drawn)
    assert any(tables.latency_us == (0, 0) for tables in drawn)
    assert any(tables.latency_us[0] for tables in drawn)


def test_questions_travel_from_node_to_node_under_every_strategy() -> None:
    travelled: Counter[str] = Counter()
    for seed in range(500):
        case = looked_up_case(seed, "small")
        if any(map(looks_up, case.network.rules)) and any(table.at for table in case.network.tables):
            for strategy in SERVED:
                if not travelled[strategy]:
                    traffic = run(case, strategy, True).traffic
                    travelled[strategy] += sum(sent.events for (*_, kind), sent in traffic.items() if kind == "lookup")
        if all(travelled[strategy] for strategy in SERVED):
            break
    assert all(travelled[strategy] for strategy in SERVED), travelled


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


def test_a_node_that_was_saved_and_restored_goes_on_as_if_it_had_not_been() -> None:
    """A process that crashes is made of its last snapshot and the inputs since then, and must do the same again."""
    rng = random.Random("twins")
    steps = 0
    for seed in range(100):
        case = looked_up_case(seed, "small")
        if any(map(looks_up, case.network.rules)):
            for strategy in ("st", "mt-pp", "inev"):
                with hasty(rng), twin_nodes(rng) as compared:
                    run(replace(case, seed=3 * case.seed + 1), strategy, seed % 2 == 0)
                steps += compared[0]
    assert steps


def test_changes_and_losses_change_no_result() -> None:
    until = time.monotonic() + float(os.environ.get("HEADWATER_LOOKUPS_SECONDS", SECONDS)) / 2
    seed, matches = first_seed(), 0
    while time.monotonic() < until or not matches:
        for strategy in SERVED if any(map(looks_up, lasting_case(seed).network.rules)) else ():
            verdicts = []
            if (changing := churn_case(seed, lasting_case)) is not None:
                verdicts.append(check_churn(changing, strategy))
            if (stormy := storm_case(seed, lasting_case, changes=seed % 2 == 0)) is not None:
                verdicts.append(check_storm(stormy, strategy))
            if (losing := loss_case(seed, lasting_case)) is not None:
                verdicts.append(check_loss(losing, strategy))
            assert not any(verdict.wrong for verdict in verdicts), (seed, strategy, verdicts)
            matches += sum(verdict.matches for verdict in verdicts)
        seed += 1
