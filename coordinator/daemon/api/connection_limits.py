"""Limits on HTTP connections: how many, how long a silent one may stay, and how much of it is logged."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Final, cast

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

CONNECTIONS_MAX: Final = 256  # at once: a flood must not take the descriptors that the journal and the links need
REQUEST_S: Final = 10.0  # after this a connection without a complete request is closed
FULL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\nContent-Type: application/json\r\n"
    b'Content-Length: 51\r\n\r\n{"error": "too many connections; try again later"}\n'
)


class _Full(asyncio.Protocol):
    """Tells one connection that there are too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        connection = cast(asyncio.Transport, transport)
        connection.write(FULL)
        connection.close()


class Door:
    """The way in to one server. ``counts`` gets what was turned away."""

    def __init__(self, counts: Counter[str]) -> None:
        self._counts = counts
        self._silent: dict[web.RequestHandler, asyncio.TimerHandle] = {}
        """Connections that have sent no request yet, and who will look at them."""
        self._listening: asyncio.Server | None = None
        self.log = logging.getLogger("headwater.coordinator.http")
        self.log.addFilter(self._is_ours)

    def _is_ours(self, record: logging.LogRecord) -> bool:
        """Whether something is worth a line: requests that cannot be read are only counted."""
        if record.exc_info and isinstance(record.exc_info[1], HttpProcessingError):
            self._counts["http_malformed"] += 1
            return False
        return True

    def entered(self, request: web.Request) -> None:
        """The connection has sent a request."""
        looking = self._silent.pop(request.protocol, None)
        if looking is not None:
            looking.cancel()

    async def open(self, server: web.Server, host: str, port: int) -> tuple[str, int]:
        """Listen; the address with its port."""
        loop = asyncio.get_running_loop()

        def knocked() -> asyncio.BaseProtocol:
            if len(server.connections) >= CONNECTIONS_MAX:
                self._counts["http_refused"] += 1
                return _Full()
            handler = server()
            self._silent[handler] = loop.call_later(REQUEST_S, self._look, handler)
            return handler

        self._listening = await loop.create_server(knocked, host, port)
        bound: tuple[str, int] = self._listening.sockets[0].getsockname()[:2]
        return bound

    def _look(self, handler: web.RequestHandler) -> None:
        self._silent.pop(handler, None)
        if handler.transport is not None:
            self._counts["http_refused"] += 1
            handler.transport.abort()

    async def close(self, _: object = None) -> None:
        if self._listening is not None:
            self._listening.close()
