"""The ends of a network: where the events of a source come from, and where the deliveries of a sink go."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal, TypeVar, cast
from urllib.parse import urlsplit

import yaml

from deploy.network.brokers import Brokers
from deploy.network.generators import read_values
from deploy.network.sheet import Sheet
from deploy.units import rate_per_s
from node.traces.folders import any_file, is_prepared
from node.traces.rows import EXTENSIONS, TraceSource
from protocol.edge import (
    ClientFeed,
    ClientTo,
    Destination,
    Feed,
    FileTo,
    MqttFeed,
    MqttTo,
    RateFeed,
    ReplayFeed,
    StdoutTo,
    TraceFeed,
    WebhookTo,
)
from protocol.errors import ConfigError, HeadwaterError
from protocol.events import RESERVED_ATTRIBUTES, EventType
from protocol.languages.diagnostics import closest, listed

FEED_KEYS: Final = ("trace", "rate", "mqtt", "client", "replay")
FEED_OPTIONS: Final = {
    "speed": "trace",
    "values": "rate", "times": "rate",
    "payload": "mqtt", "qos": "mqtt", "device": "mqtt", "counter": "mqtt", "time": "mqtt", "will": "mqtt",
}  # fmt: skip
"""What else a source may say, and with which way of getting events."""
PAYLOADS: Final = ("json", "msgpack")
SPEED_MOST: Final = 1e9
DESTINATIONS: Final = ("stdout", "client", "file", "mqtt", "webhook")
DESTINATION_EXAMPLE: Final = "write to: stdout, client, {file: PATH}, {mqtt: TOPIC}, {webhook: URL} or {client: NAME}"

Entries = dict[str, tuple[yaml.Node, yaml.Node]]
T = TypeVar("T")


def quantity(sheet: Sheet, node: yaml.Node, what: str, parse: Callable[[str], T]) -> T | None:
    """A number with its unit, or None and a note of what is wrong with it."""
    text = sheet.word(node, what)
    if text is None:
        return None
    if text.lstrip().startswith("-"):
        sheet.error(node, f"{what} cannot be negative", "leave the sign out")
        return None
    try:
        return parse(text)
    except ConfigError as error:
        sheet.error(node, f"{what}: {error}")
        return None


def one_of(sheet: Sheet, entries: Entries, name: str, choices: tuple[str, ...], default: str) -> str:
    """What an entry says, which must be one of the choices; the default where it is absent or wrong."""
    if name not in entries:
        return default
    place = entries[name][1]
    text = sheet.word(place, name, f"write one of {listed(choices)}")
    if text is None or text in choices:
        return text or default
    near = closest(text, choices)
    cure = f"did you mean {near!r}? " if near else ""
    sheet.error(place, f"{name} cannot be {text!r}", f"{cure}write one of {listed(choices)}")
    return default


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
    for key, owner in FEED_OPTIONS.items():
        if key in entries and owner != way:
            sheet.error(entries[key][0], f"{key} belongs to {owner}, and this source has {way}", "leave it out")
    place = entries[way][1]
    match way:
        case "trace":
            return _trace(sheet, place, entries, event_type)
        case "rate":
            return _rate(sheet, item, entries, event_type), False
        case "mqtt":
            return _mqtt(sheet, place, entries, event_type, brokers), False
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
        rows = TraceSource.at(any_file(str(path)) if prepared else str(path)).open()
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
    return (None if speed is None else TraceFeed(str(path), speed)), rows.gives_seq


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


def _mqtt(
    sheet: Sheet, place: yaml.Node, entries: Entries, event_type: EventType | None, brokers: Brokers
) -> Feed | None:
    topic = _topic_filter(sheet, place, "an MQTT topic")
    will = _topic_filter(sheet, entries["will"][1], "will") if "will" in entries else None
    payload = one_of(sheet, entries, "payload", PAYLOADS, "json")
    qos = _qos(sheet, entries)
    fields = {
        name: sheet.word(entries[name][1], name, f"write the name of a field of the payload, as in {name}: id")
        for name in ("device", "counter", "time")
        if name in entries
    }
    if ("device" in fields) != ("counter" in fields):
        given, lacking = ("device", "counter") if "device" in fields else ("counter", "device")
        sheet.error(
            entries[given][0],
            f"{given} without {lacking}: only both together identify an event",
            f"add {lacking}: FIELD, or leave {given} out",
        )
    device = fields.get("device")
    if device is not None and topic is not None and re.fullmatch(r"\+[0-9]+", device):
        wildcards = sum(level in ("+", "#") for level in topic.split("/"))
        if not 1 <= int(device[1:]) <= wildcards:
            count = f"{wildcards} wildcard{'s' * (wildcards != 1)}" if wildcards else "no wildcard"
            sheet.error(entries["device"][1], f"the topic {topic!r} has {count}", "+1 is its first wildcard")
    if event_type is not None and fields.get("time") is not None:
        known = fields["time"] in event_type.attributes
        if known and event_type.kind(str(fields["time"])) not in ("int", "string", "any"):
            kind = event_type.kind(str(fields["time"]))
            sheet.error(
                entries["time"][1],
                f"{event_type.name}.{fields['time']} is declared {kind}, which is no time",
                "a time is an int of microseconds or an ISO 8601 string",
            )
    if topic is None:
        return None
    return MqttFeed(
        topic,
        brokers.broker(),
        cast(Literal["json", "msgpack"], payload),
        qos,
        device,
        fields.get("counter"),
        fields.get("time"),
        will,
    )


def _qos(sheet: Sheet, entries: Entries) -> int:
    if "qos" not in entries:
        return 1
    text = sheet.word(entries["qos"][1], "qos", "write 0 or 1")
    if text is not None and text not in ("0", "1"):
        cure = "write 0 or 1"
        if text == "2":
            cure = "write 1; with device: and counter: a redelivery is not a second event"
        sheet.error(entries["qos"][1], f"qos cannot be {text!r}", cure)
        return 1
    return int(text or 1)


def _topic_filter(sheet: Sheet, place: yaml.Node, what: str) -> str | None:
    text = sheet.word(place, what)
    if text is None:
        return None
    levels = text.split("/")
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
            near = closest(text, DESTINATIONS)
            cure = f"did you mean {near!r}? " if near and near not in ("file", "mqtt", "webhook") else ""
            sheet.error(to, f"a sink cannot go to {text!r}", cure + DESTINATION_EXAMPLE)
        return None
    entries = sheet.entries(to, "to", ("file", "mqtt", "qos", "webhook", "client"), DESTINATION_EXAMPLE)
    ways = [name for name in ("file", "mqtt", "webhook", "client") if name in entries]
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
            return _mqtt_to(sheet, place, text, _qos(sheet, entries), brokers)


def _webhook(sheet: Sheet, place: yaml.Node, text: str) -> Destination | None:
    try:
        url = urlsplit(text)
        usable = url.scheme in ("http", "https") and url.hostname and url.port != 0
    except ValueError:
        usable = False
    if not usable:
        sheet.error(place, f"{text!r} is not a web address", "write webhook: https://host/path")
        return None
    return WebhookTo(text)


def _mqtt_to(sheet: Sheet, place: yaml.Node, text: str, qos: int, brokers: Brokers) -> Destination | None:
    bare = re.sub(r"\{\w+\}", "", text)
    if "+" in bare or "#" in bare:
        sheet.error(place, f"{text!r} has a wildcard", "a sink publishes to one topic; write {type} or {attribute}")
        return None
    if "{" in bare or "}" in bare:
        sheet.error(place, f"{text!r} has a brace too many", "write {type} or {attribute}, nothing else in braces")
        return None
    return MqttTo(text, brokers.broker(), qos)


def placeholders(destination: Destination | None) -> list[str]:
    """The names in braces that are filled in for each delivery."""
    return re.findall(r"\{(\w+)\}", destination.topic) if isinstance(destination, MqttTo) else []


def named(destination: Destination | None, number: int) -> Destination | None:
    """With the names that are left out: ``sink-N``, after the position of the sink."""
    if isinstance(destination, FileTo) and not destination.path:
        return replace(destination, path=f"sink-{number}.jsonl")
    if isinstance(destination, ClientTo) and not destination.name:
        return replace(destination, name=f"sink-{number}")
    return destination
