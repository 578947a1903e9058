"""The section ``values:`` of a source that generates its events: the distribution of each attribute."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, TypeVar

import yaml
from pydantic import Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from headwater.deploy.network.fields import HIDDEN, FilePart, mapping
from headwater.deploy.network.mistakes import Flaw, mistake, together, wrong
from headwater.deploy.network.models.sources import SourcePart
from headwater.deploy.network.reading import read_part
from headwater.deploy.network.values import float_of
from headwater.deploy.network.yaml_file import Sheet
from headwater.deploy.network.yaml_tree import ItemList, KeyTable, Scalar, is_null
from headwater.node.traces.types import BOOLEANS
from headwater.protocol.edge import Choice, Count, Cycle, Generator, Normal, Uniform
from headwater.protocol.events import EventType, Value
from headwater.protocol.languages.type_checking import a as with_article
from headwater.protocol.text import listed, suggestion

T = TypeVar("T")

EXAMPLE: Final = "write a value, or {uniform: [0, 60]}, {normal: [20, 5]}, {choice: [A1, A2]} or {sequence: [1, 2, 3]}"


def read_values(sheet: Sheet, part: SourcePart, event_type: EventType) -> tuple[Generator, ...] | None:
    """A generator for every attribute of the type; None if one of them is wrong, which the sheet then knows."""
    if "values" in part.broken:
        return None
    generators: dict[str, Generator | None] = {}
    for name, (key, node) in part.values.table.entries.items() if part.values is not None else ():
        if event_type.position(name) is None:
            hint = suggestion(name, event_type.attributes, f"{event_type.name} has") or "leave it out"
            sheet.error(key, f"{event_type.name} has no attribute {str(name)!r}", hint)
            generators[name] = None
            continue
        of = Drawn(f"{event_type.name}.{name}", event_type.kind(name), event_type.is_optional(name))
        generators[name] = None
        if isinstance(node, yaml.SequenceNode):
            sheet.error(node, f"{of.name} is given a list", "write {choice: [..]} or {sequence: [..]}")
        elif (drawn := read_part(sheet, node, GeneratorPart, of=of, path=(of.name,))) is not None:
            generators[name] = drawn.generator
    missing = [
        name
        for name, optional in zip(event_type.attributes, event_type.optional, strict=True)
        if name not in generators and not optional
    ]
    if missing:
        example = ", ".join(f"{name}: {_example(event_type.kind(name))}" for name in missing)
        sheet.error(
            part.place,
            f"nothing says which values {event_type.name} events have for {listed(missing)}",
            f"add values: {{{example}}} or declare the attribute as optional with '?'",
        )
        return None
    whole = tuple(generator for generator in generators.values() if generator is not None)
    if len(whole) < len(generators):
        return None
    return tuple(generators.get(name) or Cycle((None,)) for name in event_type.attributes)


def _example(kind: str) -> str:
    return {"string": "{choice: [a, b]}", "bool": "{choice: [true, false]}"}.get(kind, "{uniform: [0, 100]}")


@dataclass(frozen=True, slots=True)
class Drawn:
    """The attribute that values are drawn for."""

    name: str
    kind: str
    optional: bool


def _constant(entry: Any, of: Drawn) -> Generator:
    return Cycle((_value(entry, of),))


def _uniform(entry: Any, of: Drawn) -> Generator:
    low, high = _pair(entry, of, "uniform", "[low, high]")
    if low > high:
        raise wrong(f"{low:g} is more than {high:g}", "write the smaller number first")
    whole = low == int(low) and high == int(high)
    if of.kind == "int" and not whole:
        raise wrong(f"{of.name} is an int", "write whole numbers")
    return Uniform(int(low), int(high), True) if whole and of.kind != "float" else Uniform(low, high, False)


def _normal(entry: Any, of: Drawn) -> Generator:
    mean, deviation = _pair(entry, of, "normal", "[mean, deviation]")
    if deviation < 0:
        together([((1,), wrong("a deviation cannot be negative", "write {normal: [mean, deviation]}"))])
    return Normal(mean, deviation, of.kind == "int")


def _pair(entry: Any, of: Drawn, way: str, names: str) -> tuple[float, ...]:
    if of.kind not in ("int", "float", "any"):
        raise wrong(f"{of.name} is {with_article(of.kind)}, not a number", "use choice")
    if not isinstance(entry, ItemList):
        raise mistake("list", what=way, cure=f"write {{{way}: {names}}}")
    numbers = _all(enumerate(entry), _number, of)
    if len(numbers) != 2:
        raise wrong(f"{way} takes two numbers, not {len(numbers)}", f"write {{{way}: {names}}}")
    return numbers


def _choice(entry: Any, of: Drawn) -> Generator:
    if not isinstance(entry, KeyTable):
        return Choice(_values(entry, of, "choice"))
    names = (None if is_null(key) else name for name, (key, _) in mapping(entry, "choice", EXAMPLE).entries.items())
    keys = _values(ItemList(names), of, "choice")
    return Choice(keys, _all(entry.items(), _weight, of))


def _sequence(entry: Any, of: Drawn) -> Generator:
    if isinstance(entry, Scalar) and of.kind in ("int", "float"):
        start = _value(entry, of)
        assert not isinstance(start, str | None)
        return Count(start)
    return Cycle(_values(entry, of, "sequence"))


def _values(entry: Any, of: Drawn, way: str) -> tuple[Value, ...]:
    if not isinstance(entry, ItemList):
        raise mistake("list", what=way, cure=f"write {{{way}: [a, b, c]}}")
    if not entry:
        raise wrong(f"{way} needs at least one value", f"write {{{way}: [a, b, c]}}")
    return _all(enumerate(entry), _value, of)


def _all(entries: Iterable[tuple[int | str, Any]], read: Callable[[Any, Drawn], T], of: Drawn) -> tuple[T, ...]:
    """What is read of all of them, or everything that is wrong with them."""
    values: list[T] = []
    flaws: list[Flaw] = []
    for at, entry in entries:
        try:
            values.append(read(entry, of))
        except PydanticCustomError as error:
            flaws.append(((at,), error))
    together(flaws)
    return tuple(values)


def _number(entry: Any, of: Drawn) -> float:
    number = float_of(entry)
    if not math.isfinite(number):
        raise wrong(f"{of.name}: this is not a number", "write a number such as 20 or 0.5")
    return number


def _weight(entry: Any, of: Drawn) -> float:
    weight = _number(entry, of)
    if weight <= 0:
        raise wrong("a weight is more than nothing", "leave the value out instead")
    return weight


def _value(entry: Any, of: Drawn) -> Value:
    """A scalar as the kind of the attribute has it; a string is taken as written, also 007 or no."""
    if entry is None and of.optional:
        return None
    if not isinstance(entry, Scalar):
        raise wrong(f"{of.name} must be a single value", EXAMPLE)
    try:
        match of.kind:
            case "string":
                return str(entry)
            case "bool":
                return BOOLEANS[entry]
            case "int":
                return int(entry)
            case "float":
                number = float(entry)
                if not math.isfinite(number):
                    raise ValueError
                return number
            case _:
                return _plain(entry)
    except (ValueError, KeyError):
        raise wrong(f"{of.name} is {with_article(of.kind)}, but {str(entry)!r} is not", node=entry.node) from None


def _plain(text: Scalar) -> Value:
    """A scalar of no declared kind as YAML reads it; what is no number or boolean there (a date) stays text."""
    match text.node.tag.rpartition(":")[2]:
        case "int":
            return int(text, 0) if text.lstrip("+-")[:1] != "0" else int(text, 10)
        case "float":
            return float(text)
        case "bool":
            return text.lower() in ("true", "yes", "on")
        case _:
            return str(text)


@dataclass(frozen=True, eq=False)
class DrawingWay:
    """A way to draw values; what it makes of an entry depends on the attribute."""

    make: Callable[[Any, Drawn], Generator]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_plain_validator_function(lambda entry, info: self.make(entry, info.context))


class GeneratorPart(FilePart):
    """What the values of an attribute are drawn from."""

    WHAT: ClassVar = "the values of <0>"
    SHORT: ClassVar = HIDDEN

    constant: Annotated[Any, DrawingWay(_constant)] = Field(None, alias=HIDDEN)
    uniform: Annotated[Any, DrawingWay(_uniform)] = None
    normal: Annotated[Any, DrawingWay(_normal)] = None
    choice: Annotated[Any, DrawingWay(_choice)] = None
    sequence: Annotated[Any, DrawingWay(_sequence)] = None

    def _ways(self) -> list[Generator]:
        ways = (self.constant, self.uniform, self.normal, self.choice, self.sequence)
        return [way for way in ways if way is not None]

    def flaws(self) -> Iterator[Flaw]:
        if len(self._ways()) != 1:
            yield (), mistake("lacking", what="<0>", why="needs exactly one way to draw its values", cure=EXAMPLE)

    @property
    def generator(self) -> Generator:
        (way,) = self._ways()
        return way
