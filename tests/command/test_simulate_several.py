"""``headwater simulate --strategy all --seeds N``: strategies beside each other, over the same events."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from headwater.deploy.cli.command import main
from headwater.deploy.network.file import read_network
from headwater.deploy.simulation.births import births
from headwater.deploy.simulation.comparison import MEASURES, RELATIVE
from headwater.deploy.simulation.simulator import Simulation, simulate
from headwater.deploy.simulation.traffic_and_delay import figures
from headwater.protocol.strategy import STRATEGIES

NETWORK = """\
events:
  Smoke: {area: string}
  Temp: {area: string, value: float}
nodes: [p1, p2, p3]
links:
  - {between: [p1, p2], delay: 5ms}
  - {between: [p2, p3], delay: 5ms}
sources:
  - {node: p2, type: Smoke, rate: 1/s, values: {area: {choice: [A1, A2]}}}
  - {node: p3, type: Temp, rate: 5/s, values: {area: {choice: [A1, A2]}, value: {uniform: [30, 50]}}}
sinks:
  - {node: p1, subscribe: Fire}
rules:
  - |
    define Fire(area: string)
    from Smoke() and last Temp(area = Smoke.area, value > 45) within 5 s from Smoke
    where area = Smoke.area
strategy: st
duration: 20s
"""
COUNTED = NETWORK.replace(
    """    define Fire(area: string)
    from Smoke() and last Temp(area = Smoke.area, value > 45) within 5 s from Smoke
    where area = Smoke.area
""",
    """    SEQ(Smoke s, Temp t)
    WHERE s.area = t.area
    WITHIN 5
    RETURN Fire(area = s.area)
""",
)


class Command:
    """The command, in a folder with a network."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capsys = capsys
        self.file = folder / "fires.yaml"
        self.file.write_text(NETWORK)

    def __call__(self, *options: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            main(["simulate", str(self.file), *options])
        said = self._capsys.readouterr()
        assert isinstance(left.value.code, int)
        return left.value.code, said.out, said.err

    def found(self, *options: str) -> dict[str, Any]:
        code, out, err = self(*options, "--json")
        assert code == 0, err
        found = json.loads(out)
        assert isinstance(found, dict)
        return found


@pytest.fixture
def command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(tmp_path, capsys)


def by_strategy(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["strategy"]: each for each in found["strategies"]}


def test_all_strategies_are_compared_over_all_seeds(command: Command) -> None:
    found = command.found("--strategy", "all", "--seed", "4", "--seeds", "3")
    assert (found["network"], found["seeds"], found["baseline"]) == ("fires", [4, 5, 6], "centr")
    assert [each["strategy"] for each in found["strategies"]] == list(STRATEGIES)
    file = read_network(command.file)
    for each in found["strategies"]:
        assert (each["why_not"], each["same_as_centr"]) == (None, True)
        assert [run["seed"] for run in each["runs"]] == [4, 5, 6]
        assert each["figures"].keys() == MEASURES.keys()
        assert each["relative_to_centr"].keys() == set(RELATIVE)
        if each["strategy"] == "inev":
            continue  # what a planner knows is not told here
        for run in each["runs"]:
            born = births(file, seed=run["seed"], until_us=file.duration_us)
            alone = figures(simulate(file.network, born, strategy=each["strategy"], seed=run["seed"]))
            assert run["figures"]["events"] == alone.traffic.events
            assert run["figures"]["bytes"] == alone.traffic.bytes + alone.overhead.bytes
            assert run["figures"]["delay_p99_us"] == alone.delay_us[99]


def test_means_spreads_and_ratios_are_those_of_the_runs(command: Command) -> None:
    found = by_strategy(command.found("--strategy", "st", "--seeds", "4"))
    st, centr = found["st"], found["centr"]
    values = [run["figures"]["bytes"] for run in st["runs"]]
    mean = sum(values) / 4
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / 3)
    told = st["figures"]["bytes"]
    assert (told["mean"], told["min"], told["max"]) == (pytest.approx(mean), min(values), max(values))
    assert told["half_width_95"] == pytest.approx(3.182 * deviation / 2)
    ratios = [
        run["figures"]["bytes"] / base["figures"]["bytes"] for run, base in zip(st["runs"], centr["runs"], strict=True)
    ]
    assert [run["relative_to_centr"]["bytes"] for run in st["runs"]] == ratios
    assert st["relative_to_centr"]["bytes"]["mean"] == pytest.approx(sum(ratios) / 4)
    assert centr["relative_to_centr"]["events"]["mean"] == 1.0


def test_one_seed_has_no_interval_and_lists_name_strategies(command: Command) -> None:
    found = command.found("--strategy", "mt, st,mt")
    assert [each["strategy"] for each in found["strategies"]] == ["centr", "mt", "st"]
    assert by_strategy(found)["mt"]["figures"]["events"]["half_width_95"] is None
    assert found["seeds"] == [0]
    assert [each["strategy"] for each in command.found("--seeds", "2")["strategies"]] == ["centr", "st"]
    code, _, err = command("--strategy", "st,mtt")
    assert (code, "unknown strategy 'mtt'; did you mean 'mt'?" in err) == (2, True)


def test_a_strategy_that_cannot_serve_a_rule_is_told_in_a_row(command: Command) -> None:
    command.file.write_text(COUNTED)
    found = by_strategy(command.found("--strategy", "all"))
    assert found["centr"]["why_not"] is None
    assert found["centr"]["figures"]["composites"]["mean"] > 0
    for strategy in STRATEGIES[1:]:
        assert "count" in found[strategy]["why_not"]
        assert (found[strategy]["same_as_centr"], found[strategy]["runs"]) == (None, [])
        assert found[strategy]["figures"]["events"] is None
    code, out, _ = command("--strategy", "st,mt")
    assert code == 0
    assert out.count("not for this network: ") == 2
    assert "Only centr was simulated." in out


def test_a_file_that_no_strategy_can_read_is_wrong_input(command: Command) -> None:
    command.file.write_text(NETWORK.replace("p3, type: Temp", "p9, type: Temp"))
    code, out, err = command("--strategy", "all")
    assert (code, out) == (2, "")
    assert "p9" in err


def test_sinks_that_receive_something_else_fail_the_run_after_the_table(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver = Simulation._deliver

    def forgetful(self: Simulation, node: str, sink: int, row: tuple[Any, ...]) -> None:
        self.outcome.counters["asked"] += 1
        if self.strategy != "mt" or self.outcome.counters["asked"] != 1:
            deliver(self, node, sink, row)

    monkeypatch.setattr(Simulation, "_deliver", forgetful)
    code, out, err = command("--strategy", "st,mt", "--seeds", "2")
    assert code == 1
    assert "Sinks did NOT receive what they received under centr: mt with seed 0 and 1." in out
    assert err.count("mt and centr delivered different events (0 only with mt, 1 only with centr)") == 2
    assert f"to repeat it: headwater simulate {command.file} --strategy mt --seed 1" in err
    code, out, _ = command("--strategy", "st,mt", "--json")
    assert code == 1
    found = by_strategy(json.loads(out))
    assert (found["st"]["same_as_centr"], found["mt"]["same_as_centr"]) == (True, False)


def test_the_table_and_the_page_are_for_people(command: Command) -> None:
    chart = command.folder / "strategies.html"
    code, out, err = command("--strategy", "all", "--seeds", "2", "--chart", str(chart))
    assert code == 0, err
    lines = out.splitlines()
    assert lines[0] == "fires, seeds 0 to 1: means, with 95 % confidence intervals"
    assert [line.split()[0] for line in lines[3:9]] == list(STRATEGIES)
    assert "bytes, with overhead, beside centr" in lines
    assert lines[-1] == "Sinks received the same under centr, st, mt, st-pp, mt-pp and inev."
    assert "12 runs took " in err
    text = chart.read_text()
    assert "<h1>Strategies for fires</h1>" in text
    for strategy in STRATEGIES:
        assert f'data-strategy="{strategy}" data-measure="bytes"' in text
    code, out, err = command("--strategy", "st", "--quiet", "--chart", str(command.folder / "one.html"))
    assert (code, out) == (0, "")


def test_what_is_for_one_run_and_charts_that_cannot_be_written_are_refused(command: Command) -> None:
    for option in ("--out", "--tables", "--record"):
        code, _, err = command("--strategy", "all", option, str(command.folder / "x"))
        assert (code, f"{option} is for one run" in err) == (2, True)
    code, _, err = command("--chart", str(command.folder / "chart.png"))
    assert (code, "name a file that ends in .html" in err) == (2, True)
    code, _, err = command("--chart", str(command.folder / "no" / "chart.html"))
    assert (code, "there is no folder" in err) == (2, True)
    code, _, err = command("--seeds", "0")
    assert code == 2
