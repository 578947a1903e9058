"""The context of the function that is being written: what is known of the join so far, and how generated code reads
what a match has bound (variables, keys, timestamps, conditions on single events)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from headwater.node.engine.codegen.code import CodeScope, Piece, Pool, RowLayout, Writer
from headwater.protocol.analysis.units import Branch, Choice, Forbidden, Measure, Spread, elementwise
from headwater.protocol.expressions import Attribute, Binary, Expression, Fold, Remote, parameters_of, roles_of, walk


class Buffers(Protocol):
    """Where generated code finds the events seen so far (see headwater.node.engine.store)."""

    pool: Pool

    def site(self, rule: int, lookup: Remote, *, by_trigger: bool) -> str: ...

    def columns(self, event_type: str) -> RowLayout: ...

    def buffer(self, event_type: str, conditions: Sequence[str], key: Piece | None, horizon: int) -> str: ...

    def derived(self, forbidden: Forbidden, horizon: int) -> str: ...


@dataclass(frozen=True, slots=True)
class Mode:
    """``ordered``: events come in trace order, so what is decided by the past is decided now.
    ``newest``: the trigger is later than everything in the buffers."""

    ordered: bool
    newest: bool


@dataclass(slots=True)
class Level:
    """How one unit finds its candidates. One entry per leaf (several only for groups)."""

    unit: int
    choice: Choice | None
    names: list[str] = field(default_factory=list)
    fetch_step: list[int] = field(default_factory=list)
    fetch: list[str] = field(default_factory=list)
    used_class: list[int | None] = field(default_factory=list)
    used_condition: list[Expression | None] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class IndexBound:
    """An index into a candidate list that can be computed at ``step``."""

    step: int
    variable: str
    source: str


@dataclass(frozen=True, slots=True)
class Sought:
    """A lookup whose value is kept in a variable from the step on at which its arguments are bound."""

    variable: str
    step: int
    site: str
    memo: str = ""
    """What keeps the values that one evaluation has looked up, where it may come to the same events again."""


SliceBounds = tuple[list[IndexBound], list[IndexBound], list[str]]
"""Lower and upper index bounds of candidates, and conditions that bisection cannot express."""

Emit = Callable[[Writer, "JoinContext"], None]


def _emit_nothing(out: Writer, join: JoinContext) -> None:
    raise AssertionError("conditions on a finished match emit nothing")


@dataclass(eq=False)
class JoinContext:
    """One branch of a rule with one trigger, for which one function is written."""

    buffers: Buffers
    branch: Branch
    trigger: int
    trigger_leaf: int
    mode: Mode
    in_text_order: bool
    again: bool = False
    """The evaluation was held: its trigger, and what came later, are among the events seen so far."""
    rule_number: int = -1
    """Of the rule whose matches are emitted; none for matches of a negated sub-pattern."""
    sought: dict[Remote, Sought] = field(default_factory=dict)
    """Lookups of plain conditions, which may be postponed; ``codegen/postponing.py`` fills these."""
    postponable: dict[Expression, int] = field(default_factory=dict)
    """The plain conditions that look something up, with the step at which each is judged."""
    variables: dict[tuple[str, str], str] = field(default_factory=dict)
    parameters: dict[str, Piece] = field(default_factory=dict)
    out: Writer = field(default_factory=Writer)
    skips: list[str] = field(default_factory=lambda: ["return"])
    over_limit: str = "over_limit"
    """Name of the cell that counts choices given up because a repetition had too many candidates."""
    extra_horizon: int = 0
    """How much longer than usual the match waits before its negations are judged."""
    stand_in: dict[int, str] = field(default_factory=dict)
    """Rows to read in place of units for a while."""
    folds: dict[str, tuple[Fold, Piece | None]] = field(default_factory=dict)
    """Folds that were written, by their source: the fold, and how it reads the event ``f``."""
    hoisted: set[int] = field(default_factory=set)
    complete: set[int] = field(default_factory=set)
    classes: list[dict[int, list[Attribute]]] = field(default_factory=list)
    """Attributes that every match makes equal, by unit; ``codegen/equalities.py`` fills these."""
    class_conditions: set[Expression] = field(default_factory=set)
    class_of: dict[Attribute, int] = field(default_factory=dict)
    class_value: dict[int, Piece] = field(default_factory=dict)
    class_step: dict[int, int] = field(default_factory=dict)
    class_source: dict[int, Attribute] = field(default_factory=dict)
    """The one member whose value stands for the class: all others, of its own role too, are compared with it."""
    levels: list[Level | Measure] = field(default_factory=list)
    """The order in which units are bound and aggregates computed; steps count from 1, the trigger is step 0."""
    step_of: dict[int, int] = field(default_factory=dict)
    element_step: dict[int, int] = field(default_factory=dict)
    """As ``step_of``, but the first event of a repetition that triggers is bound at once."""
    parameter_step: dict[str, int] = field(default_factory=dict)
    conditions: dict[int, list[Expression]] = field(default_factory=dict)
    """By the step at which everything they name is bound."""
    emit: Emit = _emit_nothing
    """Writes what happens with a finished match."""
    counting: bool = False
    """Whether matches are only counted: choices that nothing tells apart are then taken together."""
    collect: tuple[str, str, bool] | None = None
    """Set when the innermost loop can be written as one comprehension: its clause, its candidates, no condition."""
    nested: int = 0
    """How many functions inside each other the loops have been spread over so far."""
    counted: tuple[str, bool] | None = None
    """Set when the number of subsets follows from the number of candidates: (candidates, one of them is forced)."""
    numbers: tuple[str, ...] = ()
    """Variables that say for how many choices of its repetitions a match stands, where matches are only counted."""
    demanded_later: str = ""
    """Source of what looks at a match that has waited."""
    waiting_match: str | None = None
    """Source of the match that waits: it holds the events of repetitions, but asks nothing of them."""
    slice_bounds: dict[tuple[int, int], SliceBounds] = field(default_factory=dict)
    """By unit and leaf what bounds its candidates."""

    def __post_init__(self) -> None:
        self.units = self.branch.units
        self.positive = frozenset(role for unit in self.units for role in unit.roles)
        self.scope = CodeScope(self.buffers.pool, self._attribute, self._fold, self._latest_ts, self.parameters)
        self.types = {leaf.role: leaf.type for unit in self.units for leaf in unit.leaves}
        for forbidden in self.branch.forbidden:
            if forbidden.leaf is not None:
                self.types[forbidden.leaf.role] = forbidden.leaf.type
            for sub in forbidden.sub:
                self.types |= {leaf.role: leaf.type for unit in sub.units for leaf in unit.leaves}
        for step in self.branch.steps:
            if isinstance(step, Measure):
                self.types[step.leaf.role] = step.leaf.type
        for number, unit in enumerate(self.units):
            for leaf_number, leaf in enumerate(unit.leaves):
                if unit.many:
                    rows = f"k{number}_{leaf_number}"
                    names = {"all": rows, "first": f"{rows}[0]", "last": f"{rows}[-1]"}
                    self.variables |= {(leaf.role, index): name for index, name in names.items()}
                else:
                    self.variables[leaf.role, ""] = f"r{number}"

    def _attribute(self, attribute: Attribute) -> Piece:
        variable = self.variables[attribute.role, attribute.index]
        return self.columns(attribute.role).read(variable, attribute.name)

    def _fold(self, fold: Fold) -> Piece:
        rows = self.variables[fold.role, "all"]
        if fold.name is None:
            piece, read = Piece(f"len({rows})"), None
        else:
            read = self.columns(fold.role).read("f", fold.name)
            keep = f" if {read.source} is not None" if read.nullable else ""
            source = f"fold_{fold.function}([{read.source} for f in {rows}{keep}])"
            piece = Piece(source, nullable=fold.function != "count")
        self.folds[piece.source] = fold, read
        return piece

    def _latest_ts(self, part: Attribute | Fold) -> str:
        if isinstance(part, Fold):
            return f"{self.variables[part.role, 'last']}[0]"
        return f"{self.variables[part.role, part.index]}[0]"

    def columns(self, role: str) -> RowLayout:
        return self.buffers.columns(self.types[role])

    def is_composite(self, unit: int) -> bool:
        return any(self.buffers.columns(leaf.type).composite for leaf in self.units[unit].leaves)

    @contextmanager
    def reading(self, names: dict[tuple[str, str], str]) -> Iterator[None]:
        """Let roles stand for other variables for a while."""
        saved = {token: self.variables.get(token) for token in names}
        self.variables |= names
        try:
            yield
        finally:
            for token, variable in saved.items():
                if variable is None:
                    del self.variables[token]
                else:
                    self.variables[token] = variable

    def row_of(self, unit: int, which: str) -> str:
        """The variable that holds the first or the last event of a bound unit."""
        if unit in self.stand_in:
            return self.stand_in[unit]
        if not self.units[unit].many:
            return f"r{unit}"
        if unit == self.trigger and unit not in self.complete:
            return "e"
        leaf = 0 if which == "first" else len(self.units[unit].leaves) - 1
        return f"k{unit}_{leaf}[{0 if which == 'first' else -1}]"

    def end_key(self, unit: int) -> str:
        return f"{self.row_of(unit, 'last')}[:3]"

    def start_key(self, unit: int) -> str:
        row = self.row_of(unit, "first")
        return f"start_of({row})" if self.is_composite(unit) else f"{row}[:3]"

    def end_ts(self, unit: int) -> str:
        return f"{self.row_of(unit, 'last')}[0]"

    def first_ts(self, unit: int, from_start: bool) -> str:
        row = self.row_of(unit, "first")
        return f"start_of({row})[0]" if from_start and self.is_composite(unit) else f"{row}[0]"

    @property
    def skip(self) -> str:
        return self.skips[-1]

    def skip_unless(self, condition: str) -> None:
        self.out.line(f"if not ({condition}): {self.skip}")

    def enter_loop(self, header: str) -> None:
        self.out.line(header)
        self.out.depth += 1
        self.skips.append("continue")

    def leave_loop(self) -> None:
        self.skips.pop()
        self.out.depth -= 1

    @staticmethod
    def element(unit: int, leaf: int) -> str:
        return f"x{unit}_{leaf}"

    def is_own(self, condition: Expression) -> bool:
        """A conjunct about one event alone: judged before the event is kept at all, unless it asks for an element."""
        return self._is_about_one(condition) and not self.asks(condition)

    def asks(self, condition: Expression) -> bool:
        """Whether it looks something up that may not be at hand."""
        return self.buffers.pool.asks(condition)

    def _is_about_one(self, condition: Expression) -> bool:
        roles = roles_of(condition)
        if len(roles) != 1 or parameters_of(condition):
            return False
        (role,) = roles
        unit = self.units[self.branch.unit_of(role)] if role in self.positive else None
        return unit is None or not unit.many or elementwise(condition, roles)

    def _trivial(self, condition: Expression) -> bool:
        """``x = x`` says only that x has a value."""
        return (
            isinstance(condition, Binary)
            and condition.operator == "="
            and condition.left == condition.right
            and not self.scope.value(condition.left).nullable
        )

    def own_conditions(self, role: str, where: Iterable[Expression]) -> list[str]:
        """Sources of the conjuncts about this role alone, over the variable ``e``."""
        with self.reading({(role, ""): "e"}):
            own = [c for c in where if roles_of(c) == {role} and self.is_own(c)]
            sources = [self.scope.truth(condition) for condition in own if not self._trivial(condition)]
        unit = self.branch.unit_of(role) if role in self.positive else None
        if unit is not None and not self.units[unit].many and self.is_composite(unit):
            sources += [
                f"(e[0] - start_of(e)[0] <= {length})"
                for number, length, from_start in self.branch.own_spans
                if number == unit and from_start
            ]
        return sorted(set(sources))

    def asking_conditions(self, role: str, where: Iterable[Expression], variable: str) -> list[str]:
        """Sources of the conjuncts about this role alone that ask for elements, over a variable."""
        with self.reading({(role, ""): variable}):
            return [
                self.scope.truth(condition)
                for condition in where
                if roles_of(condition) == {role} and self._is_about_one(condition) and self.asks(condition)
            ]

    def names_element(self, part: Expression) -> bool:
        return (
            isinstance(part, Attribute)
            and part.index in ("", "i-1")
            and part.role in self.positive
            and self.units[self.branch.unit_of(part.role)].many
        )

    def over_elements(self, condition: Expression) -> str:
        """The condition for every element (or neighbouring pair) of the finished repetition whose elements it names."""
        named = {
            (part.role, part.index)
            for part in walk(condition)
            if isinstance(part, Attribute) and self.names_element(part)
        }
        if not named:
            return self.scope.truth(condition)
        unit = self.branch.unit_of(next(iter(named))[0])
        leaf_roles = [leaf.role for leaf in self.units[unit].leaves]
        here = {(role, ""): f"y{number}" for number, role in enumerate(leaf_roles)}
        before = {(role, "i-1"): f"z{number}" for number, role in enumerate(leaf_roles)}
        tuples = [f"k{unit}_{number}" for number in range(len(leaf_roles))]
        if any(index == "i-1" for _, index in named):
            with self.reading(here | before):
                test = self.scope.truth(condition)
            targets = [*here.values(), *before.values()]
            rows = [f"{name}[1:]" for name in tuples] + tuples
        else:
            with self.reading(here):
                test = self.scope.truth(condition)
            targets, rows = list(here.values()), tuples
        return f"all({test} for {', '.join(targets)}, in zip({', '.join(rows)}))"

    def spread_condition(self, spread: Spread) -> str:
        greatest = []
        least = []
        for part, elements in zip(spread.parts, spread.elements, strict=True):
            ends = [self.end_ts(unit) for unit in part]
            end = ends[0] if len(ends) == 1 else f"max({', '.join(ends)})"
            greatest.append(end)
            least.append(self.first_ts(part[0], from_start=False) if elements else end)
        if len(greatest) == 1:
            return f"{greatest[0]} - {least[0]} <= {spread.length}"
        return f"max({', '.join(greatest)}) - min({', '.join(least)}) <= {spread.length}"

    def latest_end(self, units: Sequence[int]) -> str:
        last = [u for u in units if not any((u, w) in self.branch.before for w in units)]
        keys = [self.end_key(unit) for unit in last]
        return keys[0] if len(keys) == 1 else f"max({', '.join(keys)})"

    def earliest_start(self, units: Sequence[int]) -> str:
        first = [u for u in units if not any((w, u) in self.branch.before for w in units)]
        keys = [self.start_key(unit) for unit in first]
        return keys[0] if len(keys) == 1 else f"min({', '.join(keys)})"

    def greatest_ts(self, units: Sequence[int], column: int = 0) -> str:
        last = [u for u in units if not any((u, w) in self.branch.before for w in units)]
        stamps = [f"{self.row_of(unit, 'last')}[{column}]" for unit in last]
        return stamps[0] if len(stamps) == 1 else f"max({', '.join(stamps)})"

    def least_ts(self, units: Sequence[int], column: int = 0) -> str:
        first = [u for u in units if not any((w, u) in self.branch.before for w in units)]
        if column:
            stamps = [f"{self.row_of(unit, 'first')}[{column}]" for unit in first]
        else:
            stamps = [self.first_ts(unit, from_start=True) for unit in first]
        return stamps[0] if len(stamps) == 1 else f"min({', '.join(stamps)})"
