"""Settings of a link, and the part of its state that outlives the process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from headwater.protocol.errors import HeadwaterError

FRAME_BYTES_MAX: Final = 8 << 20
"""No frame on any link is larger. The sockets enforce it, so a stranger cannot make a node hold more than this."""

NAME_CHARS_MAX: Final = 256
"""Names, lives and network ids are no longer: a hello stays small, from any sender."""

LEFT: Final = "the peer took leave"
"""Why a link is down whose other end has said that it leaves."""


class LinkError(HeadwaterError):
    """A link was asked for something it cannot do: the operator or the caller must act."""


@dataclass(frozen=True, slots=True)
class LinkSettings:
    delay_us: int = 0
    """Added in the link to whatever leaves, for testbeds."""
    bandwidth_bps: int | None = None
    """What leaves is paced to so many bits a second, for testbeds; None: as fast as it goes."""
    heartbeat_s: float = 0.5
    """An idle link says something this often."""
    silence_s: float = 2.0
    """A peer that was silent for so long is down."""
    window_bytes: int = 4 << 20
    """Credit: so much may be under way without being acknowledged."""
    buffer_bytes: int = 64 << 20
    """What is kept for sending again; past it the peer counts as full, and sources must wait."""
    frame_bytes_max: int = FRAME_BYTES_MAX
    exclusive: bool = False
    """While the peer is up, no other process of its name gets in. Without it the latest one has the link, as is right
    for a process that is watched over and may have been started again."""


@dataclass(frozen=True, slots=True)
class PeerState:
    """What one end of a link must remember over a restart. Plain values, for snapshots."""

    life: str | None = None
    """The life of the peer with which the numbers below were agreed; None: it was never met."""
    era: str = ""
    """Which numbering of these two lives this is; a reset begins another one."""
    out_acknowledged: int = 0
    """The peer has everything up to this number for good."""
    out_digest: int = 0
    """The digest of everything sent up to that number."""
    unacknowledged: tuple[bytes, ...] = ()
    """What follows it, in order."""
    in_seq: int = 0
    """Everything received up to this number was confirmed."""
    in_digest: int | None = 0
    """The digest of everything received up to that number; None: not known, and then not compared."""

    @property
    def out_seq(self) -> int:
        """The number of the last payload that was given out."""
        return self.out_acknowledged + len(self.unacknowledged)


class Handler(Protocol):
    """The user of a hub. Called from the event loop, never concurrently; may call the hub back from inside."""

    def received(self, peer: str, last_seq: int, payloads: list[bytes]) -> None:
        """In order, without loss, without doubles; last_seq is the number of the last payload."""

    def whispered(self, peer: str, payload: bytes) -> None:
        """Something that is not numbered and may have been lost on the way."""

    def link_up(self, peer: str) -> None: ...

    def link_down(self, peer: str, reason: str) -> None: ...

    def link_reset(self, peer: str, life: str) -> None:
        """The two ends cannot go on where they were. Numbering has started over on both sides; nothing older will be
        sent or received any more, and what the hub still kept for the peer is gone."""

    def acknowledged(self, peer: str, seq: int) -> None:
        """The peer confirmed everything up to this number."""

    def admit(self, name: str, key_name: str | None) -> LinkSettings | None:
        """A process dials that is not a peer. Settings take it in, None refuses it."""
