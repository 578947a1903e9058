"""The law while everything changes: rules, sinks and sources come and go during a run.

A case is an ordinary random network of which some parts are missing at first and come later, and some leave. What each
sink must receive follows from the event times that the changes were given. Rules that read each other's composites stay
for the whole run, while everything around them changes; but where events are late (``law.late``) those of them come
and go, too, that no other reads, or whose type another one gives as well.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headwater.coordinator.requests import (
    AddSource,
    AddSubscription,
    Change,
    DeployRules,
    EndSource,
    EndSubscription,
    FallBack,
    PlanAnew,
    UndeployRule,
)
from headwater.deploy.simulation.faults import Faults, random_faults
from headwater.deploy.simulation.outages import Decide, GiveUp
from headwater.deploy.simulation.outcome import Outcome
from headwater.deploy.simulation.simulator import DETECTION_US, simulate
from headwater.node.core import NodeSettings
from headwater.protocol.events import Event
from headwater.protocol.network import Network, Sink, Source
from headwater.protocol.pattern import Rule, types_of
from tests.law.law import (
    MATCHES_MAX,
    ORACLE_SECONDS,
    READ_MAX,
    TooSlow,
    Unjudged,
    Verdict,
    columns_from,
    compare,
    time_limit,
    wanted,
)
from tests.law.layouts import can_fall_back, impatient, random_planner, strike
from tests.law.looked_up import tables_at_hand, tables_of
from tests.law.networks import OUTLASTING, Birth, Draw, NetworkCase, small_case
from tests.oracle import TooManyMatches, as_item, evaluate, primitive


@dataclass(frozen=True)
class ChurnCase:
    """A network as it begins, its changes, and the network with everything that is ever there, sinks as numbered."""

    begins: Network
    changes: tuple[tuple[int, Change | GiveUp | Decide], ...]
    births: tuple[Birth, ...]
    whole: NetworkCase
    drawn: NetworkCase
    """The network as it was drawn, before some of its parts were made to come later."""
    seed: int = 0
    faults: Faults | None = field(default=None, compare=False)
    detection_us: int = DETECTION_US
    layout: int | None = None
    """The seed of the layout that it begins with, if it is not the seed of the case."""


def churn_case(seed: int, draw: Draw = small_case, *, faults: bool = False) -> ChurnCase | None:
    """A case of the seed; None if nothing happens in its network."""
    rng = random.Random(f"churn {seed}")
    whole = draw(seed)
    network = whole.network
    if not whole.births:
        return None
    first, last = whole.births[0][0], whole.births[-1][0]

    def moment() -> int:
        return rng.randint(first, max(first, last))

    later: list[tuple[int, Change]] = []
    rules = list(network.rules)
    for rule in _movable(whole):
        if rng.random() < 0.4:
            rules.remove(rule)
            later.append((moment(), DeployRules((rule,))))
        elif rng.random() < 0.3:
            later.append((moment(), UndeployRule(rule.name)))
    sinks: list[Sink] = []
    late_sinks: list[Sink] = []
    for sink in network.sinks:
        (late_sinks if rng.random() < 0.4 else sinks).append(sink)
    sources: list[tuple[int, Source]] = []
    late_sources: list[tuple[int, Source]] = []
    for number, source in enumerate(network.sources):
        (late_sources if rng.random() < 0.3 else sources).append((number, source))
    arrivals: list[tuple[int, AddSubscription | AddSource]] = [(moment(), AddSubscription(sink)) for sink in late_sinks]
    arrivals += [(moment(), AddSource(source)) for _, source in late_sources]
    arrivals.sort(key=lambda arrival: arrival[0])
    added_sinks = [change.sink for _, change in arrivals if isinstance(change, AddSubscription)]
    added_sources = [change.source for _, change in arrivals if isinstance(change, AddSource)]
    place_of_sink, place_of_source = len(sinks), len(sources)
    for at_us, change in arrivals:  # under numbers of their own, so that it does not matter in which order they come
        if isinstance(change, AddSubscription):
            later.append((at_us, replace(change, number=place_of_sink)))
            place_of_sink += 1
        else:
            later.append((at_us, replace(change, number=place_of_source)))
            place_of_source += 1
    later += [(moment(), EndSubscription(number)) for number in range(len(sinks)) if rng.random() < 0.3]
    later += [(moment(), EndSource(number)) for number in range(len(sources)) if rng.random() < 0.2]
    later.sort(key=lambda each: each[0])
    place = {number: at for at, (number, _) in enumerate(sources)}
    waiting = dict(late_sources)
    for at, source in enumerate(added_sources):
        number = next(n for n, each in waiting.items() if each == source)
        del waiting[number]
        place[number] = len(sources) + at
    begins = replace(network, rules=tuple(rules), sinks=tuple(sinks), sources=tuple(source for _, source in sources))
    ends = replace(network, sinks=(*sinks, *added_sinks))
    births = tuple((at, place[number], event) for at, number, event in whole.births)
    span = max(1, last - first)
    chosen = random_faults(network, seed, span, from_us=first) if faults else None
    return ChurnCase(begins, tuple(later), births, replace(whole, network=ends), whole, seed, chosen)


def _movable(case: NetworkCase) -> list[Rule]:
    """The rules that may come later or go earlier. Where events are late, those whose events others read are among them
    if another rule gives the same."""
    rules = case.network.rules
    alone = [group[0] for group in connected_groups(rules) if len(group) == 1]
    if OUTLASTING not in case.features:
        return alone
    found: list[Rule] = []
    for rule in rules:
        others = [other for other in rules if other.emits == rule.emits and other not in (rule, *found)]
        if others or not any(_reads(other, rule) for other in rules):
            found.append(rule)
    return found


def connected_groups(rules: Sequence[Rule]) -> list[list[Rule]]:
    """The rules in groups of which none reads what another group emits; groups and their rules in the given order."""
    groups: list[list[Rule]] = []
    for rule in rules:
        near = [group for group in groups if any(_reads(rule, other) or _reads(other, rule) for other in group)]
        joined = [*(other for group in near for other in group), rule]
        groups = [group for group in groups if group not in near]
        groups.append(sorted(joined, key=rules.index))
    return sorted(groups, key=lambda group: rules.index(group[0]))


def _reads(rule: Rule, other: Rule) -> bool:
    return other.emits in types_of(rule.pattern)


def changes_under(case: ChurnCase, strategy: str) -> tuple[tuple[int, Change | GiveUp | Decide], ...]:
    """The changes of the case; where a planner decides, it also changes its mind now and then, and stages fall back."""
    if strategy != "inev":
        return case.changes
    rng = random.Random(f"layouts {case.seed}")
    first, last = case.births[0][0], case.births[-1][0]
    moments = [rng.randint(first, last) for _ in range(rng.choice((0, 1, 2)))]
    replans = bool(case.changes) or OUTLASTING in case.drawn.features
    anew = [(at, PlanAnew(random_planner(rng.randrange(10**6)))) for at in moments if replans]
    struck = [(rng.randint(first, last), strike(rng.randrange(10**6))) for _ in range(rng.choice((0, 1, 2, 4)))]
    if case.layout is not None:
        struck.append((rng.randint(first, first + (last - first) // 2), strike(rng.randrange(10**6))))
    return tuple(sorted([*case.changes, *anew, *struck], key=lambda each: each[0]))


LAYOUTS_TRIED = 20


def falling(case: ChurnCase | None) -> ChurnCase | None:
    """The case with a layout of which something can fall back; None if no layout is found that has such a stage."""
    if case is None:
        return None
    tried = (case.seed + LAYOUTS_TRIED * number for number in range(LAYOUTS_TRIED))
    found = next((seed for seed in tried if can_fall_back(case.begins, random_planner(seed))), None)
    return None if found is None else replace(case, layout=found)


def run(case: ChurnCase, strategy: str) -> Outcome:
    with time_limit(40), columns_from(2):
        return simulate(
            case.begins,
            case.births,
            strategy=strategy,
            seed=case.seed,
            lay_out=random_planner(case.seed if case.layout is None else case.layout),
            faults=case.faults,
            check=True,
            wire=case.seed % 3 == 0,
            settings=NodeSettings(
                tick_least_us=50, review_us=100, restless=case.seed % 4 != 0, patience=impatient(case.births)
            ),
            changes=changes_under(case, strategy),
            detection_us=case.detection_us,
            remote=tables_of(case.whole, strategy, faults=True),
        )


def expected(case: ChurnCase, outcome: Outcome) -> list[dict[Any, Any]]:
    """For every sink what it must receive, given when the changes held."""
    since: dict[str, int] = {}
    until: dict[str, int] = {}
    sink_since: dict[int, int] = {}
    sink_until: dict[int, int] = {}
    there = {rule.name for rule in case.begins.rules}
    there_sinks = set(range(len(case.begins.sinks)))
    for change, held_from in outcome.held_from:
        match change:
            case DeployRules((rule,)):
                since[rule.name] = held_from
                there.add(rule.name)
            case UndeployRule(name):
                until[name] = held_from - 1
            case AddSubscription(number=int(number)):
                sink_since[number] = held_from
                there_sinks.add(number)
            case EndSubscription(number):
                sink_until[number] = held_from - 1
    born: Sequence[Event] = sorted(outcome.born)
    network = case.whole.network
    candidates: list[tuple[Any, Any]] = [(primitive(event), event) for event in born]
    try:
        with time_limit(ORACLE_SECONDS):
            for group in connected_groups(network.rules):
                present = [rule for rule in group if rule.name in there]
                found = evaluate(
                    present,
                    born,
                    network.types,
                    remote=tables_at_hand(case.whole) if case.whole.tick_us else None,
                    matches_max=MATCHES_MAX,
                    read_max=READ_MAX,
                    since=since,
                    until=until,
                )
                candidates += [(as_item(match), match) for match in found]
    except (TooManyMatches, TooSlow) as error:
        raise Unjudged(str(error)) from None
    must: list[dict[Any, Any]] = []
    for number, sink in enumerate(network.sinks):
        must.append(
            {
                item.identity: thing
                for item, thing in candidates
                if number in there_sinks
                and wanted(sink.subscription, item)
                and sink_since.get(number, thing.ts) <= thing.ts <= sink_until.get(number, thing.ts)
            }
        )
    return must


def check(case: ChurnCase, strategy: str) -> Verdict:
    try:
        outcome = run(case, strategy)
    except TooSlow as error:
        return Verdict(wrong=[f"too slow: {error}"])
    try:
        must = expected(case, outcome)
    except Unjudged:
        return Verdict(unjudged=True)
    wrong = compare(case.whole, outcome, must)
    asked = [change for _, change in changes_under(case, strategy) if not isinstance(change, GiveUp | Decide)]
    made = [change for change, _ in outcome.held_from if not isinstance(change, FallBack)]
    if len(made) != len(asked):
        wrong.append(f"changes: {len(made)} of {len(asked)} were made")
    return Verdict(sum(map(len, must)), wrong=wrong)
