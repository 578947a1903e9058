"""An engine as one of many: composites from outside, old events, what it still may give and what it waits for."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import msgpack
import pytest

from headwater.node.engine import Engine, compile_rules
from headwater.protocol.composites import Composite, from_wire, to_wire, wire_spec, wire_specs
from headwater.protocol.errors import EventError, RuleError
from headwater.protocol.events import Event, EventType
from headwater.protocol.pattern import Chain, Rule, Selection, types_of
from tests.kit.builders import TYPES as BUILDER_TYPES
from tests.kit.builders import absent, both, chain, each, either, first, last, many, no, rule, seq, trace
from tests.law.equal_values import chance_of_seed, drawn
from tests.law.fuzzing import Advance, Feed, SaveAndRestore, Schedule, expected_of, random_schedule
from tests.law.generators import REMOTE, TYPES, Case, RuleMaker, case_of_seed, random_trace

INFINITY = float("inf")


def through_a_link(composite: Composite, specs: Any) -> Composite:
    return from_wire(msgpack.unpackb(msgpack.packb(to_wire(composite))), specs)


def told(composites: Sequence[Composite]) -> list[dict[str, Any]]:
    return sorted((composite.to_json() for composite in composites), key=lambda json: json["id"])


def events(text: str) -> list[Event]:
    return list(trace(text).events)


def engine_of(*rules: Rule, **options: Any) -> Engine:
    return Engine(list(rules), tuple(BUILDER_TYPES.values()), **options)


# --------------------------------------------------------------------------------------------- composites from outside


class Network:
    """One engine per rule; composites go over links, watermarks from output to input."""

    def __init__(self, case: Case) -> None:
        self.specs = wire_specs(case.rules)
        emitted = {made.emits: wire_spec(made).type for made in case.rules}
        self.rules = compile_rules(list(case.rules), case.types, remote=case.remote).rules
        self.programs = {
            made.name: compile_rules([made], case.types, composites=emitted.values(), remote=case.remote)
            for made in self.rules
        }
        self.engines = {name: Engine(program) for name, program in self.programs.items()}
        self.promised: dict[str, float] = {}

    def feed(self, batch: Sequence[Event]) -> list[Composite]:
        return self._run(lambda engine: engine.feed(batch), -INFINITY)

    def advance(self, watermark: float) -> list[Composite]:
        return self._run(lambda engine: [], watermark)

    def _run(self, work: Any, watermark: float) -> list[Composite]:
        found: dict[str, list[Composite]] = {}
        for made in self.rules:
            engine = self.engines[made.name]
            sources = [other for other in self.rules if other.emits in types_of(made.pattern)]
            before = engine.waits_until()
            new = work(engine)
            rows = [through_a_link(c, self.specs).row() for other in sources for c in found[other.name]]
            random.Random(len(rows)).shuffle(rows)
            new += engine.feed(rows + rows[:2])
            before = min(before, engine.waits_until())
            reached = min([watermark, *(self.engines[other.name].output_watermark() for other in sources)])
            decided = engine.advance(reached)
            assert not decided or reached >= before or counts(made), "decided what it did not wait for"
            new += decided
            assert all(c.ts > self.promised.get(made.name, -INFINITY) for c in new), "broke its promise"
            self.promised[made.name] = engine.output_watermark()
            assert engine.take_late() == []
            found[made.name] = new
        return [composite for new in found.values() for composite in new]

    def save_and_restore(self) -> None:
        for name, engine in self.engines.items():
            saved = engine.snapshot()
            self.engines[name] = Engine(self.programs[name])
            self.engines[name].restore(saved)
            assert self.engines[name].output_watermark() == engine.output_watermark()
            assert self.engines[name].waits_until() >= engine.waits_until()


def counts(made: Rule) -> bool:
    window = getattr(made.pattern.root, "window", None)
    return window is not None and window.unit == "events"


def cases_with_readers(seeds: range) -> Iterator[Case]:
    for seed in seeds:
        case = case_of_seed(seed)
        emitted = {made.emits for made in case.rules}
        if any(types_of(made.pattern) & emitted for made in case.rules) and expected_of(case) is not None:
            yield case


def check_split(case: Case, schedule: Schedule) -> int:
    """One engine with all rules and one engine for each say the same at every moment; how many composites."""
    whole = Engine(list(case.rules), case.types, remote=case.remote)
    network = Network(case)
    total = 0
    for action in (*schedule.actions, Advance(10**9)):
        match action:
            case Feed(batch):
                one, other = whole.feed(batch), network.feed(batch)
            case Advance(watermark):
                one, other = whole.advance(watermark), network.advance(watermark)
            case SaveAndRestore():
                network.save_and_restore()
                continue
        assert told(one) == told(other), (case.seed, action)
        total += len(one)
    assert told(whole.close()) == told(network.advance(INFINITY))
    return total


@pytest.mark.parametrize("start", range(0, 1200, 300))
def test_rules_in_engines_of_their_own_find_what_one_engine_with_all_of_them_finds(start: int) -> None:
    found = checked = 0
    for case in cases_with_readers(range(start, start + 300)):
        found += check_split(case, random_schedule(random.Random(f"split {case.seed}"), case.events))
        checked += 1
    assert checked > 20
    assert found > 50


INNER = rule(seq("A a", "B b", within=9, bounds="span"), name="inner", emits="X", out={"v": "a.v", "w": "b.v"})
X = wire_spec(INNER).type


def test_a_composite_from_outside_has_a_start_apart_from_its_end() -> None:
    outer = rule(seq("C c", "X x", within=20, bounds="span"), name="outer", emits="Y")
    (one, two) = engine_of(INNER).feed(events("A@1 A@4 B@5"))
    engine = engine_of(outer, composites=[X])
    assert engine.feed(events("C@3/m")) == []
    found = engine.feed([one.row(), two.row(), one.row()])
    assert [composite.start[0] for composite in found] == [3]
    (_, part) = found[0].events[1]
    assert isinstance(part, Composite)
    assert part.start[0] == 4


def test_a_late_composite_is_kept_apart() -> None:
    outer = rule(seq("X x", "C c", within=20), name="outer", emits="Y")
    engine = engine_of(outer, composites=[X])
    (row,) = [composite.row() for composite in engine_of(INNER).feed(events("A@1 B@5"))]
    engine.advance(5)
    engine.feed([row])
    assert engine.feed(events("C@7/m")) == []
    assert engine.take_late() == [row]
    assert engine.counters()["late_events"] == 1


def test_a_composite_that_was_not_declared_is_refused_where_a_rule_here_emits_it_and_ignored_where_none_names_it() -> (
    None
):
    row = engine_of(INNER).feed(events("A@1 B@5"))[0].row()
    outer = rule(seq("X x", "C c", within=20), name="outer", emits="Y")
    with pytest.raises(EventError, match="declare it among the engine's composites"):
        engine_of(INNER, outer).feed([row])
    assert engine_of(INNER).feed([row]) == []


def test_a_composite_row_with_other_columns_than_declared_is_refused() -> None:
    outer = rule(seq("X x", "C c", within=20), name="outer", emits="Y")
    row = engine_of(INNER).feed(events("A@1 B@5"))[0].row()
    with pytest.raises(EventError, match="2 values"):
        engine_of(outer, composites=[EventType("X", {"v": "int?"})]).feed([row])


def test_a_type_may_come_from_outside_and_from_a_rule_here_with_other_attributes() -> None:
    here = rule(seq("D d", within=9), name="here", emits="X", out={"z": "d.v"})
    outer = rule(seq("X x", "C c", within=20), name="outer", emits="Y", out={"v": "x.v", "z": "x.z"})
    engine = engine_of(here, outer, composites=[X])
    rows = [composite.row() for composite in engine_of(INNER).feed(events("A@1(v=3) B@5"))]
    found = engine.feed([*rows, *events("D@2(v=4)/m C@7/m")])
    assert [c.attributes for c in found if c.rule == "outer"] == [{"v": 3, "z": None}, {"v": None, "z": 4}]


def test_the_same_match_from_a_link_and_from_an_engine_nearby_is_one() -> None:
    outer = rule(seq("X x", "C c", within=20), name="outer", emits="Y")
    composite = engine_of(INNER).feed(events("A@1 B@5"))[0]
    sent = through_a_link(composite, wire_specs([INNER]))
    assert sent == composite
    assert hash(sent) == hash(composite)
    engine = engine_of(outer, composites=[X])
    assert len(engine.feed([sent.row(), composite.row(), *events("C@7/m")])) == 1


def test_a_composite_type_cannot_be_declared_as_an_event_type_too() -> None:
    outer = rule(seq("X x", "C c", within=20), name="outer", emits="Y")
    with pytest.raises(RuleError, match="both an event type of a source and the output of a rule"):
        Engine([outer], [X], composites=[X])


def test_a_snapshot_keeps_composites_from_outside_with_the_composites_inside_them() -> None:
    middle = rule(seq("X x", "C c", within=20), name="middle", emits="Y", out={"v": "x.v"})
    outer = rule(chain("D d", last("Y y", 20, "d")), name="outer", emits="Z", out={"v": "y.v"})
    found = engine_of(INNER, middle).feed(events("A@1(v=3) B@5 C@7"))
    row = next(composite.row() for composite in found if composite.rule == "middle")
    engine = engine_of(outer, composites=[wire_spec(middle).type])
    engine.feed([row])  # still pending
    engine = engine.copy()
    engine.advance(8)
    engine = engine.copy()  # in a buffer
    engine.feed([row, *events("D@9/m")])
    (made,) = engine.copy().close()
    assert made.attributes == {"v": 3}
    assert made.start[0] == 1
    assert made.to_json() == engine.close()[0].to_json()
    assert len(engine.take_late()) == 1


def test_a_snapshot_fits_only_engines_with_the_same_composites_from_outside() -> None:
    outer = rule(seq("X x", "C c", within=20), name="outer", emits="Y")
    saved = engine_of(outer, composites=[X]).snapshot()
    with pytest.raises(Exception, match="other rules or event types"):
        engine_of(outer, composites=[EventType("X", {"v": "any?"})]).restore(saved)


# ------------------------------------------------------------------------------------------------------- the wire form


def test_composites_go_over_the_wire_unchanged() -> None:
    checked = 0
    kinds: set[str] = set()
    for seed in range(250):
        case = case_of_seed(seed)
        if expected_of(case) is None:
            continue
        specs = wire_specs(case.rules)
        engine = Engine(list(case.rules), case.types, remote=case.remote)
        found = engine.feed(case.events) + engine.close()
        for composite in found[:40]:
            sent = through_a_link(composite, specs)
            assert (sent.id, sent.key, sent.start, sent.end) == (
                composite.id, composite.key, composite.start, composite.end
            )  # fmt: skip
            assert sent.to_json() == composite.to_json()
            assert sent.row()[4:] == composite.row()[4:]
            assert to_wire(sent) == to_wire(composite)
            checked += 1
            kinds |= {"repeated"} if any(composite.spec.repeated) else set()
            kinds |= {"unbound"} if None in composite[1 : 1 + len(composite.spec.roles)] else set()
            kinds |= {"nested"} if any(isinstance(row[3], Composite) for _, row in composite.parts()) else set()
    assert checked > 500
    assert kinds == {"repeated", "unbound", "nested"}


def test_large_integers_travel_and_nonsense_is_refused() -> None:
    root = seq(either("A a", "B b"), many("C c"), within=9)
    choice = rule(root, name="choice", emits="X", out={"v": "sum(c.v)"})
    (composite,) = engine_of(choice).feed(events(f"B@1 C@2(v={1 << 80})"))
    specs = wire_specs([choice])
    assert through_a_link(composite, specs).attributes == {"v": 1 << 80}
    assert composite.parts()[0][0] == "b"
    good = to_wire(composite)
    bad: list[Any] = [None, 7, [], good[:4], [*good[:3], [], good[4]], ["unknown", *good[1:]], [*good[:4], []]]
    bad += [[*good[:4], [["z", 1, "n", 1, "A"]]], [*good[:4], [["b", "1", "n", 1, "A"]]], [[], *good[1:]]]
    bad += [[*good[:4], [["b", 1, "n", 1, "B"], ["b", 2, "n", 2, "B"]]], [*good[:3], [["no", 1]], good[4]]]
    for data in bad:
        with pytest.raises(EventError):
            from_wire(data, specs)


# --------------------------------------------------------------------------------------------------------- old events


def random_selections(rng: random.Random, equal: random.Random | None) -> tuple[Rule, set[str]]:
    """A chain that only selects, and whose anchor has a type of its own; what it exercises."""
    while True:
        features: set[str] = set()
        maker = RuleMaker(rng, "r", (), features, drawn(equal, features))
        pattern = maker.chain()
        assert isinstance(pattern.root, Chain)
        steps = pattern.root.steps
        selects = bool(steps) and all(isinstance(step, Selection) for step in steps)
        if selects and pattern.root.anchor.type not in {step.leaf.type for step in steps}:
            return Rule("r", pattern, "X", maker.outputs(pattern, False)), features


def run_with_old(made: Rule, given: Sequence[Event], rng: random.Random) -> list[Composite]:
    """Some parts come only when an anchor asks for them, when the watermark has passed them."""
    root = made.pattern.root
    assert isinstance(root, Chain)
    program = compile_rules([made], tuple(TYPES.values()), remote=REMOTE)
    engine = Engine(program)
    found: list[Composite] = []
    held: list[Event] = []
    for ts in sorted({event.ts for event in given}):
        here = [event for event in given if event.ts == ts]
        anchors = [event for event in here if event.type == root.anchor.type]
        found += engine.advance(ts - 1)
        if anchors:
            old = [*held, *rng.sample(held, len(held) // 2)]
            rng.shuffle(old)
            found += engine.insert_old(old)
            if rng.random() < 0.3:
                found += engine.insert_old(old)
            held = []
            found += engine.insert_old([event for event in here if event not in anchors])
            found += engine.feed(anchors)
        else:
            for event in here:
                if rng.random() < 0.5:
                    held.append(event)
                else:
                    found += engine.feed([event])
        if rng.random() < 0.2:
            engine = engine.copy()
    return found + engine.close()


@pytest.mark.parametrize("start", range(0, 800, 400))
def test_parts_that_come_after_the_watermark_has_passed_them_are_found_by_the_anchor(start: int) -> None:
    total = policies = 0
    for seed in range(start, start + 400):
        rng = random.Random(f"old {seed}")
        made, features = random_selections(rng, chance_of_seed(seed))
        given = random_trace(rng, sorted(types_of(made.pattern)), 14, features)
        engine = Engine([made], tuple(TYPES.values()), remote=REMOTE)
        expected = engine.feed(given) + engine.close()
        found = run_with_old(made, given, rng)
        assert told(found) == told(expected), (seed, made, given)
        total += len(expected)
        policies += bool(engine.triggers()) and bool(expected)
    assert total > 300
    assert policies > 60


def test_an_old_composite_is_inserted_at_its_place() -> None:
    outer = rule(chain("C c", last("X x", 10, "c")), name="outer", emits="Y", out={"v": "x.v"})
    engine = engine_of(outer, composites=[X])
    older, newer = (c.row() for c in engine_of(INNER).feed(events("A@1(v=1) B@2 A@11(v=2) B@12")))
    engine.advance(3)
    engine.feed([newer, *events("C@12/z")])
    assert engine.insert_old([older, older]) == []
    assert engine.stored() == 3
    engine.advance(11)
    assert [c.attributes["v"] for c in engine.advance(12)] == [2]


def test_old_events_wake_sleeping_buffers_and_are_freed_again() -> None:
    engine = engine_of(rule(chain("B b", last("A a", 10, "b"))))
    for watermark in range(0, 100, 5):
        engine.advance(watermark)
    engine.insert_old(events("A@94"))
    assert engine.stored() == 1
    assert len(engine.feed(events("B@99/m")) + engine.advance(99)) == 1
    for watermark in range(100, 150, 5):
        engine.advance(watermark)
    assert engine.stored() == 0
    engine.insert_old(events("A@3"))
    engine.advance(200)
    assert engine.stored() == 0


@pytest.mark.parametrize(
    "made",
    [rule(seq("A a", "B b", within=5, bounds="span"), skip="next"), rule(seq("A a", "B b", events=4))],
    ids=["skip till next", "count window"],
)
def test_old_events_are_refused_where_rules_number_or_follow_every_event(made: Rule) -> None:
    with pytest.raises(RuleError, match="old events cannot be inserted"):
        engine_of(made).insert_old(events("A@1"))


# ------------------------------------------------------------------------------------------ what is known of the output


def test_triggers_are_the_types_that_can_complete_a_match_by_watermark() -> None:
    assert engine_of(rule(chain("A a", last("B b", 5, "a"), first("C c", 5, "b")))).triggers() == {"A"}
    assert engine_of(rule(chain("A a", each("B b", 5, "a")))).triggers() == set()
    assert engine_of(rule(seq("A a", no("C c"), both("B b", "D d"), within=5))).triggers() == {"B", "D"}
    assert engine_of(rule(seq("A a", "B b", within=5), skip="next")).triggers() == {"B"}
    assert engine_of(rule(chain("A a", each("B b", 5, "a"), absent("C c", 5, "a")))).triggers() == {"A"}


def test_an_engine_is_ordered_if_a_rule_is_decided_by_watermark() -> None:
    eager, waiting = rule(seq("A a", "B b", within=5)), rule(seq("A a", no("B b"), within=5), name="s", emits="Y")
    assert not engine_of(eager).ordered()
    assert engine_of(eager, waiting).ordered()


def test_the_output_watermark_follows_the_watermark_and_stays_before_what_still_waits() -> None:
    engine = engine_of(rule(seq("A a", no("B b"), within=10, bounds="span")))
    assert engine.output_watermark() == -INFINITY
    engine.feed(events("A@5"))
    engine.advance(3)
    assert engine.output_watermark() == 3
    engine.advance(8)
    assert engine.output_watermark() == 4
    engine.feed(events("A@9/m"))
    engine.advance(14)
    assert engine.output_watermark() == 4
    assert len(engine.advance(15)) == 1
    assert engine.output_watermark() == 8
    assert len(engine.advance(40)) == 1
    assert engine.output_watermark() == 40


def test_the_output_watermark_of_several_rules_is_the_least() -> None:
    eager = rule(seq("A a", "C c", within=5))
    waiting = rule(seq("A a", no("B b"), within=10, bounds="span"), name="s", emits="Y")
    engine = engine_of(eager, waiting)
    engine.feed(events("A@5"))
    engine.advance(8)
    assert engine.output_watermark() == 4


def test_an_engine_says_which_watermark_it_waits_for() -> None:
    engine = engine_of(rule(chain("B b", last("A a", 10, "b"))))
    assert engine.waits_until() == INFINITY
    engine.feed(events("A@2 A@3"))
    assert engine.waits_until() == INFINITY
    engine.feed(events("B@9/m"))
    assert engine.waits_until() == 9
    engine.feed(events("B@7/k B@8/k"))
    assert engine.waits_until() == 7
    assert len(engine.advance(7)) == 1
    assert engine.waits_until() == 8
    engine.advance(10)
    assert engine.waits_until() == INFINITY


def test_an_engine_waits_for_the_end_of_a_trailing_negation_and_of_a_last_repetition() -> None:
    engine = engine_of(rule(seq("A a", no("B b"), within=10, bounds="span")))
    engine.feed(events("A@5"))
    assert engine.waits_until() == 5
    engine.advance(5)
    assert engine.waits_until() == 15
    assert engine.copy().waits_until() == 15
    engine = engine_of(rule(seq("A a", many("B b"), within=10, bounds="span"), skip="next"))
    engine.feed(events("A@5 B@6"))
    engine.advance(6)
    assert engine.waits_until() == 15
    assert engine.copy().waits_until() == 15
    assert engine.advance(14) == []
    assert len(engine.advance(15)) == 1
    assert engine.waits_until() == INFINITY


def test_a_rule_that_waits_for_another_one_waits_for_what_that_one_waits_for() -> None:
    alone = rule(seq("A a", no("B b"), within=10, bounds="span"), name="alone", emits="X")
    after = rule(chain("C c", last("X x", 20, "c")), name="after", emits="Y")
    engine = engine_of(alone, after)
    engine.feed(events("A@5 C@8"))
    assert engine.waits_until() == 5
    engine.advance(9)
    assert engine.waits_until() == 15
    assert {composite.rule for composite in engine.advance(15)} == {"alone", "after"}
    assert engine.waits_until() == INFINITY


def test_an_engine_that_has_nothing_to_decide_decides_nothing_when_it_closes() -> None:
    quiet = 0
    for seed in range(300):
        case = case_of_seed(seed)
        if expected_of(case) is None or any(counts(made) for made in case.rules):
            continue
        engine = Engine(list(case.rules), case.types, remote=case.remote)
        engine.feed(case.events)
        while (needed := engine.waits_until()) != INFINITY:
            assert needed > engine.watermark
            assert engine.advance(needed - 1) == []
            engine.advance(needed)
        assert engine.close() == []
        quiet += 1
    assert quiet > 150
