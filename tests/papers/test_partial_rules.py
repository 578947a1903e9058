"""Figures 5 to 8 of the T-Rex strategies: who produces what, and the partial rules that follow from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.node.plans.partition import Split, split
from headwater.protocol.languages import Source, parse_rules
from headwater.protocol.pattern import Pattern, Rule, leaves

FOLDER = Path(__file__).parent
PRINTED = {rule.name: rule for rule in parse_rules([Source.from_path(FOLDER / "partial_rules.tesla")]).rules}

FIGURES = {
    "5": ("r4", {"A": "3", "B": "3", "C": "4", "D": "5", "E": "4"}, {"P5_AB": "3", "P5_CE": "4", "P5_D": "5"}),
    "6": ("r4", {"A": "2", "B": "2", "C": "2 3", "D": "3", "E": "3"}, {"P6_AB": "2", "P6_C": "2 3", "P6_DE": "3"}),
    "7a": ("r5", {"A": "2", "B": "2", "C": "3"}, {"P7_AB": "2", "P7_C": "3"}),
    "7b": ("r5", {"A": "2", "B": "3", "C": "3"}, {"P7_A": "2", "P7_BC": "3"}),
    "8a": ("r6", {"A": "2", "B": "3", "C": "3", "D": "3"}, {"P8_A": "2", "P8_BC": "3"}),
    "8b": ("r6", {"A": "2", "B": "2", "C": "3", "D": "3"}, {"P8_AB": "2", "P8_C": "3", "P8_D": "3"}),
}


def rule_of(name: str) -> Rule:
    (rule,) = parse_rules([Source.from_path(FOLDER / f"{name}.tesla")]).rules
    return rule


def split_whole(rule: Rule, producers: dict[str, str]) -> Split:
    roles = [leaf.role for leaf in leaves(rule.pattern.root)]
    return split(rule, roles, {name: tuple(children.split()) for name, children in producers.items()})


def printed(name: str) -> Pattern:
    """The partial rule as the paper prints it; those that it only mentions in its text are the name of a type."""
    if name in PRINTED:
        return PRINTED[name].pattern
    text = f"define {name}() from {name[-1]}()"
    return parse_rules([Source(text, "mentioned.tesla", "tesla")]).rules[0].pattern


@pytest.mark.parametrize("figure", FIGURES)
def test_a_rule_is_divided_as_the_figure_shows(figure: str) -> None:
    rule, producers, expected = FIGURES[figure]
    division = split_whole(rule_of(rule), producers)
    found = {(child, part.pattern) for child, part in division.parts}
    assert found == {(child, printed(name)) for name, children in expected.items() for child in children.split()}
    assert len(division.parts) == len(found)
    assert division.delegate is None


def test_figure_5_the_root_delegates_everything_to_the_only_child() -> None:
    assert split_whole(rule_of("r4"), dict.fromkeys("ABCDE", "2")) == Split(delegate="2")


def test_partial_rules_read_as_the_paper_prints_them() -> None:
    rule, producers, _ = FIGURES["5"]
    assert [part.label() for _, part in split_whole(rule_of(rule), producers).parts] == [
        "A() and last B() within 5 min from A",
        "C() and each E() within 10 min from C",
        "D()",
    ]
    rule, producers, _ = FIGURES["8a"]
    assert [part.label() for _, part in split_whole(rule_of(rule), producers).parts] == [
        "A()",
        "B() and last C() within 5 min from B and not D() between C and B",
    ]


def test_the_paper_filters_away_candidates_that_selections_above_need_so_they_are_contested() -> None:
    rule, producers, _ = FIGURES["5"]
    contests = {part.roles: part.contests for _, part in split_whole(rule_of(rule), producers).parts}
    assert contests["A", "B"] == ()  # every A that comes up brings the B that is its last
    assert [(contest.role, contest.policy) for contest in contests["C", "E"]] == [("C", "last"), ("E", "last")]
    assert {contest.window_us for contest in contests["C", "E"]} == {300_000_000}
