"""The tasks and streams of a node in one tree: what it asks its children for, and what it evaluates itself.

Everything follows from the advertisements below and the streams that the parent asks for (at the root: the rules and
subscriptions): a stream that one child alone can provide is delegated to it; otherwise the rule is split, the parts are
asked of the children, and a task here puts them together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from headwater.node.plans.dataflow import KINDS, Dataflow, describe, rule_of
from headwater.node.plans.judging import Brought, judged_below, left_by, stays
from headwater.node.plans.node_plan import PlanShare
from headwater.node.plans.partition import HERE, split
from headwater.node.plans.plan_tasks import PlanTasks
from headwater.node.pull.masters import PushPull, Slot
from headwater.node.pull.push_or_pull import review
from headwater.node.step import FOREVER, Work
from headwater.node.streams.feeds import Feed, Inlet, Merge, Sieve
from headwater.node.streams.outlets import Outlet
from headwater.node.tasks.aggregates.completion import Completion
from headwater.node.tasks.aggregates.planning import asking_rule
from headwater.node.tasks.aggregates.tallies import Tallies
from headwater.node.tasks.task import JoinTask
from headwater.protocol.analysis.horizons import horizon_us
from headwater.protocol.analysis.partial_rules import PartialRule
from headwater.protocol.analysis.projection import beside_all_of, joinable_components, project
from headwater.protocol.expressions import Expression
from headwater.protocol.messages.neighbour import Deploy, Filter, Part, Settled, SettledHere, Stream, Whole
from headwater.protocol.messages.plans import PlannedRule
from headwater.protocol.messages.tallies import Tally, TallyAnswer, TallyRequest
from headwater.protocol.pattern import Aggregate, Chain, Rule, leaves, types_of
from headwater.protocol.streams import filter_of, whole_streams
from headwater.protocol.subscriptions import Subscription


class TreeTasks(PlanTasks):
    """The tables and tasks of one node in one tree and epoch."""

    def __init__(self, flow: Dataflow, *, pulls: bool = False, values: bool = True, everywhere: bool = True) -> None:
        """``pulls``: tasks may ask for events instead of being sent all; ``values``: with the values that they know.
        ``everywhere``: every node reaches all remote tables."""
        super().__init__(flow)
        self._everywhere = everywhere
        self._pulls = pulls
        self._values = values
        self.places: dict[str, set[str]] = {}
        """Where the composites of a type come from: here, or from a child that a rule was delegated to."""
        self.feeds: dict[Stream, Feed] = {}
        self._wanted_above: set[Whole] = set()
        """Rules whose composites the parent wants."""
        self._completions: list[Completion] = []
        self.tallies = Tallies(self, flow.catalog, flow.numbers)

    # ---------------------------------------------------------------------------------------------------------- tables

    def producers(self, event_type: str) -> tuple[str, ...]:
        """Where events of the type come from: children, and HERE."""
        producers = {child for child, types in self.advertised.items() if event_type in types}
        producers |= self.places.get(event_type, set())
        if event_type in self.flow.local:
            producers.add(HERE)
        return tuple(sorted(producers))

    def laid(self, work: Work) -> None:
        """In a tree only the children must know it, and the forest tells them."""

    def partner_ready(self, neighbour: str) -> bool:
        return False

    def is_ready(self) -> bool:
        """Whether all children have advertised and subscribed."""
        return self.flow.children_ready()

    def subscription(self) -> tuple[Subscription, ...]:
        return self.subscribers.combined()

    def arrange(self, share: PlanShare, work: Work) -> bool:
        wanted = self.subscribers.wanted_types()
        if share.strategy.one_tree:
            rules: list[PlannedRule] | None = share.rules.in_order()
        else:
            rules = share.rules.needed(self, wanted, share.catalog, work)
        if rules is None:
            return False
        if share.strategy.filters:
            for planned in rules:
                self._hear(planned.rule, work)
        bounds = ((planned.rule, planned.since_us, planned.until_us) for planned in rules)
        for stream in whole_streams(bounds, self.flow.from_us):
            feed = self.feed(stream, work) if share.strategy.filters else self._centrally(stream, work)
            self.flow.dispatch(feed, stream)
        for name in wanted:
            if name in share.catalog.types:
                of_type = [s for s in self.subscribers.combined() if s.type == name]
                where = of_type[0].where if len(of_type) == 1 and share.strategy.filters else ()
                self.flow.dispatch(self.feed(Filter(name, where), work))
        return True

    # ----------------------------------------------------------------------------------------------------------- feeds

    def feed(self, stream: Stream, work: Work) -> Feed:
        """The feed of a stream at this node; made, with everything below that it needs, when it is first asked for."""
        feed = self.feeds.get(stream)
        if feed is None:
            feed = self._filter(stream, work) if isinstance(stream, Filter) else self._evaluate(stream, work)
            self.feeds[stream] = feed
        return feed

    def _filter(self, stream: Filter, work: Work) -> Feed:
        inputs: list[Feed] = []
        for producer in self.producers(stream.type):
            if producer != HERE:
                rest = Filter(stream.type, left_by(self.flow.catalog, producer, stream.where))
                inputs.append(self.flow.filtered(self.inlet(producer, stream, work), rest))
            else:
                inputs += [self.flow.filtered(feed, stream) for feed in self.local_feeds(stream.type)]
        return inputs[0] if len(inputs) == 1 else Merge(inputs)

    def filters(self) -> Iterator[tuple[Filter, Sieve | JoinTask]]:
        """The conditions that events are judged by here, one by one."""
        for stream, feed in self.feeds.items():
            if isinstance(stream, Filter):
                for source in feed.inputs if isinstance(feed, Merge) else (feed,):
                    if isinstance(source, Sieve):
                        yield stream, source
                    elif isinstance(source, JoinTask) and isinstance(source.stream, Filter):
                        yield source.stream, source

    def _evaluate(self, stream: Whole | Part, work: Work, *, here: bool = False) -> Feed:
        """``here``: at this node, even if a child could do it alone."""
        rule = rule_of(stream)
        roles = (
            tuple(leaf.role for leaf in leaves(rule.pattern.root))
            if isinstance(stream, Whole)
            else stream.partial.roles
        )
        plan = split(rule, roles, {name: self.producers(name) for name in types_of(rule.pattern)})
        if plan.delegate is not None and (here or self._stays(stream, plan.delegate)):
            groups = joinable_components(rule, roles)
            plan = replace(plan, delegate=None, parts=tuple((plan.delegate, project(rule, group)) for group in groups))
        if plan.delegate is not None:
            if isinstance(stream, Whole):
                self.places.setdefault(rule.emits, set()).add(plan.delegate)
            return self.inlet(plan.delegate, stream, work)
        if self._pulls and isinstance(stream, Whole) and not here:
            completion = self._complete(stream, work)
            if completion is not None:
                return completion
        inputs: dict[int, tuple[Feed, set[str]]] = {}
        for child, partial in plan.parts:
            for below, served in self._streams_for(child, partial, stream.since_us):
                inlet = self.inlet(child, below, work)
                inputs.setdefault(id(inlet), (inlet, set()))[1].update(served)
        for leaf in leaves(rule.pattern.root):
            if leaf.role in roles and leaf.type in plan.local:
                for feed in self.local_feeds(leaf.type):
                    inputs.setdefault(id(feed), (feed, set()))[1].add(leaf.role)
        judged = judged_below(self.flow.catalog, stream, (_brought(feed, served) for feed, served in inputs.values()))
        if self._pulls and inputs:
            types = {leaf.role: leaf.type for leaf in leaves(rule.pattern.root)}
            slots = [Slot(feed, frozenset(served), types) for feed, served in inputs.values()]
            task = self._task(stream, slots, subscribe=False, judged=judged)
            task.push_pull = PushPull(rule, slots, task.horizon_us, task, values=self._values)
            return task
        return self._task(stream, [feed for feed, _ in inputs.values()], judged=judged)

    def _stays(self, stream: Whole | Part, child: str) -> bool:
        return not self._everywhere and stays(self.flow.catalog, stream, child)

    def _hear(self, rule: Rule, work: Work) -> None:
        """Ask for the filters without conditions that a rule needs, so that other rules can do with what they bring."""
        roles = tuple(leaf.role for leaf in leaves(rule.pattern.root))
        plan = split(rule, roles, {name: self.producers(name) for name in types_of(rule.pattern)})
        asks = (
            self._pulls
            and isinstance(rule.pattern.root, Chain)
            and any(isinstance(step, Aggregate) for step in rule.pattern.root.steps)
        )
        for child, partial in plan.parts if plan.delegate is None and not asks else ():
            if partial.single and not filter_of(partial).where:
                self.inlet(child, filter_of(partial), work)

    def _streams_for(
        self, child: str, partial: PartialRule, since_us: int | None
    ) -> Iterator[tuple[Stream, Iterable[str]]]:
        """The streams of a child that bring the events of a partial rule, each with the roles it serves.

        Of types that come from the child anyway, unfiltered, nothing is sent again.
        """
        if partial.single:
            yield filter_of(partial), partial.roles
            return
        types = {leaf.role: leaf.type for leaf in leaves(partial.rule.pattern.root)}
        heard = tuple(sorted(name for name in partial.types if (child, Filter(name)) in self.inlets))
        beside = beside_all_of(partial, heard) if heard else None
        if beside is None:
            yield Part(partial, since_us), partial.roles
            return
        for name in heard:
            yield Filter(name), [role for role in partial.roles if types[role] == name]
        other_roles = [role for role in partial.roles if types[role] not in heard]
        if other_roles:
            yield Part(beside, since_us, heard), other_roles

    def _complete(self, stream: Whole, work: Work) -> Feed | None:
        """The rule with aggregates whose values are asked for; None if it has none."""
        rule = stream.rule
        below = {name for name in types_of(rule.pattern) if set(self.producers(name)) - {HERE}}
        asking, reach_us = asking_rule(rule, below), horizon_us(rule)
        if asking is None or reach_us is None:
            return None
        base = replace(stream, rule=asking.base)
        self.feeds[base] = self._evaluate(base, work, here=True)
        points = [self.tallies.point(aggregate.tally, work) for aggregate in asking.asked]
        number = self.flow.numbers.next()
        completion = Completion(number, stream, asking, self.feeds[base], points, reach_us, self.flow.catalog)
        self._completions.append(completion)
        self.places.setdefault(rule.emits, set()).add(HERE)
        return completion

    def _centrally(self, stream: Whole, work: Work) -> Feed:
        """The rule over unfiltered events of all its types: the baseline."""
        rule = stream.rule
        if stream not in self.feeds:
            inputs = []
            for name in sorted(types_of(rule.pattern)):
                inputs += self.local_feeds(name) if name in self.places else [self.feed(Filter(name), work)]
            self.feeds[stream] = self._task(stream, inputs)
        return self.feeds[stream]

    def _task(
        self,
        stream: Whole | Part,
        inputs: Iterable[Feed],
        *,
        subscribe: bool = True,
        judged: tuple[Expression, ...] = (),
    ) -> JoinTask:
        task = self.flow.task(stream, inputs, subscribe=subscribe, judged=judged)
        if isinstance(stream, Whole):
            self.places.setdefault(stream.rule.emits, set()).add(HERE)
        return task

    def local_feeds(self, event_type: str) -> list[Feed]:
        """Where events of the type, primitive or composite, appear at this node."""
        feeds: list[Feed] = []
        if event_type in self.flow.local:
            feeds.append(self.flow.local[event_type])
        feeds += [
            task for task in self.tasks if isinstance(task.stream, Whole) and task.stream.rule.emits == event_type
        ]
        feeds += [task for task in self._completions if task.stream.rule.emits == event_type]
        return feeds

    def inlet(self, child: str, stream: Stream, work: Work) -> Inlet:
        """The stream as a child sends it; asked for once, however many need it here."""
        inlet = self.inlets.get((child, stream))
        if inlet is None:
            inlet = Inlet(child, self.flow.numbers.next(), stream, self.flow.catalog)
            self.flow.inlets[child, stream] = inlet
            watermarks_only = isinstance(stream, Whole) and not self._is_wanted(stream, child)
            work.send(child, Deploy(self.tree, self.epoch, inlet.number, stream, watermarks_only))
        return inlet

    def _is_wanted(self, stream: Whole, child: str) -> bool:
        """Whether a sink here, above or below another child wants the composites that a child finds."""
        return stream in self._wanted_above or self.subscribers.wants(stream.rule.emits, child)

    # ---------------------------------------------------------------------------------------------------------- output

    def serve(self, number: int, stream: Stream | Tally, work: Work, *, watermarks_only: bool = False) -> bool:
        if not self._knows_types_of(stream):
            return False
        match stream:
            case Tally():
                self.tallies.serve(number, stream, work)
                return True
            case Whole():
                if not watermarks_only:
                    self._wanted_above.add(stream)
                feed = self.feed(stream, work)
                self.flow.dispatch(feed, stream)
            case Filter() | Part():
                feed = self.feed(stream, work)
        assert self.parent is not None
        outlet = Outlet(self.parent, number, feed, KINDS[type(stream)], self.flow.catalog)
        outlet.watermarks_only = watermarks_only
        outlet.ends_us = self.until_us
        self.flow.outlets[number] = outlet
        return True

    def _knows_types_of(self, stream: Stream | Tally) -> bool:
        """Whether all event types of a stream are known here."""
        match stream:
            case Whole(rule) | Part(PartialRule(rule)):
                return all(self.flow.catalog.knows(name) for name in types_of(rule.pattern))
            case _:
                return self.flow.catalog.knows(stream.type)

    def tally(self, neighbour: str, message: TallyRequest | TallyAnswer, work: Work) -> bool:
        return self.tallies.received(neighbour, message, work)

    # ---------------------------------------------------------------------------------------------- beginning and end

    def start(self, work: Work) -> None:
        self.flow.start(work)

    def end(self, until_us: int, work: Work) -> None:
        self.flow.end(until_us, work)

    def is_drained(self, now_us: int) -> bool:
        until_us = self.until_us
        if not self.started or until_us is None:
            return False
        if any(feed.current(now_us) < until_us - 1 - waits_us for feed, waits_us, _ in self.flow.dispatchers):
            return False
        return self.delivered >= until_us - 1

    def review(self, work: Work, *, restless: bool) -> None:
        review(self.flow.tasks, work, restless=restless)

    def look(self, work: Work) -> None:
        """Nothing to look at: no plan says what a tree may cost."""

    def uses(self, neighbour: str) -> bool:
        return neighbour == self.parent or neighbour in self.children

    # -------------------------------------------------------------------------------------------------------- progress

    @property
    def settles(self) -> bool:
        """In a tree it is the root, through which everything passes."""
        return self.parent is None

    def settle(self, work: Work) -> None:
        if not self.started:
            return
        flow = self.flow
        sent_us = flow.sent_us(work.now_us) if flow.dispatchers else work.now_us
        if sent_us > flow.settled:
            flow.settled = sent_us
            self._pass_settled(work)

    def _pass_settled(self, work: Work) -> None:
        for child in self.children:
            work.send(child, Settled(self.tree, self.epoch, self.flow.settled, self.delivered))
        self._conclude(work)

    def settled_above(self, message: Settled, work: Work) -> None:
        self.flow.settled, self.flow.delivered = message.ts, max(self.delivered, message.delivered)
        self._pass_settled(work)

    def settled_below(self, child: str, ts: float, work: Work) -> None:
        self.flow.settled_below[child] = ts
        self._conclude(work)

    def _conclude(self, work: Work) -> None:
        flow = self.flow
        reached = min((flow.settled_below.get(child, -FOREVER) for child in self.children), default=flow.settled)
        if self.parent is None:
            flow.delivered = max(flow.delivered, reached)
        elif reached >= flow.settled:
            work.send(self.parent, SettledHere(self.tree, self.epoch, flow.settled))

    # --------------------------------------------------------------------------------------------------------- showing

    def table(self) -> dict[str, Any]:
        return {
            **self.flow.table(),
            "tasks": self.described(),
            "aggregates": self.tallies.table(),
            "routes": {
                "asked": [
                    f"{inlet.number} from {child}: {describe(inlet.stream)}"
                    for (child, _), inlet in self.inlets.items()
                ],
                "given": self.flow.described_outlets(),
            },
        }

    def described(self) -> list[str]:
        return [describe(task.stream) for task in self.tasks]

    @property
    def completions(self) -> Sequence[Completion]:
        return self._completions

    def exact_tasks(self) -> Sequence[JoinTask]:
        """None: parts of rules may let too much pass here, which is judged above."""
        return ()

    def gives(self, number: int, outlet: Outlet, stream: Stream) -> bool:
        return outlet.feed is self.feeds.get(stream)

    def given_stream(self, number: int) -> Stream | None:
        return None

    def misplaced(self) -> Iterator[str]:
        for (child, stream), inlet in self.inlets.items():
            if child not in self.children or (inlet.child, inlet.stream) != (child, stream):
                yield f"stream {inlet.number} of {inlet.child} is kept as one of {child}"
        for number, outlet in self.outlets.items():
            if (outlet.neighbour, outlet.number) != (self.parent, number):
                yield f"stream {outlet.number} to {outlet.neighbour} is kept as {number} to {self.parent}"

    def unfinished(self) -> Sequence[str]:
        return self.tallies.unfinished()

    def streams(self) -> set[tuple[str, int]]:
        return self.flow.streams() | self.tallies.streams()

    def aggregates_held(self) -> int:
        return sum(task.held() for task in self._completions) + self.tallies.held()

    def held(self) -> int:
        return self.flow.held() + self.aggregates_held()


def _brought(feed: Feed, served: Collection[str]) -> Brought:
    return Brought(feed.stream, feed.child, served) if isinstance(feed, Inlet) else Brought(None, HERE, served)
