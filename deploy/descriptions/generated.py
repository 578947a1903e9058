"""``generate:`` in the description of a data set (YAML): events that are made up."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import yaml

from headwater.deploy.descriptions.generated_attributes import NAME, Attributes
from headwater.deploy.descriptions.measures import measure, moment_us, number, numbers, whole
from headwater.deploy.network.sheet import Sheet
from headwater.deploy.network.units import duration_us, rate_per_s
from headwater.pipeline.generate.model import Arrivals, Bursty, Generation, Motion, Poisson, Regular, Stream

EVENTS_MAX: Final = 2_000_000_000
"""A trace that is expected to be longer is taken for a mistake in a rate or a duration: it would fill a disk."""

CELLS_MAX: Final = 100_000
"""Types times nodes of a stream, or vehicles: each costs a task about 0.1 ms, however few events it has."""

STATES_MAX: Final = 10_000_000
"""Changes between on and off of one type at one node: they are in the memory of a task, with 16 bytes each."""


GENERATE: Final = ("seed", "start", "duration", "nodes", "streams")
COMMON: Final = ("type", "types", "nodes", "attributes")
PLAIN: Final = (*COMMON, "rate", "arrivals", "zipf")
MOVING: Final = (*COMMON, "vehicles", "every", "area", "speed", "roads")

NODES_EXAMPLE: Final = "write nodes: 20, a list of names, or {turin: [45.07, 7.69], ..}"
ARRIVALS_EXAMPLE: Final = "write poisson, regular or {on: 5s, off: 45s, quiet: 0.1}"

Entries = dict[str, tuple[yaml.Node, yaml.Node]]


def read_generation(sheet: Sheet, node: yaml.Node, name: str) -> Generation | None:
    """What is to be made up; None if something is wrong with it, which the sheet then knows."""
    entries = sheet.entries(node, "generate", GENERATE)
    for key in ("duration", "nodes", "streams"):
        if entries and key not in entries:
            sheet.error(node, f"generate does not say {key}:", NODES_EXAMPLE if key == "nodes" else "")
    if not all(key in entries for key in ("duration", "nodes", "streams")):
        return None
    seed = whole(sheet, entries["seed"][1], "the seed", 0, 2**63 - 1) if "seed" in entries else 1
    start = moment_us(sheet, entries["start"][1]) if "start" in entries else 0
    duration = measure(sheet, entries["duration"][1], "the duration", duration_us)
    if duration == 0:
        sheet.error(entries["duration"][1], "the trace has no length", "write a duration such as 1h")
    nodes = _nodes(sheet, entries["nodes"][1])
    if nodes is None or seed is None or start is None or not duration:
        return None
    names, places = nodes
    reader = _Streams(sheet, names, places, duration)
    streams = [reader.stream(each) for each in sheet.items(entries["streams"][1], "streams")]
    if not streams and not sheet.errors:
        sheet.error(entries["streams"][1], "the list of streams is empty", "write at least one")
    if sheet.errors:
        return None
    made = Generation(name, seed, start, duration, tuple(each for each in streams if each is not None), places)
    if made.expected() > EVENTS_MAX:
        sheet.error(
            entries["streams"][1],
            f"this would make about {made.expected():,} events, more than {EVENTS_MAX:,}",
            "make the duration shorter, or the rates smaller",
        )
    return made


def _nodes(sheet: Sheet, node: yaml.Node) -> tuple[tuple[str, ...], dict[str, tuple[float, float]]] | None:
    if isinstance(node, yaml.MappingNode):
        places = {}
        for name, (_, given) in sheet.entries(node, "nodes").items():
            at = numbers(sheet, given, f"the node {name}", 2, "[latitude, longitude]")
            if at is not None and not (-90 <= at[0] <= 90 and -180 <= at[1] <= 180):
                sheet.error(given, f"the node {name} lies nowhere on Earth", "write [latitude, longitude]")
            elif at is not None:
                places[name] = (at[0], at[1])
        return (tuple(places), places) if places else None
    names = _names(sheet, node, "node", "n", NODES_EXAMPLE)
    return None if names is None else (names, {})


def _names(sheet: Sheet, node: yaml.Node, what: str, letter: str, example: str) -> tuple[str, ...] | None:
    """A list of names, or how many there are."""
    if isinstance(node, yaml.SequenceNode):
        found = [sheet.word(each, f"a {what}") for each in node.value]
        names = tuple(each for each in found if each is not None)
        if not names or len(set(names)) < len(names):
            sheet.error(node, f"a {what} is missing or stands twice", "name each once")
            return None
        return names if len(names) == len(found) else None
    count = whole(sheet, node, f"the number of {what}s", 1, CELLS_MAX, example)
    return None if count is None else tuple(f"{letter}{rank}" for rank in range(1, count + 1))


class _Streams:
    """Reads the streams of one description."""

    def __init__(
        self, sheet: Sheet, names: tuple[str, ...], places: Mapping[str, tuple[float, float]], duration: int
    ) -> None:
        self._sheet = sheet
        self._names = names
        self._places = places
        self._duration_us = duration
        self._kinds: dict[str, str] = {}

    def stream(self, node: yaml.Node) -> Stream | None:
        sheet = self._sheet
        moving = isinstance(node, yaml.MappingNode) and any(key.value == "vehicles" for key, _ in node.value)
        entries = sheet.entries(node, "a stream of vehicles" if moving else "a stream", MOVING if moving else PLAIN)
        if not entries:
            return None
        if ("type" in entries) == ("types" in entries):
            sheet.error(node, "a stream has either type: or types:", "write type: Smoke, types: [A, B] or types: 12")
            return None
        types = self._types(entries)
        nodes = self._some(entries["nodes"][1]) if "nodes" in entries else self._names
        given = entries["attributes"][1] if "attributes" in entries else None
        attributes = Attributes(sheet, moving).read(given) if given is not None else {}
        if types is None or nodes is None or attributes is None:
            return None
        bare = Stream(types, nodes, 0.0, attributes=attributes)
        made = self._moving(node, entries, bare) if moving else self._plain(node, entries, bare)
        for name, kind in made.kinds().items() if made is not None else ():
            if self._kinds.setdefault(name, kind) != kind:
                sheet.error(
                    node,
                    f"{name} is {kind} here and {self._kinds[name]} in an earlier stream",
                    "give one of them another name, or both the same kind",
                )
        return made

    def _types(self, entries: Entries) -> tuple[str, ...] | None:
        if "type" in entries:
            text = self._sheet.word(entries["type"][1], "the type")
            found: tuple[str, ...] | None = None if text is None else (text,)
        else:
            found = _names(self._sheet, entries["types"][1], "type", "T", "write types: 12, or a list of names")
        for name in found or ():
            if not NAME.fullmatch(name):
                at = entries.get("type", entries.get("types"))
                assert at is not None
                self._sheet.error(at[1], f"{name!r} cannot be named in rules", "use letters, digits and _")
                return None
        return found

    def _some(self, node: yaml.Node) -> tuple[str, ...] | None:
        found = [self._sheet.word(each, "a node") for each in self._sheet.items(node, "nodes", "write nodes: [n1, n2]")]
        unknown = [each for each in found if each is not None and each not in self._names]
        if unknown or not found or len(set(found)) < len(found):
            self._sheet.error(
                node,
                f"there is no node {unknown[0]}" if unknown else "nodes are missing or stand twice",
                f"the nodes are {', '.join(self._names[:8])}{', ..' if len(self._names) > 8 else ''}",
            )
            return None
        return tuple(str(each) for each in found)

    def _plain(self, node: yaml.Node, entries: Entries, made: Stream) -> Stream | None:
        sheet = self._sheet
        if "rate" not in entries:
            sheet.error(node, "the stream does not say rate:", "write that of all its events together, as in 200/s")
            return None
        rate = measure(sheet, entries["rate"][1], "the rate", rate_per_s)
        arrivals = self._arrivals(entries["arrivals"][1]) if "arrivals" in entries else Poisson()
        exponents = {"types": 0.0, "nodes": 0.0}
        if "zipf" in entries:
            for key, (_, given) in sheet.entries(entries["zipf"][1], "zipf", ("types", "nodes")).items():
                exponents[key] = number(sheet, given, f"the exponent over {key}", 0, 20) or 0.0
        if rate is None or arrivals is None:
            return None
        self._bounded(node, len(made.types) * len(made.nodes), "types times nodes")
        return replace(
            made, rate_per_s=rate, arrivals=arrivals, types_zipf=exponents["types"], nodes_zipf=exponents["nodes"]
        )

    def _bounded(self, node: yaml.Node, cells: int, what: str) -> None:
        if cells > CELLS_MAX:
            self._sheet.error(node, f"the stream has {cells:,} {what}, more than {CELLS_MAX:,}", "divide it")

    def _arrivals(self, node: yaml.Node) -> Arrivals | None:
        sheet = self._sheet
        if isinstance(node, yaml.ScalarNode):
            match sheet.word(node, "arrivals", ARRIVALS_EXAMPLE):
                case "poisson":
                    return Poisson()
                case "regular":
                    return Regular()
                case text:
                    sheet.error(node, f"{text!r} is no way to arrive", ARRIVALS_EXAMPLE)
                    return None
        entries = sheet.entries(node, "arrivals", ("on", "off", "quiet"), ARRIVALS_EXAMPLE)
        if "on" not in entries or "off" not in entries:
            sheet.error(node, "bursts need the mean lengths on: and off:", ARRIVALS_EXAMPLE)
            return None
        on, off = (measure(sheet, entries[key][1], key, duration_us) for key in ("on", "off"))
        quiet = number(sheet, entries["quiet"][1], "quiet", 0, 1) if "quiet" in entries else 0.0
        if on is None or off is None or quiet is None:
            return None
        if not on or not off or 2 * self._duration_us / (on + off) > STATES_MAX:
            sheet.error(node, f"this would go on and off more than {STATES_MAX:,} times", "make on: and off: longer")
            return None
        return Bursty(on, off, quiet)

    def _moving(self, node: yaml.Node, entries: Entries, made: Stream) -> Stream | None:
        sheet = self._sheet
        unplaced = [name for name in made.nodes if name not in self._places]
        if unplaced:
            sheet.error(
                entries["vehicles"][0],
                f"vehicles need nodes with coordinates, and {unplaced[0]} has none",
                "write nodes: {turin: [45.07, 7.69], ..} under generate:",
            )
        if len(made.types) > 1:
            sheet.error(entries["types"][1], "vehicles of a stream have one type", "write a stream for each type")
        if "every" not in entries:
            sheet.error(node, "the stream does not say every:", "write how often a vehicle is heard of, as in 1s")
            return None
        vehicles = whole(sheet, entries["vehicles"][1], "the number of vehicles", 1, CELLS_MAX)
        every = measure(sheet, entries["every"][1], "every", duration_us)
        speed = (
            numbers(sheet, entries["speed"][1], "the speed", 2, "[5, 15], in m/s")
            if "speed" in entries
            else [5.0, 15.0]
        )
        area = self._area(node, entries, made) if not unplaced else None
        if every == 0:
            sheet.error(
                entries["every"][1], "a vehicle cannot be heard of all the time", "write every: 1s, or the like"
            )
        if vehicles is None or not every or speed is None or area is None:
            return None
        if not 0.1 <= speed[0] <= speed[1] <= 1000:
            sheet.error(entries["speed"][1], "speeds are from 0.1 to 1000 m/s", "write [slowest, fastest]")
            return None
        motion = Motion(vehicles, *area, speed[0], speed[1])
        if "roads" in entries:
            roads = number(sheet, entries["roads"][1], "the distance of roads", 1, 1e6)
            if roads is None:
                return None
            motion = replace(motion, roads_m=roads)
            high, wide = (motion.north - motion.south) * 111_000, _width_m(motion)
            if roads > min(high, wide):
                sheet.error(
                    entries["roads"][1],
                    f"the area is {high:,.0f} m high and {wide:,.0f} m wide, so it has no two roads",
                    "write the distance of neighbouring roads in metres",
                )
                return None
        return replace(made, rate_per_s=vehicles * 1e6 / every, arrivals=Regular(), motion=motion)

    def _area(self, node: yaml.Node, entries: Entries, made: Stream) -> tuple[float, float, float, float] | None:
        """Where the vehicles drive: as given, or the least area that holds all nodes."""
        if "area" in entries:
            at = entries["area"][1]
            area = numbers(self._sheet, at, "the area", 4, "[south, north, west, east]")
        else:
            at = node
            north, east = zip(*(self._places[name] for name in made.nodes), strict=True)
            area = [min(north), max(north), min(east), max(east)]
        if area is not None and not (-90 < area[0] < area[1] < 90 and -180 <= area[2] < area[3] <= 180):
            self._sheet.error(at, "the area of the vehicles is empty", "write area: [south, north, west, east]")
            return None
        return None if area is None else (area[0], area[1], area[2], area[3])


def _width_m(motion: Motion) -> float:
    return (motion.east - motion.west) * 111_000 * math.cos(math.radians((motion.south + motion.north) / 2))
