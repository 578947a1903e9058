"""Subscriptions of one tree, and the events that flow down to them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from node.catalog import Catalog
from node.effects import Deliver
from node.predicates import Condition, row_condition
from node.work import Work
from protocol.composites import Composite
from protocol.messages import Notify
from protocol.subscriptions import Subscription, without_covered

Row = tuple[Any, ...]


def type_of(row: Row) -> str:
    inner = row[3]
    name: str = inner.type if isinstance(inner, Composite) else inner.name
    return name


class Subscribers:
    """Who below this node, and at it, wants what: the subscription table of one tree."""

    def __init__(self, tree: str, epoch: int, catalog: Catalog, from_us: int | None) -> None:
        self.tree = tree
        self.epoch = epoch
        self._catalog = catalog
        self._from_us = from_us
        self.local: dict[int, Subscription] = {}
        self.children: dict[str, tuple[Subscription, ...]] = {}
        self._routes: dict[str, tuple[list[tuple[int, Condition | None]], dict[str, list[Condition | None]]]] = {}

    def set_local(self, sinks: dict[int, Subscription]) -> None:
        self.local = dict(sinks)
        self._routes.clear()

    def set_child(self, child: str, subscriptions: tuple[Subscription, ...]) -> None:
        self.children[child] = subscriptions
        self._routes.clear()

    def combined(self) -> tuple[Subscription, ...]:
        """What is wanted here and below, without what something wider covers."""
        everything = [*self.local.values(), *(each for below in self.children.values() for each in below)]
        return without_covered(everything)

    def wanted_types(self) -> tuple[str, ...]:
        return tuple(sorted({subscription.type for subscription in self.combined()}))

    def deliver(self, rows: Sequence[Row], work: Work, origin: str | None = None) -> None:
        """Give rows to local sinks and to the children that want them, except the one they came from."""
        down: dict[str, list[Row]] = {}
        for row in rows:
            if self._from_us is not None and row[0] < self._from_us:
                continue
            sinks, children = self._route(type_of(row))
            for sink, condition in sinks:
                if condition is None or condition(row):
                    work.effects.append(Deliver(sink, row))
            for child, conditions in children.items():
                if child != origin and any(condition is None or condition(row) for condition in conditions):
                    down.setdefault(child, []).append(row)
        for child, wanted in down.items():
            work.send(child, Notify(self.tree, self.epoch, tuple(wanted)))

    def _route(self, name: str) -> tuple[list[tuple[int, Condition | None]], dict[str, list[Condition | None]]]:
        known = self._routes.get(name)
        if known is None:
            sinks = [(sink, self._condition(s)) for sink, s in sorted(self.local.items()) if s.type == name]
            children = {
                child: [self._condition(s) for s in subscriptions if s.type == name]
                for child, subscriptions in sorted(self.children.items())
            }
            known = self._routes[name] = sinks, {child: found for child, found in children.items() if found}
        return known

    def _condition(self, subscription: Subscription) -> Condition | None:
        name = subscription.type
        return row_condition(subscription.where, self._catalog.type(name), name in self._catalog.composites)

    def table(self) -> dict[str, Any]:
        from protocol.subscriptions import print_subscription

        def shown(subscriptions: Iterable[Subscription]) -> list[str]:
            return [print_subscription(subscription) for subscription in subscriptions]

        return {
            "local": {sink: print_subscription(s) for sink, s in sorted(self.local.items())},
            "children": {child: shown(found) for child, found in sorted(self.children.items())},
        }


class Dispatcher:
    """Takes the events of a feed and gives them to subscribers."""

    def __init__(self, subscribers: Subscribers, origin: str | None) -> None:
        self._subscribers = subscribers
        self._origin = origin

    def accept(self, rows: Sequence[Row], work: Work) -> None:
        self._subscribers.deliver(rows, work, self._origin)

    def block(self, rows: Sequence[Row], work: Work) -> None:
        raise AssertionError("a blocker is never delivered")

    def told(self, work: Work) -> None:
        pass
