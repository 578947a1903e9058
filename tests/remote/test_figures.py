"""What can be seen of remote tables: metrics by table, values in explanations, a section in reports."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from headwater.deploy.cli.command import main
from headwater.node.effects import Fetched
from headwater.node.observe.metrics.catalogue import samples
from headwater.node.observe.metrics.observed import Observed
from headwater.node.remote.memory import Memory
from headwater.node.remote.provider import Key
from headwater.protocol.remote import Versions
from tests.node.test_fetches import HUNDRED, Node

NETWORK = """\
events:
  T: {org: string, vol: int}
nodes: [p1, p2]
links:
  - {between: [p1, p2], delay: 1ms}
sources:
  - {node: p1, type: T, rate: 5/s, values: {org: {choice: [a, b, c, d]}, vol: {uniform: [0, 100]}}}
sinks:
  - {node: p2, subscribe: Over}
remote:
  limits: {file: limits.csv}
rules:
  - "Over: SEQ(T t) WHERE t.vol > REMOTE.limits[t.org] WITHIN 1 s RETURN Over(org = t.org)"
duration: 20 s
strategy: centr
"""
RULE = "Over: SEQ(T a, T b) WHERE SAME[org] AND b.vol > REMOTE.limits[a.org] WITHIN 10 s RETURN Over(org = a.org)"


def metrics(node: Node) -> dict[tuple[str, str], float]:
    observed = Observed(node="p", core=node.core)
    return {
        (metric.name.removeprefix("headwater_remote_"), labels[0]): value
        for metric, labels, value in samples(observed)
        if metric.name.startswith("headwater_remote_") and labels and isinstance(value, int | float)
    }


def test_nodes_count_hits_misses_and_waiting_matches_by_table() -> None:
    node = Node()
    node.born("acme", 5)
    node.born("acme", 300)
    node.born("acme", 400)
    counted = metrics(node)
    assert counted["misses_total", "limits"] >= 1
    assert counted["waiting_matches", "limits"] >= 1
    assert counted["under_way", "limits"] == 1
    hits = counted["hits_total", "limits"]
    node.given(Fetched((("limits", ("acme",), HUNDRED),)))
    counted = metrics(node)
    assert counted["waiting_matches", "limits"] == 0
    assert counted["hits_total", "limits"] >= hits
    assert ("under_way", "limits") not in counted
    node.born("acme", 500)
    assert metrics(node)["hits_total", "limits"] > hits


def test_what_was_fetched_ahead_is_counted_by_table() -> None:
    memory = Memory(("one", "other"), cache_bytes=500)
    for table in ("one", "other"):
        key_class = memory.key_class("rule", table, table, 10, numbered=False, early=True)
        assert key_class is not None
        for number in range(3):
            key: Key = (number,)
            memory.fetch_ahead((table, key), key_class)
            if table == "one":
                memory.supply(table, key, Versions.always(number))  # two fit, and go when the third comes
    memory.want("other", (1,))
    assert memory.lookups["one"].prefetched == 3
    assert memory.lookups["one"].prefetched_unused == 1
    assert memory.lookups["other"].prefetched == 3
    assert (memory.lookups["one"].prefetched_late, memory.lookups["other"].prefetched_late) == (0, 1)
    assert (memory.prefetched, memory.prefetched_late, memory.prefetched_unused) == (6, 1, 1)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "net.yaml").write_text(NETWORK)
    (tmp_path / "limits.csv").write_text("key,value\na,50\nb,90\nc,0\n")
    (tmp_path / "over.sase").write_text(RULE)
    rows = [(1, "a", 10), (2, "a", 40), (3, "a", 60), (4, "b", 70), (5, "b", 80), (6, "d", 1), (7, "d", 99)]
    events = "".join(f"T,{ts}000000,{org},{vol}\n" for ts, org, vol in rows)
    (tmp_path / "events.csv").write_text(f"type,ts,org,vol\n{events}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*words: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*words])
    assert ended.value.code in (0, None)


def test_explain_says_with_which_values_remote_conditions_failed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("explain", "over.sase", "--events", "events.csv", "--remote", "limits=limits.csv")
    call(*words)
    out = capsys.readouterr().out
    assert "3 turned away: `b.vol > REMOTE.limits[a.org]`" in out
    assert "1 with REMOTE.limits['a'] = 50" in out
    assert "1 with REMOTE.limits['b'] = 90" in out
    assert "1 with REMOTE.limits['d'] = no value" in out
    call(*words, "--json")
    (step,) = [step for step in json.loads(capsys.readouterr().out)["branches"][0]["steps"] if step["looked_up"]]
    assert {
        "condition": "b.vol > REMOTE.limits[a.org]",
        "turned_away": 1,
        "lookups": [{"table": "limits", "key": ["d"], "value": None}],
    } in step["looked_up"]


def test_a_report_has_a_section_about_remote_tables(folder: Path) -> None:
    call("simulate", "net.yaml", "--record", "recorded", "--quiet")
    call("report", "recorded", "--out", "report", "--engine", "arrow")
    with (folder / "report" / "tables" / "remote.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert (row["table"], row["requests"], row["answered"], row["failed"]) == ("limits", "4", "4", "0")
    assert int(row["hits"]) > 50
    assert int(row["misses"]) >= 4
    assert 0.2 <= float(row["latency_ms"]) <= 2.0
    page = (folder / "report" / "report.html").read_text()
    assert "What was looked up in remote tables" in page
    assert f"limits at {row['node']}" in page
    assert f'data-column="hits" data-value="{row["hits"]}"' in page


def test_a_report_on_rules_that_look_nothing_up_has_no_such_section(folder: Path) -> None:
    (folder / "net.yaml").write_text(NETWORK.replace("REMOTE.limits[t.org]", "50"))
    call("simulate", "net.yaml", "--record", "recorded", "--quiet")
    call("report", "recorded", "--out", "report", "--engine", "arrow")
    assert (folder / "report" / "tables" / "remote.csv").read_text().count("\n") == 1
    assert "What was looked up in remote tables" not in (folder / "report" / "report.html").read_text()
