"""The frames of a link, byte by byte, and the checks on frames that arrive.

Every frame begins with the same 44 bytes. DATA carries a msgpack array of payloads, HELLO and REFUSE small msgpack
arrays, WHISPER its bare payload, the others nothing. Whatever the bytes are, `decode` gives a Frame or a FrameError.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Any, Final, NamedTuple

import msgpack

from headwater.protocol.formats import LINK_FRAMES
from headwater.protocol.links.settings import FRAME_BYTES_MAX, NAME_CHARS_MAX

MAGIC: Final = 0xA7

HEADER: Final = struct.Struct("!BBBBQQQQII")
"""Magic, version, kind, step of a hello; session, first number, confirmed, received; credit in bytes, count."""

HELLO_BYTES_MAX: Final = 4096  # a few names of NAME_CHARS_MAX and some numbers
REASON_CHARS_MAX: Final = 500
PAYLOADS_MAX: Final = 65_536  # in one frame; empty payloads must not make a frame hold millions of objects
NUMBER_MAX: Final = 1 << 62  # no link lives long enough to get there
PAYLOAD_OVERHEAD: Final = 5  # what msgpack adds to a payload, at most
BODY_OVERHEAD: Final = HEADER.size + 5


class Kind(IntEnum):
    HELLO = 1
    DATA = 2
    ACK = 3
    HEARTBEAT = 4
    WHISPER = 5
    REFUSE = 6
    BYE = 7


OFFER, REPLY, START = 1, 2, 3  # the three steps of a hello


class FrameError(Exception):
    """Bytes that are no frame of this version. `key` says why, in a word that is counted."""

    def __init__(self, key: str, text: str) -> None:
        super().__init__(text)
        self.key = key


class Hello(NamedTuple):
    """What an end knows of itself, of the peer and of the numbers between them."""

    network: str
    name: str
    life: str
    peer_life: str | None
    era: str
    acknowledged: int
    """What the peer has confirmed of ours: nothing up to here is kept any more."""
    sent: int
    """The last number that was ever given to a payload for the peer."""
    confirmed: int
    received: int
    digest: int | None
    """Of everything received, up to `received`."""
    verdict: str
    """Why the numbering must start over; empty: it need not."""


class Frame(NamedTuple):
    kind: Kind
    step: int = 0
    session: int = 0
    """HELLO, in offer and reply: what the dialer offered. REFUSE: of what is refused. Others: the session's number."""
    first: int = 0
    """DATA: the number of its first payload. HELLO, in a reply: what the listening end adds to the session's number."""
    confirmed: int = 0
    received: int = 0
    credit: int = 0
    body: Any = None
    """DATA: list of bytes. WHISPER: bytes. HELLO: Hello. REFUSE: (key, text). Others: None."""


_pack: Final = msgpack.Packer(use_bin_type=True, autoreset=True).pack


def encode(frame: Frame) -> bytes:
    kind, step, session, first, confirmed, received, credit, body = frame
    count = 0
    if kind is Kind.DATA:
        count = len(body)
        raw = _pack(body)
    elif kind is Kind.WHISPER:
        raw = body
    elif body is None:
        raw = b""
    else:
        raw = _pack(list(body))
    header = HEADER.pack(MAGIC, LINK_FRAMES, kind, step, session, first, confirmed, received, credit, count)
    return header + raw  # type: ignore[no-any-return]


def decode(data: bytes, bytes_max: int = FRAME_BYTES_MAX) -> Frame:
    """The frame these bytes are; a FrameError whose key says why they are none."""
    size = len(data)
    if size < HEADER.size:
        raise FrameError("short", f"{size} bytes are not a frame")
    if size > bytes_max:
        raise FrameError("long", f"a frame of {size} bytes; {bytes_max} are allowed")
    magic, version, number, step, session, first, confirmed, received, credit, count = HEADER.unpack_from(data)
    if magic != MAGIC:
        raise FrameError("magic", "this is not a frame of a Headwater link")
    if version != LINK_FRAMES:
        raise FrameError("version", f"the peer speaks version {version} of the links, this is version {LINK_FRAMES}")
    if not 1 <= number <= 7:
        raise FrameError("kind", f"there is no kind {number} of frame")
    if confirmed > received or received > NUMBER_MAX or first > NUMBER_MAX:
        raise FrameError("number", "the numbers of the frame contradict each other")
    if number == 2:
        if step or not first or not 0 < count <= PAYLOADS_MAX:
            raise FrameError("count", f"{count} payloads from number {first} on")
        return Frame(Kind.DATA, 0, session, first, confirmed, received, credit, _payloads(data, count))
    kind = Kind(number)
    is_hello = kind is Kind.HELLO
    if count or (first and not (is_hello and step == REPLY)) or (step and not is_hello):
        raise FrameError("count", f"{kind.name} carries no payloads")
    return Frame(kind, step, session, first, confirmed, received, credit, _body(kind, step, data))


def speaks_another_version(data: bytes) -> bool:
    """Whether these bytes, which are no frame, may be one of another version."""
    return len(data) >= 2 and data[0] == MAGIC and data[1] != LINK_FRAMES


def _payloads(data: bytes, count: int) -> list[bytes]:
    try:
        payloads = msgpack.unpackb(
            memoryview(data)[HEADER.size :],
            max_array_len=count,
            max_bin_len=len(data),
            max_str_len=0,
            max_map_len=0,
            max_ext_len=0,
        )
    except Exception:  # msgpack has many ways to say no, and every one of them means the same
        raise FrameError("shape", "the body is not a msgpack array of payloads") from None
    if type(payloads) is not list or len(payloads) != count:
        raise FrameError("shape", "the body does not hold as many payloads as the header says")
    for payload in payloads:
        if type(payload) is not bytes:
            raise FrameError("shape", "a payload that is not bytes")
    return payloads


def _body(kind: Kind, step: int, data: bytes) -> Any:
    if kind is Kind.WHISPER:
        return data[HEADER.size :]
    if kind is Kind.HELLO or kind is Kind.REFUSE:
        if len(data) > HELLO_BYTES_MAX:
            raise FrameError("long", f"a {kind.name} of {len(data)} bytes")
        try:
            values = msgpack.unpackb(data[HEADER.size :])
        except Exception:
            raise FrameError("shape", f"the body of {kind.name} is not msgpack") from None
        return _hello(step, values) if kind is Kind.HELLO else _refusal(values)
    if len(data) != HEADER.size:
        raise FrameError("shape", f"{kind.name} has no body")
    return None


def _is_name(value: object) -> bool:
    return type(value) is str and len(value) <= NAME_CHARS_MAX


def _is_number(value: object) -> bool:
    return type(value) is int and 0 <= value <= NUMBER_MAX


def _hello(step: int, values: object) -> Hello:
    if step not in (OFFER, REPLY, START) or type(values) is not list or len(values) != len(Hello._fields):
        raise FrameError("shape", "a hello of another shape")
    hello = Hello(*values)
    names = (hello.network, hello.name, hello.life, hello.era, hello.peer_life or "")
    numbers = (hello.acknowledged, hello.sent, hello.confirmed, hello.received, hello.digest or 0)
    if not (all(map(_is_name, names)) and all(map(_is_number, numbers))):
        raise FrameError("shape", "a hello with fields of other kinds")
    if not hello.name or not hello.life or type(hello.verdict) is not str or len(hello.verdict) > REASON_CHARS_MAX:
        raise FrameError("shape", "a hello without name or life")
    if hello.acknowledged > hello.sent or hello.confirmed > hello.received:
        raise FrameError("number", "the numbers of the hello contradict each other")
    return hello


def _refusal(values: object) -> tuple[str, str]:
    if type(values) is not list or len(values) != 2 or not all(type(value) is str for value in values):
        raise FrameError("shape", "a refusal of another shape")
    key, text = values
    # The reason ends in a log: what cannot be printed must not get there.
    return key[:40], "".join(char if char.isprintable() else "?" for char in text[:REASON_CHARS_MAX])
