"""Writes the records of a simulated run as node processes would, but in virtual time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from headwater.deploy.cluster.run_plan import file_name
from headwater.deploy.simulation.outcome import Delivery
from headwater.deploy.simulation.simulator import Simulation
from headwater.node.observe.metrics.counters import NodeCounters
from headwater.node.observe.metrics.observed import Observed
from headwater.node.observe.metrics.record_files import RecordFiles
from headwater.node.observe.metrics.record_lines import Growth, birth_record, match_record
from headwater.node.remote.guard import Figures
from headwater.protocol.composites import Composite
from headwater.protocol.events import Event

PENDING_MAX: Final = 1_000  # lines that wait to be written: files are opened once for so many
FIRST_US: Final = 1_000_000  # virtual time between two records of the metrics, at first
SAMPLES: Final = 100  # after so many records of the metrics the time between them doubles, however long a run is

_written = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Recorder:
    """Writes ``data/NODE/records`` of every node into a folder while a simulation runs."""

    def __init__(self, folder: Path, network: str, run: str) -> None:
        self._folder = folder
        self._network = network
        self._run = run
        self._nodes: dict[str, _Node] = {}
        self._simulation: Simulation | None = None
        self._every_us = FIRST_US
        self._due_us = 0
        self._samples = 0

    def begins(self, run: Simulation) -> None:
        self._simulation = run
        self._due_us = run.now_us + self._every_us
        for name in run.network.nodes:
            folder = self._folder / "data" / file_name(name) / "records"
            self._nodes[name] = _Node(folder, name, self._network, self._run, run)

    def born(self, node: str, source: int, event: Event, refused: Sequence[tuple[str, int]]) -> None:
        self._nodes[node].born(source, event, refused)
        self._look()

    def delivered(self, delivery: Delivery) -> None:
        self._nodes[delivery.node].delivered(delivery)
        self._look()

    def ended(self, at_us: int) -> None:
        for node in self._nodes.values():
            node.close(at_us)

    def _look(self) -> None:
        assert self._simulation is not None
        now_us = self._simulation.now_us
        if now_us < self._due_us:
            return
        for node in self._nodes.values():
            node.sample()
        self._samples += 1
        if self._samples >= SAMPLES:
            self._samples, self._every_us = 0, 2 * self._every_us
        self._due_us = now_us + self._every_us


class _Requests(NamedTuple):
    """What a node has asked remote tables."""

    figures: dict[str, Figures]


class _Node:
    """One node, and its files."""

    def __init__(self, folder: Path, name: str, network: str, run: str, simulation: Simulation) -> None:
        folder.mkdir(parents=True)
        self._name = name
        self._run = run
        self._simulation = simulation
        self._counters = NodeCounters(simulation.now_us)
        self._numbers: dict[int, int] = {}
        self._births: tuple[int, list[Event]] | None = None
        self._files = {kind: RecordFiles(folder, kind, files_max=1 << 30) for kind in ("metrics", "matches", "births")}
        self._pending: dict[str, list[bytes]] = {kind: [] for kind in self._files}
        self._observed = Observed(
            node=name,
            life="simulated",
            network=network,
            run=run,
            strategy=simulation.strategy,
            counters=self._counters,
            core=simulation.nodes[name],
            accounts=simulation.accounts.of(name),
            fetching=_Requests(simulation.answers.figures_of(name)),
            now_us=lambda: simulation.now_us,
        )
        self._growth = Growth(self._observed, from_nothing=True)  # with what it took to set up

    def born(self, source: int, event: Event, refused: Sequence[tuple[str, int]]) -> None:
        now_us = self._simulation.now_us
        self._counters.source(source, event.type).taken(1, now_us, refused)
        if refused:
            return
        births = self._births
        if births is not None and births[0] == now_us and births[1][-1].seq + 1 == event.seq:
            births[1].append(event)
            return
        self._tell_births()
        self._births = (now_us, [event])

    def _tell_births(self) -> None:
        """Events that were born one after the other at the same time are one line."""
        if self._births is None:
            return
        now_us, events = self._births
        self._births = None
        first, last = events[0], events[-1]
        line = birth_record(self._run, first.node, now_us, len(events), (first.seq, last.seq), (first.ts, last.ts))
        self._put("births", line)

    def delivered(self, delivery: Delivery) -> None:
        sink, item, now_us = delivery.sink, delivery.item, delivery.delivered_us
        self._counters.delivered_to(sink, now_us - item.ts)
        number = self._numbers[sink] = self._numbers.get(sink, 0) + 1
        if isinstance(item, Composite):
            self._put("matches", match_record(self._run, self._name, sink, number, item, now_us, live=True))

    def sample(self) -> None:
        self._observed.core = self._simulation.nodes.get(self._name)
        self._put("metrics", self._growth.record())

    def close(self, at_us: int) -> None:
        """The last records. What nodes counted while they tidied up is in them; the time it took is not."""
        self._tell_births()
        self._observed.now_us = lambda: at_us
        self.sample()
        for kind in self._files:
            self._write(kind)

    def _put(self, kind: str, record: dict[str, Any]) -> None:
        pending = self._pending[kind]
        pending.append(_written(record).encode())
        if len(pending) >= PENDING_MAX:
            self._write(kind)

    def _write(self, kind: str) -> None:
        pending, self._pending[kind] = self._pending[kind], []
        if pending:
            self._files[kind].write(pending)
