"""Remote conditions are judged by the filter or part of a rule that has their roles, where its node reaches the table.

A line n1 - n2 - n3 - n4: the sink is at n1, and most events are born at n4. What the table lets pass is one of ten.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from headwater.deploy.simulation.outcome import Outcome
from headwater.deploy.simulation.remote import Answers, SimulatedTables
from headwater.deploy.simulation.simulator import simulate
from headwater.node.remote.policies import POLICIES
from headwater.protocol.composites import Composite
from headwater.protocol.events import Event
from headwater.protocol.expressions import Attribute, Binary, Remote
from headwater.protocol.network import DescribedTable, Link, Network, Sink, Source
from headwater.protocol.pattern import Rule
from headwater.protocol.remote import Versions
from headwater.protocol.subscriptions import Subscription
from tests.kit.builders import TYPES, absent, chain, last, rule, seq

MS = 1_000
NODES = ("n1", "n2", "n3", "n4")
TREES = ("st", "mt", "st-pp", "mt-pp")


def above(role: str, key_of: str) -> Binary:
    return Binary(">", Attribute(role, "v"), Remote("table", (Attribute(key_of, "id"),)))


FILTERED = rule(chain("A a", last("B b", 150 * MS, "a")), above("b", "b"))
JOINED = rule(seq("B b", "C c", "A a", within=50 * MS, bounds="span"), above("c", "b"), "b.v = c.v")
TWICE = rule(seq("A a", "B b", "B b2", within=500 * MS, bounds="span"), above("b", "b"))
DELEGATED = rule(seq("B b", "C c", within=50 * MS, bounds="span"), above("c", "b"))
ABSENT = rule(chain("A a", absent("B b", within=15 * MS, of="a")), above("b", "b"))


def births() -> list[tuple[int, int, Event]]:
    """A is born at n1; B and C at n4, of which every tenth is above the limit."""
    born = []
    for number in range(300):
        at = number * 10 * MS
        born.append((at, 1, Event(TYPES["B"], at, "n4", 2 * number + 1, {"id": number % 7, "v": number % 10})))
        born.append((at + 1, 2, Event(TYPES["C"], at + 1, "n4", 2 * number + 2, {"id": 0, "v": number % 10})))
        if number % 11 == 9:
            born.append((at + 2, 0, Event(TYPES["A"], at + 2, "n1", number // 10 + 1, {"id": 3, "v": 5})))
    return born


def run(of: Rule, at: str, strategy: str, policy: str = "hybrid") -> Outcome:
    """``at``: the nodes that reach the table; none: all do."""
    network = Network(
        tuple(TYPES.values()),
        NODES,
        tuple(Link(one, other, 2 * MS) for one, other in pairwise(NODES)),
        (Source("n1", "A"), Source("n4", "B"), Source("n4", "C")),
        (Sink("n1", Subscription("X")),),
        (of,),
        tables=(DescribedTable("table", "", tuple(at.split())),),
    )
    tables = SimulatedTables(
        {"table": lambda key: Versions.always(8)},
        (MS, 3 * MS),
        reached_from={"table": at.split()} if at else {},
        strategy=policy,
    )
    return simulate(network, births(), strategy=strategy, seed=1, check=True, remote=tables)


def between(outcome: Outcome, one: str, other: str) -> int:
    """How many events went over a link, in this direction."""
    return sum(traffic.events for way, traffic in outcome.traffic.items() if way[:2] == (one, other))


def composites(outcome: Outcome) -> list[str]:
    return sorted(delivery.item.id for delivery in outcome.delivered if isinstance(delivery.item, Composite))


@pytest.mark.parametrize("of", [FILTERED, JOINED, ABSENT], ids=["filter", "part", "negation"])
@pytest.mark.parametrize("strategy", TREES)
def test_less_travels_where_a_condition_is_judged_beside_the_source(strategy: str, of: Rule) -> None:
    far, near = run(of, "n1", strategy), run(of, "n1 n4", strategy)
    assert composites(near) == composites(far) != []
    assert between(near, "n4", "n3") < between(far, "n4", "n3") / 2
    assert between(near, "n2", "n1") < between(far, "n2", "n1") / 2


@pytest.mark.parametrize("of", [FILTERED, JOINED, ABSENT], ids=["filter", "part", "negation"])
@pytest.mark.parametrize("strategy", TREES)
def test_a_node_on_the_way_judges_what_the_source_cannot(strategy: str, of: Rule) -> None:
    far, half = run(of, "n1", strategy), run(of, "n1 n3", strategy)
    assert composites(half) == composites(far) != []
    assert between(half, "n4", "n3") >= between(far, "n4", "n3")
    assert between(half, "n2", "n1") < between(far, "n2", "n1") / 2


def test_a_plan_has_filters_judged_beside_their_sources() -> None:
    far, near = run(FILTERED, "n1", "inev"), run(FILTERED, "n1 n4", "inev")
    assert composites(near) == composites(far) != []
    assert between(near, "n4", "n3") < between(far, "n4", "n3") / 2


def askers(monkeypatch: pytest.MonkeyPatch, of: Rule, at: str, strategy: str) -> set[str]:
    """The nodes that ask the provider of the table."""
    asking: set[str] = set()
    to = Answers.to

    def noted(answers: Answers, node: str, *rest: Any) -> Any:
        asking.add(node)
        return to(answers, node, *rest)

    monkeypatch.setattr(Answers, "to", noted)
    assert composites(run(of, at, strategy))
    return asking


@pytest.mark.parametrize("strategy", TREES)
def test_what_was_judged_below_is_not_looked_up_again(strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert askers(monkeypatch, FILTERED, "", strategy) == {"n4"}
    assert askers(monkeypatch, ABSENT, "n1 n2 n3", strategy) == {"n3"}
    assert len(askers(monkeypatch, TWICE, "", strategy)) == 2, "an event of the type has another role"
    assert askers(monkeypatch, FILTERED, "n1 n4", strategy) == {"n1", "n4"}, "n1 does not know what n2 gets"


def test_a_plan_has_nothing_looked_up_again_that_every_node_judges(monkeypatch: pytest.MonkeyPatch) -> None:
    assert askers(monkeypatch, FILTERED, "", "inev") == {"n4"}


@pytest.mark.parametrize("strategy", ["st", "mt"])
def test_a_rule_is_delegated_to_nodes_that_reach_its_tables(strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert askers(monkeypatch, DELEGATED, "n1 n2 n3", strategy) == {"n3"}
    assert askers(monkeypatch, DELEGATED, "", strategy) == {"n4"}


@pytest.mark.parametrize("policy", list(POLICIES))
def test_only_where_complete_matches_are_judged_nothing_is_judged_before(policy: str) -> None:
    far, near = run(FILTERED, "n1", "st", policy), run(FILTERED, "n1 n4", "st", policy)
    assert composites(near) == composites(far) != []
    judged_before = between(near, "n4", "n3") < between(far, "n4", "n3")
    assert judged_before == (policy != "last")
