"""Equalities that bind two attributes of one role to one value: they must be equal in that role, too.

Every place where an equality may stand, on the oracle and the engine: first events that break one of the equalities
only within a role, then events that keep them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import permutations, product

import pytest

from headwater.node.engine import Engine, compile_rules
from headwater.protocol.events import Event, EventType, Value
from headwater.protocol.expressions import Constant
from headwater.protocol.languages import Source, parse_rules
from headwater.protocol.network import Link, Network, Sink
from headwater.protocol.network import Source as SourceAt
from headwater.protocol.pattern import Part, Rule
from headwater.protocol.subscriptions import Subscription
from tests.kit.builders import TYPES, Evaluator, both, by_oracle, rule, seq, trace
from tests.law.equal_places import PLACES
from tests.law.equal_values import EQUAL
from tests.law.generators import case_of_seed
from tests.law.law import SERVED, check
from tests.law.networks import NetworkCase, network_case

# -- the simplest one --------------------------------------------------------------------------------------------------

B = EventType("B", {"v": "int", "w": "int"})
C = EventType("C", {"v": "int", "w": "int"})


@pytest.mark.parametrize("arrival", list(permutations((0, 1))), ids=["in order", "out of order"])
@pytest.mark.parametrize("where", ["a.w = b.v AND b.v = a.v", "b.v = a.v AND a.w = b.v", "SAME[v] AND b.v = a.w"])
def test_both_attributes_of_a_role_must_equal_the_one_of_the_other(where: str, arrival: tuple[int, ...]) -> None:
    text = f"X: SEQ(B b, C a) WHERE {where} WITHIN 4 us"

    def found(b: Event, a: Event) -> int:
        engine = Engine(parse_rules([Source(text, "test.sase", "sase")], (B, C)))
        return sum(len(engine.feed([(b, a)[number]])) for number in arrival) + len(engine.close())

    assert found(Event(B, 3, "n", 1, {"v": 2, "w": 1}), Event(C, 6, "n", 2, {"v": 2, "w": 1})) == 0
    assert found(Event(B, 3, "n", 1, {"v": 2, "w": 1}), Event(C, 6, "n", 2, {"v": 1, "w": 2})) == 0
    assert found(Event(B, 3, "n", 1, {"v": 2, "w": 1}), Event(C, 6, "n", 2, {"v": 2, "w": 2})) == 1


def spellings(*conjuncts: str) -> Iterator[list[str]]:
    """The conjuncts in every order, each with its sides this way and the other."""
    for ordered in permutations(conjuncts):
        for turned in product((False, True), repeat=len(ordered)):
            sides = [text.split(" = ") for text in ordered]
            yield [" = ".join(reversed(pair) if turn else pair) for pair, turn in zip(sides, turned, strict=True)]


@pytest.mark.parametrize("operator", [seq, both], ids=["SEQ", "AND"])
def test_a_class_over_three_roles_means_the_same_in_every_spelling_and_order_of_arrival(
    operator: Callable[..., Part],
) -> None:
    """a.v and a.w are equal only through b and c; int and float are equal as numbers."""
    given = trace("A@1(v=2,w=2.0) A@2(v=2,w=1.0) A@3(v=1,w=2.0) B@4(v=2) C@5(w=2.0) C@6(w=1.0)").events
    orders = list(permutations(given))[::29]
    for where in spellings("a.v = b.v", "b.v = c.w", "c.w = a.w"):
        program = compile_rules([rule(operator("A a", "B b", "C c", within=9), *where)], TYPES.values())
        for order in orders:
            engine = Engine(program)
            found = [composite for event in order for composite in engine.feed([event])] + engine.close()
            assert [[part.ts for _, part in composite.events] for composite in found] == [[1, 4, 5]], (where, order)


# -- everywhere --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", PLACES)
def test_two_attributes_of_a_role_are_equal_in_every_match_of(place: str, matches: Evaluator) -> None:
    rules, given, wanted = PLACES[place]
    assert matches(rules, given) == wanted


def test_every_place_turns_something_away_that_only_an_equality_within_a_role_forbids() -> None:
    """Without its last equalities each of the rules finds something else: the traces do try them."""
    for place, (rules, given, wanted) in PLACES.items():
        made = rules[-1] if isinstance(rules, list) else rules
        before = rules[:-1] if isinstance(rules, list) else []
        differs = 0
        for number in range(len(made.pattern.where)):
            fewer = tuple(each for i, each in enumerate(made.pattern.where) if i != number)
            changed = Rule(made.name, type(made.pattern)(made.pattern.root, fewer, made.pattern.skip), made.emits)
            differs += by_oracle([*before, changed], given) != wanted
        assert differs, place


# -- the generators ----------------------------------------------------------------------------------------------------

DRAWN = (
    *("numbers", "strings", "bools", "texts", "int with float", "several attributes of a role", "over three roles"),
    *("within one role", "beside SAME", "of a negated role", "of a repetition", "with the element before"),
    *("in an OR", "of an absent or aggregated role", "with a parameter"),
)


def test_random_rules_and_networks_have_such_equalities_in_all_places() -> None:
    seen = frozenset().union(*(case_of_seed(seed).features for seed in range(1500)))
    in_networks = frozenset().union(*(network_case(seed).features for seed in range(1000)))
    assert {EQUAL + what for what in DRAWN} <= seen
    assert {EQUAL + what for what in DRAWN} <= in_networks


# -- constants that are equal as numbers, and look different -----------------------------------------------------------

ANY = EventType("A", {"x": "any"})
TEXT = EventType("B", {"s": "string"})


def rules_of(*texts: str) -> tuple[Rule, ...]:
    return tuple(parse_rules([Source("\n\n".join(texts), "test.sase", "sase")], (ANY, TEXT)).rules)


def texts_of(engine_rules: tuple[Rule, ...], *values: str) -> list[tuple[str, Value]]:
    """The rules that find something, and in what."""
    engine = Engine(engine_rules, (ANY, TEXT))
    given = [Event(ANY, 1, "n", 0, {"x": 5}), *(Event(TEXT, 2, "n", i, {"s": s}) for i, s in enumerate(values, 1))]
    found = engine.feed(given) + engine.close()
    return [(composite.rule, composite.events[-1][1].attributes["s"]) for composite in found]


def test_constants_are_equal_where_they_look_alike() -> None:
    given = (1, 1.0, True, "1", 0.0, -0.0, 0, False, None)
    assert len({Constant(value) for value in given}) == len(given)
    assert all(Constant(value) == Constant(value) for value in given)
    assert hash(Constant(1.5)) == hash(Constant(1.5))


def test_conditions_that_differ_only_in_the_kind_of_a_number_are_all_judged() -> None:
    both_texts = rules_of("r: SEQ(A a, B b) WHERE b.s = concat(a.x, 1) AND b.s = concat(a.x, 1.0) WITHIN 9 us")
    one_text = rules_of("r: SEQ(A a, B b) WHERE b.s = concat(a.x, 1.0) WITHIN 9 us")
    assert texts_of(both_texts, "51", "51.0") == []
    assert texts_of(one_text, "51", "51.0") == [("r", "51.0")]


@pytest.mark.parametrize("strategy", SERVED)
def test_pulled_and_filtered_events_are_told_apart_by_how_a_number_looks(strategy: str) -> None:
    """What one event asks of others must not answer for another whose value is equal, but makes another text."""
    rules = rules_of(
        "r1: SEQ(A a, B b) WHERE b.s = string(a.x) WITHIN 5 ms",
        "r2: SEQ(A a, B b) WHERE b.s = string(1) AND a.x = 7 WITHIN 5 ms",
        "r3: SEQ(A a, B b) WHERE b.s = string(1.0) AND a.x = 7 WITHIN 5 ms",
    )
    sources = (SourceAt("p1", "A"), SourceAt("p3", "B"))
    births: list[tuple[int, int, Event]] = []
    for number, x in enumerate((1, 1.0, True, 7, 1.0, 1), 1):
        births.append((number * 20_000, 0, Event(ANY, number * 20_000, "p1", number, {"x": x})))
    texts = ("1", "1.0", "true", "7")
    for number in range(240):
        ts = 500 * number + 10_000
        births.append((ts, 1, Event(TEXT, ts, "p3", number + 1, {"s": texts[number % len(texts)]})))
    births.sort(key=lambda birth: birth[0])
    links = (Link("p1", "p2", 100), Link("p2", "p3", 100))
    sinks = tuple(Sink("p2", Subscription(rule.emits, ())) for rule in rules)
    network = Network((ANY, TEXT), ("p1", "p2", "p3"), links, sources, sinks, rules)
    verdict = check(NetworkCase(network, tuple(births)), strategy, False)
    assert not verdict.wrong
    assert verdict.matches > 20
