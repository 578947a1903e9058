"""The guard around providers: no test takes real time."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from headwater.node.remote.guard import CIRCUITS, Circuit, Guard, Limits
from headwater.node.remote.provider import BadAnswer, Elements, Key, Provider, Refused, Unreachable
from headwater.protocol.remote import Versions
from tests.kit.virtual_time import VirtualTime

LIMITS = Limits(
    request_s=1.0, tries=3, failures_max=4, open_s=10.0, under_way_max=2, answer_bytes_max=1000, wait_s=100.0
)


class Scripted(Provider):
    """Does what it is told for each request: a number of seconds to take, or an error. Then it answers at once."""

    shown = "the scripted provider"
    key_length = 1

    def __init__(self, time: VirtualTime, *script: float | Exception, value: Any = 7, batch_max: int = 1) -> None:
        self.time = time
        self.script = list(script)
        self.value = value
        self.batch_max = batch_max
        self.requests: list[list[Key]] = []
        self.at_once = self.most_at_once = 0

    async def fetch(self, keys: Sequence[Key]) -> Elements:
        self.requests.append(list(keys))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            todo = self.script.pop(0) if self.script else 0
            if isinstance(todo, Exception):
                raise todo
            if todo:
                await self.time.sleep(todo)
            return {key: Versions.always(self.value) for key in keys if key != ("absent",)}
        finally:
            self.at_once -= 1


def guarded(time: VirtualTime, provider: Provider, limits: Limits = LIMITS) -> Guard:
    return Guard(provider, limits, table="limits", clock=time.clock, sleep=time.sleep, rng=random.Random(1))


def away(text: str = "gone") -> Unreachable:
    return Unreachable(text)


async def outcome(guard: Guard, *keys: str) -> Any:
    try:
        return {key[0]: found and found.at(0) for key, found in (await guard.fetch([(key,) for key in keys])).items()}
    except (Unreachable, Refused, BadAnswer) as error:
        return error


def test_a_key_that_the_provider_does_not_have_is_an_answer() -> None:
    time = VirtualTime()
    provider = Scripted(time)
    assert time.run(outcome(guarded(time, provider), "a", "absent")) == {"a": 7, "absent": None}


def test_a_request_that_takes_too_long_is_ended_and_tried_again() -> None:
    time = VirtualTime()
    provider = Scripted(time, 5.0, 0.5)
    guard = guarded(time, provider)
    assert time.run(outcome(guard, "a")) == {"a": 7}
    assert (guard.figures.requests, guard.figures.failures, guard.figures.answered) == (2, 1, 1)
    assert 1.5 < time.now_s < 1.7, "the limit, a pause and half a second"
    assert guard.figures.mean_s == 0.5


def test_pauses_double_and_have_some_chance_in_them() -> None:
    time = VirtualTime()
    guard = guarded(time, Scripted(time, *[away()] * 3))
    error = time.run(outcome(guard, "a"))
    assert isinstance(error, Unreachable)
    first, second = [seconds for seconds in time.slept if seconds != LIMITS.request_s]
    assert 0.05 <= first <= 0.15
    assert 0.1 <= second <= 0.3
    assert {first, second}.isdisjoint({0.1, 0.2})


@pytest.mark.parametrize("error", [Refused("wrong password"), BadAnswer("garbage")])
def test_what_would_fail_again_is_not_tried_again(error: Exception) -> None:
    time = VirtualTime()
    provider = Scripted(time, error)
    guard = guarded(time, provider)
    assert time.run(outcome(guard, "a")) is error
    assert len(provider.requests) == guard.figures.refusals == 1


def test_the_breaker_opens_after_failures_in_a_row_and_lets_one_request_try() -> None:
    time = VirtualTime()
    provider = Scripted(time, *[away()] * 5)
    guard = guarded(time, provider)

    async def story() -> list[int]:
        asked = []
        for pause_s in (0.0, 0.0, 0.0, 20.0, 0.0, 20.0):
            await time.sleep(pause_s)
            await outcome(guard, "a")
            asked.append(len(provider.requests))
        return asked

    # Three tries; one more opens it; none while it is open; one after its pause fails; none; one is answered.
    assert time.run(story()) == [3, 4, 4, 5, 5, 6]


def test_the_table_of_circuits_is_complete() -> None:
    reachable = {Circuit.CLOSED}
    for _ in Circuit:
        reachable |= {after for (before, _), after in CIRCUITS.items() if before in reachable}
    assert reachable == set(Circuit)


def test_equal_keys_at_the_same_time_are_one_request() -> None:
    time = VirtualTime()
    provider = Scripted(time, 0.5)
    guard = guarded(time, provider)

    async def three() -> list[Any]:
        return await asyncio.gather(*(outcome(guard, "a") for _ in range(3)))

    assert time.run(three()) == [{"a": 7}] * 3
    assert provider.requests == [[("a",)]]


def test_one_who_gives_up_does_not_end_the_request_of_another() -> None:
    time = VirtualTime()
    guard = guarded(time, Scripted(time, 0.5))

    async def two() -> Any:
        first, second = asyncio.ensure_future(outcome(guard, "a")), asyncio.ensure_future(outcome(guard, "a"))
        await asyncio.sleep(0)
        first.cancel()
        return await second

    assert time.run(two()) == {"a": 7}


def test_requests_under_way_are_bounded() -> None:
    time = VirtualTime()
    provider = Scripted(time, *[0.5] * 10)
    time.run(outcome(guarded(time, provider), *map(str, range(10))))
    assert len(provider.requests) == 10
    assert provider.most_at_once == LIMITS.under_way_max


def test_many_keys_go_into_as_few_requests_as_the_provider_allows() -> None:
    time = VirtualTime()
    provider = Scripted(time, batch_max=4)
    time.run(outcome(guarded(time, provider), *map(str, range(10))))
    assert [len(keys) for keys in provider.requests] == [4, 4, 2]


def test_an_answer_that_is_too_large_is_refused_with_a_sentence() -> None:
    time = VirtualTime()
    error = time.run(outcome(guarded(time, Scripted(time, value="x" * 1001)), "a"))
    assert isinstance(error, BadAnswer)
    assert "the scripted provider answered with more than 1,000 bytes" in str(error)


def test_an_answer_nobody_asked_for_is_refused() -> None:
    class Chatty(Scripted):
        async def fetch(self, keys: Sequence[Key]) -> Elements:
            return {("other",): Versions.always(1)}

    time = VirtualTime()
    assert "keys that it was not asked for" in str(time.run(outcome(guarded(time, Chatty(time)), "a")))


def test_a_key_of_another_length_is_refused_before_anything_is_asked() -> None:
    time = VirtualTime()
    provider = Scripted(time)
    guard = guarded(time, provider)

    async def ask() -> None:
        await guard.fetch([("a", "b")])

    with pytest.raises(Refused, match=r"a key of the table 'limits' has 1 value, not 2; look up 1 value"):
        time.run(ask())
    assert not provider.requests


def waited(time: VirtualTime, guard: Guard) -> Callable[[], Any]:
    return lambda: time.run(guard.fetch_when_there([("a",)]))


def test_one_who_needs_an_element_waits_until_the_provider_is_back(caplog: pytest.LogCaptureFixture) -> None:
    time = VirtualTime()
    guard = guarded(time, Scripted(time, *[away("it is gone")] * 9))
    with caplog.at_level(logging.WARNING, "headwater.remote"):
        found = waited(time, guard)()
    assert found[("a",)].at(0) == 7
    assert [record.getMessage() for record in caplog.records] == [
        "table 'limits' is away: it is gone; it is asked again until it is back",
        f"table 'limits' is back: the scripted provider answers again after {time.now_s:.1f} s",
    ]
    assert 30 < time.now_s < 100


def test_one_failure_that_a_retry_heals_is_not_spoken_of(caplog: pytest.LogCaptureFixture) -> None:
    time = VirtualTime()
    waited(time, guarded(time, Scripted(time, away())))()
    assert not caplog.records


def test_waiting_has_an_end() -> None:
    time = VirtualTime()
    with pytest.raises(Unreachable, match=r"gave up after 1\d\d s"):
        waited(time, guarded(time, Scripted(time, *[away()] * 1000)))()


def test_a_server_that_asks_for_patience_gets_it() -> None:
    time = VirtualTime()
    assert time.run(outcome(guarded(time, Scripted(time, Unreachable("busy", after_s=30.0))), "a")) == {"a": 7}
    assert time.now_s == 30.0


def test_connections_that_have_grown_old_together_are_nothing_to_speak_of(caplog: pytest.LogCaptureFixture) -> None:
    time = VirtualTime()
    guard = guarded(time, Scripted(time, 5.0, 5.0))

    async def story() -> list[Any]:
        return list(await asyncio.gather(outcome(guard, "a"), outcome(guard, "b")))

    with caplog.at_level(logging.WARNING):
        assert time.run(story()) == [{"a": 7}, {"b": 7}]
    assert guard.figures.failures == 2
    assert caplog.messages == []


def test_an_answer_to_what_was_asked_before_does_not_mean_that_it_is_back(caplog: pytest.LogCaptureFixture) -> None:
    time = VirtualTime()
    guard = guarded(time, Scripted(time, 0.9, *[away("it is gone")] * 3))

    async def later() -> Any:
        await time.sleep(0.1)
        return await outcome(guard, "b")

    async def story() -> list[str]:
        early, failed = await asyncio.gather(outcome(guard, "a"), later())
        assert early == {"a": 7}
        assert isinstance(failed, Unreachable)
        before = list(caplog.messages)
        assert await outcome(guard, "c") == {"c": 7}
        return before

    with caplog.at_level(logging.WARNING):
        before = time.run(story())
    assert before == ["table 'limits' is away: it is gone; it is asked again until it is back"]
    assert [message[:22] for message in caplog.messages[1:]] == ["table 'limits' is back"]
