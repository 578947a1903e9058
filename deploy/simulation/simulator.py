"""The simulator: all nodes of a network in one process and in virtual time.

A loop around the nodes' cores: the next birth or the earliest thing in the heap, whichever comes first. The same
arguments give the same run to the byte.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import nullcontext, suppress
from heapq import heapify, heappop, heappush
from itertools import chain, count
from typing import Any, assert_never

from headwater.coordinator.core import Coordinator, Orders
from headwater.coordinator.layout.planner_interface import Planner, at_the_middle
from headwater.coordinator.requests import Change, DeployRules, FallBack
from headwater.deploy.simulation.accounts import SimulatedAccounts
from headwater.deploy.simulation.checkers import Checkers
from headwater.deploy.simulation.faults import Faults
from headwater.deploy.simulation.held_events import HandedOver, HandOver, Holding
from headwater.deploy.simulation.links import FOREVER, LinkDirection
from headwater.deploy.simulation.outages import (
    Back,
    Decide,
    Forgets,
    GiveUp,
    Lost,
    ReportArrived,
    Spoken,
    expected_outages,
    is_of_old_life,
)
from headwater.deploy.simulation.outcome import Delivery, Outcome
from headwater.deploy.simulation.remote import Answers, SimulatedTables
from headwater.deploy.simulation.watcher import SimulationWatcher as SimulationWatcher
from headwater.node.core import NodeCore, NodeSettings
from headwater.node.effects import (
    Born,
    Deliver,
    Effect,
    Fetch,
    Fetched,
    FetchFailed,
    Input,
    LinkReset,
    MessageReceived,
    OrderReceived,
    Report,
    Send,
    SetTimer,
    SourcesEnded,
    SourcesHeard,
    SourcesUnheard,
    Tell,
    TimerFired,
)
from headwater.protocol.composites import Composite
from headwater.protocol.errors import ConfigError
from headwater.protocol.events import Event
from headwater.protocol.network import Network
from headwater.protocol.wire.messages import Wire

SETUP_US = 1_000_000  # virtual time before the first event, in which trees are built and rules deployed; more if needed

DETECTION_US = 1_000_000  # after a link or a node is gone for good the coordinator hears of it; and of what is back
REFUSED = ("late_events", "unadvertised_events")

Birth = tuple[int, int, Event]
Happening = Lost | Back | Forgets | HandOver | HandedOver | ReportArrived | GiveUp | Decide | Change


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
    changes: Iterable[tuple[int, Change | GiveUp | Decide]] = (),
    until_us: int | None = None,
    keep: bool = True,
    on_delivery: Callable[[Delivery], None] | None = None,
    computed_trees: bool = False,
    detection_us: int = DETECTION_US,
    lay_out: Planner = at_the_middle,
    falls_back: bool = True,
    watcher: SimulationWatcher | None = None,
    remote: SimulatedTables | None = None,
) -> Outcome:
    """Run a network over the births (at, source, event), in order of ``at``, and return the outcome.

    ``changes`` are asked of the coordinator at their times. ``check`` has checkers watch the run, which raise. ``wire``
    sends every message as bytes and reads it again. With ``computed_trees`` the coordinator puts trees in place instead
    of having them built. ``lay_out`` decides under 'inev' what is evaluated where, and with ``falls_back`` what turns
    out to cost too much falls back. ``detection_us``: so long after a loss the coordinator hears of it. ``until_us``
    stops the run at that virtual time, whatever is on its way then; without it the sources end and everything is heard
    out.
    ``on_delivery`` is told of each delivery as it happens; with ``keep`` off the outcome only counts what is born and
    delivered ("born", "delivered" among its counters), so that a run of any length needs no more memory than the nodes
    do. ``watcher`` sees what nodes are given and do. ``remote`` has the tables that rules look into.
    """
    upcoming = iter(births)
    first = next(upcoming, None)
    starts_us = first[0] if first is not None else 0
    setup_us = SETUP_US
    while True:
        simulation = Simulation(
            network,
            strategy or network.strategy,
            seed,
            faults or Faults(),
            check=check,
            wire=wire,
            settings=settings,
            keep=keep,
            on_delivery=on_delivery,
            computed_trees=computed_trees,
            detection_us=detection_us,
            lay_out=lay_out,
            falls_back=falls_back,
            remote=remote,
        )
        if simulation.set_up(starts_us - setup_us) < starts_us:
            break
        setup_us *= 8
    simulation.watcher = watcher
    return simulation.run(chain(() if first is None else (first,), upcoming), on_progress, changes, until_us)


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
        keep: bool = True,
        on_delivery: Callable[[Delivery], None] | None = None,
        computed_trees: bool = False,
        detection_us: int = DETECTION_US,
        lay_out: Planner = at_the_middle,
        falls_back: bool = True,
        remote: SimulatedTables | None = None,
    ) -> None:
        self.network = network
        self._remote = remote or SimulatedTables()
        self.answers = Answers(self._remote, seed)
        self.strategy = strategy
        self.faults = faults
        self._seed = seed
        self.outcome = Outcome(strategy)
        self.watcher: SimulationWatcher | None = None
        self.now_us = 0
        self._travels = wire
        self._keep = keep
        self._on_delivery = on_delivery
        self._wire = Wire(network.types, network.rules)
        self.accounts = SimulatedAccounts(self.outcome, self._wire)
        self._settings = settings
        self._around = network.neighbours()
        self.nodes = {node: self._new_core(node) for node in network.nodes}
        self._links = self._wires("set-up")  # nothing goes wrong before the first event
        self.coordinator = Coordinator(
            network, strategy, computed_trees=computed_trees, lay_out=lay_out, falls_back=falls_back
        )
        self.checkers = Checkers(self.nodes, f"strategy {strategy}, seed {seed}") if check else None
        self._heap: list[tuple[int, int, str, Any]] = []
        self._idle: list[tuple[int, int, str, Any]] = []
        self._serial = count()
        self._behind = {node: faults.behind_us(node) for node in network.nodes}
        self._slow = {node: faults.message_us(node) for node in network.nodes}
        self._free_us = dict.fromkeys(network.nodes, -(1 << 62))
        self._down: dict[str, list[tuple[int, int]]] = {node: [] for node in network.nodes}
        self._detection_us = detection_us
        self._holding = Holding(faults, seed)
        self._spoken = Spoken(0, seed)  # nothing goes wrong before the first event
        self._born_at: dict[str, list[Event]] = {node: [] for node in network.nodes}
        self._strangers: Counter[str] = Counter()
        """Nodes that have lost their memory since the coordinator has heard of them: its orders are lost."""
        self._resetting: Counter[tuple[str, str]] = Counter()
        """Links whose near end does not know yet that the far end has lost its memory: what it sends is lost."""
        self._reset_us: dict[tuple[str, str], int] = {}
        """When the other end of a link knows: nothing arrives there before."""

    def _new_core(self, node: str) -> NodeCore:
        around = {other: link.delay_us for other, link in self._around[node].items()}
        return NodeCore(node, around, self._settings, self._remote.memory())

    # --------------------------------------------------------------------------------------------------------- the run

    def run(
        self,
        births: Iterable[Birth],
        on_progress: Callable[[int], None] | None = None,
        changes: Iterable[tuple[int, Change | GiveUp | Decide]] = (),
        until_us: int | None = None,
    ) -> Outcome:
        self._check_trees()
        self._spoken = Spoken(self.faults.order_us(), self._seed)
        self._links = self._wires("run")
        self._down = {node: list(self.faults.downtimes(node)) for node in self.network.nodes}
        if self.checkers is not None:
            self.checkers.stands(self.now_us)
        if self.watcher is not None:
            self.watcher.begins(self)
        for at, node, happens in expected_outages(self.faults, self.network.nodes, self._detection_us):
            self._push(at, node, happens)
        for at, change in changes:
            self._push(at, "", change)
        self._bear_all(births, FOREVER if until_us is None else until_us, on_progress)
        if until_us is None:
            self._hear_out()
        else:
            self._go_on_until(until_us)
        if self.watcher is not None:
            self.watcher.ended(self.outcome.finished_us)
        self._take_stock()
        return self.outcome

    def _bear_all(self, births: Iterable[Birth], end_us: int, on_progress: Callable[[int], None] | None) -> None:
        """All births before this time, and between them whatever is due."""
        upcoming = iter(births)
        birth = next(upcoming, None)
        if birth is not None:  # housekeeping has rested since the set-up
            resting, self._idle = sorted(self._idle), []
            for at, _, node, due in resting:
                self._schedule(self._idle, max(at, birth[0]), node, due)
        heap, idle = self._heap, self._idle
        while birth is not None and birth[0] < end_us:
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

    def _take_stock(self) -> None:
        """Note in the outcome how things stand at the end."""
        self.outcome.held_from = list(self.coordinator.held_from)
        for name, core in self.nodes.items():
            self.outcome.tasks[name] = [text for work in core.works.values() for text in work.described()]
            self.outcome.tables[name] = core.tables()
        self.outcome.counters["held"] = sum(core.held() for core in self.nodes.values())

    def _hear_out(self) -> None:
        """The sources end; whatever follows from that is done."""
        self._drain()
        for node, core in self.nodes.items():
            if numbers := _sources(core):
                self._schedule(self._heap, self.now_us, node, SourcesEnded(numbers))
        self._drain()
        self.outcome.finished_us = self.now_us
        self._tidy_up()
        if self.checkers is not None:
            clocks_us = {node: self.now_us - behind for node, behind in self._behind.items()}
            self.checkers.ended(self.now_us, clocks_us, healed=self.faults.healed_us < FOREVER)

    def _go_on_until(self, until_us: int) -> None:
        """All births before this time have been; what else happens before it follows."""
        heap, idle = self._heap, self._idle
        while queue := min((queued for queued in (heap, idle) if queued and queued[0][0] < until_us), default=None):
            self._step(queue)
        self.outcome.finished_us = self.now_us = until_us

    def set_up(self, start_us: int) -> int:
        """Build the trees and deploy everything; the virtual time at which nothing is left to do."""
        self.now_us = start_us
        self._coordinate(self.coordinator.begin())
        self._drain()
        self.outcome.started_us = self.now_us
        return self.now_us if self.coordinator.trees.all_stand() else FOREVER

    def _wires(self, phase: str) -> dict[tuple[str, str], LinkDirection]:
        cuts = self.faults.cuts if phase == "run" else Faults().cuts
        return {
            (node, other): LinkDirection(link, random.Random(f"{self._seed} {phase} {node} {other}"), cuts(node, other))
            for node, around in self.network.neighbours().items()
            for other, link in around.items()
        }

    def _check_trees(self) -> None:
        wrong = self.coordinator.trees.check({name: core.trees.table() for name, core in self.nodes.items()})
        assert not wrong, f"the trees are not what they should be: {'; '.join(wrong)}"

    def _tidy_up(self) -> None:
        """Let every node do its housekeeping a few more times: trees of earlier plans end with it."""
        for _ in range(16 if self.coordinator.held_from else 2):
            due, self._idle = sorted(self._idle), []
            for at, serial, node, received in due:
                heappush(self._heap, (at, serial, node, received))
            self._drain()

    def _drain(self) -> None:
        """Go on until no node has anything to do but housekeeping, which rests meanwhile."""
        while self._heap:
            self._step(self._heap)

    def _step(self, queue: list[tuple[int, int, str, Any]]) -> None:
        """The earliest thing in a queue."""
        at, _, node, received = heappop(queue)
        if at > self.now_us:
            self.now_us = at
        if node in self.nodes:
            if received is not None:
                self._perform(node, self._handle(node, received))
            else:
                self._start_again(node)
        elif not node:  # otherwise the node is gone for good
            self._happen(received)

    def _happen(self, happens: Happening) -> None:
        """Something that concerns no node alone."""
        match happens:
            case Lost():
                self._lose(happens)
            case Back(one, other):
                self._coordinate(self.coordinator.link_back(one, other))
            case Forgets():
                self._forget(happens)
            case HandOver(source, event):
                self._bear(source, event)
            case HandedOver(node):
                if node in self.nodes and self._holding.is_latest(happens) and not self._downtime(node):
                    numbers = _sources(self.nodes[node])
                    self._perform(node, self._handle(node, SourcesHeard(numbers)))
            case ReportArrived(node, report):
                self._coordinate(self.coordinator.reported(node, report))
            case GiveUp():
                self._give_up()
            case Decide():
                if (change := happens.choose(self.coordinator)) is not None:
                    self._coordinate(self.coordinator.request(change))
            case _:
                self._request(happens)

    def _give_up(self) -> None:
        """What is being prepared is given up and asked for once more."""
        given_up = len(self.coordinator.given_up)
        self._coordinate(self.coordinator.abort())
        for again, _ in self.coordinator.given_up[given_up:]:
            self.outcome.counters["given_up"] += 1
            with suppress(ConfigError) if isinstance(again, FallBack) else nullcontext():  # it may be over by now
                self._coordinate(self.coordinator.request(again))

    def _request(self, change: Change) -> None:
        if isinstance(change, DeployRules):
            for rule in change.rules:
                self._wire.learn(rule)
        self._coordinate(self.coordinator.request(change))

    def _start_again(self, node: str) -> None:
        """With what it had saved when it went down. What its sources have published since it is about to hear."""
        self.nodes[node] = core = NodeCore.restored(self.nodes[node].save())
        self._perform(node, [*core.fetches()])
        self._perform(node, self._handle(node, SourcesUnheard(_sources(core), -FOREVER)))
        for at_us, happens in self._holding.handed_over(node, self.now_us):
            self._push(at_us, "", happens)

    def _downtime(self, node: str) -> tuple[int, int] | None:
        """The downtime that the node is in."""
        return next((interval for interval in self._down[node] if interval[0] <= self.now_us < interval[1]), None)

    def _bear(self, source: int, event: Event) -> None:
        known_source = self.coordinator.sources.get(source)
        if known_source is None:
            self.outcome.counters["unborn"] += 1  # no node knows of such a source (yet)
            return
        node = known_source[0]
        if (downtime := self._downtime(node)) is not None:
            if not self._holding.holds(node, downtime, source, event):
                self.outcome.counters["unborn"] += 1  # the node is down, and its sources with it
            return
        effects = self._handle(node, Born(source, (event,)))
        refused = [
            (effect.counter, effect.count)
            for effect in effects
            if isinstance(effect, Report) and effect.counter in REFUSED
        ]
        if self.watcher is not None:
            self.watcher.born(node, source, event, refused)
        if not refused:
            if self._keep:
                self.outcome.born.append(event)
                self._born_at[node].append(event)
            else:
                self.outcome.counters["born"] += 1
        self._perform(node, effects)

    # ------------------------------------------------------------------------------------------------- inputs, effects

    def _handle(self, node: str, received: Input) -> list[Effect]:
        if isinstance(received, LinkReset):
            self._resetting[node, received.neighbour] -= 1
        clock_us = self.now_us - self._behind[node]
        effects = self.nodes[node].handle(received, clock_us)
        if self.checkers is not None:
            self.checkers.handled(node, received, effects, self.now_us, clock_us)
        return effects

    def _perform(self, node: str, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send():
                    self._send(node, effect)
                case Deliver():
                    for row in effect.rows:
                        self._deliver(node, effect.sink, row)
                case SetTimer():
                    at = max(self.now_us, effect.at_us + self._behind[node])
                    queue = self._idle if effect.idle else self._heap
                    self._schedule(queue, at, node, TimerFired(effect.name))
                case Report():
                    self.outcome.counters[effect.counter] += effect.count
                    if effect.rule:
                        before, _ = self.outcome.rule_failures.get(effect.rule, (0, ""))
                        self.outcome.rule_failures[effect.rule] = (before + effect.count, effect.sentence)
                case Tell():
                    if self._spoken.most_us:
                        arrival_us = self._spoken.arrival_us(node, "", self.now_us)
                        self._push(arrival_us, "", ReportArrived(node, effect.report))
                    else:
                        self._coordinate(self.coordinator.reported(node, effect.report))
                case Fetch():
                    for at, answer in self.answers.to(node, effect, self.now_us):
                        self._answer(at, node, answer)
                case _:
                    assert_never(effect)

    def _answer(self, at: int, node: str, answer: Fetched | FetchFailed) -> None:
        """What comes while a node is down is lost; the node asks again."""
        if not any(start <= at < end for start, end in self._down[node]):
            self._schedule(self._heap, at, node, answer)

    def _coordinate(self, orders: Orders) -> None:
        """The coordinator's word reaches a node at once (unless a fault slows it down), or when it is up again."""
        self.outcome.planner_failures += self.coordinator.layings.take_failures()
        for node, order in orders:
            if node in self.nodes and not self._strangers[node]:
                self._schedule(self._heap, self._spoken.arrival_us("", node, self.now_us), node, OrderReceived(order))

    def _forget(self, forgets: Forgets) -> None:
        """A node starts again with nothing. Its neighbours and the coordinator find out one after the other."""
        node = forgets.node
        if node not in self.nodes:
            return
        if forgets.noticed:
            self._strangers[node] -= 1
            if not self._strangers[node]:
                is_known = node in self.coordinator.nodes()
                tell = self.coordinator.rejoined if is_known else self.coordinator.node_back
                self._coordinate(tell(node))
            return
        self._note_forgotten(node)
        self.nodes[node] = self._new_core(node)
        for queue in (self._heap, self._idle):
            queue[:] = [entry for entry in queue if not is_of_old_life(node, entry[2], entry[3])]
            heapify(queue)
        rng = random.Random(f"{self._seed} forgets {node} {self.now_us}")
        for other, link in self._around[node].items():
            for one_way in ((node, other), (other, node)):
                self._links[one_way] = LinkDirection(link, random.Random(rng.random()), self.faults.cuts(*one_way))
            if other in self.nodes:
                self._resetting[other, node] += 1
                due_us = self.now_us + rng.randint(0, self._detection_us)
                self._reset_us[node, other] = self._schedule(self._heap, due_us, other, LinkReset(node))
        if self.checkers is not None:
            self.checkers.forgot(node)
        self._strangers[node] += 1
        self._push(self.now_us + rng.randint(0, self._detection_us), "", Forgets(node, noticed=True))

    def _note_forgotten(self, node: str) -> None:
        if self._born_at[node]:
            self.outcome.forgotten.append(tuple(self._born_at[node]))

    def _lose(self, lost: Lost) -> None:
        """A link or a node is gone for good, and the coordinator is told."""
        if lost.other is None:
            if not lost.returns:
                self._note_forgotten(lost.one)
                del self.nodes[lost.one]
            if self.checkers is not None:
                self.checkers.lost()
            self._coordinate(self.coordinator.lost_node(lost.one))
        else:
            self._coordinate(self.coordinator.lost_link(lost.one, lost.other))

    def _push(self, at: int, node: str, due: Any) -> None:
        heappush(self._heap, (at, next(self._serial), node, due))

    def _schedule(self, queue: list[Any], at: int, node: str, received: Input) -> int:
        """Have a node take an input, when it is up; when that will be."""
        if self._down[node]:
            for start, end in self._down[node]:
                if start <= at < end:
                    at = end
        if at < FOREVER:  # what would come after a loss for good never comes
            heappush(queue, (at, next(self._serial), node, received))
        return at

    def _send(self, node: str, effect: Send) -> None:
        neighbour, message = effect.neighbour, effect.message
        if self._resetting and self._resetting[node, neighbour]:
            return
        if self.checkers is not None:
            self.checkers.sent(node, neighbour, message, self.now_us)
        data = self._wire.encode(message)
        size = len(data)
        arrival, copies = self._links[node, neighbour].send(self.now_us, size)
        self.accounts.note(node, neighbour, message, size, copies)
        if self._travels:
            message = self._wire.decode(data)
        slow = self._slow[neighbour]
        if slow and arrival < FOREVER:
            arrival = self._free_us[neighbour] = max(arrival, self._free_us[neighbour]) + slow
        if self._reset_us:
            arrival = max(arrival, self._reset_us.get((node, neighbour), arrival))
        self._schedule(self._heap, arrival, neighbour, MessageReceived(node, message))

    def _deliver(self, node: str, sink: int, row: tuple[Any, ...]) -> None:
        item = row[3] if isinstance(row[3], Composite) else Event.from_row(row)
        delivery = Delivery(sink, node, item, self.now_us)
        if self._keep:
            self.outcome.delivered.append(delivery)
        else:
            self.outcome.counters["delivered"] += 1
        if self._on_delivery is not None:
            self._on_delivery(delivery)
        if self.watcher is not None:
            self.watcher.delivered(delivery)


def _sources(core: NodeCore) -> tuple[int, ...]:
    """The numbers of the sources of a node."""
    return tuple(sorted(number for feed in core.local.values() for number in feed.sources))
