"""From expressions to Python source.

Source text is built only from parsed expressions: attribute names become column numbers, roles become variable names,
constants become literals that ``repr`` wrote or entries of a pool. Nothing of the user's text reaches ``compile``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headwater.protocol.errors import RuleError
from headwater.protocol.expressions import (
    Attribute,
    Binary,
    Call,
    Constant,
    Expression,
    Fold,
    Items,
    Parameter,
    Remote,
    Same,
    Unary,
    walk,
)

_ARITHMETIC = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide", "%": "modulo"}
_COMPARISON = {
    "=": ("==", "equal"),
    "!=": ("!=", "unequal"),
    "<": ("<", "less"),
    "<=": ("<=", "less_equal"),
    ">": (">", "greater"),
    ">=": (">=", "greater_equal"),
}
_HEADER_COLUMNS = {"ts": 0, "node": 1, "seq": 2}


@dataclass(frozen=True, slots=True)
class Piece:
    """Source of a value. ``nullable``: it may be None. ``simple``: cheap enough to be evaluated twice."""

    source: str
    nullable: bool = False
    simple: bool = False


@dataclass(frozen=True, slots=True)
class RowLayout:
    """How generated code reads the attributes of one event type (primitive, or united over the rules that emit it)."""

    name: str
    position: Mapping[str, int]
    optional: frozenset[str]
    composite: bool

    def read(self, variable: str, attribute: str) -> Piece:
        if attribute in _HEADER_COLUMNS:
            return Piece(f"{variable}[{_HEADER_COLUMNS[attribute]}]", simple=True)
        if attribute == "type":
            return Piece(f"{variable}[3].{'type' if self.composite else 'name'}")
        column = self.position.get(attribute)
        if column is None:
            has = ", ".join(self.position) or "no attributes"
            raise RuleError(f"{self.name} has no attribute {attribute!r}; it has: {has}")
        return Piece(f"{variable}[{column}]", attribute in self.optional, simple=True)


@dataclass(slots=True)
class Pool:
    """Objects that generated code refers to by name: functions, tables, composite specs, odd constants."""

    functions: Any
    remote: Mapping[str, Any]
    objects: dict[str, Any] = field(default_factory=dict)
    asked: dict[str, str] = field(default_factory=dict)
    """Tables whose elements may come later, with the name of each in generated code: every engine has its own."""
    _names: dict[tuple[str, int], str] = field(default_factory=dict)

    def name(self, prefix: str, value: Any) -> str:
        token = (prefix, id(value))
        if token not in self._names:
            self._names[token] = f"{prefix}{len(self._names)}"
            self.objects[self._names[token]] = value
        return self._names[token]

    def asks(self, expression: Expression) -> bool:
        """Whether it looks something up that may not be at hand."""
        return any(isinstance(part, Remote) and self.is_asked(part.table) for part in walk(expression))

    def accepts(self, expression: Expression) -> bool:
        """Whether it looks something up with which every comparison is true if it cannot be had."""
        return any(
            isinstance(part, Remote) and getattr(self.remote.get(part.table), "accepts", False)
            for part in walk(expression)
        )

    def is_asked(self, table: str) -> bool:
        return getattr(self.remote.get(table), "asked", False)

    def table_name(self, table: str) -> str:
        """What generated code calls a remote table."""
        if self.is_asked(table):
            return self.asked.setdefault(table, f"A{len(self.asked)}")
        return self.name("T", self.remote[table])


@dataclass(slots=True)
class CodeScope:
    """What the names of an expression mean at one place of the generated code."""

    pool: Pool
    attribute: Callable[[Attribute], Piece]
    fold: Callable[[Fold], Piece]
    latest_ts: Callable[[Attribute | Fold], str]
    parameters: Mapping[str, Piece] = field(default_factory=dict)
    sought: dict[Remote, Piece] = field(default_factory=dict)
    """Lookups whose values stand in variables."""

    def value(self, expression: Expression) -> Piece:
        match expression:
            case Constant(value):
                return _constant(value, self.pool)
            case Attribute():
                return self.attribute(expression)
            case Fold():
                return self.fold(expression)
            case Parameter(name):
                return self.parameters[name]
            case Unary("-", operand):
                inner = self._single(operand)
                return Piece(f"negate({inner.source})" if inner.nullable else f"(-{inner.source})", inner.nullable)
            case Binary(operator, left, right) if operator in _ARITHMETIC:
                return self._arithmetic(operator, self._single(left), right)
            case Call():
                return self._call(expression)
            case Remote():
                return self._remote(expression)
            case Items(items):
                return Piece("(" + "".join(self.value(item).source + ", " for item in items) + ")")
            case _:
                return Piece(self.truth(expression))

    def truth(self, expression: Expression) -> str:
        """Source of a condition: true or false, with a missing value counting as false."""
        match expression:
            case Binary("and" | "or" as operator, left, right):
                return f"({self.truth(left)} {operator} {self.truth(right)})"
            case Unary("not", operand):
                return f"(not {self.truth(operand)})"
            case Binary("in" | "not in" as operator, left, right):
                if self.pool.accepts(expression):
                    return f"member({operator == 'in'}, {self.value(left).source}, {self.value(right).source})"
                return self._membership(operator, self.value(left), right)
            case Binary(operator, left, right) if operator in _COMPARISON:
                return self.compare(operator, self._single(left), self._single(right))
            case Same():
                raise AssertionError("SAME is expanded before code is generated")
            case Unary(operator) | Binary(operator) if operator not in _ARITHMETIC:
                raise RuleError(f"{operator!r:.20} is not an operator; it may come from a newer version")
            case _:
                return self.value(expression).source

    def _arithmetic(self, operator: str, left: Piece, right_expression: Expression) -> Piece:
        right = self._single(right_expression)
        if operator in "/%":
            divisor_is_safe = isinstance(right_expression, Constant) and bool(right_expression.value)
            if not divisor_is_safe or operator == "/":  # dividing huge integers may overflow
                return Piece(f"{_ARITHMETIC[operator]}({left.source}, {right.source})", nullable=True)
        if left.nullable or right.nullable:
            return Piece(f"{_ARITHMETIC[operator]}({left.source}, {right.source})", nullable=True)
        return Piece(f"({left.source} {operator} {right.source})")

    def compare(self, operator: str, left: Piece, right: Piece) -> str:
        sign, helper = _COMPARISON[operator]
        guarded = [piece for piece in (left, right) if piece.nullable]
        if not guarded:
            return f"({left.source} {sign} {right.source})"
        if left.simple and right.simple:
            if operator == "=":
                guarded = guarded[:1]
            guards = " and ".join(f"{piece.source} is not None" for piece in guarded)
            return f"({guards} and {left.source} {sign} {right.source})"
        return f"{helper}({left.source}, {right.source})"

    def _membership(self, operator: str, item: Piece, collection: Expression) -> str:
        inside = self.value(collection)
        if isinstance(collection, Items):
            if not item.nullable:
                return f"({item.source} {operator} {inside.source})"
            if item.simple:
                return f"({item.source} is not None and {item.source} {operator} {inside.source})"
        helper = "contained" if operator == "in" else "not_contained"
        return f"{helper}({item.source}, {inside.source})"

    def _call(self, expression: Call) -> Piece:
        function = self.pool.functions.get(expression.function) if self.pool.functions is not None else None
        if function is None:
            raise RuleError(f"unknown function {expression.function!r}; register it before the engine is built")
        name = self.pool.name("F", function.call)
        arguments = [self.value(argument) for argument in expression.arguments]
        inner = ", ".join(argument.source for argument in arguments)
        if self.pool.accepts(expression):
            return Piece(f"call_accepting({name}, {function.accepts_missing}, {inner})", nullable=True)
        if function.accepts_missing or not any(argument.nullable for argument in arguments):
            return Piece(f"{name}({inner})", nullable=True)
        return Piece(f"call({name}, {inner})", nullable=True)

    def _single(self, expression: Expression) -> Piece:
        """One value: a collection that a table gives in its place, which is known only when it comes, is none."""
        piece = self.value(expression)
        if isinstance(expression, Remote) and self.pool.is_asked(expression.table):
            return Piece(f"single({piece.source})", nullable=True)
        return piece

    def _remote(self, expression: Remote) -> Piece:
        if expression in self.sought:
            return self.sought[expression]
        if self.pool.remote.get(expression.table) is None:
            tables = ", ".join(sorted(self.pool.remote)) or "none"
            raise RuleError(
                f"the rule looks things up in the remote table {expression.table!r}, which was not given "
                f"(given: {tables}); supply it, for example with --remote {expression.table}=FILE"
            )
        lookup = "lookup_accepting" if any(map(self.pool.accepts, expression.arguments)) else "lookup"
        return Piece(f"{lookup}({', '.join(self.lookup_arguments(expression))})", nullable=True)

    def lookup_arguments(self, expression: Remote) -> list[str]:
        """Sources of the table, the time of the latest event that the arguments name, and the arguments."""
        named = dict.fromkeys(
            self.latest_ts(part)
            for argument in expression.arguments
            for part in walk(argument)
            if isinstance(part, Attribute | Fold)
        )
        latest = next(iter(named)) if len(named) == 1 else f"max({', '.join(named)})"
        arguments = [self.value(argument).source for argument in expression.arguments]
        return [self.pool.table_name(expression.table), latest, *arguments]


def _constant(value: Any, pool: Pool) -> Piece:
    if value is None:
        return Piece("None", nullable=True, simple=True)
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return Piece(pool.name("K", value), simple=True)
    return Piece(f"({value!r})" if isinstance(value, int | float) and value < 0 else repr(value), simple=True)


class Writer:
    """Lines of generated source with their indentation."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def __str__(self) -> str:
        return "\n".join(self.lines) + "\n"
