"""What may be evaluated in parts, and on many nodes; and the graphs of streams that follow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from headwater.coordinator.inev.model.rules import Statistics
from headwater.coordinator.inev.plan.layouts import InevPlanner
from headwater.coordinator.inev.search.baselines import centralised
from headwater.coordinator.layout.graph_building import _Draft, laid
from headwater.coordinator.layout.planner_interface import Ground, at_the_middle, shortest_routes
from headwater.coordinator.layout.stages import Stage, at_one_node, divided
from headwater.protocol.analysis.projection import anonymous, project
from headwater.protocol.events import EventType
from headwater.protocol.graphs import BornHere, Graph, MadeBy, TakenFrom, plan_of, stream_number
from headwater.protocol.languages import Source as Text
from headwater.protocol.languages import parse_rules
from headwater.protocol.messages import control
from headwater.protocol.messages.plans import Adopt, PlannedRule, Share
from headwater.protocol.pattern import Rule, leaves
from headwater.protocol.streams import Filter, Part, Whole
from tests.law.law import check
from tests.law.layouts import twinned
from tests.law.networks import network_case

TYPES = tuple(EventType(name, {"v": "int"}) for name in "ABCD")
SOURCES = {"A": ("n1", "n2"), "B": ("n2",), "C": ("n3",), "D": ("n3", "n1")}


def sase(text: str) -> Rule:
    (rule,) = parse_rules([Text(text, "r.sase", "sase")], TYPES).rules
    return rule


def tesla(text: str) -> Rule:
    (rule,) = parse_rules([Text(text, "r.tesla", "tesla")], TYPES).rules
    return rule


PLAIN = sase("SEQ(A a, B b, C c) WHERE a.v = b.v WITHIN 1 s RETURN R()")
NEGATED = sase("SEQ(A a, !B b, C c) WITHIN 1 s RETURN R()")
KLEENE = sase("SEQ(A a, B+ b[], C c) WITHIN 1 s RETURN R()")
NEXT = sase("SEQ(A a, B b, C c) WITHIN 1 s SKIP TILL NEXT MATCH RETURN R()")
TWICE = sase("SEQ(A a, A a2, C c) WITHIN 1 s RETURN R()")
EITHER = sase("AND(A a, OR(B b, C c)) WITHIN 1 s RETURN R()")
LAST = tesla("define R() from C() and last B() within 1 s from C and each A() within 1 s from B")


def whole(rule: Rule, split: str, nodes: tuple[str, ...] = ("n3",)) -> tuple[Stage, ...]:
    roles = frozenset(leaf for leaf in at_one_node(rule, "n3")[0].roles)
    return (Stage(roles, nodes, split, events=roles),)


@pytest.mark.parametrize(
    ("rule", "role", "may"),
    [
        (PLAIN, "a", True),
        (PLAIN, "b", True),
        (NEGATED, "a", True),
        (NEGATED, "b", False),  # each node would see only its own negated events
        (KLEENE, "a", True),
        (KLEENE, "b", False),  # no node would see all that a repetition is made of
        (NEXT, "a", False),
        (TWICE, "a", False),  # one of the two may be born elsewhere
        (TWICE, "c", True),
        (EITHER, "a", True),
        (EITHER, "b", False),  # every node would find the matches of the other branch
        (LAST, "C", True),
        (LAST, "A", True),
        (LAST, "B", False),
    ],
)
def test_a_rule_is_split_over_nodes_only_by_a_role_of_which_every_match_has_one_event(
    rule: Rule, role: str, may: bool
) -> None:
    (stage,) = divided(rule, whole(rule, role), SOURCES)
    types = {"a": "A", "b": "B", "c": "C", "A": "A", "B": "B", "C": "C"}
    assert (stage.split, stage.nodes) == ((role, SOURCES[types[role]]) if may else (None, ("n3",)))


def test_roles_that_no_partial_rule_may_combine_are_read_as_events() -> None:
    first = Stage(frozenset(("a", "b")), ("n1",), events=frozenset(("a", "b")))
    last = Stage(frozenset(("a", "b", "c")), ("n3",), stages=(0,), events=frozenset("c"))
    pair, end = divided(PLAIN, (first, last), SOURCES)
    assert (pair.roles, end.stages, end.events) == (frozenset(("a", "b")), (0,), frozenset("c"))
    (end,) = divided(NEGATED, (first, last), SOURCES)
    assert (end.stages, end.events) == ((), frozenset(("a", "b", "c")))


def test_a_split_stage_does_not_read_its_own_role_from_everywhere() -> None:
    everywhere = Stage(frozenset(("a", "b")), ("n1",), events=frozenset(("a", "b")))
    last = Stage(frozenset(("a", "b", "c")), ("n3",), "a", stages=(0,), events=frozenset(("a", "c")))
    (end,) = divided(PLAIN, (everywhere, last), SOURCES)
    assert (end.split, end.stages, end.events) == ("a", (), frozenset(("a", "b", "c")))
    alike = Stage(frozenset(("a", "b")), ("n1",), "a", events=frozenset(("a", "b")))
    pair, end = divided(PLAIN, (alike, last), SOURCES)
    assert pair.nodes == end.nodes == ("n1", "n2")
    assert end.stages == (0,)


def test_chains_get_no_role_in_two_ways() -> None:
    first = Stage(frozenset(("C", "B")), ("n2",), events=frozenset(("C", "B")))
    last = Stage(frozenset(("A", "B", "C")), ("n3",), stages=(0,), events=frozenset(("A", "B")))
    assert divided(LAST, (first, last), SOURCES) == at_one_node(LAST, "n3")


def a_ground(*rules: Rule, sinks: Iterable[tuple[str, str]] = (("n1", "R"),)) -> Ground:
    links = (("n1", "n2"), ("n2", "n3"))
    return Ground(("n1", "n2", "n3"), links, SOURCES, tuple(sinks), tuple(PlannedRule(rule, None) for rule in rules))


def test_every_stream_has_one_origin_and_comes_to_a_node_from_one_neighbour() -> None:
    ground = a_ground(PLAIN)
    pair = Stage(frozenset(("a", "b")), ("n1",), "a", events=frozenset(("a", "b")))
    last = Stage(frozenset(("a", "b", "c")), ("n3",), stages=(0,), events=frozenset("c"))
    graphs = laid(ground, {PLAIN.name: (pair, last)}, shortest_routes(ground), "n2", 4, 7)
    assert {graph.tree for graph in graphs.values()} == {"n2"}
    for node, graph in graphs.items():
        assert len({inlet.number for inlet in graph.inlets}) == len(graph.inlets)
        for inlet in graph.inlets:
            (given,) = [each for each in graphs[inlet.neighbour].outlets if each.number == inlet.number]
            assert (given.neighbour, given.stream, plan_of(given.number)) == (node, inlet.stream, 7)
    one, two, three = graphs["n1"], graphs["n2"], graphs["n3"]
    born = BornHere(Filter("A"))
    assert [type(task.stream) for task in one.tasks] == [type(task.stream) for task in two.tasks] == [Part]
    assert all(born in graph.tasks[0].inputs for graph in (one, two)), "each takes its own"
    assert not any(isinstance(inlet.stream, Filter) and inlet.stream.type == "A" for inlet in two.inlets)
    (task,) = three.tasks
    assert isinstance(task.stream, Whole)
    assert task.overlaps, "both nodes may send the same B"
    assert sum(isinstance(tap, TakenFrom) for tap in task.inputs) == 2
    (delivery,) = one.deliveries
    assert isinstance(delivery.source, TakenFrom)
    assert any(outlet.source == MadeBy(task.number) for outlet in three.outlets)


def test_types_that_no_stage_can_use_do_not_travel() -> None:
    ground = a_ground(PLAIN, sinks=(("n1", "Other"),))
    layout, routes = at_the_middle(ground, {})
    assert all(not graph.outlets and not graph.tasks for graph in laid(ground, layout, routes, "n2", 1, 1).values())


def test_what_one_rule_alone_reads_is_filtered_where_it_is_born() -> None:
    hot = sase("Hot: SEQ(A a, B b) WHERE a.v > 5 WITHIN 1 s RETURN R()")
    all_ = sase("All: SEQ(A a, C c) WITHIN 1 s RETURN S()")
    layout, routes = at_the_middle(a_ground(hot), {})
    graphs = laid(a_ground(hot), layout, routes, "n2", 1, 1)
    (sent,) = [outlet.stream for outlet in graphs["n1"].outlets]
    assert isinstance(sent, Filter)
    assert len(sent.where) == 1
    both = a_ground(hot, all_, sinks=(("n1", "R"), ("n1", "S")))
    layout, routes = at_the_middle(both, {})
    graphs = laid(both, layout, routes, "n2", 1, 1)
    assert filters(graphs["n1"], "A") == [Filter("A")]


def test_graphs_travel() -> None:
    ground = a_ground(PLAIN, LAST)
    layout, routes = at_the_middle(ground, {})
    graph = laid(ground, layout, routes, "n2", 1, 1)["n2"]
    share = Share(1, "inev", TYPES, (), 0, None, (), graphs=(graph,))
    ordered = control.Ordered(Adopt(share))
    assert control.decode(control.encode(ordered)) == ordered


def test_numbers_of_streams_tell_their_plan() -> None:
    assert plan_of(stream_number(3, 1)) == plan_of(stream_number(3, 99_999)) == 3
    assert stream_number(1, 1) < 0


def test_a_new_rule_joins_the_others_where_they_are() -> None:
    """The planner is not asked again where the others should be."""
    first = sase("First: SEQ(A a, B b) WITHIN 1 s RETURN R()")
    second = sase("Second: SEQ(B b, C c) WITHIN 1 s RETURN S()")
    planner = InevPlanner(Statistics({"A": {"": 100.0}, "B": {"": 1.0}, "C": {"": 1.0}}), attempts=50)
    alone, _ = planner(a_ground(first), {})
    there = at_one_node(first, "n3")
    assert alone["First"] != there
    both = a_ground(first, second, sinks=(("n1", "R"), ("n1", "S")))
    layout, _ = planner(both, {"First": there})
    assert layout["First"] == there
    assert layout["Second"] == planner(a_ground(second, sinks=(("n1", "S"),)), {})[0]["Second"]


def test_rules_that_read_a_type_in_many_ways_are_never_laid_out_dearer_than_at_one_node() -> None:
    """Each condition makes a stream of its own of A, but the bodies of all of them cross a link once."""
    rules = [sase(f"Q{least}: SEQ(A a, D d) WHERE a.v > {least} WITHIN 1 s RETURN Q{least}()") for least in range(6)]
    ground = a_ground(*rules, sinks=[("n3", rule.name) for rule in rules])
    passing = {rule.name: {frozenset("a"): 0.9, frozenset("ad"): 0.5} for rule in rules}
    plan = InevPlanner(Statistics({"A": {"": 10.0}, "D": {"": 5.0}}, passing)).plan(ground, {})
    assert plan is not None
    assert plan.cost <= centralised(plan.problem).cost * (1 + 1e-9)


# Output selectors and shared stages ----------------------------------------------------------------------------------


def selecting(rule: Rule, roles: Iterable[str], left_out: Iterable[str], at: str = "n2") -> tuple[Stage, Stage]:
    """A stage for some roles, and the rest at n3, which reads the left out roles as events."""
    everything = at_one_node(rule, "n3")[0].roles
    first = Stage(frozenset(roles), (at,), events=frozenset(roles))
    beside = everything - frozenset(roles) | frozenset(left_out)
    return first, Stage(everything, ("n3",), None, (0,), beside, frozenset((0, role) for role in left_out))


def filters(graph: Graph, name: str) -> list[Filter]:
    """What a node sends of the events of a type."""
    streams = [outlet.stream for outlet in graph.outlets]
    return [stream for stream in streams if isinstance(stream, Filter) and stream.type == name]


def test_what_a_reader_gets_anyway_is_left_out_of_a_stage() -> None:
    pair, last = divided(PLAIN, selecting(PLAIN, "ab", "a"), SOURCES)
    assert last.left_out == {(0, "a")}
    assert last.taken(0, pair.roles) == {"b"}
    ground = a_ground(PLAIN)
    graphs = laid(ground, {PLAIN.name: selecting(PLAIN, "ab", "a")}, shortest_routes(ground), "n2", 4, 7)
    (given,) = [each.stream for each in graphs["n2"].outlets if isinstance(each.stream, Part)]
    assert given.heard == ("A",)
    (task,) = graphs["n3"].tasks
    assert not task.overlaps, "A comes as events alone, B from the stage alone"


def test_a_reader_without_the_events_gets_them_from_the_stage() -> None:
    first, last = selecting(PLAIN, "ab", "a")
    _, last = divided(PLAIN, (first, replace(last, events=frozenset("c"))), SOURCES)
    assert not last.left_out


def test_a_type_with_several_roles_is_left_out_for_all_of_them_or_for_none() -> None:
    rule = sase("SEQ(A a, A a2, B b, C c) WITHIN 1 s RETURN R()")
    stages = selecting(rule, ("a", "a2", "b"), ("a",))
    assert not divided(rule, stages, SOURCES)[1].left_out
    stages = selecting(rule, ("a", "a2", "b"), ("a", "a2"))
    assert divided(rule, stages, SOURCES)[1].left_out == {(0, "a"), (0, "a2")}


def test_a_stage_of_which_everything_is_left_out_is_not_evaluated() -> None:
    (last,) = divided(PLAIN, selecting(PLAIN, "ab", "ab"), SOURCES)
    assert (last.stages, last.events) == ((), frozenset("abc"))


def test_readers_with_different_selectors_get_streams_of_their_own() -> None:
    four = sase("SEQ(A a, B b, C c, D d) WITHIN 1 s RETURN R()")
    ground = a_ground(four)
    pair = Stage(frozenset("ab"), ("n2",), events=frozenset("ab"))
    three = Stage(frozenset("abc"), ("n3",), None, (0,), frozenset("ac"), frozenset({(0, "a")}))
    last = Stage(frozenset("abcd"), ("n1",), None, (0, 1), frozenset("d"))
    graphs = laid(ground, {four.name: (pair, three, last)}, shortest_routes(ground), "n2", 4, 7)
    parts = [each.stream.heard for each in graphs["n2"].outlets if isinstance(each.stream, Part)]
    assert sorted(parts) == [(), (), ("A",)], "the pair for n1 and, without A, for n3; and what n3 found on its way"


def test_chains_leave_out_what_comes_as_events() -> None:
    pair, last = divided(LAST, selecting(LAST, "BC", "C"), SOURCES)
    assert last.taken(0, pair.roles) == {"B"}
    assert last.events == {"A", "C"}
    ground = a_ground(LAST)
    graphs = laid(ground, {LAST.name: selecting(LAST, "BC", "C")}, shortest_routes(ground), "n2", 4, 7)
    (given,) = [each.stream for each in graphs["n2"].outlets if isinstance(each.stream, Part)]
    assert [contest.role for contest in given.partial.contests] == ["B"], "C alone no longer says which B is meant"


def test_rules_share_what_is_the_same() -> None:
    one = sase("One: SEQ(A a, B b, C c) WHERE a.v = b.v WITHIN 1 s RETURN R()")
    other = sase("Other: SEQ(A x, B y, D z) WHERE x.v = y.v WITHIN 1 s RETURN S()")
    different = sase("Different: SEQ(A a, B b, D d) WHERE a.v < b.v WITHIN 1 s RETURN T()")
    ground = a_ground(one, other, different, sinks=(("n1", "R"), ("n1", "S"), ("n1", "T")))
    layout = {
        rule.name: selecting(rule, [leaf.role for leaf in leaves(rule.pattern.root)][:2], ())
        for rule in (one, other, different)
    }
    graphs = laid(ground, layout, shortest_routes(ground), "n2", 4, 7)
    found = [task.stream for task in graphs["n2"].tasks]
    assert [part.partial.rule.name for part in found if isinstance(part, Part)] == ["Different", "One"]
    assert len(found) == 2
    assert len([each for each in graphs["n2"].outlets if isinstance(each.stream, Part)]) == 2
    finished = [task.stream for task in graphs["n3"].tasks]
    assert sorted(each.rule.name for each in finished if isinstance(each, Whole)) == ["Different", "One", "Other"]
    assert len(finished) == 3


def test_the_order_of_an_and_and_the_names_of_roles_tell_no_stages_apart() -> None:
    one = sase("AND(A a, B b, C c) WHERE a.v = b.v WITHIN 1 s RETURN R()")
    other = sase("AND(D d, B x, A y) WHERE y.v = x.v WITHIN 1 s RETURN R()")
    longer = sase("AND(A a, B b, C c) WHERE a.v = b.v WITHIN 2 s RETURN R()")
    assert anonymous(project(one, "ab")) == anonymous(project(other, "xy")) is not None
    assert anonymous(project(one, "ab")) != anonymous(project(longer, "ab"))
    assert anonymous(project(one, "ab")) != anonymous(project(PLAIN, "ab"))
    assert anonymous(project(LAST, "BC")) is None, "what a chain must tell of depends on the rest of it"


def test_readers_of_different_filters_get_what_they_need() -> None:
    hot = sase("Hot: SEQ(A a, B b) WHERE a.v > 5 WITHIN 1 s RETURN R()")
    cold = sase("Cold: SEQ(A a, C c) WHERE a.v < 2 WITHIN 1 s RETURN S()")
    ground = a_ground(hot, cold, sinks=(("n1", "R"), ("n1", "S")))
    layout = {"Hot": at_one_node(hot, "n2"), "Cold": at_one_node(cold, "n3")}
    graphs = laid(ground, layout, shortest_routes(ground), "n2", 1, 1)
    sent = filters(graphs["n1"], "A")
    assert [len(stream.where) for stream in sent] == [1, 1]
    assert sent[0] != sent[1]


def test_the_law_holds_where_rules_share_stages_and_leave_out_types(monkeypatch: pytest.MonkeyPatch) -> None:
    drafts: list[_Draft] = []
    flowing = _Draft.graphs

    def graphs(self: _Draft, *given: Any) -> Mapping[str, Graph]:
        drafts.append(self)
        return flowing(self, *given)

    monkeypatch.setattr(_Draft, "graphs", graphs)
    for seed in range(910_000, 910_060):
        case = twinned(network_case(seed))
        verdict = check(case, "inev")
        assert not verdict.wrong, f"seed {seed}: {verdict.wrong[0]}"
    assert any(draft._same for draft in drafts), "no rules shared a stage"
    streams = [flow.stream for draft in drafts for flow in draft._flows.values()]
    assert any(isinstance(stream, Part) and stream.heard for stream in streams), "nothing was left out"
