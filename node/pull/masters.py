"""Push-pull at the asking side: one feed of a task is its master; the others may be held back until it awakens them.

Every match contains an event of the master's role, and the rule bounds how far from it every other event can lie. So
when a master event comes, each pulled stream is asked for the window around it, with what the known values already
exclude; what is not asked for stays below. A window is decided on only when its answer is complete.

Masters are chosen again from time to time from measured rates. A stream becomes a master only when its child pushes it
again, and is kept below only when it is agreed from where on; windows of recent master events are asked for again then,
so nothing is missed, and a row is never sent twice on a stream.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from math import exp
from typing import Any

from headwater.node.pull.awakening import PullReach, reach_of
from headwater.node.step import FOREVER, Work
from headwater.node.streams.feeds import Consumer, Feed, Inlet
from headwater.node.streams.outbox import type_of
from headwater.protocol.analysis.pulling import awakening_roles
from headwater.protocol.composites import Composite
from headwater.protocol.expressions import Attribute, Constant, Expression, rewritten
from headwater.protocol.messages.neighbour import Conditions
from headwater.protocol.pattern import Rule
from headwater.protocol.subscriptions import SUBJECT

Row = tuple[Any, ...]

RATE_WEIGHT = 0.25  # of the latest interval in a measured rate
GAIN_LEAST = 0.1  # a change of masters must promise to save this share of the traffic


class Slot(Feed):
    """One input of a task that may be pushed or pulled."""

    def __init__(self, source: Feed, roles: frozenset[str], types: Mapping[str, str]) -> None:
        super().__init__()
        self.source = source
        self.rank = source.rank
        self.roles = roles
        self.types = types
        """The type of every role of the rule."""
        self.able: dict[str, str] = {}
        """Of the roles served here those that may be the master: the role of each such type."""
        self.count = 0
        self.recent: dict[str, list[Row]] = {}
        """By role, events that may still awaken something."""
        self._forgotten: float = -FOREVER
        """All matches with events before this are over."""
        self._open: list[tuple[int, int, int]] = []
        """Windows that may not be complete: (serial, ts of the master event, greatest)."""
        self._covered: dict[Conditions, tuple[int, int]] = {}
        """By conditions, up to where windows without a gap were asked for, and the last serial."""
        self.manager: PushPull | None = None
        source.consumers.append(self)

    @property
    def pulled(self) -> bool:
        return isinstance(self.source, Inlet) and self.source.pull

    @property
    def pushed(self) -> bool:
        return not isinstance(self.source, Inlet) or self.source.steadily_pushed

    def generated(self) -> int:
        """How many events the feed has produced so far."""
        return max(self.source.generated, self.count) if isinstance(self.source, Inlet) else self.count

    # ------------------------------------------------------------------------------------------------------------ feed

    def current(self, now_us: int) -> float:
        source = self.source
        if not isinstance(source, Inlet) or not source.pull:
            return source.current(now_us)
        assert self.manager is not None
        watermark = self.manager.master_watermark(now_us)
        if watermark is None:
            return source.pushed_until
        for serial, master_ts, greatest in self._open:  # what ends before a master event does not contain it
            if source.seen < serial:
                watermark = min(watermark, master_ts - 1)
            elif source.watermark < greatest:
                watermark = min(watermark, max(master_ts - 1, source.watermark))
        return watermark

    def want(self, ts: float, work: Work) -> None:
        source = self.source
        if not isinstance(source, Inlet) or not source.pull:
            source.want(ts, work)
            return
        open_until = max((greatest for _, _, greatest in self._open), default=-FOREVER)
        if source.watermark < min(ts, open_until):
            source.want(min(ts, open_until), work)

    def accept(self, rows: Sequence[Row], work: Work) -> None:
        self.count += len(rows)
        self.pass_on(rows, work)
        if not self.able:
            return
        fresh: list[Row] = []
        assert self.manager is not None
        for row in rows:
            role = self.able.get(type_of(row))
            if role is not None and row[0] >= self._forgotten:
                insort(self.recent.setdefault(role, []), row)
                if role == self.manager.master:
                    fresh.append(row)
        if fresh:
            self.manager.awaken(fresh, work)

    def block(self, rows: Sequence[Row], work: Work) -> None:
        self.pass_blockers(rows, work)

    def watermark_moved(self, work: Work) -> None:
        if self.manager is not None and isinstance(self.source, Inlet):
            self.manager.mode_may_have_changed(self, work)
        if self._open and isinstance(self.source, Inlet):
            source = self.source
            self._open = [
                awakening for awakening in self._open if source.seen < awakening[0] or source.watermark < awakening[2]
            ]
        self.tell(work)

    # ------------------------------------------------------------------------------------------------------- awakening

    def ask(self, reach: PullReach, row: Row, conditions: Conditions, work: Work) -> None:
        """Ask for the window around a master event, but for what has been asked for already."""
        source = self.source
        assert isinstance(source, Inlet)
        least, greatest = row[0] + reach.least_us, row[0] + reach.greatest_us
        if greatest <= source.pushed_until:
            return
        covered = self._covered.get(conditions)
        if (
            covered is not None
            and least >= covered[0] - max(1, reach.greatest_us - reach.least_us)
            and greatest <= covered[0]
        ):
            if source.seen < covered[1] or source.watermark < greatest:  # otherwise all of it is here already
                self._open.append((covered[1], row[0], greatest))
            return
        serial = source.awaken(least, greatest, conditions, work)
        self._covered[conditions] = (greatest, serial)
        self._open.append((serial, row[0], greatest))

    def forget_before(self, ts: float) -> None:
        self._forgotten = max(ts, self._forgotten)
        for rows in self.recent.values():
            del rows[: bisect_left(rows, (ts,))]
        self._covered = {conditions: covered for conditions, covered in self._covered.items() if covered[0] >= ts}

    def forget_windows(self) -> None:
        """The stream is pushed again: everything that was asked for comes anyway."""
        self._covered.clear()
        self._open.clear()

    # ------------------------------------------------------------------------------------------------ held and checked

    def held(self) -> int:
        """How many events and windows are remembered."""
        return sum(map(len, self.recent.values())) + len(self._open) + len(self._covered)

    def oldest(self) -> float:
        """The ts of the oldest event that may still awaken something; infinity if there is none."""
        return min((rows[0][0] for rows in self.recent.values() if rows), default=FOREVER)

    def unfinished(self) -> list[str]:
        """Windows that were never complete."""
        return [f"the window up to {greatest} around {ts} is open" for _, ts, greatest in self._open]


class PushPull:
    """Decides for one task which role is the master and which feeds are pulled, and awakens them."""

    def __init__(
        self,
        rule: Rule,
        slots: Sequence[Slot],
        horizon_us: int | None,
        reader: Consumer | None,
        *,
        values: bool = True,
        master: str | None = None,
    ) -> None:
        """``reader`` takes what the feeds bring; None: it does so already. ``values``: awakenings tell what a master
        event is known to exclude, and not only when to look. ``master``: the one that the plan has chosen, which
        never changes; feeds that are pulled are pulled from the beginning."""
        self._values = values
        self.rule = rule
        self.slots = tuple(slots)
        self.horizon_us = horizon_us
        self.master: str | None = master
        self.chosen: str | None = master
        """The master that measurements speak for; it takes over when all that serve it are pushed."""
        self._reaches: dict[tuple[str, Slot], PullReach | None] = {}
        self._pulled = {slot: master is not None and slot.pulled for slot in self.slots}
        self._before: dict[Slot, tuple[int, int]] = {}
        self._rates: dict[Slot, float] = {}
        self.able: dict[str, tuple[Slot, ...]] = {}
        """Roles that may be the master, each with the feeds that bring its events."""
        if master is not None:
            self.able = {master: _serving(master, self.slots)}
        elif horizon_us is not None:
            self.able = _possible_masters(rule, self.slots)
        for slot in self.slots:
            slot.manager = self
            if reader is not None:
                slot.consumers.append(reader)
        for role, serving in self.able.items():
            for slot in serving:
                slot.able[slot.types[role]] = role

    # ------------------------------------------------------------------------------------------------------- awakening

    def master_watermark(self, now_us: int) -> float | None:
        """No event of the master at or before this will follow; None if there is no master."""
        if self.master is None:
            return None
        # Where no source bears events of a planned master, none will ever come.
        return min((slot.source.current(now_us) for slot in self.able[self.master]), default=FOREVER)

    def awaken(self, rows: Sequence[Row], work: Work) -> None:
        """Master events have come: ask every pulled feed for what lies around them."""
        for slot in self.slots:
            if slot.pulled:
                self._ask(slot, rows, work)

    def _ask(self, slot: Slot, rows: Sequence[Row], work: Work) -> None:
        assert self.master is not None
        reach = self.reach(self.master, slot)
        assert reach is not None, "only feeds that the master bounds are pulled"
        for row in rows:
            slot.ask(reach, row, self._conditions(reach, row), work)

    def _conditions(self, reach: PullReach, row: Row) -> Conditions:
        if not reach.where:
            return ()
        values = _values(row)

        def with_value(part: Attribute) -> Expression:
            return part if part.role == SUBJECT else Constant(values.get(part.name))

        return tuple(
            (name, tuple(rewritten(conjunct, with_value) for conjunct in where)) for name, where in reach.where
        )

    def mode_may_have_changed(self, slot: Slot, work: Work) -> None:
        """A child has confirmed a mode: windows around recent master events are asked for; a new master takes over."""
        now_pulled = slot.pulled
        if now_pulled != self._pulled[slot]:
            self._pulled[slot] = now_pulled
            if not now_pulled:
                slot.forget_windows()
            elif self.master is not None:
                self._ask(slot, self._recent(self.master), work)
        self.settle(work)

    def _recent(self, role: str) -> list[Row]:
        return [row for slot in self.able[role] for row in slot.recent.get(role, ())]

    def settle(self, work: Work) -> None:
        """Let the chosen master take over if all that serve it are pushed, and all that it does not bound."""
        chosen = self.chosen
        if chosen is None or chosen == self.master:
            return
        if not all(slot.pushed or self.reach(chosen, slot) is not None for slot in self.slots):
            return
        self.master = chosen
        recent = self._recent(chosen)
        for slot in self.slots:
            if slot.pulled:
                self._ask(slot, recent, work)

    # -------------------------------------------------------------------------------------------------------- choosing

    def reach(self, master: str, slot: Slot) -> PullReach | None:
        """What a master event says about where the events of another feed lie; None if it does not bound them, or the
        feed serves the master itself."""
        if (master, slot) not in self._reaches:
            serves = slot in self.able[master]
            self._reaches[master, slot] = (
                None if serves else reach_of(self.rule, master, slot.roles, values=self._values)
            )
        return self._reaches[master, slot]

    def rates(self, now_us: int) -> dict[Slot, float] | None:
        """Events per second of each feed, the last reviews counting most; None at the first one.

        One interval alone would mislead: rare events come in none or one of them, and what a child has produced is
        known late.
        """
        for slot in self.slots:
            generated = slot.generated()
            before = self._before.get(slot)
            self._before[slot] = (now_us, generated)
            if before is not None and now_us > before[0]:
                measured = max(0, generated - before[1]) * 1e6 / (now_us - before[0])
                rate = self._rates.get(slot, measured)
                self._rates[slot] = rate + RATE_WEIGHT * (measured - rate)
        return self._rates if len(self._rates) == len(self.slots) else None

    def choose(self, rates: Mapping[Slot, float], pushed: set[int]) -> set[int]:
        """Choose a master; the feeds (by identity) that must be pushed for this task.

        ``pushed`` are those that other tasks have pushed anyway: they cost nothing more.
        """

        def price(slot: Slot) -> float:
            return rates[slot] if isinstance(slot.source, Inlet) and id(slot.source) not in pushed else 0.0

        best, best_pushed = None, {id(slot.source) for slot in self.slots}
        best_price = sum(price(slot) for slot in self.slots)
        if not best_price and self.chosen is not None:
            # Nothing came: that speaks for no master, least of all for pushing what is kept.
            return {id(slot.source) for slot in self.slots if self.reach(self.chosen, slot) is None}
        for master, serving in self.able.items():
            rate = sum(rates[slot] for slot in serving)
            total, needed = 0.0, set()
            for slot in self.slots:
                cost = price(slot)
                reach = self.reach(master, slot)
                if reach is not None and cost:
                    span_s = (reach.greatest_us - reach.least_us + 1) / 1e6
                    pulled = rate + cost * (1 - exp(-rate * span_s))
                    if pulled < cost:
                        total += pulled
                        continue
                total += cost
                needed.add(id(slot.source))
            if total < best_price * (1.0 if master == self.chosen else 1 - GAIN_LEAST):
                best, best_price, best_pushed = master, total, needed
        self.chosen = best
        return best_pushed

    def choose_next(self) -> set[int]:
        """For tests of the change itself: another master at every review, and everything pulled that can be."""
        able = list(self.able)
        if not able:
            return {id(slot.source) for slot in self.slots}
        self.chosen = able[(able.index(self.chosen) + 1) % len(able) if self.chosen is not None else 0]
        return {id(slot.source) for slot in self.slots if self.reach(self.chosen, slot) is None}

    def ready(self) -> bool:
        """Whether the chosen master has taken over, so that other feeds may be pulled."""
        return self.chosen is not None and self.master == self.chosen

    def promise(self, slot: Slot, now_us: int) -> float:
        """Nothing before this will be asked of a pulled feed any more."""
        watermark = self.master_watermark(now_us)
        reach = None if self.master is None else self.reach(self.master, slot)
        if watermark is None or reach is None or self.horizon_us is None:
            return -FOREVER
        # A horizon more, so that another master may still ask around its own recent events.
        return watermark + reach.least_us - 2 * self.horizon_us

    def promise_all(self, work: Work) -> None:
        """Tell those who keep something for this task alone what will not be asked for any more."""
        for slot in self.slots:
            if slot.pulled:
                assert isinstance(slot.source, Inlet)
                slot.source.reverse_mark(self.promise(slot, work.now_us), work)

    def free(self, watermark: float) -> None:
        if self.horizon_us is not None:
            for slot in self.slots:
                slot.forget_before(watermark - 2 * self.horizon_us)

    def validate(self) -> list[str]:
        """What contradicts itself: a feed is pulled only if the acting master bounds where its events lie."""
        wrong = []
        for slot in self.slots:
            if not slot.pulled:
                continue
            if self.master is None:
                wrong.append(f"{sorted(slot.roles)} are pulled, but there is no master")
            elif self.reach(self.master, slot) is None:
                wrong.append(f"{sorted(slot.roles)} are pulled, but the master {self.master} does not bound them")
        return wrong


def _possible_masters(rule: Rule, slots: Sequence[Slot]) -> dict[str, tuple[Slot, ...]]:
    """Roles that may be the master. Of several that the same feeds serve, the one that the text names first."""
    role_of: dict[tuple[Slot, ...], str] = {}
    for role in awakening_roles(rule):
        serving = _serving(role, slots)
        if serving:
            role_of.setdefault(serving, role)
    return {role: serving for serving, role in role_of.items()}


def _serving(role: str, slots: Sequence[Slot]) -> tuple[Slot, ...]:
    return tuple(slot for slot in slots if role in slot.roles)


def _values(row: Row) -> dict[str, Any]:
    inner = row[3]
    names = inner.spec.type.attributes if isinstance(inner, Composite) else inner.attributes
    name = type_of(row)
    return {"ts": row[0], "node": row[1], "seq": row[2], "type": name, **dict(zip(names, row[4:], strict=False))}
