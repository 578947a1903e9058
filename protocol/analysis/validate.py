"""Checks that a pattern is valid beyond being well formed, whether it was parsed or built in Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from headwater.protocol import expressions as e
from headwater.protocol.pattern import (
    Absence,
    Aggregate,
    Between,
    Chain,
    Conjunction,
    Disjunction,
    Leaf,
    Negation,
    Part,
    Pattern,
    Repetition,
    Rule,
    Selection,
    Sequence,
    Window,
    Within,
    leaves,
    positive_leaves,
    repeated_roles,
)

ALTERNATIVES_MAX: Final = 256
"""How many ways through its ORs a pattern may have; each is matched for itself."""


PARTS_MAX: Final = 64
"""How many events a pattern may name: far beyond what people write, and generated code has its limits."""


@dataclass(frozen=True, slots=True)
class Flaw:
    """Why a pattern cannot be used. ``subject`` is the role, part or expression it is about, where there is one."""

    message: str
    hint: str = ""
    subject: str | Part | e.Expression | None = None

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


def check_rule(rule: Rule) -> list[Flaw]:
    """All flaws of a rule: those of its pattern and of the attributes it gives its composite events."""
    return check_pattern(rule.pattern) + [
        flaw for attribute in rule.attributes for flaw in check_output(rule.pattern, attribute.value)
    ]


def check_pattern(pattern: Pattern) -> list[Flaw]:
    """All flaws of a pattern; an empty list means that every engine must accept it."""
    return list(_flaws(pattern))


def _flaws(pattern: Pattern) -> Iterator[Flaw]:
    root = pattern.root
    if sum(1 for _ in positive_leaves(root)) > PARTS_MAX:
        yield Flaw(f"this pattern has more than {PARTS_MAX} parts", "let rules on the output of rules divide it")
    for role, count in Counter(leaf.role for leaf in leaves(root)).items():
        if count > 1:
            yield Flaw(f"two parts of this pattern are called {role!r}", "give one of them another name", role)
    if isinstance(root, Chain):
        yield from _chain_flaws(root)
        if pattern.skip != "any":
            yield Flaw("a chain chooses by each, last and first", "leave SKIP TILL NEXT MATCH out")
    else:
        yield from _Tree(pattern).flaws()
    for condition in pattern.where:
        yield from _condition_flaws(pattern, condition)


def check_output(pattern: Pattern, value: e.Expression) -> Iterator[Flaw]:
    """What keeps an expression from giving one value for each match."""
    positive = {leaf.role for leaf in positive_leaves(pattern.root)}
    hidden = {leaf.role for leaf in leaves(pattern.root)} - positive
    repeated = repeated_roles(pattern.root)

    def outside_the_match(role: str) -> Iterator[Flaw]:
        if role in hidden:
            yield Flaw(f"{role!r} is not part of the match, so it has no value here", subject=value)

    yield from _name_flaws(pattern, value)
    for part in e.walk(value):
        match part:
            case e.Same():
                yield Flaw("SAME is a condition and has no value", subject=value)
            case e.Fold(role=role):
                yield from outside_the_match(role)
            case e.Attribute(role, name, index):
                yield from outside_the_match(role)
                if role in repeated and index in ("", "i-1"):
                    yield Flaw(
                        f"{role!r} stands for several events here",
                        f"write {role}[first].{name}, {role}[last].{name} or an aggregate",
                        value,
                    )


def negated_groups(root: Part | Chain) -> list[frozenset[str]]:
    """The roles that are no parts of a match, one set for each negation (and each aggregate of a chain)."""
    if isinstance(root, Chain):
        return [frozenset({step.leaf.role}) for step in root.steps if not isinstance(step, Selection)]
    return [frozenset(leaf.role for leaf in leaves(part)) for part in walk_parts(root) if isinstance(part, Negation)]


def walk_parts(part: Part) -> Iterator[Part]:
    """The part and everything inside it, in the order of the text."""
    yield part
    match part:
        case Leaf():
            return
        case Negation(inner):
            yield from walk_parts(inner)
        case _:
            for inner in part.parts:
                yield from walk_parts(inner)


def alternatives(part: Part) -> int:
    """How many ways there are through the ORs of a part."""
    match part:
        case Leaf() | Repetition() | Negation():
            return 1
        case Disjunction(parts):
            return sum(alternatives(inner) for inner in parts)
        case _:
            ways = 1
            for inner in part.parts:
                ways = min(ways * alternatives(inner), ALTERNATIVES_MAX + 1)
            return ways


def operators_without_bound(part: Part | Chain) -> Iterator[Part]:
    """Operators whose events may be arbitrarily old: without a window, in one whose window bounds only their ends.

    Such a pattern means what it says, but what an engine must keep for it grows with the stream.
    """
    if not isinstance(part, Sequence | Conjunction) or part.window is None or part.window.bounds == "span":
        return
    if part.window.unit == "events":
        return
    for inner in part.parts:
        for direct in _direct_parts(inner, part):
            if isinstance(direct, Sequence | Conjunction):
                several = len(list(positive_leaves(direct))) > 1 or bool(repeated_roles(direct))
                if direct.window is None and several:
                    yield direct
                yield from operators_without_bound(direct)


def _direct_parts(part: Part, operator: Part) -> Iterator[Part]:
    """What may stand directly in the operator for this part: branches for an OR, its parts for a SEQ that dissolves."""
    if isinstance(part, Disjunction) or (
        isinstance(part, Sequence) and part.window is None and isinstance(operator, Sequence)
    ):
        for inner in part.parts:
            yield from _direct_parts(inner, operator)
    else:
        yield part


@dataclass(frozen=True, slots=True)
class _Place:
    """Where in a pattern a part stands."""

    windowed: bool = False
    """Some operator further out has a window."""
    operator: Part | None = None
    """The nearest SEQ, AND or negation around; the branch of an OR stands in the place of the OR."""
    in_or: bool = False
    in_not: bool = False
    alone: bool = True
    """The match may consist of this part only."""


class _Tree:
    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern

    def flaws(self) -> Iterator[Flaw]:
        root = self.pattern.root
        assert not isinstance(root, Chain)
        if not any(True for _ in positive_leaves(root)):
            yield Flaw("this pattern has no positive part", "a match needs at least one event that is there", root)
            return
        yield from self._visit(root, _Place())
        for part in (root, *(negation.part for negation in walk_parts(root) if isinstance(negation, Negation))):
            if alternatives(part) > ALTERNATIVES_MAX:
                yield Flaw(
                    f"the ORs of this pattern combine in more than {ALTERNATIVES_MAX} ways",
                    "split it into several rules",
                    part,
                )
        if self.pattern.skip == "next":
            yield from self._skip_next_flaws(root)

    def _visit(self, part: Part, place: _Place) -> Iterator[Flaw]:
        match part:
            case Leaf():
                return
            case Negation(inner):
                yield from self._negation_flaws(part, place)
                if not isinstance(inner, Repetition):
                    yield from self._visit(inner, replace(place, operator=part, in_not=True))
            case Repetition(parts, limit):
                yield from self._repetition_flaws(part, len(parts), limit, place)
            case Disjunction(parts):
                for inner in parts:
                    yield from self._visit(inner, replace(place, in_or=not place.in_not))
            case Sequence(parts, window) | Conjunction(parts, window):
                yield from self._operator_flaws(part, place)
                positive = sum(not isinstance(inner, Negation) for inner in parts)
                windowed = place.windowed or window is not None
                inside = replace(place, windowed=windowed, operator=part, alone=place.alone and positive == 1)
                for inner in parts:
                    yield from self._visit(inner, inside)

    @staticmethod
    def _negation_flaws(part: Negation, place: _Place) -> Iterator[Flaw]:
        if place.in_or:
            yield Flaw("a negation cannot stand inside OR", "write one rule for each alternative", part)
        elif place.in_not:
            yield Flaw(
                "a negation cannot stand inside another negation", "write it as a rule of its own and negate that", part
            )
        elif not isinstance(place.operator, Sequence | Conjunction):
            yield Flaw("a negation stands only inside SEQ or AND", "", part)
        if isinstance(part.part, Repetition):
            yield Flaw("a repetition cannot be negated", "one event is enough: leave '+' out", part)

    def _operator_flaws(self, part: Sequence | Conjunction, place: _Place) -> Iterator[Flaw]:
        word = "SEQ" if isinstance(part, Sequence) else "AND"
        if part.window is not None:
            yield from self._window_flaws(part, part.window)
        elif not place.windowed:
            yield Flaw(f"this {word} has no window", "add WITHIN and a duration at the end of the rule", part)
        if not any(True for _ in positive_leaves(part)):
            yield Flaw(
                "this part of the pattern has no positive part", "move its negations into the operator around", part
            )

    @staticmethod
    def _repetition_flaws(part: Repetition, size: int, limit: int | None, place: _Place) -> Iterator[Flaw]:
        if place.in_not:
            yield Flaw("a repetition cannot stand inside a negation", "one event is enough: leave '+' out", part)
        if not place.windowed:
            yield Flaw("this repetition has no window", "add WITHIN and a duration at the end of the rule", part)
        if limit is None:
            return
        if size > 1:
            yield Flaw("LIMIT works for a single repeated event, not for a group", "", part)
        if limit < 1:
            yield Flaw("LIMIT must be at least 1", "", part)
        if place.alone:
            yield Flaw("LIMIT counts candidates beside the other parts, and here is none", "add a part", part)

    def _window_flaws(self, part: Part, window: Window) -> Iterator[Flaw]:
        if window.length < (1 if window.unit == "events" else 0):
            yield Flaw("a window cannot be negative", "", part)
        if part is not self.pattern.root:
            if window.unit == "events":
                yield Flaw("only the outermost window can count events", "write a duration", part)
            elif window.bounds == "span":
                yield Flaw("an inner window bounds the ends of its parts", "", part)

    @staticmethod
    def _skip_next_flaws(root: Part) -> Iterator[Flaw]:
        for part in walk_parts(root):
            match part:
                case Conjunction():
                    yield Flaw(
                        "SKIP TILL NEXT MATCH needs an order, which AND does not give", "use SKIP TILL ANY MATCH", part
                    )
                case Repetition(parts, limit):
                    if len(parts) > 1:
                        yield Flaw("SKIP TILL NEXT MATCH cannot repeat a group", "use SKIP TILL ANY MATCH", part)
                    if limit is not None:
                        yield Flaw(
                            "LIMIT has no use with SKIP TILL NEXT MATCH, which never lists the subsets of a repetition",
                            "leave LIMIT out",
                            part,
                        )


def _chain_flaws(chain: Chain) -> Iterator[Flaw]:
    earlier = {chain.anchor.role}
    parameters: set[str] = set()
    for step in chain.steps:
        bounds = step.within if isinstance(step, Selection) else step.range
        yield from _range_flaws(bounds, step.leaf.role, earlier)
        match step:
            case Selection(leaf, policy, _, count):
                earlier.add(leaf.role)
                if count < 1 or (policy == "each" and count != 1):
                    yield Flaw(f"{count}-{policy} chooses nothing", "write a number from 1", leaf.role)
            case Aggregate(name, function, leaf, attribute, _):
                if name in parameters:
                    yield Flaw(f"two aggregates are called ${name}", "", leaf.role)
                parameters.add(name)
                if function not in e.FOLDS:
                    yield Flaw(f"unknown aggregate {function!r}", f"write one of {', '.join(e.FOLDS)}", leaf.role)
                elif attribute is None and function != "count":
                    yield Flaw(f"{function} needs an attribute", "", leaf.role)
            case Absence():
                pass


def _range_flaws(bounds: Within | Between, role: str, earlier: Iterable[str]) -> Iterator[Flaw]:
    match bounds:
        case Within(length_us, origin):
            names, wrong = [origin], "a window cannot be shorter than nothing" if length_us < 0 else ""
        case Between(one, other):
            names, wrong = [one, other], "nothing lies between an event and itself" if one == other else ""
    for name in names:
        if name not in earlier:
            yield Flaw(f"unbound name {name!r}", "a range starts from a part introduced before", role)
    if wrong:
        yield Flaw(wrong, "", role)


def _condition_flaws(pattern: Pattern, condition: e.Expression) -> Iterator[Flaw]:
    yield from _name_flaws(pattern, condition)
    named = e.roles_of(condition)
    if sum(bool(group & named) for group in negated_groups(pattern.root)) > 1:
        yield Flaw(
            "this condition compares events of two different negations",
            "neither of them is there to compare with the other",
            condition,
        )
    inside = list(e.walk(condition))
    if any(isinstance(part, e.Same) for part in inside[1:]):
        yield Flaw("SAME stands only for itself", "join it to other conditions with AND", condition)
    if not isinstance(pattern.root, Chain):
        elements = {part.role for part in inside if isinstance(part, e.Attribute) and part.index in ("", "i-1")}
        repetitions = [part for part in walk_parts(pattern.root) if isinstance(part, Repetition)]
        if sum(any(leaf.role in elements for leaf in repetition.parts) for repetition in repetitions) > 1:
            yield Flaw(
                "this condition names elements of two repetitions",
                "name b[first], b[last] or an aggregate of one of them",
                condition,
            )


def _name_flaws(pattern: Pattern, expression: e.Expression) -> Iterator[Flaw]:
    roles = {leaf.role for leaf in leaves(pattern.root)}
    repeated = repeated_roles(pattern.root)
    steps = pattern.root.steps if isinstance(pattern.root, Chain) else ()
    parameters = {step.name for step in steps if isinstance(step, Aggregate)}
    in_same = isinstance(expression, e.Same)
    for part in e.walk(expression):
        match part:
            case e.Attribute("", name):
                if not in_same:
                    yield Flaw(f"unbound name {name!r}", "", expression)
            case e.Attribute() | e.Fold() if part.role not in roles:
                yield Flaw(f"unbound name {part.role!r}", "", expression)
            case e.Attribute(role, name, index):
                if index and role not in repeated:
                    yield Flaw(f"{role!r} is a single event and has no elements", f"write {role}.{name}", expression)
            case e.Fold():
                yield from _fold_flaws(part, repeated, expression)
            case e.Parameter(name) if name not in parameters:
                yield Flaw(f"unbound parameter ${name}", "", expression)
            case e.Binary() | e.Unary() | e.Remote():
                yield from _part_flaws(part, expression)
            case _:
                pass


def _fold_flaws(fold: e.Fold, repeated: Container[str], expression: e.Expression) -> Iterator[Flaw]:
    if fold.role not in repeated:
        yield Flaw(f"{fold.role!r} is a single event, so there is nothing to aggregate", "", expression)
    elif fold.function not in e.FOLDS or (fold.name is None and fold.function != "count"):
        yield Flaw(f"{fold.function} needs an attribute", "", expression)


def _part_flaws(part: e.Binary | e.Unary | e.Remote, expression: e.Expression) -> Iterator[Flaw]:
    """What is wrong with it whatever the roles of the pattern are."""
    match part:
        case e.Binary(operator) if operator not in (*e.ARITHMETIC, *e.COMPARISONS, *e.CONNECTIVES):
            yield Flaw(f"unknown operator {operator!r}", "", expression)
        case e.Unary(operator) if operator not in ("-", "not"):
            yield Flaw(f"unknown operator {operator!r}", "", expression)
        case e.Remote(table, arguments):
            if not any(isinstance(p, e.Attribute | e.Fold) for argument in arguments for p in e.walk(argument)):
                yield Flaw(
                    f"the lookup in {table!r} names no event, so there is no time to look at the table",
                    "name an attribute of an event in its arguments",
                    expression,
                )
