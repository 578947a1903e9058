"""A node in the middle of a small network, as its daemon would show it."""

from __future__ import annotations

from headwater.protocol.events import Event
from tests.kit.builders import TYPES, chain, each, rule

MS = 1_000
PAIR = rule(chain("A a", each("B b", 20 * MS, "a")), "b.v = a.v", "b.v >= 1", name="pair", emits="X", out={"v": "a.v"})


class AHub:
    """Links as the hub shows them."""

    counters = {"resent": 3, "refused_version": 2, "refused_key": 1, "payloads_out": 9}  # noqa: RUF012

    def queued(self, peer: str) -> tuple[int, int]:
        return 2, 700

    def is_up(self, peer: str) -> bool:
        return peer != "n9"

    def is_full(self, peer: str) -> bool:
        return False


class AJournal:
    bytes_since_snapshot = 1234
    is_full = False


def an_event(kind: str, ts: int, v: int, node: str = "n1") -> Event:
    return Event(TYPES[kind], ts, node, ts, {"id": ts, "v": v})
