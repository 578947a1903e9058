"""Sources that listen to MQTT: topics, identities, times, and the mapping from messages to events."""

from __future__ import annotations

from typing import Final, Literal, cast

import yaml

from headwater.deploy.network.brokers import Brokers
from headwater.deploy.network.readings import Entries, one_of, read_qos, read_unit
from headwater.deploy.network.sheet import Sheet, scalars
from headwater.protocol.edge import Mapped, MqttFeed, TimeUnit, When
from headwater.protocol.events import EventType
from headwater.protocol.payload_maps import feed_flaws, topic_filter

PAYLOADS: Final = ("json", "msgpack", "text")
UNKNOWN: Final = ("ignore", "keep", "refuse")
MAP_EXAMPLE: Final = "write map: {value: payload.temperature, site: {constant: roof}}"
ENTRY_EXAMPLE: Final = "write payload.FIELD, {from: payload.FIELD, unit: F, to: C} or {constant: VALUE}"
ENTRY_KEYS: Final = ("from", "constant", "unit", "to", "scale", "offset")
TIME_EXAMPLE: Final = "write the name of a field of the payload, as in time: at, or time: {from: payload.at, unit: ms}"
WHEN_EXAMPLE: Final = "write when: payload.temperature, or when: {payload.method: NotifyStatus}"


def read_mqtt(
    sheet: Sheet, place: yaml.Node, entries: Entries, event_type: EventType | None, brokers: Brokers
) -> MqttFeed | None:
    """What the source says, or None where it cannot be; what is wrong is noted in the sheet."""
    unknown = cast(Literal["ignore", "keep", "refuse"], one_of(sheet, entries, "unknown", UNKNOWN, "ignore"))
    qos = read_qos(sheet, entries)
    before = len(sheet.errors)  # what follows says together where values come from: half of it would mislead
    topic = _topic(sheet, place, "an MQTT topic")
    will = _topic(sheet, entries["will"][1], "will") if "will" in entries else None
    payload = cast(Literal["json", "msgpack", "text"], one_of(sheet, entries, "payload", PAYLOADS, "json"))
    device, counter = (
        sheet.word(entries[name][1], name, f"write the name of a field of the payload, as in {name}: id")
        if name in entries
        else None
        for name in ("device", "counter")
    )
    time, unit = _time(sheet, entries)
    mapped = _map(sheet, entries["map"][1]) if "map" in entries else None
    each = sheet.word(entries["each"][1], "each", "write each: payload.readings") if "each" in entries else None
    when = _when(sheet, entries["when"][1]) if "when" in entries else ()
    if topic is None or len(sheet.errors) > before:
        return None
    feed = MqttFeed(
        topic, brokers.broker(), payload, qos, device, counter, time, will, unit, mapped, each, when, unknown
    )
    if event_type is not None:
        _note_flaws(sheet, place, entries, feed, event_type)
    return feed


def _note_flaws(sheet: Sheet, place: yaml.Node, entries: Entries, feed: MqttFeed, event_type: EventType) -> None:
    for flaw in feed_flaws(feed, event_type):
        at = place if flaw.key == "topic" or flaw.key not in entries else entries[flaw.key][1]
        if flaw.attribute is not None and isinstance(at, yaml.MappingNode):
            at = next((value for key, value in at.value if key.value == flaw.attribute), at)
        sheet.error(at, flaw.message, flaw.cure)
    if feed.time in event_type.attributes and feed.time_unit is None:
        kind = event_type.kind(str(feed.time))
        if kind not in ("int", "string", "any"):
            sheet.error(
                entries["time"][1],
                f"{event_type.name}.{feed.time} is declared {kind}, which is no time",
                f"a time is an int of microseconds or an ISO 8601 string; or say its unit: "
                f"time: {{from: {feed.time}, unit: s}}",
            )


def _time(sheet: Sheet, entries: Entries) -> tuple[str | None, TimeUnit | None]:
    if "time" not in entries:
        return None, None
    place = entries["time"][1]
    if not isinstance(place, yaml.MappingNode):
        return sheet.word(place, "time", TIME_EXAMPLE), None
    inside = sheet.entries(place, "time", ("from", "unit"), TIME_EXAMPLE)
    if "from" not in inside:
        sheet.error(place, "time does not say where it stands", TIME_EXAMPLE)
        return None, None
    unit = read_unit(sheet, inside["unit"][1]) if "unit" in inside else None
    return sheet.word(inside["from"][1], "time", TIME_EXAMPLE), unit


def _map(sheet: Sheet, place: yaml.Node) -> tuple[Mapped, ...]:
    found = []
    for name, (_, given) in sheet.entries(place, "map", None, MAP_EXAMPLE).items():
        if not isinstance(given, yaml.MappingNode):
            text = sheet.word(given, f"the place of {name}", ENTRY_EXAMPLE)
            if text is not None:
                found.append(Mapped(name, text))
            continue
        inside = sheet.entries(given, f"the entry of {name}", ENTRY_KEYS, ENTRY_EXAMPLE)
        words = {key: sheet.word(inside[key][1], key, ENTRY_EXAMPLE) for key in ENTRY_KEYS[:4] if key in inside}
        scale, offset = _number(sheet, inside, "scale", 1.0), _number(sheet, inside, "offset", 0.0)
        found.append(
            Mapped(
                name, words.get("from"), words.get("constant"), words.get("unit"), words.get("to"), scale, offset
            )
        )  # fmt: skip
    return tuple(found)


def _number(sheet: Sheet, entries: Entries, name: str, default: float) -> float:
    if name not in entries:
        return default
    text = sheet.word(entries[name][1], name, "write a number") or ""
    try:
        return float(text)
    except ValueError:
        sheet.error(entries[name][1], f"{name} cannot be {text!r}", "write a number")
        return default


def _when(sheet: Sheet, place: yaml.Node) -> tuple[When, ...]:
    if isinstance(place, yaml.MappingNode):
        pairs = [
            (name, sheet.word(value, f"what {name} equals", WHEN_EXAMPLE))
            for name, (_, value) in sheet.entries(place, "when", None, WHEN_EXAMPLE).items()
        ]
        return tuple(When(name, text) for name, text in pairs if text is not None)
    texts = [sheet.word(each, "when", WHEN_EXAMPLE) for each in scalars(place)]
    return tuple(When(text) for text in texts if text is not None)


def _topic(sheet: Sheet, place: yaml.Node, what: str) -> str | None:
    text = sheet.word(place, what)
    if text is None:
        return None
    levels = topic_filter(text).split("/")
    wrong = next((level for level in levels if level not in ("+", "#") and ("+" in level or "#" in level)), None)
    if not text or "\0" in text:
        sheet.error(place, "an empty topic", "write a topic, as in sensors/+/smoke")
    elif wrong is not None:
        sheet.error(place, f"{wrong!r} is no level of a topic", "+ and # stand for whole levels, as in sensors/+/smoke")
    elif "#" in levels[:-1]:
        sheet.error(place, "# stands for all that follows", "nothing can come after it; write + for one level")
    else:
        return text
    return None
