"""Descriptions of raw data sets (YAML): which files, and how their rows become events."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Final, TypeVar, cast
from zoneinfo import available_timezones

import yaml

from headwater.deploy.descriptions.generated import read_generation
from headwater.deploy.network.sheet import Sheet, is_null, scalars
from headwater.pipeline.generate.model import Generation
from headwater.pipeline.prepare.descriptions import (
    FORMATS,
    UNITS,
    ByHash,
    ByNearest,
    ByRegion,
    ByValue,
    ClockTime,
    Description,
    Files,
    Kept,
    NumberTime,
    Place,
    RawSource,
    Region,
    TextTime,
    Time,
)
from headwater.protocol.errors import ConfigError

READY_MADE: Final = cast(
    Path, files("headwater.pipeline.prepare") / "data_sets"
)  # in a zip file it is none, and is read alike

KINDS: Final = ("string", "int", "float", "bool")
TOP: Final = ("name", "about", "sources", "node", "generate")
SOURCE: Final = ("files", "format", "delimiter", "columns", "where", "type", "time", "node", "attributes")
TIME: Final = ("value", "unit", "epoch", "pattern", "zone", "clock")
NODE_WAYS: Final = ("value", "hash", "region", "nearest")
NODE: Final = (*NODE_WAYS, "names", "nodes", "latitude", "longitude", "regions", "otherwise")

FILES_EXAMPLE: Final = 'write files: "trips-*.csv.gz", or a list of such names'
TIME_EXAMPLE: Final = (
    "write time: {value: unix_time, unit: s}, time: {value: started, zone: Europe/Berlin} or time: {clock: t}"
)
NODE_EXAMPLE: Final = "write node: {value: station}, node: {hash: bikeid, nodes: 10}, or one of region and nearest"
OFFSET: Final = re.compile(r"(UTC|GMT)?[+-]\d{1,2}(:\d{2})?|Z")
NODES_MAX: Final = 100_000

Entries = dict[str, tuple[yaml.Node, yaml.Node]]
T = TypeVar("T")


def ready_made() -> dict[str, Path]:
    """The descriptions that come with the program, by name."""
    found = {path.stem: path for path in READY_MADE.iterdir() if path.suffix == ".yaml"}
    return {name: found[name] for name in sorted(found)}


def find_description(given: str) -> Path:
    """A file, or a ready-made one by its name."""
    known = ready_made()
    if given in known:
        return known[given]
    path = Path(given)
    if not path.suffix and not path.exists():
        raise ConfigError(
            f"there is no description {given!r}; ready-made are {', '.join(known)}; or name a file (.yaml)"
        )
    return path


def read_description(path: Path) -> Description | Generation:
    """A description of raw data or of events to be made up; a ConfigError that lists everything wrong with it."""
    sheet = Sheet(path, "description of a data set", "sources: with files:, type:, time: and node:")
    entries = sheet.entries(sheet.root(), "the description", TOP)
    name = _text(sheet, entries, "name", "the name") or path.stem
    about = _text(sheet, entries, "about", "what it is about") or ""
    if "generate" in entries:
        for other in ("sources", "node"):
            if other in entries:
                sheet.error(entries[other][0], f"{other}: is for raw data", "leave it or generate: out")
        made = read_generation(sheet, entries["generate"][1], name)
        sheet.finished()
        assert made is not None
        return replace(made, about=about)
    common = _place(sheet, entries["node"][1]) if "node" in entries else None
    sources = []
    if "sources" not in entries:
        sheet.error(0, "the description names no sources", "write sources: and a list of them, or generate:")
    else:
        for node in sheet.items(entries["sources"][1], "sources"):
            source = _source(sheet, node, common, "node" in entries)
            if source is not None:
                sources.append(source)
        if not sources and not sheet.errors:
            sheet.error(entries["sources"][1], "the list of sources is empty", "write at least one")
    sheet.finished()
    return Description(name, tuple(sources), about)


def _source(sheet: Sheet, node: yaml.Node, common: Place | None, common_is_given: bool) -> RawSource | None:
    entries = sheet.entries(node, "a source", SOURCE)
    missing = [key for key in ("files", "type", "time") if key not in entries]
    if "node" not in entries and not common_is_given:
        missing.append("node")
    if missing or not entries:
        if entries:
            sheet.error(
                node,
                f"the source does not say {' and '.join(f'{each}:' for each in missing)}",
                NODE_EXAMPLE if missing == ["node"] else "",
            )
        return None
    files = _files(sheet, entries)
    type_ = _text(sheet, entries, "type", "the type")
    time = _time(sheet, entries["time"][1])
    place = _place(sheet, entries["node"][1]) if "node" in entries else common
    attributes = _attributes(sheet, entries["attributes"][1]) if "attributes" in entries else {}
    where = _text(sheet, entries, "where", "where")
    if files is None or type_ is None or time is None or place is None:
        return None
    return RawSource(files, type_, time, place, attributes, where)


def _text(sheet: Sheet, entries: Entries, key: str, what: str) -> str | None:
    return sheet.word(entries[key][1], what) if key in entries else None


def _files(sheet: Sheet, entries: Entries) -> Files | None:
    patterns = [sheet.word(each, "a file", FILES_EXAMPLE) for each in scalars(entries["files"][1])]
    for pattern, node in zip(patterns, scalars(entries["files"][1]), strict=True):
        if pattern is not None and (Path(pattern).is_absolute() or ".." in Path(pattern).parts):
            sheet.error(node, f"{pattern} leads out of the folder of the data", "name files as they lie in it")
    form = _text(sheet, entries, "format", "the format")
    if form is None and patterns and patterns[0] is not None:
        form = _format(patterns[0])
    if form not in FORMATS:
        at = entries["format"] if "format" in entries else entries["files"]
        sheet.error(at[1], f"the format is {form or 'not told'}", f"write format: and one of {', '.join(FORMATS)}")
        return None
    columns = None
    if "columns" in entries:
        columns = tuple(str(sheet.word(each, "a column")) for each in sheet.items(entries["columns"][1], "columns"))
        if form != "csv":
            sheet.error(entries["columns"][0], f"columns are named in {form} files themselves", "leave columns: out")
    delimiter = _text(sheet, entries, "delimiter", "the delimiter") or ","
    delimiter = {"tab": "\t", "\\t": "\t"}.get(delimiter, delimiter)
    if len(delimiter) != 1:
        sheet.error(entries["delimiter"][1], f"{delimiter!r} is not one character", "write one, or tab")
    if not patterns or None in patterns:
        return None
    return Files(tuple(str(each) for each in patterns), form, delimiter, columns)


def _format(pattern: str) -> str | None:
    suffixes = [suffix for each in Path(pattern).suffixes if (suffix := each.rstrip("*")) not in (".gz", ".")]
    return {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".parquet": "parquet"}.get(
        suffixes[-1] if suffixes else ""
    )


def _time(sheet: Sheet, node: yaml.Node) -> Time | None:
    if isinstance(node, yaml.ScalarNode):
        text = sheet.word(node, "the time", TIME_EXAMPLE)
        return None if text is None else TextTime(text)
    entries = sheet.entries(node, "the time", TIME, TIME_EXAMPLE)
    ways = [key for key in ("value", "clock") if key in entries]
    if len(ways) != 1:
        sheet.error(node, "the time needs either value: or clock:", TIME_EXAMPLE)
        return None
    if ways == ["clock"]:
        clock = sheet.word(entries["clock"][1], "the time", TIME_EXAMPLE)
        return None if clock is None else ClockTime(clock)
    value = sheet.word(entries["value"][1], "the time", TIME_EXAMPLE)
    if value is None:
        return None
    if "unit" not in entries:
        if "epoch" in entries:
            sheet.error(entries["epoch"][0], "epoch: is for numbers", "add their unit:, as in unit: s")
        zone = _text(sheet, entries, "zone", "the zone") or "UTC"
        if not OFFSET.fullmatch(zone) and zone not in (available_timezones() or (zone,)):
            sheet.error(
                entries["zone"][1], f"there is no time zone {zone!r}", "write one like Europe/Berlin, UTC or +02:00"
            )
        return TextTime(value, _text(sheet, entries, "pattern", "the pattern"), zone)
    unit = sheet.word(entries["unit"][1], "the unit")
    if unit not in UNITS:
        sheet.error(entries["unit"][1], f"{unit!r} is no unit of time", f"write one of {', '.join(UNITS)}")
        return None
    epoch = _text(sheet, entries, "epoch", "epoch")
    if epoch not in (None, "yes", "no", "true", "false"):
        sheet.error(entries["epoch"][1], "epoch: is yes or no", "no: the numbers count from a moment of their own")
    return NumberTime(value, unit, epoch not in ("no", "false"))


def _attributes(sheet: Sheet, node: yaml.Node) -> Mapping[str, Kept]:
    """``name: kind`` for a column of that name, or ``name: {value: expression, kind: kind}``."""
    found = {}
    for name, (_, given) in sheet.entries(
        node, "the attributes", None, "write attributes: {bike: {value: bikeid, kind: int}}"
    ).items():
        if isinstance(given, yaml.ScalarNode):
            value, kind = f"`{name}`", sheet.word(given, f"the kind of {name}")
        else:
            entries = sheet.entries(given, f"the attribute {name}", ("value", "kind"))
            if "kind" not in entries:
                sheet.error(given, f"the attribute {name} has no kind", f"write kind: and one of {', '.join(KINDS)}")
                continue
            value = _text(sheet, entries, "value", f"the value of {name}") or f"`{name}`"
            kind = sheet.word(entries["kind"][1], f"the kind of {name}")
        if kind not in KINDS:
            sheet.error(given, f"{kind!r} is no kind of attribute", f"write one of {', '.join(KINDS)}")
            continue
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            sheet.error(
                given, f"{name!r} cannot be named in rules", "use letters, digits and _, and begin with a letter"
            )
            continue
        found[name] = Kept(value, kind)
    return found


# ---------------------------------------------------------------------------------------------------------------- nodes


def _place(sheet: Sheet, node: yaml.Node) -> Place | None:
    if isinstance(node, yaml.ScalarNode):
        text = sheet.word(node, "the node", NODE_EXAMPLE)
        return None if text is None else ByValue(text)
    entries = sheet.entries(node, "the node", NODE, NODE_EXAMPLE)
    ways = [key for key in NODE_WAYS if key in entries]
    if len(ways) != 1:
        sheet.error(node, f"the node is told by one of {', '.join(NODE_WAYS)}", NODE_EXAMPLE)
        return None
    if ways == ["value"]:
        return _by_value(sheet, entries)
    if ways == ["hash"]:
        return _by_hash(sheet, entries)
    return _by_point(sheet, ways[0], entries[ways[0]][1])


def _by_value(sheet: Sheet, entries: Entries) -> Place | None:
    value = _text(sheet, entries, "value", "the node")
    names = None
    if "names" in entries:
        names = {}
        for said, (_, name) in sheet.entries(entries["names"][1], "the names of nodes").items():
            names[said] = str(sheet.word(name, f"the node for {said}"))
    return None if value is None else ByValue(value, names)


def _by_hash(sheet: Sheet, entries: Entries) -> Place | None:
    value = _text(sheet, entries, "hash", "what is hashed")
    if "nodes" not in entries:
        sheet.error(entries["hash"][0], "a hash needs nodes to choose from", "write nodes: 10, or a list of names")
        return None
    given = entries["nodes"][1]
    if isinstance(given, yaml.SequenceNode):
        names = tuple(str(sheet.word(each, "a node")) for each in given.value)
    else:
        text = sheet.word(given, "the number of nodes") or ""
        if not text.isdecimal() or not 0 < int(text) <= NODES_MAX:
            sheet.error(
                given, f"{text!r} is no number of nodes", f"write one from 1 to {NODES_MAX:,}, or a list of names"
            )
            return None
        names = tuple(f"n{number}" for number in range(1, int(text) + 1))
    if not names or len(set(names)) < len(names):
        sheet.error(given, "nodes are missing or stand twice", "name each once")
        return None
    return None if value is None else ByHash(value, names)


def _by_point(sheet: Sheet, way: str, node: yaml.Node) -> Place | None:
    known = ("latitude", "longitude", "regions", "otherwise") if way == "region" else ("latitude", "longitude", "nodes")
    example = "regions: {north: [45.1, 46, 7, 9]}" if way == "region" else "nodes: {turin: [45.07, 7.69]}"
    entries = sheet.entries(node, way, known, f"write {way}: {{latitude: lat, longitude: lon, {example}}}")
    missing = [key for key in known[:3] if key not in entries]
    if missing:
        sheet.error(
            node, f"{way} lacks {', '.join(missing)}", f"write {way}: {{latitude: lat, longitude: lon, {example}}}"
        )
        return None
    latitude, longitude = (
        _text(sheet, entries, "latitude", "the latitude"),
        _text(sheet, entries, "longitude", "the longitude"),
    )
    if latitude is None or longitude is None:
        return None
    if way == "region":
        regions = _numbers(
            sheet, entries["regions"][1], "region", 4, "[south, north, west, east]", lambda found: Region(*found)
        )
        for name, region in regions.items():
            if region.south >= region.north or region.west >= region.east:
                sheet.error(entries["regions"][1], f"the region {name} is empty", "write [south, north, west, east]")
        return (
            ByRegion(latitude, longitude, regions, _text(sheet, entries, "otherwise", "otherwise")) if regions else None
        )
    places = _numbers(
        sheet, entries["nodes"][1], "node", 2, "[latitude, longitude]", lambda found: (found[0], found[1])
    )
    return ByNearest(latitude, longitude, places) if places else None


def _numbers(
    sheet: Sheet, node: yaml.Node, what: str, count: int, example: str, made: Callable[[list[float]], T]
) -> dict[str, T]:
    found = {}
    for name, (_, given) in sheet.entries(node, f"the {what}s").items():
        try:
            numbers = [float(str(each.value)) for each in given.value] if not is_null(given) else []
        except (ValueError, AttributeError):
            numbers = []
        if not isinstance(given, yaml.SequenceNode) or len(numbers) != count:
            sheet.error(given, f"the {what} {name} needs {count} numbers", f"write {name}: {example}")
            continue
        found[name] = made(numbers)
    return found
