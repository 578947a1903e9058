"""Collects what the rules of a store ask for while their code is written, and compiles it once.

What comes out never changes; a running `Store` is made from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CodeType

from headwater.node.engine.codegen.code import Piece, Pool, RowLayout, Writer
from headwater.protocol.analysis.units import Branch, Forbidden
from headwater.protocol.expressions import Remote


@dataclass(frozen=True, slots=True)
class Ahead:
    """A lookup whose key is known when an event is taken."""

    rule: int
    lookup: Remote
    event_type: str
    function: str
    """The name of the function that gives the key."""
    horizon: int
    count: int | None
    """The length of a count window."""
    early: bool
    """Whether time may pass between taking the event and needing the element."""


@dataclass(frozen=True, slots=True)
class PostponedLookup:
    """A place where a lookup may be postponed."""

    rule: int
    lookup: Remote
    by_trigger: bool
    """The event that is evaluated names the key."""


@dataclass(frozen=True, slots=True)
class CompiledStore:
    """What never changes while a store runs. Many running stores may share it."""

    name: str
    ordered: bool
    counted: int | None
    has_composites: bool
    buffers: tuple[tuple[bool, int], ...]
    """(split by a key, horizon) of each."""
    buffer_types: tuple[str | None, ...]
    code: CodeType
    source: str
    """The generated program, for reading."""
    pool: Pool
    owners: Mapping[str, str]
    old_source: str
    """A second program that puts old events at their place in the buffers of an ordered store. It is compiled only
    where one comes, since most engines never see any."""
    completing: frozenset[str]
    """In an ordered store: the types whose events can complete a match."""
    undisturbed: Mapping[str, str] = field(default_factory=dict)
    """Functions that run when elements have come, each with a faster one for where no event has come since."""
    sites: tuple[PostponedLookup, ...] = ()
    aheads: tuple[Ahead, ...] = ()
    asks: bool = False
    """Whether some evaluation may have to wait for an element of a remote table."""
    rule_of_check: tuple[int, ...] = ()
    """The number of the rule that each late check belongs to."""


@dataclass(frozen=True, slots=True)
class Guarded:
    """A trigger that may have to wait for elements."""

    rule: int
    again: str
    """The function that runs in its place when they are there."""
    undisturbed: str | None
    """A faster one for where no event has come since, if there is one."""


@dataclass(slots=True)
class BufferSpec:
    """One ordered collection of the events of a type that meet some conditions, split by a key or not."""

    name: str
    key: Piece | None
    horizon: int
    event_type: str | None
    """None for matches of a negated sub-pattern."""


@dataclass(slots=True)
class Group:
    """Everything that happens with the events of one type that meet the same conditions."""

    conditions: tuple[str, ...]
    buffers: list[BufferSpec] = field(default_factory=list)
    newest_triggers: list[str] = field(default_factory=list)
    triggers: list[str] = field(default_factory=list)


class StoreBuilder:
    """Collects buffers and functions of the rules that share a store."""

    def __init__(
        self, name: str, pool: Pool, columns: Mapping[str, RowLayout], *, ordered: bool, counted: int | None = None
    ) -> None:
        self.name = name
        self.pool = pool
        self.all_columns = columns
        self.ordered = ordered
        self.counted = counted
        """Length of the count window; such a store serves one rule and numbers its events."""
        self.specs: list[BufferSpec] = []
        self.groups: dict[str, dict[tuple[str, ...], Group]] = {}
        self.functions: list[str] = []
        self.machines: list[tuple[str, Sequence[str]]] = []
        self.late_checks: list[str] = []
        self.rule_of_check: list[int] = []
        self.writing = ""
        """Name of the rule whose code is being written."""
        self.owners: dict[str, str] = {}
        """The rule each function belongs to, so that a failure can name it."""
        self.exports: list[str] = []
        """Functions that a machine outside the generated code wants to call."""
        self.completing: set[str] = set()
        """Types whose events can complete a match once they are handled in trace order."""
        self.sites: list[PostponedLookup] = []
        self.aheads: list[Ahead] = []
        self._ahead_functions: dict[tuple[int, str, str, str], str] = {}
        self.guarded: dict[str, Guarded] = {}
        """Triggers that may have to wait for elements of remote tables."""
        self.asks = False
        self._derived: dict[int, tuple[Forbidden, BufferSpec]] = {}
        self.has_composites = False

    def columns(self, event_type: str) -> RowLayout:
        return self.all_columns[event_type]

    def has_composites_in(self, branch: Branch) -> bool:
        """Whether parts of the branch, or what it forbids, may have a start apart from their end."""
        types = {leaf.type for unit in branch.units for leaf in unit.leaves}
        return self.has_composites or any(self.columns(name).composite for name in types)

    def group(self, event_type: str, conditions: Sequence[str]) -> Group:
        self.has_composites = self.has_composites or self.columns(event_type).composite
        of_type = self.groups.setdefault(event_type, {})
        return of_type.setdefault(tuple(conditions), Group(tuple(conditions)))

    def buffer(self, event_type: str, conditions: Sequence[str], key: Piece | None, horizon: int) -> str:
        """The name of the buffer for these events, shared by every rule that asks for the same."""
        group = self.group(event_type, conditions)
        for spec in group.buffers:
            if (spec.key and spec.key.source) == (key and key.source):
                spec.horizon = max(spec.horizon, horizon)
                return spec.name
        spec = self._spec(key, horizon, event_type)
        group.buffers.append(spec)
        return spec.name

    def derived(self, forbidden: Forbidden, horizon: int) -> str:
        """The buffer that matches of a negated sub-pattern are put into."""
        if id(forbidden) not in self._derived:
            self._derived[id(forbidden)] = (forbidden, self._spec(None, horizon))
        spec = self._derived[id(forbidden)][1]
        spec.horizon = max(spec.horizon, horizon)
        return spec.name

    def site(self, rule: int, lookup: Remote, *, by_trigger: bool) -> str:
        """The name of a new place where a lookup may be postponed."""
        self.sites.append(PostponedLookup(rule, lookup, by_trigger))
        return f"s{len(self.sites) - 1}"

    def _spec(self, key: Piece | None, horizon: int, event_type: str | None = None) -> BufferSpec:
        spec = BufferSpec(f"b{len(self.specs)}", key, horizon, event_type)
        self.specs.append(spec)
        return spec

    def add_function(self, write: Callable[[str], str]) -> str:
        """Add a trigger of the rule that is being written; ``write`` gives its source under the name it gets."""
        name = f"t{len(self.functions)}"
        self.owners[name] = self.writing
        self.functions.append("")
        position = len(self.functions) - 1
        self.functions[position] = write(name)
        return name

    def add_ahead_function(self, rule: str, number: int, event_type: str, table: str, body: str) -> str:
        """Add what gives the key of a lookup for an event; lookups of a rule that would write the same share it."""
        shared = (number, event_type, table, body)
        name = self._ahead_functions.get(shared)
        if name is None:
            name = self._ahead_functions[shared] = f"a{len(self._ahead_functions)}"
            self.functions.append(f"def {name}(e):\n{body}")
            self.owners[name] = rule
            self.exports.append(name)
        return name

    def compile(self) -> CompiledStore:
        for of_type in self.groups.values():
            for group in of_type.values():
                if not self.ordered and group.triggers and not any(_always_kept(spec) for spec in group.buffers):
                    group.buffers.append(self._spec(None, 0))  # only to recognise a second delivery
        types = sorted({*self.groups, *(name for _, names in self.machines for name in names)})
        out = Writer()
        out.line("def build(state):")
        out.depth += 1
        self._name_buffers(out)
        if self.asks and not self.ordered:
            out.line("arrivals = state.arrivals")
        out.line("newest = state.newest")
        out.line("number = state.number")
        out.line("fresh = state.fresh")
        out.line("fresh_numbered = state.fresh_numbered")
        out.line("serial = state.serial")
        if self.asks:
            out.line("doubtful = state.doubtful")
        for source in (*self.functions, *self.late_checks):
            for text in source.splitlines():
                out.line(text)
        for trigger, guarded in self.guarded.items():
            out.line(f"h{trigger} = guarded({trigger}, {guarded.rule}, {guarded.again!r})")
        for position, event_type in enumerate(types):
            self._handler(out, f"on{position}", event_type)
        handlers = ", ".join(f"{event_type!r}: on{position}" for position, event_type in enumerate(types))
        checks = ", ".join(f"late{position}" for position in range(len(self.late_checks)))
        again = {
            name: None for guarded in self.guarded.values() for name in (guarded.again, guarded.undisturbed) if name
        }
        exports = ", ".join(f"{name!r}: {name}" for name in (*self.exports, *again))
        out.line(f"return {{{handlers}}}, [{checks}], {{{exports}}}")
        source = str(out)
        return CompiledStore(
            self.name,
            self.ordered,
            self.counted,
            self.has_composites,
            tuple((spec.key is not None, spec.horizon) for spec in self.specs),
            tuple(spec.event_type for spec in self.specs),
            compile(source, f"<headwater {self.name}>", "exec"),
            source,
            self.pool,
            self.owners,
            self._old_source() if self.ordered else "",
            frozenset(self.completing if self.ordered else ()),
            {guarded.again: guarded.undisturbed for guarded in self.guarded.values() if guarded.undisturbed},
            tuple(self.sites),
            tuple(self.aheads),
            self.asks,
            tuple(self.rule_of_check),
        )

    def _name_buffers(self, out: Writer) -> None:
        out.line("rows = state.rows")
        for position, spec in enumerate(self.specs):
            out.line(f"{spec.name} = rows[{position}]")

    def _old_source(self) -> str:
        """For every type a function that inserts an event that is older than others before it, and nothing else."""
        out = Writer()
        out.line("def build(state):")
        out.depth += 1
        self._name_buffers(out)
        types = sorted(self.groups)
        for position, event_type in enumerate(types):
            out.line(f"def old{position}(e):")
            out.depth += 1
            for group in self.groups[event_type].values():
                with _under(out, group.conditions):
                    for spec in group.buffers:
                        self._insert_old(out, spec)
            out.line("return")
            out.depth -= 1
        out.line(f"return {{{', '.join(f'{name!r}: old{position}' for position, name in enumerate(types))}}}")
        return str(out)

    @staticmethod
    def _insert_old(out: Writer, spec: BufferSpec) -> None:
        """An event that is there already is not put there again."""
        depth = out.depth
        if spec.key is None:
            out.line(f"L = {spec.name}")
        else:
            out.line(f"k = {spec.key.source}")
            if spec.key.nullable:
                out.line("if k is not None:")
                out.depth += 1
            out.line(f"L = {spec.name}.setdefault(k, [])")
        out.line("i = bisect_left(L, e)")
        out.line("if i == len(L) or L[i] != e: L.insert(i, e)")
        out.depth = depth

    def _handler(self, out: Writer, name: str, event_type: str) -> None:
        groups = list(self.groups.get(event_type, {}).values())
        if only := self._single_action(event_type, groups):
            out.line(f"{name} = {only}")
            return
        out.line(f"def {name}(e):")
        out.depth += 1
        if self.counted is not None:
            out.line("number[0] += 1")
            out.line("e = (*e, number[0])")
        if self.ordered:
            self._bodies(out, groups, newest=True)
            for machine, names in self.machines:
                if event_type in names:
                    out.line(f"{machine}(e)")
        elif self.has_composites:
            self._bodies(out, groups, newest=False)
        else:
            out.line("if e > newest[0]:")
            out.depth += 1
            out.line("newest[0] = e")
            self._bodies(out, groups, newest=True)
            out.depth -= 1
            out.line("else:")
            out.depth += 1
            out.line("pass")
            self._bodies(out, groups, newest=False)
            out.depth -= 1
        out.line("return")
        out.depth -= 1

    def _single_action(self, event_type: str, groups: list[Group]) -> str | None:
        """The one function that does all there is to do with events of the type, if there is such."""
        machines = [machine for machine, names in self.machines if event_type in names]
        if not self.ordered or self.counted is not None or len(groups) > 1 or any(g.conditions for g in groups):
            return None
        if any(spec.key is not None for group in groups for spec in group.buffers):
            return None
        triggers = [trigger for group in groups for trigger in group.newest_triggers]
        actions = [f"h{trigger}" if trigger in self.guarded else trigger for trigger in triggers]
        actions += [f"{spec.name}.append" for group in groups for spec in group.buffers]
        actions += machines
        return actions[0] if len(actions) == 1 else None

    def _bodies(self, out: Writer, groups: list[Group], newest: bool) -> None:
        """All triggers look at the buffers before the event is put into any of them."""
        if len(groups) == 1 and newest:
            with _under(out, groups[0].conditions):
                self._run_triggers(out, groups[0], newest)
                _run_inserts(out, groups[0], newest)
            return
        for position, group in enumerate(groups):
            out.line(f"g{position} = {' and '.join(group.conditions) or 'True'}")
            if not newest:
                with _under(out, (f"g{position}",)):
                    self._second_delivery(out, group, f"g{position}")
        for run in (self._run_triggers, _run_inserts):
            for position, group in enumerate(groups):
                with _under(out, (f"g{position}",)):
                    run(out, group, newest)

    def _run_triggers(self, out: Writer, group: Group, newest: bool) -> None:
        if self.asks and not self.ordered:
            out.line("if arrivals: arrived(e)")
        for trigger in group.newest_triggers if newest else group.triggers:
            out.line(f"{'h' if trigger in self.guarded else ''}{trigger}(e)")

    @staticmethod
    def _second_delivery(out: Writer, group: Group, flag: str) -> None:
        """The same event once more changes nothing."""
        kept = next((spec for spec in group.buffers if _always_kept(spec)), None)
        if kept is not None:
            out.line(f"L = {kept.name if kept.key is None else f'{kept.name}.get({kept.key.source}, ())'}")
            out.line("i = bisect_left(L, e)")
            out.line(f"{flag} = i == len(L) or L[i] != e")


@contextmanager
def _under(out: Writer, conditions: Sequence[str]) -> Iterator[None]:
    if conditions:
        out.line(f"if {' and '.join(conditions)}:")
        out.depth += 1
    yield
    out.line("pass")
    if conditions:
        out.depth -= 1


def _run_inserts(out: Writer, group: Group, newest: bool) -> None:
    for spec in group.buffers:
        _insert(out, spec, append=newest)


def _always_kept(spec: BufferSpec) -> bool:
    return spec.key is None or not spec.key.nullable


def _insert(out: Writer, spec: BufferSpec, append: bool) -> None:
    add = "L.append(e)" if append else "L.insert(bisect_left(L, e), e)"
    if spec.key is None:
        out.line(f"{spec.name}.append(e)" if append else f"{spec.name}.insert(bisect_left({spec.name}, e), e)")
        return
    out.line(f"k = {spec.key.source}")
    depth = out.depth
    if spec.key.nullable:
        out.line("if k is not None:")
        out.depth += 1
    out.line(f"L = {spec.name}.get(k)")
    out.line(f"if L is None: {spec.name}[k] = [e]")
    out.line(f"else: {add}")
    out.depth = depth
