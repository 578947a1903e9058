"""What the experiment on remote elements shows and concludes, and its command."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from headwater.deploy.cli.command import main
from headwater.deploy.cli.experiment_eires import chosen_figures, results_in
from headwater.deploy.experiments.eires.figures import FIGURES, OURS, QUICK
from headwater.deploy.experiments.eires.findings import findings
from headwater.deploy.experiments.eires.measured import BASELINES
from headwater.deploy.experiments.eires.plots import plot
from headwater.deploy.experiments.eires.runs import COLUMNS
from headwater.deploy.experiments.eires.scenario import LIMIT
from headwater.deploy.experiments.inev.tables import table
from headwater.deploy.experiments.results import KEY_COLUMNS, ResultRow

# -- what is concluded and shown ---------------------------------------------------------------------------------------

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
    rows += [row("10b-next", x, line, p50) for x in (0.02, 0.5) for line, p50 in MEDIANS.items()]
    for figure, chosen in (("11a", 0.7), ("11b", 0.5)):
        rows += [row(figure, x, line, 20 + 30 * abs(x - chosen)) for x in (0.0, 0.5, 0.7, 1.0) for line in OURS]
    for figure in ("12a", "12b"):
        for line in FIGURES[figure].lines:
            rows += [row(figure, x, line, p50) for x, p50 in ((1.0, 90.0), (3.0, 20.0), (7.0, 60.0))]
    return rows + [row(name, 0.0, line, p50) for name in ("13a", "13b") for line, p50 in MEDIANS.items()]


def test_findings_come_out_where_the_numbers_are_as_in_the_paper() -> None:
    judged = findings(as_in_the_paper())
    assert [finding.claim for finding in judged if not finding.came_out] == []
    assert len(judged) == 24
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
        ([row("10b-next", 0.02, "hybrid", 700.0)], ["small cache"]),
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
    rest = [each for each in as_in_the_paper() if each.figure == "5" and each.x == 0.0 and each.strategy != "hybrid"]
    behind = findings([*rest, row("5", 0.0, "hybrid", 60.0, prefetched=40.0, prefetched_unused=3.0)])[1]
    assert "Q1 DS1 next cost: 2.40 times lazy, 35 us more where evaluating alone takes 5" in behind.numbers
    assert "40 elements fetched ahead, 3 of them never used" in behind.numbers
    behind = findings([*rest, row("5", 0.0, "hybrid", 60.0, misses=9000.0)])[1]
    assert "2.40 times lazy, because it looks in vain for 9,000 elements (lazy: 0)" in behind.numbers


def test_strategies_are_compared_seed_by_seed() -> None:
    """A seed changes the events, so that the median of one may be many times that of another."""
    panel = [each for each in as_in_the_paper() if each.figure == "5" and each.x == 0.0]
    slower = [
        replace(each, seed=seed, figures={**each.figures, "p50_us": (each.figures["p50_us"] or 0) * factor})
        for each in panel
        for seed, factor in ((2, 50.0), (3, 90.0 if each.strategy == "hybrid" else 900.0))
    ]
    hybrid = findings([*panel, *slower])[1]
    assert hybrid.came_out
    assert "at most 0.40 times the best other (lazy)" in hybrid.numbers


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
    assert len(chosen_figures(["10"])) == 7
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
    assert "one seed only" in shown.err
    assert "what the engine does takes the CPU time that it takes here" in " ".join(shown.err.split())
    assert "every strategy gives the same matches (not in the paper): confirmed" in shown.out
    assert {file.name for file in tmp_path.iterdir()} == {"figure-13b.csv", "figure-13b.png"}
    before = (tmp_path / "figure-13b.csv").read_text()
    assert command(*wanted) == 0
    assert "all 7 runs are in" in capsys.readouterr().err
    assert (tmp_path / "figure-13b.csv").read_text() == before
    rows = results_in(tmp_path).of(QUICK.jobs([FIGURES["13b"]]))
    assert [each.strategy for each in rows] == [LIMIT, *BASELINES, *OURS]
