"""The findings of the EIRES evaluation, each confirmed or not by our numbers, as sentences with the reason."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
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
WORK_SHARE: Final = 0.5
"""Above this share of a match's latency the engine's own work hides what strategies do."""

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
CASE_STUDIES: Final = ("13a", "13b", RECORDED)


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
        behind: dict[tuple[str, float], tuple[float, str]] = {}
        panels = measured.panels(figures)
        for panel in panels:
            others = {line: measured.at(panel[0], line, panel[1]) for line in (*BASELINES, "prefetch", "lazy")}
            best = min(others, key=lambda line: others[line])
            behind[panel] = measured.at(panel[0], "hybrid", panel[1]) / others[best], best
        worse = {panel: ratio for panel, ratio in behind.items() if ratio[0] > NEAR}
        if not worse:
            ratio, best = max(behind.values())
            return f"in {len(panels)} of {len(panels)} parts; at most {ratio:.2f} times the best other ({best})", True
        shown = "; ".join(
            f"{_panel(*panel)}: {ratio:.2f} times {best}, {_why_behind(measured, panel, best)}"
            for panel, (ratio, best) in worse.items()
        )
        return f"in {len(panels) - len(worse)} of {len(panels)} parts; not in {shown}", False

    return judge


def _why_behind(measured: Measured, panel: tuple[str, float], best: str) -> str:
    """What tells hybrid from the best other strategy there."""
    figure, x = panel
    hybrid, limit = measured.at(figure, "hybrid", x), measured.at(figure, LIMIT, x)
    prefetched = measured.at(figure, "hybrid", x, "prefetched")
    unused = measured.at(figure, "hybrid", x, "prefetched_unused")
    misses = {line: measured.at(figure, line, x, "misses") for line in ("hybrid", best)}
    if limit > WORK_SHARE * hybrid:
        return f"because evaluating takes {limit:,.0f} of its {hybrid:,.0f} us and no strategy shortens that"
    if misses["hybrid"] > 2 * misses[best]:
        return (
            f"because it looks in vain for {misses['hybrid']:,.0f} elements ({best}: {misses[best]:,.0f}): "
            "what goes on in doubt is judged again until its element is there"
        )
    return f"with {prefetched:,.0f} elements fetched ahead, {unused:,.0f} of them never used"


def _ours(measured: Measured) -> Verdict:
    """Both parts of hybrid against all three baselines."""
    panels = measured.panels(ALL_OVERALL)
    behind = []
    for figure, x in panels:
        least = min((measured.at(figure, line, x), line) for line in BASELINES)
        for line in ("prefetch", "lazy"):
            ratio = measured.at(figure, line, x) / least[0]
            if ratio > NEAR:
                behind.append((_panel(figure, x), f"{line} {ratio:.2f} times {least[1]}"))
    if not behind:
        return f"in all {len(panels)} parts", True
    shown = "; ".join(f"{panel}: {text}" for panel, text in behind)
    return f"{len(behind)} of {2 * len(panels)} times not: {shown}", False


def _factors(figures: Sequence[str]) -> Callable[[Measured], Verdict]:
    def judge(measured: Measured) -> Verdict:
        panels = measured.panels(figures)
        texts, typical = [], []
        for baseline in BASELINES:
            factors = [measured.at(*_of(baseline, panel)) / measured.at(*_of("hybrid", panel)) for panel in panels]
            texts.append(f"{baseline} {min(factors):.2g} to {max(factors):,.4g} times")
            typical.append(statistics.median(factors))
        works = [measured.at(*_of(LIMIT, panel)) / measured.at(*_of("hybrid", panel)) for panel in panels]
        numbers = f"median of a baseline over that of hybrid: {'; '.join(texts)}"
        if min(typical) < ORDER:
            numbers += f"; evaluating alone takes {min(works):.0%} to {max(works):.0%} of the median of hybrid"
        return numbers, min(typical) >= ORDER

    return judge


def _of(line: str, panel: tuple[str, float]) -> tuple[str, str, float]:
    return panel[0], line, panel[1]


def _greed(measured: Measured) -> Verdict:
    gains: dict[str, dict[str, list[float]]] = {}
    for figure, x in measured.panels(OVERALL):
        selection, _ = PANELS[int(x)]
        gain = measured.at(figure, "block", x) / measured.at(figure, "cache", x)
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
                        ratio = measured.at(name, line, at[other]) / measured.at(name, line, at[better])
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
            rates = {line: measured.at(figure, line, x, "events_per_s") for line in (*BASELINES, *OURS)}
            medians = {line: measured.at(figure, line, x) for line in rates}
            fastest = sorted(medians, key=lambda line: medians[line])[:2]
            in_line &= max(rates, key=lambda line: rates[line]) in fastest
            shown = ", ".join(f"{line} {rate:,.0f}" for line, rate in rates.items())
            texts.append(f"figure {figure}, {PANELS[int(x)][1]}: {shown}; least medians: {' and '.join(fastest)}")
    if not texts:
        raise KeyError("9")
    return "events/s in " + "; ".join(texts), in_line


# -- sensitivity -------------------------------------------------------------------------------------------------------


def _growth(curve: Mapping[float, float], *, falling: bool = False) -> float:
    """How much the last point is above the first, or the first above the last."""
    first, last = curve[min(curve)], curve[max(curve)]
    return first / last if falling else last / first


def _sensitive(figure: str, *, falling: bool = False) -> Callable[[Measured], Verdict]:
    def judge(measured: Measured) -> Verdict:
        growth = {line: _growth(measured.curve(figure, line), falling=falling) for line in OURS}
        tails = {line: _growth(measured.curve(figure, line, "p95_us"), falling=falling) for line in OURS}
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
            measured.at(figure, "prefetch", x, column)
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
                came_out &= curve[chosen] <= STABLE * curve[best]
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
                worse.append(curve[max(curve)] > NEAR * min(curve.values()))
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
        hurts.append(curve[min(curve)] > NEAR * curve[best])
        late = measured.at("12a", line, min(curve), "prefetched_late")
        ahead = measured.at("12a", line, min(curve), "prefetched")
        texts.append(f"{line}: best {best:g} stages before, {curve[best]:,.0f} us; {min(curve):g} before "
                     f"{curve[min(curve)]:,.0f} us, {late:,.0f} of {ahead:,.0f} elements too late")  # fmt: skip
    return "; ".join(texts), all(hurts)


def _cases(measured: Measured) -> Verdict:
    texts = []
    for figure, x in measured.panels(CASE_STUDIES):
        hybrid = {column: measured.at(figure, "hybrid", x, column) for column in ("p50_us", "p95_us")}
        factors = ", ".join(
            f"{line} {measured.at(figure, line, x) / hybrid['p50_us']:,.3g} and "
            f"{measured.at(figure, line, x, 'p95_us') / hybrid['p95_us']:,.3g}"
            for line in BASELINES
        )
        texts.append(f"{FIGURES[figure].title if figure in FIGURES else 'recorded cluster'}: {factors}")
    _, came_out = _hybrid(CASE_STUDIES)(measured)
    return f"baselines over hybrid at p50 and p95, {'; '.join(texts)}", came_out


def _panel(figure: str, x: float) -> str:
    if figure in ALL_OVERALL:
        query, data = OVERALL[figure.removesuffix("-long")]
        selection, cache = PANELS[int(x)]
        return f"{query} {data} {selection} {cache}{' long' * figure.endswith('-long')}"
    return f"figure {figure}" if figure in CASE_STUDIES else f"figure {figure} at {x:g}"


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
    ("a cache helps more with any than with next", "figures 5 to 8", _greed),
    (
        "where values are equally likely the cost-based cache is better",
        "figures 5 and 6",
        _policy("DS1", ("next", "any"), "cost"),
    ),
    ("where they are skewed, LRU is better with any", "figures 7 and 8", _policy("DS2", ("any",), "lru")),
    ("throughput is in line with latencies", "figure 9", _throughput),
    *(claim for query, suffix in (("Q1", ""), ("Q2", "-q2")) for claim in _sensitivity(query, suffix)),
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
