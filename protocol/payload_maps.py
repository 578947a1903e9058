"""Mappings from device messages to attributes: paths into a payload, units of measurement, and the checks of both.

A place is ``payload.params.temperature``, ``payload.readings[0]``, ``payload["a name.with dots"]``; ``payload`` alone
is the whole payload. ``topic.area`` is what the level ``{area}`` of the topic stands for. With ``each``, ``item`` is
the item and ``key`` its name, or its number in a list from 0 on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any, Final

from headwater.protocol.edge import Feed, Mapped, MqttFeed, TraceFeed
from headwater.protocol.errors import ConfigError
from headwater.protocol.events import EventType
from headwater.protocol.text import closest, listed, plural, suggestion

ROOTS: Final = ("payload", "item", "key", "topic")
UNKNOWN: Final = "unknown"
"""The attribute that holds what a message has beside the attributes, where that is kept."""

_PLACE: Final = re.compile(
    r"(payload|item|key|topic)((?:\.[^.\[\]\s]+(?: +[^.\[\]\s]+)*|\[-?[0-9]{1,6}\]|\[\"[^\"]+\"\])*)"
)
_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[(-?[0-9]+)\]|\[\"([^\"]+)\"\]")
_LEVEL: Final = re.compile(r"\{([^\W\d]\w*)\}")
_WILDCARD: Final = re.compile(r"\+[0-9]+")


@dataclass(frozen=True, slots=True)
class Place:
    root: str
    steps: tuple[str | int, ...] = ()


def place_of(text: str) -> Place:
    """The place that a text names, or a ConfigError."""
    match = _PLACE.fullmatch(text.strip())
    if match is None or (match[1] == "key" and match[2]) or (match[1] == "topic" and not match[2]):
        raise ConfigError(f"{text!r} is not a place in a message")
    steps = tuple(
        int(step[2]) if step[2] is not None else step[1] or step[3] for step in _STEP.finditer(match[2])
    )  # fmt: skip
    return Place(match[1], steps)


def field_place(text: str, *, in_item: bool) -> Place:
    """The place that ``device``, ``counter`` or ``time`` names: a field of the event, or any place in the message."""
    root, rest = text.partition(".")[0].partition("[")[0], text[len(text.partition(".")[0].partition("[")[0]) :]
    if root in ROOTS and (rest or (in_item and root in ("item", "key"))):
        return place_of(text)
    return Place("item" if in_item else "payload", (text,))


def walk(value: Any, steps: Sequence[str | int]) -> Any:
    """What stands at the end of a way through maps and lists; None if the way does not lead there."""
    for step in steps:
        if step.__class__ is int:
            if value.__class__ is not list or not -len(value) <= step < len(value):
                return None
            value = value[step]
        elif value.__class__ is dict:
            value = value.get(step)
        else:
            return None
    return value


# --------------------------------------------------------------------------------------------------------------- topics


def topic_filter(topic: str) -> str:
    """The topic as a broker knows it: a level that has a name is a wildcard."""
    return "/".join("+" if _LEVEL.fullmatch(level) else level for level in topic.split("/"))


def topic_names(topic: str) -> dict[str, int]:
    """The levels that have names, each with its position among the wildcards."""
    wild = [level for level in topic.split("/") if level in ("+", "#") or _LEVEL.fullmatch(level)]
    return {match[1]: position for position, level in enumerate(wild) if (match := _LEVEL.fullmatch(level))}


# ---------------------------------------------------------------------------------------------------------------- units

_FACTORS: Final[Mapping[str, Mapping[str, str]]] = {
    "power": {"mW": "1/1000", "W": "1", "kW": "1000", "MW": "1000000"},
    "energy": {"J": "1", "kJ": "1000", "MJ": "1000000", "Wmin": "60", "Wh": "3600", "kWh": "3600000",
               "MWh": "3600000000"},
    "voltage": {"mV": "1/1000", "V": "1", "kV": "1000"},
    "current": {"mA": "1/1000", "A": "1"},
    "pressure": {"Pa": "1", "hPa": "100", "mbar": "100", "kPa": "1000", "bar": "100000",
                 "mmHg": "133.322387415", "psi": "6894.757293168"},
    "length": {"mm": "1/1000", "cm": "1/100", "m": "1", "km": "1000", "in": "0.0254", "ft": "0.3048", "mi": "1609.344"},
    "speed": {"m/s": "1", "km/h": "1000/3600", "mph": "0.44704", "kn": "1852/3600"},
    "volume": {"ml": "1/1000", "l": "1", "m3": "1000", "gal": "3.785411784"},
    "mass": {"mg": "1/1000", "g": "1", "kg": "1000", "t": "1000000", "lb": "453.59237"},
    "time": {"us": "1/1000000", "ms": "1/1000", "s": "1", "min": "60", "h": "3600", "d": "86400"},
    "share": {"%": "1/100", "share": "1"},
    "data": {"B": "1", "kB": "1000", "MB": "1000000", "KiB": "1024", "MiB": "1048576"},
}  # fmt: skip
_TEMPERATURES: Final = {"C": ("1", "0"), "F": ("5/9", "-160/9"), "K": ("1", "-273.15")}


@cache
def units() -> Mapping[str, tuple[str, Fraction, Fraction]]:
    """By unit: what it measures, and factor and offset that lead to the unit that all others of it lead to."""
    table = {name: ("temperature", Fraction(factor), Fraction(off)) for name, (factor, off) in _TEMPERATURES.items()}
    for quantity, factors in _FACTORS.items():
        for name, factor in factors.items():
            over, _, under = factor.partition("/")
            table[name] = (quantity, Fraction(over) / Fraction(under or "1"), Fraction(0))
    return table


def conversion(entry: Mapped) -> tuple[Fraction, Fraction] | None:
    """By what a number is multiplied, exactly, and what is added then; None if it stays as it is."""
    scale, offset = Fraction(repr(entry.scale)), Fraction(repr(entry.offset))
    if entry.unit is not None and entry.to is not None:
        _, factor, base = units()[entry.unit]
        _, other, other_base = units()[entry.to]
        scale, offset = scale * factor / other, (offset * factor + base - other_base) / other
    return None if scale == 1 and offset == 0 else (scale, offset)


# ------------------------------------------------------------------------------------------------------- what is wrong


@dataclass(frozen=True, slots=True)
class FeedFlaw:
    """Something wrong with what a source says: under which key, and for ``map`` of which attribute."""

    key: str
    message: str
    cure: str = ""
    attribute: str | None = None

    def __str__(self) -> str:
        where = f"{self.key}.{self.attribute}" if self.attribute is not None else self.key
        return f"{where}: {self.message}" + (f"; {self.cure}" if self.cure else "")


def feed_flaws(feed: Feed, event_type: EventType) -> Iterator[FeedFlaw]:
    """What is wrong with where the events of a source come from, as far as the source itself can tell."""
    match feed:
        case MqttFeed():
            yield from _flaws(feed, event_type)
        case TraceFeed(layout=layout):
            if len(layout.delimiter) != 1 or layout.delimiter in '"\r\n':
                yield FeedFlaw("delimiter", f"{layout.delimiter!r} cannot stand between cells", "write one character")
            if layout.time_column == layout.type_column:
                yield FeedFlaw("layout", f"the column {layout.time_column!r} cannot hold both the time and the type")
        case _:
            return


def _flaws(feed: MqttFeed, event_type: EventType) -> Iterator[FeedFlaw]:
    yield from _topic_flaws(feed, event_type)
    yield from _place_flaws(feed)
    yield from _identity_flaws(feed)
    names = topic_names(feed.topic)
    seen: set[str] = set()
    for entry in feed.map or ():
        if entry.attribute in seen:
            yield FeedFlaw("map", f"{entry.attribute!r} stands twice", "leave one out", entry.attribute)
        elif entry.attribute in names and entry.source != f"topic.{entry.attribute}":
            yield FeedFlaw(
                "map",
                f"{entry.attribute} is told by the topic already ({{{entry.attribute}}})",
                "leave one out, or give the level another name",
                entry.attribute,
            )
        else:
            yield from _entry_flaws(feed, entry, event_type)
        seen.add(entry.attribute)
    yield from _unfilled(feed, event_type, seen | names.keys())


def _topic_flaws(feed: MqttFeed, event_type: EventType) -> Iterator[FeedFlaw]:
    levels = feed.topic.split("/")
    named = [match[1] for level in levels if (match := _LEVEL.fullmatch(level))]
    for level in levels:
        if ("{" in level or "}" in level) and not _LEVEL.fullmatch(level):
            yield FeedFlaw("topic", f"{level!r} is not a level of a topic", "a named level is {name}, and nothing else")
    for name in named:
        if named.count(name) > 1:
            yield FeedFlaw("topic", f"{{{name}}} stands twice in the topic", "give each level a name of its own")
            return
    used = {place.steps[0] for _, _, place in _places(feed) if place.root == "topic"}
    for name in named:
        if name not in event_type.attributes and name not in used:
            cure = suggestion(name, event_type.attributes, "attributes") or "write + for a level that nothing asks for"
            yield FeedFlaw(
                "topic", f"{event_type.name} has no attribute {name!r}, and no place asks for topic.{name}", cure
            )


def _texts(feed: MqttFeed) -> Iterator[tuple[str, str | None, str]]:
    """Every place as it is written, with its key and, in a map, the attribute."""
    for entry in feed.map or ():
        if entry.source is not None:
            yield "map", entry.attribute, entry.source
    if feed.each is not None:
        yield "each", None, feed.each
    for condition in feed.when:
        yield "when", None, condition.source


def _places(feed: MqttFeed) -> Iterator[tuple[str, str | None, Place]]:
    """Every place that can be read, those of device, counter and time, too."""
    for key, attribute, text in _texts(feed):
        try:
            yield key, attribute, place_of(text)
        except ConfigError:
            continue
    for key, text_or_none in (("device", feed.device), ("counter", feed.counter), ("time", feed.time)):
        if text_or_none is not None and not _WILDCARD.fullmatch(text_or_none):
            try:
                yield key, None, field_place(text_or_none, in_item=feed.each is not None)
            except ConfigError:
                continue


def _place_flaws(feed: MqttFeed) -> Iterator[FeedFlaw]:
    for key, attribute, text in _texts(feed):
        try:
            place_of(text)
        except ConfigError as error:
            cure = "write a place as in payload.temperature or payload.readings[0]"
            if re.fullmatch(r"[^\W\d]\w*", text) and key == "map":
                cure = f"write payload.{text} for a field of the payload, or {{constant: {text}}} for the text itself"
            yield FeedFlaw(key, str(error), cure, attribute)
    for key, text_or_none in (("device", feed.device), ("counter", feed.counter), ("time", feed.time)):
        if text_or_none is not None:
            try:
                field_place(text_or_none, in_item=feed.each is not None)
            except ConfigError as error:
                yield FeedFlaw(key, str(error), "write a field, or a place as in payload.time")
    names = topic_names(feed.topic)
    for key, attribute, place in _places(feed):
        if place.root in ("item", "key") and (feed.each is None or key == "each"):
            cure = "add each: payload.readings, or write payload" if feed.each is None else "write payload"
            yield FeedFlaw(key, f"{place.root} is an item of each:, and there is none here", cure, attribute)
        elif place.root == "topic" and (len(place.steps) != 1 or place.steps[0] not in names):
            has = f"levels with names: {listed(names)}" if names else "give the level a name, as in sensors/{area}"
            yield FeedFlaw(key, f"the topic {feed.topic} has no level {{{place.steps[0]}}}", has, attribute)
        elif feed.payload == "text" and (place.root in ("item", "key") or (place.root == "payload" and place.steps)):
            cure = "write payload for the whole text, or payload: json above"
            yield FeedFlaw(key, "a text has no fields", cure, attribute)


def _identity_flaws(feed: MqttFeed) -> Iterator[FeedFlaw]:
    if (feed.device is None) != (feed.counter is None):
        present, lacking = ("device", "counter") if feed.counter is None else ("counter", "device")
        message = f"{present} without {lacking}: only both together identify an event"
        yield FeedFlaw(present, message, f"add {lacking}: FIELD, or leave {present} out")
    if feed.device is not None and _WILDCARD.fullmatch(feed.device):
        wild = sum(level in ("+", "#") for level in topic_filter(feed.topic).split("/"))
        if not 1 <= int(feed.device[1:]) <= wild:
            count = plural(wild, "wildcard") if wild else "no wildcard"
            yield FeedFlaw("device", f"the topic {feed.topic!r} has {count}", "+1 is its first wildcard")
    if feed.each is not None and feed.device is not None and feed.counter is not None:
        of_item = {key for key, _, place in _places(feed) if place.root in ("item", "key")}
        if not of_item & {"device", "counter"}:
            yield FeedFlaw(
                "each",
                "all events of a message would have the same device and counter, and be taken for one",
                "take one of both from item or key, or leave both out",
            )
    if feed.time_unit is not None and feed.time is None:
        yield FeedFlaw("time", "a unit without a time", "say where the time stands: {from: payload.time, unit: s}")


def _entry_flaws(feed: MqttFeed, entry: Mapped, event_type: EventType) -> Iterator[FeedFlaw]:
    name = entry.attribute
    if name in ("ts", "time") and name not in event_type.attributes:
        cure = "write time: {from: payload.time, unit: s} beside map:"
        yield FeedFlaw("map", "the time of an event is not an attribute", cure, name)
        return
    if name not in event_type.attributes:
        cure = suggestion(name, event_type.attributes, "attributes") or "declare it under events:"
        yield FeedFlaw("map", f"{event_type.name} has no attribute {name!r}", cure, name)
        return
    if (entry.source is None) == (entry.constant is None):
        cure = f"write {name}: payload.FIELD, or {name}: {{constant: VALUE}}"
        yield FeedFlaw(
            "map", f"{name} needs a place or a constant" + ", and not both" * (entry.source is not None), cure, name
        )
        return
    kind = event_type.kind(name)
    if entry.constant is not None and not constant_fits(entry.constant, kind):
        yield FeedFlaw("map", f"{event_type.name}.{name} is declared {kind}, but {entry.constant!r} is not", "", name)
    converts = entry.unit is not None or entry.to is not None or entry.scale != 1 or entry.offset != 0
    if converts and (kind in ("string", "bool") or entry.constant is not None):
        state = "a constant" if entry.constant is not None else f"declared {kind}"
        yield FeedFlaw("map", f"{event_type.name}.{name} is {state}; only numbers are converted", "leave it out", name)
    if (entry.unit is None) != (entry.to is None):
        yield FeedFlaw("map", "a unit is converted to another", "write both, as in {.., unit: F, to: C}", name)
    yield from _unit_flaws(entry)
    if not all(-1e300 < number < 1e300 for number in (entry.scale, entry.offset)) or entry.scale == 0:
        yield FeedFlaw("map", "scale and offset are finite numbers, and scale is not 0", "", name)


def _unit_flaws(entry: Mapped) -> Iterator[FeedFlaw]:
    unit_table = units()
    for unit in (entry.unit, entry.to):
        if unit is not None and unit not in unit_table:
            near = closest(unit, unit_table)
            cure = f"did you mean {near!r}? " if near else ""
            yield FeedFlaw(
                "map", f"unknown unit {unit!r}", f"{cure}units are {listed(unit_table, 60)}", entry.attribute
            )
            return
    if entry.unit is not None and entry.to is not None and unit_table[entry.unit][0] != unit_table[entry.to][0]:
        message = (
            f"{entry.unit} is a unit of {unit_table[entry.unit][0]} and {entry.to} one of {unit_table[entry.to][0]}"
        )
        yield FeedFlaw("map", message, "write two units of the same", entry.attribute)


def _unfilled(feed: MqttFeed, event_type: EventType, filled: set[str]) -> Iterator[FeedFlaw]:
    if feed.unknown == "keep":
        kind = event_type.kind(UNKNOWN) if UNKNOWN in event_type.attributes else None
        if kind not in ("string", "any") or not event_type.is_optional(UNKNOWN) or UNKNOWN in filled:
            yield FeedFlaw(
                "unknown",
                f"what is kept becomes the attribute {UNKNOWN!r} of {event_type.name}",
                f"declare it as {UNKNOWN}: string?, and let nothing else fill it",
            )
        filled = filled | {UNKNOWN}
    if feed.map is None and feed.payload != "text":
        return  # each from the field of its name
    for name, optional in zip(event_type.attributes, event_type.optional, strict=True):
        if name not in filled and not optional:
            place = "payload" if feed.payload == "text" else f"payload.{name}"
            cure = f"add {name}: {place} to map:, or declare it as one that may be absent, with '?'"
            yield FeedFlaw("map", f"nothing fills {event_type.name}.{name}", cure)


# ------------------------------------------------------------------------------------------------------ texts as values

TRUE: Final = frozenset(("true", "on", "yes", "1"))
FALSE: Final = frozenset(("false", "off", "no", "0"))
WHOLE: Final = re.compile(r"[+-]?[0-9]{1,19}")
NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")


def constant_fits(text: str, kind: str) -> bool:
    """Whether a text can be a value of this kind."""
    match kind:
        case "int":
            return WHOLE.fullmatch(text) is not None
        case "float":
            return NUMBER.fullmatch(text) is not None
        case "bool":
            return text.lower() in TRUE | FALSE
        case _:
            return True
