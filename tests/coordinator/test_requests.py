"""Requests on their way through the core: what becomes of each is told with its ticket, once."""

from __future__ import annotations

from typing import get_args

from headwater.coordinator import requests
from headwater.coordinator.core import Coordinator, Orders
from headwater.coordinator.requests import AddSubscription, Change, Decision, DeployRules, Request, UndeployRule
from headwater.protocol.events import EventType
from headwater.protocol.languages import Source as RuleText
from headwater.protocol.languages import parse_rules
from headwater.protocol.messages.plans import Adopt, Prepare, Prepared, TreeStands
from headwater.protocol.network import Sink
from headwater.protocol.pattern import Rule
from headwater.protocol.subscriptions import Subscription
from tests.kit.scripted_nodes import HEAT, a_network


def a_coordinator() -> Coordinator:
    coordinator = Coordinator(a_network(), "st")
    coordinator.begin()
    finish_trees(coordinator)
    return coordinator


def finish_trees(coordinator: Coordinator) -> Orders:
    orders: Orders = []
    for tree in list(coordinator.trees.roots):
        orders += coordinator.reported(tree, TreeStands(tree, coordinator.trees.epoch(tree)))
    return orders


def prepare(coordinator: Coordinator, orders: Orders, promised_us: int = 900) -> Orders:
    """Have all nodes that are asked to prepare a change do so; the orders that follow."""
    answers: Orders = []
    for node, order in orders:
        if isinstance(order, Prepare):
            answers += coordinator.reported(node, Prepared(order.change, promised_us))
    return answers


def rules(coordinator: Coordinator, *texts: str) -> tuple[Rule, ...]:
    sources = [RuleText(text, f"t{number}", "tesla") for number, text in enumerate(texts)]
    return tuple(parse_rules(sources, coordinator.network.types).rules)


def test_every_request_is_a_change_or_a_decision_or_stands_for_changes() -> None:
    composed = {requests.ReplaceRule, requests.AddClientSubscription, requests.EndClientSubscription}
    assert set(get_args(Request)) == {*get_args(Change), *get_args(Decision)} | composed


def test_equal_changes_are_told_apart_by_their_tickets() -> None:
    coordinator = a_coordinator()
    orders = coordinator.request(UndeployRule("Fire"), 7)
    assert coordinator.request(UndeployRule("Fire"), 8) == []
    prepare(coordinator, orders)
    (made,) = coordinator.take_outcomes()
    assert (made.ticket, made.from_us, made.refused) == (7, 901, None)
    finish_trees(coordinator)
    (refused,) = coordinator.take_outcomes()
    assert (refused.ticket, refused.from_us) == (8, None)
    assert refused.refused is not None
    assert "no rule 'Fire' is deployed" in refused.refused
    assert coordinator.take_outcomes() == []


def test_an_outcome_tells_the_number_of_what_was_added() -> None:
    coordinator = a_coordinator()
    number = coordinator.contents.next_sink
    prepare(coordinator, coordinator.request(AddSubscription(Sink("n2", Subscription("Fire"))), 1))
    (made,) = coordinator.take_outcomes()
    assert made.number == number
    assert coordinator.sinks[number][0] == "n2"


def test_rules_of_one_change_hold_from_the_same_time() -> None:
    coordinator = a_coordinator()
    both = rules(coordinator, HEAT, HEAT.replace("Heat", "Warm"))
    prepare(coordinator, coordinator.request(DeployRules(both)))
    assert {coordinator.rules[rule.name].since_us for rule in both} == {901}


def test_nodes_are_told_of_declared_types_with_the_next_plan() -> None:
    coordinator = a_coordinator()
    known = coordinator.network.types
    rain = EventType("Rain", (("area", "string"),))
    coordinator.declare([rain, EventType(known[0].name, ())])
    orders = prepare(coordinator, coordinator.request(UndeployRule("Fire")))
    shares = [order.share for _, order in orders if isinstance(order, Adopt)]
    assert shares
    assert all(share.types == (*known, rain) for share in shares), "a type that is known stays as it is"
