"""What a node process shows of itself: counters, metrics, health, tables, statistics for the coordinator, records."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import process_time
from typing import TYPE_CHECKING, Any, Final

from headwater.node.delivery.matches import MatchBatch
from headwater.node.edge.names import sink_end, source_end
from headwater.node.edge.rate_limited_log import Seldom
from headwater.node.observe.accounts import LinkAccounts
from headwater.node.observe.config_view import config_view
from headwater.node.observe.http import Response, Server, json_response, serve
from headwater.node.observe.metrics.counters import NodeCounters, SourceCounts
from headwater.node.observe.metrics.exposition import CONTENT_TYPE, Exposition
from headwater.node.observe.metrics.loop_lag import LoopLag
from headwater.node.observe.metrics.observed import EdgeEnd, Observed
from headwater.node.observe.metrics.records import MetricRecords
from headwater.node.observe.metrics.waits import Waits
from headwater.node.observe.statistics import Whispers, statistics
from headwater.protocol.composites import Composite
from headwater.protocol.edge import ReplayFeed, feed_name
from headwater.protocol.events import EventType
from headwater.protocol.files import write_file
from headwater.protocol.messages.control import COORDINATOR, NodeConfig, SourceConfig, encode_statistics
from headwater.protocol.messages.neighbour import Message
from headwater.protocol.wire.messages import Wire

if TYPE_CHECKING:
    from headwater.node.daemon.daemon import NodeDaemon

log = logging.getLogger("headwater.node")

SAY_AGAIN_S: Final = 60.0  # a rule that fails on every event must not fill the log
HELD_BACK_S: Final = 10.0  # a source that rules wait for longer than this is reported
STATISTICS_EVERY_S: Final = 2  # beats, which are seconds

NOWHERE: Final = EventType("?")


class Watching:
    """The eyes of one daemon."""

    def __init__(self, daemon: NodeDaemon) -> None:
        self._daemon = daemon
        self.counters = NodeCounters(daemon.now_us())
        self._accounts = LinkAccounts(Wire(()))  # until the node knows its types
        self._observed = Observed(
            node=daemon.settings.name,
            life=daemon.machine.life,
            network=daemon.settings.network,
            counters=self.counters,
            accounts=self._accounts,
            journal=daemon.journal,
            now_us=daemon.now_us,
            cpu_s=process_time,
            version=daemon.settings.version,
        )
        self._waits: dict[int, Waits] = {}
        self._wait_since_earlier_lives()
        self._exposition = Exposition(self._observed)
        self._records = MetricRecords(daemon.settings.data / "records", self._observed)
        self._server: Server | None = None
        self._lag: LoopLag | None = None
        self._beats = 0
        self._whispers = Whispers(self._observed)
        self._say_again_s: dict[str, float] = {}
        """When a failure of a rule may be logged again, by rule."""
        self._seldom = Seldom(logging.getLogger("headwater.edge"))

    def configured(self, config: NodeConfig) -> None:
        """Event types may be new: accounts go on with them."""
        before, self._accounts = self._accounts, LinkAccounts(Wire(config.types))
        self._accounts.sent, self._accounts.received = before.sent, before.received
        self._accounts.sent_types = before.sent_types
        self._observed.accounts = self._accounts
        self._observed.run, self._observed.strategy = config.run, config.strategy

    # ------------------------------------------------------------------------------------------------ what has happened

    def source(self, number: int) -> SourceCounts:
        declared = self._daemon.machine.type_of_source(number) or NOWHERE
        return self.counters.source(number, declared.name)

    def reported(self, counters: Mapping[str, int]) -> None:
        for name, number in counters.items():
            self.counters.reported(name, number)

    def rule_failed(self, rule: str, number: int, sentence: str) -> None:
        """A rule could not be evaluated on the values it met: counted each time, and logged now and then."""
        rule = rule.partition("/")[0]  # what follows are the parts of it that are evaluated here
        self.counters.rule_failed(rule, number)
        now_s = self._daemon.loop.time()
        if now_s >= self._say_again_s.get(rule, 0.0):
            self._say_again_s[rule] = now_s + SAY_AGAIN_S
            log.warning("%s (no match; %d so far)", sentence, self.counters.rule_errors[rule])

    def said_late(self, source: int, age_us: int) -> None:
        """An event of a source is late: logged now and then."""
        config = self._source_config(source)
        if config is not None:
            lateness_us = config.source.lateness_us
            self._seldom.say(
                f"late {source}",
                f"source {source} ({config.source.type}): an event came {age_us / 1e6:.3f} s after its time and is "
                f"late by {max(0, age_us - lateness_us) / 1e6:.3f} s (lateness: {lateness_us / 1e6:g} s); no rule sees "
                "it, it is in late.jsonl; give the source more lateness, or set the clock of its device",
            )

    def said_malformed(self, source: int, why: str) -> None:
        """Something came of a source that is no event: logged now and then."""
        name = self.source(source).type
        self._seldom.say(f"malformed {source}", f"source {source} ({name}): {why[:300]}; it is in dead-letters.jsonl")

    def _source_config(self, number: int) -> SourceConfig | None:
        config = self._daemon.machine.config
        return (
            next((source for source in config.sources if source.number == number), None) if config is not None else None
        )

    # The machine calls these in the midst of its work, which must never fail because of them: a machine that applies
    # its journal again has no watcher and would take another path.

    def sent(self, peer: str, message: Message, size: int) -> None:
        with self._unharmed():
            self._accounts.note(peer, message, size)

    def received(self, peer: str, message: Message, size: int) -> None:
        with self._unharmed():
            self._accounts.note_received(peer, message, size)

    def delivered(self, sink: int, before: int, rows: Sequence[tuple[Any, ...]], now_us: int) -> None:
        live = not self._is_replayed()
        with self._unharmed():
            ends = (rows.ends() if isinstance(rows, MatchBatch) else [row[0] for row in rows]) if live else ()
            self.counters.delivered_rows(sink, len(rows), [now_us - end for end in ends])
            self._waits_of(sink).came(before + len(rows), now_us)
            self._records.delivered_rows(sink, before + 1, rows, now_us, live=live)

    def confirmed(self, sink: int, number: int, taken: int) -> None:
        """The receiver of a sink needs nothing up to this number any more; so many of these it has taken."""
        self._waits_of(sink).left(number)
        self.counters.taken_by(sink, taken)

    def dropped(self, sink: int, number: int) -> None:
        """No program will be given deliveries up to this number."""
        self._waits_of(sink).left(number)

    def _wait_since_earlier_lives(self) -> None:
        """What waits as the process begins came when it had happened, if sources are live; at the latest it came when
        the last process ended."""
        ended_us, live = self._daemon.machine.now_us, not self._is_replayed()
        for number, sink in self._daemon.machine.sinks.items():
            came_us = 0
            for delivery, row in enumerate(sink.waiting, sink.first):
                happened_us = row.ts if isinstance(row, Composite) else row[0]
                came_us = max(came_us, min(happened_us, ended_us) if live else ended_us)
                self._waits_of(number).came(delivery, came_us)

    def _waits_of(self, sink: int) -> Waits:
        waits = self._waits.get(sink)
        if waits is None:
            waits = self._waits[sink] = Waits()
        return waits

    def replayed(
        self, now_us: int, born: int, numbers: tuple[int, int], times: tuple[int, int], trace: str = ""
    ) -> None:
        """Events of a replay have become part of the trace: how many, their first and last number, and times."""
        with self._unharmed():
            self._records.born(now_us, born, numbers, times, trace)

    @contextmanager
    def _unharmed(self) -> Iterator[None]:
        try:
            yield
        except Exception:
            log.exception("something could not be counted (a bug)")
            self.counters.reported("internal_errors", 1)

    def _is_replayed(self) -> bool:
        config = self._daemon.machine.config
        return config is not None and config.replayed

    def committed(self, seconds: float, size: int, records: int) -> None:
        if size:
            self.counters.journal_records += records
            self.counters.commits.observe(int(seconds * 1e6))
            self.counters.journal_bytes += size

    def saved(self, seconds: float, size: int) -> None:
        self.counters.snapshots.observe(int(seconds * 1e6))
        self.counters.snapshot_bytes = size

    def restarted(self, replayed: int) -> None:
        self.counters.replayed_records = replayed
        self.counters.restarts = self._restarts(self._daemon.machine.now_us > 0)  # it has handled something before

    def _restarts(self, again: bool) -> int:
        """How often this node has come back; counted in a file, since every process begins at nothing."""
        file = self._daemon.settings.data / "restarts"
        try:
            restarts = int(file.read_text(encoding="utf-8")) if file.exists() else 0
            write_file(file, f"{restarts + again}\n", sync=False)
        except (OSError, ValueError):
            restarts = 0
        return restarts + again

    # ------------------------------------------------------------------------------------------------ telling others

    def beat(self) -> None:
        """Once a second. Other things depend on the same beat, so it must not fail."""
        with self._unharmed():
            self._refresh()
            self._beats += 1
            if self._beats % STATISTICS_EVERY_S == 0 and self._daemon.hub.is_up(COORDINATOR):
                report = self._whispers.next()
                if report is not None:
                    self._daemon.hub.whisper(COORDINATOR, encode_statistics(report))

    def link_changed(self, peer: str, *, up: bool) -> None:
        """The coordinator should hear soon which links are up."""
        self._whispers.again()

    def _refresh(self) -> None:
        self._observed.core = self._daemon.machine.core
        self._observed.hub = self._daemon.hub
        self._observed.edge = self._daemon.adapters.edge
        self._observed.fetching = self._daemon.fetching
        self._observed.ends = self._ends()
        peers = set(self._daemon.hub.peers())  # a neighbour whose address is not known yet is not among them
        self._observed.peers = tuple(peer for peer in self._daemon.machine.links if peer in peers)

    def _ends(self) -> list[EdgeEnd]:
        """The other ends of all sources and sinks."""
        daemon, config = self._daemon, self._daemon.machine.config
        if config is None:
            return []
        now_us, adapters = daemon.now_us(), daemon.adapters
        held_back = {source.number: seconds for source, _, seconds in daemon.hearing.held_back()}
        ends = [
            EdgeEnd(
                "source",
                source.number,
                source.source.type,
                source_end(source.feed),
                adapters.is_connected("source", source),
                held_back_s=held_back.get(source.number, 0.0),
            )
            for source in config.sources
            if source.number not in daemon.machine.ended
        ]
        for sink in config.sinks:
            waiting = len(daemon.machine.sinks[sink.number].waiting)
            oldest_s = self._waits_of(sink.number).oldest_s(now_us) if waiting else 0.0
            connected = adapters.is_connected("sink", sink)
            wanted = sink.subscription.type
            ends.append(EdgeEnd("sink", sink.number, wanted, sink_end(sink.destination), connected, waiting, oldest_s))
        return ends

    async def serve(self, address: str | None) -> str:
        """Serve HTTP at HOST:PORT; where it is served, or nothing."""
        self._lag = LoopLag(self.counters.loop_lag)
        self._records.start()
        if address is None:
            return ""
        host, _, port = address.rpartition(":")
        routes = {
            "/health": lambda: json_response({"node": self._daemon.settings.name, "life": self._daemon.machine.life}),
            "/ready": self._ready,
            "/metrics": self._metrics,
            "/tables": lambda: json_response(self._tables()),
            "/statistics": self._statistics,
            "/waiting": lambda: json_response(self.waiting()),
            "/config": self._config,
            "/sources": lambda: json_response(self._sources()),
            "/remote": lambda: json_response(self._daemon.fetching.shown()),
        }
        self._server = await serve(host.strip("[]") or "127.0.0.1", int(port), routes, self.counters.http)
        return f"http://{host}:{self._server.port}"

    async def close(self) -> None:
        if self._lag is not None:
            self._lag.stop()
        if self._server is not None:
            await self._server.close()
        await self._records.close()

    def _metrics(self) -> Response:
        self._refresh()
        return Response(200, self._exposition.text(), CONTENT_TYPE)

    def _statistics(self) -> Response:
        self._refresh()
        return json_response(statistics(self._observed))

    def _config(self) -> Response:
        config = self._daemon.machine.config
        return json_response(None if config is None else config_view(config))

    def _tables(self) -> dict[str, Any]:
        core = self._daemon.machine.core
        return {} if core is None else core.tables()

    def _sources(self) -> list[dict[str, Any]]:
        """The sources of this node; of those that are replayed how far they have come, and of those that hear of last
        wills who is there and who has left."""
        config, ended = self._daemon.machine.config, self._daemon.machine.ended
        devices = self._daemon.adapters.edge.devices
        rows = []
        for source in () if config is None else config.sources:
            declared = self._daemon.machine.type_of_source(source.number)
            shown: dict[str, Any] = {
                "source": source.number,
                "type": source.source.type,
                "feed": feed_name(source.feed),
                "attributes": {} if declared is None else dict(declared.declaration()[1]),
                "ended": source.number in ended,
            }
            if isinstance(source.feed, ReplayFeed):
                replay = self._daemon.machine.replay
                shown["replay"] = None if replay is None else replay._asdict()
            if source.number in devices:
                shown |= devices[source.number].shown()
            rows.append(shown)
        return rows

    def waiting(self) -> list[str]:
        """Everything that is still under way, in sentences; nothing when all sources have ended and all was said."""
        daemon = self._daemon
        core, config = daemon.machine.core, daemon.machine.config
        if core is None or config is None:
            return ["it is not configured yet"]
        sentences = [] if core.works else ["it is in no tree yet"]
        sentences += [
            f"the tree of {tree}, epoch {epoch}, is not complete yet" for tree, epoch in core.forest.awaited()
        ]
        sentences += core.unfinished()
        ended = daemon.machine.ended
        sentences += [
            f"source {source.number} has not ended" for source in config.sources if source.number not in ended
        ]
        for peer in daemon.hub.peers():
            count, size = daemon.hub.queued(peer)
            if count:
                sentences.append(f"{peer} has not acknowledged {count} messages ({size} bytes)")
        for number, sink in daemon.machine.sinks.items():
            if sink.waiting:
                sentences.append(f"{len(sink.waiting)} deliveries of sink {number} have not left")
        return sentences

    def missing(self) -> list[str]:
        """What the node still lacks to do its work, in sentences."""
        daemon = self._daemon
        core, config = daemon.machine.core, daemon.machine.config
        if core is None or config is None:
            return ["it is not configured yet"]
        up = {peer for peer in daemon.hub.peers() if daemon.hub.is_up(peer)}  # not all have an address yet
        sentences = [f"the link to {peer.name} is down" for peer in config.peers if peer.name not in up]
        if not core.works or not all(work.started for work in core.works.values()):
            sentences.append("its trees are not complete yet")
        why = daemon.why_closed()
        return [*sentences, f"sources wait: {why}"] if why is not None else sentences

    def degraded(self) -> list[str]:
        """What the node works without and people should know: ends that are away, sources that are waited for."""
        daemon = self._daemon
        troubles = [
            presence.trouble() for (kind, number), presence in daemon.adapters.edge.ends.items()
            if kind == "sink" or not (daemon.machine.is_ending(number) or number in daemon.machine.ended)
        ]  # fmt: skip
        held_back = [
            f"rules wait for source {source.number} ({source.source.type}) since {seconds:.0f} s: {why}"
            for source, why, seconds in daemon.hearing.held_back() if seconds >= HELD_BACK_S
        ]  # fmt: skip
        core = daemon.machine.core
        out_of_reach = [
            f"no node that is left reaches the table {table}; what looks into it waits"
            for table in (core.relay.unreachable() if core is not None else ())
        ]
        return [trouble for trouble in troubles if trouble is not None] + held_back + out_of_reach

    def _ready(self) -> Response:
        missing, degraded = self.missing(), self.degraded()
        answer = {"ready": not missing, "missing": missing, "degraded": degraded}
        return json_response(answer, 503 if missing else 200)
