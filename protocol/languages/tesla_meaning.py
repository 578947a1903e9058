"""What names and expressions mean inside one TESLA rule: attributes, roles, ``$parameters`` and aggregates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from headwater.protocol import expressions as e
from headwater.protocol.functions import Functions
from headwater.protocol.languages import syntax as s
from headwater.protocol.languages.diagnostics import UNKNOWN_EVENT_TYPE, Problems
from headwater.protocol.languages.foreign_syntax import hint_for_word
from headwater.protocol.languages.type_checking import Meaning, Placed, TypedExpression, Types, a
from headwater.protocol.languages.windows import length_us
from headwater.protocol.pattern import (
    Aggregate,
    Between,
    Leaf,
    Selection,
    Step,
    Within,
)
from headwater.protocol.text import suggestion


@dataclass(slots=True)
class Binding:
    """What a ``$parameter`` stands for; ``hidden`` where it is bound inside a negation or an aggregate."""

    value: TypedExpression
    hidden: str | None = None


@dataclass(slots=True)
class RuleNames:
    """The names of one rule, in the order in which the text introduces them."""

    roles: dict[str, str] = field(default_factory=dict)
    """Positive roles introduced so far and their types."""
    all_roles: dict[str, int] = field(default_factory=dict)
    """Every positive role of the rule and where it stands, to tell *later* from *unknown*."""
    hidden: dict[str, str] = field(default_factory=dict)
    """Roles of negations and aggregates, and what they are called in a message."""
    bound: dict[str, Binding] = field(default_factory=dict)


class TeslaMeaning(Meaning):
    """Names inside one TESLA rule. ``own`` is the selector at hand, whose attributes need no role in front."""

    def __init__(self, problems: Problems, types: Types, functions: Functions) -> None:
        super().__init__(problems, types, functions)
        self.names = RuleNames()
        self.own: Leaf | None = None
        self.steps: list[Step] = []
        self.where: list[e.Expression] = []
        self.aggregates_allowed = True
        self.hidden_roles: dict[int, str] = {}

    # Names

    def bare(self, node: s.Bare) -> TypedExpression:
        word = s.Word(node.at, node.name)
        if self.own is not None:
            return self.attribute(self.own.type, self.own.role, word)
        roles = [role for role, kind in self.names.roles.items() if self.types.attribute_kind(kind, node.name)]
        hint = f"write {roles[0]}.{node.name}" if roles else "write it as Role.attribute"
        self.problems.add(node.at, f"unbound name {node.name!r}: it is not clear whose attribute this is", hint)
        return TypedExpression(e.Constant(None), "any")

    def dollar(self, node: s.Dollar) -> TypedExpression:
        binding = self.names.bound.get(node.name)
        if binding is None:
            hint = suggestion(f"{node.name}", [f"${name}" for name in self.names.bound], "bound so far")
            self.problems.add(
                node.at,
                f"unbound parameter ${node.name}",
                hint or f"bind it first, as in Smoke(area = ${node.name})",
            )
            return TypedExpression(e.Constant(None), "any")
        if binding.hidden is not None and binding.hidden != (self.own.role if self.own else None):
            self.problems.add(
                node.at,
                f"${node.name} has no value here",
                f"it is bound inside {self.names.hidden[binding.hidden]}, whose events are not part of the match",
            )
        return binding.value

    def path(self, node: s.Path) -> TypedExpression:
        if node.indexed:
            self.problems.add(node.base.at, "TESLA has no repeated events, so there is nothing to index")
        role = node.base.text
        if self.own is not None and role == self.own.role:
            return self.attribute(self.own.type, role, node.name)
        if not self.check_role(node.base):
            return TypedExpression(e.Constant(None), "any")
        return self.attribute(self.names.roles[role], role, node.name)

    def check_role(self, word: s.Word) -> bool:
        """Whether the role has been introduced; says what is wrong if not."""
        role = word.text
        if role in self.names.roles:
            return True
        if role in self.names.all_roles:
            self.problems.add(word.at, f"unbound name {role!r}", "it is introduced only later in the text")
        elif role in self.names.hidden:
            self.problems.add(
                word.at, f"unbound name {role!r}", f"it is inside {self.names.hidden[role]}, so no event stands for it"
            )
        else:
            hint = suggestion(role, self.names.roles, "introduced so far")
            self.problems.add(word.at, f"unbound name {role!r}", hint)
        return False

    def same(self, node: s.SameKeys) -> Iterator[Placed]:
        self.problems.add(node.at, "TESLA has no SAME", "bind a $parameter in one event and use it in the others")
        return iter(())

    def value(self, node: s.Syntax) -> TypedExpression:
        if isinstance(node, s.SameKeys):
            list(self.same(node))
            return TypedExpression(e.Constant(True), "bool")
        return super().value(node)

    # Selectors

    def leaf(self, selector: s.Selector, role: str) -> Leaf:
        name = selector.type
        if not self.types.has(name.text):
            hint = hint_for_word(name.text, "tesla") or suggestion(name.text, self.types.names, "event types")
            self.problems.add(name.at, f"unknown event type {name.text!r}", hint, UNKNOWN_EVENT_TYPE)
        return Leaf(role, name.text)

    def constraints(self, selector: s.Selector, leaf: Leaf, hidden: bool) -> Iterator[e.Expression]:
        """The conjuncts inside the brackets of a selector; ``attribute = $x`` may bind instead."""
        self.own, self.aggregates_allowed = leaf, False
        for item in flat(selector.constraints):
            if self._binds(item, leaf, hidden):
                continue
            for condition in self.conjuncts(item):
                if leaf.role not in e.roles_of(condition.expression):
                    self.problems.add(
                        condition.at,
                        f"this condition says nothing about {leaf.type}",
                        f"conditions in the brackets of {leaf.type}(..) must name one of its attributes",
                    )
                yield condition.expression
        self.own, self.aggregates_allowed = None, True

    def _binds(self, item: s.Syntax, leaf: Leaf, hidden: bool) -> bool:
        if not isinstance(item, s.ComparisonChain) or [operator.text for operator in item.operators] != ["="]:
            return False
        for name, value in (item.operands, item.operands[::-1]):
            if isinstance(name, s.Dollar) and name.name not in self.names.bound:
                attribute = self._own_attribute(value, leaf)
                if attribute is not None:
                    bound = self.attribute(leaf.type, leaf.role, attribute)
                    self.names.bound[name.name] = Binding(bound, leaf.role if hidden else None)
                    return True
        return False

    @staticmethod
    def _own_attribute(node: s.Syntax, leaf: Leaf) -> s.Word | None:
        match node:
            case s.Bare():
                return s.Word(node.at, node.name)
            case s.Path() if node.base.text == leaf.role and not node.indexed:
                return node.name
            case _:
                return None

    def range(self, written: s.WithinRange | s.BetweenRange) -> Within | Between:
        if isinstance(written, s.WithinRange):
            self.check_role(written.origin)
            return Within(length_us(written.length, self.problems), written.origin.text)
        are_roles = [self.check_role(word) for word in (written.one, written.other)]
        if all(are_roles) and written.one.text == written.other.text:
            self.problems.add(written.other.at, "nothing lies between an event and itself", "name two different events")
        return Between(written.one.text, written.other.text)

    # Aggregates

    def aggregate(self, node: s.FoldCall | s.AggregateCall) -> TypedExpression:
        assert isinstance(node, s.AggregateCall)
        return self.add_aggregate(node, None)

    def add_aggregate(self, node: s.AggregateCall, name: s.Dollar | None) -> TypedExpression:
        """Append the step that computes an aggregate; its value is the parameter of that name."""
        function = node.function.text.lower()
        if not self.aggregates_allowed:
            self.problems.add(
                node.at,
                "an aggregate cannot stand inside the brackets of an event",
                f"bind it before, as in: and $x = {node.function.text}(..), and write $x here",
            )
            return TypedExpression(e.Constant(None), "any")
        leaf = self.leaf(node.selector, self.hidden_roles[id(node.selector)])
        described = f"{node.function.text}({leaf.type}(..))"
        self.names.hidden[leaf.role] = described
        bounds = self.range(node.range)
        where = list(self.constraints(node.selector, leaf, hidden=True))
        kind = self._aggregate_kind(node, function, leaf)
        label = name.name if name is not None else self._automatic_name()
        value = TypedExpression(e.Parameter(label), kind)
        self.names.bound[label] = Binding(value)
        attribute = node.attribute.text if node.attribute else None
        self.steps.append(Aggregate(label, function, leaf, attribute, bounds))
        self.where.extend(where)
        return value

    def _automatic_name(self) -> str:
        number = 1
        while f"_{number}" in self.names.bound:
            number += 1
        return f"_{number}"

    def _aggregate_kind(self, node: s.AggregateCall, function: str, leaf: Leaf) -> str:
        if node.attribute is None:
            if function != "count":
                self.problems.add(
                    node.at,
                    f"{node.function.text} needs an attribute",
                    f"write {node.function.text}({leaf.type}(..).attribute ..)",
                )
            return "int" if function == "count" else "any"
        kind = self.attribute_kind(leaf.type, node.attribute)
        if function in ("sum", "avg") and kind not in ("int", "float", "any"):
            self.problems.add(
                node.attribute.at,
                f"type mismatch: {function} needs numbers, but this is {a(kind)}",
                "use count instead",
            )
            return "any"
        return {"count": "int", "avg": "float"}.get(function, kind)

    def condition(self, node: s.Syntax) -> None:
        """A step of its own: comparisons of aggregates, which may be bound to parameters on the way."""
        while isinstance(node, s.Inner):
            node = node.inside
        before = len(self.steps)
        match node:
            case s.AggregateCall():
                self.add_aggregate(node, None)
                remedy = "compare it, or bind it: $x = " + node.function.text
                self.problems.add(node.at, "the value of this aggregate is not used", remedy)
                return
            case s.ComparisonChain():
                rest = self._bind_aggregates(node)
                if rest is None:
                    return
                node = rest
        for condition in self.conjuncts(node):
            if self._belongs_to_aggregate(condition.expression):
                self.where.append(condition.expression)
            elif len(self.steps) == before or not e.parameters_of(condition.expression):
                self.problems.add(
                    condition.at,
                    "a condition of its own must be about an aggregate",
                    "put a condition on an event into the brackets of that event",
                )

    def _belongs_to_aggregate(self, condition: e.Expression) -> bool:
        """Whether the last thing the text introduced among what the condition names is an aggregate."""
        places = {step.name: i for i, step in enumerate(self.steps) if isinstance(step, Aggregate)}
        latest = max((places.get(name, -1) for name in e.parameters_of(condition)), default=-1)
        roles = {step.leaf.role: i for i, step in enumerate(self.steps) if isinstance(step, Selection)}
        return latest >= 0 and latest > max((roles.get(role, -1) for role in e.roles_of(condition)), default=-1)

    def _bind_aggregates(self, chain: s.ComparisonChain) -> s.ComparisonChain | None:
        """``45 < $t = Avg(..)``: computes the aggregate as $t and leaves ``45 < $t``; None if nothing is left."""
        operands, operators = list(chain.operands), list(chain.operators)
        position = 0
        while position < len(operators):
            pair = operands[position], operands[position + 1]
            for name, value in (pair, pair[::-1]):
                if (
                    operators[position].text == "="
                    and isinstance(name, s.Dollar)
                    and isinstance(value, s.AggregateCall)
                    and name.name not in self.names.bound
                ):
                    self.add_aggregate(value, name)
                    operands[position : position + 2] = [name]
                    del operators[position]
                    break
            else:
                position += 1
        return s.ComparisonChain(operands, operators, chain.depth) if operators else None


def flat(items: Iterable[s.Syntax]) -> Iterator[s.Syntax]:
    """The conditions of a selector one by one, whether joined by ``and`` or by commas."""
    for item in items:
        if isinstance(item, s.All):
            yield from flat(item.items)
        else:
            yield item


def aggregates_in(node: s.Syntax) -> Iterator[s.AggregateCall]:
    """The aggregates of an expression in the order of the text."""
    if isinstance(node, s.AggregateCall):
        yield node
    for part in parts_of(node):
        yield from aggregates_in(part)


def parts_of(node: s.Syntax) -> Sequence[s.Syntax]:
    """The expressions of which an expression is made, in the order of the text; what aggregates name is not of them."""
    match node:
        case s.Inner():
            return [node.inside]
        case s.Negative() | s.Not():
            return [node.operand]
        case s.Arithmetic():
            return [node.left, node.right]
        case s.ComparisonChain():
            return node.operands
        case s.All() | s.Any():
            return node.items
        case s.Called() | s.Bracketed() | s.RemoteLookup():
            return node.arguments
        case s.Range():
            return [node.operand, node.low, node.high]
        case s.In():
            return [node.operand, *(node.members if isinstance(node.members, list) else [node.members])]
        case _:
            return ()
