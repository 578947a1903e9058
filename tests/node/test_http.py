"""The small HTTP server of a node: what it answers, and what it does to those who do not behave."""

from __future__ import annotations

import asyncio
import json
import random
import resource
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from headwater.node.observe import http
from headwater.node.observe.config_view import HIDDEN, config_view
from headwater.node.observe.http import HEAD_BYTES_MAX, Response, Server, json_response, plain, ready, serve
from headwater.protocol.edge import Broker, MqttFeed, WebhookTo
from headwater.protocol.messages.control import NodeConfig, PeerConfig, SinkConfig, SourceConfig
from headwater.protocol.network import Source
from headwater.protocol.subscriptions import parse_subscription
from tests.kit.builders import TYPES
from tests.kit.patience import ANSWER_S, patiently, soon

try:
    import uvloop

    LOOP: Callable[[], asyncio.AbstractEventLoop] | None = uvloop.new_event_loop
except ImportError:
    LOOP = None

FUZZES = 300


async def _slow() -> Response:
    await asyncio.sleep(3600)
    raise AssertionError("no test waits for so long")


async def _later() -> Response:
    await asyncio.sleep(0)
    return json_response({"later": True})


def _broken() -> Response:
    raise RuntimeError("a bug")


ROUTES: dict[str, Callable[[], Response | Awaitable[Response]]] = {
    "/health": lambda: json_response({"healthy": True}),
    "/ready": lambda: ready(["no link to n2", "tree n1 has not started"]),
    "/large": lambda: Response(200, b"x" * 20_000_000, "text/plain"),
    "/later": _later,
    "/slow": _slow,
    "/broken": _broken,
}


@asynccontextmanager
async def a_server() -> AsyncIterator[Server]:
    server = await serve("127.0.0.1", 0, ROUTES)
    try:
        yield server
    finally:
        await server.close()


def with_server(test: Callable[[Server], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with a_server() as server:
            found = await test(server)
            assert await status(server, b"GET /health HTTP/1.1\r\n\r\n") == 200, "it must still answer"
            return found

    with asyncio.Runner(loop_factory=LOOP) as runner:
        return runner.run(run())


async def ask(server: Server, request: bytes) -> bytes:
    """Everything that is answered to some bytes."""
    reader, writer = await asyncio.open_connection(server.host, server.port)
    try:
        writer.write(request)
        await writer.drain()
        async with patiently():
            return await reader.read()
    finally:
        writer.close()


async def status(server: Server, request: bytes) -> int:
    answer = await ask(server, request)
    return int(answer.split(b" ")[1])


def get(path: str, headers: str = "", method: str = "GET") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: n1\r\n{headers}\r\n".encode()


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits are short, so that those who are waited for in vain cost no time."""
    monkeypatch.setattr(http, "TIMEOUT_S", 0.5)
    monkeypatch.setattr(http, "LINGER_S", 0.2)


# -- answers -----------------------------------------------------------------------------------------------------------


def test_an_ordinary_client_reads_health_and_what_is_missing() -> None:
    def fetch(server: Server, path: str) -> tuple[int, Any]:
        try:
            with urllib.request.urlopen(f"http://{server.host}:{server.port}{path}", timeout=ANSWER_S) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refused:
            return refused.code, json.load(refused)

    async def test(server: Server) -> None:
        assert await asyncio.to_thread(fetch, server, "/health") == (200, {"healthy": True})
        assert await asyncio.to_thread(fetch, server, "/health?verbose=1") == (200, {"healthy": True})
        assert await asyncio.to_thread(fetch, server, "/later") == (200, {"later": True})
        missing = ["no link to n2", "tree n1 has not started"]
        assert await asyncio.to_thread(fetch, server, "/ready") == (503, {"ready": False, "missing": missing})
        code, found = await asyncio.to_thread(fetch, server, "/nothing")
        assert (code, "/health" in found["error"]) == (404, True)
        assert server.counts == {200: 3, 503: 1, 404: 1}

    with_server(test)


def test_nothing_missing_is_ready() -> None:
    assert ready([]) == json_response({"ready": True, "missing": []}, 200)


def test_head_gives_the_head_alone() -> None:
    head, _, body = with_server(lambda server: ask(server, get("/large", method="HEAD"))).partition(b"\r\n\r\n")
    assert (b"Content-Length: 20000000" in head, body) == (True, b"")


def test_a_large_answer_comes_whole() -> None:
    _, _, body = with_server(lambda server: ask(server, get("/large"))).partition(b"\r\n\r\n")
    assert body == b"x" * 20_000_000


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        pytest.param(get("/health", method="POST"), 405, id="another method"),
        pytest.param(get("/health", "Content-Length: 5\r\n", "POST") + b"hello", 413, id="a body"),
        pytest.param(get("/health", "Content-Length: 5\r\n") + b"hello", 413, id="a body with GET"),
        pytest.param(get("/health", "Transfer-Encoding: chunked\r\n") + b"5\r\nhello\r\n0\r\n\r\n", 413, id="chunks"),
        pytest.param(get("/health", "Content-Length: 0\r\n"), 200, id="an empty body"),
        pytest.param(get("/" + "x" * HEAD_BYTES_MAX), 414, id="a long path"),
        pytest.param(get("/" + "x" * 100_000), 414, id="a very long path"),
        pytest.param(get("/health", f"X: {'x' * HEAD_BYTES_MAX}\r\n"), 431, id="a long header"),
        pytest.param(get("/health", "X: y\r\n" * 30_000), 431, id="many headers"),
        pytest.param(get("/health", "no colon\r\n"), 400, id="no header"),
        pytest.param(b"hello\r\n\r\n", 400, id="no request"),
        pytest.param(b"GET /health SMTP/1.0\r\n\r\n", 400, id="another protocol"),
        pytest.param(b"GET http://elsewhere/health HTTP/1.1\r\n\r\n", 400, id="a proxy request"),
        pytest.param(b"\x16\x03\x01\x02\x00\r\n\r\n", 400, id="TLS"),
        pytest.param(get("/broken"), 500, id="a handler that fails"),
    ],
)
def test_what_is_refused_is_refused_in_a_sentence(request_: bytes, expected: int) -> None:
    answer = with_server(lambda server: ask(server, request_))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert int(head.split(b" ")[1]) == expected
    assert (b"Allow: GET, HEAD" in head) == (expected == 405)
    if expected != 200:
        assert json.loads(body)["error"]


def test_plain_data_says_what_json_cannot() -> None:
    found = plain({1: float("inf"), "a": (float("-inf"), {"b", "a"}), "peer": PeerConfig("n", None, None, True)})
    peer = {"name": "n", "address": None, "public_key": None, "dials": True, "delay_us": 0, "bandwidth_bps": None}
    assert found == {"1": "forever", "a": ["never", ["a", "b"]], "peer": peer}


def test_a_configuration_is_shown_without_secrets() -> None:
    config = NodeConfig(
        version=3,
        network="fire",
        node="n1",
        types=(TYPES["A"],),
        peers=(PeerConfig("n2", "tcp://10.0.0.2:7000", "public", True),),
        sources=(SourceConfig(0, Source("n1", "A", 0), MqttFeed("t/#", Broker("b", username="u", password_file="f"))),),
        sinks=(SinkConfig(0, parse_subscription("A"), WebhookTo("https://me:word@hooks.example/a?token=hidden")),),
        durability="sync",
        strategy="st",
    )
    shown = json.dumps(plain(config_view(config)))
    assert "tcp://10.0.0.2:7000" in shown
    assert f"https://hooks.example/a?{HIDDEN}" in shown
    assert not [secret for secret in ("word@", "token", "me:") if secret in shown]


# -- those who do not behave -------------------------------------------------------------------------------------------


def test_random_bytes_change_nothing(hurried: None) -> None:
    async def test(server: Server) -> None:
        rng = random.Random(7)
        pieces = [
            b"GET",
            b" ",
            b"/health",
            b"HTTP/1.1",
            b"\r\n",
            b"\n",
            b":",
            b"Content-Length",
            b"-1",
            b"\x00",
            b"\xff",
        ]

        async def one() -> None:
            if rng.random() < 0.5:
                data = b"".join(rng.choices(pieces, k=rng.randrange(1, 40)))
            else:
                data = rng.randbytes(rng.choice((1, 10, 100, 9_000, 50_000)))
            with suppress(OSError):
                reader, writer = await asyncio.open_connection(server.host, server.port)
                writer.write(data + (b"\r\n\r\n" if rng.random() < 0.5 else b""))
                if rng.random() < 0.7:
                    writer.write_eof()
                async with patiently():
                    answer = await reader.read()
                assert answer == b"" or answer.startswith(b"HTTP/1.1 ")
                writer.close()

        for _ in range(FUZZES // 30):
            await asyncio.gather(*(one() for _ in range(30)))
        assert sum(server.counts.values()) > FUZZES // 2

    with_server(test)


def test_who_sends_a_byte_now_and_then_is_sent_away(hurried: None) -> None:
    async def test(server: Server) -> None:
        async def drip() -> bytes:
            reader, writer = await asyncio.open_connection(server.host, server.port)
            answer = asyncio.ensure_future(reader.read())
            for byte in get("/health", "X: y\r\n" * 50):
                if answer.done():
                    break
                writer.write(bytes([byte]))
                await asyncio.sleep(0.05)
            writer.close()
            return await answer

        answers = await asyncio.gather(*(drip() for _ in range(20)))
        assert {answer.split(b" ")[1] for answer in answers} == {b"408"}

    with_server(test)


def test_who_does_not_read_the_answer_is_sent_away(hurried: None) -> None:
    async def test(server: Server) -> None:
        writers = []
        for _ in range(http.CONNECTIONS_MAX):
            _, writer = await asyncio.open_connection(server.host, server.port, limit=1024)
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(get("/large"))
            writers.append(writer)
        await soon(lambda: not server._open, "all are sent away")
        for writer in writers:
            writer.transport.abort()

    with_server(test)


def test_an_answer_that_takes_too_long_is_given_up(hurried: None) -> None:
    assert with_server(lambda server: status(server, get("/slow"))) == 503


def test_a_body_of_100_mb_is_refused_and_not_kept(hurried: None) -> None:
    async def test(server: Server) -> None:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        reader, writer = await asyncio.open_connection(server.host, server.port)
        writer.write(get("/health", f"Content-Length: {100 << 20}\r\n", "POST"))
        sent = 0
        with suppress(OSError):
            for _ in range(100):
                writer.write(b"x" * (1 << 20))
                await writer.drain()
                sent += 1
        assert sent < 100, "the stalled reader has read it all"
        with suppress(OSError):
            assert (await reader.read()).startswith(b"HTTP/1.1 413 ")
        writer.transport.abort()
        unit = 1 if sys.platform == "darwin" else 1024
        assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * unit < 30 << 20
        assert server.counts == {413: 1}

    with_server(test)


def test_a_refused_client_that_sends_a_little_more_can_read_why(hurried: None) -> None:
    body = b"x" * 500_000
    request = get("/health", f"Content-Length: {len(body)}\r\n", "POST") + body
    assert with_server(lambda server: status(server, request)) == 413


def test_500_connections_are_bounded_and_the_rest_is_told_to_come_back(hurried: None) -> None:
    async def test(server: Server) -> None:
        opened: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        most = 0
        while len(opened) < 500:  # in waves that the backlog holds: what it does not hold the system lets wait
            wave = (asyncio.open_connection(server.host, server.port) for _ in range(http.BACKLOG // 2))
            opened += await asyncio.gather(*wave)
            while sum(server.counts.values()) + len(server._open) < len(opened):
                await asyncio.sleep(0.001)
            most = max(most, len(server._open))
        answers = await asyncio.gather(*(reader.read() for reader, _ in opened))
        assert most == http.CONNECTIONS_MAX
        assert {answer.split(b" ")[1] for answer in answers} == {b"503", b"408"}
        assert server.counts[503] + server.counts[408] == len(opened)
        for _, writer in opened:
            writer.close()
        while server._open:
            await asyncio.sleep(0.01)

    with_server(test)


def test_closing_ends_what_is_under_way() -> None:
    async def run() -> None:
        async with a_server() as server:
            _, writer = await asyncio.open_connection(server.host, server.port)
            writer.write(b"GET /hea")
            await soon(lambda: server._open, "it is served")
        assert not server._open
        with pytest.raises(OSError, match=r"Connect|connect"):
            await asyncio.open_connection(server.host, server.port)
        writer.close()

    asyncio.run(run())


def test_the_server_loads_no_web_framework() -> None:
    program = (
        "import sys, headwater.node.observe.http, headwater.node.observe.metrics.exposition\n"
        "print([name for name in ('aiohttp', 'prometheus_client') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
