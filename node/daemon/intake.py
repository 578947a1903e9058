"""The intake of a node: sets late events apart, drops repeated ones, and numbers the rest as events of the trace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from headwater.node.daemon.journal_records import Births, Ended, Publication
from headwater.node.edge.interfaces import Arrival
from headwater.node.traces.times import wrong_for_the_clock

if TYPE_CHECKING:
    from headwater.node.daemon.daemon import NodeDaemon

AHEAD_US_MAX: Final = 86_400_000_000
"""An event so far ahead of the clock is no event: it would be held until its time comes."""


class DaemonIntake:
    """The daemon as sources see it."""

    def __init__(self, daemon: NodeDaemon) -> None:
        self._daemon = daemon
        self.hearing = daemon.hearing

    async def may_publish(self) -> None:
        """Waits while the node takes nothing: before it is configured, when it or the network is full, at the end."""
        await self._daemon.gate.wait()

    def publish(
        self,
        source: int,
        arrivals: Sequence[Arrival],
        *,
        watermark: float | None = None,
        position: Any = None,
        done: Callable[[], None] | None = None,
        publication: Publication | None = None,
    ) -> None:
        """Take events. ``done`` is called when they are durable, also for those that are late or repeated."""
        daemon, machine = self._daemon, self._daemon.machine
        assert machine.core is not None, "sources run only in a configured node"
        now_us = daemon.now_us()
        daemon.hearing.look(now_us)
        feed = machine.core.forest.feed_of(source)
        rows: list[list[Any]] = []
        seq = machine.next_seq
        fresh: set[tuple[str, int]] = set()
        counts = daemon.watching.source(source)
        replayed = machine.config is not None and machine.config.replayed
        latest: float = float("inf") if replayed else now_us + AHEAD_US_MAX
        for arrival in arrivals:
            ts = now_us if arrival.ts is None else arrival.ts
            if not replayed and (why := wrong_for_the_clock(ts, now_us)):
                daemon.malformed(source, str(arrival).encode(), why)
                continue
            if feed is not None and feed.is_late(source, ts, now_us):
                counts.late += 1
                daemon.late(source, arrival, ts, now_us)
                continue
            daemon.hearing.came(source, ts, now_us)
            if ts > latest:
                why = f"its time {ts} is more than a day ahead of the clock ({now_us}); set the clock of its device"
                daemon.malformed(source, str(arrival).encode(), why)
                continue
            if arrival.device is None or arrival.counter is None:
                rows.append([ts, machine.name, seq, *arrival.values])
                seq += 1
                continue
            identity = (arrival.device, arrival.counter)
            if identity in fresh or not machine.is_new(*identity):
                counts.repeated += 1
                continue
            fresh.add(identity)
            rows.append([ts, *identity, *arrival.values])
        counts.bear(len(rows), now_us)
        if rows or watermark is not None or position is not None or publication is not None:
            daemon.apply(Births(now_us, source, rows, watermark, position, publication))
        if rows and replayed:
            daemon.watching.replayed(now_us, len(rows), _span(rows, 2), _span(rows, 0))
        if done is not None:
            daemon.when_durable(done)

    def ended(self, source: int) -> None:
        """The source has said that nothing will follow."""
        self._daemon.apply(Ended(self._daemon.now_us(), [source]))

    def refused(self, source: int, raw: bytes, why: str) -> None:
        """Something that is no event: kept apart and counted."""
        self._daemon.malformed(source, raw, why)


def _span(rows: Sequence[Sequence[Any]], column: int) -> tuple[int, int]:
    """The least and the greatest of a column."""
    values = [row[column] for row in rows]
    return min(values), max(values)
