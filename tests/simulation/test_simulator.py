"""Networks in virtual time: equal arguments give equal runs to the byte; what goes wrong on the way does not show."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from headwater.deploy.simulation.faults import ClockSkew, Faults, LinkOutage, NodeOutage, Partition, SlowNode
from headwater.deploy.simulation.outcome import Outcome
from headwater.deploy.simulation.simulator import SETUP_US, Simulation, simulate
from headwater.deploy.simulation.traffic_and_delay import delivery_line
from headwater.node.core import NodeSettings
from headwater.node.effects import Send
from headwater.node.engine import Engine
from headwater.protocol.composites import Composite
from headwater.protocol.events import Event
from headwater.protocol.messages.neighbour import Batch
from headwater.protocol.network import Link, Network, Sink, Source
from headwater.protocol.pattern import Rule
from headwater.protocol.strategy import STRATEGIES
from headwater.protocol.subscriptions import parse_subscription
from tests.kit.builders import TYPES, absent, chain, each, last, no, rule, seq

MS = 1_000
Birth = tuple[int, int, Event]

CHOSEN = rule(
    chain("A a", last("B b", 40 * MS, "a"), each("C c", 60 * MS, "a"), absent("D d", within=10 * MS, of="a")),
    "b.v = a.v",
    "c.v >= a.v",
    name="chosen",
    emits="X",
    out={"v": "a.v"},
)
FOLLOWED = rule(
    seq("C c", "B b", no("D d"), within=30 * MS, bounds="span"),
    "c.v = b.v",
    name="followed",
    emits="Y",
    out={"v": "c.v"},
)

# A star around n2 with a tail: n5 - n1 - n2 - (n3, n4).
LINKS = (("n5", "n1"), ("n1", "n2"), ("n2", "n3"), ("n2", "n4"))


def a_network(
    *rules: Rule,
    links: Iterable[tuple[str, str]] = LINKS,
    sources: Sequence[tuple[str, str]] = (("n3", "A"), ("n4", "B"), ("n5", "C"), ("n3", "D")),
    sinks: Sequence[tuple[str, str]] = (("n5", "X"), ("n4", "X(v = 1)"), ("n3", "Y")),
    lateness_us: int = 2 * MS,
    delay_us: int = 3 * MS,
    **link: Any,
) -> Network:
    """Nodes are those that links, sources and sinks name."""
    links = tuple(links)
    named = [node for pair in links for node in pair] + [node for node, _ in (*sources, *sinks)]
    return Network(
        types=tuple(TYPES.values()),
        nodes=tuple(sorted(set(named))),
        links=tuple(Link(one, other, delay_us, **link) for one, other in links),
        sources=tuple(Source(node, name, lateness_us) for node, name in sources),
        sinks=tuple(Sink(node, parse_subscription(text)) for node, text in sinks),
        rules=rules or (CHOSEN, FOLLOWED),
    )


def births_of(network: Network, count: int = 150, seed: int = 1, spread_us: int = 4 * MS) -> list[Birth]:
    """Events with a few values, each source in turn by chance; every event arrives within its source's lateness."""
    chance = random.Random(seed)
    ts, born, numbers = 0, [], dict.fromkeys(network.nodes, 0)
    for _ in range(count):
        ts += chance.randrange(1, 2 * spread_us)
        number = chance.randrange(len(network.sources))
        source = network.sources[number]
        numbers[source.node] += 1
        values = {"id": numbers[source.node], "v": chance.randrange(3)}
        event = Event(TYPES[source.type], ts, source.node, numbers[source.node], values)
        born.append((ts + chance.randrange(source.lateness_us // 2 + 1), number, event))
    return sorted(born, key=lambda birth: birth[0])


def run(network: Network, births: Iterable[Birth], strategy: str = "st", **options: Any) -> Outcome:
    """A watched run whose nodes keep house often and change masters whenever they may."""
    settings = NodeSettings(tick_least_us=5 * MS, review_us=20 * MS, restless=True)
    return simulate(network, births, strategy=strategy, check=True, settings=settings, **options)


class Overheard(Simulation):
    """A run whose messages are kept: (when, sender, receiver, message)."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.messages: list[tuple[int, str, str, Any]] = []
        super().__init__(*arguments, **options)

    def _send(self, node: str, effect: Send) -> None:
        self.messages.append((self.now_us, node, effect.neighbour, effect.message))
        super()._send(node, effect)

    def of(self, kind: type[Any], sender: str | None = None, receiver: str | None = None) -> list[Any]:
        """The messages of a type, between two nodes if they are named."""
        return [
            message
            for _, one, other, message in self.messages
            if isinstance(message, kind) and sender in (None, one) and receiver in (None, other)
        ]

    def rows(self, sender: str | None = None, receiver: str | None = None) -> list[tuple[Any, ...]]:
        """The bodies of events that crossed towards parents."""
        batches = self.of(Batch, sender, receiver)
        return [row for batch in batches for run in batch.runs for row in run.rows or ()]


def overheard(
    network: Network, births: Sequence[Birth], strategy: str = "st", settings: NodeSettings | None = None, seed: int = 0
) -> Overheard:
    made = Overheard(network, strategy, seed, Faults(), check=True, settings=settings)
    made.set_up(births[0][0] - SETUP_US if births else 0)
    made.run(births)
    return made


def as_bytes(outcome: Outcome) -> bytes:
    """Everything that a run tells."""
    lines = [repr((delivery_line(each), each.delivered_us)) for each in outcome.delivered]
    lines += [repr((link, traffic)) for link, traffic in outcome.traffic.items()]
    lines += [repr(sorted(outcome.counters.items())), repr(outcome.tasks), repr(outcome.born)]
    lines.append(f"{outcome.started_us} {outcome.finished_us}")
    return "\n".join(lines).encode()


def results(outcome: Outcome) -> list[tuple[int, str, Any]]:
    """What reached which sink, whenever it did."""
    return sorted(
        (each.sink, each.node, each.item.id if isinstance(each.item, Composite) else (each.item.node, each.item.seq))
        for each in outcome.delivered
    )


def found_by_one_engine(network: Network, births: Iterable[Birth]) -> list[str]:
    engine = Engine(network.rules, network.types)
    found = engine.feed(sorted(event for _, _, event in births)) + engine.close()
    return sorted(match.id for match in found)


BAD_LINKS: dict[str, Any] = {"jitter_us": 5 * MS, "loss": 0.1, "bandwidth_bps": 500_000}
TROUBLE = Faults(
    link_outages=(LinkOutage("n2", "n3", 100 * MS, 180 * MS),),
    node_outages=(NodeOutage("n2", 300 * MS, 360 * MS),),
    partitions=(Partition(frozenset({"n1", "n5"}), 420 * MS, 480 * MS),),
    slow_nodes=(SlowNode("n1", 200),),
    clock_skews=(ClockSkew("n4", 900),),
)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_same_seed_gives_the_same_run_to_the_byte(strategy: str) -> None:
    network = a_network(**BAD_LINKS)
    births = births_of(network)
    one = run(network, births, strategy, seed=5, faults=TROUBLE)
    assert as_bytes(one) == as_bytes(run(network, births, strategy, seed=5, faults=TROUBLE))
    assert one.delivered


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_another_seed_gives_another_run_with_the_same_results(strategy: str) -> None:
    network = a_network(**BAD_LINKS)
    births = births_of(network)
    one, other = (run(network, births, strategy, seed=seed) for seed in (5, 6))
    assert as_bytes(one) != as_bytes(other)
    assert results(one) == results(other)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_checkers_and_the_wire_change_nothing(strategy: str) -> None:
    network = a_network(**BAD_LINKS)
    births = births_of(network)
    plain = simulate(network, births, strategy=strategy, seed=3)
    for checked, wired in ((True, False), (False, True), (True, True)):
        other = simulate(network, births, strategy=strategy, seed=3, check=checked, wire=wired)
        assert as_bytes(other) == as_bytes(plain)


def test_all_strategies_give_a_sink_what_one_engine_finds() -> None:
    network = a_network(sinks=(("n5", "X"), ("n5", "Y")), **BAD_LINKS)
    births = births_of(network)
    must = found_by_one_engine(network, births)
    assert len(must) > 20
    for strategy in STRATEGIES:
        assert sorted(identity for _, _, identity in results(run(network, births, strategy))) == must


# -- faults ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("node", ["n1", "n2"])
def test_a_node_without_sources_that_starts_again_in_the_middle_changes_no_result(strategy: str, node: str) -> None:
    network = a_network()
    births = births_of(network)
    outage = Faults(node_outages=(NodeOutage(node, 200 * MS, 330 * MS), NodeOutage(node, 400 * MS, 401 * MS)))
    broken = run(network, births, strategy, faults=outage)
    calm = run(network, births, strategy)
    assert results(broken) == results(calm)
    assert as_bytes(broken) != as_bytes(calm), "the outage was not noticed at all"
    assert max(each.delivered_us - each.item.ts for each in broken.delivered) > 100 * MS


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_events_at_a_node_that_is_down_are_never_born_and_all_others_count(strategy: str) -> None:
    network = a_network()
    births = births_of(network)
    outcome = run(network, births, strategy, faults=Faults(node_outages=(NodeOutage("n3", 200 * MS, 330 * MS),)))
    lost = [event for at, _, event in births if event.node == "n3" and 200 * MS <= at < 330 * MS]
    assert outcome.counters["unborn"] == len(lost) > 3
    assert {event.seq for event in outcome.born if event.node == "n3"}.isdisjoint(event.seq for event in lost)
    left = [(at, source, event) for at, source, event in births if event not in lost]
    assert results(outcome) == results(run(network, left, strategy))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_partition_delays_what_crosses_it_and_heals(strategy: str) -> None:
    network = a_network()
    births = births_of(network)
    cut = Faults(partitions=(Partition(frozenset({"n3", "n4"}), 100 * MS, 400 * MS),))
    parted, whole = run(network, births, strategy, faults=cut), run(network, births, strategy)
    assert results(parted) == results(whole)
    crossing = [each for each in parted.delivered if each.node == "n5" and 120 * MS < each.item.ts < 380 * MS]
    assert crossing
    assert all(each.delivered_us > 400 * MS for each in crossing)


def test_late_events_are_counted_and_no_part_of_the_trace() -> None:
    network = a_network()
    births = births_of(network)
    _, source, event = births[40]
    late = sorted([*births[:40], (event.ts + 2 * MS + 1, source, event), *births[41:]], key=lambda birth: birth[0])
    outcome = run(network, late)
    assert outcome.counters["late_events"] == 1
    assert event not in outcome.born
    assert len(outcome.born) == len(births) - 1
    in_time = sorted([*births[:40], (event.ts + 2 * MS, source, event), *births[41:]], key=lambda birth: birth[0])
    assert run(network, in_time).counters["late_events"] == 0


# -- unusual networks --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_network_of_one_node_sends_nothing(strategy: str) -> None:
    everything = tuple(("alone", name) for name in "ABCD")
    network = a_network(links=(), sources=everything, sinks=(("alone", "X"), ("alone", "Y"), ("alone", "A")))
    births = births_of(network)
    outcome = run(network, births, strategy)
    assert outcome.traffic == {}
    composites = sorted(each.item.id for each in outcome.delivered if isinstance(each.item, Composite))
    assert composites == found_by_one_engine(network, births)
    plain = [each.item for each in outcome.delivered if isinstance(each.item, Event)]
    assert plain == [event for _, _, event in births if event.type == "A"]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_without_sinks_nothing_is_delivered_and_everything_is_born(strategy: str) -> None:
    network = a_network(sinks=())
    births = births_of(network)
    outcome = run(network, births, strategy)
    assert outcome.delivered == []
    assert len(outcome.born) == len(births)
    if strategy.startswith("mt"):  # no node has a tree, so none needs anything
        assert outcome.traffic == {}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_events_that_no_rule_reads_stay_where_they_are(strategy: str) -> None:
    network = a_network(sources=(("n3", "A"), ("n4", "B"), ("n5", "C"), ("n3", "D"), ("n4", "E")))
    births = births_of(network)
    unread = [event for _, _, event in births if event.type == "E"]
    outcome = overheard(network, births, strategy)
    assert len(unread) > 10
    assert len(outcome.outcome.born) == len(births)
    names = {row[3].name for row in outcome.rows() if not isinstance(row[3], Composite)}
    assert "E" not in names
    assert names >= {"A", "C"}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_run_without_events_ends(strategy: str) -> None:
    outcome = run(a_network(), [], strategy)
    assert outcome.born == []
    assert outcome.delivered == []


def test_a_long_way_to_set_up_begins_earlier() -> None:
    """Trees and tasks stand before the first event, however long their building takes."""
    network = a_network(delay_us=900 * MS)
    births = births_of(network, count=40)
    outcome = run(network, births)
    assert outcome.started_us < births[0][0]
    assert len(outcome.born) == len(births)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_nodes_hold_does_not_grow_with_the_length_of_the_run(strategy: str) -> None:
    network = a_network()
    settings = NodeSettings(tick_least_us=5 * MS, review_us=100 * MS)
    short, long = (overheard(network, births_of(network, count), strategy, settings) for count in (400, 1000))
    assert short.checkers is not None
    assert long.checkers is not None
    for node in network.nodes:
        assert long.checkers.held_max[node] < 1.3 * short.checkers.held_max[node] + 10, node
