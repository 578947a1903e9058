"""The sources and sinks of a network file: where events come from, and where deliveries go."""

from __future__ import annotations

from pathlib import Path

import yaml

from headwater.deploy.network.brokers import Brokers
from headwater.deploy.network.generators import read_values
from headwater.deploy.network.models.sinks import DESTINATION_EXAMPLE, SinkPart
from headwater.deploy.network.models.sources import FEED_KEYS, FEED_OPTIONS, SourcePart
from headwater.deploy.network.mqtt_feeds import mqtt_feed
from headwater.deploy.network.yaml_file import Sheet
from headwater.node.traces.prepared_trace import any_file, is_prepared
from headwater.node.traces.rows import EXTENSIONS, TraceSource
from headwater.protocol.destinations import WAYS, why_no_address, why_no_topic
from headwater.protocol.edge import (
    USUAL,
    ClientFeed,
    ClientTo,
    Destination,
    Feed,
    FileTo,
    Layout,
    MqttTo,
    RateFeed,
    ReplayFeed,
    StdoutTo,
    TraceFeed,
    WebhookTo,
)
from headwater.protocol.errors import HeadwaterError
from headwater.protocol.events import RESERVED_ATTRIBUTES, EventType
from headwater.protocol.text import listed

# --- sources ----------------------------------------------------------------------------------------------------------


def feeds_of(
    sheet: Sheet, part: SourcePart, event_type: EventType | None, brokers: Brokers
) -> tuple[Feed | None, Feed | None, bool]:
    """Where the events come from, where they come from in a simulation, and whether they come with a seq.

    What devices, programs and replayers bring only a running node can receive; beside it a rate may say what a
    simulation makes up in its place, and beside a replay the trace that is replayed.
    """
    named = [key for key in FEED_KEYS if part.has(key)]
    match named:
        case ["trace" | "rate" as way, "replay"]:
            in_place, numbers = _feed(sheet, part, way, event_type, brokers)
            if way == "trace" and in_place is not None and not numbers:
                sheet.error(
                    part.at("trace"),
                    "this trace does not number its events (seq), as one that is replayed does",
                    "name the prepared trace that is replayed, so that a simulation finds the same",
                )
            return ReplayFeed(), in_place, True
        case ["rate", "mqtt" | "client" as way]:
            in_place = _rate(sheet, part, event_type)
            running, gives_seq = _feed(sheet, part, way, event_type, brokers, beside=("values", "times"))
            return running, in_place, gives_seq
        case [way]:
            feed, gives_seq = _feed(sheet, part, way, event_type, brokers)
            return feed, feed, gives_seq
    message = "does not say where its events come from" if not named else f"has both {' and '.join(named)}"
    cure = "write one of trace: FILE, rate: 2/s, mqtt: TOPIC, client: any, replay: any"
    sheet.error(part.place, f"this source {message}", cure)
    return None, None, False


def _feed(
    sheet: Sheet,
    part: SourcePart,
    way: str,
    event_type: EventType | None,
    brokers: Brokers,
    beside: tuple[str, ...] = (),
) -> tuple[Feed | None, bool]:
    for key, owners in FEED_OPTIONS.items():
        if part.has(key) and key not in beside and way not in owners:
            belongs = " and ".join(owners)
            sheet.error(part.at_key(key), f"{key} belongs to {belongs}, and this source has {way}", "leave it out")
    if part.time is not None and way in ("trace", "mqtt"):
        other, own = ("from", "column") if way == "trace" else ("column", "from")
        if part.time.has(other):
            sheet.error(part.time.at_key(other), f"time has no key {other!r}", f"write one of {own}, unit")
    match way:
        case "trace":
            return _trace(sheet, part, event_type)
        case "rate":
            return _rate(sheet, part, event_type), False
        case "mqtt":
            return mqtt_feed(sheet, part, event_type, brokers), False
        case "replay":
            return ReplayFeed(), True
        case _:
            return ClientFeed(), False


def _rate(sheet: Sheet, part: SourcePart, event_type: EventType | None) -> Feed | None:
    if event_type is None:
        return None
    values = read_values(sheet, part, event_type)
    return None if part.rate is None or values is None else RateFeed(part.rate, part.times, values)


def _trace(sheet: Sheet, part: SourcePart, event_type: EventType | None) -> tuple[Feed | None, bool]:
    if part.trace is None:
        return None, False
    name, place = str(part.trace), part.at("trace")
    path = sheet.path.parent / name
    prepared = is_prepared(str(path))
    layout = _layout(sheet, part)
    if layout is None:
        return None, False
    if prepared and layout != USUAL:
        sheet.error(
            place,
            f"{name} is a prepared trace, which says itself how it is written",
            "leave time, type_column and delimiter out",
        )
        return None, False
    if not path.is_file() and not prepared:
        sheet.error(place, f"there is no trace {path}", "names are relative to the network file")
        return None, False
    suffixes = [suffix.lower() for suffix in Path(name).suffixes]
    if (
        not prepared
        and not {*suffixes[-1:], *(suffixes[-2:-1] if suffixes[-1:] == [".gz"] else ())} & EXTENSIONS.keys()
    ):
        sheet.error(place, f"cannot tell the format of {name}", f"traces end in {listed(EXTENSIONS)}")
        return None, False
    try:
        rows = TraceSource.at(any_file(str(path)) if prepared else str(path), layout=layout).open()
        try:
            if not prepared:
                rows.refuse_another_unit()
        finally:
            rows.close()
    except HeadwaterError as error:
        sheet.error(place, str(error))
        return None, False
    if rows.columns is not None and event_type is not None:
        pairs = zip(event_type.attributes, event_type.optional, strict=True)
        lacking = [attribute for attribute, optional in pairs if not optional and attribute not in rows.columns]
        if lacking:
            has = listed(column for column in rows.columns if column not in RESERVED_ATTRIBUTES)
            sheet.error(
                place,
                f"{name} has no column {listed(lacking)}, which {event_type.name} needs",
                f"it has: {has or 'no attributes'}; declare an attribute that may be absent with '?'",
            )
            return None, False
    return (None if "speed" in part.broken else TraceFeed(str(path), part.speed, layout)), rows.gives_seq


def _layout(sheet: Sheet, part: SourcePart) -> Layout | None:
    """How the rows of a trace are written: ``time: {column: at, unit: ms}``, ``type_column``, ``delimiter``."""
    if part.broken & {"time", "type_column", "delimiter"}:
        return None
    time, unit = "ts", None
    if part.time is not None:
        time, unit = str(part.time.name or part.time.column or "ts"), part.time.unit
    type_column = str(part.type_column or "type")
    if time == type_column:
        place = part.at("time" if part.has("time") else "type_column")
        sheet.error(place, f"the column {time!r} cannot hold both the time and the type")
        return None
    return Layout(time, unit, type_column, part.delimiter)


# --- sinks ------------------------------------------------------------------------------------------------------------


def destination_of(sheet: Sheet, sink: SinkPart, brokers: Brokers) -> Destination | None:
    """Where the deliveries go. A name that is left out is empty and comes with the number of the sink (`named`)."""
    to = sink.to
    if to is None:
        return None if sink.has("to") else FileTo("")
    if to.plain is not None:
        return StdoutTo() if to.plain == "stdout" else ClientTo("")
    ways = [name for name in WAYS if to.has(name)]
    if len(ways) != 1:
        # A key that is not known was noted already, and is most likely the place.
        if ways or not to.broken:
            message = f"a sink goes to one place, not to {' and '.join(ways)}" if ways else "to does not say where"
            sheet.error(to.place, message, DESTINATION_EXAMPLE)
        return None
    way = ways[0]
    if to.has("qos") and way != "mqtt":
        sheet.error(to.at_key("qos"), f"qos belongs to mqtt, and this sink has {way}", "leave it out")
    if way in to.broken:
        return None
    place, text = to.at(way), str(getattr(to, way))
    if not text.strip():
        sheet.error(place, f"{way} needs a name", DESTINATION_EXAMPLE)
        return None
    match way:
        case "file":
            return FileTo(text)
        case "client":
            return ClientTo(text)
        case "webhook":
            return _webhook(sheet, place, text)
        case _:
            return _mqtt_to(sheet, place, text, int(to.qos), brokers)


def _webhook(sheet: Sheet, place: yaml.Node, text: str) -> Destination | None:
    if (why := why_no_address(text)) is not None:
        sheet.error(place, why, "write webhook: https://host/path")
        return None
    return WebhookTo(text)


def _mqtt_to(sheet: Sheet, place: yaml.Node, text: str, qos: int, brokers: Brokers) -> Destination | None:
    if (why := why_no_topic(text)) is not None:
        sheet.error(place, *why)
        return None
    return MqttTo(text, brokers.broker(), qos)
