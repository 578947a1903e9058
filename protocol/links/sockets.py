"""ZeroMQ sockets on an event loop, without futures.

The descriptor of a ZeroMQ socket says only that *something* happened, once. So a task that is woken reads until nothing
is left, and one that has sent looks whether something arrived meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import zmq

from headwater.protocol.links.settings import FRAME_BYTES_MAX

FRAMES_HELD_MAX: Final = 256
"""Frames in the queue of one connection, each way; past it frames wait in the session, which has its own bound."""

HANDSHAKE_MS: Final = 3_000
"""A connection that has not introduced itself after so long is closed: strangers must not hold on to descriptors."""

RECONNECT_MS: Final = 50
RECONNECT_MAX_MS: Final = 2_000

FRAMES_AT_ONCE: Final = 100
"""Frames read before others on the event loop have their turn."""

LINGER_MS: Final = 200
"""How long closing may wait for the last frames, those that take leave, to reach the kernel."""


def new_socket(context: zmq.Context[zmq.Socket[bytes]], kind: int) -> zmq.Socket[bytes]:
    """A socket with every bound set."""
    socket = context.socket(kind)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.SNDHWM, FRAMES_HELD_MAX)
    socket.setsockopt(zmq.RCVHWM, FRAMES_HELD_MAX)
    socket.setsockopt(zmq.MAXMSGSIZE, FRAME_BYTES_MAX)
    socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
    if kind == zmq.ROUTER:
        socket.setsockopt(zmq.ROUTER_MANDATORY, 1)  # a peer that is gone is an error, not a black hole
        socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
    elif kind == zmq.DEALER:
        socket.setsockopt(zmq.IMMEDIATE, 1)  # nothing is queued for a connection that does not exist
        socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MAX_MS)
    return socket


class FrameSocket:
    """A socket that calls `on_frame(route, frame)` for what arrives, `on_ready()` whenever it may take more again, and
    `on_parts()` for a message of too few or too many parts. A dealer has no routes: its route is always empty."""

    def __init__(
        self,
        socket: zmq.Socket[bytes],
        on_frame: Callable[[bytes, zmq.Frame], None],
        on_ready: Callable[[], None],
        on_parts: Callable[[], None],
    ) -> None:
        self.socket = socket
        self.is_closed = False
        self._has_routes = socket.getsockopt(zmq.TYPE) == zmq.ROUTER
        self._on_frame = on_frame
        self._on_ready = on_ready
        self._on_parts = on_parts
        self._loop = asyncio.get_running_loop()
        self._fd: int = socket.getsockopt(zmq.FD)  # type: ignore[assignment]
        self._again: asyncio.Handle | None = None
        self._loop.add_reader(self._fd, self._wake)
        self.look()

    def look(self) -> None:
        """Read soon if there is something to read. Needed after every use of the socket."""
        if self._again is None and not self.is_closed and int(self.socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            self._again = self._loop.call_soon(self._wake)

    def send(self, route: bytes, frame: bytes) -> bool:
        """Whether the socket took it. ConnectionError if the peer is known to be gone."""
        try:
            if self._has_routes:
                self.socket.send(route, zmq.NOBLOCK | zmq.SNDMORE)
            self.socket.send(frame, zmq.NOBLOCK)
        except zmq.Again:
            return False
        except zmq.ZMQError as error:
            if error.errno == zmq.EHOSTUNREACH:
                raise ConnectionError("the connection is gone") from None
            raise
        return True

    def close(self, linger_ms: int = 0) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self._loop.remove_reader(self._fd)
        if self._again is not None:
            self._again.cancel()
        self.socket.close(linger_ms)

    def _wake(self) -> None:
        if self._again is not None:
            self._again.cancel()
            self._again = None
        try:
            self._read()
            if not self.is_closed:
                self._on_ready()
        finally:
            # Also when a handler raised: what is left must not wait for the next frame to arrive.
            self.look()

    def _read(self) -> None:
        receive = self.socket.recv
        for _ in range(FRAMES_AT_ONCE):
            try:
                frame = receive(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            route = b""
            if self._has_routes:
                route = frame.bytes
                if not frame.more:
                    self._on_parts()
                    continue
                frame = receive(zmq.NOBLOCK, copy=False)
            if frame.more:
                while frame.more:
                    frame = receive(zmq.NOBLOCK, copy=False)
                self._on_parts()
                continue
            self._on_frame(route, frame)
            if self.is_closed:
                return
