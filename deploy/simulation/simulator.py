"""All nodes of a network in one process and in virtual time.

A loop around the nodes' cores: the next birth or the earliest thing in the heap, whichever comes first. The same
arguments give the same run to the byte.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from itertools import chain, count
from typing import Any
from zlib import crc32

from coordinator.trees import TreeKeeper
from deploy.simulation.accounts import Accounts
from deploy.simulation.faults import FOREVER, Faults
from deploy.simulation.links import Wire as LinkWire
from deploy.simulation.outcome import Delivery, Outcome
from node.catalog import composite_type
from node.core import NodeCore, NodeSettings
from node.effects import (
    AddSink,
    AddSource,
    Born,
    Configure,
    Deliver,
    Effect,
    Input,
    Ordered,
    Received,
    Report,
    Send,
    SetTimer,
    SourcesEnded,
    StoreRule,
    TimerFired,
    TreeStands,
)
from node.tree_work import describe
from protocol.composites import Composite
from protocol.events import Event
from protocol.network import Network
from protocol.wire import Wire

SETUP_US = 1_000_000  # virtual time before the first event, in which trees are built and rules deployed; more if needed

Birth = tuple[int, int, Event]


def simulate(
    network: Network,
    births: Iterable[Birth],
    *,
    strategy: str | None = None,
    seed: int = 0,
    faults: Faults | None = None,
    on_progress: Callable[[int], None] | None = None,
    check: bool = False,
    wire: bool = False,
    settings: NodeSettings | None = None,
) -> Outcome:
    """Run a network over the births (at, source, event), in order of ``at``, and say what came of it.

    ``check`` has checkers watch the run, which raise. ``wire`` sends every message as bytes and reads it again.
    """
    upcoming = iter(births)
    first = next(upcoming, None)
    starts_us = first[0] if first is not None else 0
    setup_us = SETUP_US
    while True:
        made = Simulation(network, strategy or network.strategy, seed, faults or Faults(), check=check, wire=wire, settings=settings)
        if made.set_up(starts_us - setup_us) < starts_us:
            break
        setup_us *= 8
    return made.run(chain(() if first is None else (first,), upcoming), on_progress)


class Simulation:
    """One run."""

    def __init__(
        self,
        network: Network,
        strategy: str,
        seed: int,
        faults: Faults,
        *,
        check: bool = False,
        wire: bool = False,
        settings: NodeSettings | None = None,
    ) -> None:
        self.network = network
        self.strategy = strategy
        self.faults = faults
        self.outcome = Outcome(strategy)
        self.now_us = 0
        self._check = check
        self._travels = wire
        self._wire = Wire(network.types, network.rules)
        self._accounts = Accounts(self.outcome, self._wire)
        around = network.neighbours()
        self.nodes = {
            node: NodeCore(node, {other: link.delay_us for other, link in around[node].items()}, settings)
            for node in network.nodes
        }
        self._links = {
            (node, other): LinkWire(link, random.Random(f"{seed} {node} {other}"), faults.cuts(node, other))
            for node, found in around.items()
            for other, link in found.items()
        }
        self._keeper = TreeKeeper(network, strategy)
        self._heap: list[tuple[int, int, str, Input | None]] = []
        self._idle: list[tuple[int, int, str, Input | None]] = []
        self._serial = count()
        self._behind = {node: faults.behind_us(node) for node in network.nodes}
        self._slow = {node: faults.message_us(node) for node in network.nodes}
        self._free_us = dict.fromkeys(network.nodes, -(1 << 62))
        self._down = {node: list(faults.downtimes(node)) for node in network.nodes}

    # --------------------------------------------------------------------------------------------------------- the run

    def run(
        self, births: Iterable[Birth], on_progress: Callable[[int], None] | None = None
    ) -> Outcome:
        upcoming = iter(births)
        birth = next(upcoming, None)
        for node, downtimes in self._down.items():
            for _, end in downtimes:
                if end < FOREVER:
                    heappush(self._heap, (end, next(self._serial), node, None))
        heap, idle = self._heap, self._idle
        while birth is not None:
            at = birth[0]
            if heap and heap[0][0] < at and (not idle or heap[0] < idle[0]):
                self._step(heap)
                continue
            if idle and idle[0][0] < at:
                self._step(idle)
                continue
            self.now_us = max(self.now_us, at)
            self._bear(birth[1], birth[2])
            birth = next(upcoming, None)
            if on_progress is not None:
                on_progress(self.now_us)
        self._drain()
        for node in self.network.nodes:
            types = tuple(sorted({source.type for source in self.network.sources if source.node == node}))
            if types:
                self._perform(node, self._handle(node, SourcesEnded(types)))
        self._drain()
        self.outcome.finished_us = self.now_us
        for name, core in self.nodes.items():
            self.outcome.tasks[name] = [
                describe(task.stream) for found in core.works.values() for task in found.tasks
            ]
        self.outcome.counters["held"] = sum(core.held() for core in self.nodes.values())
        return self.outcome

    def set_up(self, start_us: int) -> int:
        """Build the trees and deploy everything; the virtual time at which nothing is left to do."""
        self.now_us = start_us
        self._configure()
        self._drain()
        self._check_trees()
        self.outcome.started_us = self.now_us
        return self.now_us

    def _configure(self) -> None:
        network = self.network
        configuration = Configure(network.types, tuple(map(composite_type, network.rules)), self.strategy)
        for node in network.nodes:
            self._perform(node, self._handle(node, configuration))
        for source in network.sources:
            self._perform(source.node, self._handle(source.node, AddSource(source.type, source.lateness_us)))
        for number, sink in enumerate(network.sinks):
            self._perform(sink.node, self._handle(sink.node, AddSink(number, sink.subscription)))
        homes = sorted(network.nodes)
        for rule in network.rules:
            home = self._keeper.leader or homes[crc32(rule.name.encode()) % len(homes)]
            self._perform(home, self._handle(home, StoreRule(rule)))
        for node, order in self._keeper.begin():
            self._perform(node, self._handle(node, Ordered(order)))

    def _check_trees(self) -> None:
        wrong = self._keeper.check({name: core.trees.table() for name, core in self.nodes.items()})
        assert not wrong, f"the trees are not what they should be: {'; '.join(wrong)}"

    def _drain(self) -> None:
        """Go on until nobody has anything to do but housekeeping, which rests meanwhile."""
        while self._heap:
            self._step(self._heap)

    def _step(self, queue: list[tuple[int, int, str, Input | None]]) -> None:
        """The earliest thing in a queue."""
        at, _, node, received = heappop(queue)
        self.now_us = max(self.now_us, at)
        if received is None:  # the node starts again, with what it had saved when it went down
            self.nodes[node] = NodeCore.restored(self.nodes[node].save())
        else:
            self._perform(node, self._handle(node, received))

    def _bear(self, source: int, event: Event) -> None:
        node = self.network.sources[source].node
        for start, end in self._down[node]:
            if start <= self.now_us < end:
                self.outcome.counters["unborn"] += 1  # the node is down, and its sources with it
                return
        effects = self._handle(node, Born((event,)))
        if not any(isinstance(effect, Report) and effect.counter == "late_events" for effect in effects):
            self.outcome.born.append(event)
        self._perform(node, effects)

    # ------------------------------------------------------------------------------------------------- inputs, effects

    def _handle(self, node: str, received: Input) -> list[Effect]:
        return self.nodes[node].handle(received, self.now_us - self._behind[node])

    def _perform(self, node: str, effects: list[Effect]) -> None:
        for effect in effects:
            kind = type(effect)
            if kind is Send:
                self._send(node, effect)  # type: ignore[arg-type]
            elif kind is Deliver:
                self._deliver(node, effect.sink, effect.row)  # type: ignore[union-attr]
            elif kind is SetTimer:
                at = max(self.now_us, effect.at_us + self._behind[node])  # type: ignore[union-attr]
                queue = self._idle if effect.idle else self._heap  # type: ignore[union-attr]
                self._schedule(queue, at, node, TimerFired(effect.name))  # type: ignore[union-attr]
            elif kind is Report:
                self.outcome.counters[effect.counter] += effect.count  # type: ignore[union-attr]
            elif kind is TreeStands:
                self._keeper.tree_stands(effect.tree, effect.epoch)  # type: ignore[union-attr]

    def _schedule(self, queue: list[Any], at: int, node: str, received: Input) -> None:
        for start, end in self._down[node]:
            if start <= at < end:
                at = end
        if at < FOREVER:  # what would come after a loss for good never comes
            heappush(queue, (at, next(self._serial), node, received))

    def _send(self, node: str, effect: Send) -> None:
        message = effect.message
        data = self._wire.encode(message)
        arrival, copies = self._links[node, effect.neighbour].send(self.now_us, len(data))
        self._accounts.note(node, effect.neighbour, message, len(data), copies)
        if self._travels:
            message = self._wire.decode(data)
        slow = self._slow[effect.neighbour]
        if slow:
            arrival = self._free_us[effect.neighbour] = max(arrival, self._free_us[effect.neighbour]) + slow
        self._schedule(self._heap, arrival, effect.neighbour, Received(node, message))

    def _deliver(self, node: str, sink: int, row: tuple[Any, ...]) -> None:
        item = row[3] if isinstance(row[3], Composite) else Event.from_row(row)
        self.outcome.delivered.append(Delivery(sink, node, item, self.now_us))
