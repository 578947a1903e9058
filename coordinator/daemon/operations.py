"""Requests in progress: the steps of each, one change at a time, and the clients that wait for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, assert_never

from headwater.coordinator.core import UNBOUNDED_US, Coordinator
from headwater.coordinator.daemon.registry import Registry
from headwater.coordinator.requests import (
    AddClientSubscription,
    AddSource,
    AddSubscription,
    Change,
    DeployRules,
    EndClientSubscription,
    EndSource,
    EndSubscription,
    FallBack,
    GiveUpLink,
    GiveUpNode,
    PlanAnew,
    ReplaceRule,
    Request,
    TakeLinkBack,
    TakeNodeBack,
    TidyUp,
    UndeployRule,
    describe,
)
from headwater.protocol.edge import ClientTo, Feed
from headwater.protocol.events import EventType
from headwater.protocol.network import Sink, Source, why_not_in_time
from headwater.protocol.pattern import Rule, types_of
from headwater.protocol.payload_maps import feed_flaws
from headwater.protocol.strategy import PLANNED_STRATEGIES, strategy_of
from headwater.protocol.subscriptions import Subscription
from headwater.protocol.text import listed, suggestion

SingleChange: TypeAlias = (
    UndeployRule | AddSubscription | EndSubscription | AddSource | EndSource | PlanAnew | TidyUp | FallBack
)
"""Requests that are one change as they stand."""


class RequestRefused(Exception):
    """What was asked for cannot be: an HTTP status and a sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence


@dataclass(frozen=True, slots=True)
class Waiter:
    """Who waits for its outcome: a client over HTTP, or a node on behalf of a program."""

    request: str | int
    node: str | None = None


@dataclass(slots=True)
class Operation:
    """One request. Its steps are made one after the other; a step that fails ends it."""

    number: int
    ask: Request
    asked_us: int
    waiters: list[Waiter]
    key: str | None = None
    steps: list[Change] = field(default_factory=list)
    deadline_us: int | None = None
    """Until when the current step must have been prepared by all; None: its turn has not come."""
    started: bool = False
    """Whether nodes have been asked to prepare the current step."""
    holds_from_us: int | None = None
    subscription: int | None = None
    source: int | None = None
    made: int = 0
    warnings: list[str] = field(default_factory=list)
    """What the client should know although everything holds."""

    def what(self) -> str:
        return describe(self.ask)

    def body(self) -> dict[str, Any]:
        """What is told of it when it holds."""
        body: dict[str, Any] = {"change": self.number, "what": self.what(), "holds_from_us": self.holds_from_us}
        match self.ask:
            case DeployRules(rules):
                body["rules"] = [rule.name for rule in rules]
            case ReplaceRule(rule):
                body["rules"] = [rule.name]
        if self.subscription is not None:
            body["subscription"] = self.subscription
        if self.source is not None:
            body["source"] = self.source
        if self.warnings:
            body["warnings"] = list(self.warnings)
        return body

    def partly(self, sentence: str) -> str:
        """Why it has failed, and what of it holds all the same."""
        if not self.made:
            return f"{sentence}; nothing has been changed"
        match self.ask:
            case ReplaceRule():
                return f"{sentence}; the old rule is undeployed, the new one is not deployed: deploy it again"
            case _:
                return f"{sentence}; the first {self.made} of its steps hold, the others do not"


def already_deployed(names: Sequence[str]) -> str:
    """Why rules cannot be deployed whose names are taken."""
    one = len(names) == 1
    return (
        f"{'a rule' if one else 'rules'} {listed(map(repr, names))} {'is' if one else 'are'} deployed already; "
        f"replace {'it' if one else 'them'} (POST /rules?replace=true), or undeploy {'it' if one else 'them'} first"
    )


def event_time(from_us: int) -> int | None:
    """As it is shown: None where a change holds from the beginning of time."""
    return from_us if from_us > -UNBOUNDED_US else None


# --------------------------------------------------------------------------------------------------------------- steps


class RequestPlanner:
    """Turns what is asked for into changes, or says why it cannot be, as things stand when its turn has come."""

    def __init__(self, coordinator: Coordinator, registry: Registry) -> None:
        self._coordinator = coordinator
        self._registry = registry

    def steps(self, ask: Request) -> list[Change]:
        """The changes that bring it about; none if everything is as asked already. RequestRefused if it makes no
        sense."""
        match ask:
            case DeployRules(rules, _, replaces):
                return self._deploy(rules, replaces)
            case ReplaceRule(rule):
                self._check_known(rule.name)
                self._check_rule(rule)
                return [UndeployRule(rule.name), DeployRules((self._renewed(rule),))]
            case AddClientSubscription(node, client, subscription):
                if self.client_sink(node, client, subscription) is not None:
                    return []
                return self.steps(AddSubscription(Sink(node, subscription), ClientTo(client)))
            case EndClientSubscription(node, client, subscription):
                number = self.client_sink(node, client, subscription)
                return [] if number is None else [EndSubscription(number)]
            case GiveUpNode() | GiveUpLink() | TakeNodeBack() | TakeLinkBack():
                raise AssertionError("decisions hold at once and do not wait for their turn")
            case _:
                self._check(ask)
                return [ask]

    def client_sink(self, node: str, client: str, subscription: Subscription) -> int | None:
        """The number of the sink that a program has for a subscription, if there is one that has not ended."""
        for number, kept in sorted(self._registry.sinks.items()):
            config = kept.config
            if kept.node == node and config.subscription == subscription and config.destination == ClientTo(client):
                sink = self._coordinator.sinks.get(number)
                if sink is not None and sink[1].until_us is None:
                    return number
        return None

    def live_rules(self) -> dict[str, Rule]:
        rules = self._coordinator.rules
        return {name: planned.rule for name, planned in rules.items() if planned.until_us is None}

    # ------------------------------------------------------------------------------------------------------- refusals

    def _check(self, change: SingleChange) -> None:
        match change:
            case UndeployRule(name):
                self._check_known(name)
                self._check_unread(name)
            case AddSubscription(sink):
                self._check_node(sink.node)
                self._check_type(sink.subscription)
            case EndSubscription(number):
                self._check_sink(number)
            case AddSource(source, feed):
                self._check_source(source, feed)
            case EndSource(number):
                self._check_source_number(number)
            case PlanAnew():
                self._check_planned()
            case TidyUp() | FallBack():
                pass  # they make sense at any time
            case _:
                assert_never(change)

    def _deploy(self, rules: Sequence[Rule], replaces: bool) -> list[Change]:
        """Rules that are deployed as they are stay; all that are replaced end before the first new one begins, so that
        none of them ever reads what it was not checked with."""
        live = self.live_rules()
        changed = [rule for rule in rules if live.get(rule.name) != self._renewed(rule, by=0)]
        deployed = [rule.name for rule in rules if rule.name in live]
        if deployed and not replaces:
            raise RequestRefused(409, already_deployed(deployed))
        for rule in changed:
            self._check_rule(rule)
        ended = [UndeployRule(rule.name) for rule in reversed(changed) if rule.name in live]
        return [*ended, *(DeployRules((self._renewed(rule),)) for rule in changed)]

    def _renewed(self, rule: Rule, by: int = 1) -> Rule:
        """With the version after that of the rule whose place it takes: another rule under the same name makes other
        composites, even of the same events."""
        before = self.live_rules().get(rule.name)
        return rule if before is None else replace(rule, version=before.version + by)

    def _check_rule(self, rule: Rule) -> None:
        if rule.emits in self._registry.types:
            raise RequestRefused(
                409, f"{rule.emits!r} is an event type of the sources; give the composite event another name"
            )

    def _check_known(self, name: str) -> None:
        rules = self.live_rules()
        if name not in rules:
            raise RequestRefused(
                404, f"no rule {name!r} is deployed; {suggestion(name, sorted(rules), 'rules')}".rstrip("; ")
            )

    def _check_unread(self, name: str) -> None:
        rules = self.live_rules()
        emitted = rules[name].emits
        if any(rule.emits == emitted for other, rule in rules.items() if other != name):
            return
        readers = sorted(other for other, rule in rules.items() if emitted in types_of(rule.pattern))
        if readers:
            raise RequestRefused(409, f"rule {listed(map(repr, readers))} reads {emitted}; undeploy that first")

    def _check_node(self, node: str) -> None:
        nodes = self._coordinator.nodes()
        if node not in nodes:
            raise RequestRefused(400, f"the network has no node {node!r}; {suggestion(node, nodes, 'nodes')}")

    def _check_source(self, source: Source, feed: Feed | None) -> None:
        self._check_node(source.node)
        if source.type not in self._registry.types:
            raise RequestRefused(400, f"unknown event type {source.type!r}; {self._other_types(source.type)}")
        if feed is not None and (flaws := list(feed_flaws(feed, self._registry.types[source.type]))):
            raise RequestRefused(400, "; ".join(map(str, flaws)))
        if (why := why_not_in_time(source.replayed, self._registry.replayed)) is not None:
            raise RequestRefused(400, why)

    def _check_type(self, subscription: Subscription) -> None:
        emitted = {rule.emits for rule in self.live_rules().values()}
        if subscription.type not in emitted and subscription.type not in self._registry.types:
            raise RequestRefused(
                400, f"unknown event type {subscription.type!r}; {self._other_types(subscription.type)}"
            )

    def _check_sink(self, number: int) -> None:
        sink = self._coordinator.sinks.get(number)
        if sink is None or sink[1].until_us is not None:
            raise RequestRefused(404, f"there is no subscription {number}")

    def _check_source_number(self, number: int) -> None:
        source = self._coordinator.sources.get(number)
        if source is None or source[1].until_us is not None:
            raise RequestRefused(404, f"there is no source {number}")

    def _check_planned(self) -> None:
        strategy = self._coordinator.strategy
        if not strategy_of(strategy).planned:
            raise RequestRefused(
                409,
                f"the strategy {strategy} places nothing by rates; only {listed(PLANNED_STRATEGIES)} can plan again",
            )

    def _other_types(self, name: str) -> str:
        types: dict[str, EventType | None] = dict(self._registry.types)
        types.update((rule.emits, None) for rule in self.live_rules().values())
        return suggestion(name, sorted(types), "event types") or "there is no event type at all"
