"""Authentication of connections: answers ZeroMQ (ZAP) whether the key of a new connection is known.

ZeroMQ asks on a socket inside the process before a connection carries anything. An unknown key gets nothing: not a
frame of it reaches the hub.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import zmq

from headwater.protocol.links.keys import Keys

ENDPOINT: Final = "inproc://zeromq.zap.01"
ANSWERS_AT_ONCE: Final = 50  # then the links have their turn: a flood of strangers must not keep them waiting


class Gate:
    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], keys: Keys, turned_away: Callable[[str], None]) -> None:
        self._keys = keys
        self._turned_away = turned_away
        self._loop = asyncio.get_running_loop()
        self._again: asyncio.Handle | None = None
        self._socket = context.socket(zmq.REP)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.bind(ENDPOINT)
        self._fd: int = self._socket.getsockopt(zmq.FD)  # type: ignore[assignment]
        self._loop.add_reader(self._fd, self._wake)

    def close(self) -> None:
        self._loop.remove_reader(self._fd)
        if self._again is not None:
            self._again.cancel()
        self._socket.close(0)

    def _wake(self) -> None:
        self._again = None
        for _ in range(ANSWERS_AT_ONCE):
            try:
                question = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break
            self._socket.send_multipart(self._answer(question))
        if int(self._socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN and self._again is None:
            self._again = self._loop.call_soon(self._wake)

    def _answer(self, question: list[bytes]) -> list[bytes]:
        version, request, _, address, _, mechanism, *credentials = [*question, b"", b"", b"", b"", b"", b""]
        owner = None
        if mechanism == b"CURVE" and credentials and len(credentials[0]) == 32:
            owner = self._keys.owner(credentials[0])
        if owner is None:
            self._turned_away(address.decode("utf-8", "replace"))
            # Not 400, after which ZeroMQ never dials again: an operator may put the key into our folder later.
            return [version, request, b"300", b"", b"", b""]
        return [version, request, b"200", b"", owner.encode(), b""]
