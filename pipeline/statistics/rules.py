"""Statistics of a rule in a trace: the selectivities of its conditions, and how often parts of it match.

Conditions on single events are counted in one pass for all rules; for events together see ``counting``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from headwater.pipeline.statistics.combinations import RoleConstraints, of_role
from headwater.pipeline.statistics.counting import Counting
from headwater.pipeline.statistics.role_frames import HEADER_KINDS, RoleFrames
from headwater.pipeline.statistics.sampling import exactly
from headwater.pipeline.statistics.selectivities import RuleStatistics, Selectivity, TraceFacts, shown
from headwater.protocol.errors import ConfigError
from headwater.protocol.expressions import Attribute, Expression, Same, walk
from headwater.protocol.pattern import Rule
from headwater.protocol.text import plural

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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
    than ``counting.CANDIDATES_MAX`` combinations would be looked at.
    """
    statistics = {name: RuleStatistics() for name in rules}
    constraints_of = {name: _judged(rule, facts, statistics[name].notes) for name, (rule, _) in rules.items()}
    tell(f"counting what single conditions of {plural(len(rules), 'rule')} let pass")
    counts = _role_counts(events, facts, constraints_of.values())
    for name, (_, wanted) in rules.items():
        constraints = constraints_of[name]
        sizes = {role: counts[constraints.rule.name, role] for role in constraints.types}
        for role, (passed, of) in sizes.items():
            if constraints.own(role) and of:
                statistics[name].shares[frozenset((role,))] = Selectivity(exactly(passed / of), passed, of)
        silent = [role for role, (passed, _) in sizes.items() if not passed]
        if silent:
            statistics[name].notes.append(
                f"no event is a {' or a '.join(silent)}, so the selectivity of conditions on several events is unknown"
            )
            continue
        if len(constraints.types) > 1 and not constraints.timed:
            statistics[name].notes.append(
                "its window is not one of time, so the selectivity of conditions on several events is unknown"
            )
            continue
        columns = dict.fromkeys(["type", "ts", "node", "seq", *_attributes(constraints)])
        base = events.where(_any_type(constraints)).select(*(f"`{column}`" for column in columns)).persist()
        try:
            passing = {role: passed for role, (passed, _) in sizes.items()}
            Counting(spark, base, facts, constraints, passing, wanted, sample, seed, tell, statistics[name]).run()
        finally:
            base.unpersist()
    return statistics


def _judged(rule: Rule, facts: TraceFacts, notes: list[str]) -> RoleConstraints:
    """The rule without what Spark cannot judge, and a note for each such condition."""
    constraints = RoleConstraints(rule)
    frames = RoleFrames(constraints, None, facts.kinds)  # type: ignore[arg-type]
    for expression in constraints.left_out:
        notes.append(f"{shown(expression)} is left out: one event of each role does not decide it")
    refused: list[Expression] = []
    for condition in (*constraints.conditions, *constraints.same):
        try:
            if isinstance(condition, Same):
                for role in constraints.types:
                    frames.key(of_role(condition.key, role), role)
            else:
                frames.holds([condition], dict.fromkeys(constraints.types, ""))
        except ConfigError as error:
            refused.append(condition)
            notes.append(f"{shown(condition)} is left out: {str(error).partition(';')[0]}")
    if not refused:
        return constraints
    kept = tuple(condition for condition in rule.pattern.where if condition not in refused)
    return RoleConstraints(replace(rule, pattern=replace(rule.pattern, where=kept)))


def _attributes(constraints: RoleConstraints) -> list[str]:
    """The columns that the conditions of a rule name."""
    named = (part for condition in (*constraints.conditions, *constraints.same) for part in walk(condition))
    return [part.name for part in named if isinstance(part, Attribute) and part.name not in HEADER_KINDS]


def _any_type(constraints: RoleConstraints) -> str:
    quoted = ", ".join(
        "'" + name.replace("\\", "\\\\").replace("'", "\\'") + "'" for name in set(constraints.types.values())
    )
    return f"type in ({quoted})"


def _role_counts(
    events: DataFrame, facts: TraceFacts, rules: Iterable[RoleConstraints]
) -> dict[tuple[str, str], tuple[float, float]]:
    """By rule and role: the events that meet what is asked of the role alone, and all of its type."""
    from pyspark.sql import functions as F

    wanted = [(constraints, role) for constraints in rules for role in constraints.types]
    if not wanted:
        return {}
    columns = []
    for at, (constraints, role) in enumerate(wanted):
        frames = RoleFrames(constraints, events, facts.kinds)
        columns += [
            F.count_if(frames.is_role(role)).alias(f"passed{at}"),
            F.count_if(F.col("type") == constraints.types[role]).alias(f"of{at}"),
        ]
    row = events.agg(*columns).first()
    assert row is not None
    return {
        (constraints.rule.name, role): (float(row[f"passed{at}"]), float(row[f"of{at}"]))
        for at, (constraints, role) in enumerate(wanted)
    }
