"""``values:`` of a source that makes its events up: what each attribute is drawn from."""

from __future__ import annotations

import math
from typing import Final

import yaml

from headwater.deploy.network.sheet import Sheet
from headwater.deploy.network.tree import is_null
from headwater.node.traces.types import BOOLEANS
from headwater.protocol.edge import Choice, Count, Cycle, Generator, Normal, Uniform
from headwater.protocol.events import EventType, Value
from headwater.protocol.languages.diagnostics import listed, suggestion
from headwater.protocol.languages.meaning import a as with_article

KEYS: Final = ("uniform", "normal", "choice", "sequence")
EXAMPLE: Final = "write a value, or {uniform: [0, 60]}, {normal: [20, 5]}, {choice: [A1, A2]} or {sequence: [1, 2, 3]}"


def read_values(
    sheet: Sheet, place: yaml.Node, values: yaml.Node | None, event_type: EventType
) -> tuple[Generator, ...] | None:
    """A generator for every attribute of the type; None if one of them is wrong, which the sheet then knows."""
    given: dict[str, Generator | None] = {}
    if values is not None and not is_null(values):
        for name, (key, node) in sheet.entries(values, "values", None, "write {area: A1, value: {..}}").items():
            if event_type.position(name) is None:
                hint = suggestion(name, event_type.attributes, f"{event_type.name} has") or "leave it out"
                sheet.error(key, f"{event_type.name} has no attribute {name!r}", hint)
                given[name] = None
            else:
                given[name] = _Reader(sheet, event_type, name).generator(node)
    missing = [
        name
        for name, optional in zip(event_type.attributes, event_type.optional, strict=True)
        if name not in given and not optional
    ]
    if missing:
        example = ", ".join(f"{name}: {_example(event_type.kind(name))}" for name in missing)
        sheet.error(
            place,
            f"nothing says which values {event_type.name} events have for {listed(missing)}",
            f"add values: {{{example}}} or declare the attribute as optional with '?'",
        )
        return None
    made = [given.get(name, Cycle((None,))) for name in event_type.attributes]
    whole = tuple(each for each in made if each is not None)
    return whole if len(whole) == len(made) and None not in given.values() else None


def _example(kind: str) -> str:
    return {"string": "{choice: [a, b]}", "bool": "{choice: [true, false]}"}.get(kind, "{uniform: [0, 100]}")


class _Reader:
    """Reads the generator of one attribute."""

    def __init__(self, sheet: Sheet, event_type: EventType, attribute: str) -> None:
        self.sheet = sheet
        self.attribute = f"{event_type.name}.{attribute}"
        self.kind = event_type.kind(attribute)
        self.optional = event_type.is_optional(attribute)

    def generator(self, node: yaml.Node) -> Generator | None:
        if isinstance(node, yaml.SequenceNode):
            self.sheet.error(node, f"{self.attribute} is given a list", "write {choice: [..]} or {sequence: [..]}")
            return None
        if not isinstance(node, yaml.MappingNode):
            constant = self.value(node)
            return None if isinstance(constant, _Wrong) else Cycle((constant,))
        entries = self.sheet.entries(node, f"the values of {self.attribute}", KEYS)
        if len(entries) != 1:
            if len(entries) == len(node.value):  # otherwise an unknown key has been reported already
                self.sheet.error(node, f"{self.attribute} needs exactly one way to draw its values", EXAMPLE)
            return None
        ((way, (_, given)),) = entries.items()
        match way:
            case "uniform" | "normal":
                return self._numbers(way, given)
            case "choice":
                return self._choice(given)
            case _:
                return self._sequence(given)

    def _numbers(self, way: str, node: yaml.Node) -> Generator | None:
        names = "[low, high]" if way == "uniform" else "[mean, deviation]"
        if self.kind not in ("int", "float", "any"):
            self.sheet.error(node, f"{self.attribute} is {with_article(self.kind)}, not a number", "use choice")
            return None
        items = self.sheet.items(node, way, f"write {{{way}: {names}}}")
        numbers = [self.number(item) for item in items]
        if len(numbers) != 2 or any(number is None for number in numbers):
            if len(numbers) != 2 and isinstance(node, yaml.SequenceNode):
                self.sheet.error(node, f"{way} takes two numbers, not {len(numbers)}", f"write {{{way}: {names}}}")
            return None
        one, other = numbers
        assert one is not None
        assert other is not None
        if way == "normal":
            if other < 0:
                self.sheet.error(items[1], "a deviation cannot be negative", f"write {{normal: {names}}}")
                return None
            return Normal(one, other, self.kind == "int")
        if one > other:
            self.sheet.error(node, f"{one:g} is more than {other:g}", "write the smaller number first")
            return None
        whole = self.kind == "int" or (self.kind == "any" and one == int(one) and other == int(other))
        if self.kind == "int" and (one != int(one) or other != int(other)):
            self.sheet.error(node, f"{self.attribute} is an int", "write whole numbers")
            return None
        return Uniform(int(one), int(other), True) if whole else Uniform(one, other, False)

    def _choice(self, node: yaml.Node) -> Generator | None:
        if isinstance(node, yaml.MappingNode):
            entries = [(key, self.number(weight), weight) for key, weight in node.value]
            for _, weight, place in entries:
                if weight is not None and weight <= 0:
                    self.sheet.error(place, "a weight is more than nothing", "leave the value out instead")
            keys = self._all([key for key, _, _ in entries])
            weights = tuple(weight for _, weight, _ in entries if weight is not None and weight > 0)
            return Choice(keys, weights) if keys and len(weights) == len(keys) else None
        items = self._list(node, "choice")
        return Choice(items) if items else None

    def _sequence(self, node: yaml.Node) -> Generator | None:
        if isinstance(node, yaml.ScalarNode) and self.kind in ("int", "float"):
            start = self.value(node)
            assert not isinstance(start, str)
            return None if isinstance(start, _Wrong) or start is None else Count(start)
        items = self._list(node, "sequence")
        return Cycle(items) if items else None

    def _list(self, node: yaml.Node, way: str) -> tuple[Value, ...] | None:
        items = self.sheet.items(node, way, f"write {{{way}: [a, b, c]}}")
        if not items and isinstance(node, yaml.SequenceNode):
            self.sheet.error(node, f"{way} needs at least one value", f"write {{{way}: [a, b, c]}}")
        return self._all(items)

    def _all(self, nodes: list[yaml.Node]) -> tuple[Value, ...] | None:
        found = [self.value(node) for node in nodes]
        good = tuple(value for value in found if not isinstance(value, _Wrong))
        return good if len(good) == len(found) else None

    def number(self, node: yaml.Node) -> float | None:
        try:
            number = float(node.value) if isinstance(node, yaml.ScalarNode) else math.nan
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            self.sheet.error(node, f"{self.attribute}: this is not a number", "write a number such as 20 or 0.5")
            return None
        return number

    def value(self, node: yaml.Node) -> Value | _Wrong:
        """A scalar as the kind of the attribute has it; a string is taken as written, also 007 or no."""
        if is_null(node) and self.optional:
            return None
        if not isinstance(node, yaml.ScalarNode) or is_null(node):
            self.sheet.error(node, f"{self.attribute} must be a single value", EXAMPLE)
            return _Wrong()
        text = str(node.value)
        try:
            match self.kind:
                case "string":
                    return text
                case "bool":
                    return BOOLEANS[text]
                case "int":
                    return int(text)
                case "float":
                    number = float(text)
                    if not math.isfinite(number):
                        raise ValueError
                    return number
                case _:
                    return _plain(node)
        except (ValueError, KeyError):
            self.sheet.error(node, f"{self.attribute} is {with_article(self.kind)}, but {text!r} is not")
            return _Wrong()


class _Wrong:
    """In place of a value that cannot be used."""


def _plain(node: yaml.ScalarNode) -> Value:
    """A scalar of no declared kind as YAML reads it; what is no number or boolean there (a date) stays text."""
    text = str(node.value)
    match node.tag.rpartition(":")[2]:
        case "int":
            return int(text, 0) if text.lstrip("+-")[:1] != "0" else int(text, 10)
        case "float":
            return float(text)
        case "bool":
            return text.lower() in ("true", "yes", "on")
        case _:
            return text
