"""Graphs and trees change while events may still come that are older than any window: what is told stays right.

Those that begin know the last two horizons. Those before them still hear of older events, and so do they.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import count, islice, pairwise

import pytest

from headwater.coordinator.inev.model.rules import Statistics
from headwater.coordinator.inev.plan.layouts import InevPlanner
from headwater.coordinator.layout.planner_interface import Planner, at_the_middle
from headwater.coordinator.requests import AddSubscription, Change, DeployRules, EndSubscription, PlanAnew, UndeployRule
from headwater.deploy.simulation.outcome import Outcome
from headwater.deploy.simulation.simulator import Simulation, simulate
from headwater.node.effects import Send
from headwater.protocol.analysis.horizons import horizon_us
from headwater.protocol.events import Event, EventType, Value
from headwater.protocol.languages import Source as RuleText
from headwater.protocol.languages import parse_rules
from headwater.protocol.messages.neighbour import Batch
from headwater.protocol.network import Link, Network, Sink, Source
from headwater.protocol.pattern import Rule
from headwater.protocol.strategy import STRATEGIES
from headwater.protocol.streams import whole_streams
from headwater.protocol.subscriptions import Subscription
from tests.law.churn import changes_under, churn_case, connected_groups
from tests.law.late import late_case
from tests.law.layouts import random_planner
from tests.law.networks import Birth

S = 1_000_000
WINDOW_US = 4 * S
TYPES = {name: EventType(name, {"k": "int"}) for name in "ABC"}
DECLARED = "".join(f"event {name}(k: int)\n" for name in "ABC")
COUNTED = """
define Counted(k: int, n: int) from A() and $n = Count(B(k = A.k) within 4 s from A) where k = A.k, n = $n
"""
PAIR = "define Pair(k: int) from A() and each C(k = A.k) within 4 s from A where k = A.k"
LONELY = "define Lonely(k: int) from A() and not B(k = A.k) within 4 s from A where k = A.k"
LATER = "Later: SEQ(A a, !B b) WHERE b.k = a.k WITHIN 4 s RETURN Later(k = a.k)"
TWICE = """
event Counted(k: int, n: int)
define Twice(k: int, s: int) from A() and $s = Sum(Counted(k = A.k).n within 4 s from A) where k = A.k, s = $s
"""


def rule(text: str) -> Rule:
    (found,) = parse_rules([RuleText(DECLARED + text, "rule", "sase" if "seq(" in text.lower() else "tesla")]).rules
    return found


def a_line(*rules: str, late: str, sources: str = "A1 B2 B3 C4 A5", lateness_us: int = 12 * S) -> Network:
    """Five nodes in a row; of the types in ``late`` events come up to 12 s late, of the others at once."""
    names = ("n1", "n2", "n3", "n4", "n5")
    links = tuple(Link(one, other, 5000) for one, other in pairwise(names))
    made = [(f"n{word[1]}", word[0]) for word in sources.split()]
    bearing = tuple(Source(node, name, lateness_us if name in late else 0) for node, name in made)
    written = [rule(text) for text in rules]
    sinks = [Sink(node, Subscription(each.emits)) for each, node in zip(written, ("n1", "n3", "n5"), strict=False)]
    return Network(tuple(TYPES.values()), names, links, bearing, tuple(sinks), tuple(written))


def some_births(network: Network, seconds: int = 40, events: int = 500) -> list[Birth]:
    chance = random.Random(1)
    drawn = []
    for _ in range(events):
        number = chance.randrange(len(network.sources))
        ts = chance.randint(S, seconds * S)
        drawn.append((ts + chance.randint(0, network.sources[number].lateness_us), number, ts))
    numbers: Counter[str] = Counter()
    births = []
    for at_us, number, ts in sorted(drawn):
        source = network.sources[number]
        numbers[source.node] += 1
        event = Event(TYPES[source.type], ts, source.node, numbers[source.node], {"k": chance.randrange(3)})
        births.append((at_us, number, event))
    return births


def counts(births: list[Birth]) -> Counter[tuple[int, Value, Value]]:
    """For each A: when it was, its key, and how many B of that key there were in the window before."""
    events = sorted(event for _, _, event in births)
    return Counter(
        (
            one.ts,
            one.attributes["k"],
            sum(
                other.type == "B"
                and other.attributes == one.attributes
                and other < one
                and one.ts - other.ts <= WINDOW_US
                for other in events
            ),
        )
        for one in events
        if one.type == "A"
    )


def told(outcome: Outcome, sink: int = 0) -> Counter[tuple[int, Value, Value]]:
    items = [delivery.item for delivery in outcome.delivered if delivery.sink == sink]
    return Counter((item.ts, item.attributes["k"], item.attributes["n"]) for item in items)


def contents(outcome: Outcome, sink: int) -> Counter[str]:
    return Counter(repr(delivery.item) for delivery in outcome.delivered if delivery.sink == sink)


MORE = AddSubscription(Sink("n4", Subscription("Counted")))
PLANNED = InevPlanner(Statistics({"A": {"": 1.0}, "B": {"": 10.0}, "C": {"": 10.0}}))


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("late", ["A", "B", "C", "ABC"])
def test_counts_are_right_although_a_subscription_comes_while_events_are_late(late: str, strategy: str) -> None:
    network = a_line(COUNTED, PAIR, late=late)
    births = some_births(network)
    assert any(at_us - event.ts > 2 * WINDOW_US for at_us, _, event in births)
    outcome = simulate(network, births, strategy=strategy, changes=[(20 * S, MORE)], check=True)
    assert len(outcome.born) == len(births)
    assert told(outcome) == counts(births)
    ((_, held_from),) = outcome.held_from
    assert told(outcome, 2) == Counter({each: n for each, n in counts(births).items() if each[0] >= held_from})


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("sources", ["A1 B1 C4 C5", "A2 B1 C4 C5", "A1 B2 C4 C5"])
def test_counts_are_right_that_a_child_finds_alone(sources: str, strategy: str) -> None:
    network = a_line(COUNTED, PAIR, late="A", sources=sources)
    network = replace(network, sinks=(Sink("n5", Subscription("Counted")), *network.sinks))
    births = some_births(network)
    changes = [(at * S, MORE) for at in (15, 20, 25)]
    outcome = simulate(network, births, strategy=strategy, changes=changes, check=True)
    assert told(outcome) == told(outcome, 1) == counts(births)


@pytest.mark.parametrize("lay_out", [at_the_middle, PLANNED, random_planner(1), random_planner(2)])
def test_counts_are_right_however_often_a_graph_changes(lay_out: Planner) -> None:
    network = a_line(COUNTED, PAIR, late="AB")
    births = some_births(network)
    changes: list[tuple[int, Change]] = [
        (14 * S, MORE),
        (16 * S, PlanAnew(random_planner(4))),
        (18 * S, DeployRules((rule(LONELY),))),
        (20 * S, PlanAnew(random_planner(5))),
        (22 * S, EndSubscription(2)),
        (24 * S, MORE),
        (26 * S, UndeployRule("Pair")),
        (28 * S, PlanAnew(lay_out)),
        (30 * S, MORE),
    ]
    outcome = simulate(network, births, strategy="inev", lay_out=lay_out, changes=changes, check=True)
    assert len(outcome.held_from) == 9
    assert told(outcome) == counts(births)


@pytest.mark.parametrize("late", ["A", "B"])
@pytest.mark.parametrize("lay_out", [at_the_middle, PLANNED, random_planner(2)])
def test_a_new_plan_of_the_same_content_changes_no_count(late: str, lay_out: Planner) -> None:
    network = a_line(COUNTED, PAIR, late=late)
    births = some_births(network)
    outcome = simulate(
        network, births, strategy="inev", lay_out=lay_out, changes=[(20 * S, PlanAnew(lay_out))], check=True
    )
    assert told(outcome) == counts(births)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("text", [LONELY, LATER])
def test_what_is_forbidden_stays_so_while_events_are_late(text: str, strategy: str) -> None:
    network = a_line(text, PAIR, late="A", sources="A1 A4 A5 B2 C3")
    births = some_births(network, events=100)
    (wanted, _) = network.sinks
    changes = [(at * S, AddSubscription(Sink("n4", wanted.subscription))) for at in (15, 20, 25)]
    outcome = simulate(network, births, strategy=strategy, changes=changes, check=True)
    expected = contents(simulate(network, births, strategy="centr"), 0)
    assert contents(outcome, 0) == expected
    assert len(expected) > 5


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_rule_over_counts_reads_the_right_ones(strategy: str) -> None:
    network = a_line(COUNTED, TWICE, late="AB")
    births = some_births(network)
    changes = [(at * S, AddSubscription(Sink("n4", Subscription("Twice")))) for at in (15, 20, 25)]
    outcome = simulate(network, births, strategy=strategy, lay_out=random_planner(7), changes=changes, check=True)
    alone = simulate(network, births, strategy="centr")
    for sink in (0, 1):
        assert contents(outcome, sink) == contents(alone, sink)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_body_of_a_late_event_crosses_each_link_once(strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where no source of the nodes at its ends is ever late."""
    crossed: Counter[tuple[str, str, object]] = Counter()
    send = Simulation._send

    def seen(self: Simulation, node: str, effect: Send) -> None:
        runs = effect.message.runs if isinstance(effect.message, Batch) else ()
        crossed.update(
            (node, effect.neighbour, each) for run in runs if run.rows is not None for each in run.identities
        )
        send(self, node, effect)

    monkeypatch.setattr(Simulation, "_send", seen)
    network = a_line(COUNTED, PAIR, late="A", sources="A1 B5 C5", lateness_us=60 * S)
    changes = [(at * S, MORE) for at in range(30, 80, 5)]
    outcome = simulate(network, some_births(network, events=200), strategy=strategy, changes=changes, check=True)
    assert len(outcome.held_from) == len(changes)
    assert set(crossed.values()) == {1}


UNBOUNDED = "Later: seq(and(A a, C c), !B b; 4 s)"


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("late", ["", "A"])
def test_what_waits_is_decided_although_no_window_bounds_its_rule(late: str, strategy: str) -> None:
    """The inner AND has no window of its own, so its events may be of any age."""
    network = a_line(UNBOUNDED, late=late, sources="A1 C5 B2 B3 B4")
    births = some_births(network, events=80)
    changes = [(at * S, AddSubscription(Sink("n4", Subscription("Later")))) for at in (15, 20, 25)]
    outcome = simulate(network, births, strategy=strategy, changes=changes, check=True)
    expected = contents(simulate(network, births, strategy="centr"), 0)
    assert contents(outcome, 0) == expected
    assert len(expected) > 5


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_new_rule_that_waits_long_repeats_nothing_of_those_that_read_its_events(strategy: str) -> None:
    """Both rules give Found, which Reader reads. What the first gave long ago was delivered, and is forgotten."""
    first = "Short: SEQ(B b, C c) WITHIN 1 s RETURN Found(k = b.k)"
    second = "Long: SEQ(B b, !C c) WITHIN 30 s RETURN Found(k = b.k)"
    reader = "event Found(k: int)\nReader: SEQ(Found f, A a) WHERE f.k = a.k WITHIN 1 s RETURN Read(k = f.k)"
    network = a_line(first, reader, late="", sources="A1 B2 B3 C4")
    births = some_births(network)
    outcome = simulate(network, births, strategy=strategy, changes=[(38 * S, DeployRules((rule(second),)))], check=True)
    ((_, held_from),) = outcome.held_from
    before = Counter({each: n for each, n in contents(outcome, 1).items() if _end(each) < held_from})
    alone = contents(simulate(network, births, strategy="centr"), 1)
    assert before == Counter({each: n for each, n in alone.items() if _end(each) < held_from})
    assert len(before) > 5


def _end(text: str) -> int:
    return int(text.split("@")[1].split()[0])


# -- from where on a plan tells of composites --------------------------------------------------------------------------


def begun(*rules: tuple[Rule, int | None], from_us: int) -> dict[str, int | None]:
    bounds = [(each, since_us, None) for each, since_us in rules]
    return {stream.rule.name: stream.from_us for stream in whole_streams(bounds, from_us)}


def test_a_plan_tells_of_what_ends_after_it_begins() -> None:
    assert begun((rule(COUNTED), None), from_us=100 * S) == {"Counted": 100 * S}


def test_what_is_decided_later_belongs_to_the_plan_that_decides() -> None:
    assert begun((rule(LATER), None), from_us=100 * S) == {"Later": 96 * S}


def test_what_rules_read_is_told_a_horizon_earlier() -> None:
    assert begun((rule(COUNTED), None), (rule(TWICE), None), from_us=100 * S) == {
        "Counted": 96 * S,
        "Twice": 100 * S,
    }


def test_a_rule_that_is_new_reads_nothing_from_before_it() -> None:
    assert begun((rule(COUNTED), None), (rule(TWICE), 100 * S), from_us=100 * S)["Counted"] == 100 * S


def test_a_new_rule_does_not_make_its_readers_look_further_back() -> None:
    first, second = (replace(rule(LATER), name=name, emits="Found") for name in ("First", "Second"))
    long = replace(second, pattern=rule(LATER.replace("4 s", "60 s")).pattern)
    reader = rule("event Found(k: int)\nReader: SEQ(Found f, A a) WITHIN 1 s RETURN Read(k = a.k)")
    found = begun((first, None), (long, 100 * S), (reader, None), from_us=100 * S)
    assert found == {"First": 95 * S, "Second": 95 * S, "Reader": 96 * S}


def test_the_first_plan_tells_of_everything() -> None:
    (stream,) = whole_streams([(rule(COUNTED), None, None)])
    assert stream.from_us is None


# -- what the law is tested on -----------------------------------------------------------------------------------------


def test_random_changes_have_events_later_than_windows_aggregates_negations_and_new_plans() -> None:
    seen: Counter[str] = Counter()
    for seed in islice(count(), 60):
        drawn = late_case(seed)
        longest = max(horizon_us(each) or 0 for each in drawn.network.rules)
        seen["later than two horizons"] += any(at - event.ts > 2 * longest for at, _, event in drawn.births)
        seen["aggregates"] += any(word in drawn.features for word in ("chain: count", "chain: sum", "chain: avg"))
        seen["negations"] += any("negation" in word or "absence" in word for word in drawn.features)
        case = churn_case(seed, late_case)
        assert case is not None
        seen["new plans"] += any(isinstance(change, PlanAnew) for _, change in changes_under(case, "inev"))
        seen["subscriptions"] += any(isinstance(change, AddSubscription) for _, change in case.changes)
        groups = connected_groups(drawn.network.rules)
        connected = {each.name for group in groups if len(group) > 1 for each in group}
        moved = {change.rules[0].name for _, change in case.changes if isinstance(change, DeployRules)}
        moved |= {change.name for _, change in case.changes if isinstance(change, UndeployRule)}
        seen["rules that read others come or go"] += bool(connected & moved)
    assert all(found > 5 for found in seen.values()), seen
    assert len(seen) == 6
