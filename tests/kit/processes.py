"""A network of real processes for tests: a coordinator and nodes over real sockets, with journals on a real disk.

Processes are forked from a server that has imported everything, so that starting one takes milliseconds. They are
killed, paused and started again as a test wants it.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import signal
import sys
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.client import HTTPException
from pathlib import Path
from typing import Any

from headwater.coordinator.layout.stages import Layout
from headwater.deploy.cluster.local import HOST
from headwater.node.core import NodeSettings
from headwater.node.edge.interfaces import identity as identity
from headwater.protocol.edge import Destination, Feed, FileTo, TraceFeed
from headwater.protocol.links import make_keys
from headwater.protocol.messages.control import COORDINATOR as COORDINATOR
from headwater.protocol.network import Network
from tests.kit import patience
from tests.kit.patience import ANSWER_S, joined
from tests.kit.ports import free_port
from tests.law.networks import NetworkCase

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.kit.process_mains"])

GLANCE_S = 20.0
"""For an answer of a process that may be stopped: a caller that needs one asks again."""

SUSPICIOUS = ("internal_errors", "unknown_body", "unknown_stream", "malformed_messages", "refused_whispers")
"""What no node may ever count, whatever is done to its process."""

DELAY_US_MAX = 20_000
"""Delays of random networks are made for virtual time; here the tests wait for them."""


@dataclass(frozen=True)
class Place:
    """Where a node runs: the address it listens at, and the network namespace (None: that of the test)."""

    host: str = HOST
    namespace: str | None = None


class Cluster:
    """One network. Use it in a ``with`` block."""

    def __init__(
        self,
        network: Network,
        folder: Path,
        feeds: tuple[Feed, ...],
        destinations: tuple[Destination, ...] | None = None,
        durability: str = "sync",
        *,
        settings: NodeSettings | None = None,
        places: Mapping[str, Place] | None = None,
        coordinator_host: str = HOST,
        with_keys: bool = False,
        snapshot_bytes: int | None = None,
        layout: Layout | None = None,
        told: Mapping[str, Any] | None = None,
    ) -> None:
        """``snapshot_bytes``: a journal of this length is replaced by a snapshot; None: as ever, so in no test.
        ``layout``: how rules are laid out under 'inev'; None: as the planner says. ``told``: what else the
        coordinator's ``Setup`` says."""
        self.network = network
        self.folder = folder
        self.feeds = feeds
        self.destinations = destinations or tuple(FileTo(f"sink-{n}.jsonl") for n in range(len(network.sinks)))
        self.durability = durability
        self.settings = settings
        self.places = places or {}
        self.coordinator_host = coordinator_host
        self.snapshot_bytes = snapshot_bytes
        self.layout = layout
        self.told = dict(told or {})
        self.keys = folder / "keys" if with_keys else None
        if self.keys is not None:
            make_keys(self.keys, [COORDINATOR, *network.nodes])
        self.running: dict[str, Any] = {}
        self.kills = 0

    def __enter__(self) -> Cluster:
        self.start_coordinator()
        for node in self.network.nodes:
            self.start(node)
        return self

    def __exit__(self, *_: object) -> None:
        self._end(list(self.running), signal.SIGKILL)

    # -------------------------------------------------------------------------------------------------------- processes

    def start_coordinator(self) -> None:
        from tests.kit.process_mains import coordinator_main

        endpoints = self.folder / "coordinator" / "endpoints.json"
        if endpoints.exists():  # nodes and programs look for it where it was
            known = json.loads(endpoints.read_text())
            listen, http = known["hub"], known["http"].removeprefix("http://")
            endpoints.unlink()
        else:
            host = self.coordinator_host
            listen, http = f"tcp://{host}:{self._port(host)}", f"{HOST}:{self._port()}"
        setup = (self.network, self.feeds, self.destinations, self.durability, self.told)
        where = (listen, http, self.keys)
        turned = (self.snapshot_bytes, self.layout)
        self._run(COORDINATOR, coordinator_main, self.folder / "coordinator", setup, *where, *turned)
        until(endpoints.exists, "the coordinator listens", self)
        self.coordinator = json.loads(endpoints.read_text())

    def start(self, node: str) -> None:
        from tests.kit.process_mains import node_main

        data = self.data(node)
        place = self.places.get(node, Place())
        known = self.log(node).with_suffix(".address")
        listen = known.read_text() if known.exists() else f"tcp://{place.host}:{self._port(place.host)}"
        where = (self.coordinator["hub"], listen, f"{place.host}:0", self.keys, place.namespace)
        self._run(node, node_main, node, data, *where, self.settings, self.snapshot_bytes)

    def _port(self, host: str = HOST) -> int:
        """One that nothing else gets between two lives of a process; elsewhere than on loopback, whichever is free."""
        return free_port() if host == HOST else 0

    def _run(self, name: str, main: Any, *arguments: Any) -> None:
        log = self.log(name)
        log.parent.mkdir(exist_ok=True, parents=True)
        process = CONTEXT.Process(target=main, args=(log, *arguments), name=name, daemon=True)
        process.start()
        self.running[name] = process

    def _end(self, names: Sequence[str], with_signal: int) -> None:
        processes = [self.running.pop(name) for name in names]
        for process in processes:
            if process.is_alive():
                os.kill(process.pid, with_signal)
        for process in processes:
            joined(process, process.name)

    def kill(self, *names: str) -> None:
        """kill -9, of all of them at the same moment."""
        self.kills += len(names)
        self._end(names, signal.SIGKILL)

    def terminate(self, *names: str) -> None:
        """SIGTERM, and wait until they have left in good order."""
        self._end(names, signal.SIGTERM)

    def restart(self, *names: str) -> None:
        if COORDINATOR in names:
            self.start_coordinator()
        for name in names:
            if name != COORDINATOR:
                self.start(name)

    def pause(self, name: str) -> None:
        os.kill(self.running[name].pid, signal.SIGSTOP)

    def go_on(self, name: str) -> None:
        os.kill(self.running[name].pid, signal.SIGCONT)

    def dead(self) -> list[str]:
        """Processes that have ended although no test ended them."""
        return [name for name, process in self.running.items() if not process.is_alive()]

    # ------------------------------------------------------------------------------------------------------------ files

    def data(self, node: str) -> Path:
        return self.folder / "nodes" / node

    def log(self, name: str) -> Path:
        return self.folder / "logs" / f"{name}.log"

    def said(self, name: str) -> str:
        """Everything in the log of a process, over all its restarts."""
        file = self.log(name)
        return file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""

    def logs(self, lines: int = 30) -> str:
        found = []
        for file in sorted((self.folder / "logs").glob("*.log")):
            found += [f"--- {file.name}", *file.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]]
        return "\n".join(found)

    # ----------------------------------------------------------------------------------------------------------- seeing

    def ask(self, node: str, path: str) -> Any:
        """What the node says over HTTP; None while it says nothing."""
        try:
            address = self.log(node).with_suffix(".http").read_text()
            with urllib.request.urlopen(address + path, timeout=GLANCE_S) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            return json.load(error)
        except (OSError, ValueError):
            return None

    def metrics(self, node: str) -> str:
        """The page of a node's metrics; empty while it says nothing."""
        try:
            address = self.log(node).with_suffix(".http").read_text()
            with urllib.request.urlopen(address + "/metrics", timeout=GLANCE_S) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""

    def metric(self, node: str, name: str) -> float | None:
        """The value of a metric without labels."""
        found = re.search(rf"^{name}(?:{{[^}}]*}})? (\S+)$", self.metrics(node), re.MULTILINE)
        return float(found[1]) if found else None

    def ask_coordinator(self, method: str, path: str, body: Any = None, key: str | None = None) -> tuple[int, Any]:
        """Status and answer of the coordinator; raises OSError while it does not answer."""
        token = (self.folder / "coordinator" / "token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        if key is not None:
            headers["Idempotency-Key"] = key
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(self.coordinator["http"] + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(asked, timeout=ANSWER_S) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def insist(self, method: str, path: str, body: Any = None, *, key: str, later: Sequence[int] = (503, 504)) -> Any:
        """The coordinator's answer to a change, which is asked for again under the same key while the coordinator is
        away, or says (``later``) that it cannot be made yet: on a busy machine a node may not answer in time."""
        reply: list[Any] = []

        def is_made() -> bool:
            try:
                status, answer = self.ask_coordinator(method, path, body, key)
            except (OSError, HTTPException):
                return False
            assert status == 200 or status in later, (key, status, answer, self.logs())
            reply[:] = [status, answer]
            return status == 200

        # Some tests kill processes from another thread meanwhile, so one that is not there is no sign of a mistake.
        patience.until(is_made, f"the coordinator makes the change {key!r}", why=lambda: f"{reply}\n{self.logs()}")
        return reply[1]

    def waiting(self) -> dict[str, list[str]]:
        found = {node: self.ask(node, "/waiting") for node in self.network.nodes}
        return {node: ["it does not answer"] if each is None else each for node, each in found.items() if each != []}

    def missing(self) -> dict[str, list[str]]:
        """What nodes lack to be ready."""
        found = {node: self.ask(node, "/ready") for node in self.network.nodes}
        lacking = {node: ["it does not answer"] if each is None else each["missing"] for node, each in found.items()}
        return {node: each for node, each in lacking.items() if each}

    def wait_until_ready(self) -> None:
        until(lambda: not self.missing(), "all nodes are ready", self, self.missing)

    def wait_until_done(self) -> None:
        """Until all sources have ended and everything that follows from them has been delivered."""
        until(lambda: not self.waiting(), "everything is delivered", self, self.waiting)

    def wait_until_delivered(self, least: int) -> None:
        """Until the files of all sinks together have so many lines: the load is under way."""
        until(lambda: self.count() >= least, f"{least} deliveries have arrived", self, self.waiting)

    def wait_for_more(self, number: int) -> None:
        """Until so many more deliveries have arrived: it goes on. Where a busy machine has taken longer than the load
        lasts, there may not be so many any more."""
        least = self.count() + number
        until(lambda: self.count() >= least or not self.waiting(), "it detects on", self, self.waiting)

    def count(self) -> int:
        return sum(file.read_bytes().count(b"\n") for file in self._files())

    def _files(self) -> Iterator[Path]:
        for number, sink in enumerate(self.network.sinks):
            file = self.data(sink.node) / f"sink-{number}.jsonl"
            if file.exists():
                yield file

    def delivered(self) -> list[list[dict[str, Any]]]:
        """By sink what its file holds."""
        found = []
        for number, sink in enumerate(self.network.sinks):
            found.append(lines_of(self.data(sink.node) / f"sink-{number}.jsonl"))
        return found

    def reports(self) -> dict[str, int]:
        """What all nodes have counted that should be rare, each since its last start."""
        found: dict[str, int] = {}
        for node in self.network.nodes:
            for name, number in self.reports_of(node).items():
                found[name] = found.get(name, 0) + number
        return found

    def reports_of(self, node: str) -> dict[str, int]:
        pattern = r'^headwater_core_reports_total{report="(\w+)"} (\S+)$'
        found = re.findall(pattern, self.metrics(node), re.MULTILINE)
        return {name: int(float(number)) for name, number in found}

    def bugs(self) -> list[str]:
        """Signs of mistakes in the program, in the counters of all nodes and in all logs."""
        found = [f"{name}: {number}" for name, number in self.reports().items() if name in SUSPICIOUS]
        for name in (COORDINATOR, *self.network.nodes):
            lines = self.said(name).splitlines()
            for place, line in enumerate(lines):
                if "Traceback" in line or "(a bug)" in line:
                    found.append(f"{name} says:\n" + "\n".join(lines[max(0, place - 2) : place + 40]))
                    break
        return found


def until(holds: Callable[[], Any], what: str, cluster: Cluster, why: Callable[[], Any] | None = None) -> None:
    def alive() -> None:
        assert not cluster.dead(), f"{cluster.dead()} ended by themselves\n{cluster.logs()}"

    patience.until(holds, what, why=lambda: f"{why() if why else ''}\n{cluster.logs()}", alive=alive)


def lines_of(file: Path) -> list[dict[str, Any]]:
    """The deliveries in the file of a sink."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []


# -- what was delivered against what must be ---------------------------------------------------------------------------


def named(key: Any) -> str:
    """An identity of ``tests.law.law`` as files of sinks write it."""
    return key if isinstance(key, str) else f"{key[0]}#{key[1]}"


@dataclass(frozen=True)
class Difference:
    """Of one or more sinks: what never came, what came more than once, and what should not have come at all."""

    missing: tuple[str, ...] = ()
    repeated: tuple[str, ...] = ()
    false: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.missing or self.repeated or self.false)


def difference(delivered: Sequence[Iterable[dict[str, Any]]], must: Sequence[Iterable[Any]]) -> Difference:
    """By sink what its file holds against the identities that it must hold, each once."""
    missing: list[str] = []
    repeated: list[str] = []
    false: list[str] = []
    for number, (lines, needed) in enumerate(zip(delivered, must, strict=True)):
        times = Counter(map(identity, lines))
        wanted = set(map(named, needed))
        missing += [f"sink {number}: {each}" for each in sorted(wanted - times.keys())]
        false += [f"sink {number}: {each}" for each in sorted(times.keys() - wanted)]
        repeated += [f"sink {number}: {each} x {count}" for each, count in sorted(times.items()) if count > 1]
    return Difference(tuple(missing), tuple(repeated), tuple(false))


def assert_exact(cluster: Cluster, must: Sequence[Iterable[Any]], context: str = "") -> None:
    """Everything once, nothing else, and no sign of a mistake."""
    wrong = difference(cluster.delivered(), must)
    assert not wrong, f"{context}: {wrong}\n{cluster.logs()}"
    assert not (bugs := cluster.bugs()), f"{context}: " + "\n".join(bugs)


# -- cases as processes ------------------------------------------------------------------------------------------------


def as_replayed(network: Network, strategy: str) -> Network:
    sources = tuple(replace(source, replayed=True) for source in network.sources)
    links = tuple(replace(link, delay_us=min(link.delay_us, DELAY_US_MAX)) for link in network.links)
    return replace(network, sources=sources, links=links, strategy=strategy)


@contextmanager
def replayed(
    case: NetworkCase, strategy: str, folder: Path, *, speed: float = 0.0, durability: str = "sync", **options: Any
) -> Iterator[Cluster]:
    """The network of a case in real processes; its sources replay the events of the case that are not late."""
    network = as_replayed(case.network, strategy)
    with Cluster(network, folder, traces(case, folder, speed), durability=durability, **options) as cluster:
        yield cluster


def traces(case: NetworkCase, folder: Path, speed: float) -> tuple[Feed, ...]:
    feeds: list[Feed] = []
    for number, source in enumerate(case.network.sources):
        path = folder / f"source-{number}.jsonl"
        events = sorted(birth[2] for birth in case.births if birth[1] == number and not case.is_late(birth))
        with path.open("w", encoding="utf-8") as file:
            for event in events:
                row = {"type": source.type, "ts": event.ts, "node": event.node, "seq": event.seq}
                row |= {name: value for name, value in event.attributes.items() if value is not None}
                file.write(json.dumps(row) + "\n")
        feeds.append(TraceFeed(str(path), speed))
    return tuple(feeds)


if __name__ == "__main__":
    sys.exit("this is for tests to import")
