"""The node process: an event loop around the machine.

The process journals every input and handles it at once; the effects leave the node when the input is durable. While
one group of records is being written the next one gathers, so a busy node writes few large groups and an idle one
writes at once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgpack

from headwater.node.daemon import journal_records as records
from headwater.node.daemon.adapters import Adapters
from headwater.node.daemon.back_pressure import REPEAT_S, Pressure
from headwater.node.daemon.fetching import AWAITING_MAX, Fetching, Providing
from headwater.node.daemon.garbage_collection import Collector
from headwater.node.daemon.intake import DaemonIntake
from headwater.node.daemon.machine import WAITING_MAX, NodeMachine
from headwater.node.daemon.observation import Watching
from headwater.node.daemon.outputs import Outputs
from headwater.node.daemon.source_gaps import NodeHearing
from headwater.node.edge.interfaces import Arrival
from headwater.node.user_functions import NodeFunctions
from headwater.protocol.files import write_file
from headwater.protocol.journal import Journal
from headwater.protocol.links import LEFT, Hub, Keys, LinkSettings, PeerState
from headwater.protocol.messages.control import CLIENT, COORDINATOR, PeerConfig

SNAPSHOT_BYTES_LEAST: Final = 32 << 20  # a journal shorter than this is applied again within seconds
SNAPSHOT_GROWTH: Final = 3  # a journal may become this many times as long as the snapshot it follows
LAZY_S: Final = 0.5  # what is applied lazily is written at the latest after so long
CONFIRM_S: Final = 0.02  # an acknowledgement waits so long for a frame to go with, or for more to acknowledge
CONFIRM_BYTES: Final = 256 << 10  # but not when so much came at once: the other end may wait for its window
UNWRITTEN_MAX: Final = 64 << 20  # bytes that may wait for a slow disk before sources must wait
DRAIN_S: Final = 5.0  # at the end, how long links and sinks get to take what is still here

log = logging.getLogger("headwater.node")


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonSettings:
    """How a node process was started."""

    name: str
    data: Path
    coordinator: str
    network: str
    listen: str = "tcp://127.0.0.1:0"
    advertise: str | None = None
    """Where others reach it, if that is not where it listens."""
    http: str | None = None
    keys: Keys | None = None
    version: str = ""
    providing: Providing | None = None
    """What makes providers of the remote tables that the configuration describes; None: the process asks none."""
    functions: NodeFunctions | None = None
    """What loads the functions that the configuration names; None: the process runs none."""


class _Group:
    """What was handled since the last commit."""

    def __init__(self) -> None:
        self.sends: dict[str, list[bytes]] = {}
        self.confirms: dict[str, int] = {}
        self.counts: dict[int, int] = {}
        self.done: list[Callable[[], None]] = []
        self.resets: list[str] = []
        """Links that start over."""
        self.size = 0
        self.records = 0
        self.began_s = 0.0


class NodeDaemon:
    """One node. ``run`` returns after ``stop``."""

    def __init__(self, settings: DaemonSettings, machine: NodeMachine, journal: Journal) -> None:
        self.settings = settings
        self.machine = machine
        self.journal = journal
        self.loop = asyncio.get_running_loop()
        self.gate = asyncio.Event()
        """Open while sources may publish."""
        self.watching = Watching(self)
        machine.watcher = self.watching
        journal.on_full, journal.on_recovered = self._disk_is_full, self._disk_has_room
        self.hub = Hub(settings.name, machine.life, settings.network, self, keys=settings.keys, deferred_resets=True)
        self.hearing = NodeHearing(self)
        self.intake = DaemonIntake(self)
        self.adapters = Adapters(self)
        self.fetching = Fetching(self, settings.providing)
        self._functions = settings.functions or NodeFunctions(settings.data, allowed=False)
        self.pressure = Pressure(settings.name, time.time_ns() // 1000)
        self.address = ""
        self.http = ""
        """Where it listens, and where it serves HTTP, once it does."""
        self.collector: Collector | None = None
        """Only in a process that is nothing but a node."""
        self._group = _Group()
        self._flying: deque[_Group] = deque()
        """Groups that are being written."""
        self._commits = False
        self._lazy: asyncio.TimerHandle | None = None
        self._confirms: dict[str, int] = {}
        """By peer, what is durable and not acknowledged yet."""
        self._confirming: asyncio.TimerHandle | None = None
        self._unwritten = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_us: int | None = None
        self._stopping = asyncio.Event()
        self._draining = False
        self._snapshot_bytes = 0
        self._is_full = False

    # ------------------------------------------------------------------------------------------------------- the loop

    async def run(self) -> None:
        """Serve until told to stop; then let everything under way arrive, save, and leave."""
        bound = await self.hub.start(self.settings.listen)
        self.address = self.settings.advertise or bound or ""
        self.http = await self.watching.serve(self.settings.http)
        self.hub.add_peer(COORDINATOR, dial=self.settings.coordinator, state=self._peer_state(COORDINATOR))
        self._begin()
        if self.machine.config is not None:
            self._configured()
        if self.machine.core is not None:  # what was asked for in the life of an earlier process
            for effect in self.machine.core.fetches():
                self.fetching.fetch(effect.places)
        self._arm()
        beat = asyncio.create_task(self._beat())
        try:
            await self._stopping.wait()
            await self._drain()
        finally:
            beat.cancel()
            self.hearing.close()
            await self.fetching.close()
            await self.adapters.close()
            await self.watching.close()
            await self.hub.close()  # from here on nothing comes in, and what has not left waits in the machine
            if self._draining:
                await self._save_at_last()
            await self.journal.close()

    def _begin(self) -> None:
        """Tell the coordinator where this process is, and whether it runs the functions of the network."""
        config = self.machine.config
        functions = None if config is None or config.functions is None else self._functions.refusal(config.functions)
        if functions:
            log.error("this node refuses plans that call functions: %s", functions)
        self.apply(records.Begun(self.now_us(), self.address, self.http, self.settings.version, functions))

    def stop(self) -> None:
        """Leave in good order."""
        self._stopping.set()

    async def _drain(self) -> None:
        self._draining = True
        self._look_at_gate()
        await self.adapters.close_sources()
        self._commit()
        ends = self.loop.time() + DRAIN_S
        while self.loop.time() < ends and not self._is_drained():
            await asyncio.sleep(0.02)
        self._confirm()

    async def _save_at_last(self) -> None:
        """When nothing is handled any more: the next process has nothing to replay."""
        while self.journal.is_saving and not self.journal.is_full:
            await asyncio.sleep(0.02)  # that one lacks what came since; closing would wait for it, too
        self.save_snapshot()

    def _is_drained(self) -> bool:
        under_way = any(self.hub.queued(peer)[0] for peer in self.hub.peers() if self.hub.is_up(peer))
        return not (
            under_way or self._group.done or self._unwritten or any(s.waiting for s in self.machine.sinks.values())
        )

    async def _beat(self) -> None:
        """Once a second: checks that are due even if nothing happens."""
        while True:
            await asyncio.sleep(REPEAT_S)
            self._look_at_pressure(repeat=True)
            self.watching.beat()
            self.fetching.look()
            if self.collector is not None:
                self.collector.beat()

    def now_us(self) -> int:
        """The clock, which never goes back, not even over a restart."""
        return max(self.machine.now_us, time.time_ns() // 1000)

    # ---------------------------------------------------------------------------------------------- records in and out

    def apply(self, record: records.Record, *, lazily: bool = False) -> None:
        """Put a record into the journal and do what follows from it, when it is there. ``lazily``: nothing waits."""
        self.hearing.look(record.now_us)
        if self.journal.durability != "none":
            packed = records.encode(record)
            self.journal.append(packed)
            self._unwritten += len(packed)
            self._group.size += len(packed)
            self._group.records += 1
        out = self.machine.apply(record)
        self._note(out)
        if not lazily:
            self._commit_soon()
        elif self._lazy is None:
            self._lazy = self.loop.call_later(LAZY_S, self._commit_soon)

    def when_durable(self, done: Callable[[], None]) -> None:
        """Call when everything that was handled so far is durable."""
        self._group.done.append(done)
        self._commit_soon()

    def _note(self, out: Outputs) -> None:
        group = self._group
        for peer, payloads in out.sends.items():
            queued = group.sends.get(peer)
            if queued is None:
                group.sends[peer] = payloads
            else:
                queued += payloads
        for sink in out.delivered:
            group.counts[sink] = self.machine.sinks[sink].count
        if out.counters:
            self.watching.reported(out.counters)
        for failure in out.failures:
            self.watching.rule_failed(failure.rule, failure.count, failure.sentence)
        for answer in out.answers:
            self.adapters.answered(answer)
        if out.configured:
            self._configured()
        if out.fetches:
            self.fetching.fetch(out.fetches)
        if out.timers:
            self._arm()

    def _commit_soon(self) -> None:
        if not self._commits:
            self._commits = True
            self.loop.call_soon(self._commit)

    def _commit(self) -> None:
        self._commits = False
        if self._lazy is not None:
            self._lazy.cancel()
            self._lazy = None
        group, self._group = self._group, _Group()
        group.began_s = time.perf_counter()
        self._flying.append(group)
        self.journal.commit(self._release)

    def _release(self) -> None:
        """The earliest group is durable: what follows from it may leave."""
        group = self._flying.popleft()
        self._unwritten -= group.size
        self.watching.committed(time.perf_counter() - group.began_s, group.size, group.records)
        peers = set(self.hub.peers())  # none any more at the very end
        for peer in group.resets:
            if peer in peers:
                self.hub.accept_reset(peer)
        for peer, payloads in group.sends.items():
            if peer in peers:
                self.send(peer, payloads)
        for peer, seq in group.confirms.items():
            self.confirm_soon(peer, seq)
        if group.size > CONFIRM_BYTES:
            self._confirm()
        for sink, count in group.counts.items():
            self.adapters.released(sink, count)
        for done in group.done:
            done()
        self._look_at_pressure()
        if self.journal.bytes_since_snapshot > max(SNAPSHOT_BYTES_LEAST, SNAPSHOT_GROWTH * self._snapshot_bytes):
            self.save_snapshot()

    def send(self, peer: str, payloads: list[bytes]) -> None:
        """Send payloads to a peer, with the acknowledgement that is due."""
        seq = self._confirms.pop(peer, None)
        if seq is not None:
            self.hub.confirm(peer, seq)
        self.hub.send(peer, payloads)

    def confirm_soon(self, peer: str, seq: int) -> None:
        """Acknowledge with the next frame to the peer, or a little later: on a quiet link that saves one frame for
        each that comes."""
        self._confirms[peer] = seq
        if self._confirming is None:
            self._confirming = self.loop.call_later(CONFIRM_S, self._confirm)

    def _confirm(self) -> None:
        if self._confirming is not None:
            self._confirming.cancel()
            self._confirming = None
        confirms, self._confirms = self._confirms, {}
        peers = set(self.hub.peers()) if confirms else ()
        for peer, seq in confirms.items():
            if peer in peers:
                self.hub.confirm(peer, seq)

    def save_snapshot(self) -> None:
        began_s = self.loop.time()
        data = self.machine.save()
        self._snapshot_bytes = len(data)
        self.journal.save_snapshot(data)
        self.watching.saved(self.loop.time() - began_s, len(data))

    # ---------------------------------------------------------------------------------------------------------- timers

    def _arm(self) -> None:
        """One timer of the loop serves all timers of the core."""
        core = self.machine.core
        due_us = min(core.timers.values(), default=None) if core is not None else None
        if due_us is None or (self._timer_due_us is not None and self._timer_due_us <= due_us):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due_us = due_us
        self._timer = self.loop.call_later(max(0.0, (due_us - self.now_us()) / 1e6), self._fire)

    def _fire(self) -> None:
        self._timer, self._timer_due_us = None, None
        core = self.machine.core
        assert core is not None
        now_us = self.now_us()
        if not self._draining:
            for name in [name for name, due_us in core.timers.items() if due_us <= now_us]:
                self.apply(records.Fired(now_us, name))
        self._arm()

    # ----------------------------------------------------------------------------------------------------------- links

    def _configured(self) -> None:
        """The configuration is new, or known from before a restart: set up its links, sources and sinks."""
        config = self.machine.config
        assert config is not None
        self.watching.configured(config)
        if config.functions is not None and self.machine.functions is None:
            self._begin()
        self._keep_as(config.durability)
        peers = set(self.hub.peers())
        for peer in config.peers:
            if peer.name not in peers:
                self._add_peer(peer)
            elif peer.dials and peer.address is not None:
                self.hub.redial(peer.name, peer.address)
        self.hearing.follow(config)
        self.fetching.follow(config)
        self.adapters.follow(config)
        self._look_at_gate()

    def _keep_as(self, durability: str) -> None:
        """Keep the journal as the network file says, and write that down for the next process."""
        if durability not in ("none", "async", "sync") or durability == self.journal.durability:
            return
        write_file(self.settings.data / "durability", durability + "\n")
        log.info("the durability of the journal is now %s, as in the network file", durability)
        self.journal.set_durability(durability)  # type: ignore[arg-type]
        self.save_snapshot()

    def _add_peer(self, peer: PeerConfig) -> None:
        if peer.dials and peer.address is None:
            return  # it follows with a later configuration; the machine keeps what is to be sent
        self.hub.add_peer(
            peer.name,
            dial=peer.address if peer.dials else None,
            public_key=peer.public_key,
            settings=LinkSettings(delay_us=peer.delay_us, bandwidth_bps=peer.bandwidth_bps),
            state=self._peer_state(peer.name),
        )

    def _peer_state(self, peer: str) -> PeerState:
        coming = sum(len(group.sends.get(peer, ())) for group in (*self._flying, self._group))
        return self.machine.links[peer].state(coming)

    def received(self, peer: str, last_seq: int, payloads: list[bytes]) -> None:
        """Frames of a neighbour, the coordinator or a client."""
        if peer.startswith(CLIENT):
            self.adapters.clients.received(peer, payloads)
            self.confirm_soon(peer, last_seq)
            return
        self.apply(records.Frames(self.now_us(), peer, last_seq, payloads))
        self._group.confirms[peer] = last_seq

    def whispered(self, peer: str, payload: bytes) -> None:
        """News about full nodes. Programs have none: only a neighbour may make sources wait."""
        if peer.startswith(CLIENT) or peer == COORDINATOR:
            self.watching.reported({"refused_requests": 1})
            return
        try:
            news = msgpack.unpackb(payload)
        except Exception:
            self.watching.reported({"refused_whispers": 1})
            return
        if self.pressure.heard(news, self.loop.time()):
            self._tell_neighbours(payload, except_peer=peer)
            self._look_at_gate()

    def link_up(self, peer: str) -> None:
        link = self.machine.links.get(peer)
        meeting = self.hub.meeting(peer)
        if link is not None and meeting is not None and meeting != (link.life, link.era):
            self.apply(records.Met(self.now_us(), peer, *meeting), lazily=True)
        log.info("the link to %s is up", peer)
        if peer.startswith(CLIENT):
            self.adapters.clients.came(peer)
        self.watching.link_changed(peer, up=True)

    def link_down(self, peer: str, reason: str) -> None:
        log.warning("the link to %s is down: %s", peer, reason)
        self.watching.link_changed(peer, up=False)
        if peer.startswith(CLIENT):
            self.adapters.clients.left(peer, said_so=reason == LEFT)

    def link_reset(self, peer: str, life: str) -> None:
        self._confirms.pop(peer, None)
        if peer.startswith(CLIENT):
            self.adapters.clients.left(peer)
            self.hub.accept_reset(peer)
            return
        _, era = self.hub.meeting(peer) or (life, "")
        for group in (*self._flying, self._group):  # what they would have sent belongs to the old life
            group.sends.pop(peer, None)
            group.confirms.pop(peer, None)
        self.apply(records.Reset(self.now_us(), peer, life, era))
        self._group.resets.append(peer)

    def acknowledged(self, peer: str, seq: int) -> None:
        if peer.startswith(CLIENT):
            self.adapters.clients.acknowledged(peer)
        elif peer in self.machine.links:
            self.apply(records.Acknowledged(self.now_us(), peer, seq), lazily=True)

    def admit(self, name: str, key_name: str | None) -> LinkSettings | None:
        """A stranger dials: only clients may, and where there are keys only those that have one."""
        if not name.startswith(CLIENT) or (self.settings.keys is not None and key_name is None):
            return None
        return self.adapters.clients.admit(name)

    # ---------------------------------------------------------------------------------------------------- back-pressure

    def _look_at_pressure(self, *, repeat: bool = False) -> None:
        full = any(self.hub.is_full(peer) for peer in self.hub.peers() if not peer.startswith(CLIENT)) or any(
            len(sink.waiting) > WAITING_MAX for sink in self.machine.sinks.values()
        )
        core = self.machine.core
        full = full or (core is not None and core.awaiting() > AWAITING_MAX)
        if full != self._is_full or (repeat and full):
            if full != self._is_full:
                log.warning("this node is full; sources wait") if full else log.warning("this node has room again")
            self._is_full = full
            news = self.pressure.own(full)
            if news is not None:
                self._tell_neighbours(msgpack.packb(news))
        if repeat or full or not self.gate.is_set():
            self._look_at_gate()

    def _tell_neighbours(self, payload: bytes, except_peer: str | None = None) -> None:
        for peer in self.hub.peers():
            if peer not in (COORDINATOR, except_peer) and not peer.startswith(CLIENT):
                self.hub.whisper(peer, payload)

    def _look_at_gate(self) -> None:
        why = self.why_closed()
        if why is None:
            self.gate.set()
        else:
            self.gate.clear()

    def _disk_is_full(self, sentence: str) -> None:
        log.error(sentence)
        self._look_at_gate()

    def _disk_has_room(self) -> None:
        log.warning("the journal can be written again; sources continue")
        self._look_at_gate()

    def why_closed(self) -> str | None:
        """Why sources must wait; None: they need not."""
        core = self.machine.core
        if self._draining:
            return "the node is leaving"
        if core is None or not core.forest.shares:
            return "the node has no plan yet"
        if self.journal.is_full:
            return "the disk is full"
        if self._unwritten > UNWRITTEN_MAX:
            return "the disk is slow"
        full = self.pressure.full_nodes(self.loop.time())
        return f"full: {', '.join(full)}" if full else None

    def drop_deliveries(self, sink: int, number: int) -> None:
        """No program came for the deliveries of a sink up to this one."""
        self.watching.dropped(sink, number)
        self.apply(records.Confirmed(self.now_us(), sink, number), lazily=True)

    # --------------------------------------------------------------------------------------------- refused and late

    def late(self, source: int, arrival: Arrival, ts: int, now_us: int) -> None:
        self.adapters.dead_letters.late(source, arrival, ts)
        self.watching.said_late(source, now_us - ts)

    def malformed(self, source: int, raw: bytes, why: str) -> None:
        self.watching.source(source).malformed += 1
        self.adapters.dead_letters.put(f"source {source}", raw, why)
        self.watching.said_malformed(source, why)
