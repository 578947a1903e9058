"""Sinks: lines in files, each once; posts to web addresses, at least once."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from headwater.node.edge.adapters import make_sink
from headwater.node.edge.backoff import Backoff
from headwater.node.edge.dead_letters import DeadLetters
from headwater.node.edge.delivery_topics import filled
from headwater.node.edge.interfaces import Arrival, Edge, identity
from headwater.node.edge.webhook_sink import WebhookSinkAdapter
from headwater.protocol.edge import ClientTo, FileTo, StdoutTo, WebhookTo
from tests.kit.edge import Outgoing, an_edge, fire, run, running, until

FIRES = [fire(number, "ä\nb") for number in range(1, 8)]


async def written(
    edge: Edge, deliveries: list[dict[str, Any]], confirmed: int = 0, number: int = 2, path: str = "fires.jsonl"
) -> None:
    """The adapter is given the deliveries as a node gives them that has restarted, and takes all."""
    outgoing = Outgoing(deliveries, confirmed)
    sink = make_sink(number, FileTo(path), edge)
    assert sink is not None
    async with running(sink.run(outgoing, confirmed)):
        await until(lambda: outgoing.confirmed == len(deliveries))


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_file_has_a_line_for_each_delivery_with_its_number(tmp_path: Path) -> None:
    run(written(an_edge(tmp_path), FIRES))
    assert lines(tmp_path / "fires.jsonl") == [
        {**each, "sink": 2, "delivery": number} for number, each in enumerate(FIRES, 1)
    ]


@pytest.mark.parametrize("confirmed", [0, 3, 6])
def test_a_file_has_each_delivery_once_wherever_the_last_line_was_cut(tmp_path: Path, confirmed: int) -> None:
    edge = an_edge(tmp_path)
    edge.durability = "none"
    run(written(edge, FIRES))
    path = tmp_path / "fires.jsonl"
    whole = path.read_bytes()
    last = whole.rstrip(b"\n").rfind(b"\n") + 1
    for cut in range(last, len(whole) + 1):
        path.write_bytes(whole[:cut])
        run(written(edge, FIRES, confirmed))
        assert path.read_bytes() == whole, cut


def test_a_file_has_each_delivery_once_however_many_lines_are_there(tmp_path: Path) -> None:
    edge = an_edge(tmp_path)
    run(written(edge, FIRES))
    path = tmp_path / "fires.jsonl"
    whole = path.read_bytes().splitlines(keepends=True)
    for kept in range(len(FIRES) + 1):
        for confirmed in range(kept + 1):
            path.write_bytes(b"".join(whole[:kept]))
            run(written(edge, FIRES, confirmed)) if confirmed < len(FIRES) else None
            assert path.read_bytes() == b"".join(whole), (kept, confirmed)


def test_two_sinks_may_share_a_file(tmp_path: Path) -> None:
    edge = an_edge(tmp_path)

    async def scenario() -> None:
        await asyncio.gather(written(edge, FIRES, number=0), written(edge, FIRES[:5], number=1))
        before = (tmp_path / "fires.jsonl").read_bytes()
        await asyncio.gather(written(edge, FIRES, 2, number=0), written(edge, FIRES[:5], 1, number=1))
        assert (tmp_path / "fires.jsonl").read_bytes() == before

    run(scenario())
    found = [(each["sink"], each["delivery"]) for each in lines(tmp_path / "fires.jsonl")]
    assert sorted(found) == [(0, number) for number in range(1, 8)] + [(1, number) for number in range(1, 6)]


def test_a_node_without_memory_writes_on_behind_the_lines_of_its_former_life(tmp_path: Path) -> None:
    edge = an_edge(tmp_path)
    run(written(edge, FIRES))
    others = [fire(number) for number in range(100, 103)]
    run(written(edge, others))
    found = [each["id"] for each in lines(tmp_path / "fires.jsonl")]
    assert found == [each["id"] for each in FIRES + others]


def test_lines_of_others_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "fires.jsonl"
    path.write_text('hello\n[1]\n{"sink": 2}\nhalf')
    run(written(an_edge(tmp_path), FIRES[:1]))
    assert path.read_text().startswith('hello\n[1]\n{"sink": 2}\n{"id": "id1"')


def test_the_file_may_be_anywhere(tmp_path: Path) -> None:
    run(written(an_edge(tmp_path / "data"), FIRES[:1], path=str(tmp_path / "new" / "fires.jsonl")))
    assert len(lines(tmp_path / "new" / "fires.jsonl")) == 1


def test_a_disk_that_is_full_is_waited_for(tmp_path: Path) -> None:
    """A directory stands where the file shall be; when it is gone, writing goes on."""

    async def scenario() -> None:
        edge = an_edge(tmp_path)
        (tmp_path / "fires.jsonl").mkdir()
        outgoing = Outgoing(FIRES)
        sink = make_sink(0, FileTo("fires.jsonl"), edge)
        assert sink is not None
        async with running(sink.run(outgoing, 0)):
            await until(lambda: edge.counters.get("file_sink_failures", 0) > 0)
            (tmp_path / "fires.jsonl").rmdir()
            await until(lambda: outgoing.confirmed == len(FIRES))

    run(scenario())
    assert len(lines(tmp_path / "fires.jsonl")) == len(FIRES)


def test_standard_output_gets_a_line_for_each(tmp_path: Path) -> None:
    code = (
        "import asyncio, sys\nfrom pathlib import Path\nfrom tests.edge.test_sinks import *\n"
        "async def scenario():\n"
        "    outgoing = Outgoing(FIRES)\n"
        f"    async with running(make_sink(0, StdoutTo(), an_edge(Path({str(tmp_path)!r}))).run(outgoing, 0)):\n"
        "        await until(lambda: outgoing.confirmed == len(FIRES))\n"
        "run(scenario())\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PROJECT)
    assert [json.loads(line) for line in found.stdout.splitlines()] == FIRES


PROJECT = Path(__file__).parent.parent.parent


def test_programs_fetch_their_deliveries_from_the_daemon(tmp_path: Path) -> None:
    assert make_sink(0, ClientTo("x"), an_edge(tmp_path)) is None
    assert make_sink(0, StdoutTo(), an_edge(tmp_path)) is not None


def test_an_event_and_a_composite_have_an_identity() -> None:
    assert identity(fire(3)) == "id3"
    assert identity({"type": "Temp", "ts": 5, "node": "p1", "seq": 7, "attributes": {}}) == "p1#7"


# --- webhooks ---------------------------------------------------------------------------------------------------------


class Receiver:
    """A web server that answers as it is told to."""

    def __init__(self, answer: Callable[[int, dict[str, Any]], int | Awaitable[int]]) -> None:
        self.got: list[tuple[str, dict[str, Any]]] = []
        self._answer = answer

    async def _post(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.got.append((request.headers["Idempotency-Key"], body))
        status = self._answer(len(self.got), body)
        return web.Response(status=status if isinstance(status, int) else await status)

    async def start(self) -> str:
        app = web.Application()
        app.router.add_post("/hook", self._post)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        assert site._server is not None
        return f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}/hook"  # type: ignore[attr-defined]

    async def stop(self) -> None:
        await self._runner.cleanup()


async def posted(folder: Path, answer: Callable[[int, dict[str, Any]], Any], fires: list[dict[str, Any]]) -> Any:
    receiver, edge, outgoing = Receiver(answer), an_edge(folder), Outgoing(fires)
    url = await receiver.start()
    sink = WebhookSinkAdapter(0, WebhookTo(url), edge, first_s=0.01)
    async with running(sink.run(outgoing, 0)):
        await until(lambda: outgoing.confirmed == len(fires))
    await receiver.stop()
    return receiver.got, edge


def test_a_webhook_gets_each_delivery_with_its_identity(tmp_path: Path) -> None:
    got, edge = run(posted(tmp_path, lambda *_: 204, FIRES))
    assert sorted(got, key=lambda pair: pair[0]) == [(each["id"], each) for each in FIRES]
    assert edge.counters == {"webhook_posts": len(FIRES)}


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_webhook_that_fails_at_first_is_tried_again(tmp_path: Path, status: int) -> None:
    failed: set[str] = set()

    def answer(_: int, body: dict[str, Any]) -> int:
        first = body["id"] not in failed
        failed.add(body["id"])
        return status if first else 200

    got, edge = run(posted(tmp_path, answer, FIRES))
    assert sorted(key for key, _ in got) == sorted([each["id"] for each in FIRES] * 2)
    assert edge.counters == {"webhook_retries": len(FIRES), "webhook_posts": len(FIRES)}


@pytest.mark.parametrize("status", [400, 404, 302])
def test_what_a_webhook_refuses_is_a_dead_letter(tmp_path: Path, status: int) -> None:
    got, edge = run(posted(tmp_path, lambda _, body: status if body["id"] == "id2" else 200, FIRES[:3]))
    assert len(got) == 3
    assert edge.counters == {"webhook_posts": 2, "webhook_refusals": 1}
    (letter,) = lines(tmp_path / "dead-letters.jsonl")
    assert json.loads(letter["raw"]) == FIRES[1]
    assert (letter["source"], letter["why"].endswith(f"answered {status}")) == ("sink 0", True)


def test_only_so_many_posts_are_under_way_and_none_is_confirmed_before_those_before_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        may_answer = asyncio.Event()
        most, now = 0, 0

        async def answer(body: dict[str, Any]) -> int:
            nonlocal most, now
            now += 1
            most = max(most, now)
            if body["id"] == "id1":
                await may_answer.wait()
            now -= 1
            return 200

        fires = [fire(number) for number in range(1, 101)]
        receiver, outgoing = Receiver(lambda _, body: answer(body)), Outgoing(fires)
        url = await receiver.start()
        sink = WebhookSinkAdapter(0, WebhookTo(url), an_edge(tmp_path))
        async with running(sink.run(outgoing, 0)):
            await until(lambda: len(receiver.got) == 16)
            await asyncio.sleep(0.1)
            assert (len(receiver.got), outgoing.confirmed) == (16, 0)
            may_answer.set()
            await until(lambda: outgoing.confirmed == 100)
        assert most <= 16
        await receiver.stop()

    run(scenario())


def test_a_webhook_that_is_not_there_is_waited_for(tmp_path: Path) -> None:
    async def scenario() -> None:
        receiver, edge, outgoing = Receiver(lambda *_: 200), an_edge(tmp_path), Outgoing(FIRES)
        url = await receiver.start()
        await receiver.stop()
        async with running(WebhookSinkAdapter(0, WebhookTo(url), edge, first_s=0.01).run(outgoing, 0)):
            await until(lambda: edge.counters.get("webhook_retries", 0) > 10)
            assert outgoing.confirmed == 0

    run(scenario())


def test_all_deliveries_that_wait_are_posted_as_soon_as_a_webhook_takes_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has pauses of its own; one of them notices first that the receiver is back."""
    pauses_s = iter([0.3])
    monkeypatch.setattr(Backoff, "next_s", lambda _: next(pauses_s, 3600.0))
    got, edge = run(posted(tmp_path, lambda count, _: 503 if count <= len(FIRES) else 200, FIRES))
    assert sorted(key for key, _ in got) == sorted([each["id"] for each in FIRES] * 2)
    assert edge.counters == {"webhook_retries": len(FIRES), "webhook_posts": len(FIRES)}


# --- topics and dead letters ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topic", "attributes", "expected"),
    [
        ("fires", {}, "fires"),
        ("fires/{area}", {"area": "A1"}, "fires/A1"),
        ("{type}/{area}/{n}", {"area": "a/b+#\0", "n": 3}, "Fire/a_b___/3"),
        ("{area}", {"area": None}, "_"),
        ("{area}", {"area": ""}, "_"),
        ("{area}", {}, "_"),
    ],
)
def test_names_in_a_topic_are_filled_in(topic: str, attributes: dict[str, Any], expected: str) -> None:
    assert filled(topic, {"type": "Fire", "attributes": attributes}) == expected


def test_dead_letters_are_kept_with_their_reason_as_text_where_they_are_text(tmp_path: Path) -> None:
    letters = DeadLetters(tmp_path)
    letters.put("source 1", "ä".encode(), "no")
    letters.put("source 1", b"\xff\x00", "never")
    letters.put("source 2", "ä".encode() * 40_000, "long")
    text, binary, long = lines(tmp_path / "dead-letters.jsonl")
    assert (text["source"], text["raw"], text["why"]) == ("source 1", "ä", "no")
    assert binary["base64"] == "/wA="
    assert (long["raw"], long["bytes"]) == ("ä" * 32_768, 80_000)
    assert letters.counts == {"source 1": 2, "source 2": 1}


def test_late_events_have_a_file_of_their_own(tmp_path: Path) -> None:
    letters = DeadLetters(tmp_path)
    letters.late(3, Arrival(5, "t7", 2, ("A1", 1.0)), 5)
    (late,) = lines(tmp_path / "late.jsonl")
    assert {**late, "time": 0} == {
        "time": 0, "source": "source 3", "why": "late", "ts": 5, "device": "t7", "counter": 2, "values": ["A1", 1.0],
    }  # fmt: skip
    assert letters.counts == {"source 3 late": 1}


def test_dead_letters_fill_two_files_and_no_disk(tmp_path: Path) -> None:
    letters = DeadLetters(tmp_path, file_bytes_max=10_000)
    for number in range(1000):
        letters.put("source 1", b"x" * 50, str(number))
    assert sorted(os.listdir(tmp_path)) == ["dead-letters.1.jsonl", "dead-letters.jsonl"]
    assert all(path.stat().st_size <= 10_000 for path in tmp_path.iterdir())
    assert lines(tmp_path / "dead-letters.jsonl")[-1]["why"] == "999"
    again = DeadLetters(tmp_path, file_bytes_max=10_000)
    again.put("source 1", b"", "1000")
    assert lines(tmp_path / "dead-letters.jsonl")[-1]["why"] == "1000"


def test_dead_letters_that_cannot_be_written_are_counted(tmp_path: Path) -> None:
    (tmp_path / "dead-letters.jsonl").mkdir()
    letters = DeadLetters(tmp_path)
    letters.put("source 1", b"", "no")
    assert (letters.unwritten, letters.counts) == (1, {"source 1": 1})
