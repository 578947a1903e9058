"""The providers of a node process: what the journal and the log get of their answers, refusals and absences."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from headwater.node.daemon import fetching
from headwater.node.daemon import journal_records as records
from headwater.node.daemon.fetching import Fetching
from headwater.node.remote.encoding import decode_elements
from headwater.node.remote.guard import Limits
from headwater.node.remote.provider import BadAnswer, Elements, Key, Provider, Refused, Unreachable
from headwater.node.remote.tables import Behind
from headwater.protocol.network import DescribedTable
from headwater.protocol.remote import Versions
from tests.kit.patience import patiently, soon

QUICK = Limits(pause_first_s=0.001, pause_most_s=0.002, open_s=0.002)


class Scripted(Provider):
    """Raises what ``wrong`` says for a key or for the check, else answers with the key."""

    shown = "the server"
    batch_max = 10

    def __init__(self) -> None:
        self.wrong: dict[str, Exception] = {}
        self.asked: list[list[Key]] = []

    async def check(self) -> None:
        if "check" in self.wrong:
            raise self.wrong["check"]

    async def fetch(self, keys: Sequence[Key]) -> Elements:
        self.asked.append(list(keys))
        for (key,) in keys:
            if str(key) in self.wrong:
                raise self.wrong[str(key)]
        return {key: Versions.always(key[0]) for key in keys if key != ("none",)}


class Around:
    """A process with one table, of which only the fetching is real."""

    def __init__(self, provider: Provider, limits: Limits = QUICK) -> None:
        self.records: list[Any] = []
        daemon: Any = SimpleNamespace(
            apply=self.records.append,
            now_us=lambda: 1,
            machine=SimpleNamespace(core=None),
            loop=asyncio.get_running_loop(),
        )
        self.fetching = Fetching(daemon, lambda name, description: Behind(provider, limits))
        config: Any = SimpleNamespace(tables=(DescribedTable("limits", "{}"),))
        self.fetching.follow(config)

    def fetch(self, *keys: str) -> None:
        self.fetching.fetch([("limits", (key,)) for key in keys])

    def fetched(self) -> dict[str, Any]:
        found = [decode_elements(record.elements) for record in self.records if isinstance(record, records.Fetched)]
        return {str(key[0]): element and element.at(0) for elements in found for _, key, element in elements}

    def failures(self) -> int:
        return sum(isinstance(record, records.FetchFailed) for record in self.records)


def run(scenario: Callable[[Scripted, Around], Awaitable[None]], limits: Limits = QUICK, **wrong: Exception) -> None:
    async def work() -> None:
        provider = Scripted()
        provider.wrong |= wrong
        around = Around(provider, limits)
        async with patiently():
            await scenario(provider, around)
        await around.fetching.close()

    asyncio.run(work())


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "TRIED_AGAIN_S", (0.001, 0.01))


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.WARNING)
    return lambda: [record.getMessage() for record in caplog.records]


def test_an_outage_leaves_nothing_in_the_journal_and_one_line_for_its_beginning_and_its_end(
    said: Callable[[], list[str]],
) -> None:
    async def scenario(provider: Scripted, around: Around) -> None:
        around.fetch("a", "none")
        await soon(lambda: len(around.fetched()) == 2)
        provider.wrong = {key: Unreachable("it does not answer") for key in "bcd"}
        for key in "bcd":
            around.fetch(key)
        await soon(lambda: len(provider.asked) > 20, "it was asked many times")
        assert around.fetching.shown() == {"limits": {"provider": "the server", "wrong": "it does not answer"}}
        provider.wrong = {}
        await soon(lambda: len(around.fetched()) == 5)
        assert around.fetched() == {"a": "a", "none": None, "b": "b", "c": "c", "d": "d"}
        assert around.failures() == 0
        assert around.fetching.shown() == {"limits": {"provider": "the server", "wrong": ""}}

    run(scenario)
    away, back = said()
    assert away == "table 'limits' is away: it does not answer; it is asked again until it is back"
    assert back.startswith("table 'limits' is back: the server answers again after ")


def test_the_core_hears_of_an_outage_that_outlasts_the_wait_of_the_table() -> None:
    async def scenario(provider: Scripted, around: Around) -> None:
        around.fetch("a")
        await soon(lambda: around.failures() == 1)

    run(scenario, limits=Limits(pause_first_s=0.001, open_s=0.002, wait_s=0.0), a=Unreachable("it does not answer"))


def test_a_provider_that_is_away_at_the_start_is_said_to_be_back_although_nothing_is_asked(
    said: Callable[[], list[str]],
) -> None:
    async def scenario(provider: Scripted, around: Around) -> None:
        assert around.fetching.shown() == {"limits": {"provider": "the server", "wrong": None}}
        await soon(lambda: around.fetching.shown()["limits"]["wrong"] == "it does not answer")
        provider.wrong = {}
        await soon(lambda: around.fetching.shown()["limits"]["wrong"] == "")
        assert provider.asked == []

    run(scenario, check=Unreachable("it does not answer"))
    away, back = said()
    assert away == "table 'limits' is away: it does not answer; it is asked again until it is back"
    assert back.startswith("table 'limits' is back: the server answers again after ")


def test_a_refusal_at_the_start_is_said_once_and_so_is_that_it_is_over(said: Callable[[], list[str]]) -> None:
    async def scenario(provider: Scripted, around: Around) -> None:
        await soon(lambda: around.fetching.shown()["limits"]["wrong"] == "wrong credentials")
        await asyncio.sleep(0.02)
        provider.wrong = {}
        await soon(lambda: around.fetching.shown()["limits"]["wrong"] == "")

    run(scenario, check=Refused("wrong credentials"))
    assert said() == [
        "table 'limits' cannot be used: wrong credentials; what looks into it waits",
        "table 'limits' can be used again",
    ]


def test_a_key_that_is_refused_for_ever_is_said_once_whatever_else_is_answered(said: Callable[[], list[str]]) -> None:
    async def scenario(provider: Scripted, around: Around) -> None:
        for number in range(20):
            around.fetch("odd")
            await soon(lambda number=number: around.failures() == number + 1)  # type: ignore[misc]
            around.fetch(f"k{number}")
            await soon(lambda number=number: f"k{number}" in around.fetched())  # type: ignore[misc]
        provider.wrong = {}
        around.fetch("odd")
        await soon(lambda: "odd" in around.fetched())

    run(scenario, odd=BadAnswer("the server answered with a dict"))
    assert said() == [
        "table 'limits' cannot be used: the server answered with a dict; what looks into it waits",
        "table 'limits' can be used again",
    ]


def test_a_mistake_in_a_provider_is_logged_as_a_bug_and_asked_again(said: Callable[[], list[str]]) -> None:
    async def scenario(provider: Scripted, around: Around) -> None:
        around.fetch("a")
        await soon(lambda: around.failures() == 1)

    run(scenario, a=KeyError("a"))
    assert said() == ["table 'limits': an unexpected error (a bug)"]
