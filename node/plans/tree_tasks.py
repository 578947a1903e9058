"""What a node does in one tree: who advertises what, which streams it asks its children for, what it evaluates.

Everything follows from the advertisements below and the streams that the parent asks for (at the root: the rules and
subscriptions): a stream that one child alone can provide is delegated to it; otherwise the rule is split, the parts are
asked of the children, and a task here puts them together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from headwater.node.delivery.subscriptions import Delivered, Dispatcher, Subscribers
from headwater.node.plans.catalog import Catalog
from headwater.node.plans.lifecycle import STARTED, TreeRecord
from headwater.node.plans.partition import split
from headwater.node.pull.masters import PushPull, Slot
from headwater.node.pull.review import review
from headwater.node.step import FOREVER, Numbers, Work
from headwater.node.streams.feeds import Feed, Inlet, Merge, Sieve
from headwater.node.streams.outlets import Outlet
from headwater.node.streams.sources import EpochFeed, LocalFeed
from headwater.node.tasks.aggregates.completion import Completion
from headwater.node.tasks.aggregates.planning import asking_rule
from headwater.node.tasks.aggregates.tallies import Tallies
from headwater.node.tasks.predicates import row_condition
from headwater.node.tasks.task import JoinTask
from headwater.protocol.analysis.bounds import horizon_us
from headwater.protocol.analysis.partial import PartialRule
from headwater.protocol.analysis.projection import beside_all_of, joinable_components, project
from headwater.protocol.languages.printing import PrintError
from headwater.protocol.messages.neighbour import Deploy, Filter, Part, Settled, SettledHere, Stream, TreeStart, Whole
from headwater.protocol.messages.tallies import Tally
from headwater.protocol.pattern import Aggregate, Chain, Rule, leaves, types_of
from headwater.protocol.streams import filter_of
from headwater.protocol.subscriptions import Subscription, print_subscription

KINDS: dict[type[Any], str] = {Filter: "primitive", Part: "match", Whole: "composite"}
"""How the events of a stream are accounted."""

HERE = ""
"""Among the producers of a type: this node itself."""


class TreeWork:
    """The tables and tasks of one node in one tree and epoch."""

    def __init__(
        self,
        record: TreeRecord,
        parent: str | None,
        children: tuple[str, ...],
        catalog: Catalog,
        local: Mapping[str, LocalFeed],
        numbers: Numbers,
        delivered: Delivered,
        *,
        plan: int = 0,
        from_us: int | None = None,
        prime_us: int | None = None,
        pulls: bool = False,
        values: bool = True,
    ) -> None:
        """``local``: where events of sources of this plan appear at the node."""
        self._pulls = pulls
        self._values = values
        self.plan = plan
        self.record = record
        self.tree = tree = record.tree
        self.epoch = epoch = record.epoch
        self.parent = parent
        self.children = children
        self.from_us = from_us
        self._catalog = catalog
        self._local = {name: EpochFeed(feed, prime_us) for name, feed in sorted(local.items())}
        self._numbers = numbers
        self.advertised: dict[str, frozenset[str]] = {}
        """What each child has advertised; a child that is missing has not yet spoken."""
        self.subscribed: set[str] = set()
        """Children that have said what they want."""
        self.subscribers = Subscribers(tree, epoch, catalog, delivered)
        self.places: dict[str, set[str]] = {}
        """Where the composites of a type come from: here, or from a child that a rule was delegated to."""
        self.feeds: dict[Stream, Feed] = {}
        self._wanted_above: set[Whole] = set()
        """Rules whose composites somebody above wants."""
        self.inlets: dict[tuple[str, Stream | int], Inlet] = {}
        self.outlets: dict[int, Outlet] = {}
        self.tasks: list[JoinTask] = []
        self.completions: list[Completion] = []
        self.tallies = Tallies(self, catalog, numbers)
        self._dispatchers: list[tuple[Feed, int, Dispatcher]] = []
        """Feeds whose events are delivered from here, each with how much longer than its input it may wait."""
        self.until_us: int | None = None
        """Where the next plan begins."""
        self.settled: float = -FOREVER
        self.delivered: float = -FOREVER if from_us is None else from_us - 1
        """Everything of this tree that ends at or before this, less what its rule may wait for a decision, has reached
        every sink, as far as is known here. What the trees of earlier plans have to deliver they know themselves."""
        self._settled_below: dict[str, float] = {}

    # ---------------------------------------------------------------------------------------------------------- tables

    def producers(self, event_type: str) -> tuple[str, ...]:
        """Who gives events of the type: children, and HERE."""
        found = {child for child, types in self.advertised.items() if event_type in types}
        found |= self.places.get(event_type, set())
        if event_type in self._local:
            found.add(HERE)
        return tuple(sorted(found))

    @property
    def started(self) -> bool:
        """Whether sources feed this tree."""
        return self.record.state in STARTED

    def is_ready(self) -> bool:
        """Whether all children have advertised and subscribed."""
        return set(self.children) == self.advertised.keys() and set(self.children) == self.subscribed

    def advertisement(self) -> tuple[str, ...]:
        """The types of all sources here and below."""
        return tuple(sorted(set(self._local).union(*self.advertised.values())))

    # ----------------------------------------------------------------------------------------------------------- feeds

    def feed(self, stream: Stream, work: Work) -> Feed:
        """The feed of a stream at this node; made, with everything below that it needs, when it is first asked for."""
        known = self.feeds.get(stream)
        if known is None:
            known = self._filter(stream, work) if isinstance(stream, Filter) else self._evaluate(stream, work)
            self.feeds[stream] = known
        return known

    def _filter(self, stream: Filter, work: Work) -> Feed:
        condition = row_condition(
            stream.where, self._catalog.type(stream.type), stream.type in self._catalog.composites
        )
        inputs: list[Feed] = []
        for producer in self.producers(stream.type):
            if producer != HERE:
                inputs.append(self.inlet(producer, stream, work))
            else:
                here = self.local_feeds(stream.type)
                inputs += here if condition is None else [Sieve(feed, condition) for feed in here]
        return inputs[0] if len(inputs) == 1 else Merge(inputs)

    def filters(self) -> Iterator[tuple[Filter, Sieve]]:
        """The conditions that events are judged by here, one by one."""
        for stream, feed in self.feeds.items():
            if isinstance(stream, Filter):
                for each in feed.inputs if isinstance(feed, Merge) else (feed,):
                    if isinstance(each, Sieve):
                        yield stream, each

    def _evaluate(self, stream: Whole | Part, work: Work, *, here: bool = False) -> Feed:
        """``here``: at this node, even if a child could do it alone."""
        rule = stream.rule if isinstance(stream, Whole) else stream.partial.rule
        roles = (
            tuple(leaf.role for leaf in leaves(rule.pattern.root))
            if isinstance(stream, Whole)
            else stream.partial.roles
        )
        plan = split(rule, roles, {name: self.producers(name) for name in types_of(rule.pattern)})
        if plan.delegate is not None and here:
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
                made = self.inlet(child, below, work)
                inputs.setdefault(id(made), (made, set()))[1].update(served)
        for leaf in leaves(rule.pattern.root):
            if leaf.role in roles and leaf.type in plan.local:
                for made_here in self.local_feeds(leaf.type):
                    inputs.setdefault(id(made_here), (made_here, set()))[1].add(leaf.role)
        if self._pulls and inputs:
            types = {leaf.role: leaf.type for leaf in leaves(rule.pattern.root)}
            slots = [Slot(feed, frozenset(served), types) for feed, served in inputs.values()]
            task = self._task(stream, slots, subscribe=False)
            task.push_pull = PushPull(rule, slots, task.horizon_us, task, values=self._values)
            return task
        return self._task(stream, [feed for feed, _ in inputs.values()])

    def hear(self, rule: Rule, work: Work) -> None:
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
        others = [role for role in partial.roles if types[role] not in heard]
        if others:
            yield Part(beside, since_us, heard), others

    def _complete(self, stream: Whole, work: Work) -> Feed | None:
        """The rule with aggregates whose values are asked for; None if it has none."""
        rule = stream.rule
        below = {name for name in types_of(rule.pattern) if set(self.producers(name)) - {HERE}}
        asking, reach_us = asking_rule(rule, below), horizon_us(rule)
        if asking is None or reach_us is None:
            return None
        base = replace(stream, rule=asking.base)
        self.feeds[base] = self._evaluate(base, work, here=True)
        points = [self.tallies.point(asked.tally, work) for asked in asking.asked]
        number = self._numbers.next()
        made = Completion(number, stream, asking, self.feeds[base], points, reach_us, self._catalog)
        self.completions.append(made)
        self.places.setdefault(rule.emits, set()).add(HERE)
        return made

    def evaluate(self, stream: Whole, work: Work) -> Feed:
        """The rule, split over the nodes below."""
        return self.feed(stream, work)

    def evaluate_centrally(self, stream: Whole, work: Work) -> Feed:
        """The rule over unfiltered events of all its types: the baseline."""
        rule = stream.rule
        if stream not in self.feeds:
            inputs = []
            for name in sorted(types_of(rule.pattern)):
                inputs += self.local_feeds(name) if name in self.places else [self.feed(Filter(name), work)]
            self.feeds[stream] = self._task(stream, inputs)
        return self.feeds[stream]

    def _task(self, stream: Whole | Part, inputs: Iterable[Feed], *, subscribe: bool = True) -> JoinTask:
        rule = stream.rule if isinstance(stream, Whole) else stream.partial.rule
        candidates = self._catalog.candidates(stream.partial) if isinstance(stream, Part) else ()
        task = JoinTask(
            self._numbers.next(), stream, self._catalog.engine(stream), tuple(inputs), candidates, needed_us(stream)
        )
        if subscribe:
            for feed in task.inputs:
                feed.consumers.append(task)
        self.tasks.append(task)
        if isinstance(stream, Whole):
            self.places.setdefault(rule.emits, set()).add(HERE)
        return task

    def local_feeds(self, event_type: str) -> list[Feed]:
        """Where events of the type, primitive or composite, appear at this node."""
        found: list[Feed] = []
        if event_type in self._local:
            found.append(self._local[event_type])
        found += [
            task for task in self.tasks if isinstance(task.stream, Whole) and task.stream.rule.emits == event_type
        ]
        found += [task for task in self.completions if task.stream.rule.emits == event_type]
        return found

    def inlet(self, child: str, stream: Stream, work: Work) -> Inlet:
        """The stream as a child sends it; asked for once, whoever needs it here."""
        known = self.inlets.get((child, stream))
        if known is None:
            known = self.inlets[child, stream] = Inlet(child, self._numbers.next(), stream, self._catalog)
            marks_only = isinstance(stream, Whole) and not self._is_wanted(stream, child)
            work.send(child, Deploy(self.tree, self.epoch, known.number, stream, marks_only))
        return known

    def _is_wanted(self, stream: Whole, child: str) -> bool:
        """Whether anybody here, above or below another child wants the composites that a child finds."""
        return stream in self._wanted_above or self.subscribers.wants(stream.rule.emits, child)

    # ---------------------------------------------------------------------------------------------------------- output

    def can_serve(self, stream: Stream | Tally) -> bool:
        """Whether all event types of a stream are known here."""
        match stream:
            case Whole(rule) | Part(PartialRule(rule)):
                return all(self._catalog.knows(name) for name in types_of(rule.pattern))
            case _:
                return self._catalog.knows(stream.type)

    def serve(self, number: int, stream: Stream, work: Work, *, marks_only: bool = False) -> Outlet:
        """The parent asks for a stream, or only to know how far it has come."""
        if isinstance(stream, Whole) and not marks_only:
            self._wanted_above.add(stream)
        feed = self.feed(stream, work)
        assert self.parent is not None
        if isinstance(stream, Whole):
            self.dispatch(feed, stream)
        outlet = self.outlets[number] = Outlet(self.parent, number, feed, KINDS[type(stream)], self._catalog)
        outlet.marks_only = marks_only
        outlet.ends_us = self.until_us
        return outlet

    def dispatch(self, feed: Feed, stream: Whole | None = None) -> None:
        """Give what the feed brings to the subscribers below, except where it came from.

        What a rule decides only later, by what follows, belongs to this tree even if it ends before the tree's plan
        begins: the tree before could not decide it.
        """
        origin = feed.child if isinstance(feed, Inlet) and isinstance(feed.stream, Whole) else None
        waits_us = 0 if stream is None else stream.waits_us
        from_us = None if self.from_us is None else self.from_us - waits_us
        dispatcher = Dispatcher(self.subscribers, origin, from_us)
        dispatcher.until_us = self.until_us
        self._dispatchers.append((feed, waits_us, dispatcher))
        feed.consumers.append(dispatcher)

    # ---------------------------------------------------------------------------------------------- beginning and end

    def start(self, work: Work) -> None:
        """Everything is deployed, here and above: sources begin, with what they remember."""
        for child in self.children:
            work.send(child, TreeStart(self.tree, self.epoch))
        for feed in self._local.values():
            feed.start(work)

    def end(self, until_us: int, work: Work) -> None:
        """The next plan begins here: what is later is its own."""
        self.until_us = until_us if self.until_us is None else min(until_us, self.until_us)
        self.subscribers.until_us = self.until_us
        for outlet in self.outlets.values():  # first: what has ended goes back when the plan does
            outlet.ends_us = self.until_us
        for feed in self._local.values():
            feed.end(until_us, work)
        for source, waits_us, dispatcher in self._dispatchers:
            dispatcher.until_us = self.until_us
            source.want(self.until_us - 1 - waits_us, work)

    def is_drained(self, now_us: int) -> bool:
        """At the root, after the end: whether everything that this tree must find has reached the sinks."""
        until_us = self.until_us
        if not self.started or until_us is None:
            return False
        if any(feed.current(now_us) < until_us - 1 - waits_us for feed, waits_us, _ in self._dispatchers):
            return False
        return self.delivered >= until_us - 1

    def review(self, work: Work, *, restless: bool) -> None:
        """Now and then: which streams are worth being pulled. ``restless``: change masters, whatever it costs."""
        review(self.tasks, work, restless=restless)

    def leave(self) -> None:
        """Let go of the node's own feeds."""
        for feed in self._local.values():
            feed.leave()

    def uses(self, neighbour: str) -> bool:
        """Whether anything here runs over this neighbour."""
        return neighbour == self.parent or neighbour in self.children

    @property
    def settles(self) -> bool:
        """Whether it is this node that finds out, now and then, how far everything has come."""
        return self.parent is None

    def settle(self, work: Work) -> None:
        """At the root, now and then: tell how far everything has been sent to the sinks.

        What takes this tree's place goes back by as much as its rules wait (see ``dispatch``).
        """
        if not self.started:
            return
        found = min((feed.current(work.now_us) + waits_us for feed, waits_us, _ in self._dispatchers), default=FOREVER)
        if not self._dispatchers:
            found = work.now_us
        if found > self.settled:
            self.settled = found
            self.pass_settled(work)

    def pass_settled(self, work: Work) -> None:
        for child in self.children:
            work.send(child, Settled(self.tree, self.epoch, self.settled, self.delivered))
        self._conclude(work)

    def settled_above(self, message: Settled, work: Work) -> None:
        self.settled, self.delivered = message.ts, max(self.delivered, message.delivered)
        self.pass_settled(work)

    def settled_below(self, child: str, ts: float, work: Work) -> None:
        self._settled_below[child] = ts
        self._conclude(work)

    def _conclude(self, work: Work) -> None:
        reached = min((self._settled_below.get(child, -FOREVER) for child in self.children), default=self.settled)
        if self.parent is None:
            self.delivered = max(self.delivered, reached)
        elif reached >= self.settled:
            work.send(self.parent, SettledHere(self.tree, self.epoch, self.settled))

    # --------------------------------------------------------------------------------------------------------- showing

    def table(self) -> dict[str, Any]:
        return {
            "tree": self.tree,
            "epoch": self.epoch,
            "parent": self.parent,
            "advertised": {child: sorted(types) for child, types in sorted(self.advertised.items())},
            "subscriptions": self.subscribers.table(),
            "tasks": self.described(),
            "aggregates": self.tallies.table(),
            "routes": {
                "asked": [
                    f"{inlet.number} from {child}: {describe(inlet.stream)}"
                    for (child, _), inlet in self.inlets.items()
                ],
                "given": [f"{number} to {outlet.neighbour}" for number, outlet in sorted(self.outlets.items())],
            },
        }

    def described(self) -> list[str]:
        """The tasks in words."""
        return [describe(task.stream) for task in self.tasks]

    def rules(self) -> set[Rule]:
        """The rules that anything here serves."""
        return {
            stream.rule if isinstance(stream, Whole) else stream.partial.rule
            for stream in self.feeds
            if not isinstance(stream, Filter)
        }

    def held(self) -> int:
        asked = sum(task.held() for task in self.completions) + self.tallies.held()
        return asked + sum(task.held() for task in self.tasks) + sum(outlet.held() for outlet in self.outlets.values())


def needed_us(stream: Whole | Part) -> int | None:
    """How long a task needs its inputs. A part may reach further than its rule: what tightens the rule's windows may be
    a condition that only a node above can judge."""
    if isinstance(stream, Whole):
        return horizon_us(stream.rule)
    partial = stream.partial
    found = [horizon_us(partial.rule), horizon_us(replace(partial.rule, pattern=partial.pattern, attributes=()))]
    known = [each for each in found if each is not None]
    return max(known) if len(known) == len(found) else None


def describe(stream: Stream) -> str:
    """A stream in words."""
    match stream:
        case Whole(rule):
            return f"rule {rule.name}"
        case Part(partial, _, heard):
            without = f", without the {' and '.join(heard)} that come anyway" if heard else ""
            return f"part of {partial.rule.name}: {partial.label()}{without}"
        case Filter(name, where):
            try:
                return f"filter {print_subscription(Subscription(name, where))}"
            except PrintError:  # conditions of rules that were built in Python may have no text
                return f"filter {name} with {len(where)} condition{'s' * (len(where) != 1)}"
