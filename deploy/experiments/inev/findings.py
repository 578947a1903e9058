"""The findings of the INEv evaluation, each confirmed or not by our numbers, as sentences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from headwater.deploy.experiments.inev.figures import FIGURES
from headwater.deploy.experiments.results import ResultRow
from headwater.deploy.experiments.tables import curves
from headwater.deploy.experiments.trex.findings import Finding

SIMILAR: Final = 2.0
"""Two ratios are similar if neither is more than so many times the other."""

CLOSE: Final = 0.01
"""A plan is close to the estimate if what lies between them is at most this share of centralised cost."""

NEAR_CENTRAL: Final = 0.9

HOPS_COUNT: Final = 1e-6
"""Up to this latency factor hops weigh as much as the work of most plans: their rates are large numbers."""

Means = Mapping[str, Mapping[float, float]]
"""By line, over x."""


def findings(rows: Sequence[ResultRow]) -> list[Finding]:
    """All of them, from whatever rows there are; in the order of the figures."""
    judged = []
    for number, (claim, needs, judge) in enumerate(_CLAIMS, 1):
        means = {(figure, column): _means(rows, figure, column) for figure, column in needs}
        try:
            if not all(means.values()):
                raise ValueError  # a column without any line proves nothing
            numbers, came_out = judge(*means.values())
        except (KeyError, ValueError):
            missing = " and ".join(dict.fromkeys(figure for figure, _ in needs))
            judged.append(Finding(number, claim, f"needs figure {missing}, all lines and ends of the axis", None))
            continue
        judged.append(Finding(number, claim, numbers, came_out))
    return judged


def _means(rows: Sequence[ResultRow], figure: str, column: str) -> Means:
    by_line = curves(rows, figure, column, list(FIGURES[figure].lines))
    return {line: {x: point.value for x, point in curve.items()} for line, curve in by_line.items()}


def _ends(curve: Mapping[float, float]) -> tuple[float, float]:
    """The values at both ends of the axis; ValueError if there are not two of them."""
    if len(curve) < 2:
        raise ValueError
    return curve[min(curve)], curve[max(curve)]


def _path(curve: Mapping[float, float]) -> str:
    return ", ".join(f"{value:.2g} at {x:g}" for x, value in curve.items())


def _once(means: Means) -> tuple[str, bool]:
    inev, pulled = means["inev"], means["push-pull"]
    factors = {x: pulled[x] / inev[x] for x in inev}
    return f"push-pull over inev: {_path(factors)}", max(factors.values()) <= SIMILAR


def _often(means: Means) -> tuple[str, bool]:
    inev, pulled = means["inev"], means["push-pull"]
    numbers = f"push-pull: {_path(pulled)}; inev: {_path(inev)}"
    return numbers, all(pulled[x] >= NEAR_CENTRAL and inev[x] < pulled[x] / SIMILAR for x in inev)


def _estimate(plan: Means, estimated: Means) -> tuple[str, bool]:
    apart = {line: {x: plan[line][x] - estimated[line][x] for x in plan[line]} for line in plan}
    numbers = "; ".join(f"{line}: {_path(curve)}" for line, curve in apart.items())
    return f"plan minus estimate, {numbers}", all(curve[min(curve)] <= CLOSE for curve in apart.values())


def _exact(means: Means) -> tuple[str, bool]:
    numbers = "; ".join(f"{line}: {_path(curve)}" for line, curve in means.items())
    return f"cost over the cheapest, {numbers}", max(means["inev"].values()) <= 1 + 1e-6


def _time(seconds: Means, projections: Means) -> tuple[str, bool]:
    ours, counts = seconds["inev"], projections["inev"]
    numbers = ", ".join(f"{ours[x]:.2g} s with {counts[x]:.0f} projections" for x in ours)
    return numbers, ours[max(ours)] < 60


def _skew(means: Means) -> tuple[str, bool]:
    spans = {line: _ends(curve) for line, curve in means.items()}
    numbers = "; ".join(f"{line}: {_path(means[line])}" for line in means)
    return numbers, all(low * 10 <= high for low, high in spans.values())


def _grows(means: Means) -> tuple[str, bool]:
    numbers = "; ".join(f"{line}: {_path(curve)}" for line, curve in means.items())
    low, high = _ends(means["selectivity 0.1"])
    return numbers, high > low


def _flat(means: Means) -> tuple[str, bool]:
    numbers = "; ".join(f"{line}: {_path(curve)}" for line, curve in means.items())
    return numbers, all(max(curve.values()) <= 10 * min(curve.values()) for curve in means.values())


def _kleene(means: Means) -> tuple[str, bool]:
    factors = {x: means["with the operator"][x] / means["without"][x] for x in means["without"]}
    numbers = ", ".join(f"{factor:.3g} over the {_rate(x)}" for x, factor in factors.items())
    return f"cost with over cost without: {numbers}", all(0.99 < factor < 1.01 for factor in factors.values())


def _negation(means: Means) -> tuple[str, bool]:
    factors = {x: means["with the operator"][x] / means["without"][x] for x in means["without"]}
    numbers = ", ".join(f"{factor:.3g} over the {_rate(x)}" for x, factor in factors.items())
    return f"cost with over cost without: {numbers}", factors[0.0] > 1 and factors[0.0] > factors[1.0]


def _rate(x: float) -> str:
    return "type with the highest rate" if x else "one with the lowest"


def _crowded(means: Means) -> tuple[str, bool]:
    twenty = means["20 queries"]
    low, high = _ends(twenty)
    return f"20 queries: {_path(twenty)}; 5 queries: {_path(means['5 queries'])}", low >= NEAR_CENTRAL and high < low


def _repair(broken: Means, repaired: Means, replanned: Means) -> tuple[str, bool]:
    (line,) = broken
    worse, mended, new = broken[line], repaired[line], replanned[line]
    numbers = f"broken {_path(worse)}; repaired {_path(mended)}; re-planned {_path(new)}"
    _ends(worse)
    most = max(worse)
    return numbers, mended[most] < (worse[most] + worse[0.0]) / 2


def _variance(means: Means) -> tuple[str, bool]:
    factors = {line: {x: value / curve[0.0] for x, value in curve.items()} for line, curve in means.items()}
    numbers = "; ".join(f"{line}: {_path(curve)}" for line, curve in factors.items())
    return f"against no variance, {numbers}", max(max(curve.values()) for curve in factors.values()) <= 2.5


def _sharing(means: Means) -> tuple[str, bool]:
    numbers = "; ".join(f"{line}: {_path(curve)}" for line, curve in means.items())
    low, high = _ends(means["inev"])
    return f"cost over that of queries alone, {numbers}", low <= 0.8 and high <= 0.3


def _spread(means: Means) -> tuple[str, bool]:
    numbers = "; ".join(f"{line}: {_path(curve)}" for line, curve in means.items())
    return f"standard deviation of ratios, {numbers}", max(means["inev"].values()) < 0.001


def _latency(means: Means) -> tuple[str, bool]:
    numbers = "; ".join(f"{line}: {_path(curve)}" for line, curve in means.items())
    most, least = means["skew 1.1"], means["skew 1.7"]
    small = [x for x in most if x <= HOPS_COUNT]
    if not small:
        raise ValueError
    return f"latency over that of centralised, {numbers}", all(most[x] < least[x] for x in small)


Judge = Callable[..., tuple[str, bool]]
_CLAIMS: Final[Sequence[tuple[str, Sequence[tuple[str, str]], Judge]]] = (
    ("with at most one event in a window push-pull costs about as much as INEv", [("4a", "ratio")], _once),
    ("with more, push-pull is near centralised evaluation and INEv far below", [("4b", "ratio")], _often),
    (
        "plans are close to the estimate where rates are skewed",
        [("5a", "ratio"), ("5a", "estimate_ratio")],
        _estimate,
    ),
    ("on tiny inputs no plan is cheaper (not in the paper)", [("5a-exact", "over_exact")], _exact),
    ("planning takes acceptable time up to 230 projections", [("5b", "seconds"), ("5b", "projections")], _time),
    ("skewed rates (a small parameter) save orders of magnitude", [("6a", "ratio")], _skew),
    ("larger networks leave less to save where predicates are weak", [("6b", "ratio")], _grows),
    ("so do types with more sources", [("6c", "ratio")], _grows),
    ("the out-degree matters little (less than tenfold)", [("6d", "ratio")], _flat),
    ("Kleene closure has no impact on cost", [("7a", "ratio")], _kleene),
    ("negation makes plans costlier, most of all if the negated type is rare", [("7b", "ratio")], _negation),
    ("20 queries over 6 types leave nothing to save, over more types they do", [("8a", "ratio")], _crowded),
    (
        "after swaps repair undoes most of the damage (weak predicates)",
        [("9b", "broken"), ("9b", "repaired"), ("9b", "replanned")],
        _repair,
    ),
    (
        "after swaps repair undoes most of the damage (strong predicates)",
        [("9d", "broken"), ("9d", "repaired"), ("9d", "replanned")],
        _repair,
    ),
    ("rates that vary make plans costlier by at most 2.5 times", [("9e", "broken")], _variance),
    ("sharing saves about 30 % with 5 queries and 80 % with 20", [("10a", "isolated_ratio")], _sharing),
    ("the order of queries does not matter (deviation below 0.001)", [("10b", "spread")], _spread),
    (
        "skewed rates (1.1) save most latency where hops count",
        [("12a", "latency_ratio")],
        _latency,
    ),
)
