"""One node by itself: what it answers to what it is told, without links, clocks or a simulator."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from headwater.node.core import NodeCore, NodeSettings
from headwater.node.effects import (
    Born,
    Deliver,
    Effect,
    Input,
    MessageReceived,
    OrderReceived,
    Report,
    Send,
    SetTimer,
    SourcesEnded,
    TimerFired,
)
from headwater.node.snapshot import StateError, restore, save
from headwater.node.tasks.rule_failures import NOTED
from headwater.protocol.analysis.projection import project
from headwater.protocol.events import Event, EventType
from headwater.protocol.messages.neighbour import (
    Advertise,
    Batch,
    Deploy,
    FetchRules,
    Filter,
    GraphLaid,
    Notify,
    Part,
    RulesFetched,
    Run,
    Subscribe,
    TreeOver,
    TreeReady,
    TreeStart,
    Want,
    Watermark,
    Whole,
)
from headwater.protocol.messages.plans import (
    Adopt,
    BeginTree,
    PlannedRule,
    PlannedSink,
    PlannedSource,
    PlannedTree,
    Share,
)
from headwater.protocol.messages.trees import InstallTree
from headwater.protocol.pattern import Rule
from headwater.protocol.subscriptions import parse_subscription
from tests.kit.builders import TYPES, chain, each, last, rule

FOREVER = float("inf")
PAIR = rule(chain("A a", each("B b", 100, "a")), "b.v = a.v", name="pair", emits="X", out={"v": "a.v"})
LAST = rule(chain("A a", last("B b", 100, "a")), name="last", emits="Y", out={"v": "b.v"})
CHAINED = rule(chain("X x", each("C c", 50, "x")), name="chained", emits="Z")


class ANode:
    """A node in one tree, set up by hand; the parent is "up" (None for the root), children are named by the test."""

    def __init__(
        self,
        *rules: Rule,
        parent: str | None = "up",
        children: Sequence[str] = (),
        sources: str = "",
        lateness_us: int = 0,
        sinks: Iterable[str] = (),
        strategy: str = "st",
        kept: Sequence[Rule] | None = None,
        begin: bool = True,
    ) -> None:
        """``kept``: the rules that are stored at this node; ``rules`` otherwise."""
        self.now_us = 0
        around = [*children, *([] if parent is None else [parent])]
        self.core = NodeCore("n", dict.fromkeys(around, 10), NodeSettings(tick_least_us=10))
        self.tree = "n" if parent is None else "top"
        self.parent = parent
        share = Share(
            1,
            strategy,
            tuple(TYPES.values()),
            tuple(EventType(of.emits, {out.name: out.kind + "?" for out in of.attributes}) for of in rules),
            horizon_us=100,
            from_us=None,
            trees=(PlannedTree(self.tree, 1, None),),
            sources=tuple(PlannedSource(number, name, lateness_us) for number, name in enumerate(sources)),
            sinks=tuple(PlannedSink(number, parse_subscription(text)) for number, text in enumerate(sinks)),
            rules=tuple(PlannedRule(each) for each in (rules if kept is None else kept)),
        )
        self.handle(OrderReceived(Adopt(share)))
        self.handle(OrderReceived(InstallTree(self.tree, 1, parent, tuple(children))))
        self.begun = self.begin() if begin else []

    def begin(self) -> list[Effect]:
        if self.parent is None:
            return self.handle(OrderReceived(BeginTree(self.tree, 1, 1)))
        return self.hears(self.parent, TreeReady(self.tree, 1, 1))

    def handle(self, received: Any, at_us: int | None = None) -> list[Effect]:
        self.now_us = max(self.now_us, at_us or 0)
        return self.core.handle(received, self.now_us)

    def hears(self, neighbour: str, *messages: Any, at_us: int | None = None) -> list[Effect]:
        return [effect for each in messages for effect in self.handle(MessageReceived(neighbour, each), at_us)]

    def child_says(self, child: str, types: str = "", subscriptions: Iterable[str] = ()) -> list[Effect]:
        """A child advertises and subscribes."""
        wanted = tuple(map(parse_subscription, subscriptions))
        return self.hears(child, Advertise(self.tree, 1, tuple(types)), Subscribe(self.tree, 1, wanted))

    def starts(self) -> list[Effect]:
        return self.hears(self.parent or "", TreeStart(self.tree, 1))

    def bears(self, *events: Event, source: int = 0, at_us: int | None = None) -> list[Effect]:
        return self.handle(Born(source, events), at_us)


def event(kind: str, ts: int, v: int = 0, node: str = "n", seq: int | None = None) -> Event:
    return Event(TYPES[kind], ts, node, ts if seq is None else seq, {"id": ts, "v": v})


def body(of: Event, *streams: int) -> Run:
    return Run(((of.node, of.seq),), (tuple(of),), streams)


def sent(effects: Iterable[Effect], kind: type[Any], to: str | None = None) -> list[Any]:
    return [
        effect.message
        for effect in effects
        if isinstance(effect, Send) and isinstance(effect.message, kind) and to in (None, effect.neighbour)
    ]


def reports(effects: Iterable[Effect]) -> list[str]:
    return [effect.counter for effect in effects if isinstance(effect, Report)]


def delivered(effects: Iterable[Effect]) -> list[tuple[int, int]]:
    """Sink and ts of everything for local sinks."""
    return [(effect.sink, row[0]) for effect in effects if isinstance(effect, Deliver) for row in effect.rows]


def sources_of_items(batches: Iterable[Batch]) -> list[tuple[Any, tuple[int, ...], bool]]:
    return [
        (identity, run.streams, run.rows is not None)
        for batch in batches
        for run in batch.runs
        for identity in run.identities
    ]


# -- what it does not know ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "counter"),
    [
        (Advertise("nowhere", 1, ("A",)), "unknown_tree"),
        (TreeReady("nowhere", 1, 1), "unknown_tree"),
        (TreeStart("nowhere", 1), "unknown_tree"),
        (Notify("nowhere", 1, (tuple(event("A", 5)),)), "unknown_tree"),
        (Deploy("nowhere", 1, 3, Filter("A")), "unknown_tree"),
        (Want(77, 5), "unknown_stream"),
        (Batch((), (Watermark(77, 5),)), "unknown_stream"),
        (Batch((body(event("A", 5), 77),), ()), "unknown_stream"),
        (Batch((Run((("n", 5),), None, (77,)),), ()), "unknown_body"),
        ("gibberish", "unknown_message"),
    ],
)
def test_what_a_node_does_not_know_is_counted_and_it_carries_on(message: object, counter: str) -> None:
    node = ANode(PAIR, sources="A")
    assert reports(node.hears("up", message)) == [counter]
    assert node.core.validate(node.now_us) == []
    node.hears("up", Deploy("top", 1, 3, Filter("A")))
    node.starts()
    assert sent(node.bears(event("A", 5), at_us=5), Batch)


def test_what_comes_out_of_turn_is_counted_and_changes_nothing() -> None:
    node = ANode(PAIR, sources="A", children=["left"])
    assert reports(node.starts()) == ["unknown_message"], "the child has not advertised yet"
    assert reports(node.hears("up", TreeOver("top", 1))) == ["unknown_message"], "it has not begun"
    assert reports(node.hears("left", GraphLaid("top", 1))) == ["unknown_message"], "a tree has no partners"
    node.child_says("left", "B")
    assert reports(node.hears("up", TreeReady("top", 1, 1))) == ["unknown_message"], "a second time"
    node.hears("up", Deploy("top", 1, 3, Filter("A")))
    assert reports(node.starts()) == []
    assert reports(node.starts()) == ["unknown_message"], "a second time"
    assert node.core.validate(node.now_us) == []
    assert sent(node.bears(event("A", 5), at_us=5), Batch)
    assert reports(node.hears("up", TreeOver("top", 1))) == []
    assert reports(node.starts()) == ["forgotten_tree"]


def test_a_root_that_is_made_to_fetch_rules_out_of_turn_arranges_them_once() -> None:
    node = ANode(PAIR, parent=None, children=["left"], sinks=["X"], strategy="mt", kept=[])
    node.hears("left", FetchRules("n", 1, "X"), RulesFetched("n", 1, "X", (PlannedRule(PAIR),)))
    effects = node.child_says("left", "AB")
    assert sent(effects, TreeStart) == [TreeStart("n", 1)]
    assert sent(node.hears("left", FetchRules("n", 1, "Y"), RulesFetched("n", 1, "Y", ())), TreeStart) == []


def test_failures_of_rules_belong_to_the_step_in_which_they_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    node = ANode(PAIR, sources="A")

    def fail(sentence: str, *, raises: bool = False) -> list[Effect]:
        """What a step reports in which a rule fails."""

        def received(*_: object) -> None:
            NOTED.note("fire", "once")
            NOTED.note("fire", sentence)
            assert not raises

        with monkeypatch.context() as patched:
            patched.setattr(node.core.forest, "received", received)
            return [effect for effect in node.hears("up", "anything") if isinstance(effect, Report)]

    assert fail("twice") == [Report("rule_errors", 2, "fire", "twice")]
    with pytest.raises(AssertionError):
        fail("in a step that is not finished", raises=True)
    NOTED.note("fire", "outside any step")
    assert reports(node.hears("up", Want(77, 5))) == ["unknown_stream"]


def test_a_stream_is_known_only_to_the_neighbour_it_goes_to() -> None:
    node = ANode(PAIR, sources="A", children=["left"])
    node.child_says("left")
    node.hears("up", Deploy("top", 1, 3, Filter("A")))
    assert reports(node.hears("left", Want(3, 5))) == ["unknown_stream"]
    assert reports(node.hears("up", Want(3, -5))) == []


def test_a_tree_of_a_plan_that_is_not_yet_known_waits_for_it() -> None:
    node = ANode(PAIR, sources="A", begin=False)
    assert node.hears("up", TreeReady("top", 1, 2)) == []
    share = Share(2, "st", tuple(TYPES.values()), (), 100, None, (), sources=(PlannedSource(0, "A", 0),))
    assert sent(node.handle(OrderReceived(Adopt(share))), Advertise) == [Advertise("top", 1, ("A",))]


# -- births ------------------------------------------------------------------------------------------------------------


def test_a_late_event_is_reported_and_goes_nowhere() -> None:
    node = ANode(sources="A", lateness_us=10)
    node.hears("up", Deploy("top", 1, 3, Filter("A")))
    node.starts()
    late = node.bears(event("A", 89), at_us=100)
    assert reports(late) == ["late_events"]
    assert sent(late, Batch) == []
    assert sources_of_items(sent(node.bears(event("A", 90), at_us=100), Batch)) == [(("n", 90), (3,), True)]


def test_an_event_of_a_source_that_was_not_announced_is_reported() -> None:
    node = ANode(sources="A")
    assert reports(node.bears(event("B", 5), source=0, at_us=5)) == ["unadvertised_events"]
    assert reports(node.bears(event("A", 5), source=4, at_us=5)) == ["unadvertised_events"]


def test_what_is_born_before_the_start_is_sent_at_the_start() -> None:
    node = ANode(sources="A")
    node.hears("up", Deploy("top", 1, 3, Filter("A")))
    assert sent(node.bears(event("A", 5), at_us=5), Batch) == []
    assert sources_of_items(sent(node.starts(), Batch)) == [(("n", 5), (3,), True)]


# -- advertisements and subscriptions ----------------------------------------------------------------------------------


def test_advertisements_combine_on_their_way_up() -> None:
    node = ANode(children=["left", "right"], sources="C")
    assert sent(node.begun, TreeReady) == [TreeReady("top", 1, 1)] * 2
    assert sent(node.child_says("left", "AB"), Advertise) == []
    assert sent(node.child_says("right", "BD"), Advertise, "up") == [Advertise("top", 1, ("A", "B", "C", "D"))]


def test_a_leaf_speaks_as_soon_as_the_tree_is_ready() -> None:
    node = ANode(sources="AB", sinks=["X"])
    assert sent(node.begun, Advertise, "up") == [Advertise("top", 1, ("A", "B"))]
    assert sent(node.begun, Subscribe, "up") == [Subscribe("top", 1, (parse_subscription("X"),))]


def test_a_covered_subscription_is_not_forwarded() -> None:
    node = ANode(PAIR, children=["left", "right"], sinks=["X(v > 7)", "Y"])
    node.child_says("left", subscriptions=["X(v > 5)", "Z(v = 1)"])
    (message,) = sent(node.child_says("right", subscriptions=["X(v > 6 and v < 9)", "Z"]), Subscribe, "up")
    assert set(message.subscriptions) == {parse_subscription(text) for text in ("X(v > 5)", "Y", "Z")}


def test_a_composite_goes_only_to_children_whose_constraints_it_meets() -> None:
    node = ANode(PAIR, children=["left", "middle", "right"], sinks=["X(v = 2)", "X(v > 3)"])
    node.child_says("left", subscriptions=["X(v > 1)"])
    node.child_says("middle", subscriptions=["X(v < 1)"])
    node.child_says("right", subscriptions=["A"])
    row = composite_row(2)
    effects = node.hears("up", Notify("top", 1, (row,)))
    assert sent(effects, Notify, "left") == [Notify("top", 1, (row,))]
    assert sent(effects, Notify) == sent(effects, Notify, "left")
    assert delivered(effects) == [(0, 60)]


def composite_row(v: int) -> tuple[Any, ...]:
    """A composite event of PAIR as a node would receive it."""
    root = ANode(PAIR, parent=None, sources="AB", sinks=["X"])
    root.bears(event("B", 50, v), source=1, at_us=50)
    effects = root.bears(event("A", 60, v), source=0, at_us=60)
    (found,) = [row for effect in effects if isinstance(effect, Deliver) for row in effect.rows]
    return found


# -- how a rule is divided ---------------------------------------------------------------------------------------------


def test_the_root_delegates_a_rule_to_the_one_child_that_has_it_all() -> None:
    node = ANode(PAIR, parent=None, children=["left", "right"], sinks=["X"])
    node.child_says("left", "AB")
    effects = node.child_says("right", "C")
    (deployed,) = sent(effects, Deploy)
    assert sent(effects, Deploy, "left") == [deployed]
    assert deployed.stream == Whole(PAIR)
    assert not any(work.tasks for work in node.core.works.values())


def test_the_child_that_got_a_rule_delivers_to_its_own_side_and_tells_the_rest() -> None:
    node = ANode(PAIR, sources="AB", children=["below"], sinks=["X"])
    node.child_says("below", subscriptions=["X"])
    node.hears("up", Deploy("top", 1, 3, Whole(PAIR)))
    node.starts()
    node.bears(event("B", 50), source=1, at_us=50)
    effects = node.bears(event("A", 60), source=0, at_us=60)
    assert delivered(effects) == [(0, 60)]
    assert len(sent(effects, Notify, "below")) == 1
    ((_, streams, has_body),) = sources_of_items(sent(effects, Batch, "up"))
    assert (streams, has_body) == ((3,), True)


def test_a_composite_is_not_sent_back_to_where_it_came_from() -> None:
    node = ANode(PAIR, parent=None, children=["left", "right"])
    node.child_says("left", "AB", ["X"])
    (deployed,) = sent(node.child_says("right", "", ["X"]), Deploy)
    row = composite_row(1)
    effects = node.hears("left", Batch((Run((row[3].id,), (row,), (deployed.number,)),), ()))
    assert len(sent(effects, Notify, "right")) == 1
    assert sent(effects, Notify, "left") == []


def test_the_root_splits_what_no_child_has_alone() -> None:
    whole = rule(chain("A a", each("B b", 100, "a"), each("C c", 50, "b")), "c.v = b.v", name="three", emits="X")
    node = ANode(whole, parent=None, children=["left", "right"], sinks=["X"])
    node.child_says("left", "A")
    effects = node.child_says("right", "BC")
    (left,) = sent(effects, Deploy, "left")
    (right,) = sent(effects, Deploy, "right")
    assert left.stream == Filter("A")
    assert isinstance(right.stream, Part)
    assert right.stream.partial.roles == ("b", "c")
    (task,) = next(iter(node.core.works.values())).tasks
    assert len(task.inputs) == 2


def test_one_stream_serves_all_that_need_the_same() -> None:
    node = ANode(PAIR, LAST, parent=None, children=["left", "right"], sinks=["X", "Y", "A"])
    node.child_says("left", "A")
    effects = node.child_says("right", "B")
    assert [deploy.stream for deploy in sent(effects, Deploy, "left")] == [Filter("A")]
    assert [deploy.stream for deploy in sent(effects, Deploy, "right")] == [Filter("B")]


# -- rules on demand ---------------------------------------------------------------------------------------------------


def test_with_many_trees_the_root_fetches_the_rules_behind_what_is_wanted() -> None:
    node = ANode(PAIR, CHAINED, parent=None, children=["left", "right"], sinks=["Z"], strategy="mt", kept=[])
    node.child_says("left", "AB")
    effects = node.child_says("right", "C")
    assert sent(effects, FetchRules) == [FetchRules("n", 1, "Z")] * 2
    assert sent(effects, Deploy) == []
    node.hears("left", RulesFetched("n", 1, "Z", ()))
    effects = node.hears("right", RulesFetched("n", 1, "Z", (PlannedRule(CHAINED),)))
    assert sent(effects, FetchRules) == [FetchRules("n", 1, "X")] * 2, "Z reads X, whose rule is elsewhere"
    node.hears("left", RulesFetched("n", 1, "X", (PlannedRule(PAIR),)))
    effects = node.hears("right", RulesFetched("n", 1, "X", ()))
    assert [deploy.stream for deploy in sent(effects, Deploy, "left")] == [Whole(PAIR), Filter("X")]
    assert sent(effects, TreeStart) == [TreeStart("n", 1)] * 2


def test_a_node_answers_for_itself_and_all_below_it() -> None:
    node = ANode(PAIR, LAST, children=["left"], strategy="mt", kept=[PAIR])
    node.child_says("left", "AB")
    assert sent(node.hears("up", FetchRules("top", 1, "X")), FetchRules, "left") == [FetchRules("top", 1, "X")]
    other = rule(chain("B b", each("A a", 10, "b")), name="also", emits="X")
    (answer,) = sent(node.hears("left", RulesFetched("top", 1, "X", (PlannedRule(other),))), RulesFetched, "up")
    assert {planned.rule for planned in answer.rules} == {PAIR, other}


def test_an_answer_that_was_not_asked_for_is_counted() -> None:
    node = ANode(PAIR, children=["left"], strategy="mt")
    node.child_says("left", "AB")
    assert reports(node.hears("left", RulesFetched("top", 1, "X", ()))) == ["unknown_answer"]


# -- watermarks --------------------------------------------------------------------------------------------------------


def test_a_watermark_is_told_when_the_clock_has_passed_what_is_wanted() -> None:
    node = ANode(sources="A", lateness_us=10)
    node.hears("up", Deploy("top", 1, 3, Filter("A")))
    node.starts()
    (timer,) = [effect for effect in node.hears("up", Want(3, 50), at_us=20) if isinstance(effect, SetTimer)]
    assert (timer.at_us, timer.idle) == (61, False)
    assert sent(node.handle(TimerFired(timer.name), 60), Batch) == [], "too early: an event at 50 may still come"
    (batch,) = sent(node.handle(TimerFired(timer.name), 61), Batch)
    assert [(watermark.number, watermark.ts) for watermark in batch.watermarks] == [(3, 50)]


def test_a_decision_waits_for_the_watermarks_it_depends_on() -> None:
    node = ANode(LAST, parent=None, children=["left"], sources="A", sinks=["Y"])
    (deployed,) = sent(node.child_says("left", "B"), Deploy)
    asked = sent(node.bears(event("A", 60), at_us=60), Want, "left")
    assert asked == [Want(deployed.number, 60)]
    late = event("B", 30, node="left")
    assert delivered(node.hears("left", Batch((body(late, deployed.number),), ()), at_us=70)) == []
    assert delivered(node.hears("left", Batch((), (Watermark(deployed.number, 59),)), at_us=71)) == []
    assert delivered(node.hears("left", Batch((), (Watermark(deployed.number, 60),)), at_us=72)) == [(0, 60)]


def test_a_body_is_sent_once_and_referred_to_afterwards() -> None:
    """The B goes up for a filter; when a C arrives that makes it part of a match, too, only its identity follows."""
    whole = rule(chain("D d", each("B b", 100, "d"), each("C c", 100, "b")), name="three", emits="X")
    node = ANode(whole, sources="BC", lateness_us=50)
    node.hears("up", Deploy("top", 1, 3, Filter("B")), Deploy("top", 1, 4, Part(project(whole, ("b", "c")))))
    node.starts()
    effects = node.bears(event("B", 50, seq=1), source=0, at_us=50)
    assert sources_of_items(sent(effects, Batch)) == [(("n", 1), (3,), True)]
    effects = node.bears(event("C", 40, seq=2), source=1, at_us=55)
    assert sorted(sources_of_items(sent(effects, Batch))) == [(("n", 1), (4,), False), (("n", 2), (4,), True)]
    effects = node.bears(event("B", 60, seq=3), source=0, at_us=60)
    assert sources_of_items(sent(effects, Batch)) == [(("n", 3), (3, 4), True)]


def test_an_old_body_that_comes_with_a_floor_may_be_referred_to() -> None:
    node = ANode(PAIR, LAST, parent=None, children=["left"], sources="A", sinks=["X", "Y"])
    numbers = [deploy.number for deploy in sent(node.child_says("left", "B"), Deploy)]
    old = event("B", 30, node="left")
    node.hears("left", Batch((body(old, numbers[0]),), (), floor_us=1000), at_us=2000)
    effects = node.hears("left", Batch((Run((("left", 30),), None, (numbers[0],)),), ()))
    assert reports(effects) == []


def test_sources_that_have_ended_promise_everything() -> None:
    node = ANode(sources="A")
    node.hears("up", Deploy("top", 1, 3, Filter("A")))
    node.starts()
    (batch,) = sent(node.handle(SourcesEnded((0,)), 10), Batch)
    assert [(watermark.number, watermark.ts) for watermark in batch.watermarks] == [(3, FOREVER)]
    assert node.core.unfinished() == []


def test_a_node_says_what_it_still_waits_for() -> None:
    node = ANode(LAST, parent=None, children=["left"], sources="A", sinks=["Y"])
    assert any("not every child has advertised" in waits for waits in node.core.unfinished())
    node.child_says("left", "B")
    node.bears(event("A", 60), at_us=60)
    waiting = node.core.unfinished()
    assert any("the source of A has not ended" in waits for waits in waiting)
    assert any("asked for and never sent" in waits for waits in waiting)
    assert any("still holds 1 rows" in waits for waits in waiting)


# -- state -------------------------------------------------------------------------------------------------------------


def test_a_node_that_is_restored_in_the_middle_goes_on_as_if_nothing_had_happened() -> None:
    node = ANode(LAST, PAIR, parent=None, children=["left"], sources="A", sinks=["X", "Y(v > 0)"])
    numbers = {deploy.stream: deploy.number for deploy in sent(node.child_says("left", "B"), Deploy)}
    of_b = numbers[Filter("B")]
    node.hears("left", Batch((body(event("B", 30, 1, "left"), of_b),), ()), at_us=40)
    node.bears(event("A", 60, 1), at_us=60)
    copy = NodeCore.restored(node.core.save())
    rest: list[tuple[int, Input]] = [
        (82, MessageReceived("left", Batch((body(event("B", 50, 2, "left"), of_b),), (Watermark(of_b, 55),)))),
        (84, MessageReceived("left", Batch((), (Watermark(of_b, 60),)))),
        (86, TimerFired("tick")),
        (90, Born(0, (event("A", 90, 2),))),
        (95, MessageReceived("left", Batch((), (Watermark(of_b, 90),)))),
    ]
    one = [node.core.handle(received, at_us) for at_us, received in rest]
    other = [copy.handle(received, at_us) for at_us, received in rest]
    assert one == other
    assert [found for effects in one for found in delivered(effects)] == [(1, 60), (0, 90), (1, 90)]
    assert copy.tables() == node.core.tables()
    assert copy.held() == node.core.held() > 0


def test_damaged_state_is_refused() -> None:
    data = ANode(PAIR, sources="AB").core.save()
    with pytest.raises(StateError, match="damaged"):
        NodeCore.restored(data[:-9])
    with pytest.raises(StateError, match="not a saved node"):
        NodeCore.restored(save({"node": "n"}))
    assert restore(save([1, 2])) == [1, 2]


def test_tables_are_plain_data() -> None:
    node = ANode(PAIR, parent=None, children=["left", "right"], sources="C", sinks=["X(v = 2)"])
    node.child_says("left", "A", ["X"])
    node.child_says("right", "B")
    tables = node.core.tables()
    shown = json.loads(json.dumps(tables))
    (work,) = shown["work"]
    assert work["advertised"] == {"left": ["A"], "right": ["B"]}
    assert work["subscriptions"] == {"local": {"0": "X(v = 2)"}, "children": {"left": ["X"], "right": []}}
    assert work["tasks"] == ["rule pair"]
    assert sorted(work["routes"]["asked"]) == ["1 from left: filter A", "2 from right: filter B"]
    assert shown["trees"][0]["tree"] == "n"
    assert shown["plans"]["1"]["rules"] == ["pair version 1"]


def test_a_core_ignores_timers_it_does_not_remember() -> None:
    node = ANode(PAIR, sources="A")
    before = node.core.tables()
    assert node.handle(TimerFired("local Z"), 10) == []
    assert node.handle(TimerFired("anything"), 10) == []
    assert node.core.tables() == before
