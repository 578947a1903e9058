"""Prints chains as TESLA text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from headwater.protocol import expressions as e
from headwater.protocol.languages.printing import (
    COMPARISON,
    NOT,
    SUM,
    ExpressionPrinter,
    PrintError,
    check_split,
    name,
    window,
    word,
)
from headwater.protocol.languages.tesla import next_name
from headwater.protocol.pattern import Absence, Aggregate, Between, Chain, Leaf, Rule, Selection, Step, Within

RESERVED: Final = frozenset(["not", "true", "false", "null", "each", "last", "first", "remote"])
"""Words that mean something else where a role or an attribute could stand."""


def role_name(text: str) -> str:
    return name(text, "a role", RESERVED)


def print_tesla(rule: Rule) -> str:
    root = rule.pattern.root
    if not isinstance(root, Chain):
        raise PrintError("TESLA cannot say an operator tree: its patterns start from an anchor")
    return _Printer(rule, root).text()


class _Printer:
    def __init__(self, rule: Rule, chain: Chain) -> None:
        self.rule = rule
        self.chain = chain
        self.own = ""
        self.expressions = ExpressionPrinter(self._attribute, role_name, parameters=True)
        self.aliased = self._aliased_roles()
        self.inside, self.about = self._assigned()

    def text(self) -> str:
        rule = self.rule
        heading = "" if rule.name == rule.emits else f"Rule {word(rule.name)}\n"
        fields = ", ".join(f"{word(attribute.name)}: {attribute.kind}" for attribute in rule.attributes)
        steps = [self._selector(self.chain.anchor), *(line for step in self.chain.steps for line in self._step(step))]
        lines = [f"define {word(rule.emits)}({fields})", "from " + "\n  and ".join(steps)]
        if rule.attributes:
            values = [
                f"{word(attribute.name)} = {self.expressions.text(attribute.value, SUM)}"
                for attribute in rule.attributes
            ]
            lines.append("where " + " and ".join(values))
        return heading + "\n".join(lines) + "\n"

    def _attribute(self, node: e.Attribute) -> str:
        if node.index:
            raise PrintError("TESLA has no repeated events")
        if node.role == self.own and node.name.lower() not in RESERVED:
            return word(node.name)
        return f"{role_name(node.role)}.{word(node.name)}"

    # Which condition is written where

    def _assigned(self) -> tuple[dict[str, list[e.Expression]], dict[str, list[e.Expression]]]:
        """The conditions in the brackets of each role, and those about the value of each aggregate."""
        check_split(self.rule.pattern.where)
        roles = {self.chain.anchor.role: 0} | {step.leaf.role: i for i, step in enumerate(self.chain.steps, 1)}
        values = {step.name: i for i, step in enumerate(self.chain.steps, 1) if isinstance(step, Aggregate)}
        hidden = {step.leaf.role for step in self.chain.steps if not isinstance(step, Selection)}
        inside: dict[str, list[e.Expression]] = {}
        about: dict[str, list[e.Expression]] = {}
        for condition in self.rule.pattern.where:
            named = sorted(e.roles_of(condition), key=roles.__getitem__)
            used = sorted(e.parameters_of(condition), key=values.__getitem__)
            last_role = roles[named[-1]] if named else -1
            last_value = values[used[-1]] if used else -1
            if not named and not used:
                raise PrintError("TESLA has no place for a condition that names no event")
            if last_value >= last_role and set(named) & hidden:
                raise PrintError("TESLA cannot compare an event that is not part of the match with what comes after it")
            if set(named[:-1]) & hidden:
                raise PrintError("TESLA cannot name an event that is not part of the match outside its brackets")
            if last_value > last_role:
                about.setdefault(used[-1], []).append(condition)
            else:
                inside.setdefault(named[-1], []).append(condition)
        return inside, about

    def _aliased_roles(self) -> set[str]:
        """Roles that need ``as``: those that would not get their name by themselves."""
        positive = [self.chain.anchor, *(step.leaf for step in self.chain.steps if isinstance(step, Selection))]
        hidden = [step.leaf for step in self.chain.steps if not isinstance(step, Selection)]
        aliased = {leaf.role for leaf in positive if leaf.role != leaf.type}
        while True:
            used = {leaf.role for leaf in positive} | {leaf.role for leaf in hidden if leaf.role in aliased}
            wrong = _first_misnamed((leaf for leaf in hidden if leaf.role not in aliased), used)
            if wrong is None:
                return aliased
            aliased.add(wrong)

    # Steps

    def _selector(self, leaf: Leaf, attribute: str | None = None) -> str:
        self.own = leaf.role
        conditions = " and ".join(self.expressions.text(condition, NOT) for condition in self.inside.get(leaf.role, ()))
        self.own = ""
        text = f"{word(leaf.type)}({conditions})"
        if attribute is not None:
            text += f".{word(attribute)}"
        return f"{text} as {role_name(leaf.role)}" if leaf.role in self.aliased else text

    def _step(self, step: Step) -> Iterable[str]:
        match step:
            case Selection(leaf, policy, within, count):
                chosen = policy if count == 1 else f"{count}-{policy}"
                yield f"{chosen} {self._selector(leaf)} {_range(within)}"
            case Absence(leaf, bounds):
                yield f"not {self._selector(leaf)} {_range(bounds)}"
            case Aggregate():
                yield from self._aggregate(step)

    def _aggregate(self, step: Aggregate) -> Iterable[str]:
        """The aggregate with the first condition that can take it in, then the other conditions on its value."""
        call = f"{step.function}({self._selector(step.leaf, step.attribute)} {_range(step.range)})"
        conditions = list(self.about.get(step.name, ()))
        place = next((i for i, condition in enumerate(conditions) if _takes_in(condition, step.name)), None)
        if place is None:
            yield f"${word(step.name)} = {call}"
        else:
            condition = conditions.pop(place)
            assert isinstance(condition, e.Binary)
            if not self._is_automatic(step) or self._uses(step.name) != 1:
                call = f"${word(step.name)} = {call}"
            if condition.left == e.Parameter(step.name):
                yield f"{call} {condition.operator} {self.expressions.text(condition.right, SUM)}"
            else:
                yield f"{self.expressions.text(condition.left, SUM)} {condition.operator} {call}"
        for condition in conditions:
            yield self.expressions.text(condition, COMPARISON)

    def _is_automatic(self, step: Aggregate) -> bool:
        """Whether the parser would give the aggregate this very name."""
        earlier: set[str] = set()
        for earlier_step in self.chain.steps:
            if earlier_step is step:
                break
            if isinstance(earlier_step, Aggregate):
                earlier.add(earlier_step.name)
        number = 1
        while f"_{number}" in earlier:
            number += 1
        return step.name == f"_{number}"

    def _uses(self, parameter: str) -> int:
        values = [*self.rule.pattern.where, *(attribute.value for attribute in self.rule.attributes)]
        return sum(part == e.Parameter(parameter) for expression in values for part in e.walk(expression))


def _takes_in(condition: e.Expression, parameter: str) -> bool:
    """Whether the condition compares the parameter itself with something else."""
    if not isinstance(condition, e.Binary) or condition.operator not in e.COMPARISONS[:6]:
        return False
    value = e.Parameter(parameter)
    sides = (condition.left, condition.right)
    return any(one == value and parameter not in e.parameters_of(other) for one, other in (sides, sides[::-1]))


def _first_misnamed(leaves: Iterable[Leaf], used: set[str]) -> str | None:
    used = set(used)
    numbers: dict[str, int] = {}
    for leaf in leaves:
        automatic = next_name(leaf.type, used, numbers)
        if automatic != leaf.role:
            return leaf.role
        used.add(automatic)
    return None


def _range(bounds: Within | Between) -> str:
    if isinstance(bounds, Within):
        return f"within {window(bounds.length_us)} from {role_name(bounds.origin)}"
    return f"between {role_name(bounds.one)} and {role_name(bounds.other)}"
