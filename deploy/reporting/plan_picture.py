"""Pictures of plans: Graphviz text, and an SVG of the network with what runs where and the traffic of each link."""

from __future__ import annotations

import math
from html import escape
from typing import Final

from headwater.coordinator.inev.plan.description import link_loads
from headwater.coordinator.inev.plan.plans import Plan
from headwater.deploy.reporting.map_layout import laid_out

SIZE: Final = 900
MARGIN: Final = 60
SPAN: Final = SIZE - 180  # leaves room for the names of the nodes on the right
TASKS_SHOWN: Final = 4
NAMED_NODES_MAX: Final = 120
"""With more nodes, names would cover the drawing."""


def work(plan: Plan) -> dict[int, list[str]]:
    """For each node the projections it evaluates, with what they ask for."""
    tasks_at: dict[int, list[str]] = {}
    for task in plan.tasks:
        pulled = ", ".join(pull.ask.type for pull in task.pulls)
        for node in task.nodes:
            tasks_at.setdefault(node, []).append(task.projection.text + (f" pulls {pulled}" if pulled else ""))
    return tasks_at


def as_dot(plan: Plan) -> str:
    """The plan for Graphviz: thicker links carry more."""
    network = plan.problem.network
    loads, tasks = link_loads(plan), work(plan)
    most = max(loads.values(), default=0.0)
    lines = [
        "graph plan {",
        "  overlap=false; splines=true;",
        '  node [shape=box, fontname="sans-serif", fontsize=10];',
    ]
    for node, name in enumerate(network.names):
        types = ", ".join(type for type in plan.problem.types if node in network.rates[type])
        label = "\\n".join(_dot(line) for line in (name, f"[{types}]" if types else "", *tasks.get(node, ())) if line)
        fill = ', style=filled, fillcolor="#dcebff"' if node in tasks else ""
        lines.append(f'  "{_dot(name)}" [label="{label}"{fill}];')
    for number, (one, other) in enumerate(network.topology.links):
        load = loads.get(number, 0.0)
        style = f'label="{load:.4g}", penwidth={1 + 5 * share(load, most):.2f}' if load else "color=gray, style=dotted"
        lines.append(f'  "{_dot(network.names[one])}" -- "{_dot(network.names[other])}" [{style}];')
    return "\n".join([*lines, "}"])


def _dot(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def share(load: float, most: float) -> float:
    """How thick a link is drawn, 0 to 1: rates differ by orders of magnitude, so by their logarithm."""
    if load <= 0 or most <= 0:
        return 0.0
    return max(0.0, 1 + math.log10(load / most) / 6)


def as_svg(plan: Plan) -> str:
    """The plan as a drawing that needs nothing else to be looked at."""
    network = plan.problem.network
    places = arranged(plan)
    loads, tasks = link_loads(plan), work(plan)
    most = max(loads.values(), default=0.0)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{SIZE}" height="{SIZE}" viewBox="0 0 {SIZE} {SIZE}" '
        'font-family="sans-serif" font-size="11">',
        f"<title>{escape(plan.planner)}: cost {plan.cost:.6g}</title>",
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for number, (one, other) in enumerate(network.topology.links):
        (x1, y1), (x2, y2) = places[one], places[other]
        load = loads.get(number, 0.0)
        colour, width = ("#2f6fb0", 1 + 7 * share(load, most)) if load else ("#bbbbbb", 1.0)
        parts.append(
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
            f'stroke="{colour}" stroke-width="{width:.2f}">'
            f"<title>{escape(network.names[one])} - {escape(network.names[other])}: {load:.6g}</title></line>"
        )
    for node, name in enumerate(network.names):
        x, y = places[node]
        here = tasks.get(node, [])
        types = [type for type in plan.problem.types if node in network.rates[type]]
        tip = escape(f"{name}; sources: {', '.join(types) or 'none'}; evaluates: {', '.join(here) or 'nothing'}")
        parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{9 if here else 6}" fill="{"#f2a33a" if here else "#ffffff"}" '
            f'stroke="#333333"><title>{tip}</title></circle>'
        )
        if len(network.names) <= NAMED_NODES_MAX:
            parts.append(f'<text x="{x + 11:.1f}" y="{y - 6:.1f}">{escape(name)}: {escape(" ".join(types))}</text>')
            for row, text in enumerate(here[:TASKS_SHOWN]):
                parts.append(f'<text x="{x + 11:.1f}" y="{y + 7 + 12 * row:.1f}" fill="#a35a00">{escape(text)}</text>')
    parts.append(
        f'<text x="12" y="{SIZE - 14}">{escape(plan.planner)}: cost {plan.cost:.6g}; a node that evaluates is orange, '
        "a thicker link carries more</text></svg>"
    )
    return "\n".join(parts)


def arranged(plan: Plan) -> list[tuple[float, float]]:
    """Where every node stands on the picture."""
    network = plan.problem.network
    links = [(network.names[one], network.names[other]) for one, other in network.topology.links]
    places = laid_out(network.names, links)
    return [(MARGIN + SPAN * places[name][0], MARGIN + SPAN * places[name][1]) for name in network.names]
