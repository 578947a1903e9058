"""What a trace tells of a rule: how selective its conditions are, and how often parts of it match.

Conditions on single events are counted in one pass for all rules. Pairs are counted without being listed wherever only
time, order and equal values bind them. Everything else is joined: in all of the trace, or in as many stretches of time
as keep the number of candidates within bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from headwater.pipeline.statistics.combinations import Asked, Equality, names
from headwater.pipeline.statistics.pair_counts import PairAsk, PairCount, count_pairs
from headwater.pipeline.statistics.role_frames import HEADER_KINDS, RoleFrames
from headwater.pipeline.statistics.stretches import Estimate, Stretches, exactly, stretches
from headwater.pipeline.statistics.window_joins import Found, join_order, matches
from headwater.protocol.errors import ConfigError
from headwater.protocol.expressions import Attribute, Expression, Same, roles_of, walk
from headwater.protocol.languages.printing import ExpressionPrinter, PrintError
from headwater.protocol.pattern import Rule
from headwater.protocol.text import plural

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CANDIDATES_MAX: Final = 20_000_000
"""Joins that would look at more combinations than this are made on a sample, unless everything is asked for."""

COMBINATIONS_MAX: Final = 5e9
"""No join looks at more than this; a sample that would is left out, and said."""

SECOND_US: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Share:
    """A selectivity: the share of ``of`` events or combinations that passed, and the part of the trace looked at."""

    estimate: Estimate
    passed: float
    of: float
    sampled: float = 1.0

    @property
    def told(self) -> float:
        """What planners are told: what was never seen may still occur."""
        return self.estimate.value if self.passed else 0.5 / max(1.0, self.of)


@dataclass(frozen=True, slots=True)
class Projection:
    """The combinations of some roles that meet all that the rule asks of these."""

    found: float
    """Those that were counted."""
    per_s: Estimate
    singles: Mapping[str, Estimate]
    """By role, the share of its events (those that meet what is asked of the role alone) that are in some match."""
    selectivity: Share | None = None
    """For pairs: the share of those near enough and in order that meet all conditions."""
    sampled: float = 1.0


@dataclass(slots=True)
class RuleStatistics:
    """``notes`` says what was left out, and why."""

    shares: dict[frozenset[str], Share] = field(default_factory=dict)
    projections: dict[frozenset[str], Projection] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class TraceFacts:
    """What must be known of a trace beside its events."""

    first_us: int
    last_us: int
    kinds: Mapping[str, str]

    @property
    def span_s(self) -> float:
        return (self.last_us - self.first_us) / SECOND_US


def rule_statistics(
    spark: SparkSession,
    events: DataFrame,
    facts: TraceFacts,
    rules: Mapping[str, tuple[Rule, Sequence[frozenset[str]]]],
    *,
    sample: float | None = None,
    seed: int = 1,
    tell: Callable[[str], None] = lambda text: None,
) -> dict[str, RuleStatistics]:
    """By name: rules, each with the sets of roles whose matches are counted.

    ``sample``: the share of the trace's time that is looked at, 1 for all of it; without it, all of it wherever no more
    than CANDIDATES_MAX combinations would be looked at.
    """
    found = {name: RuleStatistics() for name in rules}
    asked = {name: _judged(rule, facts, found[name].notes) for name, (rule, _) in rules.items()}
    tell(f"counting what single conditions of {plural(len(rules), 'rule')} let pass")
    counts = _role_counts(events, facts, asked.values())
    for name, (_, wanted) in rules.items():
        one = asked[name]
        sizes = {role: counts[one.rule.name, role] for role in one.types}
        for role, (passed, of) in sizes.items():
            if one.own(role) and of:
                found[name].shares[frozenset((role,))] = Share(exactly(passed / of), passed, of)
        silent = [role for role, (passed, _) in sizes.items() if not passed]
        if silent:
            found[name].notes.append(
                f"no event is a {' or a '.join(silent)}, so nothing is known of what the rule asks of events together"
            )
            continue
        if len(one.types) > 1 and not one.timed:
            found[name].notes.append("its window is not one of time, so nothing is known of events together")
            continue
        columns = dict.fromkeys(["type", "ts", "node", "seq", *_attributes(one)])
        base = events.where(_any_type(one)).select(*(f"`{column}`" for column in columns)).persist()
        try:
            passing = {role: passed for role, (passed, _) in sizes.items()}
            _Counting(spark, base, facts, one, passing, wanted, sample, seed, tell, found[name]).run()
        finally:
            base.unpersist()
    return found


def _judged(rule: Rule, facts: TraceFacts, notes: list[str]) -> Asked:
    """The rule without what Spark cannot judge, and a note for each such condition."""
    asked = Asked(rule)
    frames = RoleFrames(asked, None, facts.kinds)  # type: ignore[arg-type]
    for each in asked.left_out:
        notes.append(f"{shown(each)} is left out: one event of each role does not decide it")
    refused: list[Expression] = []
    for condition in (*asked.conditions, *asked.same):
        try:
            if isinstance(condition, Same):
                for role in asked.types:
                    frames.key(_key_of(condition, role), role)
            else:
                frames.holds([condition], dict.fromkeys(asked.types, ""))
        except ConfigError as error:
            refused.append(condition)
            notes.append(f"{shown(condition)} is left out: {str(error).partition(';')[0]}")
    if not refused:
        return asked
    kept = tuple(each for each in rule.pattern.where if each not in refused)
    return Asked(replace(rule, pattern=replace(rule.pattern, where=kept)))


def _key_of(same: Same, role: str) -> Expression:
    from headwater.pipeline.statistics.combinations import of_role

    return of_role(same.key, role)


def _attributes(asked: Asked) -> list[str]:
    """The columns that the conditions of a rule name."""
    named = (part for each in (*asked.conditions, *asked.same) for part in walk(each))
    return [part.name for part in named if isinstance(part, Attribute) and part.name not in HEADER_KINDS]


def _any_type(asked: Asked) -> str:
    quoted = ", ".join("'" + name.replace("\\", "\\\\").replace("'", "\\'") + "'" for name in set(asked.types.values()))
    return f"type in ({quoted})"


def _role_counts(
    events: DataFrame, facts: TraceFacts, rules: Iterable[Asked]
) -> dict[tuple[str, str], tuple[float, float]]:
    """By rule and role: the events that meet what is asked of the role alone, and all of its type."""
    from pyspark.sql import functions as F

    wanted = [(asked, role) for asked in rules for role in asked.types]
    if not wanted:
        return {}
    columns = []
    for at, (asked, role) in enumerate(wanted):
        frames = RoleFrames(asked, events, facts.kinds)
        columns += [
            F.count_if(frames.is_role(role)).alias(f"passed{at}"),
            F.count_if(F.col("type") == asked.types[role]).alias(f"of{at}"),
        ]
    row = events.agg(*columns).first()
    assert row is not None
    return {
        (asked.rule.name, role): (float(row[f"passed{at}"]), float(row[f"of{at}"]))
        for at, (asked, role) in enumerate(wanted)
    }


def shown(condition: Expression) -> str:
    """A condition as text."""
    if isinstance(condition, Same):
        return f"SAME[{shown(condition.key)}]"
    try:
        return ExpressionPrinter(
            lambda each: f"{each.role}.{each.name}" if each.role else each.name, lambda role: role, parameters=True
        ).text(condition)
    except PrintError:
        return repr(condition)


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


class _Counting:
    """One rule over one trace."""

    def __init__(
        self,
        spark: SparkSession,
        events: DataFrame,
        facts: TraceFacts,
        asked: Asked,
        sizes: Mapping[str, float],
        wanted: Sequence[frozenset[str]],
        sample: float | None,
        seed: int,
        tell: Callable[[str], None],
        found: RuleStatistics,
    ) -> None:
        self.spark = spark
        self.events = events
        self.facts = facts
        self.asked = asked
        self.sizes = sizes
        """By role, the events that meet what is asked of it alone."""
        self.wanted = list(dict.fromkeys(wanted))
        self.tell = tell
        self.found = found
        self.auto = sample is None
        cut = stretches(facts.first_us, facts.last_us, asked.reach_us, seed)
        self.cut = cut.at(1.0 if sample is None else sample)
        self.frames = self._frames(self.cut)
        self.pairs = {frozenset(pair): self._pair(pair) for pair in asked.compatible_pairs() if self._matters(pair)}
        self.counts: dict[PairAsk, PairCount] = {}
        self.known: dict[frozenset[str], float] = {}
        """About how many matches sets of roles have."""
        self.role_events: dict[int, dict[str, dict[int, float]]] = {}

    def _frames(self, cut: Stretches) -> RoleFrames:
        return RoleFrames(self.asked, cut.marked(self.spark, self.events, self.asked.reach_us), self.facts.kinds)

    def _matters(self, pair: tuple[str, str]) -> bool:
        both = all(role in self.asked.positive for role in pair)
        return both or bool(self.asked.between(frozenset(pair)))

    def _pair(self, pair: tuple[str, str]) -> _Pair:
        roles = frozenset(pair)
        equal, same, keyed = [], [], set()
        joined = False
        for condition, equality in self.asked.equalities(roles):
            if self.frames.joins(equality):
                equal.append(equality)
                keyed.add(condition)
                if condition is None:
                    same.append(equality)
            elif condition is None:
                joined = True
        joined = joined or any(each not in keyed for each in self.asked.among(roles))
        bound = bool(self.asked.same or self.asked.among(roles))
        return _Pair(self.asked.in_order(roles), tuple(equal), tuple(same), joined, bound)  # type: ignore[arg-type]

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
            if pair.same and len(self.asked.positive) > 2 and pair.same != pair.equal:
                asks.append(PairAsk(one, other, pair.same))
        if asks:
            pairs = plural(len(self.pairs), "pair")
            self.tell(f"{self.asked.rule.name}: counting {pairs} of roles{self._how(self.cut)}")
            self.counts = count_pairs(self.frames, asks, self.facts.first_us, self.facts.last_us)
        for roles, pair in self.pairs.items():
            self._of_pair(roles, pair)
        self._agreement()
        larger = sorted(
            {each for each in (*self.wanted, *self._triples()) if len(each) > 2},
            key=lambda each: (len(each), self.asked.in_order(each)),
        )
        for roles in larger:
            self._of_more(roles)

    def _triples(self) -> list[frozenset[str]]:
        """Three and more roles that one condition names."""
        found = {roles_of(each) for each in self.asked.conditions if len(roles_of(each)) > 2}
        for roles in sorted(found, key=sorted):
            if not roles <= set(self.asked.positive):
                self.found.notes.append(
                    f"nothing is known of what is asked of {names(roles, self.asked.number)} together: "
                    "one of them is not part of a match"
                )
        return [roles for roles in found if roles <= set(self.asked.positive)]

    def _how(self, cut: Stretches) -> str:
        return "" if cut.whole else f", in {cut.drawn:,} of {cut.number:,} stretches of time"

    # Pairs ----------------------------------------------------------------------------------------------------------

    def _of_pair(self, roles: frozenset[str], pair: _Pair) -> None:
        one, other = pair.roles
        near = self.counts[PairAsk(one, other)]
        keyed = self.counts.get(PairAsk(one, other, pair.equal), near)
        cut, found = self.cut, None
        self.known[roles] = keyed.total / cut.share
        if pair.joined:
            joined = self._joined(roles, pair.roles)
            if joined is None:
                return
            found, cut = joined
            passed, firsts, seconds = found.passed, found.events[one], found.events[other]
            self.known[roles] = sum(passed.values()) / cut.share
        else:
            back = self.counts.get(PairAsk(other, one, pair.equal if pair.bound else ()))
            passed, firsts, seconds = keyed.pairs, keyed.anchors, back.anchors if back is not None else {}
        share: Share | None = None
        if not near.total:
            if pair.bound:
                self.found.notes.append(
                    f"no {one} and {other} come near each other, so nothing is known of what is asked of both"
                )
        else:
            if cut is self.cut:
                estimate = cut.ratio(passed, near.pairs)
                assert estimate is not None
                seen = near.total
            else:  # the pairs that are near enough were counted in all of the trace
                estimate, seen = cut.total(passed).scaled(1 / near.total), near.total * cut.share
            share = Share(_most_one(estimate), sum(passed.values()), seen, cut.share)
            if pair.bound and self._is_asked(roles):
                self.found.shares[roles] = share
        if roles in self.wanted:
            events = {one: firsts, other: seconds}
            self._note_projection(roles, passed, events, cut, share)

    def _is_asked(self, roles: frozenset[str]) -> bool:
        """Whether planners ask for the share of these roles: where conditions name both, and for SAME of two."""
        return bool(self.asked.between(roles)) or roles == set(self.asked.positive)

    def _agreement(self) -> None:
        """For SAME over more than two roles planners ask how many of all pairs agree."""
        positive = frozenset(self.asked.positive)
        if not self.asked.same or len(positive) < 3:
            return
        agreeing: dict[int, float] = {}
        near: dict[int, float] = {}
        for roles, pair in self.pairs.items():
            if not roles <= positive:
                continue
            if len(pair.same) < len(self.asked.same):
                self.found.notes.append(
                    f"how many pairs agree is not known: Spark cannot compare {shown(self.asked.same[0].key)} of "
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
            self.found.shares[positive] = Share(estimate, sum(agreeing.values()), sum(near.values()), self.cut.share)

    # Joins ----------------------------------------------------------------------------------------------------------

    def _of_more(self, roles: frozenset[str]) -> None:
        last = self.asked.between(roles)
        joined = self._joined(roles, join_order(self.asked, roles, self.sizes), last)
        if joined is None:
            return
        found, cut = joined
        self.known[roles] = sum(found.passed.values()) / cut.share
        if last and not (self.asked.same and roles == set(self.asked.positive)):
            estimate = cut.ratio(found.passed, found.matches)
            if estimate is None:
                self.found.notes.append(
                    f"nothing meets all else that is asked of {names(roles, self.asked.number)}, so nothing is known "
                    f"of {' and '.join(map(shown, last))}"
                )
            else:
                # What planners are told for roles that must agree includes that they do.
                agreeing = self.found.shares.get(frozenset(self.asked.positive)) if self.asked.same else None
                factor = agreeing.told ** (len(roles) - 1) if agreeing is not None else 1.0
                passed, of = sum(found.passed.values()), sum(found.matches.values())
                self.found.shares[roles] = Share(estimate.scaled(factor), passed, of, cut.share)
        if roles in self.wanted:
            self._note_projection(roles, found.passed, found.events, cut, None)

    def _joined(
        self, roles: frozenset[str], order: Sequence[str], last: Sequence[Expression] = ()
    ) -> tuple[Found, Stretches] | None:
        """The matches, and in which stretches; None where there would be too many to look at."""
        candidates = self._candidates(order)
        cut = self.cut
        if self.auto and candidates > CANDIDATES_MAX:
            cut = cut.at(CANDIDATES_MAX / candidates)
        if candidates * cut.share > COMBINATIONS_MAX:
            self.found.notes.append(
                f"matches of {names(roles, self.asked.number)} are not counted: about {candidates:.1e} combinations "
                "would have to be looked at; a smaller --sample, or a shorter window, could be"
            )
            return None
        self.tell(
            f"{self.asked.rule.name}: joining {names(roles, self.asked.number)}, "
            f"about {candidates * cut.share:,.0f} candidates{self._how(cut)}"
        )
        frames = self.frames if cut is self.cut else self._frames(cut)
        return matches(frames, roles, order, self.facts.first_us, candidates * cut.share, last), cut

    def _candidates(self, order: Sequence[str]) -> float:
        """About how many combinations a join looks at, all of its steps together."""
        partial, total = self.sizes[order[0]], 0.0
        for at, role in enumerate(order[1:], 1):
            fans = [self._fan(each, role) for each in order[:at]]
            partial = partial * min(fans)
            total += partial
            partial = min(partial, self.known.get(frozenset(order[: at + 1]), partial))
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
        share: Share | None,
    ) -> None:
        of = self._events_by_stretch(cut)
        singles = {}
        for role in self.asked.in_order(roles):
            estimate = cut.ratio(events[role], of[role])
            if estimate is not None:
                singles[role] = estimate
        self.found.projections[roles] = Projection(
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
    return Estimate(*(min(1.0, each) for each in (estimate.value, estimate.low, estimate.high)))
