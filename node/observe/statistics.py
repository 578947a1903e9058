"""The statistics that a node sends to the coordinator: rates, selectivities, traffic, and progress.

All counts are sums since ``since_us``; for rates, compare two of them that begin at the same time. Everything
is plain data that msgpack can carry. A whisper may be lost: the next one says it all again.
"""

from __future__ import annotations

from typing import Any, Final

from headwater.node.observe.metrics.held import held_by
from headwater.node.observe.metrics.observed import Observed
from headwater.node.observe.selectivity import joined, selected
from headwater.node.plans.dataflow import describe
from headwater.node.step import FOREVER

STREAMS_MAX: Final = 500  # streams of which the watermarks are told, those furthest behind first: a whisper stays small
PREDICATES_MAX: Final = 1_000  # predicates that are told of, the busiest first
REPEAT_AFTER_US: Final = 60_000_000  # a node where nothing happens says so once a minute
OVERHEAD: Final = ("watermark", "control")  # kinds of traffic that alone are no news


def statistics(observed: Observed) -> dict[str, Any]:
    """Everything as it is now. The keys are explained in docs/reference/metrics.md."""
    counters = observed.counters
    report: dict[str, Any] = {
        "node": observed.node,
        "life": observed.life,
        "time_us": observed.now_us(),
        "since_us": counters.since_us,
        "events": [
            {
                "source": number,
                "type": counts.type,
                "born": counts.born,
                "late": counts.late,
                "malformed": counts.malformed,
                "refused": counts.refused,
                "repeated": counts.repeated,
            }
            for number, counts in sorted(counters.sources.items())
        ],
        "delivered": [{"sink": sink, "count": number} for sink, number in sorted(counters.delivered.items())],
        "up": {},
        "links": {},
        "predicates": [],
        "joined": [],
        "streams": [],
        "trees": [],
        "held": {},
    }
    if observed.hub is not None:
        report["up"] = {peer: observed.hub.is_up(peer) for peer in observed.peers}
    if observed.accounts is not None:
        report["links"] = {
            peer: {
                kind: {"events": traffic.events, "messages": traffic.messages, "bytes": traffic.bytes}
                for kind, traffic in sorted(by_kind.items())
            }
            for peer, by_kind in sorted(observed.accounts.sent.items())
        }
    if observed.core is not None:
        report |= _of_core(observed)
    return report


def _of_core(observed: Observed) -> dict[str, Any]:
    core = observed.core
    assert core is not None
    now_us = observed.now_us()
    counts = selected(core.works.values(), core.forest.past)
    predicates = [
        {"kind": kind, "text": text, "seen": seen, "passed": passed}
        for (kind, text), (seen, passed) in sorted(counts.items(), key=lambda counted: (-counted[1].seen, counted[0]))
    ]
    local = [
        {"from": None, "stream": name, "watermark": _watermark(feed.current(now_us)), "awaited": feed.awaited}
        for name, feed in sorted(core.local.items())
    ]
    inlets = sorted(core.inlets.values(), key=lambda inlet: (inlet.watermark, inlet.number))
    streams = [
        {
            "from": inlet.child,
            "stream": describe(inlet.stream),
            "watermark": _watermark(inlet.watermark),
            "awaited": len(inlet.asked),
            "pulled": inlet.pull,
            "generated": inlet.generated,
        }
        for inlet in inlets[:STREAMS_MAX]
    ]
    trees = [
        {
            "root": work.tree,
            "epoch": work.epoch,
            "plan": work.plan,
            "started": work.started,
            "delivered": _watermark(work.delivered),
        }
        for _, work in sorted(core.works.items())
    ]
    return {
        "predicates": predicates[:PREDICATES_MAX],
        "joined": [
            {"rule": rule, "roles": list(roles), "matches": matches}
            for (rule, roles), matches in sorted(joined(core.works.values(), core.forest.past).items())
        ][:PREDICATES_MAX],
        "streams": local + streams,
        "trees": trees,
        "held": held_by(core),
    }


def _watermark(watermark: float) -> int | float | None:
    """None before the first watermark; infinity when nothing will follow."""
    if watermark == -FOREVER:
        return None
    return watermark if watermark == FOREVER else int(watermark)


class Whispers:
    """Decides when there is something new to say. Ask about every two seconds."""

    def __init__(self, observed: Observed) -> None:
        self._observed = observed
        self._last: Any = None
        self._last_us = -REPEAT_AFTER_US

    def next(self) -> dict[str, Any] | None:
        """The statistics, if something happened since the last ones; that watermarks moved is no news in itself, how
        far trees have delivered is."""
        report = statistics(self._observed)
        links = {
            peer: {kind: amount for kind, amount in by_kind.items() if kind not in OVERHEAD}
            for peer, by_kind in report["links"].items()
        }
        compared = ("life", "events", "delivered", "up", "predicates", "trees")
        news = [links, *(report[name] for name in compared)]
        if news == self._last and report["time_us"] < self._last_us + REPEAT_AFTER_US:
            return None
        self._last, self._last_us = news, report["time_us"]
        return report

    def again(self) -> None:
        """The coordinator may know nothing (it has just connected): the next whisper tells everything."""
        self._last = None
