"""The actions of the grammars: each grammar rule becomes one piece of syntax, from the innermost outwards."""

from __future__ import annotations

from typing import Any, Final, TypeVar

from lark import Token, Transformer

from headwater.protocol.languages import syntax as s
from headwater.protocol.languages.literals import LiteralError, parse_duration, parse_number, parse_string

DEPTH_MAX: Final = 100
"""How deep an expression may nest, long sums included: every later stage walks it recursively."""

T = TypeVar("T")
Children = list[Any]

_COMPARISONS = {"==": "=", "<>": "!=", "≠": "!=", "≤": "<=", "≥": ">="}


class SyntaxMistake(Exception):
    """The text cannot be read any further."""

    def __init__(self, at: int, message: str, hint: str) -> None:
        super().__init__(message)
        self.at = at
        self.message = message
        self.hint = hint


def start_of(token: Token) -> int:
    return token.start_pos or 0


def word(token: Token) -> s.Word:
    return s.Word(start_of(token), str(token))


def optional_word(token: Token | None) -> s.Word | None:
    return None if token is None else word(token)


def tokens(children: Children, *kinds: str) -> list[Token]:
    return [child for child in children if isinstance(child, Token) and child.type in kinds]


def only(kind: type[T] | tuple[type[T], ...], children: Children) -> list[T]:
    return [child for child in children if isinstance(child, kind)]


def expressions(children: Children) -> list[s.Syntax]:
    return [child for child in children if child is not None and not isinstance(child, Token)]


def deeper(at: int, *inside: s.Syntax, extra: int = 1) -> int:
    depth = max((part.depth for part in inside), default=0) + extra
    if depth > DEPTH_MAX:
        raise SyntaxMistake(
            at, f"this is nested more than {DEPTH_MAX} levels deep", "write it flatter, or as several rules"
        )
    return depth


class Reader(Transformer[Token, Any]):
    """What both languages share."""

    def start(self, children: Children) -> Children:
        return [child for child in children if not isinstance(child, Token)]

    def event_type(self, children: Children) -> s.TypeDeclaration:
        return s.TypeDeclaration(word(children[1]), only(s.Field, children))

    def field(self, children: Children) -> s.Field:
        return s.Field(word(children[0]), word(children[2]), children[3] is not None)

    def quantity(self, children: Children) -> s.Quantity:
        sign, token, *rest = children
        at = start_of(sign if sign is not None else token)
        has_unit = token.type == "DURATION"
        value = self._literal(token, parse_duration if has_unit else parse_number)
        return s.Quantity(at, -value if sign is not None else value, has_unit, any(rest))

    def _literal(self, token: Token, parse: Any) -> Any:
        try:
            return parse(str(token))
        except LiteralError as mistake:
            raise SyntaxMistake(start_of(token), str(mistake), "") from None

    # Expressions

    def number(self, children: Children) -> s.Literal:
        return s.Literal(start_of(children[0]), self._literal(children[0], parse_number))

    def duration(self, children: Children) -> s.Literal:
        return s.Literal(start_of(children[0]), self._literal(children[0], parse_duration))

    def string(self, children: Children) -> s.Literal:
        return s.Literal(start_of(children[0]), parse_string(str(children[0])))

    def true(self, children: Children) -> s.Literal:
        return s.Literal(start_of(children[0]), True)

    def false(self, children: Children) -> s.Literal:
        return s.Literal(start_of(children[0]), False)

    def null(self, children: Children) -> s.Literal:
        return s.Literal(start_of(children[0]), None)

    def parameter(self, children: Children) -> s.Dollar:
        return s.Dollar(start_of(children[0]), str(children[0])[1:])

    def bare(self, children: Children) -> s.Bare:
        return s.Bare(start_of(children[0]), str(children[0]))

    def path(self, children: Children) -> s.Path:
        return s.Path(word(children[0]), word(children[2]))

    def call(self, children: Children) -> s.Called:
        arguments = expressions(children)
        return s.Called(word(children[0]), arguments, deeper(start_of(children[0]), *arguments))

    def indexed(self, children: Children) -> s.Bracketed:
        arguments = expressions(children)
        return s.Bracketed(word(children[0]), arguments, deeper(start_of(children[0]), *arguments))

    def element(self, children: Children) -> s.Path:
        base, name = tokens(children, "NAME")
        inside = expressions(children)
        if len(inside) > 1:
            raise SyntaxMistake(inside[1].at, f"{base} takes one index", "write b[i].v, b[i-1].v, b[1].v or b[last].v")
        return s.Path(word(base), word(name), True, inside[0] if inside else None)

    def bracketed(self, children: Children) -> s.Inner:
        inside: s.Syntax = children[1]
        return s.Inner(start_of(children[0]), inside, inside.depth)

    def same(self, children: Children) -> s.SameKeys:
        keys = expressions(children)
        return s.SameKeys(start_of(children[0]), keys, deeper(start_of(children[0]), *keys))

    def remote(self, children: Children) -> s.RemoteLookup:
        names = tokens(children, "NAME")
        arguments = expressions(children)
        at = start_of(children[0])
        return s.RemoteLookup(at, word(names[0]) if names else None, arguments, deeper(at, *arguments))

    def negative(self, children: Children) -> s.Syntax:
        at: int = start_of(children[0])
        operand: Any = children[1]
        # A minus sign in front of a number belongs to the number.
        if isinstance(operand, s.Literal):
            value = operand.value
            if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
                return s.Literal(at, -value)
        return s.Negative(at, operand, deeper(at, operand))

    def arithmetic(self, children: Children) -> s.Arithmetic:
        left, operator, right = children
        return s.Arithmetic(word(operator), left, right, deeper(start_of(operator), left, right))

    def chain(self, children: Children) -> s.ComparisonChain:
        operands = expressions(children)
        operators = [
            s.Word(start_of(token), _COMPARISONS.get(str(token), str(token))) for token in tokens(children, "COMPARE")
        ]
        return s.ComparisonChain(operands, operators, deeper(operators[0].at, *operands, extra=len(operators)))

    def members(self, children: Children) -> list[s.Syntax]:
        return expressions(children)

    def members_of(self, children: Children) -> s.RemoteLookup:
        lookup: s.RemoteLookup = children[0]
        return lookup

    def contained(self, children: Children) -> s.In:
        return self._in(children[0], children[1], children[-1], False)

    def not_contained(self, children: Children) -> s.In:
        return self._in(children[0], children[1], children[-1], True)

    def _in(self, operand: s.Syntax, token: Token, members: Any, negated: bool) -> s.In:
        inside = members if isinstance(members, list) else [members]
        return s.In(operand, word(token), members, negated, deeper(start_of(token), operand, *inside, extra=2))

    def between(self, children: Children) -> s.Range:
        return self._range(children, False)

    def not_between(self, children: Children) -> s.Range:
        return self._range(children, True)

    def _range(self, children: Children, negated: bool) -> s.Range:
        operand, low, high = expressions(children)
        token = tokens(children, "BETWEEN")[0]
        return s.Range(operand, word(token), low, high, negated, deeper(start_of(token), operand, low, high, extra=3))

    def negation(self, children: Children) -> s.Not:
        return s.Not(start_of(children[0]), children[1], deeper(start_of(children[0]), children[1]))

    def all_of(self, children: Children) -> s.All:
        items = expressions(children)
        # Conjuncts are taken apart again, so a long list is not too deep by itself, only inside something else.
        return s.All(items, max(item.depth for item in items) + len(items) - 1)

    def any_of(self, children: Children) -> s.Any:
        items = expressions(children)
        return s.Any(items, deeper(items[0].at, *items, extra=len(items) - 1))


class TeslaReader(Reader):
    def heading(self, children: Children) -> s.Word:
        return word(tokens(children, "NAME")[0])

    def rule(self, children: Children) -> s.TeslaRule:
        heading, _define, emits, fields, _from, anchor, *rest = children
        assignments = rest.pop() or []
        steps = [child for child in rest if not isinstance(child, Token)]
        return s.TeslaRule(heading, word(emits), fields or [], anchor, steps, assignments)

    def fields(self, children: Children) -> list[s.Field]:
        return only(s.Field, children)

    def assignments(self, children: Children) -> list[s.Assignment]:
        return only(s.Assignment, children)

    def assignment(self, children: Children) -> s.Assignment:
        return s.Assignment(word(children[0]), children[2])

    def constraints(self, children: Children) -> list[s.Syntax]:
        return expressions(children)

    def selector(self, children: Children) -> s.Selector:
        name, constraints, _as, alias = children
        return s.Selector(word(name), constraints or [], optional_word(alias))

    def policy(self, children: Children) -> Token:
        token: Token = children[0]
        return token

    def selection(self, children: Children) -> s.SelectionStep:
        policy, selector, _within, length, _from, origin = children
        return s.SelectionStep(word(policy), selector, s.WithinRange(length, word(origin)))

    def absence(self, children: Children) -> s.AbsenceStep:
        return s.AbsenceStep(children[1], children[2])

    def condition(self, children: Children) -> s.ConditionStep:
        return s.ConditionStep(children[0])

    def range_within(self, children: Children) -> s.WithinRange:
        return s.WithinRange(children[1], word(children[3]))

    def range_between(self, children: Children) -> s.BetweenRange:
        return s.BetweenRange(word(children[1]), word(children[3]))

    def aggregate(self, children: Children) -> s.AggregateCall:
        function, _open, name, constraints, _dot, attribute, _as, alias, bounds, _close = children
        selector = s.Selector(word(name), constraints or [], optional_word(alias))
        return s.AggregateCall(word(function), selector, optional_word(attribute), bounds)


class SaseReader(Reader):
    def heading(self, children: Children) -> s.Word:
        return word(children[0])

    def rule(self, children: Children) -> s.SaseRule:
        heading, root, *clauses = children
        return s.SaseRule(heading, root, clauses)

    def where(self, children: Children) -> s.WhereClause:
        return s.WhereClause(children[1])

    def within(self, children: Children) -> s.WithinClause:
        return s.WithinClause(start_of(children[0]), children[1])

    def skip(self, children: Children) -> s.SkipClause:
        return s.SkipClause(start_of(children[0]), bool(tokens(children, "NEXT")))

    def returned(self, children: Children) -> s.ReturnClause:
        return s.ReturnClause(start_of(children[0]), word(children[1]), children[2] or [])

    def outputs(self, children: Children) -> list[s.Output]:
        return only(s.Output, children)

    def output(self, children: Children) -> s.Output:
        name, _colon, kind, _equals, value = children
        return s.Output(word(name), optional_word(kind), value)

    def either(self, children: Children) -> s.PartSyntax:
        return self._infix(children, "or", "OR")

    def both(self, children: Children) -> s.PartSyntax:
        return self._infix(children, "and", "AND")

    def _infix(self, children: Children, operator: str, kind: str) -> s.PartSyntax:
        parts: list[s.PartSyntax] = expressions(children)  # type: ignore[assignment]
        if len(parts) == 1:
            return parts[0]
        return s.OperatorPart(s.Word(start_of(tokens(children, kind)[0]), operator), parts, None)

    def part(self, children: Children) -> s.PartSyntax:
        unit, _within, length, _from, origin = children
        return unit if length is None else s.WindowedPart(unit, length, optional_word(origin))

    def leaf(self, children: Children) -> s.LeafPart:
        name, plus, alias, brackets, limit = children
        return s.LeafPart(word(name), optional_word(alias), plus is not None, brackets is not None, limit)

    def operator(self, children: Children) -> s.OperatorPart:
        token: Token = children[0]
        window = only(s.Quantity, children)
        parts = [child for child in expressions(children) if not isinstance(child, s.Quantity)]
        name = s.Word(start_of(token), str(token).lower())
        return s.OperatorPart(name, parts, window[0] if window else None)  # type: ignore[arg-type]

    def absent(self, children: Children) -> s.NotPart:
        if isinstance(children[1], s.NotPart):
            raise SyntaxMistake(children[1].at, "a negation cannot stand inside another negation", "leave both out")
        return s.NotPart(start_of(children[0]), children[1])

    def group(self, children: Children) -> s.GroupPart:
        plus, limit = children[-2:]
        parts = [child for child in children[:-2] if child is not None and not isinstance(child, Token)]
        return s.GroupPart(start_of(children[0]), parts, plus is not None, limit)

    def limit(self, children: Children) -> s.Quantity:
        return s.Quantity(start_of(children[1]), self._literal(children[1], parse_number), False)

    def aggregate(self, children: Children) -> s.FoldCall:
        arguments = expressions(children)
        return s.FoldCall(word(children[0]), arguments, deeper(start_of(children[0]), *arguments))
