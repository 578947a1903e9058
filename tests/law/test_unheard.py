"""Sources that their node cannot hear, without processes: what the core promises, and the law in the simulator.

With processes, brokers and programs: tests/edge/test_hearing.py.
"""

from __future__ import annotations

from dataclasses import replace

from headwater.deploy.simulation.faults import Faults, NodeOutage, random_faults
from headwater.deploy.simulation.simulator import simulate
from headwater.node.core import NodeCore
from headwater.node.daemon.source_gaps import SourceGap
from headwater.node.effects import SourcesHeard, SourcesUnheard
from headwater.protocol.edge import Broker, MqttFeed
from headwater.protocol.messages.control import SourceConfig
from headwater.protocol.messages.neighbour import Batch, Deploy, Filter, Want
from headwater.protocol.network import Source
from tests.law import law
from tests.law.networks import NetworkCase
from tests.node.test_core import ANode, event, reports, sent
from tests.simulation.test_simulator import MS, a_network, births_of

STREAM = 3


def a_listening_node() -> ANode:
    """It sends the events of A up, and has told at 100 that nothing at or before 89 will follow."""
    node = ANode(sources="A", lateness_us=10)
    node.hears("up", Deploy("top", 1, STREAM, Filter("A")))
    node.starts()
    assert watermarks(node.hears("up", Want(STREAM, 89), at_us=100)) == [89]
    return node


def watermarks(effects: object) -> list[float]:
    return [watermark.ts for batch in sent(effects, Batch) for watermark in batch.watermarks]  # type: ignore[arg-type]


def test_the_clock_promises_nothing_for_a_source_that_is_unheard() -> None:
    node = a_listening_node()
    node.handle(SourcesUnheard((0,), 0), 500)
    assert watermarks(node.hears("up", Want(STREAM, 300), at_us=500)) == []
    assert node.core.local["A"].current(500) == 89, "what was promised holds, and nothing more"
    assert reports(node.bears(event("A", 90), at_us=600)) == [], "it was held for the node"
    assert reports(node.bears(event("A", 89), at_us=600)) == ["late_events"], "it was late before"
    assert watermarks(node.handle(SourcesHeard((0,)), 700)) == [689]
    assert reports(node.bears(event("A", 689), at_us=700)) == ["late_events"]


def test_no_watermark_goes_back_however_long_ago_the_source_was_heard() -> None:
    node = a_listening_node()
    node.handle(SourcesUnheard((0,), -1_000), 100)
    assert node.core.local["A"].current(100) == 89
    node.handle(SourcesUnheard((0,), 0), 400)  # once more before the first is over
    assert node.core.local["A"].current(400) == 89


def test_a_source_may_be_unheard_before_the_node_knows_of_it() -> None:
    node = ANode(sources="A", lateness_us=10, begin=False)
    node.core.handle(SourcesUnheard((7,), 50), 100)
    assert node.core.forest.unheard == {7: 50}
    node.core.handle(SourcesHeard((7, 8)), 120)
    assert node.core.forest.unheard == {}


def test_a_source_that_is_ended_is_not_waited_for() -> None:
    node = a_listening_node()
    node.handle(SourcesUnheard((0,), 0), 500)
    feed = node.core.local["A"]
    feed.sources[0] = replace(feed.sources[0], until_us=300)
    assert feed.current(310) == 299
    assert feed.current(500) == float("inf")


def test_a_node_that_is_saved_meanwhile_still_waits_for_the_source() -> None:
    node = a_listening_node()
    node.handle(SourcesUnheard((0,), 0), 500)
    node.core = NodeCore.restored(node.core.save())
    assert node.core.local["A"].current(5_000) == 89
    node.core.handle(SourcesHeard((0,)), 5_000)
    assert node.core.local["A"].current(5_000) == 4_989


def test_what_is_held_for_a_node_that_is_down_is_not_late_and_results_are_exact() -> None:
    network = a_network(lateness_us=2 * MS)
    births = tuple(births_of(network, 300))
    span_us = births[-1][0]
    outages = tuple(
        NodeOutage(node, span_us * first // 10, span_us * (first + 2) // 10, held=True)
        for node, first in (("n3", 1), ("n4", 2), ("n3", 5), ("n5", 6))
    )
    case = NetworkCase(network, births, faults=Faults(node_outages=outages))
    for strategy in law.SERVED:
        outcome = simulate(network, births, strategy=strategy, faults=case.faults, check=True)
        assert outcome.counters["late_events"] == 0, strategy
        assert outcome.counters["unborn"] == 0, strategy
        assert len(outcome.born) == len(births), strategy
        assert law.check(case, strategy, faults=True).wrong == [], strategy


def test_what_no_node_holds_never_happens() -> None:
    network = a_network()
    births = births_of(network, 100)
    span_us = births[-1][0]
    faults = Faults(node_outages=(NodeOutage("n3", span_us // 4, span_us // 2),))
    assert simulate(network, births, faults=faults).counters["unborn"] > 0


def test_random_faults_hold_what_sources_publish_in_some_outages_and_not_in_others() -> None:
    found = [each for seed in range(60) for each in random_faults(a_network(), seed, 10_000 * MS).node_outages]
    assert {each.held for each in found} == {True, False}
    assert "held for it" in str(next(each for each in found if each.held))


# --- when a gap ends, in a node process -------------------------------------------------------------------------------


def a_gap(*, settles: bool = False, expected: frozenset[str] = frozenset(), away_s: float = 0.0) -> SourceGap:
    feed = MqttFeed("t", Broker("127.0.0.1"), time="at")
    return SourceGap(SourceConfig(0, Source("n1", "A", 2_000_000), feed), "test", 100.0, settles, expected, away_s)


def test_a_gap_lasts_while_the_source_is_not_heard() -> None:
    gap = a_gap()
    gap.look(False, 100.0)
    assert not gap.is_over(1e9)


def test_a_gap_ends_when_everything_that_was_held_was_taken_and_after_a_new_connection_a_lateness_later() -> None:
    for settles, ends_s in ((False, 110.0), (True, 112.0)):
        gap = a_gap(settles=settles, expected=frozenset({"p"}))
        gap.look(True, 109.0)
        assert not gap.is_over(109.5)
        gap.drained_s = 110.0
        assert not gap.is_over(ends_s - 0.01)
        assert gap.is_over(ends_s)


def test_a_gap_of_a_source_that_never_stops_ends_when_nothing_comes_that_would_have_been_late() -> None:
    gap = a_gap(away_s=8.0)
    gap.look(True, 100.0)
    gap.overdue_s = 103.0
    assert not gap.is_over(107.9)
    assert gap.is_over(108.0)
    short = a_gap(away_s=0.5)
    short.look(True, 100.0)
    assert not short.is_over(100.9)
    assert short.is_over(101.0)


def test_every_gap_has_an_end_once_the_source_is_heard() -> None:
    gap = a_gap(expected=frozenset({"p"}))
    gap.look(True, 130.0)
    gap.overdue_s = 219.0
    assert not gap.is_over(219.9)  # it lasted for 30 s, and a minute more
    assert gap.is_over(220.0)
    gap.look(False, 140.0)
    assert not gap.is_over(1e9), "the broker is away once more"
