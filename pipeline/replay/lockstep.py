"""Keeps the tasks of a replay in step: a council at the driver, and a seat in it for every task.

A task says how many slices of the trace its nodes have; it hears when all tasks are there and how many slices the one
that is furthest behind has. So all begin together, and none runs ahead of another. One JSON object on each line, over
TCP; the first one of a task holds the token that it was given.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import os
import secrets
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final

from headwater.protocol.errors import HeadwaterError

HELLO_S_MAX: Final = 10.0  # a task that connects says who it is within so long
LINE_BYTES_MAX: Final = 64 << 10  # of one message
SEATS_MORE_MAX: Final = 16  # connections beyond the seats: tasks that come again before their last life is known gone

log = logging.getLogger("headwater.replay")


class CouncilLost(HeadwaterError):
    """The driver is gone, or does not know this task."""


@dataclass(slots=True)
class TaskProgress:
    """How far one task has come."""

    slices: int | None = None
    """How many slices are durable at all its nodes; None until it is ready to begin."""
    from_us: int | None = None
    """The time of the first event that its nodes did not have when it began."""
    events: int = 0
    ts: int | None = None
    """Everything up to here was sent."""
    lag_s: float = 0.0
    """By how much it is behind the pace."""
    behind: str = ""
    """The node that has most to answer."""
    pid: int = 0


@dataclass(frozen=True, slots=True)
class Invitation:
    """What a task needs to take its seat. Travels to tasks."""

    host: str
    port: int
    token: str = field(repr=False)


class Council:
    """The driver's side, in a thread of its own. Use it in a ``with`` block."""

    def __init__(
        self,
        seats: int,
        *,
        host: str = "127.0.0.1",
        reached_at: str | None = None,
        watch: Callable[[dict[int, TaskProgress]], None] = lambda progress: None,
    ) -> None:
        """``watch`` is called, in the thread of the council, whenever a task has reported something."""
        self._seats = seats
        self._host = host
        self._reached_at = reached_at or host
        self._watch = watch
        self._token = secrets.token_hex(16)
        self._progress: dict[int, TaskProgress] = {}
        self._writers: dict[int, asyncio.StreamWriter] = {}
        self._connections = 0
        self._least = -1
        self._stopped: str | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="replay council", daemon=True)
        self._ready = threading.Event()
        self._end = asyncio.Event()
        self._port = 0

    def __enter__(self) -> Council:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()

    def invitation(self) -> Invitation:
        return Invitation(self._reached_at, self._port, self._token)

    @property
    def stopped(self) -> str | None:
        """Why a task wants the replay to stop, if one does."""
        return self._stopped

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._seated, self._host, 0, limit=LINE_BYTES_MAX)
        self._port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._end.wait()
        server.close()
        for writer in self._writers.values():
            writer.close()

    async def _seated(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, from its first word to its last."""
        seat = -1
        self._connections += 1
        try:
            if self._connections > self._seats + SEATS_MORE_MAX:
                return
            hello = await asyncio.wait_for(_heard(reader), HELLO_S_MAX)
            token = str((hello or {}).get("token", ""))
            if (
                hello is None
                or not hmac.compare_digest(token, self._token)
                or hello.get("seat") not in range(self._seats)
            ):
                log.warning("a process without the token of this replay connected and was refused")
                return
            seat = int(hello["seat"])
            self._writers[seat] = writer  # in place of an earlier life of the task
            self._progress[seat] = TaskProgress(pid=int(hello["pid"]))
            if self._stopped is not None:
                self._say(writer, {"stop": self._stopped})
            self._look()
            while (said := await _heard(reader)) is not None:
                self._take_report(seat, said)
        except (OSError, ValueError, KeyError, TypeError, TimeoutError, asyncio.IncompleteReadError) as error:
            log.debug("the connection of task %d has ended: %s", seat, error)
        finally:
            self._connections -= 1
            writer.close()
            if self._writers.get(seat) is writer:
                del self._writers[seat]
                self._look()

    def _take_report(self, seat: int, said: dict[str, Any]) -> None:
        if "stop" in said:
            self._stopped = self._stopped or str(said["stop"])
            for writer in self._writers.values():
                self._say(writer, {"stop": self._stopped})
            return
        progress = self._progress[seat]
        for name in ("slices", "from_us", "events", "ts", "lag_s", "behind"):
            if name in said:
                setattr(progress, name, said[name])
        self._look()

    def _look(self) -> None:
        """All hear how far the one furthest behind has come, and from where all go on; none before all are ready."""
        ready = [self._progress[seat].slices for seat in self._writers]
        least = min((-1 if slice_number is None else slice_number for slice_number in ready), default=-1)
        if len(ready) < self._seats:
            least = -1
        if least > self._least:
            zero_us = min(
                (progress.from_us for progress in self._progress.values() if progress.from_us is not None), default=None
            )
            for writer in self._writers.values():
                self._say(writer, {"least": least, "zero": zero_us})
        self._least = least
        self._watch(self._progress)

    def _say(self, writer: asyncio.StreamWriter, said: dict[str, Any]) -> None:
        if not writer.is_closing():
            writer.write(json.dumps(said).encode() + b"\n")


async def _heard(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    line = await reader.readline()
    if not line:
        return None
    said = json.loads(line)
    if not isinstance(said, dict):
        raise ValueError("not an object")
    return said


class Seat:
    """A task's side. Use it in an ``async with`` block."""

    def __init__(self, invitation: Invitation, number: int) -> None:
        self._invitation = invitation
        self._hello = {"token": invitation.token, "seat": number, "pid": os.getpid()}
        self._least = -1
        self.zero_us: int | None = None
        """The time of the first event that any task sends, once all are there."""
        self._why: HeadwaterError | None = None
        self._moved = asyncio.Condition()

    async def __aenter__(self) -> Seat:
        try:
            reader, self._writer = await asyncio.open_connection(
                self._invitation.host, self._invitation.port, limit=LINE_BYTES_MAX
            )
        except OSError as error:
            where = f"{self._invitation.host}:{self._invitation.port}"
            raise CouncilLost(f"the driver of the replay cannot be reached at {where}: {error.strerror}") from None
        self._listening = asyncio.create_task(self._listen(reader))
        self.tell(self._hello)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listening.cancel()
        self._writer.close()

    def tell(self, said: dict[str, Any]) -> None:
        self._writer.write(json.dumps(said).encode() + b"\n")

    async def stop(self, why: str) -> None:
        """No task need go on, or try again."""
        self.tell({"stop": why})
        with suppress(OSError):
            await self._writer.drain()

    async def all_have(self, slices: int) -> None:
        """Returns when all tasks are there and have so many slices. Stopped if a task has asked for that."""
        async with self._moved:
            await self._moved.wait_for(lambda: self._least >= slices or self._why is not None)
        if self._why is not None:
            raise self._why

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        try:
            while (said := await _heard(reader)) is not None:
                async with self._moved:
                    if "stop" in said:
                        self._why = Stopped(str(said["stop"]))
                    else:
                        self._least, self.zero_us = int(said["least"]), said["zero"]
                    self._moved.notify_all()
        except (OSError, ValueError):
            pass
        async with self._moved:
            self._why = self._why or CouncilLost("the driver of the replay has left")
            self._moved.notify_all()


class Stopped(HeadwaterError):
    """A task cannot go on, and need not be tried again; the sentence says why."""
