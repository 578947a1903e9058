"""A broker of the tests' own that speaks just enough MQTT to send as fast as it may, and looks at what it gets back."""

from __future__ import annotations

import asyncio
from typing import Final

CONNECT, PUBLISH, PUBACK, SUBSCRIBE, UNSUBSCRIBE, PINGREQ, DISCONNECT = 1, 3, 4, 8, 10, 12, 14
RECEIVE_MAXIMUM: Final = 0x21
SESSION_EXPIRY: Final = 0x11
NUMBERS: Final = 65_535  # of messages that may be under way
TOPIC: Final = b"s"


class EagerBroker:
    """Sends its messages of QoS 1 to the first client that subscribes, without waiting for anything but what a broker
    must wait for: a number that is free, what a client of MQTT 5 has announced, and a socket that takes more."""

    def __init__(self, payloads: list[bytes], *, speaks_5: bool) -> None:
        self._payloads = payloads
        self._speaks_5 = speaks_5
        self.version = 0
        self.receive_maximum = NUMBERS
        self.versions_refused: list[int] = []
        self.sent = 0
        self.acknowledged: set[int] = set()
        self._numbers: dict[int, int] = {}
        """By number of a message that is under way, its place."""
        self.under_way_most = 0
        self._room = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._sending: list[asyncio.Task[None]] = []
        self.port = 0

    async def __aenter__(self) -> EagerBroker:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        for task in self._sending:
            task.cancel()
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                kind, body = await _packet(reader)
                if kind == CONNECT:
                    self.version = body[6]
                    if self.version == 5 and not self._speaks_5:
                        self.versions_refused.append(5)
                        writer.write(b"\x20\x02\x00\x01")
                        return
                    if self.version == 5:
                        self.receive_maximum = _receive_maximum(body[10:])
                    writer.write(b"\x20\x03\x00\x00\x00" if self.version == 5 else b"\x20\x02\x00\x00")
                elif kind == SUBSCRIBE:
                    writer.write(
                        b"\x90\x04" + body[:2] + b"\x00\x01" if self.version == 5 else b"\x90\x03" + body[:2] + b"\x01"
                    )
                    self._sending.append(asyncio.create_task(self._send(writer)))
                elif kind == UNSUBSCRIBE:
                    writer.write(b"\xb0\x04" + body[:2] + b"\x00\x11" if self.version == 5 else b"\xb0\x02" + body[:2])
                elif kind == PUBACK:
                    self.acknowledged.add(self._numbers.pop(int.from_bytes(body[:2])))
                    self._room.set()
                elif kind == PINGREQ:
                    writer.write(b"\xd0\x00")
                elif kind == DISCONNECT:
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _send(self, writer: asyncio.StreamWriter) -> None:
        number = 0
        for place, payload in enumerate(self._payloads):
            while len(self._numbers) >= self.receive_maximum:
                self._room.clear()
                await self._room.wait()
            while number == 0 or number in self._numbers:
                number = number % NUMBERS + 1
            self._numbers[number] = place
            self.under_way_most = max(self.under_way_most, len(self._numbers))
            body = len(TOPIC).to_bytes(2) + TOPIC + number.to_bytes(2) + b"\x00" * (self.version == 5) + payload
            writer.write(bytes([0x32]) + _length(len(body)) + body)
            self.sent += 1
            await writer.drain()


async def _packet(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    kind = (await reader.readexactly(1))[0] >> 4
    size, shift = 0, 0
    while True:
        byte = (await reader.readexactly(1))[0]
        size |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return kind, await reader.readexactly(size)


def _length(size: int) -> bytes:
    found = bytearray()
    while True:
        size, low = size >> 7, size & 0x7F
        found.append(low | (0x80 if size else 0))
        if not size:
            return bytes(found)


def _receive_maximum(properties: bytes) -> int:
    """What a client has announced; the first byte is the length of the properties."""
    place, end = 1, 1 + properties[0]
    while place < end:
        if properties[place] == RECEIVE_MAXIMUM:
            return int.from_bytes(properties[place + 1 : place + 3])
        assert properties[place] == SESSION_EXPIRY, "only these two are sent"
        place += 5
    return NUMBERS
