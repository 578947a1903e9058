"""Compares strategies: a table and bars for the terminal, and a page in the style of a report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Final

from headwater.deploy.cli.tables import table_lines
from headwater.deploy.reporting.page import document, section
from headwater.deploy.reporting.svg import bar, table, tag
from headwater.deploy.simulation.comparison import BASELINE, ComparedStrategy, Comparison, MeasureSpread
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


def render(comparison: Comparison) -> str:
    """For the terminal, without a line end."""
    header = ["strategy", *(name for _, name, _, _ in COLUMNS)]
    served = [compared for compared in comparison.strategies if compared.why_not is None]
    rows = [[compared.strategy, *(_shown(compared, column) for column in COLUMNS)] for compared in served]
    width = max(len(row[0]) for row in (header, *rows))
    lines = [_seeds(comparison), "", *table_lines(header, rows, figures=range(1, len(header)))]
    for compared in comparison.strategies:
        if compared.why_not is not None:
            lines.append(f"{compared.strategy.ljust(width)}  not for this network: {compared.why_not}")
    for measure, words in (("events", "events"), ("bytes", "bytes, with overhead")):
        lines += ["", f"{words}, beside centr", *_letters(comparison, measure, width)]
    return "\n".join([*lines, "", agreement(comparison)])


def _letters(comparison: Comparison, measure: str, width: int) -> list[str]:
    lines = []
    for compared in comparison.strategies:
        spread = compared.relative(measure)
        if spread is not None:
            filled = min(round(BAR_LETTERS * spread.mean), 2 * BAR_LETTERS)
            drawn = "█" * filled or "▏"
            lines.append(f"{compared.strategy.ljust(width)}  {drawn} {share(spread.mean)}")
    return lines


def _seeds(comparison: Comparison) -> str:
    seeds = comparison.seeds
    if len(seeds) == 1:
        return f"{comparison.network}, seed {seeds[0]}"
    return f"{comparison.network}, seeds {seeds[0]} to {seeds[-1]}: means, with 95 % confidence intervals"


def _shown(compared: ComparedStrategy, column: tuple[str, str, bool, Show]) -> str:
    measure, _, relative, show = column
    return _with_spread(compared.relative(measure) if relative else compared.spread(measure), show)


def _with_spread(spread: MeasureSpread | None, show: Show) -> str:
    if spread is None:
        return NOTHING
    return show(spread.mean) + ("" if not spread.half_width_95 else f" ± {show(spread.half_width_95)}")


def agreement(comparison: Comparison) -> str:
    """Whether sinks received the same, in a sentence."""
    wrong = [compared for compared in comparison.strategies if compared.differs]
    if wrong:
        parts = [
            f"{compared.strategy} with seed {joined([str(seed) for seed in compared.differs])}" for compared in wrong
        ]
        return f"Sinks did NOT receive what they received under centr: {'; '.join(parts)}."
    served = [compared.strategy for compared in comparison.strategies if compared.why_not is None]
    if len(served) == 1:
        return f"Only {served[0]} was simulated."
    return f"Sinks received the same under {joined(served)}."


# -- the page ----------------------------------------------------------------------------------------------------------


def page(comparison: Comparison) -> str:
    """A page that needs nothing else."""
    title = f"Strategies for {comparison.network}"
    parts = [
        tag("h1", {}, escape(title)),
        *(tag("p", {"class_": "lead"}, escape(sentence)) for sentence in headline(comparison)),
    ]
    parts.append(tag("p", {}, escape(_seeds(comparison) + ".")))
    for measure, name, about in CHARTS:
        parts.append(section(name, about, _bars(comparison, measure)))
    parts.append(section("All figures", "Means" + _how(comparison), _figures(comparison)))
    unserved = [compared for compared in comparison.strategies if compared.why_not is not None]
    if unserved:
        items = "".join(
            tag("li", {}, tag("b", {}, escape(compared.strategy)) + ": " + escape(compared.why_not or ""))
            for compared in unserved
        )
        parts.append(section("Not for this network", "", tag("ul", {"class_": "notes"}, items)))
    return document(title, parts)


def headline(comparison: Comparison) -> list[str]:
    """Which strategies sent least, in events and in bytes, and whether all agree."""
    beside_centr = [
        compared
        for compared in comparison.strategies
        if compared.strategy != BASELINE and compared.relative("events") is not None
    ]
    sentences = []
    if beside_centr:
        for measure, words in (("events", "the events"), ("bytes", "the bytes, overhead included,")):
            least = min(_mean(compared, measure) for compared in beside_centr)
            names = [compared.strategy for compared in beside_centr if share(_mean(compared, measure)) == share(least)]
            sentences.append(f"{joined(names)} sent least of {words} that centr sends: {share(least)}.")
    return [*sentences, agreement(comparison)]


def _mean(compared: ComparedStrategy, measure: str) -> float:
    spread = compared.relative(measure)
    return float("inf") if spread is None else spread.mean


def _how(comparison: Comparison) -> str:
    number = len(comparison.seeds)
    if number == 1:
        return " of one seed: that says nothing of how much they vary."
    return (
        f" over {plural(number, 'seed')}, with 95 % confidence intervals. Lines on bars go from the least to the most."
    )


def _bars(comparison: Comparison, measure: str) -> str:
    """A bar for each strategy, beside centr, with a line from the least to the most over all seeds."""
    spreads = {compared.strategy: compared.relative(measure) for compared in comparison.strategies}
    most = max((spread.most for spread in spreads.values() if spread is not None), default=0.0) or 1.0
    bars = ""
    for compared in comparison.strategies:
        spread = spreads[compared.strategy]
        if spread is None:
            continue
        absolute = compared.spread(measure)
        show: Show = count if measure == "events" else size if measure == "bytes" else _duration
        tip = f"{compared.strategy}: {_with_spread(absolute, show)}, {_with_spread(spread, share)} of centr"
        data = {"data_strategy": compared.strategy, "data_measure": measure, "data_value": repr(spread.mean)}
        kind = "k-other" if compared.strategy == BASELINE else "k-buffer"
        width = f"width:{100 * spread.mean / most:.4f}%"
        pieces = tag("span", {"class_": f"piece {kind}", "style": width, "data_tip": tip, "title": tip, **data})
        if spread.least < spread.most:
            ends = f"left:{100 * spread.least / most:.4f}%;width:{100 * (spread.most - spread.least) / most:.4f}%"
            pieces += tag("b", {"class_": "whisker", "style": ends})
        bars += bar(compared.strategy, pieces, share(spread.mean))
    return (
        tag("div", {"class_": "bars"}, bars) if bars else tag("p", {"class_": "none"}, "There is nothing to compare.")
    )


def _figures(comparison: Comparison) -> str:
    rows = []
    for compared in comparison.strategies:
        if compared.why_not is not None:
            continue
        cells = ""
        for column in COLUMNS:
            spread = compared.relative(column[0]) if column[2] else compared.spread(column[0])
            value = None if spread is None else repr(spread.mean)
            cells += tag("td", {"data_value": value}, escape(_shown(compared, column)))
        rows.append((compared.strategy, cells))
    return table([name for _, name, _, _ in COLUMNS], rows)
