"""The frames of a link, and the delay and bandwidth that a link is given."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from headwater.protocol.formats import LINK_FRAMES
from headwater.protocol.links.frames import (
    HEADER,
    OFFER,
    REPLY,
    START,
    Frame,
    FrameError,
    Hello,
    Kind,
    decode,
    encode,
)
from headwater.protocol.links.settings import PeerState
from headwater.protocol.links.shaping import Shaper
from tests.kit.link_world import World
from tests.links.test_session import a_pair, opened

# -- delay and bandwidth


def test_a_shaped_line_keeps_order_and_takes_its_time() -> None:
    line = Shaper(delay_us=100_000, bandwidth_bps=8_000)
    line.enter(bytes(1000), 0.0)  # a second on the line, and then the delay
    assert not line.may_enter(0.5)
    assert line.leave(1.05) is None
    assert line.due(wants_to_enter=False) == pytest.approx(1.1)
    assert line.leave(1.11) == bytes(1000)
    line.left()
    assert line.may_enter(1.0)
    line.enter(b"one", 1.2)
    line.enter(b"two", 1.2)
    assert line.leave(2.0) == b"one"
    line.left()
    assert line.leave(2.0) == b"two"


def test_a_heartbeat_overtakes_a_large_frame_on_a_slow_line() -> None:
    line = Shaper(delay_us=1000, bandwidth_bps=8_000)
    line.enter(bytes(10_000), 0.0)
    line.overtake(b"beat", 0.5)
    assert line.leave(0.6) == b"beat"


# -- frames


def frames_of_every_kind() -> list[bytes]:
    hello = Hello("net", "a", "life", None, "", 0, 3, 0, 0, 0, "")
    return [
        encode(Frame(Kind.HELLO, OFFER, 7, credit=100, body=hello)),
        encode(Frame(Kind.HELLO, REPLY, 7, credit=100, body=hello._replace(peer_life="x", verdict="why", digest=None))),
        encode(Frame(Kind.HELLO, START, 7, credit=100, body=hello._replace(era="abc"))),
        encode(Frame(Kind.DATA, 0, 7, 1, 0, 0, 100, [b"payload", b"", bytes(300)])),
        encode(Frame(Kind.ACK, 0, 7, 0, 1, 2, 100)),
        encode(Frame(Kind.HEARTBEAT, 0, 7)),
        encode(Frame(Kind.WHISPER, 0, 7, body=b"psst")),
        encode(Frame(Kind.REFUSE, 0, 7, body=("network", "another network"))),
        encode(Frame(Kind.BYE, 0, 7)),
    ]


def test_every_kind_of_frame_survives_the_way() -> None:
    for data in frames_of_every_kind():
        assert encode(decode(data)) == data


def raw(kind: int, body: bytes = b"", *, version: int = LINK_FRAMES, first: int = 0, count: int = 0, step: int = 0,
        confirmed: int = 0, received: int = 0) -> bytes:  # fmt: skip
    return HEADER.pack(0xA7, version, kind, step, 1, first, confirmed, received, 0, count) + body


@pytest.mark.parametrize(
    ("data", "key"),
    [
        (b"", "short"),
        (b"GET / HTTP/1.1\r\n", "short"),
        (b"GET / HTTP/1.1\r\n" * 10, "magic"),
        (raw(4, version=9), "version"),
        (raw(9), "kind"),
        (raw(4, b"x"), "shape"),
        (raw(4, confirmed=3, received=2), "number"),
        (raw(2, b"\x91\xc4\x01a", first=1, count=2), "shape"),
        (raw(2, b"\x91\xc4\x01a", first=0, count=1), "count"),
        (raw(2, b"\x91\xa1a", first=1, count=1), "shape"),
        (raw(2, b"\x91\x01", first=1, count=1), "shape"),
        (raw(2, b"\xdd\xff\xff\xff\xff", first=1, count=0xFFFFFFFF), "count"),
        (raw(2, b"\x91" * 5000, first=1, count=1), "shape"),
        (raw(1, b"\x90", step=1), "shape"),
        (raw(1, b"\xc1", step=1), "shape"),
        (raw(1, bytes(5000), step=1), "long"),
        (raw(6, b"\x92\x01\x02"), "shape"),
        (bytes(9 << 20), "long"),
    ],
)
def test_a_bad_frame_is_refused_for_what_is_wrong_with_it(data: bytes, key: str) -> None:
    with pytest.raises(FrameError) as error:
        decode(data)
    assert error.value.key == key


def bad_frames(random: Random, count: int) -> list[bytes]:
    """Random, truncated, mutated and spliced frames; some of them are good again, by chance."""
    good = frames_of_every_kind()
    made = []
    for number in range(count):
        data = bytearray(random.choice(good))
        match number % 5:
            case 0:
                data = bytearray(random.randbytes(random.randrange(200)))
            case 1:
                del data[random.randrange(len(data)) :]
            case 2:
                for _ in range(random.randint(1, 4)):
                    data[random.randrange(len(data))] = random.randrange(256)
            case 3:
                data[HEADER.size :] = random.randbytes(random.randrange(60))
            case 4:
                data += random.choice(good)
        made.append(bytes(data))
    return made


def test_a_hundred_thousand_bad_frames_neither_raise_nor_disturb_a_session() -> None:
    random = Random(4)
    a, b = opened()
    refused = Counter[str]()
    passed = 0
    for data in bad_frames(random, 120_000):
        try:
            frame = decode(data)
        except FrameError as error:
            refused[error.key] += 1
            continue
        passed += 1
        to = random.choice((a, b))
        to.receive(frame, 0.0)
        while to.next_frame(0.0) is not None:
            pass
    assert passed > 5_000  # or the session saw nothing of it
    assert set(refused) >= {"short", "magic", "version", "kind", "number", "count", "shape"}


def test_a_session_under_fire_still_serves_its_peer() -> None:
    """A stranger who can put frames between those of the peer may break the session, never the stream."""
    world = World(5)
    world.heal()
    for data in bad_frames(world.random, 20_000):
        try:
            frame = decode(data)
        except FrameError:
            continue
        if frame.kind in (Kind.DATA, Kind.WHISPER, Kind.ACK, Kind.HEARTBEAT, Kind.BYE):
            end = world.random.choice(world.ends)
            end.take(end.session.receive(frame, world.now))
        if world.random.random() < 0.05:
            world.ends[0].send(1)
            world.ends[1].send(1)
            for which in (0, 1):
                world.pump(which)
                world.deliver(which)
    world.heal()
    world.check()
    assert len(world.ends[0].received) > 50


def test_an_unmet_state_is_the_state_of_a_new_session() -> None:
    a, _ = a_pair()
    assert a.state() == PeerState()
    assert a.meeting is None
