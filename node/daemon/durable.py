"""What the machine of a node process keeps of its links, sinks and replays, and what it gives out."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from headwater.node import effects
from headwater.node.delivery.matches import MatchBatch
from headwater.node.engine.asking import Place
from headwater.protocol.links import PeerState
from headwater.protocol.links.numbering import Outgoing, digest_with
from headwater.protocol.links.parts import Joined
from headwater.protocol.messages import control
from headwater.protocol.wire.messages import LinkWire

Row = tuple[Any, ...]


class LinkState:
    """What both ends of a link rely on."""

    def __init__(self, wire: LinkWire | None) -> None:
        self.wire = wire
        """None on the link to the coordinator, which has a language of its own."""
        self.life: str | None = None
        """The life of the other end, and below the era of the numbering, once the two have met."""
        self.era = ""
        self.in_seq = 0
        self._in_digest = 0
        self._out = Outgoing()
        self.joined = Joined()

    def met(self, life: str, era: str) -> None:
        self.life, self.era = life, era

    def reset(self, life: str, era: str) -> None:
        """The two ends cannot go on where they were: everything begins anew."""
        self.met(life, era)
        self.in_seq = self._in_digest = 0
        self._out = Outgoing()
        self.joined = Joined()
        if self.wire is not None:
            self.wire.reset()

    def received(self, last_seq: int, payloads: list[bytes]) -> None:
        self.in_seq = last_seq
        for payload in payloads:
            self._in_digest = digest_with(payload, self._in_digest)

    def sent(self, payload: bytes) -> None:
        self._out.add((payload,))

    def acknowledged(self, seq: int) -> None:
        self._out.acknowledge(seq)

    def state(self, coming: int) -> PeerState:
        """What the hub needs to go on; without the last ``coming`` payloads, which it is still to be given."""
        out = self._out
        kept = out.payloads()
        return PeerState(
            self.life,
            self.era,
            out.acknowledged,
            out.first_digest,
            kept[: len(kept) - coming],
            self.in_seq,
            self._in_digest,
        )


class SinkState:
    """Deliveries of one sink, numbered from 1 on."""

    def __init__(self) -> None:
        self.count = 0
        self.confirmed = 0
        self.waiting: deque[Row] = deque()
        """What was not confirmed yet, rows or composites; its last one is number ``count``."""

    @property
    def first(self) -> int:
        """The number of the first delivery that waits, or of the next one if none does."""
        return self.count - len(self.waiting) + 1

    def deliver(self, rows: Sequence[Row]) -> None:
        self.waiting.extend(rows.matches if isinstance(rows, MatchBatch) else rows)  # their rows are not made yet
        self.count += len(rows)

    def confirm(self, number: int) -> None:
        number = min(number, self.count)
        self.confirmed = max(self.confirmed, number)
        if number == self.count:
            self.waiting.clear()
        for _ in range(number + 1 - self.first):
            self.waiting.popleft()


class ReplayState(NamedTuple):
    """How far the replay of a prepared trace has come at this node."""

    trace: str
    """The checksum of the trace."""
    last_seq: int
    """The greatest number that has come: an event with a number that is not greater is a repetition."""


class Outputs:
    """What must be done once the records that led to it are durable."""

    __slots__ = ("answers", "configured", "counters", "delivered", "failures", "fetches", "sends", "timers")

    def __init__(self) -> None:
        self.sends: dict[str, list[bytes]] = {}
        self.delivered: set[int] = set()
        self.counters: Counter[str] = Counter()
        self.failures: list[effects.Report] = []
        """Failures of rules on the values that they have met."""
        self.fetches: list[Place] = []
        """Elements of remote tables that are asked for."""
        self.answers: list[control.Answer] = []
        self.configured = False
        self.timers = False
        """Whether a timer may be due earlier than before."""
