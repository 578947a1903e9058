"""Everything of a node process that must survive a crash, as a deterministic machine over the records of its journal.

    outputs = machine.apply(record)

The same records give the same state and the same outputs: the same payloads under the same numbers on every link, the
same deliveries under the same numbers at every sink. So after a crash the journal is applied again, the outputs that
were already sent are recognised by their numbers, and the node goes on as if nothing had happened.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any, Final, Protocol, assert_never

from headwater.node import effects, snapshot
from headwater.node.core import NodeCore, NodeSettings
from headwater.node.daemon import journal_records as records
from headwater.node.daemon.duplicates import SeenCounters
from headwater.node.daemon.journal_records import Publication, Record
from headwater.node.daemon.link_state import LinkState
from headwater.node.daemon.outputs import Outputs
from headwater.node.daemon.sink_state import Row, SinkState
from headwater.node.daemon.trace_replays import ReplayState
from headwater.node.remote.encoding import decode_elements
from headwater.node.remote.memory import Memory
from headwater.node.remote.policies import DEFAULT
from headwater.protocol.composites import Composite
from headwater.protocol.edge import ReplayFeed
from headwater.protocol.events import HEADER_WIDTH, Event, EventType
from headwater.protocol.functions import FunctionsMissing
from headwater.protocol.links.large_payloads import PART_BYTES, split
from headwater.protocol.links.settings import LinkError
from headwater.protocol.messages import control
from headwater.protocol.messages.control import COORDINATOR, NodeConfig
from headwater.protocol.messages.neighbour import Message
from headwater.protocol.messages.recovery import Noted, Recall, Remember, in_portions, key_of
from headwater.protocol.remote import STEADY
from headwater.protocol.wire.link_wire import LinkWire
from headwater.protocol.wire.rule_encoding import CodecError

log = logging.getLogger("headwater.node")

REBIRTH_GAP: Final = 1 << 32  # more numbers than a node can have given to events that it does not remember
WAITING_MAX: Final = 100_000  # deliveries that a slow sink may leave waiting before sources must wait
PUBLISHERS_MAX: Final = 10_000  # programs whose last publication is known; the one silent longest is forgotten

RecordOfLink = records.Frames | records.Reset | records.Met | records.Acknowledged
RecordOfSources = records.Births | records.Replayed | records.Ended | records.Unheard | records.Heard


class MachineWatcher(Protocol):
    """A watcher counts what a running machine does. A machine that only replays has none."""

    def sent(self, peer: str, message: Message, size: int) -> None: ...

    def received(self, peer: str, message: Message, size: int) -> None: ...

    def delivered(self, sink: int, before: int, rows: Sequence[Row], now_us: int) -> None:
        """The sink, to which so many had been given before, was given these."""


class NodeMachine:
    """The durable part of a node process."""

    def __init__(self, name: str, life: str, settings: NodeSettings | None = None) -> None:
        self.name = name
        self.life = life
        self.config: NodeConfig | None = None
        self.core: NodeCore | None = None
        self.links: dict[str, LinkState] = {COORDINATOR: LinkState(None)}
        self.sinks: dict[int, SinkState] = {}
        self.positions: dict[int, Any] = {}
        """Where each source goes on after a restart."""
        self.ended: set[int] = set()
        self.seen = SeenCounters()
        self.publications: dict[str, Publication] = {}
        """The last publication of each program that was taken, the program that was silent longest first."""
        self.published_us: dict[str, int] = {}
        """When each of these publications was taken."""
        self.replay: ReplayState | None = None
        self.next_seq = 1
        """The number of the next event that brings none of its own."""
        self.now_us = 0
        self.rebirths = 0
        self.memory: dict[str, Noted] = {}
        """What the coordinator has asked this node to remember, in case it loses its own memory."""
        self._about: tuple[str | None, ...] = ("", "", "", None)
        """Where this node can be reached, over HTTP too, its version, and whether it runs functions (``Begun``)."""
        self._requests: dict[int, bytes] = {}
        """What clients want of the coordinator and it has not answered yet: no more than they may have asked for."""
        self.remembered: dict[str, list[Row]] = {}
        """Events of an earlier life by type, until sources of the type are known again."""
        self._settings = settings
        self._types: dict[str, EventType] = {}
        self.watcher: MachineWatcher | None = None

    # --------------------------------------------------------------------------------------------------------- saving

    def save(self) -> bytes:
        watcher, self.watcher = self.watcher, None
        try:
            return snapshot.save(self)
        finally:
            self.watcher = watcher

    @staticmethod
    def restored(data: bytes) -> NodeMachine:
        machine = snapshot.restore(data)
        if not isinstance(machine, NodeMachine):
            raise snapshot.StateError("the snapshot is not that of a node")
        return machine

    def reborn(self, life: str) -> NodeMachine:
        """A new life after a part of the memory was lost, which others rely on.

        Links and trees start over. What is left of the rest goes along: where sources go on, which identities they have
        used, which deliveries were made, and the events that a new tree may need.
        """
        fresh = NodeMachine(self.name, life, self._settings)
        fresh.rebirths = self.rebirths + 1
        fresh.now_us = self.now_us
        fresh.positions, fresh.ended, fresh.seen = self.positions, self.ended, self.seen
        fresh.publications, fresh.published_us = self.publications, self.published_us
        fresh.sinks = self.sinks
        fresh.replay = self.replay
        fresh.memory = self.memory
        # Traces are read again under the same numbers. The numbers that other events had are not known.
        replayed = self.config is not None and self.config.replayed
        fresh.next_seq = self.next_seq if replayed else self.next_seq + REBIRTH_GAP
        if self.core is not None:
            fresh.remembered = {name: feed.history for name, feed in self.core.local.items() if feed.history}
        return fresh

    # -------------------------------------------------------------------------------------------------------- records

    def apply(self, record: Record) -> Outputs:
        """Take one record; what follows from it.

        A bug must not stop the node: what it could not do is said and counted, and it carries on. When the record is
        applied again after a crash, the same happens.
        """
        out = Outputs()
        self.now_us = max(self.now_us, record.now_us)
        try:
            self._apply(record, out)
        except FunctionsMissing:
            raise  # to go on without them would find other things than the plan says
        except Exception:
            log.exception("an input could not be handled (a bug); the node carries on")
            out.counters["internal_errors"] += 1
        return out

    def _apply(self, record: Record, out: Outputs) -> None:
        match record:
            case records.Frames() | records.Reset() | records.Met() | records.Acknowledged():
                self._apply_of_link(record, out)
            case records.Births() | records.Replayed() | records.Ended() | records.Unheard() | records.Heard():
                self._apply_of_sources(record, out)
            case records.Fired(_, timer):
                self._handle(effects.TimerFired(timer), out)
            case records.Begun(_, address, http, version, functions):
                self._about = (address, http, version, functions)
                if self.memory and self.config is None:  # of an earlier life; the coordinator may have lost it
                    self._recall(out)
                self._register(out)
            case records.Confirmed(_, sink, number):
                self.sinks[sink].confirm(number)
            case records.Fetched(_, elements, took_us):
                self._handle(effects.Fetched(tuple(decode_elements(elements)), took_us), out)
            case records.FetchFailed(_, places):
                failed = tuple((table, key) for table, key, _ in decode_elements(places))
                self._handle(effects.FetchFailed(failed), out)
            case records.Requested(_, payload):
                request = control.decode(payload)
                assert isinstance(request, control.SubscribeClient | control.UnsubscribeClient)
                self._requests[request.request] = payload
                self._send(COORDINATOR, payload, out)

    def _apply_of_sources(self, record: RecordOfSources, out: Outputs) -> None:
        match record:
            case records.Births():
                self._born(record, out)
            case records.Replayed():
                self._replayed(record, out)
            case records.Ended(_, sources):
                self.ended.update(sources)
                self._handle(effects.SourcesEnded(tuple(sources)), out)
            case records.Unheard(_, since_us, sources):
                self._handle(effects.SourcesUnheard(tuple(sources), since_us), out)
            case records.Heard(_, sources):
                self._handle(effects.SourcesHeard(tuple(sources)), out)

    def _apply_of_link(self, record: RecordOfLink, out: Outputs) -> None:
        link = self.links[record.peer]
        match record:
            case records.Frames(_, peer, last_seq, payloads):
                link.received(last_seq, payloads)
                if peer == COORDINATOR:
                    for payload in payloads:
                        self._from_coordinator(payload, out)
                else:
                    self._heard(peer, link, payloads, out)
            case records.Reset(_, peer, life, era):
                link.reset(life, era)
                if peer != COORDINATOR:
                    self._handle(effects.LinkReset(peer), out)
                else:
                    self._recall(out)
                    self._register(out)
                    for payload in self._requests.values():
                        self._send(COORDINATOR, payload, out)
            case records.Met(_, _, life, era):
                link.met(life, era)
            case records.Acknowledged(_, _, seq):
                link.acknowledged(seq)

    # ----------------------------------------------------------------------------------------------------------- links

    def _heard(self, peer: str, link: LinkState, payloads: list[bytes], out: Outputs) -> None:
        assert link.wire is not None
        for payload in payloads:
            try:
                whole = link.joined.take(payload)
                if whole is None:
                    continue
                message = link.wire.decode(whole)
            except (CodecError, LinkError):
                out.counters["malformed_messages"] += 1
                continue
            if self.watcher is not None:
                self.watcher.received(peer, message, len(whole))
            self._handle(effects.MessageReceived(peer, message), out)

    def _send(self, peer: str, payload: bytes, out: Outputs) -> None:
        if len(payload) > PART_BYTES and peer != COORDINATOR:
            for part in split(payload):
                self._send_part(peer, part, out)
        else:
            self._send_part(peer, payload, out)

    def _send_part(self, peer: str, payload: bytes, out: Outputs) -> None:
        self.links[peer].sent(payload)
        payloads = out.sends.get(peer)
        if payloads is None:
            out.sends[peer] = [payload]
        else:
            payloads.append(payload)

    # ----------------------------------------------------------------------------------------------------- coordinator

    def _register(self, out: Outputs) -> None:
        address, http, version, *functions = self._about
        about = control.Register(self.name, self.life, address or "", http or "", version or "", *functions)
        self._send(COORDINATOR, control.encode(about), out)

    @property
    def functions(self) -> str | None:
        """What was last said of the functions of the network: why they are not run here; empty: they are."""
        return self._about[3] if len(self._about) > 3 else None

    def _recall(self, out: Outputs) -> None:
        """Remind a coordinator that may have lost its memory of what it wanted kept, and of the plan held here."""
        plan = max(self.core.forest.shares, default=0) if self.core is not None else 0
        version = self.config.version if self.config is not None else 0
        for portion in in_portions(list(self.memory.values())):
            self._send(COORDINATOR, control.encode(Recall(plan, version, portion)), out)

    def _from_coordinator(self, payload: bytes, out: Outputs) -> None:
        try:
            message = control.decode(payload)
        except CodecError:
            out.counters["malformed_messages"] += 1
            return
        match message:
            case control.Configure(config):
                self._configure(config)
                out.configured = True
            case control.Ordered(order):
                self._handle(effects.OrderReceived(order), out)
                if self.remembered and self.core is not None:
                    for name in [name for name in self.remembered if name in self.core.local]:
                        self.core.local[name].remember(self.remembered.pop(name))
            case Remember(anew, pieces, gone):
                if anew:
                    self.memory = {}
                self.memory.update((key_of(piece), piece) for piece in pieces)
                for key in gone:
                    self.memory.pop(key, None)
            case control.Answer(request):
                self._requests.pop(request, None)
                out.answers.append(message)
            case _:
                out.counters["unknown_messages"] += 1

    def _configure(self, config: NodeConfig) -> None:
        if self.config is not None and config.version <= self.config.version:
            return
        retyped = self.config is not None and self.config.types != config.types
        self.config = config
        self._types = {declared.name: declared for declared in config.types}
        for peer in config.peers:
            link = self.links.get(peer.name)
            if link is None:
                self.links[peer.name] = LinkState(LinkWire(config.types))
            elif link.wire is not None and retyped:
                link.wire.retyped(config.types)
        for sink in config.sinks:
            self.sinks.setdefault(sink.number, SinkState())
        if self.core is None:
            if config.version > 1:
                self._follow_earlier_lives(config)
            around = {peer.name: peer.delay_us for peer in sorted(config.peers, key=lambda peer: peer.name)}
            settings = self._settings or NodeSettings()
            terms = {table.name: table.terms for table in config.tables if table.terms != STEADY}
            memory = Memory(
                (),
                policy=config.remote_strategy or DEFAULT,
                policies=dict(config.remote_strategies),
                cache=config.remote_cache or "lru",
                terms=terms,
                priorities=dict(config.remote_priorities),
            )
            self.core = NodeCore(self.name, around, replace(settings, replayed=config.replayed), memory)

    def _follow_earlier_lives(self, config: NodeConfig) -> None:
        """The first configuration of this life is not the first of the node: it has forgotten what it was before. The
        coordinator numbers configurations over all lives, so this life gives events numbers that no other has given.
        Traces tell what is lost again, under the same numbers."""
        self.rebirths = max(self.rebirths, 1)
        if not config.replayed:
            self.next_seq = max(self.next_seq, (config.version - 1) * REBIRTH_GAP + 1)

    # ---------------------------------------------------------------------------------------------------------- events

    def _born(self, record: records.Births, out: Outputs) -> None:
        if record.position is not None:
            self.positions[record.source] = record.position
        if (publication := record.publication) is not None:
            self.publications.pop(publication.program, None)
            self.publications[publication.program] = publication
            self.published_us[publication.program] = record.now_us
            if len(self.publications) > PUBLISHERS_MAX:
                forgotten = next(iter(self.publications))
                del self.publications[forgotten], self.published_us[forgotten]
        declared = self.type_of_source(record.source)
        if declared is None:
            out.counters["unadvertised_events"] += len(record.rows)
            return
        events = []
        for ts, node, seq, *values in record.rows:
            if node == self.name:
                self.next_seq = max(self.next_seq, seq + 1)
            else:
                self.seen.note(node, seq)
            events.append(Event.from_row((ts, node, seq, declared, *values)))
        self._handle(effects.Born(record.source, tuple(events), record.watermark), out)

    def _replayed(self, record: records.Replayed, out: Outputs) -> None:
        self.replay = ReplayState(record.trace, record.last_seq)
        births: dict[int, effects.Born] = {}
        for source, times, numbers, columns in record.parts:
            declared = self.type_of_source(source)
            if declared is None:
                out.counters["unadvertised_events"] += len(times)
                continue
            rows = zip(times, repeat(self.name), numbers, repeat(declared), *columns, strict=False)
            births[source] = effects.Born(source, tuple(map(Event.from_row, rows)), record.watermark)
            self.next_seq = max(self.next_seq, numbers[-1] + 1)
        if record.watermark is not None:
            for source in self.replay_sources():
                births.setdefault(source, effects.Born(source, (), record.watermark))
        self._handle(effects.BornTogether(tuple(births.values())), out)

    def replay_sources(self) -> list[int]:
        """The numbers of the sources that a replayer feeds and that have not ended."""
        sources = () if self.config is None else self.config.sources
        return [
            source.number
            for source in sources
            if isinstance(source.feed, ReplayFeed) and source.number not in self.ended
        ]

    def has_taken(self, publication: Publication) -> bool:
        """Whether it is a duplicate. A restarted program counts from 1 again: nothing of its last life follows."""
        last = self.publications.get(publication.program)
        return last is not None and last.life == publication.life and publication.number <= last.number

    def is_ending(self, source: int) -> bool:
        """Whether it was decided that a source ends, although something of the plan before may be under way."""
        feed = None if self.core is None else self.core.forest.feed_of(source)
        return feed is not None and feed.sources[source].until_us is not None

    def is_new(self, device: str, counter: int) -> bool:
        """Whether an event with this identity was not taken before. A trace that numbers its rows gives each once."""
        return device == self.name or self.seen.is_new(device, counter)

    def type_of_source(self, number: int) -> EventType | None:
        if self.config is None:
            return None
        type_name = next((source.source.type for source in self.config.sources if source.number == number), None)
        return self._types.get(type_name) if type_name is not None else None

    # --------------------------------------------------------------------------------------------------------- effects

    def _handle(self, received: effects.Input, out: Outputs) -> None:
        if self.core is None:
            out.counters["unconfigured_inputs"] += 1
            return
        for effect in self.core.handle(received, self.now_us):
            self._perform(effect, out)

    def _perform(self, effect: effects.Effect, out: Outputs) -> None:
        match effect:  # what comes often first
            case effects.Send():
                wire = self.links[effect.neighbour].wire
                assert wire is not None
                payload = wire.encode(effect.message)
                if self.watcher is not None:
                    self.watcher.sent(effect.neighbour, effect.message, len(payload))
                self._send(effect.neighbour, payload, out)
            case effects.Deliver():
                sink = self.sinks.get(effect.sink)
                if sink is None:
                    sink = self.sinks[effect.sink] = SinkState()
                if self.watcher is not None:
                    self.watcher.delivered(effect.sink, sink.count, effect.rows, self.now_us)
                sink.deliver(effect.rows)
                out.delivered.add(effect.sink)
            case effects.SetTimer():
                out.timers = True
            case effects.Report():
                if effect.rule:
                    out.failures.append(effect)
                else:
                    out.counters[effect.counter] += effect.count
            case effects.Tell():
                self._send(COORDINATOR, control.encode(control.Reported(effect.report)), out)
            case effects.Fetch():
                out.fetches += effect.places
            case _:
                assert_never(effect)


def as_json(row: Row) -> dict[str, Any]:
    """A delivery in the documented form: a composite event, or a primitive one with its identity and attributes."""
    inner = row if isinstance(row, Composite) else row[3]
    if isinstance(inner, Composite):
        return inner.to_json()
    values = dict(zip(inner.attributes, row[HEADER_WIDTH:], strict=True))
    return {"type": inner.name, "ts": row[0], "node": row[1], "seq": row[2], "attributes": values}
