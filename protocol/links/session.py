"""One end of a link, without I/O: frames and calls in, frames and notifications out.

The end that dials leads. It offers a session (HELLO, step OFFER), the other end replies with what it knows (REPLY), and
the dialer starts (START). Both replies carry a verdict: go on where we were, or start the numbering over. A session
goes on only if *both* ends can:

- each end is in the life that the other remembers (or the other remembers none), and both are in the same era;
- what the one has received, the other has sent, and with the same digest;
- what the one no longer keeps, the other has confirmed.

Otherwise both are reset: the dialer draws a new era, tells it with START, and both begin at number 1. An end whose
reset is lost with its memory comes back in another era than its peer, so both are reset once more: no order of crashes
leaves two ends that number differently. An end that never met a peer has nothing to reset; it keeps what it was asked
to send.

Everything after the hello carries the session's number, to which both ends contribute, so whatever a broken connection
left behind is recognised and dropped. The end that listens never leads: it refuses frames of a session it does not
know, and the dialer then offers a new one.

Credit cannot deadlock: the window that an end grants is a constant, counted from what it has confirmed, and confirming
depends on its own journal alone, never on room in its buffers towards others.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final

from headwater.protocol.links.frames import (
    BODY_OVERHEAD,
    NUMBER_MAX,
    OFFER,
    PAYLOAD_OVERHEAD,
    REPLY,
    START,
    Frame,
    Hello,
    Kind,
    encode,
)
from headwater.protocol.links.notifications import (
    Acknowledged,
    Down,
    Identity,
    Notification,
    Received,
    Refused,
    Reset,
    Up,
    Whispered,
)
from headwater.protocol.links.numbering import Incoming, Outgoing
from headwater.protocol.links.resuming import why_not
from headwater.protocol.links.settings import LEFT, LinkError, LinkSettings, PeerState

FRAME_BYTES_AIM: Final = 256 << 10
"""Payloads are joined up to about this size: larger frames gain nothing and make others wait."""

WHISPERS_MAX: Final = 64
"""Whispers that wait for the socket; they may be lost, so the oldest are."""

OFFER_WAIT_S: Final = 0.5
OFFER_WAIT_MAX_S: Final = 4.0
"""How long a dialer waits for the reply to its offer before it repeats it, at first and at most."""

REFUSED_WAIT_S: Final = 5.0
"""A peer that refused us for good is asked again so rarely: an operator may have cured it."""

TAKEN_WAIT_S: Final = 0.5
"""A name that another process has may be free soon: it is asked for again after so long."""

RESEND_S: Final = 3.0
RESEND_MAX_S: Final = 60.0
"""A live peer that does not receive what was sent gets it again after so long, at first and at most."""

SETTLED_S: Final = 1.0
"""A session that broke sooner than this is not followed by another at once: two processes of one name would otherwise
take the link from each other as fast as they can."""

RESUMABLE: Final = ("resume", "gap")
"""Refusals that a new hello cures."""


class Phase(Enum):
    DOWN = "down"  # waits: for a connection, or to be dialed
    GREETING = "greeting"  # the dialer has offered, or the other end has replied
    RESETTING = "resetting"  # everything is agreed; the user of the session must accept the reset
    OPEN = "open"


class Session:
    """The state machine of one link end. `now` is any clock in seconds that does not go back."""

    def __init__(
        self,
        me: Identity,
        peer: str,
        *,
        dials: bool,
        settings: LinkSettings,
        state: PeerState | None = None,
        new_id: Callable[[], int],
        counters: Counter[str],
    ) -> None:
        self.me = me
        self.peer = peer
        self.dials = dials
        self.settings = settings
        self.is_up = False
        self.phase = Phase.DOWN
        self._new_id = new_id
        self._counters = counters
        self._attempt = 0  # the session being offered or replied to
        self._own_part = 0  # what the listening end adds to it
        self._session = 0  # the open one: both parts together
        self._refused = 0  # the last unknown session that was refused
        self._offered: Hello | None = None  # by the dialer, on the end that listens
        self._verdict = ""
        self._settled: Frame | None = None  # the hello with which the session opens once its reset is accepted
        self._resets: deque[tuple[str, str]] = deque()  # announced and not accepted yet
        self._control: deque[Frame] = deque()
        self._whispers: deque[bytes] = deque()
        self._owes_ack = False
        self._owes_heartbeat = False
        self._credit = settings.window_bytes
        self._heard = self._said = self._opened = self._progress = 0.0
        self._offer_due = 0.0
        self._offer_wait = self._first_wait = OFFER_WAIT_S + settings.delay_us * 4e-6
        self._resend_wait = self._first_resend = RESEND_S + settings.delay_us * 4e-6
        self._peer_received = 0
        self._frame_bytes = min(settings.frame_bytes_max - BODY_OVERHEAD, FRAME_BYTES_AIM)
        if settings.bandwidth_bps is not None:
            # A frame that takes longer than a heartbeat would make the link look dead.
            self._frame_bytes = min(self._frame_bytes, int(settings.bandwidth_bps / 8 * settings.heartbeat_s / 2))
        self.restore(state or PeerState())

    # -- what outlives the process

    def state(self) -> PeerState:
        return PeerState(
            self._life,
            self._era,
            self._out.acknowledged,
            self._out.first_digest,
            self._out.payloads(),
            self._in.confirmed,
            self._in.confirmed_digest,
        )

    def restore(self, state: PeerState) -> None:
        """Go back to a state; only before the first connection."""
        assert self.phase is Phase.DOWN
        self._life = state.life
        self._era = state.era
        self._out = Outgoing(state.out_acknowledged, state.out_digest, state.unacknowledged)
        self._in = Incoming(state.in_seq, state.in_digest)

    @property
    def meeting(self) -> tuple[str, str] | None:
        """The life of the peer and the era that were agreed last, be the reset accepted or not; None: never met."""
        if self._resets:
            return self._resets[-1]
        return None if self._life is None else (self._life, self._era)

    def replay_meeting(self, life: str, era: str) -> None:
        assert self.phase is Phase.DOWN
        self._life, self._era = life, era

    def replay_reset(self, life: str, era: str) -> None:
        assert self.phase is Phase.DOWN
        self._begin_anew(life, era)

    def replay_received(self, payloads: Sequence[bytes]) -> None:
        assert self.phase is Phase.DOWN
        self._in.take(payloads)
        self._in.confirm(self._in.received)

    # -- calls

    @property
    def queued(self) -> tuple[int, int]:
        return len(self._out), self._out.bytes_kept

    @property
    def out_seq(self) -> int:
        return self._out.last

    def send(self, payloads: Sequence[bytes]) -> None:
        most = self.settings.frame_bytes_max - BODY_OVERHEAD - PAYLOAD_OVERHEAD
        for payload in payloads:
            if len(payload) > most:
                raise LinkError(
                    f"a payload of {len(payload)} bytes for {self.peer!r} does not fit into a frame; "
                    f"at most {most} bytes do: split it"
                )
        self._out.add(payloads)

    def whisper(self, payload: bytes) -> None:
        """Say something that may be lost, if there is a peer to hear it."""
        if self.phase is not Phase.OPEN or len(payload) > self.settings.frame_bytes_max - BODY_OVERHEAD:
            return
        if len(self._whispers) >= WHISPERS_MAX:
            self._whispers.popleft()
            self._count("whispers_dropped")
        self._whispers.append(payload)

    def confirm(self, seq: int) -> None:
        """Everything received up to seq is durable. What was not received is of an era that is over, unless no peer was
        met yet: then a journal is being read again."""
        if seq > self._in.received and not (self.phase is Phase.DOWN and not self._attempt):
            self._count("stale_confirms")
        elif self._in.confirm(seq):
            self._owes_ack = True

    def connect(self, now: float) -> None:
        """The dialer may talk now: offer a session."""
        if self.phase is Phase.DOWN:
            self._offer(now)

    def accept_reset(self, now: float) -> list[Notification]:
        """The user of the session has noted the oldest announced reset: from here on, everything is of the new era."""
        if not self._resets:
            return []
        life, era = self._resets.popleft()
        self._begin_anew(life, era)
        if self.phase is Phase.RESETTING:
            if self._resets:
                return []
            assert self._settled is not None
            return self._open(self._settled, now)
        if self.phase is Phase.OPEN:
            return self._broken(self._session, now)
        return []

    def disconnect(self, now: float, reason: str) -> list[Notification]:
        """The connection is known to be gone."""
        if self.phase is Phase.DOWN:
            return []
        return self._down(now, reason)

    def bye(self, reason: str) -> bytes | None:
        """The frame that takes leave; None if there is no peer to take leave of."""
        if self.phase is not Phase.OPEN:
            return None
        self.phase = Phase.DOWN
        return encode(Frame(Kind.BYE, 0, self._session, 0, self._in.confirmed, self._in.received))

    # -- frames that leave

    def next_frame(self, now: float) -> bytes | None:
        """The next frame to send, if there is any. It counts as sent."""
        if self._control:
            frame = self._control.popleft()
            if frame.kind is Kind.HELLO:
                # Made when it leaves, so that it says what is known then.
                frame = frame._replace(body=self._hello(frame.body), credit=self.settings.window_bytes)
        elif self.phase is not Phase.OPEN:
            return None
        else:
            next_frame = self._next_in_session(now)
            if next_frame is None:
                return None
            frame = next_frame
            self._owes_ack = self._owes_heartbeat = False
        self._said = now
        return encode(frame)

    def heartbeat(self, now: float) -> bytes | None:
        """A heartbeat out of turn, for a line that a large frame keeps busy. It may overtake: it holds no payloads."""
        if self.phase is not Phase.OPEN:
            return None
        self._owes_ack = self._owes_heartbeat = False
        self._said = now
        own = (self._in.confirmed, self._in.received, self.settings.window_bytes)
        return encode(Frame(Kind.HEARTBEAT, 0, self._session, 0, *own))

    @property
    def wants_to_send(self) -> bool:
        """Whether there may be a next frame."""
        if self._control:
            return True
        if self.phase is not Phase.OPEN:
            return False
        return bool(self._whispers) or self._out.has_unsent or self._owes_ack or self._owes_heartbeat

    def _next_in_session(self, now: float) -> Frame | None:
        own = (self._in.confirmed, self._in.received, self.settings.window_bytes)
        if self._whispers:
            return Frame(Kind.WHISPER, 0, self._session, 0, *own, self._whispers.popleft())
        out = self._out
        if out.has_unsent:
            first = out.last_sent + 1
            payloads = out.take(min(self._credit, self.settings.window_bytes), self._frame_bytes)
            if payloads:
                if first == self._peer_received + 1:
                    self._progress = now  # the clock of sending again runs while something is under way
                self._counters["payloads_out"] += len(payloads)
                return Frame(Kind.DATA, 0, self._session, first, *own, payloads)
        if self._owes_ack:
            return Frame(Kind.ACK, 0, self._session, 0, *own)
        if self._owes_heartbeat:
            return Frame(Kind.HEARTBEAT, 0, self._session, 0, *own)
        return None

    def _hello(self, verdict: str) -> Hello:
        return Hello(
            self.me.network,
            self.me.name,
            self.me.life,
            self._life,
            self._era,
            self._out.acknowledged,
            self._out.last,
            self._in.confirmed,
            self._in.received,
            self._in.digest,
            verdict,
        )

    # -- frames that arrive

    def receive(self, frame: Frame, now: float) -> list[Notification]:
        kind = frame.kind
        if kind is Kind.HELLO:
            return self._on_hello(frame, now)
        if kind is Kind.REFUSE:
            return self._on_refuse(frame, now)
        if self.phase is not Phase.OPEN or frame.session != self._session:
            self._count("stale")
            self._refuse_session(frame.session, "resume")
            return []
        self._heard = now
        notifications: list[Notification] = []
        if frame.received > self._out.last_sent:
            if frame.received > self._out.last:
                # It cannot have what was never sent. The hello will say the same, and then both start over.
                return self._broken(frame.session, now)
            self._out.rewind(frame.received)  # what was about to be sent again had only been slow
        self._credit = frame.credit
        if frame.received > self._peer_received:
            self._peer_received = frame.received
            self._progress = now
            self._resend_wait = self._first_resend
        if self._out.acknowledge(frame.confirmed):
            notifications.append(Acknowledged(frame.confirmed))
        if kind is Kind.DATA:
            new = self._in.accept(frame.first, frame.body)
            if new is None:
                self._count("gaps")
                return notifications + self._broken(frame.session, now)
            if len(new) < len(frame.body):
                self._counters["duplicates"] += len(frame.body) - len(new)
                self._owes_heartbeat = True  # the peer may not know that we have them
            if new:
                self._counters["payloads_in"] += len(new)
                notifications.append(Received(self._in.received, new))
        elif kind is Kind.WHISPER:
            notifications.append(Whispered(frame.body))
        elif kind is Kind.BYE:
            notifications += self._down(now, LEFT)
        return notifications

    def _on_hello(self, frame: Frame, now: float) -> list[Notification]:
        hello: Hello = frame.body
        if hello.network != self.me.network:
            text = f"it belongs to the network {hello.network!r}, this is {self.me.network!r}"
            return self._turn_away(frame, "network", text, now)
        if hello.name != self.peer:
            return self._turn_away(frame, "name", f"it calls itself {hello.name!r} and should be {self.peer!r}", now)
        if self.dials:
            if frame.step == REPLY and self.phase is Phase.GREETING and frame.session == self._attempt:
                return self._start(frame, now)
        elif frame.step == OFFER:
            if self.phase not in (Phase.OPEN, Phase.RESETTING) or frame.session != self._attempt:
                self._reply(frame)
                return []
        elif frame.step == START:
            if self.phase is Phase.GREETING and frame.session == self._attempt ^ self._own_part:
                return self._started(frame, now)
            self._refuse_session(frame.session, "resume")
        self._count("stale")
        return []

    def _turn_away(self, frame: Frame, key: str, text: str, now: float) -> list[Notification]:
        self._count(f"refused_{key}")
        if not self.dials:
            self._control.append(Frame(Kind.REFUSE, 0, frame.session, body=(key, text)))
        elif self.phase is Phase.GREETING:
            self._offer_due = now + REFUSED_WAIT_S
        return [Refused(key, text)]

    def _on_refuse(self, frame: Frame, now: float) -> list[Notification]:
        key, text = frame.body
        if not self.dials:
            self._count("stale")
            return []
        if key in RESUMABLE:
            if frame.session == (self._session if self.phase is Phase.OPEN else self._attempt):
                self._offer(now)
            return []
        if self.phase is Phase.GREETING and frame.session in (0, self._attempt):
            if key == "taken":
                self._offer_due = now + TAKEN_WAIT_S
            elif key != "stranger":  # a neighbour that was started with us may be told of us a little later
                self._offer_due = now + REFUSED_WAIT_S
            self._count("refused_by_peer")
            return [Refused(key, text)]
        self._count("stale")
        return []

    def _refuse_session(self, session: int, key: str) -> None:
        """Only the end that listens says so, and once for a session: the dialer needs to hear it once."""
        if self.dials or session == self._refused or (self._settled is not None and session == self._settled.session):
            return
        self._refused = session
        self._control.append(Frame(Kind.REFUSE, 0, session, body=(key, "")))

    def _broken(self, session: int, now: float) -> list[Notification]:
        """The frames do not continue what was there: go on with a new hello. The link stays up meanwhile."""
        if self.dials:
            self._offer(now)
        else:
            self._leave_session()
            self.phase = Phase.DOWN
            self._refuse_session(session, "gap")
        return []

    # -- the three steps of a hello

    def _offer(self, now: float) -> None:
        early = self.phase is Phase.OPEN and now - self._opened < SETTLED_S
        self._leave_session()
        self.phase = Phase.GREETING
        self._attempt = self._new_id()
        if early:
            self._offer_wait = min(self._offer_wait * 2, OFFER_WAIT_MAX_S)
            self._offer_due = now + self._offer_wait / 4
        else:
            self._offer_wait = self._first_wait
            self._say_offer(now)

    def _say_offer(self, now: float) -> None:
        self._offer_due = now + self._offer_wait
        self._offer_wait = min(self._offer_wait * 2, max(OFFER_WAIT_MAX_S, self._first_wait))
        if not self._control:
            self._control.append(Frame(Kind.HELLO, OFFER, self._attempt, body=""))

    def _reply(self, frame: Frame) -> None:
        hello: Hello = frame.body
        self._leave_session()
        if self.phase is not Phase.GREETING or frame.session != self._attempt:
            # Offers and starts that come back from the dead must not open a session that only the dialer is in.
            self._own_part = self._new_id() % NUMBER_MAX
        self.phase = Phase.GREETING
        self._attempt = frame.session
        self._offered = hello
        self._verdict = self._why_not(hello)
        self._control.append(Frame(Kind.HELLO, REPLY, frame.session, self._own_part, body=self._verdict))

    def _start(self, frame: Frame, now: float) -> list[Notification]:
        hello: Hello = frame.body
        frame = frame._replace(session=frame.session ^ frame.first)
        verdict = hello.verdict or self._why_not(hello)
        if not verdict:
            return self._open(frame, now)
        # After a reset the numbers of the reply are those of the old era.
        era = f"{self._new_id():016x}"
        agreed = frame._replace(body=hello._replace(confirmed=0, received=0, era=era, verdict=verdict))
        return self._settle(agreed, hello.peer_life, now)

    def _started(self, frame: Frame, now: float) -> list[Notification]:
        hello: Hello = frame.body
        assert self._offered is not None
        if hello.verdict:
            agreed = frame._replace(body=hello._replace(confirmed=0, received=0))
            return self._settle(agreed, self._offered.peer_life, now)
        if self._verdict or self._why_not(hello):
            # It goes on although we said that we cannot. No dialer of ours does this.
            self._refuse_session(frame.session, "resume")
            return []
        return self._open(frame, now)

    def _settle(self, agreed: Frame, remembered: str | None, now: float) -> list[Notification]:
        """Start over as agreed. `remembered` is the life of ours that the peer knew before."""
        hello: Hello = agreed.body
        fresh = self._life is None and not self._era and not self._in.received and not self._out.acknowledged
        if fresh and remembered != self.me.life and not self._resets:
            # The peer has met another life of ours; this one never met a peer and loses nothing.
            self._era = hello.era
            return self._open(agreed, now)
        self.phase = Phase.RESETTING
        self._settled = agreed
        self._resets.append((hello.life, hello.era))
        self._count("resets")
        # Down and up again: a user that notes meetings when a link comes up notes this one, too.
        down: list[Notification] = [Down("the numbering begins anew")] if self.is_up else []
        self.is_up = False
        return [*down, Reset(hello.life, hello.era, hello.verdict)]

    def _why_not(self, theirs: Hello) -> str:
        return why_not(self.me, self._life, self._era, self._out, self._in, theirs)

    def _begin_anew(self, life: str, era: str) -> None:
        self._life = life
        self._era = era
        self._out = Outgoing()
        self._in = Incoming()

    def _open(self, frame: Frame, now: float) -> list[Notification]:
        hello: Hello = frame.body
        self._life = hello.life
        self._session = frame.session
        self.phase = Phase.OPEN
        self._offered = self._settled = None
        self._credit = frame.credit
        self._heard = self._said = self._opened = self._progress = now
        self._resend_wait = self._first_resend
        self._owes_ack = True
        if self.dials:
            self._control.append(Frame(Kind.HELLO, START, frame.session, body=hello.verdict))
        notifications: list[Notification] = []
        if not self.is_up:
            self.is_up = True
            notifications.append(Up())
        if self._out.acknowledge(hello.confirmed):
            notifications.append(Acknowledged(hello.confirmed))
        self._peer_received = hello.received
        self._counters["resent"] += self._out.rewind(hello.received)
        return notifications

    def _leave_session(self) -> None:
        self._session = 0
        self._settled = None
        self._control.clear()
        self._whispers.clear()
        self._owes_ack = self._owes_heartbeat = False

    # -- time

    def tick(self, now: float, paused_s: float = 0.0) -> list[Notification]:
        """To be called about once in every heartbeat. `paused_s`: so long this process could not listen itself."""
        self._heard += paused_s
        if self.is_up and now - self._heard > self._silence_s:
            return self._down(now, f"nothing heard for {now - self._heard:.1f} s")
        if self.phase is Phase.OPEN:
            if now - self._said >= self.settings.heartbeat_s / 2:
                self._owes_heartbeat = True
            if now - self._opened > SETTLED_S:
                self._offer_wait = self._first_wait
            if self._out.last_sent > self._peer_received and now - self._progress > self._resend_wait:
                self._progress = now
                self._resend_wait = min(self._resend_wait * 2, max(RESEND_MAX_S, self._first_resend))
                self._counters["resent"] += self._out.rewind(self._peer_received)
        elif self.phase is Phase.GREETING and self.dials and now >= self._offer_due:
            self._say_offer(now)
        return []

    @property
    def _silence_s(self) -> float:
        return self.settings.silence_s + self.settings.delay_us * 2e-6

    def _down(self, now: float, reason: str) -> list[Notification]:
        was_up = self.is_up
        self.is_up = False
        if self.dials:
            self._offer(now)
            # A peer that took leave or fell silent is not there at once again.
            self._control.clear()
            self._offer_due = now + self._first_wait / 2
        else:
            self._leave_session()
            self.phase = Phase.DOWN
        return [Down(reason)] if was_up else []

    def _count(self, key: str) -> None:
        self._counters[key] += 1
