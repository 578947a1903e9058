"""Networks of real processes for benchmarks: a coordinator, nodes, and nodes that are driven by a script.

Every process is a fresh interpreter, as in a deployment: nothing is shared with the one that measures.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from headwater.protocol.edge import Destination, Feed
from headwater.protocol.network import Network

CONTEXT = multiprocessing.get_context("spawn")
PATIENCE_S = 120.0  # how long anything may take before the benchmark gives up
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
NETWORK = "bench"

Script = Callable[..., Coroutine[Any, Any, None]]
"""Runs beside the daemon of a node: ``script(daemon, pipe)``."""


@dataclass(frozen=True)
class Line:
    """One line of the table: what was measured, beside what, and whether that is what was aimed at."""

    title: str
    figure: str
    beside: str
    goal: str
    reached: bool | None
    proof: str


@contextlib.contextmanager
def a_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="headwater-bench-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Stage:
    """One network, up within a ``with`` block. Nodes that have a script can be talked to through ``pipes``."""

    def __init__(
        self,
        network: Network,
        folder: Path,
        feeds: tuple[Feed, ...],
        destinations: tuple[Destination, ...],
        durability: str,
        scripts: dict[str, Script] | None = None,
        durabilities: dict[str, str] | None = None,
    ) -> None:
        """``durabilities`` of single nodes: scripted ones keep nothing, so that they do not compete for the disk."""
        self.network = network
        self.folder = folder
        self.pipes: dict[str, Connection] = {}
        self.processes: dict[str, Any] = {}
        self._about = (network, feeds, destinations, durability)
        self._scripts = scripts or {}
        self._durabilities = durabilities or {}
        self._coordinator = ""

    def __enter__(self) -> Stage:
        try:
            folder = self.folder / "coordinator"
            self._start("@coordinator", _coordinator_main, folder, self._about)
            endpoints = folder / "endpoints.json"
            self.until(endpoints.exists, "the coordinator listens")
            addresses = json.loads(endpoints.read_text())
            for node in self.network.nodes:
                data = self.folder / node
                self._start(node, _node_main, data, node, addresses["hub"], self._durabilities.get(node))
            for node in self.network.nodes:
                self.until((self.folder / node / "http").exists, f"{node} listens")
            self.until(lambda: all(self._is_ready(node) for node in self.network.nodes), "the network is ready")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            if process.is_alive():
                os.kill(process.pid, signal.SIGKILL)
        for process in self.processes.values():
            process.join()

    def _start(self, name: str, main: Any, folder: Path, *arguments: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        script = self._scripts.get(name)
        here, there = CONTEXT.Pipe()
        self.pipes[name] = here
        if main is _node_main:
            arguments = (*arguments, script)
        log = self.folder / f"{name}.log"
        self.processes[name] = CONTEXT.Process(target=main, args=(log, there, folder, *arguments), daemon=True)
        self.processes[name].start()

    def _is_ready(self, node: str) -> bool:
        try:
            return bool(self.ask(node, "/ready").get("ready"))
        except (OSError, ValueError):
            return False

    def ask(self, node: str, path: str) -> Any:
        """What a node says over HTTP."""
        address = (self.folder / node / "http").read_text()
        try:
            with urllib.request.urlopen(address + path, timeout=30) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            return json.load(error)

    def address(self, node: str) -> str:
        return (self.folder / node / "address").read_text()

    def hear(self, node: str, patience_s: float = PATIENCE_S) -> Any:
        """The next thing that the script of a node says."""
        self.until(lambda: self.pipes[node].poll(0.02), f"{node} answers", patience_s)
        try:
            return self.pipes[node].recv()
        except EOFError:
            raise RuntimeError(f"{node} has ended\n{self._logs()}") from None

    def cpu_s(self, node: str) -> float:
        return cpu_s(self.processes[node].pid)

    def until(self, holds: Callable[[], Any], condition: str, patience_s: float = PATIENCE_S) -> None:
        ends = time.monotonic() + patience_s
        while not holds():
            dead = [name for name, process in self.processes.items() if not process.is_alive()]
            if dead or time.monotonic() > ends:
                raise RuntimeError(f"waited in vain until {condition}; ended: {dead or 'none'}\n{self._logs()}")
            time.sleep(0.02)

    def _logs(self) -> str:
        lines = []
        for file in sorted(self.folder.glob("*.log")):
            lines += [f"--- {file.name}", *file.read_text(errors="replace").splitlines()[-15:]]
        return "\n".join(lines)


def cpu_s(pid: int) -> float:
    """CPU seconds of a process so far, of all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def memory_mb(pid: int) -> tuple[float, float]:
    """Resident memory of a process, and its share of it where pages are shared with others (PSS)."""
    sizes_mb = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        name, _, value = line.partition(":")
        if value.endswith("kB"):
            sizes_mb[name] = int(value.split()[0]) / 1024
    return sizes_mb["Rss"], sizes_mb["Pss"]


def load() -> str:
    return " ".join(f"{average:.1f}" for average in os.getloadavg())


# --------------------------------------------------------------------------------------------- what the processes run


def _begin(log: Path) -> None:
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _coordinator_main(log: Path, _: Connection, folder: Path, about: tuple[Any, ...]) -> None:
    import uvloop

    from headwater.coordinator.daemon.folder import DataFolder
    from headwater.coordinator.daemon.inputs import Setup
    from headwater.coordinator.daemon.process import CoordinatorDaemon, ProcessSettings

    _begin(log)

    async def run() -> None:
        network, feeds, destinations, durability = about
        data = DataFolder(folder)
        setup = Setup(id=NETWORK, network=network, feeds=feeds, destinations=destinations, durability=durability)
        data.keep_setup(setup)
        await CoordinatorDaemon(data, setup, ProcessSettings(listen="tcp://127.0.0.1:0")).run()

    uvloop.run(run())


def _node_main(
    log: Path, pipe: Connection, data: Path, name: str, hub: str, durability: str | None, script: Script | None
) -> None:
    import uvloop

    from headwater.node.daemon.daemon import DaemonSettings, NodeDaemon
    from headwater.node.daemon.garbage_collection import Collector
    from headwater.node.daemon.process import recovered, set_up_logging

    _begin(log)
    set_up_logging()

    async def run() -> None:
        settings = DaemonSettings(name=name, data=data, coordinator=hub, network=NETWORK, http="127.0.0.1:0")
        journal, machine, _ = recovered(settings, None)
        daemon = NodeDaemon(settings, machine, journal)
        daemon.collector = Collector()
        if durability is not None:
            daemon._keep_as(durability)
            daemon._keep_as = lambda durability: None  # type: ignore[method-assign]
        running = asyncio.create_task(daemon.run())
        while not daemon.http and not running.done():
            await asyncio.sleep(0.005)
        _write(data / "address", daemon.address)
        _write(data / "http", daemon.http)
        if script is not None:
            scripted = asyncio.create_task(script(daemon, pipe))
            await asyncio.wait([running, scripted], return_when=asyncio.FIRST_COMPLETED)
            if scripted.done():
                scripted.result()
        await running

    uvloop.run(run())


def _write(file: Path, text: str) -> None:
    beside = file.with_name(f".{file.name}")
    beside.write_text(text)
    beside.replace(file)


async def heard(pipe: Connection) -> Any:
    """In a script: what the benchmark says next."""
    while not pipe.poll():
        await asyncio.sleep(0.01)
    return pipe.recv()


# --------------------------------------------------------------------------------------------------- the command itself


def headwater(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """``headwater WORDS`` in a folder; what it said is part of the error if it fails."""
    project = str(Path(__file__).resolve().parent.parent)
    done = subprocess.run(
        [sys.executable, "-m", "headwater.deploy.cli.command", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": project},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"headwater {' '.join(words)} failed:\n{done.stdout}{done.stderr}")
    return done
