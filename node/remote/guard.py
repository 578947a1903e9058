"""What stands around every provider: a time limit, retries, a circuit breaker, bounds, one request for equal keys.

Time, sleeping and chance are arguments, so that a test needs no real time.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from itertools import islice
from typing import Any, Final, TypeVar

from headwater.node.remote.provider import (
    BadAnswer,
    Elements,
    Key,
    Provider,
    ProviderError,
    Refused,
    Unreachable,
    size_bytes,
    too_large,
)
from headwater.protocol.remote import Versions
from headwater.protocol.text import plural

T = TypeVar("T")
Sleep = Callable[[float], Awaitable[Any]]

log = logging.getLogger("headwater.remote")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much is asked of a provider, and how long it may take."""

    request_s: float = 5.0  # for one request; a provider that takes longer is as good as away
    tries: int = 4  # of one request, before it fails
    pause_first_s: float = 0.1  # before the second try; twice as long before each further one
    pause_most_s: float = 5.0
    failures_max: int = 5  # in a row; then the circuit breaker opens, and nothing is asked for a while
    open_s: float = 2.0  # for how long; then a single request tries whether it is back
    under_way_max: int = 8  # requests without an answer yet, so that a slow server is not overrun
    answer_bytes_max: int = 10_000_000  # an element is a value or a list; more than this is a mistake in a query
    wait_s: float = 600.0  # how long one who needs an element waits for a provider that is away


USUAL: Final = Limits()


@dataclass(slots=True)
class Figures:
    """What was asked of a provider, and what became of it."""

    requests: int = 0
    failures: int = 0
    refusals: int = 0
    answered: int = 0
    latency_s: float = 0.0
    """Of all requests that were answered, together."""

    @property
    def mean_s(self) -> float:
        return self.latency_s / self.answered if self.answered else 0.0


class Circuit(Enum):
    CLOSED = auto()  # requests pass
    OPEN = auto()  # none passes until some time has gone by
    TRYING = auto()  # one has passed, to see whether the provider is back


class Seen(Enum):
    ANSWER = auto()
    FAILURES = auto()  # as many in a row as are too many
    PAUSE_OVER = auto()


CIRCUITS: Final = {
    (Circuit.CLOSED, Seen.ANSWER): Circuit.CLOSED,
    (Circuit.CLOSED, Seen.FAILURES): Circuit.OPEN,
    (Circuit.OPEN, Seen.PAUSE_OVER): Circuit.TRYING,
    (Circuit.OPEN, Seen.ANSWER): Circuit.CLOSED,  # to a request from before it opened
    (Circuit.OPEN, Seen.FAILURES): Circuit.OPEN,
    (Circuit.TRYING, Seen.ANSWER): Circuit.CLOSED,
    (Circuit.TRYING, Seen.FAILURES): Circuit.OPEN,
}


class Breaker:
    """Keeps requests from a provider that is away, so that no caller waits for what will fail."""

    def __init__(self, failures_max: int, open_s: float, clock: Callable[[], float], rng: random.Random) -> None:
        self.circuit = Circuit.CLOSED
        self._failures = 0
        self._failures_max = failures_max
        self._open_s = open_s
        self._clock = clock
        self._rng = rng
        self._until_s = 0.0

    def closed_for_s(self) -> float:
        """How long to wait before asking; at 0 the caller must ask, for others now wait for what it finds out."""
        if self.circuit is Circuit.CLOSED:
            return 0.0
        now_s = self._clock()
        if self.circuit is Circuit.OPEN and now_s >= self._until_s:
            self._see(Seen.PAUSE_OVER)
            self._until_s = now_s + self._open_s
            return 0.0
        if self.circuit is Circuit.TRYING and now_s >= self._until_s:
            self._until_s = now_s + self._open_s  # the caller that tried was cancelled before it knew
            return 0.0
        return self._until_s - now_s

    def answered(self) -> None:
        self._failures = 0
        self._see(Seen.ANSWER)

    def failed(self) -> None:
        self._failures += 1
        if self._failures >= self._failures_max:
            self._see(Seen.FAILURES)
            self._until_s = self._clock() + self._open_s * self._rng.uniform(0.75, 1.25)

    def _see(self, seen: Seen) -> None:
        self.circuit = CIRCUITS[self.circuit, seen]


def _look_at(done: asyncio.Task[Any]) -> None:
    """An error that nothing has looked at is taken for a forgotten one, and logged."""
    if not done.cancelled():
        done.exception()


class Guard:
    """A provider that can be asked without care. All methods run in one event loop."""

    def __init__(
        self,
        provider: Provider,
        limits: Limits = USUAL,
        *,
        table: str = "remote",
        clock: Callable[[], float] = time.monotonic,
        sleep: Sleep = asyncio.sleep,
        rng: random.Random | None = None,
    ) -> None:
        self.provider = provider
        self.limits = limits
        self.table = table
        self.figures = Figures()
        self._clock = clock
        self._sleep = sleep
        self._rng = rng or random.Random()
        self._breaker = Breaker(limits.failures_max, limits.open_s, clock, self._rng)
        self._room = asyncio.Semaphore(limits.under_way_max)
        self._under_way: dict[Key, asyncio.Task[Elements]] = {}
        self._away_since_s: float | None = None
        self._said_away = False
        self._why_away = ""

    async def fetch(self, keys: Iterable[Key]) -> dict[Key, Versions | None]:
        """What the provider has for these keys (``plain_key`` makes them), or the ProviderError of the last try; with
        what else it has said of the same whole."""
        wanted = dict.fromkeys(keys)
        for key in wanted:
            self._check_length(key)
        new = iter([key for key in wanted if key not in self._under_way])
        while batch := list(islice(new, self.provider.batch_max)):
            task = asyncio.ensure_future(self._ask(batch))
            self._under_way.update(dict.fromkeys(batch, task))
            task.add_done_callback(self._forget(batch))
        tasks = {key: self._under_way[key] for key in wanted}
        for task in dict.fromkeys(tasks.values()):
            await asyncio.shield(task)  # others may wait for it, too
        found = {key: task.result().get(key) for key, task in tasks.items()}
        if self.provider.whole:
            for task in dict.fromkeys(tasks.values()):
                found = {**task.result(), **found}
        return found

    async def fetch_when_there(self, keys: Sequence[Key]) -> dict[Key, Versions | None]:
        """The same, for one who cannot go on without: a provider that is away is waited for."""
        started_s = self._clock()
        while True:
            try:
                return await self.fetch(keys)
            except Unreachable as error:
                waited_s = self._clock() - started_s
                if waited_s >= self.limits.wait_s:
                    raise Unreachable(f"{error}; gave up after {waited_s:.0f} s") from None
                await self._sleep(max(error.after_s, self.limits.pause_first_s))

    async def check(self) -> None:
        """A ProviderError that says what is wrong with the provider, if anything is."""
        await self._in_time(self.provider.check())

    async def try_out(self) -> None:
        """The same, and the log says at once whether it is away or back: for callers that go on in either case."""
        started_s = self._clock()
        try:
            await self.check()
        except Unreachable as error:
            self._failed(error, started_s, is_certain=True)
            raise
        except ProviderError:
            self._answered(started_s)
            raise
        self._answered(started_s)

    async def close(self) -> None:
        for task in set(self._under_way.values()):
            task.cancel()
        with suppress(ProviderError):
            await self.provider.close()

    def _check_length(self, key: Key) -> None:
        length = self.provider.key_length
        if length is not None and len(key) != length:
            raise Refused(
                f"a key of the table {self.table!r} has {plural(length, 'value')}, not {len(key)}; "
                f"look up {plural(length, 'value')}"
            )

    def _forget(self, batch: list[Key]) -> Callable[[asyncio.Task[Elements]], None]:
        def done(task: asyncio.Task[Elements]) -> None:
            for key in batch:
                del self._under_way[key]
            _look_at(task)  # the caller may have gone

        return done

    async def _ask(self, batch: list[Key]) -> Elements:
        async with self._room:
            pause_s = self.limits.pause_first_s
            for left in reversed(range(self.limits.tries)):
                wait_s = self._breaker.closed_for_s()
                if wait_s > 0:
                    raise Unreachable(self._why_away, wait_s)
                started_s = self._clock()
                try:
                    return await self._try(batch, started_s)
                except Unreachable as error:
                    self._failed(error, started_s)
                    if not left:
                        raise
                    await self._sleep(max(error.after_s, pause_s * self._rng.uniform(0.5, 1.5)))
                    pause_s = min(2 * pause_s, self.limits.pause_most_s)
        raise AssertionError

    async def _try(self, batch: list[Key], started_s: float) -> Elements:
        self.figures.requests += 1
        try:
            elements = await self._in_time(self.provider.fetch(batch))
            if sum(map(size_bytes, elements.values())) > self.limits.answer_bytes_max:
                raise too_large(self.provider.shown, self.limits.answer_bytes_max)
            if not self.provider.whole and not elements.keys() <= set(batch):
                raise BadAnswer(f"{self.provider.shown} answered for keys that it was not asked for")
        except (Refused, BadAnswer):
            self.figures.refusals += 1
            self._answered(started_s)
            raise
        self.figures.answered += 1
        self.figures.latency_s += self._clock() - started_s
        self._answered(started_s)
        return elements

    async def _in_time(self, request: Coroutine[Any, Any, T]) -> T:
        limit_s = self.limits.request_s
        work = asyncio.ensure_future(request)
        timer = asyncio.ensure_future(self._sleep(limit_s))
        try:
            await asyncio.wait({work, timer}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise Unreachable(f"{self.provider.shown} has not answered within {limit_s:g} s")
            return work.result()
        finally:
            timer.cancel()
            if work.done():
                _look_at(work)  # the caller may have been cancelled before it has
            else:
                work.add_done_callback(_look_at)
                work.cancel()

    # Whether it is there. A failure may be that of a connection that has grown old, as may others of the same moment:
    # what counts is a request that was made after the first failure. Likewise an answer to what was asked before the
    # provider went away does not mean that it is back.

    @property
    def away(self) -> str:
        """Why the provider is away, as the log has said; empty while it is there."""
        return self._why_away if self._said_away else ""

    def _failed(self, error: Unreachable, started_s: float, *, is_certain: bool = False) -> None:
        self.figures.failures += 1
        self._breaker.failed()
        self._why_away = str(error)
        if self._away_since_s is None:
            self._away_since_s = self._clock()
        elif started_s >= self._away_since_s:
            is_certain = True
        if is_certain and not self._said_away:
            self._said_away = True
            log.warning("table %r is away: %s; it is asked again until it is back", self.table, error)

    def _answered(self, started_s: float) -> None:
        self._breaker.answered()
        if self._said_away and self._away_since_s is not None:
            if started_s < self._away_since_s:
                return
            away_s = self._clock() - self._away_since_s
            log.warning("table %r is back: %s answers again after %.1f s", self.table, self.provider.shown, away_s)
        self._away_since_s, self._said_away = None, False
