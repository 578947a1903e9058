"""The network as a map: links as wide as their traffic, nodes as large as what passed through them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final, TypeAlias

from headwater.deploy.reporting.map_labels import NodeCircle, placed, short_names
from headwater.deploy.reporting.map_layout import aspect, laid_out
from headwater.deploy.reporting.svg import WIDTH, legend, picture, tag, text
from headwater.pipeline.report.assemble import between_nodes
from headwater.pipeline.report.shape import Shape
from headwater.pipeline.report.tables import Row, Tables
from headwater.protocol.text import count, milliseconds, plural, size

MARGIN: Final = 56
NAMES_MAX: Final = 80  # nodes up to which names are written beside them
FEW: Final = 12  # nodes up to which names are written large, and a map is flat
LETTERS, LETTERS_SMALL = 13, 11  # heights, as page.css has them
RING, TRIANGLE = 6, 13  # what they add to a node
HEATS: Final = 5  # shades of how busy a node is

Points: TypeAlias = Mapping[str, tuple[float, float]]
"""Where each node stands in the picture."""


@dataclass(frozen=True, slots=True)
class Spot:
    """A node on the map."""

    node: str
    x: float
    y: float
    radius: float
    busy: int
    """Events that came in, went out or were born here."""
    heat: int
    sources: Sequence[str]
    sinks: Sequence[str]
    row: Row
    """What the tables say of it."""


def network_map(shape: Shape, tables: Tables, run: str) -> str:
    """The map of one run."""
    places = laid_out(shape.nodes, [(link.one, link.other) for link in shape.links])
    height = max(180, round(WIDTH * aspect(places)))
    points = {
        node: (MARGIN + x * (WIDTH - 2 * MARGIN), MARGIN + y * (height - 2 * MARGIN - 14))
        for node, (x, y) in places.items()
    }
    spots = _spots(shape, tables.of("nodes", run), points)
    parts = _links(shape, tables.of("links", run), points)
    parts += [_circle(spot, shape) for spot in spots]
    if len(spots) <= NAMES_MAX:
        parts += _names(spots, height)
    entries = [("link, as wide as what crossed it", "k-link"), ("source", "k-source"), ("sink", "k-sink")]
    shades = [("little through it", "k-heat0"), ("most through it", f"k-heat{HEATS - 1}")]
    return picture("".join(parts), WIDTH, height, f"map of the network under {run}") + legend(entries + shades)


def _spots(shape: Shape, rows: Iterable[Row], points: Points) -> list[Spot]:
    """Every node with its size and shade, which say how busy it is beside the others."""
    loads = {row["node"]: row for row in rows}
    busy = {node: row["events_in"] + row["events_out"] + row["born"] for node, row in loads.items()}
    busiest = max(busy.values(), default=0) or 1
    sources: dict[str, list[str]] = defaultdict(list)
    sinks: dict[str, list[str]] = defaultdict(list)
    for node, kind in shape.sources:
        sources[node].append(kind)
    for sink in shape.sinks:
        sinks[sink.node].append(sink.type)
    return [
        Spot(
            node,
            *points[node],
            radius=7 + 13 * math.sqrt(busy[node] / busiest),
            busy=busy[node],
            heat=min(HEATS - 1, int(HEATS * busy[node] / busiest)),
            sources=sources.get(node, ()),
            sinks=sinks.get(node, ()),
            row=loads[node],
        )
        for node in shape.nodes
    ]


def _links(shape: Shape, rows: Iterable[Row], points: Points) -> list[str]:
    """A line for every link."""
    crossed: dict[tuple[str, str], dict[str, int]] = defaultdict(lambda: {"events": 0, "bytes": 0, "overhead": 0})
    for row in rows:
        if between_nodes(row):
            here = crossed[row["from"], row["to"]]
            here["overhead" if row["overhead"] else "bytes"] += row["bytes"]
            here["events"] += 0 if row["overhead"] else row["events"]
    both = {
        (link.one, link.other): crossed[link.one, link.other]["events"] + crossed[link.other, link.one]["events"]
        for link in shape.links
    }
    most = max(both.values(), default=0) or 1
    lines = []
    for link in shape.links:
        (x1, y1), (x2, y2) = points[link.one], points[link.other]
        events = both[link.one, link.other]
        tip = "\n".join(
            [
                f"{link.one} - {link.other}, {milliseconds(link.delay_us / 1000)}",
                *(
                    f"{a} → {b}: {plural(crossed[a, b]['events'], 'event')}, {size(crossed[a, b]['bytes'])} "
                    f"and {size(crossed[a, b]['overhead'])} of overhead"
                    for a, b in ((link.one, link.other), (link.other, link.one))
                ),
            ]
        )
        width = 1.2 + 10.8 * math.sqrt(events / most) if events else 1.2
        ends = {"x1": x1, "y1": y1, "x2": x2, "y2": y2, "class_": "link" if events else "link idle"}
        data = {"data_tip": tip, "data_one": link.one, "data_other": link.other, "data_events": events}
        lines.append(tag("line", {**ends, "stroke_width": width, **data}, _title(tip)))
    return lines


def _circle(spot: Spot, shape: Shape) -> str:
    """A node, with a ring around a sink and a triangle on top of a source."""
    x, y, radius = spot.x, spot.y, spot.radius
    tip = _about(spot.node, shape, spot.row, spot.sources, spot.sinks)
    inside = ""
    if spot.sinks:
        inside += tag("circle", {"cx": x, "cy": y, "r": radius + 4.5, "class_": "sink"})
    if spot.sources:
        top = y - radius - (9 if spot.sinks else 4)
        inside += tag("path", {"d": f"M{x:.1f},{top:.1f}l-6,-9h12z", "class_": "source"})
    inside += tag("circle", {"cx": x, "cy": y, "r": radius, "class_": f"heat{spot.heat}"}) + _title(tip)
    data = {"data_tip": tip, "data_node": spot.node, "data_busy": spot.busy}
    return tag("g", {"class_": "node", **data}, inside)


def _names(spots: Sequence[Spot], height: int) -> list[str]:
    """The names beside the nodes. The busiest nodes choose first where theirs stand."""
    circles = {
        spot.node: NodeCircle(spot.x, spot.y, spot.radius + RING * bool(spot.sinks), TRIANGLE * bool(spot.sources))
        for spot in sorted(spots, key=lambda spot: -spot.busy)
    }
    letters, style = (LETTERS, "name") if len(spots) <= FEW else (LETTERS_SMALL, "name small")
    labels = placed(circles, short_names([spot.node for spot in spots]), letters, (WIDTH, height))
    return [text(label.x, label.y, label.text, style, "middle") for label in labels.values()]


def _title(tip: str) -> str:
    return f"<title>{escape(tip)}</title>"


def _about(node: str, shape: Shape, row: Row, sources: Sequence[str], sinks: Sequence[str]) -> str:
    """What there is to say of a node."""
    lines = [f"{node} (leader under centr)" if node == shape.leader else node]
    if sources:
        lines.append(f"source of {', '.join(dict.fromkeys(sources))}: {plural(row['born'], 'event')} born")
    if sinks:
        lines.append(f"sink of {', '.join(dict.fromkeys(sinks))}: {count(row['delivered'])} delivered")
    lines.append(f"{plural(row['events_in'], 'event')} in, {count(row['events_out'])} out")
    lines.append(f"at most {plural(row['held_peak'] or 0, 'row')} held, {plural(row['tasks'], 'task')}")
    if row["cpu_s"] is not None:
        lines.append(f"{row['cpu_s']:.2f} s of processor time")
    return "\n".join(lines)
