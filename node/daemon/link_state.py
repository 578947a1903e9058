"""The state of one link of a node, which survives a crash: numbers, digests, and payloads not acknowledged yet."""

from __future__ import annotations

from headwater.protocol.links import PeerState
from headwater.protocol.links.large_payloads import Joined
from headwater.protocol.links.numbering import Outgoing, digest_with
from headwater.protocol.wire.link_wire import LinkWire


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
        """The two ends cannot go on where they were: everything starts over."""
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
