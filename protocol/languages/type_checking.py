"""Turns syntax into expressions: resolves every name and checks the kind of every expression.

What a name means depends on the language: TESLA and SASE each extend Meaning with their own names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from headwater.protocol import expressions as e
from headwater.protocol.events import EventType, kind_of
from headwater.protocol.functions import Function, Functions
from headwater.protocol.languages import syntax as s
from headwater.protocol.languages.diagnostics import UNKNOWN_FUNCTION, UNKNOWN_TABLE, Problems
from headwater.protocol.languages.grammar_actions import DEPTH_MAX
from headwater.protocol.remote import TableShape
from headwater.protocol.text import closest, listed, plural, suggestion

RESERVED_KINDS: Mapping[str, str] = {"ts": "int", "seq": "int", "node": "string", "type": "string"}
NUMBERS = ("int", "float")


class TypedExpression(NamedTuple):
    """An expression and the kind of its value."""

    expression: e.Expression
    kind: str


class Placed(NamedTuple):
    """A conjunct and where it stands in the text."""

    expression: e.Expression
    at: int


class Types:
    """The event types a set of rules may name; an open set takes any name and any attribute."""

    def __init__(self, declared: Iterable[EventType], is_open: bool) -> None:
        self.declared = {event_type.name: event_type for event_type in declared}
        self.is_open = is_open
        self.vague: set[str] = set()
        """What rules with mistakes in them emit: the name is right, the attributes may be anything."""
        self.tables: Mapping[str, TableShape] | None = None
        """The remote tables there are; None: that is not known, and any name is accepted."""

    @property
    def names(self) -> list[str]:
        return [*self.declared, *sorted(self.vague)]

    def has(self, name: str) -> bool:
        return self.is_open or name in self.declared or name in self.vague

    def attribute_kind(self, type_name: str, attribute: str) -> str | None:
        """None where a type that is known has no such attribute."""
        if attribute in RESERVED_KINDS:
            return RESERVED_KINDS[attribute]
        event_type = self.declared.get(type_name)
        if event_type is None:
            return "any"
        return None if event_type.position(attribute) is None else event_type.kind(attribute)

    def attributes(self, type_name: str) -> tuple[str, ...]:
        event_type = self.declared.get(type_name)
        return event_type.attributes if event_type else ()


class Meaning:
    """Turns the expressions of one rule into ``protocol.expressions``, collecting what is wrong with them."""

    def __init__(self, problems: Problems, types: Types, functions: Functions) -> None:
        self.problems = problems
        self.types = types
        self.functions = functions

    # What each language says for itself

    def bare(self, node: s.Bare) -> TypedExpression:
        raise NotImplementedError

    def dollar(self, node: s.Dollar) -> TypedExpression:
        raise NotImplementedError

    def path(self, node: s.Path) -> TypedExpression:
        raise NotImplementedError

    def aggregate(self, node: s.FoldCall | s.AggregateCall) -> TypedExpression:
        raise NotImplementedError

    def same(self, node: s.SameKeys) -> Iterator[Placed]:
        raise NotImplementedError

    # What they share

    def conjuncts(self, node: s.Syntax) -> Iterator[Placed]:
        """The conditions that a boolean expression is made of, each for itself."""
        match node:
            case s.Inner():
                yield from self.conjuncts(node.inside)
            case s.All():
                for item in node.items:
                    yield from self.conjuncts(item)
            case s.ComparisonChain():
                for one, at in self._comparisons(node):
                    yield Placed(one, at)
            case s.Range(negated=False):
                for one, at in self._bounds(node):
                    yield Placed(one, at)
            case s.SameKeys():
                yield from self.same(node)
            case _:
                condition = self.boolean(node)
                for one in e.conjuncts(condition):
                    yield Placed(one, node.at)

    def boolean(self, node: s.Syntax) -> e.Expression:
        expression, kind = self.value(node)
        if kind not in ("bool", "any"):
            self.problems.add(node.at, f"a condition must be true or false, but this is {a(kind)}", "compare it")
        return expression

    def value(self, node: s.Syntax) -> TypedExpression:
        """An expression with the kind of its values."""
        match node:
            case s.Literal():
                return TypedExpression(e.Constant(node.value), kind_of(node.value))
            case s.Inner():
                return self.value(node.inside)
            case s.Bare():
                return self.bare(node)
            case s.Dollar():
                return self.dollar(node)
            case s.Path():
                return self.path(node)
            case s.Called() | s.Bracketed():
                return self._call(node)
            case s.RemoteLookup():
                return self._remote(node)
            case s.Negative():
                return self._negative(node)
            case s.Arithmetic():
                return self._arithmetic(node)
            case s.In():
                return self._in(node)
            case s.FoldCall() | s.AggregateCall():
                return self.aggregate(node)
            case _:
                return TypedExpression(self._condition(node), "bool")

    def _condition(self, node: s.Not | s.ComparisonChain | s.Range | s.All | s.Any | s.SameKeys) -> e.Expression:
        """What is true or false."""
        match node:
            case s.Not():
                return e.Unary("not", self.boolean(node.operand))
            case s.ComparisonChain():
                return joined("and", [one for one, _ in self._comparisons(node)])
            case s.Range():
                both = joined("and", [one for one, _ in self._bounds(node)])
                return e.Unary("not", both) if node.negated else both
            case s.All():
                if node.depth > DEPTH_MAX:
                    self.problems.add(
                        node.at,
                        f"this is nested more than {DEPTH_MAX} levels deep",
                        "write it flatter, or as several rules",
                    )
                    return e.Constant(True)
                return joined("and", [self.boolean(item) for item in node.items])
            case s.Any():
                return joined("or", [self.boolean(item) for item in node.items])
            case s.SameKeys():
                self.problems.add(
                    node.at,
                    "SAME stands only for itself",
                    "join it to other conditions with AND at the outermost level",
                )
                return e.Constant(True)

    def attribute(self, type_name: str, role: str, name: s.Word, index: e.Index = "") -> TypedExpression:
        """An attribute of an event of a known role, checked against its type."""
        kind = self.attribute_kind(type_name, name)
        return TypedExpression(e.Attribute(role, name.text, index), kind)

    def attribute_kind(self, type_name: str, name: s.Word) -> str:
        kind = self.types.attribute_kind(type_name, name.text)
        if kind is None:
            has = self.types.attributes(type_name)
            hint = f"{type_name} has: {listed(has)}" if has else f"{type_name} has no attributes of its own"
            near = closest(name.text, (*has, *RESERVED_KINDS))
            if near is not None:
                hint = f"did you mean {near!r}? {hint}"
            self.problems.add(name.at, f"{type_name} has no attribute {name.text!r}", hint)
            return "any"
        return kind

    def _call(self, node: s.Called | s.Bracketed) -> TypedExpression:
        name = node.base.text
        function = self.functions.get(name)
        arguments = [self.value(argument) for argument in node.arguments]
        if function is None:
            hint = suggestion(name, self.functions.names(), "functions")
            self.problems.add(node.at, f"unknown function {name!r}", hint, UNKNOWN_FUNCTION)
            return TypedExpression(e.Call(name, tuple(argument.expression for argument in arguments)), "any")
        self._check_arguments(node, function, arguments)
        call = e.Call(function.name, tuple(argument.expression for argument in arguments))
        return TypedExpression(call, function.result_kind(argument.kind for argument in arguments))

    def _check_arguments(
        self, node: s.Called | s.Bracketed, function: Function, arguments: list[TypedExpression]
    ) -> None:
        if not function.accepts_count(len(arguments)):
            self.problems.add(
                node.at,
                f"{function.shown} takes {function.expected_count()}, not {len(arguments)}",
                signature(function),
            )
            return
        for position, (argument, written) in enumerate(zip(arguments, node.arguments, strict=True)):
            wanted = function.parameter(position)
            if not fits(argument.kind, wanted):
                expected = "a number" if wanted == "float" else a(wanted)
                self.problems.add(
                    written.at,
                    f"{function.shown} needs {expected} here, but this is {a(argument.kind)}",
                    signature(function),
                )
        if function.name == "matches" and isinstance(arguments[1].expression, e.Constant):
            self._check_regular_expression(arguments[1].expression.value, node.arguments[1].at)

    def _check_regular_expression(self, form: object, at: int) -> None:
        try:
            re.compile(form if isinstance(form, str) else "")
        except (re.error, RecursionError, OverflowError) as mistake:
            self.problems.add(at, "this is not a regular expression", str(mistake))

    def _remote(self, node: s.RemoteLookup) -> TypedExpression:
        arguments = tuple(self.value(argument).expression for argument in node.arguments)
        if not arguments:
            self.problems.add(node.at, "REMOTE needs something to look up", "write REMOTE[a.id] or REMOTE.table[a.id]")
        table = node.table.text if node.table else "remote"
        if self.types.tables is not None:
            self._check_lookup(node, table, self.types.tables)
        return TypedExpression(e.Remote(table, arguments), "any")

    def _check_lookup(self, node: s.RemoteLookup, table: str, tables: Mapping[str, TableShape]) -> None:
        if table not in tables:
            cure = f"supply it, as in --remote {table}=FILE"
            hint = suggestion(table, sorted(tables), "the tables are") if tables else cure
            self.problems.add(node.at, f"there is no remote table {table!r}", hint, UNKNOWN_TABLE)
            return
        lengths, given = tables[table].key_lengths, len(node.arguments)
        if lengths and given and given not in lengths:
            message = f"a key of the table {table} has {plural(max(lengths), 'value')}, not {given}"
            self.problems.add(node.at, message, "look up as many as it has")

    def _shape(self, typed: TypedExpression) -> TableShape | None:
        """Of the table that an expression is a lookup in."""
        match typed.expression:
            case e.Remote(table) if self.types.tables is not None:
                return self.types.tables.get(table)
            case _:
                return None

    def _kind(self, typed: TypedExpression) -> str:
        """The kind of an expression; that of a lookup is only known for comparisons, as other texts cannot know it."""
        shape = self._shape(typed)
        return typed.kind if shape is None else shape.kind

    def _negative(self, node: s.Negative) -> TypedExpression:
        expression, kind = self.value(node.operand)
        if kind not in (*NUMBERS, "any"):
            self.problems.add(node.operand.at, f"'-' needs a number, but this is {a(kind)}")
            kind = "any"
        return TypedExpression(e.Unary("-", expression), kind)

    def _arithmetic(self, node: s.Arithmetic) -> TypedExpression:
        left, right = self.value(node.left), self.value(node.right)
        operator = node.operator.text
        kind = arithmetic_kind(operator, left.kind, right.kind)
        if kind is None:
            hint = "write concat(..) to join values as text" if operator == "+" else "arithmetic needs numbers"
            self.problems.add(
                node.operator.at, f"type mismatch: cannot compute {a(left.kind)} {operator} {a(right.kind)}", hint
            )
        return TypedExpression(e.Binary(operator, left.expression, right.expression), kind or "any")

    def _comparisons(self, node: s.ComparisonChain) -> Iterator[tuple[e.Expression, int]]:
        operands = [self.value(operand) for operand in node.operands]
        for position, operator in enumerate(node.operators):
            left, right = operands[position], operands[position + 1]
            self.check_comparable(operator, left, right)
            yield e.Binary(operator.text, left.expression, right.expression), node.operands[position].at

    def check_comparable(self, operator: s.Word, left: TypedExpression, right: TypedExpression) -> None:
        for side in (left, right):
            shape = self._shape(side)
            if shape is not None and shape.collection_at is not None:
                key = ", ".join(map(repr, shape.collection_at))
                message = f"{operator.text} compares single values, but {named(side)} is a collection for the key {key}"
                self.problems.add(operator.at, message, "write IN, or let the table have one value for a key")
                return
        kinds = self._kind(left), self._kind(right)
        if not comparable(*kinds):
            self.problems.add(
                operator.at,
                f"type mismatch: cannot compare {a(kinds[0])} with {a(kinds[1])}",
                f"{named(left)} is {a(kinds[0])}, {named(right)} is {a(kinds[1])}",
            )

    def _bounds(self, node: s.Range) -> list[tuple[e.Expression, int]]:
        operand, low, high = self.value(node.operand), self.value(node.low), self.value(node.high)
        self.check_comparable(node.operator, operand, low)
        self.check_comparable(node.operator, operand, high)
        return [
            (e.Binary(">=", operand.expression, low.expression), node.at),
            (e.Binary("<=", operand.expression, high.expression), node.at),
        ]

    def _in(self, node: s.In) -> TypedExpression:
        operand = self.value(node.operand)
        members: e.Expression
        if isinstance(node.members, s.RemoteLookup):
            looked_up = self._remote(node.members)
            members, kind = looked_up.expression, self._kind(looked_up)
            if not comparable(operand.kind, kind):
                message = f"type mismatch: {a(operand.kind)} is never in what {named(looked_up)} has"
                self.problems.add(node.members.at, message, f"its members are each {a(kind)}")
        else:
            items = [self.value(item) for item in node.members]
            for item, written in zip(items, node.members, strict=True):
                self.check_comparable(s.Word(written.at, "in"), operand, item)
            members = e.Items(tuple(item.expression for item in items))
        return TypedExpression(e.Binary("not in" if node.negated else "in", operand.expression, members), "bool")


def joined(operator: str, parts: list[e.Expression]) -> e.Expression:
    """``((a and b) and c)``."""
    whole = parts[0]
    for part in parts[1:]:
        whole = e.Binary(operator, whole, part)
    return whole


def a(kind: str) -> str:
    """``an int``, ``a string``."""
    return {"int": "an int", "any": "any value", "bool": "true or false"}.get(kind, f"a {kind}")


def named(typed: TypedExpression) -> str:
    """How a hint calls an operand."""
    match typed.expression:
        case e.Attribute(role=role, name=name):
            return f"{role}.{name}" if role else name
        case e.Constant(value):
            return repr(value) if isinstance(value, str) else str(value)
        case e.Parameter():
            return "the parameter"
        case e.Call():
            return "the result"
        case e.Remote(table=table):
            return "REMOTE[..]" if table == "remote" else f"REMOTE.{table}[..]"
        case _:
            return "the expression"


def signature(function: Function) -> str:
    """``substring(string, int, int)`` for a hint."""
    if function.parameters is None:
        return ""
    required = len(function.parameters) - function.optional
    kinds = [
        ("number" if kind == "float" else kind) + "?" * (position >= required)
        for position, kind in enumerate(function.parameters)
    ]
    return f"{function.shown}({', '.join(kinds)}{', ..' if function.variadic else ''})"


def fits(kind: str, wanted: str) -> bool:
    return kind == wanted or "any" in (kind, wanted) or (wanted == "float" and kind == "int")


def comparable(left: str, right: str) -> bool:
    return left == right or "any" in (left, right) or (left in NUMBERS and right in NUMBERS)


def arithmetic_kind(operator: str, left: str, right: str) -> str | None:
    """The kind of ``left operator right``, None where that has no meaning."""
    if operator == "+" and {left, right} <= {"string", "any"}:
        return "string" if left == right == "string" else "any"
    if not {left, right} <= {"int", "float", "any"}:
        return None
    if operator == "/":
        return "float"
    if "any" in (left, right):
        return "any"
    return "float" if "float" in (left, right) else "int"
