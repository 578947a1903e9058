"""Prints rules as text. Parsing the text gives an equal rule (except for its version, which text does not carry)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from headwater.protocol import expressions as e
from headwater.protocol.errors import RuleError
from headwater.protocol.functions import BUILT_IN, RESERVED_NAMES, plain_name
from headwater.protocol.languages.literals import print_duration, print_value

OR, AND, NOT, COMPARISON, SUM, PRODUCT, UNARY, ATOM = range(1, 9)
"""How tightly the operators bind, loosest first."""

LEVELS: Final = {"or": OR, "and": AND, "+": SUM, "-": SUM, "*": PRODUCT, "/": PRODUCT, "%": PRODUCT}


class PrintError(RuleError):
    """The language cannot say this rule; the text says why."""


def name(text: str, owner: str, reserved: frozenset[str]) -> str:
    """The name, if it can stand in a text and is none of the words that mean something else in its place."""
    if not re.fullmatch(r"[^\W\d]\w*", text) or text.lower() in reserved:
        raise PrintError(f"{text!r} cannot be written as the name of {owner}")
    return text


class ExpressionPrinter:
    """Prints expressions; ``attribute`` and ``role`` say how the language writes what belongs to a role."""

    def __init__(self, attribute: Callable[[e.Attribute], str], role: Callable[[str], str], parameters: bool) -> None:
        self.attribute = attribute
        self.role = role
        self.parameters = parameters

    def text(self, expression: e.Expression, level: int = OR) -> str:
        """The expression, in brackets where it binds less tightly than its place demands."""
        own, text = self._printed(expression)
        return f"({text})" if own < level else text

    def _printed(self, expression: e.Expression) -> tuple[int, str]:
        match expression:
            case e.Constant(value):
                return self._constant(value)
            case e.Attribute():
                return ATOM, self.attribute(expression)
            case e.Fold(function, role, attribute):
                inside = f"{self.role(role)}[]" + (f".{word(attribute)}" if attribute else "")
                return ATOM, f"{function}({inside})"
            case e.Parameter(parameter):
                return self._parameter(parameter)
            case e.Call(function, arguments):
                called = function if function in BUILT_IN else name(plain_name(function), "a function", RESERVED_NAMES)
                return ATOM, f"{called}({self.listed(arguments)})"
            case e.Remote(table, arguments):
                return self._remote(table, arguments)
            case e.Unary(operator, operand):
                return self._unary(operator, operand)
            case e.Binary(operator, left, right):
                return self._binary(operator, left, right)
            case e.Items():
                raise PrintError("a list stands only on the right of IN")
            case e.Same():
                raise PrintError("SAME stands only for itself")

    def listed(self, expressions: Iterable[e.Expression]) -> str:
        return ", ".join(self.text(expression) for expression in expressions)

    def _parameter(self, parameter: str) -> tuple[int, str]:
        if not self.parameters:
            raise PrintError(f"SASE has no parameters such as ${parameter}")
        return ATOM, f"${word(parameter)}"

    def _remote(self, table: str, arguments: Sequence[e.Expression]) -> tuple[int, str]:
        if not arguments:
            raise PrintError("REMOTE needs something to look up")
        name_of_table = "REMOTE" if table == "remote" else f"REMOTE.{word(table)}"
        return ATOM, f"{name_of_table}[{self.listed(arguments)}]"

    def _unary(self, operator: str, operand: e.Expression) -> tuple[int, str]:
        if operator == "not":
            return NOT, f"not {self.text(operand, NOT)}"
        inside = self.text(operand, UNARY)
        # Two minus signs would begin a comment, and a sign before a number would become part of it.
        return UNARY, f"-({inside})" if inside[0] in "-0123456789" else f"-{inside}"

    def _constant(self, value: object) -> tuple[int, str]:
        try:
            text = print_value(value)  # type: ignore[arg-type]
        except ValueError as mistake:
            raise PrintError(str(mistake)) from None
        return (UNARY if text.startswith("-") else ATOM), text

    def _binary(self, operator: str, left: e.Expression, right: e.Expression) -> tuple[int, str]:
        if operator in ("in", "not in"):
            match right:
                case e.Items(items):
                    members = f"({self.listed(items)})"
                case e.Remote():
                    members = self.text(right)
                case _:
                    raise PrintError("IN needs a list or a REMOTE table on its right")
            return COMPARISON, f"{self.text(left, SUM)} {operator} {members}"
        if operator in e.COMPARISONS:
            return COMPARISON, f"{self.text(left, SUM)} {operator} {self.text(right, SUM)}"
        level = LEVELS[operator]
        return level, f"{self.text(left, level)} {operator} {self.text(right, level + 1)}"


def word(text: str) -> str:
    """A name in a place where no keyword can stand."""
    if not re.fullmatch(r"[^\W\d]\w*", text):
        raise PrintError(f"{text!r} cannot be written as a name")
    return text


def window(length_us: int) -> str:
    """The length of a window, which text cannot have as nothing."""
    if length_us < 1:
        raise PrintError("a window of no length cannot be written")
    return print_duration(length_us)


def check_split(conditions: Iterable[e.Expression]) -> None:
    for condition in conditions:
        if isinstance(condition, e.Binary) and condition.operator == "and":
            raise PrintError("a condition joined by 'and' is two conditions; put them into the pattern one by one")
