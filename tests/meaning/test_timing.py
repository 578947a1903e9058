"""When the engine emits, what it keeps and what it calls late: design section 3 in small examples.

The engine reads no clock. Monotone rules emit as soon as the parts are there; the others exactly when the watermark
decides them; ``close`` decides everything.
"""

from __future__ import annotations

import pytest

from headwater.node.engine import Engine
from headwater.protocol import pattern as pt
from headwater.protocol.composites import Composite
from headwater.protocol.events import Event
from tests.kit.builders import TYPES, absent, aggregate, both, chain, each, either, last, many, no, rule, seq, trace


class Running:
    """An engine that is fed and advanced in the words of the test."""

    def __init__(self, *rules: pt.Rule) -> None:
        self.rules = list(rules)
        self.engine = self.make()
        self.names: dict[tuple[str, int], str] = {}
        self.count = 0

    def make(self) -> Engine:
        return Engine(self.rules, tuple(TYPES.values()))

    def feed(self, text: str) -> list[str]:
        """Feed events; each call numbers them on, so that no two share an identity."""
        events = []
        for event in trace(text).events:
            numbered = Event(event.event_type, event.ts, event.node, self.count, event.attributes)
            self.names[event.node, self.count] = f"{event.type}@{event.ts}"
            self.count += 1
            events.append(numbered)
        return self.told(self.engine.feed(events))

    def advance(self, watermark: int) -> list[str]:
        return self.told(self.engine.advance(watermark))

    def close(self) -> list[str]:
        return self.told(self.engine.close())

    def save_and_restore(self) -> None:
        saved = self.engine.snapshot()
        self.engine = self.make()
        self.engine.restore(saved)

    def told(self, composites: list[Composite]) -> list[str]:
        return [" ".join(self.name(part) for _, part in c.events) for c in composites]

    def name(self, part: Event | Composite) -> str:
        assert isinstance(part, Event)
        return self.names[part.node, part.seq]


@pytest.mark.parametrize(
    ("root", "late_part", "match"),
    [
        (seq("A a", "B b", within=5), "A@1", "A@1 B@3"),
        (both("A a", "B b", within=5), "A@4", "A@4 B@3"),
        (seq(either("A a", "C c"), "B b", within=5), "C@1", "C@1 B@3"),
        (seq(many("A a"), "B b", within=5), "A@2", "A@2 B@3"),
        (chain("B b", each("A a", 5, "b")), "A@1", "B@3 A@1"),
    ],
    ids=["SEQ", "AND", "OR", "repetition", "each"],
)
def test_a_monotone_rule_emits_as_soon_as_its_parts_are_there_in_whatever_order(
    root: pt.Part | pt.Chain, late_part: str, match: str
) -> None:
    engine = Running(rule(root))
    assert engine.feed("B@3") == []
    assert engine.feed(late_part) == [match]
    assert engine.advance(99) == []
    assert engine.close() == []


@pytest.mark.parametrize(
    "root",
    [
        chain("B b", last("A a", 5, "b")),
        chain("B b", each("A a", 5, "b"), absent("C c", within=5, of="b")),
        chain("B b", each("A a", 5, "b"), aggregate("p", "count", "C c", within=5, of="b")),
    ],
    ids=["last", "not", "aggregate"],
)
def test_a_chain_that_waits_is_decided_when_the_watermark_reaches_its_anchor(root: pt.Part | pt.Chain) -> None:
    engine = Running(rule(root))
    assert engine.feed("A@1 B@3") == []
    assert engine.advance(2) == []
    assert engine.advance(3) == ["B@3 A@1"]
    assert engine.close() == []


def test_an_event_that_arrives_out_of_order_still_moves_a_selection() -> None:
    engine = Running(rule(chain("B b", last("A a", 5, "b"))))
    engine.feed("A@1 B@3")
    engine.feed("A@2")
    assert engine.advance(3) == ["B@3 A@2"]


def test_an_event_that_arrives_out_of_order_still_forbids() -> None:
    engine = Running(rule(seq("A a", no("C c"), "B b", within=5)))
    engine.feed("A@1 B@3")
    engine.feed("C@2")
    assert engine.advance(9) == []


def test_a_trailing_negation_fires_exactly_when_its_time_is_up() -> None:
    engine = Running(rule(seq("A a", no("C c"), within=5)))
    assert engine.feed("A@1") == []
    assert engine.advance(5) == []
    assert engine.advance(6) == ["A@1"]


def test_close_lets_pending_trailing_negations_fire() -> None:
    engine = Running(rule(seq("A a", no("C c"), within=5)))
    engine.feed("A@1")
    assert engine.close() == ["A@1"]


def test_a_last_repetition_under_skip_till_next_is_decided_when_the_window_is_over() -> None:
    engine = Running(rule(seq("A a", many("B b"), within=5), skip="next"))
    assert engine.feed("A@1 B@2") == []
    assert engine.advance(5) == []
    assert engine.feed("B@6") == []
    assert engine.advance(6) == ["A@1 B@2 B@6"]


def test_a_rule_on_a_waiting_rules_composites_waits_with_it() -> None:
    alone = rule(seq("A a", no("C c"), within=5), name="alone", emits="X")
    counted = rule(chain("B b", absent("X x", within=9, of="b")), name="counted", emits="Y")
    engine = Running(alone, counted)
    assert engine.feed("A@1 B@2") == []
    assert engine.advance(3) == []
    assert engine.feed("C@4") == []
    assert engine.advance(6) == ["B@2"]


def test_the_same_event_twice_gives_its_matches_once() -> None:
    engine = Running(rule(seq("A a", "B b", within=5)))
    events = list(trace("A@1 B@2").events)
    assert len(engine.engine.feed(events)) == 1
    assert engine.engine.feed(events) == []
    assert engine.engine.close() == []


def test_an_event_at_or_before_the_watermark_is_late_and_handed_out() -> None:
    engine = Running(rule(seq("A a", "B b", within=5)))
    engine.advance(3)
    assert engine.feed("A@3 A@4") == []
    assert [event.ts for event in engine.engine.take_late()] == [3]
    assert engine.engine.take_late() == []
    assert engine.feed("B@5") == ["A@4 B@5"]


def test_state_goes_on_after_save_and_restore() -> None:
    engine = Running(
        rule(seq("A a", "B b", within=5), name="eager"), rule(seq("A a", no("C c"), within=5), name="waits")
    )
    engine.feed("A@1")
    engine.advance(1)
    engine.save_and_restore()
    assert engine.feed("B@2") == ["A@1 B@2"]
    engine.save_and_restore()
    assert engine.advance(6) == ["A@1"]
    assert engine.close() == []


def test_a_restored_engine_remembers_what_it_has_emitted_and_seen() -> None:
    engine = Running(rule(seq("A a", "B b", within=5)))
    events = list(trace("A@1 B@2").events)
    assert len(engine.engine.feed(events)) == 1
    engine.save_and_restore()
    assert engine.engine.feed(events) == []


def test_nothing_is_kept_beyond_the_windows() -> None:
    engine = Running(
        rule(seq("A a", "B b", within=5), name="one"),
        rule(chain("B b", last("A a", 5, "b")), name="two"),
        rule(seq("A a", no("C c"), within=5), name="three"),
    )
    engine.feed("A@1 B@2 C@3 A@4")
    assert engine.engine.stored() > 0
    engine.advance(1000)
    assert engine.engine.stored() == 0
