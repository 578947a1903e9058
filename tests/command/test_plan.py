"""``headwater plan``: for case files and for network files, in words, as JSON and as drawings."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from headwater.deploy.network.file import NetworkFileError, read_network
from headwater.deploy.network.planning_problem import network_problem
from headwater.protocol.errors import ConfigError

PROJECT = Path(__file__).parent.parent.parent
CASES = Path(__file__).parent.parent / "planners" / "inev_cases"
FIELDS = {
    "cost", "centralized_cost", "ratio", "lower_bound", "latency", "seconds", "projections", "transfers",
}  # fmt: skip


def command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headwater.deploy.cli.command", "plan", *map(str, arguments)],
        capture_output=True, text=True, cwd=PROJECT, check=False,
    )  # fmt: skip


def written(folder: Path, rules: str, more: str = "", sinks: str = "Fire") -> Path:
    text = f"""
events: {{Smoke: {{area: string}}, Temp: {{area: string, value: float}}, Rain: {{area: string}}}}
nodes: [a, b, c, d]
links: [{{between: [a, b]}}, {{between: [b, c]}}, {{between: [c, d]}}]
sources:
  - {{node: a, type: Smoke, rate: 2/s, values: {{area: x}}}}
  - {{node: b, type: Temp, rate: 50/s, values: {{area: x, value: 20}}}}
  - {{node: c, type: Temp, rate: 30/s, values: {{area: x, value: 20}}}}
  - {{node: d, type: Rain, client: any, rate: 1/min, values: {{area: x}}}}
sinks: [{{node: d, subscribe: {sinks}}}]
rules:
  - |
    {rules}
{more}
"""
    file = folder / "network.yaml"
    file.write_text(text, encoding="utf-8")
    return file


FIRE = "Fire: SEQ(Smoke s, Temp t, Rain r) WHERE s.area = t.area AND t.value > 45 WITHIN 10s RETURN Fire()"


def test_a_case_in_words_says_what_runs_where_and_why() -> None:
    done = command(CASES / "c01.json")
    assert done.returncode == 0, done.stderr
    for part in ("cost ", "centralised     215", "ratio ", "lower bound ", "an estimate; a plan may cost less",
                 "latency ",
                 "query AND(E, SEQ(B, AND(C, SEQ(F, G, A))))", "sources of", "gathering them on one node would cost",
                 "what travels", "instead of its types", "falls back: without it, which would cost",
                 "falls back: at 6 alone, which would cost"):  # fmt: skip
        assert part in done.stdout


@pytest.mark.parametrize("planner", ["inev", "centr", "push-pull"])
def test_json_has_the_documented_fields_and_its_cost_can_be_recomputed(planner: str) -> None:
    done = command(CASES / "c01.json", "--planner", planner, "--json")
    assert done.returncode == 0, done.stderr
    printed: dict[str, Any] = json.loads(done.stdout)
    assert printed.keys() >= FIELDS
    assert sum(len(each["edges"]) * each["rate"] for each in printed["transfers"]) == pytest.approx(printed["cost"])
    assert printed["centralized_cost"] == 215
    assert printed["ratio"] == pytest.approx(printed["cost"] / 215)
    assert printed["lower_bound_kind"] == "estimate"
    assert all(isinstance(node, int) for each in printed["projections"] for node in each["nodes"])
    for each in printed["projections"]:
        kind = None if each["fall_back"] is None else each["fall_back"]["kind"]
        if planner != "inev" or (each["placement"] == "single" and each["queries"]):
            assert kind is None
        else:
            assert kind == ("single" if each["placement"] == "multi" else "leave out")
            assert (each["fall_back"]["node"] is None) == (kind == "leave out")
            assert each["fall_back"]["extra_cost"] > 0


def test_drawings_name_every_node_and_link(tmp_path: Path) -> None:
    picture = tmp_path / "plan.svg"
    done = command(CASES / "c01.json", "--dot", "--svg", picture)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("graph plan {")
    assert done.stdout.count(" -- ") == 10
    root = ElementTree.fromstring(picture.read_text(encoding="utf-8"))
    space = "{http://www.w3.org/2000/svg}"
    assert len(root.findall(f"{space}circle")) == 10
    assert len(root.findall(f"{space}line")) == 10


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("missing.json",), "cannot read missing.json"),
        (("missing.yaml",), "there is no network file missing.yaml"),
        (
            (CASES / "c01.json", "--planner", "best"),
            "unknown planner 'best'; planners are inev, exact, centr, push-pull",
        ),
        ((CASES / "c01.json", "--json", "--dot"), "ask for one of them"),
        ((CASES / "c01.json", "--budget", "0"), "leaves no time"),
        ((CASES / "c01.json", "--planner", "exact"), "the exact planner tries every plan"),
        ((CASES / "c01.json", "--latency-bound", "soon"), "write off, centr (no slower than centralised)"),
        ((CASES / "c01.json", "--latency-factor", "-1"), "has no meaning"),
        ((CASES / "c01.json", "--svg", "no/such/folder/plan.svg"), "cannot write no/such/folder/plan.svg"),
    ],
)
def test_wrong_input_ends_with_2_and_a_sentence(arguments: tuple[str | Path, ...], sentence: str) -> None:
    done = command(*arguments)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_a_network_file_is_planned_with_delivery_to_its_sinks(tmp_path: Path) -> None:
    done = command(written(tmp_path, FIRE), "--json")
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    assert printed["cost_model"] == "physical"
    assert "no selectivity is given for s.area = t.area, so 0.1 is assumed" in done.stderr
    assert "no selectivity is given for Temp[value > 45], so 0.5 is assumed" in done.stderr
    assert sum(len(each["edges"]) * each["rate"] for each in printed["transfers"]) == pytest.approx(printed["cost"])
    assert printed["cost"] <= printed["centralized_cost"] * (1 + 1e-9)
    final = next(each for each in printed["projections"] if each["queries"] == ["Fire"])
    delivered = [each for each in printed["transfers"] if each["projection"] == final["projection"]]
    assert final["nodes"] == ["d"] or any("d" in each["to"] for each in delivered)


def test_statistics_of_the_file_take_the_place_of_defaults(tmp_path: Path) -> None:
    more = """
statistics:
  rates: {Smoke: 4/s, Temp: {b: 10/s}}
  selectivities: {Fire: {"s, t": 0.01, "t": 0.2}}
"""
    problem = network_problem(read_network(written(tmp_path, FIRE, more)))
    assert problem.warnings == ()
    assert problem.network.rates["Smoke"] == {0: 4.0}
    assert problem.network.rates["Temp[value > 45]"] == {1: pytest.approx(2.0), 2: pytest.approx(6.0)}
    (query,) = problem.queries
    assert query.window_s == 10
    assert query.pairs == {frozenset(("Smoke", "Temp[value > 45]")): 0.01}
    assert problem.sinks == {"Fire": (3,)}


@pytest.mark.parametrize(
    ("rules", "pattern"),
    [
        ("Fire: SEQ(Smoke s, !Rain r, Temp t) WITHIN 5s RETURN Fire()", "NSEQ(Smoke, Rain, Temp)"),
        ("Fire: AND(Smoke s, Temp+ t[]) WITHIN 5s RETURN Fire()", "AND(Smoke, KL(Temp))"),
        ("define Fire() from Smoke() as s and each Temp() as t within 5s from s", "SEQ(Temp, Smoke)"),
        (
            "define Fire() from Smoke() as s and each Temp() as t within 5s from s "
            "and each Rain() as r within 5s from t",
            "SEQ(SEQ(Rain, Temp), Smoke)",
        ),
    ],
)
def test_rules_become_queries(tmp_path: Path, rules: str, pattern: str) -> None:
    (query,) = network_problem(read_network(written(tmp_path, rules))).queries
    assert str(query.pattern) == pattern
    assert not query.whole


@pytest.mark.parametrize(
    "rules",
    [
        "define Fire() from Smoke() as s and last Temp() as t within 5s from s",
        "Fire: SEQ(Smoke s, Temp t, !Rain r) WITHIN 5s RETURN Fire()",
        "Fire: SEQ(Smoke s, Temp t) WITHIN 5s SKIP TILL NEXT MATCH RETURN Fire()",
    ],
)
def test_what_must_be_decided_in_one_place_is_one_piece_on_one_node(tmp_path: Path, rules: str) -> None:
    done = command(written(tmp_path, rules), "--json")
    assert done.returncode == 0, done.stderr
    (only,) = json.loads(done.stdout)["projections"]
    assert only["placement"] == "single"


def test_or_becomes_one_query_per_alternative(tmp_path: Path) -> None:
    rules = "Fire: SEQ(Smoke s, OR(Temp t, Rain r)) WITHIN 5s RETURN Fire()"
    problem = network_problem(read_network(written(tmp_path, rules)))
    assert [query.name for query in problem.queries] == ["Fire (1)", "Fire (2)"]
    assert problem.sinks == {"Fire (1)": (3,), "Fire (2)": (3,)}


def test_a_type_twice_is_refused_unless_its_conditions_differ(tmp_path: Path) -> None:
    twice = "Fire: SEQ(Temp s, Temp t) WITHIN 5s RETURN Fire()"
    with pytest.raises(ConfigError, match="names Temp twice"):
        network_problem(read_network(written(tmp_path, twice)))
    apart = "Fire: SEQ(Temp s, Temp t) WHERE s.value < 5 AND t.value > 50 WITHIN 5s RETURN Fire()"
    (query,) = network_problem(read_network(written(tmp_path, apart))).queries
    assert str(query.pattern) == "SEQ(Temp[value < 5], Temp[value > 50])"


def test_a_rule_over_composites_says_what_to_write(tmp_path: Path) -> None:
    first = "Fire: SEQ(Smoke s, Temp t) WITHIN 5s RETURN Fire()"
    rules = f"{first}\n  - |\n    Alarm: SEQ(Fire f, Rain r) WITHIN 5s RETURN Alarm()"
    with pytest.raises(ConfigError, match="rule Alarm reads Fire, which rule Fire finds"):
        network_problem(read_network(written(tmp_path, rules, sinks="Alarm")))


@pytest.mark.parametrize(
    ("statistics", "sentence"),
    [
        ("statistics: {rates: {Smoke: -1/s}}", "cannot be negative"),
        ("statistics: {rates: {Smoke: often}}", "the rate of Smoke"),
        ("statistics: {selectivities: {Fire: {s: 2}}}", "'2' is not a selectivity"),
        ("statistics: {selectivities: {Fire: {s: 0}}}", "'0' is not a selectivity"),
        ("statistics: {speed: 3}", "statistics has no key 'speed'"),
    ],
)
def test_wrong_statistics_are_shown_where_they_stand(tmp_path: Path, statistics: str, sentence: str) -> None:
    with pytest.raises(NetworkFileError, match=sentence):
        read_network(written(tmp_path, FIRE, statistics))


def test_a_source_without_a_rate_is_named(tmp_path: Path) -> None:
    file = written(tmp_path, FIRE)
    (tmp_path / "temp.csv").write_text("type,ts,area,value\nTemp,1,x,3\n", encoding="utf-8")
    text = file.read_text(encoding="utf-8").replace("rate: 50/s, values: {area: x, value: 20}", "trace: temp.csv")
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match="nothing says how often Temp occurs at b; write statistics"):
        network_problem(read_network(file))
