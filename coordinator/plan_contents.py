"""The contents of a plan: sources, sinks and rules, each with the event times between which it holds."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from headwater.coordinator.layout.planner_interface import Ground, Link
from headwater.coordinator.requests import (
    AddSource,
    AddSubscription,
    Change,
    DeployRules,
    EndSource,
    EndSubscription,
    UndeployRule,
)
from headwater.protocol.analysis.horizons import horizon_us
from headwater.protocol.errors import ConfigError
from headwater.protocol.events import EventType
from headwater.protocol.messages.plans import PlannedRule, PlannedSink, PlannedSource
from headwater.protocol.messages.recovery import Noted, NotedPlan, NotedRule, NotedSink, NotedSource
from headwater.protocol.network import DescribedTable, Network, Sink, Source
from headwater.protocol.pattern import Rule, types_of, waits_through
from headwater.protocol.streams import UNBOUNDED_US as UNBOUNDED_US


class Contents:
    """The current plan, and what was part of earlier ones that trees still serve."""

    def __init__(self, network: Network) -> None:
        self.sources = {n: (s.node, _planned(n, s)) for n, s in enumerate(network.sources)}
        self.sinks = {n: (s.node, PlannedSink(n, s.subscription)) for n, s in enumerate(network.sinks)}
        self.rules = {rule.name: PlannedRule(rule) for rule in network.rules}
        self.next_source = len(self.sources)
        self.next_sink = len(self.sinks)
        self._retired: list[_Retired] = []
        """What is no part of the plan any more, but of one that trees still serve."""

    def horizon_us(self) -> int:
        """How far before its end the parts of a composite can lie, through all the rules it is made by."""
        rules = [planned.rule for planned in self.rules.values()]
        return max((self._reach(rule, rules, ()) for rule in rules), default=0)

    def _reach(self, rule: Rule, rules: Collection[Rule], above: tuple[str, ...]) -> int:
        own = horizon_us(rule)
        if own is None:
            return UNBOUNDED_US
        read = types_of(rule.pattern)
        below = [self._reach(other, rules, (*above, rule.name)) for other in rules if other.emits in read]
        return min(UNBOUNDED_US, own + max(below, default=0))

    def check(self, change: Change, nodes: Sequence[str]) -> None:
        """ConfigError if a change makes no sense now; ``nodes`` are those that are there."""
        match change:
            case DeployRules(rules):
                for rule in rules:
                    deployed = self.rules.get(rule.name)
                    if deployed is not None and deployed.until_us is None:
                        raise ConfigError(f"a rule {rule.name!r} is deployed already; undeploy it first")
            case UndeployRule(name):
                live = sorted(planned.rule.name for planned in self.rules.values() if planned.until_us is None)
                if name not in live:
                    raise ConfigError(f"no rule {name!r} is deployed; there are: {', '.join(live)}")
            case EndSubscription(number):
                if number not in self.sinks or self.sinks[number][1].until_us is not None:
                    raise ConfigError(f"there is no sink {number}")
            case EndSource(number):
                if number not in self.sources or self.sources[number][1].until_us is not None:
                    raise ConfigError(f"there is no source {number}")
            case AddSubscription(Sink(node)) | AddSource(Source(node)):
                if node not in nodes:
                    raise ConfigError(f"the network has no node {node!r}; it has: {', '.join(nodes)}")

    def let_go(self, from_us: int, plan: int) -> None:
        """Drop what ended so long ago that neither a decision nor a past event of it can still be needed. What a source
        had brought before it was told to end may be later than its end, by as much as its events may be late."""
        past = from_us - 2 * self.horizon_us() - 1
        for number, (_, source) in list(self.sources.items()):
            if source.until_us is not None and source.until_us + source.lateness_us <= past:
                self._retire(plan, source=number)
        for number, (_, sink) in list(self.sinks.items()):
            if sink.until_us is not None and sink.until_us <= past:
                self._retire(plan, sink=number)
        for name, planned in list(self.rules.items()):
            if planned.until_us is not None and planned.until_us <= past:
                self._retire(plan, rule=name)

    def _retire(
        self, plan: int, *, source: int | None = None, sink: int | None = None, rule: str | None = None
    ) -> None:
        """The next plan does without it, unless trees of earlier ones are lost before they have drained."""
        retired = _Retired(plan)
        if source is not None:
            retired.source = self.sources.pop(source)
        if sink is not None:
            retired.sink = self.sinks.pop(sink)
        if rule is not None:
            retired.rule = self.rules.pop(rule)
        self._retired.append(retired)

    def forget_before(self, oldest_plan: int) -> None:
        """No tree serves an earlier plan than this."""
        self._retired = [retired for retired in self._retired if retired.plan > oldest_plan]

    def take_back(self, nodes: Collection[str]) -> None:
        """Trees of earlier plans are lost before they have drained: their rest is found by those of the next.
        ``nodes`` are those that are left."""
        for retired in self._retired:
            if retired.source is not None and retired.source[0] in nodes:
                self.sources[retired.source[1].number] = retired.source
            if retired.sink is not None and retired.sink[0] in nodes:
                self.sinks[retired.sink[1].number] = retired.sink
            if retired.rule is not None:
                self._keep_ended(retired.rule)
        self._retired = []

    def _keep_ended(self, ended: PlannedRule) -> None:
        """Keep an ended rule beside the one that has its name now, unless the two give different types of one name."""
        types = {planned.rule.emits: composite_type(planned.rule) for planned in self.rules.values()}
        name, composite = ended.rule.name, composite_type(ended.rule)
        if types.get(composite.name, composite).declaration() == composite.declaration():
            self.rules[name if name not in self.rules else f"{name} until {ended.until_us}"] = ended

    def apply(self, change: Change, from_us: int, plan: int) -> int | None:
        """Make a change that holds from this time on, with this plan. The number of what it has added, if any."""
        last = from_us - 1
        rules = [planned.rule for planned in self.rules.values()]
        waiting = {rule.emits for rule in rules if waits_through(rule, rules)}
        match change:
            case DeployRules(deployed):
                for rule in deployed:
                    before = self.rules.pop(rule.name, None)
                    self.rules[rule.name] = PlannedRule(rule, from_us)
                    if before is not None:
                        self._keep_ended(before)
            case UndeployRule(name):
                # The plan before this one finds everything that ends before it, unless what follows decides it.
                waits = waits_through(self.rules[name].rule, rules)
                self.rules[name] = replace(self.rules[name], until_us=last)
                if not waits:
                    self._retire(plan, rule=name)
            case AddSubscription(sink, _, again):
                number = self.next_sink if again is None else again
                self.sinks[number] = (sink.node, PlannedSink(number, sink.subscription, from_us))
                self.next_sink = max(self.next_sink, number + 1)
                return number
            case EndSubscription(number):
                node, planned_sink = self.sinks[number]
                self.sinks[number] = (node, replace(planned_sink, until_us=last))
                if planned_sink.subscription.type not in waiting:
                    self._retire(plan, sink=number)
            case AddSource(source, _, again):
                number = self.next_source if again is None else again
                self.sources[number] = (source.node, _planned(number, source, from_us))
                self.next_source = max(self.next_source, number + 1)
                return number
            case EndSource(number):
                node, ended = self.sources[number]
                self.sources[number] = (node, replace(ended, until_us=last))
        return None

    def lose(self, node: str) -> list[AddSource | AddSubscription]:
        """Remove a lost node's sources and sinks; the changes that bring them back."""
        sources = [number for number, (at, _) in self.sources.items() if at == node]
        sinks = [number for number, (at, _) in self.sinks.items() if at == node]
        back: list[AddSource | AddSubscription] = []
        for number in sources:
            _, source = self.sources.pop(number)
            if source.until_us is None:
                back.append(AddSource(Source(node, source.type, source.lateness_us, source.replayed), number=number))
        for number in sinks:
            _, sink = self.sinks.pop(number)
            if sink.until_us is None:
                back.append(AddSubscription(Sink(node, sink.subscription), number=number))
        return back

    def noted(self) -> Iterator[Noted]:
        """What of this must outlive the coordinator, beside the numbers that come next."""
        for node, source in self.sources.values():
            yield NotedSource(node, source)
        for node, sink in self.sinks.values():
            yield NotedSink(node, sink)
        for name, rule in self.rules.items():
            yield NotedRule(name, rule)
        for retired in self._retired:
            if retired.source is not None:
                yield NotedSource(*retired.source, retired.plan)
            if retired.sink is not None:
                yield NotedSink(*retired.sink, retired.plan)
            if retired.rule is not None:
                yield NotedRule(retired.rule.rule.name, retired.rule, retired.plan)

    def recall(self, pieces: Iterable[Noted]) -> None:
        """Become what another coordinator has noted."""
        self.sources, self.sinks, self.rules, self._retired = {}, {}, {}, []
        for piece in pieces:
            match piece:
                case NotedPlan(next_source=next_source, next_sink=next_sink):
                    self.next_source, self.next_sink = next_source, next_sink
                case NotedSource(node, source, None):
                    self.sources[source.number] = (node, source)
                case NotedSink(node, sink, None):
                    self.sinks[sink.number] = (node, sink)
                case NotedRule(name, rule, None):
                    self.rules[name] = rule
                case NotedSource(node, source, int(plan)):
                    self._retired.append(_Retired(plan, source=(node, source)))
                case NotedSink(node, sink, int(plan)):
                    self._retired.append(_Retired(plan, sink=(node, sink)))
                case NotedRule(_, rule, int(plan)):
                    self._retired.append(_Retired(plan, rule=rule))

    def ground(
        self,
        nodes: Sequence[str],
        links: Iterable[Link],
        from_us: int | None,
        tables: tuple[DescribedTable, ...] = (),
    ) -> Ground:
        """What rules are laid over: these nodes and links, with the sources and sinks that are at them."""
        sources: dict[str, tuple[str, ...]] = {}
        for node, source in self.sources.values():
            if node in nodes and node not in sources.get(source.type, ()):
                sources[source.type] = (*sources.get(source.type, ()), node)
        sinks = tuple((node, sink.subscription.type) for node, sink in self.sinks.values() if node in nodes)
        return Ground(tuple(nodes), tuple(links), sources, sinks, tuple(self.rules.values()), from_us, tables)

    def as_sinks(self) -> tuple[Sink, ...]:
        """The sinks as a network has them."""
        return tuple(Sink(node, planned.subscription) for node, planned in self.sinks.values())


@dataclass(slots=True)
class _Retired:
    """A source, sink or rule, with its end, that plans from this one on do without."""

    plan: int
    source: tuple[str, PlannedSource] | None = None
    sink: tuple[str, PlannedSink] | None = None
    rule: PlannedRule | None = None


def composite_type(rule: Rule) -> EventType:
    """The type of the composite events of a rule."""
    return EventType(rule.emits, tuple((output.name, output.kind + "?") for output in rule.attributes))


def _planned(number: int, source: Source, from_us: int | None = None) -> PlannedSource:
    return PlannedSource(number, source.type, source.lateness_us, from_us, replayed=source.replayed)
