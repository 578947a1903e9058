"""Aggregates asked for in the network: exact pieces, what can be asked, what crosses links, and the law."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable

import msgpack
import pytest

from headwater.deploy.simulation.faults import Faults
from headwater.deploy.simulation.outcome import Outcome
from headwater.deploy.simulation.simulator import Simulation, simulate
from headwater.node.core import NodeCore
from headwater.node.effects import Effect, Input
from headwater.node.engine import Engine
from headwater.node.engine.aggregates import FOLD_FUNCTIONS
from headwater.node.plans.catalog import Catalog
from headwater.node.plans.tree_tasks import TreeTasks
from headwater.node.tasks.aggregates.planning import asking_rule
from headwater.node.tasks.aggregates.tallies import TallyStore
from headwater.protocol.errors import RuleError
from headwater.protocol.events import Event, EventType
from headwater.protocol.messages.tallies import Question, Tally, TallyAnswer, TallyRequest
from headwater.protocol.network import Link, Network, Sink, Source
from headwater.protocol.pattern import Chain, Rule
from headwater.protocol.subscriptions import Subscription
from headwater.protocol.tallies import Extreme, Part, Total, from_plain, merged, nothing, tally, to_plain, total, value
from headwater.protocol.wire.messages import Wire
from tests.kit.builders import absent, aggregate, chain, cond, each, last, rule, seq
from tests.law import law
from tests.law.aggregated import AWKWARD, aggregated_case
from tests.law.networks import NetworkCase

ANY = EventType("E", {"v": "any?"})
COLUMN = 4
LAW_SEEDS = range(50, 95)
FAULT_SEEDS = range(1000, 1030)

# -- exact pieces ------------------------------------------------------------------------------------------------------

KINDS: dict[str, list[int | float]] = {
    "integers": [0, 1, -3, 7, 2**53 + 1, -(2**70), 10**25],
    "floats": [*AWKWARD, 1e-300, 2.0**-1074, 123456.789],
    "overflowing": [1e308, 1.7e308, -1.7e308, -1e308, 1e292, 0.1],
    "mixed": [1, 0.5, 2**53 + 1, -(2**60) - 1, 0.1, True, False, 3],
    "infinite": [math.inf, 1.0, -2.5],
    "opposed": [math.inf, -math.inf, 1.0],
    "zeros": [0.0, -0.0, 0, False],
}


def rows_of(values: Iterable[object]) -> list[Event]:
    return [Event.from_row((ts, "n", ts, ANY, given)) for ts, given in enumerate(values)]


def put_together(function: str, rows: list[Event], rng: random.Random) -> Part:
    """The rows divided among up to five nodes, whose tallies are merged in any order, two by two, over the wire."""
    homes: list[list[Event]] = [[] for _ in range(rng.randint(1, 5))]
    for row in rows:
        rng.choice(homes).append(row)
    parts = [tally(function, home, COLUMN) for home in homes] + [nothing(function)]
    while len(parts) > 1:
        rng.shuffle(parts)
        one, other = parts.pop(), parts.pop()
        parts.append(from_plain(msgpack.unpackb(msgpack.packb(to_plain(merged(function, one, other))))))
    return parts[0]


@pytest.mark.parametrize("function", ["count", "sum", "avg", "min", "max"])
@pytest.mark.parametrize("kind", KINDS)
def test_pieces_put_together_give_what_one_engine_computes(kind: str, function: str) -> None:
    rng = random.Random(f"{kind} {function}")
    for _ in range(300):
        values = [rng.choice([*KINDS[kind], None]) for _ in range(rng.randint(0, 12))]
        present = [given for given in values if given is not None]
        found = value(function, put_together(function, rows_of(values), rng))
        # repr tells 1 from 1.0 and 0.0 from -0.0
        assert repr(found) == repr(FOLD_FUNCTIONS[function](present)), values


def test_a_sum_is_rounded_once() -> None:
    pieces = [total([0.1] * 3), total([0.2]), total([1e16, 0.3]), total([-1e16])]
    together: Part = nothing("sum")
    for piece in pieces:
        together = merged("sum", together, piece)
    assert value("sum", together) == math.fsum([0.1, 0.1, 0.1, 0.2, 1e16, 0.3, -1e16])
    assert sum(float(value("sum", piece) or 0) for piece in pieces) != value("sum", together)


def test_equal_sums_are_equal_tallies_however_they_came_about() -> None:
    assert merged("sum", total([0.75]), total([0.25, 1.0])) == total([0.5, 0.5, 1.0])
    assert total([1e300, -1e300, 0.0]) == Total(count=3, reals=3)


def test_rows_without_a_value_count_only_where_no_attribute_is_named() -> None:
    rows = rows_of([None, 1, None])
    assert tally("count", rows, None) == 3
    assert tally("count", rows, COLUMN) == 1
    assert value("sum", tally("sum", rows, COLUMN)) == 1
    assert value("avg", tally("avg", rows_of([None]), COLUMN)) is None
    assert value("max", tally("max", [], COLUMN)) is None


def test_of_equal_values_the_first_in_the_trace_is_the_extreme() -> None:
    early, late = Extreme(1.0, (3, "a", 1)), Extreme(1, (3, "b", 1))
    for function in ("min", "max"):
        assert merged(function, early, late) is early
        assert merged(function, late, early) is early


def test_values_that_cannot_be_compared_are_the_rule_s_fault() -> None:
    with pytest.raises(RuleError, match="max over values that cannot be compared"):
        tally("max", rows_of([1, "x"]), COLUMN)
    with pytest.raises(RuleError, match="cannot be compared"):
        merged("min", Extreme("x"), Extreme(2))
    with pytest.raises(RuleError, match="sum over values that cannot be added"):
        tally("sum", rows_of(["x"]), COLUMN)


def test_messages_survive_the_wire() -> None:
    wire = Wire([ANY])
    huge = 10**40
    asked = TallyRequest(
        7,
        (Question(1, (5, "", 0), (9, "é", 3), (huge, 0.1, None, "x", True)), Question(2, (0, "a", 1), (1, "b", 2))),
        4.5,
    )
    assert wire.decode(wire.encode(asked)) == asked
    told = TallyAnswer(
        7, ((1, 12), (2, None), (3, Extreme(huge)), (4, total([0.1, huge, 1e300])), (5, Extreme(-0.0, (1, "a", 2))))
    )
    assert wire.decode(wire.encode(told)) == told
    with pytest.raises(Exception, match="not a message"):
        wire.decode(msgpack.packb([6, 7, [[1, [0, "x"]]]]))


# -- what can be asked -------------------------------------------------------------------------------------------------

EVERYTHING = ("A", "B", "C", "D", "E")


def asked_of(of: Rule, below: Iterable[str] = EVERYTHING) -> list[str]:
    found = asking_rule(of, tuple(below))
    return [] if found is None else [asked.step.name for asked in found.asked]


AVERAGE = aggregate("p", "avg", "E e", "v", within=9, of="a")


def test_an_aggregate_that_accepts_and_gives_values_is_asked_for() -> None:
    of = rule(chain("A a", last("B b", 5, "a"), AVERAGE), "$p > b.v", "e.id = b.id", "e.v > 3", out={"x": "$p"})
    found = asking_rule(of, EVERYTHING)
    assert found is not None
    assert found.base.pattern == rule(chain("A a", last("B b", 5, "a"))).pattern
    (asked,) = found.asked
    assert asked.tally.where == (cond("event.v > 3"),)
    assert [repr(attribute) for attribute in asked.known] == ["Attribute(role='b', name='id', index='')"]
    assert found.judge is not None
    assert [output.value for output in found.judge.attributes] == [cond("$p > b.v")]


@pytest.mark.parametrize(
    "of",
    [
        rule(chain("A a", AVERAGE, last("B b", 5, "a")), "b.v > $p"),
        rule(chain("A a", AVERAGE, absent("B b", 5, "a")), "b.v > $p"),
        rule(chain("A a", AVERAGE, last("E e2", 5, "a"))),
        rule(chain("A a", AVERAGE, absent("E e2", 5, "a"))),
        rule(chain("E a", AVERAGE)),
        rule(chain("A a", last("B b", 5, "a"))),
        rule(seq("A a", "B b", within=5)),
    ],
    ids=["selection looks", "absence looks", "selected", "absent", "anchor", "no aggregate", "tree"],
)
def test_what_a_later_step_looks_at_or_what_must_come_anyway_is_not_asked_for(of: Rule) -> None:
    assert asked_of(of) == []


def test_a_type_that_only_this_node_produces_is_not_asked_for() -> None:
    assert asked_of(rule(chain("A a", AVERAGE)), ["A", "B"]) == []


def test_an_aggregate_on_which_another_depends_stays() -> None:
    more = aggregate("q", "max", "D d", "v", within=4, of="a")
    of = rule(chain("A a", AVERAGE, more), "d.v > $p", "$p + $q > 3", out={"p": "$p", "q": "$q"})
    assert asked_of(of) == []  # q looks at p, and its question would have to wait
    plain = rule(chain("A a", AVERAGE, more), "$p + $q > 3", out={"p": "$p"})
    assert asked_of(plain) == ["p", "q"]
    kept = asking_rule(plain, ["A", "D"])
    assert kept is not None
    assert [output.name for output in kept.base.attributes] == ["p"], "its value comes with the candidate"


def test_two_aggregates_of_one_type_are_asked_for_together_or_not_at_all() -> None:
    more = aggregate("q", "max", "E e2", "v", within=4, of="a")
    assert asked_of(rule(chain("A a", AVERAGE, more))) == ["p", "q"]
    assert asked_of(rule(chain("A a", AVERAGE, more, each("B b", 3, "a")), "b.v > $q")) == []


# -- what crosses links ------------------------------------------------------------------------------------------------

TYPES = {name: EventType(name, {"id": "int", "v": "float"}) for name in "AEF"}
MEAN = rule(
    chain("A a", aggregate("p", "avg", "E e", "v", within=50_000, of="a")), "e.id = a.id", "$p > 0", out={"mean": "$p"}
)


def a_tree(of: Rule = MEAN, leaves: int = 3) -> Network:
    """``root`` has anchors and the sink; below it ``middle``; below that the leaves with E."""
    names = [f"leaf{number}" for number in range(leaves)]
    links = [Link("root", "middle", 1000), *(Link("middle", name, 1000) for name in names)]
    sources = (Source("root", "A"), *(Source(name, "E") for name in names))
    sinks = (Sink("root", Subscription("X")), Sink("root", Subscription("X")))
    return Network(tuple(TYPES.values()), ("root", "middle", *names), tuple(links), sources, sinks, (of,))


def births(network: Network, per_anchor: int = 30, anchors: int = 8, seed: int = 0) -> list[tuple[int, int, Event]]:
    rng = random.Random(f"births {seed}")
    made: list[tuple[int, int, Event]] = []
    numbers: Counter[str] = Counter()
    for number in range(anchors * per_anchor):
        place = 0 if number % per_anchor == per_anchor - 1 else rng.randrange(1, len(network.sources))
        source = network.sources[place]
        numbers[source.node] += 1
        ts = 1000 * number
        given = {"id": rng.randint(0, 1), "v": rng.choice((0.1, 0.2, 1e15, 0.3))}
        made.append((ts, place, Event(TYPES[source.type], ts, source.node, numbers[source.node], given)))
    return made


def crossed(outcome: Outcome, kind: str) -> dict[tuple[str, str], int]:
    return {(a, b): traffic.events for (a, b, k), traffic in outcome.traffic.items() if k == kind and traffic.events}


def found_by(outcome: Outcome) -> Counter[tuple[object, ...]]:
    return Counter(
        (sink, found.id, repr(found.attributes))
        for sink in {delivery.sink for delivery in outcome.delivered}
        for found in outcome.composites(sink)
    )


def by_one_engine(network: Network, trace: Iterable[Event]) -> Counter[tuple[object, ...]]:
    engine = Engine(list(network.rules), network.types)
    engine.feed(sorted(trace))
    found = [match for match in engine.close() if match.type == "X"]
    return Counter((sink, each.id, repr(each.attributes)) for sink in range(2) for each in found)


def test_aggregated_events_stay_and_answers_are_merged_on_their_way_up() -> None:
    anchors = 8
    network = a_tree()
    outcome = agrees_with_one_engine(network, births(network, anchors=anchors))
    assert crossed(outcome, "primitive") == {}
    assert crossed(outcome, "awakening") == {
        ("root", "middle"): anchors,
        **{("middle", f"leaf{number}"): anchors for number in range(3)},
    }
    assert crossed(outcome, "aggregate") == {
        ("middle", "root"): anchors,
        **{(f"leaf{number}", "middle"): anchors for number in range(3)},
    }


def test_without_push_pull_aggregated_events_are_sent_as_before() -> None:
    network = a_tree()
    outcome = simulate(network, births(network), strategy="mt", check=True)
    assert crossed(outcome, "aggregate") == {}
    assert sum(crossed(outcome, "primitive").values()) == 2 * 8 * 29


def with_sources(network: Network, *sources: Source) -> Network:
    return Network(network.types, network.nodes, network.links, sources, network.sinks, network.rules)


def agrees_with_one_engine(network: Network, given: list[tuple[int, int, Event]], strategy: str = "mt-pp") -> Outcome:
    outcome = simulate(network, given, strategy=strategy, check=True, wire=True)
    assert found_by(outcome) == by_one_engine(network, (event for _, _, event in given))
    assert outcome.delivered
    assert crossed(outcome, "aggregate")
    return outcome


def test_candidates_with_the_same_question_ask_it_once() -> None:
    of = rule(
        chain("A a", each("F f", 50_000, "a"), aggregate("p", "sum", "E e", "v", within=50_000, of="a")),
        out={"sum": "$p"},
    )
    network = with_sources(a_tree(of), *a_tree().sources, Source("root", "F"))
    outcome = agrees_with_one_engine(network, births(network, anchors=4))
    asked = crossed(outcome, "awakening")["root", "middle"]
    assert len({found.id for found in outcome.composites()}) > 2 * asked > 0


def test_candidates_that_know_other_values_ask_another_question() -> None:
    of = rule(
        chain("A a", each("F f", 50_000, "a"), aggregate("p", "count", "E e", within=50_000, of="a")),
        "e.id = f.id",
        out={"count": "$p"},
    )
    network = with_sources(a_tree(of), *a_tree().sources, Source("root", "F"))
    outcome = agrees_with_one_engine(network, births(network, anchors=4))
    assert len({delivery.item.attributes["count"] for delivery in outcome.delivered}) > 2


def test_all_conjuncts_must_hold() -> None:
    of = rule(
        chain(
            "A a",
            aggregate("p", "count", "E e", within=50_000, of="a"),
            aggregate("q", "max", "E e2", "v", within=9_000, of="a"),
        ),
        "$p > 20",
        "$q < 1",
        out={"p": "$p", "q": "$q"},
    )
    network = a_tree(of)
    outcome = agrees_with_one_engine(network, births(network, anchors=12))
    assert 0 < len(outcome.delivered) < 2 * 11


def test_an_answer_waits_for_events_that_arrive_late_and_keeps_what_it_needs_meanwhile() -> None:
    lateness_us = 400_000  # many windows: the watermarks of the rule pass long before
    network = with_sources(a_tree(), Source("root", "A"), *(Source(f"leaf{n}", "E", lateness_us) for n in range(3)))
    rng = random.Random("late")
    given = [
        (at if place == 0 else at + rng.choice((0, lateness_us)), place, event)
        for at, place, event in births(network, per_anchor=10, anchors=60)
    ]
    agrees_with_one_engine(network, sorted(given, key=lambda birth: birth[0]))


def test_a_composite_that_ends_with_an_end_of_the_range_does_not_lie_in_it() -> None:
    inner = rule(chain("E e"), name="inner", emits="Y")
    of = rule(
        chain("A a", last("E b", 50_000, "a"), aggregate("p", "count", "Y y", between="b a")), out={"count": "$p"}
    )
    network = a_tree(of, leaves=1)
    network = Network(network.types, network.nodes, network.links, network.sources, network.sinks, (inner, of))
    outcome = agrees_with_one_engine(network, births(network))
    assert {delivery.item.attributes["count"] for delivery in outcome.delivered} == {0}


def test_a_rule_that_is_delegated_asks_further_down() -> None:
    network = with_sources(a_tree(), Source("middle", "A"), *a_tree().sources[1:])
    outcome = agrees_with_one_engine(network, births(network))
    assert ("middle", "root") not in crossed(outcome, "aggregate")
    assert crossed(outcome, "aggregate")["leaf0", "middle"] == 8


def test_what_cannot_be_asked_about_any_more_is_freed() -> None:
    network = a_tree()
    made = Simulation(network, "mt-pp", 0, Faults())
    made.set_up(-1_000_000)
    made.run(births(network, per_anchor=60, anchors=40), until_us=2_400_000)
    kept = [
        point.store.held()
        for core in made.nodes.values()
        for found in core.works.values()
        if isinstance(found, TreeTasks)
        for point in found.tallies.points.values()
        if point.store is not None
    ]
    # Of 2400 events in 2.4 s those of the last 50 ms may be asked about; watermarks come a few housekeepings late.
    assert len(kept) == 3
    assert 0 < sum(kept) < 400


def test_a_node_may_be_saved_and_restored_at_any_moment() -> None:
    class Restless(Simulation):
        def _handle(self, node: str, received: Input) -> list[Effect]:
            self.nodes[node] = NodeCore.restored(self.nodes[node].save())
            return super()._handle(node, received)

    network = a_tree()
    given = births(network, anchors=3)
    made = Restless(network, "mt-pp", 0, Faults())
    made.set_up(-1_000_000)
    assert found_by(made.run(given)) == by_one_engine(network, (event for _, _, event in given))


def test_a_message_for_a_stream_that_was_not_asked_for_is_counted() -> None:
    core = NodeCore("n", {"m": 0})
    from headwater.node.effects import MessageReceived, Report

    for message in (TallyRequest(3, (Question(1, (0, "", 0), (1, "", 0)),)), TallyAnswer(3, ((1, 0),))):
        assert core.handle(MessageReceived("m", message), 0) == [Report("unknown_stream")]


def test_attributes_of_every_event_can_be_aggregated_and_others_cannot() -> None:
    catalog = Catalog(TYPES.values())
    TallyStore(Tally("E", "max", "ts"), catalog.type("E"), False, ())
    with pytest.raises(RuleError, match="E has no attribute 'w'"):
        TallyStore(Tally("E", "max", "w"), catalog.type("E"), False, ())


# -- the law -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["st-pp", "mt-pp"])
@pytest.mark.parametrize(("seeds", "faults"), [(LAW_SEEDS, False), (FAULT_SEEDS, True)], ids=["calm", "faults"])
def test_rules_that_ask_for_aggregates_keep_the_law(strategy: str, seeds: range, faults: bool) -> None:
    answers = matches = 0
    outcomes: list[Outcome] = []

    def run(case: NetworkCase, chosen: str, broken: bool) -> Outcome:
        outcomes.append(law.run(case, chosen, broken))
        return outcomes[-1]

    for seed in seeds:
        verdict = law.check(aggregated_case(seed), strategy, faults, run)
        assert not verdict.wrong, (seed, verdict.wrong[:3])
        asked = sum(crossed(outcomes[-1], "aggregate").values()) if outcomes else 0
        answers += asked
        matches += verdict.matches if asked else 0
    assert answers > 100
    assert matches > 50


def test_generated_rules_ask_for_every_function_and_bring_every_obstacle() -> None:
    cases = [aggregated_case(seed) for seed in range(200)]
    rules = [rule for case in cases for rule in case.network.rules if isinstance(rule.pattern.root, Chain)]
    found = [asking_rule(rule, [*TYPES, "A", "B", "C", "D", "X", "Y"]) for rule in rules]
    asked = [asked for each in found if each is not None for asked in each.asked]
    assert {each.tally.function for each in asked} == {"count", "sum", "avg", "min", "max"}
    assert {type(each.step.range).__name__ for each in asked} == {"Within", "Between"}
    assert any(each.tally.where for each in asked)
    assert any(each.tally.looks for each in asked)
    assert any(each.tally.type in ("X", "Y") for each in asked)
    assert any(each is not None and each.base.attributes for each in found)
    assert any(each is None for each in found)
