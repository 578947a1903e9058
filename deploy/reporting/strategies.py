"""Strategies side by side: a table and bars for the terminal, and a page in the style of a report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Final

from headwater.deploy.cli.tables import table_lines
from headwater.deploy.reporting.drawing import bar, table, tag
from headwater.deploy.reporting.page import document, section
from headwater.deploy.simulation.comparison import BASELINE, Compared, Comparison, Spread
from headwater.protocol.text import NOTHING, count, joined, milliseconds, plural, share, size

Show = Callable[[float | None], str]

BAR_LETTERS: Final = 40  # of a bar in a terminal that stands for as much as centr


def _duration(us: float | None) -> str:
    return NOTHING if us is None else milliseconds(us / 1000)


COLUMNS: Final[Sequence[tuple[str, str, bool, Show]]] = (
    ("composites", "composites", False, count),
    ("events", "events sent", False, count),
    ("events", "of centr", True, share),
    ("bytes", "bytes, with overhead", False, size),
    ("bytes", "of centr", True, share),
    ("delay_p50_us", "delay p50", False, _duration),
    ("delay_p99_us", "delay p99", False, _duration),
    ("delay_p99_us", "of centr", True, share),
)
"""Measure, name, whether it is relative to centr, and how it is written."""

CHARTS: Final[Sequence[tuple[str, str, str]]] = (
    ("events", "Events sent over links", "An event that crosses three links counts three times."),
    ("bytes", "Bytes sent over links, overhead included", "Watermarks and control carry no events but cost bytes."),
    ("delay_p50_us", "Median delay", "From the timestamp of the latest event of a composite to its arrival at a sink."),
    ("delay_p99_us", "Delay that 99 % stay within", ""),
)


def render(found: Comparison) -> str:
    """For the terminal, without a line end."""
    header = ["strategy", *(name for _, name, _, _ in COLUMNS)]
    served = [each for each in found.strategies if each.why_not is None]
    rows = [[each.strategy, *(_shown(each, column) for column in COLUMNS)] for each in served]
    width = max(len(row[0]) for row in (header, *rows))
    lines = [_seeds(found), "", *table_lines(header, rows, figures=range(1, len(header)))]
    for each in found.strategies:
        if each.why_not is not None:
            lines.append(f"{each.strategy.ljust(width)}  not for this network: {each.why_not}")
    for measure, words in (("events", "events"), ("bytes", "bytes, with overhead")):
        lines += ["", f"{words}, beside centr", *_letters(found, measure, width)]
    return "\n".join([*lines, "", agreement(found)])


def _letters(found: Comparison, measure: str, width: int) -> list[str]:
    lines = []
    for each in found.strategies:
        spread = each.relative(measure)
        if spread is not None:
            filled = min(round(BAR_LETTERS * spread.mean), 2 * BAR_LETTERS)
            drawn = "█" * filled or "▏"
            lines.append(f"{each.strategy.ljust(width)}  {drawn} {share(spread.mean)}")
    return lines


def _seeds(found: Comparison) -> str:
    seeds = found.seeds
    if len(seeds) == 1:
        return f"{found.network}, seed {seeds[0]}"
    return f"{found.network}, seeds {seeds[0]} to {seeds[-1]}: means, with 95 % confidence intervals"


def _shown(each: Compared, column: tuple[str, str, bool, Show]) -> str:
    measure, _, relative, show = column
    return _with_spread(each.relative(measure) if relative else each.spread(measure), show)


def _with_spread(spread: Spread | None, show: Show) -> str:
    if spread is None:
        return NOTHING
    return show(spread.mean) + ("" if not spread.half_width_95 else f" ± {show(spread.half_width_95)}")


def agreement(found: Comparison) -> str:
    """Whether sinks received the same, in a sentence."""
    wrong = [each for each in found.strategies if each.differs]
    if wrong:
        parts = [f"{each.strategy} with seed {joined([str(seed) for seed in each.differs])}" for each in wrong]
        return f"Sinks did NOT receive what they received under centr: {'; '.join(parts)}."
    served = [each.strategy for each in found.strategies if each.why_not is None]
    if len(served) == 1:
        return f"Only {served[0]} was simulated."
    return f"Sinks received the same under {joined(served)}."


# -- the page ----------------------------------------------------------------------------------------------------------


def page(found: Comparison) -> str:
    """A page that needs nothing else."""
    title = f"Strategies for {found.network}"
    parts = [tag("h1", {}, escape(title)), *(tag("p", {"class_": "lead"}, escape(each)) for each in headline(found))]
    parts.append(tag("p", {}, escape(_seeds(found) + ".")))
    for measure, name, about in CHARTS:
        parts.append(section(name, about, _bars(found, measure)))
    parts.append(section("All figures", "Means" + _how(found), _figures(found)))
    unserved = [each for each in found.strategies if each.why_not is not None]
    if unserved:
        items = "".join(
            tag("li", {}, tag("b", {}, escape(each.strategy)) + ": " + escape(each.why_not or "")) for each in unserved
        )
        parts.append(section("Not for this network", "", tag("ul", {"class_": "notes"}, items)))
    return document(title, parts)


def headline(found: Comparison) -> list[str]:
    """Who sent least, in events and in bytes, and whether all agree."""
    others = [each for each in found.strategies if each.strategy != BASELINE and each.relative("events") is not None]
    said = []
    if others:
        for measure, words in (("events", "the events"), ("bytes", "the bytes, overhead included,")):
            least = min(_mean(each, measure) for each in others)
            names = [each.strategy for each in others if share(_mean(each, measure)) == share(least)]
            said.append(f"{joined(names)} sent least of {words} that centr sends: {share(least)}.")
    return [*said, agreement(found)]


def _mean(each: Compared, measure: str) -> float:
    spread = each.relative(measure)
    return float("inf") if spread is None else spread.mean


def _how(found: Comparison) -> str:
    number = len(found.seeds)
    if number == 1:
        return " of one seed: that says nothing of how much they vary."
    return (
        f" over {plural(number, 'seed')}, with 95 % confidence intervals. Lines on bars go from the least to the most."
    )


def _bars(found: Comparison, measure: str) -> str:
    """A bar for each strategy, beside centr, with a line from the least to the most over all seeds."""
    spreads = {each.strategy: each.relative(measure) for each in found.strategies}
    most = max((spread.most for spread in spreads.values() if spread is not None), default=0.0) or 1.0
    made = ""
    for each in found.strategies:
        spread = spreads[each.strategy]
        if spread is None:
            continue
        absolute = each.spread(measure)
        show: Show = count if measure == "events" else size if measure == "bytes" else _duration
        tip = f"{each.strategy}: {_with_spread(absolute, show)}, {_with_spread(spread, share)} of centr"
        data = {"data_strategy": each.strategy, "data_measure": measure, "data_value": repr(spread.mean)}
        kind = "k-other" if each.strategy == BASELINE else "k-buffer"
        width = f"width:{100 * spread.mean / most:.4f}%"
        pieces = tag("span", {"class_": f"piece {kind}", "style": width, "data_tip": tip, "title": tip, **data})
        if spread.least < spread.most:
            ends = f"left:{100 * spread.least / most:.4f}%;width:{100 * (spread.most - spread.least) / most:.4f}%"
            pieces += tag("b", {"class_": "whisker", "style": ends})
        made += bar(each.strategy, pieces, share(spread.mean))
    return (
        tag("div", {"class_": "bars"}, made) if made else tag("p", {"class_": "none"}, "There is nothing to compare.")
    )


def _figures(found: Comparison) -> str:
    rows = []
    for each in found.strategies:
        if each.why_not is not None:
            continue
        cells = ""
        for column in COLUMNS:
            spread = each.relative(column[0]) if column[2] else each.spread(column[0])
            value = None if spread is None else repr(spread.mean)
            cells += tag("td", {"data_value": value}, escape(_shown(each, column)))
        rows.append((each.strategy, cells))
    return table([name for _, name, _, _ in COLUMNS], rows)
