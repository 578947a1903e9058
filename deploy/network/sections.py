"""The sections of a network file, one by one. What is wrong is noted in the sheet, and reading goes on."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Final, TypeVar

import yaml

from headwater.deploy.network.brokers import Brokers, host_and_port
from headwater.deploy.network.ends import FEED_KEYS, FEED_OPTIONS, read_destination, read_feeds
from headwater.deploy.network.readings import quantity
from headwater.deploy.network.sheet import Sheet, is_null, scalars, without
from headwater.deploy.network.units import bandwidth_bps, duration_us
from headwater.protocol.destinations import named
from headwater.protocol.edge import Destination, Feed
from headwater.protocol.errors import ConfigError
from headwater.protocol.events import KIND_ALIASES, RESERVED_ATTRIBUTES, EventType
from headwater.protocol.languages import Source as RuleSource
from headwater.protocol.languages import language_of
from headwater.protocol.languages.diagnostics import suggestion
from headwater.protocol.network import Link, Source

SECTIONS: Final = (
    "events", "nodes", "links", "sources", "sinks", "rules", "strategy", "duration", "seed", "durability", "mqtt",
    "lost_after", "statistics", "replan", "fall_back",
)  # fmt: skip
LOSS_MOST: Final = 0.99  # a link that loses more is an outage
LINK_KEYS: Final = ("between", "delay", "bandwidth", "jitter", "loss")
NODE_KEYS: Final = ("listen",)
SOURCE_KEYS: Final = ("node", "type", "lateness", *FEED_KEYS, *FEED_OPTIONS)
SINK_KEYS: Final = ("node", "subscribe", "to")
LINK_EXAMPLE: Final = "write - {between: [a, b], delay: 5ms}"
SOURCE_EXAMPLE: Final = "write - {node: a, type: Temp, trace: temp.csv}"
SINK_EXAMPLE: Final = "write - {node: a, subscribe: \"Fire(area = 'A1')\"}"

_NAME: Final = re.compile(r"[^\W\d]\w*")
_FILE_NAME: Final = re.compile(r"[^\s()\[\],;]+")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SourceEntry:
    """One source and where its parts stand."""

    place: yaml.Node
    type_place: yaml.Node
    source: Source
    feed: Feed | None
    simulated: Feed | None
    """What a simulation takes for it."""
    gives_seq: bool


@dataclass(frozen=True, slots=True)
class SinkEntry:
    node: str
    subscribe: yaml.ScalarNode
    to: yaml.Node | None
    destination: Destination | None
    """None where something is wrong with it."""


@dataclass(frozen=True, slots=True)
class RuleEntry:
    """A rule file, or a text in the network file itself."""

    place: yaml.ScalarNode
    source: RuleSource
    inline: bool


def read_events(sheet: Sheet, node: yaml.Node) -> dict[str, EventType]:
    types: dict[str, EventType] = {}
    if is_null(node):
        return types
    for name, (key, declared) in sheet.entries(node, "events", None, "write Temp: {area: string}").items():
        if not _NAME.fullmatch(name):
            sheet.error(key, f"{name!r} cannot be the name of an event type", "use letters, digits and _")
            continue
        attributes: dict[str, str] = {}
        if not is_null(declared):
            example = f"write {name}: {{area: string, value: float?}}"
            for attribute, (at, given) in sheet.entries(declared, f"event type {name}", None, example).items():
                kind = sheet.word(given, f"the kind of {name}.{attribute}", "write int, float, string, bool or any")
                if attribute in RESERVED_ATTRIBUTES:
                    sheet.error(at, f"every event has {attribute!r} already", "choose another name")
                elif not _NAME.fullmatch(attribute):
                    sheet.error(at, f"{attribute!r} cannot be the name of an attribute", "use letters, digits and _")
                elif kind is not None and kind.rstrip("?").strip().lower() not in KIND_ALIASES:
                    sheet.error(given, f"unknown kind {kind!r}", "write int, float, string, bool or any")
                    attributes[attribute] = "any"
                elif kind is not None:
                    attributes[attribute] = kind
        types[name] = EventType(name, attributes)
    return types


def read_nodes(sheet: Sheet, node: yaml.Node) -> tuple[dict[str, yaml.Node], dict[str, str]]:
    """The nodes in the order of the file, each with its place; and where those listen that say so."""
    found: dict[str, yaml.Node] = {}
    if isinstance(node, yaml.MappingNode):
        listen: dict[str, str] = {}
        for name, (key, options) in sheet.entries(node, "nodes").items():
            _check_node_name(sheet, key, name)
            if not is_null(options):
                entries = sheet.entries(options, f"node {name}", NODE_KEYS, "write p1: {listen: 127.0.0.1:7001}")
                if "listen" in entries:
                    _read_listen(sheet, entries["listen"][1], name, listen)
            found[name] = key
        return found, listen
    for item in sheet.items(node, "nodes", "write nodes: [a, b, c]"):
        name_or_none = sheet.word(item, "a node", "write nodes: [a, b, c]")
        if name_or_none is None:
            continue
        _check_node_name(sheet, item, name_or_none)
        if name_or_none in found:
            sheet.error(item, f"there is already a node {name_or_none!r}", "leave one out")
        else:
            found[name_or_none] = item
    if not found and isinstance(node, yaml.SequenceNode) and not node.value:
        sheet.error(node, "a network needs at least one node", "write nodes: [a, b, c]")
    return found, {}


def _check_node_name(sheet: Sheet, place: yaml.Node, name: str) -> None:
    if not name.strip():
        sheet.error(place, "a node needs a name")
    elif name.startswith("@"):
        sheet.error(place, f"a node cannot be called {name!r}", "names with @ are those of coordinators and clients")


def _read_listen(sheet: Sheet, place: yaml.Node, name: str, listen: dict[str, str]) -> None:
    """Where a node listens, into ``listen``."""
    example = "write listen: 127.0.0.1:7001"
    text = sheet.word(place, "an address", example)
    if text is None:
        return
    if host_and_port(text) is None:
        sheet.error(place, f"{text!r} is not a host and a port", example)
        return
    taken = next((other for other, address in listen.items() if address == text), None)
    if taken is not None:
        sheet.error(place, f"{taken} listens at {text}, too", "give each node a port of its own")
        return
    listen[name] = text


def known_node(sheet: Sheet, place: yaml.Node, nodes: Mapping[str, yaml.Node], what: str) -> str | None:
    name = sheet.word(place, what)
    if name is None or name in nodes:
        return name
    sheet.error(place, f"there is no node {name!r}", suggestion(name, nodes, "nodes") or "list it under nodes:")
    return None


def read_links(sheet: Sheet, node: yaml.Node, nodes: Mapping[str, yaml.Node]) -> tuple[tuple[Link, ...], bool]:
    """The links, and whether all of them could be read, so that it makes sense to ask what they connect."""
    links: list[Link] = []
    seen: dict[frozenset[str], int] = {}
    whole = True
    for item in sheet.items(node, "links", LINK_EXAMPLE):
        entries = sheet.entries(item, "a link", LINK_KEYS, LINK_EXAMPLE)
        ends = _ends(sheet, item, entries, nodes)
        settings = {
            "delay_us": _setting(sheet, entries, "delay", duration_us),
            "bandwidth_bps": _setting(sheet, entries, "bandwidth", bandwidth_bps),
            "jitter_us": _setting(sheet, entries, "jitter", duration_us),
            "loss": _setting(sheet, entries, "loss", _share),
        }
        if ends is None:
            whole = False
            continue
        pair = frozenset(ends)
        if len(pair) == 1:
            sheet.error(item, f"this links {ends[0]} to itself", "name two different nodes")
        elif pair in seen:
            sheet.error(
                item, f"{ends[0]} and {ends[1]} are linked already", f"see line {seen[pair]}; one link serves both ways"
            )
        else:
            seen[pair] = item.start_mark.line + 1
            given = {name: value for name, value in settings.items() if value is not None}
            links.append(Link(ends[0], ends[1], **given))  # type: ignore[arg-type]
    return tuple(links), whole


def _ends(
    sheet: Sheet, item: yaml.Node, entries: dict[str, tuple[yaml.Node, yaml.Node]], nodes: Mapping[str, yaml.Node]
) -> tuple[str, str] | None:
    if "between" not in entries:
        if isinstance(item, yaml.MappingNode):
            sheet.error(item, "a link needs its two ends", LINK_EXAMPLE)
        return None
    place = entries["between"][1]
    ends = sheet.items(place, "between", "write between: [a, b]")
    if len(ends) != 2:
        if isinstance(place, yaml.SequenceNode):
            sheet.error(place, f"a link has two ends, not {len(ends)}", "write between: [a, b]")
        return None
    one, other = (known_node(sheet, end, nodes, "the end of a link") for end in ends)
    return None if one is None or other is None else (one, other)


def _setting(
    sheet: Sheet, entries: dict[str, tuple[yaml.Node, yaml.Node]], name: str, parse: Callable[[str], T]
) -> T | None:
    return quantity(sheet, entries[name][1], name, parse) if name in entries else None


def _share(text: str) -> float:
    """``1%`` or ``0.01``."""
    stripped = text.strip()
    try:
        share = float(stripped.rstrip("% ")) / (100 if stripped.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= LOSS_MOST:
        raise ConfigError(
            f"{text!r} is not a share of frames that a link may lose; write 1% or 0.01, at most {LOSS_MOST:.0%}"
        )
    return share


def read_rules(sheet: Sheet, node: yaml.Node) -> list[RuleEntry] | None:
    """The texts of the rules; None if one of them cannot be had at all."""
    found: list[RuleEntry] = []
    whole = True
    if is_null(node):
        return found
    for item in scalars(node):
        text = sheet.word(item, "a rule", "write the name of a file (.tesla or .sase), or the rule's text after |")
        if text is None or not isinstance(item, yaml.ScalarNode):
            whole = False
        elif text.strip().lower().endswith((".tesla", ".sase")) and "\n" not in text.strip():
            path = sheet.path.parent / text.strip()
            if path.is_file():
                found.append(RuleEntry(item, RuleSource.from_path(path), inline=False))
            else:
                sheet.error(item, f"there is no rule file {path}", "names are relative to the network file")
                whole = False
        elif _FILE_NAME.fullmatch(text.strip()):
            message = f"{text.strip()!r} is neither a rule nor a rule file"
            sheet.error(item, message, "rule files end in .tesla or .sase")
            whole = False
        else:
            name = f"{sheet.shown}#{len(found) + 1}"
            found.append(RuleEntry(item, RuleSource(text, name, language_of(text)), inline=True))
    return found if whole else None


def read_sources(
    sheet: Sheet,
    node: yaml.Node,
    nodes: Mapping[str, yaml.Node],
    types: Mapping[str, EventType],
    composites: Mapping[str, EventType] | None,
    brokers: Brokers,
) -> list[SourceEntry]:
    """All sources; an entry with several nodes or types is one for each of them together.

    ``composites`` is None where the rules are broken, so that not every type can be known.
    """
    found = []
    for item in sheet.items(node, "sources", SOURCE_EXAMPLE):
        entries = sheet.entries(item, "a source", SOURCE_KEYS, SOURCE_EXAMPLE)
        missing = without(entries, "node", "type")
        if missing:
            if isinstance(item, yaml.MappingNode):
                sheet.error(item, f"this source does not say its {' and '.join(missing)}", SOURCE_EXAMPLE)
            continue
        for key in ("node", "type"):
            if not list(scalars(entries[key][1])):
                sheet.error(entries[key][1], f"this source names no {key}", SOURCE_EXAMPLE)
        places = [known_node(sheet, each, nodes, "the node of a source") for each in scalars(entries["node"][1])]
        lateness = _setting(sheet, entries, "lateness", duration_us) or 0
        kinds = []
        for type_place in scalars(entries["type"][1]):
            name = _source_type(sheet, type_place, types, composites)
            feeds = read_feeds(sheet, item, entries, types.get(name or ""), brokers)
            kinds.append((type_place, name, feeds))
        for place, (type_place, name, feeds) in product(places, kinds):
            if place is not None and name is not None:
                found.append(SourceEntry(item, type_place, Source(place, name, lateness), *feeds))
    return found


def _source_type(
    sheet: Sheet, place: yaml.Node, types: Mapping[str, EventType], composites: Mapping[str, EventType] | None
) -> str | None:
    """The name of a type that a source can have; None where it cannot, which is then said."""
    name = sheet.word(place, "the type of a source")
    if name is None or composites is None:
        return name
    if name in composites:
        sheet.error(place, f"{name} is what a rule makes of other events", "no source can have it")
        return None
    if name not in types:
        cure = suggestion(name, types, "declared") or ""
        cure = cure if cure.startswith("did") else f"declare it under events: {name}: {{attribute: kind}}"
        sheet.error(place, f"event type {name!r} is not declared", cure)
    return name


def read_sinks(sheet: Sheet, node: yaml.Node, nodes: Mapping[str, yaml.Node], brokers: Brokers) -> list[SinkEntry]:
    found: list[SinkEntry] = []
    for item in sheet.items(node, "sinks", SINK_EXAMPLE):
        entries = sheet.entries(item, "a sink", SINK_KEYS, SINK_EXAMPLE)
        missing = without(entries, "node", "subscribe")
        if missing:
            if isinstance(item, yaml.MappingNode):
                sheet.error(item, f"this sink does not say its {' and '.join(missing)}", SINK_EXAMPLE)
            continue
        place = known_node(sheet, entries["node"][1], nodes, "the node of a sink")
        to = entries["to"][1] if "to" in entries else None
        destination = read_destination(sheet, to, brokers)
        for text in scalars(entries["subscribe"][1]):
            if sheet.word(text, "a subscription", SINK_EXAMPLE) is not None and isinstance(text, yaml.ScalarNode):
                placed = None if destination is None else named(destination, len(found))
                found.append(SinkEntry(place or "", text, to, placed))
    return found
