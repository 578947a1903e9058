"""Every metric of a node: its name, kind, labels and meaning, and where its value is read.

Reading touches nothing and depends on no library: Prometheus and the record files are two ways to write it down.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple

from headwater.node.observe.accounts import Traffic
from headwater.node.observe.metrics.counters import Histogram
from headwater.node.observe.metrics.held import held_by
from headwater.node.observe.metrics.observed import Observed
from headwater.node.observe.metrics.watermarks import lag_s, watermarks_of
from headwater.node.observe.selectivity import selected
from headwater.node.step import FOREVER

Kind = Literal["counter", "gauge", "histogram"]


class Metric(NamedTuple):
    """One metric family. Counters end in ``_total``; durations are seconds, sizes bytes."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str


class Sample(NamedTuple):
    """A value with the values of its metric's labels, in their order."""

    metric: Metric
    labels: tuple[str, ...]
    value: float | Histogram


_Read = Callable[[Observed], Iterable[tuple[tuple[str, ...], float | Histogram]]]
_READERS: dict[Metric, _Read] = {}


def _metric(name: str, kind: Kind, labels: tuple[str, ...], help_: str) -> Callable[[_Read], _Read]:
    def take(read: _Read) -> _Read:
        _READERS[Metric(f"headwater_{name}", kind, labels, help_)] = read
        return read

    return take


def metrics() -> tuple[Metric, ...]:
    """All metrics, in the order in which they are shown."""
    return tuple(_READERS)


def samples(observed: Observed) -> Iterator[Sample]:
    """The values of all metrics as they are now."""
    for metric, read in _READERS.items():
        for labels, value in read(observed):
            yield Sample(metric, labels, value)


Values = Iterator[tuple[tuple[str, ...], float | Histogram]]

# --------------------------------------------------------------------------------------------------------------- events


@_metric("node_info", "gauge", ("node", "network"), "Always 1; says which node this is.")
def _info(observed: Observed) -> Values:
    yield (observed.node, observed.network), 1


@_metric("build_info", "gauge", ("version",), "Always 1; says which version of Headwater this is.")
def _build(observed: Observed) -> Values:
    yield (observed.version,), 1


def _by_type(field: str) -> _Read:
    def read(observed: Observed) -> Values:
        sums: dict[str, int] = {}
        for counts in observed.counters.sources.values():
            sums[counts.type] = sums.get(counts.type, 0) + getattr(counts, field)
        for name, number in sorted(sums.items()):
            yield (name,), number

    return read


for _name, _help in (
    ("born", "Events of local sources that became part of the trace."),
    ("late", "Events that arrived later than the lateness of their source allows."),
    (
        "malformed",
        "Payloads that cannot be read as an event of the type; they are in the dead-letter file.",
    ),
    (
        "refused",
        "Well-formed events that were not accepted: their source had ended, or was not in effect at their time.",
    ),
    ("repeated", "Events with an identity that their device has sent before."),
):
    _metric(f"events_{_name}_total", "counter", ("type",), _help)(_by_type(_name))


@_metric(
    "source_devices",
    "gauge",
    ("source", "state"),
    "Devices of a source with last wills that this process has heard from, by state: present, or left.",
)
def _devices(observed: Observed) -> Values:
    if observed.edge is not None:
        for number, devices in sorted(observed.edge.devices.items()):
            yield (str(number), "left"), devices.left_count
            yield (str(number), "present"), devices.present_count


@_metric(
    "source_left",
    "gauge",
    ("source", "type"),
    "1 while every known device of a source with last wills has left, else 0.",
)
def _left(observed: Observed) -> Values:
    if observed.edge is not None:
        for number, devices in sorted(observed.edge.devices.items()):
            yield (str(number), devices.type), int(devices.all_left)


@_metric("edge_happenings_total", "counter", ("what",), "What the adapters of sources and sinks report, by kind.")
def _happenings(observed: Observed) -> Values:
    if observed.edge is not None:
        for name, number in sorted(observed.edge.counters.items()):
            yield (name,), number


@_metric(
    "deliveries_total",
    "counter",
    ("sink",),
    "Events and composite events that the receiver of a sink has accepted: acknowledged, answered or written.",
)
def _deliveries(observed: Observed) -> Values:
    for sink, number in sorted(observed.counters.confirmed.items()):
        yield (str(sink),), number


@_metric(
    "deliveries_found_total",
    "counter",
    ("sink",),
    "Events and composite events that were found for a sink of this node, whether or not they have left.",
)
def _deliveries_found(observed: Observed) -> Values:
    for sink, number in sorted(observed.counters.delivered.items()):
        yield (str(sink),), number


def _of_ends(kind: str, field: str) -> _Read:
    def read(observed: Observed) -> Values:
        for end in observed.ends:
            value = getattr(end, field)
            if end.kind == kind and value is not None:
                yield (str(end.number), end.type, end.end), float(value)

    return read


for _kind, _name, _field, _help in (
    (
        "source",
        "connected",
        "is_connected",
        "1 while the broker of a source, or a program that publishes to it, is connected.",
    ),
    (
        "source",
        "held_back_seconds",
        "held_back_s",
        "How long rules have been waiting for a source that could not be heard.",
    ),
    (
        "sink",
        "connected",
        "is_connected",
        "1 while the receiver of a sink is connected; a webhook is until a request fails.",
    ),
    ("sink", "waiting", "waiting", "Deliveries that the receiver of a sink has not accepted yet."),
    ("sink", "oldest_waiting_seconds", "oldest_s", "How long the oldest of these has been waiting."),
):
    _metric(f"{_kind}_{_name}", "gauge", (_kind, "type", "end"), _help)(_of_ends(_kind, _field))


@_metric(
    "detection_latency_seconds",
    "histogram",
    ("sink",),
    "From the timestamp of the latest part of a match to its delivery; only of live sources.",
)
def _latency(observed: Observed) -> Values:
    for sink, histogram in sorted(observed.counters.latency.items()):
        yield (str(sink),), histogram


@_metric("matches_total", "counter", ("rule",), "Matches of whole rules found here, once for every tree.")
def _matches(observed: Observed) -> Values:
    if observed.core is not None:
        by_predicate = selected(observed.core.works.values(), observed.core.forest.past)
        for (kind, text), counts in sorted(by_predicate.items()):
            if kind == "rule":
                yield (text,), counts.passed


@_metric(
    "rule_errors_total",
    "counter",
    ("rule",),
    "Events on whose values a rule, or a condition on one type, could not be evaluated; they completed no match of it.",
)
def _rule_errors(observed: Observed) -> Values:
    for rule, number in sorted(observed.counters.rule_errors.items()):
        yield (rule,), number


@_metric("core_reports_total", "counter", ("report",), "Occurrences that should be rare, as the core reports them.")
def _reports(observed: Observed) -> Values:
    for name, number in sorted(observed.counters.reports.items()):
        yield (name,), number


# -------------------------------------------------------------------------------------------------------- remote tables


def _requests(field: str) -> _Read:
    def read(observed: Observed) -> Values:
        if observed.fetching is not None:
            for table, figures in sorted(observed.fetching.figures.items()):
                yield (table,), getattr(figures, field)

    return read


for _name, _field, _help in (
    ("requests", "requests", "Requests to the provider of a remote table."),
    ("requests_failed", "failures", "Those that were not answered, or not in time."),
    ("requests_refused", "refusals", "Those that were answered with a refusal, or with something that is no value."),
    ("requests_answered", "answered", "Those that were answered."),
    ("request_seconds", "latency_s", "How long those that were answered took, together."),
):
    _metric(f"remote_{_name}_total", "counter", ("table",), _help)(_requests(_field))


def _lookups(field: str) -> _Read:
    def read(observed: Observed) -> Values:
        if observed.core is not None:
            for table, lookups in sorted(observed.core.memory.lookups.items()):
                yield (table,), getattr(lookups, field)

    return read


for _field, _help in (
    ("hits", "Lookups whose element was at hand."),
    ("misses", "Lookups whose element was not."),
    ("prefetched", "Elements that were asked for before anything needed them."),
    ("prefetched_late", "Those that were needed before they had come."),
    ("prefetched_unused", "Those that made room for others, or expired, before anything looked them up."),
):
    _metric(f"remote_{_field}_total", "counter", ("table",), _help)(_lookups(_field))


@_metric(
    "remote_waiting_matches",
    "gauge",
    ("table",),
    "Evaluations of matches that wait for elements of a remote table; one that waits for several counts for each.",
)
def _waiting_matches(observed: Observed) -> Values:
    if observed.core is not None:
        waiting = observed.core.waiting_by_table()
        for table in sorted(observed.core.memory.lookups):
            yield (table,), waiting.get(table, 0)


@_metric(
    "remote_under_way", "gauge", ("table",), "Elements of a remote table that were asked for and have not come yet."
)
def _under_way(observed: Observed) -> Values:
    if observed.core is not None:
        for table, number in sorted(Counter(table for table, _ in observed.core.memory.under_way).items()):
            yield (table,), number


@_metric("remote_relayed", "gauge", ("table",), "Those of them that neighbours wait for.")
def _relayed(observed: Observed) -> Values:
    if observed.core is not None:
        for table, number in sorted(Counter(table for table, _ in observed.core.relay.askers).items()):
            yield (table,), number


@_metric("remote_out_of_reach", "gauge", ("table",), "Those of them that no node that is left reaches.")
def _out_of_reach(observed: Observed) -> Values:
    if observed.core is not None:
        for table, number in sorted(Counter(table for table, _ in observed.core.relay.stranded).items()):
            yield (table,), number


@_metric("remote_waiting", "gauge", (), "Evaluations, and events behind them, that wait for elements of remote tables.")
def _awaiting(observed: Observed) -> Values:
    if observed.core is not None:
        yield (), observed.core.awaiting()


# ---------------------------------------------------------------------------------------------------------------- links


def _traffic(direction: str, field: str) -> _Read:
    def read(observed: Observed) -> Values:
        if observed.accounts is not None:
            accounts: dict[str, dict[str, Traffic]] = getattr(observed.accounts, direction)
            for peer, by_kind in sorted(accounts.items()):
                for kind, traffic in sorted(by_kind.items()):
                    yield (peer, kind), getattr(traffic, field)

    return read


for _direction, _help in (
    ("sent", "sent to a neighbour, by the reason for sending; retransmissions are not counted."),
    ("received", "received from a neighbour, by the kind that the receiver can see."),
):
    for _field in ("events", "messages", "bytes"):
        _metric(f"link_{_direction}_{_field}_total", "counter", ("peer", "kind"), f"{_field.capitalize()} {_help}")(
            _traffic(_direction, _field)
        )


@_metric(
    "link_sent_events_by_type_total",
    "counter",
    ("peer", "kind", "type"),
    "Events whose bodies were sent to a neighbour, by the reason for sending and their type.",
)
def _sent_types(observed: Observed) -> Values:
    if observed.accounts is not None:
        for peer, counts in sorted(observed.accounts.sent_types.items()):
            for (kind, name), number in sorted(counts.items()):
                yield (peer, kind, name), number


@_metric("awakenings_sent_total", "counter", (), "Requests to neighbours for kept events or for an aggregate.")
def _awakenings(observed: Observed) -> Values:
    sent = {} if observed.accounts is None else observed.accounts.sent
    yield (), sum(by_kind["awakening"].events for by_kind in sent.values() if "awakening" in by_kind)


@_metric("link_up", "gauge", ("peer",), "1 while the other end of the link answers, else 0.")
def _up(observed: Observed) -> Values:
    for peer in observed.peers if observed.hub is not None else ():
        yield (peer,), int(observed.hub.is_up(peer))  # type: ignore[union-attr]


@_metric("link_full", "gauge", ("peer",), "1 while so much is unacknowledged that sources must wait, else 0.")
def _full(observed: Observed) -> Values:
    for peer in observed.peers if observed.hub is not None else ():
        yield (peer,), int(observed.hub.is_full(peer))  # type: ignore[union-attr]


def _queued(place: int) -> _Read:
    def read(observed: Observed) -> Values:
        for peer in observed.peers if observed.hub is not None else ():
            yield (peer,), observed.hub.queued(peer)[place]  # type: ignore[union-attr]

    return read


_metric("link_queue_messages", "gauge", ("peer",), "Messages not yet acknowledged by the other end.")(_queued(0))
_metric("link_queue_bytes", "gauge", ("peer",), "Bytes not yet acknowledged by the other end.")(_queued(1))


@_metric("link_resent_messages_total", "counter", (), "Messages sent again after a link came back.")
def _resent(observed: Observed) -> Values:
    counters = {} if observed.hub is None else observed.hub.counters
    yield (), sum(number for name, number in counters.items() if name.startswith("resent") and "bytes" not in name)


@_metric("link_refused_frames_total", "counter", ("reason",), "Received frames that were dropped.")
def _refused(observed: Observed) -> Values:
    counters = {} if observed.hub is None else observed.hub.counters
    for name, number in sorted(counters.items()):
        if name.startswith("refused"):
            yield (name.removeprefix("refused").strip("_:. ") or "unknown",), number


# ---------------------------------------------------------------------------------------------------------------- state


@_metric(
    "held_rows", "gauge", ("purpose",), "Rows, partial matches and remembered identities, by what they are kept for."
)
def _held(observed: Observed) -> Values:
    if observed.core is not None:
        for purpose, number in held_by(observed.core).items():
            yield (purpose,), number


@_metric("trees", "gauge", ("state",), "Trees that this node takes part in.")
def _trees(observed: Observed) -> Values:
    if observed.core is not None:
        started = sum(tasks.started for tasks in observed.core.works.values())
        yield ("started",), started
        yield ("starting",), len(observed.core.works) - started


@_metric("tasks", "gauge", (), "Rules and parts of rules that are evaluated here, summed over trees.")
def _tasks(observed: Observed) -> Values:
    if observed.core is not None:
        yield (), sum(len(tasks.tasks) for tasks in observed.core.works.values())


@_metric(
    "watermark_lag_seconds",
    "gauge",
    (),
    "The clock minus the least watermark of all tasks here, or minus the start of the process before the first one.",
)
def _lag(observed: Observed) -> Values:
    if observed.core is not None:
        now_us = observed.now_us()
        least = watermarks_of(observed.core, now_us).tasks
        if least < FOREVER:
            yield (), lag_s(least, now_us, observed.counters.since_us)


@_metric(
    "input_watermark_lag_seconds",
    "gauge",
    ("peer",),
    "The clock minus the least watermark of what a neighbour pushes; @sources: of the sources of this node.",
)
def _input_lag(observed: Observed) -> Values:
    if observed.core is not None:
        now_us = observed.now_us()
        for peer, watermark in sorted(watermarks_of(observed.core, now_us).inputs.items()):
            yield (peer,), lag_s(watermark, now_us, observed.counters.since_us)


@_metric(
    "watermarks_awaited",
    "gauge",
    ("peer",),
    "Watermarks that a decision here waits for, by the neighbour that has to send them.",
)
def _awaited(observed: Observed) -> Values:
    if observed.core is not None:
        for peer, number in sorted(watermarks_of(observed.core, observed.now_us()).awaited.items()):
            yield (peer,), number


# -------------------------------------------------------------------------------------------------------------- journal


@_metric("journal_commit_seconds", "histogram", (), "From asking for a commit to knowing that it is durable.")
def _commits(observed: Observed) -> Values:
    yield (), observed.counters.commits


@_metric("journal_records_total", "counter", (), "Inputs written to the journal.")
def _journal_records(observed: Observed) -> Values:
    yield (), observed.counters.journal_records


@_metric("journal_bytes_total", "counter", (), "Bytes of inputs written to the journal.")
def _journal_bytes(observed: Observed) -> Values:
    yield (), observed.counters.journal_bytes


@_metric("journal_since_snapshot_bytes", "gauge", (), "Bytes that would be replayed if the node were restarted now.")
def _since_snapshot(observed: Observed) -> Values:
    if observed.journal is not None:
        yield (), observed.journal.bytes_since_snapshot


@_metric("disk_full", "gauge", (), "1 while the journal cannot be written and nothing is accepted, else 0.")
def _disk_full(observed: Observed) -> Values:
    if observed.journal is not None:
        yield (), int(observed.journal.is_full)


@_metric("snapshot_seconds", "histogram", (), "How long it takes to write a snapshot of the whole state.")
def _snapshots(observed: Observed) -> Values:
    yield (), observed.counters.snapshots


@_metric("snapshot_bytes", "gauge", (), "Size of the newest snapshot that this process has written.")
def _snapshot_bytes(observed: Observed) -> Values:
    yield (), observed.counters.snapshot_bytes


@_metric("restarts_total", "counter", (), "How often this node was restarted with the state of an earlier process.")
def _restarts(observed: Observed) -> Values:
    yield (), observed.counters.restarts


@_metric("replayed_records_total", "counter", (), "Inputs read back from the journal when this process started.")
def _replayed(observed: Observed) -> Values:
    yield (), observed.counters.replayed_records


# -------------------------------------------------------------------------------------------------------------- process


@_metric("event_loop_lag_seconds", "histogram", (), "By how much the event loop was late, measured every two seconds.")
def _loop_lag(observed: Observed) -> Values:
    yield (), observed.counters.loop_lag


@_metric("http_requests_total", "counter", ("status",), "HTTP requests by the status of the answer.")
def _http(observed: Observed) -> Values:
    for status, number in sorted(observed.counters.http.items()):
        yield (str(status),), number


@_metric("records_dropped_total", "counter", ("kind",), "Lines for record files that could not be written.")
def _dropped(observed: Observed) -> Values:
    for kind, number in sorted(observed.counters.records_dropped.items()):
        yield (kind,), number
