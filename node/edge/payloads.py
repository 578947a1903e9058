"""Payloads of devices: what is inside, and whether it is events of a type.

A payload is one event, a list of events, or events one after the other (JSON lines, concatenated msgpack maps). An
event is a map from attributes to values, beside the fields that name its device, counter and time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, Literal

import msgpack

from node.edge.interfaces import Arrival
from node.traces.rows import parse_ts
from protocol.errors import EventError
from protocol.events import EventType, Value, conform

PAYLOAD_BYTES_MAX: Final = 1 << 20
"""A larger payload is refused as a whole: a device that has so much to tell can tell it in parts."""
PAYLOAD_EVENTS_MAX: Final = 10_000  # about 1 MiB of the smallest events
TEXT_BYTES_MAX: Final = 64 << 10  # of one string value
INT_MIN, INT_MAX = -(2**63), 2**63 - 1
DEVICE_CHARACTERS_MAX: Final = 256
SHOWN_CHARACTERS: Final = 60

Refuse = Callable[[bytes, str], None]


class Refusal(Exception):
    """Why something is no event."""


class PayloadReader:
    """Reads the payloads of one source. It never raises: what is wrong is given to ``refuse``, part by part."""

    def __init__(
        self,
        event_type: EventType,
        payload: Literal["json", "msgpack"] = "json",
        device: str | None = None,
        counter: str | None = None,
        time: str | None = None,
        node: str | None = None,
    ) -> None:
        """``node`` is a name that no device may have: the node numbers events of its own under it."""
        self._node = node
        self._type = event_type
        self._split = _json_parts if payload == "json" else _msgpack_parts
        self._from_topic = device is not None and device.startswith("+") and device[1:].isdecimal()
        self._wildcard = int(device[1:]) - 1 if device is not None and self._from_topic else 0
        self._device = device
        self._counter = counter
        self._time = time
        own = {counter, time} | (set() if self._from_topic else {device})
        self._fields = {name for name in own if name is not None}
        self._known = {*event_type.attributes, *self._fields}

    def read(self, payload: bytes, refuse: Refuse, wildcards: Sequence[str] = ()) -> list[Arrival]:
        """The events in a payload; ``wildcards`` are the levels of its topic that wildcards stand for."""
        if len(payload) > PAYLOAD_BYTES_MAX:
            refuse(payload, f"{len(payload)} bytes, and at most {PAYLOAD_BYTES_MAX} are taken; send it in parts")
            return []
        found: list[Arrival] = []
        try:
            for part, raw in self._split(payload):
                if len(found) >= PAYLOAD_EVENTS_MAX:
                    raise Refusal(f"more than {PAYLOAD_EVENTS_MAX} events in one payload; send it in parts")
                try:
                    found.append(self._arrival(part, wildcards))
                except (Refusal, EventError) as error:
                    refuse(raw(), str(error))
        except Refusal as error:
            refuse(payload, str(error))
        return found

    def _arrival(self, part: Any, wildcards: Sequence[str]) -> Arrival:
        if isinstance(part, Refusal):
            raise part
        if not isinstance(part, dict):
            raise Refusal(f"an event is a map from names to values, not {_shown(part)}")
        if not part.keys() <= self._known:
            name = next(each for each in part if each not in self._known)
            has = ", ".join(sorted(self._known)) or "no attributes"
            raise Refusal(f"{self._type.name} has no attribute {_shown(name)}; it has: {has}")
        values = tuple([self._value(name, part.get(name)) for name in self._type.attributes])
        ts = None
        if self._time is not None:
            ts = parse_ts(part.get(self._time))
        device, counter = None, None
        if self._device is not None and self._counter is not None:
            device = self._device_of(part, wildcards)
            counter = part.get(self._counter)
            if type(counter) is not int or not 0 <= counter <= INT_MAX:
                raise Refusal(f"the counter {self._counter} is {_shown(counter)}, and must be a whole number")
        return Arrival(ts, device, counter, values)

    def _device_of(self, part: dict[Any, Any], wildcards: Sequence[str]) -> str:
        if self._from_topic:
            device: Any = wildcards[self._wildcard] if self._wildcard < len(wildcards) else None
        else:
            device = part.get(self._device)
            if type(device) is int and INT_MIN <= device <= INT_MAX:
                device = str(device)
        if not isinstance(device, str) or not 0 < len(device) <= DEVICE_CHARACTERS_MAX or not _is_unicode(device):
            raise Refusal(f"the device {self._device} is {_shown(device)}, and must be a name")
        if device == self._node:
            raise Refusal(f"the device is called {device!r} like its node; give it another name")
        return device

    def _value(self, name: str, value: Any) -> Value:
        kind = type(value)
        if kind is float:
            if value - value != 0:
                raise Refusal(f"{self._type.name}.{name} is {value}, which is not a finite number")
        elif kind is int:
            if not INT_MIN <= value <= INT_MAX:
                raise Refusal(f"{self._type.name}.{name} does not fit into 64 bits")
        elif kind is str:
            if len(value) > TEXT_BYTES_MAX:
                raise Refusal(f"{self._type.name}.{name} has {len(value)} characters; {TEXT_BYTES_MAX} are the most")
            if not _is_unicode(value):
                raise Refusal(f"{self._type.name}.{name} is not a Unicode text")
        elif value is not None and kind is not bool:
            raise Refusal(f"{self._type.name}.{name} is {_shown(value)}; values are numbers, strings or booleans")
        return conform(self._type, name, value)


def _is_unicode(text: str) -> bool:
    """Whether a text can travel: JSON can write half of a surrogate pair, which is no character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(value: Any) -> str:
    if value is None:
        return "absent"
    try:
        shown = repr(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits, or a structure of thousands of levels
        shown = f"a {type(value).__name__}"
    return shown if len(shown) <= SHOWN_CHARACTERS else shown[: SHOWN_CHARACTERS - 2] + ".."


Parts = Iterator[tuple[Any, Callable[[], bytes]]]
"""What may be an event, and a function that gives its bytes if they are wanted."""


_decoder: Final = json.JSONDecoder()


def _json_parts(payload: bytes) -> Parts:
    try:
        text = payload.decode("utf-8").strip()
    except UnicodeDecodeError as error:
        raise Refusal(f"not UTF-8 at byte {error.start}") from None
    if not text:
        raise Refusal("nothing in it")
    try:
        whole, end = _decoder.raw_decode(text)
        if end == len(text):
            yield from _each(whole)
            return
    except (ValueError, RecursionError) as error:
        if "\n" not in text:
            raise Refusal(f"not JSON: {_why(error)}") from None
    # Each line stands for itself, so that a bad one does not take the others with it.
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        if not stripped:
            continue
        try:
            part, end = _decoder.raw_decode(stripped)
        except (ValueError, RecursionError) as error:
            yield Refusal(f"line {number}: not JSON: {_why(error)}"), stripped.encode
            continue
        if end == len(stripped):
            yield from _each(part)
        else:
            what = Refusal(f"line {number}: something follows the event; write one on each line, or a list")
            yield what, stripped.encode


def _each(whole: Any) -> Parts:
    for part in whole if isinstance(whole, list) else [whole]:
        yield part, partial(_dumped, part)


def _dumped(part: Any) -> bytes:
    try:
        return json.dumps(part).encode()
    except (ValueError, RecursionError):
        return _shown(part).encode(errors="replace")


def _why(error: Exception) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)


def _msgpack_parts(payload: bytes) -> Parts:
    if not payload:
        raise Refusal("nothing in it")
    unpacker = msgpack.Unpacker(
        max_buffer_size=PAYLOAD_BYTES_MAX, strict_map_key=True, max_ext_len=0, max_bin_len=TEXT_BYTES_MAX
    )
    unpacker.feed(payload)
    while unpacker.tell() < len(payload):
        start = unpacker.tell()
        try:
            whole = unpacker.unpack()
        except msgpack.OutOfData:
            raise Refusal(f"not msgpack: cut off after {len(payload) - start} bytes of an event") from None
        except Exception as error:  # many kinds, for a stranger's bytes
            raise Refusal(f"not msgpack: {error or type(error).__name__}") from None
        end = unpacker.tell()
        if isinstance(whole, list):
            for part in whole:
                yield part, partial(_packed, part)
        else:
            yield whole, partial(_cut, payload, start, end)


def _cut(payload: bytes, start: int, end: int) -> bytes:
    return payload[start:end]


def _packed(part: Any) -> bytes:
    try:
        packed: bytes = msgpack.packb(part)
    except Exception:
        return _shown(part).encode(errors="replace")
    return packed
