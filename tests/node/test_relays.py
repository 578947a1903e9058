"""Elements of remote tables that a node has from its neighbours, and those that it gives them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headwater.coordinator.core import Coordinator
from headwater.node.core import FETCH_AGAIN_US, NodeCore
from headwater.node.effects import (
    Born,
    Deliver,
    Effect,
    Fetch,
    Fetched,
    FetchFailed,
    LinkReset,
    MessageReceived,
    OrderReceived,
    Report,
    Send,
    Tell,
    TimerFired,
)
from headwater.node.remote import relay
from headwater.node.remote.encoding import decode_elements, encode_elements
from headwater.node.remote.memory import Memory
from headwater.node.remote.relay import REFUSED_MAX, SELDOM, SILENCE_US
from headwater.protocol.events import Event, EventType
from headwater.protocol.languages import Source as RuleText
from headwater.protocol.languages import parse_rules
from headwater.protocol.messages.plans import Adopt, TableWay
from headwater.protocol.messages.remote import ElementAnswer, ElementRefusal, ElementRequest
from headwater.protocol.network import Network, Sink, Source
from headwater.protocol.remote import STEADY, TableTerms, Versions
from headwater.protocol.subscriptions import Subscription
from headwater.protocol.wire.messages import Wire

T = EventType("T", [("org", "string"), ("vol", "int")])
RULE = "Over: SEQ(T a, T b) WHERE b.vol > REMOTE.limits[a.org] WITHIN 10 s RETURN Over(org = a.org)"
HUNDRED = Versions.always(100)
ACME, UMBRELLA = ("limits", ("acme",)), ("limits", ("umbrella",))
DELAY_US = 1000


class Node:
    """A node between two neighbours, with a rule that looks into a table."""

    def __init__(self, *ways: TableWay, cache_bytes: int = 10**6, terms: TableTerms = STEADY) -> None:
        network = Network(
            (T,),
            ("p",),
            (),
            (Source("p", "T"),),
            (Sink("p", Subscription("Over")),),
            parse_rules([RuleText(RULE, "over", "sase")], [T]).rules,
        )
        memory = Memory((), policy="lazy", cache_bytes=cache_bytes, terms={"limits": terms})
        self.core = NodeCore("p", {"near": DELAY_US, "far": DELAY_US}, memory=memory)
        self.coordinator = Coordinator(network, "st", computed_trees=True)
        self.now_us = 0
        self.seq = 0
        waiting = self.coordinator.begin()
        while waiting:
            _, order = waiting.pop(0)
            if isinstance(order, Adopt):
                self.share = order.share
            for effect in self.core.handle(OrderReceived(order), 0):
                if isinstance(effect, Tell):
                    waiting += self.coordinator.reported("p", effect.report)
        self.planned(*ways)

    def given(self, received: Any) -> list[Effect]:
        self.now_us += 1
        return self.core.handle(received, self.now_us)

    def planned(self, *ways: TableWay) -> list[Effect]:
        """The next plan, which differs from the one before in its ways."""
        self.share = replace(self.share, plan=self.share.plan + 1, ways=ways)
        return self.given(OrderReceived(Adopt(self.share)))

    def born(self, org: str, vol: int) -> list[Effect]:
        self.seq += 1
        born_us = self.now_us + 1
        return self.given(Born(0, (Event(T, born_us, "p", self.seq, {"org": org, "vol": vol}),)))

    def needs(self, org: str) -> list[Effect]:
        self.born(org, 1)
        return self.born(org, 200)

    def hears(self, neighbour: str, message: Any) -> list[Effect]:
        return self.given(MessageReceived(neighbour, message))


def packed(*places: tuple[str, tuple[Any, ...]]) -> bytes:
    return encode_elements((*place, None) for place in places)


def request(*places: tuple[str, tuple[Any, ...]], at_hand: bool = False) -> ElementRequest:
    return ElementRequest(packed(*places), at_hand)


def answer(*places: tuple[str, tuple[Any, ...]]) -> ElementAnswer:
    return ElementAnswer(encode_elements((*place, HUNDRED) for place in places))


def sent(effects: list[Effect]) -> list[tuple[str, str, list[Any]]]:
    """What neighbours are sent: to whom, what kind of message, and about which elements."""
    kinds = {ElementRequest: "request", ElementAnswer: "answer", ElementRefusal: "refusal"}
    return [
        (effect.neighbour, kinds[type(message)], [element[:2] for element in decode_elements(_bytes(message))])
        for effect in effects
        if isinstance(effect, Send) and isinstance(message := effect.message, tuple(kinds))
    ]


def _bytes(message: Any) -> bytes:
    return bytes(message.elements if isinstance(message, ElementAnswer) else message.places)


def fetches(effects: list[Effect]) -> list[Any]:
    return [place for effect in effects if isinstance(effect, Fetch) for place in effect.places]


def delivered(effects: list[Effect]) -> list[str]:
    return [row[3].attributes["org"] for effect in effects if isinstance(effect, Deliver) for row in effect.rows]


AWAY = TableWay("limits", "near")


def test_an_element_of_a_table_that_is_not_reached_is_asked_of_the_next_node_on_the_way() -> None:
    node = Node(AWAY)
    asked = node.needs("acme")
    assert (sent(asked), fetches(asked)) == ([("near", "request", [ACME])], [])
    assert sent(node.born("acme", 300)) == []
    assert delivered(node.hears("near", answer(ACME))) == ["acme"] * 3
    assert delivered(node.born("acme", 500)) == ["acme"] * 3


def test_a_node_on_the_way_passes_a_question_on_once_and_answers_all() -> None:
    node = Node(AWAY)
    assert sent(node.hears("far", request(ACME))) == [("near", "request", [ACME])]
    assert sent(node.needs("acme")) == []
    came = node.hears("near", answer(ACME))
    assert sent(came) == [("far", "answer", [ACME])]
    assert delivered(came) == ["acme"]


def test_a_node_that_reaches_the_table_asks_the_provider_for_a_neighbour() -> None:
    node = Node()
    assert fetches(node.hears("far", request(ACME, UMBRELLA))) == [ACME, UMBRELLA]
    assert sent(node.given(Fetched(((*ACME, None),)))) == [("far", "answer", [ACME])]
    assert fetches(node.given(FetchFailed((UMBRELLA,)))) == []
    node.now_us += FETCH_AGAIN_US
    assert fetches(node.given(TimerFired("fetch"))) == [UMBRELLA]
    assert sent(node.given(Fetched(((*UMBRELLA, HUNDRED),)))) == [("far", "answer", [UMBRELLA])]


def test_what_is_at_hand_is_answered_at_once_and_what_was_passed_on_is_kept() -> None:
    node = Node(AWAY)
    node.hears("far", request(ACME))
    node.hears("near", answer(ACME))
    again = node.hears("far", request(ACME))
    assert sent(again) == [("far", "answer", [ACME])]
    assert delivered(node.needs("acme")) == ["acme"]


def test_a_node_that_keeps_nothing_still_passes_answers_on() -> None:
    node = Node(AWAY, cache_bytes=0)
    node.hears("far", request(ACME))
    assert sent(node.hears("near", answer(ACME))) == [("far", "answer", [ACME])]
    assert sent(node.hears("far", request(ACME))) == [("near", "request", [ACME])]


def test_an_answer_that_was_not_asked_for_or_comes_again_changes_nothing() -> None:
    node = Node(AWAY)
    assert Report("unasked_elements") in node.hears("near", answer(ACME))
    node.needs("acme")
    node.hears("near", answer(ACME))
    again = node.hears("near", answer(ACME))
    assert Report("unasked_elements") in again
    assert delivered(again) == []


def test_bytes_that_are_no_elements_are_counted() -> None:
    node = Node(AWAY)
    for message in (ElementRequest(b"\x91\x01"), ElementAnswer(b"\x91\x93\x01"), ElementRefusal(b"\x91\x80")):
        assert Report("malformed_elements") in node.hears("near", message)


def test_what_is_outstanding_follows_the_newest_plan() -> None:
    node = Node(AWAY)
    node.needs("acme")
    assert sent(node.planned(AWAY)) == []
    assert sent(node.planned(TableWay("limits", "far"))) == [("far", "request", [ACME])]
    assert delivered(node.hears("near", answer(ACME))) == ["acme"]  # on its way when the plan changed
    node.needs("umbrella")
    assert fetches(node.planned()) == [UMBRELLA]


def test_elements_that_no_node_reaches_wait_for_a_plan_that_has_a_way() -> None:
    node = Node(TableWay("limits", ""))
    asked = node.needs("acme")
    assert (sent(asked), fetches(asked), node.core.fetches()) == ([], [], [])
    assert sent(node.hears("far", request(ACME))) == []
    assert node.core.relay.unreachable() == ["limits"]
    assert node.core.awaiting() == 1
    assert sent(node.planned(AWAY)) == [("near", "request", [ACME])]
    assert node.core.relay.unreachable() == []
    came = node.hears("near", answer(ACME))
    assert (sent(came), delivered(came)) == ([("far", "answer", [ACME])], ["acme"])


def test_a_neighbour_without_memory_is_asked_again_and_answered_no_more() -> None:
    node = Node(AWAY)
    node.hears("far", request(ACME))
    assert sent(node.given(LinkReset("near"))) == [("near", "request", [ACME])]
    node.given(LinkReset("far"))
    assert sent(node.hears("near", answer(ACME))) == []


def test_what_was_asked_and_by_whom_survives_a_crash() -> None:
    node = Node(AWAY)
    node.needs("acme")
    node.hears("far", request(UMBRELLA))
    node.core = NodeCore.restored(node.core.save())
    assert node.core.fetches() == []  # a link loses nothing
    came = node.hears("near", answer(ACME, UMBRELLA))
    assert (sent(came), delivered(came)) == ([("far", "answer", [UMBRELLA])], ["acme"])


def test_more_than_a_node_may_hold_for_others_is_refused_and_asked_for_later(monkeypatch: Any) -> None:
    monkeypatch.setattr(relay, "RELAYED_MAX", 1)
    full = Node(AWAY)
    assert sent(full.hears("far", request(ACME, UMBRELLA))) == [
        ("far", "refusal", [UMBRELLA]),
        ("near", "request", [ACME]),
    ]
    asker = Node(AWAY)
    asker.needs("umbrella")
    assert Report("failed_fetches") in asker.hears("near", ElementRefusal(packed(UMBRELLA)))
    asker.now_us += FETCH_AGAIN_US
    assert sent(asker.given(TimerFired("fetch"))) == [("near", "request", [UMBRELLA])]


FIRST = TableWay("limits", "near", reached=True)


def test_a_neighbour_that_has_the_element_is_asked_before_the_provider() -> None:
    node = Node(FIRST)
    asked = node.needs("acme")
    assert (sent(asked), fetches(asked)) == ([("near", "request", [ACME])], [])
    assert delivered(node.hears("near", answer(ACME))) == ["acme"]
    node.needs("umbrella")
    assert fetches(node.hears("near", ElementRefusal(packed(UMBRELLA)))) == [UMBRELLA]
    assert "umbrella" in delivered(node.given(Fetched(((*UMBRELLA, HUNDRED),))))


def test_a_neighbour_that_says_nothing_holds_nothing_up() -> None:
    node = Node(FIRST)
    node.needs("acme")
    assert fetches(node.given(TimerFired("silence"))) == []
    node.now_us += 2 * DELAY_US + SILENCE_US
    late = node.given(TimerFired("silence"))
    assert fetches(late) == [ACME]
    assert Report("silent_neighbours") in late
    assert fetches(node.needs("umbrella")) == [UMBRELLA]  # it is not asked first any more
    assert set(delivered(node.hears("near", answer(ACME)))) == {"acme"}  # until it has spoken
    node.given(Fetched(((*UMBRELLA, HUNDRED),)))
    node.born("initech", 1)
    assert sent(node.born("initech", 200)) == [("near", "request", [("limits", ("initech",))])]


def test_a_neighbour_that_only_refuses_is_seldom_asked_first() -> None:
    node = Node(FIRST)
    node.born("org", 1)
    asked = 0
    for number in range(REFUSED_MAX + 2 * SELDOM):
        place = ("limits", (f"org{number}",))
        effects = node.hears("far", request(place))
        if sent(effects):
            asked += 1
            effects = node.hears("near", ElementRefusal(packed(place)))
        assert fetches(effects) == [place]
    assert asked == REFUSED_MAX + 2
    while not sent(node.hears("far", request(("limits", (f"more{asked}",))))):
        asked += 1
    node.hears("near", answer(("limits", (f"more{asked}",))))
    assert sent(node.hears("far", request(UMBRELLA))) == [("near", "request", [UMBRELLA])]


def test_what_is_asked_of_a_neighbour_first_is_asked_of_the_provider_after_a_crash_too() -> None:
    node = Node(FIRST)
    node.needs("acme")
    node.core = NodeCore.restored(node.core.save())
    node.now_us += 2 * DELAY_US + SILENCE_US
    assert fetches(node.given(TimerFired("silence"))) == [ACME]


def test_a_node_that_is_asked_first_refuses_what_it_neither_has_nor_has_asked_for() -> None:
    node = Node()
    assert sent(node.hears("far", request(ACME, at_hand=True))) == [("far", "refusal", [ACME])]
    assert fetches(node.needs("acme")) == [ACME]
    assert sent(node.hears("far", request(ACME, at_hand=True))) == []
    assert sent(node.given(Fetched(((*ACME, HUNDRED),)))) == [("far", "answer", [ACME])]
    assert sent(node.hears("far", request(ACME, at_hand=True))) == [("far", "answer", [ACME])]


def test_an_element_that_is_fresh_for_a_while_is_as_old_as_it_was_at_the_neighbour() -> None:
    terms = TableTerms(fresh_us=1000)
    near, asker = Node(terms=terms), Node(AWAY, terms=terms)
    near.hears("far", request(ACME, UMBRELLA))
    near.now_us = 500
    told = [
        effect.message
        for effect in near.given(Fetched(((*ACME, HUNDRED), (*UMBRELLA, None))))
        if isinstance(effect, Send)
    ]
    (message,) = told
    assert isinstance(message, ElementAnswer)
    fetched = {key: element.fetched_us for _, key, element in decode_elements(message.elements) if element is not None}
    assert fetched == {("acme",): 501, ("umbrella",): 501}
    asker.needs("acme")
    asker.needs("umbrella")
    asker.now_us = 1400
    assert "acme" in delivered(asker.hears("near", message))
    assert sent(asker.born("acme", 300)) == []
    asker.now_us = 1600  # it came 200 us ago, but is more than 1000 us old
    assert sent(asker.born("acme", 400)) == [("near", "request", [ACME, UMBRELLA])]
    near.now_us = 1600
    assert fetches(near.hears("far", request(ACME))) == [ACME]


def test_messages_about_elements_travel_as_bytes() -> None:
    wire = Wire((T,))
    for message in (request(ACME), request(ACME, at_hand=True), answer(ACME, UMBRELLA), ElementRefusal(packed(ACME))):
        assert wire.decode(wire.encode(message)) == message
