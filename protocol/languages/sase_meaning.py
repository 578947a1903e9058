"""What names and expressions mean inside one SASE rule: attributes, roles with an index, and aggregates."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.protocol import expressions as e
from headwater.protocol.functions import Functions
from headwater.protocol.languages import syntax as s
from headwater.protocol.languages.diagnostics import Problems
from headwater.protocol.languages.type_checking import Meaning, Placed, TypedExpression, Types, a, comparable
from headwater.protocol.pattern import (
    Part,
    leaves,
    positive_leaves,
    repeated_roles,
)
from headwater.protocol.text import listed, suggestion


class SaseMeaning(Meaning):
    """Names inside one SASE rule: the roles of its pattern."""

    def __init__(self, problems: Problems, types: Types, functions: Functions, root: Part) -> None:
        super().__init__(problems, types, functions)
        self.roles = {leaf.role: leaf.type for leaf in leaves(root)}
        self.positive = {leaf.role for leaf in positive_leaves(root)}
        self.repeated = repeated_roles(root)
        self.in_same = False
        self.in_output = False

    def bare(self, node: s.Bare) -> TypedExpression:
        if self.in_same:
            return self._shared_attribute(node)
        if node.name in self.roles:
            self.problems.add(node.at, f"{node.name!r} is an event, not a value", f"write {node.name}.attribute")
        else:
            self.problems.add(
                node.at, f"unbound name {node.name!r}", f"write role.{node.name}, or '{node.name}' for a string"
            )
        return TypedExpression(e.Constant(None), "any")

    def _shared_attribute(self, node: s.Bare) -> TypedExpression:
        kinds: list[str] = []
        for role, type_name in self.roles.items():
            kind = self.types.attribute_kind(type_name, node.name)
            if kind is None:
                self.problems.add(
                    node.at,
                    f"{type_name} has no attribute {node.name!r}",
                    f"SAME needs it of every event; {type_name} has: {listed(self.types.attributes(type_name))}",
                )
            elif any(not comparable(kind, other) for other in kinds):
                self.problems.add(
                    node.at,
                    f"type mismatch: {node.name!r} is {a(kind)} in {role!r} and {a(kinds[0])} in others",
                    "SAME compares it among all events",
                )
            kinds.append(kind or "any")
        return TypedExpression(e.Attribute("", node.name), kinds[0] if len(set(kinds)) == 1 else "any")

    def dollar(self, node: s.Dollar) -> TypedExpression:
        self.problems.add(
            node.at, f"unknown parameter ${node.name}", "SASE has none: name an attribute, as in a.v = b.v"
        )
        return TypedExpression(e.Constant(None), "any")

    def same(self, node: s.SameKeys) -> Iterator[Placed]:
        self.in_same = True
        for key in node.keys:
            yield Placed(e.Same(self.value(key).expression), key.at)
        self.in_same = False

    def path(self, node: s.Path) -> TypedExpression:
        role = node.base.text
        if self.in_same:
            self.problems.add(node.at, "SAME takes the attribute alone", f"write SAME[{node.name.text}]")
            return TypedExpression(e.Constant(None), "any")
        if not self._check_role(node.base):
            return TypedExpression(e.Constant(None), "any")
        index = self._index(node) if node.indexed else ""
        if self.in_output and role in self.repeated and index in ("", "i-1"):
            self.problems.add(
                node.at,
                f"{role!r} stands for several events here",
                f"write {role}[first].{node.name.text}, {role}[last].{node.name.text} or an aggregate",
            )
        return self.attribute(self.roles[role], role, node.name, index)

    def _check_role(self, word: s.Word) -> bool:
        role = word.text
        if role not in self.roles:
            self.problems.add(word.at, f"unbound name {role!r}", suggestion(role, self.roles, "the pattern has"))
            return False
        if self.in_output and role not in self.positive:
            self.problems.add(word.at, f"{role!r} has no value here", "it is negated, so no event stands for it")
            return False
        return True

    def _index(self, node: s.Path) -> e.Index:
        role, index = node.base.text, node.index
        if role not in self.repeated:
            self.problems.add(
                node.at, f"{role!r} is a single event and has no elements", f"write {role}.{node.name.text}"
            )
            return ""
        match index:
            case None | s.Bare(name="i"):
                return ""
            case s.Bare(name=("first" | "last") as which):
                return "first" if which == "first" else "last"
            case s.Literal(value=1):
                return "first"
            case s.Arithmetic(operator=s.Word(text="-"), left=s.Bare(name="i"), right=s.Literal(value=1)):
                return "i-1"
            case _:
                self.problems.add(
                    index.at, "this element cannot be named", "write [i], [i-1], [1], [first], [last] or []"
                )
                return ""

    def aggregate(self, node: s.FoldCall | s.AggregateCall) -> TypedExpression:
        assert isinstance(node, s.FoldCall)
        function = node.function.text.lower()
        missing = TypedExpression(e.Constant(None), "any")
        if len(node.arguments) != 1:
            hint = {"min": "least(..) compares several values", "max": "greatest(..) compares several values"}
            self.problems.add(
                node.at, f"{node.function.text} takes 1 argument, not {len(node.arguments)}", hint.get(function, "")
            )
            return missing
        base, name = self._folded(node.arguments[0])
        if base is None:
            self.problems.add(
                node.arguments[0].at, f"{node.function.text} aggregates a repeated event", "write it as in avg(b[].v)"
            )
            return missing
        if not self._check_role(base):
            return missing
        if base.text not in self.repeated:
            self.problems.add(
                base.at, f"{base.text!r} is a single event, so there is nothing to aggregate", "repeat it with '+'"
            )
            return missing
        if name is None:
            if function != "count":
                self.problems.add(
                    base.at, f"{node.function.text} needs an attribute", f"write {function}({base.text}[].attribute)"
                )
            return TypedExpression(e.Fold(function, base.text, None), "int")
        kind = self.attribute_kind(self.roles[base.text], name)
        if function in ("sum", "avg") and kind not in ("int", "float", "any"):
            self.problems.add(
                name.at, f"type mismatch: {function} needs numbers, but this is {a(kind)}", "use count instead"
            )
        fold = e.Fold(function, base.text, name.text)
        return TypedExpression(fold, {"count": "int", "avg": "float"}.get(function, kind))

    @staticmethod
    def _folded(node: s.Syntax) -> tuple[s.Word | None, s.Word | None]:
        match node:
            case s.Path(index=None):
                return node.base, node.name
            case s.Bracketed(arguments=[]):
                return node.base, None
            case s.Bare():
                return s.Word(node.at, node.name), None
            case _:
                return None, None
