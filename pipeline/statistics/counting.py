"""Counts how often the events of several roles of a rule occur together in a trace.

Pairs are counted without being listed wherever only time, order and equal values bind them. Everything else is joined:
in all of the trace, or in as many stretches of time as keep the number of candidates within bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headwater.pipeline.statistics.combinations import Equality, RoleConstraints, names
from headwater.pipeline.statistics.pair_counts import PairAsk, PairCount, count_pairs
from headwater.pipeline.statistics.role_frames import RoleFrames
from headwater.pipeline.statistics.sampling import Estimate, Stretches, stretches
from headwater.pipeline.statistics.selectivities import (
    ProjectionStatistics,
    RuleStatistics,
    Selectivity,
    TraceFacts,
    shown,
)
from headwater.pipeline.statistics.window_joins import JoinCounts, join_order, matches
from headwater.protocol.expressions import Expression, roles_of
from headwater.protocol.text import plural

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CANDIDATES_MAX: Final = 20_000_000
"""Joins that would look at more combinations than this are made on a sample, unless everything is asked for."""

COMBINATIONS_MAX: Final = 5e9
"""No join looks at more than this; a sample that would is left out, and said."""


@dataclass
class _Pair:
    """Two roles, the first in the order of the text, and how they are bound."""

    roles: tuple[str, str]
    equal: tuple[Equality, ...]
    same: tuple[Equality, ...]
    joined: bool
    """Whether more than time, order and equal values binds them."""
    bound: bool
    """Whether any condition does."""


class Counting:
    """One rule over one trace."""

    def __init__(
        self,
        spark: SparkSession,
        events: DataFrame,
        facts: TraceFacts,
        constraints: RoleConstraints,
        sizes: Mapping[str, float],
        wanted: Sequence[frozenset[str]],
        sample: float | None,
        seed: int,
        tell: Callable[[str], None],
        statistics: RuleStatistics,
    ) -> None:
        self.spark = spark
        self.events = events
        self.facts = facts
        self.constraints = constraints
        self.sizes = sizes
        """By role, the events that meet what is asked of it alone."""
        self.wanted = list(dict.fromkeys(wanted))
        self.tell = tell
        self.statistics = statistics
        self.auto = sample is None
        cut = stretches(facts.first_us, facts.last_us, constraints.reach_us, seed)
        self.cut = cut.at(1.0 if sample is None else sample)
        self.frames = self._frames(self.cut)
        self.pairs = {
            frozenset(pair): self._pair(pair) for pair in constraints.compatible_pairs() if self._matters(pair)
        }
        self.counts: dict[PairAsk, PairCount] = {}
        self.match_counts: dict[frozenset[str], float] = {}
        """About how many matches sets of roles have."""
        self.role_events: dict[int, dict[str, dict[int, float]]] = {}

    def _frames(self, cut: Stretches) -> RoleFrames:
        return RoleFrames(
            self.constraints, cut.marked(self.spark, self.events, self.constraints.reach_us), self.facts.kinds
        )

    def _matters(self, pair: tuple[str, str]) -> bool:
        both = all(role in self.constraints.positive for role in pair)
        return both or bool(self.constraints.between(frozenset(pair)))

    def _pair(self, pair: tuple[str, str]) -> _Pair:
        roles = frozenset(pair)
        equal, same, keyed = [], [], set()
        joined = False
        for condition, equality in self.constraints.equalities(roles):
            if self.frames.joins(equality):
                equal.append(equality)
                keyed.add(condition)
                if condition is None:
                    same.append(equality)
            elif condition is None:
                joined = True
        joined = joined or any(condition not in keyed for condition in self.constraints.among(roles))
        bound = bool(self.constraints.same or self.constraints.among(roles))
        return _Pair(self.constraints.in_order(roles), tuple(equal), tuple(same), joined, bound)  # type: ignore[arg-type]

    # All of it ------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        asks: list[PairAsk] = []
        for roles, pair in self.pairs.items():
            one, other = pair.roles
            asks.append(PairAsk(one, other))
            if roles in self.wanted and not pair.bound:
                asks.append(PairAsk(other, one))
            if pair.equal:
                asks += [PairAsk(one, other, pair.equal), PairAsk(other, one, pair.equal)]
            if pair.same and len(self.constraints.positive) > 2 and pair.same != pair.equal:
                asks.append(PairAsk(one, other, pair.same))
        if asks:
            pairs = plural(len(self.pairs), "pair")
            self.tell(f"{self.constraints.rule.name}: counting {pairs} of roles{self._how(self.cut)}")
            self.counts = count_pairs(self.frames, asks, self.facts.first_us, self.facts.last_us)
        for roles, pair in self.pairs.items():
            self._of_pair(roles, pair)
        self._agreement()
        larger = sorted(
            {roles for roles in (*self.wanted, *self._triples()) if len(roles) > 2},
            key=lambda roles: (len(roles), self.constraints.in_order(roles)),
        )
        for roles in larger:
            self._of_more(roles)

    def _triples(self) -> list[frozenset[str]]:
        """Three and more roles that one condition names."""
        triples = {roles_of(condition) for condition in self.constraints.conditions if len(roles_of(condition)) > 2}
        for roles in sorted(triples, key=sorted):
            if not roles <= set(self.constraints.positive):
                self.statistics.notes.append(
                    f"the selectivity of conditions on {names(roles, self.constraints.number)} together is unknown: "
                    "one of them is not part of a match"
                )
        return [roles for roles in triples if roles <= set(self.constraints.positive)]

    def _how(self, cut: Stretches) -> str:
        return "" if cut.whole else f", in {cut.drawn:,} of {cut.number:,} stretches of time"

    # Pairs ----------------------------------------------------------------------------------------------------------

    def _of_pair(self, roles: frozenset[str], pair: _Pair) -> None:
        one, other = pair.roles
        near = self.counts[PairAsk(one, other)]
        keyed = self.counts.get(PairAsk(one, other, pair.equal), near)
        cut, joint = self.cut, None
        self.match_counts[roles] = keyed.total / cut.share
        if pair.joined:
            joined = self._joined(roles, pair.roles)
            if joined is None:
                return
            joint, cut = joined
            passed, firsts, seconds = joint.passed, joint.events[one], joint.events[other]
            self.match_counts[roles] = sum(passed.values()) / cut.share
        else:
            back = self.counts.get(PairAsk(other, one, pair.equal if pair.bound else ()))
            passed, firsts, seconds = keyed.pairs, keyed.anchors, back.anchors if back is not None else {}
        share: Selectivity | None = None
        if not near.total:
            if pair.bound:
                self.statistics.notes.append(
                    f"no {one} and {other} occur near each other, so the selectivity of conditions on both is unknown"
                )
        else:
            if cut is self.cut:
                estimate = cut.ratio(passed, near.pairs)
                assert estimate is not None
                seen = near.total
            else:  # the pairs that are near enough were counted in all of the trace
                estimate, seen = cut.total(passed).scaled(1 / near.total), near.total * cut.share
            share = Selectivity(_most_one(estimate), sum(passed.values()), seen, cut.share)
            if pair.bound and self._is_constrained(roles):
                self.statistics.shares[roles] = share
        if roles in self.wanted:
            events = {one: firsts, other: seconds}
            self._note_projection(roles, passed, events, cut, share)

    def _is_constrained(self, roles: frozenset[str]) -> bool:
        """Whether planners ask for the share of these roles: where conditions name both, and for SAME of two."""
        return bool(self.constraints.between(roles)) or roles == set(self.constraints.positive)

    def _agreement(self) -> None:
        """For SAME over more than two roles planners ask how many of all pairs agree."""
        positive = frozenset(self.constraints.positive)
        if not self.constraints.same or len(positive) < 3:
            return
        agreeing: dict[int, float] = {}
        near: dict[int, float] = {}
        for roles, pair in self.pairs.items():
            if not roles <= positive:
                continue
            if len(pair.same) < len(self.constraints.same):
                self.statistics.notes.append(
                    f"how many pairs agree is not known: Spark cannot compare {shown(self.constraints.same[0].key)} of "
                    f"{pair.roles[0]} and {pair.roles[1]} by value"
                )
                return
            for into, count in (
                (agreeing, self.counts[PairAsk(*pair.roles, pair.same)]),
                (near, self.counts[PairAsk(*pair.roles)]),
            ):
                for at, value in count.pairs.items():
                    into[at] = into.get(at, 0.0) + value
        estimate = self.cut.ratio(agreeing, near)
        if estimate is not None:
            self.statistics.shares[positive] = Selectivity(
                estimate, sum(agreeing.values()), sum(near.values()), self.cut.share
            )

    # Joins ----------------------------------------------------------------------------------------------------------

    def _of_more(self, roles: frozenset[str]) -> None:
        last = self.constraints.between(roles)
        joined = self._joined(roles, join_order(self.constraints, roles, self.sizes), last)
        if joined is None:
            return
        joint, cut = joined
        self.match_counts[roles] = sum(joint.passed.values()) / cut.share
        if last and not (self.constraints.same and roles == set(self.constraints.positive)):
            estimate = cut.ratio(joint.passed, joint.matches)
            if estimate is None:
                self.statistics.notes.append(
                    f"no events meet all other conditions on {names(roles, self.constraints.number)}, so the "
                    f"selectivity of {' and '.join(map(shown, last))} is unknown"
                )
            else:
                # What planners are told for roles that must agree includes that they do.
                agreeing = (
                    self.statistics.shares.get(frozenset(self.constraints.positive)) if self.constraints.same else None
                )
                factor = agreeing.told ** (len(roles) - 1) if agreeing is not None else 1.0
                passed, of = sum(joint.passed.values()), sum(joint.matches.values())
                self.statistics.shares[roles] = Selectivity(estimate.scaled(factor), passed, of, cut.share)
        if roles in self.wanted:
            self._note_projection(roles, joint.passed, joint.events, cut, None)

    def _joined(
        self, roles: frozenset[str], order: Sequence[str], last: Sequence[Expression] = ()
    ) -> tuple[JoinCounts, Stretches] | None:
        """The matches, and in which stretches; None where there would be too many to look at."""
        candidates = self._candidates(order)
        cut = self.cut
        if self.auto and candidates > CANDIDATES_MAX:
            cut = cut.at(CANDIDATES_MAX / candidates)
        if candidates * cut.share > COMBINATIONS_MAX:
            self.statistics.notes.append(
                f"matches of {names(roles, self.constraints.number)} are not counted: about {candidates:.1e} "
                "combinations would have to be looked at; a smaller --sample, or a shorter window, could be"
            )
            return None
        self.tell(
            f"{self.constraints.rule.name}: joining {names(roles, self.constraints.number)}, "
            f"about {candidates * cut.share:,.0f} candidates{self._how(cut)}"
        )
        frames = self.frames if cut is self.cut else self._frames(cut)
        return matches(frames, roles, order, self.facts.first_us, candidates * cut.share, last), cut

    def _candidates(self, order: Sequence[str]) -> float:
        """About how many combinations a join looks at, all of its steps together."""
        partial, total = self.sizes[order[0]], 0.0
        for at, role in enumerate(order[1:], 1):
            fans = [self._fan(earlier, role) for earlier in order[:at]]
            partial = partial * min(fans)
            total += partial
            partial = min(partial, self.match_counts.get(frozenset(order[: at + 1]), partial))
        return total

    def _fan(self, one: str, other: str) -> float:
        """For an event of one role, how many of the other it is compared with, on average."""
        pair = self.pairs[frozenset((one, other))]
        ask = PairAsk(*pair.roles, pair.equal)
        count = self.counts.get(ask) or self.counts[PairAsk(*pair.roles)]
        return count.total / self.cut.share / max(1.0, self.sizes[one])

    # Projections ----------------------------------------------------------------------------------------------------

    def _note_projection(
        self,
        roles: frozenset[str],
        passed: Mapping[int, float],
        events: Mapping[str, Mapping[int, float]],
        cut: Stretches,
        share: Selectivity | None,
    ) -> None:
        of = self._events_by_stretch(cut)
        singles = {}
        for role in self.constraints.in_order(roles):
            estimate = cut.ratio(events[role], of[role])
            if estimate is not None:
                singles[role] = estimate
        self.statistics.projections[roles] = ProjectionStatistics(
            sum(passed.values()), cut.total(passed).scaled(1 / self.facts.span_s), singles, share, cut.share
        )

    def _events_by_stretch(self, cut: Stretches) -> dict[str, dict[int, float]]:
        if cut.whole:
            return {role: {0: size} for role, size in self.sizes.items()}
        if cut.drawn not in self.role_events:
            from pyspark.sql import functions as F

            frames = self._frames(cut)
            roles = list(self.sizes)
            rows = (
                frames.events.where("stretch is not null")
                .groupBy("stretch")
                .agg(*(F.count_if(frames.is_role(role)).alias(f"c{at}") for at, role in enumerate(roles)))
                .collect()
            )
            self.role_events[cut.drawn] = {
                role: {row["stretch"]: float(row[f"c{at}"]) for row in rows} for at, role in enumerate(roles)
            }
        return self.role_events[cut.drawn]


def _most_one(estimate: Estimate) -> Estimate:
    return Estimate(*(min(1.0, bound) for bound in (estimate.value, estimate.low, estimate.high)))
