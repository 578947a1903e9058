"""Running an experiment's jobs, keeping and showing their results, and the command."""

from __future__ import annotations

import csv
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headwater.deploy.cli.command import main
from headwater.deploy.cli.experiment_runs import Bar, show_s
from headwater.deploy.cluster.waiting import Patience
from headwater.deploy.experiments import jobs as jobs_module
from headwater.deploy.experiments.conduct import calibrate, conduct, estimate_s, in_order_of_work
from headwater.deploy.experiments.jobs import Job, Result, jobs_of, work
from headwater.deploy.experiments.parallel import Failure, run_all
from headwater.deploy.experiments.plots import plot
from headwater.deploy.experiments.results import COLUMNS, ResultRow, Results, rows_of
from headwater.deploy.experiments.tables import curves, table
from headwater.deploy.experiments.trex.figures import DEFAULT, SWEEPS
from headwater.deploy.experiments.trex.findings import findings
from headwater.deploy.experiments.trex.measures import Measures
from headwater.deploy.experiments.trex.sizes import MODERATE, QUICK
from headwater.deploy.simulation.outcome import KINDS
from headwater.protocol.errors import ConfigError
from headwater.protocol.strategy import TREE_STRATEGIES

# -- running and keeping results ---------------------------------------------------------------------------------------

TRAFFIC = {"centr": 1000.0, "st": 400.0, "mt": 500.0, "st-pp": 320.0, "mt-pp": 390.0}
DELAY = {"centr": 20.0, "st": 20.0, "mt": 12.0, "st-pp": 25.0, "mt-pp": 15.0}


def result(traffic: float = 100.0, delay: float | None = 10.0, seed: int = 1) -> Result:
    none = dict.fromkeys(KINDS, 0.0)
    events = none | {"match": traffic * 0.75 + seed, "composite": traffic * 0.25, "watermark": 7.0}
    measures = Measures(1000, 50, delay, delay, delay, delay, delay, events, none, none)
    return Result(measures, wall_s=0.5)


def instant(job: Job, progress: Callable[[float], None]) -> Result:
    """A runner that knows its answers and notes its work in the folder that the test names."""
    notes = os.environ.get("NOTES")
    if notes:
        Path(notes, f"{job.strategy}-{job.seed}-{job.scenario.fingerprint()}-{time.time_ns()}").touch()
    progress(0.5)
    return result(TRAFFIC[job.strategy], DELAY[job.strategy], job.seed)


def failing_for_mt(job: Job, progress: Callable[[float], None]) -> Result:
    if job.strategy == "mt":
        raise ConfigError("no trees today")
    return instant(job, progress)


def dying(job: Job, progress: Callable[[float], None]) -> Result:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("alive")


def lingering(job: Job, progress: Callable[[float], None]) -> Result:
    time.sleep(0 if job.strategy == "st" else 600)
    return instant(job, progress)


def some_jobs(figures: Sequence[int] = (10,), strategies: Sequence[str] = ("st", "mt"), seeds: int = 2) -> list[Job]:
    return replace(MODERATE, seeds=seeds, time_s=60.0).jobs(figures, strategies)


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    monkeypatch.setenv("NOTES", str(folder))
    return folder


def test_an_experiment_is_resumed_and_its_finished_runs_are_not_made_again(tmp_path: Path, notes: Path) -> None:
    done, all_jobs = some_jobs(strategies=("st",)), some_jobs()
    assert conduct(done, Results(tmp_path), instant, 2) == []
    assert len(list(notes.iterdir())) == 2
    results = Results(tmp_path)
    assert conduct(all_jobs, results, instant, 2) == []
    assert Counter(note.name[:2] for note in notes.iterdir()) == {"st": 2, "mt": 2}
    rows = list(csv.DictReader(results.path(10).open()))
    assert [(row["strategy"], row["seed"]) for row in rows] == [("st", "1"), ("st", "2"), ("mt", "1"), ("mt", "2")]
    assert [float(row["traffic_per_s"]) for row in rows] == [401, 402, 501, 502]
    assert {row["overhead_events_per_s"] for row in rows} == {"7"}


def test_a_run_of_another_figure_is_copied_not_made_again(tmp_path: Path) -> None:
    Results(tmp_path).add(rows_of(some_jobs(seeds=1)[0], result()))
    results = Results(tmp_path)
    left = results.missing(some_jobs(figures=(12,), strategies=("st",), seeds=1))
    assert len(left) == len(SWEEPS[12].points) - 1
    assert [row.x for row in Results(tmp_path).of(some_jobs(figures=(12,), seeds=1))] == [10.0]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text[:-30],
        lambda text: text[:-1],
        lambda text: text + "10,0,mt,2,60,",
        lambda text: text.replace(",50,", ",5x0,"),
        lambda text: text.splitlines()[0][:20],
        lambda text: "",
    ],
    ids=["cut row", "no newline", "begun row", "spoilt number", "cut header", "empty"],
)
def test_a_line_that_was_cut_off_is_made_again(tmp_path: Path, spoil: Callable[[str], str]) -> None:
    jobs = some_jobs(seeds=1)
    results = Results(tmp_path)
    results.add(rows_of(jobs[0], result()))
    file = results.path(10)
    whole = file.read_text()
    file.write_text(spoil(whole))
    resumed = Results(tmp_path)
    begun_only = spoil(whole).startswith(whole)
    assert resumed.missing(jobs) == (jobs[1:] if begun_only else jobs)
    for job in resumed.missing(jobs):
        resumed.add(rows_of(job, result()))
    assert Results(tmp_path).missing(jobs) == []
    assert len(list(csv.reader(file.open()))) == 3
    assert all(len(cells) == len(COLUMNS) for cells in csv.reader(file.open()))


def test_results_of_another_time_scenario_or_seed_are_not_taken(tmp_path: Path) -> None:
    results = Results(tmp_path)
    results.add(rows_of(some_jobs(seeds=1)[0], result()))
    job = some_jobs(seeds=1)[0]
    assert results.missing([job]) == []
    for other in (replace(job, time_s=61.0), replace(job, seed=9), replace(job, scenario=replace(DEFAULT, rules=99))):
        assert results.missing([other]) == [other]


def test_a_file_with_other_columns_is_refused(tmp_path: Path) -> None:
    (tmp_path / "figure-10.csv").write_text("figure,x\n10,0\n")
    with pytest.raises(ConfigError, match="other columns"):
        Results(tmp_path)


def test_rows_come_back_from_the_file_as_they_were(tmp_path: Path) -> None:
    job = some_jobs(seeds=1)[0]
    rows = rows_of(job, result(123.456789, None))
    Results(tmp_path).add(rows)
    (again,) = Results(tmp_path).of([job])
    assert again.key == rows[0].key
    assert again.figures == pytest.approx(rows[0].figures, abs=1e-6)
    assert again.figures["delay_mean_ms"] is None


def test_files_do_not_depend_on_the_order_in_which_runs_end(tmp_path: Path) -> None:
    jobs = some_jobs(figures=(10, 12))
    for folder, order in (("one", jobs), ("other", jobs[::-1])):
        results = Results(tmp_path / folder)
        for job in order:
            results.add(rows_of(job, result(TRAFFIC[job.strategy], seed=job.seed)))
        results.tidy()
    for figure in (10, 12):
        one, other = ((tmp_path / folder / f"figure-{figure}.csv").read_text() for folder in ("one", "other"))
        assert one == other


def test_a_failing_run_is_told_and_the_others_are_kept(tmp_path: Path) -> None:
    results = Results(tmp_path)
    failures = conduct(some_jobs(seeds=1), results, failing_for_mt, 2)
    assert [(failure.job.strategy, failure.reason) for failure in failures] == [("mt", "no trees today")]
    assert [job.strategy for job in results.missing(some_jobs(seeds=1))] == ["mt"]


def test_a_run_whose_process_is_killed_is_a_failure_not_a_wait_without_end() -> None:
    ((_, failure),) = run_all(some_jobs(seeds=1)[:1], dying, 1)
    assert isinstance(failure, Failure)
    assert "killed by signal 9" in failure.reason
    assert "memory" in failure.reason


def test_a_process_that_is_used_again_does_all_jobs_and_survives_failures() -> None:
    jobs = some_jobs()
    found = dict(run_all(jobs, failing_for_mt, 2, reuse=True))
    assert set(found) == set(jobs)
    assert {job.strategy for job, given in found.items() if isinstance(given, Failure)} == {"mt"}
    killed = [given for _, given in run_all(jobs, dying, 2, reuse=True)]
    assert len(killed) == len(jobs)
    assert all(isinstance(given, Failure) for given in killed)


def test_leaving_early_ends_the_runs_that_are_still_going() -> None:
    began = Patience(60)
    for job, _ in run_all(some_jobs(seeds=1), lingering, 2):
        assert job.strategy == "st"
        break
    assert not began.over


def test_the_longest_runs_begin_first() -> None:
    ordered = in_order_of_work(some_jobs(figures=(16,), strategies=("st",), seeds=1))
    assert [job.scenario.processors for job in ordered] == [50, 40, 30, 20, 10, 5]


def test_the_estimate_grows_with_the_work_and_shrinks_with_the_cores() -> None:
    speeds = calibrate(["st"], instant, 1)
    jobs = some_jobs(figures=(12,), strategies=("st",), seeds=3)
    alone, shared = estimate_s(jobs, speeds, 1), estimate_s(jobs, speeds, 2)
    assert alone == pytest.approx(2 * shared)
    assert alone == pytest.approx(speeds["st"] * sum(map(work, jobs)))
    assert estimate_s(jobs[:1], speeds, 8) == pytest.approx(estimate_s(jobs[:1], speeds, 1)), "one run, one core"


def test_the_bar_tells_the_time_left_from_the_work_done() -> None:
    bar = Bar(1_000.0, shown=False)
    assert bar.left_s(0.0) == pytest.approx(1_000, abs=5)
    bar._began -= 100
    assert bar.left_s(0.25) == pytest.approx(300, rel=0.1)


@pytest.mark.parametrize(("seconds", "shown"), [(0.2, "1 s"), (75, "75 s"), (600, "10 min"), (9_000, "2.5 h")])
def test_times_are_shown_as_people_say_them(seconds: float, shown: str) -> None:
    assert show_s(seconds) == shown


# -- what is shown -----------------------------------------------------------------------------------------------------


def rows_with(traffic: Callable[[Any, float, str], float], delay: Callable[[str], float]) -> list[ResultRow]:
    jobs = replace(QUICK, seeds=2).jobs([10, 12, 20], TREE_STRATEGIES)
    rows = []
    for job in jobs:
        for place in job.places:
            alone = replace(job, places=(place,))
            rows += rows_of(alone, result(traffic(*place, job.strategy), delay(job.strategy), 0))
    return rows


def as_in_the_paper(figure: int, x: float, strategy: str) -> float:
    return {"st": 45.0 + 5 * x, "mt": 20.0 + 10 * x}[strategy] if figure == 12 else TRAFFIC[strategy]


def test_findings_come_out_where_the_numbers_are_as_in_the_paper() -> None:
    found = findings(rows_with(as_in_the_paper, DELAY.__getitem__))
    assert [finding.came_out for finding in found] == [True] * 4
    text = "\n".join(finding.text() for finding in found)
    assert "st 40.0%" in text
    assert "mt 12.00 ms" in text
    assert "they cross at about 5.0" in text
    assert "st-pp saves 20.0% at length 3; mt-pp saves 22.0% at length 3" in text
    assert text.count(": confirmed\n") == 4


@pytest.mark.parametrize(
    ("number", "traffic", "delay"),
    [
        (1, lambda figure, x, s: 800.0 if (figure, s) == (10, "mt") else as_in_the_paper(figure, x, s), DELAY),
        (2, as_in_the_paper, DELAY | {"mt": 20.0}),
        (3, lambda figure, x, s: 80.0 if (x, s) == (2, "mt") else as_in_the_paper(figure, x, s), DELAY),
        (3, lambda figure, x, s: 10.0 if (figure, s) == (12, "mt") else as_in_the_paper(figure, x, s), DELAY),
        (4, lambda figure, x, s: 350.0 if (figure, s) == (20, "st-pp") else as_in_the_paper(figure, x, s), DELAY),
    ],
    ids=["mt near centr", "mt as slow as st", "mt dear with 2", "mt always cheap", "pull saves too little"],
)
def test_a_finding_does_not_come_out_where_the_numbers_say_otherwise(
    number: int, traffic: Callable[[Any, float, str], float], delay: dict[str, float]
) -> None:
    found = findings(rows_with(traffic, delay.__getitem__))
    assert [finding.number for finding in found if not finding.came_out] == [number]
    assert "not confirmed" in found[number - 1].text()


def test_findings_without_their_runs_are_not_measured() -> None:
    assert [finding.came_out for finding in findings([])] == [None] * 4
    assert "needs figure 20" in findings([])[3].text()


def test_curves_are_means_over_seeds_in_the_order_of_x() -> None:
    jobs = some_jobs(figures=(12,), strategies=("mt", "st"), seeds=3)
    rows = [row for job in jobs[::-1] for row in rows_of(job, result(100.0, seed=job.seed))]
    found = curves(rows, 12, "traffic_per_s")
    assert list(found) == ["st", "mt"]
    assert list(found["st"]) == [1, 2, 5, 10, 20, 50]
    assert found["st"][1].value == 102
    assert found["st"][1].half_width == pytest.approx(4.303 / 3**0.5, rel=1e-3)
    shown = table(rows, SWEEPS[12])
    assert "figure 12: Number of subscriptions" in shown
    assert shown.count("102.00 ± 2.48") == 12


@pytest.mark.parametrize("figure", [10, 12, 16])
def test_every_figure_is_drawn_as_a_png(tmp_path: Path, figure: int) -> None:
    pytest.importorskip("matplotlib")
    jobs = some_jobs(figures=(figure,), strategies=TREE_STRATEGIES, seeds=2)
    rows = [row for job in jobs for row in rows_of(job, result(TRAFFIC[job.strategy], seed=job.seed))]
    plot(rows, SWEEPS[figure], tmp_path / "figure.png")
    content = (tmp_path / "figure.png").read_bytes()
    assert content.startswith(b"\x89PNG")
    plot([row for row in rows if row.strategy != "mt"], SWEEPS[figure], tmp_path / "other.png")
    assert content != (tmp_path / "other.png").read_bytes(), "the curves are in the picture"


def test_a_curve_without_any_value_does_not_stop_the_drawing(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    rows = [row for job in some_jobs() for row in rows_of(job, result(delay=None))]
    plot(rows, SWEEPS[10], tmp_path / "figure.png")
    assert (tmp_path / "figure.png").exists()


# -- the command -------------------------------------------------------------------------------------------------------


def command(*arguments: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(["experiment", "trex", *arguments])
    return left.value.code if isinstance(left.value.code, int) else 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--figure", "9"], "there is no figure '9'; there are 10, 11"),
        (["--strategies", "st,mst"], "unknown strategy 'mst'; did you mean 'st'? strategies: centr, st"),
        (["--strategies", "inev"], "build trees, and inev does not; choose from centr, st"),
        (["--quick", "--full"], "exclude each other"),
        (["--time", "5"], "not a duration"),
        (["--time", "10ms"], "too short"),
        (["--seeds", "0"], "--seeds must be at least 1"),
        (["--quick", "--figure", "12", "--strategies", "centr"], "leave --quick out"),
    ],
)
def test_wrong_options_are_refused_in_a_sentence(
    arguments: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(*arguments, "--out", str(tmp_path / "out")) == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_what_is_there_already_is_shown_without_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = Results(tmp_path)
    for job in QUICK.jobs([10, 12, 20], TREE_STRATEGIES):
        results.add(rows_of(job, result(TRAFFIC[job.strategy], DELAY[job.strategy], 0)))
    assert command("--quick", "--out", str(tmp_path)) == 0
    shown = capsys.readouterr()
    assert "all 17 runs are in" in shown.err
    assert "2. mt delivers sooner than st: confirmed" in shown.out
    assert {file.name for file in tmp_path.iterdir()} == {
        f"figure-{figure}.{ending}" for figure in (10, 12, 20) for ending in ("csv", "png")
    }


def test_jobs_are_named_so_that_a_failure_can_be_repeated() -> None:
    (job,) = jobs_of([SWEEPS[10]], ["st"], [4], lambda scenario, seed: 1.0)
    assert job.name() == "figure 10 at 0, st, seed 4"
    assert jobs_module.WARM_UP_S == 30
