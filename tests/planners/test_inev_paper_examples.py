"""Every worked example of the INEv paper. Its figures have no drawn topology; this one meets every printed number.

One number cannot be met: plan II's 21 links for C. A tree from each of the three sources of C to all sources of B
(3 to 9) has 7 links, 21 in all; but query q2 at the sources of D needs C at node 11 as well, and that is one more each.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from headwater.coordinator.inev.model.case_costs import CaseCosts
from headwater.coordinator.inev.model.latency import hops_within, latencies, latency, partial_matches
from headwater.coordinator.inev.model.patterns import leaves, parse, project
from headwater.coordinator.inev.model.problem import EventNetwork, Problem, Query, event_network, primitive
from headwater.coordinator.inev.plan.plans import Plan, Vertex, plan_from, transmission_cost
from headwater.coordinator.inev.plan.well_formed import faults, forwarding_faults
from headwater.coordinator.inev.search.baselines import best_centre, central_costs, centralised
from headwater.coordinator.inev.search.paper import combination, suitable
from headwater.coordinator.inev.search.query_search import QuerySearch
from headwater.coordinator.inev.search.space import Solution, Space, Stream

LINKS = [(1, 2), (2, 7), (7, 11), (3, 4), (4, 5), (5, 6), (6, 7), (7, 8), (8, 9), (9, 12), (5, 10)]
SOURCES = {"A": [1], "B": [3, 4, 5, 6, 7, 8, 9], "C": [2, 10, 12], "D": [6, 11]}
RATES = {"A": 1.0, "B": 30.0, "C": 20.0, "D": 10.0}
Q1, Q2 = "SEQ(A, AND(B, C))", "SEQ(A, C, D)"
"""The text does not print q1: it reads A, B and C, and SEQ(A, C) is one of its projections."""
PAIRS = {frozenset("AC"): 0.05, frozenset("BC"): 0.1, frozenset("CD"): 0.2}
SINGLE = {("C", frozenset("AC")): 0.3, ("A", frozenset("AC")): 0.9}


def figure_1() -> EventNetwork:
    names = [str(node) for node in range(1, 13)]
    links = [(str(one), str(other)) for one, other in LINKS]
    rates = {type: {str(node): RATES[type] for node in nodes} for type, nodes in SOURCES.items()}
    return event_network(names, links, rates)


def problem(*texts: str) -> Problem:
    network = figure_1()
    queries = tuple(Query(text, parse(text), PAIRS) for text in texts)
    return Problem(network, queries, CaseCosts(network, SINGLE))


def at(number: int) -> int:
    """A node of the figure as the planner numbers it."""
    return number - 1


def the_space(*texts: str) -> tuple[Space, dict[str, int]]:
    space = Space(problem(*texts))
    known = {type: space.type_number[type] for type in space.types}
    for query in space.problem.queries:
        for types in query.subsets():
            projection = query.projection(types)
            known[projection.text] = space.number(projection)
    return space, known


def links_of(plan: Plan, text: str) -> int:
    return sum(each.links.bit_count() for each in plan.transfers if each.source.projection.text == text)


def test_example_1_sources_rates_and_the_path_from_12_to_7() -> None:
    network = figure_1()
    assert set(network.rates) == {"A", "B", "C", "D"}
    assert len(network.names) == 12
    assert network.sources("D") == (at(6), at(11))
    assert network.total("C") == 3 * RATES["C"] > network.total("A")
    path = network.topology.path(at(12), at(7))
    assert [network.topology.links[number] for number in path] == [(at(9), at(12)), (at(8), at(9)), (at(7), at(8))]


def test_centralised_evaluation_at_node_6_costs_3_a_12_b_8_c_2_d() -> None:
    space, _ = the_space("AND(A, B, C, D)")
    expected = 3 * RATES["A"] + 12 * RATES["B"] + 8 * RATES["C"] + 2 * RATES["D"]
    assert central_costs(space)[at(6)] == pytest.approx(expected)
    assert best_centre(space) == at(6)
    assert centralised(space.problem).cost == pytest.approx(expected)


def test_example_2_the_pair_serves_both_queries() -> None:
    second = Query(Q2, parse(Q2), PAIRS)
    assert str(project(second.core, frozenset("AC"))) == "SEQ(A, C)"
    assert second.projection(frozenset("AC")).selectivity == 0.05
    first = Query(Q1, parse(Q1), PAIRS)
    assert first.projection(frozenset("AC")).key == second.projection(frozenset("AC")).key


def plan_one() -> Plan:
    space, number = the_space(Q1, Q2)
    of_c = space.nodes + number["C"]
    pair = number["SEQ(A, C)"]
    first, second = (number["SEQ(A, AND(B, C))"], at(6)), (number["SEQ(A, C, D)"], at(6))
    raw = {type: space.raw(number[type]) for type in space.types}
    tasks: dict[tuple[int, int], tuple[Stream, ...]] = {
        (pair, of_c): (raw["A"], raw["C"]),
        first: (Stream(pair, of_c), raw["B"]),
        second: (Stream(pair, of_c), raw["D"]),
    }
    return plan_from(space, Solution(tasks, (first, second)), "plan I")


def plan_two(*texts: str) -> Plan:
    """Plan II: of SEQ(A, C) only the C events are sent, to the sources of B and D, where A is anyway."""
    space, number = the_space(*texts)
    of = {type: space.nodes + number[type] for type in space.types}
    raw = {type: space.raw(number[type]) for type in space.types}
    pair = number["SEQ(A, C)"]
    chosen = Stream(pair, of["C"], 1 << number["C"])
    tasks: dict[tuple[int, int], tuple[Stream, ...]] = {(pair, of["C"]): (raw["A"], raw["C"])}
    finals = []
    for text, type in ((Q1, "B"), (Q2, "D")):
        if text in texts:
            finals.append((number[text], of[type]))
            tasks[finals[-1]] = (raw[type], chosen, raw["A"])
    return plan_from(space, Solution(tasks, tuple(finals)), "plan II")


def test_example_2_the_combination_of_figure_2() -> None:
    plan = plan_one()
    inputs = {task.projection.text: {read.projection.text for read in task.inputs} for task in plan.tasks}
    assert inputs == {"SEQ(A, C)": {"A", "C"}, Q1: {"SEQ(A, C)", "B"}, Q2: {"SEQ(A, C)", "D"}}


def test_examples_3_and_4_plan_one() -> None:
    plan = plan_one()
    assert faults(plan) == []
    places = {task.projection.text: [node + 1 for node in task.nodes] for task in plan.tasks}
    assert places == {"SEQ(A, C)": [2, 10, 12], "SEQ(A, AND(B, C))": [6], "SEQ(A, C, D)": [6]}
    assert (links_of(plan, "A"), links_of(plan, "SEQ(A, C)"), links_of(plan, "B"), links_of(plan, "D")) == (8, 8, 12, 2)
    rate = plan.problem.costs.rate(plan.tasks[0].projection)
    assert plan.cost == pytest.approx(8 * RATES["A"] + 8 * rate / 3 + 12 * RATES["B"] + 2 * RATES["D"])
    to_two = plan.problem.network.topology.spanning([at(1), at(2)])
    assert plan.problem.network.topology.link_names(to_two) == [(at(1), at(2))]


def test_example_5_plan_two_sends_only_c_where_a_is_anyway() -> None:
    plan = plan_two(Q1, Q2)
    assert faults(plan) == []
    selected = {each.source.sent for each in plan.transfers if each.source.projection.text == "SEQ(A, C)"}
    assert selected == {frozenset("C")}
    assert links_of(plan, "A") == 11
    assert links_of(plan, "B") == links_of(plan, "D") == links_of(plan, "C") == 0
    topology = plan.problem.network.topology
    to_b = [topology.spanning([at(node), *map(at, SOURCES["B"])]).bit_count() for node in SOURCES["C"]]
    assert sum(to_b) == 21
    # Node 11 hangs from node 7 by one link more, which the printed 21 leaves out.
    assert links_of(plan, "SEQ(A, C)") == 24
    assert plan.cost == pytest.approx(11 * RATES["A"] + 24 * 0.3 * RATES["C"])
    assert plan.cost < plan_one().cost < centralised(plan.problem).cost


def figure_3() -> Plan:
    return plan_two(Q2)


def vertices_of(plan: Plan, text: str) -> list[Vertex]:
    return [vertex for vertex in plan.vertices if vertex.projection.text == text]


def test_example_6_the_vertices_of_figure_3() -> None:
    plan = figure_3()
    assert faults(plan) == []
    shown = [(vertex.projection.text, vertex.node + 1) for vertex in plan.vertices]
    raw = [("A", 1), ("C", 2), ("C", 10), ("C", 12), ("D", 6), ("D", 11)]
    assert shown == [*raw, *(("SEQ(A, C)", n) for n in (2, 10, 12)), *(("SEQ(A, C, D)", n) for n in (6, 11))]
    pair = vertices_of(plan, "SEQ(A, C)")
    assert all(vertex.sent == frozenset("C") for vertex in pair)
    assert all(vertex.sent == frozenset() for vertex in vertices_of(plan, "C"))
    reached = plan.problem.network.topology.nodes_of(pair[0].links) - {at(2)}
    assert {node + 1 for node in reached} == {6, 7, 11}
    for vertex in vertices_of(plan, "SEQ(A, C, D)"):
        read = {plan.vertices[part].projection.text for part in vertex.parts}
        assert read == {"A", "SEQ(A, C)", "D"}


def test_example_7_a_reaches_node_2_and_forwarding_without_it_is_refused() -> None:
    plan = figure_3()
    (a,) = vertices_of(plan, "A")
    topology = plan.problem.network.topology
    assert at(2) in topology.nodes_of(a.links)
    cut = [
        vertex if vertex is not a else Vertex(a.projection, a.node, 0, a.sent, a.parts, a.split_by, a.share, a.of)
        for vertex in plan.vertices
    ]
    sentences = list(forwarding_faults(cut, plan.problem))
    assert "A of 1 does not reach 2, where SEQ(A, C) needs it" in sentences
    assert any("because SEQ(A, C) of 2 does not send it" in sentence for sentence in sentences)


def test_example_8_the_pair_is_split_by_c_at_the_sources_of_c() -> None:
    plan = figure_3()
    (task,) = [task for task in plan.tasks if task.projection.text == "SEQ(A, C)"]
    assert task.placement.split_by == "C"
    assert sorted(task.nodes) == sorted(vertex.node for vertex in vertices_of(plan, "C"))


def test_example_9_costs_of_vertices() -> None:
    plan = figure_3()
    (a,) = vertices_of(plan, "A")
    assert transmission_cost(vertices_of(plan, "C")[1], plan.problem) == 0
    # For q2 alone A need not go everywhere; to all nodes it has the printed eleven links.
    everywhere = plan.problem.network.topology.spanning(range(12))
    whole = Vertex(a.projection, a.node, everywhere, None, share=1.0)
    assert transmission_cost(whole, plan.problem) == pytest.approx(11 * RATES["A"])
    for vertex in vertices_of(plan, "SEQ(A, C)"):
        rate = transmission_cost(vertex, plan.problem) / vertex.links.bit_count()
        assert rate == pytest.approx(RATES["C"] * 0.3)
    assert sum(transmission_cost(vertex, plan.problem) for vertex in plan.vertices) == pytest.approx(plan.cost)


def test_example_10_two_hops_from_node_10_to_node_6() -> None:
    plan = figure_3()
    pair = {vertex.node: vertex for vertex in vertices_of(plan, "SEQ(A, C)")}
    assert hops_within(plan.problem, pair[at(10)])[at(6)] == 2


def test_latency_adds_work_and_hops_along_the_slowest_way() -> None:
    plan = figure_3()
    values = latencies(plan.vertices, plan.problem, 0.5)
    found = {
        (vertex.projection.text, vertex.node + 1): value for vertex, value in zip(plan.vertices, values, strict=True)
    }
    pair = plan.problem.queries[0].projection(frozenset("AC"))
    assert partial_matches(pair, plan.problem) == RATES["A"]
    assert found["C", 2] == 0
    assert found["SEQ(A, C)", 2] == pytest.approx(0.5 * RATES["A"] / 3 + 1)
    assert found["SEQ(A, C)", 12] == pytest.approx(0.5 * RATES["A"] / 3 + 5)
    query = plan.problem.queries[0].projection(frozenset("ACD"))
    work = RATES["A"] + plan.problem.costs.rate(pair)
    assert partial_matches(query, plan.problem) == pytest.approx(work)
    assert found["SEQ(A, C, D)", 6] == pytest.approx(0.5 * work / 2 + 4 + found["SEQ(A, C)", 12])
    assert latency(plan, 0.5) == max(value for (text, _), value in found.items() if text == "SEQ(A, C, D)")


def test_rates_follow_the_printed_definition() -> None:
    network = figure_1()
    costs = CaseCosts(network, {})
    query = Query("q", parse("AND(A, NSEQ(B, C, D))"), PAIRS)
    whole = query.projection(frozenset("ABCD"))
    assert list(leaves(whole.pattern)) == ["A", "B", "C", "D"]
    local = 2 * RATES["A"] * RATES["B"] * RATES["D"]
    assert costs.rate(whole) == pytest.approx(local * 1 * 7 * 3 * 2 * 0.05 * 0.1 * 0.2)
    assert primitive("A").primitive


# Misprints ----------------------------------------------------------------------------------------------------------


def test_a_projection_is_suitable_if_its_rate_is_below_that_of_its_types() -> None:
    """Section 6.1 prints the opposite sign, against its own next sentence."""
    space, numbered = the_space(Q1, Q2)
    first, second = (QuerySearch(space, number) for number in (0, 1))
    found = {
        space.projections[query.projection[mask]].text: suitable(space, query, mask)
        for query in (first, second)
        for mask in query.sets
    }
    assert {text for text, good in found.items() if not good} == {"AND(B, C)", "SEQ(C, D)"}
    assert space.rates[numbered["SEQ(A, C)"]] < space.rates[numbered["A"]] + space.rates[numbered["C"]]
    assert space.rates[numbered["SEQ(C, D)"]] > space.rates[numbered["C"]] + space.rates[numbered["D"]]


@pytest.mark.parametrize(("which", "split"), [(0, "B"), (1, "D")])
def test_algorithm_1_takes_the_inputs_that_save_most(which: int, split: str) -> None:
    """It prints a comparison by which those that save least would be taken. On the example it finds plan II."""
    space, _ = the_space(Q1, Q2)
    query = QuerySearch(space, which)
    found = combination(space, query, set(), set())
    read = {space.projections[query.projection[mask]].text for mask in found.inputs[query.whole]}
    assert read == {"SEQ(A, C)", split}
    assert found.split[query.whole] == query.query.types.index(split)
    pair = next(mask for mask in query.sets if space.projections[query.projection[mask]].text == "SEQ(A, C)")
    assert found.split[pair] == query.query.types.index("C")


def test_the_number_of_links_multiplies_both_terms_of_the_cost_of_a_vertex() -> None:
    """As printed it would multiply the first term alone, and what is split would cross the network for nothing."""
    plan = figure_3()
    pair = vertices_of(plan, "SEQ(A, C)")[0]
    both = replace(pair, sent=frozenset("AC"))
    links = both.links.bit_count()
    assert links == 3
    expected = links * (SINGLE["A", frozenset("AC")] * RATES["A"] + SINGLE["C", frozenset("AC")] * RATES["C"])
    assert transmission_cost(both, plan.problem) == pytest.approx(expected)
    assert transmission_cost(pair, plan.problem) == pytest.approx(links * 0.3 * RATES["C"])


def test_only_what_an_output_selector_leaves_out_must_come_from_elsewhere() -> None:
    """Definition 2(ii) as printed asks for all types of the reader but those that are selected: then D of node 6 would
    have to reach node 11, where q2 is split by D and needs its own D only."""
    plan = figure_3()
    topology = plan.problem.network.topology
    d = {vertex.node: vertex for vertex in vertices_of(plan, "D")}
    assert at(11) not in topology.nodes_of(d[at(6)].links)
    assert list(forwarding_faults(plan.vertices, plan.problem)) == []
    (a,) = vertices_of(plan, "A")
    to_eleven = topology.spanning([at(7), at(11)])
    cut = [vertex if vertex is not a else replace(a, links=a.links & ~to_eleven) for vertex in plan.vertices]
    (sentence, *others) = sorted(set(forwarding_faults(cut, plan.problem)))
    assert sentence == "A of 1 does not reach 11, where SEQ(A, C, D) needs it"
    assert len(others) == 3
    assert all("does not reach 11" in other and "does not send it" in other for other in others)
