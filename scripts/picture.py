"""The picture of the README: what crosses the links of examples/fire, centralised and evaluated in the network.

Both maps come from real runs of ``headwater simulate`` and are drawn by the code of ``headwater report``. Their links
are then drawn on one scale, so that the widths of both maps can be compared, and each is labelled with its events.
"""

from __future__ import annotations

import math
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from html import escape
from pathlib import Path

from headwater.deploy.reporting.inputs import find_runs
from headwater.deploy.reporting.network_map import network_map
from headwater.deploy.reporting.svg import WIDTH
from headwater.pipeline.report.job import report_tables

PROJECT = Path(__file__).parent.parent
PICTURE = PROJECT / "docs" / "images" / "fire.svg"
NETWORK = PROJECT / "examples" / "fire" / "network.yaml"
HEADLINES = {"centr": "Centralised: every event travels to one node", "st": "Headwater: nodes filter and combine"}
TOP, GAP, BOTTOM = 74, 30, 56
LINE = re.compile(
    r'<line x1="([\d.]+)" y1="([\d.]+)" x2="([\d.]+)" y2="([\d.]+)"[^>]*data-events="(\d+)".*?</line>', re.S
)
NAME = re.compile(r'(<text [^>]*class="name"[^>]*>)(p\d)</text>')
STYLE = """
  text { font-family: system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1c2126 }
  .headline { font-size: 27px; font-weight: 650 } .total { font-size: 23px; fill: #5d6670 }
  .name { font-size: 22px; font-weight: 650; paint-order: stroke; stroke: #fff; stroke-width: 5px }
  .events { font-size: 20px; fill: #0b7285; paint-order: stroke; stroke: #fff; stroke-width: 5px }
  .link { stroke: #0b7285; stroke-opacity: .5; stroke-linecap: round }
  .link.idle { stroke: #adb5bd; stroke-opacity: 1; stroke-dasharray: 3 5; stroke-width: 1.5 }
  .node circle { stroke: #5d6670 } .node circle.sink { fill: none; stroke: #c2255c; stroke-width: 3 }
  .node .source { fill: #e67700 } .node .heat0 { fill: #e3f2f5 } .node .heat1 { fill: #9fd3dd }
  .node .heat2 { fill: #52aabb } .node .heat3 { fill: #14788a } .node .heat4 { fill: #083f4a }
"""


@dataclass(frozen=True)
class Map:
    strategy: str
    parts: str
    height: float
    events: int
    most: int

    @classmethod
    def simulated(cls, strategy: str, folder: Path) -> Map:
        """Run the network under a strategy and draw its map."""
        command = [sys.executable, "-m", "headwater.deploy.cli.command", "simulate", str(NETWORK), "--quiet"]
        options = ["--strategy", strategy, "--record", str(folder / strategy)]
        subprocess.run([*command, *options], check=True, stdout=subprocess.DEVNULL)
        (run,), _ = find_runs([str(folder / strategy)], folder)
        drawn = network_map(run.shape, report_tables(None, [run]), run.label)
        parts = drawn[drawn.index("<svg") : drawn.index("</svg>")].partition(">")[2]
        height = float(re.search(r'viewBox="0 0 \d+ ([\d.]+)"', drawn)[1])  # type: ignore[index]
        events = [int(match[5]) for match in LINE.finditer(parts)]
        return cls(strategy, parts, height, sum(events), max(events))

    def on_scale(self, most: int) -> str:
        """The map with links as wide as their share of the busiest link of all maps, and their events beside them."""
        labels: list[str] = []

        def line(match: re.Match[str]) -> str:
            x1, y1, x2, y2 = (float(match[i]) for i in range(1, 5))
            events = int(match[5])
            if not events:
                return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="link idle"/>'
            width = 1.5 + 16 * math.sqrt(events / most)
            length = math.hypot(x2 - x1, y2 - y1) or 1
            beside = width / 2 + 18
            up = 1 if x2 >= x1 else -1  # labels stand above their link, so that those of two links do not meet
            x, y = (x1 + x2) / 2 + up * (y2 - y1) / length * beside, (y1 + y2) / 2 - up * (x2 - x1) / length * beside
            labels.append(f'<text x="{x:.1f}" y="{y + 7:.1f}" class="events" text-anchor="middle">{events:,}</text>')
            ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
            return f'<line {ends} class="link" stroke-width="{width:.1f}"/>'

        drawn = re.sub(r"<title>.*?</title>", "", LINE.sub(line, self.parts), flags=re.S)
        drawn = NAME.sub(lambda name: f"{name[1]}{name[2]}</text>".replace("<text ", '<text dy="8" '), drawn)
        drawn = re.sub(r' data-(tip|node|busy|one|other)="[^"]*"', "", drawn)
        return drawn + "".join(labels)


def picture(maps: list[Map]) -> str:
    most = max(each.most for each in maps)
    height = TOP + max(each.height for each in maps) + BOTTOM
    width = len(maps) * WIDTH + (len(maps) - 1) * GAP
    parts = []
    for number, each in enumerate(maps):
        left = number * (WIDTH + GAP)
        parts.append(
            f'<g transform="translate({left},0)"><text x="30" y="40" class="headline">'
            f'{escape(HEADLINES[each.strategy])}</text><text x="30" y="72" class="total">{each.events:,} events cross '
            f'links</text><g transform="translate(0,{TOP})">{each.on_scale(most)}</g></g>'
        )
    key = "triangle: source (Smoke at p7, Temp at p6) · ring: sink (Fire at p1 and p5) · width: events, on one scale"
    parts.append(f'<text x="30" y="{height - 18:.0f}" class="total">{key}</text>')
    title = ", ".join(f"{each.strategy}: {each.events:,} events" for each in maps)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height:.0f}" role="img" '
        f'aria-label="What crosses the links of a network of seven nodes; {title}">'
        f'<style>{STYLE}</style><rect width="{width}" height="{height:.0f}" rx="14" fill="#fff"/>'
        f"{''.join(parts)}</svg>\n"
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        maps = [Map.simulated(strategy, Path(folder)) for strategy in HEADLINES]
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    PICTURE.write_text(picture(maps), encoding="utf-8")
    print(f"{PICTURE.relative_to(PROJECT)}: {', '.join(f'{each.strategy} {each.events:,} events' for each in maps)}")


if __name__ == "__main__":
    main()
