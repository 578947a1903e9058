"""The benchmark of remote tables with elements from a server process."""

from __future__ import annotations

import pytest

from benchmarks.remote import is_chosen
from benchmarks.remote_served import measure_limit, measure_served, web_server
from headwater.deploy.experiments.eires.synthetic import TABLE, Synthetic
from headwater.node.engine.program import compile_rules
from headwater.node.remote.memory import Memory

CASE = Synthetic("Q2", "DS1", "next", 300, 100, spacing_us=500.0, values=200)


@pytest.mark.parametrize(("strategy", "cache"), [("cache", "lru"), ("hybrid", "cost")])
def test_elements_of_a_server_process_give_the_matches_that_the_table_in_memory_gives(
    strategy: str, cache: str
) -> None:
    events = CASE.trace()
    limit = measure_limit(CASE, events)
    program = compile_rules(CASE.rules(), remote=Memory((TABLE,)).tables)
    with web_server(CASE, (10.0, 100.0)) as served:
        outcome = measure_served(CASE, events, program, served, strategy, cache, 100)
    assert outcome.matches == limit.matches > 0
    assert len(outcome.latencies_us) == len(limit.latencies_us) > 0
    assert outcome.requests > 0
    assert outcome.mean_us > 10


def test_only_the_parts_that_are_named_are_measured() -> None:
    assert is_chosen([], "Q1", "short", "web")
    assert is_chosen(["Q1", "web"], "Q1", "DS2", "long", "web")
    assert not is_chosen(["Q1", "web"], "Q1", "short", "drawn")
    assert not is_chosen(["Q1"], "Q2", "short", "drawn")
