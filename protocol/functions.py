"""Functions that expressions may call: the built-in ones, and those that users register from Python.

A caller of a function passes no ``None`` to it unless ``accepts_missing`` says so: a missing argument gives a missing
result. A function gives ``None`` where its argument lies outside its domain (the root of a negative number, a number
that is none); the built-in ones never raise.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from headwater.protocol.errors import ConfigError, RuleError
from headwater.protocol.events import KIND_ALIASES, Value
from headwater.protocol.text import plural

RESERVED_NAMES: Final = frozenset({"avg", "sum", "count", "min", "max", "same", "remote", "and", "or", "not", "in"})
"""Words of the languages that look like calls; no function can have such a name."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function as the languages see it.

    ``parameters`` are the kinds of its arguments (a "float" parameter takes an int too), or None where anything goes.
    The last ``optional`` of them may be left out; with ``variadic`` the last may be repeated. ``result`` is the kind of
    the value, or "argument" where it is that of the arguments (from ``same_from`` on).
    """

    name: str
    call: Callable[..., Any]
    parameters: tuple[str, ...] | None = None
    result: str = "any"
    optional: int = 0
    variadic: bool = False
    accepts_missing: bool = False
    same_from: int = 0

    @property
    def shown(self) -> str:
        """The name as rules write it, without the hash of its file."""
        return plain_name(self.name)

    def accepts_count(self, count: int) -> bool:
        if self.parameters is None:
            return True
        most = math.inf if self.variadic else len(self.parameters)
        return len(self.parameters) - self.optional <= count <= most

    def expected_count(self) -> str:
        """``2 arguments``, ``1 or 2 arguments``, ``at least 1 argument``."""
        if self.parameters is None:
            return "any number of arguments"
        most = len(self.parameters)
        if self.variadic:
            return f"at least {plural(most, 'argument')}"
        count = f"{most - self.optional} or {most}" if self.optional else str(most)
        return f"{count} argument{'s' * (most != 1)}"

    def parameter(self, position: int) -> str:
        """The kind that the argument at a position must have."""
        if not self.parameters:
            return "any"
        return self.parameters[min(position, len(self.parameters) - 1)]

    def result_kind(self, arguments: Iterable[str]) -> str:
        """The kind of the value, given the kinds of the arguments."""
        if self.result != "argument":
            return self.result
        kinds = set(list(arguments)[self.same_from :])
        if len(kinds) == 1:
            return kinds.pop()
        return "float" if kinds == {"int", "float"} else "any"


class Functions:
    """The functions a set of rules may call. Built-in names are found in any letter case, registered ones exactly."""

    def __init__(self) -> None:
        self._registered: dict[str, Function] = {}

    def register(
        self,
        name: str,
        call: Callable[..., Any],
        parameters: tuple[str, ...] | None = None,
        result: str = "any",
    ) -> None:
        """Make a Python function callable from rules; it must depend on nothing but its arguments."""
        kinds = None if parameters is None else tuple(_kind(name, kind) for kind in parameters)
        self.declare(name, Function(name, call, kinds, _kind(name, result)))

    def declare(self, name: str, function: Function) -> None:
        """Let rules call a function by this name, which may differ from its own."""
        if not name.isidentifier() or name.lower() in RESERVED_NAMES:
            raise RuleError(f"a function cannot be called {name!r}; choose a name of letters, digits and '_'")
        if name.lower() in BUILT_IN or name in self._registered:
            raise RuleError(f"there is already a function {name!r}; register yours under another name")
        self._registered[name] = function

    def get(self, name: str) -> Function | None:
        return self._registered.get(name) or BUILT_IN.get(name.lower()) or _from_file(name)

    def names(self) -> list[str]:
        return sorted([*BUILT_IN, *self._registered])


def _kind(function: str, kind: str) -> str:
    canonical_kind = KIND_ALIASES.get(kind.lower())
    if canonical_kind is None:
        raise RuleError(f"function {function!r} has the unknown kind {kind!r}; write int, float, string, bool or any")
    return canonical_kind


# ------------------------------------------------------------------------------------------- functions of a user's file


class FunctionsMissing(ConfigError):
    """Rules of a plan call functions of a file that this process has not loaded."""


def in_file(name: str, digest: str) -> str:
    """The name of a function in the rules of a network: with the hash of its file. So equal rules mean the same
    wherever they are evaluated, and a process that has another file does not evaluate them."""
    return f"{name}@{digest}"


def plain_name(name: str) -> str:
    """The name of a function as rules write it."""
    return name.partition("@")[0]


def file_digests(names: Iterable[str]) -> set[str]:
    """The hashes of the files that hold these functions."""
    return {digest for name in names if (digest := name.partition("@")[2])}


def offer(digest: str, functions: Mapping[str, Function]) -> None:
    """Have the functions of a file at hand in this process, by their plain names."""
    _OFFERED[digest] = {in_file(name, digest): function for name, function in functions.items()}


def is_offered(digest: str) -> bool:
    return digest in _OFFERED


_OFFERED: Final[dict[str, dict[str, Function]]] = {}
"""By the hash of their file, functions under their names in rules of networks. Equal hashes are equal functions: it
does not matter which network of a process has loaded them."""


def _from_file(name: str) -> Function | None:
    _, at, digest = name.partition("@")
    if not at:
        return None
    if digest not in _OFFERED:
        raise FunctionsMissing(
            f"a rule calls {plain_name(name)} of a file of functions with the hash {digest[:12]}, which is not loaded "
            f"here; start the node with --allow-functions, and have the same file on its machine"
        )
    return _OFFERED[digest].get(name)


def as_text(value: Value) -> str:
    """A value as the ``string`` function writes it."""
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def _careful(call: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with no value where Python would raise or the result is no finite number."""

    def careful(*arguments: Any) -> Any:
        try:
            value = call(*arguments)
        except (ValueError, TypeError, ArithmeticError, re.error, RecursionError):
            return None
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return careful


def _round(x: float, digits: int = 0) -> float:
    return float(round(x, digits))


def _log(x: float, base: float | None = None) -> float:
    return math.log(x) if base is None else math.log(x, base)


def _distance(x1: float, y1: float, x2: float, y2: float) -> float:
    return math.hypot(x2 - x1, y2 - y1)


def _substring(text: str, start: int, length: int | None = None) -> str:
    """Characters count from 1, as in SQL; what lies outside the text is left out."""
    first = max(0, start - 1)
    end = len(text) if length is None else max(first, start - 1 + length)
    return text[first:end]


@lru_cache(maxsize=256)
def _compiled(expression: str) -> re.Pattern[str]:
    return re.compile(expression)


def _coalesce(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


_BOUNDED: Final = 2**63


def _int(value: Any) -> int | None:
    number = int(value.strip()) if isinstance(value, str) else int(value)
    return number if -_BOUNDED <= number < _BOUNDED else None


def _float(value: Any) -> float:
    return float(value)


def _built_in() -> dict[str, Function]:
    functions: dict[str, Function] = {}

    def add(name: str, call: Callable[..., Any], parameters: tuple[str, ...], result: str, **more: Any) -> None:
        safe = call if more.get("accepts_missing") else _careful(call)
        functions[name] = Function(name, safe, parameters, result, **more)

    one, text = ("float",), ("string",)
    add("abs", abs, one, "argument")
    add("sqrt", math.sqrt, one, "float")
    add("floor", math.floor, one, "int")
    add("ceil", math.ceil, one, "int")
    add("round", _round, ("float", "int"), "float", optional=1)
    add("power", math.pow, ("float", "float"), "float")
    add("log", _log, ("float", "float"), "float", optional=1)
    add("exp", math.exp, one, "float")
    add("least", lambda *values: min(values), ("any",), "argument", variadic=True)
    add("greatest", lambda *values: max(values), ("any",), "argument", variadic=True)
    add("distance", _distance, ("float",) * 4, "float")
    add("lower", str.lower, text, "string")
    add("upper", str.upper, text, "string")
    add("length", len, text, "int")
    add("concat", lambda *values: "".join(map(as_text, values)), ("any",), "string", variadic=True)
    add("substring", _substring, ("string", "int", "int"), "string", optional=1)
    add("contains", lambda whole, part: part in whole, ("string", "string"), "bool")
    add("startswith", str.startswith, ("string", "string"), "bool")
    add("endswith", str.endswith, ("string", "string"), "bool")
    add("trim", str.strip, text, "string")
    add("replace", str.replace, ("string", "string", "string"), "string")
    add("matches", lambda whole, form: _compiled(form).search(whole) is not None, text * 2, "bool")
    add("coalesce", _coalesce, ("any",), "argument", variadic=True, accepts_missing=True)
    add("if", lambda test, yes, no: yes if test else no, ("bool", "any", "any"), "argument",
        accepts_missing=True, same_from=1)  # fmt: skip
    add("hour", lambda ts: ts // 3_600_000_000 % 24, ("int",), "int")
    add("minute", lambda ts: ts // 60_000_000 % 60, ("int",), "int")
    add("second", lambda ts: ts // 1_000_000 % 60, ("int",), "int")
    # 1 January 1970 was a Thursday; Monday is 1 and Sunday 7, as in ISO 8601.
    add("dayofweek", lambda ts: (ts // 86_400_000_000 + 3) % 7 + 1, ("int",), "int")
    add("int", _int, ("any",), "int")
    add("float", _float, ("any",), "float")
    add("string", as_text, ("any",), "string")
    return functions


BUILT_IN: Final = _built_in()
