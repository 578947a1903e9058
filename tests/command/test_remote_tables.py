"""Every command that evaluates rules looks into servers, and says of each that it cannot use what is wrong."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headwater.deploy.cli.command import main
from headwater.node.remote.policies import POLICIES
from headwater.protocol.strategy import STRATEGIES
from tests.kit.remote_servers import WebServer, running

CARDS = 12
RULE = """\
Over: SEQ(T t, L l)
WHERE SAME[card] AND t.vol > REMOTE.limits[t.org] AND REMOTE.places[l.card] = 'x1'
WITHIN 5 s
RETURN Over(card = t.card, place = REMOTE.places[t.card])
"""
TABLES = """\
  limits: {sqlite: LIMITS, query: "select most from limits where org = ?", keys: [org]}
  places: {http: "http://127.0.0.1:PORT/places/{card}", value: place}
"""
NETWORK = """\
events:
  T: {card: string, org: string, vol: int}
  L: {card: string, org: string, vol: int}
nodes: [p1, p2, p3]
links: [{between: [p1, p2], delay: 1ms}, {between: [p2, p3], delay: 1ms}]
sources: [{node: p1, type: T, trace: e.csv}, {node: p2, type: L, trace: e.csv}]
sinks: [{node: p3, subscribe: Over}]
rules: r.sase
statistics: {rates: {T: {p1: 1/s}, L: {p2: 1/s}}}
remote:
"""
FOUND = ["c1", "c4", "c7", "c10"]
GONE = "does not answer: Connection refused"

Called = Callable[..., tuple[str, str]]


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebServer]:
    pages = {f"/places/c{n}": [200, json.dumps({"place": f"x{n % 3}"})] for n in range(CARDS)}
    server = WebServer(tmp_path_factory.mktemp("web"), pages)
    with running(server):
        yield server


@pytest.fixture
def folder(tmp_path: Path, web: WebServer, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    with sqlite3.connect("limits.db") as database:
        database.execute("create table limits (org text, most int)")
        database.executemany("insert into limits values (?, ?)", [(f"o{n}", 10 * n) for n in range(CARDS)])
    database.close()
    rows = []
    for n in range(CARDS):
        rows += [
            f"T,{1_000_000 * n},p1,{2 * n},c{n},o{n},{11 * n}",
            f"L,{1_000_000 * n + 9},p2,{2 * n + 1},c{n},o{n},0",
        ]
    Path("e.csv").write_text("type,ts,node,seq,card,org,vol\n" + "".join(f"{row}\n" for row in rows))
    Path("r.sase").write_text(RULE)
    good = TABLES.replace("PORT", str(web.port)).replace("LIMITS", "limits.db")
    bad = TABLES.replace("PORT", "1").replace("LIMITS", "nowhere.db")
    for name, tables in (("good", good), ("bad", bad)):
        Path(f"{name}.yaml").write_text("".join(f"{line[2:]}\n" for line in tables.splitlines()))
        Path(f"net-{name}.yaml").write_text(NETWORK + tables)
    return tmp_path


@pytest.fixture
def called(folder: Path, capsys: pytest.CaptureFixture[str]) -> Called:
    def call(*words: str, code: int = 0) -> tuple[str, str]:
        try:
            main(list(words))
            left = 0
        except SystemExit as end:
            left = end.code if isinstance(end.code, int) else 0
        printed = capsys.readouterr()
        assert left == code, printed.err
        return printed.out, printed.err

    return call


@pytest.mark.parametrize("strategy", POLICIES)
def test_run(called: Called, strategy: str) -> None:
    out, _ = called("run", "r.sase", "--events", "e.csv", "--remote", "good.yaml", "--remote-strategy", strategy)
    assert [json.loads(line)["attributes"]["card"] for line in out.splitlines()] == FOUND


def test_explain(called: Called) -> None:
    out, _ = called("explain", "r.sase", "--events", "e.csv", "--remote", "good.yaml")
    assert out.startswith(f"Over: {len(FOUND)} matches\n")
    assert "REMOTE.places[l.card] = 'x2'" in out


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_simulate(called: Called, strategy: str) -> None:
    out, _ = called("simulate", "net-good.yaml", "--strategy", strategy)
    assert out.startswith(f"strategy {strategy}: {len(FOUND)} composite events delivered\n")


def test_plan_and_check_need_no_server(called: Called) -> None:
    out, _ = called("plan", "net-bad.yaml")
    assert "query Over" in out
    assert called("check", "net-bad.yaml")[0].count("\nok\n") == 1
    assert called("check", "r.sase", "--remote", "bad.yaml")[0].count("\nok\n") == 1


@pytest.mark.parametrize("words", [("check", "net-good.yaml"), ("check", "r.sase", "--remote", "good.yaml")])
def test_check_tries_servers_that_are_fine(called: Called, words: tuple[str, ...]) -> None:
    out, _ = called(*words, "--remote-check")
    assert "remote limits: fine, SQLite " in out
    assert "remote places: fine, http://127.0.0.1:" in out


@pytest.mark.parametrize(
    "words",
    [
        ("run", "r.sase", "--events", "e.csv", "--remote", "bad.yaml"),
        ("explain", "r.sase", "--events", "e.csv", "--remote", "bad.yaml"),
        ("simulate", "net-bad.yaml"),
        ("check", "net-bad.yaml", "--remote-check"),
        ("check", "r.sase", "--remote", "bad.yaml", "--remote-check"),
    ],
)
def test_each_server_that_cannot_be_used_is_said(called: Called, words: tuple[str, ...]) -> None:
    out, err = called(*words, code=1)
    limits, places = (line for line in (out + err).splitlines() if "nowhere.db" in line or GONE in line)
    assert "limits" in limits
    assert "there is no file" in limits
    assert "places" in places
    assert f"http://127.0.0.1:1/places/{{card}} {GONE}" in places


@pytest.mark.parametrize("words", [("run", "r.sase", "--events", "e.csv"), ("explain", "r.sase", "--events", "e.csv")])
def test_a_table_that_was_not_given_is_said(called: Called, words: tuple[str, ...]) -> None:
    _, err = called(*words, code=2)
    assert "r.sase:2:30: there is no remote table 'limits'" in err
    assert "supply it, as in --remote limits=FILE" in err


def test_a_lookup_with_too_many_values_is_an_error_of_the_rule(called: Called, folder: Path) -> None:
    (folder / "r.sase").write_text(RULE.replace("REMOTE.places[t.card]", "REMOTE.places[t.card, t.org]"))
    _, err = called("check", "net-good.yaml", code=2)
    assert "r.sase:4:" in err
    assert "places" in err
