"""Many nodes, started by ``headwater up``: how soon they are up, and what they cost while nothing happens."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from benchmarks.network_kit import a_folder, cpu_s, headwater, memory_mb
from headwater.deploy.cluster.runs import Run

RULE = """\
    define Fire(area: string, temperature: float)
    from Smoke() and last Temp(area = Smoke.area, value > 45) within 5 s from Smoke
    where area = Smoke.area, temperature = Temp.value
"""
SETTLE_S = 5.0  # after the start there is still something to say


def a_tree(nodes: int, folder: Path) -> Path:
    """A binary tree of nodes with sources in two leaves and a sink at the top, to which programs may publish."""
    names = [f"n{number:02}" for number in range(1, nodes + 1)]
    links = "".join(
        f"  - {{between: [{names[number // 2 - 1]}, {names[number - 1]}]}}\n" for number in range(2, nodes + 1)
    )
    text = (
        "events:\n  Smoke: {area: string}\n  Temp: {area: string, value: float}\n"
        f"nodes: [{', '.join(names)}]\nlinks:\n{links}"
        "sources:\n"
        f"  - {{node: {names[-1]}, type: Smoke, client: any}}\n"
        f"  - {{node: {names[-2]}, type: Temp, client: any}}\n"
        f"sinks:\n  - {{node: {names[0]}, subscribe: Fire, to: {{file: fires.jsonl}}}}\n"
        f"rules:\n  - |\n{RULE}"
        "strategy: st\n"
    )
    file = folder / "tree.yaml"
    file.write_text(text)
    return file


class Up:
    """A network that ``headwater up`` has started; ``seconds`` tells how long that took."""

    def __init__(self, nodes: int, folder: Path) -> None:
        self.folder = folder
        self.run = Run(folder / ".headwater" / "tree")
        self.nodes = nodes
        self.seconds = 0.0
        a_tree(nodes, folder)

    def __enter__(self) -> Up:
        began_s = time.monotonic()
        try:
            headwater("up", "tree.yaml", folder=self.folder)
        except BaseException:
            self.__exit__()
            raise
        self.seconds = time.monotonic() - began_s
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(RuntimeError):
            headwater("down", folder=self.folder)

    def pids(self) -> list[int]:
        """The process ids of the nodes."""
        return [
            process["pid"] for process in self.run.state()["processes"] if process["role"] == "node" and process["pid"]
        ]


def seconds_to_start(nodes: int) -> float:
    with a_folder() as folder, Up(nodes, folder) as up:
        running = len(up.pids())
        if running != nodes:
            raise SystemExit(f"start: {running} of {nodes} nodes run")
        return up.seconds


def idle(nodes: int, seconds: float) -> tuple[float, float, float, float, int]:
    """CPU seconds per second of all nodes together; memory of each on average and at most, resident, and its own share
    of it; how many nodes there were."""
    with a_folder() as folder, Up(nodes, folder) as up:
        time.sleep(SETTLE_S)
        pids = up.pids()
        before, began_s = sum(map(cpu_s, pids)), time.monotonic()
        time.sleep(seconds)
        used = (sum(map(cpu_s, pids)) - before) / (time.monotonic() - began_s)
        memory = [memory_mb(pid) for pid in pids]
        resident = [sizes[0] for sizes in memory]
        own = sum(sizes[1] for sizes in memory) / len(memory)
        if len(pids) != nodes:
            raise SystemExit(f"idle: {len(pids)} of {nodes} nodes run")
        return used, sum(resident) / len(resident), max(resident), own, len(pids)
