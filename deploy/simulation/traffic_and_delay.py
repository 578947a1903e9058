"""The figures of a simulated run: its traffic, delay and tasks, compared with one node that does everything.

Traffic is judged on what the strategy chose to send; watermarks and control messages, which every strategy needs in
its own measure, are shown beside it as overhead and never hidden.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from headwater.deploy.cli.output import JsonLines
from headwater.deploy.cli.tables import table_lines
from headwater.deploy.simulation.outcome import Delivery, Outcome
from headwater.node.observe.accounts import KINDS, Traffic
from headwater.protocol.composites import Composite
from headwater.protocol.text import plural, show_us

OVERHEAD_KINDS: Final = ("watermark", "control")
PERCENTILES: Final = (50, 95, 99)
RATIO_DIGITS: Final = 4


@dataclass(frozen=True, slots=True)
class Relative:
    """Figures of a run divided by those of centr over the same events; None where centr has nothing to divide by."""

    events: float | None
    messages: float | None
    bytes: float | None
    delay_p50: float | None
    delay_p95: float | None
    delay_p99: float | None
    overhead_messages: float | None
    overhead_bytes: float | None


@dataclass(frozen=True, slots=True)
class RunFigures:
    """What a run cost."""

    strategy: str
    composites: int
    """Composite events that reached sinks; one that reaches two sinks counts twice."""
    events_delivered: int
    """Primitive events that reached sinks which subscribed to them."""
    traffic: Traffic
    """Without the overhead kinds."""
    overhead: Traffic
    by_kind: Mapping[str, Traffic]
    """All kinds, in the order of ``KINDS``."""
    by_link: Mapping[tuple[str, str], Traffic]
    """Without the overhead kinds, both directions together; the ends of a link, and the links, in order of name."""
    delay_us: Mapping[int, int | None]
    """Percentile to delay: from the timestamp of the latest primitive event to the arrival at the sink. Where a node's
    clock is behind, its events look as much older as it is behind, and the delay contains that."""
    tasks: Mapping[str, Sequence[str]]
    relative: Relative | None

    def to_json(self) -> dict[str, Any]:
        """The documented form of the figures."""
        return {
            "strategy": self.strategy,
            "composites": self.composites,
            "traffic": {
                **_plain(self.traffic),
                "by_kind": {kind: _plain(amount) for kind, amount in self.by_kind.items()},
                "by_link": {_link_name(*ends): _plain(amount) for ends, amount in self.by_link.items()},
                "overhead": {"messages": self.overhead.messages, "bytes": self.overhead.bytes},
            },
            "delay_us": {f"p{share}": delay for share, delay in self.delay_us.items()},
            "tasks": {node: len(texts) for node, texts in self.tasks.items()},
            "relative_to_centr": None
            if self.relative is None
            else {
                "events": self.relative.events,
                "messages": self.relative.messages,
                "bytes": self.relative.bytes,
                "delay_p50": self.relative.delay_p50,
                "delay_p95": self.relative.delay_p95,
                "delay_p99": self.relative.delay_p99,
                "overhead_messages": self.relative.overhead_messages,
                "overhead_bytes": self.relative.overhead_bytes,
            },
        }


def _link_name(first: str, other: str) -> str:
    """``a-b``; with spaces where a name has a dash of its own, so that no two links are called the same."""
    return f"{first} - {other}" if "-" in first + other else f"{first}-{other}"


def figures(outcome: Outcome, centr: Outcome | None = None) -> RunFigures:
    """The figures of a run, relative to the outcome of centr over the same events if that is given."""
    by_kind = {kind: Traffic() for kind in KINDS}
    by_link: defaultdict[tuple[str, str], Traffic] = defaultdict(Traffic)
    headline, overhead = Traffic(), Traffic()
    for (sender, receiver, kind), amount in outcome.traffic.items():
        _add(by_kind[kind], amount)
        link = by_link[min(sender, receiver), max(sender, receiver)]
        if kind in OVERHEAD_KINDS:
            _add(overhead, amount)
        else:
            _add(headline, amount)
            _add(link, amount)
    delays = sorted(delivery.delivered_us - delivery.item.ts for delivery in outcome.delivered)
    composites = sum(isinstance(delivery.item, Composite) for delivery in outcome.delivered)
    delay_us = {share: percentile(delays, share) for share in PERCENTILES}
    relative = None
    if centr is not None:
        base = figures(centr)
        relative = Relative(
            _ratio(headline.events, base.traffic.events),
            _ratio(headline.messages, base.traffic.messages),
            _ratio(headline.bytes, base.traffic.bytes),
            _ratio(delay_us[50], base.delay_us[50]),
            _ratio(delay_us[95], base.delay_us[95]),
            _ratio(delay_us[99], base.delay_us[99]),
            _ratio(overhead.messages, base.overhead.messages),
            _ratio(overhead.bytes, base.overhead.bytes),
        )
    return RunFigures(
        strategy=outcome.strategy,
        composites=composites,
        events_delivered=len(outcome.delivered) - composites,
        traffic=headline,
        overhead=overhead,
        by_kind=by_kind,
        by_link=dict(sorted(by_link.items())),
        delay_us=delay_us,
        tasks=dict(sorted(outcome.tasks.items())),
        relative=relative,
    )


def percentile(ordered: Sequence[int], share: int) -> int | None:
    """The least of the sorted numbers that at least ``share`` percent of them do not exceed; None of none."""
    return ordered[-(-len(ordered) * share // 100) - 1] if ordered else None


def _add(sum_: Traffic, amount: Traffic) -> None:
    sum_.events += amount.events
    sum_.messages += amount.messages
    sum_.bytes += amount.bytes


def _plain(amount: Traffic) -> dict[str, int]:
    return {"events": amount.events, "messages": amount.messages, "bytes": amount.bytes}


def _ratio(ours: int | None, theirs: int | None) -> float | None:
    return None if ours is None or not theirs else round(ours / theirs, RATIO_DIGITS)


# -- deliveries as lines -----------------------------------------------------------------------------------------------


def delivery_line(delivery: Delivery, lines: JsonLines | None = None) -> str:
    """One delivery as a JSON line, with its line end: the composite event as ``run`` prints it, or the event, and
    after it the sink's node and the virtual time of arrival. ``lines`` saves work where there are many."""
    item = delivery.item
    if isinstance(item, Composite):
        line = (lines or JsonLines()).line(item)
    else:
        event = {"type": item.type, "ts": item.ts, "node": item.node, "seq": item.seq, "attributes": item.attributes}
        line = json.dumps(event, ensure_ascii=False) + "\n"
    sink = json.dumps(delivery.node, ensure_ascii=False)
    return f'{line[:-2]}, "sink": {sink}, "delivered": {delivery.delivered_us}}}\n'


def delivery_lines(deliveries: Iterable[Delivery]) -> Iterator[str]:
    """All deliveries as JSON lines, by time of arrival, position of the sink in the network file, and key."""
    lines = JsonLines()
    for delivery in sorted(deliveries, key=_in_order):
        yield delivery_line(delivery, lines)


def _in_order(delivery: Delivery) -> tuple[Any, ...]:
    item = delivery.item
    key = item.key if isinstance(item, Composite) else (*item.key, 0)
    return delivery.delivered_us, delivery.sink, key


# -- a report for the terminal -----------------------------------------------------------------------------------------


def render(run: RunFigures) -> str:
    """The figures as a report to read, without a line end."""
    delivered = plural(run.composites, "composite event")
    if run.events_delivered:
        delivered += f" and {plural(run.events_delivered, 'event')}"
    lines = [f"strategy {run.strategy}: {delivered} delivered"]
    if run.delay_us[50] is not None:
        shares = ", ".join(f"p{share} {show_us(delay or 0)}" for share, delay in run.delay_us.items())
        lines.append(f"delay from the latest event to the sink: {shares}")
    lines += ["", *_traffic_table(run), "", *_link_table(run)]
    lines += ["", "tasks by node:" if any(run.tasks.values()) else "no node has a task"]
    for node, texts in run.tasks.items():
        lines += [f"  {node}: {times}{text}" for text, times in _repeated(texts)]
    if run.relative is not None:
        lines += ["", _relative_line(run.relative)]
    return "\n".join(lines)


def _traffic_table(run: RunFigures) -> list[str]:
    def row(name: str, amount: Traffic) -> tuple[str, ...]:
        return name, f"{amount.events:,}", f"{amount.messages:,}", f"{amount.bytes:,}"

    kinds = [(kind, amount) for kind, amount in run.by_kind.items() if amount != Traffic()]
    judged = [row(f"  {kind}", amount) for kind, amount in kinds if kind not in OVERHEAD_KINDS]
    beside = [row(f"  {kind}", amount) for kind, amount in kinds if kind in OVERHEAD_KINDS]
    head = ("traffic over all links", "events", "messages", "bytes")
    rows = [row("total", run.traffic), *judged, row("overhead", run.overhead), *beside]
    return table_lines(head, rows, figures=range(1, len(head)))


def _link_table(run: RunFigures) -> list[str]:
    if not run.by_link:
        return ["nothing crossed a link"]
    head = ("traffic by link, without overhead", "events", "messages", "bytes")
    rows = [
        (f"  {first}-{other}", f"{amount.events:,}", f"{amount.messages:,}", f"{amount.bytes:,}")
        for (first, other), amount in run.by_link.items()
        if amount != Traffic()
    ]
    idle = len(run.by_link) - len(rows)
    if not rows:
        return [f"nothing but overhead crossed {plural(idle, 'link')}"]
    rest = [f"  and {plural(idle, 'link')} with nothing but overhead"] if idle else []
    return [*table_lines(head, rows, figures=range(1, len(head))), *rest]


def _relative_line(relative: Relative) -> str:
    names = {
        "events": "events",
        "messages": "messages",
        "bytes": "bytes",
        "overhead_bytes": "bytes of overhead",
        "delay_p50": "median delay",
        "delay_p99": "p99",
    }
    parts = []
    for field, name in names.items():
        ratio = getattr(relative, field)
        parts.append(f"{name} {'-' if ratio is None else f'{ratio:.1%}'}")
    return f"relative to centr: {', '.join(parts)}"


def _repeated(texts: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Every text once, with how often it occurs where that is more than once."""
    for text, times in Counter(texts).items():
        yield text, f"{times:,} x " if times > 1 else ""
