"""A folder in which a user works with a network, by ``headwater`` as people call it, and the run of that network."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from headwater.deploy.cluster.runs import Run

PROJECT = Path(__file__).resolve().parent.parent.parent

NETWORK = """\
events:
  Smoke: {area: string}
  Temp: {area: string, value: float}
nodes: [p1, p2, p3]
links:
  - {between: [p1, p2], delay: 2ms}
  - {between: [p2, p3], delay: 1ms, bandwidth: 10Mbit}
sources:
  - {node: p2, type: Smoke, rate: 5/s, values: {area: {choice: [A1, A2]}}}
  - {node: p3, type: Temp, rate: 10/s, values: {area: {choice: [A1, A2]}, value: {uniform: [40, 60]}}}
sinks:
  - {node: p1, subscribe: Fire, to: {file: fires.jsonl}}
rules:
  - |
    define Fire(area: string, temperature: float)
    from Smoke() and last Temp(area = Smoke.area, value > 45) within 5 s from Smoke
    where area = Smoke.area, temperature = Temp.value
strategy: st
"""


class FireFolder:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run = Run(folder / ".headwater" / "fire")
        self.write("fire.yaml", NETWORK)

    def write(self, name: str, text: str) -> str:
        (self.folder / name).write_text(text)
        return name

    def start(self, *words: str) -> subprocess.Popen[str]:
        """The command in a process of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "headwater.deploy.cli.command", *words],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(PROJECT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
