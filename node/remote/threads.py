"""For callers that must wait for what happens in an event loop, and for loops that must not wait for a call."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

T = TypeVar("T")

END_S_MAX: Final = 1.0  # for giving connections back; a server that does not listen is not waited for
IDLE_S_MAX: Final = 5.0  # a thread without work ends
CALLS_MAX: Final = 32  # that have not returned: several times as many as one waits for, so others were given up


class LoopThread:
    """An event loop in a thread of its own, started when it is first needed: the caller may be in a loop itself, as
    every cell of a notebook is."""

    def __init__(self, at_end: Sequence[Callable[[], Coroutine[Any, Any, None]]] = ()) -> None:
        """``at_end``: what is done in the loop before it ends, even if its owner has not closed it."""
        self._at_end = tuple(at_end)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: weakref.finalize[Any, Any] | None = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine; the caller waits for it."""
        running = asyncio.run_coroutine_threadsafe(work, self._started())
        try:
            return running.result()
        except BaseException:
            running.cancel()  # after Ctrl-C no caller waits for it any more
            raise

    def call(self, call: Callable[..., object], *arguments: Any) -> None:
        """Have a call made in the loop; the caller does not wait for it."""
        self._started().call_soon_threadsafe(call, *arguments)

    def _started(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            thread = threading.Thread(target=_turn, args=(self._loop, self._at_end), name="remote tables", daemon=True)
            thread.start()
            self._end = weakref.finalize(self, _stop, self._loop, thread)
        return self._loop

    def close(self) -> None:
        if self._end is not None:
            self._end()
        self._loop = self._end = None


def _turn(loop: asyncio.AbstractEventLoop, at_end: Sequence[Callable[[], Coroutine[Any, Any, None]]]) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()
    loop.run_until_complete(_ended(at_end))
    loop.close()


async def _ended(at_end: Sequence[Callable[[], Coroutine[Any, Any, None]]]) -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    with suppress(TimeoutError):
        async with asyncio.timeout(END_S_MAX):
            await asyncio.gather(*tasks, return_exceptions=True)  # so that each takes leave of what it was part of
            await asyncio.gather(*(end() for end in at_end), return_exceptions=True)


def _stop(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    with suppress(RuntimeError):  # it has been closed
        loop.call_soon_threadsafe(loop.stop)
    if thread is not threading.current_thread():
        thread.join(2 * END_S_MAX)


class Threads:
    """Threads for calls that block, each used again for a while. Unlike those of a pool, one whose call never returns
    does not keep the program from ending."""

    def __init__(self) -> None:
        self._idle: list[SimpleQueue[Callable[[], None]]] = []
        """The threads that wait for work, by what they wait at."""
        self._calls = 0
        """That have not returned yet."""

    async def run(self, call: Callable[..., T], *arguments: Any) -> T:
        """The result of a call; a TimeoutError if too many have never returned."""
        if self._calls >= CALLS_MAX:
            raise TimeoutError(f"{self._calls} calls have not returned")
        self._calls += 1
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def work() -> None:
            result: T | None = None
            error: BaseException | None = None
            try:
                result = call(*arguments)
            except StopIteration as stop:  # which no future can hold
                error = RuntimeError(f"the call raised StopIteration: {stop}")
            except BaseException as raised:
                error = raised
            try:
                loop.call_soon_threadsafe(self._settle, answer, result, error)
            except RuntimeError:  # the loop has ended meanwhile
                self._calls -= 1

        try:
            jobs = self._idle.pop()
        except IndexError:
            jobs = SimpleQueue()
            threading.Thread(target=_serve, args=(jobs, self._idle), name="remote request", daemon=True).start()
        jobs.put(work)
        return await answer

    def _settle(self, answer: asyncio.Future[T], result: T | None, error: BaseException | None) -> None:
        self._calls -= 1
        if answer.done():
            return
        if error is None:
            answer.set_result(result)  # type: ignore[arg-type]
        else:
            answer.set_exception(error)


def _serve(jobs: SimpleQueue[Callable[[], None]], idle: list[SimpleQueue[Callable[[], None]]]) -> None:
    while True:
        try:
            job = jobs.get(timeout=IDLE_S_MAX)
        except Empty:
            try:
                idle.remove(jobs)
            except ValueError:  # a caller has just taken it, and the job is on its way
                continue
            return
        job()
        idle.append(jobs)
