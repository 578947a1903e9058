"""Parses the payloads of devices and checks that they are events of a type.

A payload is one message, a list of messages, or messages one after the other (JSON lines, concatenated msgpack maps).
A message is one event or, with a mapping that says so, several (`node.edge.mapping`). Without a mapping an event is a
map from attributes to values, beside the fields that name its device, counter and time.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, Literal

import msgpack

from headwater.node.edge.interfaces import Arrival, Edge
from headwater.node.edge.mapping import FIELDS_LOGGED_MAX, Mapping, MessageItem
from headwater.node.edge.values import INT_MAX, INT_MIN, TEXT_BYTES_MAX, Convert, Refusal, is_unicode, shown
from headwater.protocol.edge import MqttFeed
from headwater.protocol.errors import EventError
from headwater.protocol.events import EventType, Value

log = logging.getLogger("headwater.edge")

PAYLOAD_BYTES_MAX: Final = 1 << 20
"""A larger payload is refused as a whole: a device that has so much to send can send it in parts."""
PAYLOAD_EVENTS_MAX: Final = 10_000  # about 1 MiB of the smallest events
DEVICE_CHARACTERS_MAX: Final = 256

Refuse = Callable[[bytes, str], None]


class PayloadReader:
    """Reads the payloads of one source. It never raises: what is wrong is given to ``refuse``, part by part."""

    def __init__(
        self,
        event_type: EventType,
        payload: Literal["json", "msgpack", "text"] = "json",
        feed: MqttFeed | None = None,
        node: str | None = None,
    ) -> None:
        """``node`` is a name that no device may have: the node numbers events of its own under it.

        Without a feed a payload is what a program publishes: exactly the attributes, exactly of their kinds.
        """
        self._node = node
        self._type = event_type
        self._feed = feed
        self._map = Mapping(feed, event_type)
        self._split = _SPLITS[payload if feed is None else feed.payload]
        self.ignored: Callable[[list[str]], None] = lambda names: None
        """Called with the names of fields that nothing asks for, where they are left out."""
        self.passed_over: Callable[[], None] = lambda: None
        """Called for each message that the source is not for."""

    def read(self, payload: bytes, refuse: Refuse, wildcards: Sequence[str] = ()) -> list[Arrival]:
        """The events in a payload; ``wildcards`` are the levels of its topic that wildcards stand for."""
        if len(payload) > PAYLOAD_BYTES_MAX:
            refuse(payload, f"{len(payload)} bytes, and at most {PAYLOAD_BYTES_MAX} are taken; send it in parts")
            return []
        arrivals: list[Arrival] = []
        try:
            for part, raw in self._split(payload, self._map.keeps_lists):
                self._read_part(part, raw, arrivals, refuse, wildcards)
        except Refusal as error:
            refuse(payload, str(error))
        return arrivals

    def _read_part(
        self, part: Any, raw: Callable[[], bytes], arrivals: list[Arrival], refuse: Refuse, wildcards: Sequence[str]
    ) -> None:
        """The events of one message into ``arrivals``; a Refusal if there are too many."""
        if isinstance(part, Refusal):
            refuse(raw(), str(part))
            return
        if not self._map.counts(part, wildcards):
            self.passed_over()
            return
        beside = self._map.unknown_beside_items(part)
        if beside and self._map.unknown == "refuse":
            refuse(raw(), self._not_known(beside))
            return
        if beside and self._map.unknown == "ignore":
            self.ignored([str(name) for name in beside])
        messages = self._map.items(part, wildcards)
        while True:
            message = None
            try:
                message = next(messages, None)
                if message is None:
                    return
                if len(arrivals) >= PAYLOAD_EVENTS_MAX:
                    break
                arrivals.append(self._arrival(message))
            except (Refusal, EventError) as error:
                refuse(raw() if message is None or message.item is part else _dumped(message.item), str(error))
                if message is None:
                    return
        raise Refusal(f"more than {PAYLOAD_EVENTS_MAX} events in one payload; send it in parts")

    def _arrival(self, message: MessageItem) -> Arrival:
        mapping, feed = self._map, self._feed
        if mapping.by_name and not isinstance(message.item, dict):
            raise Refusal(f"an event is a map from names to values, not {shown(message.item)}")
        unknown = mapping.unknown_fields(message)
        if unknown and mapping.unknown == "refuse":
            raise Refusal(self._not_known(unknown))
        values = tuple(
            [
                convert(value) if (value := get(message)) is not None else self._absent(convert, place)
                for get, convert, place in mapping.attributes
            ]
        )
        ts = None
        if mapping.time is not None:
            time = mapping.time(message)
            if time is None:
                raise Refusal(f"{mapping.time_named} is absent")
            ts = mapping.time_of(time)
        device, counter = None, None
        if mapping.device is not None and mapping.counter is not None:
            assert feed is not None
            device = self._device(mapping.device(message), feed)
            counter = mapping.counter(message)
            if type(counter) is not int or not 0 <= counter <= INT_MAX:
                raise Refusal(f"the counter {feed.counter} is {shown(counter)}, and must be a whole number")
        if unknown and mapping.unknown == "ignore":
            self.ignored([str(name) for name in unknown])
        return Arrival(ts, device, counter, values)

    def _not_known(self, names: list[Any]) -> str:
        has = ", ".join(self._map.known_names()) or "no attributes"
        return f"{self._type.name} has no attribute {shown(names[0])}; it has: {has}"

    @staticmethod
    def _absent(convert: Convert, place: str) -> Value:
        try:
            return convert(None)
        except EventError as error:
            raise Refusal(f"{error}: there is no {place}" if place else str(error)) from None

    def _device(self, device: Any, feed: MqttFeed) -> str:
        if type(device) is int and INT_MIN <= device <= INT_MAX:
            device = str(device)
        if not isinstance(device, str) or not 0 < len(device) <= DEVICE_CHARACTERS_MAX or not is_unicode(device):
            raise Refusal(f"the device {feed.device} is {shown(device)}, and must be a name")
        if device == self._node:
            raise Refusal(f"the device is called {device!r} like its node; give it another name")
        return device


def reader_of(feed: MqttFeed, event_type: EventType, edge: Edge, number: int) -> PayloadReader:
    """The reader of a source, which counts what it leaves out and names each field once in the log."""
    reader = PayloadReader(event_type, feed=feed, node=edge.node)
    logged: set[str] = set()

    def ignored(names: list[str]) -> None:
        edge.count("payload_fields_ignored", len(names))
        for name in names:
            if name not in logged and len(logged) < FIELDS_LOGGED_MAX:
                logged.add(name)
                log.info("source %d: %s does not use the field %.60r; it is left out", number, event_type.name, name)

    reader.ignored = ignored
    reader.passed_over = lambda: edge.count("mqtt_messages_passed_over")
    return reader


Parts = Iterator[tuple[Any, Callable[[], bytes]]]
"""What may be an event, and a function that gives its bytes if they are wanted."""


_decoder: Final = json.JSONDecoder()


def _text_parts(payload: bytes, keeps_lists: bool) -> Parts:
    try:
        text = payload.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refusal(f"not UTF-8 at byte {error.start}") from None
    if not text.strip():
        raise Refusal("nothing in it")
    yield text, partial(bytes, payload)


def _json_parts(payload: bytes, keeps_lists: bool) -> Parts:
    try:
        text = payload.decode("utf-8").strip()
    except UnicodeDecodeError as error:
        raise Refusal(f"not UTF-8 at byte {error.start}") from None
    if not text:
        raise Refusal("nothing in it")
    try:
        whole, end = _decoder.raw_decode(text)
        if end == len(text):
            yield from _parts_of(whole, keeps_lists)
            return
    except (ValueError, RecursionError) as error:
        if "\n" not in text:
            raise Refusal(f"not JSON: {_why(error)}{_or_text(text)}") from None
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
            yield from _parts_of(part, keeps_lists)
        else:
            refusal = Refusal(f"line {number}: something follows the event; write one on each line, or a list")
            yield refusal, stripped.encode


def _parts_of(whole: Any, keeps_lists: bool) -> Parts:
    for part in whole if isinstance(whole, list) and not keeps_lists else [whole]:
        yield part, partial(_dumped, part)


def _dumped(part: Any) -> bytes:
    try:
        return json.dumps(part).encode()
    except (ValueError, RecursionError):
        return shown(part).encode(errors="replace")


def _or_text(text: str) -> str:
    """Advice about a word that is no JSON, as in ``ON``."""
    return "; payload: text reads plain words" if text.isalnum() else ""


def _why(error: Exception) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)


def _msgpack_parts(payload: bytes, keeps_lists: bool) -> Parts:
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
        if isinstance(whole, list) and not keeps_lists:
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
        return shown(part).encode(errors="replace")
    return packed


_SPLITS: Final = {"json": _json_parts, "msgpack": _msgpack_parts, "text": _text_parts}
