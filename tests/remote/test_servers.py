"""Providers against real servers, which die and come back while an engine runs."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.deploy.cli.command import main
from headwater.deploy.descriptions.remote import described
from headwater.node.remote.guard import Guard, Limits
from headwater.node.remote.policies import POLICIES
from headwater.node.remote.provider import BadAnswer, Provider, ProviderError, Refused, Unreachable
from headwater.node.remote.tables import Behind, Tables
from headwater.protocol.remote import LookupTable
from tests.kit.patience import run_to_its_end, until
from tests.kit.ports import free_port
from tests.kit.remote_servers import (
    NO_POSTGRES,
    NO_REDIS,
    PASSWORD,
    POSTGRES,
    REDIS,
    Postgres,
    RedisServer,
    Server,
    WebServer,
    needs_postgres,
    needs_redis,
    running,
)
from tests.remote.test_tables import ODD_KEYS

ORGS = 40
QUICK = Limits(pause_first_s=0.01, pause_most_s=0.05, open_s=0.05, request_s=10.0)


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    if POSTGRES is None:
        pytest.skip(NO_POSTGRES)
    server = Postgres()
    server.start()
    rows = ", ".join(f"('o{n}', {n}, {n}.5)" for n in range(ORGS))
    server.run(f"""
        create table limits (org text, id int, max_limit numeric);
        insert into limits values {rows};
        create table places (usr text, place text[], ts timestamptz);
        insert into places values ('u', array['rome'], null), ('u', array['oslo', 'bern'], '1970-01-01T00:00:01Z');
        create role nobody login password 'x';
    """)
    yield server
    server.delete()


@pytest.fixture
def secret(tmp_path: Path) -> str:
    (tmp_path / "secret").write_text(PASSWORD + "\n")
    return str(tmp_path / "secret")


def behind(description: dict[str, Any]) -> Behind:
    """As it is described, but impatient."""
    made = described("t", json.dumps(description))
    assert isinstance(made, Behind)
    return Behind(made.provider, QUICK)


def on_postgres(server: Postgres, secret: str, query: str, keys: list[str] | None = None, **more: Any) -> Behind:
    given = {"postgres": server.dsn, "query": query, "keys": keys or ["org"], "password_file": secret}
    return behind(given | more)


def looked_up(table: Behind, *keys: Any, ts: int = 0) -> list[Any]:
    with Tables({"t": table}) as made:
        return [made.by_name["t"].lookup(key if isinstance(key, tuple) else (key,), ts) for key in keys]


def fetched(provider: Provider, *keys: Any) -> tuple[dict[Any, Any], int]:
    """What is found for keys that are asked for together, and in how many requests."""

    async def fetch() -> tuple[dict[Any, Any], int]:
        guard = Guard(provider, QUICK, table="t")
        try:
            await guard.check()
            found = await guard.fetch([(key,) for key in keys])
            return {key[0]: each and each.at(0) for key, each in found.items()}, guard.figures.requests
        finally:
            await guard.close()

    return asyncio.run(fetch())


# --- PostgreSQL -------------------------------------------------------------------------------------------------------


def test_postgres_gives_values_collections_and_versions(postgres: Postgres, secret: str) -> None:
    one = on_postgres(postgres, secret, "select max_limit from limits where org = %s")
    assert looked_up(one, "o1", "o7", "none") == [1.5, 7.5, None]
    several = on_postgres(postgres, secret, "select max_limit from limits where org = any(%s)")
    assert looked_up(several, "o1", "o7", "none") == [1.5, 7.5, None]
    two = on_postgres(postgres, secret, "select max_limit from limits where org = %s and id = %s", ["org", "id"])
    assert looked_up(two, ("o1", 1.0), ("o1", 2)) == [1.5, None]
    places = on_postgres(postgres, secret, "select place, ts from places where usr = %s", ["usr"])
    assert looked_up(places, "u", ts=999_999) == [("rome",)]
    assert looked_up(places, "u", ts=1_000_000) == [("oslo", "bern")]


def test_postgres_is_asked_for_many_keys_in_one_request(postgres: Postgres, secret: str) -> None:
    table = on_postgres(postgres, secret, "select org, max_limit from limits where org = any(%s)")
    found, requests = fetched(table.provider, *(f"o{n}" for n in range(ORGS + 5)))
    assert found == {f"o{n}": n + 0.5 if n < ORGS else None for n in range(ORGS + 5)}
    assert requests == 1
    table = on_postgres(postgres, secret, "select id, max_limit from limits where id = any(%s)", ["id"])
    assert fetched(table.provider, 1, 2.5, 2)[0] == {1: 1.5, 2.5: None, 2: 2.5}


def test_a_service_file_and_the_environment_work(
    postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = "\n".join(["[cards]", *postgres.dsn.split(), ""])
    (tmp_path / "services").write_text(service)
    monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))
    monkeypatch.setenv("CARDS_PASSWORD", PASSWORD)
    query = "select max_limit from limits where org = any(%s)"
    given = {"postgres": "service=cards", "query": query, "keys": ["org"], "password_env": "CARDS_PASSWORD"}
    assert looked_up(behind(given), "o3") == [3.5]


@pytest.mark.parametrize(
    ("query", "more", "error", "sentence"),
    [
        ("select x from nowhere where org = %s", {}, Refused, 'relation "nowhere" does not exist'),
        ("select x from limits where org = %s", {}, Refused, 'column "x" does not exist'),
        (
            "with gone as (delete from limits returning org) select 1 from gone where org = %s",
            {},
            Refused,
            "writes; a remote table is only read",
        ),
        ("select setval('s', 1) from limits where org = %s", {}, Refused, 'relation "s" does not exist'),
        ("select max_limit from limits where id = %s", {}, Refused, "operator does not exist|invalid input syntax"),
        ("select id, max_limit from limits where org = %s", {}, Refused, "2 columns for the value"),
        ("select repeat('x', 10000001) v where %s <> ''", {}, BadAnswer, "more than 10,000,000 bytes"),
        ("select repeat('x', 999) from generate_series(1, 20000) where %s <> ''", {}, BadAnswer, "10,000,000 bytes"),
        ("select now() v where %s <> ''", {}, BadAnswer, "answered with a datetime"),
        ("select pg_sleep(9) where %s <> ''", {"timeout": "200ms"}, Unreachable, "not answered|statement timeout"),
        ("select 1 where %s = ''", {"password_file": "/no/such/file"}, Refused, "cannot read the secret in /no/such"),
        ("select 1 where %s = ''", {"password_file": "/dev/null"}, Refused, "should hold a secret: one line"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_query_is_said_in_a_sentence(
    postgres: Postgres, secret: str, query: str, more: dict[str, Any], error: type[ProviderError], sentence: str
) -> None:
    table = on_postgres(postgres, secret, query, **more)
    limits = Limits(tries=1, wait_s=0.0, request_s=0.5 if "timeout" in more else 20.0)
    with Tables({"t": Behind(table.provider, limits)}) as made, pytest.raises(error, match=sentence) as said:
        made.by_name["t"].lookup(("o1",), 0)
    assert "\n" not in str(said.value)
    assert PASSWORD not in str(said.value) + repr(table)


@pytest.mark.parametrize(
    ("change", "error", "sentence"),
    [
        ({"user": "nobody"}, Refused, "does not accept these credentials: password authentication failed"),
        ({"user": "who"}, Refused, "does not accept these credentials"),
        ({"dbname": "nowhere"}, Refused, 'database "nowhere" does not exist'),
        ({"port": "1"}, Unreachable, "does not answer: .*refused"),
        ({"host": "no.such.host.invalid"}, Unreachable, "does not answer"),
        ({"service": "nowhere"}, Refused, "nowhere"),
        ({"odd": "x"}, Refused, "invalid connection option"),
    ],
)
def test_what_is_wrong_with_a_connection_is_said_at_the_start(
    postgres: Postgres, secret: str, change: dict[str, str], error: type[ProviderError], sentence: str
) -> None:
    parts = dict(part.split("=") for part in postgres.dsn.split()) | change
    given = {"query": "select 1 where %s = ''", "keys": ["org"], "password_file": secret}
    table = behind({"postgres": " ".join(f"{name}={value}" for name, value in parts.items())} | given)
    with pytest.raises(error, match=sentence) as said:
        fetched(table.provider)
    assert "\n" not in str(said.value)
    assert PASSWORD not in str(said.value)


# --- Redis ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    if REDIS is None:
        pytest.skip(NO_REDIS)
    server = RedisServer(tmp_path, PASSWORD)
    with running(server):
        for words in (
            ("mset", *(word for n in range(ORGS) for word in (f"limit:o{n}", n))),
            ("hset", "user:u", "spent", "2.5", "name", "Ann"),
            ("sadd", "places:u:1", "rome", "oslo"),
            ("set", "garbage", b"\xff\xfe"),
            ("set", "list", '["a", 1]'),
            ("set", "object", '{"a": 1}'),
            ("set", "huge", "x" * 10_000_001),
        ):
            server.execute(*words)
        yield server


def on_redis(server: RedisServer, secret: str, key: str, **more: Any) -> Behind:
    return behind({"redis": f"127.0.0.1:{server.port}/0", "key": key, "password_file": secret} | more)


@needs_redis
def test_redis_gives_strings_fields_sets_and_json(redis: RedisServer, secret: str) -> None:
    assert looked_up(on_redis(redis, secret, "limit:{org}", kind="int"), "o1", "o2", "none") == [1, 2, None]
    assert looked_up(on_redis(redis, secret, "limit:{org}"), "o1") == ["1"]
    assert looked_up(on_redis(redis, secret, "user:{u}", field="spent", kind="float"), "u", "v") == [2.5, None]
    places = on_redis(redis, secret, "places:{u}:{n}", members=True)
    assert looked_up(places, ("u", 1.0), ("u", 2)) == [("oslo", "rome"), None]
    assert looked_up(on_redis(redis, secret, "{k}", kind="json"), "list") == [("a", 1)]
    found, requests = fetched(on_redis(redis, secret, "limit:{o}", kind="int").provider, *(f"o{n}" for n in range(50)))
    assert found == {f"o{n}": n if n < ORGS else None for n in range(50)}
    assert requests == 1


@needs_redis
@pytest.mark.parametrize(
    ("key", "more", "error", "sentence"),
    [
        ("garbage", {"kind": "int"}, BadAnswer, "which is no int"),
        ("garbage", {}, BadAnswer, "which is no string"),
        ("object", {"kind": "json"}, BadAnswer, "answered with a dict"),
        ("huge", {}, BadAnswer, "more than 10,000,000 bytes"),
        ("garbage", {"field": "f"}, Refused, "WRONGTYPE"),
        ("garbage", {"password_file": "/dev/null"}, Refused, "should hold a secret"),
        ("garbage", {"password_file": "{other}"}, Refused, "does not accept these credentials"),
        ("garbage", {"redis": "127.0.0.1:1"}, Unreachable, "Redis 127.0.0.1:1 does not answer"),
        ("garbage", {"redis": "ftp://127.0.0.1:1"}, Refused, "is not an address of a Redis server"),
    ],
)
def test_what_is_wrong_with_redis_is_said_in_a_sentence(
    redis: RedisServer,
    secret: str,
    tmp_path: Path,
    key: str,
    more: dict[str, Any],
    error: type[Exception],
    sentence: str,
) -> None:
    (tmp_path / "other").write_text("another-password")
    more = {name: str(value).format(other=tmp_path / "other") for name, value in more.items()}
    table = on_redis(redis, secret, "{k}", **more)
    limits = Limits(tries=1, wait_s=0.0)
    with Tables({"t": Behind(table.provider, limits)}) as made, pytest.raises(error, match=sentence) as said:
        made.by_name["t"].lookup((key,), 0)
    assert "password" not in str(said.value).replace("username-password", "")
    assert "\n" not in str(said.value)


@needs_redis
def test_a_password_may_be_changed_while_redis_is_asked(redis: RedisServer, secret: str) -> None:
    async def story() -> list[Any]:
        guard = Guard(on_redis(redis, secret, "limit:{org}", kind="int").provider, QUICK, table="t")
        found = [await guard.fetch([("o1",)])]
        redis.execute("config", "set", "requirepass", "another")
        redis.password = "another"
        redis.execute("client", "kill", "type", "normal")  # connections from before would still be let in
        with pytest.raises(Refused, match="does not accept these credentials"):
            await guard.fetch([("o2",)])
        Path(secret).write_text("another")
        found.append(await guard.fetch([("o2",)]))
        await guard.close()
        return [each and each.at(0) for elements in found for each in elements.values()]

    assert asyncio.run(story()) == [1, 2]


def redis_with(password: str, server: RedisServer) -> RedisServer:
    server.password = password
    return server


@pytest.mark.parametrize(
    "kind", [pytest.param("postgres", marks=needs_postgres), pytest.param("redis", marks=needs_redis)]
)
def test_drivers_that_log_everything_show_no_password(
    kind: str, secret: str, caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest
) -> None:
    server: Any = request.getfixturevalue(kind)
    table = (
        on_postgres(server, secret, "select max_limit from limits where org = any(%s)")
        if kind == "postgres"
        else on_redis(server, secret, "limit:{org}", kind="float")
    )
    with caplog.at_level(logging.DEBUG):
        (value,) = looked_up(table, "o2")
        assert isinstance(value, int | float)
        server.kill()
        with pytest.raises(Unreachable):
            fetched(table.provider, "o3")
        server.start()
    assert PASSWORD not in caplog.text + repr(table)


# --- HTTP -------------------------------------------------------------------------------------------------------------

PAGES = {
    **{f"/limits/o{n}": [200, json.dumps({"org": f"o{n}", "max": {"limit": n}})] for n in range(ORGS)},
    "/users/a%2Fb%20c/places": [200, '{"places": ["rome", "oslo"]}'],
    "/many?ids=o1,o2,none": [200, '{"users": [{"id": "o2", "m": 2}, {"id": "o1", "m": 1}, {"id": "other", "m": 3}]}'],
    "/object?ids=1,2": [200, '{"1": 10, "3": 30}'],
    "/many?ids=0": [200, "{}"],
    "/object?ids=0": [200, "{}"],
    "/k/garbage": [200, "<html>"],
    "/k/object": [200, '{"a": {"b": 1}}'],
    "/k/huge": [200, 10_000_001],
    "/k/secret": [401, ""],
    "/k/forbidden": [403, ""],
    "/k/odd": [418, ""],
    "/k/moved": [301, ""],
    "/k/broken": [500, ""],
}


@pytest.fixture
def web(tmp_path: Path) -> Iterator[WebServer]:
    server = WebServer(tmp_path, PAGES)
    with running(server):
        yield server


def on_web(server: WebServer, path: str, **more: Any) -> Behind:
    return behind({"http": f"http://127.0.0.1:{server.port}{path}"} | more)


def test_http_gives_what_is_at_a_path_of_the_answer(web: WebServer) -> None:
    assert looked_up(on_web(web, "/limits/{org}", value="max.limit"), "o1", "o2", "none") == [1, 2, None]
    assert looked_up(on_web(web, "/users/{user}/places", value="places"), "a/b c") == [("rome", "oslo")]
    assert looked_up(on_web(web, "/users/{user}/places", value="places.1"), "a/b c") == ["oslo"]
    assert looked_up(on_web(web, "/users/{user}/places", value="nothing"), "a/b c") == [None]


def test_http_is_asked_for_many_keys_in_one_request(web: WebServer) -> None:
    table = on_web(web, "/many?ids={keys}", keys=["id"], items="users", value="m")
    assert fetched(table.provider, "o1", "o2", "none") == ({"o1": 1, "o2": 2, "none": None}, 1)
    table = on_web(web, "/object?ids={keys}", keys=["id"])
    assert fetched(table.provider, 1, 2) == ({1: 10, 2: None}, 1)


def test_a_token_is_sent_and_not_shown(web: WebServer, secret: str, caplog: pytest.LogCaptureFixture) -> None:
    table = on_web(web, "/limits/{org}", value="max.limit", token_file=secret)
    with caplog.at_level(logging.DEBUG):
        assert looked_up(table, "o1") == [1]
    assert web.requests == [f"/limits/o1 Bearer {PASSWORD}"]
    assert PASSWORD not in caplog.text + repr(table)


@pytest.mark.parametrize(
    ("key", "error", "sentence"),
    [
        ("garbage", BadAnswer, "something that is not JSON: '<html>'"),
        ("object", BadAnswer, "answered with a dict"),
        ("huge", BadAnswer, "more than 10,000,000 bytes"),
        ("secret", Refused, "does not accept these credentials: it answered 401"),
        ("forbidden", Refused, "it answered 403"),
        ("odd", Refused, "answered 418; look at the address"),
        ("moved", Refused, "answered 301"),
        ("broken", Unreachable, "answered 500"),
    ],
)
def test_what_is_wrong_with_a_web_server_is_said_in_a_sentence(
    web: WebServer, key: str, error: type[Exception], sentence: str
) -> None:
    table = on_web(web, "/k/{key}", value="a" if key == "object" else "")
    limits = Limits(tries=1, wait_s=0.0)
    with Tables({"t": Behind(table.provider, limits)}) as made, pytest.raises(error, match=sentence):
        made.by_name["t"].lookup((key,), 0)


def test_a_web_server_that_is_not_there_is_said() -> None:
    table = behind({"http": f"http://127.0.0.1:{free_port()}/{{k}}"})
    with pytest.raises(Unreachable, match=r"http://127\.0\.0\.1:\d+/\{k\} does not answer: Connection refused"):
        fetched(table.provider)


def test_an_engine_that_nobody_closes_leaves_without_a_word(web: WebServer) -> None:
    program = f"""if True:
        import headwater as hw
        limits = {{"http": "http://127.0.0.1:{web.port}/limits/{{org}}", "value": "max.limit"}}
        engine = hw.Engine("X: SEQ(A a) WHERE a.v > REMOTE.limits[a.k] WITHIN 1 s", remote={{"limits": limits}})
        print(len(engine.run([{{"type": "A", "ts": 1, "k": "o1", "v": 2}}])))
    """
    done = run_to_its_end([sys.executable, "-W", "always::ResourceWarning", "-c", program], text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")


# --- killed and started again in the middle of a run ------------------------------------------------------------------

RULE = """
    X: SEQ(A a, B b) WHERE SAME[org] AND b.v > REMOTE.limits[a.org] AND b.org NOT IN REMOTE.shut[b.org] WITHIN 1 s
    RETURN X(org = a.org, v = b.v)
"""


def events() -> list[dict[str, Any]]:
    made = []
    for n in range(ORGS + 3):
        made.append({"type": "A", "ts": 10 * n, "org": f"o{n}", "v": 0})
        made.append({"type": "B", "ts": 10 * n + 5, "org": f"o{n}", "v": 20})
    return made


class Interfering:
    """A table at hand, whose lookup of one key is the moment at which a server dies; it is back a while later."""

    def __init__(self, server: Server, until_seen: Callable[[], bool]) -> None:
        self.server = server
        self.until_seen = until_seen
        self.back: threading.Thread | None = None

    def lookup(self, arguments: tuple[Any, ...], ts: int) -> Any:
        if arguments == ("o15",) and self.back is None:
            self.server.kill()
            self.back = threading.Thread(target=self._return)
            self.back.start()
        return ()

    def _return(self) -> None:
        until(self.until_seen, "somebody misses the server")
        time.sleep(0.05)
        self.server.start()

    def key_lengths(self) -> set[int]:
        return {1}


@pytest.mark.parametrize(
    "kind", [pytest.param("postgres", marks=needs_postgres), pytest.param("redis", marks=needs_redis), "http"]
)
def test_keys_that_no_table_has_have_no_value(kind: str, secret: str, request: pytest.FixtureRequest) -> None:
    server: Any = request.getfixturevalue("web" if kind == "http" else kind)
    table = {
        "postgres": lambda: on_postgres(server, secret, "select max_limit from limits where org = any(%s::text[])"),
        "redis": lambda: on_redis(server, secret, "limit:{org}"),
        "http": lambda: on_web(server, "/limits/{org}", value="max.limit"),
    }[kind]()
    assert looked_up(table, *ODD_KEYS) == [None] * len(ODD_KEYS)


@pytest.mark.parametrize("strategy", POLICIES)
@pytest.mark.parametrize(
    "kind", [pytest.param("postgres", marks=needs_postgres), pytest.param("redis", marks=needs_redis), "http"]
)
def test_a_server_that_dies_and_comes_back_changes_no_result(
    kind: str, strategy: Any, secret: str, caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest
) -> None:
    server: Any = request.getfixturevalue("web" if kind == "http" else kind)
    table = {
        "postgres": lambda: on_postgres(server, secret, "select id from limits where org = any(%s)"),
        "redis": lambda: on_redis(server, secret, "limit:{org}", kind="int"),
        "http": lambda: on_web(server, "/limits/{org}", value="max.limit"),
    }[kind]()

    def said() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.name == "headwater.remote"]

    interfering = Interfering(server, lambda: bool(said()))
    at_hand: LookupTable = hw_table({f"o{n}": n for n in range(ORGS)})
    expected = [
        (each.ts, each.attributes)
        for each in hw.Engine(RULE, remote={"limits": at_hand, "shut": hw_table({f"o{n}": () for n in range(50)})}).run(
            events()
        )
    ]
    assert len(expected) == 20
    engine = hw.Engine(RULE, remote={"limits": table, "shut": interfering}, remote_strategy=strategy)
    with caplog.at_level(logging.WARNING):
        found = [(each.ts, each.attributes) for each in engine.run(events())]
    assert interfering.back is not None
    interfering.back.join()
    assert found == expected
    away, back = said()
    assert away.startswith("table 'limits' is away: ")
    assert away.endswith("; it is asked again until it is back")
    assert back.startswith("table 'limits' is back: ")
    assert PASSWORD not in away + back


@pytest.mark.parametrize("strategy", ["lazy", "hybrid"])
@pytest.mark.parametrize(
    "kind", [pytest.param("postgres", marks=needs_postgres), pytest.param("redis", marks=needs_redis), "http"]
)
def test_events_are_taken_while_a_server_is_away(
    kind: str, strategy: Any, secret: str, caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest
) -> None:
    server: Any = request.getfixturevalue("web" if kind == "http" else kind)
    table = {
        "postgres": lambda: on_postgres(server, secret, "select org, id from limits where org = any(%s)"),
        "redis": lambda: on_redis(server, secret, "limit:{org}", kind="int"),
        "http": lambda: on_web(server, "/limits/{org}", value="max.limit"),
    }[kind]()
    shut = hw_table({f"o{n}": () for n in range(50)})
    at_hand = hw_table({f"o{n}": n for n in range(ORGS)})
    expected = [match.id for match in hw.Engine(RULE, remote={"limits": at_hand, "shut": shut}).run(events())]
    engine = hw.Engine(RULE, remote={"limits": table, "shut": shut}, remote_strategy=strategy)
    before, after = events()[:20], events()[20:]
    found = engine.feed(before)
    found += engine.settle()
    assert len(found) == 10, "the server was there"
    server.kill()
    with caplog.at_level(logging.WARNING):
        assert engine.feed(after) == []
        until(lambda: bool(caplog.records), "the server is missed")
        server.start()
        found += engine.close()
    assert sorted(match.id for match in found) == sorted(expected)
    away, back = (record.getMessage() for record in caplog.records if record.name == "headwater.remote")
    assert away.startswith("table 'limits' is away: ")
    assert back.startswith("table 'limits' is back: ")


def hw_table(data: dict[str, Any]) -> LookupTable:
    from headwater.protocol.remote import RemoteTable

    return RemoteTable.from_mapping(data)


def test_check_says_of_each_server_whether_it_is_fine(
    web: WebServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.sase").write_text("X: SEQ(A a) WHERE a.v > REMOTE.limits[a.k] AND a.v > REMOTE.gone[a.k] WITHIN 1 s")
    (tmp_path / "remote.yaml").write_text(
        f"limits: {{http: 'http://127.0.0.1:{web.port}/limits/{{org}}', value: max.limit}}\n"
        "gone: {http: 'http://127.0.0.1:1/{org}'}\n"
    )
    with pytest.raises(SystemExit) as left:
        main(["check", "r.sase", "--remote", "remote.yaml", "--remote-check"])
    printed = capsys.readouterr()
    assert left.value.code == 1
    fine, gone = printed.out.splitlines()[-2:]
    assert fine.startswith(f"remote limits: fine, http://127.0.0.1:{web.port}/limits/{{org}}, ")
    assert gone.startswith("remote gone: http://127.0.0.1:1/{org} does not answer: ")
