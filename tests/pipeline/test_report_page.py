"""The page of a report: what it says in place, what it folds and cuts, and whether a small screen can show it."""

from __future__ import annotations

import re
import shutil
import subprocess
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from headwater.deploy.reporting import charts
from headwater.deploy.reporting.groups import grouped
from headwater.deploy.reporting.over_time import over_time, stretches
from headwater.deploy.reporting.page import page
from headwater.deploy.reporting.strategies import page as strategies_page
from headwater.deploy.reporting.summary import headline
from headwater.deploy.reporting.traffic_kinds import EXPLAINED
from headwater.deploy.simulation.comparison import ComparedStrategy, Comparison, OneRun
from headwater.node.observe.accounts import KINDS
from headwater.pipeline.report.inputs import Recorded
from headwater.pipeline.report.job import report_tables
from headwater.pipeline.report.latencies import CDF_SHARES
from headwater.pipeline.report.shape import Shape
from headwater.pipeline.report.synthetic import synthetic_run
from headwater.pipeline.report.tables import KINDS as TABLES
from headwater.pipeline.report.tables import Row, Tables

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PATIENCE_S = 600.0
WIDTHS = (420, 1280)


def made_up(folder: Path, *labels: str) -> tuple[Tables, dict[str, Shape]]:
    """Tables of some runs with names of their own."""
    runs = []
    for number, label in enumerate(labels):
        run = synthetic_run(folder / str(number), matches=300, events=6_000, nodes=7, seed=number)
        runs.append(Recorded(label, run.shape, run.folders))
    return grouped(report_tables(None, runs)), {run.label: run.shape for run in runs}


def empty_tables(**rows: list[Row]) -> Tables:
    return Tables({**{name: [] for name in TABLES}, **rows})


# -- what it says ------------------------------------------------------------------------------------------------------


def test_every_kind_that_crossed_a_link_is_explained_where_it_is_drawn() -> None:
    assert tuple(EXPLAINED) == KINDS
    run = {"run": "st", "centralised_events": 100, "centralised_bytes": None}
    links = [
        {
            "run": "st", "from": "p1", "to": "p2", "kind": kind, "events": 1, "messages": 1, "bytes": 10,
            "overhead": kind in ("watermark", "control"),
        }
        for kind in KINDS
    ]  # fmt: skip
    tables = empty_tables(runs=[run], links=links)
    for column, overhead in (("events", False), ("bytes", True)):
        drawn = charts.stacked(tables, column, str, overhead=overhead)
        for kind in KINDS:
            place = f"</i>{kind}</dt><dd>{escape(EXPLAINED[kind])}</dd>"
            assert (place in drawn) == (overhead or kind not in ("watermark", "control")), kind
    assert all(escape(EXPLAINED[kind]) in charts.links_by_kind(tables, "st") for kind in KINDS)


def latencies(**curves: float) -> Tables:
    """Runs whose composites all took about so many milliseconds, a little more each."""
    cdf = [
        {"run": run, "rule": "", "share": share, "latency_ms": at_ms + share}
        for run, at_ms in curves.items()
        for share in CDF_SHARES
    ]
    columns = ("p50_ms", "p90_ms", "p95_ms", "p99_ms", "max_ms")
    rows = [{"run": run, "rule": "", **dict.fromkeys(columns, at_ms)} for run, at_ms in curves.items()]
    return empty_tables(latency_cdf=cdf, latency=rows)


def test_curves_that_cannot_be_told_apart_are_said_to_coincide() -> None:
    tables = latencies(centr=50.0, st=50.02, mt=80.0)
    drawn = charts.latency_curves(tables, [(run, "", run) for run in ("centr", "st", "mt")])
    assert "centr and st coincide" in drawn
    assert drawn.count('class="line ') == 2
    apart = charts.latency_curves(latencies(centr=50.0, st=60.0), [("centr", "", "centr"), ("st", "", "st")])
    assert "coincide" not in apart
    assert apart.count('class="line ') == 2


def steps(*born: int) -> list[Row]:
    return [
        {
            "run": "st", "from_s": float(second), "to_s": second + 1.0, "born": float(events), "composites": 0,
            "born_per_s": float(events), "composites_per_s": 0.0,
        }
        for second, events in enumerate(born)
    ]  # fmt: skip


def test_long_time_in_which_nothing_happened_is_cut_out_and_short_time_is_not() -> None:
    rows = steps(*[5] * 10, *[0] * 60, *[5] * 10, *[0] * 3, 5)
    kept = stretches(rows)
    assert [(piece.from_s, piece.to_s) for piece in kept] == [(0.0, 10.0), (70.0, 84.0)]
    assert all(before.place(before.to_s) < after.at_s for before, after in pairwise(kept))
    drawn = over_time(empty_tables(throughput=rows), "st")
    assert "60.0 s in which nothing was born or delivered are cut out" in drawn
    assert drawn.count('class="cut"') == 2  # in both pictures
    assert [(piece.from_s, piece.to_s) for piece in stretches(steps(*[0] * 50, *[5] * 10, *[0] * 50))] == [(50.0, 60.0)]
    whole = over_time(empty_tables(throughput=steps(*[5] * 30)), "st")
    assert "cut" not in whole
    assert "Nothing was born" in over_time(empty_tables(throughput=steps(0, 0, 0, 0, 0, 0)), "st")


def test_every_step_of_time_is_drawn_where_it_was_and_as_high_as_it_was() -> None:
    drawn = over_time(empty_tables(throughput=steps(4, 0, 2, 3)), "st")
    (path,) = re.findall(r'<path d="([^"]+)" class="area c0"', drawn)
    start, *pieces = re.split(r"(?=V)", path)
    left, bottom = map(float, start.removeprefix("M").split(","))
    found = [tuple(map(float, piece[1:].split("H"))) for piece in pieces[:-1]]
    ends = [end for _, end in found]
    assert [round((end - left) / (ends[-1] - left), 2) for end in ends] == [0.25, 0.5, 0.75, 1.0]
    tall = bottom - found[0][0]
    assert [round((bottom - height) / tall, 2) for height, _ in found] == [1.0, 0.0, 0.5, 0.75]


def test_times_on_an_axis_with_cuts_do_not_stand_on_each_other() -> None:
    rows = steps(*[5] * 20, *[0] * 60, *[5] * 12, *[0] * 25, 3, 5, 3)
    drawn = over_time(empty_tables(throughput=rows), "st")
    ticks = [float(x) for x in re.findall(r'<text x="([\d.]+)" y="178" class="tick" text-anchor="middle">', drawn)]
    assert len(ticks) > 4
    first = ticks[: len(ticks) // 2]
    assert all(after - before > 50 for before, after in pairwise(first))
    assert ">80<" in drawn  # where time goes on after the first cut


def test_rows_of_zeros_are_folded_away_and_others_are_not(tmp_path: Path) -> None:
    tables, shapes = made_up(tmp_path, "one", "two")
    tables["runs"][1]["late"] = 3
    text = page(tables, shapes)
    folded = "".join(re.findall(r"<details>.*?</details>", text, re.DOTALL))
    shown = re.sub(r"<details>.*?</details>", "", text, flags=re.DOTALL)
    for column in ("malformed", "refused", "repeated", "records_dropped", "restarts"):
        cell = f'data-table="runs" data-run="one" data-column="{column}"'
        assert cell in folded
        assert cell not in shown
    for column in ("late", "born", "events_sent"):
        assert f'data-table="runs" data-run="one" data-column="{column}"' in shown
    assert "figures that are zero or not known</summary>" in folded


def test_the_first_sentence_gives_the_ratio_in_events_and_in_bytes_with_overhead(tmp_path: Path) -> None:
    tables, _ = made_up(tmp_path, "one")
    (run,) = tables["runs"]
    run |= {"strategy": "inev", "transmission_ratio": 0.062, "bytes_ratio": 0.36}
    assert "6.2 % of the" in headline(tables)[0]
    assert headline(tables)[0].endswith("and 36.0 % of its bytes, overhead included.")
    run["bytes_ratio"] = None
    assert "in bytes is known only where centr ran over the same events" in headline(tables)[0]


# -- in a real browser -------------------------------------------------------------------------------------------------

MEASURE = """
addEventListener("load", () => {
  const inner = document.querySelector("iframe").contentDocument, root = inner.documentElement;
  for (const each of inner.querySelectorAll("details")) each.open = true;
  for (const each of inner.querySelectorAll(".run")) each.hidden = false;
  const rolls = each => { for (let at = each.parentElement; at; at = at.parentElement)
    if (["auto", "scroll"].includes(inner.defaultView.getComputedStyle(at).overflowX)) return true; return false; };
  const out = [...inner.querySelectorAll("main *")].filter(
    each => each.getBoundingClientRect().right > root.clientWidth + 1 && !rolls(each));
  const letters = [...inner.querySelectorAll("svg text")].map(each => each.getBoundingClientRect().height);
  document.title = [root.clientWidth, root.scrollWidth, out.length, Math.min(...letters, 99)].join(" ");
  document.body.innerHTML = "";
});
"""


def measured(text: str, width: int, folder: Path) -> tuple[int, int, int, float]:
    """In Chromium, at a width: how wide the page is, how wide what is in it, how many elements stick out that cannot be
    reached by moving a table, and how high the smallest letters in pictures are. Everything folded is open."""
    if CHROMIUM is None:
        pytest.skip("no chromium is installed (apt-get install chromium): no page was looked at in a browser")
    # A window is never as narrow as a telephone; a frame in it is.
    frame = f'<iframe width="{width}" height="900" style="border:0" srcdoc="{escape(text)}"></iframe>'
    file = folder / f"at-{width}.html"
    file.write_text(f"<!doctype html><html><head><title></title></head><body>{frame}<script>{MEASURE}</script></body>")
    quiet = ("--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run")
    done = subprocess.run(
        [
            CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", *quiet,
            f"--user-data-dir={folder / 'profile'}", "--window-size=1400,1000", "--dump-dom", file.as_uri(),
        ],
        capture_output=True, text=True, timeout=PATIENCE_S, check=True,
    )  # fmt: skip
    found = re.search(r"<title>(\d+) (\d+) (\d+) ([\d.]+)</title>", done.stdout)
    assert found is not None, done.stdout[:500] + done.stderr[-500:]
    return int(found[1]), int(found[2]), int(found[3]), float(found[4])


def fits(text: str, folder: Path) -> None:
    for width in WIDTHS:
        page_px, inside_px, out, letters_px = measured(text, width, folder)
        assert page_px in range(width - 20, width + 1)
        assert (inside_px, out) == (page_px, 0)
        assert letters_px > 9


@pytest.mark.parametrize("number", [1, 9])
def test_the_page_fits_a_telephone_and_a_screen_without_being_moved_sideways(number: int, tmp_path: Path) -> None:
    names = [f"a-run-with-{'x' * 40 if each == 1 else 'a'}-name-{each}" for each in range(number)]
    tables, shapes = made_up(tmp_path, *names)
    tables["notes"].append({"run": names[0], "note": f"something about {'y' * 90}"})  # type: ignore[attr-defined]
    fits(page(tables, shapes), tmp_path)


def test_the_page_of_strategies_fits_a_telephone_and_a_screen(tmp_path: Path) -> None:
    fits(strategies_page(a_comparison()), tmp_path)


def test_a_page_that_does_not_fit_is_found_out(tmp_path: Path) -> None:
    text = page(*made_up(tmp_path, "one")).replace("</main>", '<div style="width:600px">wide</div></main>')
    page_px, inside_px, out, _ = measured(text, 420, tmp_path)
    assert inside_px > page_px
    assert out > 0


def a_comparison() -> Comparison:
    def run(seed: int, factor: float) -> OneRun:
        names = ("events", "bytes", "overhead_bytes", "messages", "delay_p50_us", "delay_p95_us", "delay_p99_us")
        values: dict[str, Any] = {"composites": 7, **dict.fromkeys(names, 1_000 * factor)}
        return OneRun(seed, values, dict.fromkeys(names, factor))

    strategies = [ComparedStrategy("centr", [run(seed, 1.0) for seed in (0, 1)])]
    strategies += [ComparedStrategy(name, [run(0, 0.2), run(1, 0.3)]) for name in ("st", "mt", "inev")]
    strategies.append(ComparedStrategy("mt-pp", why_not=f"the rule {'z' * 80} counts events, which only centr can"))
    return Comparison("fires", (0, 1), strategies)


def test_the_page_of_strategies_shows_means_spreads_and_who_cannot() -> None:
    text = strategies_page(a_comparison())
    assert "st, mt and inev sent least of the events that centr sends: 25.0 %." in text
    assert 'data-strategy="st" data-measure="events" data-value="0.25"' in text
    assert "left:20.0000%;width:10.0000%" in text  # from the least to the most, beside centr
    assert "<b>mt-pp</b>: the rule zzz" in text
    assert not re.search(r"https?:|url\(|@import|fetch\(|import\(|XMLHttp", text)
