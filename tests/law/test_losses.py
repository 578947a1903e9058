"""Links and nodes are lost, come back, or come back without memory: what the coordinator asks and orders, what a node
answers and keeps, and what becomes of it in a whole network."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

import pytest

from headwater.coordinator.core import Coordinator, Orders
from headwater.coordinator.requests import (
    AddSource,
    AddSubscription,
    Change,
    DeployRules,
    EndSubscription,
    UndeployRule,
)
from headwater.deploy.simulation.faults import Amnesia, Faults, LinkOutage, NodeOutage, SlowCoordinator
from headwater.deploy.simulation.outages import GiveUp
from headwater.deploy.simulation.simulator import Simulation, simulate
from headwater.node.core import NodeCore
from headwater.node.effects import Effect, LinkReset, MessageReceived, OrderReceived, Report, Send, Tell
from headwater.protocol.errors import ConfigError
from headwater.protocol.events import Event
from headwater.protocol.messages import control
from headwater.protocol.messages.neighbour import TreeReady
from headwater.protocol.messages.plans import (
    Abort,
    Adopt,
    BeginTree,
    DeliveredTo,
    DeliveredWatermark,
    PlannedTree,
    Prepare,
    Prepared,
    ReportToCoordinator,
    TellDelivered,
    TreeBroken,
    TreeStands,
)
from headwater.protocol.messages.trees import CreateTree, DropLink, ForgetTree, StartTree, TreeNack, UseLink
from headwater.protocol.network import Link, Network, Sink, Source
from headwater.protocol.pattern import Rule
from headwater.protocol.strategy import STRATEGIES
from headwater.protocol.subscriptions import Subscription
from tests.law.test_changes import FIRE, HOT, SMOKE, TEMP, S, every_second, leader_of, rule, tell, times

Kind = TypeVar("Kind")

RING = ("p1", "p2", "p3", "p4")


def a_ring(
    *,
    rules: Sequence[Rule] = (),
    sinks: Sequence[Sink] = (),
    sources: Sequence[Source] | None = None,
    strategy: str = "st",
) -> Network:
    links = tuple(Link(one, other, 5000) for one, other in zip(RING, (*RING[1:], "p1"), strict=True))
    sources = (Source("p2", "Smoke"), Source("p3", "Temp")) if sources is None else sources
    return Network((SMOKE, TEMP), RING, links, tuple(sources), tuple(sinks), tuple(rules), strategy)


def fires(sources: Sequence[Source] | None = None, strategy: str = "st") -> Network:
    return a_ring(rules=[rule(FIRE)], sinks=[Sink("p1", Subscription("Fire"))], sources=sources, strategy=strategy)


def standing(network: Network, strategy: str = "st") -> Coordinator:
    """A coordinator whose first trees stand."""
    coordinator = Coordinator(network, strategy)
    stand(coordinator, coordinator.begin())
    return coordinator


def stand(coordinator: Coordinator, orders: Orders) -> Orders:
    """Have all trees that are ordered stand; the orders that follow."""
    found: Orders = []
    for node, order in orders:
        if isinstance(order, StartTree):
            found += coordinator.reported(node, TreeStands(order.tree, order.epoch))
    return found


def of_kind(orders: Orders, kind: type[Kind]) -> list[tuple[str, Kind]]:
    return [(node, order) for node, order in orders if isinstance(order, kind)]


# -- the coordinator ---------------------------------------------------------------------------------------------------


def test_nothing_is_rebuilt_before_every_node_has_told_how_far_trees_have_delivered() -> None:
    coordinator = standing(fires())
    leader = leader_of(coordinator)
    other = next(iter(node for node, parent in coordinator.trees.expected(leader).items() if parent == leader))
    asked = coordinator.lost_link(leader, other)
    assert asked == [(node, TellDelivered(1)) for node in RING]
    assert coordinator.unanswered() == list(RING)
    for node in RING[:-1]:
        assert coordinator.reported(node, DeliveredTo(1, (DeliveredWatermark(leader, 1, 300.0),))) == []
    assert coordinator.reported("p4", DeliveredTo(7, ())) == [], "an answer to another question"
    orders = coordinator.reported("p4", DeliveredTo(1, (DeliveredWatermark(leader, 1, 400.0),)))
    assert coordinator.unanswered() == []
    assert of_kind(orders, DropLink) == [(leader, DropLink(other)), (other, DropLink(leader))]
    assert of_kind(orders, ForgetTree) == [(node, ForgetTree(leader, 1)) for node in RING]
    shares = [order.share for _, order in of_kind(orders, Adopt)]
    assert {(share.plan, share.from_us, share.trees) for share in shares} == {(2, None, (PlannedTree(leader, 2, 401),))}
    (begin,) = [order for _, order in stand(coordinator, orders)]
    assert begin == BeginTree(leader, 2, 2, 401, 400 - 2 * coordinator.horizon_us())


def test_losses_that_follow_while_nodes_are_asked_are_dealt_with_by_the_same_answers() -> None:
    coordinator = standing(fires())
    coordinator.lost_link("p1", "p2")
    assert coordinator.rejoined("p4") == []
    assert coordinator.unanswered() == ["p1", "p2", "p3"], "who remembers nothing has nothing to tell"
    assert coordinator.reported("p1", DeliveredTo(1, ())) == []
    assert coordinator.reported("p2", DeliveredTo(1, ())) == []
    orders = coordinator.lost_node("p3")
    assert orders, "it was the last that had not told"
    assert not [order for node, order in orders if node == "p3"]
    assert set(coordinator.nodes()) == {"p1", "p2", "p4"}
    assert not coordinator.sources.keys() & {1}, "its source went with it"


def test_what_begins_after_a_loss_goes_on_from_there_if_the_next_loss_comes_first() -> None:
    coordinator = standing(fires())
    leader = leader_of(coordinator)
    orders = tell(coordinator, coordinator.rejoined("p4"), {"p1": [(leader, 1, 400.0)]})
    assert of_kind(orders, StartTree)
    orders = tell(coordinator, coordinator.rejoined("p4"), {})
    ((_, begin),) = of_kind(stand(coordinator, orders), BeginTree)
    assert begin.from_us == 401


def test_a_tree_that_a_node_finds_broken_is_built_anew_once() -> None:
    coordinator = standing(fires())
    leader = leader_of(coordinator)
    asked = coordinator.reported("p3", TreeBroken(leader, 1))
    assert coordinator.reported("p2", TreeBroken(leader, 1)) == []
    orders = tell(coordinator, asked, {"p2": [(leader, 1, 400.0)]})
    assert of_kind(orders, StartTree) == [(leader, StartTree(leader, 2))]
    late = coordinator.reported("p2", TreeBroken(leader, 1))
    assert late == [(node, ForgetTree(leader, 1)) for node in RING], "that was the build before"


def test_a_node_that_remembers_nothing_gets_the_plan_and_what_is_lost() -> None:
    coordinator = standing(fires())
    tell(coordinator, coordinator.lost_link("p3", "p4"), {})
    orders = tell(coordinator, coordinator.rejoined("p4"), {})
    to_it = [order for node, order in orders if node == "p4"]
    assert isinstance(to_it[0], Adopt)
    assert DropLink("p3") in to_it


def test_a_link_that_is_back_is_used_in_later_builds_and_nothing_is_rebuilt_for_it() -> None:
    coordinator = standing(fires())
    leader = leader_of(coordinator)
    before = dict(coordinator.trees.expected(leader))
    stand(coordinator, tell(coordinator, coordinator.lost_link("p1", "p2"), {}))
    assert coordinator.link_back("p2", "p1") == [("p2", UseLink("p1", 1)), ("p1", UseLink("p2", 1))]
    assert coordinator.link_back("p2", "p1") == [], "known already"
    assert coordinator.trees.expected(leader) != before
    tell(coordinator, coordinator.rejoined("p4"), {})
    assert coordinator.trees.expected(leader) == before
    with pytest.raises(ConfigError, match="no link joins"):
        coordinator.link_back("p1", "p3")


def test_nodes_that_were_cut_off_are_reached_again_when_their_link_is_back() -> None:
    coordinator = standing(fires())
    leader = leader_of(coordinator)
    stand(coordinator, tell(coordinator, coordinator.lost_link("p3", "p4"), {}))
    orders = tell(coordinator, coordinator.lost_link("p4", "p1"), {})
    assert coordinator.trees.cut_off(leader) == ("p4",)
    (share,) = [order.share for node, order in of_kind(orders, Adopt) if node == "p4"]
    assert share.trees == (), "it need not keep anything for a tree that does not reach it"
    stand(coordinator, orders)
    orders = tell(coordinator, coordinator.link_back("p3", "p4"), {})
    assert len(of_kind(orders, UseLink)) == 2
    assert of_kind(orders, StartTree) == [(leader, StartTree(leader, coordinator.trees.epoch(leader)))]
    assert coordinator.trees.cut_off(leader) == ()


def test_a_node_that_is_back_takes_up_its_sources_and_sinks_under_their_numbers() -> None:
    coordinator = standing(fires())
    stand(coordinator, tell(coordinator, coordinator.lost_node("p3"), {}))
    with pytest.raises(ConfigError, match="given up as lost"):
        coordinator.rejoined("p3")
    assert coordinator.lost_node("p3") == []
    orders = tell(coordinator, coordinator.node_back("p3"), {})
    assert {node for node, _ in of_kind(orders, Adopt)} == set(RING)
    assert of_kind(orders, UseLink) == [
        *((node, UseLink("p3", 1)) for node in ("p2", "p4")),
        *(("p3", UseLink(node, 1)) for node in ("p2", "p4")),
    ]
    orders = stand(coordinator, orders)
    assert {node for node, _ in of_kind(orders, Prepare)} == set(RING)
    for node in RING:
        coordinator.reported(node, Prepared(1, 900))
    assert coordinator.held_from == [(AddSource(Source("p3", "Temp"), number=1), 901)]
    assert coordinator.sources[1][1].from_us == 901


def test_what_was_removed_is_taken_back_when_its_last_tree_is_lost_before_it_has_drained() -> None:
    coordinator = standing(fires())
    leader = leader_of(coordinator)
    coordinator.request(EndSubscription(0))
    for node in RING:
        orders = coordinator.reported(node, Prepared(1, 900))
    assert 0 not in coordinator.sinks
    stand(coordinator, orders)
    orders = tell(coordinator, coordinator.rejoined("p4"), {"p1": [(leader, 1, 400.0), (leader, 2, 900.0)]})
    assert coordinator.sinks[0][1].until_us == 900
    ((_, begin),) = of_kind(stand(coordinator, orders), BeginTree)
    assert begin.from_us == 401


# -- changes that are given up -----------------------------------------------------------------------------------------


def test_a_change_that_waits_for_a_loss_can_be_given_up() -> None:
    coordinator = standing(fires())
    coordinator.request(DeployRules((rule(HOT),)))
    asked = coordinator.lost_link("p1", "p2")
    assert len(of_kind(asked, Abort)) == 4
    assert coordinator.unprepared() == []
    assert coordinator.abort() == []
    assert [change for change, _ in coordinator.given_up] == [DeployRules((rule(HOT),))]
    orders = stand(coordinator, tell(coordinator, asked, {}))
    assert of_kind(orders, Prepare) == []
    assert coordinator.reported("p1", Prepared(1, 500)) == [], "an answer that comes too late"
    assert coordinator.held_from == []


def test_a_loss_cannot_be_given_up() -> None:
    coordinator = standing(fires())
    asked = coordinator.lost_link("p1", "p2")
    assert coordinator.abort() == []
    assert coordinator.given_up == []
    assert of_kind(tell(coordinator, asked, {}), Adopt)


def test_a_change_that_makes_no_sense_any_more_when_its_turn_comes_is_given_up_with_a_sentence() -> None:
    coordinator = standing(fires())
    coordinator.request(UndeployRule("Fire"))
    coordinator.request(UndeployRule("Fire"))
    coordinator.request(DeployRules((rule(HOT),)))
    for node in RING:
        orders = coordinator.reported(node, Prepared(1, 500))
    orders = stand(coordinator, orders)
    ((change, why),) = coordinator.given_up
    assert (change, "no rule 'Fire'" in why) == (UndeployRule("Fire"), True)
    assert len(of_kind(orders, Prepare)) == 4, "the next one has its turn"


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_changes_that_are_given_up_again_and_again_leave_no_trace(strategy: str) -> None:
    network = fires()
    births = every_second(20)
    changes: list[tuple[int, Change | GiveUp]] = [(8 * S, AddSource(Source("p4", "Temp"))), (9 * S, EndSubscription(0))]
    changes += [(8 * S + n * S // 10, GiveUp()) for n in range(1, 40)]
    slow = Faults(slow_coordinators=(SlowCoordinator(400_000),))
    outcome = simulate(
        network,
        births,
        strategy=strategy,
        changes=sorted(changes, key=lambda change: change[0]),
        check=True,
        faults=slow,
    )
    assert outcome.counters["given_up"] > 0
    (_, (removed, held_from)) = outcome.held_from
    assert isinstance(removed, EndSubscription)
    alone = times(simulate(network, births, strategy=strategy))
    assert sorted(times(outcome)) == sorted(ts for ts in alone if ts < held_from)


# -- a node ------------------------------------------------------------------------------------------------------------


def reports(effects: Iterable[Effect]) -> list[str]:
    return [effect.counter for effect in effects if isinstance(effect, Report)]


def told(effects: Iterable[Effect]) -> list[ReportToCoordinator]:
    return [effect.report for effect in effects if isinstance(effect, Tell)]


def test_a_neighbour_that_remembers_nothing_breaks_the_trees_it_is_part_of() -> None:
    simulation = Simulation(fires(), "st", 0, Faults())
    simulation.set_up(-S)
    leader = leader_of(simulation.coordinator)
    parents = simulation.coordinator.trees.expected(leader)
    child = next(node for node, parent in parents.items() if parent == leader)
    core = simulation.nodes[leader]
    effects = core.handle(LinkReset(child), 0)
    assert told(effects) == [TreeBroken(leader, 1)]
    assert core.works == {}
    assert reports(core.handle(MessageReceived(child, TreeReady(leader, 1, 1)), 0)) == ["forgotten_tree"]
    assert told(core.handle(OrderReceived(TellDelivered(1)), 0)) == [
        DeliveredTo(1, (DeliveredWatermark(leader, 1, -float("inf")),))
    ], "how far it had come is not forgotten"
    core.handle(OrderReceived(ForgetTree(leader, 1)), 0)
    assert told(core.handle(OrderReceived(TellDelivered(2)), 0)) == [DeliveredTo(2, ())]
    assert core.handle(LinkReset("absent"), 0) == []


def test_a_node_that_remembers_nothing_takes_what_concerns_its_former_life_for_forgotten() -> None:
    core = NodeCore("x", {"y": 1})
    effects = core.handle(MessageReceived("y", CreateTree("x", 3, 0)), 0)
    assert reports(effects) == ["forgotten_tree"]
    assert [effect.message for effect in effects if isinstance(effect, Send)] == [TreeNack("x", 3, 0)]


def test_orders_and_reports_about_losses_travel() -> None:
    for order in (TellDelivered(3), UseLink("p1", 1)):
        assert control.decode(control.encode(control.Ordered(order))) == control.Ordered(order)
    for report in (TreeBroken("p1", 2), DeliveredTo(3, (DeliveredWatermark("p1", 2, float("inf")),))):
        assert control.decode(control.encode(control.Reported(report))) == control.Reported(report)


# -- networks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("node", ["p1", "p2", "p3", "p4"])
def test_what_other_nodes_have_is_found_although_one_has_forgotten_everything(strategy: str, node: str) -> None:
    network, births = fires(), every_second(20)
    faults = Faults(amnesias=(Amnesia(node, 8 * S + 500_000, 11 * S + 500_000),))
    outcome = simulate(network, births, strategy=strategy, faults=faults, check=True)
    assert outcome.counters["unknown_tree"] == outcome.counters["unknown_stream"] == 0
    alone = times(simulate(network, births, strategy=strategy))
    if node == "p4":  # it had nothing of its own
        assert sorted(times(outcome)) == sorted(alone)
    else:
        assert set(times(outcome)) <= set(alone)
        assert {ts for ts in alone if not 3 * S <= ts <= 18 * S} <= set(times(outcome))
    if node != "p1":
        assert len(outcome.delivered) == len({fire.id for fire in outcome.composites()}), "nothing is repeated"


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_link_that_was_given_up_and_is_back_carries_again(strategy: str) -> None:
    network, births = fires(), every_second(30)
    cuts = (
        LinkOutage("p2", "p3", 5 * S, 9 * S, given_up=True),
        LinkOutage("p1", "p2", 14 * S),
    )
    changes = [(12 * S, AddSubscription(Sink("p4", Subscription("Fire"))))]
    outcome = simulate(
        network, births, strategy=strategy, faults=Faults(link_outages=cuts), changes=changes, check=True
    )
    alone = times(simulate(network, births, strategy=strategy))
    assert sorted(times(outcome)) == sorted(alone)
    assert any(outcome.traffic[link].messages for link in outcome.traffic if link[:2] in (("p2", "p3"), ("p3", "p2")))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_root_that_was_cut_off_and_is_reached_again_finds_what_the_others_kept(strategy: str) -> None:
    """Alone it had no sources, and so nothing to wait for: that must not count as having delivered everything."""
    sources = (Source("p2", "Smoke"), Source("p2", "Temp"))
    sinks = (Sink("p2", Subscription("Fire")),)
    network = Network((SMOKE, TEMP), ("p1", "p2"), (Link("p1", "p2", 5000),), sources, sinks, (rule(FIRE),), strategy)
    births = []
    for number, second in enumerate(range(1, 31)):
        at = second * S
        births.append((at, 1, Event(TEMP, at, "p2", 2 * number, {"area": "a", "value": 60.0})))
        births.append((at + 10, 0, Event(SMOKE, at + 10, "p2", 2 * number + 1, {"area": "a"})))
    cut = LinkOutage("p1", "p2", 8 * S + 500_000, 15 * S + 500_000, given_up=True)
    outcome = simulate(network, births, strategy=strategy, faults=Faults(link_outages=(cut,)), check=True)
    assert sorted(times(outcome)) == sorted(times(simulate(network, births, strategy=strategy)))


def test_a_leader_that_reaches_fewer_nodes_than_another_could_is_replaced() -> None:
    links = (Link("p1", "p2", 5000), Link("p2", "p3", 5000), Link("p3", "p4", 5000))
    network = Network((SMOKE, TEMP), ("p1", "p2", "p3", "p4"), links, (), (), (), "st")
    coordinator = standing(network)
    assert coordinator.trees.leader == "p2"
    orders = tell(coordinator, coordinator.lost_link("p1", "p2"), {})
    assert coordinator.trees.leader == "p2", "it still reaches most of them"
    stand(coordinator, orders)
    orders = tell(coordinator, coordinator.lost_link("p2", "p3"), {})
    assert coordinator.trees.leader == "p3"
    assert ("p3", StartTree("p3", 1)) in orders
    assert coordinator.trees.cut_off("p3") == ("p1", "p2")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_slow_node_goes_on_although_one_of_its_links_is_lost(strategy: str) -> None:
    from headwater.deploy.simulation.faults import SlowNode

    network, births = fires(), every_second(20)
    faults = Faults(link_outages=(LinkOutage("p1", "p2", 8 * S),), slow_nodes=(SlowNode("p1", 1000),))
    outcome = simulate(network, births, strategy=strategy, faults=faults, check=True)
    assert sorted(times(outcome)) == sorted(times(simulate(network, births, strategy=strategy)))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_lost_node_takes_its_sources_with_it_and_what_others_had_counts(strategy: str) -> None:
    network, births = fires(sources=(Source("p2", "Smoke"), Source("p3", "Temp"))), every_second(20)
    faults = Faults(node_outages=(NodeOutage("p3", 10 * S + 500_000),))
    outcome = simulate(network, births, strategy=strategy, faults=faults, check=True)
    alone = times(simulate(network, births, strategy=strategy))
    assert [ts for ts in sorted(times(outcome)) if ts <= 9 * S] == [ts for ts in sorted(alone) if ts <= 9 * S]
    assert set(times(outcome)) <= set(alone)
    assert len(outcome.forgotten) == 1


@pytest.mark.parametrize("strategy", ["mt", "mt-pp"])
@pytest.mark.parametrize("name", ["Fire", "Blaze", "Flame", "Glow"])
def test_each_part_of_a_network_that_has_fallen_apart_finds_its_rules(name: str, strategy: str) -> None:
    """Rules are kept by their names at any node: here perhaps at one that a part cannot reach any more."""
    links = (Link("p1", "p2", 5000), Link("p2", "p3", 5000), Link("p3", "p4", 5000))
    sinks = (Sink("p1", Subscription(name)), Sink("p4", Subscription(name)))
    sources = (Source("p1", "Smoke"), Source("p2", "Temp"))
    network = Network((SMOKE, TEMP), RING, links, sources, sinks, (rule(FIRE.replace("Fire", name)),), strategy)
    births = [
        (at, source, Event.from_row((*event[:1], ("p1", "p2")[source], *event[2:])))
        for at, source, event in every_second(20)
    ]
    lost = Faults(link_outages=(LinkOutage("p2", "p3", 8 * S),))
    outcome = simulate(network, births, strategy=strategy, faults=lost, check=True)
    assert sorted(times(outcome)) == sorted(times(simulate(network, births, strategy=strategy)))
