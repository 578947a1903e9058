"""The law, on random networks: whatever the strategy, every sink receives exactly what the oracle says it must.

Random seeds for HEADWATER_LAW_SECONDS (default below), from where ``first_seed`` says. Failing cases are
kept in tests/law/network_seeds (``scripts/fuzz networks --keep``). The tests before these hold the harness to account.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Literal, TypeAlias

import pytest

from headwater.deploy.simulation.outcome import Delivery, Outcome
from headwater.node.engine import compile_rules
from headwater.protocol.events import Event
from headwater.protocol.expressions import Attribute, walk
from headwater.protocol.pattern import Rule, types_of
from headwater.protocol.strategy import STRATEGIES
from tests.kit.first_seed import first_seed
from tests.kit.patience import ANSWER_S
from tests.law.fuzz_networks import Task, connected, reductions, report, run_seeds, shrink
from tests.law.generators import TYPES, random_case
from tests.law.law import (
    SERVED,
    Identity,
    Unjudged,
    Verdict,
    check,
    compare,
    expected,
    promised,
    reference,
    run,
    time_limit,
)
from tests.law.networks import UNSERVED, NetworkCase, describe, kept_case, network_case
from tests.law.stretching import stretched
from tests.oracle import Found, TooManyMatches, evaluate

LAW_SECONDS = 180.0
STRETCH = 10  # seeds in a row with, then without faults
SHRINK_SECONDS = 30.0
SMALL_FIRST = 15  # small networks before all others, so that even the shortest budget compares something
KEPT = sorted((Path(__file__).parent / "network_seeds").glob("*.case"))
SEEDS = range(400)


# -- the generator -----------------------------------------------------------------------------------------------------

Must: TypeAlias = list[dict[Identity, Found | Event]]
"""What each sink must receive, by identity."""


def test_a_seed_always_gives_the_same_case() -> None:
    for seed in range(30):
        assert describe(network_case(seed)) == describe(network_case(seed))
        assert network_case(seed) == network_case(seed)
    assert len({describe(network_case(seed)) for seed in range(30)}) == 30


@pytest.mark.parametrize("size", [None, "small", "large"])
def test_generated_networks_are_sound(size: Literal["small", "large"] | None) -> None:
    for seed in range(150):
        network, births = network_case(seed, size).network, network_case(seed, size).births
        assert connected(network.nodes, network.links), seed
        pairs = {frozenset((link.one, link.other)) for link in network.links}
        assert len(pairs) == len(network.links), "a link twice"
        assert all(len(pair) == 2 and pair <= set(network.nodes) for pair in pairs)
        assert {source.node for source in network.sources} | {sink.node for sink in network.sinks} <= set(network.nodes)
        compile_rules(list(network.rules), network.types)
        emitted, present = {rule.emits for rule in network.rules}, {source.type for source in network.sources}
        assert {name for rule in network.rules for name in types_of(rule.pattern)} <= emitted | present
        assert {sink.subscription.type for sink in network.sinks} <= emitted | present
        assert list(births) == sorted(births, key=lambda birth: (birth[0], birth[1], birth[2].seq))
        assert len({(event.node, event.seq) for _, _, event in births}) == len(births)
        for at_us, source, event in births:
            assert (event.node, event.type) == (network.sources[source].node, network.sources[source].type)
            assert at_us >= event.ts


def test_every_operator_size_and_circumstance_appears() -> None:
    cases = [network_case(seed) for seed in range(1000)]
    seen = frozenset().union(*(case.features for case in cases))
    assert not {feature for feature in seen if feature in UNSERVED}
    tree = {"tree: SEQ", "tree: AND", "OR in SEQ", "repetition in SEQ", "repetition of a group", "repetition: limit"}
    tree |= {f"negation: {place}" for place in ("leading", "middle", "trailing", "in AND", "of a sub-pattern")}
    tree |= {"skip till next", "next: repetition in SEQ", "next: OR in SEQ", "where: SAME", "window: inner"}
    chain = {f"chain: {policy}" for policy in ("each", "last", "first", "n-last", "n-first")}
    chain |= {f"chain: {fold}" for fold in ("count", "sum", "avg", "min", "max")}
    chain |= {f"chain: {kind} {reach}" for kind in ("absence", "aggregate") for reach in ("within", "between")}
    rules = {"several rules", "rules: several emit one type", "composite read", "composite read negated"}
    place = {f"shape: {shape}" for shape in ("line", "star", "ring", "tree", "graph", "complete")}
    place |= {f"delay: {kind}" for kind in ("none", "equal", "different")} | {"jitter", "loss", "bandwidth"}
    place |= {f"delay: {relation} than windows" for relation in ("much smaller", "smaller", "comparable", "larger")}
    ends = {"sources: a type at several nodes", "sources: several types at a node", "sources: lateness", "births: late"}
    ends |= {"sources: types apart"}
    ends |= {"births: numbered by time", "births: numbered by arrival"}
    ends |= {f"sink: {kind}{how}" for kind in ("composite", "primitive") for how in ("", " with constraints")}
    assert tree | chain | rules | place | ends <= seen
    sizes = [len(case.network.nodes) for case in cases]
    assert set(sizes) >= {1, 2, 3, 4, 5, 6}
    assert max(sizes) > 25
    assert sum(size <= 6 for size in sizes) > 0.7 * len(sizes)


def test_stretching_time_changes_no_match() -> None:
    compared = 0
    for seed in range(400):
        case = random_case(random.Random(f"stretch {seed}"))
        if not case.features.isdisjoint(UNSERVED) or reads_ts(case.rules):
            continue
        slow = [Event.from_row((event.ts * 1000, *event[1:])) for event in case.events]
        try:
            found = evaluate(case.rules, case.events, matches_max=500, read_max=20)
            later = evaluate([stretched(rule, 1000) for rule in case.rules], slow, matches_max=500, read_max=20)
        except TooManyMatches:
            continue
        assert [(match.id, match.ts * 1000) for match in found] == [(match.id, match.ts) for match in later], seed
        compared += len(found)
    assert compared > 200


def reads_ts(rules: Iterable[Rule]) -> bool:
    """Whether a composite carries a timestamp as a value, which another rule would then compare."""
    values = [output.value for rule in rules for output in rule.attributes]
    return any(isinstance(part, Attribute) and part.name == "ts" for value in values for part in walk(value))


def test_a_described_case_can_be_made_again() -> None:
    for seed in range(40):
        case = network_case(seed)
        assert kept_case(describe(case))["case"] == case
        broken = replace(case, faults=case.chosen_faults())
        assert kept_case(describe(broken))["case"] == broken


# -- the harness -------------------------------------------------------------------------------------------------------


def test_one_engine_for_the_whole_network_keeps_the_law() -> None:
    compared = unjudged = 0
    for seed in range(300):
        verdict = check(network_case(seed, "small"), "", False, reference)
        assert not verdict.wrong, (seed, verdict.wrong[:3])
        compared += verdict.matches
        unjudged += verdict.unjudged
    assert compared > 1000
    assert unjudged < 30


def judged_cases() -> Iterator[tuple[NetworkCase, Must]]:
    """Small cases that the oracle can finish, each with what must be received."""
    for seed in SEEDS:
        case = network_case(seed, "small")
        with suppress(Unjudged):
            yield case, expected(case, promised(case))


def a_case_with_matches() -> tuple[NetworkCase, Must]:
    return next((case, must) for case, must in judged_cases() if sum(map(len, must)) >= 3)


def test_what_a_network_does_wrong_is_told() -> None:
    case, must = a_case_with_matches()
    right = reference(case).delivered
    first = right[0]
    elsewhere = Delivery(first.sink, "nowhere", first.item, first.delivered_us)
    event = case.births[0][2]
    foreign = Delivery(first.sink, first.node, Event(TYPES["A"], 1, "absent", 0, {"id": 0, "v": 0, "s": "x"}), 0)

    def kinds(delivered: list[Delivery]) -> set[str]:
        return {
            sentence.split(":")[0] for sentence in compare(case, replace(reference(case), delivered=delivered), must)
        }

    assert kinds(right) == set()
    assert kinds(right[1:]) == {"missing"}
    assert kinds([*right, first]) == {"doubled"}
    assert kinds([*right, foreign]) == {"false"}
    assert kinds([elsewhere, *right[1:]]) == {"false"}
    lost = check(case, "", False, lambda case, *_: replace(reference(case), born=reference(case).born[1:]))
    assert any("birth lost" in sentence and str(event.ts) in sentence for sentence in lost.wrong)


def test_wrong_attributes_are_told() -> None:
    case, must = next(
        (case, must)
        for case, must in judged_cases()
        if any(isinstance(item, Event) for needed in must for item in needed.values())
    )
    outcome = reference(case)
    at = next(i for i, delivery in enumerate(outcome.delivered) if isinstance(delivery.item, Event))
    item = outcome.delivered[at].item
    changed = Event.from_row((*item[:-1], 77))
    outcome.delivered[at] = replace(outcome.delivered[at], item=changed)
    assert [sentence.split(":")[0] for sentence in compare(case, outcome, must)] == ["wrong content"]


def test_a_run_that_raises_is_a_failure_that_says_where() -> None:
    def broken(case: NetworkCase, strategy: str, faults: bool) -> Outcome:
        raise KeyError("tree")

    case, _ = a_case_with_matches()
    assert (
        check(case, "st", False, broken).kind
        == f"raised KeyError in test_law.py, line {broken.__code__.co_firstlineno + 1}"
    )


def test_a_run_that_never_ends_is_a_failure() -> None:
    def endless(case: NetworkCase, strategy: str, faults: bool) -> Outcome:
        with time_limit(0.05):
            while True:
                with suppress(Exception):
                    sum(range(1000))

    case, _ = a_case_with_matches()
    assert check(case, "st", False, endless).kind == "too slow"


def test_failing_cases_are_made_small() -> None:
    """A network that loses the composites of every second event needs no more than one node and a few events."""

    def lossy(case: NetworkCase, strategy: str, faults: bool) -> Outcome:
        outcome = reference(case)
        return replace(outcome, delivered=[d for d in outcome.delivered if d.item.ts % 2])

    def checked(case: NetworkCase, strategy: str, faults: bool) -> Verdict:
        return check(case, strategy, faults, lossy)

    case, _ = a_case_with_matches()
    verdict = checked(case, "st", False)
    assert verdict.kind == "missing"
    small, verdict = shrink(case, "st", False, "missing", seconds=ANSWER_S, checked=checked)
    assert verdict.wrong
    assert len(small.network.nodes) == 1
    assert len(small.network.sinks) == len(small.network.rules) == 1
    assert len(small.births) <= 3


def test_faults_are_dropped_with_what_they_concern() -> None:
    case = next(case for case in map(network_case, SEEDS) if len(case.network.nodes) > 3 and case.chosen_faults())
    faults = case.chosen_faults()
    case = replace(case, faults=faults)
    smaller_faults = []
    for smaller in reductions(case):
        assert smaller.faults is not None
        smaller.faults.check(smaller.network)
        smaller_faults.append(smaller.faults)
    assert any(len(fewer.describe()) < len(faults.describe()) for fewer in smaller_faults)


# -- the law -----------------------------------------------------------------------------------------------------------


def test_only_known_strategies_are_served() -> None:
    assert set(SERVED) == set(STRATEGIES)


@pytest.mark.parametrize("strategy", SERVED)
@pytest.mark.parametrize("path", KEPT, ids=[path.stem for path in KEPT])
def test_kept_cases(path: Path, strategy: str) -> None:
    kept = kept_case(path.read_text(encoding="utf-8"))
    verdict = check(kept["case"], strategy, kept["faults"])
    assert not verdict.wrong
    assert not verdict.unjudged


def test_a_kept_case_of_the_design_expects_what_the_design_says() -> None:
    """The parent must not fall back to B@4: the last B has no C, so there is no composite at all."""
    path = next(path for path in KEPT if path.stem == "no-fallback-to-an-earlier-last")
    case = kept_case(path.read_text(encoding="utf-8"))["case"]
    assert expected(case, promised(case)) == [{}]


@pytest.mark.parametrize("strategy", SERVED)
def test_the_same_seed_gives_the_same_run(strategy: str) -> None:
    for seed in range(5):
        case = network_case(seed, "small")
        one, other = run(case, strategy), run(case, strategy)
        assert one.delivered == other.delivered
        assert one.traffic == other.traffic
        assert one.finished_us == other.finished_us


def test_random_seeds() -> None:
    seconds = float(os.environ.get("HEADWATER_LAW_SECONDS", LAW_SECONDS))
    first = first_seed()
    until = time.monotonic() + seconds
    tally = run_seeds(Task(first, SMALL_FIRST, "small", SERVED, False), failures_max=1)
    seed, faults = first, False
    while not tally.failures and time.monotonic() < until:  # half of the runs with faults
        seed += STRETCH
        faults = not faults
        tally.add(run_seeds(Task(seed, STRETCH, None, SERVED, faults), until, failures_max=1))
    print(f"{tally}, from seed {first}")
    for failure in tally.failures[:1]:
        case = network_case(failure.seed, failure.size)
        small = shrink(case, failure.strategy, failure.faults, failure.kind, SHRINK_SECONDS)
        pytest.fail(report(failure, *small), pytrace=False)
    assert tally.matches
