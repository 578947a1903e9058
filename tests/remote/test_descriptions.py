"""Descriptions of remote tables: what they may hold, and what is said of one that is wrong."""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path

import pytest

from headwater.deploy.descriptions.remote import described, read_tables, remote_tables
from headwater.deploy.network.file import read_network
from headwater.node.remote.provider import Refused
from headwater.node.remote.secrets import Secret
from headwater.node.remote.tables import Behind, Tables
from headwater.protocol.errors import ConfigError
from headwater.protocol.remote import RemoteTable, TableTerms
from tests.command.test_command import REMOTE_EVENTS, REMOTE_RULE, Desk, desk  # noqa: F401

SQLITE = "{sqlite: cards.db, query: 'select m from limits where org = ?', keys: [org]}"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    with sqlite3.connect("cards.db") as made:
        made.executescript("create table limits (org text, m int); insert into limits values ('x', 4), ('y', 6);")
    made.close()
    (tmp_path / "regions.csv").write_text("key,value\nx,4\n")
    return tmp_path


def test_a_file_describes_several_tables_and_names_files_beside_it(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "near.csv").write_text("key,value\nx,4\n")
    (folder / "sub" / "remote.yaml").write_text(f"""
        # all forms
        regions: near.csv
        areas: {{file: near.csv}}
        limits: {SQLITE}
        bought:
          postgres: service=cards
          query: select max_limit from limits where org = any(%s)
          keys: [org]
          password_env: CARDS_PASSWORD
          timeout: 2s
          wait: 1 h
        places: {{http: "http://profiles.local/users/{{user}}/places", value: places, fresh: 10min, token_file: t}}
        many: {{http: "http://profiles.local/users?ids={{keys}}", keys: [id], items: users, value: limit}}
        seen: {{redis: 127.0.0.1:6379, key: "seen:{{user}}:{{card}}", members: yes}}
        spent: {{redis: 127.0.0.1:6379, key: "u:{{user}}", field: spent, kind: float}}
        risk: {{python: "math:sqrt"}}
    """)
    tables = read_tables(folder / "sub" / "remote.yaml")
    assert isinstance(tables["regions"], RemoteTable)
    assert isinstance(tables["areas"], RemoteTable)
    behind = {name: table for name, table in tables.items() if isinstance(table, Behind)}
    assert {name: (each.provider.shown, each.provider.key_length) for name, each in behind.items()} == {
        "limits": (f"SQLite {folder / 'sub' / 'cards.db'}", 1),
        "bought": ("PostgreSQL service cards", 1),
        "places": ("http://profiles.local/users/{user}/places", 1),
        "many": ("http://profiles.local/users", 1),
        "seen": ("Redis 127.0.0.1:6379", 2),
        "spent": ("Redis 127.0.0.1:6379", 1),
        "risk": ("the function math:sqrt", 1),
    }
    assert (behind["bought"].limits.request_s, behind["bought"].limits.wait_s) == (2.0, 3600.0)
    assert behind["places"].terms == TableTerms(600_000_000)


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("{}", ["the table t names no provider", "write one of file, sqlite, postgres, redis, http, python"]),
        ("{postgre: service=x}", ["the table t names no provider", "did you mean 'postgres'?"]),
        ("{file: a.csv, http: 'http://h/{k}'}", ["the table t has 2 providers", "leave all but one out"]),
        ("{file: [a.csv]}", ["file must be a name or a text"]),
        ("{file: a.csv, fresh: 1s}", ["the table t has no key 'fresh'"]),
        ("{sqlite: cards.db}", ["the table has no query:"]),
        ("{sqlite: cards.db, query: 'select 1 where 1 = ?'}", ["does not say what its key is", "write keys: [org]"]),
        ("{sqlite: c.db, query: 'select 1', keys: [org]}", ["has 0 places for a key (?)", "write one ? for each"]),
        ("{sqlite: c.db, querry: 'select 1', keys: [org]}", ["has no key 'querry'", "did you mean 'query'?"]),
        ("{sqlite: c.db, query: 'select ?, ?', keys: [a, a]}", ["a key attribute stands twice"]),
        ("{postgres: service=x, query: 'select %s', keys: [a, b]}", ["has 1 place for a key (%s)", "names 2 (a, b)"]),
        ("{http: 'profiles.local/{k}'}", ["not an address of a web server"]),
        ("{http: 'http://h/users'}", ["the address has no place for a key", "in braces"]),
        ("{http: 'http://h/{usr}', keys: [user]}", ["a place for 'usr', which is not a key", "did you mean 'user'?"]),
        ("{http: 'http://h/{a}', keys: [a, b]}", ["no place for the key 'b'"]),
        ("{http: 'http://h/?ids={keys}', keys: [a, b]}", ["asks for many keys at once"]),
        ("{http: 'http://h/{a}', fresh: soon}", ["'soon' is not a duration"]),
        ("{http: 'http://h/{a}', timeout: 0s}", ["is too short"]),
        ("{redis: h:1}", ["the table has no key:"]),
        ("{redis: h:1, key: 'k:{a}', kind: integer}", ["kind cannot be 'integer'", "did you mean 'int'?"]),
        ("{redis: h:1, key: 'k:{a}', members: yes, field: f}", ["a field of a hash has no members"]),
        ("{redis: h:1, key: 'k:{a}', password_file: f, password_env: E}", ["leave one out"]),
        ("{python: no_such_module:f}", ["the module 'no_such_module' cannot be imported"]),
        ("{python: 'math:nothing'}", ["the module 'math' has no function 'nothing'"]),
        ("{python: math}", ["'math' names no function", "write module:function"]),
        ("{file: a.csv", ["this is not YAML"]),
    ],
)
def test_what_is_wrong_is_said_with_its_place(folder: Path, text: str, sentences: list[str]) -> None:
    with pytest.raises(ConfigError) as said:
        described("t", text)
    for sentence in ["--remote t:1:", *sentences]:
        assert sentence in str(said.value)


@pytest.mark.parametrize(
    "text",
    [
        "{postgres: 'host=h password=hunter2', query: 'select %s', keys: [a], querry: 1}",
        "{postgres: 'postgresql://me:hunter2@h/db', query: 'select %s', keys: [a]}",
        "{postgres: 'postgresql://h/db?password=hunter2', query: 'select %s', keys: [a]}",
        "{postgres: h, password: hunter2, query: 'select %s', keys: [a]}",
        "{postgres: 'host=h sslpassword=hunter2', query: 'select %s', keys: [a]}",
        "{postgres: 'postgresql://me:hunter2/x@h/db', query: 'select %s', keys: [a]}",
        "{redis: 'redis://:hunter2@h:1', key: '{a}'}",
        "{redis: 'redis://:hunter2/@@h:1', key: '{a}'}",
        "{redis: 'redis://h:1/0?password=hunter2', key: '{a}'}",
        "{http: 'https://me:hunter2@h/{a}'}",
        "{http: 'https://hunter2@h/{a}'}",
        "{http: 'https://h/{a}?access_token=hunter2'}",
        "{http: 'https://h/{a}?x=1&api_key=hunter2'}",
        "{http: 'https://h/{a}', token: hunter2}",
        "{http: 'https://h/{a}', token: hunter2",
    ],
)
def test_a_secret_in_the_text_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(ConfigError, match="secret") as said:
        described("t", text)
    assert "hunter2" not in str(said.value)


def test_a_secret_in_the_environment_is_one_line_or_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(" hunter2\n")
    secret = Secret(variable="KEY")
    assert secret.read({"KEY": " hunter2\n"}) == "hunter2"
    assert secret.read({"KEY": "", "KEY_FILE": str(tmp_path / "secret")}) == "hunter2"
    for environment, sentence in (
        ({}, "KEY should hold a secret, but is empty or not set"),
        ({"KEY": "hunter2\r\nX: y"}, "KEY should hold a secret: one line of text"),
        ({"KEY_FILE": "/no/such/file"}, "cannot read the secret in /no/such/file"),
    ):
        with pytest.raises(Refused, match=sentence) as said:
            secret.read(environment)
        assert "hunter2" not in str(said.value)


def test_what_only_looks_like_a_secret_is_taken() -> None:
    described("t", "{http: 'http://h:80/users/{a}@example.org?token={b}&sort=key', keys: [a, b]}")
    described("t", "{http: 'http://h/{a}?key=name&author=me'}")
    described("t", "{postgres: 'postgresql://me@h:5432/db?application_name=a', query: 'select 1 where %s', keys: [a]}")


@pytest.mark.parametrize("line", ["password: hunter2: x", "redis: redis://:hunter2@h: x", "'token': hunter2: x"])
def test_a_network_file_that_is_no_yaml_shows_no_secret(tmp_path: Path, line: str) -> None:
    (tmp_path / "net.yaml").write_text(f"nodes: [p1]\nremote:\n  limits:\n    {line}\n")
    with pytest.raises(ConfigError, match=r"net.yaml:4.* not YAML") as said:
        read_network(tmp_path / "net.yaml")
    assert "hunter2" not in str(said.value)


@pytest.mark.parametrize(
    ("text", "package"),
    [
        ("{postgres: service=x, query: 'select %s', keys: [a]}", "psycopg"),
        ("{redis: 127.0.0.1:1, key: '{a}'}", "redis"),
    ],
)
def test_a_missing_driver_is_said_with_what_to_install(
    text: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [package, *(name for name in sys.modules if name.startswith(f"{package}."))]:
        monkeypatch.setitem(sys.modules, name, None)
    with Tables({"t": described("t", text)}) as tables:
        error = tables.tried("t")[1]
    assert f"needs the Python package {package}; install headwater[remote]" in str(error)


def test_mistakes_in_a_file_are_shown_with_file_and_line(folder: Path) -> None:
    (folder / "remote.yaml").write_text("a: regions.csv\nb: {fil: x.csv}\na: regions.csv\nc d: {file: x}\n")
    with pytest.raises(ConfigError) as said:
        remote_tables(["remote.yaml"])
    for sentence in ("remote.yaml:2:4: the table b names no provider", "remote.yaml:3:1: there are two tables a",
                     "remote.yaml:4:1: a table must have a name"):  # fmt: skip
        assert sentence in str(said.value)


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def cards(folder: Path, desk: Desk) -> Desk:  # noqa: F811
    desk.file("r.sase", REMOTE_RULE)
    desk.file("e.csv", REMOTE_EVENTS)
    desk.file("remote.yaml", f"limits: {SQLITE}\nregions: regions.csv\n")
    return desk


@pytest.mark.parametrize("option", [f"limits={SQLITE}", "remote.yaml", "limits=regions.csv"])
@pytest.mark.parametrize("strategy", ["block", "cache"])
def test_run_gives_the_same_wherever_the_table_is(cards: Desk, option: str, strategy: str) -> None:
    done = cards.run("run", "r.sase", "-e", "e.csv", "--remote", option, "--remote-strategy", strategy)
    assert (done.code, [each["ts"] for each in done.composites]) == (0, [1, 20])
    requests = {"block": "4 requests, 0 hits, 4 misses", "cache": "3 requests, 1 hit, 3 misses"}[strategy]
    assert (f"remote limits: {requests}, mean latency" in done.err) == (option != "limits=regions.csv")


def test_run_says_nothing_of_tables_if_it_is_to_be_quiet(cards: Desk) -> None:
    assert cards.run("run", "r.sase", "-e", "e.csv", "--remote", "remote.yaml", "-q").err == ""


def test_explain_looks_things_up_in_the_same_tables(cards: Desk) -> None:
    done = cards.run("explain", "r.sase", "-e", "e.csv", "--remote", "remote.yaml")
    assert "2 turned away: `a.v > REMOTE.limits[a.k]`" in done.out


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["--remote", "none.yaml"], 2, "there is no file of remote tables none.yaml"),
        (["--remote", "remote.yaml", "--remote", "limits=regions.csv"], 2, "names the table 'limits' twice"),
        (["--remote", "remote.yaml", "--remote-strategy", "lasy"], 2, "there is no remote strategy 'lasy'"),
        (["--remote", "remote.yaml", "--remote-strategy-for", "R"], 2, "'R' is no rule with a strategy"),
        (["--remote", "remote.yaml", "--remote-strategy-for", "Nix=lazy"], 2, "there is no rule 'Nix'"),
        (["--remote", "remote.yaml", "--remote-strategy-for", "X=lasy"], 2, "there is no remote strategy 'lasy'"),
        (["--remote", "remote.yaml", "--remote-cache", "lots"], 2, "'lots' is not a size"),
        (["--remote", "remote.yaml", "--remote-cache-policy", "costs"], 2, "did you mean cost?"),
        (["--remote", "remote.yaml", "--remote-priority", "R"], 2, "'R' is no rule with a number"),
        (["--remote", "remote.yaml", "--remote-priority", "Nix=2"], 2, "there is no rule 'Nix'"),
        (["--remote", "remote.yaml", "--remote-priority", "X=0"], 2, "write a number above 0"),
        (["--remote", f"limits={SQLITE}".replace("limits where", "nix where")], 1, "no such table: nix"),
        (["--remote", f"limits={SQLITE}".replace("cards.db", "no.db")], 1, "table 'limits': there is no file no.db"),
        (["--remote", "limits={python: 'math:hypo'}"], 2, "the module 'math' has no function 'hypo'"),
        (["--remote", "limits={python: 'math:sqrt'}"], 1, "the function math:sqrt failed for ('x',): TypeError"),
        (["--remote", f"other={SQLITE}"], 2, "there is no remote table 'limits'"),
        (
            ["--remote", "limits={http: 'http://127.0.0.1:1/{a}/{b}'}"],
            2,
            "a key of the table limits has 2 values, not 1",
        ),
    ],
)
def test_what_is_wrong_with_tables_ends_a_run_with_a_sentence(
    cards: Desk, arguments: list[str], code: int, sentence: str
) -> None:
    done = cards.run("run", "r.sase", "-e", "e.csv", *arguments)
    assert done.code == code
    assert sentence in done.err


def test_check_tries_each_provider_and_prints_a_line_for_each(cards: Desk) -> None:
    done = cards.run("check", "r.sase", "--remote", "remote.yaml", "--remote-check")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[1] == "ok"
    assert lines[2].startswith("remote limits: fine, SQLite cards.db, static, ")
    assert lines[3] == "remote regions: fine, at hand, static"
    cards.file("cards.db", "garbage " * 100)
    done = cards.run("check", "r.sase", "--remote", "remote.yaml", "--remote-check")
    assert done.code == 1
    assert "remote limits: SQLite cards.db: file is not a database" in done.out
    assert "1 remote table cannot be used: limits" in done.err


def test_check_says_of_which_kind_each_table_is(cards: Desk) -> None:
    cards.file("regions.csv", "key,value,ts\na,1,10\n")
    fresh = SQLITE.replace("keys:", "fresh: 10min, keys:")
    done = cards.run("check", "r.sase", "--remote", f"limits={fresh}", "--remote", "regions=regions.csv")
    assert done.out.splitlines()[2:] == ["remote limits: fresh for 10 min", "remote regions: versioned"]
    done = cards.run("check", "r.sase", "--remote", f"limits={SQLITE}")
    assert done.out.splitlines()[2:] == ["remote limits: static or versioned"]
    done = cards.run("check", "r.sase", "--remote", f"limits={SQLITE}", "--remote-check")
    assert done.out.splitlines()[2].startswith("remote limits: fine, SQLite cards.db, static, ")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["r.sase", "--remote-check"], "name some"),
        (["r.sase", "--remote", f"limitz={SQLITE}"], "did you mean 'limitz'?"),
        (["r.sase", "--remote", "limits={http: 'http://h/{a}/{b}'}"], "a key of the table limits has 2 values, not 1"),
    ],
)
def test_check_finds_tables_that_do_not_fit_the_rules(cards: Desk, arguments: list[str], sentence: str) -> None:
    done = cards.run("check", *arguments)
    assert done.code == 2
    assert sentence in done.err
