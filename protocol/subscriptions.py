"""Subscriptions: the events of a type that a sink wants to receive.

Text such as ``Fire(area = 'A1' and temperature > 60)`` is an event with constraints as TESLA writes it; the grammar and
the meaning of expressions are those of the rule languages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

from lark import Lark, Token, UnexpectedInput, UnexpectedToken

from headwater.protocol import expressions as e
from headwater.protocol.events import EventType, Value
from headwater.protocol.expressions import Expression
from headwater.protocol.functions import Functions
from headwater.protocol.languages import syntax as s
from headwater.protocol.languages.diagnostics import UNKNOWN_EVENT_TYPE, Problems, RuleTextError, Text
from headwater.protocol.languages.foreign_syntax import shorten
from headwater.protocol.languages.grammar_actions import SyntaxMistake, TeslaReader
from headwater.protocol.languages.parser import NESTING_MAX, expectation, too_deep
from headwater.protocol.languages.print_tesla import RESERVED
from headwater.protocol.languages.printing import NOT, OR, ExpressionPrinter, check_split, word
from headwater.protocol.languages.type_checking import Meaning, Placed, TypedExpression, Types
from headwater.protocol.text import suggestion

SUBJECT = "event"
"""The role under which the conjuncts of a subscription speak of the event."""

EXAMPLE: Final = "write a type and conditions on its attributes, as in Fire(area = 'A1' and temperature > 60)"


@dataclass(frozen=True, slots=True)
class Subscription:
    """Events of a type (composite or primitive) whose attributes meet every conjunct; none means all of them."""

    type: str
    where: tuple[Expression, ...] = ()


# --- text to subscription ---------------------------------------------------------------------------------------------


def parse_subscription(
    text: str,
    name: str = "subscription",
    types: Iterable[EventType] | Types | None = None,
    functions: Functions | None = None,
) -> Subscription:
    """The subscription that a text means, or a RuleTextError with every mistake; ``name`` stands in front of them.

    ``types`` are all types that can be subscribed to, composite ones too; without it any type and attribute will do.
    Conjuncts are sorted and none is doubled, so that texts that differ only in their order give equal subscriptions.
    """
    source = Text(text, name)
    problems = Problems(source)
    try:
        selector = _selector(text)
    except SyntaxMistake as mistake:
        raise RuleTextError([source.diagnostic(mistake.at, mistake.message, mistake.hint)]) from None
    declared = types if isinstance(types, Types) else Types(types or (), is_open=types is None)
    meaning = _SubscriptionMeaning(selector.type.text, problems, declared, functions or Functions())
    where = list(meaning.conditions(selector))
    if problems.placed:
        raise RuleTextError(problems.diagnostics())
    return Subscription(selector.type.text, tuple(sorted(set(where), key=repr)))


@cache
def _grammar() -> Lark:
    folder = files("headwater.protocol.languages")
    text = "".join((folder / f"{part}.lark").read_text("utf-8") for part in ("tesla", "expressions"))
    return Lark(text, parser="lalr", lexer="contextual", transformer=TeslaReader(), start="selector")


def _selector(text: str) -> s.Selector:
    if not text.strip():
        raise SyntaxMistake(0, "there is no subscription in this text", EXAMPLE)
    parser = _grammar().parse_interactive(text)
    fed: list[Token] = []
    depth = 0
    try:
        for token in parser.lexer_thread.lex(parser.parser_state):  # type: ignore[no-untyped-call]
            depth += {"LPAR": 1, "LSQB": 1, "RPAR": -1, "RSQB": -1}.get(token.type, 0)
            if depth > NESTING_MAX:
                raise too_deep(token.start_pos or 0)
            parser.feed_token(token)
            fed.append(token)
        selector: s.Selector = parser.feed_eof(fed[-1] if fed else None)  # type: ignore[no-untyped-call]
        return selector
    except UnexpectedInput as mistake:
        raise _explained(text, mistake, fed) from None


def _explained(text: str, mistake: UnexpectedInput, fed: list[Token]) -> SyntaxMistake:
    # The parser has digested what it could before it gave up, so what it expected there is found by coming again.
    parser = _grammar().parse_interactive(text)
    for token in fed:
        parser.feed_token(token)
    expected = set(parser.accepts()) - {"AS"}  # type: ignore[no-untyped-call]
    hint = f"expected {expectation(expected)}" if fed else EXAMPLE
    if "$END" in expected:
        bracket = " or '('" if "LPAR" in expected else ""
        hint = f"expected the end{bracket}; one subscription is about one type"
    if isinstance(mistake, UnexpectedToken):
        if mistake.token.type == "$END":
            return SyntaxMistake(len(text), "the subscription ends too early", hint)
        return SyntaxMistake(mistake.token.start_pos or 0, f"unexpected {shorten(mistake.token)}", hint)
    at = len(text) if mistake.pos_in_stream is None else mistake.pos_in_stream
    sign = text[at : at + 1]
    if sign and sign in "'\"":
        return SyntaxMistake(at, "this string does not end", f"expected another {sign} on the same line")
    return SyntaxMistake(at, f"unexpected character {sign!r}", hint)


class _SubscriptionMeaning(Meaning):
    """Names inside a subscription: attributes of the one event it is about."""

    def __init__(self, type_name: str, problems: Problems, types: Types, functions: Functions) -> None:
        super().__init__(problems, types, functions)
        self.type = type_name

    def conditions(self, selector: s.Selector) -> Iterator[Expression]:
        if selector.alias is not None:
            self._refuse(selector.alias.at, "a subscription is about one event, which needs no other name", "leave out")
        if not self.types.has(self.type):
            hint = suggestion(self.type, self.types.names, "event types") or "there is no event type at all"
            self.problems.add(selector.type.at, f"unknown event type {self.type!r}", hint, UNKNOWN_EVENT_TYPE)
            return
        for item in selector.constraints:
            for condition in self.conjuncts(item):
                if SUBJECT not in e.roles_of(condition.expression):
                    self.problems.add(
                        condition.at,
                        f"this condition says nothing about {self.type}",
                        f"conditions in the brackets of {self.type}(..) must name one of its attributes",
                    )
                yield condition.expression

    def bare(self, node: s.Bare) -> TypedExpression:
        return self.attribute(self.type, SUBJECT, s.Word(node.at, node.name))

    def path(self, node: s.Path) -> TypedExpression:
        if node.indexed or node.base.text not in (self.type, SUBJECT):
            hint = f"write {node.name.text} or {self.type}.{node.name.text}"
            return self._refuse(node.base.at, f"a subscription knows no {node.base.text!r}", hint)
        return self.attribute(self.type, SUBJECT, node.name)

    def dollar(self, node: s.Dollar) -> TypedExpression:
        return self._refuse(node.at, f"a subscription has no parameters such as ${node.name}", "write the value")

    def aggregate(self, node: s.FoldCall | s.AggregateCall) -> TypedExpression:
        return self._refuse(
            node.at, "a subscription looks at one event at a time and cannot aggregate", "aggregate in a rule"
        )

    def same(self, node: s.SameKeys) -> Iterator[Placed]:
        self._refuse(node.at, "a subscription has no SAME: it is about one event", "compare the attribute with a value")
        return iter(())

    def _remote(self, node: s.RemoteLookup) -> TypedExpression:
        return self._refuse(node.at, "a subscription cannot look into a REMOTE table", "do that in a rule")

    def _refuse(self, at: int, message: str, hint: str) -> TypedExpression:
        self.problems.add(at, message, hint)
        return TypedExpression(e.Attribute(SUBJECT, "type"), "any")


# --- subscription to text ---------------------------------------------------------------------------------------------


def print_subscription(subscription: Subscription) -> str:
    """The subscription as text that parses to an equal one; PrintError where that cannot be."""
    check_split(subscription.where)
    own = word(subscription.type)

    def attribute(node: e.Attribute) -> str:
        return f"{own}.{word(node.name)}" if node.name.lower() in RESERVED else word(node.name)

    printer = ExpressionPrinter(attribute, word, parameters=False)
    level = NOT if len(subscription.where) > 1 else OR
    conditions = " and ".join(printer.text(condition, level) for condition in subscription.where)
    return f"{own}({conditions})" if conditions else own


# --- which subscriptions make others needless -------------------------------------------------------------------------


def covers(wider: Subscription, narrower: Subscription) -> bool:
    """Whether every event that ``narrower`` asks for is one that ``wider`` asks for, as far as their form tells.

    True is always right; False may only mean that it cannot be seen: each conjunct of the wider one must follow from a
    single conjunct of the narrower one.
    """
    return wider.type == narrower.type and all(
        any(_implies(condition, wanted) for condition in narrower.where) for wanted in wider.where
    )


def without_covered(subscriptions: Iterable[Subscription]) -> tuple[Subscription, ...]:
    """Those among them that ask for all the events the whole asks for; their order depends only on their content."""
    kept: list[Subscription] = []
    for one in sorted(subscriptions, key=_order):
        if not any(covers(other, one) for other in kept):
            kept = [other for other in kept if not covers(one, other)]
            kept.append(one)
    return tuple(kept)


def _order(subscription: Subscription) -> tuple[str, list[str]]:
    return subscription.type, [repr(condition) for condition in subscription.where]


def _implies(condition: Expression, wanted: Expression) -> bool:
    """Whether ``wanted`` holds wherever ``condition`` does."""
    if condition == wanted:
        return True
    match condition, wanted:
        case e.Binary("or", left, right), _:
            return _implies(left, wanted) and _implies(right, wanted)
        case _, e.Binary("and", left, right):
            return _implies(condition, left) and _implies(condition, right)
        case e.Binary("and", left, right), _:
            return _implies(left, wanted) or _implies(right, wanted)
        case _, e.Binary("or", left, right):
            return _implies(condition, left) or _implies(condition, right)
    test, goal = _test(condition), _test(wanted)
    if test is not None and test.operator == "never":
        return True
    if test is None or goal is None or test.subject != goal.subject:
        return False
    return _test_implies(test, goal)


def _test_implies(test: _Test, goal: _Test) -> bool:
    """Whether a value that passes the one test always passes the other."""
    match test.operator, goal.operator:
        case "in", "in":
            return all(value in goal.values for value in test.values)
        case "in", "not in":
            return not any(value in goal.values for value in test.values)
        case "in", ("<" | "<=" | ">" | ">=") as bound:
            return all(_within(value, bound, goal.values[0]) for value in test.values)
        case "not in", "not in":
            return all(value in test.values for value in goal.values)
        case ("<" | "<=" | ">" | ">=") as bound, "not in":
            return not any(_within(value, bound, test.values[0]) for value in goal.values)
        case ((">" | ">="), (">" | ">=")) | (("<" | "<="), ("<" | "<=")):
            return _bound_implies(test, goal)
    return False


@dataclass(frozen=True, slots=True)
class _Test:
    """A comparison with constants, the constant on the right; ``=`` and ``!=`` are lists of one. None is no value."""

    subject: str
    operator: str
    values: tuple[Value, ...]


_FLIPPED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!="}


def _test(expression: Expression) -> _Test | None:
    match expression:
        case e.Binary("in" | "not in" as operator, subject, e.Items(items)) if not isinstance(subject, e.Constant):
            values = tuple(item.value for item in items if isinstance(item, e.Constant))
            if len(values) < len(items):
                return None
            values = tuple(value for value in values if value is not None)
            return _Test(repr(subject), operator if values or operator == "not in" else "never", values)
        case e.Binary(operator, e.Constant(value), subject) if operator in _FLIPPED:
            return _comparison(subject, _FLIPPED[operator], value)
        case e.Binary(operator, subject, e.Constant(value)) if operator in _FLIPPED:
            return _comparison(subject, operator, value)
    return None


def _comparison(subject: Expression, operator: str, value: Value) -> _Test:
    if value is None:
        return _Test(repr(subject), "never", ())
    return _Test(repr(subject), {"=": "in", "!=": "not in"}.get(operator, operator), (value,))


def _within(value: Value, operator: str, bound: Value) -> bool:
    if isinstance(value, str) != isinstance(bound, str) or value is None or bound is None:
        return False
    match operator:
        case "<":
            return value < bound  # type: ignore[operator]
        case "<=":
            return value <= bound  # type: ignore[operator]
        case ">":
            return value > bound  # type: ignore[operator]
        case _:
            return value >= bound  # type: ignore[operator]


def _bound_implies(test: _Test, goal: _Test) -> bool:
    """``v > 5`` or ``v >= 5`` from ``v > 10``: the asked bound lies further out, or here and no stricter."""
    strictly = test.operator[0]
    here, there = test.values[0], goal.values[0]
    return _within(here, strictly, there) or (
        _within(here, strictly + "=", there) and not (len(test.operator) == 2 and len(goal.operator) == 1)
    )
