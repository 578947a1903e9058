"""Elements of remote tables, fetched while an engine runs.

A ``Fetcher`` asks the providers in a thread of its own. What has come is handed to the memory and to the engines in the
thread of the caller, and only when the caller asks for it: neither of them needs a lock.
"""

from __future__ import annotations

import asyncio
import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Final, NamedTuple

from headwater.node.engine import Engine, Program
from headwater.node.engine.intake import Row
from headwater.node.engine.remote_memory import Place
from headwater.node.remote.guard import Guard
from headwater.node.remote.kinds import misfit
from headwater.node.remote.memory import Memory
from headwater.node.remote.provider import BadAnswer, Key
from headwater.node.remote.threads import LoopThread
from headwater.protocol.composites import Composite
from headwater.protocol.remote import WAIT, Versions

HELD_MAX: Final = 10_000  # evaluations; each keeps a partial match and its elements, about 1 kB, so 10 MB in all
BEHIND_EVENTS_MAX: Final = 100_000  # taken while one evaluation is held, which may need any of them: some 50 MB


class FetchAnswer(NamedTuple):
    """What a provider has said of some keys of a table, or why it has not."""

    table: str
    keys: tuple[Key, ...]
    elements: Mapping[Key, Versions | None]
    error: Exception | None = None
    took_s: float = 0.0


class Requests:
    """What is asked of one table. All methods run in the event loop."""

    def __init__(self, guard: Guard, answered: Callable[[FetchAnswer], None]) -> None:
        self._guard = guard
        self._answered = answered
        self._keys: deque[Key] = deque()
        self._workers: set[asyncio.Task[None]] = set()

    def add(self, keys: Iterable[Key]) -> None:
        """Ask for these as well, many in one request where the provider allows it."""
        self._keys.extend(keys)
        batches = -(-len(self._keys) // self._guard.provider.batch_max)
        for _ in range(min(batches, self._guard.limits.under_way_max - len(self._workers))):
            self._workers.add(asyncio.ensure_future(self._work()))

    def forget(self) -> None:
        self._keys.clear()

    def cancel(self) -> list[asyncio.Task[None]]:
        """Ask for nothing any more; the tasks that end."""
        self._keys.clear()
        for worker in self._workers:
            worker.cancel()
        return list(self._workers)

    async def _work(self) -> None:
        table, most = self._guard.table, self._guard.provider.batch_max
        try:
            while self._keys:
                keys = tuple(self._keys.popleft() for _ in range(min(len(self._keys), most)))
                asked_s = time.monotonic()
                try:
                    elements = await self._guard.fetch_when_there(keys)
                    answer = FetchAnswer(table, keys, elements, took_s=time.monotonic() - asked_s)
                except Exception as error:
                    answer = FetchAnswer(table, keys, {}, error)
                self._answered(answer)
        finally:
            worker = asyncio.current_task()
            assert worker is not None
            self._workers.discard(worker)  # not in a callback: keys that came before it was called would wait for ever


class Fetcher:
    """Fetches what a memory wants, and hands what has come to it and to the engines that look things up in it."""

    def __init__(self, memory: Memory, guards: Mapping[str, Guard], loop: LoopThread) -> None:
        self.memory = memory
        self._loop = loop
        self._inbox = AnswerInbox()
        self._requests = {table: Requests(guard, self._inbox.put) for table, guard in guards.items()}
        self._engines: weakref.WeakSet[Engine] = weakref.WeakSet()

    def serve(self, engine: Engine) -> None:
        """Hand elements to this engine, too, from now on."""
        self._engines.add(engine)

    def send(self) -> None:
        """Ask for what the memory wants."""
        wanted = self.memory.take_wanted()
        if not wanted:
            return
        by_table: dict[str, list[Key]] = {}
        for table, key in wanted:
            by_table.setdefault(table, []).append(key)
        for table, keys in by_table.items():
            self._loop.call(self._requests[table].add, keys)

    def take(self, *, wait: bool = False, woken: bool = False) -> list[tuple[Place, Versions | None]]:
        """Hand over what has come; the error of a provider that will not answer. ``wait``: until something has come;
        ``woken``: because ``waker`` has said so."""
        assert not wait or self.memory.under_way, "nothing was asked for"
        taken: list[tuple[Place, Versions | None]] = []
        for answer in self._inbox.take(wait=wait, woken=woken):
            if answer.error is not None:
                places = [(answer.table, key) for key in answer.keys]
                is_needed = not all(map(self.memory.is_ahead, places))
                if is_needed and self.memory.terms_of(answer.table).on_failure != WAIT:
                    for key in answer.keys:
                        self._hand_over(answer.table, key, self.memory.instead(answer.table), taken)
                    continue
                self._ask_again(places)
                if is_needed:
                    raise answer.error
                continue  # if something needs one of them after all, it is asked for once more
            self.memory.took(answer.table, answer.took_s * 1e6)
            for key in dict.fromkeys((*answer.keys, *answer.elements)):
                self._hand_over(answer.table, key, answer.elements.get(key), taken)
            self.memory.came_together(answer.table, answer.elements)
        return taken

    def _hand_over(
        self, table: str, key: Key, given: Versions | None, taken: list[tuple[Place, Versions | None]]
    ) -> None:
        element = self.memory.stamped(table, given)
        if self.memory.supply(table, key, element):
            taken.append(((table, key), element))
            for engine in self._engines:
                engine.supplied(table, key, element)

    def element(self, table: str, key: Key) -> Versions | None:
        """One element, for a caller that cannot go on without; None if the table does not have it."""
        self.memory.want(table, key)
        self.send()
        while True:
            for place, element in self.take(wait=True):
                if place == (table, key):
                    return element

    def waker(self) -> int:
        """A file descriptor that can be read from when something has come."""
        return self._inbox.descriptor()

    def close(self) -> None:
        """The loop has ended: nothing of what was asked for will come any more."""
        for requests in self._requests.values():
            requests.forget()
        for _ in self._inbox.take():
            pass
        self._ask_again(list(self.memory.under_way))

    def _ask_again(self, places: Iterable[Place]) -> None:
        """These have not come: engines that still need one ask for it once more when they are next used."""
        for place in places:
            self.memory.give_up(place)
            if any(engine.asking is not None and place in engine.asking.needed() for engine in self._engines):
                self.memory.want(*place)


class AnswerInbox:
    """Answers on their way from the event loop to the caller's thread."""

    def __init__(self) -> None:
        self._answers: SimpleQueue[FetchAnswer] = SimpleQueue()
        self._pipe: tuple[int, int] | None = None
        self._written = False
        """Whether there is, or will soon be, something to read in the pipe: a system call for every event would cost
        more than most events. It is unset after reading and before answers are taken, so that none is left without a
        sign; what is written meanwhile is read by the caller that it wakes."""

    def put(self, answer: FetchAnswer) -> None:
        self._answers.put(answer)
        if self._pipe is not None and not self._written:
            self._written = True
            os.write(self._pipe[1], b"!")

    def take(self, *, wait: bool = False, woken: bool = False) -> Iterable[FetchAnswer]:
        """What has come, one after the other; ``wait``: at least one; ``woken``: the pipe may hold something."""
        if self._pipe is not None and (woken or self._written):
            with suppress(BlockingIOError):
                os.read(self._pipe[0], 1 << 16)
            self._written = False
        if wait:
            yield self._answers.get()
        with suppress(Empty):
            while True:
                yield self._answers.get_nowait()

    def descriptor(self) -> int:
        if self._pipe is None:
            ends = os.pipe()
            for end in ends:
                os.set_blocking(end, False)
                weakref.finalize(self, os.close, end).atexit = False  # the loop may still write at the end
            os.write(ends[1], b"!")  # what came while there was no pipe is seen at once
            self._written = True
            self._pipe = ends
        return self._pipe[0]


class FetchingEngine(Engine):
    """An engine whose remote elements are fetched while it runs.

    It takes events as any engine does. What needs an element that is not at hand comes with a later call: every call
    hands over what has come meanwhile, and ``close`` waits for the rest. A call waits only where the remote strategy
    says that the stream does, or where too much is held. A provider that fails for good makes a call raise its error;
    what had been found before comes with the next call.
    """

    def __init__(self, program: Program, fetcher: Fetcher) -> None:
        super().__init__(program, memory=fetcher.memory)
        self._fetcher = fetcher
        self._found: list[Composite] = []
        self._taken = 0
        """How many events have been taken since ``_mark`` was set."""
        self._mark = 0
        """Evaluations with a lower number were held before that."""
        fetcher.serve(self)

    def feed(self, events: Iterable[Row]) -> list[Composite]:
        rows = list(events)
        self._taken += len(rows)
        self._found += super().feed(rows)
        return self._go_on()

    def insert_old(self, rows: Iterable[Row]) -> list[Composite]:
        self._found += super().insert_old(rows)
        return self._go_on()

    def advance(self, watermark: float) -> list[Composite]:
        self._found += super().advance(watermark)
        return self._go_on()

    def close(self) -> list[Composite]:
        """The end of time: everything still undecided is decided, when its elements have come."""
        return super().close() + self.settle()

    def arrived(self) -> list[Composite]:
        """The composites that are certain since the last call, with the elements that have come."""
        return self._go_on(woken=True)

    def settle(self) -> list[Composite]:
        """Wait for the elements that are needed; the composites that are certain then."""
        self._hand_over()
        while self.waiting():
            self._hand_over(wait=True)
        return self._given()

    def wakes(self) -> int:
        """A file descriptor that can be read from when ``arrived`` may have something to give."""
        return self._fetcher.waker()

    def _go_on(self, *, woken: bool = False) -> list[Composite]:
        self._hand_over(woken=woken)
        while self._is_paused() or self._is_behind():
            self._hand_over(wait=True)
        return self._given()

    def _hand_over(self, *, wait: bool = False, woken: bool = False) -> None:
        self._fetcher.send()
        for (table, key), element in self._fetcher.take(wait=wait, woken=woken):
            if (why := misfit(self.program.rules, table, key, element)) is not None:
                raise BadAnswer(why)
        if self.can_go_on():
            self._found += self.supply()
            self._fetcher.send()

    def _given(self) -> list[Composite]:
        found, self._found = self._found, []
        return found

    def _is_behind(self) -> bool:
        """Whether so much is held that no more should be taken."""
        assert self.asking is not None
        held = self.asking.held
        if len(held) > HELD_MAX:
            return True
        if not held or self._taken > BEHIND_EVENTS_MAX:
            if min(held, default=self._mark) < self._mark:
                return True
            self._mark, self._taken = max(held, default=-1) + 1, 0
        return False

    def copy(self) -> Engine:
        engine = FetchingEngine(self.program, self._fetcher)
        engine.restore(self.snapshot())
        return engine

    def restore(self, snapshot: bytes) -> None:
        super().restore(snapshot)
        assert self.asking is not None
        self._found, self._taken, self._mark = [], 0, max(self.asking.held, default=-1) + 1
        for place in self.asking.needed():
            self._fetcher.memory.want(*place)
