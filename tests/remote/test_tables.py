"""Lookups of an engine: strategies, the cache, providers that run in this process."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.node.engine.remote_memory import MISSING
from headwater.node.remote.call import CallProvider, FunctionFailed
from headwater.node.remote.file import FileProvider
from headwater.node.remote.guard import Limits
from headwater.node.remote.memory import ENTRY_BYTES, Memory
from headwater.node.remote.policies import POLICIES
from headwater.node.remote.provider import BadAnswer, Provider, ProviderError, Refused, Unreachable
from headwater.node.remote.sqlite import SqliteProvider
from headwater.node.remote.tables import Behind, Tables
from headwater.node.remote.threads import CALLS_MAX
from headwater.protocol.errors import ConfigError
from headwater.protocol.remote import RemoteTable, TableTerms, Versions
from tests.kit.patience import until

QUICK = Limits(pause_first_s=0.001, open_s=0.01, request_s=5.0)
every_strategy = pytest.mark.parametrize("strategy", POLICIES)


def tables(provider: Provider, strategy: str = "cache", **more: Any) -> Tables:
    return Tables({"t": Behind(provider, QUICK)}, strategy, **more)


def found(provider: Provider, *key: Any, ts: int = 0) -> Any:
    with tables(provider) as made:
        return made.by_name["t"].lookup(key, ts)


ODD_KEYS = (10**30, "\ud800", "a\0b", float("nan"), float("inf"), "", "é", "'; drop table limits; --", "%s", "{k}")
"""Keys that no table has, and that some servers cannot even be asked for."""


# --- strategies and the cache -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("strategy", "asked"), [("block", 4), ("cache", 2), ("hybrid", 2)])
def test_a_cache_spares_requests_for_absent_keys_too(strategy: str, asked: int) -> None:
    calls: list[str] = []

    def limit(org: str) -> int | None:
        calls.append(org)
        return 5 if org == "a" else None

    with tables(CallProvider(limit), strategy) as made:
        table = made.by_name["t"]
        assert [table.lookup((org,), 0) for org in "abab"] == [5, None, 5, None]
        assert len(calls) == asked
        (line,) = made.summary()
    assert f"remote t: {asked} requests, {4 - asked} hits, {asked} misses, mean latency" in line


def test_an_unknown_strategy_is_said_with_the_choices() -> None:
    with pytest.raises(
        ConfigError, match=r"no remote strategy 'cahce'; did you mean cache\? write one of block, cache, last"
    ):
        Tables({}, "cahce")


def supplied(memory: Memory, key: str, element: Versions | None) -> None:
    memory.want("t", (key,))
    assert memory.take_wanted() == [("t", (key,))]
    assert memory.supply("t", (key,), element)


def kept(memory: Memory, keys: str) -> list[str]:
    find = memory.finder("t")
    return [key for key in keys if find((key,)) is not MISSING]


def test_the_least_recently_used_elements_make_room_by_bytes() -> None:
    memory = Memory(["t"], cache_bytes=3 * (ENTRY_BYTES + 100))
    for key in "abc":
        supplied(memory, key, Versions.always("x" * 92))
    assert kept(memory, "a") == ["a"]
    supplied(memory, "d", Versions.always("x" * 92))
    assert kept(memory, "abcd") == ["a", "c", "d"]
    supplied(memory, "e", None)
    assert len(kept(memory, "abcde")) == 3
    assert memory.kept_bytes <= memory.cache_bytes


def test_an_element_larger_than_the_cache_is_not_kept() -> None:
    memory = Memory(["t"], cache_bytes=1000)
    supplied(memory, "a", None)
    supplied(memory, "b", Versions.always("x" * 1000))
    assert kept(memory, "ab") == ["a"]


def test_an_element_that_was_not_asked_for_is_not_taken() -> None:
    memory = Memory(["t"])
    assert not memory.supply("t", ("a",), None)
    assert kept(memory, "a") == []


def test_elements_that_are_used_for_a_while_free_their_room_afterwards() -> None:
    now_s = [0.0]
    memory = Memory(["t", "u"], terms={"t": TableTerms(10_000_000)}, clock=lambda: round(1e6 * now_s[0]))
    supplied(memory, "a", Versions.always(1))
    now_s[0] = 10.0
    assert kept(memory, "a") == ["a"]
    now_s[0] = 10.1
    assert kept(memory, "a") == []
    assert memory.kept_bytes == 0
    supplied(memory, "a", Versions.always(2))
    assert kept(memory, "a") == ["a"]


def test_fresh_elements_are_asked_for_again_when_they_are_old() -> None:
    now_s, calls = [0.0], []

    def limit(org: str) -> float:
        calls.append(org)
        return len(calls)

    made = Tables({"t": Behind(CallProvider(limit), QUICK, terms=TableTerms(10_000_000))}, clock=lambda: now_s[0])
    with made:
        seen = []
        for now_s[0] in (0.0, 9.0, 11.0, 12.0):
            seen.append(made.by_name["t"].lookup(("a",), 0))
    assert seen == [1, 1, 2, 2]


def test_keys_compare_by_value() -> None:
    with tables(CallProvider(lambda key: str(key))) as made:
        assert [made.by_name["t"].lookup((key,), 0) for key in (1.0, 1, "1", 1.5)] == ["1", "1", "1", "1.5"]


def test_versions_answer_by_event_time() -> None:
    provider = CallProvider(lambda key: Versions.of([(None, 1), (10, 2)]))
    assert [found(provider, "a", ts=ts) for ts in (-5, 9, 10)] == [1, 1, 2]


# --- functions --------------------------------------------------------------------------------------------------------


def test_a_function_may_be_asynchronous() -> None:
    async def limit(org: str) -> list[str]:
        await asyncio.sleep(0)
        return [org, "x"]

    assert found(CallProvider(limit), "a") == ("a", "x")


def test_a_lookup_works_inside_of_a_running_loop_as_in_a_notebook() -> None:
    async def cell() -> Any:
        return found(CallProvider(lambda key: key), "a")

    assert asyncio.run(cell()) == "a"


def test_failures_that_a_retry_heals_do_not_show() -> None:
    tries: list[str] = []

    def shaky(org: str) -> int:
        tries.append(org)
        if len(tries) % 3:
            raise ConnectionResetError("reset by peer")
        return 3

    assert found(CallProvider(shaky), "a") == 3
    assert len(tries) == 3


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda key: 1 / 0, FunctionFailed, r"failed for \('a',\): ZeroDivisionError: division by zero"),
        (lambda key: object(), BadAnswer, r"answered with a object; a value is a number, a string"),
        (lambda key: [1, [2]], BadAnswer, r"answered with a list; a value is"),
        (lambda key: "x" * 10_000_001, BadAnswer, r"answered with more than 10,000,000 bytes; narrow down"),
        (lambda one, other: 1, Refused, r"a key of the table 't' has 2 values, not 1"),
        (lambda key: next(iter(())), FunctionFailed, r"StopIteration"),
    ],
)
def test_a_function_that_is_wrong_is_said_in_a_sentence(
    call: Callable[..., Any], error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error, match=sentence) as said:
        found(CallProvider(call), "a")
    assert "\n" not in str(said.value)


def test_a_function_that_never_returns_is_given_up() -> None:
    never = threading.Event()
    limits = Limits(request_s=0.02, tries=2, pause_first_s=0.001, wait_s=0.0)
    with (
        Tables({"t": Behind(CallProvider(lambda key: never.wait()), limits)}) as made,
        pytest.raises(Unreachable, match=r"has not answered within 0\.02 s; gave up"),
    ):
        made.by_name["t"].lookup(("a",), 0)
    never.set()


def test_calls_that_never_return_are_not_made_without_end() -> None:
    never = threading.Event()
    before = threading.active_count()
    limits = Limits(request_s=0.001, tries=200, pause_first_s=0.0, pause_most_s=0.0, failures_max=1000, wait_s=0.0)
    with Tables({"t": Behind(CallProvider(lambda key: never.wait()), limits)}) as made:
        with pytest.raises(Unreachable, match=rf"failed: TimeoutError: {CALLS_MAX} calls have not returned"):
            made.by_name["t"].lookup(("a",), 0)
        assert threading.active_count() - before <= CALLS_MAX + 1
        never.set()

        def is_answered() -> bool:
            with suppress(Unreachable):
                return made.by_name["t"].lookup(("b",), 0) is True
            return False

        until(is_answered, "calls that return make room for others")


# --- SQLite and files -------------------------------------------------------------------------------------------------


@pytest.fixture
def cards(tmp_path: Path) -> str:
    file = tmp_path / "cards.db"
    with sqlite3.connect(file) as made:
        made.executescript("""
            create table limits (org text, max_limit real);
            insert into limits values ('acme', 100), ('umbrella', 5.5), ('initech', null);
            create table places (user text, place text, ts integer);
            insert into places values ('u', 'rome', null), ('u', 'oslo', 10), ('u', 'bern', 10);
            create table blobs (k text, v blob);
            insert into blobs values ('a', x'00ff');
            create table two (a int, b text, v int);
            insert into two values (1, 'x', 7);
        """)
    made.close()
    return str(file)


def test_sqlite_gives_the_value_of_a_key(cards: str) -> None:
    provider = SqliteProvider(cards, "select max_limit from limits where org = ?", ["org"])
    assert [found(provider, org) for org in ("acme", "umbrella", "initech", "none")] == [100, 5.5, None, None]
    assert found(SqliteProvider(cards, "select v from two where a = ? and b = ?", ["a", "b"]), 1.0, "x") == 7


def test_sqlite_gives_versions_and_collections(cards: str) -> None:
    provider = SqliteProvider(cards, "select place, ts from places where user = ?", ["user"])
    assert [found(provider, "u", ts=ts) for ts in (9, 10)] == ["rome", ("oslo", "bern")]


def test_sqlite_is_asked_for_many_keys_at_once_where_the_query_allows_it(cards: str) -> None:
    query = "select org, max_limit from limits where org in (select value from json_each(?))"
    provider = SqliteProvider(cards, query, ["org"])

    async def fetch() -> Any:
        await provider.check()
        return await provider.fetch([("acme",), ("umbrella",), ("none",)])

    assert {key: each.at(0) for key, each in asyncio.run(fetch()).items()} == {("acme",): 100, ("umbrella",): 5.5}
    assert provider.batch_max > 1


def test_what_sqlite_cannot_hold_it_does_not_have(cards: str) -> None:
    provider = SqliteProvider(cards, "select max_limit from limits where org = ?", ["org"])
    assert [found(provider, key) for key in ODD_KEYS] == [None] * len(ODD_KEYS)


@pytest.mark.parametrize(
    ("query", "keys", "error", "sentence"),
    [
        ("select x from nowhere where org = ?", ["org"], Refused, "no such table: nowhere"),
        ("select nix from limits where org = ?", ["org"], Refused, "no such column: nix"),
        ("delete from limits where org = ? returning 1", ["org"], Refused, "the query of SQLite .* writes"),
        ("insert into limits values (?, 1)", ["org"], Refused, "the query of SQLite .* writes"),
        ("selec 1 where 1 = ?", ["org"], Refused, "syntax error"),
        ("select max_limit from limits where org = ?", ["org", "card"], Refused, r"has 1 place for a key \(\?\)"),
        ("select max_limit from limits where '?' = 1", ["org"], Refused, r"has 0 places for a key"),
        ("select max_limit, max_limit + 1 from limits where org = ?", ["org"], Refused, "2 columns for the value"),
        ("select org from limits where org = ?", ["org"], Refused, "no column for the value"),
        ("select v from blobs where k = ? or 1", ["k"], BadAnswer, "answered with a bytes"),
        ("select k, v from blobs where k <> ?", ["k"], BadAnswer, r"for the key \('a',\), which it was not asked for"),
        ("select ?1 || printf('%.*c', 10000001, 'x') v", ["k"], BadAnswer, "more than 10,000,000 bytes"),
        ("select 1 v, 'soon' ts where ? = 'acme' or 1", ["k"], BadAnswer, "ts 'soon' is neither"),
    ],
)
def test_what_is_wrong_with_a_query_is_said_in_a_sentence(
    cards: str, query: str, keys: list[str], error: type[ProviderError], sentence: str
) -> None:
    with pytest.raises(error, match=sentence) as said:
        found(SqliteProvider(cards, query, keys), "other")
    assert "\n" not in str(said.value)


def test_a_file_that_is_no_database_or_not_there_is_said(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("no database " * 100)
    for name, sentence in (("none.db", "there is no file"), ("text.db", "file is not a database")):
        provider = SqliteProvider(str(tmp_path / name), "select 1 where 1 = ?", ["k"])
        with tables(provider) as made, pytest.raises(Refused, match=f"table 't': .*{sentence}"):
            made.check()
    assert not (tmp_path / "none.db").exists()


def test_a_query_without_end_is_interrupted(cards: str) -> None:
    endless = "with recursive n(i) as (select 1 union all select i + 1 from n) select count(*) from n where i <> ?"
    limits = Limits(request_s=0.05, tries=1, wait_s=0.0)
    started_s = time.monotonic()
    with (
        Tables({"t": Behind(SqliteProvider(cards, endless, ["k"]), limits)}) as made,
        pytest.raises(Unreachable, match=r"has not answered within 0\.05 s"),
    ):
        made.by_name["t"].lookup(("a",), 0)
    assert time.monotonic() - started_s < 60, "it came back at all"


def test_a_file_answers_as_a_provider_too(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("key,value\n1,a\n2,b\n")
    provider = FileProvider(str(tmp_path / "t.csv"))
    assert [found(provider, key) for key in (1.0, 2, 3)] == ["a", "b", None]
    with pytest.raises(Refused, match="there is no file"), tables(FileProvider(str(tmp_path / "none.csv"))) as made:
        made.check()


# --- from Python ------------------------------------------------------------------------------------------------------

RULE = "X: SEQ(A a) WHERE a.v > REMOTE.limits[a.k] WITHIN 1 s RETURN X(v = a.v)"
EVENTS = [{"type": "A", "ts": ts, "k": k, "v": 5} for ts, k in enumerate(("acme", "umbrella", "initech", "acme"))]


@every_strategy
def test_an_engine_takes_data_functions_providers_and_descriptions(cards: str, strategy: Any) -> None:
    data = {"acme": 4, "umbrella": 9}
    query = "select 4 v where ? = 'acme'"

    async def looked_up(org: str) -> int | None:
        return data.get(org)

    for given in (
        data,
        data.get,
        lambda org: data.get(org),
        looked_up,
        RemoteTable.from_mapping(data),
        CallProvider(data.get),
        {"sqlite": cards, "query": query, "keys": ["org"]},
        {"sqlite": cards, "query": query, "keys": "org", "fresh": "10min"},
    ):
        engine = hw.Engine(RULE, remote={"limits": given}, remote_strategy=strategy)
        assert [match.ts for match in engine.run(EVENTS)] == [0, 3], given


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (5, r"remote\['limits'\] is int; give a function, a provider, a description"),
        ({"sqlite": "x.db"}, r"remote\['limits'\]:1:1: the table has no query:"),
        ({"sqlite": "x.db", "querry": "", "keys": []}, r"did you mean 'query'\?"),
    ],
)
def test_what_is_no_table_is_said(given: Any, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        hw.Engine(RULE, remote={"limits": given})


def test_a_provider_that_fails_ends_the_run_with_its_sentence() -> None:
    engine = hw.Engine(RULE, remote={"limits": lambda org: 1 / 0})
    with pytest.raises(ProviderError, match="ZeroDivisionError"):
        engine.run(EVENTS)
