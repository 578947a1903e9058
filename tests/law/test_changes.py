"""Rules, sinks and sources come and go, links and nodes are lost: other rules miss nothing, and nothing is repeated."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence

import pytest

from headwater.coordinator.core import Coordinator, Orders
from headwater.coordinator.requests import (
    AddSource,
    AddSubscription,
    Change,
    DeployRules,
    EndSubscription,
    TidyUp,
    UndeployRule,
)
from headwater.deploy.simulation.faults import Faults, NodeOutage
from headwater.deploy.simulation.outcome import Outcome
from headwater.deploy.simulation.simulator import Simulation, simulate
from headwater.node.plans.tree_tasks import TreeTasks
from headwater.protocol.errors import ConfigError
from headwater.protocol.events import Event, EventType
from headwater.protocol.languages import Source as RuleText
from headwater.protocol.languages import parse_rules
from headwater.protocol.messages.plans import (
    Abort,
    Adopt,
    BeginTree,
    DeliveredTo,
    DeliveredWatermark,
    Prepare,
    Prepared,
    TellDelivered,
    TreeStands,
)
from headwater.protocol.network import Link, Network, Sink, Source
from headwater.protocol.pattern import Rule
from headwater.protocol.strategy import STRATEGIES
from headwater.protocol.subscriptions import Subscription
from tests.kit.first_seed import first_seed
from tests.law.fuzz_changes import KINDS, judge
from tests.law.networks import Birth

SECONDS = 60.0
KEPT = (
    ("changes+losses", 1054),
    ("changes+losses", 50023),
    ("changes+losses", 9120450),
    ("storms", 10),
    ("storms", 70036),
    ("storms", 51000114),
    ("busy", 16),
    ("busy", 71),
    ("busy", 717261961),
    ("changes+storms", 506),
    ("changes+storms", 70026),
    ("changes+storms", 120020),
    ("changes+storms", 557040291),
    ("changes+faults", 77000127),
    ("changes+faults", 77000160),
    ("fall-backs", 77000142),
    ("late changes", 16),
    ("late changes", 25),
    ("late changes", 43),
    ("late changes", 44),
    ("late busy", 500027),
)
"""Kinds and seeds that once failed."""
S = 1_000_000

SMOKE, TEMP = EventType("Smoke", {"area": "string"}), EventType("Temp", {"area": "string", "value": "float"})
FIRE = """
event Smoke(area: string)
event Temp(area: string, value: float)
define Fire(area: string) from Smoke(area = $a) and each Temp(area = $a and value > 45) within 5 s from Smoke
where area = Smoke.area
"""
HOT = """
event Temp(area: string, value: float)
define Hot(value: float) from Temp(value > 50) where value = Temp.value
"""


def rule(text: str) -> Rule:
    (found,) = parse_rules([RuleText(text, "rule.tesla", "tesla")]).rules
    return found


def a_network(
    *,
    rules: Sequence[Rule] = (),
    sinks: Sequence[Sink] = (),
    sources: Sequence[Source] | None = None,
    strategy: str = "st",
) -> Network:
    links = (Link("p1", "p2", 5000), Link("p2", "p3", 5000), Link("p1", "p3", 20000))
    sources = (Source("p2", "Smoke"), Source("p3", "Temp")) if sources is None else sources
    return Network((SMOKE, TEMP), ("p1", "p2", "p3"), links, tuple(sources), tuple(sinks), tuple(rules), strategy)


def every_second(until_s: int, *, temp_source: int = 1) -> list[Birth]:
    births: list[Birth] = []
    for second in range(1, until_s + 1):
        at = second * S
        births.append((at, temp_source, Event(TEMP, at, "p3", second, {"area": "a", "value": 60.0})))
        births.append((at + 10, 0, Event(SMOKE, at + 10, "p2", second, {"area": "a"})))
    return births


def times(outcome: Outcome, sink: int = 0) -> list[int]:
    return [delivery.item.ts for delivery in outcome.delivered if delivery.sink == sink]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_rule_that_is_deployed_later_sees_nothing_from_before(strategy: str) -> None:
    network = a_network(sinks=[Sink("p1", Subscription("Fire"))])
    outcome = simulate(
        network,
        every_second(20),
        strategy=strategy,
        changes=[(8 * S + 500_000, DeployRules((rule(FIRE),)))],
        check=True,
    )
    ((_, held_from),) = outcome.held_from
    fires = outcome.composites()
    assert fires
    assert min(part.ts for fire in fires for _, part in fire.events) >= held_from
    assert len({fire.id for fire in fires}) == len(fires)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_rule_that_goes_delivers_what_ends_before(strategy: str) -> None:
    network = a_network(rules=[rule(FIRE)], sinks=[Sink("p1", Subscription("Fire"))])
    outcome = simulate(
        network, every_second(20), strategy=strategy, changes=[(8 * S, UndeployRule("Fire"))], check=True
    )
    ((_, held_from),) = outcome.held_from
    alone = simulate(network, every_second(20), strategy=strategy)
    assert sorted(times(outcome)) == sorted(ts for ts in times(alone) if ts < held_from)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_late_sink_gets_composites_whose_parts_are_older(strategy: str) -> None:
    network = a_network(rules=[rule(FIRE)], sinks=[Sink("p1", Subscription("Fire"))])
    change = AddSubscription(Sink("p3", Subscription("Fire")))
    outcome = simulate(network, every_second(20), strategy=strategy, changes=[(8 * S, change)], check=True)
    ((_, held_from),) = outcome.held_from
    assert sorted(times(outcome, 1)) == sorted(ts for ts in times(outcome, 0) if ts >= held_from)
    late = outcome.composites(1)
    assert min(part.ts for fire in late for _, part in fire.events) < held_from


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_sink_that_goes_leaves_the_others_alone(strategy: str) -> None:
    sinks = [Sink("p1", Subscription("Fire")), Sink("p3", Subscription("Fire"))]
    network = a_network(rules=[rule(FIRE)], sinks=sinks)
    outcome = simulate(network, every_second(20), strategy=strategy, changes=[(8 * S, EndSubscription(0))], check=True)
    ((_, held_from),) = outcome.held_from
    assert max(times(outcome, 0)) < held_from
    assert sorted(times(outcome, 1)) == sorted(times(simulate(network, every_second(20), strategy=strategy), 1))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_source_that_comes_later_is_heard_from_then_on(strategy: str) -> None:
    network = a_network(rules=[rule(FIRE)], sinks=[Sink("p1", Subscription("Fire"))], sources=[Source("p2", "Smoke")])
    outcome = simulate(
        network, every_second(20), strategy=strategy, changes=[(8 * S, AddSource(Source("p3", "Temp")))], check=True
    )
    ((_, held_from),) = outcome.held_from
    assert outcome.counters["unborn"] + outcome.counters["unadvertised_events"] > 0
    assert all(event.ts >= held_from for event in outcome.born if event.type == "Temp")
    assert min(times(outcome)) >= held_from


ALONE = """
event Smoke(area: string)
event Temp(area: string, value: float)
Alone: SEQ(Smoke s, !(Temp t)) WHERE t.area = s.area WITHIN 5 s RETURN Alone(area = s.area)
"""


def alone() -> Rule:
    (found,) = parse_rules([RuleText(ALONE.replace("!(Temp t)", "!Temp t"), "alone.sase", "sase")]).rules
    return found


def smokes_and_a_temperature(temperature_s: int) -> list[Birth]:
    births: list[Birth] = [(at * S, 0, Event(SMOKE, at * S, "p2", at, {"area": "a"})) for at in range(1, 30)]
    at = temperature_s * S
    births.append((at, 1, Event(TEMP, at, "p3", 1, {"area": "a", "value": 1.0})))
    return sorted(births)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_is_undecided_when_the_plan_changes_is_decided_by_the_next(strategy: str) -> None:
    """Each Smoke waits 5 s for a Temp that forbids it; plans follow each other faster than that."""
    network = a_network(rules=[alone()], sinks=[Sink("p1", Subscription("Alone"))])
    changes = [(at * S + 500_000, AddSubscription(Sink("p3", Subscription("Alone")))) for at in (10, 12, 14, 16)]
    births = smokes_and_a_temperature(15)
    outcome = simulate(network, births, strategy=strategy, changes=changes, check=True)
    assert len(outcome.held_from) == 4
    assert sorted(times(outcome)) == sorted(times(simulate(network, births, strategy=strategy)))
    assert sorted(times(outcome)) == [at * S for at in range(1, 30) if not 10 <= at <= 15]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_new_source_may_forbid_what_ended_before_it_came(strategy: str) -> None:
    network = a_network(rules=[alone()], sinks=[Sink("p1", Subscription("Alone"))], sources=[Source("p2", "Smoke")])
    births = smokes_and_a_temperature(15)
    change = AddSource(Source("p3", "Temp"))
    outcome = simulate(network, births, strategy=strategy, changes=[(14 * S + 990_000, change)], check=True)
    assert sorted(times(outcome)) == [at * S for at in range(1, 30) if not 10 <= at <= 15]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_nothing_is_promised_while_a_source_is_being_added(strategy: str) -> None:
    """p1 is down when it is asked; until it answers, the others must not decide what the new source may forbid."""
    network = a_network(rules=[alone()], sinks=[Sink("p2", Subscription("Alone"))], sources=[Source("p2", "Smoke")])
    births = [birth for birth in smokes_and_a_temperature(15) if birth[1] == 0]
    births.append((27 * S, 1, Event(TEMP, 15 * S, "p3", 1, {"area": "a", "value": 1.0})))
    outcome = simulate(
        network,
        sorted(births),
        strategy=strategy,
        changes=[(14 * S + 990_000, AddSource(Source("p3", "Temp", 20 * S)))],
        faults=Faults(node_outages=(NodeOutage("p1", 14 * S, 25 * S),)),
        check=True,
    )
    ((_, held_from),) = outcome.held_from
    assert 14 * S < held_from <= 15 * S
    assert sorted(times(outcome)) == [at * S for at in range(1, 30) if not 10 <= at <= 15]


def test_what_went_is_forgotten() -> None:
    network = a_network(rules=[rule(FIRE), rule(HOT)], sinks=[Sink("p1", Subscription("Fire"))])
    changes: list[tuple[int, Change]] = [(5 * S, UndeployRule("Fire")), (6 * S, EndSubscription(0)), (18 * S, TidyUp())]
    simulation = Simulation(network, "st", 0, Faults())
    simulation.set_up(-S)
    simulation.run(every_second(30), None, changes)
    for core in simulation.nodes.values():
        assert len(core.works) == 1
        (work,) = core.works.values()
        assert isinstance(work, TreeTasks)
        assert not any("Fire" in str(stream) for stream in work.feeds)
    assert sum(core.held() for core in simulation.nodes.values()) < 100


# -- the coordinator ---------------------------------------------------------------------------------------------------


def a_coordinator() -> Coordinator:
    network = a_network(rules=[rule(FIRE)], sinks=[Sink("p1", Subscription("Fire"))])
    coordinator = Coordinator(network, "st")
    coordinator.begin()
    coordinator.reported(leader_of(coordinator), TreeStands(leader_of(coordinator), 1))
    return coordinator


def leader_of(coordinator: Coordinator) -> str:
    leader = coordinator.trees.leader
    assert leader is not None
    return leader


def tell(
    coordinator: Coordinator, orders: Orders, watermarks: Mapping[str, Sequence[tuple[str, int, float]]]
) -> Orders:
    """Have every node that is asked answer with its watermarks; the orders that follow."""
    found: Orders = []
    for node, order in orders:
        if isinstance(order, TellDelivered):
            known = tuple(DeliveredWatermark(*watermark) for watermark in watermarks.get(node, ()))
            found += coordinator.reported(node, DeliveredTo(order.loss, known))
    return found


def test_a_change_holds_from_above_the_greatest_promise() -> None:
    coordinator = a_coordinator()
    orders = coordinator.request(DeployRules((rule(HOT),)))
    assert [order for _, order in orders] == [Prepare(1, False, False)] * 3
    assert coordinator.reported("p1", Prepared(1, 500)) == []
    assert coordinator.reported("p2", Prepared(1, 900)) == []
    orders = coordinator.reported("p3", Prepared(1, 700))
    shares = [order.share for _, order in orders if isinstance(order, Adopt)]
    assert {share.from_us for share in shares} == {901}
    assert {planned.since_us for share in shares for planned in share.rules if planned.rule.name == "Hot"} == {901}
    assert coordinator.held_from == [(DeployRules((rule(HOT),)), 901)]


def test_without_all_acknowledgements_there_is_no_change() -> None:
    coordinator = a_coordinator()
    coordinator.request(DeployRules((rule(HOT),)))
    coordinator.reported("p1", Prepared(1, 500))
    assert {type(order) for _, order in coordinator.abort()} == {Abort}
    assert "Hot" not in coordinator.rules
    assert coordinator.reported("p2", Prepared(1, 500)) == []


def test_changes_are_made_one_after_the_other() -> None:
    coordinator = a_coordinator()
    coordinator.request(DeployRules((rule(HOT),)))
    assert coordinator.request(UndeployRule("Fire")) == []
    for node in ("p1", "p2", "p3"):
        orders = coordinator.reported(node, Prepared(1, 500))
    assert not any(isinstance(order, Prepare) for _, order in orders), "the new tree does not stand yet"
    leader = leader_of(coordinator)
    orders = coordinator.reported(leader, TreeStands(leader, coordinator.trees.epoch(leader)))
    assert any(isinstance(order, BeginTree) for _, order in orders)
    assert sum(isinstance(order, Prepare) for _, order in orders) == 3


def test_no_change_holds_from_before_an_earlier_one() -> None:
    """A replayed source has ended meanwhile, and with it the greatest promise is gone."""
    coordinator = a_coordinator()
    coordinator.request(DeployRules((rule(HOT),)))
    for node in ("p1", "p2", "p3"):
        coordinator.reported(node, Prepared(1, 900))
    leader = leader_of(coordinator)
    coordinator.request(AddSubscription(Sink("p1", Subscription("Hot"))))
    coordinator.reported(leader, TreeStands(leader, coordinator.trees.epoch(leader)))
    for node in ("p1", "p2", "p3"):
        coordinator.reported(node, Prepared(2, 500))
    assert [from_us for _, from_us in coordinator.held_from] == [901, 901]


def test_a_change_waits_when_a_link_is_lost_while_it_is_prepared() -> None:
    coordinator = a_coordinator()
    coordinator.request(DeployRules((rule(HOT),)))
    coordinator.reported("p1", Prepared(1, 500))
    leader = leader_of(coordinator)
    other = next(node for node in ("p1", "p3") if node != leader)
    orders = coordinator.lost_link(leader, other)
    assert sum(isinstance(order, Abort) for _, order in orders) == 3
    tell(coordinator, orders, {leader: [(leader, 1, 400.0)]})
    assert coordinator.reported("p2", Prepared(1, 500)) == []
    orders = coordinator.reported(leader, TreeStands(leader, coordinator.trees.epoch(leader)))
    (begin,) = [order for _, order in orders if isinstance(order, BeginTree)]
    assert begin.from_us == 401
    assert [order.change for _, order in orders if isinstance(order, Prepare)] == [2, 2, 2]


def test_the_tree_of_a_new_leader_takes_up_where_the_lost_one_ended() -> None:
    network = a_network(rules=[rule(FIRE)], sinks=[Sink("p1", Subscription("Fire"))], sources=[Source("p3", "Temp")])
    coordinator = Coordinator(network, "st")
    coordinator.begin()
    lost = leader_of(coordinator)
    assert lost == "p2"
    coordinator.reported(lost, TreeStands(lost, 1))
    tell(coordinator, coordinator.lost_node(lost), {"p3": [(lost, 1, 400.0)], "p1": [(lost, 1, 300.0)]})
    leader = leader_of(coordinator)
    orders = coordinator.reported(leader, TreeStands(leader, 1))
    assert [order.from_us for _, order in orders if isinstance(order, BeginTree)] == [401]


def test_changes_that_make_no_sense_are_refused_with_a_sentence() -> None:
    coordinator = a_coordinator()
    for change in (
        DeployRules((rule(FIRE),)),
        UndeployRule("Nope"),
        EndSubscription(7),
        AddSubscription(Sink("p9", Subscription("Fire"))),
    ):
        with pytest.raises(ConfigError):
            coordinator.request(change)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_trees_may_be_computed_instead_of_built(strategy: str) -> None:
    network = a_network(rules=[rule(FIRE)], sinks=[Sink("p1", Subscription("Fire"))])
    changes = [(8 * S, AddSubscription(Sink("p3", Subscription("Fire"))))]
    built = simulate(network, every_second(20), strategy=strategy, changes=changes)
    placed = simulate(network, every_second(20), strategy=strategy, changes=changes, computed_trees=True, check=True)
    assert sorted(times(built)) == sorted(times(placed))


# -- random changes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(("kind", "seed"), KEPT)
def test_kept_seeds(kind: str, seed: int, strategy: str) -> None:
    verdict = judge(kind, seed, strategy)
    assert verdict is not None
    assert not verdict.wrong


def test_random_seeds() -> None:
    """The law under random changes, with and without faults, and under losses of all sorts."""
    seed = first_seed()
    ends = time.monotonic() + float(os.environ.get("HEADWATER_CHANGES_SECONDS", SECONDS))
    runs: Counter[str] = Counter()
    while time.monotonic() < ends or runs["tried"] < 5 * len(KINDS):
        kind, strategy = KINDS[runs["tried"] % len(KINDS)], STRATEGIES[runs["tried"] // len(KINDS) % len(STRATEGIES)]
        verdict = judge(kind, seed, strategy)
        runs["tried"] += 1
        if verdict is not None:
            again = f"scripts/fuzz changes --seed {seed} --count 1 --strategies {strategy} --kinds '{kind}'"
            assert not verdict.wrong, f"{verdict.wrong[:5]}; repeat with: {again}"
            runs[kind] += 1
            runs["matches"] += verdict.matches
        seed += 1
    print(dict(runs))
    assert runs["matches"]
