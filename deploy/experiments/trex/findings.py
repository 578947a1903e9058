"""The four findings of the T-Rex evaluation, each confirmed or not by our numbers, as sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from headwater.deploy.experiments.results import ResultRow
from headwater.deploy.experiments.tables import Curve, curves

FAR_BELOW: Final = 0.75
"""\"Far below\" centr: at most this share of its traffic."""

CROSSING: Final = 5
"""Subscriptions per processor below which mt should be the cheaper one, and well above which st should be."""

SAVING_LEAST: Final = 0.15

DISTRIBUTED: Final = ("st", "mt", "st-pp", "mt-pp")


@dataclass(frozen=True, slots=True)
class Finding:
    """A claim, what was measured, and whether it holds; None: the runs that could tell were not made."""

    number: int
    claim: str
    numbers: str
    came_out: bool | None

    def text(self) -> str:
        verdict = {True: "confirmed", False: "not confirmed", None: "not measured"}[self.came_out]
        return f"{self.number}. {self.claim}: {verdict}\n   {self.numbers}"


def findings(rows: Sequence[ResultRow]) -> list[Finding]:
    """All four, from whatever rows there are of figures 10, 12 and 20."""
    return [_far_below_centr(rows), _delay(rows), _crossing(rows), _pull_saving(rows)]


def _far_below_centr(rows: Sequence[ResultRow]) -> Finding:
    claim = f"distributed strategies need far less traffic than centr (at most {FAR_BELOW:.0%})"
    traffic = {strategy: curve[0].value for strategy, curve in curves(rows, 10, "traffic_per_s").items()}
    if "centr" not in traffic or not set(DISTRIBUTED) & set(traffic):
        return Finding(1, claim, _needs(10, "centr and another strategy"), None)
    base = traffic["centr"]
    shares = {strategy: traffic[strategy] / base for strategy in DISTRIBUTED if strategy in traffic}
    numbers = f"centr {base:,.1f} events/s; of that " + ", ".join(
        f"{strategy} {share:.1%}" for strategy, share in shares.items()
    )
    return Finding(1, claim, numbers, max(shares.values()) <= FAR_BELOW)


def _delay(rows: Sequence[ResultRow]) -> Finding:
    claim = "mt delivers sooner than st"
    delay = {strategy: curve[0].value for strategy, curve in curves(rows, 10, "delay_mean_ms").items()}
    if not {"st", "mt"} <= set(delay):
        return Finding(2, claim, _needs(10, "st and mt"), None)
    numbers = "average delay: " + ", ".join(f"{strategy} {value:.2f} ms" for strategy, value in delay.items())
    return Finding(2, claim, numbers, delay["mt"] < delay["st"])


def _crossing(rows: Sequence[ResultRow]) -> Finding:
    claim = f"mt is cheaper than st below about {CROSSING} subscriptions per processor, and costlier well above"
    traffic = curves(rows, 12, "traffic_per_s")
    st, mt = traffic.get("st", {}), traffic.get("mt", {})
    ratios = {x: mt[x].value / st[x].value for x in st if x in mt and st[x].value}
    below = [ratio for x, ratio in ratios.items() if x < CROSSING]
    above = [ratio for x, ratio in ratios.items() if x >= 2 * CROSSING]
    if not below or not above:
        return Finding(3, claim, _needs(12, f"st and mt, below {CROSSING} and from {2 * CROSSING} on"), None)
    numbers = "traffic of mt over st: " + ", ".join(f"{ratio:.2f} at {x:g}" for x, ratio in ratios.items())
    crossing = _crosses_one(ratios)
    numbers += f"; they cross at about {crossing:.1f}" if crossing is not None else "; they do not cross"
    return Finding(3, claim, numbers, max(below) < 1 < min(above))


def _pull_saving(rows: Sequence[ResultRow]) -> Finding:
    claim = f"in its scenario pull saves at least {SAVING_LEAST:.0%} of the traffic"
    traffic = curves(rows, 20, "traffic_per_s")
    savings = {
        base: {x: 1 - traffic[f"{base}-pp"][x].value / traffic[base][x].value for x in _common(traffic, base)}
        for base in ("st", "mt")
        if _common(traffic, base)
    }
    if not savings:
        return Finding(4, claim, _needs(20, "st and st-pp, or mt and mt-pp"), None)
    numbers = "; ".join(
        f"{base}-pp saves " + ", ".join(f"{saving:.1%} at length {x:g}" for x, saving in by_length.items())
        for base, by_length in savings.items()
    )
    least = min(sum(by_length.values()) / len(by_length) for by_length in savings.values())
    return Finding(4, claim, numbers, least >= SAVING_LEAST)


def _common(traffic: dict[str, Curve], base: str) -> list[float]:
    pulled = traffic.get(f"{base}-pp", {})
    return [x for x, point in traffic.get(base, {}).items() if x in pulled and point.value]


def _crosses_one(ratios: dict[float, float]) -> float | None:
    """Where the ratio first reaches 1 from below, on a straight line between neighbouring points."""
    points = sorted(ratios.items())
    for (x, low), (further, high) in pairwise(points):
        if low < 1 <= high:
            return x + (further - x) * (1 - low) / (high - low)
    return None


def _needs(figure: int, content: str) -> str:
    return f"needs figure {figure} with {content}"
