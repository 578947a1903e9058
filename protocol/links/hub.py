"""All links of one process: reliable, ordered channels to named peers over ZeroMQ.

A hub listens on one socket and has one more for each peer that it dials. Every call returns at once; what is sent in
one turn of the event loop leaves together at its end.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import zmq

from headwater.protocol.errors import ConfigError
from headwater.protocol.formats import LINK_FRAMES
from headwater.protocol.links.addresses import check_dialed, check_listening
from headwater.protocol.links.authentication import Gate
from headwater.protocol.links.frames import (
    OFFER,
    Frame,
    FrameError,
    Kind,
    decode,
    encode,
    speaks_another_version,
)
from headwater.protocol.links.keys import Keys, raw_key
from headwater.protocol.links.link import HubLink, SocketTraffic
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
from headwater.protocol.links.session import Session
from headwater.protocol.links.settings import FRAME_BYTES_MAX, Handler, LinkError, LinkSettings, PeerState
from headwater.protocol.links.sockets import LINGER_MS, FrameSocket, new_socket

log = logging.getLogger("headwater.links")

SAID_MAX: Final = 1_000
"""So many different complaints are logged; later ones are only counted, so that strangers cannot fill a disk."""

STRANGERS_MAX: Final = 1_000
"""So many connections without a link are remembered, so that each is told only once to say hello."""

TICK_S: Final = 0.5
"""How often a hub without links looks at the time."""


def _new_id() -> int:
    return int.from_bytes(os.urandom(8), "big") | 1


_in_use: Final[set[zmq.Context[zmq.Socket[bytes]]]] = set()
"""A hub that is not closed is collected with its sockets, and its context, if that is collected before them, would wait
for them for ever. So contexts stay until they are closed."""


class Hub:
    """The links of one process. All methods are to be called on the event loop that runs `start`.

    With `deferred_resets`, a reset waits after `Handler.link_reset` until `accept_reset` is called: the handler can
    make it durable first, in order with everything else it does.
    """

    def __init__(
        self,
        name: str,
        life: str,
        network: str,
        handler: Handler,
        *,
        keys: Keys | None = None,
        deferred_resets: bool = False,
        on_refused: Callable[[str, str, str], None] | None = None,
    ) -> None:
        """``on_refused`` hears of each refusal by a peer that is dialed: its name, the key and the sentence."""
        self.name = name
        self.counters: Counter[str] = Counter()
        """Frames and bytes in and out, payloads, resent, duplicates, resets, refused_* by reason."""
        self._me = Identity(name, life, network)
        self._handler = handler
        self._keys = keys
        self._deferred_resets = deferred_resets
        self._on_refused = on_refused
        self._links: dict[str, HubLink] = {}
        self._routes: dict[bytes, HubLink] = {}
        self._strangers: dict[bytes, None] = {}
        self._said: set[str] = set()
        self._dirty: dict[str, HubLink] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._listening: FrameSocket | None = None
        self._gate: Gate | None = None
        self._flushing: asyncio.Handle | None = None
        self._ticking: asyncio.TimerHandle | None = None
        self._tick_due = 0.0
        self._progress = asyncio.Event()
        self._is_closing = False

    # -- begin and end

    async def start(self, bind: str | None) -> str | None:
        """Listen, if `bind` says where (port 0: any), and dial the peers that are to be dialed. Gives the endpoint."""
        assert self._loop is None, "started twice"
        if bind is not None:
            check_listening(bind, has_keys=self._keys is not None)
        self._loop = asyncio.get_running_loop()
        self._context = zmq.Context()
        _in_use.add(self._context)
        endpoint = None
        try:
            if bind is not None:
                endpoint = self._listen(bind)
            for link in self._links.values():
                self._dial(link)
        except BaseException:
            await self.close()
            raise
        self._tick_due = self._loop.time() + TICK_S
        self._ticking = self._loop.call_at(self._tick_due, self._tick)
        return endpoint

    def _listen(self, bind: str) -> str:
        assert self._context is not None
        socket = new_socket(self._context, zmq.ROUTER)
        try:
            if self._keys is not None:
                self._gate = Gate(self._context, self._keys, self._turned_away)
                self._keys.protect_listening(socket)
            if "[" in bind:
                socket.setsockopt(zmq.IPV6, 1)
            socket.bind(bind.replace("//localhost:", "//127.0.0.1:"))
        except zmq.ZMQError as error:
            socket.close(0)
            raise ConfigError(f"cannot listen at {bind}: {error.strerror or error}; choose another address") from None
        endpoint = socket.getsockopt(zmq.LAST_ENDPOINT)
        assert isinstance(endpoint, bytes)
        self._listening = FrameSocket(socket, self._arrived, self._ready, self._odd_parts)
        return endpoint.rstrip(b"\0").decode()

    async def close(self, drain_s: float = 0.0) -> None:
        """Take leave of all peers and free everything. With `drain_s`, first wait that long at most until everything
        sent was acknowledged."""
        if self._is_closing:
            return
        try:
            if self._loop is not None and drain_s > 0:
                async with asyncio.timeout(drain_s):
                    while any(link.session.queued[0] for link in self._links.values()):
                        self._progress.clear()
                        await self._progress.wait()
        except TimeoutError:
            pass
        finally:
            self._free()  # also when the caller stops waiting: sockets left open would hold up the process

    def _free(self) -> None:
        self._is_closing = True
        for handle in (self._flushing, self._ticking):
            if handle is not None:
                handle.cancel()
        for link in list(self._links.values()):
            self._leave(link)
        self._links.clear()
        if self._listening is not None:
            self._listening.close(LINGER_MS)
        if self._gate is not None:
            self._gate.close()
        if self._context is not None:
            self._context.term()
            _in_use.discard(self._context)

    # -- peers

    def add_peer(
        self,
        name: str,
        *,
        dial: str | None,
        public_key: bytes | str | None = None,
        settings: LinkSettings | None = None,
        state: PeerState | None = None,
    ) -> None:
        """A peer to dial, or (dial None) to be dialed by. Numbers go on where `state` left them."""
        settings = settings or LinkSettings()
        if name in self._links:
            raise LinkError(f"{name!r} is a peer of {self.name!r} already; remove it before it is added again")
        if name == self.name:
            raise LinkError(f"{name!r} cannot be its own peer")
        if settings.frame_bytes_max > FRAME_BYTES_MAX:
            raise LinkError(f"frames of {settings.frame_bytes_max} bytes; at most {FRAME_BYTES_MAX} are possible")
        session = Session(
            self._me,
            name,
            dials=dial is not None,
            settings=settings,
            state=state,
            new_id=_new_id,
            counters=self.counters,
        )
        link = HubLink(session, dial, None if public_key is None else raw_key(public_key), self.counters)
        if self._keys is not None and link.public_key is not None:
            self._keys.allow(name, link.public_key)
        if dial is not None:
            check_dialed(name, dial, has_keys=self._keys is not None)
        self._links[name] = link
        if self._loop is not None:
            try:
                self._dial(link)
            except ConfigError:
                del self._links[name]
                raise

    def remove_peer(self, name: str) -> None:
        """Take leave of a peer and forget it, with whatever was kept for it."""
        link = self._links.pop(name)
        self._dirty.pop(name, None)
        self._leave(link)

    def redial(self, name: str, address: str, public_key: bytes | str | None = None) -> None:
        """The peer moved. What was not acknowledged goes to where it is now."""
        link = self._links[name]
        if link.dial is None:
            raise LinkError(f"{name!r} dials {self.name!r} and cannot be dialed")
        check_dialed(name, address, has_keys=self._keys is not None)
        if public_key is not None:
            link.public_key = raw_key(public_key)
        if link.dial == address and public_key is None:
            return
        link.dial = address
        if self._loop is None:
            return
        if link.wire is not None:
            link.wire.close()
            link.detach()
        self._tell(link, link.session.disconnect(self._loop.time(), "the peer moved"))
        self._dial(link)

    def _dial(self, link: HubLink) -> None:
        if link.dial is None:
            return
        assert self._context is not None
        assert self._loop is not None
        socket = new_socket(self._context, zmq.DEALER)
        try:
            if self._keys is not None:
                self._keys.protect_dialing(socket, link.name, link.public_key)
            if "[" in link.dial:
                socket.setsockopt(zmq.IPV6, 1)
            socket.connect(link.dial)
        except zmq.ZMQError as error:
            socket.close(0)
            raise ConfigError(f"{link.name!r} cannot be dialed at {link.dial}: {error.strerror or error}") from None
        except ConfigError:
            socket.close(0)
            raise
        wire = FrameSocket(socket, partial(self._answered, link), partial(self._flush_link, link), self._odd_parts)
        link.attach(wire)
        link.session.connect(self._loop.time())
        self._touch(link)

    def _leave(self, link: HubLink) -> None:
        link.is_removed = True
        linger_ms = 0
        frame = link.session.bye("")
        if frame is not None and link.wire is not None:
            linger_ms = LINGER_MS
            try:
                link.wire.send(link.route, frame)
            except ConnectionError:
                linger_ms = 0
        if link.wire is not None and link.wire is not self._listening:
            link.wire.close(linger_ms)
        link.detach()
        self._routes.pop(link.route, None)

    # -- what a link is asked

    def send(self, peer: str, payloads: Sequence[bytes]) -> None:
        """Reliable and in order; kept until acknowledged. Never refuses: ask `is_full` before taking in more."""
        link = self._links[peer]
        link.session.send(payloads)
        self._touch(link)

    def whisper(self, peer: str, payload: bytes) -> None:
        """Not numbered, lost if the link is down or busy."""
        link = self._links[peer]
        link.session.whisper(payload)
        self._touch(link)

    def confirm(self, peer: str, seq: int) -> None:
        """Everything received up to seq is durable: acknowledge it."""
        link = self._links[peer]
        link.session.confirm(seq)
        self._touch(link)

    def accept_reset(self, peer: str) -> None:
        """Only with deferred_resets: the oldest reset that was reported is durable, numbering may start over."""
        link = self._links[peer]
        assert self._loop is not None
        self._tell(link, link.session.accept_reset(self._loop.time()))
        self._touch(link)

    def state(self, peer: str) -> PeerState:
        return self._links[peer].session.state()

    def queued(self, peer: str) -> tuple[int, int]:
        """Payloads and bytes that are not acknowledged yet."""
        return self._links[peer].session.queued

    def is_full(self, peer: str) -> bool:
        session = self._links[peer].session
        return session.queued[1] >= session.settings.buffer_bytes

    def is_up(self, peer: str) -> bool:
        return self._links[peer].session.is_up

    def peers(self) -> list[str]:
        return list(self._links)

    def traffic(self, peer: str) -> SocketTraffic:
        return self._links[peer].traffic

    def meeting(self, peer: str) -> tuple[str, str] | None:
        """The life of the peer and the era of the numbering, as agreed last (inside `link_reset` the new ones already);
        None if it was never met. Worth a note in a journal whenever a link comes up with another one than before."""
        return self._links[peer].session.meeting

    # -- what happened before a restart, told again before `start` (sends are told by `send` itself)

    def replay_meeting(self, peer: str, life: str, era: str) -> None:
        self._links[peer].session.replay_meeting(life, era)

    def replay_received(self, peer: str, payloads: Sequence[bytes]) -> None:
        self._links[peer].session.replay_received(payloads)

    def replay_reset(self, peer: str, life: str, era: str) -> None:
        self._links[peer].session.replay_reset(life, era)

    # -- sending

    def _touch(self, link: HubLink) -> None:
        self._dirty[link.session.peer] = link
        if self._flushing is None and self._loop is not None and not self._is_closing:
            self._flushing = self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = None
        dirty, self._dirty = self._dirty, {}
        for link in dirty.values():
            if not link.is_removed:
                self._flush_link(link)
        if self._listening is not None:
            self._listening.look()

    def _flush_link(self, link: HubLink) -> None:
        assert self._loop is not None
        try:
            link.flush(self._loop, partial(self._flush_link, link))
        except ConnectionError as error:
            self._routes.pop(link.route, None)
            link.detach()
            self._tell(link, link.session.disconnect(self._loop.time(), str(error)))
        if link.wire is not None:
            link.wire.look()

    def _ready(self) -> None:
        """The listening socket may take more again."""
        for link in list(self._routes.values()):
            if link.is_blocked:
                self._flush_link(link)

    # -- receiving

    def _answered(self, link: HubLink, route: bytes, raw: zmq.Frame) -> None:
        """A frame on a socket that dials."""
        frame = self._decoded(raw.bytes, link.name)
        if frame is not None:
            self._take(link, frame, len(raw))

    def _arrived(self, route: bytes, raw: zmq.Frame) -> None:
        """A frame on the socket that listens."""
        data = raw.bytes
        link = self._routes.get(route)
        frame = self._decoded(data, "a stranger" if link is None else link.name)
        if frame is None:
            if link is None and speaks_another_version(data):
                self._send_refusal(route, 0, "version", f"this is version {LINK_FRAMES} of the links")
            return
        if frame.kind is Kind.HELLO and frame.step == OFFER:
            link = self._greeted(route, raw, frame)
            if link is None:
                return
        elif link is None:
            self._refuse(route, frame.session, "resume", "")
            return
        self._take(link, frame, len(data))

    def _greeted(self, route: bytes, raw: zmq.Frame, frame: Frame) -> HubLink | None:
        """Whose hello this is; None if it was refused."""
        name: str = frame.body.name
        key_name = None
        if self._keys is not None:
            key_name = self._keys.name_of(raw.get("User-Id"))
            if not self._keys.may_be(key_name, name):
                self._refuse(route, frame.session, "key", f"it has the key of {key_name!r} and says it is {name!r}")
                return None
        link = self._links.get(name)
        if link is None:
            if frame.body.network != self._me.network:
                text = f"it belongs to the network {frame.body.network!r}, this is {self._me.network!r}"
                self._refuse(route, frame.session, "network", text)
                return None
            settings = self._handler.admit(name, key_name)
            if settings is None:
                self._refuse(route, frame.session, "stranger", f"{self.name!r} has no link to {name!r}")
                return None
            if name not in self._links:
                self.add_peer(name, dial=None, settings=settings)
            link = self._links[name]
        if link.session.dials:
            self._refuse(route, frame.session, "direction", f"{self.name!r} dials {name!r}, not the other way round")
            return None
        if link.route != route and self._is_taken(link, frame.body.life):
            self._refuse(route, frame.session, "taken", f"another process is connected as {name!r} now")
            return None
        if link.route != route or link.wire is None:
            if frame.body.network == self._me.network:
                self._routes.pop(link.route, None)
                assert self._listening is not None
                link.attach(self._listening, route)
                self._routes[route] = link
                self._strangers.pop(route, None)
            else:
                text = f"it belongs to the network {frame.body.network!r}, this is {self._me.network!r}"
                self._refuse(route, frame.session, "network", text)
                return None
        return link

    @staticmethod
    def _is_taken(link: HubLink, life: str) -> bool:
        """Whether another process than the one with this life has the link for itself. The same one may come back over
        another connection before this end has noticed that the last one broke."""
        session = link.session
        if not session.settings.exclusive or not session.is_up or session.meeting is None:
            return False
        return session.meeting[0] != life

    def _take(self, link: HubLink, frame: Frame, size: int) -> None:
        assert self._loop is not None
        traffic = link.traffic
        traffic.frames_in += 1
        traffic.bytes_in += size
        self._tell(link, link.session.receive(frame, self._loop.time()))
        if link.session.wants_to_send and not link.is_removed:
            self._touch(link)

    def _tell(self, link: HubLink, notifications: Sequence[Notification]) -> None:
        handler = self._handler
        name = link.session.peer
        for notification in notifications:
            if link.is_removed:
                return
            match notification:
                case Received(last_seq, payloads):
                    handler.received(name, last_seq, payloads)
                case Acknowledged(seq):
                    self._progress.set()
                    handler.acknowledged(name, seq)
                case Whispered(payload):
                    handler.whispered(name, payload)
                case Up():
                    link.refusal = ""
                    handler.link_up(name)
                case Down(reason):
                    handler.link_down(name, reason)
                case Reset(life, _, reason):
                    log.warning("%s: the link to %s is reset: %s", self.name, name, reason)
                    self._tell_reset(link, life)
                case Refused(key, text):
                    self._tell_refused(link, key, text)

    def _tell_reset(self, link: HubLink, life: str) -> None:
        name = link.session.peer
        if self._deferred_resets:
            self._handler.link_reset(name, life)
            return
        assert self._loop is not None
        opened = link.session.accept_reset(self._loop.time())
        self._handler.link_reset(name, life)
        self._tell(link, opened)

    def _tell_refused(self, link: HubLink, key: str, text: str) -> None:
        name = link.session.peer
        if link.refusal != key:
            link.refusal = key
            who = f"{name} refused us" if link.session.dials else f"{name} was refused"
            log.warning("%s: %s: %s", self.name, who, text)
        if self._on_refused is not None and link.session.dials:
            self._on_refused(name, key, text)

    # -- strangers and bad frames

    def _decoded(self, data: bytes, who: str) -> Frame | None:
        self.counters["frames_in"] += 1
        self.counters["bytes_in"] += len(data)
        try:
            return decode(data)
        except FrameError as error:
            self.counters[f"refused_{error.key}"] += 1
            self._say_once(f"frame {who} {error.key}", f"a bad frame from {who}: {error}")
            return None

    def _odd_parts(self) -> None:
        self.counters["refused_parts"] += 1

    def _turned_away(self, address: str) -> None:
        self.counters["refused_unknown_key"] += 1
        self._say_once(
            f"key {address}", f"a process at {address} has no key that is known here; the connection was refused"
        )

    def _refuse(self, route: bytes, session: int, key: str, text: str) -> None:
        """Tell a connection that has no link why; once each, it may be deaf."""
        self.counters[f"refused_{key}"] += 1
        if text:
            self._say_once(f"{key} {text}", f"a process that dialed was refused: {text}")
        elif route in self._strangers:
            return
        while len(self._strangers) >= STRANGERS_MAX:
            del self._strangers[next(iter(self._strangers))]
        self._strangers[route] = None
        self._send_refusal(route, session, key, text)

    def _send_refusal(self, route: bytes, session: int, key: str, text: str) -> None:
        assert self._listening is not None
        try:
            self._listening.send(route, encode(Frame(Kind.REFUSE, 0, session, body=(key, text))))
        except ConnectionError:
            self._strangers.pop(route, None)

    def _say_once(self, about: str, text: str) -> None:
        if about not in self._said and len(self._said) < SAID_MAX:
            self._said.add(about)
            log.warning("%s: %s", self.name, text)

    # -- time

    def _tick(self) -> None:
        assert self._loop is not None
        now = self._loop.time()
        late = now - self._tick_due
        tick_s = min((link.session.settings.heartbeat_s for link in self._links.values()), default=TICK_S)
        self._tick_due = now + tick_s
        self._ticking = self._loop.call_at(self._tick_due, self._tick)
        for link in list(self._links.values()):
            # A process that was stopped itself has not listened: no other process was silent.
            self._tell(link, link.session.tick(now, late if late > tick_s else 0.0))
            link.beat(now)
            if link.session.wants_to_send or link.is_blocked:
                self._flush_link(link)
