"""Links in virtual time and the faults that hit them."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.deploy.simulation.faults import (
    ClockSkew,
    Faults,
    LinkOutage,
    NodeOutage,
    Partition,
    SlowNode,
    random_faults,
)
from headwater.deploy.simulation.links import FOREVER, TIMEOUT_MAX_US, Interval, LinkDirection, merged
from headwater.protocol.errors import ConfigError
from headwater.protocol.network import Link, Network, Source

MS = 1_000
SECOND = 1_000_000


def a_wire(*, outages: tuple[Interval, ...] = (), seed: int = 1, **link: Any) -> LinkDirection:
    return LinkDirection(Link("a", "b", **link), random.Random(seed), outages)


def a_network(lateness_us: int = 0) -> Network:
    return Network(
        types=(),
        nodes=("a", "b", "c", "d"),
        links=(Link("a", "b"), Link("b", "c"), Link("c", "d")),
        sources=(Source("a", "T", lateness_us), Source("a", "U", lateness_us + 7), Source("b", "T")),
        sinks=(),
        rules=(),
    )


# -- one frame after the other -----------------------------------------------------------------------------------------


def test_a_frame_on_a_plain_link_takes_its_delay() -> None:
    wire = a_wire(delay_us=5 * MS)
    assert wire.send(0, 100) == (5 * MS, 1)
    assert wire.send(70, 1_000_000) == (5 * MS + 70, 1)


def test_frames_queue_for_the_bandwidth() -> None:
    wire = a_wire(delay_us=5 * MS, bandwidth_bps=8_000_000)  # a byte per microsecond
    assert wire.send(0, 1_000) == (6 * MS, 1)
    assert wire.send(0, 500) == (6 * MS + 500, 1)
    assert wire.send(200, 300) == (6 * MS + 800, 1)
    # The wire is free again at 1800.
    assert wire.send(10 * MS, 10) == (15 * MS + 10, 1)


def test_a_fast_link_sends_many_small_frames_in_one_microsecond() -> None:
    wire = a_wire(bandwidth_bps=8_000_000_000)  # a byte per nanosecond
    arrivals = [wire.send(0, 100)[0] for _ in range(20)]
    assert arrivals == [1] * 10 + [2] * 10


def test_jitter_is_uniform_up_to_its_bound() -> None:
    wire = a_wire(delay_us=100, jitter_us=9)
    # Far apart, so that the order of arrival holds nothing back.
    extra = [wire.send(at, 1)[0] - at - 100 for at in range(0, 20_000_000, 1_000)]
    counts = [extra.count(each) for each in range(10)]
    assert sum(counts) == 20_000
    assert min(counts) > 1_800
    assert max(counts) < 2_200


def test_a_lost_frame_is_sent_again_after_a_doubling_timeout() -> None:
    class Scripted(random.Random):
        def __init__(self, *draws: float) -> None:
            super().__init__(0)
            self.draws = list(draws)

        def random(self) -> float:
            return self.draws.pop(0)

    lost, through = 0.1, 0.9
    rng = Scripted(lost, lost, through, through)
    wire = LinkDirection(Link("a", "b", delay_us=5 * MS, loss=0.5), rng)
    assert wire.send(0, 100) == (20 * MS + 40 * MS + 5 * MS, 3)
    assert wire.send(1 * MS, 100) == (65 * MS, 1)  # it was there long before, and waits for the one ahead of it
    assert rng.draws == []


def test_the_timeout_stops_doubling_at_a_second_but_is_never_shorter_than_a_round_trip() -> None:
    assert a_wire(outages=((0, 100 * SECOND),)).send(0, 1)[0] <= 101 * SECOND
    far = a_wire(delay_us=3 * SECOND, outages=((0, 1),))
    assert far.send(0, 1) == (6 * SECOND + 10 * MS + 3 * SECOND, 2)


def test_copies_follow_the_loss() -> None:
    wire = a_wire(delay_us=1 * MS, loss=0.2, seed=5)
    copies = [wire.send(at * SECOND, 100)[1] for at in range(20_000)]
    assert sum(copies) / len(copies) == pytest.approx(1 / (1 - 0.2), rel=0.02)
    assert copies.count(1) / len(copies) == pytest.approx(0.8, abs=0.01)
    assert copies.count(2) / len(copies) == pytest.approx(0.16, abs=0.01)


def test_frames_that_are_sent_again_use_bandwidth() -> None:
    lossy = a_wire(bandwidth_bps=8_000_000, loss=0.3)
    sent = [lossy.send(0, 1_000) for _ in range(500)]
    assert max(arrival for arrival, _ in sent) >= sum(copies for _, copies in sent) * 1_000


@pytest.mark.parametrize(
    ("link", "word"), [({"loss": 1.0}, "loss"), ({"loss": -0.1}, "loss"), ({"bandwidth_bps": 0}, "bandwidth")]
)
def test_a_link_that_could_never_deliver_is_refused(link: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError, match=f"link a-b has a {word}"):
        a_wire(**link)


# -- outages -----------------------------------------------------------------------------------------------------------


def test_an_outage_takes_what_is_on_its_way() -> None:
    outage = (100 * MS, 200 * MS)

    def arrival_and_copies(at_us: int) -> tuple[int, int]:
        return a_wire(delay_us=10 * MS, outages=(outage,)).send(at_us, 1)

    assert arrival_and_copies(89_999) == (99_999, 1)  # just through
    # Sent again after 30, 60 and 120 ms: the third time lies in the outage, the fourth after it.
    assert arrival_and_copies(90 * MS) == (90 * MS + 210 * MS + 10 * MS, 4)
    assert arrival_and_copies(199_999) == (199_999 + 30 * MS + 10 * MS, 2)
    assert arrival_and_copies(200 * MS) == (210 * MS, 1)  # it has just healed


def test_an_outage_shorter_than_the_delay_takes_the_frames_in_flight() -> None:
    assert a_wire(delay_us=50 * MS, outages=((20 * MS, 21 * MS),)).send(0, 1)[1] == 2


def test_frames_behind_one_that_an_outage_holds_up_are_not_sent_in_vain() -> None:
    wire = a_wire(delay_us=1 * MS, outages=((0, 60 * SECOND),))
    first, tried = wire.send(0, 100)
    assert 60 * SECOND <= first <= 60 * SECOND + TIMEOUT_MAX_US + 1 * MS
    assert tried > 60
    assert [wire.send(at * MS, 100) for at in range(1, 1_000)] == [(first, 1)] * 999


def test_after_an_outage_the_frames_that_waited_queue_for_the_bandwidth() -> None:
    wire = a_wire(bandwidth_bps=8_000_000, outages=((0, 1 * SECOND),))
    first, _ = wire.send(0, 1_000)
    assert first > 1 * SECOND
    assert wire.send(5, 2_000) == (first + 2_000, 1)


def test_what_a_lost_link_takes_never_arrives() -> None:
    wire = a_wire(delay_us=1 * MS, outages=((0, 5 * MS), (50 * MS, FOREVER)))
    assert wire.send(0, 1)[0] < 50 * MS
    assert wire.send(60 * MS, 1) == (FOREVER, 1)
    assert wire.send(70 * MS, 1) == (FOREVER, 0)


def test_intervals_are_merged() -> None:
    assert merged([(5, 9), (1, 3), (2, 4), (4, 5), (20, 20), (12, FOREVER), (30, 40)]) == ((1, 9), (12, FOREVER))


intervals = st.tuples(st.integers(0, 3 * SECOND), st.integers(1, 800 * MS)).map(lambda each: (each[0], sum(each)))
links = st.builds(
    Link,
    st.just("a"),
    st.just("b"),
    delay_us=st.integers(0, 300 * MS),
    bandwidth_bps=st.none() | st.integers(10_000, 10**9),
    jitter_us=st.just(0) | st.integers(0, 500 * MS),
    loss=st.just(0.0) | st.floats(0, 0.7),
)


@settings(max_examples=150)
@given(
    link=links,
    outages=st.lists(intervals, max_size=4),
    gaps=st.lists(st.tuples(st.just(0) | st.integers(0, 400 * MS), st.integers(0, 3_000)), min_size=1, max_size=40),
    seed=st.integers(0, 2**32),
)
def test_frames_arrive_in_order_and_never_while_the_link_is_down(
    link: Link, outages: list[Interval], gaps: list[tuple[int, int]], seed: int
) -> None:
    def arrivals() -> list[tuple[int, int, int]]:
        wire, now, found = LinkDirection(link, random.Random(seed), outages), 0, []
        for gap, size in gaps:
            now += gap
            found.append((now, *wire.send(now, size)))
        return found

    found = arrivals()
    assert found == arrivals()
    before = 0
    for now, arrival, copies in found:
        assert arrival >= now + link.delay_us
        assert arrival >= before
        assert copies >= 1
        assert not any(from_us <= arrival < to_us for from_us, to_us in outages)
        before = arrival
    if link.bandwidth_bps:
        sent_bits = sum(copies * size * 8 for (_, _, copies), (_, size) in zip(found, gaps, strict=True))
        if all(copies == 1 for _, _, copies in found):
            assert found[-1][1] * link.bandwidth_bps >= sent_bits * SECOND


@given(link=links.filter(lambda link: not link.jitter_us and not link.loss))
def test_without_jitter_and_loss_nothing_is_drawn(link: Link) -> None:
    rng = random.Random(3)
    wire = LinkDirection(link, rng, ((10, 20),))
    for at in range(0, 100, 10):
        wire.send(at, 50)
    assert rng.getstate() == random.Random(3).getstate()


# -- faults ------------------------------------------------------------------------------------------------------------


def test_whatever_separates_two_nodes_cuts_the_link_between_them() -> None:
    faults = Faults(
        link_outages=(LinkOutage("b", "a", 0, 10), LinkOutage("b", "c", 0, 90)),
        partitions=(Partition(frozenset({"a", "d"}), 5, 20), Partition(frozenset({"a", "b"}), 0, 99)),
        node_outages=(NodeOutage("b", 30, 40), NodeOutage("d", 0, 99)),
    )
    assert faults.cuts("a", "b") == ((0, 20), (30, 40))
    assert faults.cuts("b", "a", nodes=False) == ((0, 20),)
    assert faults.cuts("b", "c") == ((0, 99),)
    assert faults.downtimes("b") == ((30, 40),)
    assert faults.healed_us == 99


def test_what_is_gone_for_good_never_heals() -> None:
    faults = Faults(node_outages=(NodeOutage("c", 30),))
    assert faults.cuts("b", "c") == ((30, FOREVER),)
    assert faults.healed_us == FOREVER


def test_faults_are_told_in_words() -> None:
    faults = Faults(
        link_outages=(LinkOutage("a", "b", 1_500 * MS, 2 * SECOND), LinkOutage("b", "c", 3 * SECOND)),
        node_outages=(NodeOutage("d", 0, 20 * MS),),
        partitions=(Partition(frozenset({"b", "a"}), 10 * MS, 20 * MS),),
        slow_nodes=(SlowNode("a", 700),),
        clock_skews=(ClockSkew("b", 30 * MS),),
    )
    assert faults.describe().splitlines() == [
        "the link a-b is down from 1.5 s to 2 s",
        "the link b-c is down for good from 3 s on",
        "the node d is down from 0 us to 20 ms",
        "a, b are cut off from 10 ms to 20 ms",
        "the node a takes 700 us for every message",
        "the clock of b is 30 ms behind",
    ]
    assert faults
    assert not Faults()
    assert Faults().describe() == "nothing goes wrong"
    assert (faults.message_us("a"), faults.message_us("b")) == (700, 0)
    assert (faults.behind_us("b"), faults.behind_us("a")) == (30 * MS, 0)


@pytest.mark.parametrize(
    ("faults", "why"),
    [
        (Faults(node_outages=(NodeOutage("x", 0, 1),)), "there is no node 'x'; there is: a, b, c, d"),
        (Faults(partitions=(Partition(frozenset({"a", "y"}), 0, 1),)), "there is no node 'y'"),
        (Faults(link_outages=(LinkOutage("a", "c", 0, 1),)), "there is no link between 'a' and 'c'"),
        (Faults(link_outages=(LinkOutage("a", "b", 5, 5),)), "end after it begins"),
        (Faults(node_outages=(NodeOutage("a", -1, 5),)), "begin at 0 or later"),
        (Faults(slow_nodes=(SlowNode("a", -1),)), "write 0 or more"),
        (Faults(clock_skews=(ClockSkew("a", 101),)), "its sources allow events to be 100 us late"),
        (Faults(clock_skews=(ClockSkew("a", 60), ClockSkew("a", 60))), "its sources allow events to be 100 us late"),
    ],
)
def test_faults_that_do_not_fit_the_network_are_refused(faults: Faults, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        faults.check(a_network(lateness_us=100))


def test_random_faults_fit_the_network_heal_in_time_and_show_every_kind() -> None:
    network = a_network(lateness_us=100)
    seen: set[str] = set()
    for seed in range(300):
        faults = random_faults(network, seed, 10 * SECOND, from_us=2 * SECOND)
        faults.check(network)
        assert faults == random_faults(network, seed, 10 * SECOND, from_us=2 * SECOND)
        assert faults.healed_us <= 12 * SECOND
        outages: tuple[LinkOutage | NodeOutage | Partition, ...] = (
            *faults.link_outages,
            *faults.node_outages,
            *faults.partitions,
        )
        assert all(each.from_us >= 2 * SECOND for each in outages)
        seen |= {name for name in faults.__slots__ if getattr(faults, name)} or {"none"}
        assert not random_faults(network, seed, 10 * SECOND, crashes=False).node_outages
    assert seen == {"link_outages", "node_outages", "partitions", "slow_nodes", "clock_skews", "none"}


def test_random_faults_last_for_good_only_on_request() -> None:
    network = a_network()
    gone = [random_faults(network, seed, SECOND, permanent=True) for seed in range(100)]
    assert any(each.to_us == FOREVER for faults in gone for each in faults.link_outages)
    assert any(each.to_us == FOREVER for faults in gone for each in faults.node_outages)
    assert any(faults.healed_us < FOREVER for faults in gone)


def test_a_network_of_one_node_can_have_faults_too() -> None:
    alone = replace(a_network(), nodes=("a",), links=(), sources=())
    assert any(random_faults(alone, seed, SECOND) for seed in range(20))
    assert not random_faults(alone, 1, 0)
