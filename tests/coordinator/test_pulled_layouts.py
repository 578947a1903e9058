"""Who may awaken whom: what is left of a proposal, and the graphs of streams that follow."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from headwater.coordinator.layout.graph_building import _Draft, laid
from headwater.coordinator.layout.planner_interface import shortest_routes
from headwater.coordinator.layout.stages import divided
from headwater.node.core import NodeCore
from headwater.node.effects import MessageReceived, OrderReceived, Send, TimerFired
from headwater.node.pull.awakening import reach_of
from headwater.protocol.analysis.projection import joinable_components, project
from headwater.protocol.analysis.pulling import awakening_roles, pullable_roles
from headwater.protocol.errors import RuleError
from headwater.protocol.graphs import Graph, TakenFrom
from headwater.protocol.languages.composite_types import composite_types
from headwater.protocol.messages import control
from headwater.protocol.messages.neighbour import Advertise, Batch, GraphLaid, Subscribe
from headwater.protocol.messages.plans import Adopt, BeginTree, PlannedTree, Share
from headwater.protocol.messages.trees import InstallTree
from headwater.protocol.pattern import Rule, leaves
from headwater.protocol.streams import Filter, Part, Whole
from tests.coordinator.test_layouts import LAST, NEGATED, NEXT, PLAIN, SOURCES, TWICE, TYPES, a_ground, sase, selecting
from tests.law.generators import random_case
from tests.law.law import check
from tests.law.layouts import asking
from tests.law.networks import network_case


def awakened(rule: Rule, master: str, pulled: Iterable[str], **stage: Any) -> tuple[str | None, set[str]]:
    (found,) = divided(rule, tuple(replace(each, **stage) for each in asking(rule, "n3", master, *pulled)), SOURCES)
    return found.master, set(found.pulled)


SECOND = 1_000_000
NONE: tuple[None, set[str]] = (None, set())


def test_any_proposal_is_made_safe() -> None:
    assert awakened(PLAIN, "b", "ac") == ("b", {"a", "c"})
    assert awakened(PLAIN, "b", "abc") == ("b", {"a", "c"}), "the master itself is pushed"
    assert awakened(PLAIN, "b", "") == NONE
    assert awakened(PLAIN, "x", "ac") == NONE, "no role of the stage"
    assert awakened(NEGATED, "b", "ac") == NONE, "a negated role is in no match"
    assert awakened(NEGATED, "a", "bc") == ("a", {"b", "c"})
    assert awakened(NEXT, "a", "bc") == NONE, "which event is next depends on all others"
    assert awakened(TWICE, "a", "c") == NONE, "an A may be the other one"
    assert awakened(TWICE, "c", ("a", "a2")) == ("c", {"a", "a2"})
    assert awakened(TWICE, "c", ("a",)) == NONE, "every A comes for the other role"
    assert awakened(LAST, "B", "AC") == ("B", {"A", "C"})
    assert awakened(PLAIN, "b", "ac", split="a") == ("b", {"c"}), "each node has its own share of A"
    assert awakened(PLAIN, "a", "bc", split="a") == ("a", {"b", "c"})


def test_what_no_window_bounds_is_pushed() -> None:
    whole = sase("SEQ(A a, C c, !SEQ(B b, D d)) WITHIN 1 s RETURN R()")
    assert awakened(whole, "a", "bcd") == ("a", {"c"}), "a negated sub-pattern is found in trace order"
    old = sase("and(seq(A a, C c), B b; 1 s)")
    assert awakened(old, "b", "ac") == NONE, "A may be as old as it likes"


def test_a_stage_asks_for_what_it_reads_as_events_only() -> None:
    first, last = selecting(PLAIN, "ab", "")
    last = replace(last, master="c", pulled=frozenset("abc"))
    first = replace(first, master="c", pulled=frozenset("ab"))
    pair, end = divided(PLAIN, (first, last), SOURCES)
    assert (pair.master, pair.pulled) == (None, frozenset())
    assert (end.master, end.pulled) == (None, frozenset())
    end = divided(PLAIN, (first, replace(last, master="a")), SOURCES)[1]
    assert end.master == "a"
    assert end.pulled == {"c"}


def test_a_pulled_stream_is_for_one_reader_and_known_as_pulled_all_the_way() -> None:
    ground = a_ground(PLAIN)
    layout = {PLAIN.name: asking(PLAIN, "n3", "b", "a", "c")}
    graphs = laid(ground, layout, shortest_routes(ground), "n2", 4, 7)
    (task,) = graphs["n3"].tasks
    assert (task.master, task.drives, task.overlaps) == ("b", True, False)
    taken = {(each.stream.type, each.pulled) for each in graphs["n3"].inlets if isinstance(each.stream, Filter)}
    assert taken == {("A", True), ("B", False)}
    for graph in graphs.values():
        for outlet in graph.outlets:
            assert outlet.pulled == (isinstance(outlet.stream, Filter) and outlet.stream.type == "A")
    assert [outlet.pulled for outlet in graphs["n1"].outlets] == [True]
    assert sum(outlet.pulled for outlet in graphs["n2"].outlets) == 2, "that of n1 on its way, and its own"


def test_a_node_that_finds_everything_at_home_asks_no_other() -> None:
    graphs = laid(a_ground(PLAIN), {PLAIN.name: asking(PLAIN, "n3", "b", "c")}, shortest_routes(a_ground()), "n2", 4, 7)
    (task,) = graphs["n3"].tasks
    assert task.master is None


def test_rules_share_stages_in_which_the_same_is_pulled_by_the_same() -> None:
    one = sase("One: SEQ(A a, B b, C c) WHERE a.v = b.v WITHIN 1 s RETURN R()")
    other = sase("Other: SEQ(A x, B y, D z) WHERE x.v = y.v WITHIN 1 s RETURN S()")
    ground = a_ground(one, other, sinks=(("n1", "R"), ("n1", "S")))

    def parts(*masters: tuple[str, str]) -> list[str | None]:
        layout = {}
        for rule, (master, pulled) in zip((one, other), masters, strict=True):
            first, last = selecting(rule, [leaf.role for leaf in leaves(rule.pattern.root)][:2], ())
            layout[rule.name] = (replace(first, master=master, pulled=frozenset(pulled)), last)
        graphs = laid(ground, layout, shortest_routes(ground), "n2", 4, 7)
        return [task.master for task in graphs["n2"].tasks if isinstance(task.stream, Part)]

    assert parts(("b", "a"), ("y", "x")) == ["b"]
    assert parts(("b", "a"), ("x", "y")) == [None], "each pushes what the other would pull"
    assert parts(("b", "a"), ("y", "")) == [None], "A comes to n2 anyway"


def test_graphs_with_masters_travel() -> None:
    ground = a_ground(PLAIN)
    layout = {PLAIN.name: asking(PLAIN, "n3", "b", "a", "c")}
    for graph in laid(ground, layout, shortest_routes(ground), "n2", 1, 1).values():
        ordered = control.Ordered(Adopt(Share(1, "inev", TYPES, (), 0, None, (), graphs=(graph,))))
        assert control.decode(control.encode(ordered)) == ordered


def test_that_nothing_will_come_is_told_only_when_the_graph_has_begun() -> None:
    """The node that takes the stream may not know of it before."""
    (task,) = asking(PLAIN, "n2", "b", "a")
    ground = replace(a_ground(PLAIN), sources={"A": ("n3",)})
    graph = laid(ground, {PLAIN.name: (task,)}, shortest_routes(ground), "n2", 1, 1)["n2"]
    assert graph.tasks[0].master == "b"
    core = NodeCore("n2", {"n1": 0, "n3": 0})
    emitted = tuple(composite_types([PLAIN]).values())
    share = Share(1, "inev", TYPES, emitted, SECOND, None, (PlannedTree("n2", 1, None),), graphs=(graph,))
    for order in (Adopt(share), InstallTree("n2", 1, None, ("n1", "n3")), BeginTree("n2", 1, 1, None, None)):
        core.handle(OrderReceived(order), 0)
    early = core.handle(TimerFired("tick"), 10 * SECOND)
    assert not any(isinstance(effect, Send) and isinstance(effect.message, Batch) for effect in early)
    told = []
    for node in ("n1", "n3"):
        for message in (GraphLaid("n2", 1), Advertise("n2", 1, ()), Subscribe("n2", 1, ())):
            told += core.handle(MessageReceived(node, message), 10 * SECOND)
    (watermarks,) = [
        each.message.watermarks for each in told if isinstance(each, Send) and isinstance(each.message, Batch)
    ]
    assert [watermark.ts for watermark in watermarks] == [float("inf")]


def test_whatever_is_pulled_is_bounded_by_whatever_awakens_it() -> None:
    """What the coordinator goes by says no more than the node can keep."""
    checked = 0
    for seed in range(400):
        for rule in random_case(random.Random(f"pulled {seed}")).rules:
            asked = pullable_roles(rule)
            for master in awakening_roles(rule):
                for role in asked - {master}:
                    assert reach_of(rule, master, frozenset((role,)), values=True) is not None, (seed, master, role)
                    checked += 1
                if asked:
                    checked += _parts_are_bounded(rule, master)
    assert checked > 1000


def _parts_are_bounded(rule: Rule, master: str) -> int:
    try:
        groups = joinable_components(rule, [leaf.role for leaf in leaves(rule.pattern.root)])
    except RuleError:
        return 0
    checked = 0
    for group in groups:
        if len(group) > 1 and master in group:
            alone = replace(rule, pattern=project(rule, group).pattern, attributes=())
            for role in set(group) - {master}:
                assert reach_of(alone, master, frozenset((role,)), values=True) is not None
                checked += 1
    return checked


def test_the_law_holds_where_anything_is_pulled_by_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs: list[Mapping[str, Graph]] = []
    flowing = _Draft.graphs

    def kept(self: _Draft, *given: Any) -> Mapping[str, Graph]:
        graphs.append(flowing(self, *given))
        return graphs[-1]

    monkeypatch.setattr(_Draft, "graphs", kept)
    for seed in range(920_000, 920_080):
        verdict = check(network_case(seed), "inev")
        assert not verdict.wrong, f"seed {seed}: {verdict.wrong[0]}"
    told = [graph for each in graphs for graph in each.values()]
    pulled = [type(task.stream) for graph in told for task in graph.tasks if task.master is not None]
    assert pulled.count(Whole) > 5, "rules pulled hardly anything"
    assert pulled.count(Part), "no part of a rule pulled anything"
    passed = [outlet for graph in told for outlet in graph.outlets if isinstance(outlet.source, TakenFrom)]
    assert any(outlet.pulled for outlet in passed), "nothing that was pulled only passed a node"
