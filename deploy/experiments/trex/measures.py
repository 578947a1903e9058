"""Measures of one run: the delay of composite events to their sinks, and the traffic on links meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from headwater.deploy.simulation.outcome import Outcome
from headwater.deploy.simulation.traffic_and_delay import OVERHEAD_KINDS, figures, percentile
from headwater.node.observe.accounts import KINDS, Traffic

HEADLINE_KINDS: Final = tuple(kind for kind in KINDS if kind not in OVERHEAD_KINDS)


@dataclass(frozen=True, slots=True)
class Measures:
    """Figures of one run after its warm-up. Delays are None where nothing was delivered."""

    born: int
    delivered: int
    delay_mean_ms: float | None
    delay_p50_ms: float | None
    delay_p95_ms: float | None
    delay_p99_ms: float | None
    delay_max_ms: float | None
    events_per_s: Mapping[str, float]
    """By kind, for every kind. An event that crosses three links counts three times."""
    messages_per_s: Mapping[str, float]
    bytes_per_s: Mapping[str, float]

    @property
    def traffic_per_s(self) -> float:
        """The headline: events of all kinds but watermarks and control."""
        return sum(self.events_per_s[kind] for kind in HEADLINE_KINDS)


def measure(whole: Outcome, warm_up: Outcome, from_us: int, until_us: int) -> Measures:
    """Figures of the time from ``from_us`` on.

    ``warm_up`` is the same run stopped at ``from_us``: runs are repeatable, so what crossed links after the warm-up is
    the difference of the two. Composite events count by the time at which they occur.
    """
    assert until_us > from_us
    seconds = (until_us - from_us) / 1e6
    delays_us = sorted(
        delivery.delivered_us - ts for delivery in whole.delivered if (ts := delivery.item.ts) >= from_us
    )
    after, before = figures(whole).by_kind, figures(warm_up).by_kind

    def per_s(amount: Callable[[Traffic], int]) -> dict[str, float]:
        return {kind: (amount(after[kind]) - amount(before[kind])) / seconds for kind in KINDS}

    def delay_ms(percent: int) -> float | None:
        delay_us = percentile(delays_us, percent)
        return None if delay_us is None else delay_us / 1000

    return Measures(
        born=sum(1 for event in whole.born if event.ts >= from_us),
        delivered=len(delays_us),
        delay_mean_ms=sum(delays_us) / len(delays_us) / 1000 if delays_us else None,
        delay_p50_ms=delay_ms(50),
        delay_p95_ms=delay_ms(95),
        delay_p99_ms=delay_ms(99),
        delay_max_ms=delay_ms(100),
        events_per_s=per_s(lambda traffic: traffic.events),
        messages_per_s=per_s(lambda traffic: traffic.messages),
        bytes_per_s=per_s(lambda traffic: traffic.bytes),
    )
