"""Sources that receive events over MQTT: topics, identities, times, and the mapping from messages to events."""

from __future__ import annotations

from typing import Final

import yaml

from headwater.deploy.network.brokers import Brokers
from headwater.deploy.network.fields import NamedEntries
from headwater.deploy.network.models.sources import TIME_OF_MESSAGE, SourcePart
from headwater.deploy.network.yaml_file import Sheet
from headwater.protocol.edge import Mapped, MqttFeed, When
from headwater.protocol.events import EventType
from headwater.protocol.payload_maps import feed_flaws

_TOGETHER: Final = {"mqtt", "will", "payload", "device", "counter", "time", "map", "each", "when"}
"""What says together where values come from: half of it would mislead."""


def mqtt_feed(sheet: Sheet, part: SourcePart, event_type: EventType | None, brokers: Brokers) -> MqttFeed | None:
    """What the source says, or None where it cannot be; what is wrong is noted in the sheet."""
    if part.broken & _TOGETHER or part.mqtt is None:
        return None
    time = part.time
    if time is not None and time.place_of_field is None:
        sheet.error(part.at("time"), "time does not say where it stands", TIME_OF_MESSAGE)
        return None
    feed = MqttFeed(
        str(part.mqtt),
        brokers.broker(),
        part.payload,
        int(part.qos),
        _text(part.device),
        _text(part.counter),
        _text(time.place_of_field) if time is not None else None,
        _text(part.will),
        time.unit if time is not None else None,
        _mapped(part),
        _text(part.each),
        _when(part),
        part.unknown,
    )
    if event_type is not None:
        _note_flaws(sheet, part, feed, event_type)
    return feed


def _text(scalar: str | None) -> str | None:
    return None if scalar is None else str(scalar)


def _mapped(part: SourcePart) -> tuple[Mapped, ...] | None:
    if part.map is None:
        return None
    return tuple(
        Mapped(
            str(name),
            _text(mapped.short or mapped.field),
            _text(mapped.constant),
            _text(mapped.unit),
            _text(mapped.to),
            mapped.scale,
            mapped.offset,
        )
        for name, mapped in part.map.items()
    )


def _when(part: SourcePart) -> tuple[When, ...]:
    if isinstance(part.when, NamedEntries):
        return tuple(When(str(name), str(text)) for name, text in part.when.items())
    return tuple(When(str(text)) for text in part.when or ())


def _note_flaws(sheet: Sheet, part: SourcePart, feed: MqttFeed, event_type: EventType) -> None:
    for flaw in feed_flaws(feed, event_type):
        at = part.at("mqtt" if flaw.key == "topic" or not part.has(flaw.key) else flaw.key)
        if flaw.attribute is not None and isinstance(at, yaml.MappingNode):
            at = next((value for key, value in at.value if key.value == flaw.attribute), at)
        sheet.error(at, flaw.message, flaw.cure)
    if feed.time in event_type.attributes and feed.time_unit is None:
        kind = event_type.kind(str(feed.time))
        if kind not in ("int", "string", "any"):
            sheet.error(
                part.at("time"),
                f"{event_type.name}.{feed.time} is declared {kind}, which is not a time",
                f"a time is an int of microseconds or an ISO 8601 string; or say its unit: "
                f"time: {{from: {feed.time}, unit: s}}",
            )
