"""``headwater simulate``: options, output, and what it says when a run fails; with a stand-in, then for real."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from headwater.deploy.cli.command import main
from headwater.deploy.network.file import read_network
from headwater.deploy.simulation.checkers import Checkers
from headwater.deploy.simulation.outcome import Delivery, Outcome
from headwater.deploy.simulation.traffic_and_delay import delivery_line, figures
from headwater.protocol.edge import Broker, Feed, MqttFeed, RateFeed, TraceFeed
from headwater.protocol.errors import RuleError
from headwater.protocol.events import Event
from headwater.protocol.network import Network, Source
from headwater.protocol.strategy import STRATEGIES
from tests.simulation.test_figures import a_central_run, a_run, smoke

PULL = Path(__file__).parent.parent.parent / "examples" / "fire" / "pull.yaml"
NETWORK = Network(
    types=(), nodes=("p1", "p2"), links=(), sources=(Source("p2", "Smoke"),), sinks=(), rules=(), strategy="st"
)


RATE, TRACE = RateFeed(2.0, "regular", ()), TraceFeed("smoke.csv")


@dataclass
class Bench:
    """The command over a network file and a simulator that are told what to say."""

    folder: Path
    capsys: pytest.CaptureFixture[str]
    feed: Feed
    duration_us: int | None = None
    seed: int | None = 7
    warnings: tuple[str, ...] = ()
    simulate: Callable[[str], Outcome] = lambda strategy: a_central_run() if strategy == "centr" else a_run(strategy)
    calls: list[dict[str, Any]] = field(default_factory=list)
    network: Network = NETWORK

    def read_network(self, path: Path, *, strategy: str | None, duration_us: int | None) -> SimpleNamespace:
        self.network = replace(NETWORK, strategy=strategy or NETWORK.strategy)
        return SimpleNamespace(
            network=self.network,
            feeds=(self.feed,),
            duration_us=self.duration_us if duration_us is None else duration_us,
            seed=self.seed,
            warnings=self.warnings,
        )

    def births(self, file: Any, *, seed: int, until_us: int | None) -> Iterable[tuple[int, int, Event]]:
        self.calls.append({"births": seed, "until_us": until_us})
        return iter([(10, 0, smoke(10))])

    def run_simulation(
        self, network: Network, births: Any, *, on_progress: Any, watcher: Any, **options: Any
    ) -> Outcome:
        assert network is self.network
        assert watcher is None
        self.calls.append(options)
        for at_us, _, _ in births:
            on_progress(at_us)
        return self.simulate(options["strategy"])

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            main(["simulate", *arguments])
        captured = self.capsys.readouterr()
        assert "Traceback" not in captured.err
        return int(left.value.code or 0), captured.out, captured.err


@pytest.fixture
def bench(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench(tmp_path, capsys, TraceFeed(str(tmp_path / "smoke.csv")))
    for module, name, stand_in in (
        ("headwater.deploy.network.file", "read_network", made.read_network),
        ("headwater.deploy.simulation.births", "births", made.births),
        ("headwater.deploy.simulation.simulator", "simulate", made.run_simulation),
    ):
        fake = ModuleType(module)
        setattr(fake, name, stand_in)
        monkeypatch.setitem(sys.modules, module, fake)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "smoke.csv").write_text("type,ts\n")
    (tmp_path / "fire.tesla").write_text("")
    (tmp_path / "fire.yaml").write_text("nodes: [p1, p2]\n")
    return made


def test_the_report_compares_with_centr_over_the_same_events(bench: Bench) -> None:
    code, out, err = bench("fire.yaml")
    assert code == 0
    assert out.startswith("strategy st: 3 composite events delivered\n")
    assert "relative to centr: events 50.0%" in out
    assert "seed 7" in err
    assert bench.calls == [
        {"births": 7, "until_us": None},
        {"strategy": "st", "seed": 7, "check": False, "remote": None},
        {"births": 7, "until_us": None},
        {"strategy": "centr", "seed": 7, "check": False, "remote": None},
    ]


def test_centr_is_compared_with_nothing(bench: Bench) -> None:
    code, out, _ = bench("fire.yaml", "--strategy", "centr", "--json")
    assert code == 0
    assert json.loads(out) == figures(a_central_run()).to_json()
    assert len(bench.calls) == 2


def test_options_outweigh_the_file(bench: Bench) -> None:
    bench.duration_us = 5
    assert bench("fire.yaml", "--strategy", "mt", "--seed", "3", "--duration", "2ms")[0] == 0
    assert bench.calls[:2] == [
        {"births": 3, "until_us": 2_000},
        {"strategy": "mt", "seed": 3, "check": False, "remote": None},
    ]


def test_a_run_without_a_seed_has_one_nevertheless(bench: Bench) -> None:
    bench.seed = None
    bench("fire.yaml")
    assert bench.calls[1]["seed"] == 0


def test_both_runs_are_checked_if_asked_for(bench: Bench) -> None:
    assert bench("fire.yaml", "--check")[0] == 0
    assert [call["check"] for call in bench.calls if "check" in call] == [True, True]


@pytest.mark.parametrize(
    ("times", "until_us", "feed", "said"),
    [
        ([5_000_000, 599_960_000], 600_000_000, RATE, "2 events in 10 min of virtual time"),
        ([5_000_000, 18_456_000], None, TRACE, "2 events in 13.46 s of virtual time"),
        ([5_000_000, 18_456_000], 3_600_000_000, TRACE, "2 events in 13.46 s of virtual time"),
        ([0, 59_999_000], None, TRACE, "2 events in 1 min of virtual time"),
        ([0, 999], None, TRACE, "2 events in 999 us of virtual time"),
        ([5], None, TRACE, "1 event in 0 us of virtual time"),
        ([], 100_000, RATE, "0 events in 100 ms of virtual time"),
    ],
)
def test_the_last_line_says_how_long_events_were_born(
    bench: Bench, times: list[int], until_us: int | None, feed: Feed, said: str
) -> None:
    def late_to_finish(strategy: str) -> Outcome:
        outcome = a_run(strategy)
        outcome.born = [smoke(at, n) for n, at in enumerate(times)]
        outcome.started_us, outcome.finished_us = -400_000, 900_000_000
        return outcome

    bench.simulate, bench.feed, bench.duration_us = late_to_finish, feed, until_us
    assert bench("fire.yaml")[2].splitlines()[-1].startswith(f"{said}, seed 7; took ")


def test_json_is_one_object_and_out_has_the_deliveries(bench: Bench) -> None:
    code, out, err = bench("fire.yaml", "--json", "--quiet", "--out", "fires.jsonl")
    assert (code, err) == (0, "")
    assert json.loads(out) == figures(a_run(), a_central_run()).to_json()
    # By arrival, which is the order they were made in.
    assert (bench.folder / "fires.jsonl").read_text() == "".join(map(delivery_line, a_run().delivered))


def test_quiet_says_nothing(bench: Bench) -> None:
    assert bench("fire.yaml", "--quiet") == (0, "", "")


def test_warnings_of_the_file_are_said(bench: Bench) -> None:
    bench.warnings = ("fire.yaml:3:1: warning: no rule reads Temp",)
    assert bench("fire.yaml")[2].startswith("fire.yaml:3:1: warning: no rule reads Temp\n")


def test_a_source_with_a_rate_needs_a_duration(bench: Bench) -> None:
    bench.feed = RateFeed(2.0, "regular", ())
    code, _, err = bench("fire.yaml")
    assert code == 2
    assert err == (
        "headwater: fire.yaml: the source of Smoke at p2 makes events for ever; say how long with duration: in the "
        "file, or with --duration 10s\n"
    )
    assert bench("fire.yaml", "--duration", "1s")[0] == 0
    bench.duration_us = 1_000
    assert bench("fire.yaml")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--duration", "0"], "a run of no duration has no events; give it more, as in --duration 10s"),
        (["--duration", "soon"], "'soon' is not a duration"),
        (["--strategy", "mtt"], "unknown strategy 'mtt'; did you mean 'mt'?"),
        (["--strategy", "gossip"], "unknown strategy 'gossip'; strategies: centr, st, mt, st-pp, mt-pp, inev, all"),
        (["--out", "fire.yaml"], "fire.yaml would be overwritten while it is in use; write to another file"),
        (["--out", "smoke.csv"], "smoke.csv would be overwritten while it is in use; write to another file"),
        (["--out", "fire.tesla"], "fire.tesla is a rule file; write what sinks receive to another file"),
        (["--out", "no/where.jsonl"], "cannot write no/where.jsonl: No such file or directory"),
    ],
)
def test_wrong_options_are_named(bench: Bench, arguments: list[str], sentence: str) -> None:
    code, out, err = bench("fire.yaml", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"headwater: {sentence}")
    assert bench.calls == []
    assert (bench.folder / "fire.yaml").read_text()


def test_a_broker_cannot_be_simulated(bench: Bench) -> None:
    bench.feed = MqttFeed("sensors/+/smoke", Broker("localhost"))
    code, _, err = bench("fire.yaml")
    assert code == 2
    assert "the source of Smoke at p2 reads 'sensors/+/smoke' from a broker, which a simulation does not have" in err


def test_a_failing_run_says_how_to_repeat_it(bench: Bench) -> None:
    def fail(strategy: str) -> Outcome:
        raise AssertionError("p1 lost a watermark")

    bench.simulate = fail
    code, out, err = bench("fire.yaml", "--duration", "1.5s")
    assert (code, out) == (1, "")
    assert err.splitlines()[0] == (
        "strategy st failed with seed 7; to repeat it: "
        "headwater simulate fire.yaml --strategy st --seed 7 --duration 1500000us"
    )
    assert "p1 lost a watermark" in err
    code, _, err = bench("fire.yaml", "--check")
    assert code == 1
    assert err.splitlines()[0].endswith(
        "seed 7; to repeat it: headwater simulate fire.yaml --strategy st --seed 7 --check"
    )


def test_a_rule_that_a_strategy_refuses_is_wrong_input_and_no_failed_run(bench: Bench) -> None:
    def refuse(strategy: str) -> Outcome:
        raise RuleError("Fire has a count window, which only run and centr can serve")

    bench.simulate = refuse
    code, _, err = bench("fire.yaml")
    assert (code, err) == (2, "headwater: Fire has a count window, which only run and centr can serve\n")


def test_a_strategy_that_delivers_other_events_than_centr_has_failed(bench: Bench) -> None:
    def lose_one(strategy: str) -> Outcome:
        outcome = a_run(strategy)
        if strategy != "centr":
            outcome.delivered.pop()
            outcome.delivered.append(Delivery(0, "p3", smoke(9, seq=4), 9))
        return outcome

    bench.simulate = lose_one
    code, out, err = bench("fire.yaml")
    assert (code, out) == (1, "")
    lines = err.splitlines()
    assert lines[0].startswith("headwater: st and centr delivered different events (1 only with st, 1 only with centr)")
    assert lines[0].endswith("seed 7, to repeat it: headwater simulate fire.yaml --strategy st --seed 7")
    assert lines[1] == "  too many at p3: Smoke(area='A1')@9 p2#4"
    assert lines[2].startswith("  missing at p3: Fire(area='A1')@3000")


# -- with the real simulator -------------------------------------------------------------------------------------------

TRACE_START_US = 1_782_907_200_000_000
FIRES = """
events:
  Smoke: {area: string}
  Temp: {area: string, value: float}
nodes: [p1, p2, p3]
links:
  - {between: [p1, p2], delay: 5ms, bandwidth: 1Mbit, jitter: 3ms, loss: 0.2}
  - {between: [p2, p3], delay: 5ms}
sources:
  - {node: p1, type: Smoke, trace: smoke.csv}
  - {node: p3, type: Temp, trace: temp.csv}
sinks:
  - {node: p1, subscribe: "Fire(area = 'A1')"}
  - {node: p3, subscribe: Smoke}
rules:
  - |
    define Fire(area: string) from Smoke() and last Temp(area = Smoke.area, value > 45) within 5 s from Smoke
    where area = Smoke.area
seed: 4
"""


def a_folder_of_fires(folder: Path) -> None:
    """A Temp and, a second later, a Smoke every ten seconds, six times, in areas A1 and A2 by turns."""
    area = ["A1", "A2"]
    starts = [TRACE_START_US + 10_000_000 * n for n in range(6)]
    (folder / "fires.yaml").write_text(FIRES)
    temps = "".join(f"Temp,{at},{area[n % 2]},50\n" for n, at in enumerate(starts))
    smokes = "".join(f"Smoke,{at + 1_000_000},{area[n % 2]}\n" for n, at in enumerate(starts))
    (folder / "temp.csv").write_text(f"type,ts,area,value\n{temps}")
    (folder / "smoke.csv").write_text(f"type,ts,area\n{smokes}")


def simulated(folder: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[dict[str, Any], str]:
    out = folder / "out.jsonl"
    with pytest.raises(SystemExit) as left:
        main(["simulate", str(folder / "fires.yaml"), "--json", "--quiet", "--out", str(out), *arguments])
    captured = capsys.readouterr()
    assert (left.value.code, captured.err) == (0, "")
    return json.loads(captured.out), out.read_text()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_real_network_delivers_what_its_sinks_subscribed_to(
    strategy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a_folder_of_fires(tmp_path)
    found, text = simulated(tmp_path, capsys, "--strategy", strategy)
    lines = [json.loads(line) for line in text.splitlines()]
    fires = [line for line in lines if line["type"] == "Fire"]
    smokes = [line for line in lines if line["type"] == "Smoke"]
    assert found["composites"] == 3
    assert [(each["sink"], each["attributes"]) for each in fires] == [("p1", {"area": "A1"})] * 3
    assert [(each["sink"], each["seq"]) for each in smokes] == [("p3", seq) for seq in range(1, 7)]
    # Two links from Smoke to its sink, of at least 5 ms each.
    assert min(each["delivered"] - each["ts"] for each in smokes) >= 10_000
    assert (found["relative_to_centr"] is None) == (strategy == "centr")


def test_equal_seeds_give_equal_bytes_and_other_seeds_other_losses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a_folder_of_fires(tmp_path)
    once = simulated(tmp_path, capsys)
    assert simulated(tmp_path, capsys) == once
    assert simulated(tmp_path, capsys, "--seed", "4") == once
    assert simulated(tmp_path, capsys, "--seed", "5")[1] != once[1]


def test_a_duration_counts_from_the_start_of_the_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a_folder_of_fires(tmp_path)
    found, text = simulated(tmp_path, capsys, "--duration", "25s")
    smokes = [json.loads(line)["seq"] for line in text.splitlines() if '"type": "Smoke", "ts"' in line[:30]]
    assert smokes == [1, 2, 3]
    assert found["composites"] == 2


COUNTED = """
events:
  Smoke: {area: string}
nodes: [p1, p2]
links:
  - {between: [p1, p2], delay: 5ms}
sources:
  - {node: p1, type: Smoke, rate: 2/s, values: {area: A1}}
sinks:
  - {node: p2, subscribe: Twice}
rules:
  - 'Twice: SEQ(Smoke a, Smoke b) WITHIN 2 events'
"""


def run_counted(folder: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[object, str, str]:
    (folder / "counted.yaml").write_text(COUNTED)
    with pytest.raises(SystemExit) as left:
        main(["simulate", str(folder / "counted.yaml"), "--json", *arguments])
    captured = capsys.readouterr()
    return left.value.code, captured.out, captured.err


def test_a_window_of_so_many_events_is_simulated_under_centr_whatever_the_file_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run_counted(tmp_path, capsys, "--strategy", "centr", "--duration", "10s")
    born = int(err.split(" events in 10 s", 1)[0])
    assert (code, json.loads(out)["composites"]) == (0, born - 1)
    code, out, err = run_counted(tmp_path, capsys, "--strategy", "st", "--duration", "10s")
    assert (code, out) == (2, "")
    assert "counted.yaml:12:5: rule 'Twice' has a window that counts events" in err
    assert "use --strategy centr, or give the rule a window of time" in err


def test_a_duration_given_to_the_command_ends_sources_that_would_go_on_for_ever(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "never ends" not in run_counted(tmp_path, capsys, "--strategy", "centr", "--duration", "1s")[2]
    code, _, err = run_counted(tmp_path, capsys, "--strategy", "centr")
    assert code == 2
    assert "warning: this source never ends" in err


def test_the_checkers_watch_a_real_run_and_what_they_find_fails_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    a_folder_of_fires(tmp_path)
    assert simulated(tmp_path, capsys, "--check") == simulated(tmp_path, capsys)

    def complain(self: Checkers, *found: object) -> None:
        raise AssertionError("p1 promised too much")

    monkeypatch.setattr(Checkers, "sent", complain)
    simulated(tmp_path, capsys)  # no checker looks
    with pytest.raises(SystemExit) as left:
        main(["simulate", str(tmp_path / "fires.yaml"), "--check"])
    err = capsys.readouterr().err
    assert left.value.code == 1
    command = f"headwater simulate {tmp_path / 'fires.yaml'} --strategy st --seed 4 --check"
    assert f"strategy st failed with seed 4; to repeat it: {command}\n" in err
    assert "p1 promised too much" in err


# -- the example -------------------------------------------------------------------------------------------------------


def test_in_the_example_for_pulling_the_same_fires_cost_fewer_events(capsys: pytest.CaptureFixture[str]) -> None:
    """Five of its ten minutes; simulate itself compares what sinks receive with centr."""
    found = {}
    for strategy in ("st", "st-pp"):
        with pytest.raises(SystemExit) as left:
            main(["simulate", str(PULL), "--strategy", strategy, "--duration", "5 min", "--json", "--quiet"])
        captured = capsys.readouterr()
        assert (left.value.code, captured.err) == (0, "")
        found[strategy] = json.loads(captured.out)
    push, pull = found["st"], found["st-pp"]
    assert pull["composites"] == push["composites"] > 0
    assert pull["traffic"]["events"] < push["traffic"]["events"] / 4
    assert pull["traffic"]["bytes"] < push["traffic"]["bytes"] / 4
    assert pull["traffic"]["by_kind"]["answer"]["events"] > 0
    assert read_network(PULL).network.strategy == "st-pp"
    assert read_network(PULL).warnings == ()


def test_the_tables_of_all_nodes_can_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = tmp_path / "tables.json"
    with pytest.raises(SystemExit) as ended:
        main(["simulate", str(PULL), "--duration", "1 min", "--quiet", "--tables", str(written)])
    assert ended.value.code in (0, None)
    tables = json.loads(written.read_text(encoding="utf-8"))
    (leader,) = [node for node, table in tables.items() if table["trees"][0]["parent"] is None]
    (work,) = tables[leader]["work"]
    assert work["tasks"] == ["rule Fire"]
    assert any(asked.endswith("filter Smoke") for asked in work["routes"]["asked"])
