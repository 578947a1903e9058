"""Lookups whose elements may not be at hand, and the evaluations that wait for them.

An engine never waits. A lookup of an element that is not at hand has no value, and the key is noted. What happens next
depends on where the lookup stands:

- A plain condition of a match may be *postponed*: the match goes on without it and is judged once it is complete.
- Everywhere else (a selection, a negation, an aggregate, an element of a repetition) the evaluation is *held*: what it
  gave is taken back, and it runs again when the elements are there. So it is decided with all data at hand, as if they
  had been there from the beginning.

The elements that a held evaluation has waited for stay with it until it is over, whatever the cache drops meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from headwater.node.engine.least import Least
from headwater.node.engine.remote_memory import MISSING, Counted, Key, Place, RemoteMemory, Sign
from headwater.protocol.remote import RemoteValue, Versions

FOREVER: Final = float("inf")
CARRYING_US: Final = 10.0  # what it takes to carry one match in doubt until it is judged
HELD_MAX: Final = 64  # evaluations that wait as a whole before postponing is tried again


POSTPONED: Final = Sign("POSTPONED")
"""In place of a value: the condition that needs it is judged later."""
UNSOUGHT: Final = Sign("UNSOUGHT")
"""In place of a value: it was not looked up yet."""


class NotAtHand(Exception):
    """An element is missing, and the policy asks for one at a time."""


@dataclass(slots=True)
class HeldEvaluation:
    """An evaluation that waits for elements."""

    serial: int
    store: int
    rule: int
    what: tuple[Any, ...]
    """What to do when they are there: see ``Store.retry``."""
    needs: dict[Place, Any] = field(default_factory=dict)
    """The elements that it has waited for: those that have come, and MISSING for the others."""
    end_ts: float = FOREVER
    """No match that it may give ends before this."""
    keeps_ts: float = FOREVER
    """It may need what was needed at this time: nothing younger than its horizon before it may be freed."""
    number: int = 0
    """Under a count window: it may need what was needed when an event of this number came."""

    def missing(self) -> Iterator[Place]:
        return (place for place, element in self.needs.items() if element is MISSING)


class AskedTable:
    """A remote table as the generated code of one engine sees it."""

    __slots__ = ("_asking", "_find", "name")

    def __init__(self, name: str, find: Callable[[Key], Any], asking: Asking) -> None:
        self.name = name
        self._find = find
        self._asking = asking

    def lookup(self, arguments: Key, ts: int) -> RemoteValue:
        """The value for these arguments in the version valid at ``ts``; None, and a note, where it is not at hand."""
        element = self.element(arguments)
        if element is None:
            return None
        if element is MISSING:
            self._asking.missed(self.name, arguments)
            return None
        return element.at(ts)  # type: ignore[no-any-return]

    def element(self, key: Key) -> Any:
        needs = self._asking.needs
        if needs:
            element = needs.get((self.name, key), MISSING)
            if element is not MISSING:
                return element
        return self._find(key)


class Postponing:
    """Whether it pays to postpone the conditions of a rule: what waiting once more for an element would take, beside
    what the matches cost that are carried along in doubt."""

    __slots__ = ("_asking", "_held", "_tables", "carried_max", "pays")

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._tables: set[str] = set()
        self._held = 0
        self.pays = True
        self.carried_max = float("inf")
        """With more matches in doubt than this, an evaluation would better have waited."""

    def carried(self) -> None:
        """An evaluation has given matches in doubt."""
        if self._tables:
            self.carried_max = max(map(self._asking.memory.latency_us, self._tables)) / CARRYING_US

    def waits(self) -> None:
        """An evaluation waits as a whole. After some of them it is tried again how many matches would be carried."""
        self._held += 1
        if self._held % HELD_MAX == 0:
            self.pays = True

    def reads(self, table: str) -> None:
        self._tables.add(table)

    def saved(self) -> tuple[int, bool, float]:
        return self._held, self.pays, self.carried_max

    def restore(self, held: int, pays: bool, carried_max: float) -> None:
        self._held, self.pays, self.carried_max = held, pays, carried_max


class Doubtful(list[Any]):
    """Matches with postponed conditions, each with the check that judges them."""

    __slots__ = ("most", "too_many")

    def __init__(self) -> None:
        super().__init__()
        self.most: float = FOREVER
        self.too_many: Callable[[], None] = lambda: None
        """Called where there is one more; what it raises ends the evaluation."""

    def append(self, match: Any) -> None:
        if len(self) >= self.most:
            self.too_many()
        super().append(match)

    def extend(self, matches: Iterable[Any]) -> None:
        super().extend(matches)
        if len(self) > self.most:
            self.too_many()


class Site:
    """A place in generated code where a plain condition looks something up and may be postponed."""

    __slots__ = ("_asking", "_by_trigger", "_counted", "_postponing", "_rule")

    def __init__(self, asking: Asking, rule: int, table: str, counted: Counted | None, *, by_trigger: bool) -> None:
        """``by_trigger``: the event that is evaluated names the key, so that no candidate can do without the
        element: the evaluation waits before it has done any work."""
        self._asking = asking
        self._by_trigger = by_trigger
        self._rule = rule
        self._counted = counted
        self._postponing = asking.postponing[rule]
        self._postponing.reads(table)

    def seek(self, table: AskedTable, ts: int, arguments: Key) -> Any:
        """The value, or POSTPONED; None, and a note, if the evaluation must be held."""
        asking = self._asking
        if self._counted is not None:
            self._counted.seeks += 1
        waiting = asking.waiting_of[self._rule]
        if waiting.only_last:
            return POSTPONED
        element = table.element(arguments)
        if element is None:
            return None
        if element is not MISSING:
            return element.at(ts)
        if waiting.postpones and self._postponing.pays and not self._by_trigger:
            asking.memory.want(table.name, arguments)
            asking.postponed[table.name, arguments] = None
            return POSTPONED
        asking.missed(table.name, arguments)
        if self._by_trigger:
            raise NotAtHand
        return None


class Asking:
    """What one engine asks for: the misses of the evaluation that is running, and the evaluations that are held."""

    def __init__(
        self,
        memory: RemoteMemory,
        rules: Sequence[str],
        table_of: Callable[[str, Callable[[Key], Any], Asking], AskedTable] = AskedTable,
    ) -> None:
        """``rules``: the names of the engine's rules, by their numbers; ``table_of`` makes tables for its code."""
        self.memory = memory
        self._rules = rules
        self.waiting_of = [memory.waiting(rule) for rule in rules]
        self.postponing = [Postponing(self) for _ in rules]
        self.misses = [0]
        """How many lookups have missed so far, in a cell that generated code reads."""
        self.noted: dict[Place, None] = {}
        """What the running evaluation has missed."""
        self.postponed: dict[Place, None] = {}
        """What it goes on without."""
        self._rule = 0
        self.needs: Mapping[Place, Any] = {}
        """What stays at hand for the running evaluation."""
        self._one_by_one = False
        self.supplies = 0
        """How many elements have come."""
        self.waited = 0
        """How many evaluations have been held so far."""
        self.held: dict[int, HeldEvaluation] = {}
        self._serial = 0
        self._waiting_for: dict[Place, list[int]] = {}
        self._ready: dict[int, None] = {}
        self._ends: dict[tuple[int, int], Least] = {}
        self._keeps: dict[int, Least] = {}
        self._pausing = 0
        self.tables: dict[str, AskedTable] = {}
        self._table_of = table_of
        self.used: dict[tuple[str, Key, int], Any] = {}
        """Of these lookups, those of the running evaluation with what they gave."""
        self.classes: dict[Counted, None] = {}
        """What counts the partial matches of its rules."""

    def table(self, name: str) -> AskedTable:
        if name not in self.tables:
            self.tables[name] = self._table_of(name, self.memory.finder(name), self)
        return self.tables[name]

    def counted(self, rule: int, name: str, table: str, horizon: int, *, numbered: bool, early: bool) -> Counted | None:
        """See ``RemoteMemory.key_class``."""
        counted = self.memory.key_class(self._rules[rule], name, table, horizon, numbered=numbered, early=early)
        if counted is not None:
            self.classes[counted] = None
        return counted

    # ------------------------------------------------------------------------------------------------ one evaluation

    def missed(self, table: str, key: Key) -> None:
        self.misses[0] += 1
        self.noted[table, key] = None
        if self._one_by_one:
            raise NotAtHand

    def begin(self, rule: int, needs: Mapping[Place, Any] | None = None) -> None:
        """An evaluation of the rule begins; ``needs``: what it has waited for."""
        self.noted = {}
        self._rule = rule
        if self.postponed:
            self.postponed = {}
        if self.used:
            self.used = {}
        self.needs = needs if needs is not None else {}
        self._one_by_one = self.waiting_of[rule].one_by_one

    def hold(
        self,
        store: int,
        rule: int,
        what: tuple[Any, ...],
        *,
        end_ts: float,
        keeps_ts: float = FOREVER,
        number: int = 0,
        again: HeldEvaluation | None = None,
    ) -> HeldEvaluation:
        """The evaluation that has just run waits for what it has noted. ``again``: it has waited before."""
        if again is None:
            again = HeldEvaluation(self._serial, store, rule, what, number=number)
            self._serial += 1
            self.waited += 1
        held = again
        held.what, held.end_ts, held.keeps_ts = what, end_ts, keeps_ts
        for place in self.noted:
            if held.needs.get(place, MISSING) is MISSING:
                held.needs[place] = MISSING
                self._waiting_for.setdefault(place, []).append(held.serial)
                self.memory.want(*place)
        self._add(held)
        self.noted = {}
        return held

    def too_many_in_doubt(self) -> None:
        """The running evaluation has given as many matches in doubt as its waiting would cost: have it wait, unless
        they are in doubt for another reason."""
        if self.postponed:
            self.postponing[self._rule].pays = False
            for place in self.postponed:
                self.missed(*place)
            raise NotAtHand

    def in_doubt_max(self, rule: int) -> float:
        """How many matches in doubt an evaluation of the rule should give at most."""
        return self.postponing[rule].carried_max

    def want_noted(self) -> None:
        """Have everything fetched that the evaluation has noted, though it does not wait for it."""
        for place in self.noted:
            self.memory.want(*place)

    def _add(self, held: HeldEvaluation) -> None:
        self.held[held.serial] = held
        self._pausing += self.waiting_of[held.rule].pauses
        self._ends.setdefault((held.store, held.rule), Least()).add(held.end_ts, held.serial)
        if held.keeps_ts < FOREVER:
            self._keeps.setdefault(held.store, Least()).add(held.keeps_ts, held.serial)

    def _release(self, serial: int) -> HeldEvaluation:
        held = self.held.pop(serial)
        self._pausing -= self.waiting_of[held.rule].pauses
        self._ends[held.store, held.rule].remove(serial)
        if held.keeps_ts < FOREVER:
            self._keeps[held.store].remove(serial)
        return held

    # ------------------------------------------------------------------------------------------------------ elements

    def supplied(self, table: str, key: Key, element: Versions | None) -> bool:
        """An element has come; whether some evaluation can go on."""
        self.supplies += 1
        for serial in self._waiting_for.pop((table, key), ()):
            held = self.held.get(serial)
            if held is not None and held.needs.get((table, key)) is MISSING:
                held.needs[table, key] = element
                if next(held.missing(), None) is None:
                    self._ready[serial] = None
        return bool(self._ready)

    @property
    def is_ready(self) -> bool:
        """Whether some evaluation can go on."""
        return bool(self._ready)

    def take_ready(self) -> list[HeldEvaluation]:
        """The evaluations that can go on, the one held longest first; they are held no longer."""
        ready = [self._release(serial) for serial in sorted(self._ready)]
        self._ready = {}
        return ready

    def put_back(self, ready: Iterable[HeldEvaluation]) -> None:
        """These can go on, and have not yet."""
        for held in ready:
            self._add(held)
            self._ready[held.serial] = None

    def needed(self) -> Iterable[Place]:
        """The elements that held evaluations wait for."""
        return self._waiting_for.keys()

    # ------------------------------------------------------------------------------------------------------ watching

    def held_by_table(self) -> dict[str, int]:
        """How many evaluations wait for elements of each table; one that waits for several tables counts for each."""
        serials: dict[str, set[int]] = {}
        for (table, _), waiting in self._waiting_for.items():
            serials.setdefault(table, set()).update(serial for serial in waiting if serial in self.held)
        return {table: len(held) for table, held in serials.items()}

    def least_end(self, store: int, rule: int) -> float:
        """No match of the rule that a held evaluation may still give ends before this."""
        ends = self._ends.get((store, rule))
        return FOREVER if ends is None else ends.least()

    def keeps(self, store: int) -> float:
        """What was needed at this time, and since, must be kept for held evaluations of the store."""
        kept = self._keeps.get(store)
        return FOREVER if kept is None else kept.least()

    def keeps_number(self, store: int) -> float:
        """Under a count window: what was needed when this was the newest event's number must be kept."""
        kept = (held.number for held in self.held.values() if held.store == store and held.keeps_ts < FOREVER)
        return min(kept, default=FOREVER)

    def pauses(self) -> bool:
        """Whether a held evaluation keeps the engine from taking more."""
        return self._pausing > 0

    # -------------------------------------------------------------------------------------------------------- saving

    def saved(self) -> list[Any]:
        """Everything beside the held evaluations, as plain values."""
        return [self._serial, self.waited, self.supplies, [postponing.saved() for postponing in self.postponing]]

    def restore(self, held: Iterable[HeldEvaluation], saved: Sequence[Any] | None) -> None:
        """Continue with these evaluations, and with what was saved beside them; nothing was, in earlier versions."""
        self.held, self._waiting_for, self._ready = {}, {}, {}
        self._ends, self._keeps, self._pausing = {}, {}, 0
        for entry in held:
            self._add(entry)
            for place in entry.missing():
                self._waiting_for.setdefault(place, []).append(entry.serial)
            if next(entry.missing(), None) is None:
                self._ready[entry.serial] = None
        self._serial = max(self.held, default=-1) + 1
        if saved is not None:
            self._serial, self.waited, self.supplies, figures = saved
            for postponing, of_rule in zip(self.postponing, figures, strict=True):
                postponing.restore(*of_rule)


def seek(site: Site, table: AskedTable, ts: int, *arguments: Any) -> Any:
    """What generated code calls where a plain condition may be postponed."""
    return None if None in arguments else site.seek(table, ts, arguments)


def seek_once(memo: dict[Any, Any], site: Site, table: AskedTable, ts: int, *arguments: Any) -> Any:
    """The same, kept for the rest of the evaluation: meanwhile no element comes or goes."""
    value = None if None in arguments else site.seek(table, ts, arguments)
    memo[ts, *arguments] = value
    return value


NAMES: Final[dict[str, Any]] = {"seek": seek, "seek_once": seek_once, "U": UNSOUGHT, "M": POSTPONED}
"""What generated code calls, by the names it uses."""
