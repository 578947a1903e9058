"""Figures in words: how numbers are written, and the sentences that stand above everything else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from headwater.pipeline.report.tables import Row, Tables

NOTHING: Final = "\N{EN DASH}"
"""Where there is no figure."""


def count(number: float | None) -> str:
    """A whole number, with commas; a dash where there is none."""
    return NOTHING if number is None else f"{round(number):,}"


def share(ratio: float | None) -> str:
    """A ratio in percent, with as many digits as it takes to see something."""
    if ratio is None:
        return NOTHING
    percent = 100 * ratio
    return (
        f"{percent:.0f} %"
        if percent >= 99.5 or percent == 0
        else f"{percent:.1f} %"
        if percent >= 1
        else f"{percent:.2g} %"
    )


def milliseconds(value: float | None) -> str:
    """A duration that is given in milliseconds."""
    if value is None:
        return NOTHING
    if value >= 120_000:
        return f"{value / 60_000:,.1f} min"
    if value >= 10_000:
        return f"{value / 1000:,.1f} s"
    if value >= 1000:
        return f"{value / 1000:,.2f} s"
    return f"{value:.0f} ms" if value >= 100 else f"{value:.3g} ms"


def seconds(value: float | None) -> str:
    return NOTHING if value is None else milliseconds(1000 * value) if value < 120 else _long(value)


def _long(value: float) -> str:
    return f"{value / 3600:,.1f} h" if value >= 7200 else f"{value / 60:,.1f} min"


def size(value: float | None) -> str:
    """Bytes."""
    if value is None:
        return NOTHING
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= factor:
            return f"{value / factor:,.1f} {unit}"
    return f"{value:,.0f} B"


def rate(value: float | None) -> str:
    """Something in a second."""
    if value is None:
        return NOTHING
    return f"{value:,.0f}/s" if value >= 100 else f"{value:.3g}/s"


def some(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"


def listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def title(tables: Tables) -> str:
    runs = tables["runs"]
    networks = list(dict.fromkeys(run["network"] for run in runs))
    if len(runs) == 1:
        return f"{networks[0]} under {runs[0]['strategy']}"
    return f"{len(runs)} runs of {listed(networks)}"


def headline(tables: Tables) -> list[str]:
    """What came out, in sentences: what was saved, what was found and how fast, and whether all agree."""
    runs = tables["runs"]
    return _of_one(runs[0], tables) if len(runs) == 1 else _of_several(tables)


def _of_one(run: Row, tables: Tables) -> list[str]:
    said = [_sent(run)]
    sinks = len({row["node"] for row in tables["nodes"] if row["delivered"]})
    if run["composites"]:
        found = f"{some(run['composites'], 'composite event')} reached sinks at {some(sinks, 'node')}"
        if run["latency_known"]:
            found += (
                f", half of them within {milliseconds(run['latency_p50_ms'])} and 99 % within "
                f"{milliseconds(run['latency_p99_ms'])} of the event that completed them"
            )
        said.append(f"{found}.")
    else:
        said.append("No composite event reached a sink.")
    lasted = run["active_s"] or run["span_s"]
    said.append(
        f"In {seconds(lasted)}{' of virtual time' if run['simulated'] else ''} "
        f"{some(run['born'], 'event')} were born at {some(run['nodes'], 'node')}; the fullest of them held "
        f"{some(run['held_peak'], 'row')} at once."
    )
    said.append(_lost(run))
    return said


def _sent(run: Row) -> str:
    if run["transmission_ratio"] is None:
        return f"{run['strategy']} sent {some(run['events_sent'], 'event')} over links."
    return (
        f"{run['strategy']} sent {some(run['events_sent'], 'event')} over links: {share(run['transmission_ratio'])} of "
        f"the {count(run['centralised_events'])} that sending everything to one node would have taken"
        f"{_bytes_beside(run['bytes_ratio'])}."
    )


def _bytes_beside(ratio: float | None) -> str:
    """What events alone hide: small ones, and what it takes to coordinate."""
    if ratio is None:
        return "; what that would be in bytes is known only where centr ran over the same events"
    return f", and {share(ratio)} of its bytes, overhead included"


def _lost(run: Row) -> str:
    fates = ("late", "malformed", "refused", "repeated")
    lost = [f"{run[fate]:,} {fate}" for fate in fates if run[fate]]
    if run["records_dropped"]:
        lost.append(f"{some(run['records_dropped'], 'record')} dropped")
    text = f"Of the events that came, {listed(lost)}." if lost else "No event came late, malformed or twice."
    if run["restarts"]:
        text += f" Processes were started again {some(run['restarts'], 'time')}."
    return text


def _of_several(tables: Tables) -> list[str]:
    means, bytes_means = (
        {row["strategy"]: row["mean"] for row in tables["groups"] if row["measure"] == measure}
        for measure in ("transmission_ratio", "bytes_ratio")
    )
    if len(means) > 1 and len({row["network"] for row in tables["groups"]}) == 1:
        said = _least(means, bytes_means, "on average over all runs, ")
    else:
        ratios, bytes_ratios = (
            {run["run"]: run[column] for run in tables["runs"]} for column in ("transmission_ratio", "bytes_ratio")
        )
        said = _least(ratios, bytes_ratios, "")
    timed = {run["run"]: run["latency_p99_ms"] for run in tables["runs"] if run["latency_p99_ms"] is not None}
    quick, slow = _ends(timed, milliseconds)
    if slow:
        said.append(
            f"{_who(quick)} fastest: 99 % of the composites arrived within {milliseconds(timed[quick[0]])}; "
            f"{listed(slow)} took {milliseconds(timed[slow[0]])}."
        )
    said.append(agreement(tables))
    return said


def _least(ratios: Mapping[str, float | None], bytes_ratios: Mapping[str, float | None], how: str) -> list[str]:
    """Who sent least, beside sending everything to one node, and what the others sent; in events and in bytes."""
    known = {name: ratio for name, ratio in ratios.items() if ratio is not None}
    if not known:
        return []
    least, _ = _ends(known, share)
    sizes = {name: bytes_ratios.get(name) for name in known}
    theirs = listed(list(dict.fromkeys(share(sizes[name]) for name in least)))
    beside = "" if NOTHING in theirs else f", and {theirs} of its bytes, overhead included"
    said = [
        f"{listed(least)} sent least: {how}{share(known[least[0]])} of the events that sending everything to one node "
        f"would have sent over links{beside}."
    ]
    rest = sorted((name for name in known if name not in least), key=lambda name: known[name])
    if rest:
        shown = [
            f"{name} {share(known[name])}" + ("" if sizes[name] is None else f" ({share(sizes[name])} of the bytes)")
            for name in rest
        ]
        said.append(f"The others: {', '.join(shown)}.")
    return said


def _ends(values: Mapping[str, float], show: Callable[[float], str]) -> tuple[list[str], list[str]]:
    """Who has the least and who the greatest; those are equal that look equal. No greatest where all are equal."""
    if not values:
        return [], []
    least, most = show(min(values.values())), show(max(values.values()))
    first = [name for name, value in values.items() if show(value) == least]
    return first, [] if least == most else [name for name, value in values.items() if show(value) == most]


def _who(names: Sequence[str]) -> str:
    return f"{listed(names)} {'was' if len(names) == 1 else 'were'}"


def agreement(tables: Tables) -> str:
    """Whether runs over the same events delivered the same."""
    rows = [row for row in tables["comparison"] if row["reference"] is not None]
    if not rows:
        return "The runs had different events, so what they delivered cannot be compared."
    wrong = [row for row in rows if row["missing"] or row["extra"]]
    if not wrong:
        compared = list(dict.fromkeys([*(row["reference"] for row in rows), *(row["run"] for row in rows)]))
        rest = len(tables["runs"]) - len(compared)
        text = f"{listed(compared)} delivered the same {some(rows[0]['composites'], 'composite')}."
        if len({row["reference"] for row in rows}) > 1:
            text = f"{listed(compared)} delivered the same composites wherever they had the same events."
        return text + (f" {some(rest, 'run')} had events of their own." if rest else "")
    parts = [
        f"{row['run']} lacks {row['missing']:,} and has {row['extra']:,} that {row['reference']} has not"
        for row in wrong
    ]
    return f"The runs did NOT deliver the same: {'; '.join(parts)}."
