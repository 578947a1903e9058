"""One link of a hub: its session, socket, traffic shaping and accounts."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from headwater.protocol.links.session import Session
from headwater.protocol.links.shaping import Shaper
from headwater.protocol.links.sockets import FrameSocket


@dataclass(slots=True)
class SocketTraffic:
    """Everything that crossed the sockets of one link since the hub began, acknowledgements and heartbeats included."""

    frames_in: int = 0
    bytes_in: int = 0
    frames_out: int = 0
    bytes_out: int = 0


class HubLink:
    def __init__(self, session: Session, dial: str | None, public_key: bytes | None, counters: Counter[str]) -> None:
        self.session = session
        self.dial = dial
        self.public_key = public_key
        self.wire: FrameSocket | None = None  # its own where it dials, the hub's where it is dialed
        self.route = b""
        self.traffic = SocketTraffic()
        self._counters = counters
        self.refusal = ""  # the last one that was said aloud
        self.is_removed = False
        self._held: bytes | None = None  # a frame that the socket did not take
        self._timer: asyncio.TimerHandle | None = None
        settings = session.settings
        self._shaper: Shaper | None = None
        if settings.delay_us or settings.bandwidth_bps is not None:
            self._shaper = Shaper(settings.delay_us, settings.bandwidth_bps)

    @property
    def name(self) -> str:
        return self.session.peer

    @property
    def is_blocked(self) -> bool:
        return self._held is not None

    def attach(self, wire: FrameSocket, route: bytes = b"") -> None:
        """Another connection: whatever waited for the last one is no longer of use."""
        self.wire = wire
        self.route = route
        self._held = None
        if self._shaper is not None:
            self._shaper.clear()

    def detach(self) -> None:
        self.wire = None
        self._held = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def flush(self, loop: asyncio.AbstractEventLoop, again: Callable[[], None]) -> None:
        """Give the socket what it takes. ConnectionError if the peer is gone. A shaped link calls `again` later."""
        if self.wire is None:
            return
        now = loop.time()
        if self._shaper is not None:
            self._flush_shaped(self._shaper, loop, again, now)
            return
        next_frame = self.session.next_frame
        frame = self._held
        if frame is None:
            frame = next_frame(now)
        while frame is not None:
            if not self._put(frame):
                self._held = frame
                return
            frame = next_frame(now)
        self._held = None

    def beat(self, now: float) -> None:
        """A heartbeat past a large frame that keeps a shaped line busy."""
        if self._shaper is None or self._shaper.may_enter(now) or not self.session.wants_to_send:
            return
        frame = self.session.heartbeat(now)
        if frame is not None:
            self._shaper.overtake(frame, now)

    def _flush_shaped(
        self, shaper: Shaper, loop: asyncio.AbstractEventLoop, again: Callable[[], None], now: float
    ) -> None:
        while shaper.may_enter(now):
            frame = self.session.next_frame(now)
            if frame is None:
                break
            shaper.enter(frame, now)
        self._held = None
        while (frame := shaper.leave(now)) is not None:
            if not self._put(frame):
                self._held = frame
                return
            shaper.left()
        due = shaper.due(self.session.wants_to_send)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due is not None:
            self._timer = loop.call_at(max(due, now), again)

    def _put(self, frame: bytes) -> bool:
        assert self.wire is not None
        if not self.wire.send(self.route, frame):
            return False
        self.traffic.frames_out += 1
        self.traffic.bytes_out += len(frame)
        self._counters["frames_out"] += 1
        self._counters["bytes_out"] += len(frame)
        return True
