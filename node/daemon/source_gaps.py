"""Gaps of sources: events published while a node could not receive them are not late when they arrive.

A process that was frozen, killed or too busy to read, a network that is full, a broker that was away, a program whose
connection broke: what was published in such a time is held by the broker, by the program or in a socket, and comes
afterwards. From when that begins until everything that was held has been taken there is a *gap*, in which the clock
promises nothing for the source (``SourcesUnheard``), so nothing of it is late.

A gap ends when one of these holds:

- the adapter of the source says that nothing is held any more (``caught_up``). After a connection that was made again
  it lasts for the lateness of the source longer (``SETTLES_S`` at most), in which devices that had lost the broker,
  too, can come back;
- the programs that were there before are there again, and have said what they held (``_look_at_programs``);
- the source is heard again, and for ``IN_TIME_S`` (less after a short gap) nothing came that would have been late:
  this ends it where events never stop coming;
- the source is heard again for as long as the gap was before, and ``DRAIN_S``: what comes so late is late.

A broker that does not come back is waited for, until an operator takes the source away.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from headwater.node.daemon.journal_records import Heard, Unheard
from headwater.protocol.edge import ClientFeed, MqttFeed
from headwater.protocol.messages.control import NodeConfig, SourceConfig

if TYPE_CHECKING:
    from headwater.node.daemon.daemon import NodeDaemon

LOOK_S: Final = 0.1
STALL_US: Final = 250_000
"""A process that does nothing for longer could not hear its sources; for a shorter time their lateness must do."""
IN_TIME_S: Final = 5.0
IN_TIME_S_LEAST: Final = 0.5
SETTLES_S: Final = 10.0
DRAIN_S: Final = 60.0
NOTICED_S: Final = 1.5  # a node that stood still for longer may have been taken for dead by programs
DIAL_S: Final = 5.0  # they have dialed again by then
RETURN_S: Final = 30.0
"""Programs that were there before are waited for so long; a killed one never comes."""
RECENT_US: Final = 60_000_000  # a program that has published so short a time before the node was away is expected back
SETTLE_S: Final = 1.0  # after so long a program that is back has sent what it held

log = logging.getLogger("headwater.edge")


@dataclass(slots=True, eq=False)
class SourceGap:
    """A time in which a source could not be heard."""

    source: SourceConfig
    why: str
    began_s: float
    settles: bool
    """Whether it lasts for the lateness of the source after everything that was held was taken."""
    expected: frozenset[str] = frozenset()
    """Programs that are waited for."""
    away_s: float = 0.0
    """For how long the process stood still before it began."""
    since_s: float = field(init=False)
    """Since when the clock promises nothing for the source: since that began."""
    heard_s: float | None = None
    """Since when the source is heard again."""
    first_heard_s: float | None = None
    """The same, whether or not the process stood still once more."""
    overdue_s: float = 0.0
    """When something came that would have been late."""
    drained_s: float | None = None
    """When the adapter has said that nothing is held any more."""

    def __post_init__(self) -> None:
        self.since_s = self.began_s - self.away_s

    @property
    def lateness_s(self) -> float:
        return self.source.source.lateness_us / 1e6

    def look(self, is_heard: bool, now_s: float) -> None:
        """Whether the source is heard at this time."""
        if not is_heard:
            self.heard_s = self.first_heard_s = self.drained_s = None
        elif self.heard_s is None:
            self.heard_s = now_s
            self.first_heard_s = self.first_heard_s or now_s

    def length_s(self) -> float:
        """For how long the source was not heard."""
        return self.away_s + (self.first_heard_s or self.began_s) - self.began_s

    def is_over(self, now_s: float) -> bool:
        if self.heard_s is None:
            return False
        settles_s = min(self.lateness_s, SETTLES_S) if self.settles else 0.0
        if self.drained_s is not None:
            return now_s >= self.drained_s + settles_s
        in_time_s = now_s - max(self.heard_s, self.overdue_s)
        enough_s = settles_s + min(IN_TIME_S, max(IN_TIME_S_LEAST, 2 * self.length_s()))
        return self.is_too_long(now_s) or (not self.expected and in_time_s >= enough_s)

    def is_too_long(self, now_s: float) -> bool:
        return self.first_heard_s is not None and now_s - self.first_heard_s >= self.length_s() + DRAIN_S


class NodeHearing:
    """The gaps of all sources of one node."""

    def __init__(self, daemon: NodeDaemon) -> None:
        self._daemon = daemon
        self._sources: dict[int, SourceConfig] = {}
        """The live sources whose events may be late."""
        self._gaps: dict[int, SourceGap] = {}
        self._begun = asyncio.Event()
        """Set whenever a gap begins."""
        self._connected: set[int] = set()
        """Sources whose brokers are there."""
        self._busy_s: dict[int, float] = {}
        self._aged_s: dict[int, float] = {}
        """When a source had more to take than was taken, and when something came of it that was nearly late."""
        self._looked_us = daemon.now_us()
        self._last_us = daemon.machine.now_us
        """Where the clock of an earlier process has stopped; nothing was promised since."""
        self._timer: asyncio.TimerHandle | None = None

    # ------------------------------------------------------------------------------------------------- begin and end

    def follow(self, config: NodeConfig) -> None:
        """Sources come and go. What was published before this process began may be held for it."""
        sources = {source.number: source for source in config.sources if _may_be_late(source)}
        gone = [number for number in self._sources if sources.get(number) != self._sources[number]]
        for number in gone:
            del self._sources[number]
            self._gaps.pop(number, None)
        new = [source for number, source in sources.items() if number not in self._sources]
        self._sources = sources
        expected = self._recent_programs()
        for source in new:
            if is_held(source):
                self._begin(source, "the node has just begun", settles=True, expected=expected)
        lifted = [number for number in self._unheard() if number not in self._gaps]  # nothing more is known of them
        if lifted:
            self._daemon.apply(Heard(self._daemon.now_us(), lifted))
        if self._timer is None and sources:
            self._looked_us = self._daemon.now_us()
            self._timer = self._daemon.loop.call_later(LOOK_S, self._beat)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _unheard(self) -> Iterable[int]:
        core = self._daemon.machine.core
        return () if core is None else tuple(core.forest.unheard)

    def _begin(
        self, source: SourceConfig, why: str, *, settles: bool = False, expected: frozenset[str] = frozenset(),
        away_s: float = 0.0,
    ) -> None:  # fmt: skip
        now_s = self._daemon.loop.time()
        gap = SourceGap(source, why, now_s, settles, expected, away_s)
        before = self._gaps.get(source.number)
        if before is not None:
            gap.began_s, gap.first_heard_s = before.began_s, before.first_heard_s
            gap.settles, gap.expected = settles or before.settles, expected | before.expected
            gap.away_s = max(away_s, before.away_s)
            gap.since_s = before.since_s
        self._gaps[source.number] = gap
        gap.look(self._is_heard(source), now_s)
        if source.number not in self._unheard():
            since_us = self._last_us or self._daemon.machine.now_us  # the core knows better if it has promised more
            self._daemon.apply(Unheard(self._daemon.now_us(), since_us, [source.number]))
        self._begun.set()

    def _is_heard(self, source: SourceConfig) -> bool:
        """Programs come by themselves; a source that must wait is not heard."""
        there = isinstance(source.feed, ClientFeed) or source.number in self._connected
        return there and self._daemon.gate.is_set()

    def _end(self, gap: SourceGap, now_s: float) -> None:
        if self._gaps.get(gap.source.number) is not gap:
            return
        del self._gaps[gap.source.number]
        if gap.drained_s is None and gap.is_too_long(now_s):
            log.warning(
                "%s now counts as up to date, although held events were still arriving after %.0f s; those that still "
                "arrive may be late", named(gap.source), DRAIN_S,
            )  # fmt: skip
        elif now_s - gap.since_s > 1.0:
            log.info("%s is heard again after %.1f s (%s)", named(gap.source), now_s - gap.since_s, gap.why)
        self._daemon.apply(Heard(self._daemon.now_us(), [gap.source.number]))

    # -------------------------------------------------------------------------------------------------------- stalls

    def look(self, now_us: int) -> None:
        """Before anything is handled: whether the process could not hear its sources since it has last looked."""
        stalled_us = now_us - self._looked_us
        if self._timer is None or stalled_us <= STALL_US:
            return
        self._looked_us = now_us
        why = f"the process stood still for {stalled_us / 1e6:.1f} s"
        programs = self._daemon.adapters.clients.publishers()
        for source in list(self._sources.values()):
            expected = programs if isinstance(source.feed, ClientFeed) else frozenset()
            self._begin(source, why, expected=expected, away_s=stalled_us / 1e6)

    def _beat(self) -> None:
        self._timer = self._daemon.loop.call_later(LOOK_S, self._beat)
        now_us = self._daemon.now_us()
        self.look(now_us)
        self._looked_us = now_us
        now_s = self._daemon.loop.time()
        for source in list(self._sources.values()):
            gap = self._gaps.get(source.number)
            if self._daemon.machine.is_ending(source.number):  # no decision waits for it any more
                if gap is not None:
                    self._end(gap, now_s)
                continue
            if gap is None:
                self._look_at(source, now_s)
                continue
            gap.look(self._is_heard(source), now_s)
            if isinstance(source.feed, ClientFeed):
                self._look_at_programs(gap, now_s)
            if gap.is_over(now_s):
                self._end(gap, now_s)

    def _look_at(self, source: SourceConfig, now_s: float) -> None:
        """Whether a source that was heard until now is behind."""
        if not self._daemon.gate.is_set():
            self._begin(source, "sources had to wait")
        elif isinstance(source.feed, ClientFeed) and self._daemon.adapters.clients.is_behind():
            self._busy_s[source.number] = now_s
        never = -1e9
        if now_s - min(self._busy_s.get(source.number, never), self._aged_s.get(source.number, never)) < 3 * LOOK_S:
            self._begin(source, "it told more than could be taken")

    # ------------------------------------------------------------------------------------------------- what is told

    def lost(self, source: int) -> None:
        """The connection of a source is gone; where nothing is held meanwhile, there is nothing to wait for."""
        self._connected.discard(source)
        config = self._sources.get(source)
        if config is not None and is_held(config) and not self._daemon.machine.is_ending(source):
            self._begin(config, "its broker was away", settles=True)
        elif (gap := self._gaps.get(source)) is not None:
            gap.heard_s = self._daemon.loop.time()
            self._end(gap, gap.heard_s)

    def connected(self, source: int) -> None:
        """The source is heard again, beginning with what was held."""
        self._connected.add(source)
        if (gap := self._gaps.get(source)) is not None:
            gap.look(self._is_heard(gap.source), self._daemon.loop.time())

    def busy(self, source: int) -> None:
        """For a while there was no moment in which everything that has come was taken."""
        self._busy_s[source] = self._daemon.loop.time()

    def came(self, source: int, ts: int, now_us: int) -> None:
        """An event came, with this time of its own."""
        config = self._sources.get(source)
        if config is None or now_us - ts <= config.source.lateness_us // 2:
            return
        gap = self._gaps.get(source)
        if gap is None:
            self._aged_s[source] = self._daemon.loop.time()
        elif now_us - ts > config.source.lateness_us:
            gap.overdue_s = self._daemon.loop.time()

    async def gap(self, source: int) -> SourceGap:
        """The gap that the source is in and whose end is not known yet; waits until there is one."""
        while (gap := self._gaps.get(source)) is None or gap.drained_s is not None:
            self._begun.clear()
            await self._begun.wait()
        return gap

    def caught_up(self, gap: Any) -> None:
        """Nothing is held any more of what was published before."""
        if gap.heard_s is not None:
            gap.drained_s = self._daemon.loop.time()

    # ------------------------------------------------------------------------------------------------------ programs

    def program_left(self, name: str, sources: Iterable[int]) -> None:
        """The connection of a program that has published to these sources broke; it did not say that it leaves."""
        for number in sources:
            if (config := self._sources.get(number)) is not None:
                self._begin(config, f"the program {name} was away", expected=frozenset({name}))

    def _recent_programs(self) -> frozenset[str]:
        """The programs that may have been connected when the process before this one ended."""
        machine = self._daemon.machine
        return frozenset(name for name, at_us in machine.published_us.items() if at_us > self._last_us - RECENT_US > 0)

    def _look_at_programs(self, gap: SourceGap, now_s: float) -> None:
        clients = self._daemon.adapters.clients
        if gap.heard_s is None or gap.drained_s is not None or clients.is_behind():
            return
        heard_s = now_s - gap.heard_s
        settled = heard_s >= (DIAL_S if gap.away_s > NOTICED_S else SETTLE_S)
        if not gap.expected or (settled and all(clients.is_back(name, SETTLE_S) for name in gap.expected)):
            gap.drained_s = now_s
        elif heard_s >= RETURN_S:
            log.warning(
                "%s: programs that were connected before are not back after %.0f s; what they still hold may be late",
                named(gap.source),
                RETURN_S,
            )
            gap.drained_s = now_s

    # ------------------------------------------------------------------------------------------------------- showing

    def held_back(self) -> list[tuple[SourceConfig, str, float]]:
        """The sources whose clock stands still: why, and for how many seconds."""
        now_s = self._daemon.loop.time()
        return [(gap.source, gap.why, now_s - gap.since_s) for gap in self._gaps.values()]


def named(source: SourceConfig) -> str:
    return f"source {source.number} ({source.source.type})"


def _may_be_late(source: SourceConfig) -> bool:
    """Events that happen when they arrive are never late, and those of a source without lateness nearly always."""
    feed = source.feed
    says_its_time = isinstance(feed, ClientFeed) or (isinstance(feed, MqttFeed) and feed.time is not None)
    return says_its_time and source.source.lateness_us > 0


def is_held(source: SourceConfig) -> bool:
    """Whether what it publishes while the node is away is held for it."""
    return isinstance(source.feed, ClientFeed) or (isinstance(source.feed, MqttFeed) and source.feed.qos > 0)
