"""The checkers of the simulator: each of them notices what it is there for, and says where and when it was."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any

import pytest

from headwater.deploy.simulation.checkers import FORBIDDEN, Checkers, disagreements
from headwater.deploy.simulation.faults import Faults
from headwater.deploy.simulation.simulator import Simulation
from headwater.node.core import NodeCore
from headwater.node.effects import Report, TimerFired
from headwater.node.engine.store import Store
from headwater.node.plans.plan_tasks import PlanTasks
from headwater.node.streams.outlets import Outlet
from headwater.node.tasks.task import JoinTask
from headwater.protocol.analysis.projection import project
from headwater.protocol.composites import Composite, CompositeSpec
from headwater.protocol.events import EventType
from headwater.protocol.messages.neighbour import (
    Awakening,
    Batch,
    Deploy,
    Filter,
    Notify,
    Part,
    Run,
    SetMode,
    Watermark,
    Whole,
)
from headwater.protocol.subscriptions import Subscription
from tests.kit.builders import chain, each, last, rule, trace
from tests.simulation.test_simulator import a_network, births_of, run

A = Filter("A")


def a_part() -> Part:
    whole = rule(chain("C c", last("B b", 50, "c"), each("A a", 50, "b")))
    return Part(project(whole, ("b", "a")))


def item(ts: int, *streams: int, body: bool = True, blocker: bool = False, seq: int | None = None) -> Run:
    (event,) = trace(f"A@{ts}/n").events
    row = (ts, "n", seq or ts, *event[3:])
    return Run((("n", seq or ts),), (row,) if body else None, streams, blocker)


class Link:
    """What a child sends its parent, watched; the parent has asked for streams 1 and 2."""

    def __init__(self, one: Any = A, two: Any = A) -> None:
        self.checkers = Checkers({}, "strategy st, seed 7")
        self.down(Deploy("parent", 1, 1, one))
        self.down(Deploy("parent", 1, 2, two))

    def down(self, message: Any) -> None:
        self.checkers.sent("parent", "child", message, 900)

    def up(self, *items: Run, watermarks: tuple[Watermark, ...] = (), floor_us: int | None = None) -> None:
        self.checkers.sent("child", "parent", Batch(items, watermarks, floor_us), 1_000)


def complaint(*words: str) -> Any:
    return pytest.raises(AssertionError, match=".*".join(words))


# -- bodies ------------------------------------------------------------------------------------------------------------


def test_a_body_crosses_a_link_once() -> None:
    link = Link()
    link.up(item(5, 1))
    link.up(item(5, 2, body=False))
    link = Link()
    link.up(item(5, 1))
    with complaint("link child->parent", r"body of \('n', 5\) crosses a second time", "1000 us of strategy st, seed 7"):
        link.up(item(5, 2))


def test_a_body_may_cross_again_when_both_have_forgotten_it() -> None:
    link = Link()
    link.up(item(5, 1))
    link.up(item(9, 1), floor_us=6)
    link.up(item(5, 2))
    link.up(item(9, 2, body=False))


def test_references_are_to_bodies_that_are_there() -> None:
    link = Link()
    with complaint("link child->parent", "referred to"):
        link.up(item(5, 1, body=False))
    link.up(item(5, 1))
    with complaint("referred to"):
        link.up(item(5, 2, body=False), floor_us=6)


def counted(n: int, stream: int) -> Run:
    """A composite of one event in which n events were counted."""
    event_type = EventType("Counted", {"n": "int"})
    spec = CompositeSpec("Counted", 1, event_type, ("a",), (False,), lambda row: (n,))
    match = Composite((spec, *trace("A@5/n").events))
    return Run((match.id,), (match.row(),), (stream,), False)


def test_a_composite_is_told_with_the_same_values_on_every_link() -> None:
    link = Link(Whole(rule(chain("A a"))))
    link.up(counted(3, 1))
    with complaint("Counted.n=2.", "was told as", "Counted.n=3."):
        link.up(counted(2, 2), floor_us=6)


def test_values_may_differ_once_events_are_lost() -> None:
    link = Link(Whole(rule(chain("A a"))))
    link.up(counted(3, 1))
    link.checkers.lost()
    link.up(counted(2, 2), floor_us=6)


# -- streams -----------------------------------------------------------------------------------------------------------


def test_an_event_comes_once_on_a_stream() -> None:
    link = Link()
    link.up(item(5, 1, 2))
    with complaint(r"stream 2 \(filter A\)", "comes a second time"):
        link.up(item(5, 2, body=False))


def test_a_blocker_may_become_real_and_never_the_other_way_round() -> None:
    link = Link(a_part(), a_part())
    link.up(item(5, 1, blocker=True))
    link.up(item(5, 1, body=False))
    with complaint("stream 1", "part of r", "blocker after it was real"):
        link.up(item(5, 1, body=False, blocker=True))
    link.up(item(5, 2, body=False, blocker=True))
    with complaint("stream 2", "blocker a second time"):
        link.up(item(5, 2, body=False, blocker=True))


def test_filters_have_no_blockers() -> None:
    with complaint("only partial rules have contests"):
        Link().up(item(5, 1, blocker=True))


def test_streams_must_be_asked_for_once() -> None:
    link = Link()
    with complaint("stream 3 was never asked for"):
        link.up(item(5, 3))
    with complaint("stream 1 is asked for twice"):
        link.down(Deploy("parent", 1, 1, A))


# -- watermarks --------------------------------------------------------------------------------------------------------


def test_nothing_comes_at_or_before_a_watermark() -> None:
    link = Link()
    link.up(item(8, 1), watermarks=(Watermark(1, 8),))
    link.up(item(7, 2), item(9, 1))
    with complaint("stream 1", "event at 8.0 comes after the watermark 8"):
        link.up(item(8, 1, seq=88))


def test_parts_of_a_later_match_may_lie_before_the_watermark() -> None:
    link = Link(a_part())
    link.up(watermarks=(Watermark(1, 8),))
    link.up(item(7, 1), item(9, 1))
    link.up(item(6, 1), watermarks=(Watermark(1, 9),))
    with complaint("all of its match lies before the watermark 9"):
        link.up(item(5, 1))


def test_what_is_pulled_comes_because_it_was_asked_for() -> None:
    link = Link()
    link.down(SetMode(1, True, 1))
    link.up(watermarks=(Watermark(1, 8, pull=True, mode=1),))
    link.down(Awakening(1, 1, 3, 6))
    link.up(item(5, 1), watermarks=(Watermark(1, 8, serial=1, pull=True, mode=1),))
    with complaint("was not asked for"):
        link.up(item(4, 1))


def test_what_was_kept_may_come_while_the_mode_changes() -> None:
    link = Link()
    link.down(SetMode(1, True, 1))
    link.up(watermarks=(Watermark(1, 8, pull=True, mode=1),))
    link.down(SetMode(1, False, 2))
    link.up(item(4, 1), watermarks=(Watermark(1, 8, mode=2),))
    with complaint("comes after the watermark 8"):
        link.up(item(3, 1))


@pytest.mark.parametrize(
    ("watermark", "words"),
    [
        (Watermark(1, 7, 2, mode=1), "the watermark goes back from 8 to 7"),
        (Watermark(1, 8, 1, mode=1), "serials go back"),
        (Watermark(1, 8, 2, mode=0), "serials go back"),
        (Watermark(1, 8, 2, pull=True, mode=1), "the mode changes by itself"),
    ],
)
def test_watermarks_never_go_back(watermark: Watermark, words: str) -> None:
    link = Link()
    link.up(watermarks=(Watermark(1, 8, 2, mode=1),))
    with complaint("stream 1", words):
        link.up(watermarks=(watermark,))


def test_an_event_goes_down_a_tree_once() -> None:
    link = Link()
    (event,) = trace("A@5/n").events
    link.down(Notify("root", 1, (tuple(event),)))
    with complaint("link parent->child", "a second time"):
        link.down(Notify("root", 1, (tuple(event),)))


@pytest.mark.parametrize("counter", sorted(FORBIDDEN))
def test_counters_of_the_unknown_stay_at_0(counter: str) -> None:
    checkers = Checkers({}, "seed 7")
    checkers.handled("n1", TimerFired("other"), [Report("late_events")], 5, 5)
    with complaint("node n1", counter):
        checkers.handled("n1", TimerFired("other"), [Report(counter)], 5, 5)


# -- tables ------------------------------------------------------------------------------------------------------------


def a_simulation(strategy: str = "st") -> Simulation:
    made = Simulation(a_network(), strategy, 0, Faults())
    made.set_up(0)
    assert list(disagreements(made.nodes)) == []
    assert all(core.validate(made.now_us) == [] for core in made.nodes.values())
    return made


def a_child(made: Simulation) -> tuple[NodeCore, NodeCore, PlanTasks]:
    """A node with streams to its parent, the parent, and what the parent does in their tree."""
    for core in made.nodes.values():
        for name, work in core.works.items():
            if work.parent is not None and work.outlets and any(core.local):
                parent = made.nodes[work.parent]
                return core, parent, parent.works[name]
    raise AssertionError("no node sends anything")


def forget_stream_below(core: NodeCore, parent: NodeCore, above: PlanTasks) -> None:
    del core.outlets[next(iter(core.outlets))]


def forget_stream_above(core: NodeCore, parent: NodeCore, above: PlanTasks) -> None:
    del parent.inlets[next(number for number, inlet in parent.inlets.items() if inlet.child == core.name)]


def give_something_else(core: NodeCore, parent: NodeCore, above: PlanTasks) -> None:
    outlet = next(iter(core.outlets.values()))
    outlet.feed = copy(outlet.feed)


def forget_a_type(core: NodeCore, parent: NodeCore, above: PlanTasks) -> None:
    above.advertised[core.name] = frozenset()


def forget_subscriptions(core: NodeCore, parent: NodeCore, above: PlanTasks) -> None:
    above.subscribers.children[core.name] = (Subscription("other"),)


def disown(core: NodeCore, parent: NodeCore, above: PlanTasks) -> None:
    above.flow.children = tuple(child for child in above.children if child != core.name)


def forget_bodies(core: NodeCore, parent: NodeCore, above: PlanTasks) -> None:
    core._outboxes[parent.name].history["n", 1] = 5


@pytest.mark.parametrize(
    ("tamper", "words"),
    [
        (forget_stream_below, "the child does not know it"),
        (forget_stream_above, "the parent has not asked for it"),
        (give_something_else, "the child gives something else"),
        (forget_a_type, "it advertises"),
        (forget_subscriptions, "other subscriptions"),
        (disown, "has no such child"),
        (forget_bodies, "has forgotten"),
    ],
)
def test_neighbours_agree(tamper: Callable[[NodeCore, NodeCore, PlanTasks], None], words: str) -> None:
    made = a_simulation()
    tamper(*a_child(made))
    assert any(words in sentence for sentence in disagreements(made.nodes))


def test_a_node_notices_what_contradicts_itself() -> None:
    made = a_simulation()
    core = next(core for core in made.nodes.values() if any(work.tasks for work in core.works.values()))
    work = next(work for work in core.works.values() if work.tasks)
    task = work.tasks[0]
    number, inlet = next(iter(core.inlets.items()))
    del core.inlets[number]
    assert any("would not find it" in sentence for sentence in core.validate(0))
    core.inlets[number + 99] = inlet
    assert any("under this number" in sentence for sentence in core.validate(0))
    del core.inlets[number + 99]
    core.inlets[number] = inlet
    rank, task.rank = task.rank, 0
    assert any("it runs before what feeds it" in sentence for sentence in core.validate(0))
    task.rank = rank
    task.inputs[0].consumers.remove(task)
    assert any("gives it nothing" in sentence for sentence in core.validate(0))


# -- whole runs --------------------------------------------------------------------------------------------------------


def test_a_watermark_that_promises_too_much_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Outlet.tell

    def hasty(self: Outlet, watermark: float, work: Any) -> None:
        right(self, watermark + 20_000, work)

    monkeypatch.setattr(Outlet, "tell", hasty)
    network = a_network()
    with complaint("link ", "stream ", "comes.* the watermark", "us of strategy st, seed 3"):
        run(network, births_of(network), "st", seed=3)


def test_what_is_never_freed_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JoinTask, "_free", lambda self, watermark: None)
    network = a_network()
    with complaint("node ", "task ", "is kept, nothing before"):
        run(network, births_of(network), "st")


def test_an_engine_that_keeps_its_rows_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Store, "_sweep", lambda self, watermark: None)
    network = a_network()
    with complaint("node ", "task ", "keeps rows that no match can use"):
        run(network, births_of(network), "st")


def test_a_watermark_that_is_never_told_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Outlet, "watermark_moved", lambda self, work: None)
    monkeypatch.setattr(Outlet, "tell_slowly", lambda self, work: None)
    network = a_network()
    with complaint("node ", "its watermark is|asked for and never sent"):
        run(network, births_of(network), "st")


def test_late_rows_inside_the_network_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = JoinTask.accept

    def late(self: JoinTask, rows: Any, work: Any) -> None:
        right(self, rows, work)
        if not self.ordered:
            self.engine.watermark = self.engine._applied = max(self.engine.watermark, rows[0][0])

    monkeypatch.setattr(JoinTask, "accept", late)
    network = a_network(rule(chain("A a", each("B b", 40_000, "a")), name="pairs"))
    network = replace(network, sinks=network.sinks[:1])  # the others ask for an attribute that this rule has not
    with complaint("node ", "task ", "late events"):
        run(network, births_of(network), "st")
