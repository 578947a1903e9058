"""The experiment on plans: problems drawn, plans after rates changed, what is shown and what is concluded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from headwater.coordinator.inev.model.patterns import Pattern, negated, repeated
from headwater.coordinator.inev.plan.plans import plan_from
from headwater.coordinator.inev.plan.well_formed import faults
from headwater.coordinator.inev.search.space import Space
from headwater.deploy.cli.command import main
from headwater.deploy.cli.experiment_inev import chosen_figures, results_in
from headwater.deploy.experiments.inev.figures import FIGURES, MODERATE, QUICK, case_studies
from headwater.deploy.experiments.inev.findings import findings
from headwater.deploy.experiments.inev.generator import build, draw_case, with_rates
from headwater.deploy.experiments.inev.random_rules import RunScenario, ruled
from headwater.deploy.experiments.inev.repair import changed, translated
from headwater.deploy.experiments.inev.runs import COLUMNS, run_job, searched, seconds_of, swapped
from headwater.deploy.experiments.inev.scenario import PlanScenario
from headwater.deploy.experiments.inev.simulated import compared
from headwater.deploy.experiments.inev.tables import plot, table
from headwater.deploy.experiments.jobs import Job
from headwater.deploy.experiments.results import KEY_COLUMNS, ResultRow, rows_at
from headwater.protocol.errors import ConfigError

SMALL = PlanScenario(nodes=8, types=5, queries=3, attempts=30, selectivity=0.1)
SEEDS = (1, 2, 3)


def quiet(share: float) -> None:
    """Progress is not watched."""


# -- problems ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_scenarios_that_differ_in_one_aspect_agree_in_the_others(seed: int) -> None:
    case = draw_case(SMALL, seed)
    more = draw_case(replace(SMALL, queries=6), seed)
    assert more["queries"][:3] == case["queries"]
    assert more["edges"] == case["edges"]
    skewed = draw_case(replace(SMALL, skew=1.1), seed)
    assert skewed["queries"] == case["queries"]
    assert skewed["pairwise_selectivities"] == case["pairwise_selectivities"]
    by_rate, by_skewed = (
        sorted(each["event_types"], key=lambda name: each["event_types"][name]["local_rate"]) for each in (case, skewed)
    )
    highest = by_rate[-1]
    assert skewed["event_types"][highest]["local_rate"] >= case["event_types"][highest]["local_rate"]
    assert by_skewed[-1] == highest or skewed["event_types"][by_skewed[-1]]["local_rate"] == 5_000_000
    assert draw_case(SMALL, seed) == case != draw_case(SMALL, seed + 10)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("most", [False, True])
def test_operators_are_over_the_type_with_the_asked_rate(seed: int, most: bool) -> None:
    scenario = PlanScenario(types=6, length=6, special_most=most)
    operators: list[tuple[Literal["kleene", "negation"], Callable[[Pattern], frozenset[str]]]] = [
        ("kleene", repeated),
        ("negation", negated),
    ]
    for special, found_in in operators:
        problem = build(replace(scenario, special=special), seed)
        (pattern,) = (query.pattern for query in problem.queries)
        (chosen,) = found_in(pattern)
        local = {name: max(at.values()) for name, at in problem.network.rates.items()}
        assert local[chosen] == (max if most else min)(local.values())
        plain = build(replace(scenario, special=special, plain=True), seed)
        (other,) = plain.queries
        assert not found_in(other.pattern)
        assert set(other.types) == set(local)


def test_a_third_of_a_workload_has_operators() -> None:
    problem = build(PlanScenario(types=25, queries=18, special="third"), 4)
    kinds = [(bool(repeated(query.pattern)), bool(negated(query.pattern))) for query in problem.queries]
    assert 3 <= sum(map(any, kinds)) <= 6
    assert any(kleene for kleene, _ in kinds)
    assert any(negation for _, negation in kinds)


def test_with_at_most_one_event_in_a_window_no_type_comes_more_often() -> None:
    problem = build(replace(SMALL, at_most_once=True), 1)
    totals = [problem.network.total(name) for name in problem.network.rates]
    assert 0.1 < max(totals) <= 1


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [({"nodes": 1}, "nodes"), ({"types": 27}, "types"), ({"skew": 1.0}, "skew"), ({"length": 9}, "more types")],
)
def test_scenarios_that_cannot_be_built_say_why(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        replace(SMALL, **wrong)


# -- rates that change -------------------------------------------------------------------------------------------------


def test_rates_are_swapped_from_the_middle_outwards() -> None:
    rates = {name: float(at) for at, name in enumerate("ABCDEF", 1)}
    assert swapped(rates, 0.0) == rates
    assert swapped(rates, 1 / 3) == rates | {"C": 4.0, "D": 3.0}
    assert swapped(rates, 1.0) == dict(zip("ABCDEF", (6.0, 5.0, 4.0, 3.0, 2.0, 1.0), strict=True))
    odd = {name: float(at) for at, name in enumerate("ABCDE", 1)}
    assert swapped(odd, 1.0)["C"] == 3.0
    assert swapped(odd, 0.4) == odd | {"B": 4.0, "D": 2.0}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("selectivity", [0.1, 0.001])
def test_broken_and_repaired_plans_still_evaluate_every_query(seed: int, selectivity: float) -> None:
    scenario = replace(SMALL, selectivity=selectivity)
    case = draw_case(scenario, seed)
    local = {name: told["local_rate"] for name, told in case["event_types"].items()}
    new = swapped(local, 1.0)
    at = {name: {str(node): new[name] for node in told["sources"]} for name, told in case["event_types"].items()}
    search, solution = searched(build(scenario, seed), scenario)
    now = Space(with_rates(case, at))
    change = changed(search.space, solution, now)
    for some in (change.broken, change.repaired):
        assert faults(plan_from(now, some, "changed")) == []
    assert change.harmful <= change.projections
    assert change.invalid <= change.placements
    if not change.harmful and not change.invalid:
        assert change.repaired == change.broken


def test_a_plan_costs_the_same_under_the_rates_it_was_made_for() -> None:
    search, solution = searched(build(SMALL, 1), SMALL)
    space = Space(build(SMALL, 1))
    change = changed(search.space, solution, space)
    assert space.cost(translated(search.space, solution, space)) == pytest.approx(search.space.cost(solution))
    assert (change.harmful, change.invalid) == (0, 0)
    assert change.repaired == change.broken


def test_a_placement_on_many_nodes_is_given_up_where_it_no_longer_pays() -> None:
    """One frequent type, one rare one: the rare one is carried to the sources of the other, until rates are swapped."""
    case = {
        "format": "inev-case-1",
        "nodes": [0, 1, 2, 3],
        "edges": [[0, 1], [1, 2], [2, 3]],
        "event_types": {
            "A": {"local_rate": 1000.0, "sources": [0, 1, 3]},
            "B": {"local_rate": 1.0, "sources": [2]},
        },
        "queries": ["SEQ(A, B)"],
        "pairwise_selectivities": {"AB": 0.001},
        "single_selectivities": {"A|AB": 0.001, "B|AB": 0.001},
    }
    at = {"A": {"0": 1000.0, "1": 1000.0, "3": 1000.0}, "B": {"2": 1.0}}
    search, solution = searched(with_rates(case, at), SMALL)
    ((_, place),) = solution.tasks
    assert place >= search.space.nodes, "split by A"
    now = Space(with_rates(case, {"A": {"0": 1.0, "1": 1.0, "3": 1.0}, "B": {"2": 1000.0}}))
    change = changed(search.space, solution, now)
    assert (change.placements, change.invalid) == (1, 1)
    ((_, home),) = change.repaired.tasks
    assert home < now.nodes
    assert now.cost(change.repaired) < now.cost(change.broken)


# -- runs --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scenario", "columns"),
    [
        (replace(SMALL, planner="paper"), ["ratio", "estimate_ratio", "seconds", "projections"]),
        (replace(SMALL, kind="sharing"), ["isolated_ratio"]),
        (replace(SMALL, kind="orders", orders=2), ["spread"]),
        (replace(SMALL, kind="swaps", swapped=1.0), ["broken", "repaired", "replanned", "invalid_placements"]),
        (replace(SMALL, kind="variance", variance=0.5), ["broken", "replanned"]),
        (replace(SMALL, kind="latency", bounded=True), ["latency_ratio"]),
        (replace(SMALL, kind="bound", nodes=3, types=3, queries=1, length=3), ["over_exact"]),
    ],
    ids=lambda given: given.kind if isinstance(given, PlanScenario) else "",
)
def test_every_kind_of_run_gives_its_columns_and_the_same_ones_again(
    scenario: PlanScenario, columns: list[str]
) -> None:
    job = Job(scenario, "line", 1, 0.0, (("4a", 1.0),))
    first, again = run_job(job, quiet), run_job(job, quiet)
    for timed in ("seconds", "wall_s"):
        first.pop(timed), again.pop(timed)
    assert first == again
    assert all(first[column] is not None for column in columns if column != "seconds")
    if scenario.kind == "bound":
        assert first["over_exact"] == pytest.approx(1)
    elif scenario.kind == "latency":
        assert first["latency_ratio"] is not None
        assert first["latency_ratio"] <= 1 + 1e-9
    elif scenario.kind != "orders":
        assert first["ratio"] is not None
        assert 0 <= first["ratio"] <= 1 + 1e-9


def test_a_simulated_run_finds_what_centralised_evaluation_finds_with_as_much_traffic_as_modelled() -> None:
    found = compared(ruled(RunScenario(nodes=6, types=3, orders=1.5, values=5, time_s=200.0), 2), quiet)
    assert found["delivered"], "there is something to find"
    assert found["delivered"] == found["delivered_centr"]
    ratio, measured = found["ratio"], found["measured_ratio"]
    assert ratio is not None
    assert measured is not None
    assert measured < 0.5
    assert measured == pytest.approx(ratio, rel=0.15)


def test_points_of_several_figures_are_run_once() -> None:
    jobs = QUICK.jobs([FIGURES["9a"], FIGURES["9b"]])
    assert len(jobs) == 6 * QUICK.seeds
    assert all([figure for figure, _ in job.places] == ["9a", "9b"] for job in jobs)
    assert all(job.scenario.attempts == QUICK.attempts for job in jobs)


def test_the_quick_size_keeps_both_ends_of_every_axis() -> None:
    for figure in FIGURES.values():
        for points in figure.lines.values():
            kept = figure.quick or list(points)
            assert set(kept) <= set(points)
            assert min(kept) == min(points) or figure.name in ("5b", "11")
    quick_s, moderate_s = (sum(map(seconds_of, size.jobs(FIGURES.values()))) for size in (QUICK, MODERATE))
    assert quick_s < moderate_s / 5
    assert moderate_s / 2 < 40 * 60, "bearable on two cores"


# -- what is shown -----------------------------------------------------------------------------------------------------


def row(figure: str, x: float, line: str, seed: int = 1, **figures: float) -> ResultRow:
    empty: dict[str, float | None] = dict.fromkeys(COLUMNS[len(KEY_COLUMNS) :])
    return ResultRow(figure, x, line, seed, 0.0, "scenario", {**empty, **figures})


def as_in_the_paper() -> list[ResultRow]:
    found = [row("4a", 1.3, "inev", ratio=0.1), row("4a", 1.3, "push-pull", ratio=0.12)]
    found += [row("4b", 1.3, "inev", ratio=0.1), row("4b", 1.3, "push-pull", ratio=0.97)]
    found += [row("7a", x, line, ratio=0.2) for x in (0.0, 1.0) for line in FIGURES["7a"].lines]
    for share in (0.0, 1.0):
        found.append(row("9b", share, "selectivity 0.1", broken=0.1 + share, repaired=0.1 + share / 10, replanned=0.1))
    return [*found, row("10b", 5.0, "inev", spread=0.0001)]


def test_findings_come_out_where_the_numbers_are_as_in_the_paper() -> None:
    found = {finding.claim: finding for finding in findings(as_in_the_paper())}
    judged = {claim: finding.came_out for claim, finding in found.items() if finding.came_out is not None}
    assert len(judged) == 5
    assert all(judged.values())
    assert "push-pull over inev: 1.2 at 1.3" in next(iter(found.values())).numbers
    assert "needs figure 6a" in next(finding.numbers for claim, finding in found.items() if "orders of mag" in claim)


@pytest.mark.parametrize(
    ("other", "about"),
    [
        (row("4a", 1.3, "push-pull", ratio=0.9), "at most one event"),
        (row("4b", 1.3, "push-pull", ratio=0.3), "with more, push-pull"),
        (row("7a", 1.0, "with the operator", ratio=0.9), "Kleene"),
        (row("9b", 1.0, "selectivity 0.1", broken=1.1, repaired=1.0, replanned=0.1), "weak predicates"),
        (row("10b", 5.0, "inev", spread=0.1), "order of queries"),
    ],
    ids=["dear pull", "cheap pull", "dear Kleene", "no repair", "orders matter"],
)
def test_a_finding_does_not_come_out_where_the_numbers_say_otherwise(other: ResultRow, about: str) -> None:
    rest = [each for each in as_in_the_paper() if each.key != other.key]
    assert len(rest) < len(as_in_the_paper())
    failed = [finding.claim for finding in findings([*rest, other]) if finding.came_out is False]
    assert len(failed) == 1
    assert about in failed[0]


def test_a_table_shows_small_ratios_and_names_of_points() -> None:
    shown = table([row("4b", 1.1, "inev", seed, ratio=2e-7 * seed) for seed in (1, 3)], FIGURES["4b"])
    assert "4e-07 ± " in shown
    assert "lowest rate" in table([row("7a", 0.0, "without", ratio=0.5)], FIGURES["7a"])


def test_figures_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for name in ("4a", "7a", "9b"):
        plot([each for each in as_in_the_paper() if each.figure == name], FIGURES[name], tmp_path / f"{name}.png")
    plot([], FIGURES["9b"], tmp_path / "empty.png")
    drawn, empty = ((tmp_path / f"{name}.png").read_bytes() for name in ("9b", "empty"))
    assert drawn.startswith(b"\x89PNG")
    assert drawn != empty


# -- the command -------------------------------------------------------------------------------------------------------


def command(*arguments: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(["experiment", "inev", *arguments])
    return left.value.code if isinstance(left.value.code, int) else 0


def test_a_number_stands_for_all_parts_of_a_figure() -> None:
    assert [figure.name for figure in chosen_figures(["6", "9e"])] == ["6a", "6b", "6c", "6d", "9e"]
    assert [figure.name for figure in chosen_figures(["12"])] == ["12a", "12a-bounded", "12b"]
    assert len(chosen_figures(None)) == len(FIGURES)
    assert [each.name for each in chosen_figures(["table-3"], [case_studies("there", 1)])] == ["table-3"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--figure", "13"], "there is no figure '13'; there are 4a, 4b"),
        (["--figure", "table-3"], "table-3 needs recorded streams: name their folder with --data or HEADWATER_DATA"),
        (["--quick", "--full"], "exclude each other"),
        (["--seeds", "0"], "--seeds must be at least 1"),
        (["--days", "40"], "--days must be between 1 and 31"),
        (["--processes", "0"], "--processes must be at least 1"),
        (["--data", "nowhere"], "there is no folder nowhere; --data (or HEADWATER_DATA) is the folder with recorded"),
        (["--full", "-f", "4a"], "add --yes to begin"),
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
    wanted = ["--quick", "-f", "5a-exact", "--seeds", "1", "--out", str(tmp_path)]
    assert command(*wanted, "-j", "2") == 0
    shown = capsys.readouterr()
    assert "4 runs to make" in shown.err
    assert "no plan is cheaper (not in the paper): confirmed" in shown.out
    assert {file.name for file in tmp_path.iterdir()} == {"figure-5a-exact.csv", "figure-5a-exact.png"}
    before = (tmp_path / "figure-5a-exact.csv").read_text()
    assert command(*wanted) == 0
    assert "all 4 runs are in" in capsys.readouterr().err
    assert (tmp_path / "figure-5a-exact.csv").read_text() == before
    (first, *_) = results_in(tmp_path).of(QUICK.jobs([FIGURES["5a-exact"]]))
    assert (first.figure, first.strategy) == ("5a-exact", "inev")
    assert rows_at(Job(SMALL, "inev", 1, 0.0, (("5a-exact", 3.0),)), first.figures)[0].x == 3.0
