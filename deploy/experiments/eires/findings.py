"""The findings of the EIRES evaluation, each confirmed or not by our numbers, as sentences with the reason."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Final

from headwater.deploy.experiments.eires.figures import FIGURES, OURS, OVERALL, PANELS, RECORDED
from headwater.deploy.experiments.eires.measured import BASELINES, Measured
from headwater.deploy.experiments.eires.scenario import LIMIT
from headwater.deploy.experiments.results import ResultRow
from headwater.deploy.experiments.trex.findings import Finding

NEAR: Final = 1.1
"""Times are near each other if neither is more than so many times the other: CPU time varies as much."""
STABLE: Final = 1.25
ORDER: Final = 10.0
MISSES_MANY: Final = 1000  # lookups in vain that take some time

Verdict = tuple[str, bool]


def findings(rows: Sequence[ResultRow]) -> list[Finding]:
    """All of them, from whatever rows there are; in the order of the figures."""
    measured = Measured(rows)
    judged = []
    for number, (claim, needs, judge) in enumerate(_CLAIMS, 1):
        try:
            numbers, came_out = judge(measured)
        except KeyError:
            judged.append(Finding(number, claim, f"needs {needs}, all lines and both ends of the axis", None))
            continue
        judged.append(Finding(number, claim, numbers, came_out))
    return judged


# -- overall -----------------------------------------------------------------------------------------------------------

ALL_OVERALL: Final = (*OVERALL, *(f"{name}-long" for name in OVERALL))
CASE_STUDIES: Final = {"13a": "bushfire", "13b": "cluster", RECORDED: "recorded cluster"}


def _same(measured: Measured) -> Verdict:
    differing = [
        f"figure {_panel(figure, x)}: {counts}"
        for (figure, x, _), counts in sorted(measured.matches().items())
        if len(set(counts.values())) > 1
    ]
    compared = sum(len(counts) > 1 for counts in measured.matches().values())
    if not compared:
        raise KeyError
    return "; ".join(differing) or f"{compared} points, equal numbers of matches on all lines of each", not differing


def _hybrid(figures: Sequence[str]) -> Callable[[Measured], Verdict]:
    def judge(measured: Measured) -> Verdict:
        ratios: dict[tuple[str, float], tuple[float, str]] = {}
        panels = measured.panels(figures)
        for figure, x in panels:
            hybrid = (figure, "hybrid", x)
            others = {line: measured.over(hybrid, (figure, line, x)) for line in (*BASELINES, "prefetch", "lazy")}
            best = max(others, key=lambda line: others[line])
            ratios[figure, x] = others[best], best
        behind = {panel: ratio for panel, ratio in ratios.items() if ratio[0] > NEAR}
        if not behind:
            ratio, best = max(ratios.values())
            return f"in all {len(panels)} parts; at most {ratio:.2f} times the best other ({best})", True
        shown = "; ".join(
            f"{_panel(*panel)}: {ratio:.2f} times {best}, {_why_behind(measured, panel, best)}"
            for panel, (ratio, best) in behind.items()
        )
        return f"in {len(panels) - len(behind)} of {len(panels)} parts; not in {shown}", False

    return judge


def _why_behind(measured: Measured, panel: tuple[str, float], best: str) -> str:
    """What tells hybrid from the best other strategy there."""
    figure, x = panel
    points = {line: (figure, line, x) for line in (LIMIT, "hybrid", best)}
    hybrid, limit, least = (measured.at(points[line]) for line in ("hybrid", LIMIT, best))
    misses = {line: measured.at(points[line], "misses") for line in ("hybrid", best)}
    if misses["hybrid"] > 2 * misses[best] and misses["hybrid"] > MISSES_MANY:
        return (
            f"because it looks in vain for {misses['hybrid']:,.0f} elements ({best}: {misses[best]:,.0f}): "
            "what goes on in doubt is judged again until its element is there"
        )
    prefetched, unused = (measured.at(points["hybrid"], column) for column in ("prefetched", "prefetched_unused"))
    return (
        f"{hybrid - least:,.0f} us more where evaluating alone takes {limit:,.0f}; {prefetched:,.0f} elements fetched "
        f"ahead, {unused:,.0f} of them never used"
    )


def _ours(measured: Measured) -> Verdict:
    """Both parts of hybrid against all three baselines."""
    panels = measured.panels(ALL_OVERALL)
    behind: dict[tuple[str, str, str], list[float]] = {}
    for figure, x in panels:
        for line in ("prefetch", "lazy"):
            ratios = {baseline: measured.over((figure, line, x), (figure, baseline, x)) for baseline in BASELINES}
            best = max(ratios, key=lambda baseline: ratios[baseline])
            if ratios[best] > NEAR:
                latency = "long" if figure.endswith("-long") else "short"
                behind.setdefault((line, best, latency), []).append(ratios[best])
    if not behind:
        return f"in all {len(panels)} parts", True
    shown = "; ".join(
        f"{line} in {len(ratios)} with {latency} latencies, {min(ratios):.2g} to {max(ratios):,.3g} times {best}"
        for (line, best, latency), ratios in behind.items()
    )
    return f"of {len(panels)} parts not: {shown}", False


def _factors(figures: Sequence[str]) -> Callable[[Measured], Verdict]:
    def judge(measured: Measured) -> Verdict:
        panels = measured.panels(figures)
        texts, typical = [], []
        for baseline in BASELINES:
            factors = [measured.over((figure, baseline, x), (figure, "hybrid", x)) for figure, x in panels]
            texts.append(f"{baseline} {min(factors):,.2g} to {max(factors):,.0f} times")
            typical.append(statistics.median(factors))
        works = [measured.over((figure, LIMIT, x), (figure, "hybrid", x)) for figure, x in panels]
        numbers = f"median of a baseline over that of hybrid: {'; '.join(texts)}"
        if min(typical) < ORDER:
            numbers += f"; evaluating alone takes {min(works):.0%} to {max(works):.0%} of the median of hybrid"
        return numbers, min(typical) >= ORDER

    return judge


def _greed(measured: Measured) -> Verdict:
    gains: dict[str, dict[str, list[float]]] = {}
    for figure, x in measured.panels(name for name, (_, data) in OVERALL.items() if data == "DS1"):
        selection, _ = PANELS[int(x)]
        gain = measured.over((figure, "block", x), (figure, "cache", x))
        gains.setdefault(OVERALL[figure][0], {}).setdefault(selection, []).append(gain)
    means = {query: {name: sum(of) / len(of) for name, of in by.items()} for query, by in gains.items()}
    numbers = "; ".join(f"{query}: {by['next']:.2g} with next, {by['any']:.3g} with any" for query, by in means.items())
    return f"median of block over that of cache, {numbers}", all(by["any"] > by["next"] for by in means.values())


def _policy(data: str, selections: Sequence[str], better: str) -> Callable[[Measured], Verdict]:
    def judge(measured: Measured) -> Verdict:
        ratios: dict[str, float] = {}
        for name in ALL_OVERALL:
            query, of_data = OVERALL[name.removesuffix("-long")]
            for selection in selections:
                at = {cache: float(PANELS.index((selection, cache))) for cache in ("cost", "lru")}
                for line in OURS:
                    if of_data == data and at["lru"] in measured.points(name, line):
                        other = "lru" if better == "cost" else "cost"
                        ratio = measured.over((name, line, at[other]), (name, line, at[better]))
                        ratios[f"{query} {selection}{' long' * name.endswith('-long')} {line}"] = ratio
        if not ratios:
            raise KeyError(data)
        clear = [text for text, ratio in ratios.items() if ratio > NEAR]
        worse = [text for text, ratio in ratios.items() if ratio < 1 / NEAR]
        low, high = min(ratios.values()), max(ratios.values())
        numbers = (
            f"median with the other cache over that with {better}: {low:.2f} to {high:.2f}; clearly better in "
            f"{len(clear)}, clearly worse in {len(worse)}, about equal in {len(ratios) - len(clear) - len(worse)}"
        )
        return numbers, len(clear) > len(ratios) / 2

    return judge


def _throughput(measured: Measured) -> Verdict:
    texts, in_line = [], True
    for figure in ("9", "9-long"):
        for x in measured.points(figure, "hybrid"):
            rates = {line: measured.at((figure, line, x), "events_per_s") for line in (*BASELINES, *OURS)}
            medians = {line: measured.at((figure, line, x)) for line in rates}
            fastest = sorted(medians, key=lambda line: medians[line])[:2]
            in_line &= max(rates, key=lambda line: rates[line]) in fastest
            shown = ", ".join(f"{line} {rate:,.0f}" for line, rate in rates.items())
            texts.append(f"figure {figure}, {PANELS[int(x)][1]}: {shown}; least medians: {' and '.join(fastest)}")
    if not texts:
        raise KeyError("9")
    return "events/s in " + "; ".join(texts), in_line


# -- sensitivity -------------------------------------------------------------------------------------------------------


def _sensitive(figure: str, *, falling: bool = False) -> Callable[[Measured], Verdict]:
    def judge(measured: Measured) -> Verdict:
        growth = {line: measured.growth(figure, line, falling=falling) for line in OURS}
        tails = {line: measured.growth(figure, line, "p95_us", falling=falling) for line in OURS}
        most = max(growth, key=lambda line: growth[line])
        came_out = most == "prefetch" and growth[most] > NEAR
        shown = ", ".join(f"{line} {growth[line]:,.3g} and {tails[line]:,.3g}" for line in OURS)
        why = "" if came_out else f"; {_what_is_foreseen(measured, figure)}"
        return f"growth of p50 and p95 from the better end to the worse one: {shown}{why}", came_out

    return judge


def _what_is_foreseen(measured: Measured, figure: str) -> str:
    """How much of what prefetch fetches it can foresee at all."""
    shares = {}
    for x in measured.points(figure, "prefetch"):
        ahead, late, unused, fetched = (
            measured.at((figure, "prefetch", x), column)
            for column in ("prefetched", "prefetched_late", "prefetched_unused", "fetched")
        )
        shares[x] = max(0.0, ahead - late - unused) / max(1.0, fetched)
    return (
        f"of the elements that prefetch fetches, {min(shares.values()):.0%} to {max(shares.values()):.0%} come in time "
        "and are used"
    )


def _stable(figure: str) -> Callable[[Measured], Verdict]:
    def judge(measured: Measured) -> Verdict:
        spans = {}
        for column in ("p5_us", "p25_us", "p50_us", "p95_us"):
            curve = measured.curve(figure, "lazy", column)
            spans[column] = max(curve.values()) / min(curve.values())
        shown = ", ".join(f"{column.removesuffix('_us')} {span:.2f}" for column, span in spans.items())
        return f"greatest over least with lazy: {shown}", max(spans["p25_us"], spans["p50_us"]) <= STABLE

    return judge


def _weight(figure: str, chosen: float) -> Callable[[Measured], Verdict]:
    def judge(measured: Measured) -> Verdict:
        texts, came_out, decided = [], True, []
        for line in ("prefetch", "hybrid"):
            counts = measured.curve(figure, line, "prefetched").values()
            decided.append(f"{line} {min(counts):,.0f} to {max(counts):,.0f}")
            for column in ("p75_us", "p95_us"):
                curve = measured.curve(figure, line, column)
                best = min(curve, key=lambda x: curve[x])
                came_out &= measured.over((figure, line, chosen), (figure, line, best), column) <= STABLE
                least, most = f"{curve[best]:,.0f} at {best:g}", f"{max(curve.values()):,.0f}"
                percentile = column.removesuffix("_us")
                texts.append(f"{line} {percentile} {curve[chosen]:,.0f} us, least {least}, most {most}")
        fetched = f"elements fetched ahead over all weights: {', '.join(decided)}"
        return f"at {chosen:g}: {'; '.join(texts)}; {fetched}", came_out

    return judge


def _by_hand(figure: str, why_not: str) -> Callable[[Measured], Verdict]:
    """Whether the last point is clearly above the best, at the median and in the tail."""

    def judge(measured: Measured) -> Verdict:
        texts, hurts = [], False
        for line in FIGURES[figure].lines:
            worse = []
            for column in ("p50_us", "p95_us"):
                curve = measured.curve(figure, line, column)
                best = min(curve, key=lambda x: curve[x])
                worse.append(measured.over((figure, line, max(curve)), (figure, line, best), column) > NEAR)
                shown = ", ".join(f"{value:,.0f} at {x:g}" for x, value in curve.items())
                texts.append(f"{line}, {column.removesuffix('_us')} us: {shown}")
            hurts |= all(worse)
        return f"{'; '.join(texts)}{'' if hurts else f'; {why_not}'}", hurts

    return judge


def _late(measured: Measured) -> Verdict:
    texts, hurts = [], []
    for line in FIGURES["12a"].lines:
        curve = measured.curve("12a", line)
        best = min(curve, key=lambda x: curve[x])
        latest = ("12a", line, min(curve))
        hurts.append(measured.over(latest, ("12a", line, best)) > NEAR)
        late, ahead = measured.at(latest, "prefetched_late"), measured.at(latest, "prefetched")
        texts.append(
            f"{line}: best {best:g} stages before, {curve[best]:,.0f} us; {min(curve):g} before "
            f"{measured.at(latest):,.0f} us, {late:,.0f} of {ahead:,.0f} elements too late"
        )
    return "; ".join(texts), all(hurts)


def _small(measured: Measured) -> Verdict:
    """With a cache that does not hold what runs in doubt need."""
    x = min(measured.curve("10b-next", "hybrid"))
    ratios = {line: measured.over(("10b-next", "hybrid", x), ("10b-next", line, x)) for line in ("cache", "prefetch")}
    shown = ", ".join(f"{ratio:,.3g} times {line}" for line, ratio in ratios.items())
    misses = {line: measured.at(("10b-next", line, x), "misses") for line in ("hybrid", "lazy", "cache")}
    text = ", ".join(f"{line} {number:,.0f}" for line, number in misses.items())
    return f"with {x:.0%} of the elements hybrid takes {shown}; lookups in vain: {text}", max(ratios.values()) <= NEAR


def _cases(measured: Measured) -> Verdict:
    texts = []
    for figure, x in measured.panels(CASE_STUDIES):
        factors = ", ".join(
            f"{line} {measured.over((figure, line, x), (figure, 'hybrid', x)):,.3g} and "
            f"{measured.over((figure, line, x), (figure, 'hybrid', x), 'p95_us'):,.3g}"
            for line in (*BASELINES, "prefetch", "lazy")
        )
        texts.append(f"{CASE_STUDIES[figure]}: {factors}")
    where, came_out = _hybrid(tuple(CASE_STUDIES))(measured)
    return f"the others over hybrid at p50 and p95, {'; '.join(texts)}; never behind {where}", came_out


def _panel(figure: str, x: float) -> str:
    if figure in ALL_OVERALL:
        query, data = OVERALL[figure.removesuffix("-long")]
        selection, cache = PANELS[int(x)]
        return f"{query} {data} {selection} {cache}{' long' * figure.endswith('-long')}"
    return CASE_STUDIES.get(figure, f"figure {figure} at {x:g}")


Claim = tuple[str, str, Callable[[Measured], Verdict]]
"""What is claimed, what must have been measured to judge it, and how it is judged."""


def _sensitivity(query: str, suffix: str) -> Sequence[Claim]:
    noise, size, latency = (f"10{part}{suffix}" for part in "abc")
    return (
        (f"prefetch is most sensitive to wrong estimations ({query})", f"figure {noise}", _sensitive(noise)),
        (f"lazy is stable under them ({query})", f"figure {noise}", _stable(noise)),
        (f"prefetch is most sensitive to the cache's size ({query})", f"figure {size}", _sensitive(size, falling=True)),
        (f"prefetch is most sensitive to transmission latency ({query})", f"figure {latency}", _sensitive(latency)),
    )


_CLAIMS: Final[Sequence[Claim]] = (
    ("every strategy gives the same matches (not in the paper)", "any figure", _same),
    ("hybrid is never behind the others", "figures 5 to 8", _hybrid(ALL_OVERALL)),
    ("prefetch and lazy both beat all three baselines", "figures 5 to 8", _ours),
    (
        "hybrid is an order of magnitude below the baselines, short latencies",
        "figures 5 to 8",
        _factors(tuple(OVERALL)),
    ),
    ("the same, long latencies", "figures 5-long to 8-long", _factors(ALL_OVERALL[len(OVERALL) :])),
    ("where values are equally likely a cache helps more with any than with next", "figures 5 and 6", _greed),
    (
        "where values are equally likely the cost-based cache is better",
        "figures 5 and 6",
        _policy("DS1", ("next", "any"), "cost"),
    ),
    ("where they are skewed, LRU is better with any", "figures 7 and 8", _policy("DS2", ("any",), "lru")),
    ("throughput is in line with latencies", "figure 9", _throughput),
    *(claim for query, suffix in (("Q1", ""), ("Q2", "-q2")) for claim in _sensitivity(query, suffix)),
    ("hybrid keeps up with a small cache under next (not in the paper)", "figure 10b-next", _small),
    ("a weight of 0.7 for fetching is near the optimum", "figure 11a", _weight("11a", 0.7)),
    ("a weight of 0.5 for the cache is near the optimum", "figure 11b", _weight("11b", 0.5)),
    ("too late a lookahead hurts", "figure 12a", _late),
    (
        "too early a lookahead hurts",
        "figure 12a",
        _by_hand("12a", "the caches hold what the runs of a window need"),
    ),
    (
        "too many lazy classes hurt",
        "figure 12b",
        _by_hand("12b", "a run in doubt at its first event is one run, not two, and what waits stops nothing else"),
    ),
    ("hybrid is best in the case studies", "figure 13", _cases),
)
