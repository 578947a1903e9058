"""Attributes that every match makes equal: any of them then finds the others by hash."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headwater.node.engine.codegen.code import Piece
from headwater.node.engine.codegen.context import JoinContext
from headwater.protocol.analysis.units import Measure
from headwater.protocol.expressions import Attribute, Binary, Expression, Fold, parameters_of, roles_of, walk


def group_equalities(join: JoinContext) -> None:
    """Group attributes that every match makes equal: any member then finds any other by hash."""
    join.classes = []
    join.class_conditions = set()
    join.class_of = {}
    join.class_value = {}
    if join.in_text_order:
        return
    parent: dict[Attribute, Attribute] = {}

    def find(attribute: Attribute) -> Attribute:
        parent.setdefault(attribute, attribute)
        while parent[attribute] != attribute:
            attribute = parent[attribute]
        return attribute

    for condition in join.branch.where:
        match condition:
            case Binary("=", Attribute(index="") as left, Attribute(index="") as right):
                if join.branch.unit_of(left.role) != join.branch.unit_of(right.role):
                    parent[find(left)] = find(right)
                    join.class_conditions.add(condition)
    numbers: dict[Attribute, int] = {}
    for attribute in list(parent):
        number = numbers.setdefault(find(attribute), len(numbers))
        if number == len(join.classes):
            join.classes.append({})
        join.classes[number].setdefault(join.branch.unit_of(attribute.role), []).append(attribute)
        join.class_of[attribute] = number


def give_classes_values(join: JoinContext) -> None:
    """The member bound first gives a class its value, which the others are then found by."""
    join.class_step = {}
    join.class_source = {}
    forced = join.units[join.trigger].leaves[join.trigger_leaf].role if join.trigger >= 0 else ""
    for number, members in enumerate(join.classes):
        givers = {unit: attributes[0] for unit, attributes in members.items() if not join.units[unit].many}
        if of_trigger := of_role(members.get(join.trigger, ()), forced):
            givers[join.trigger] = of_trigger[0]
        if not givers:
            continue
        first = min(givers, key=lambda unit: join.element_step[unit])
        with join.reading({(givers[first].role, ""): "e" if join.units[first].many else f"r{first}"}):
            join.class_value[number] = join.scope.value(givers[first])
        join.class_step[number] = join.element_step[first]
        join.class_source[number] = givers[first]


def place_parameters(join: JoinContext) -> None:
    join.parameter_step = {}
    for step, level in enumerate(join.levels, start=1):
        if isinstance(level, Measure):
            join.parameter_step[level.name] = step
            # Named by number: the names of a pattern that came from elsewhere must not become code.
            join.parameters[level.name] = Piece(f"p{step}", level.function != "count", simple=True)


def bind_all(join: JoinContext) -> None:
    """Prepare for conditions on a finished match: every unit is bound, there is no trigger."""
    join.levels = []
    join.conditions = {}
    join.step_of = dict.fromkeys(range(len(join.units)), 0)
    join.element_step = dict(join.step_of)
    join.complete = set(join.step_of)
    join.trigger = -1
    group_equalities(join)
    give_classes_values(join)
    place_parameters(join)


def has_key(join: JoinContext, unit: int, bound: Sequence[int]) -> bool:
    return any(unit in members and any(other in members for other in bound) for members in join.classes)


def equality_key(
    join: JoinContext, role: str, where: Iterable[Expression], bound: set[int], at: int
) -> tuple[Piece, str, Expression] | None:
    """A conjunct that equates something of this role alone with something known; key, lookup, conjunct."""
    positive = join.positive
    for condition in where:
        if not isinstance(condition, Binary) or condition.operator != "=" or join.buffers.pool.accepts(condition):
            continue
        for mine, other in ((condition.left, condition.right), (condition.right, condition.left)):
            if roles_of(mine) != {role} or parameters_of(mine) or role in roles_of(other) or join.asks(mine):
                continue
            if any(isinstance(part, Fold) or (isinstance(part, Attribute) and part.index) for part in walk(condition)):
                continue
            if any(join.parameter_step[name] > at for name in parameters_of(other)):
                continue
            if not roles_of(other) <= positive or any(join.branch.unit_of(r) not in bound for r in roles_of(other)):
                continue
            if any(join.units[join.branch.unit_of(r)].many for r in roles_of(other)):
                continue
            with join.reading({(role, ""): "e"}):
                key = join.scope.value(mine)
            return key, join.scope.value(other).source, condition
    return None


def class_conditions(join: JoinContext, unit: int, role: str, used: int | None) -> list[str]:
    """Equalities with classes that already have a value, other than the one the hash lookup took care of."""
    conditions = []
    for number, members in enumerate(join.classes):
        mine = of_role(members.get(unit, ()), role)
        if join.class_step.get(number, join.step_of[unit]) >= join.step_of[unit]:
            continue
        value = join.class_value[number]
        for attribute in mine[1:] if number == used else mine:
            conditions.append(join.scope.compare("=", join.scope.value(attribute), value))
    return conditions


def class_guards(join: JoinContext, unit: int, role: str, variable: str) -> list[str]:
    """What gives a class its value must have one, and agree with itself where it is in the class twice."""
    guards = []
    with join.reading({(role, ""): variable}):
        for number, source in join.class_source.items():
            if source.role != role:
                continue
            value = join.scope.value(source)
            if value.nullable:
                guards.append(f"{value.source} is not None")
            rest = [member for member in of_role(join.classes[number][unit], role) if member != source]
            guards += [join.scope.compare("=", join.scope.value(member), value) for member in rest]
    return guards


def of_role(attributes: Iterable[Attribute], role: str) -> list[Attribute]:
    return [attribute for attribute in attributes if attribute.role == role]
