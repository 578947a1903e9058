"""Collects the statistics that nodes send. Nothing here survives a restart, because nodes send them again."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from headwater.coordinator.inev.model.measured_selectivities import MatchCount, Stage
from headwater.protocol.messages.control import decode_statistics
from headwater.protocol.wire.rule_encoding import CodecError

RATE_WINDOW_US: Final = 60_000_000
EARLIER_MAX: Final = 40  # whispers of a node that are kept for its rates; one comes about every two seconds
LEAST_S: Final = 1.0  # rates are not measured over less
WHISPER_BYTES_MAX: Final = 1 << 20  # of one node; a node with a thousand predicates needs about a tenth


@dataclass(frozen=True, slots=True)
class Whisper:
    heard_us: int
    figures: dict[str, Any]

    def joined(self) -> dict[Stage, float]:
        """Matches so far, by rule and roles."""
        matches: dict[Stage, float] = {}
        for entry in _list(self.figures.get("joined")):
            if isinstance(entry, Mapping):
                stage = (str(entry.get("rule")), frozenset(map(str, _list(entry.get("roles")))))
                matches[stage] = matches.get(stage, 0) + _number(entry.get("matches"))
        return matches

    def born(self) -> dict[str, float]:
        """Events so far, by type."""
        counts: dict[str, float] = {}
        for entry in _list(self.figures.get("events")):
            if isinstance(entry, Mapping):
                name = str(entry.get("type"))
                counts[name] = counts.get(name, 0) + _number(entry.get("born"))
        return counts


class NodeStatistics:
    """The newest whisper of every node, laid out as in ``node/observe/statistics.py``; whatever else a node may say
    is passed on as it is and otherwise ignored."""

    def __init__(self) -> None:
        self.last: dict[str, Whisper] = {}
        self.refused = 0
        self._earlier: dict[str, deque[Whisper]] = {}

    def heard(self, node: str, payload: bytes, now_us: int) -> None:
        if len(payload) > WHISPER_BYTES_MAX:
            self.refused += 1
            return
        try:
            message = decode_statistics(payload)
        except CodecError:
            self.refused += 1
            return
        whisper = Whisper(now_us, plain(message))
        before = self.last.get(node)
        earlier = self._earlier.setdefault(node, deque(maxlen=EARLIER_MAX))
        if before is not None and before.figures.get("since_us") != whisper.figures.get("since_us"):
            earlier.clear()  # it counts from nothing again
        self.last[node] = whisper
        earlier.append(whisper)

    def forget(self, node: str) -> None:
        self.last.pop(node, None)
        self._earlier.pop(node, None)

    def figures(self, node: str) -> dict[str, Any]:
        """What a node whispered last; empty if it has not."""
        last = self.last.get(node)
        return last.figures if last is not None else {}

    # ------------------------------------------------------------------------------------------------- put together

    def rates(self, now_us: int) -> dict[str, dict[str, float]]:
        """Events per second of about the last minute, by type and then by node."""
        rates: dict[str, dict[str, float]] = {}
        for node, last in sorted(self.last.items()):
            since, before = self._base(node, last, now_us)
            born_before = before.born() if before is not None else {}
            for name, born in last.born().items():
                rates.setdefault(name, {})[node] = max(0.0, born - born_before.get(name, 0)) / max(
                    LEAST_S, (now_us - since) / 1e6
                )
        return rates

    def matches(self, now_us: int) -> dict[Stage, MatchCount]:
        """For roles of rules that are put together somewhere: matches of about the last minute, over all nodes."""
        matches: dict[Stage, MatchCount] = {}
        for node, last in sorted(self.last.items()):
            since, before = self._base(node, last, now_us)
            joined_before = before.joined() if before is not None else {}
            seconds = max(LEAST_S, (now_us - since) / 1e6)
            for stage, count_now in last.joined().items():
                seen = matches.get(stage, MatchCount(0.0, 0.0, seconds))
                count = max(0.0, count_now - joined_before.get(stage, 0))
                matches[stage] = MatchCount(
                    seen.count + count, seen.per_s + count / seconds, min(seconds, seen.seconds)
                )
        return matches

    def _base(self, node: str, last: Whisper, now_us: int) -> tuple[int, Whisper | None]:
        """From when on a rate is measured, and what was told by then (None: nothing). A node that has
        nothing new to say is silent, so the last whisper from before the window holds at its beginning."""
        window_us = now_us - RATE_WINDOW_US
        before = [whisper for whisper in self._earlier[node] if whisper.heard_us <= window_us]
        if before:
            return window_us, before[-1]
        first = self._earlier[node][0]
        if first is not last:
            return first.heard_us, first
        lived_us = _number(last.figures.get("time_us")) - _number(last.figures.get("since_us"))
        return int(last.heard_us - max(0.0, lived_us)), None

    def selectivities(self) -> list[dict[str, Any]]:
        """For every predicate, over all nodes: how much it has seen and let pass."""
        sums: dict[tuple[str, str], list[float]] = {}
        for last in self.last.values():
            for entry in _list(last.figures.get("predicates")):
                if isinstance(entry, Mapping):
                    total = sums.setdefault((str(entry.get("kind", "")), str(entry.get("text", ""))), [0, 0])
                    total[0] += _number(entry.get("seen"))
                    total[1] += _number(entry.get("passed"))
        return [
            {
                "kind": kind,
                "predicate": text,
                "seen": int(seen),
                "passed": int(passed),
                "selectivity": passed / seen if seen else None,
            }
            for (kind, text), (seen, passed) in sorted(sums.items())
        ]

    def filters(self) -> dict[str, tuple[float, float]]:
        """For every condition on single events, as text: how many it has seen and let pass."""
        return {
            row["predicate"]: (row["seen"], row["passed"]) for row in self.selectivities() if row["kind"] == "filter"
        }

    def watermark_lag_s(self, node: str) -> float | None:
        """How far the watermark that is furthest behind lay behind the node's clock; None: no stream has one."""
        figures = self.figures(node)
        streams = [entry for entry in _list(figures.get("streams")) if isinstance(entry, Mapping)]
        watermarks = [watermark for entry in streams if isinstance(watermark := entry.get("watermark"), int | float)]
        if not watermarks or "time_us" not in figures:
            return None
        return max(0.0, (_number(figures["time_us"]) - min(watermarks)) / 1e6)

    def is_up(self, node: str, neighbour: str) -> bool | None:
        """Whether the link is up as the node sees it; None: it has not said."""
        up = self.figures(node).get("up")
        return bool(up[neighbour]) if isinstance(up, Mapping) and neighbour in up else None

    def traffic(self, node: str) -> dict[str, dict[str, dict[str, int]]]:
        """What a node has sent, by neighbour and then by kind."""
        traffic: dict[str, dict[str, dict[str, int]]] = {}
        for neighbour, kinds in _items(self.figures(node).get("links")):
            traffic[neighbour] = {
                kind: {name: int(count) for name, count in _numbers(counts)} for kind, counts in _items(kinds)
            }
        return traffic


def plain(value: Any) -> Any:
    """As JSON can hold it: a node may whisper anything."""
    if isinstance(value, Mapping):
        return {str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, float):
        return value if value - value == 0 else None  # JSON has neither infinities nor NaN
    return value if isinstance(value, str | int | bool) or value is None else repr(value)


def _items(value: Any) -> Iterator[tuple[str, Any]]:
    return iter(value.items()) if isinstance(value, Mapping) else iter(())


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _number(value: Any) -> float:
    return value if isinstance(value, int | float) else 0


def _numbers(value: Any) -> Iterator[tuple[str, float]]:
    return ((name, number) for name, number in _items(value) if isinstance(number, int | float))
