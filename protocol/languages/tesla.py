"""Turns TESLA syntax into rules: ``define CE(..) from A(..) and last B(..) within 5 min from A where ..``"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import cast

from headwater.protocol import expressions as e
from headwater.protocol.events import KIND_ALIASES, RESERVED_ATTRIBUTES
from headwater.protocol.functions import Functions
from headwater.protocol.languages import syntax as s
from headwater.protocol.languages.diagnostics import Problems
from headwater.protocol.languages.tesla_meaning import TeslaMeaning, aggregates_in
from headwater.protocol.languages.type_checking import TypedExpression, Types, a, fits
from headwater.protocol.languages.windows import length_us
from headwater.protocol.pattern import (
    Absence,
    Chain,
    OutputAttribute,
    Pattern,
    Policy,
    Rule,
    Selection,
    Within,
)
from headwater.protocol.text import closest, listed


def build_tesla(rule: s.TeslaRule, name: str, problems: Problems, types: Types, functions: Functions) -> Rule:
    """The rule that the syntax means; what is wrong with it is added to ``problems``."""
    return _Builder(rule, name, problems, types, functions).build()


class _Builder:
    def __init__(self, rule: s.TeslaRule, name: str, problems: Problems, types: Types, functions: Functions) -> None:
        self.rule = rule
        self.name = name
        self.problems = problems
        self.meaning = TeslaMeaning(problems, types, functions)

    def build(self) -> Rule:
        roles = self._name_roles()
        meaning, rule = self.meaning, self.rule
        anchor = meaning.leaf(rule.anchor, roles[id(rule.anchor)])
        meaning.where.extend(meaning.constraints(rule.anchor, anchor, hidden=False))
        meaning.names.roles[anchor.role] = anchor.type
        for step in rule.steps:
            match step:
                case s.SelectionStep():
                    self._selection(step, roles[id(step.selector)])
                case s.AbsenceStep():
                    self._absence(step, roles[id(step.selector)])
                case s.ConditionStep():
                    meaning.condition(step.condition)
        attributes = self._outputs()
        pattern = Pattern(Chain(anchor, tuple(meaning.steps)), tuple(meaning.where))
        return Rule(self.name, pattern, rule.emits.text, attributes)

    def _name_roles(self) -> dict[int, str]:
        """The role of every selector: its ``as`` name or its type; hidden ones make way for the others."""
        named: dict[int, str] = {}
        taken = self.meaning.names.all_roles
        positive = [self.rule.anchor, *(step.selector for step in self.rule.steps if isinstance(step, s.SelectionStep))]
        for selector in positive:
            word = selector.alias or selector.type
            if word.text in taken:
                self.problems.add(
                    word.at,
                    f"two events of this rule are called {word.text!r}",
                    "give one of them another name: "
                    + f"{selector.type.text}(..) as {next_name(word.text.lower(), taken, {word.text.lower(): 2})}",
                )
            taken.setdefault(word.text, word.at)
            named[id(selector)] = word.text
        hidden = list(self._hidden_selectors())
        used = set(taken)
        numbers: dict[str, int] = {}
        for selector in hidden:
            if selector.alias is not None:
                if selector.alias.text in used:
                    self.problems.add(
                        selector.alias.at,
                        f"two events of this rule are called {selector.alias.text!r}",
                        "give one of them another name",
                    )
                used.add(selector.alias.text)
                named[id(selector)] = selector.alias.text
        for selector in hidden:
            if selector.alias is None:
                role = next_name(selector.type.text, used, numbers)
                used.add(role)
                named[id(selector)] = role
        self.meaning.hidden_roles = named
        return named

    def _hidden_selectors(self) -> Iterator[s.Selector]:
        for step in self.rule.steps:
            match step:
                case s.AbsenceStep():
                    yield step.selector
                case s.ConditionStep():
                    yield from (call.selector for call in aggregates_in(step.condition))
        for assignment in self.rule.assignments:
            yield from (call.selector for call in aggregates_in(assignment.value))

    def _selection(self, step: s.SelectionStep, role: str) -> None:
        meaning = self.meaning
        leaf = meaning.leaf(step.selector, role)
        if step.range.origin.text == role and role not in meaning.names.roles:
            self.problems.add(step.range.origin.at, f"{role!r} cannot be measured from itself", "name an earlier event")
            within = Within(length_us(step.range.length, self.problems), role)
        else:
            within = cast(Within, meaning.range(step.range))
        where = list(meaning.constraints(step.selector, leaf, hidden=False))
        policy, count = self._policy(step.policy)
        meaning.where.extend(where)
        meaning.steps.append(Selection(leaf, policy, within, count))
        meaning.names.roles[role] = leaf.type

    def _policy(self, word: s.Word) -> tuple[Policy, int]:
        text = "".join(word.text.lower().split())
        if text in ("each", "last", "first"):
            return cast(Policy, text), 1
        number, _, policy = text.rpartition("-")
        count = int(number) if len(number) <= 18 else 0
        if count < 1:
            self.problems.add(word.at, f"{word.text} chooses nothing", "write a number from 1, as in 3-last")
        return cast(Policy, policy), max(1, count)

    def _absence(self, step: s.AbsenceStep, role: str) -> None:
        meaning = self.meaning
        leaf = meaning.leaf(step.selector, role)
        meaning.names.hidden[role] = f"not {leaf.type}(..)"
        bounds = meaning.range(step.range)
        meaning.where.extend(list(meaning.constraints(step.selector, leaf, hidden=True)))
        meaning.steps.append(Absence(leaf, bounds))

    def _outputs(self) -> tuple[OutputAttribute, ...]:
        rule = self.rule
        declared: dict[str, str] = {}
        for attribute in rule.fields:
            kind = output_kind(attribute, self.problems)
            if attribute.name.text in declared:
                self.problems.add(
                    attribute.name.at,
                    f"{rule.emits.text} has two attributes called {attribute.name.text!r}",
                    "leave one out",
                )
            declared[attribute.name.text] = kind
        values: dict[str, TypedExpression] = {}
        for assignment in rule.assignments:
            name = assignment.name
            value = self.meaning.value(assignment.value)
            if name.text not in declared:
                near = closest(name.text, declared)
                hint = f"did you mean {near!r}?" if near else f"it has: {listed(declared)}" if declared else ""
                self.problems.add(name.at, f"{rule.emits.text} is defined without an attribute {name.text!r}", hint)
            elif name.text in values:
                self.problems.add(name.at, f"{name.text!r} gets a value twice", "leave one out")
            elif not fits(value.kind, declared[name.text]):
                self.problems.add(
                    assignment.value.at,
                    f"type mismatch: {name.text!r} is {a(declared[name.text])}, but this is {a(value.kind)}",
                    f"declare {name.text}: {value.kind}, or convert the value",
                )
            values[name.text] = value
        for attribute in rule.fields:
            if attribute.name.text not in values:
                self.problems.add(
                    attribute.name.at,
                    f"{attribute.name.text!r} gets no value",
                    f"add: where {attribute.name.text} = ..",
                )
        missing = TypedExpression(e.Constant(None), "any")
        return tuple(
            OutputAttribute(name, kind, values.get(name, missing).expression) for name, kind in declared.items()
        )


def output_kind(written: s.Field, problems: Problems) -> str:
    """The kind of a declared attribute, in the one word that stands for it."""
    if written.name.text in RESERVED_ATTRIBUTES:
        problems.add(written.name.at, f"every event has {written.name.text!r} already", "choose another name")
    kind = KIND_ALIASES.get(written.kind.text.lower())
    if kind is None:
        problems.add(written.kind.at, f"unknown kind {written.kind.text!r}", "write int, float, string, bool or any")
    return kind or "any"


def next_name(name: str, taken: Container[str], numbers: dict[str, int]) -> str:
    """The name itself, name_2, name_3, ..: the first that is not taken. ``numbers`` remembers where to go on."""
    number = numbers.get(name, 1)
    while (candidate := name if number == 1 else f"{name}_{number}") in taken:
        number += 1
    numbers[name] = number + 1
    return candidate
