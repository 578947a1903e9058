"""The ends of a network: where the events of a source come from, and where the deliveries of a sink go."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, cast

import yaml

from headwater.deploy.network.brokers import Brokers
from headwater.deploy.network.generators import read_values
from headwater.deploy.network.mqtt_feeds import read_mqtt
from headwater.deploy.network.readings import Entries, quantity, read_qos, read_unit
from headwater.deploy.network.sheet import Sheet
from headwater.deploy.network.units import delimiter_of, rate_per_s
from headwater.node.traces.folders import any_file, is_prepared
from headwater.node.traces.rows import EXTENSIONS, TraceSource
from headwater.protocol.destinations import PLAIN, WAYS, why_no_address, why_no_topic
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
from headwater.protocol.errors import ConfigError, HeadwaterError
from headwater.protocol.events import RESERVED_ATTRIBUTES, EventType
from headwater.protocol.languages.diagnostics import closest, listed

FEED_KEYS: Final = ("trace", "rate", "mqtt", "client", "replay")
FEED_OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "speed": ("trace",), "type_column": ("trace",), "delimiter": ("trace",),
    "values": ("rate",), "times": ("rate",),
    "payload": ("mqtt",), "qos": ("mqtt",), "device": ("mqtt",), "counter": ("mqtt",), "will": ("mqtt",),
    "map": ("mqtt",), "each": ("mqtt",), "when": ("mqtt",), "unknown": ("mqtt",),
    "time": ("mqtt", "trace"),
}  # fmt: skip
"""What else a source may say, and with which way of getting events."""
PAYLOADS: Final = ("json", "msgpack")
SPEED_MOST: Final = 1e9
TIME_OF_TRACE: Final = "write time: {column: at, unit: ms}, or one of both"
DESTINATION_EXAMPLE: Final = "write to: stdout, client, {file: PATH}, {mqtt: TOPIC}, {webhook: URL} or {client: NAME}"

# --- sources ----------------------------------------------------------------------------------------------------------


def read_feeds(
    sheet: Sheet, item: yaml.Node, entries: Entries, event_type: EventType | None, brokers: Brokers
) -> tuple[Feed | None, Feed | None, bool]:
    """Where the events come from, where they come from in a simulation, and whether they come with a seq.

    What devices, programs and replayers bring only a running node can receive; beside it a rate may say what a
    simulation makes up in its place, and beside a replay the trace that is replayed.
    """
    named = [key for key in FEED_KEYS if key in entries]
    if len(named) == 2 and "replay" in named and named[0] in ("trace", "rate"):
        way = named[0]
        replay, gives_seq = _replay(sheet, entries["replay"][1]), True
        rest = {key: entry for key, entry in entries.items() if key != "replay"}
        in_place, numbers = _read_feed(sheet, item, rest, event_type, brokers)
        if way == "trace" and in_place is not None and not numbers:
            sheet.error(
                entries["trace"][1],
                "this trace does not number its events (seq), as one that is replayed does",
                "name the prepared trace that is replayed, so that a simulation finds the same",
            )
        return replay, in_place, gives_seq
    if len(named) == 2 and "rate" in named and ("mqtt" in named or "client" in named):
        in_place = _rate(sheet, item, entries, event_type)
        rest = {key: entry for key, entry in entries.items() if key not in ("rate", "values", "times")}
        running, gives_seq = _read_feed(sheet, item, rest, event_type, brokers)
        return running, in_place, gives_seq
    found, gives_seq = _read_feed(sheet, item, entries, event_type, brokers)
    return found, found, gives_seq


def _read_feed(
    sheet: Sheet, item: yaml.Node, entries: Entries, event_type: EventType | None, brokers: Brokers
) -> tuple[Feed | None, bool]:
    named = [key for key in FEED_KEYS if key in entries]
    if len(named) != 1:
        message = "does not say where its events come from" if not named else f"has both {' and '.join(named)}"
        sheet.error(
            item, f"this source {message}", "write one of trace: FILE, rate: 2/s, mqtt: TOPIC, client: any, replay: any"
        )
        return None, False
    way = named[0]
    for key, owners in FEED_OPTIONS.items():
        if key in entries and way not in owners:
            belongs = " and ".join(owners)
            sheet.error(entries[key][0], f"{key} belongs to {belongs}, and this source has {way}", "leave it out")
    place = entries[way][1]
    match way:
        case "trace":
            return _trace(sheet, place, entries, event_type)
        case "rate":
            return _rate(sheet, item, entries, event_type), False
        case "mqtt":
            return read_mqtt(sheet, place, entries, event_type, brokers), False
        case "replay":
            return _replay(sheet, place), True
        case _:
            who = sheet.word(place, "client", "write client: any")
            if who is not None and who != "any":
                sheet.error(place, f"client cannot be {who!r}", "write client: any; every program may publish")
            return ClientFeed(), False


def _replay(sheet: Sheet, place: yaml.Node) -> Feed:
    which = sheet.word(place, "replay", "write replay: any")
    if which is not None and which != "any":
        sheet.error(place, f"replay cannot be {which!r}", "write replay: any; headwater replay names the trace")
    return ReplayFeed()


def _rate(sheet: Sheet, item: yaml.Node, entries: Entries, event_type: EventType | None) -> Feed | None:
    rate = quantity(sheet, entries["rate"][1], "rate", rate_per_s)
    times = "poisson"
    if "times" in entries:
        given = sheet.word(entries["times"][1], "times", "write regular or poisson")
        if given is not None and given not in ("regular", "poisson"):
            sheet.error(entries["times"][1], f"times cannot be {given!r}", "write regular or poisson")
        times = given or times
    if event_type is None:
        return None
    values = read_values(sheet, item, entries["values"][1] if "values" in entries else None, event_type)
    if rate is None or values is None:
        return None
    return RateFeed(rate, cast(Literal["poisson", "regular"], times), values)


def _trace(sheet: Sheet, place: yaml.Node, entries: Entries, event_type: EventType | None) -> tuple[Feed | None, bool]:
    speed = quantity(sheet, entries["speed"][1], "speed", speed_of) if "speed" in entries else 1.0
    name = sheet.word(place, "a trace", "write the name of a file of events")
    if name is None:
        return None, False
    path = sheet.path.parent / name
    prepared = is_prepared(str(path))
    layout = read_layout(sheet, entries)
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
    return (None if speed is None else TraceFeed(str(path), speed, layout)), rows.gives_seq


def read_layout(sheet: Sheet, entries: Entries) -> Layout | None:
    """How the rows of a trace are written: ``time: {column: at, unit: ms}``, ``type_column``, ``delimiter``."""
    before = len(sheet.errors)
    time_column, unit = "ts", None
    if "time" in entries:
        place = entries["time"][1]
        if isinstance(place, yaml.MappingNode):
            inside = sheet.entries(place, "time", ("column", "unit"), TIME_OF_TRACE)
            if "column" in inside:
                time_column = sheet.word(inside["column"][1], "the column of the time", TIME_OF_TRACE) or "ts"
            unit = read_unit(sheet, inside["unit"][1]) if "unit" in inside else None
        else:
            time_column = sheet.word(place, "time", TIME_OF_TRACE) or "ts"
    type_column = "type"
    if "type_column" in entries:
        type_column = sheet.word(entries["type_column"][1], "type_column", "write the name of a column") or "type"
    delimiter = ","
    if "delimiter" in entries:
        given = sheet.word(entries["delimiter"][1], "delimiter", "write one character in quotes, or tab")
        try:
            delimiter = delimiter_of(given or ",")
        except ConfigError as error:
            sheet.error(entries["delimiter"][1], str(error))
    if time_column == type_column:
        place = (entries["time"] if "time" in entries else entries["type_column"])[1]
        sheet.error(place, f"the column {time_column!r} cannot hold both the time and the type")
    return Layout(time_column, unit, type_column, delimiter) if len(sheet.errors) == before else None


def speed_of(text: str) -> float:
    """``10`` or ``10x``: times faster than the timestamps say; ``max`` is 0."""
    if text.strip().lower() == "max":
        return 0.0
    try:
        speed = float(text.strip().rstrip("xX"))
    except ValueError:
        speed = -1.0
    if not 0 < speed <= SPEED_MOST:
        raise ConfigError(
            f"{text!r} is not a speed; write how many times faster than the timestamps say, as in 10, or max"
        )
    return speed


# --- sinks ------------------------------------------------------------------------------------------------------------


def read_destination(sheet: Sheet, to: yaml.Node | None, brokers: Brokers) -> Destination | None:
    """Where the deliveries go. A name that is left out is empty and comes with the number of the sink (`named`)."""
    if to is None:
        return FileTo("")
    if isinstance(to, yaml.ScalarNode):
        text = sheet.word(to, "to", DESTINATION_EXAMPLE)
        if text == "stdout":
            return StdoutTo()
        if text == "client":
            return ClientTo("")
        if text is not None:
            near = closest(text, {*PLAIN, *WAYS})
            cure = f"did you mean {near!r}? " if near in PLAIN else ""
            sheet.error(to, f"a sink cannot go to {text!r}", cure + DESTINATION_EXAMPLE)
        return None
    entries = sheet.entries(to, "to", (*WAYS, "qos"), DESTINATION_EXAMPLE)
    ways = [name for name in WAYS if name in entries]
    if len(ways) != 1:
        # A key that is not known was noted already, and is most likely the place.
        if isinstance(to, yaml.MappingNode) and (ways or len(entries) == len(to.value)):
            message = f"a sink goes to one place, not to {' and '.join(ways)}" if ways else "to does not say where"
            sheet.error(to, message, DESTINATION_EXAMPLE)
        return None
    way = ways[0]
    place = entries[way][1]
    if "qos" in entries and way != "mqtt":
        sheet.error(entries["qos"][0], f"qos belongs to mqtt, and this sink has {way}", "leave it out")
    text = sheet.word(place, way, DESTINATION_EXAMPLE)
    if text is None or not text.strip():
        if text is not None:
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
            return _mqtt_to(sheet, place, text, read_qos(sheet, entries), brokers)


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
