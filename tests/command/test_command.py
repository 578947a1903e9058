"""The ``headwater`` command, from its arguments to its output and exit code."""

from __future__ import annotations

import gzip
import io
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from math import comb
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
import typer

from headwater.deploy.cli.command import SECTIONS, app, main
from headwater.deploy.cli.output import any_number_of_digits
from headwater.deploy.cluster.waiting import Patience
from headwater.node.engine import Engine
from headwater.protocol.errors import RuleError
from tests.kit.patience import ANSWER_S, PATIENCE_S, output_of, until

PROJECT = Path(__file__).parent.parent.parent
FIRE = PROJECT / "examples" / "fire"
RULE = "define Fire(area: string) from Smoke() and last Temp(area = Smoke.area, value > 45) within 5 s from Smoke\n"
RULE += "where area = Smoke.area\n"
DECLARED = "event Smoke(area: string)\nevent Temp(area: string, value: float)\n" + RULE
EVENTS = "type,ts,node,area,value\nTemp,1000000,p1,A1,50\nSmoke,2000000,p2,A1,\nSmoke,9000000,p2,A1,\n"


@dataclass
class Outcome:
    code: int
    out: str
    err: str

    @property
    def composites(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


class Desk:
    """A folder to put files in, and the command."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self._capsys = capsys
        self._patch = patch
        self.file("fire.tesla", RULE)
        self.file("events.csv", EVENTS)
        patch.chdir(folder)

    def file(self, name: str, content: str | bytes) -> Path:
        path = self.folder / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def run(self, *arguments: str, typed: str | bytes | None = None) -> Outcome:
        if typed is not None:
            content = typed.encode() if isinstance(typed, str) else typed
            self._patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main(list(arguments))
        captured = self._capsys.readouterr()
        assert "Traceback" not in captured.err
        code = left.value.code
        return Outcome(code if isinstance(code, int) else 0, captured.out, captured.err)


@pytest.fixture
def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Desk:
    return Desk(tmp_path, capsys, monkeypatch)


def test_run_prints_composite_events_as_documented(desk: Desk) -> None:
    done = desk.run("run", "fire.tesla", "--events", "events.csv")
    assert done.code == 0
    (fire,) = done.composites
    assert list(fire) == ["id", "type", "ts", "start", "end", "rule", "attributes", "events"]
    assert len(fire.pop("id")) == 32
    assert fire == {
        "type": "Fire", "ts": 2_000_000, "start": 1_000_000, "end": 2_000_000, "rule": "Fire",
        "attributes": {"area": "A1"},
        "events": [
            {"role": "Smoke", "type": "Smoke", "ts": 2_000_000, "node": "p2", "seq": 1},
            {"role": "Temp", "type": "Temp", "ts": 1_000_000, "node": "p1", "seq": 1},
        ],
    }  # fmt: skip
    assert "3 rows read, 0 skipped, 0 late; 1 composite event in" in done.err


def test_every_format_and_compression_gives_the_same_output(desk: Desk) -> None:
    expected = desk.run("run", "fire.tesla", "--events", "events.csv").out
    rows = [
        {"type": "Temp", "ts": 1_000_000, "node": "p1", "area": "A1", "value": 50.0},
        {"type": "Smoke", "ts": 2_000_000, "node": "p2", "area": "A1"},
        {"type": "Smoke", "ts": 9_000_000, "node": "p2", "area": "A1"},
    ]
    lines = "\n".join(map(json.dumps, rows))
    desk.file("e.jsonl", lines)
    desk.file("e.jsonl.gz", gzip.compress(lines.encode()))
    desk.file("e.csv.gz", gzip.compress(EVENTS.encode()))
    desk.file("e.txt", lines)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), desk.folder / "e.parquet")
    for name in ("e.jsonl", "e.jsonl.gz", "e.csv.gz", "e.parquet"):
        assert desk.run("run", "fire.tesla", "--events", name).out == expected, name
    assert desk.run("run", "fire.tesla", "--events", "e.txt", "--format", "jsonl").out == expected
    assert desk.run("run", "fire.tesla", "--events", "-", typed=lines).out == expected
    parquet = (desk.folder / "e.parquet").read_bytes()
    assert desk.run("run", "fire.tesla", "--events", "-", typed=parquet).out == expected


@pytest.mark.parametrize("rule", [RULE, DECLARED], ids=["inferred", "declared"])
@pytest.mark.parametrize("order", ["--sorted", "--live"])
def test_the_order_of_rows_in_a_file_does_not_matter(desk: Desk, rule: str, order: str) -> None:
    desk.file("fire.tesla", rule)
    expected = desk.run("run", "fire.tesla", "--events", "events.csv").out
    header, *rows = EVENTS.splitlines(keepends=True)
    desk.file("mixed.csv", header + "".join(reversed(rows)))
    done = desk.run("run", "fire.tesla", "--events", "mixed.csv", order)
    assert (done.code, done.out) == (0, expected)
    assert "0 late" in done.err


def test_output_of_a_file_is_sorted_by_key(desk: Desk) -> None:
    desk.file("two.sase", "Late: SEQ(A a, !B b) WITHIN 5 s\nEarly: SEQ(A a, C c) WITHIN 50 s\n")
    desk.file("e.csv", "type,ts\nA,1000000\nC,2000000\nB,20000000\n")
    assert [c["rule"] for c in desk.run("run", "two.sase", "--events", "e.csv").composites] == ["Late", "Early"]
    live = desk.run("run", "two.sase", "--events", "e.csv", "--live").composites
    assert [c["rule"] for c in live] == ["Early", "Late"]


def test_lateness_leaves_out_what_is_later_and_says_so(desk: Desk) -> None:
    desk.file("late.csv", "type,ts,area,value\nSmoke,20000000,A1,\nTemp,19000000,A1,50\nTemp,16000000,A1,60\n")
    done = desk.run("run", "fire.tesla", "--events", "late.csv", "--lateness", "2s", "--late-out", "late.jsonl")
    assert done.code == 0
    assert [c["start"] for c in done.composites] == [19_000_000]
    assert "3 rows read, 0 skipped, 1 late" in done.err
    assert "more than 2s behind" in done.err
    assert json.loads((desk.folder / "late.jsonl").read_text()) == {
        "type": "Temp", "ts": 16_000_000, "node": "local", "area": "A1", "value": 60.0,
    }  # fmt: skip


def test_standard_input_must_be_in_order_unless_told_otherwise(desk: Desk) -> None:
    text = "type,ts,area,value\nSmoke,3000000,A1,\nTemp,1000000,A1,50\n"
    done = desk.run("run", "fire.tesla", "--events", "-", "--quiet", typed=text)
    assert done.out == ""
    assert "1 row came behind an earlier row and is left out" in done.err
    assert len(desk.run("run", "fire.tesla", "--events", "-", "--lateness", "5s", typed=text).composites) == 1


def test_count_prints_totals_per_rule(desk: Desk) -> None:
    desk.file("more.sase", "Any: SEQ(Temp t, Smoke s) WITHIN 10 s\nNone: SEQ(Smoke a, Temp b) WITHIN 10 s\n")
    done = desk.run("run", "fire.tesla", "more.sase", "--events", "events.csv", "--count")
    assert [line.split() for line in done.out.splitlines()] == [
        ["rule", "composites"], ["Any", "2"], ["Fire", "1"], ["None", "0"],
    ]  # fmt: skip
    assert "3 composite events" in done.err
    done = desk.run("run", "fire.tesla", "more.sase", "--events", "events.csv", "--count", "--json")
    assert json.loads(done.out) == {"Any": 2, "Fire": 1, "None": 0}


def test_a_malformed_row_stops_with_its_line_number(desk: Desk) -> None:
    desk.file("bad.csv", EVENTS + "Temp,soon,p1,A1,50\n")
    done = desk.run("run", "fire.tesla", "--events", "bad.csv")
    assert (done.code, done.out) == (2, "")
    assert done.err == ("headwater: bad.csv:5: ts 'soon' is neither an integer of microseconds nor an ISO 8601 time\n")


def test_skip_bad_counts_malformed_rows_and_shows_the_first(desk: Desk) -> None:
    desk.file("bad.csv", EVENTS + "Temp,soon,p1,A1,50\n" + "Temp\n" * 9)
    done = desk.run("run", "fire.tesla", "--events", "bad.csv", "--skip-bad", "--quiet")
    assert done.code == 0
    assert len(done.composites) == 1
    assert "13 rows read, 10 skipped, 0 late" in done.err
    assert "bad.csv:5: ts 'soon'" in done.err
    assert done.err.count("bad.csv:") == 5


def test_declared_types_are_checked_and_extra_attributes_mentioned(desk: Desk) -> None:
    desk.file("fire.tesla", DECLARED)
    desk.file("e.csv", "type,ts,area,value,colour\nTemp,1,A1,50,\nSmoke,2,A1,,grey\n")
    done = desk.run("run", "fire.tesla", "--events", "e.csv")
    assert len(done.composites) == 1
    assert "not declared and so not read: Smoke.colour" in done.err
    desk.file("e.csv", "type,ts,area\nTemp,1,A1\n")
    done = desk.run("run", "fire.tesla", "--events", "e.csv")
    assert (done.code, done.err) == (
        2, "headwater: e.csv:2: Temp needs a value for 'value'; declare it as optional with '?' if not\n",
    )  # fmt: skip


def test_some_types_may_be_declared_and_others_inferred(desk: Desk) -> None:
    desk.file("fire.tesla", "event Smoke(area: string)\n" + RULE)
    assert len(desk.run("run", "fire.tesla", "--events", "events.csv").composites) == 1


def test_rows_of_types_that_no_rule_names_are_counted(desk: Desk) -> None:
    desk.file("e.csv", EVENTS + "Wind,9000001,p1,,3\nFire,9000002,p1,A1,3\n")
    done = desk.run("run", "fire.tesla", "--events", "e.csv")
    assert done.code == 0
    assert "2 rows of types that no rule names: Fire (1), Wind (1)" in done.err


def test_quiet_says_nothing_when_all_is_well(desk: Desk) -> None:
    assert desk.run("run", "fire.tesla", "--events", "events.csv", "-q").err == ""


def test_out_writes_a_file(desk: Desk) -> None:
    done = desk.run("run", "fire.tesla", "--events", "events.csv", "--out", "found.jsonl")
    assert done.out == ""
    assert json.loads((desk.folder / "found.jsonl").read_text())["type"] == "Fire"
    done = desk.run("run", "fire.tesla", "--events", "events.csv", "--out", "no/such/folder")
    assert (done.code, done.err) == (2, "headwater: cannot write no/such/folder: No such file or directory\n")


def test_text_that_json_can_say_and_utf8_cannot_comes_out_as_it_came_in(desk: Desk) -> None:
    desk.file("all.sase", "X: SEQ(A a) WITHIN 1 s RETURN X(s = a.s)\n")
    desk.file("e.jsonl", '{"type": "A", "ts": 1, "s": "\\ud800 é"}')
    desk.run("run", "all.sase", "--events", "e.jsonl", "--out", "o.jsonl")
    written = (desk.folder / "o.jsonl").read_text(encoding="utf-8")
    assert "é" in written
    assert json.loads(written)["attributes"] == {"s": "\ud800 é"}


REMOTE_RULE = "X: SEQ(A a) WHERE a.v > REMOTE.limits[a.k] WITHIN 1 s RETURN X(v = a.v)\n"
REMOTE_EVENTS = "type,ts,k,v\nA,1,x,5\nA,2,y,5\nA,3,z,5\nA,20,x,5\n"


def test_remote_tables_answer_lookups(desk: Desk) -> None:
    desk.file("r.sase", REMOTE_RULE)
    desk.file("e.csv", REMOTE_EVENTS)
    desk.file("static.csv", "key,value\nx,4\ny,6\n")
    done = desk.run("run", "r.sase", "--events", "e.csv", "--remote", "limits=static.csv")
    assert [c["ts"] for c in done.composites] == [1, 20]
    desk.file("versions.jsonl", '{"key": "x", "value": 4, "ts": 0}\n{"key": "x", "value": 9, "ts": 10}\n')
    done = desk.run("run", "r.sase", "--events", "e.csv", "--remote", "limits=versions.jsonl")
    assert [c["ts"] for c in done.composites] == [1]


def test_a_lookup_must_have_as_many_arguments_as_the_table_has_keys(desk: Desk) -> None:
    desk.file("r.sase", "X: SEQ(A a) WHERE a.v > REMOTE.limits[a.v] WITHIN 1 s\n")
    desk.file("e.csv", REMOTE_EVENTS)
    desk.file("t.csv", "key1,key2,value\n1,2,3\n")
    for each in ("run", "explain"):
        done = desk.run(each, "r.sase", "--events", "e.csv", "--remote", "limits=t.csv")
        assert done.code == 2
        assert "r.sase:1:25: a key of the table limits has 2 values, not 1" in done.err


def test_rows_with_the_same_key_form_a_collection(desk: Desk) -> None:
    desk.file("r.sase", "X: SEQ(A a) WHERE a.v IN REMOTE.allowed[a.k, a.v] WITHIN 1 s\n")
    desk.file("e.csv", REMOTE_EVENTS)
    desk.file("t.csv", "key1,key2,value\nx,5,4\nx,5,5\ny,5,1\ny,5,2\n")
    done = desk.run("run", "r.sase", "--events", "e.csv", "--remote", "allowed=t.csv")
    assert [c["ts"] for c in done.composites] == [1, 20]


@pytest.mark.parametrize(
    ("option", "content", "sentence"),
    [
        ("t.csv", "key,value\n", "should be NAME=FILE"),
        ("limits=none.csv", "key,value\n", "there is no file none.csv"),
        ("limits=t.csv", "key\nx\n", "there is no column 'value'"),
        ("limits=t.csv", "value\n1\n", "t.csv:2: there is no column 'key'"),
        ("limits=t.csv", "key,value\nx,1\nx,2,3\n", "t.csv:3: the row has 3 columns"),
        ("limits=t.csv", "key,value\nx,1\n,2\n", "t.csv:3: the row has no 'key'"),
        ("limits=t.csv", "key,value,ts\nx,1,soon\n", "t.csv:2: ts 'soon' is neither"),
    ],
)
def test_bad_remote_tables_are_said_in_a_sentence(desk: Desk, option: str, content: str, sentence: str) -> None:
    desk.file("r.sase", REMOTE_RULE)
    desk.file("e.csv", REMOTE_EVENTS)
    desk.file("t.csv", content)
    done = desk.run("run", "r.sase", "--events", "e.csv", "--remote", option)
    assert done.code == 2
    assert sentence in done.err
    assert len(done.err.splitlines()) == 1


def test_user_functions_are_called_and_their_failures_are_runs_that_failed(desk: Desk) -> None:
    desk.file("r.sase", "X: SEQ(A a) WHERE twice(a.v) > 9 WITHIN 1 s\n")
    desk.file("e.csv", REMOTE_EVENTS)
    desk.file("f.py", "def twice(x):\n    return 2 * x\n\ndef _hidden(x):\n    return x\n")
    assert len(desk.run("run", "r.sase", "--events", "e.csv", "--functions", "f.py").composites) == 4
    desk.file("f.py", "FUNCTIONS = {'twice': lambda x: 1 / 0}\n")
    done = desk.run("run", "r.sase", "--events", "e.csv", "--functions", "f.py")
    assert (done.code, done.err) == (1, "headwater: function twice(5) failed: ZeroDivisionError: division by zero\n")
    desk.file("f.py", "def twice(x):\n    return [x]\n")
    done = desk.run("run", "r.sase", "--events", "e.csv", "--functions", "f.py")
    assert done.code == 1
    assert "function twice(5) returned a list" in done.err
    desk.file("f.py", "def twice(x, y):\n    return x\n")
    done = desk.run("check", "r.sase", "--functions", "f.py")
    assert done.code == 2
    assert "twice takes 2 arguments, not 1" in done.err
    desk.file("f.py", "def twice(x, y=2):\n    return x * y\n")
    assert desk.run("check", "r.sase", "--functions", "f.py").code == 0


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("def f(:\n", "cannot be loaded: SyntaxError"),
        ("import nothing_of_this_name\n", "cannot be loaded: ModuleNotFoundError"),
        ("import sys\nsys.exit(3)\n", "cannot be loaded: SystemExit: 3"),
        ("x = 1\n", "offers no functions"),
        ("FUNCTIONS = [1]\n", "offers no functions"),
        ("def lower(x):\n    return x\n", "there is already a function 'lower'"),
    ],
)
def test_bad_function_files_are_said_in_a_sentence(desk: Desk, content: str, sentence: str) -> None:
    desk.file("f.py", content)
    done = desk.run("run", "fire.tesla", "--events", "events.csv", "--functions", "f.py")
    assert done.code == 2
    assert sentence in done.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["run", "none.tesla", "--events", "events.csv"], "there is no rule file none.tesla"),
        *(
            ([*command, "none.yaml"], "there is no rule file none.yaml; rules (.tesla or .sase) are expected here")
            for command in (["run", "-e", "events.csv"], ["explain", "-e", "events.csv"], ["deploy"])
        ),
        (["run", "none.yml", "-e", "events.csv"], "headwater simulate and headwater up run a network"),
        (["run", ".", "--events", "events.csv"], "is a folder; name rule files"),
        (["run", "events.csv", "--events", "events.csv"], "rule files end in .tesla or .sase"),
        (["run", "fire.tesla", "--events", "none.csv"], "there is no file none.csv"),
        (["run", "fire.tesla", "--events", "events.csv", "--format", "xml"], "unknown format 'xml'"),
        (["run", "fire.tesla", "--events", "events.csv", "--lateness", "5"], "'5' is not a duration"),
        (["run", "fire.tesla", "--events", "events.csv", "--json"], "--json goes with --count"),
        (["run", "fire.tesla"], "--events"),
        *(
            ([each, "fire.tesla", "-e", "a.csv", "-e", "b.csv"], "one trace, not 2")
            for each in ("run", "check", "explain")
        ),
        (["run"], "headwater run --help shows how to use it"),
        (["run", "events.csv", "--events", "fire.tesla"], "fire.tesla is a file of rules, not of events"),
        (["run", "fire.tesla", "--events", "events.csv", "--out", "events.csv"], "events.csv would be overwritten"),
        (["run", "fire.tesla", "--events", "events.csv", "--out", "./fire.tesla"], "fire.tesla would be overwritten"),
        (["run", "fire.tesla", "-e", "events.csv", "--out", "x", "--late-out", "x"], "x would be overwritten"),
        (["walk"], "walk"),
        (
            ["explain", "fire.tesla", "--events", "events.csv", "--rule", "Fier"],
            "there is no rule 'Fier'; there is: Fire",
        ),
    ],
)
def test_wrong_input_is_one_sentence_and_exit_code_two(desk: Desk, arguments: list[str], sentence: str) -> None:
    done = desk.run(*arguments)
    assert (done.code, done.out) == (2, "")
    assert sentence in done.err
    assert len(done.err.splitlines()) == 1


def test_a_network_given_instead_of_rules_is_named_with_the_commands_that_run_it(desk: Desk) -> None:
    desk.file("network.yaml", "nodes: {}")
    done = desk.run("run", "network.yaml", "--events", "events.csv")
    assert (done.code, done.out) == (2, "")
    assert "network.yaml is not a rule file" in done.err
    assert "headwater simulate and headwater up run a network" in done.err


def test_mistakes_in_rules_show_the_place(desk: Desk) -> None:
    desk.file("bad.tesla", RULE.replace("value > 45", "valeu > 45"))
    for command in (["run"], ["check"], ["explain"]):
        done = desk.run(*command, "bad.tesla", "--events", "events.csv")
        assert (done.code, done.out) == (2, "")
        assert "bad.tesla:1:" in done.err
        assert "^" in done.err
        assert "valeu" in done.err


def test_check_says_what_each_rule_does(desk: Desk) -> None:
    desk.file("more.sase", "Any: SEQ(Temp t, Smoke s) WITHIN 10 s\n")
    done = desk.run("check", "fire.tesla", "more.sase")
    assert done.code == 0
    assert done.out.splitlines() == [
        "Fire: emits Fire(area: string) from Smoke, last Temp within 5 s from Smoke; reaches back 5 s; "
        "waits for the watermark",
        "Any: emits Any() from SEQ(Temp as t, Smoke as s); within 10 s; fires at once",
        "ok",
    ]
    assert "unchecked: Smoke, Temp" in done.err
    assert desk.run("check", "fire.tesla", "--events", "events.csv").err.splitlines() == [
        "types taken from events.csv:",
        "  event Smoke(area: string)",
        "  event Temp(area: string, value: int)",
    ]
    desk.file("fire.tesla", DECLARED)
    assert desk.run("check", "fire.tesla", "--events", "events.csv").err == ""


def test_check_warns_of_repetitions_that_have_a_match_for_every_choice(desk: Desk) -> None:
    desk.file("r.sase", "X: SEQ(A a, B+ b[], C c) WITHIN 1 h\n")
    assert "warning: X: B as b+ has a match for every choice of its events" in desk.run("check", "r.sase").err
    for bounded in ("SEQ(A a, B+ b[] LIMIT 5, C c) WITHIN 1 h", "SEQ(A a, B+ b[]) WITHIN 1 h SKIP TILL NEXT MATCH"):
        desk.file("r.sase", f"X: {bounded}\n")
        assert "warning" not in desk.run("check", "r.sase").err


@pytest.mark.parametrize("name", ["check", "run", "explain"])
def test_rules_that_may_not_be_meant_are_warned_of(desk: Desk, name: str) -> None:
    desk.file("r.sase", "X: SEQ(A a, B b) WHERE a.v = a.v AND b.v > 7 AND b.v < 1 WITHIN 5")
    desk.file("t.csv", "type,ts,v\nA,1,5\nB,2,1\n")
    done = desk.run(name, "r.sase", "--events", "t.csv")
    assert done.code == 0
    assert "r.sase:1:65: warning: this window is 5 events long" in done.err
    assert "warning: X: `a.v = a.v` is true of every event that has the value; name another event" in done.err
    assert "warning: X: `b.v < 1 and b.v > 7` are never true together; write or instead of and" in done.err
    assert "warning" not in done.out


def test_check_shows_the_mistakes_of_all_files(desk: Desk) -> None:
    desk.file("a.tesla", "define X() from A() and latest B() within 5 s from A\n")
    desk.file("b.sase", "SEQ(A a, B b\n")
    done = desk.run("check", "a.tesla", "b.sase")
    assert (done.code, done.out) == (2, "")
    assert "a.tesla:1:" in done.err
    assert "b.sase:" in done.err


def test_check_knows_which_rules_fire_at_once(desk: Desk) -> None:
    desk.file(
        "r.sase",
        "One: SEQ(A a, B+ b[]) WITHIN 5 s\nTwo: SEQ(A a, !B b, C c) WITHIN 5 s\n"
        "Three: SEQ(A a, B b) WITHIN 5 s SKIP TILL NEXT MATCH\nFour: OR(AND(A a, B b), C c) WITHIN 5 s\n"
        "Five: SEQ(A a, B b) WITHIN 10\n",
    )
    desk.file("r.tesla", "define Six() from A() and each B() within 5 s from A\n"
              "define Seven() from A() and Count(B() within 5 s from A) > 3\n")  # fmt: skip
    lines = desk.run("check", "r.sase", "r.tesla").out.splitlines()
    at_once = {line.split(":")[0] for line in lines if line.endswith("fires at once")}
    assert at_once == {"One", "Four", "Six"}


def test_explain_answers_why_nothing_fired(desk: Desk) -> None:
    done = desk.run("explain", "fire.tesla", "--events", "events.csv", "--near", "1")
    assert done.code == 0
    assert done.out.splitlines()[0] == "Fire: 1 match"
    assert done.out.splitlines()[-1] == ("  Smoke p2#2 ts=9000000: Temp p1#1 ts=1000000 is outside the window by 3 s")


def test_explain_gives_json_and_takes_rules_by_name(desk: Desk) -> None:
    desk.file("more.sase", "Any: SEQ(Temp t, Smoke s) WITHIN 10 s\n")
    done = desk.run("explain", "fire.tesla", "more.sase", "--events", "events.csv", "--rule", "Any", "--json")
    (found,) = done.composites
    assert (found["rule"], found["matches"]) == ("Any", 2)
    assert list(found) == ["rule", "matches", "branches", "nearest_misses", "notes"]


def test_explain_uses_remote_tables(desk: Desk) -> None:
    desk.file("r.sase", REMOTE_RULE)
    desk.file("e.csv", REMOTE_EVENTS)
    desk.file("t.csv", "key,value\nx,4\ny,6\n")
    done = desk.run("explain", "r.sase", "--events", "e.csv", "--remote", "limits=t.csv")
    assert "X: 2 matches" in done.out
    assert "2 turned away: `a.v > REMOTE.limits[a.k]`" in done.out


def test_the_example_of_the_guide_gives_two_fires(desk: Desk) -> None:
    done = desk.run("run", str(FIRE / "fire.tesla"), "--events", str(FIRE / "events.csv"))
    assert [(c["attributes"]["area"], c["attributes"]["temperature"]) for c in done.composites] == [
        ("A1", 51.0), ("A3", 60.0),
    ]  # fmt: skip
    assert done.out in (PROJECT / "docs" / "guide" / "start.md").read_text(encoding="utf-8")


def test_version_and_help(desk: Desk) -> None:
    done = desk.run("--version")
    assert (done.code, done.out.split()[0]) == (0, "headwater")
    done = desk.run("--help")
    assert done.code == 0
    assert "Show why a pattern did not match" in done.out
    for command in ("run", "check", "explain"):
        assert command in done.out
        assert "--events" in desk.run(command, "--help").out


def test_help_lists_every_command() -> None:
    told = [name for commands in SECTIONS.values() for name in commands]
    assert sorted(told) == sorted(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


def command(*arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    return subprocess.Popen(
        [sys.executable, "-m", "headwater.deploy.cli.command", *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, **options,
    )  # fmt: skip


def test_a_live_pipe_is_answered_while_it_is_still_open(desk: Desk) -> None:
    desk.file("r.sase", "event A(v: int)\nX: SEQ(A a) WHERE a.v > 3 WITHIN 1 s\n")
    with command("run", "r.sase", "--events", "-", cwd=desk.folder) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"type,ts,v\nA,1,5\nA,2,1\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["ts"] == 1
        process.stdin.write(b"A,3,6\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["ts"] == 3
        process.stdin.close()
        until(lambda: process.poll() is not None, "the command ends")
        assert process.returncode == 0


def test_a_reader_that_has_seen_enough_ends_the_run_quietly(desk: Desk) -> None:
    desk.file("r.sase", "event A(v: int)\nX: SEQ(A a) WITHIN 1 s\n")
    desk.file("many.csv", "type,ts,v\n" + "".join(f"A,{ts},1\n" for ts in range(20_000)))
    with command("run", "r.sase", "--events", "many.csv", "--live", cwd=desk.folder) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        until(lambda: process.poll() is not None, "the command ends")
        assert process.returncode == 0


def test_ctrl_c_ends_a_stream_with_what_was_found_so_far(desk: Desk) -> None:
    heeds = partial(
        signal.signal, signal.SIGINT, signal.SIG_DFL
    )  # shells let what they start in the background ignore it
    desk.file("r.sase", "event A(v: int)\nX: SEQ(A a) WITHIN 1 s\n")
    with command("run", "r.sase", "--events", "-", cwd=desk.folder, preexec_fn=heeds) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"type,ts,v\nA,1,5\n")
        process.stdin.flush()
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = output_of(process)
    assert process.returncode == 130
    assert err.startswith(b"1 row read")
    assert err.endswith(b"headwater: stopped\n")


def test_a_stream_of_unknown_types_says_what_it_waits_for(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    with command("run", "fire.tesla", "--events", "-", cwd=desk.folder) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(EVENTS.encode())
        process.stdin.flush()
        assert process.stderr.readline().startswith(b"waiting for 1,000 rows, or the end, to learn the event types")
        process.stdin.close()
        until(lambda: process.poll() is not None, "the command ends")
        assert process.returncode == 0


def test_a_pipe_gets_no_progress_bar(desk: Desk) -> None:
    with command("run", "fire.tesla", "--events", "events.csv", "-q", cwd=desk.folder) as process:
        out, err = output_of(process)
    assert err == b""
    assert len(out.splitlines()) == 1


def test_a_terminal_gets_a_progress_bar(desk: Desk) -> None:
    import pty

    desk.file("r.sase", "event A(v: int)\nX: SEQ(A a, A b) WHERE a.v > b.v WITHIN 1 s\n")
    desk.file("many.csv", "type,ts,v\n" + "".join(f"A,{ts * 100_000},1\n" for ts in range(60_000)))
    try:
        master, slave = pty.openpty()
    except OSError:
        pytest.skip("this machine has no pseudo-terminals")
    environment = {**os.environ, "PYTHONPATH": str(PROJECT), "TERM": "xterm", "COLUMNS": "100"}
    process = subprocess.Popen(
        [sys.executable, "-m", "headwater.deploy.cli.command", "run", "r.sase", "--events", "many.csv", "--count"],
        stdout=subprocess.DEVNULL, stderr=slave, env=environment, cwd=desk.folder,
    )  # fmt: skip
    os.close(slave)
    shown = b""
    patience = Patience(PATIENCE_S)
    while not patience.over:
        try:
            chunk = os.read(master, 4096)
        except OSError:
            break
        if not chunk:
            break
        shown += chunk
    os.close(master)
    assert process.wait(ANSWER_S) == 0
    assert b"events" in shown
    assert b"/s" in shown


def test_a_type_that_the_trace_does_not_hold_must_be_declared(desk: Desk) -> None:
    desk.file("e.csv", "type,ts,area\nSmoke,1,A1\n")
    done = desk.run("run", "fire.tesla", "--events", "e.csv")
    assert done.code == 2
    assert "unknown event type 'Temp'" in done.err
    assert "declare them: event Name(attribute: kind, ..)" in done.err
    desk.file("fire.tesla", "event Temp(area: string, value: float)\n" + RULE)
    assert desk.run("run", "fire.tesla", "--events", "e.csv").code == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, a disk that is always full")
def test_a_full_disk_is_a_run_that_failed(desk: Desk) -> None:
    with open("/dev/full", "w") as full:
        process = subprocess.run(
            [sys.executable, "-m", "headwater.deploy.cli.command", "run", "fire.tesla", "--events", "events.csv"],
            stdout=full, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(PROJECT)}, cwd=desk.folder,
            check=False,
        )  # fmt: skip
    assert process.returncode == 1
    assert b"headwater: the run cannot continue: No space left on device" in process.stderr
    assert b"Traceback" not in process.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, a disk that is always full")
def test_a_full_disk_names_the_file_that_did_not_fit(desk: Desk) -> None:
    done = desk.run("run", "fire.tesla", "--events", "events.csv", "--out", "/dev/full")
    assert (done.code, done.err) == (1, "headwater: cannot write /dev/full: No space left on device\n")


def test_a_process_without_standard_output_is_told_so(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", None)
        with pytest.raises(SystemExit) as left:
            main(["run", "fire.tesla", "--events", "events.csv"])
    assert left.value.code == 2


def test_running_out_of_memory_is_a_run_that_failed(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(engine: Engine, events: Any) -> None:
        raise RuleError("rule 'X' could not be evaluated") from MemoryError()

    monkeypatch.setattr(Engine, "feed", explode)
    done = desk.run("run", "fire.tesla", "--events", "events.csv")
    assert done.code == 1
    assert "out of memory" in done.err
    assert "LIMIT n or SKIP TILL NEXT MATCH, a shorter window, or only --count" in done.err
    done = desk.run("run", "fire.tesla", "--events", "events.csv", "--count")
    assert done.err.endswith("LIMIT n or SKIP TILL NEXT MATCH, or a shorter window\n")


def test_mistakes_that_come_from_the_trace_say_so(desk: Desk) -> None:
    desk.file("e.csv", EVENTS + "Temp,9000001,p1,A1,n/a\n")
    done = desk.run("run", "fire.tesla", "--events", "e.csv")
    assert done.code == 2
    assert "in e.csv, Temp.value is a string because of 'n/a'; a cell without a value is empty" in done.err
    desk.file("e.jsonl", '{"type": "Smoke", "ts": 1, "area": "A1"}\n{"type": "Temp", "ts": 2, "value": {"c": 3}}\n')
    done = desk.run("run", "fire.tesla", "--events", "e.jsonl")
    assert "in e.jsonl, Temp.value holds a dict" in done.err
    desk.file("e.jsonl", '{"type": "Smoke", "ts": 1, "area": "A1"}\n{"type": "Temp", "ts": 2\n')
    done = desk.run("run", "fire.tesla", "--events", "e.jsonl")
    assert "unknown event type 'Temp'" in done.err
    assert "malformed rows were passed over to learn the types; the first: e.jsonl:2: the line is not JSON" in done.err


def test_a_repetition_over_its_limit_is_said_in_words(desk: Desk) -> None:
    desk.file("r.sase", "X: SEQ(A a, B+ b[] LIMIT 1, C c) WITHIN 1 h\n")
    desk.file("e.csv", "type,ts\nA,1\nB,2\nB,3\nC,4\n")
    done = desk.run("run", "r.sase", "--events", "e.csv")
    assert "X: once a repetition had more events to choose from than its LIMIT, and no match was made" in done.err


def test_explain_counts_matches_that_are_too_many_to_list(desk: Desk) -> None:
    desk.file("r.sase", "X: SEQ(A a, B+ b[], C c) WITHIN 1 h\n")
    desk.file("e.csv", "type,ts\nA,1\n" + "".join(f"B,{ts}\n" for ts in range(2, 62)) + "C,99\n")
    done = desk.run("explain", "r.sase", "--events", "e.csv")
    assert (done.code, done.out.splitlines()[0]) == (0, f"X: {2**60 - 1:,} matches")


def test_without_a_command_the_help_is_shown_as_it_is(desk: Desk) -> None:
    done = desk.run()
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("Usage: headwater")


def test_empty_input_is_no_crash(desk: Desk) -> None:
    desk.file("fire.tesla", DECLARED)
    done = desk.run("run", "fire.tesla", "--events", "-", typed="")
    assert done.code == 2
    assert "standard input: the file is empty" in done.err
    assert desk.run("run", "fire.tesla", "--events", "-", typed="type,ts\n").code == 0
    desk.file("empty.jsonl", "")
    assert desk.run("run", "fire.tesla", "--events", "empty.jsonl").code == 0


def test_a_process_without_standard_input_is_told_so(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    done = desk.run("run", "fire.tesla", "--events", "-")
    assert (done.code, done.err) == (2, "headwater: there is no standard input to read events from\n")


def test_counting_says_how_many_matches_a_condition_over_a_repetition_leaves(desk: Desk) -> None:
    desk.file("r.sase", "Busy: SEQ(A a, R+ r[]) WHERE count(r[]) > 5 WITHIN 1 h\n")
    desk.file("many.csv", "type,ts,v\nA,1,1\n" + "".join(f"R,{ts},1\n" for ts in range(2, 42)))
    done = desk.run("run", "r.sase", "--events", "many.csv", "--count", "--json")
    assert json.loads(done.out) == {"Busy": sum(comb(40, size) for size in range(6, 41))}


def test_a_count_of_any_size_is_printed_whole_as_json_and_rounded_for_people(desk: Desk) -> None:
    desk.file("r.sase", "Busy: SEQ(A a, R+ r[], A b) WITHIN 1 h\n")
    desk.file("many.csv", "type,ts,v\nA,1,1\n" + "".join(f"R,{ts},1\n" for ts in range(2, 15_002)) + "A,20000,1\n")
    done = desk.run("run", "r.sase", "--events", "many.csv", "--count")
    assert done.out == "rule       composites\nBusy  about 2.82e4515\n"
    assert "about 2.82e4515 composite events" in done.err
    done = desk.run("run", "r.sase", "--events", "many.csv", "--count", "--json")
    with any_number_of_digits():
        assert json.loads(done.out) == {"Busy": 2**15_000 - 1}
