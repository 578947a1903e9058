"""Waiting in tests: for whatever must happen, however long that takes on a machine that has other things to do.

Nothing depends on how long anything really takes: only a test that fails waits until its patience is over.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Protocol

from headwater.deploy.cluster.waiting import Patience, ended

PATIENCE_S = 120.0
"""Of a machine that has time."""

COMMAND_S = 600.0
"""For whole commands, some of which start Java."""

ANSWER_S = 900.0
"""For sockets, which know no patience: only so that nothing waits forever."""


class TooSlow(BaseException):
    """Something took longer than it may. No Exception, so that nothing under test takes it for an error of its own."""


def until(
    holds: Callable[[], Any],
    what: str,
    *,
    why: Callable[[], str] = lambda: "",
    alive: Callable[[], None] = lambda: None,
    seconds: float = PATIENCE_S,
) -> Any:
    """Wait for something that must happen; what ``holds`` has found. ``alive`` raises if it cannot happen any more, and
    ``why`` tells more of it."""
    patience, pause = Patience(seconds), 0.01
    while not (found := holds()):
        if patience.over:
            raise AssertionError(f"it never happened that {what}; {why()}")
        alive()
        time.sleep(pause)
        pause = min(0.2, pause * 1.5)
    return found


async def soon(holds: Callable[[], Any], what: str = "what is waited for has happened", pause_s: float = 0.005) -> None:
    """The same among tasks."""
    patience = Patience(PATIENCE_S)
    while not holds():
        assert not patience.over, f"it never happened that {what}"
        await asyncio.sleep(pause_s)


@asynccontextmanager
async def patiently(seconds: float = PATIENCE_S) -> AsyncIterator[None]:
    """A block of a task that may take so long; a TimeoutError if it takes longer."""
    patience = Patience(seconds)

    async def watch(limit: asyncio.Timeout) -> None:
        while not patience.over:
            await asyncio.sleep(min(0.5, seconds / 4))
        limit.reschedule(asyncio.get_running_loop().time())

    async with asyncio.timeout(None) as limit:
        watching = asyncio.create_task(watch(limit))
        try:
            yield
        finally:
            watching.cancel()


class _Joined(Protocol):
    def join(self, timeout: float | None = None) -> None: ...

    def is_alive(self) -> bool: ...


def joined(process: _Joined, what: str) -> None:
    """Wait until a process of multiprocessing has ended."""

    def has_ended() -> bool:
        process.join(0.1)
        return not process.is_alive()

    until(has_ended, f"{what} ends")


def output_of(process: subprocess.Popen[Any], seconds: float = COMMAND_S) -> tuple[Any, Any]:
    """What a process has printed once it has ended; it is killed if it does not."""
    try:
        return ended(process, Patience(seconds))
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(f"{process.args!r} has not ended: {process.communicate()}") from None


def run_to_its_end(
    command: Sequence[Any], *, seconds: float = COMMAND_S, check: bool = False, **how: Any
) -> subprocess.CompletedProcess[Any]:
    """``subprocess.run`` with its output, for commands that may take so long."""
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **how}
    with subprocess.Popen(command, **how) as process:
        out, err = output_of(process, seconds)
    if check:
        assert process.returncode == 0, f"{command!r}:\n{out!r}\n{err!r}"
    return subprocess.CompletedProcess(command, process.returncode, out, err)


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises TooSlow when the body has worked for longer, by the time of the processor that this process has had; in
    its main thread only."""

    def stop(*_: object) -> None:
        raise TooSlow(f"not finished after {seconds:.0f} s of work")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        with suppress(TypeError):  # a handler that was not set by Python cannot be set again
            signal.signal(signal.SIGPROF, before)
