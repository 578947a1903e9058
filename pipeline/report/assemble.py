"""Assembles the tables of a report from the sums over records, with the traffic that ``centr`` would have had."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from headwater.pipeline.prepare.prepared_trace import Manifest
from headwater.pipeline.report.inputs import ReportNote
from headwater.pipeline.report.latencies import PERCENTILES
from headwater.pipeline.report.measured import MeasuredRun
from headwater.pipeline.report.metrics import HELD, HELD_TOTAL, label
from headwater.pipeline.report.remote import remote_rows
from headwater.pipeline.report.tables import KINDS, Row, Tables
from headwater.protocol.strategy import CENTRAL

OVERHEAD_KINDS: Final = ("watermark", "control")
SENT: Final = "headwater_link_sent_{}_total"
FATES: Final = ("born", "late", "malformed", "refused", "repeated")
QUEUES: Final = {
    "headwater_link_queue_messages": "link queue, messages",
    "headwater_link_queue_bytes": "link queue, bytes",
}
HAPPENINGS: Final = {
    "headwater_edge_happenings_total": "what",
    "headwater_core_reports_total": "report",
    "headwater_rule_errors_total": "rule",
    "headwater_link_refused_frames_total": "reason",
}
RARE: Final = {
    "headwater_edge_happenings_total": "at the edge",
    "headwater_core_reports_total": "reported by the core",
    "headwater_rule_errors_total": "rule could not be evaluated",
    "headwater_link_refused_frames_total": "frame refused",
}


def assemble(
    runs: Sequence[MeasuredRun],
    notes: Sequence[ReportNote],
    trace: Mapping[tuple[str, str], int] | None,
    manifest: Manifest | None,
) -> Tables:
    """All tables but the groups, which are made of the runs."""
    rows: dict[str, list[Row]] = {name: [] for name in KINDS}
    all_notes = list(notes)
    for one in runs:
        _links(one, rows)
        _nodes(one, rows)
        rows["remote"] += remote_rows(one)
        _times(one, rows)
        central = _centralised(one, rows, _usable(one, trace, manifest, all_notes))
        reference = None if one.reference is None else runs[one.reference].run.label
        _comparison(one, reference, rows)
        all_notes += _doubts(one)
        rows["runs"].append(_run(one, rows, central))
    for one, row in zip(runs, rows["runs"], strict=True):
        row |= _in_bytes(one, row, None if one.reference is None else rows["runs"][one.reference])
    rows["notes"] = [{"run": note.label, "note": note.text} for note in all_notes]
    return Tables(rows)


# -------------------------------------------------------------------------------------------------------- what was sent


def _links(one: MeasuredRun, rows: dict[str, list[Row]]) -> None:
    name = one.run.label
    for node in one.run.shape.nodes:
        amounts: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
        for unit in ("events", "messages", "bytes"):
            for labels, value in one.counted.by(node, SENT.format(f"{unit}")).items():
                amounts[label(labels, "peer"), label(labels, "kind")][unit] = round(value)
        for (peer, kind), amount in sorted(amounts.items()):
            rows["links"].append(
                {
                    "run": name, "from": node, "to": peer, "kind": kind, "overhead": kind in OVERHEAD_KINDS,
                    "events": 0, "messages": 0, "bytes": 0, **amount,
                }
            )  # fmt: skip
        for labels, value in sorted(one.counted.by(node, SENT.format("events_by_type")).items()):
            rows["link_types"].append(
                {
                    "run": name, "from": node, "to": label(labels, "peer"), "kind": label(labels, "kind"),
                    "type": label(labels, "type"), "events": round(value),
                }
            )  # fmt: skip


def between_nodes(row: Row) -> bool:
    """Whether a row of the links is one between nodes: not to the coordinator, nor to a program."""
    return not row["to"].startswith("@")


# --------------------------------------------------------------------------------------------------------------- nodes


def _nodes(one: MeasuredRun, rows: dict[str, list[Row]]) -> None:
    name, counted = one.run.label, one.counted
    links = [row for row in rows["links"] if row["run"] == name and between_nodes(row)]
    for node in one.run.shape.nodes:
        fates = {fate: counted.by(node, f"headwater_events_{fate}_total") for fate in FATES}
        by_type: dict[str, dict[str, int]] = defaultdict(dict)
        for fate, counts in fates.items():
            for labels, value in counts.items():
                by_type[label(labels, "type")][fate] = round(value)
        for kind, amounts in sorted(by_type.items()):
            rows["types"].append({"run": name, "node": node, "type": kind, **dict.fromkeys(FATES, 0), **amounts})
        covers = [cover for cover in one.coverage.get(node, ()) if cover.run in ("", one.identity)]
        lags = counted.sum(node, "headwater_event_loop_lag_seconds_count")
        cpu = counted.by(node, "process_cpu_seconds_total")
        held = counted.peak(node, HELD_TOTAL)
        rows["nodes"].append(
            {
                "run": name,
                "node": node,
                **{fate: round(sum(counts.values())) for fate, counts in fates.items()},
                "events_in": sum(row["events"] for row in links if row["to"] == node),
                "events_out": sum(row["events"] for row in links if row["from"] == node),
                "bytes_out": sum(row["bytes"] for row in links if row["from"] == node),
                "delivered": round(counted.sum(node, "headwater_deliveries_total")),
                "cpu_s": sum(cpu.values()) if cpu else None,
                "loop_lag_ms": 1e3 * counted.sum(node, "headwater_event_loop_lag_seconds_sum") / lags if lags else None,
                "held_peak": round(max(held.values())) if held else None,
                "tasks": round(max(counted.peak(node, "headwater_tasks").values(), default=0)),
                "restarts": max(one.run.shape.restarts.get(node, 0), sum(cover.starts for cover in covers)),
                "records_dropped": round(counted.sum(node, "headwater_records_dropped_total")),
                "unrecorded_s": sum(cover.uncovered_us for cover in covers) / 1e6,
            }
        )
        for labels, value in sorted(counted.peak(node, HELD).items()):
            if value:
                rows["buffers"].append(_buffer(name, node, "held rows", label(labels, "purpose"), value))
        for metric, shown in QUEUES.items():
            for labels, value in sorted(counted.peak(node, metric).items()):
                if value:
                    rows["buffers"].append(_buffer(name, node, shown, label(labels, "peer"), value))
        for metric, by in HAPPENINGS.items():
            for labels, value in sorted(counted.by(node, metric).items()):
                happening = f"{RARE[metric]}: {label(labels, by)}"
                rows["happenings"].append({"run": name, "node": node, "what": happening, "count": round(value)})


def _buffer(run: str, node: str, buffer: str, of: str, peak: float) -> Row:
    return {"run": run, "node": node, "buffer": buffer, "of": of, "peak": round(peak)}


# ---------------------------------------------------------------------------------------------------------------- times


def _times(one: MeasuredRun, rows: dict[str, list[Row]]) -> None:
    name, steps = one.run.label, one.buckets
    seconds = steps.step_us / 1e6
    for number in range(steps.number):
        born, composites = one.born.get(number, 0.0), one.delivered.over_time.get(number, 0)
        rows["throughput"].append(
            {
                "run": name, "from_s": number * seconds, "to_s": (number + 1) * seconds, "born": round(born, 3),
                "composites": composites, "born_per_s": round(born / seconds, 6),
                "composites_per_s": round(composites / seconds, 6),
            }
        )  # fmt: skip
    for rule, latency in sorted(one.delivered.latency.items()):
        row: Row = {
            "run": name, "rule": rule, "composites": latency.composites, "known": latency.known,
            "mean_ms": None if latency.mean_us is None else latency.mean_us / 1e3,
            "max_ms": None if latency.max_us is None else latency.max_us / 1e3,
        }  # fmt: skip
        for share in PERCENTILES:
            value = latency.percentiles_us.get(share)
            row[f"p{share}_ms"] = None if value is None else value / 1e3
        rows["latency"].append(row)
        for share_of, value in latency.cdf:
            rows["latency_cdf"].append({"run": name, "rule": rule, "share": share_of, "latency_ms": value / 1e3})


# ---------------------------------------------------------------------------------------------------- centralised


def _usable(
    one: MeasuredRun, trace: Mapping[tuple[str, str], int] | None, manifest: Manifest | None, notes: list[ReportNote]
) -> Mapping[tuple[str, str], int] | None:
    """The events of the trace, if it is the one of this run; what is doubtful about it is told."""
    if trace is None or manifest is None:
        return None
    name, shape = one.run.label, one.run.shape
    if shape.trace is not None and shape.trace != manifest.checksum:
        why = f"the trace {manifest.name} ({manifest.checksum}) is not the one that was replayed ({shape.trace})"
        notes.append(ReportNote(name, f"{why}; what was born at the nodes is counted instead"))
        return None
    sources = set(shape.sources)
    wanted = {place: events for place, events in trace.items() if place in sources}
    if not wanted:
        why = f"the trace {manifest.name} has no event of any source of this network"
        notes.append(ReportNote(name, f"{why}; what was born at the nodes is counted instead"))
        return None
    born = round(sum(one.counted.sum(node, "headwater_events_born_total") for node in shape.nodes))
    total = sum(wanted.values())
    if born != total:
        why = f"the trace has {total:,} events of this network's sources, and {born:,} were born"
        notes.append(ReportNote(name, f"{why}; centralised is counted over the trace"))
    return wanted


def _centralised(one: MeasuredRun, rows: dict[str, list[Row]], trace: Mapping[tuple[str, str], int] | None) -> int:
    """How many events centr would send over links: all that a rule or subscription names to the leader, and what sinks
    want from there to them."""
    name, shape = one.run.label, one.run.shape
    if trace is None:
        born = {
            (node, label(labels, "type")): round(value)
            for node in shape.nodes
            for labels, value in one.counted.by(node, "headwater_events_born_total").items()
        }
    else:
        born = dict(trace)
    transmissions = [
        _central(name, node, kind, "up", events, shape.hops(node))
        for (node, kind), events in sorted(born.items())
        if kind in shape.types and node in shape.parents
    ]
    if one.compared is not None:
        for (child, _), events in sorted(one.compared.below.items()):
            if events:
                transmissions.append(_central(name, child, "composites", "down", events, 1))
    for node in shape.nodes:
        for labels, value in sorted(one.counted.by(node, "headwater_deliveries_total").items()):
            number = int(label(labels, "sink"))
            if number < len(shape.sinks) and shape.sinks[number].type in shape.types:
                kind = shape.sinks[number].type
                transmissions.append(_central(name, node, kind, "down", round(value), shape.hops(node)))
    rows["centralised"] += transmissions
    return sum(row["transmissions"] for row in transmissions)


def _central(run: str, node: str, kind: str, way: str, events: int, hops: int) -> Row:
    return {
        "run": run, "node": node, "type": kind, "way": way, "events": events, "hops": hops,
        "transmissions": events * hops,
    }  # fmt: skip


# ---------------------------------------------------------------------------------------------------- runs side by side


def _comparison(one: MeasuredRun, reference: str | None, rows: dict[str, list[Row]]) -> None:
    if one.compared is None:
        return
    row: Row = {
        "run": one.run.label, "reference": reference, "composites": one.compared.composites,
        "delivered_again": one.compared.again, "same": None, "missing": None, "extra": None,
    }  # fmt: skip
    if reference is not None:
        row |= {"same": one.compared.same, "missing": one.compared.missing, "extra": one.compared.extra}
    rows["comparison"].append(row)


def _doubts(one: MeasuredRun) -> list[ReportNote]:
    """What a reader of the figures of a run must know."""
    name, shape = one.run.label, one.run.shape
    texts: list[str] = []
    for (node, identity), number in sorted(one.delivered.strangers.items()):
        texts.append(f"{number:,} matches of another run ({identity}) are mixed in at {node}; they are left out")
    if one.lines_bad:
        texts.append(
            f"{one.lines_bad:,} lines are cut or of another version and were passed over (a process that is killed "
            "leaves half a line)"
        )
    everything = one.delivered.latency.get("")
    unknown = everything.composites - everything.known if everything is not None else 0
    if unknown:
        why = (
            "the batch that their latest event came with is in no record of births"
            if one.has_births
            else "events were replayed, and there are no records of births that say when"
        )
        texts.append(f"the latency of {unknown:,} composites is not known: {why}")
    strategies = {
        cover.strategy
        for covers in one.coverage.values()
        for cover in covers
        if cover.strategy and cover.run == one.identity
    }
    if strategies - {shape.strategy}:
        texts.append(
            f"the records are of the strategy {', '.join(sorted(strategies))}, the network is one of {shape.strategy}"
        )
    return [ReportNote(name, text) for text in texts]


def _unrecorded(one: MeasuredRun) -> int:
    """Deliveries of composites whose number no record has: dropped, rotated away or cut."""
    shape = one.run.shape
    emitted = set(shape.types)
    missing = 0
    for number, (count, _, most) in one.delivered.sinks.items():
        if number >= len(shape.sinks) or shape.sinks[number].type not in emitted:
            missing += max(0, most - count)
    return missing


def _in_bytes(one: MeasuredRun, row: Row, reference: Row | None) -> Row:
    """What centr took in bytes, overhead included: as the run of centr over the same events says, or the recording."""
    total = row["bytes_sent"] + row["overhead_bytes"]
    central = one.run.shape.centr_bytes
    if row["strategy"] == CENTRAL:
        central = total
    elif reference is not None and reference["strategy"] == CENTRAL:
        central = reference["bytes_sent"] + reference["overhead_bytes"]
    return {"centralised_bytes": central, "bytes_ratio": total / central if central else None}


def _run(one: MeasuredRun, rows: dict[str, list[Row]], central: int) -> Row:
    name, shape = one.run.label, one.run.shape
    links = [row for row in rows["links"] if row["run"] == name and between_nodes(row)]
    nodes = [row for row in rows["nodes"] if row["run"] == name]
    judged, beside = ([row for row in links if row["overhead"] is over] for over in (False, True))
    active_s = one.spans.active_s

    def total(column: str, of: Sequence[Row]) -> Any:
        return sum(row[column] for row in of if row[column] is not None)

    latency = one.delivered.latency.get("")
    composites = latency.composites if latency is not None else 0
    with_latency = latency.known if latency is not None else 0
    born, sent = total("born", nodes), total("events", judged)
    cpu = [row["cpu_s"] for row in nodes if row["cpu_s"] is not None]
    row: Row = {
        "run": name,
        "network": shape.network,
        "strategy": shape.strategy,
        "seed": shape.seed,
        "simulated": shape.simulated,
        "run_id": one.identity,
        "input": shape.input or None,
        "span_s": (one.spans.recorded_us[1] - one.spans.recorded_us[0]) / 1e6,
        "active_s": active_s,
        "nodes": len(shape.nodes),
        "born": born,
        "composites": composites,
        "events_sent": sent,
        "messages_sent": total("messages", judged),
        "bytes_sent": total("bytes", judged),
        "overhead_messages": total("messages", beside),
        "overhead_bytes": total("bytes", beside),
        "centralised_events": central,
        "transmission_ratio": sent / central if central else None,
        "latency_known": with_latency,
        "latency_unknown": composites - with_latency,
        "born_per_s": born / active_s if active_s else None,
        "composites_per_s": composites / active_s if active_s else None,
        **{fate: total(fate, nodes) for fate in FATES[1:]},
        "records_dropped": total("records_dropped", nodes),
        "deliveries_unrecorded": _unrecorded(one),
        "lines_bad": one.lines_bad,
        "lines_repeated": one.lines_repeated,
        "restarts": total("restarts", nodes),
        "unrecorded_s": total("unrecorded_s", nodes),
        "held_peak": max((row["held_peak"] or 0 for row in nodes), default=0),
        "cpu_s": sum(cpu) if cpu else None,
    }
    for share in PERCENTILES:
        value = latency.percentiles_us.get(share) if latency is not None else None
        row[f"latency_p{share}_ms"] = None if value is None else value / 1e3
    row["latency_max_ms"] = None if latency is None or latency.max_us is None else latency.max_us / 1e3
    return row
