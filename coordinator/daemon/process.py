"""The coordinator process: an event loop around the machine.

The process journals every input and handles it at once; the effects leave when the input is durable. Events do not
depend on the coordinator: while it is down, nodes go on with the plan they have.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import signal
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from headwater.coordinator.daemon.folder import DataFolder
from headwater.coordinator.daemon.inputs import (
    Asked,
    Heard,
    Input,
    PeerMet,
    PeerReset,
    Reborn,
    Setup,
    Started,
    Tick,
)
from headwater.coordinator.daemon.journaled_machine import JournaledMachine, LinkState, Outputs
from headwater.coordinator.daemon.machine import Machine, Settings
from headwater.coordinator.daemon.replanning import as_measured, moved
from headwater.coordinator.daemon.snapshot import HOW_TO_GO_ON, OldState, StateError
from headwater.coordinator.daemon.statistics import NodeStatistics
from headwater.coordinator.inev.model.measured_selectivities import unmeasured
from headwater.coordinator.inev.model.rules import Statistics
from headwater.coordinator.planners import planner_of
from headwater.coordinator.requests import GiveUpNode, PlanAnew, Request
from headwater.protocol.errors import ConfigError
from headwater.protocol.journal import Journal
from headwater.protocol.links import Hub, Keys, LinkSettings
from headwater.protocol.messages.control import COORDINATOR
from headwater.protocol.strategy import strategy_of

SNAPSHOT_BYTES: Final = 1 << 20  # a journal shorter than this is applied again in no time
BEAT_S: Final = 1.0

log = logging.getLogger("headwater.coordinator")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSettings:
    """How the coordinator process was started."""

    listen: str = "tcp://127.0.0.1:0"
    advertise: str | None = None
    """Where nodes reach it, if that is not where it listens."""
    http: str = "127.0.0.1:0"
    keys: Keys | None = None
    version: str = ""
    started: Started = field(default_factory=Started)
    machine: Settings = field(default_factory=Settings)


@dataclass(slots=True)
class _Flying:
    """What an input led to, while it is being written."""

    outputs: Outputs
    received: Input
    confirm: tuple[str, int] | None = None


class CoordinatorDaemon:
    """One network's coordinator. ``run`` returns after ``stop``."""

    def __init__(self, folder: DataFolder, setup: Setup, settings: ProcessSettings) -> None:
        """``setup`` is what the folder keeps, if it keeps one."""
        self.settings = settings
        self.folder = folder
        self.loop = asyncio.get_running_loop()
        self.statistics = NodeStatistics()
        self.counts: Counter[str] = Counter()
        """Of this process: what came over HTTP, and what was refused there."""
        self.last_heard_us: dict[str, int] = {}
        self.journal = Journal.open(folder.journal, "sync", on_warning=log.warning)
        self.journaled = self._recovered(setup)
        self.hub = self._new_hub()
        self.address = ""
        self.http_address = ""
        self.token = folder.token
        self.listening: Callable[[str], None] = log.info
        self._boot = secrets.token_hex(8)
        self._requests = 0
        self._answers: dict[str, asyncio.Future[tuple[int, dict[str, Any]]]] = {}
        self._durable_requests: dict[str, asyncio.Future[None]] = {}
        self._flying: deque[_Flying] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._stopping = asyncio.Event()
        self._is_leaving = False
        self._is_outdated = False
        """Whether this life is over, since nodes remember more than it does."""
        self._is_told_to_leave = False

    @property
    def machine(self) -> Machine:
        return self.journaled.machine

    def _recovered(self, setup: Setup) -> JournaledMachine:
        snapshot = self.journal.snapshot
        self.replayed = 0
        try:
            journaled = (
                JournaledMachine(Machine(setup, self.settings.machine))
                if snapshot is None
                else JournaledMachine.restored(snapshot)
            )
            for record in self.journal.records():
                journaled.replay(record)
                self.replayed += 1
        except OldState as error:
            raise ConfigError(f"{self.folder.journal} cannot be used: {error}. {HOW_TO_GO_ON}") from error
        except StateError as error:
            raise ConfigError(f"{self.folder.journal} cannot be used: {error}") from error
        journaled.machine.settings = self.settings.machine
        if self.journal.was_cut:
            log.error(
                "at least %d records of the journal, on which nodes rely, are lost: this coordinator begins a new life "
                "and learns from its nodes what holds",
                self.journal.lost_records,
            )
        if self.journal.was_cut or journaled.machine.is_outdated:
            self.folder.new_life()
            now_us = self.now_us()
            self.journal.append(journaled.record(Reborn(), now_us))
            journaled.apply(Reborn(), now_us)
            self.journal.save_snapshot(journaled.save())  # from here on the journal is whole again
        return journaled

    def _new_hub(self) -> Hub:
        keys = self.settings.keys
        network = self.journaled.machine.setup.id
        return Hub(COORDINATOR, self.folder.life, network, self, keys=keys, deferred_resets=True)

    # ------------------------------------------------------------------------------------------------------- the loop

    async def run(self) -> None:
        """Serve until told to stop; then save and leave."""
        from headwater.coordinator.daemon.api.server import serve

        bound = await self._start_hub(self.settings.listen)
        self.address = self.settings.advertise or bound or ""
        runner, self.http_address = await serve(self, self.settings.http)
        self.folder.write_endpoints(
            {"hub": self.address, "http": f"http://{self.http_address}", "network": self.machine.setup.id}
        )
        self.listening(f"coordinator of {self.machine.setup.id}: nodes at {self.address}, http://{self.http_address}")
        self.take(self.settings.started)
        watching = [asyncio.create_task(self._beat()), asyncio.create_task(self._replan())]
        try:
            await self._stopping.wait()
            while self._is_outdated and not self._is_told_to_leave:
                await self._begin_anew(bound)
                await self._stopping.wait()
        finally:
            self._is_leaving = True  # what still comes is not taken, so it will come again
            for task in watching:
                task.cancel()
            if self._timer is not None:
                self._timer.cancel()
            await runner.cleanup()
            await self.hub.close()  # what nodes have not got yet is kept and sent when this coordinator is back
            self.journal.save_snapshot(self.journaled.save())
            await self.journal.close()

    async def _start_hub(self, listen: str) -> str | None:
        bound = await self.hub.start(listen)
        for node in self.machine.setup.network.nodes:
            self._add_peer(node)
        return bound

    async def _begin_anew(self, bound: str | None) -> None:
        """Nodes remember more than this coordinator: take leave of them and come back in another life."""
        await self.hub.close()
        for flying in self._flying:  # what would have been said belongs to the old life
            flying.outputs, flying.confirm, flying.received = Outputs(), None, Tick()
        self.folder.new_life()
        self._is_outdated = False
        self._stopping.clear()
        self.take(Reborn())
        self.hub = self._new_hub()
        await self._start_hub(bound or self.settings.listen)
        self.take(self.settings.started)
        for answer in self._answers.values():
            if not answer.done():
                answer.set_result((503, {"error": "the coordinator began a new life meanwhile; ask again"}))

    async def _replan(self) -> None:
        """Plan again when rates have moved, if the network file says how often to look."""
        every_us = self.machine.setup.replan_us
        if every_us is None or not strategy_of(self.machine.coordinator.strategy).planned:
            return
        while True:
            await asyncio.sleep(every_us / 1e6)
            machine = self.machine
            if not machine.begun or not machine.coordinator.is_idle():
                continue
            now = self.measured()
            if why := moved(machine.planned_for, now):
                log.info("planning again: %s", "; ".join(why[:3]))
                await self.ask(self.plan_anew())

    def measured(self) -> Statistics:
        """What is known of rates and selectivities: as measured, and elsewhere as given."""
        machine, now_us = self.machine, self.now_us()
        rules = [planned.rule for planned in machine.coordinator.rules.values() if planned.until_us is None]
        layout, seen = machine.coordinator.layings.as_run, self.statistics
        return as_measured(
            machine.setup.statistics, seen.rates(now_us), layout, rules, seen.matches(now_us), seen.filters()
        )

    def plan_anew(self) -> PlanAnew:
        """The request to place everything for what is known now. What is not known is said, and assumed."""
        statistics = self.measured()
        rules = [planned.rule for planned in self.machine.coordinator.rules.values() if planned.until_us is None]
        for sentence in unmeasured(rules, statistics):
            log.warning(sentence)
        return PlanAnew(planner_of(self.machine.coordinator.strategy, statistics))

    async def _beat(self) -> None:
        """Give up nodes that were silent for longer than the network file allows."""
        lost_after_us = self.machine.setup.lost_after_us
        if lost_after_us is None:
            return
        began_us = self.now_us()
        while True:
            await asyncio.sleep(BEAT_S)
            for node in self.machine.coordinator.nodes() if self.machine.begun else ():
                silent_us = self.now_us() - self.last_heard_us.get(node, began_us)
                if not self.hub.is_up(node) and silent_us > lost_after_us:
                    log.warning("%s was not reachable for %.0f s and is given up", node, silent_us / 1e6)
                    await self.ask(GiveUpNode(node))

    def stop(self) -> None:
        """Leave in good order."""
        self._is_told_to_leave = True
        self._stopping.set()

    @staticmethod
    def now_us() -> int:
        return time.time_ns() // 1000

    # --------------------------------------------------------------------------------------------- inputs and outputs

    def take(self, received: Input, confirm: tuple[str, int] | None = None) -> None:
        """Put an input into the journal and do what follows from it, when it is there."""
        if self._is_leaving or self._is_outdated:
            return
        now_us = self.now_us()
        self.journal.append(self.journaled.record(received, now_us))
        outputs = self.journaled.apply(received, now_us)
        self._flying.append(_Flying(outputs, received, confirm))
        self.journal.commit(self._release)
        self._arm()

    def _release(self) -> None:
        flying = self._flying.popleft()
        outputs = flying.outputs
        if not self._is_leaving and not self._is_outdated:
            for peer, payloads in outputs.sends.items():
                self.hub.send(peer, payloads)
            if flying.confirm is not None:
                self.hub.confirm(*flying.confirm)
            if isinstance(flying.received, PeerReset):
                self.hub.accept_reset(flying.received.peer)
        for sentence in outputs.notes:
            log.warning(sentence)
        if outputs.outdated:
            self._is_outdated = True  # what still comes will come again
            self._stopping.set()
        if isinstance(flying.received, Asked):
            kept = self._durable_requests.pop(flying.received.request, None)
            if kept is not None and not kept.done():
                kept.set_result(None)
        for answer in outputs.answers:
            future = self._answers.pop(answer.request, None)
            if future is not None and not future.done():
                future.set_result((answer.status, answer.body))
        if self.journal.bytes_since_snapshot > SNAPSHOT_BYTES and not self._is_leaving:
            self.journal.save_snapshot(self.journaled.save())

    def _arm(self) -> None:
        due_us = self.machine.due_us()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due_us is not None:
            self._timer = self.loop.call_later(max(0.0, (due_us - self.now_us()) / 1e6) + 0.001, self._fire)

    def _fire(self) -> None:
        self._timer = None
        self.take(Tick())

    async def ask(
        self, ask: Request | None, *, key: str | None = None, wait: bool = True
    ) -> tuple[int, dict[str, Any]]:
        """Have something decided: an HTTP status and a JSON object, when it holds or cannot be.

        Without ``wait``: as soon as nothing can make the coordinator forget that it was asked for.
        """
        self._requests += 1
        request = f"{self._boot}-{self._requests}"
        answer: asyncio.Future[tuple[int, dict[str, Any]]] = self.loop.create_future()
        kept: asyncio.Future[None] = self.loop.create_future()
        self._answers[request] = answer
        self._durable_requests[request] = kept
        try:
            self.take(Asked(request, ask, key))
            if wait:
                return await answer
            await kept
            await asyncio.sleep(0)
            return answer.result() if answer.done() else (202, {"accepted": True})
        finally:
            self._answers.pop(request, None)
            self._durable_requests.pop(request, None)

    # ---------------------------------------------------------------------------------------------------------- links

    def _add_peer(self, node: str) -> None:
        keys = self.settings.keys
        key = None if keys is None else keys.public_key_of(node)
        self.hub.add_peer(node, dial=None, public_key=key, state=self.journaled.links[node].peer_state())

    def received(self, peer: str, last_seq: int, payloads: list[bytes]) -> None:
        self.last_heard_us[peer] = self.now_us()
        self.take(Heard(peer, last_seq, tuple(payloads)), (peer, last_seq))

    def whispered(self, peer: str, payload: bytes) -> None:
        self.last_heard_us[peer] = self.now_us()
        self.statistics.heard(peer, payload, self.now_us())

    def link_up(self, peer: str) -> None:
        self.last_heard_us[peer] = self.now_us()
        link = self.journaled.links[peer]
        meeting = self.hub.meeting(peer)
        if meeting is not None and meeting != (link.life, link.era):
            self.take(PeerMet(peer, *meeting))
        log.info("%s is connected", peer)

    def link_down(self, peer: str, reason: str) -> None:
        self.last_heard_us[peer] = self.now_us()
        log.warning("%s is not reachable: %s", peer, reason)

    def link_reset(self, peer: str, life: str) -> None:
        for flying in self._flying:  # what would have been sent belongs to the old life
            flying.outputs.sends.pop(peer, None)
            if flying.confirm is not None and flying.confirm[0] == peer:
                flying.confirm = None
        self.statistics.forget(peer)
        self.take(PeerReset(peer, life))  # the hub starts over when the journal has it

    def acknowledged(self, peer: str, seq: int) -> None:
        link: LinkState | None = self.journaled.links.get(peer)
        if link is not None:
            link.confirmed(seq)

    def admit(self, name: str, key_name: str | None) -> LinkSettings | None:
        """Only the nodes of the network belong here, and they are known already."""
        return None


def run_coordinator(folder: DataFolder, setup: Setup, settings: ProcessSettings, said: Callable[[str], None]) -> None:
    """Run until SIGTERM or SIGINT. ``said`` is given one line when the coordinator listens."""

    async def running() -> None:
        daemon = CoordinatorDaemon(folder, setup, settings)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, daemon.stop)
        daemon.listening = said
        await daemon.run()

    try:
        import uvloop
    except ImportError:  # not every platform has it
        asyncio.run(running())
    else:
        uvloop.run(running())
