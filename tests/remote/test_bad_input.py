"""Rules and tables that do not go together: said with the place in the text where there is one, and counted where it
shows only at run time. What providers answer wrongly is in test_tables, test_servers and test_guard."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headwater.deploy.cli.command import main
from headwater.node.effects import Fetched, Report
from headwater.protocol.languages import RuleTextError, parse_rules
from headwater.protocol.languages import Source as RuleText
from headwater.protocol.remote import RemoteTable, TableShape, Versions
from tests.node.test_fetches import HUNDRED, Node, delivered

RULE = "event T(org: string, vol: int)\nOver: SEQ(T t) WHERE t.vol > REMOTE.limits[t.org] WITHIN 1 s\n"
NETWORK = """\
events:
  T: {org: string, vol: int}
nodes: [p1, p2]
links:
  - {between: [p1, p2]}
sources:
  - {node: p1, type: T, rate: 5/s, values: {org: {choice: [a, b]}, vol: {uniform: [0, 100]}}}
sinks:
  - {node: p2, subscribe: Over}
remote:
  limits: LIMITS
rules:
  - over.sase
duration: 20 s
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "over.sase").write_text(RULE)
    (tmp_path / "events.csv").write_text("type,ts,org,vol\nT,1000,a,50\nT,2000,b,60\n")
    (tmp_path / "sets.jsonl").write_text('{"key": "a", "value": 3}\n{"key": "b", "value": [40, 60]}\n')
    (tmp_path / "names.csv").write_text("key,value\na,Ann\nb,Bob\n")
    (tmp_path / "pairs.csv").write_text("key1,key2,value\na,a,4\n")
    (tmp_path / "provider.py").write_text("def sets(org):\n    return [1, 2, 3]\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        main([*words])
    return int(ended.value.code or 0), capsys.readouterr().err


MISFITS = [
    ("limits=sets.jsonl", "over.sase:2:28: > compares single values, but REMOTE.limits[..] is a collection"),
    ("limits=names.csv", "over.sase:2:28: type mismatch: cannot compare an int with a string"),
    ("limits=pairs.csv", "over.sase:2:30: a key of the table limits has 2 values, not 1"),
    ("others=names.csv", "over.sase:2:30: there is no remote table 'limits'"),
]


@pytest.mark.parametrize(("table", "sentence"), MISFITS)
@pytest.mark.parametrize("command", ["check", "run", "explain"])
def test_one_engine_says_where_a_rule_does_not_fit_the_tables(
    folder: Path, command: str, table: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    events = [] if command == "check" else ["--events", "events.csv"]
    code, err = said(capsys, command, "over.sase", *events, "--remote", table)
    assert code == 2
    assert sentence in err


@pytest.mark.parametrize(("table", "sentence"), MISFITS)
def test_a_network_file_says_where_a_rule_does_not_fit_its_tables(
    folder: Path, table: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name, _, file = table.partition("=")
    (folder / "net.yaml").write_text(NETWORK.replace("limits: LIMITS", f"{name}: {{file: {file}}}"))
    code, err = said(capsys, "check", "net.yaml")
    assert code == 2
    assert sentence in err


def test_a_file_that_is_not_here_is_no_reason_to_refuse_a_network(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "net.yaml").write_text(NETWORK.replace("LIMITS", "{file: elsewhere.csv}"))
    assert said(capsys, "check", "net.yaml")[0] == 0


@pytest.mark.parametrize("provider", ["sqlite: c.db", "postgres: service=cards"])
@pytest.mark.parametrize(
    "query", ["delete from l where o = '?%s' returning m", " -- x\n UPDATE l set m = 1", "DROP table l"]
)
def test_a_query_that_writes_is_refused_at_its_line(
    folder: Path, provider: str, query: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = NETWORK.replace("LIMITS", f"{{{provider}, query: {json.dumps(query)}, keys: [org]}}")
    (folder / "net.yaml").write_text(text)
    code, err = said(capsys, "check", "net.yaml")
    assert code == 2
    assert "net.yaml:11:" in err
    assert "this query writes (" in err
    assert "a remote table is only read: write a select" in err


def test_a_lookup_is_known_by_its_table_for_comparisons_only() -> None:
    tables = {"limits": TableShape(frozenset({1}), "int"), "names": TableShape(frozenset({1}), "string")}

    def kinds(where: str) -> tuple[str, ...]:
        text = (
            f"event T(org: string, vol: int)\nX: SEQ(T t) WHERE {where} WITHIN 1 s RETURN X(v = REMOTE.limits[t.org])"
        )
        (rule,) = parse_rules([RuleText(text, "x", "sase")], tables=tables).rules
        return tuple(output.kind for output in rule.attributes)

    assert kinds("REMOTE.names[t.org] = t.org AND t.vol + 1 > REMOTE.limits[t.org]") == ("any",)
    assert kinds("t.org IN REMOTE.names[t.org]") == ("any",)
    with pytest.raises(RuleTextError, match="a string is never in what"):
        kinds("t.org IN REMOTE.limits[t.org]")
    with pytest.raises(RuleTextError, match="cannot compare a string with an int"):
        kinds("REMOTE.names[t.org] < REMOTE.limits[t.org]")


def test_the_shape_of_a_table_is_that_of_all_its_values() -> None:
    assert RemoteTable([(("a",), 1), (("b",), 2.5), (("c",), None)]).shape() == TableShape(frozenset({1}), "float")
    assert RemoteTable([(("a", 1), 1), (("b", 2), "x")]).shape() == TableShape(frozenset({2}), "any")
    mixed = RemoteTable([(("a",), True), (("b",), (True, False))])
    assert mixed.shape() == TableShape(frozenset({1}), "bool", ("b",))


@pytest.mark.parametrize("strategy", ["block", "lazy", "hybrid"])
def test_a_collection_that_comes_where_one_value_is_compared_ends_the_run_of_one_engine(
    folder: Path, strategy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    table = "limits={python: 'provider:sets'}"
    words = ("run", "over.sase", "--events", "events.csv", "--remote", table, "--remote-strategy", strategy)
    code, err = said(capsys, *words)
    assert code == 1
    assert "has a collection of 3 values for the key" in err  # which of two keys is answered first is chance
    assert "but rule 'Over' compares it as one value; write IN" in err


def test_a_node_counts_a_collection_that_comes_where_one_value_is_compared_and_goes_on() -> None:
    node = Node()
    node.born("acme", 1)
    node.born("acme", 200)
    pair = Versions.always((100, 200))
    reports = [effect for effect in node.given(Fetched((("limits", ("acme",), pair),))) if isinstance(effect, Report)]
    (misfit,) = [report for report in reports if report.rule == "table limits"]
    assert misfit.counter == "rule_errors"
    assert (
        "has a collection of 2 values for the key 'acme', but rule 'Over' compares it as one value" in misfit.sentence
    )
    node.born("umbrella", 1)
    node.born("umbrella", 200)
    assert not [
        effect
        for effect in node.given(Fetched((("limits", ("umbrella",), HUNDRED),)))
        if isinstance(effect, Report) and effect.rule == "table limits"
    ]


def test_an_answer_that_comes_after_the_window_has_closed_still_decides() -> None:
    node = Node()
    node.born("acme", 1)
    node.born("acme", 200)
    for _ in range(20):
        node.now_us += 2_000_000  # the window is 10 s long
        node.born("other", 0)
    assert delivered(node.given(Fetched((("limits", ("acme",), HUNDRED),)))) == ["acme"]


def test_a_simulation_says_what_did_not_fit(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "net.yaml").write_text(NETWORK.replace("LIMITS", "{python: 'provider:sets'}"))
    code, err = said(capsys, "simulate", "net.yaml")
    assert code == 0
    assert "warning: the table 'limits' has a collection of 3 values for the key" in err
