"""A small HTTP/1.1 server for health, readiness, metrics and tables: GET and HEAD, one request per connection.

A node must start fast and stay small. ``aiohttp.web`` takes 0.28 s of processor time and 16 MB to import; this takes
next to nothing. Everything that a stranger can make large is bounded: the head of a request, the time to send it and to
read the answer, the number of connections; bodies are not read at all.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from inspect import isawaitable
from typing import Any, Final

HEAD_BYTES_MAX: Final = 8 * 1024  # request line and headers together; Prometheus sends some 300 bytes
TIMEOUT_S: Final = 5.0  # to send a request, to make the answer, and to take it, each
CONNECTIONS_MAX: Final = 64  # at once; more are told to come back, so that a flood takes neither memory nor files
BACKLOG: Final = 128
LINGER_S: Final = 1.0  # how long what a client still sends is thrown away, so that it can read why it was refused
LINGER_BYTES_MAX: Final = 1 << 20
JSON: Final = "application/json"
METHODS: Final = ("GET", "HEAD")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    body: bytes
    content_type: str = JSON


Handler = Callable[[], Response | Awaitable[Response]]


def json_response(value: Any, status: int = 200) -> Response:
    """Plain data and frozen values as JSON. Times that JSON cannot say are "forever" and "never"."""
    return Response(status, json.dumps(plain(value), ensure_ascii=False).encode() + b"\n")


def plain(value: Any) -> Any:
    """The value as JSON can carry it: dataclasses as objects, other keys than strings as strings."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if abs(value) < float("inf") else "forever" if value > 0 else "never" if value < 0 else None
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key if isinstance(key, str) else str(key): plain(kept) for key, kept in value.items()}
    if isinstance(value, set | frozenset):
        return sorted((plain(element) for element in value), key=str)
    if isinstance(value, list | tuple):
        return [plain(element) for element in value]
    return str(value)


def ready(missing: list[str]) -> Response:
    """The answer of ``/ready``: 200 if nothing is missing, else 503 with what is, in sentences."""
    return json_response({"ready": not missing, "missing": missing}, 503 if missing else 200)


def refusal(status: int, sentence: str) -> Response:
    return json_response({"error": sentence}, status)


class _Refused(Exception):
    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.response = refusal(status, sentence)


class Server:
    """A running server. ``counts`` says how many answers of which status were given."""

    def __init__(self, routes: Mapping[str, Handler], counts: dict[int, int]) -> None:
        self._routes = routes
        self.counts = counts
        self._open: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.host = ""
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        self._server = await asyncio.start_server(self._connected, host, port, limit=HEAD_BYTES_MAX, backlog=BACKLOG)
        self.host, self.port = self._server.sockets[0].getsockname()[:2]

    async def close(self) -> None:
        """Stop listening and end what is under way."""
        if self._server is not None:
            self._server.close()
        for task in list(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()

    # ----------------------------------------------------------------------------------------------------- connections

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= CONNECTIONS_MAX:
            # No task and no waiting: a line into the empty buffer of a new connection leaves at once or never.
            self._count(503)
            writer.write(_head(refusal(503, "too many connections; try again later"), with_body=True))
            writer.close()
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            method = "GET"
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    method, path = await _request(reader)
                if path is None:
                    return
                response = await self._answer(path)
            except _Refused as refused:
                response = refused.response
            except TimeoutError:
                response = refusal(408, f"no complete request came within {TIMEOUT_S:g} s")
            self._count(response.status)
            async with asyncio.timeout(TIMEOUT_S):
                writer.write(_head(response, with_body=method != "HEAD"))
                await writer.drain()
                if response.status >= 400:
                    await _linger(reader, writer)
                writer.close()
                await writer.wait_closed()
        except (OSError, TimeoutError):
            pass  # the client is gone or does not read: there is no reader to tell
        except asyncio.CancelledError:
            if self._server is not None and self._server.is_serving():
                raise
        finally:
            if writer.transport is not None:
                writer.transport.abort()

    async def _answer(self, path: str) -> Response:
        handler = self._routes.get(path)
        if handler is None:
            raise _Refused(404, f"there is nothing here; there is: {', '.join(sorted(self._routes))}")
        try:
            async with asyncio.timeout(TIMEOUT_S):
                response = handler()
                return await response if isawaitable(response) else response
        except TimeoutError:
            raise _Refused(503, f"the answer was not ready within {TIMEOUT_S:g} s; try again later") from None
        except Exception as error:
            _log.exception("GET %s failed", path)
            raise _Refused(500, f"the answer could not be made ({type(error).__name__}); see the log") from error

    def _count(self, status: int) -> None:
        self.counts[status] = self.counts.get(status, 0) + 1


async def serve(host: str, port: int, routes: Mapping[str, Handler], counts: dict[int, int] | None = None) -> Server:
    """Listen (port 0: on any free one) and answer each path of ``routes`` by what its function gives, until the server
    is closed. Answers are counted by status in ``counts``. OSError if the address cannot be taken."""
    server = Server(routes, {} if counts is None else counts)
    await server.start(host, port)
    return server


# ------------------------------------------------------------------------------------------------------------- requests


async def _request(reader: asyncio.StreamReader) -> tuple[str, str | None]:
    """Method and path of a request that may be answered; no path if the client closed without asking."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as cut:
        if not cut.partial:
            return "GET", None
        raise _Refused(400, "the request ends in the middle") from None
    except asyncio.LimitOverrunError as error:
        begun = await reader.read(error.consumed or HEAD_BYTES_MAX)
        if b"\r\n" in begun[:HEAD_BYTES_MAX]:
            raise _Refused(431, f"the headers are longer than {HEAD_BYTES_MAX} bytes") from None
        raise _Refused(414, f"the request line is longer than {HEAD_BYTES_MAX} bytes") from None
    if len(head) > HEAD_BYTES_MAX:
        raise _Refused(431, f"the headers are longer than {HEAD_BYTES_MAX} bytes")
    line, *headers = head[:-4].split(b"\r\n")
    words = line.split(b" ")
    if len(words) != 3 or not words[2].startswith(b"HTTP/1.") or not words[1].startswith(b"/") or not line.isascii():
        raise _Refused(400, "this is not an HTTP/1.1 request; ask for example: GET /health HTTP/1.1")
    for header in headers:
        name, colon, value = header.partition(b":")
        if not colon or not name or name != name.strip():
            raise _Refused(400, "a header is not of the form NAME: VALUE")
        name, value = name.lower(), value.strip()
        if name == b"transfer-encoding" or (name == b"content-length" and value.strip(b"0")):
            raise _Refused(413, "bodies are not taken here; send GET or HEAD without one")
    method = words[0].decode()
    if method not in METHODS:
        raise _Refused(405, "only GET and HEAD are answered here")
    return method, words[1].decode().partition("?")[0]


def _head(response: Response, *, with_body: bool) -> bytes:
    try:
        phrase = HTTPStatus(response.status).phrase
    except ValueError:
        phrase = "Unknown"
    lines = [
        f"HTTP/1.1 {response.status} {phrase}",
        f"Content-Type: {response.content_type}",
        f"Content-Length: {len(response.body)}",
        "Cache-Control: no-store",
        "Connection: close",
    ]
    if response.status == 405:
        lines.append(f"Allow: {', '.join(METHODS)}")
    return "\r\n".join([*lines, "", ""]).encode() + (response.body if with_body else b"")


async def _linger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Throw away what a refused client still sends, for a while: closing at once would take the answer from it."""
    if writer.can_write_eof():
        writer.write_eof()
    left = LINGER_BYTES_MAX
    try:
        async with asyncio.timeout(LINGER_S):
            while left > 0 and (more := await reader.read(HEAD_BYTES_MAX)):
                left -= len(more)
    except TimeoutError:
        pass
