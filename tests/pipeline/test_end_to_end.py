"""Six hours of a real cluster, from the raw file to the verdict: prepare, count, plan, run, replay, report, verify.

Every step is the command that a user would type, as a process of its own, in a copy of ``examples/borg``.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from headwater.pipeline.spark.java import java_home
from headwater.protocol.errors import ConfigError
from tests.kit.patience import run_to_its_end

PROJECT: Final = Path(__file__).parent.parent.parent
STRATEGIES: Final = ("centr", "st-pp", "inev")
RULES: Final = {"Retried": 115, "Pressed": 82, "Unplaced": 125, "Burst": 19}
"""How many composites each rule has in the slice. ``verify`` counts them, too, without the engine."""


class Shell:
    """Commands typed in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *words: str, code: int = 0) -> str:
        found = run_to_its_end(
            [sys.executable, "-m", "headwater.deploy.cli.command", *words],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(PROJECT), "SPARK_DRIVER_MEMORY": "1g"},
            text=True,
        )
        assert found.returncode == code, f"{' '.join(words)} ended with {found.returncode}:\n{found.stderr[-3000:]}"
        return str(found.stdout)

    def json(self, *words: str) -> Any:
        return json.loads(self(*words, "--json"))


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    try:
        java_home()
    except ConfigError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("end-to-end") / "borg"
    shutil.copytree(PROJECT / "examples" / "borg", folder)
    typed = Shell(folder)
    yield typed
    for name in STRATEGIES:
        run_to_its_end(
            [sys.executable, "-m", "headwater.deploy.cli.command", "down", "--name", name],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(PROJECT)},
        )


@pytest.fixture(scope="module")
def plan(shell: Shell) -> dict[str, Any]:
    """The trace is prepared and counted, the network knows the statistics; what ``plan`` makes of them."""
    manifest = shell.json("traces", "borg.yaml", "--input", ".", "--out", "trace")
    assert manifest["events"] == 5_192
    shell("statistics", "trace", "--network", "network.yaml", "--out", "statistics.yaml")
    with (shell.folder / "network.yaml").open("a", encoding="utf-8") as file:
        file.write("statistics: statistics.yaml\n")
    found: dict[str, Any] = shell.json("plan", "network.yaml")
    return found


@pytest.fixture(scope="module")
def replayed(shell: Shell, plan: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """By strategy, what ``replay`` says of a real network that was fed the trace."""
    said = {}
    for strategy in STRATEGIES:
        shell("up", "network.yaml", "--strategy", strategy, "--name", strategy)
        said[strategy] = shell.json("replay", "trace", "--name", strategy, "--only-known")
        shell("down", "--name", strategy)
    return said


@pytest.fixture(scope="module")
def report(shell: Shell, replayed: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What ``report`` says of the three networks side by side."""
    found: dict[str, Any] = shell.json("report", *STRATEGIES, "--trace", "trace", "--out", "report")
    return found


def delivered(shell: Shell, strategy: str) -> list[tuple[str, str]]:
    """Sink and identity of everything that the sinks of a run wrote, in order."""
    files = sorted((shell.folder / ".headwater" / strategy / "data").glob("*/*.jsonl"))
    lines = [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    return sorted((each["rule"], each["id"]) for each in lines)


def table(shell: Shell, name: str) -> list[dict[str, str]]:
    with (shell.folder / "report" / "tables" / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_what_was_counted_makes_a_plan_that_is_cheaper_than_centralised(plan: dict[str, Any]) -> None:
    assert 0 < plan["cost"] < plan["centralized_cost"]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_known_event_is_born_once(replayed: dict[str, dict[str, Any]], strategy: str) -> None:
    said = replayed[strategy]
    known = 5_192 - said["left_out"]
    assert (said["events"], said["before"], said["repeated"], said["late"]) == (known, 0, 0, 0)
    assert said["left_out"] == 340 + 359 + 881 + 6  # Enable, Finish, Queue, UpdatePending: no rule reads them


def test_strategies_deliver_the_same_composites(shell: Shell, replayed: dict[str, dict[str, Any]]) -> None:
    central = delivered(shell, "centr")
    assert Counter(rule for rule, _ in central) == RULES
    assert len(set(central)) == len(central)
    assert delivered(shell, "st-pp") == central
    assert delivered(shell, "inev") == central


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_verify_finds_what_was_delivered(shell: Shell, replayed: dict[str, dict[str, Any]], strategy: str) -> None:
    said = shell.json("verify", "trace", "--network", "network.yaml", "--delivered", f".headwater/{strategy}")
    assert said["equal"]
    assert {each["rule"]: (each["expected"], each["delivered"]) for each in said["rules"]} == {
        rule: (number, number) for rule, number in RULES.items()
    }


def test_verify_misses_what_is_taken_away(shell: Shell, replayed: dict[str, dict[str, Any]]) -> None:
    whole = shell.folder / ".headwater" / "centr" / "data" / "n1" / "retried.jsonl"
    less = shell.folder / "less.jsonl"
    less.write_text("".join(whole.read_text(encoding="utf-8").splitlines(keepends=True)[1:]), encoding="utf-8")
    said = shell(
        "verify", "trace", "--network", "network.yaml", "--only", "Retried", "--delivered", "less.jsonl", code=1
    )
    assert "missing: Retried" in said


def test_the_report_agrees_with_the_runs_and_with_itself(shell: Shell, report: dict[str, Any]) -> None:
    runs = {each["run"]: each for each in report["runs"]}
    assert list(runs) == list(STRATEGIES)
    links, types, nodes = table(shell, "links"), table(shell, "link_types"), table(shell, "nodes")
    for name, run in runs.items():
        assert run["strategy"] == name
        assert run["composites"] == sum(RULES.values())
        assert (run["born"], run["late"], run["refused"], run["repeated"], run["restarts"]) == (3_606, 0, 0, 0, 0)
        assert (run["records_dropped"], run["deliveries_unrecorded"]) == (0, 0)
        assert run["transmission_ratio"] == pytest.approx(run["events_sent"] / run["centralised_events"])
        assert run["events_sent"] == summed(links, name, "events", overhead="False")
        assert run["bytes_sent"] == summed(links, name, "bytes", overhead="False")
        for kind in ("primitive", "composite"):
            assert summed(types, name, "events", kind=kind) == summed(links, name, "events", kind=kind)
        assert run["born"] == summed(nodes, name, "born")
        assert 0 <= run["latency_p50_ms"] <= run["latency_p95_ms"] <= run["latency_max_ms"]
        assert run["latency_unknown"] == 0
    # What would have been sent to one node is counted over the trace; the run that did send it has counted as much.
    assert runs["centr"]["events_sent"] == runs["centr"]["centralised_events"]
    assert runs["inev"]["transmission_ratio"] < 1
    assert runs["st-pp"]["transmission_ratio"] < 1


def summed(rows: list[dict[str, str]], run: str, column: str, **where: str) -> int:
    """A column of the rows of a run that have these values."""
    wanted = {"run": run, **where}
    return sum(int(row[column]) for row in rows if all(row[name] == value for name, value in wanted.items()))


def test_the_report_lays_the_runs_side_by_side(shell: Shell, report: dict[str, Any]) -> None:
    compared = {each["run"]: (each["reference"], each["missing"], each["extra"]) for each in report["comparison"]}
    assert compared == {"centr": (None, None, None), "st-pp": ("centr", 0, 0), "inev": ("centr", 0, 0)}
    page = (shell.folder / "report" / "report.html").read_text(encoding="utf-8")
    assert all(name in page for name in (*STRATEGIES, *RULES, "n1", "n5"))
