"""The papers' own rules: each parses into the pattern it means, prints back, and finds the matches derived by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headwater.node.engine import Engine
from headwater.protocol.expressions import Attribute, Binary, Call, Constant, Parameter, Remote, Same
from headwater.protocol.languages import Language, RuleSet, Source, parse_rules, print_rule
from headwater.protocol.pattern import (
    Absence,
    Aggregate,
    Between,
    Chain,
    Conjunction,
    Disjunction,
    Leaf,
    Negation,
    OutputAttribute,
    Pattern,
    Repetition,
    Rule,
    Selection,
    Sequence,
    Window,
    Within,
    repeated_roles,
)
from headwater.protocol.remote import RemoteTable
from tests.oracle import evaluate
from tests.papers.cases import CASES, SECOND_US, PaperCase, functions

FOLDER = Path(__file__).parent
FILES = sorted(path.name for path in FOLDER.iterdir() if path.suffix in (".tesla", ".sase"))
MINUTES_5 = 300 * SECOND_US


def load(file: str) -> RuleSet:
    return parse_rules([Source.from_path(FOLDER / file)], functions=functions())


def rule_of(file: str, name: str) -> Rule:
    return next(rule for rule in load(file).rules if rule.name == name)


def as_match(parts: list[tuple[str, int]], repeated: frozenset[str]) -> dict[str, Any]:
    """``role -> time in seconds`` of one match, a list of times for a repeated role."""
    match: dict[str, Any] = {}
    for role, ts in parts:
        if role in repeated:
            match.setdefault(role, []).append(ts // SECOND_US)
        else:
            match[role] = ts // SECOND_US
    return match


def tables(case: PaperCase) -> dict[str, RemoteTable]:
    return {name: RemoteTable.from_mapping(values) for name, values in case.remote.items()}


def by_time(found: list[tuple[dict[str, Any], dict[str, Any]]]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    return sorted(found, key=lambda pair: sorted((role, repr(at)) for role, at in pair[0].items()))


def expected_of(case: PaperCase) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    attributes = case.attributes or ({},) * len(case.expected)
    return by_time(list(zip(case.expected, attributes, strict=True)))


@pytest.mark.parametrize("file", FILES)
def test_every_rule_of_the_papers_parses_and_prints_back(file: str) -> None:
    rules = load(file)
    for rule in rules.rules:
        language: Language = "tesla" if file.endswith(".tesla") else "sase"
        again = parse_rules([Source(print_rule(rule, language), "again", language)], rules.types.values(), functions())
        assert again.rules == (rule,)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_engine_finds_the_matches_derived_by_hand(case: PaperCase) -> None:
    rules = load(case.file)
    events = case.trace(rules.types)
    rule = rule_of(case.file, case.rule)
    types = {event.event_type.name: event.event_type for event in events} | rules.types
    engine = Engine([rule], types.values(), functions=functions(), remote=tables(case))
    found = [*engine.feed(events), *engine.close()]
    repeated = repeated_roles(rule.pattern.root)
    matches = [(as_match([(role, row[0]) for role, row in each.parts()], repeated), each.attributes) for each in found]
    assert by_time(matches) == expected_of(case)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_oracle_finds_the_matches_derived_by_hand(case: PaperCase) -> None:
    rules = load(case.file)
    events = case.trace(rules.types)
    rule = rule_of(case.file, case.rule)
    times: dict[tuple[str, int] | str, int] = {(event.node, event.seq): event.ts for event in events}
    repeated = repeated_roles(rule.pattern.root)
    found = [
        (as_match([(role, times[identity]) for role, identity in match.parts], repeated), dict(match.attributes))
        for match in evaluate([rule], events, functions=functions(), remote=tables(case))
    ]
    assert by_time(found) == expected_of(case)


def test_r1_is_a_chain_whose_parameter_is_resolved_away() -> None:
    same_area = Binary("=", Attribute("Temp", "area"), Attribute("Smoke", "area"))
    hot = Binary(">", Attribute("Temp", "value"), Constant(45))
    steps = (Selection(Leaf("Temp", "Temp"), "each", Within(MINUTES_5, "Smoke")),)
    assert rule_of("r1.tesla", "R1") == Rule(
        "R1",
        Pattern(Chain(Leaf("Smoke", "Smoke"), steps), (same_area, hot)),
        "Fire",
        (
            OutputAttribute("area", "string", Attribute("Smoke", "area")),
            OutputAttribute("measuredTemp", "float", Attribute("Temp", "value")),
        ),
    )


def test_r2_has_an_absence_within_a_time() -> None:
    steps = (Absence(Leaf("Rain", "Rain"), Within(MINUTES_5, "Temp")),)
    assert rule_of("r2.tesla", "R2").pattern.root == Chain(Leaf("Temp", "Temp"), steps)


def test_r3_binds_the_average_to_a_parameter_and_compares_it() -> None:
    rule = rule_of("r3.tesla", "R3")
    steps = (Aggregate("t", "avg", Leaf("Temp", "Temp"), "value", Within(MINUTES_5, "Smoke")),)
    assert rule.pattern == Pattern(
        Chain(Leaf("Smoke", "Smoke"), steps),
        (
            Binary("<", Constant(45), Parameter("t")),
            Binary("=", Attribute("Temp", "area"), Attribute("Smoke", "area")),
        ),
    )
    assert rule.attributes[1] == OutputAttribute("measuredTemp", "float", Parameter("t"))


def test_r6_has_an_absence_between_two_events() -> None:
    root = rule_of("r6.tesla", "R6").pattern.root
    assert isinstance(root, Chain)
    assert root.steps[-1] == Absence(Leaf("D", "D"), Between("C", "B"))


def test_listing_1_is_a_sequence_with_two_branches() -> None:
    pattern = rule_of("listing1.sase", "Fraud").pattern
    denied = Sequence((Leaf("d", "D"), Leaf("t2", "T")))
    raised = Sequence((Leaf("l", "L"), Leaf("t3", "T")))
    assert pattern.root == Sequence((Leaf("t1", "T"), Disjunction((denied, raised))), Window(MINUTES_5, "us", "span"))
    known = Remote("locations", (Attribute("t1", "user"),))
    assert Binary("not in", Attribute("t2", "loc"), known) in pattern.where
    assert Binary(">", Attribute("t1", "vol"), Constant(10_000)) in pattern.where
    assert Same(Attribute("", "cc")) in pattern.where


def test_listing_2_counts_events_in_its_second_window() -> None:
    root = rule_of("listing2.sase", "Q2").pattern.root
    assert isinstance(root, Sequence)
    assert root.window == Window(50_000, "events", "span")


def test_listing_3_repeats_a_group_and_compares_what_a_function_makes_of_it() -> None:
    pattern = rule_of("listing3.sase", "Bushfire").pattern
    group = Repetition((Leaf("a", "Satellite"), Leaf("b", "Satellite"), Leaf("c", "Satellite")))
    assert pattern.root == Sequence((group,), Window(3_600 * SECOND_US, "us", "span"))
    assert Same(Call("OVERLAP", (Attribute("", "boundary"),))) in pattern.where
    levels = Call("UDF1", (Attribute("a", "level"), Attribute("b", "level")))
    assert Binary("=", levels, Constant("high")) in pattern.where


def test_inev_trees_name_roles_after_types() -> None:
    window = Window(60 * SECOND_US, "us", "span")
    both = Conjunction((Leaf("B", "B"), Leaf("C", "C")))
    assert rule_of("inev.sase", "Tree").pattern.root == Sequence((Leaf("A", "A"), both, Leaf("D", "D")), window)
    absent = Sequence((Leaf("A", "A"), Negation(Leaf("B", "B")), Leaf("C", "C")), window)
    assert rule_of("inev.sase", "Absent").pattern.root == absent
    closure = Sequence((Leaf("A", "A"), Repetition((Leaf("B", "B"),)), Leaf("C", "C")), window)
    assert rule_of("inev.sase", "Closure").pattern.root == closure


def test_ced_windows_bound_the_ends() -> None:
    inner = Conjunction((Leaf("e1", "e1"), Leaf("e2", "e2")), Window(3 * SECOND_US, "us", "ends"))
    outer = Sequence((inner, Leaf("e3", "e3")), Window(5 * SECOND_US, "us", "ends"))
    assert rule_of("ced.sase", "Nested").pattern.root == outer
    assert rule_of("ced.sase", "One").pattern.root == Disjunction((Leaf("e1", "e1"), Leaf("e2", "e2")))
