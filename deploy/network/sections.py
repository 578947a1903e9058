"""Reads the sections of a network file one by one, and reports what their parts get wrong together."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Final, TypeVar

import yaml

from headwater.deploy.network.brokers import Brokers
from headwater.deploy.network.fields import NamedEntries
from headwater.deploy.network.models.network import NetworkPart
from headwater.deploy.network.models.sinks import SinkPart
from headwater.deploy.network.models.sources import SourcePart
from headwater.deploy.network.models.topology import KINDS, NODES_EXAMPLE, NodePart
from headwater.deploy.network.sources_and_sinks import destination_of, feeds_of
from headwater.deploy.network.units import host_and_port
from headwater.deploy.network.yaml_file import Sheet
from headwater.deploy.network.yaml_tree import Scalar, is_null
from headwater.protocol.destinations import named
from headwater.protocol.edge import Destination, Feed
from headwater.protocol.events import KIND_ALIASES, RESERVED_ATTRIBUTES, EventType
from headwater.protocol.languages import Source as RuleSource
from headwater.protocol.languages import language_of
from headwater.protocol.languages.type_checking import Types
from headwater.protocol.network import Link, Source
from headwater.protocol.text import suggestion

T = TypeVar("T")

_NAME: Final = re.compile(r"[^\W\d]\w*")
_FILE_NAME: Final = re.compile(r"[^\s()\[\],;]+")


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


def event_types(sheet: Sheet, events: NamedEntries[NamedEntries[Scalar]] | None) -> dict[str, EventType]:
    types: dict[str, EventType] = {}
    for name, declared in written(events).items():
        if not _NAME.fullmatch(name):
            sheet.error(name.node, f"{str(name)!r} cannot be the name of an event type", "use letters, digits and _")
            continue
        attributes: dict[str, str] = {}
        for attribute, kind in written(declared).items():
            if attribute in RESERVED_ATTRIBUTES:
                sheet.error(attribute.node, f"every event has {str(attribute)!r} already", "choose another name")
            elif not _NAME.fullmatch(attribute):
                message = f"{str(attribute)!r} cannot be the name of an attribute"
                sheet.error(attribute.node, message, "use letters, digits and _")
            elif kind is None:
                continue
            elif kind.rstrip("?").strip().lower() not in KIND_ALIASES:
                sheet.error(kind.node, f"unknown kind {str(kind)!r}", KINDS)
                attributes[str(attribute)] = "any"
            else:
                attributes[str(attribute)] = str(kind)
        types[str(name)] = EventType(str(name), attributes)
    return types


def written(names: NamedEntries[T] | None) -> dict[Scalar, T | None]:
    """All entries of a mapping, those that were left out for a mistake too: what names them finds them."""
    entries = [] if names is None else [key for key in names.table.entries if isinstance(key, Scalar)]
    return {key: names.get(key) for key in entries} if names is not None else {}


def nodes_of(sheet: Sheet, network: NetworkPart) -> tuple[dict[str, yaml.Node], dict[str, str]]:
    """The nodes in the order of the file, each with its place; and where those listen that say so."""
    places: dict[str, yaml.Node] = {}
    listen: dict[str, str] = {}
    options_of = (
        written(network.nodes) if isinstance(network.nodes, NamedEntries) else dict.fromkeys(network.nodes or ())
    )
    items = network.nodes if isinstance(network.nodes, tuple) else options_of
    for name in items:
        if not name.strip():
            sheet.error(name.node, "a node needs a name")
        elif name.startswith("@"):
            cure = "names with @ are those of coordinators and clients"
            sheet.error(name.node, f"a node cannot be called {str(name)!r}", cure)
        if name in places:
            sheet.error(name.node, f"there is already a node {str(name)!r}", "leave one out")
        places.setdefault(str(name), name.node)
        options = options_of[name]
        if options is not None and options.listen is not None:
            _listens(sheet, options, str(name), listen)
    if not places and "nodes" not in network.broken:
        if network.has("nodes") and not is_null(network.at("nodes")):
            sheet.error(network.at("nodes"), "a network needs at least one node", NODES_EXAMPLE)
        else:
            place = network.at("nodes") if network.has("nodes") else network.place
            sheet.error(place, "there are no nodes", NODES_EXAMPLE)
    return places, listen


def _listens(sheet: Sheet, node: NodePart, name: str, listen: dict[str, str]) -> None:
    """Where a node listens, into ``listen``."""
    address = str(node.listen)
    occupant = next((other for other, text in listen.items() if text == address), None)
    if host_and_port(address) is None:
        sheet.error(node.at("listen"), f"{address!r} is not a host and a port", "write listen: 127.0.0.1:7001")
    elif occupant is not None:
        sheet.error(node.at("listen"), f"{occupant} listens at {address}, too", "give each node a port of its own")
    else:
        listen[name] = address


def known_node(sheet: Sheet, name: Scalar, nodes: Mapping[str, yaml.Node]) -> str | None:
    if name in nodes:
        return str(name)
    cure = suggestion(name, nodes, "nodes") or "list it under nodes:"
    sheet.error(name.node, f"there is no node {str(name)!r}", cure)
    return None


def links_of(sheet: Sheet, network: NetworkPart, nodes: Mapping[str, yaml.Node]) -> tuple[list[Link], bool]:
    """The links, and whether all of them could be read, so that it makes sense to ask what they connect."""
    links: list[Link] = []
    linked_lines: dict[frozenset[str], int] = {}
    # A link that is left out for a mistake may be what connects the network.
    whole = "links" not in network.broken or len(network.links) == len(network.at("links").value)
    for part in network.links:
        first, other = (known_node(sheet, end, nodes) for end in part.between)
        if first is None or other is None:
            whole = False
            continue
        pair = frozenset((first, other))
        if len(pair) == 1:
            sheet.error(part.place, f"this links {first} to itself", "name two different nodes")
        elif pair in linked_lines:
            cure = f"see line {linked_lines[pair]}; one link serves both ways"
            sheet.error(part.place, f"{first} and {other} are linked already", cure)
        else:
            linked_lines[pair] = part.place.start_mark.line + 1
            links.append(Link(first, other, part.delay, part.bandwidth, part.jitter, part.loss))
    return links, whole


def rules_of(sheet: Sheet, network: NetworkPart) -> tuple[list[RuleEntry], bool]:
    """The texts of the rules, and whether these are all of them: some cannot be had at all."""
    entries: list[RuleEntry] = []
    whole = "rules" not in network.broken
    for scalar in network.rules:
        text = scalar.strip()
        if text.lower().endswith((".tesla", ".sase")) and "\n" not in text:
            path = sheet.path.parent / text
            if path.is_file():
                entries.append(RuleEntry(scalar.node, RuleSource.from_path(path), inline=False))
            else:
                sheet.error(scalar.node, f"there is no rule file {path}", "names are relative to the network file")
                whole = False
        elif _FILE_NAME.fullmatch(text):
            message = f"{text!r} is neither a rule nor a rule file"
            sheet.error(scalar.node, message, "rule files end in .tesla or .sase")
            whole = False
        else:
            name = f"{sheet.shown}#{len(entries) + 1}"
            entries.append(RuleEntry(scalar.node, RuleSource(str(scalar), name, language_of(scalar)), inline=True))
    return entries, whole


def sources_of(
    sheet: Sheet,
    parts: tuple[SourcePart, ...],
    nodes: Mapping[str, yaml.Node],
    types: Mapping[str, EventType],
    composites: Mapping[str, EventType] | None,
    known: Types,
    brokers: Brokers,
) -> list[SourceEntry]:
    """All sources; an entry with several nodes or types is one for each of them together.

    ``composites`` is None where the rules are broken; ``known`` are then the types, as far as they can be known.
    """
    entries = []
    for part in parts:
        for key, names in (("node", part.node), ("type", part.type)):
            if not names and key not in part.broken:
                sheet.error(part.at(key), f"this source names no {key}", SourcePart.EXAMPLE)
        places = [known_node(sheet, name, nodes) for name in part.node]
        kinds = []
        for scalar in part.type:
            name = _source_type(sheet, scalar, types, composites, known)
            kinds.append((scalar.node, name, feeds_of(sheet, part, types.get(name or ""), brokers)))
        for place, (type_place, name, feeds) in product(places, kinds):
            if place is not None and name is not None:
                entries.append(SourceEntry(part.place, type_place, Source(place, name, part.lateness), *feeds))
    return entries


def _source_type(
    sheet: Sheet,
    scalar: Scalar,
    types: Mapping[str, EventType],
    composites: Mapping[str, EventType] | None,
    known: Types,
) -> str | None:
    """The name of a type that a source can have; None where it cannot, which is then said."""
    name = str(scalar)
    if composites is None and known.has(name):
        return name
    if composites is not None and name in composites:
        sheet.error(scalar.node, f"{name} is what a rule makes of other events", "no source can have it")
        return None
    if name not in types:
        cure = suggestion(name, types, "declared") or ""
        cure = cure if cure.startswith("did") else f"declare it under events: {name}: {{attribute: kind}}"
        sheet.error(scalar.node, f"event type {name!r} is not declared", cure)
    return name


def sinks_of(
    sheet: Sheet, parts: tuple[SinkPart, ...], nodes: Mapping[str, yaml.Node], brokers: Brokers
) -> list[SinkEntry]:
    entries: list[SinkEntry] = []
    for part in parts:
        place = known_node(sheet, part.node, nodes)
        to = part.at("to") if part.has("to") else None
        destination = destination_of(sheet, part, brokers)
        for text in part.subscribe:
            placed = None if destination is None else named(destination, len(entries))
            entries.append(SinkEntry(place or "", text.node, to, placed))
    return entries
