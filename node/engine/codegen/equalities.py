"""Attributes that every match makes equal: any of them then finds the others by hash."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headwater.node.engine.codegen.code import Piece
from headwater.node.engine.codegen.reading import Level, Reading
from headwater.protocol.analysis.units import Measure
from headwater.protocol.expressions import Attribute, Binary, Expression, Fold, parameters_of, roles_of, walk


class Equalities(Reading):
    """Knows which attributes are equal in every match and what value they have at each step."""

    def _equalities(self) -> None:
        """Group attributes that every match makes equal: any member then finds any other by hash."""
        self.classes: list[dict[int, list[Attribute]]] = []
        self.class_conditions: set[Expression] = set()
        self.class_of: dict[Attribute, int] = {}
        self.class_value: dict[int, Piece] = {}
        if self.in_text_order:
            return
        parent: dict[Attribute, Attribute] = {}

        def find(attribute: Attribute) -> Attribute:
            parent.setdefault(attribute, attribute)
            while parent[attribute] != attribute:
                attribute = parent[attribute]
            return attribute

        for condition in self.branch.where:
            match condition:
                case Binary("=", Attribute(index="") as left, Attribute(index="") as right):
                    if self.branch.unit_of(left.role) != self.branch.unit_of(right.role):
                        parent[find(left)] = find(right)
                        self.class_conditions.add(condition)
        numbers: dict[Attribute, int] = {}
        for attribute in list(parent):
            number = numbers.setdefault(find(attribute), len(numbers))
            if number == len(self.classes):
                self.classes.append({})
            self.classes[number].setdefault(self.branch.unit_of(attribute.role), []).append(attribute)
            self.class_of[attribute] = number

    def _value_classes(self) -> None:
        """The member bound first gives a class its value, which the others are then found by."""
        self.class_step: dict[int, int] = {}
        self.class_source: dict[int, Attribute] = {}
        """The one member whose value stands for the class: all others, of its own role too, are compared with it."""
        forced = self.units[self.trigger].leaves[self.trigger_leaf].role if self.trigger >= 0 else ""
        for number, members in enumerate(self.classes):
            givers = {unit: attributes[0] for unit, attributes in members.items() if not self.units[unit].many}
            if of_trigger := of_role(members.get(self.trigger, ()), forced):
                givers[self.trigger] = of_trigger[0]
            if not givers:
                continue
            first = min(givers, key=lambda unit: self.element_step[unit])
            with self.reading({(givers[first].role, ""): "e" if self.units[first].many else f"r{first}"}):
                self.class_value[number] = self.scope.value(givers[first])
            self.class_step[number] = self.element_step[first]
            self.class_source[number] = givers[first]

    def _place_parameters(self) -> None:
        self.parameter_step: dict[str, int] = {}
        for step, level in enumerate(self.levels, start=1):
            if isinstance(level, Measure):
                self.parameter_step[level.name] = step
                # Named by number: the names of a pattern that came from elsewhere must not become code.
                self.parameters[level.name] = Piece(f"p{step}", level.function != "count", simple=True)

    def all_bound(self) -> None:
        """Prepare for conditions on a finished match: every unit is bound, there is no trigger."""
        self.levels: list[Level | Measure] = []
        self.conditions: dict[int, list[Expression]] = {}
        self.step_of = dict.fromkeys(range(len(self.units)), 0)
        self.element_step = dict(self.step_of)
        self.complete = set(self.step_of)
        self.trigger = -1
        self._equalities()
        self._value_classes()
        self._place_parameters()

    def _distance(self, unit: int, bound: Iterable[int]) -> int:
        return min(abs(unit - other) for other in bound)

    def _has_key(self, unit: int, bound: Sequence[int]) -> bool:
        return any(unit in members and any(other in members for other in bound) for members in self.classes)

    def _equality_key(
        self, role: str, where: Iterable[Expression], bound: set[int], at: int
    ) -> tuple[Piece, str, Expression] | None:
        """A conjunct that equates something of this role alone with something known; key, lookup, conjunct."""
        positive = self.positive
        for condition in where:
            if not isinstance(condition, Binary) or condition.operator != "=":
                continue
            for mine, other in ((condition.left, condition.right), (condition.right, condition.left)):
                if roles_of(mine) != {role} or parameters_of(mine) or role in roles_of(other):
                    continue
                if any(
                    isinstance(part, Fold) or (isinstance(part, Attribute) and part.index) for part in walk(condition)
                ):
                    continue
                if any(self.parameter_step[name] > at for name in parameters_of(other)):
                    continue
                if not roles_of(other) <= positive or any(self.branch.unit_of(r) not in bound for r in roles_of(other)):
                    continue
                if any(self.units[self.branch.unit_of(r)].many for r in roles_of(other)):
                    continue
                with self.reading({(role, ""): "e"}):
                    key = self.scope.value(mine)
                return key, self.scope.value(other).source, condition
        return None

    def _class_conditions(self, unit: int, role: str, used: int | None) -> list[str]:
        """Equalities with classes that already have a value, other than the one the hash lookup took care of."""
        conditions = []
        for number, members in enumerate(self.classes):
            mine = of_role(members.get(unit, ()), role)
            if self.class_step.get(number, self.step_of[unit]) >= self.step_of[unit]:
                continue
            value = self.class_value[number]
            for attribute in mine[1:] if number == used else mine:
                conditions.append(self.scope.compare("=", self.scope.value(attribute), value))
        return conditions

    def _class_guards(self, unit: int, role: str, variable: str) -> list[str]:
        """What gives a class its value must have one, and agree with itself where it is in the class twice."""
        guards = []
        with self.reading({(role, ""): variable}):
            for number, source in self.class_source.items():
                if source.role != role:
                    continue
                value = self.scope.value(source)
                if value.nullable:
                    guards.append(f"{value.source} is not None")
                rest = [member for member in of_role(self.classes[number][unit], role) if member != source]
                guards += [self.scope.compare("=", self.scope.value(member), value) for member in rest]
        return guards


def of_role(attributes: Iterable[Attribute], role: str) -> list[Attribute]:
    return [attribute for attribute in attributes if attribute.role == role]
