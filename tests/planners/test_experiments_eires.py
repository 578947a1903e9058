"""The experiment on remote elements: workloads, runs in simulated time, and what is set by hand."""

from __future__ import annotations

import gzip
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest

from headwater.deploy.cli.experiment_eires import recorded_study
from headwater.deploy.experiments.eires.bushfire import Bushfire
from headwater.deploy.experiments.eires.cluster import FILE, Cluster
from headwater.deploy.experiments.eires.figures import (
    FIGURES,
    LONG,
    MODERATE,
    QUICK,
    STAGES,
    STRATEGIES,
    EiresSize,
)
from headwater.deploy.experiments.eires.runs import COLUMNS, outcome_of, run_job, seconds_of
from headwater.deploy.experiments.eires.scenario import LIMIT, LookupScenario
from headwater.deploy.experiments.eires.station import Outcome, Station, measure
from headwater.deploy.experiments.eires.synthetic import TYPES, Synthetic
from headwater.deploy.experiments.eires.tuning import TunedMemory, Tuning
from headwater.deploy.experiments.jobs import Job
from headwater.deploy.experiments.results import KEY_COLUMNS
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
    assert (memory._weights.fetch, memory._cache._utility(("remote", (1,)))) == (0.2, 0.0)
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
            if not figure.named:
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
