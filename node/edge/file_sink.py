"""Sinks that write JSON lines to a file, each delivery once, or to the standard output of the node."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from headwater.node.edge.backoff import Backoff
from headwater.node.edge.interfaces import Deliveries, Edge, identity
from headwater.protocol.edge import FileTo

READ_BACK_BYTES_MAX: Final = 64 << 20
"""So much of the end of a file is looked at after a restart: more than is ever written without being confirmed."""

log = logging.getLogger("headwater.edge")

Numbered = list[tuple[int, dict[str, Any]]]


class StdoutSinkAdapter:
    """A line for each delivery on standard output. What was written just before a kill may be written again."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._is_closed = False

    async def run(self, deliveries: Deliveries, confirmed: int) -> None:
        while True:
            batch = await deliveries.next()
            text = "".join(json.dumps(delivery, ensure_ascii=False) + "\n" for _, delivery in batch)
            # In a thread: a reader that does not read must not stop the node.
            await asyncio.to_thread(self._write, text)
            deliveries.confirm(batch[-1][0])

    def _write(self, text: str) -> None:
        if self._is_closed:
            return
        try:
            sys.stdout.buffer.write(text.encode(errors="backslashreplace"))
            sys.stdout.buffer.flush()
        except (OSError, ValueError) as error:
            self._is_closed = True
            log.warning("sink %d: no process reads the standard output any more: %s", self._number, error)


class FileSinkAdapter:
    """A line for each delivery at the end of a file, exactly once, whenever the node is killed.

    Each line says which delivery of which sink it is. After a restart the lines that are there already are told from
    those that are not by their identity; half a line at the end is cut off. Several sinks of a node may share a file.
    """

    def __init__(self, number: int, destination: FileTo, edge: Edge) -> None:
        self._number = number
        self._path = edge.data / destination.path  # an absolute name stays what it is
        self._is_synced = edge.durability == "sync"
        self._edge = edge
        self._presence = edge.present("sink", number, "", f"the file {self._path}", is_there=True)
        self._written: set[str] = set()
        """Identities of the lines of this sink found in the file that the node may offer again."""

    async def run(self, deliveries: Deliveries, confirmed: int) -> None:
        self._written = await self._until_done(self._recover, confirmed)
        while True:
            batch = await deliveries.next()
            fresh = [delivery for delivery in batch if identity(delivery[1]) not in self._written]
            if fresh:
                await self._until_done(self._append, fresh)
            deliveries.confirm(batch[-1][0])

    async def _until_done(self, work: Any, argument: Any) -> Any:
        """Work with the file in a thread; while the disk is full or away, try again."""
        backoff = Backoff(first_s=0.5)
        while True:
            try:
                returned = await asyncio.to_thread(work, argument)
                self._presence.came()
                return returned
            except OSError as error:
                self._edge.count("file_sink_failures")
                why = "the disk is full" if error.errno == errno.ENOSPC else error.strerror or str(error)
                self._presence.went(f"it cannot be written: {why}")
                await backoff.wait()

    def _recover(self, confirmed: int) -> set[str]:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with _lock(self._path), self._path.open("a+b") as file:
            size = file.seek(0, os.SEEK_END)
            start = max(0, size - READ_BACK_BYTES_MAX)
            file.seek(start)
            tail = file.read()
            whole = tail.rfind(b"\n") + 1
            if whole < len(tail) and (whole or start == 0):
                file.truncate(start + whole)
                log.warning("sink %d: cut %d bytes of a torn line off %s", self._number, len(tail) - whole, self._path)
            # A node that has forgotten something may have confirmed more than it knows.
            return _unconfirmed(tail[:whole], self._number, 0 if self._edge.reborn else confirmed)

    def _append(self, batch: Numbered) -> None:
        lines = b"".join(_line(self._number, number, delivery) for number, delivery in batch)
        with _lock(self._path), self._path.open("ab", buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            try:
                written = file.write(lines)
                if written is None or written < len(lines):
                    raise OSError(errno.ENOSPC, "only a part could be written")
                if self._is_synced:
                    os.fdatasync(file.fileno())
            except OSError:
                file.truncate(size)
                raise


def _line(sink: int, number: int, delivery: dict[str, Any]) -> bytes:
    return json.dumps({**delivery, "sink": sink, "delivery": number}, ensure_ascii=False).encode("utf-8") + b"\n"


def _unconfirmed(text: bytes, sink: int, confirmed: int) -> set[str]:
    """The identities of the deliveries of this sink in these lines that are not confirmed.

    Their numbers would not do: a node that has lost a part of its memory gives deliveries in another order.
    """
    identities: set[str] = set()
    for delivery in _lines_of(text, sink):
        if delivery["delivery"] <= confirmed:
            break
        identities.add(identity(delivery))
    return identities


def _lines_of(text: bytes, sink: int) -> Iterator[dict[str, Any]]:
    """The deliveries of this sink in these lines, the last one first."""
    for line in reversed(text.splitlines()):
        try:
            delivery = json.loads(line)
            if delivery["sink"] == sink and isinstance(delivery["delivery"], int) and identity(delivery):
                yield delivery
        except (ValueError, KeyError, TypeError):
            continue  # a line of another program


class _Locks(dict[Path, Any]):
    """One lock for each file: sinks that share one write from threads of their own."""

    def __missing__(self, path: Path) -> Any:
        import threading

        return self.setdefault(path, threading.Lock())


_locks: Final = _Locks()


def _lock(path: Path) -> Any:
    return _locks[path]
