"""How far apart the events of a rule may lie: bounds derived by hand, and held against what an engine finds."""

from __future__ import annotations

import pytest

from headwater.protocol import pattern as pt
from headwater.protocol.analysis.horizons import horizon_us, offsets
from headwater.protocol.analysis.pulling import masters
from headwater.protocol.composites import Composite
from tests.kit.builders import absent, aggregate, both, chain, each, either, last, many, no, rule, seq
from tests.law.partitioned import Divided, random_division

CHAIN = rule(
    chain(
        "A a",
        last("B b", 5, "a"),
        each("C c", 3, "b"),
        each("D d", 2, "a"),
        absent("E n", between="c d"),
        aggregate("p", "count", "E m", within=4, of="c"),
    )
)


def test_windows_of_a_chain_add_up() -> None:
    assert offsets(CHAIN, "a") == {"b": (-5, 0), "c": (-8, 0), "d": (-2, 0), "n": (-8, 0), "m": (-12, 0)}
    assert offsets(CHAIN, "c") == {"a": (0, 8), "b": (0, 3), "d": (-2, 8), "n": (-2, 8), "m": (-4, 0)}
    assert offsets(CHAIN, "d")["c"] == (-8, 2)
    assert offsets(CHAIN, "m") == {"a": (0, 12), "b": (0, 7), "c": (0, 4), "d": (-2, 12), "n": (-2, 12)}
    assert horizon_us(CHAIN) == 12
    assert masters(CHAIN) == ("a", "b", "c", "d")


@pytest.mark.parametrize(
    ("root", "expected"),
    [
        (seq("A a", "B b", "C c", within=9, bounds="span"), {"a": (-9, 0), "c": (0, 9)}),
        (both("A a", "B b", within=9, bounds="span"), {"a": (-9, 9)}),
        (both("A a", "B b", within=9), {"a": (-9, 9)}),
        (seq("A a", both("B b", "C c"), "D d", within=9, bounds="span"), {"a": (-9, 0), "c": (-9, 9), "d": (0, 9)}),
        (seq("A a", seq("B b", "C c", within=2), within=9, bounds="span"), {"a": (-9, 0), "c": (0, 2)}),
        (seq("A a", many("B b"), within=9, bounds="span"), {"a": (-9, 0)}),
        # negations: between, first, last and in AND
        (seq("B b", no("N n"), "C c", within=9, bounds="span"), {"n": (0, 9), "c": (0, 9)}),
        (seq(no("N n"), "A a", "B b", within=9, bounds="span"), {"n": (-9, 0), "a": (-9, 0)}),
        (seq("A a", "B b", no("N n"), within=9, bounds="span"), {"n": (0, 9), "a": (-9, 0)}),
        (both("A a", "B b", no("N n"), within=9, bounds="span"), {"n": (-9, 9), "a": (-9, 9)}),
        (seq(no("N n"), "B b", within=9, bounds="span"), {"n": (-9, 0)}),
        # what forbids is a match of several events that ends in the range
        (seq("B b", no(seq("N n", "M m", within=4)), "C c", within=9, bounds="span"),
         {"n": (-4, 9), "m": (-4, 9), "c": (0, 9)}),
        # the window bounds ends: those of a SEQ are known, what comes before may be as old as it likes
        (both(seq("A a", "C c"), "B b", within=4), {"a": (None, 4), "c": (-4, 4)}),
        (both(seq("A a", "C c", within=3), "B b", within=4), {"a": (-7, 4), "c": (-4, 4)}),
        (seq(both("A a", "C c", within=3), "B b", within=4), {"a": (-7, 0), "c": (-7, 0)}),
        (seq("B b", "C c", events=5), {"c": (0, None)}),
        # roles in other branches never meet
        (seq("A a", either("B b", "C c"), within=9, bounds="span"), {"a": (-9, 0)}),
        (seq("A a", either(seq("B b", "C c", within=1), "D d"), "E e", within=9, bounds="span"),
         {"a": (-9, 0), "c": (0, 1), "e": (0, 9)}),
    ],
)  # fmt: skip
def test_offsets_in_trees(root: pt.Part | pt.Chain, expected: dict[str, tuple[int | None, int | None]]) -> None:
    assert offsets(rule(root), "b") == expected


def test_a_branch_does_not_narrow_what_other_branches_allow() -> None:
    of = rule(seq("A a", either(seq("B b", "C c", within=1), "D d"), "E e", within=9, bounds="span"))
    assert offsets(of, "a")["e"] == (0, 9)


def test_a_gap_between_two_parts_counts() -> None:
    assert offsets(rule(seq("A a", "B b", within=9, bounds="span"), "b.ts - a.ts <= 2"), "a") == {"b": (0, 2)}


@pytest.mark.parametrize(
    ("root", "expected"),
    [
        (seq("A a", "B b", within=9, bounds="span"), 9),
        (seq("A a", no("N n"), "B b", within=9, bounds="span"), 9),
        (seq(no("N n"), "A a", "B b", within=9, bounds="span"), 9),
        (seq("A a", "B b", no("N n"), within=9, bounds="span"), 9),
        (seq(no("N n"), "A a", no("M m"), within=9, bounds="span"), 18),
        (both("A a", no("N n"), within=9, bounds="span"), 18),
        (seq("A a", no(seq("N n", "M m", within=4)), "B b", within=9, bounds="span"), 13),
        (seq("A a", many("B b", limit=2), within=9, bounds="span"), 9),
        (both("A a", both("B b", "C c", within=3), within=4), 7),
        (both("A a", both("B b", "C c"), within=4), None),
        (seq("A a", "B b", events=4), None),
        (pt.Leaf("a", "A"), 0),
        (chain("A a"), 0),
        (chain("A a", absent("B b", 6, "a"), last("C c", 2, "a")), 6),
    ],
)
def test_how_long_inputs_are_needed(root: pt.Part | pt.Chain, expected: int | None) -> None:
    assert horizon_us(rule(root)) == expected


def test_masters_are_bound_in_every_match() -> None:
    of = rule(seq("A a", no("B b"), both("C c", many("D d")), either("E e", "A a2"), within=9, bounds="span"))
    assert masters(of) == ("a", "c")


@pytest.mark.parametrize("block", range(4))
def test_matches_and_what_influences_them_lie_within_the_bounds(block: int) -> None:
    checked = 0
    for seed in range(1000 + block, 1200, 4):
        of, _, events = random_division(seed)
        full = {match.id: match for match in Divided().engine_on(of, events)}
        for match in full.values():
            check_parts(of, match)
        positive = {leaf.type for leaf in pt.positive_leaves(of.pattern.root)}
        hidden = {leaf.role: leaf.type for leaf in pt.leaves(of.pattern.root) if leaf.type not in positive}
        for event in events:
            roles = [role for role, kind in hidden.items() if kind == event.type]
            if not roles:
                continue
            rest = [each for each in events if each != event]
            without = {match.id: match for match in Divided().engine_on(of, rest)}
            for changed in full.keys() ^ without.keys():
                match = full.get(changed) or without[changed]
                assert any(influences(of, match, role, event.ts) for role in roles), f"seed {seed}: {event} {match}"
                checked += 1
    assert checked > 10


def check_parts(of: pt.Rule, match: Composite) -> None:
    longest = horizon_us(of)
    parts = match.parts()
    for role, row in parts:
        bounds = offsets(of, role)
        for other, other_row in parts:
            if other != role:
                assert fits(other_row[0] - row[0], bounds[other]), (of, match)
            assert longest is None or other_row[0] - row[0] <= longest


def influences(of: pt.Rule, match: Composite, hidden: str, ts: int) -> bool:
    longest = horizon_us(of)
    near = longest is None or match.ts - ts <= longest
    return near and all(fits(ts - row[0], offsets(of, role)[hidden]) for role, row in match.parts())


def fits(difference: int, bounds: tuple[int | None, int | None]) -> bool:
    least, greatest = bounds
    return (least is None or least <= difference) and (greatest is None or difference <= greatest)
