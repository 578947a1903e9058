"""The subscriptions of one tree, and the events that flow down the tree to them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, repeat
from operator import itemgetter
from typing import Any

from headwater.node.delivery.matches import MatchBatch
from headwater.node.effects import Deliver
from headwater.node.plans.catalog import Catalog
from headwater.node.step import FOREVER, Work
from headwater.node.streams.outbox import by_type, identities_of, identity_of
from headwater.node.tasks.predicates import Condition, row_condition
from headwater.protocol.errors import RuleError
from headwater.protocol.messages.neighbour import Notify
from headwater.protocol.messages.plans import PlannedSink
from headwater.protocol.subscriptions import Subscription, without_covered
from headwater.protocol.wire.received_columns import Columns

Row = tuple[Any, ...]
_ts_of = itemgetter(0)
_Route = tuple[list[tuple[PlannedSink, Condition | None]], dict[str, list[Condition | None]]]


class Delivered:
    """What local sinks have been given lately. Two plans may find the same: it is delivered once."""

    def __init__(self) -> None:
        self.watchful = False
        self._latest_us: float = -FOREVER
        """The latest end of anything that was delivered and is not recent."""
        self._hold_after_us: float | None = None
        self._held: list[tuple[int, Row]] = []
        self._recent: list[tuple[int, Sequence[Row], int]] = []
        """Sink, what it was given, and a time at or after the latest end of it."""
        self._known: dict[tuple[int, Any], int] = {}

    @property
    def latest_us(self) -> float:
        """The latest end of anything that was delivered."""
        return _latest(self._recent, self._latest_us)

    def watch(self) -> None:
        """Another plan or tree may repeat what has been delivered."""
        self.watchful = True
        self._latest_us = self.latest_us
        for sink, rows, _ in self._recent:
            self._known.update(zip(zip(repeat(sink), identities_of(rows)), map(_ts_of, rows), strict=True))
        self._recent = []

    def give(self, sink: int, rows: Sequence[Row], work: Work) -> None:
        """Give the sink what it may have now and has not had yet. It is remembered as delivered."""
        if not rows:
            return
        if self._hold_after_us is not None:
            after_us = self._hold_after_us
            self._held += [(sink, row) for row in rows if row[0] > after_us]
            rows = [row for row in rows if row[0] <= after_us]
            if not rows:
                return
        if self.watchful:
            self._latest_us = max(self._latest_us, max(map(_ts_of, rows)))
            rows = [row for row in rows if self._is_new(sink, row)]
        elif isinstance(rows, MatchBatch):
            self._recent.append((sink, rows.unmade(), rows.until_us))
        else:
            self._recent.append((sink, rows, max(map(_ts_of, rows))))
        if rows:
            work.effects.append(Deliver(sink, rows))

    def _is_new(self, sink: int, row: Row) -> bool:
        key = (sink, identity_of(row))
        if key in self._known:
            return False
        self._known[key] = row[0]
        return True

    def hold(self, after_us: float) -> None:
        """Until a change is decided, give nothing to sinks that ends later than this."""
        self._hold_after_us = after_us

    def release(self, before_us: int | None, work: Work) -> None:
        """The change is decided: what was held goes out, but for what the next plan, from ``before_us`` on, finds."""
        self._hold_after_us = None
        held, self._held = self._held, []
        for sink, row in held:
            if before_us is None or row[0] < before_us:
                self.give(sink, (row,), work)

    def forget_before(self, ts: float) -> None:
        kept = [batch for batch in self._recent if batch[2] >= ts]  # what was given together goes together
        if len(kept) < len(self._recent):
            self._latest_us = _latest([batch for batch in self._recent if batch[2] < ts], self._latest_us)
            self._recent = kept
        self._known = {key: end_us for key, end_us in self._known.items() if end_us >= ts}

    def held(self) -> int:
        return sum(len(rows) for _, rows, _ in self._recent) + len(self._known) + len(self._held)


class Subscribers:
    """Who below this node, and at it, wants what: the subscription table of one tree."""

    def __init__(self, tree: str, epoch: int, catalog: Catalog, delivered: Delivered) -> None:
        self.tree = tree
        self.epoch = epoch
        self._catalog = catalog
        self._delivered = delivered
        self.local: dict[int, PlannedSink] = {}
        self.children: dict[str, tuple[Subscription, ...]] = {}
        self._routes: dict[str, _Route] = {}
        self.until_us: int | None = None
        """Where the next plan begins: what is later is for its trees to deliver, and not for sinks that it has not. The
        root may hear of it after this node has, and send more."""

    def set_local(self, sinks: Iterable[PlannedSink]) -> None:
        self.local = {sink.number: sink for sink in sinks}
        self._routes.clear()

    def set_child(self, child: str, subscriptions: tuple[Subscription, ...]) -> int:
        """What is wanted below a child; how many of the subscriptions are left out, since they make no sense here."""
        understood = tuple(filter(self._is_understood, subscriptions))
        self.children[child] = understood
        self._routes.clear()
        return len(subscriptions) - len(understood)

    def _is_understood(self, subscription: Subscription) -> bool:
        try:
            if self._catalog.knows(subscription.type):
                self._condition(subscription)
        except RuleError:
            return False
        return True

    def combined(self) -> tuple[Subscription, ...]:
        """What is wanted here and below, without what something wider covers."""
        local = [sink.subscription for sink in self.local.values()]
        everything = [*local, *(subscription for below in self.children.values() for subscription in below)]
        return without_covered(everything)

    def wants(self, event_type: str, except_child: str) -> bool:
        """Whether a sink here, or below another child, wants events of the type."""
        below = [
            subscription
            for child, subscriptions in self.children.items()
            if child != except_child
            for subscription in subscriptions
        ]
        return any(
            subscription.type == event_type for subscription in [*(s.subscription for s in self.local.values()), *below]
        )

    def wanted_types(self) -> tuple[str, ...]:
        return tuple(sorted({subscription.type for subscription in self.combined()}))

    def deliver(self, rows: Sequence[Row], work: Work, origin: str | None = None) -> None:
        """Give rows to local sinks and to the children that want them, except the one they came from."""
        down: dict[str, list[Sequence[Row]]] = {}
        for name, rows_of_type in [(rows.spec.type.name, rows)] if isinstance(rows, MatchBatch) else by_type(rows):
            sinks, children = self._route(name)
            for sink, condition in sinks:
                wanted: Sequence[Row] = rows_of_type
                if condition is not None and isinstance(rows_of_type, MatchBatch):
                    wanted = rows_of_type.that(sink.subscription.where, condition)
                elif condition is not None:
                    wanted = [row for row in rows_of_type if condition(row)]
                until_us = sink.until_us
                if self.until_us is not None and (until_us is None or until_us >= self.until_us):
                    until_us = self.until_us - 1
                self._delivered.give(sink.number, _between(wanted, sink.from_us, until_us), work)
            for child, conditions in children.items():
                if child == origin:
                    continue
                wanted = rows_of_type
                if None not in conditions:
                    wanted = [
                        row for row in rows_of_type if any(condition(row) for condition in conditions if condition)
                    ]
                if wanted:
                    down.setdefault(child, []).append(wanted)
        for child, batches in down.items():
            as_they_came = len(batches) == 1 and type(batches[0]) is Columns
            work.send(child, Notify(self.tree, self.epoch, batches[0] if as_they_came else tuple(chain(*batches))))

    def _route(self, name: str) -> _Route:
        route = self._routes.get(name)
        if route is None:
            sinks = [
                (sink, self._condition(sink.subscription))
                for _, sink in sorted(self.local.items())
                if sink.subscription.type == name
            ]
            children = {
                child: [self._condition(s) for s in subscriptions if s.type == name]
                for child, subscriptions in sorted(self.children.items())
            }
            route = self._routes[name] = (
                sinks,
                {child: conditions for child, conditions in children.items() if conditions},
            )
        return route

    def _condition(self, subscription: Subscription) -> Condition | None:
        name = subscription.type
        return row_condition(subscription.where, self._catalog.type(name), name in self._catalog.composites)

    def table(self) -> dict[str, Any]:
        from headwater.protocol.subscriptions import print_subscription

        def shown(subscriptions: Iterable[Subscription]) -> list[str]:
            return [print_subscription(subscription) for subscription in subscriptions]

        return {
            "local": {number: print_subscription(sink.subscription) for number, sink in sorted(self.local.items())},
            "children": {child: shown(subscriptions) for child, subscriptions in sorted(self.children.items())},
        }


class Dispatcher:
    """Takes the events of a feed and gives those that end in the tree's interval to subscribers."""

    def __init__(self, subscribers: Subscribers, origin: str | None, from_us: int | None) -> None:
        self._subscribers = subscribers
        self._origin = origin
        self._from_us = from_us
        self.until_us: int | None = None
        """Where the next plan begins."""

    def accept(self, rows: Sequence[Row], work: Work) -> None:
        rows = _between(rows, self._from_us, None if self.until_us is None else self.until_us - 1)
        self._subscribers.deliver(rows, work, self._origin)

    def block(self, rows: Sequence[Row], work: Work) -> None:
        raise AssertionError("a blocker is never delivered")

    def watermark_moved(self, work: Work) -> None:
        pass


def _latest(batches: Sequence[tuple[int, Sequence[Row], int]], latest_us: float) -> float:
    """The latest end of what was given, or what is known if that is later."""
    for _, rows, until_us in sorted(batches, key=itemgetter(2), reverse=True):
        if until_us <= latest_us:  # nothing that follows ends later
            break
        latest_us = max(latest_us, max(rows.ends() if isinstance(rows, MatchBatch) else map(_ts_of, rows)))
    return latest_us


def _between(rows: Sequence[Row], least: int | None, greatest: int | None) -> Sequence[Row]:
    if isinstance(rows, MatchBatch):
        return rows.between(least, greatest)
    if type(rows) is Columns:  # mostly all of them
        least = None if least is not None and least <= rows.least_us else least
        greatest = None if greatest is not None and greatest >= rows.greatest_us else greatest
    if least is not None:
        rows = [row for row in rows if row[0] >= least]
    if greatest is not None:
        rows = [row for row in rows if row[0] <= greatest]
    return rows
