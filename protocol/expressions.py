"""Expressions over the events of a match: what predicates, attribute definitions and lookups are made of.

They are plain values. Text becomes expressions in ``protocol.languages``; the engine compiles them to code; nothing
evaluates the user's text.

**Values and their absence.** An optional attribute, an aggregate over no events, a remote lookup that finds nothing and
a division by zero have *no value* (``None``). Arithmetic and functions on no value give no value; every comparison
(``!=`` and ``not in`` too) with no value is false. ``and``, ``or`` and ``not`` are two-valued: ``not (a < b)`` is true
where ``a`` has no value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from headwater.protocol.events import Value

ARITHMETIC: Final = ("+", "-", "*", "/", "%")
COMPARISONS: Final = ("=", "!=", "<", "<=", ">", ">=", "in", "not in")
CONNECTIVES: Final = ("and", "or")
FOLDS: Final = ("count", "sum", "avg", "min", "max")

Index = Literal["", "i-1", "first", "last"]


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A number, string or boolean; durations are integers of microseconds.

    Constants are equal where they look alike: 1, 1.0 and TRUE are the same number, but functions tell them apart
    (``concat(a.v, 1)``), so whatever is shared by equal expressions must not take one for the other.
    """

    value: Value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constant) and repr(self.value) == repr(other.value)

    def __hash__(self) -> int:
        return hash(repr(self.value))


@dataclass(frozen=True, slots=True)
class Attribute:
    """``role.name``. ``name`` may also be ts, node, seq or type.

    For a repeated role (Kleene), ``index`` says which element: ``""`` each one in turn (written ``b.v``, ``b[].v`` or
    ``b[i].v``), ``"i-1"`` the one before it (the conjunct then holds for every element but the first), ``"first"`` or
    ``"last"``. The role ``""`` stands for each role in turn and appears only inside Same.
    """

    role: str
    name: str
    index: Index = ""


@dataclass(frozen=True, slots=True)
class Fold:
    """An aggregate over all elements of a repeated role: ``sum(b[].v)``; ``count(b[])`` has no attribute."""

    function: str
    role: str
    name: str | None


@dataclass(frozen=True, slots=True)
class Parameter:
    """The value of a TESLA aggregate (`protocol.pattern.Aggregate`) by its name, without the ``$``."""

    name: str


@dataclass(frozen=True, slots=True)
class Call:
    """A built-in or user-registered function; names are lower case for built-ins."""

    function: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Remote:
    """A lookup in a table outside the stream; the version valid at the ts of the latest event the arguments name."""

    table: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Unary:
    """``-x`` or ``not x``."""

    operator: str
    operand: Expression


@dataclass(frozen=True, slots=True)
class Binary:
    """Arithmetic, comparison (``in`` and ``not in`` with Items or a Remote on the right), ``and``, ``or``."""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Items:
    """The list on the right of ``in``."""

    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Same:
    """All events of the match agree on ``key``, negated ones and every element of repeated roles included.

    ``key`` is an expression over ``Attribute("", name)``. Only ever a whole conjunct, never part of an expression.
    """

    key: Expression


Expression = Constant | Attribute | Fold | Parameter | Call | Remote | Unary | Binary | Items | Same


def parts_of(expression: Expression) -> tuple[Expression, ...]:
    """What an expression is directly made of."""
    match expression:
        case Call(_, inside) | Remote(_, inside) | Items(inside):
            return inside
        case Binary(_, left, right):
            return left, right
        case Unary(_, inner) | Same(inner):
            return (inner,)
        case _:
            return ()


def walk(expression: Expression) -> Iterator[Expression]:
    """The expression and everything inside it, outermost first."""
    yield expression
    for part in parts_of(expression):
        yield from walk(part)


def rewritten(expression: Expression, change: Callable[[Attribute], Expression]) -> Expression:
    """The same expression with every attribute in it replaced."""
    match expression:
        case Attribute():
            return change(expression)
        case Call(function, arguments):
            return Call(function, tuple(rewritten(argument, change) for argument in arguments))
        case Remote(table, arguments):
            return Remote(table, tuple(rewritten(argument, change) for argument in arguments))
        case Unary(operator, operand):
            return Unary(operator, rewritten(operand, change))
        case Binary(operator, left, right):
            return Binary(operator, rewritten(left, change), rewritten(right, change))
        case Items(items):
            return Items(tuple(rewritten(item, change) for item in items))
        case _:
            return expression


@lru_cache(maxsize=4096)
def roles_of(expression: Expression) -> frozenset[str]:
    """The roles an expression names; for Same this is empty, since it concerns them all."""
    return frozenset(part.role for part in walk(expression) if isinstance(part, Attribute | Fold) and part.role)


@lru_cache(maxsize=4096)
def parameters_of(expression: Expression) -> frozenset[str]:
    return frozenset(part.name for part in walk(expression) if isinstance(part, Parameter))


@lru_cache(maxsize=4096)
def looks_up(expression: Expression) -> bool:
    """Whether it reads a remote table."""
    return any(isinstance(part, Remote) for part in walk(expression))


def conjuncts(expression: Expression) -> Iterator[Expression]:
    """Split at the outermost ``and``s: each conjunct applies on its own as soon as its roles are bound."""
    if isinstance(expression, Binary) and expression.operator == "and":
        yield from conjuncts(expression.left)
        yield from conjuncts(expression.right)
    else:
        yield expression
