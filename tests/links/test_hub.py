"""Hubs over real sockets: what is sent arrives once and in order, whatever breaks, and whichever strangers dial."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from pathlib import Path
from random import Random

import pytest
import zmq

from headwater.protocol.errors import ConfigError
from headwater.protocol.links import LinkError, LinkSettings
from headwater.protocol.links.frames import OFFER, Frame, Hello, Kind, decode, encode
from headwater.protocol.links.settings import FRAME_BYTES_MAX
from tests.kit.link_ends import Ends, a_pair, closed, run, strangers, until, written
from tests.kit.patience import ANSWER_S, run_to_its_end
from tests.links.test_frames import bad_frames

PROJECT = Path(__file__).parent.parent.parent
LOOPS = pytest.mark.parametrize("loop", ["asyncio", "uvloop"])


def numbered(count: int, start: int = 0, size: int = 0) -> list[bytes]:
    return [b"%d " % number + bytes(size) for number in range(start, start + count)]


# -- the good case


@LOOPS
def test_payloads_arrive_both_ways_once_and_in_order(loop: str) -> None:
    async def test() -> None:
        a, b = await a_pair()
        for part in range(50):
            a.hub.send("b", numbered(40, part * 40, 3000))
            b.hub.send("a", numbered(40, part * 40))
            await asyncio.sleep(0)
        await until(lambda: len(b.got("a")) == 2000 and len(a.got("b")) == 2000)
        assert b.got("a") == numbered(2000, 0, 3000)
        assert a.got("b") == numbered(2000)
        await until(lambda: a.hub.queued("b") == b.hub.queued("a") == (0, 0))
        assert a.log == [("up", "b")]
        assert b.log == [("up", "a")]
        await closed(a, b)

    run(test(), loop)


@LOOPS
def test_what_is_sent_in_one_turn_leaves_in_one_frame(loop: str) -> None:
    async def test() -> None:
        a, b = await a_pair()
        await asyncio.sleep(0.05)
        before = b.hub.traffic("a").frames_in
        for payload in numbered(300):
            a.hub.send("b", [payload])
        await until(lambda: len(b.got("a")) == 300)
        # One frame of data; a heartbeat and an acknowledgement may have come between.
        assert b.hub.traffic("a").frames_in - before <= 3
        await closed(a, b)

    run(test(), loop)


def test_what_is_sent_before_the_peer_is_there_waits_for_it() -> None:
    async def test() -> None:
        b = Ends("b")
        b.hub.add_peer("a", dial=None)
        b.hub.send("a", [b"early"])
        address = await b.hub.start("tcp://127.0.0.1:0")
        await b.hub.close()
        assert address is not None
        a = Ends("a")
        a.hub.add_peer("b", dial=address)
        a.hub.send("b", numbered(5))
        await a.hub.start(None)
        b = Ends("b")
        b.hub.add_peer("a", dial=None)
        b.hub.send("a", [b"early"])
        await b.hub.start(address)
        await until(lambda: b.got("a") == numbered(5) and a.got("b") == [b"early"])
        await closed(a, b)

    run(test())


def test_whispers_are_heard_while_the_link_is_up_and_lost_otherwise() -> None:
    async def test() -> None:
        a, b = await a_pair()
        a.hub.whisper("b", b"psst")
        await until(lambda: b.whispers == [b"psst"])
        await b.hub.close()
        await until(lambda: not a.hub.is_up("b"))
        a.hub.whisper("b", b"this is not heard")
        assert a.hub.queued("b") == (0, 0)
        await closed(a)

    run(test())


def test_closing_waits_for_acknowledgements_and_takes_leave() -> None:
    async def test() -> None:
        a, b = await a_pair()
        a.hub.send("b", numbered(5000, 0, 1000))
        await a.hub.close(drain_s=ANSWER_S)
        assert b.got("a") == numbered(5000, 0, 1000)
        await until(lambda: ("down", "a", "the peer took leave") in b.log)
        await closed(b)

    run(test())


def test_closing_frees_everything_although_the_caller_does_not_wait() -> None:
    async def test() -> None:
        a, b = await a_pair()
        b.confirms = False
        a.hub.send("b", [b"never acknowledged"])
        closing = asyncio.create_task(a.hub.close(drain_s=ANSWER_S))
        await until(lambda: b.got("a"))
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)
        assert closing.cancelled()
        await until(lambda: ("down", "a", "the peer took leave") in b.log)
        await closed(b)

    run(test())


def test_a_closed_hub_can_be_closed_again_and_one_that_never_began_too() -> None:
    async def test() -> None:
        a, b = await a_pair()
        await closed(a, a, b)
        await closed(Ends("c"))

    run(test())


# -- peers come and go


def test_a_peer_that_moved_gets_the_rest_where_it_is_now() -> None:
    async def test() -> None:
        a, b = await a_pair()
        a.hub.send("b", numbered(3))
        await until(lambda: a.hub.queued("b") == (0, 0) and len(b.got("a")) == 3)
        state = b.hub.state("a")
        await b.hub.close()
        a.hub.send("b", numbered(2, 3))
        moved = Ends("b")
        moved.hub.add_peer("a", dial=None, state=state)
        address = await moved.hub.start("tcp://127.0.0.1:0")
        assert address is not None
        a.hub.redial("b", address)
        await until(lambda: moved.got("a") == numbered(2, 3))
        assert not [entry for entry in a.log + moved.log if entry[0] == "reset"]
        await closed(a, moved)

    run(test())


def test_a_removed_peer_hears_of_it_and_is_refused_afterwards() -> None:
    async def test() -> None:
        a, b = await a_pair()
        b.hub.remove_peer("a")
        await until(lambda: ("down", "b", "the peer took leave") in a.log)
        await until(lambda: b.hub.counters["refused_stranger"])
        assert not a.hub.is_up("b")
        await closed(a, b)

    run(test())


def test_a_peer_in_another_life_is_reported_and_numbering_begins_anew() -> None:
    async def test() -> None:
        a, b = await a_pair()
        a.hub.send("b", numbered(3))
        b.hub.send("a", numbered(4))
        await until(lambda: len(b.got("a")) == 3 and len(a.got("b")) == 4 and a.hub.queued("b") == (0, 0))
        await a.hub.close()
        again = Ends("a", life="second")
        assert b.hub.state("a").in_seq == 3
        port = address_of(b)
        again.hub.add_peer("b", dial=port)
        again.hub.send("b", [b"anew"])
        await again.hub.start(None)
        await until(lambda: b.got("a") == [*numbered(3), b"anew"])
        assert ("reset", "a", "second life of a") in b.log
        assert b.hub.state("a").in_seq == 1
        assert [entry[0] for entry in again.log] == ["up"]
        await closed(again, b)

    run(test())


def test_a_deferred_reset_waits_until_it_is_accepted() -> None:
    async def test() -> None:
        a, b = await a_pair(deferred_resets=True)
        a.hub.send("b", numbered(3))
        await until(lambda: a.hub.queued("b") == (0, 0))
        address = address_of(b)
        await a.hub.close()
        again = Ends("a", life="second", deferred_resets=True)
        again.hub.add_peer("b", dial=address)
        await again.hub.start(None)
        await until(lambda: ("reset", "a", "second life of a") in b.log)
        b.hub.send("a", [b"of the old life"])
        assert b.hub.state("a").in_seq == 3
        b.hub.accept_reset("a")
        b.hub.send("a", [b"of the new life"])
        assert b.hub.state("a").in_seq == 0
        assert b.hub.meeting("a") is not None
        await until(lambda: again.got("b") == [b"of the new life"])
        await closed(again, b)

    run(test())


def test_a_stranger_is_taken_in_only_if_the_handler_says_so() -> None:
    async def test() -> None:
        b = Ends("b")
        b.admits = lambda name, key: LinkSettings() if name == "@client/good" else None
        address = await b.hub.start("tcp://127.0.0.1:0")
        good, bad = Ends("@client/good"), Ends("@client/bad")
        for client in (good, bad):
            client.hub.add_peer("b", dial=address)
            client.hub.send("b", [b"hello"])
            await client.hub.start(None)
        await until(lambda: b.got("@client/good") == [b"hello"] and b.hub.counters["refused_stranger"])
        assert b.hub.peers() == ["@client/good"]
        assert not bad.hub.is_up("b")
        await closed(good, bad, b)

    run(test())


def test_two_processes_of_one_name_do_not_turn_the_link_into_a_race() -> None:
    async def test() -> None:
        a, b = await a_pair()
        address = address_of(b)
        twin = Ends("a", life="twin")
        twin.hub.add_peer("b", dial=address)
        await twin.hub.start(None)
        await until(lambda: ("reset", "a", "twin life of a") in b.log)
        await asyncio.sleep(2.0)
        assert b.hub.counters["resets"] < 20
        await closed(a, b, twin)

    run(test())


def test_mistakes_of_the_caller_are_said() -> None:
    async def test() -> None:
        a = Ends("a")
        a.hub.add_peer("b", dial=None)
        with pytest.raises(LinkError, match="already"):
            a.hub.add_peer("b", dial=None)
        with pytest.raises(LinkError, match="own peer"):
            a.hub.add_peer("a", dial=None)
        with pytest.raises(LinkError, match="cannot be dialed"):
            a.hub.redial("b", "tcp://127.0.0.1:1")
        with pytest.raises(LinkError, match="at most"):
            a.hub.add_peer("c", dial=None, settings=LinkSettings(frame_bytes_max=1 << 30))
        with pytest.raises(LinkError, match="split it"):
            a.hub.send("b", [bytes(FRAME_BYTES_MAX)])
        for address in ("127.0.0.1:5", "tcp://127.0.0.1", "tcp://:5", "tcp://127.0.0.1:99999", "http://x:1"):
            with pytest.raises(ConfigError, match="write tcp://HOST:PORT"):
                await a.hub.start(address)
        for address in ("tcp://0.0.0.0:0", "tcp://*:0", "tcp://192.0.2.1:0", "tcp://[::]:0", "tcp://elsewhere:0"):
            with pytest.raises(ConfigError, match="there are no keys"):
                await a.hub.start(address)
        with pytest.raises(ConfigError, match="there are no keys"):
            a.hub.add_peer("far", dial="tcp://192.0.2.1:5")
        await closed(a)
        b, c = Ends("b"), Ends("c")
        taken = await b.hub.start("tcp://localhost:0")
        assert taken is not None
        with pytest.raises(ConfigError, match="cannot listen"):
            await c.hub.start(taken)
        await closed(b, c)

    run(test())


# -- the other process dies


async def start_keeper(file: Path, address: str) -> tuple[asyncio.subprocess.Process, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.kit.link_ends", str(file), address, stdout=asyncio.subprocess.PIPE, cwd=PROJECT
    )
    assert process.stdout is not None
    return process, (await process.stdout.readline()).decode().strip()


def test_a_peer_that_is_killed_again_and_again_loses_nothing_and_sees_nothing_twice(tmp_path: Path) -> None:
    async def test() -> None:
        file = tmp_path / "received"
        process, address = await start_keeper(file, "tcp://127.0.0.1:0")
        a = Ends("a")
        a.hub.add_peer("keeper", dial=address)
        await a.hub.start(None)
        sent = 0
        random = Random(3)
        try:
            for _ in range(6):
                goal = len(a.got("keeper")) + random.randint(50, 400)
                while len(a.got("keeper")) < goal:
                    if a.hub.queued("keeper")[0] < 1000:
                        a.hub.send("keeper", numbered(20, sent, 500))
                        sent += 20
                    await asyncio.sleep(0.001)
                process.kill()
                await process.wait()
                process, _ = await start_keeper(file, address)
            await until(lambda: len(a.got("keeper")) == sent)
        finally:
            process.kill()
            await process.wait()
        assert written(file) == numbered(sent, 0, 500)
        assert a.got("keeper") == [b"echo " + payload for payload in numbered(sent, 0, 500)]
        assert not [entry for entry in a.log if entry[0] == "reset"]
        await closed(a)

    run(test())


def test_a_stopped_process_is_noticed_and_the_link_resumes_when_it_goes_on(tmp_path: Path) -> None:
    async def test() -> None:
        file = tmp_path / "received"
        process, address = await start_keeper(file, "tcp://127.0.0.1:0")
        a = Ends("a")
        a.hub.add_peer("keeper", dial=address)
        await a.hub.start(None)
        try:
            await until(lambda: a.hub.is_up("keeper"))
            os.kill(process.pid, signal.SIGSTOP)
            a.hub.send("keeper", numbered(10))
            await until(lambda: not a.hub.is_up("keeper"))
            assert a.log[-1][2].startswith("nothing heard for")
            os.kill(process.pid, signal.SIGCONT)
            await until(lambda: len(a.got("keeper")) == 10)
        finally:
            process.kill()
            await process.wait()
        assert written(file) == numbered(10)
        await closed(a)

    run(test())


# -- slow and shaped links


def test_a_peer_that_never_confirms_fills_only_its_own_link() -> None:
    async def test() -> None:
        settings = LinkSettings(window_bytes=50_000, buffer_bytes=500_000)
        b, slow, good = Ends("b"), Ends("slow"), Ends("good")
        slow.confirms = False
        address = await b.hub.start("tcp://127.0.0.1:0")
        for end in (slow, good):
            b.hub.add_peer(end.hub.name, dial=None, settings=settings)
            end.hub.add_peer("b", dial=address, settings=settings)
            await end.hub.start(None)
        given = 0
        while not b.hub.is_full("slow"):
            b.hub.send("slow", [bytes(1000)])
            given += 1
            if given % 50 == 0:
                await asyncio.sleep(0.001)
        b.hub.send("good", numbered(3000, 0, 1000))
        await until(lambda: len(good.got("b")) == 3000)
        assert not b.hub.is_full("good")
        assert b.hub.queued("slow")[1] == 500_000
        assert sum(map(len, slow.got("b"))) <= 50_000
        await until(lambda: len(slow.got("b")) == 50)
        slow.hub.confirm("b", 30)
        await until(lambda: len(slow.got("b")) == 80)
        assert b.hub.queued("slow")[1] == 470_000
        await closed(slow, good, b)

    run(test())


@LOOPS
def test_delay_and_bandwidth_slow_a_link_down_and_keep_its_order(loop: str) -> None:
    async def test() -> None:
        a, b = await a_pair(LinkSettings(delay_us=50_000, bandwidth_bps=4_000_000))
        started = asyncio.get_running_loop().time()
        a.hub.send("b", numbered(200, 0, 1000))
        await until(lambda: len(b.got("a")) > 0)
        assert asyncio.get_running_loop().time() - started >= 0.05
        await until(lambda: len(b.got("a")) == 200)
        # 200 kB at 4 Mbit/s, and the delay: it cannot have been faster.
        assert asyncio.get_running_loop().time() - started >= 0.4
        assert b.got("a") == numbered(200, 0, 1000)
        await until(lambda: a.hub.queued("b") == (0, 0))
        assert a.log == [("up", "b")]
        await closed(a, b)

    run(test(), loop)


def test_a_payload_that_takes_longer_than_silence_does_not_break_a_slow_link() -> None:
    async def test() -> None:
        settings = LinkSettings(bandwidth_bps=400_000, heartbeat_s=0.1, silence_s=0.6)
        a, b = await a_pair(settings)
        a.hub.send("b", [bytes(100_000)])
        await until(lambda: b.got("a") == [bytes(100_000)])
        assert a.log == [("up", "b")]
        assert b.log == [("up", "a")]
        await closed(a, b)

    run(test())


# -- bad frames and strangers


def dealer(context: zmq.Context[zmq.Socket[bytes]], address: str) -> zmq.Socket[bytes]:
    socket = context.socket(zmq.DEALER)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.SNDHWM, 0)
    socket.connect(address)
    return socket


def an_offer(name: str = "a", network: str = "net") -> bytes:
    hello = Hello(network, name, "some life", None, "", 0, 0, 0, 0, 0, "")
    return encode(Frame(Kind.HELLO, OFFER, 7, credit=1000, body=hello))


async def answer(socket: zmq.Socket[bytes]) -> bytes:
    await until(lambda: socket.poll(0))
    return socket.recv()


def address_of(end: Ends) -> str:
    assert end.hub._listening is not None
    endpoint = end.hub._listening.socket.getsockopt(zmq.LAST_ENDPOINT)
    assert isinstance(endpoint, bytes)
    return endpoint.rstrip(b"\0").decode()


def test_a_hub_under_fire_keeps_serving_its_peer() -> None:
    async def test() -> None:
        a, b = await a_pair()
        random = Random(9)
        with strangers() as context:
            stranger = dealer(context, address_of(b))
            fired = 0
            for part in range(40):
                for data in bad_frames(random, 500):
                    stranger.send(data)
                    fired += 1
                stranger.send_multipart([b"too", b"many", b"parts"])
                stranger.send(random.randbytes(1_000_000))
                a.hub.send("b", numbered(25, part * 25))
                await asyncio.sleep(0.005)
            await until(lambda: len(b.got("a")) == 1000 and b.hub.counters["refused_parts"] == 40)
            stranger.send(bytes(FRAME_BYTES_MAX + 1))  # ZeroMQ itself ends this connection
            stranger.send(an_offer("stranger"))
            a.hub.send("b", [b"after"])
            await until(lambda: b.got("a")[-1] == b"after")
            stranger.close(0)
        assert b.got("a")[:-1] == numbered(1000)
        assert b.hub.counters["refused_magic"] > 1000
        assert b.hub.counters["refused_shape"] > 100
        assert b.log == [("up", "a")]
        await closed(a, b)

    run(test())


def test_frames_of_no_session_are_refused_once_not_each_time() -> None:
    async def test() -> None:
        b = Ends("b")
        address = await b.hub.start("tcp://127.0.0.1:0")
        assert address is not None
        with strangers() as context:
            stranger = dealer(context, address)
            for _ in range(100):
                stranger.send(encode(Frame(Kind.HEARTBEAT, 0, 5)))
            refusal = decode(await answer(stranger))
            assert (refusal.kind, refusal.session, refusal.body) == (Kind.REFUSE, 5, ("resume", ""))
            await until(lambda: b.hub.counters["refused_resume"] == 100)
            await asyncio.sleep(0.05)
            assert not stranger.poll(0)
            stranger.close(0)
        await closed(b)

    run(test())


def test_a_flood_of_connections_does_not_stop_a_good_link() -> None:
    async def test() -> None:
        a, b = await a_pair()
        with strangers() as context:
            flood = []
            for number in range(400):
                socket = dealer(context, address_of(b))
                socket.send(an_offer(f"stranger{number % 50}"))
                flood.append(socket)
                if number % 20 == 0:
                    a.hub.send("b", numbered(50, number // 20 * 50))
                    await asyncio.sleep(0)
            await until(lambda: len(b.got("a")) == 1000 and b.hub.counters["refused_stranger"] == 400)
            for socket in flood:
                socket.close(0)
        assert b.got("a") == numbered(1000)
        assert b.hub.peers() == ["a"]
        assert b.log == [("up", "a")]
        await closed(a, b)

    run(test())


@pytest.mark.parametrize("known", [True, False], ids=["a known name", "an unknown name"])
def test_a_peer_of_another_network_is_refused_with_a_reason_that_is_said_once(
    known: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        a, b = Ends("a", network="one"), Ends("b", network="two")
        address = await b.hub.start("tcp://127.0.0.1:0")
        if known:
            b.hub.add_peer("a", dial=None)
        a.hub.add_peer("b", dial=address)
        await a.hub.start(None)
        await until(lambda: a.hub.counters["refused_by_peer"])
        await asyncio.sleep(1.5)
        assert b.hub.counters["refused_network"] <= 3  # it is not asked again and again
        await closed(a, b)

    with caplog.at_level(logging.WARNING):
        run(test())
    told = [record.getMessage() for record in caplog.records if "network 'one'" in record.getMessage()]
    assert len(told) == 2, told  # once at each end
    assert any("b refused us" in text for text in told)


def test_a_peer_of_another_version_is_refused_with_a_reason_that_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        b = Ends("b")
        b.hub.add_peer("a", dial=None)
        address = await b.hub.start("tcp://127.0.0.1:0")
        assert address is not None
        other = bytearray(an_offer())
        other[1] = 2
        with strangers() as context:
            stranger = dealer(context, address)
            for _ in range(10):
                stranger.send(bytes(other))
            assert decode(await answer(stranger)).body[0] == "version"
            await until(lambda: b.hub.counters["refused_version"] == 10)
            stranger.close(0)
        await closed(b)

    with caplog.at_level(logging.WARNING):
        run(test())
    assert len([record for record in caplog.records if "version 2" in record.getMessage()]) == 1


def test_an_end_that_is_dialed_does_not_take_a_call_from_the_same_peer() -> None:
    async def test() -> None:
        a, b = Ends("a"), Ends("b")
        here, there = await a.hub.start("tcp://127.0.0.1:0"), await b.hub.start("tcp://127.0.0.1:0")
        a.hub.add_peer("b", dial=there)
        b.hub.add_peer("a", dial=here)
        await until(lambda: a.hub.counters["refused_direction"] and b.hub.counters["refused_direction"])
        assert not a.hub.is_up("b")
        await closed(a, b)

    run(test())


def test_a_name_that_is_in_use_is_refused_to_others_and_not_to_the_same_process_over_another_connection() -> None:
    async def test() -> None:
        b = Ends("b")
        b.admits = lambda name, key: LinkSettings(exclusive=True)
        address = await b.hub.start("tcp://127.0.0.1:0")
        refusals: list[tuple[str, str, str]] = []
        first = Ends("a")
        second = Ends("a", life="second", on_refused=lambda *told: refusals.append(told))
        for end in (first, second):
            end.hub.add_peer("b", dial=address)
        await first.hub.start(None)
        await until(lambda: b.log == [("up", "a")])
        await second.hub.start(None)
        await until(lambda: len(refusals) >= 2)  # it asks again: the name may be free some time
        assert set(refusals) == {("b", "taken", "another process is connected as 'a' now")}
        assert first.hub.is_up("b")
        assert b.log == [("up", "a")]

        again = Ends("a")  # the life of the first: its connection broke, and neither end has noticed
        again.hub.add_peer("b", dial=address)
        await again.hub.start(None)
        await until(lambda: again.hub.is_up("b"))
        assert not b.hub.counters["resets"]

        await closed(first, again)
        await until(lambda: second.hub.is_up("b"))
        await closed(second, b)

    run(test())


def test_a_hub_that_is_not_closed_does_not_hold_up_the_process() -> None:
    """It is collected together with its sockets, in whatever order."""
    script = """
import asyncio, gc
from headwater.protocol.links import Hub

class Deaf:
    def __getattr__(self, name):
        return lambda *a, **k: None

async def leave_behind():
    handler = Deaf()
    handler.hub = Hub("a", "life", "net", handler)
    await handler.hub.start("tcp://127.0.0.1:0")
    handler.hub.add_peer("b", dial="tcp://127.0.0.1:1")

for _ in range(5):
    asyncio.run(leave_behind())
    gc.collect()
"""
    run_to_its_end([sys.executable, "-W", "ignore", "-c", script], check=True)
