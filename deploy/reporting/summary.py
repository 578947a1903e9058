"""The summary of a report: the results of its runs in sentences, at the top of the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from headwater.pipeline.report.tables import Row, Tables
from headwater.protocol.text import NOTHING, count, joined, milliseconds, plural, seconds, share


def title(tables: Tables) -> str:
    runs = tables["runs"]
    networks = list(dict.fromkeys(run["network"] for run in runs))
    if len(runs) == 1:
        return f"{networks[0]} under {runs[0]['strategy']}"
    return f"{len(runs)} runs of {joined(networks)}"


def headline(tables: Tables) -> list[str]:
    """What came out, in sentences: what was saved, what was found and how fast, and whether all agree."""
    runs = tables["runs"]
    return _of_one(runs[0], tables) if len(runs) == 1 else _of_several(tables)


def _of_one(run: Row, tables: Tables) -> list[str]:
    sentences = [_sent(run)]
    sinks = len({row["node"] for row in tables["nodes"] if row["delivered"]})
    if run["composites"]:
        sentence = f"{plural(run['composites'], 'composite event')} reached sinks at {plural(sinks, 'node')}"
        if run["latency_known"]:
            sentence += (
                f", half of them within {milliseconds(run['latency_p50_ms'])} and 99 % within "
                f"{milliseconds(run['latency_p99_ms'])} of the event that completed them"
            )
        sentences.append(f"{sentence}.")
    else:
        sentences.append("No composite event reached a sink.")
    lasted = run["active_s"] or run["span_s"]
    sentences.append(
        f"In {seconds(lasted)}{' of virtual time' if run['simulated'] else ''} "
        f"{plural(run['born'], 'event')} were born at {plural(run['nodes'], 'node')}; the fullest of them held "
        f"{plural(run['held_peak'], 'row')} at once."
    )
    sentences.append(_lost(run))
    return sentences


def _sent(run: Row) -> str:
    if run["transmission_ratio"] is None:
        return f"{run['strategy']} sent {plural(run['events_sent'], 'event')} over links."
    return (
        f"{run['strategy']} sent {plural(run['events_sent'], 'event')} over links: {share(run['transmission_ratio'])} "
        f"of the {count(run['centralised_events'])} that sending everything to one node would have taken"
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
        lost.append(f"{plural(run['records_dropped'], 'record')} dropped")
    text = f"Of the events that came, {joined(lost)}." if lost else "No event came late, malformed or twice."
    if run["restarts"]:
        text += f" Processes were started again {plural(run['restarts'], 'time')}."
    return text


def _of_several(tables: Tables) -> list[str]:
    means, bytes_means = (
        {row["strategy"]: row["mean"] for row in tables["groups"] if row["measure"] == measure}
        for measure in ("transmission_ratio", "bytes_ratio")
    )
    if len(means) > 1 and len({row["network"] for row in tables["groups"]}) == 1:
        sentences = _least(means, bytes_means, "on average over all runs, ")
    else:
        ratios, bytes_ratios = (
            {run["run"]: run[column] for run in tables["runs"]} for column in ("transmission_ratio", "bytes_ratio")
        )
        sentences = _least(ratios, bytes_ratios, "")
    timed = {run["run"]: run["latency_p99_ms"] for run in tables["runs"] if run["latency_p99_ms"] is not None}
    quick, slow = _ends(timed, milliseconds)
    if slow:
        sentences.append(
            f"{_who(quick)} fastest: 99 % of the composites arrived within {milliseconds(timed[quick[0]])}; "
            f"{joined(slow)} took {milliseconds(timed[slow[0]])}."
        )
    sentences.append(agreement(tables))
    return sentences


def _least(ratios: Mapping[str, float | None], bytes_ratios: Mapping[str, float | None], how: str) -> list[str]:
    """Which runs sent least, compared with sending everything to one node, and what the others sent; in events and in
    bytes."""
    measured = {name: ratio for name, ratio in ratios.items() if ratio is not None}
    if not measured:
        return []
    least, _ = _ends(measured, share)
    sizes = {name: bytes_ratios.get(name) for name in measured}
    theirs = joined(list(dict.fromkeys(share(sizes[name]) for name in least)))
    beside = "" if NOTHING in theirs else f", and {theirs} of its bytes, overhead included"
    sentences = [
        f"{joined(least)} sent least: {how}{share(measured[least[0]])} of the events that sending everything to one "
        f"node would have sent over links{beside}."
    ]
    rest = sorted((name for name in measured if name not in least), key=lambda name: measured[name])
    if rest:
        shown = [
            f"{name} {share(measured[name])}" + ("" if sizes[name] is None else f" ({share(sizes[name])} of the bytes)")
            for name in rest
        ]
        sentences.append(f"The others: {', '.join(shown)}.")
    return sentences


def _ends(values: Mapping[str, float], show: Callable[[float], str]) -> tuple[list[str], list[str]]:
    """The names with the least value and those with the greatest. Values that are shown alike count as equal; where all
    are equal, there is no greatest."""
    if not values:
        return [], []
    least, most = show(min(values.values())), show(max(values.values()))
    first = [name for name, value in values.items() if show(value) == least]
    return first, [] if least == most else [name for name, value in values.items() if show(value) == most]


def _who(names: Sequence[str]) -> str:
    return f"{joined(names)} {'was' if len(names) == 1 else 'were'}"


def agreement(tables: Tables) -> str:
    """Whether runs over the same events delivered the same."""
    rows = [row for row in tables["comparison"] if row["reference"] is not None]
    if not rows:
        return "The runs had different events, so what they delivered cannot be compared."
    wrong = [row for row in rows if row["missing"] or row["extra"]]
    if not wrong:
        compared = list(dict.fromkeys([*(row["reference"] for row in rows), *(row["run"] for row in rows)]))
        rest = len(tables["runs"]) - len(compared)
        text = f"{joined(compared)} delivered the same {plural(rows[0]['composites'], 'composite')}."
        if len({row["reference"] for row in rows}) > 1:
            text = f"{joined(compared)} delivered the same composites wherever they had the same events."
        return text + (f" {plural(rest, 'run')} had events of their own." if rest else "")
    parts = [
        f"{row['run']} lacks {row['missing']:,} and has {row['extra']:,} that {row['reference']} has not"
        for row in wrong
    ]
    return f"The runs did NOT deliver the same: {'; '.join(parts)}."
