"""From the output attributes of a rule to the spec of its composites, and the function that computes their values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from headwater.node.engine.codegen.code import CodeScope, Piece, Pool, RowLayout
from headwater.node.engine.runtime import NAMES
from headwater.protocol.analysis.lookups import lookups_of
from headwater.protocol.analysis.units import Choice, Logical
from headwater.protocol.composites import CompositeSpec
from headwater.protocol.errors import RuleError
from headwater.protocol.events import EventType
from headwater.protocol.expressions import (
    Attribute,
    Constant,
    Expression,
    Fold,
    Parameter,
    Remote,
    parameters_of,
    parts_of,
    roles_of,
    walk,
)
from headwater.protocol.pattern import Chain, Leaf, Negation, OutputAttribute, Part, Rule, Sequence


def composite_spec(
    rule: Rule, logical: Logical, layouts: Mapping[str, RowLayout], pool: Pool
) -> tuple[CompositeSpec, tuple[str, ...], tuple[Remote, ...]]:
    """What the rule's composites have in common, with the function that computes their attributes; the aggregates, and
    the lookups of what may not be at hand, that these need."""
    parameters = tuple(
        dict.fromkeys(
            part.name for output in rule.attributes for part in walk(output.value) if isinstance(part, Parameter)
        )
    )
    sought = tuple(dict.fromkeys(lookup for output in rule.attributes for lookup in outermost(output.value, pool)))
    bindings = _Bindings(rule.name, logical, layouts)
    scope = CodeScope(
        pool,
        bindings.attribute,
        bindings.fold,
        bindings.latest_ts,
        {name: Piece(f"p{number}", nullable=True) for number, name in enumerate(parameters)},
        {lookup: Piece(f"q{number}", nullable=True) for number, lookup in enumerate(sought)},
    )
    values = [_declared(output, scope) for output in rule.attributes]
    arguments = [*bindings.variables.values(), *(f"p{number}" for number in range(len(parameters)))]
    arguments += [f"q{number}" for number in range(len(sought))]
    source = _values_source(", ".join(arguments), values)
    space: dict[str, Any] = {**NAMES, **pool.objects}
    exec(compile(source, f"<headwater {rule.name}>", "exec"), space)
    spec = CompositeSpec(
        rule.name,
        rule.version,
        EventType(rule.emits, tuple((output.name, output.kind + "?") for output in rule.attributes)),
        logical.roles,
        logical.repeated,
        space["values"],
        bindings.are_plain,
        _latest(rule, logical.roles),
        tuple(map(bindings.place, rule.attributes)),
    )
    return spec, parameters, sought


def lookup_keys(
    rule: Rule, logical: Logical, layouts: Mapping[str, RowLayout], pool: Pool
) -> tuple[Callable[..., list[tuple[Any, ...]]], frozenset[str]]:
    """What gives, for the bindings of a match, table, time and key of the lookups that its own events name; and the
    tables in which something is looked up for other events as well."""
    bindings = _Bindings(rule.name, logical, layouts)
    scope = CodeScope(pool, bindings.attribute, bindings.fold, bindings.latest_ts)
    chosen = any(
        isinstance(step, Choice) and step.policy != "each" for branch in logical.branches for step in branch.steps
    )
    sources: dict[str, None] = {}
    others: set[str] = set()
    for lookup in dict.fromkeys(lookups_of(rule)):
        roles = roles_of(lookup)
        if not roles or not roles <= set(logical.roles) or not bindings.names_one(lookup) or parameters_of(lookup):
            others.add(lookup.table)
            continue
        if chosen:
            others.add(lookup.table)
        _, *arguments = scope.lookup_arguments(lookup)
        bound = " and ".join(f"{bindings.variables[role]} is not None" for role in sorted(roles))
        sources[f"if {bound}: found.append(({lookup.table!r}, {', '.join(arguments)}))"] = None
    body = "".join(f"    {source}\n" for source in sources)
    names = ", ".join([*bindings.variables.values(), "*_"])
    source = f"def keys({names}):\n    found = []\n{body}    return found\n"
    space: dict[str, Any] = {**NAMES, **pool.objects}
    exec(compile(source, f"<headwater {rule.name}>", "exec"), space)
    return space["keys"], frozenset(others)


def outermost(expression: Expression, pool: Pool) -> Iterator[Remote]:
    """The lookups of what may not be at hand that stand in no other lookup."""
    if isinstance(expression, Remote) and pool.is_asked(expression.table):
        yield expression
        return
    for inner in parts_of(expression):
        yield from outermost(inner, pool)


class _Bindings:
    """The generated code that reads a composite's bindings: one variable for each role, a tuple of rows for a repeated
    one, None for a role of a branch that did not match."""

    def __init__(self, rule: str, logical: Logical, layouts: Mapping[str, RowLayout]) -> None:
        units = [branch.units for branch in logical.branches]
        self.variables = {role: f"r{position}" for position, role in enumerate(logical.roles)}
        self._rule = rule
        self._roles = logical.roles
        self._layouts = layouts
        self._types = {leaf.role: leaf.type for of_branch in units for unit in of_branch for leaf in unit.leaves}
        self._always = set.intersection(*({role for unit in of_branch for role in unit.roles} for of_branch in units))
        self._repeated = dict(zip(logical.roles, logical.repeated, strict=True))

    @property
    def are_plain(self) -> bool:
        """Whether every role is bound to one event in every match."""
        return not any(self._repeated.values()) and self._always == set(self._roles)

    def names_one(self, lookup: Remote) -> bool:
        """Whether its arguments follow from single events of a match, with nothing that is looked up."""
        parts = [part for argument in lookup.arguments for part in walk(argument)]
        return not any(
            isinstance(part, Remote | Fold)
            or (isinstance(part, Attribute) and self._repeated.get(part.role) and part.index not in ("first", "last"))
            for part in parts
        )

    def _layout(self, role: str) -> RowLayout:
        return self._layouts[self._types[role]]

    def attribute(self, reference: Attribute) -> Piece:
        role, name, variable = reference.role, reference.name, self.variables[reference.role]
        if self._repeated[role]:
            if reference.index not in ("first", "last"):
                raise RuleError(
                    f"rule {self._rule!r}: {role} is repeated; an output attribute names one of its events, "
                    f"as in {role}[last].{name}, or folds them, as in max({role}[].{name})"
                )
            variable += "[0]" if reference.index == "first" else "[-1]"
        return self._guarded(role, self._layout(role).read(variable, name))

    def fold(self, fold: Fold) -> Piece:
        rows = self.variables[fold.role]
        if fold.name is None:
            return self._guarded(fold.role, Piece(f"len({rows})"))
        read = self._layout(fold.role).read("f", fold.name)
        keep = f" if {read.source} is not None" if read.nullable else ""
        source = f"fold_{fold.function}([{read.source} for f in {rows}{keep}])"
        return self._guarded(fold.role, Piece(source, nullable=fold.function != "count"))

    def _guarded(self, role: str, piece: Piece) -> Piece:
        if role in self._always:
            return piece
        return Piece(f"(None if {self.variables[role]} is None else {piece.source})", nullable=True)

    def latest_ts(self, reference: Attribute | Fold) -> str:
        """Source of the time of the latest event that the expression reads."""
        variable = self.variables[reference.role]
        if self._repeated[reference.role]:
            variable += "[0]" if isinstance(reference, Attribute) and reference.index == "first" else "[-1]"
        return f"{variable}[0]"

    def place(self, output: OutputAttribute) -> tuple[int, int] | None:
        """Binding and column from which an output attribute is taken as it is; None if it is computed."""
        value = output.value
        if not isinstance(value, Attribute) or output.kind == "float":
            return None
        if self._repeated[value.role] or value.role not in self._always:
            return None
        column = self._layout(value.role).position.get(value.name)
        return None if column is None else (1 + self._roles.index(value.role), column)


def _values_source(arguments: str, values: list[str]) -> str:
    """The program of ``values``. What cannot be computed from the values of events (a text plus a number, an integer
    too large for a float) has no value, like a division by zero; then the attributes are computed one by one."""
    source = ""
    for number, value in enumerate(values):
        source += f"def value{number}({arguments}):\n    try:\n        return {value}\n"
        source += "    except (TypeError, ArithmeticError):\n        return None\n"
    alone = "".join(f"value{number}({arguments}), " for number in range(len(values)))
    source += f"def values({arguments}):\n    try:\n        return ({''.join(value + ', ' for value in values)})\n"
    return source + f"    except (TypeError, ArithmeticError):\n        return ({alone})\n"


def _latest(rule: Rule, roles: tuple[str, ...]) -> int | None:
    """Which binding is the latest event of every match, if it is plain from the pattern."""
    root = rule.pattern.root
    last: Part | None = root.anchor if isinstance(root, Chain) else None
    if isinstance(root, Sequence):
        last = [part for part in root.parts if not isinstance(part, Negation)][-1]
    return 1 + roles.index(last.role) if isinstance(last, Leaf) else None


def _declared(output: OutputAttribute, scope: CodeScope) -> str:
    """Source of an output attribute's value: of the declared kind, and a number only if it is finite."""
    source = scope.value(output.value).source
    if scope.pool.accepts(output.value):
        source = f"given({source})"
    if output.kind == "float":
        return f"as_declared({source})"
    return source if isinstance(output.value, Attribute | Constant) else f"finite({source})"
