"""Query patterns, event networks and case files: what they mean, and what is refused with which sentence."""

from __future__ import annotations

import copy
import json
import math
import pickle
from pathlib import Path
from typing import Any

import pytest

from benchmarks.inev_cases import random_case
from headwater.coordinator.inev.model.case_costs import estimate
from headwater.coordinator.inev.model.case_files import case_from, read_case
from headwater.coordinator.inev.model.patterns import (
    PatternError,
    checked,
    guards,
    negation_closed,
    order,
    parse,
    project,
    same_as,
    serves,
    subsets,
)
from headwater.coordinator.inev.model.problem import ProblemError, Query
from headwater.coordinator.inev.model.role_types import RoleType, born_type
from headwater.coordinator.inev.plan.well_formed import faults
from headwater.coordinator.inev.search.search import inev_plan
from headwater.protocol.errors import ConfigError
from tests.planners.case_file import CASE

CASES = Path(__file__).parent / "inev_cases"


@pytest.mark.parametrize(
    ("types", "text"),
    [
        ("EB", "AND(E, B)"),
        ("BCF", "SEQ(B, AND(C, F))"),
        ("FA", "SEQ(F, A)"),
        ("C", "C"),
        ("EBCFGA", "AND(E, SEQ(B, AND(C, SEQ(F, G, A))))"),
    ],
)
def test_a_projection_keeps_the_operators_between_its_types(types: str, text: str) -> None:
    assert str(project(parse("AND(E, SEQ(B, AND(C, SEQ(F, G, A))))"), frozenset(types))) == text


def test_a_projection_with_a_negated_type_has_all_that_it_lies_between() -> None:
    query = parse("SEQ(NSEQ(N, L, D), AND(H, G))")
    assert guards(query) == ((frozenset("L"), frozenset("ND")),)
    assert negation_closed(query, frozenset("NLD"))
    assert not negation_closed(query, frozenset("NLH"))
    assert str(project(query, frozenset("NDH"))) == "SEQ(SEQ(N, D), H)"
    assert frozenset("LH") not in set(subsets(query))
    assert all("L" not in types or {"N", "D"} <= types for types in subsets(query))


def test_a_repetition_is_replaced_by_its_type_and_never_splits() -> None:
    query = Query("q", parse("SEQ(A, KL(B), NSEQ(C, D, E))"), {})
    assert str(query.core) == "SEQ(A, B, NSEQ(C, D, E))"
    assert query.splitting == ("A", "C", "E")


def test_the_order_of_an_and_does_not_matter_and_that_of_a_seq_does() -> None:
    assert same_as(parse("AND(A, SEQ(B, C))")) == same_as(parse("AND(SEQ(B, C), A)"))
    assert same_as(parse("SEQ(A, B)")) != same_as(parse("SEQ(B, A)"))
    assert order(parse("SEQ(A, AND(B, C))")) == {("A", "B"), ("A", "C")}


def test_matches_without_an_order_serve_a_task_that_checks_it_above() -> None:
    assert serves(parse("AND(J, C)"), parse("SEQ(C, J)"))
    assert not serves(parse("SEQ(C, J)"), parse("AND(J, C)"))
    assert not serves(parse("AND(J, C)"), parse("AND(J, K)"))


def test_projections_are_shared_only_where_windows_and_predicates_agree() -> None:
    one = Query("one", parse("AND(A, B, C)"), {}, 5.0, {frozenset("AB"): "a.x = b.x"})
    other = Query("other", parse("AND(A, B, D)"), {}, 5.0, {frozenset("AB"): "a.x = b.x"})
    longer = Query("longer", parse("AND(A, B, D)"), {}, 9.0, {frozenset("AB"): "a.x = b.x"})
    looser = Query("looser", parse("AND(A, B, D)"), {}, 5.0, {})
    pair = frozenset("AB")
    assert one.projection(pair).key == other.projection(pair).key
    for different in (longer, looser):
        assert not one.takes(different.projection(pair), one.projection(pair))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("SEQ(A, B", "close the bracket of SEQ"),
        ("SEQ(A,, B)", "a type or an operator must stand where ',' does"),
        ("SEQ(A B)", "a comma must stand before 'B'"),
        ("SEQ(A) B", "nothing may follow"),
        ("TIMES(A, B)", "unknown operator 'TIMES'; operators are AND, SEQ, NSEQ, KL, OR"),
        ("SEQ(A, 7)", "cannot read '7)'"),
        ("", "ends too early"),
    ],
)
def test_text_that_is_no_query_is_refused_with_the_place(text: str, sentence: str) -> None:
    with pytest.raises(PatternError, match=sentence.replace("(", r"\(").replace(")", r"\)")):
        parse(text)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("SEQ(A, B, A)", "names A twice"),
        ("SEQ(A, KL(KL(B)))", "a repetition inside another finds nothing new; write one KL"),
        ("SEQ(A, KL(SEQ(B, C)))", "KL repeats one event type"),
        ("NSEQ(A, B)", "NSEQ has three parts"),
        ("NSEQ(A, OR(B, C), D)", "an OR under negation"),
        ("NSEQ(A, KL(B), D)", "neither negation nor repetition"),
    ],
)
def test_queries_that_cannot_be_planned_say_what_to_change(text: str, sentence: str) -> None:
    with pytest.raises(PatternError, match=sentence):
        checked(parse(text), text)


def test_or_becomes_several_queries() -> None:
    assert [str(found) for found in checked(parse("SEQ(A, OR(B, AND(C, D)))"), "q")] == [
        "SEQ(A, B)",
        "SEQ(A, AND(C, D))",
    ]
    many = "AND(" + ", ".join(f"OR(A{n}, B{n})" for n in range(7)) + ")"
    with pytest.raises(PatternError, match="more than 64 alternatives"):
        checked(parse(many), "many")


# Case files ---------------------------------------------------------------------------------------------------------


def a_case(**changes: Any) -> dict[str, Any]:
    return {**copy.deepcopy(CASE), **changes}


def types(**changes: Any) -> dict[str, Any]:
    return {**a_case()["event_types"], **changes}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"edges": [[0, 1]]}, "falls into 2 parts that no link joins .2 cannot reach the rest.; add links"),
        ({"edges": [[0, 1], [1, 9]]}, "ends at 9, which is not among the nodes"),
        ({"edges": [[0, 1], [1, 1], [1, 2]]}, "from a node to itself"),
        ({"nodes": []}, "no nodes"),
        ({"nodes": [0, 1, 2, 2]}, "node 2 is named twice"),
        ({"event_types": types(A={"local_rate": 2, "sources": []})}, "event type A has no source"),
        ({"queries": ["SEQ(A, X)"]}, "reads X, which no node produces"),
        ({"event_types": types(A={"local_rate": 0, "sources": [0]})}, "rate is 0; take the source out"),
        ({"event_types": types(A={"local_rate": -1, "sources": [0]})}, "cannot be negative"),
        ({"event_types": types(A={"local_rate": math.inf, "sources": [0]})}, "infinite; write the rate"),
        ({"event_types": types(A={"local_rate": math.nan, "sources": [0]})}, "is not a number"),
        ({"event_types": types(A={"local_rate": "2", "sources": [0]})}, "is not a number"),
        ({"event_types": types(A={"local_rate": 2, "sources": [8]})}, "source at 8, which is not among the nodes"),
        ({"event_types": types(A={"sources": [0]})}, "needs a 'local_rate' and a list of 'sources'"),
        ({"pairwise_selectivities": {"AB": 0}}, "pairwise selectivity AB: 0 is not a selectivity; write the share"),
        ({"pairwise_selectivities": {"AB": 1.5}}, "above 0 and at most 1"),
        ({"pairwise_selectivities": {"AB": -0.1}}, "above 0 and at most 1"),
        ({"pairwise_selectivities": {"AX": 0.1}}, "does not name two of the event types"),
        ({"pairwise_selectivities": {"AB": 0.1, "BA": 0.2}}, "given twice with different values"),
        ({"single_selectivities": {"A|AB": 2}}, "single selectivity A.AB: 2 is not a selectivity"),
        ({"single_selectivities": {"A": 0.5}}, "must be written as type.types"),
        ({"queries": []}, "no query to plan for"),
        ({"queries": [7]}, "query 1 is 7; write it as a text"),
        ({"queries": ["SEQ(A, A)"]}, "names A twice"),
        ({"format": "other"}, "'format' is 'other' and must be 'inev-case-1'"),
        ({"edges": 5}, "field 'edges' is missing or is not a list"),
    ],
)
def test_bad_cases_are_refused_with_what_to_change(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        case_from(a_case(**changes), "case")


def test_a_file_that_is_no_case_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match="cannot read"):
        read_case(tmp_path / "missing.json")
    broken = tmp_path / "broken.json"
    broken.write_text("{", encoding="utf-8")
    with pytest.raises(ProblemError, match="is not JSON"):
        read_case(broken)
    broken.write_bytes(b"\xff\xfe")
    with pytest.raises(ProblemError, match="UTF-8"):
        read_case(broken)
    broken.write_text(json.dumps(a_case(nodes=[])), encoding="utf-8")
    with pytest.raises(ProblemError, match=r"broken\.json: the network has no nodes"):
        read_case(broken)


@pytest.mark.parametrize("queries", [["A"], ["A", "SEQ(A, B)"], ["KL(A)"], ["SEQ(A, OR(B, C))"], ["OR(A, AND(B, C))"]])
def test_queries_of_one_type_and_alternatives_are_planned(queries: list[str]) -> None:
    plan = inev_plan(case_from(a_case(queries=queries), "case").problem)
    assert faults(plan) == []
    assert set(plan.finals) == {query.name for query in plan.problem.queries}
    # Events of one type are complete where they are born; what a repetition is made of must come together.
    assert (plan.cost == 0) == (queries == ["A"])


def test_rates_of_a_case_are_those_that_its_file_tells() -> None:
    given = json.loads((CASES / "c01.json").read_text(encoding="utf-8"))
    problem = read_case(CASES / "c01.json").problem
    (query,) = problem.queries
    assert given["projections"]
    for text, told in given["projections"].items():
        projection = query.projection(frozenset(told["types"]))
        assert same_as(projection.pattern) == same_as(parse(text))
        assert problem.costs.rate(projection) == pytest.approx(told["total_rate"])
        assert projection.selectivity == pytest.approx(told["selectivity"])
    assert problem.network.topology.typical_distance == pytest.approx(given["delta"])


def test_the_estimate_counts_types_that_must_travel() -> None:
    # Nothing of SEQ(A, B) is rarer than either type alone, so both travel from all sources but one: 2 of A, none of B.
    problem = case_from(a_case(pairwise_selectivities={}), "case").problem
    assert estimate(problem) == pytest.approx(2.0 * problem.network.topology.typical_distance)


def test_random_cases_are_the_same_for_the_same_seed() -> None:
    assert random_case(7, queries=3, negation=True) == random_case(7, queries=3, negation=True)
    assert random_case(7) != random_case(8)


def test_a_role_that_filters_is_a_type_of_its_own_that_knows_which_events_it_filters() -> None:
    label = RoleType("Temp", "value > 45")
    assert (label, label.name, label.conditions) == ("Temp[value > 45]", "Temp", "value > 45")
    assert (born_type(label), born_type("Temp")) == ("Temp", "Temp")
    copied = pickle.loads(pickle.dumps(label))
    assert (copied, copied.name, copied.conditions) == (label, label.name, label.conditions)
