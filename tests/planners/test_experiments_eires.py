"""The experiment on remote elements: workloads, runs in simulated time, what is set by hand, shown and concluded."""

from __future__ import annotations

import gzip
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest

from headwater.deploy.cli.command import main
from headwater.deploy.cli.experiment_eires import chosen_figures, recorded_study, results_in
from headwater.deploy.experiments.eires.bushfire import Bushfire
from headwater.deploy.experiments.eires.cluster import FILE, Cluster
from headwater.deploy.experiments.eires.figures import (
    FIGURES,
    LONG,
    MODERATE,
    OURS,
    QUICK,
    STAGES,
    STRATEGIES,
    EiresSize,
)
from headwater.deploy.experiments.eires.findings import findings
from headwater.deploy.experiments.eires.measured import BASELINES
from headwater.deploy.experiments.eires.plots import plot
from headwater.deploy.experiments.eires.runs import COLUMNS, outcome_of, run_job, seconds_of
from headwater.deploy.experiments.eires.scenario import LIMIT, LookupScenario
from headwater.deploy.experiments.eires.station import Outcome, Station, measure
from headwater.deploy.experiments.eires.synthetic import TYPES, Synthetic
from headwater.deploy.experiments.eires.tuning import TunedMemory, Tuning
from headwater.deploy.experiments.inev.tables import table
from headwater.deploy.experiments.jobs import Job
from headwater.deploy.experiments.results import KEY_COLUMNS, ResultRow
from headwater.node.engine import Engine
from headwater.node.engine.program import compile_rules
from headwater.node.remote.caches import CACHES
from headwater.node.remote.policies import POLICIES
from headwater.node.remote.utility import Weights
from headwater.protocol.errors import ConfigError
from headwater.protocol.events import Event
from headwater.protocol.languages import RuleSet, Source, parse_rules
from headwater.protocol.remote import RemoteTable, RemoteValue

BORG = Path(__file__).parent.parent.parent / "examples" / "borg" / FILE.name
TINY: dict[str, Any] = {
    "Q1 next": Synthetic("Q1", "DS1", "next", 900, 300, 400.0, 300, ids=4),
    "Q1 any": Synthetic("Q1", "DS2", "any", 600, 150, 150.0, 300, ids=5),
    "Q2 next": Synthetic("Q2", "DS2", "next", 500, 60, 150.0, 300),
    "Q2 any": Synthetic("Q2", "DS1", "any", 300, 30, 150.0, 300),
    "bushfire": Bushfire(2500),
    "cluster": Cluster(2500),
}


def quiet(share: float) -> None:
    """Progress is not watched."""


def steady() -> Callable[[], int]:
    """A clock on which everything that the engine does takes 10 us."""
    ticks = count(0, 10_000)
    return lambda: next(ticks)


def standing() -> int:
    """A clock on which nothing takes any time."""
    return 0


# -- workloads ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TINY)
def test_a_workload_is_the_same_for_a_seed_and_another_for_another(name: str) -> None:
    workload = TINY[name]
    trace = workload.trace(1)
    assert trace == workload.trace(1) != workload.trace(2)
    times = [event[0] for event in trace]
    assert times == sorted(set(times))
    assert 0.8 * workload.events <= len(trace) <= workload.events
    for table_name, elements in workload.tables().items():
        assert len(elements) * len(workload.tables()) == workload.keys
        assert elements.lookup((7,), 0) == workload.value(table_name, (7,)) is not None


def test_values_are_equally_likely_or_follow_zipfs_law() -> None:
    shares = []
    for data in ("DS1", "DS2"):
        trace = Synthetic("Q1", data, "any", 4000, 100, values=1000).trace()
        (most_often, _), *_ = counted = Counter(event[5] for event in trace).most_common()
        assert min(value for value, _ in counted) >= 1
        assert max(value for value, _ in counted) <= 1000
        shares.append(sum(often for _, often in counted[:10]) / len(trace))
    assert most_often == 1
    assert shares[0] < 0.05
    assert shares[1] > 0.3


def test_generated_tasks_are_evicted_from_the_machine_on_which_they_were() -> None:
    by_task: dict[int, list[Event]] = {}
    for event in Cluster(3000).trace():
        by_task.setdefault(event[4], []).append(event)
    kinds = Counter(event[3].name for events in by_task.values() for event in events)
    assert set(kinds) == {"Submit", "Schedule", "Evict", "Fail", "Finish"}
    for events in by_task.values():
        assert events[0][3].name == "Submit"
        for before, after in pairwise(events[1:]):
            if after[3].name != "Schedule":
                assert before[3].name == "Schedule"
                assert before[6] == after[6]


def test_recorded_task_events_are_read_from_a_folder(tmp_path: Path) -> None:
    (tmp_path / FILE.parent).mkdir()
    shutil.copy(BORG, tmp_path / FILE)
    cluster = Cluster(2000, 10_000.0, str(tmp_path))
    trace = cluster.trace()
    assert len(trace) == 2000
    assert cluster.trace(2) == trace, "recorded once"
    assert {event[3].name for event in trace} == {"Submit", "Schedule", "Evict", "Fail", "Finish"}
    fingerprint = LookupScenario(workload=cluster, strategy="lazy").fingerprint()
    assert LookupScenario(workload=replace(cluster, folder="elsewhere"), strategy="lazy").fingerprint() == fingerprint
    assert LookupScenario(workload=replace(cluster, folder=""), strategy="lazy").fingerprint() != fingerprint
    outcomes = [outcome_of(LookupScenario(workload=cluster, strategy=s), 1) for s in (LIMIT, "block", "hybrid")]
    assert len({outcome.matches for outcome in outcomes}) == 1
    assert recorded_study(tmp_path).name == "13b-recorded"


@pytest.mark.parametrize(
    ("content", "sentence"), [(None, "No such file"), (b"no gzip", "not"), (gzip.compress(b"event_type\n3\n"), "lines")]
)
def test_other_files_are_refused_in_a_sentence(content: bytes | None, sentence: str, tmp_path: Path) -> None:
    (tmp_path / FILE.parent).mkdir()
    if content is not None:
        (tmp_path / FILE).write_bytes(content)
    with pytest.raises(ConfigError, match=sentence):
        Cluster(10, 1.0, str(tmp_path)).trace()


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"strategy": "eager"}, "strategy must be limit or one of block"),
        ({"cache": "fifo"}, "cache must be one of lru, cost"),
        ({"cached_share": 2.0}, "cached_share"),
        ({"latency_us": (5.0, 1.0)}, "latencies"),
        ({"tuning": Tuning(noise=1.5)}, "noise"),
    ],
)
def test_scenarios_that_cannot_be_built_say_why(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        replace(LookupScenario(workload=TINY["cluster"], strategy="lazy"), **wrong)


# -- runs --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TINY)
def test_all_strategies_and_caches_find_the_same_and_a_run_can_be_repeated(name: str) -> None:
    base = LookupScenario(workload=TINY[name], strategy=LIMIT, cached_share=0.05, latency_us=(50.0, 2000.0))
    expected = outcome_of(base, 3, cpu_ns=steady())
    assert expected.matches > 10
    assert expected.fetched == 0
    for strategy in POLICIES:
        for cache in CACHES:
            scenario = replace(base, strategy=strategy, cache=cache)
            outcome = outcome_of(scenario, 3, cpu_ns=steady())
            assert outcome.matches == expected.matches, scenario
            assert len(outcome.latencies_us) == len(expected.latencies_us)
            assert outcome.fetched > 0
            if (strategy, cache) in (("prefetch", "lru"), ("hybrid", "cost")):
                assert outcome == outcome_of(scenario, 3, cpu_ns=steady()), "the same again"


class OneLookup:
    """A B that follows an A by 10 ms, with an element whose key the one or the other of them names."""

    name, window_us, keys, time_us = "one lookup", 100_000, 10, 1e6

    def __init__(self, key: str) -> None:
        self._key = key

    def rules(self) -> RuleSet:
        text = f"Q: SEQ(A a, B b) WHERE b.c1 = REMOTE[{self._key}.v1] WITHIN 100 ms SKIP TILL NEXT MATCH"
        return parse_rules([Source(text, "one.sase", "sase")], TYPES.values())

    def trace(self, seed: int = 1) -> list[Event]:
        rows = [(1_000_000 + 200_000 * i // 2, "n", i, TYPES["AB"[i % 2]], 1, 1 + i // 2, 0, 5, 0) for i in range(10)]
        return [Event.from_row((row[0] - 90_000 * (i % 2), *row[1:])) for i, row in enumerate(rows)]

    def value(self, table: str, key: tuple[Any, ...]) -> RemoteValue:
        return 5

    def tables(self) -> dict[str, RemoteTable]:
        return {"remote": RemoteTable.from_mapping(dict.fromkeys(range(1, 6), 5))}


def one_lookup(key: str, strategy: str, latency_us: float) -> Outcome:
    workload = OneLookup(key)
    if strategy == LIMIT:
        engine, memory = Engine(workload.rules(), remote=workload.tables()), None
    else:
        memory = TunedMemory(("remote",), Tuning(), policy=strategy)
        engine = Engine(compile_rules(workload.rules(), remote=memory.tables), memory=memory)
    station = Station(engine, memory, workload, (latency_us, latency_us), cpu_ns=standing)
    return measure(station, workload.trace())


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_match_takes_what_its_element_takes_unless_that_was_foreseen(strategy: str) -> None:
    for key, latency_us, foreseen in (("b", 3000.0, False), ("a", 3000.0, True), ("a", 15_000.0, False)):
        outcome = one_lookup(key, strategy, latency_us)
        assert outcome.matches == 5
        waits = [] if strategy == LIMIT or (foreseen and POLICIES[strategy].prefetches) else [latency_us]
        if key == "a" and strategy != LIMIT and POLICIES[strategy].prefetches and not foreseen:
            waits = [latency_us - 10_000]  # fetched when the A came, and needed 10 ms later
        assert set(outcome.latencies_us) == set(waits or [0.0]), (key, latency_us)
        assert outcome.fetched == (0 if strategy == LIMIT else 5)


def test_a_run_gives_every_column() -> None:
    scenario = LookupScenario(workload=TINY["Q2 any"], strategy="hybrid", latency_us=LONG)
    told: list[float] = []
    figures = run_job(Job(scenario, "hybrid", 1, scenario.time_s, (("6", 2.0),)), told.append)
    assert set(figures) == set(COLUMNS) - set(KEY_COLUMNS)
    assert figures["p5_us"] is not None
    percentiles = [figures[column] for column in ("p5_us", "p25_us", "p50_us", "p75_us", "p95_us")]
    assert percentiles == sorted(percentiles, key=lambda value: value or 0.0)
    assert told
    nothing = replace(scenario, workload=replace(TINY["Q2 any"], events=3))
    assert run_job(Job(nothing, "hybrid", 1, 0.0), quiet)["p50_us"] is None


# -- what is set by hand -----------------------------------------------------------------------------------------------


def tuned(strategy: str, tuning: Tuning, query: str = "Q1 late", **other: Any) -> Outcome:
    workload = Synthetic(query, "DS1", "next", 1500, 600, 400.0, 1000, ids=10)
    scenario = LookupScenario(workload=workload, strategy=strategy, latency_us=STAGES, tuning=tuning, **other)
    return outcome_of(scenario, 1, cpu_ns=steady())


def test_what_is_fetched_earlier_comes_in_time_more_often() -> None:
    late = [tuned("prefetch", Tuning(lookahead=stages)).prefetched_late for stages in (1, 3, 7)]
    assert late[0] > late[1] > late[2]
    earliest = [tuned("prefetch", Tuning(lookahead=stages)) for stages in (7, 20)]
    assert earliest[0] == earliest[1], "there is no earlier stage"


def test_runs_go_on_in_doubt_for_as_many_stages_as_they_may() -> None:
    outcomes = [tuned("lazy", Tuning(stages_in_doubt=stages), "Q1 early") for stages in (0, 1, 3, 7)]
    assert len({outcome.matches for outcome in outcomes}) == 1
    looked_at = [outcome.hits for outcome in outcomes]
    assert looked_at == sorted(set(looked_at)), "runs that wait sooner are looked at less often"


def test_wrong_estimations_mislead_what_is_fetched_and_not_what_is_given() -> None:
    right, wrong = (tuned("prefetch", Tuning(noise=noise, lookahead=3), cached_share=0.5) for noise in (0.0, 0.9))
    assert right.matches == wrong.matches
    assert wrong.misses > 2 * right.misses


def test_weights_say_what_is_worth_keeping() -> None:
    scenario = replace(TINY["Q1 any"], events=3000)
    memory = TunedMemory(("remote",), Tuning(weights=Weights(0.2, 0.9)), cache="cost")
    assert (memory._fetch_weight, memory._cache._utility(("remote", (1,)))) == (0.2, 0.0)
    by_weight = [
        outcome_of(
            LookupScenario(
                workload=scenario, strategy="hybrid", cached_share=0.03, tuning=Tuning(weights=Weights(0.7, weight))
            ),
            1,
            cpu_ns=steady(),
        )
        for weight in (0.0, 1.0)
    ]
    assert by_weight[0].matches == by_weight[1].matches


# -- figures -----------------------------------------------------------------------------------------------------------


def test_the_quick_size_keeps_both_ends_of_every_axis_and_is_bearable() -> None:
    for figure in FIGURES.values():
        for points in figure.lines.values():
            kept = figure.quick or list(points)
            assert set(kept) <= set(points)
            if not figure.named and not figure.name.startswith("10c"):
                assert {min(points), max(points)} <= set(kept)
    quick_s, moderate_s = (sum(map(seconds_of, size.jobs(FIGURES.values()))) for size in (QUICK, MODERATE))
    assert quick_s / 2 < 60
    assert moderate_s / 2 < 8 * 60


def test_points_of_several_figures_are_run_once() -> None:
    jobs = EiresSize(seeds=1).jobs([FIGURES["5"], FIGURES["5-long"], FIGURES["9"]])
    # For each selection and latency: one run of block, two of the five that have a cache; the limit has no latency.
    assert len(jobs) == 2 * (1 + 2 * (1 + 2 * 5))
    (limit,) = (job for job in jobs if job.strategy == LIMIT and job.scenario.workload.selection == "next")
    assert set(limit.places) == {(name, x) for name in ("5", "5-long", "9") for x in (0.0, 1.0)}


def test_a_size_shortens_streams_but_no_further_than_two_windows() -> None:
    (job, *_) = EiresSize(seeds=1, share=0.01, values=50).jobs([FIGURES["5"]])
    assert job.scenario.workload.events == 2 * job.scenario.workload.window_events
    assert job.scenario.workload.values == 50
    assert EiresSize(seeds=1, share=2.0).sized(job.scenario).workload.events == 2 * job.scenario.workload.events


# -- what is shown and concluded ---------------------------------------------------------------------------------------

EMPTY: dict[str, float | None] = {"matches": 9.0, **dict.fromkeys(("prefetched", "fetched", "hits"), 100.0)}


def row(figure: str, x: float, line: str, p50: float, **figures: float) -> ResultRow:
    spread = {"p5_us": p50 / 4, "p25_us": p50 / 2, "p50_us": p50, "p75_us": p50 * 1.5, "p95_us": p50 * 2}
    columns: dict[str, float | None] = dict.fromkeys(COLUMNS[len(KEY_COLUMNS) :], 0.0)
    return ResultRow(
        figure, x, line, 1, 0.0, "scenario", {**columns, **EMPTY, **spread, "events_per_s": 1e6 / p50, **figures}
    )


MEDIANS = {LIMIT: 5.0, "block": 900.0, "cache": 600.0, "last": 700.0, "prefetch": 30.0, "lazy": 25.0, "hybrid": 10.0}


def as_in_the_paper() -> list[ResultRow]:
    rows = []
    for name in ("5", "6", "7", "8", "5-long", "6-long", "7-long", "8-long"):
        for x in range(4):
            greedy, lru = x >= 2, x % 2 == 1
            for line, p50 in MEDIANS.items():
                slower = 1.5 if line in OURS and lru != (name[0] in "78" and greedy) else 1.0
                rows.append(row(name, float(x), line, p50 * slower * (10 if greedy and line == "block" else 1)))
    rows += [row("9", x, line, p50) for x in (0.0, 1.0) for line, p50 in MEDIANS.items()]
    for suffix in ("", "-q2"):
        for line, growth in (("prefetch", 8.0), ("lazy", 1.1), ("hybrid", 1.5)):
            for part, better, worse in (("a", 0.0, 0.9), ("b", 0.5, 0.01), ("c", 55.0, 5500.0)):
                rows += [
                    row(f"10{part}{suffix}", better, line, 20.0),
                    row(f"10{part}{suffix}", worse, line, 20 * growth),
                ]
    for figure, chosen in (("11a", 0.7), ("11b", 0.5)):
        rows += [row(figure, x, line, 20 + 30 * abs(x - chosen)) for x in (0.0, 0.5, 0.7, 1.0) for line in OURS]
    for figure in ("12a", "12b"):
        for line in FIGURES[figure].lines:
            rows += [row(figure, x, line, p50) for x, p50 in ((1.0, 90.0), (3.0, 20.0), (7.0, 60.0))]
    return rows + [row(name, 0.0, line, p50) for name in ("13a", "13b") for line, p50 in MEDIANS.items()]


def test_findings_come_out_where_the_numbers_are_as_in_the_paper() -> None:
    judged = findings(as_in_the_paper())
    assert [finding.claim for finding in judged if not finding.came_out] == []
    assert len(judged) == 23
    texts = {finding.claim: finding.numbers for finding in judged}
    assert "block 60 to 900 times" in texts["the same, long latencies"]
    assert "prefetch 8 and 8, lazy 1.1 and 1.1" in texts["prefetch is most sensitive to wrong estimations (Q2)"]


@pytest.mark.parametrize(
    ("others", "about"),
    [
        ([row("5", 0.0, "lazy", 25.0, matches=8.0)], ["same matches"]),
        ([row("5", 0.0, "hybrid", 28.0)], ["never behind"]),
        ([row("5-long", 0.0, "lazy", 800.0)], ["both beat"]),
        ([row("10a", 0.9, "lazy", 900.0)], ["wrong estimations (Q1)", "stable under them (Q1)"]),
        ([row("10b-q2", 0.01, "hybrid", 900.0)], ["cache's size (Q2)"]),
        ([row("10c", 5500.0, "prefetch", 20.0)], ["transmission latency (Q1)"]),
        ([row("11a", 0.0, "hybrid", 2.0)], ["0.7 for fetching"]),
        ([row("11b", 1.0, "prefetch", 2.0)], ["0.5 for the cache"]),
        ([row("12a", 1.0, line, 19.0) for line in FIGURES["12a"].lines], ["too late"]),
        ([row("12b", 7.0, line, 20.0) for line in FIGURES["12b"].lines], ["too many lazy"]),
        ([row("13b", 0.0, "hybrid", 90.0)], ["case studies"]),
    ],
    ids=lambda given: given[0] if isinstance(given[0], str) else "",
)
def test_a_finding_does_not_come_out_where_the_numbers_say_otherwise(
    others: Sequence[ResultRow], about: Sequence[str]
) -> None:
    keys = {other.key for other in others}
    rest = [each for each in as_in_the_paper() if each.key not in keys]
    assert len(rest) == len(as_in_the_paper()) - len(keys)
    failed = [finding.claim for finding in findings([*rest, *others]) if finding.came_out is False]
    assert len(failed) == len(about), failed
    assert all(part in claim for part, claim in zip(about, failed, strict=True))


def test_reasons_are_taken_from_the_numbers() -> None:
    slow = [row("5", 0.0, line, p50, misses=900.0 * (line == "hybrid")) for line, p50 in MEDIANS.items()]
    at_work = [replace(r, figures={**r.figures, "p50_us": 60.0 if r.strategy == "hybrid" else 50.0}) for r in slow]
    in_doubt = [replace(r, figures={**r.figures, "p50_us": 60.0}) if r.strategy == "hybrid" else r for r in slow]
    _, behind, *_ = findings(at_work)
    assert "1.20 times block, because evaluating takes 50 of its 60 us" in behind.numbers
    _, behind, *_ = findings(in_doubt)
    assert "2.40 times lazy, because it looks in vain for 900 elements (lazy: 0)" in behind.numbers


def test_what_was_not_run_is_not_judged() -> None:
    judged = findings([each for each in as_in_the_paper() if each.figure in ("12a", "9")])
    assert {finding.came_out for finding in judged} == {True, None}
    missing = next(finding for finding in judged if "0.7" in finding.claim)
    assert missing.numbers == "needs figure 11a, all lines and both ends of the axis"


def test_figures_are_shown_and_drawn(tmp_path: Path) -> None:
    rows = as_in_the_paper()
    shown = table([each for each in rows if each.figure == "5"], FIGURES["5"])
    assert "next, cost" in shown
    assert "  hybrid " in shown
    assert "100,000" in shown
    pytest.importorskip("matplotlib")
    for name in ("5", "10b", "12a"):
        plot([each for each in rows if each.figure == name], FIGURES[name], tmp_path / f"{name}.png")
    plot([], FIGURES["5"], tmp_path / "empty.png")
    drawn, empty = ((tmp_path / f"{name}.png").read_bytes() for name in ("5", "empty"))
    assert drawn.startswith(b"\x89PNG")
    assert drawn != empty


# -- the command -------------------------------------------------------------------------------------------------------


def command(*arguments: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(["experiment", "eires", *arguments])
    return left.value.code if isinstance(left.value.code, int) else 0


def test_a_number_stands_for_all_parts_of_a_figure() -> None:
    assert [figure.name for figure in chosen_figures(["5", "13"])] == ["5", "5-long", "13a", "13b"]
    assert len(chosen_figures(["10"])) == 6
    assert [figure.name for figure in chosen_figures(["10a,9"])] == ["9", "9-long", "10a"]
    assert len(chosen_figures(None)) == len(FIGURES)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--figure", "14"], "there is no figure '14'; there are 5, 6, 7, 8, 5-long"),
        (["--figure", "13b-recorded"], "needs recorded task events: name their folder with --data or HEADWATER_DATA"),
        (["--quick", "--full"], "exclude each other"),
        (["--seeds", "0"], "--seeds must be at least 1"),
        (["--processes", "0"], "--processes must be at least 1"),
        (["--data", "nowhere"], "there is no nowhere/borg2019/instance_events_1.csv.gz; --data (or HEADWATER_DATA) is"),
        (["--full", "-f", "13b"], "add --yes to begin"),
    ],
)
def test_wrong_options_are_refused_in_a_sentence(
    arguments: list[str],
    sentence: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("HEADWATER_DATA", raising=False)
    assert command(*arguments, "--no-plots", "--out", str(tmp_path / "out")) == 2
    assert sentence in " ".join(capsys.readouterr().err.split())


def test_the_command_runs_what_is_missing_and_shows_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    wanted = ["--quick", "-f", "13b", "--out", str(tmp_path)]
    assert command(*wanted, "-j", "2") == 0
    shown = capsys.readouterr()
    assert "7 runs to make" in shown.err
    assert "what the engine does takes the CPU time that it takes here" in " ".join(shown.err.split())
    assert "every strategy gives the same matches (not in the paper): confirmed" in shown.out
    assert {file.name for file in tmp_path.iterdir()} == {"figure-13b.csv", "figure-13b.png"}
    before = (tmp_path / "figure-13b.csv").read_text()
    assert command(*wanted) == 0
    assert "all 7 runs are in" in capsys.readouterr().err
    assert (tmp_path / "figure-13b.csv").read_text() == before
    rows = results_in(tmp_path).of(QUICK.jobs([FIGURES["13b"]]))
    assert [each.strategy for each in rows] == [LIMIT, *BASELINES, *OURS]
