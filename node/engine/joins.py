"""Code for one trigger: given the event that arrived for one unit, find every match it completes.

The generated function binds the remaining units one after another in nested loops. Candidates come from buffers kept in
trace order: a hash lookup where an equality allows it, then bisection by precedence and window, then the remaining
conjuncts. Everything that depends only on what is bound already is computed outside the inner loops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol

from node.engine.code import Columns, Piece, Pool, Scope, Writer
from node.engine.logical import (
    Branch,
    Choice,
    Forbidden,
    Gap,
    Measure,
    Spread,
    Unit,
    elementwise,
    needs_previous,
    needs_whole,
)
from protocol.expressions import Attribute, Binary, Expression, Fold, parameters_of, roles_of, walk


class Buffers(Protocol):
    """Where generated code finds the events seen so far (see node.engine.store)."""

    pool: Pool

    def columns(self, event_type: str) -> Columns: ...

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
class Bound:
    """An index into a candidate list that can be computed at ``step``."""

    step: int
    variable: str
    source: str


Emit = Callable[[Writer, "JoinWriter"], None]


class JoinWriter:
    """Writes the function for one trigger of one branch."""

    def __init__(
        self,
        buffers: Buffers,
        branch: Branch,
        trigger: int,
        trigger_leaf: int,
        mode: Mode,
        in_text_order: bool,
    ) -> None:
        self.buffers = buffers
        self.branch = branch
        self.trigger = trigger
        self.trigger_leaf = trigger_leaf
        self.mode = mode
        self.in_text_order = in_text_order
        self.units = branch.units
        self.variables: dict[tuple[str, str], str] = {}
        self.parameters: dict[str, Piece] = {}
        self.scope = Scope(buffers.pool, self._attribute, self._fold, self._latest_ts, self.parameters)
        self.types = {leaf.role: leaf.type for unit in self.units for leaf in unit.leaves}
        for forbidden in branch.forbidden:
            if forbidden.leaf is not None:
                self.types[forbidden.leaf.role] = forbidden.leaf.type
            for sub in forbidden.sub:
                self.types |= {leaf.role: leaf.type for unit in sub.units for leaf in unit.leaves}
        for step in branch.steps:
            if isinstance(step, Measure):
                self.types[step.leaf.role] = step.leaf.type
        self.out = Writer()
        self.skips: list[str] = ["return"]
        self.over_limit = "over_limit"
        """Name of the cell that counts choices given up because a repetition had too many candidates."""
        self.stand_in: dict[int, str] = {}
        """Rows to read in place of units for a while."""
        self.hoisted: set[int] = set()
        self.complete: set[int] = set()
        self._bounds: dict[tuple[int, int], tuple[list[Bound], list[Bound], list[str]]] = {}
        for number, unit in enumerate(self.units):
            for leaf_number, leaf in enumerate(unit.leaves):
                if unit.many:
                    rows = f"k{number}_{leaf_number}"
                    names = {"all": rows, "first": f"{rows}[0]", "last": f"{rows}[-1]"}
                    self.variables |= {(leaf.role, index): name for index, name in names.items()}
                else:
                    self.variables[leaf.role, ""] = f"r{number}"

    # ------------------------------------------------------------------------------------------------ reading values

    def _attribute(self, attribute: Attribute) -> Piece:
        variable = self.variables[attribute.role, attribute.index]
        return self.columns(attribute.role).read(variable, attribute.name)

    def _fold(self, fold: Fold) -> Piece:
        rows = self.variables[fold.role, "all"]
        if fold.name is None:
            return Piece(f"len({rows})")
        read = self.columns(fold.role).read("f", fold.name)
        keep = f" if {read.source} is not None" if read.nullable else ""
        return Piece(f"fold_{fold.function}([{read.source} for f in {rows}{keep}])", nullable=fold.function != "count")

    def _latest_ts(self, part: Attribute | Fold) -> str:
        if isinstance(part, Fold):
            return f"{self.variables[part.role, 'last']}[0]"
        return f"{self.variables[part.role, part.index]}[0]"

    def columns(self, role: str) -> Columns:
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

    # ------------------------------------------------------------------------------------------------------ the plan

    def write(self, name: str, emit: Emit) -> str:
        """The source of the function; ``emit`` writes what happens with a finished match."""
        self.emit = emit
        self._equalities()
        self._plan()
        out = self.out
        out.line(f"def {name}({'e' if self.units[self.trigger].many else f'r{self.trigger}'}):")
        out.depth += 1
        self._bind_trigger()
        self._after_step(0)
        self._levels(1)
        out.depth = 0
        return str(out)

    def all_bound(self) -> None:
        """Prepare for conditions on a finished match: every unit is bound, there is no trigger."""
        self.levels: list[Level | Measure] = []
        self.conditions: dict[int, list[Expression]] = {}
        self.step_of = dict.fromkeys(range(len(self.units)), 0)
        self.element_step = dict(self.step_of)
        self.complete = set(self.step_of)
        self.trigger = -1
        self._equalities()
        self._value_classes()
        self._place_parameters()

    @property
    def skip(self) -> str:
        return self.skips[-1]

    def skip_unless(self, condition: str) -> None:
        self.out.line(f"if not ({condition}): {self.skip}")

    def _equalities(self) -> None:
        """Group attributes that every match makes equal: any member then finds any other by hash."""
        self.classes: list[dict[int, list[Attribute]]] = []
        self.class_conditions: set[Expression] = set()
        self.class_of: dict[Attribute, int] = {}
        self.class_value: dict[int, Piece] = {}
        if self.in_text_order:
            return
        parent: dict[Attribute, Attribute] = {}

        def find(attribute: Attribute) -> Attribute:
            parent.setdefault(attribute, attribute)
            while parent[attribute] != attribute:
                attribute = parent[attribute]
            return attribute

        for condition in self.branch.where:
            match condition:
                case Binary("=", Attribute(index="") as left, Attribute(index="") as right):
                    if self.branch.unit_of(left.role) != self.branch.unit_of(right.role):
                        parent[find(left)] = find(right)
                        self.class_conditions.add(condition)
        numbers: dict[Attribute, int] = {}
        for attribute in list(parent):
            number = numbers.setdefault(find(attribute), len(numbers))
            if number == len(self.classes):
                self.classes.append({})
            self.classes[number].setdefault(self.branch.unit_of(attribute.role), []).append(attribute)
            self.class_of[attribute] = number

    def _plan(self) -> None:
        """Fix the order of the levels, and for each how and when its candidates are fetched."""
        self.levels = []
        bound = [self.trigger]
        if self.in_text_order:
            for step in self.branch.steps:
                self.levels.append(Level(step.unit, step) if isinstance(step, Choice) else step)
        else:
            rest = [unit for unit in range(len(self.units)) if unit != self.trigger]
            while single := [unit for unit in rest if not self.units[unit].many]:
                chosen = min(
                    single, key=lambda unit: (not self._has_key(unit, bound), self._distance(unit, bound), unit)
                )
                self.levels.append(Level(chosen, None))
                bound.append(chosen)
                rest.remove(chosen)
            if self.units[self.trigger].many:
                rest.append(self.trigger)
            self.levels += [Level(unit, None) for unit in sorted(rest)]
        self.step_of = {self.trigger: 0}
        for number, level in enumerate(self.levels, start=1):
            if isinstance(level, Level):
                self.step_of[level.unit] = number
        self.element_step = dict(self.step_of)
        self.element_step[self.trigger] = 0
        self._value_classes()
        self._place_parameters()
        self.conditions = {}
        for condition in self.branch.where:
            if condition not in self.class_conditions and not self._is_own(condition):
                at = max((self.step_of[unit] for unit in self.branch.units_in(condition)), default=0)
                at = max([at, *(self.parameter_step[name] for name in parameters_of(condition))])
                self.conditions.setdefault(at, []).append(condition)

    def _value_classes(self) -> None:
        """The member bound first gives a class its value, which the others are then found by."""
        self.class_step: dict[int, int] = {}
        for number, members in enumerate(self.classes):
            first = min(members, key=lambda unit: (self.element_step[unit], self.units[unit].many))
            attribute = members[first][0]
            forced = self.units[first].many
            if forced:
                mine = [a for a in members[first] if a.role == self.units[first].leaves[self.trigger_leaf].role]
                if first != self.trigger or not mine:
                    continue  # a class among repetitions only, or of a leaf of the group that the trigger is not
                attribute = mine[0]
            with self.reading({(attribute.role, ""): "e" if forced else f"r{first}"}):
                value = self.scope.value(attribute)
            self.class_value[number] = value
            self.class_step[number] = self.element_step[first]

    def _place_parameters(self) -> None:
        self.parameter_step: dict[str, int] = {}
        for step, level in enumerate(self.levels, start=1):
            if isinstance(level, Measure):
                self.parameter_step[level.name] = step
                self.parameters[level.name] = Piece(f"p_{level.name}", level.function != "count", simple=True)

    def _distance(self, unit: int, bound: Iterable[int]) -> int:
        return min(abs(unit - other) for other in bound)

    def _has_key(self, unit: int, bound: Sequence[int]) -> bool:
        return any(unit in members and any(other in members for other in bound) for members in self.classes)

    def _is_own(self, condition: Expression) -> bool:
        """A conjunct about one event alone: judged before the event is kept at all."""
        roles = roles_of(condition)
        if len(roles) != 1 or parameters_of(condition):
            return False
        (role,) = roles
        unit = self.units[self.branch.unit_of(role)] if role in self._positive_roles() else None
        return unit is None or not unit.many or elementwise(condition, roles)

    def _positive_roles(self) -> frozenset[str]:
        return frozenset(role for unit in self.units for role in unit.roles)

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
            own = [c for c in where if roles_of(c) == {role} and self._is_own(c)]
            sources = [self.scope.truth(condition) for condition in own if not self._trivial(condition)]
        unit = self.branch.unit_of(role) if role in self._positive_roles() else None
        if unit is not None and not self.units[unit].many and self.is_composite(unit):
            sources += [
                f"(e[0] - start_of(e)[0] <= {length})"
                for number, length, from_start in self.branch.own_spans
                if number == unit and from_start
            ]
        return sorted(set(sources))

    # ----------------------------------------------------------------------------------------------------- candidates

    def _prepare(self, step: int, level: Level) -> None:
        """Decide the buffers of a level: the earliest step at which some equality gives a hash lookup."""
        unit = self.units[level.unit]
        for leaf_number, leaf in enumerate(unit.leaves):
            own = self.own_conditions(leaf.role, self.branch.where)
            name = f"L{level.unit}_{leaf_number}"
            level.names.append(name)
            fetched = None
            if unit.limit is None:
                for at in range(step):
                    fetched = self._keyed(level, leaf.role, at)
                    if fetched is not None:
                        break
            if fetched is None:
                buffer = self.buffers.buffer(leaf.type, own, None, self.branch.horizon)
                level.fetch_step.append(0)
                level.fetch.append(f"{name} = {buffer}")
                level.used_class.append(None)
                level.used_condition.append(None)
                continue
            key, lookup, at, used_class, used_condition = fetched
            buffer = self.buffers.buffer(leaf.type, own, key, self.branch.horizon)
            level.fetch_step.append(at)
            level.fetch.append(f"{name} = {buffer}.get({lookup})")
            level.used_class.append(used_class)
            level.used_condition.append(used_condition)

    def _keyed(self, level: Level, role: str, at: int) -> tuple[Piece, str, int, int | None, Expression | None] | None:
        bound = {unit for unit, step in self.element_step.items() if step <= at} - {level.unit}
        for number, members in enumerate(self.classes):
            mine = [attribute for attribute in members.get(level.unit, ()) if attribute.role == role]
            if mine and self.class_step.get(number, at + 1) <= at and any(other in bound for other in members):
                with self.reading({(role, ""): "e"}):
                    return self.scope.value(mine[0]), self.class_value[number].source, at, number, None
        where = [c for found, cs in self.conditions.items() for c in cs if found == self.step_of[level.unit]]
        found = self._equality_key(role, where, bound, at)
        return None if found is None else (found[0], found[1], at, None, found[2])

    def _equality_key(
        self, role: str, where: Iterable[Expression], bound: set[int], at: int
    ) -> tuple[Piece, str, Expression] | None:
        """A conjunct that equates something of this role alone with something known; key, lookup, conjunct."""
        positive = self._positive_roles()
        for condition in where:
            if not isinstance(condition, Binary) or condition.operator != "=":
                continue
            for mine, other in ((condition.left, condition.right), (condition.right, condition.left)):
                if roles_of(mine) != {role} or parameters_of(mine) or role in roles_of(other):
                    continue
                if any(
                    isinstance(part, Fold) or (isinstance(part, Attribute) and part.index) for part in walk(condition)
                ):
                    continue
                if any(self.parameter_step[name] > at for name in parameters_of(other)):
                    continue
                if not roles_of(other) <= positive or any(self.branch.unit_of(r) not in bound for r in roles_of(other)):
                    continue
                if any(self.units[self.branch.unit_of(r)].many for r in roles_of(other)):
                    continue
                with self.reading({(role, ""): "e"}):
                    key = self.scope.value(mine)
                return key, self.scope.value(other).source, condition
        return None

    def _is_before(self, one: int, other: int) -> bool:
        """Whether ``one`` is known to end before ``other`` does."""
        if (one, other) in self.branch.before:
            return True
        return self.mode.newest and other == self.trigger and not self.units[other].many

    def _slice_bounds(self, level: Level, leaf: int) -> tuple[list[Bound], list[Bound], list[str]]:
        """Lower and upper index bounds of a level's candidates, and conditions bisection cannot express."""
        unit = level.unit
        own_step = self.step_of[unit]
        fetched = level.fetch_step[leaf]
        name = level.names[leaf]
        known = [u for u, step in self.element_step.items() if step < own_step and u != unit]
        self.complete = {u for u, step in self.step_of.items() if step < own_step}
        many = self.units[unit].many
        row = self._element(unit, leaf) if many else f"r{unit}"
        mine_composite = self.buffers.columns(self.units[unit].leaves[leaf].type).composite
        plain = {u: not mine_composite and not self.is_composite(u) for u in known}
        lower: list[Bound] = []
        upper: list[Bound] = []
        extra: list[str] = []

        def add(found: list[Bound], u: int, source: str) -> None:
            tag = "lo" if found is lower else "hi"
            variable = f"{tag}{unit}_{leaf}_{len(found)}"
            known_at = self.step_of[u] if u in self.complete else self.element_step[u]
            found.append(Bound(max(fetched, known_at), variable, source))

        preceding = [u for u in known if (u, unit) in self.branch.before]
        for u in preceding:
            if any((u, w) in self.branch.before for w in preceding):
                continue
            last = self.row_of(u, "last")
            if plain[u]:
                add(lower, u, f"bisect_right({name}, {last})")
            else:
                add(lower, u, f"bisect_left({name}, ({last}[0], {last}[1], {last}[2] + 1))")
                if mine_composite and self.branch.before[u, unit] == "start":
                    extra.append(f"start_of({row}) > {last}[:3]")
        following = [u for u in known if (unit, u) in self.branch.before]
        for u in following:
            if any((w, u) in self.branch.before for w in following):
                continue
            if self.mode.newest and u == self.trigger and plain[u] and not self.units[u].many:
                continue
            if plain[u]:
                add(upper, u, f"bisect_left({name}, {self.row_of(u, 'first')})")
            elif self.branch.before[unit, u] == "start":
                add(upper, u, f"bisect_left({name}, {self.start_key(u)})")
            else:
                add(upper, u, f"bisect_left({name}, {self.end_key(u)})")
        for gap in self.branch.gaps:
            if gap.earlier == unit and gap.later in known and not self._lower_implied(gap, known):
                ts = self.end_ts(gap.later)
                add(lower, gap.later, f"bisect_left({name}, ({ts} - {gap.length},))")
                if level.choice is not None and level.choice.policy == "last":  # looked at only once it is needed
                    lower[-1] = replace(lower[-1], step=own_step)
                if gap.from_start and mine_composite:
                    extra.append(f"{ts} - start_of({row})[0] <= {gap.length}")
            elif gap.later == unit and gap.earlier in known and not self._upper_implied(gap, known):
                ts = self.first_ts(gap.earlier, gap.from_start)
                add(upper, gap.earlier, f"bisect_left({name}, ({ts} + {gap.length + 1},))")
        if self.branch.count is not None:
            span = self.branch.count - 1
            extra += [f"-{span} <= {self.row_of(u, 'last')}[-1] - {row}[-1] <= {span}" for u in known]
            extra += [f"{row}[-1] - {self.row_of(u, 'first')}[-1] <= {span}" for u in known if self.units[u].many]
        for hoisted in self._hoisted_negations(level, known, plain):
            lower.append(Bound(own_step - 1, f"lo{unit}_{leaf}_{len(lower)}", hoisted))
        self.complete = set()
        return lower, upper, extra

    def _lower_implied(self, gap: Gap, known: Sequence[int]) -> bool:
        """Another bound or check already keeps the earlier event near enough."""
        for other in self.branch.gaps:
            if other == gap or other.from_start != gap.from_start or other.length > gap.length:
                continue
            closer = other.later == gap.later and other.earlier in known and self._is_before(other.earlier, gap.earlier)
            if closer:
                return True
            later = other.earlier == gap.earlier and other.later in known and self._is_before(gap.later, other.later)
            if later and not self._is_before(other.later, gap.later):
                return True
        return False

    def _upper_implied(self, gap: Gap, known: Sequence[int]) -> bool:
        for other in self.branch.gaps:
            if other == gap or other.from_start != gap.from_start or other.length > gap.length:
                continue
            if other.earlier == gap.earlier and other.later in known and self._is_before(gap.later, other.later):
                return True
            sooner = other.later == gap.later and other.earlier in known
            if sooner and (other.earlier, gap.earlier) in self.branch.before:
                return True
        return False

    def _distinct(self, unit: int, leaf: int, row: str) -> list[str]:
        """Conditions that keep one event out of two roles, where order does not do it already."""
        event_type = self.units[unit].leaves[leaf].type
        conditions = []
        for other, step in self.element_step.items():
            if other == unit or step >= self.step_of[unit]:
                continue
            if other == self.trigger and self.step_of[other] in (0, *range(self.step_of[unit], len(self.levels) + 1)):
                continue  # the triggering event is not among the candidates yet
            if (unit, other) in self.branch.before or (other, unit) in self.branch.before:
                continue
            for number, mate in enumerate(self.units[other].leaves):
                if mate.type == event_type:
                    many = self.units[other].many
                    conditions.append(f"{row} not in k{other}_{number}" if many else f"{row} != r{other}")
        return conditions

    def _class_conditions(self, unit: int, role: str, used: int | None) -> list[str]:
        """Equalities with classes that already have a value, other than the one the hash lookup took care of."""
        conditions = []
        for number, members in enumerate(self.classes):
            mine = [attribute for attribute in members.get(unit, ()) if attribute.role == role]
            if self.class_step.get(number, self.step_of[unit]) >= self.step_of[unit]:
                continue
            value = self.class_value[number]
            for attribute in mine[1:] if number == used else mine:
                conditions.append(self.scope.compare("=", self.scope.value(attribute), value))
        return conditions

    def _guard_classes(self, unit: int, role: str, variable: str) -> None:
        """What gives a class its value must have one, and agree with itself where it is in the class twice."""
        with self.reading({(role, ""): variable}):
            for number, members in enumerate(self.classes):
                mine = [attribute for attribute in members.get(unit, ()) if attribute.role == role]
                if not mine or self.class_step.get(number) != self.element_step[unit]:
                    continue
                value = self.scope.value(mine[0])
                if value.source != self.class_value[number].source:
                    continue
                if value.nullable:
                    self.skip_unless(f"{value.source} is not None")
                for attribute in mine[1:]:
                    self.skip_unless(self.scope.compare("=", self.scope.value(attribute), value))

    # -------------------------------------------------------------------------------------------------------- writing

    def _bind_trigger(self) -> None:
        unit = self.units[self.trigger]
        leaf = unit.leaves[self.trigger_leaf]
        self._guard_classes(self.trigger, leaf.role, "e" if unit.many else f"r{self.trigger}")
        for condition in self.conditions.get(0, []):
            self.skip_unless(self.scope.truth(condition))
        for step, level in enumerate(self.levels, start=1):
            if isinstance(level, Level):
                self._prepare(step, level)

    def _after_step(self, step: int) -> None:
        """Write everything that can be known once the unit of this step is bound."""
        later = [level for level in self.levels[step:] if isinstance(level, Level)]
        for level in later:
            for leaf, name in enumerate(level.names):
                if level.fetch_step[leaf] != step:
                    continue
                self.out.line(level.fetch[leaf])
                if level.unit != self.trigger or leaf != self.trigger_leaf:
                    self.out.line(f"if not {name}: {self.skip}")
                elif ".get(" in level.fetch[leaf]:  # the trigger itself may be the only element
                    self.out.line(f"if {name} is None: {name} = []")
        for level in later:
            for leaf in range(len(level.names)):
                lower, upper, _ = self._bounds_of(level, leaf)
                for bound in (*lower, *upper):
                    if bound.step == step:
                        self.out.line(f"{bound.variable} = {bound.source}")
        self._negations(step)

    def _bounds_of(self, level: Level, leaf: int) -> tuple[list[Bound], list[Bound], list[str]]:
        token = (level.unit, leaf)
        if token not in self._bounds:
            self._bounds[token] = self._slice_bounds(level, leaf)
        return self._bounds[token]

    def _levels(self, step: int) -> None:
        if step > len(self.levels):
            for unit in self.limited():
                if self.step_of[unit] != len(self.levels):
                    self.out.line(f"if {self.over_limit_found(unit)}: {self.skip}")
            self.emit(self.out, self)
            return
        level = self.levels[step - 1]
        if isinstance(level, Measure):
            self._measure(step, level)
            for condition in self.conditions.get(step, []):
                self.skip_unless(self.scope.truth(condition))
            self._after_step(step)
            self._levels(step + 1)
        elif self.units[level.unit].many:
            self._repetition(step, level)
        else:
            self._single(step, level)

    def _range_source(self, level: Level, leaf: int) -> tuple[str, str]:
        lower, upper, _ = self._bounds_of(level, leaf)
        low = [bound.variable for bound in lower]
        high = [bound.variable for bound in upper]
        one = low[0] if len(low) == 1 else f"max({', '.join(low)})" if low else ""
        other = high[0] if len(high) == 1 else f"min({', '.join(high)})" if high else ""
        return one, other

    def _candidates(self, level: Level, leaf: int) -> str:
        low, high = self._range_source(level, leaf)
        name = level.names[leaf]
        return f"{name}[{low}:{high}]" if low or high else name

    def _single(self, step: int, level: Level) -> None:
        unit = level.unit
        row = f"r{unit}"
        role = self.units[unit].leaves[0].role
        conditions = self._class_conditions(unit, role, level.used_class[0])
        conditions += [
            self.scope.truth(condition)
            for condition in self.conditions.get(step, [])
            if condition != level.used_condition[0]
        ]
        *_, extra = self._bounds_of(level, 0)
        conditions += extra + self._distinct(unit, 0, row)
        choice = level.choice
        if choice is not None and choice.policy != "each":
            loops = self._choose(level, choice, conditions)
            self._bound_single(step, unit, role)
            self._levels(step + 1)
            if loops:
                self._leave_loop()
            return
        candidates = self._candidates(level, 0)
        if self._finishes(step):
            kept = f" if {' and '.join(conditions)}" if conditions else ""
            self.collect = (f"for {row} in {candidates}{kept}", f"{candidates}", not conditions)
            self.emit(self.out, self)
            return
        self._enter_loop(f"for {row} in {candidates}:")
        if conditions:
            self.skip_unless(" and ".join(conditions))
        self._bound_single(step, unit, role)
        self._levels(step + 1)
        self._leave_loop()

    def _enter_loop(self, header: str) -> None:
        self.out.line(header)
        self.out.depth += 1
        self.skips.append("continue")

    def _leave_loop(self) -> None:
        self.skips.pop()
        self.out.depth -= 1

    collect: tuple[str, str, bool] | None = None
    """Set when the innermost loop can be written as one comprehension: its clause, its candidates, no condition."""

    def _finishes(self, step: int) -> bool:
        """Nothing is left to do after this step but to emit."""
        if step != len(self.levels) or any(self.step_of[u] < step or self.limit_waits(u) for u in self.limited()):
            return False
        if any(self._spread_step(spread) == step for spread in self.branch.spreads):
            return False
        return not any(
            forbidden.waits or (self._negation_step(forbidden) == step and id(forbidden) not in self.hoisted)
            for forbidden in self.branch.forbidden
        )

    def _bound_single(self, step: int, unit: int, role: str) -> None:
        self._guard_classes(unit, role, f"r{unit}")
        for spread in self.branch.spreads:
            if self._spread_step(spread) == step:
                self.skip_unless(self.spread_condition(spread))
        self._after_step(step)

    def _choose(self, level: Level, choice: Choice, conditions: list[str]) -> bool:
        """Bind the last or first candidate, or open a loop over the n chosen ones; whether it did the latter."""
        out = self.out
        row = f"r{level.unit}"
        name = level.names[0]
        last = choice.policy == "last"
        if last and choice.count == 1 and not conditions:
            self._choose_nearest(level, row)
            return False
        for bound in self._bounds_of(level, 0)[0]:
            if bound.step == self.step_of[level.unit]:
                out.line(f"{bound.variable} = {bound.source}")
        low, high = self._range_source(level, 0)
        if choice.count == 1 and not conditions:
            out.line(f"i = {low or 0}")
            out.line(f"if i >= {high or f'len({name})'}: {self.skip}")
            out.line(f"{row} = {name}[i]")
            return False
        candidates = self._candidates(level, 0)
        if last:
            candidates = f"reversed({candidates})" if low or high else f"reversed({name})"
        test = " and ".join(conditions) or "True"
        if choice.count == 1:
            out.line(f"for {row} in {candidates}:")
            out.line(f"    if {test}: break")
            out.line(f"else: {self.skip}")
            return False
        chosen = f"chosen{level.unit}"
        out.line(f"{chosen} = []")
        out.line(f"for {row} in {candidates}:")
        out.line(f"    if {test}:")
        out.line(f"        {chosen}.append({row})")
        out.line(f"        if len({chosen}) == {choice.count}: break")
        self._enter_loop(f"for {row} in {chosen}:")
        return True

    def _choose_nearest(self, level: Level, row: str) -> None:
        """The last candidate without further conditions: one step back, then see whether it is near enough."""
        name = level.names[0]
        _, high = self._range_source(level, 0)
        if high:
            self.out.line(f"i = {high}")
            self.out.line(f"if not i: {self.skip}")
            self.out.line(f"{row} = {name}[i - 1]")
        else:
            self.out.line(f"{row} = {name}[-1]")
        for gap in self.branch.gaps:
            if gap.earlier == level.unit:
                self.out.line(f"if {self.end_ts(gap.later)} - {row}[0] > {gap.length}: {self.skip}")

    # ---------------------------------------------------------------------------------------------------- repetitions

    def _element(self, unit: int, leaf: int) -> str:
        return f"x{unit}_{leaf}"

    def _repetition(self, step: int, level: Level) -> None:
        unit = level.unit
        made = self.units[unit]
        out = self.out
        forced = unit == self.trigger
        roles = made.roles
        conditions = self.conditions.get(step, [])
        lists = []
        for leaf_number, leaf in enumerate(made.leaves):
            element = self._element(unit, leaf_number)
            with self.reading({(leaf.role, ""): element}):
                tests = self._class_conditions(unit, leaf.role, level.used_class[leaf_number])
                tests += [
                    self.scope.truth(condition)
                    for condition in conditions
                    if self._about_element(condition, roles, leaf.role)
                    and condition != level.used_condition[leaf_number]
                ]
            *_, extra = self._bounds_of(level, leaf_number)
            tests += extra + self._distinct(unit, leaf_number, element)
            candidates = self._candidates(level, leaf_number)
            variable = f"c{unit}_{leaf_number}"
            lists.append(variable)
            if made.limit is not None and step == len(self.levels):
                out.line(f"if {self.over_limit_found(unit)}: {self.skip}")
            if tests:
                out.line(f"{variable} = [{element} for {element} in {candidates} if {' and '.join(tests)}]")
            else:
                out.line(f"{variable} = {candidates}")
            if forced and leaf_number == self.trigger_leaf:
                with self.reading({(leaf.role, ""): "e"}):
                    self._forced_checks(level, leaf_number, conditions, roles)
            else:
                out.line(f"if not {variable}: {self.skip}")
        source = self._subsets(unit, made, lists, forced, conditions, roles)
        names = [f"k{unit}_{leaf_number}" for leaf_number in range(len(made.leaves))]
        self.complete.add(unit)
        tests = self._finished_checks(unit, conditions, roles)
        target = names[0] if len(names) == 1 else ", ".join(names)
        if self._finishes(step) and not tests:
            self.collect = (f"for {target} in {source}", source, True)
            self.counted = (lists[0], forced) if source.startswith("subsets") else None
            self.emit(self.out, self)
            return
        self._enter_loop(f"for {target} in {source}:")
        for test in tests:
            self.skip_unless(test)
        for spread in self.branch.spreads:
            if self._spread_step(spread) == step:
                self.skip_unless(self.spread_condition(spread))
        self._after_step(step)
        self._levels(step + 1)
        self._leave_loop()

    def _about_element(self, condition: Expression, roles: frozenset[str], role: str) -> bool:
        """Speaks of each element of this one leaf, and of no element of another repetition finished before."""
        return (
            elementwise(condition, roles)
            and roles_of(condition) & roles == {role}
            and not self._elements_elsewhere(condition, roles)
        )

    counted: tuple[str, bool] | None = None
    """Set when the number of subsets follows from the number of candidates: (candidates, one of them is forced)."""

    def limited(self) -> list[int]:
        return [number for number, unit in enumerate(self.units) if unit.limit is not None]

    def limit_waits(self, unit: int) -> bool:
        """Candidates may still come after the match: nothing in it has to follow the repetition."""
        return self.branch.is_last(unit)

    def limit_deadline(self, unit: int) -> str:
        """When no more candidates of a limited repetition can come: a timestamp, or a number under a count window."""
        others = [number for number in range(len(self.units)) if number != unit]
        if self.branch.count is not None:
            return f"{self._least_ts(others, -1)} + {self.branch.count - 1}"
        ends = [
            f"{self.first_ts(gap.earlier, gap.from_start)} + {gap.length}"
            for gap in self.branch.gaps
            if gap.later == unit
        ]
        ends.append(f"{self._least_ts(others)} + {self.branch.horizon}")
        return f"min({', '.join(ends)})" if len(ends) > 1 else ends[0]

    def over_limit_found(self, unit: int) -> str:
        """Source of a condition: beside the other parts, the repetition has more candidates than it may."""
        made = self.units[unit]
        leaf = made.leaves[0]
        own = self.own_conditions(leaf.role, self.branch.where)
        horizon = self.branch.horizon * (2 if self.limit_waits(unit) else 1)
        rows = self.buffers.buffer(leaf.type, own, None, horizon)
        composite = self.buffers.columns(leaf.type).composite
        start = "start_of(x)" if composite else "x[:3]"
        span = (self.branch.count or 1) - 1
        tests = []
        lows = []
        for other in range(len(self.units)):
            if other == unit:
                continue
            if (other, unit) in self.branch.before:
                tests.append(f"{start} > {self.end_key(other)}")
            if (unit, other) in self.branch.before:
                tests.append(f"x[:3] < {self.start_key(other)}")
            if self.branch.count is not None:
                tests.append(f"x[-1] - {self.row_of(other, 'first')}[-1] <= {span}")
                tests.append(f"{self.row_of(other, 'last')}[-1] - x[-1] <= {span}")
            mates = [
                f"k{other}_{n}" if self.units[other].many else f"r{other}"
                for n, mate in enumerate(self.units[other].leaves)
                if mate.type == leaf.type
            ]
            if mates:
                tests.append(f"not overlaps((x,), ({', '.join(mates)},))")
        for gap in self.branch.gaps:
            if gap.earlier == unit:
                first = f"{start}[0]" if gap.from_start else "x[0]"
                tests.append(f"{self.end_ts(gap.later)} - {first} <= {gap.length}")
                lows.append(f"{self.end_ts(gap.later)} - {gap.length}")
            elif gap.later == unit:
                tests.append(f"x[0] - {self.first_ts(gap.earlier, gap.from_start)} <= {gap.length}")
        tests += [
            f"x[0] - {start}[0] <= {length}"
            for number, length, from_start in self.branch.own_spans
            if number == unit and from_start and composite
        ]
        self.stand_in[unit] = "x"
        tests += [
            self.spread_condition(spread)
            for spread in self.branch.spreads
            if any(unit in part for part in spread.parts)
        ]
        del self.stand_in[unit]
        if lows:
            rows = f"{rows}[bisect_left({rows}, ({lows[0]},)):]"
        return f"exceeds([1 for x in {rows} if {' and '.join(tests) or 'True'}], {made.limit}, {self.over_limit})"

    def _forced_checks(self, level: Level, leaf: int, conditions: list[Expression], roles: frozenset[str]) -> None:
        """The triggering element itself must satisfy what its fellows do."""
        role = self.units[level.unit].leaves[leaf].role
        for condition in conditions:
            if self._about_element(condition, roles, role):
                self.skip_unless(self.scope.truth(condition))
        for number, members in enumerate(self.classes):
            for attribute in members.get(level.unit, ()):
                if attribute.role == role and self.class_step.get(number, 1 << 30) < self.step_of[level.unit]:
                    value = self.scope.value(attribute)
                    if value.source != self.class_value[number].source:
                        self.skip_unless(self.scope.compare("=", value, self.class_value[number]))
        if self.branch.count is not None:
            span = self.branch.count - 1
            for other, step in self.element_step.items():
                if other != level.unit and step < self.step_of[level.unit]:
                    self.skip_unless(f"-{span} <= {self.row_of(other, 'last')}[-1] - e[-1] <= {span}")

    def _subsets(
        self,
        unit: int,
        made: Unit,
        lists: list[str],
        forced: bool,
        conditions: list[Expression],
        roles: frozenset[str],
    ) -> str:
        linking = [c for c in conditions if needs_previous(c, roles) and not needs_whole(c, roles)]
        if not made.is_group:
            element = self._element(unit, 0)
            role = made.leaves[0].role
            with self.reading({(role, ""): element, (role, "i-1"): "p"}):
                tests = [self.scope.truth(condition) for condition in linking]
            if self.is_composite(unit):
                tests.insert(0, f"p[:3] < start_of({element})")
            if tests:
                follows = f"lambda p, {element}: {' and '.join(tests)}"
                return f"chains({lists[0]}, {'e' if forced else None}, {follows})"
            return f"subsets_with({lists[0]}, e)" if forced else f"subsets({lists[0]})"
        here = {(leaf.role, ""): self._element(unit, number) for number, leaf in enumerate(made.leaves)}
        before = {(leaf.role, "i-1"): f"p[{number}]" for number, leaf in enumerate(made.leaves)}
        after = {(leaf.role, ""): f"q[{number}]" for number, leaf in enumerate(made.leaves)}
        together = [c for c in conditions if elementwise(c, roles) and len(roles_of(c) & roles) > 1]
        with self.reading(here):
            tests = [self.scope.truth(condition) for condition in together]
            tests += self._group_equalities(unit)
        with self.reading(before | after):
            links = [self.scope.truth(condition) for condition in linking]
        within = f"lambda {', '.join(here.values())}: {' and '.join(tests) or 'True'}"
        follows = f"lambda p, q: {' and '.join(links) or 'True'}"
        inside = f"[{', '.join(lists)}]"
        leaf, event = (self.trigger_leaf, "e") if forced else (0, None)
        return f"group_chains({inside}, {leaf}, {event}, {within}, {follows})"

    def _group_equalities(self, unit: int) -> list[str]:
        """Classes that only this group's own leaves have reached so far are equal within each group."""
        tests = []
        for number, members in enumerate(self.classes):
            mine = members.get(unit, [])
            if self.class_step.get(number, 1 << 30) >= self.step_of[unit] and len(mine) > 1:
                first = self.scope.value(mine[0])
                tests += [self.scope.compare("=", self.scope.value(other), first) for other in mine[1:]]
        return tests

    def _finished_checks(self, unit: int, conditions: list[Expression], roles: frozenset[str]) -> list[str]:
        """Conditions on the whole repetition: folds, first and last, its own extent."""
        tests = []
        for condition in conditions:
            if needs_whole(condition, roles) or self._elements_elsewhere(condition, roles):
                tests.append(self.over_elements(condition))
        for number, length, from_start in self.branch.own_spans:
            if number == unit and not self._own_span_implied(unit, length, from_start):
                tests.append(f"{self.end_ts(unit)} - {self.first_ts(unit, from_start)} <= {length}")
        if self.branch.count is not None:
            tests.append(
                f"{self.row_of(unit, 'last')}[-1] - {self.row_of(unit, 'first')}[-1] <= {self.branch.count - 1}"
            )
        return tests

    def _elements_elsewhere(self, condition: Expression, roles: frozenset[str]) -> bool:
        """Names elements of a repetition that was finished at an earlier step."""
        for part in walk(condition):
            if isinstance(part, Attribute) and part.role not in roles and self._names_element(part):
                return True
        return False

    def _names_element(self, part: Expression) -> bool:
        return (
            isinstance(part, Attribute)
            and part.index in ("", "i-1")
            and part.role in self._positive_roles()
            and self.units[self.branch.unit_of(part.role)].many
        )

    def over_elements(self, condition: Expression) -> str:
        """The condition for every element (or neighbouring pair) of the finished repetition whose elements it names."""
        named = {
            (part.role, part.index)
            for part in walk(condition)
            if isinstance(part, Attribute) and self._names_element(part)
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

    def _own_span_implied(self, unit: int, length: int, from_start: bool) -> bool:
        if any(leaf.type for leaf in self.units[unit].leaves if self.buffers.columns(leaf.type).composite):
            return False
        for gap in self.branch.gaps:
            if gap.from_start != from_start or gap.length > length:
                continue
            known = {u for u, step in self.step_of.items() if step < self.step_of[unit]}
            if gap.earlier == unit and gap.later in known and (unit, gap.later) in self.branch.before:
                return True
            if gap.later == unit and gap.earlier in known and (gap.earlier, unit) in self.branch.before:
                return True
        return False

    # -------------------------------------------------------------------------------------------------------- spreads

    def _spread_step(self, spread: Spread) -> int:
        return max(self.step_of[unit] for part in spread.parts for unit in part)

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

    # ------------------------------------------------------------------------------------------------------ negations

    def _negation_step(self, forbidden: Forbidden) -> int:
        needed = {*forbidden.left, *forbidden.right}
        if forbidden.place in ("before", "after", "around"):
            needed |= set(forbidden.owner)
        for condition in forbidden.where:
            needed |= {self.branch.unit_of(r) for r in roles_of(condition) if r in self._positive_roles()}
        types = {self.types[role] for role in forbidden.roles}
        needed |= {n for n, unit in enumerate(self.units) if any(leaf.type in types for leaf in unit.leaves)}
        step = max((self.step_of[unit] for unit in needed), default=0)
        for level_step, level in enumerate(self.levels, start=1):
            if isinstance(level, Measure) and any(level.name in parameters_of(c) for c in forbidden.where):
                step = max(step, level_step)
        return step

    def _negations(self, step: int) -> None:
        for forbidden in self.branch.forbidden:
            if not forbidden.waits and id(forbidden) not in self.hoisted and self._negation_step(forbidden) == step:
                self.out.line(f"if {self.negation_found(forbidden)}: {self.skip}")

    def _forbidden_buffer(self, forbidden: Forbidden, at: int) -> tuple[str, list[Expression]]:
        """Source of the list of possibly negating events, and the conjuncts it does not settle."""
        horizon = self.branch.horizon + (forbidden.window if forbidden.waits else 0)
        if forbidden.leaf is None:
            return self.buffers.derived(forbidden, horizon), list(forbidden.where)
        role = forbidden.leaf.role
        own = self.own_conditions(role, forbidden.where)
        rest = [
            condition
            for condition in forbidden.where
            if not (roles_of(condition) == {role} and self._is_own(condition))
        ]
        found = self._forbidden_key(role, rest, at)
        if found is None:
            return self.buffers.buffer(forbidden.leaf.type, own, None, horizon), rest
        key, lookup, condition = found
        buffer = self.buffers.buffer(forbidden.leaf.type, own, key, horizon)
        return f"{buffer}.get({lookup}, ())", [c for c in rest if c != condition]

    def _forbidden_key(self, role: str, where: list[Expression], at: int) -> tuple[Piece, str, Expression] | None:
        for condition in where:
            match condition:
                case Binary("=", Attribute(index="") as left, Attribute(index="") as right):
                    for mine, other in ((left, right), (right, left)):
                        number = self.class_of.get(other)
                        if mine.role == role and number is not None and self.class_step.get(number, at + 1) <= at:
                            with self.reading({(role, ""): "e"}):
                                return self.scope.value(mine), self.class_value[number].source, condition
        bound = {unit for unit, step in self.step_of.items() if step <= at and not self.units[unit].many}
        return self._equality_key(role, where, bound, at)

    def _forbidden_range(self, forbidden: Forbidden, rows: str) -> tuple[str, str]:
        """Sources of the lower and upper index of a negation's (or aggregate's) range; empty where it is open."""
        if forbidden.numbered and forbidden.place in ("before", "after", "around"):
            return "", ""
        window = forbidden.window
        low = high = ""
        if forbidden.place in ("between", "after"):
            low = f"bisect_left({rows}, after({self._latest_end(forbidden.left)}))"
        elif forbidden.place in ("before", "around"):
            low = f"bisect_left({rows}, ({self._greatest_ts(forbidden.owner)} - {window},))"
        elif forbidden.place == "within":
            low = f"bisect_left({rows}, ({self.end_ts(forbidden.right[0])} - {window},))"
        else:
            ends = f"{self.end_key(forbidden.left[0])}, {self.end_key(forbidden.right[0])}"
            low = f"bisect_left({rows}, after(min({ends})))"
            high = f"bisect_left({rows}, max({ends}))"
        if forbidden.place in ("between", "before"):
            high = f"bisect_left({rows}, {self._earliest_start(forbidden.right)})"
        elif forbidden.place in ("after", "around"):
            high = f"bisect_left({rows}, ({self._least_ts(forbidden.owner)} + {window + 1},))"
        elif forbidden.place == "within":
            high = f"bisect_left({rows}, {self.end_key(forbidden.right[0])})"
        return low, high

    def _latest_end(self, units: Sequence[int]) -> str:
        last = [u for u in units if not any((u, w) in self.branch.before for w in units)]
        keys = [self.end_key(unit) for unit in last]
        return keys[0] if len(keys) == 1 else f"max({', '.join(keys)})"

    def _earliest_start(self, units: Sequence[int]) -> str:
        first = [u for u in units if not any((w, u) in self.branch.before for w in units)]
        keys = [self.start_key(unit) for unit in first]
        return keys[0] if len(keys) == 1 else f"min({', '.join(keys)})"

    def _greatest_ts(self, units: Sequence[int], column: int = 0) -> str:
        last = [u for u in units if not any((u, w) in self.branch.before for w in units)]
        stamps = [f"{self.row_of(unit, 'last')}[{column}]" for unit in last]
        return stamps[0] if len(stamps) == 1 else f"max({', '.join(stamps)})"

    def _least_ts(self, units: Sequence[int], column: int = 0) -> str:
        first = [u for u in units if not any((w, u) in self.branch.before for w in units)]
        if column:
            stamps = [f"{self.row_of(unit, 'first')}[{column}]" for unit in first]
        else:
            stamps = [self.first_ts(unit, from_start=True) for unit in first]
        return stamps[0] if len(stamps) == 1 else f"min({', '.join(stamps)})"

    def deadline(self, forbidden: Forbidden) -> str:
        """When a negation that waits is decided: a timestamp, or a number under a count window."""
        column = -1 if forbidden.numbered else 0
        return f"{self._least_ts(forbidden.owner, column)} + {forbidden.window}"

    def negation_found(self, forbidden: Forbidden) -> str:
        """Source of a condition: something in the range forbids the match."""
        rows, rest = self._forbidden_buffer(forbidden, self._negation_step(forbidden))
        tests = self._forbidden_tests(forbidden, rest)
        name = f"N{self.branch.forbidden.index(forbidden)}"
        low, high = self._forbidden_range(forbidden, name)
        if forbidden.numbered and forbidden.place in ("before", "after", "around"):
            tests += self._forbidden_numbers(forbidden)
        inside = f"{name}[{low}:{high}]"
        if tests:
            found = f"any({' and '.join(tests)} for x in {inside})"
        elif low or high:
            found = f"{low or 0} < {high or f'len({name})'}"
        else:
            found = f"bool({name})"
        return f"({name} := {rows}) and {found}"

    def _forbidden_numbers(self, forbidden: Forbidden) -> list[str]:
        """The range under a count window, in event numbers."""
        tests = []
        if forbidden.place in ("before", "around"):
            tests.append(f"x[-1] >= {self._greatest_ts(forbidden.owner, -1)} - {forbidden.window}")
        if forbidden.place in ("after", "around"):
            tests.append(f"x[-1] <= {self._least_ts(forbidden.owner, -1)} + {forbidden.window}")
        if forbidden.place == "before":
            tests.append(f"x[:3] < {self._earliest_start(forbidden.right)}")
        if forbidden.place == "after":
            tests.append(f"x[:3] > {self._latest_end(forbidden.left)}")
        return tests

    def _forbidden_tests(self, forbidden: Forbidden, rest: list[Expression]) -> list[str]:
        names: dict[tuple[str, str], str] = {}
        tests: list[str] = []
        sub = forbidden.leaf is None
        for number, role in enumerate(forbidden.roles):
            names[role, ""] = f"x[{4 + number}]" if sub else "x"
        with self.reading(names):
            for condition in rest:
                test = self.over_elements(condition)
                if sub:
                    mine = [names[role, ""] for role in sorted(roles_of(condition)) if (role, "") in names]
                    test = f"({' or '.join(f'{row} is None' for row in mine)} or {test})"
                tests.append(test)
        types = {self.types[role] for role in forbidden.roles}
        parts = []
        for number, unit in enumerate(self.units):
            for leaf_number, leaf in enumerate(unit.leaves):
                if leaf.type in types:
                    parts.append(f"k{number}_{leaf_number}" if unit.many else f"r{number}")
        if parts:
            width = len(forbidden.roles)
            rows = f"[row for row in x[4:{4 + width}] if row is not None]" if sub else "(x,)"
            tests.append(f"not overlaps({rows}, ({', '.join(parts)},))")
        return tests

    def _hoisted_negations(self, level: Level, known: Sequence[int], plain: dict[int, bool]) -> Iterator[str]:
        """A negation right after this unit that depends on nothing else of it: candidates start after the last one."""
        if self.in_text_order or not self.mode.ordered or self.units[level.unit].many:
            return
        for forbidden in self.branch.forbidden:
            if forbidden.place != "between" or forbidden.left != (level.unit,) or forbidden.leaf is None:
                continue
            if any(unit not in known for unit in forbidden.right):
                continue
            leaf_types = {leaf.type for unit in self.units for leaf in unit.leaves}
            if (
                forbidden.leaf.type in leaf_types
                or not all(plain.values())
                or self.buffers.columns(forbidden.leaf.type).composite
            ):
                continue
            rows, rest = self._forbidden_buffer(forbidden, self.step_of[level.unit] - 1)
            if rest:
                continue
            self.hoisted.add(id(forbidden))
            name = f"N{self.branch.forbidden.index(forbidden)}"
            newest = self.mode.newest and forbidden.right == (self.trigger,)
            last = f"len({name})" if newest else f"bisect_left({name}, {self._earliest_start(forbidden.right)})"
            yield (f"bisect_right({level.names[0]}, {name}[i - 1]) if ({name} := {rows}) and (i := {last}) else 0")

    # ----------------------------------------------------------------------------------------------------- aggregates

    def _measure(self, step: int, measure: Measure) -> None:
        role = measure.leaf.role
        own = self.own_conditions(role, measure.where)
        rest = [c for c in measure.where if not (roles_of(c) == {role} and self._is_own(c))]
        bound = {unit for unit, at in self.step_of.items() if at < step}
        found = self._equality_key(role, rest, bound, step - 1)
        name = f"M_{measure.name}"
        if found is None:
            rows = self.buffers.buffer(measure.leaf.type, own, None, self.branch.horizon)
        else:
            key, lookup, condition = found
            rest = [c for c in rest if c != condition]
            rows = self.buffers.buffer(measure.leaf.type, own, key, self.branch.horizon) + f".get({lookup}, ())"
        range_ = Forbidden(measure.leaf, (), measure.place, measure.left, measure.right, (), measure.window)
        low, high = self._forbidden_range(range_, name)
        self.out.line(f"{name} = {rows}")
        with self.reading({(role, ""): "x"}):
            tests = [self.scope.truth(condition) for condition in rest]
            read = None if measure.attribute is None else self.columns(role).read("x", measure.attribute)
        if read is not None and read.nullable:
            tests.append(f"{read.source} is not None")
        variable = f"p_{measure.name}"
        inside = f"{name}[{low}:{high}]"
        kept = f" if {' and '.join(tests)}" if tests else ""
        if measure.function == "count":
            source = f"len([1 for x in {inside}{kept}])" if tests else f"max(0, {high} - {low})"
        else:
            assert read is not None
            source = f"fold_{measure.function}([{read.source} for x in {inside}{kept}])"
        self.out.line(f"{variable} = {source}")
