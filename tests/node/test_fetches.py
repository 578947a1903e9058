"""Elements of remote tables as effects and inputs of a node's core."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headwater.coordinator.core import Coordinator
from headwater.deploy.simulation.described_tables import simulated_tables
from headwater.node.core import FETCH_AGAIN_US, NodeCore
from headwater.node.daemon.machine import NodeMachine
from headwater.node.effects import (
    Born,
    Deliver,
    Effect,
    Fetch,
    Fetched,
    FetchFailed,
    OrderReceived,
    Report,
    SetTimer,
    Tell,
    TimerFired,
)
from headwater.node.remote.encoding import decode_plain
from headwater.node.remote.memory import Memory
from headwater.protocol.events import Event, EventType
from headwater.protocol.languages import Source as RuleText
from headwater.protocol.languages import parse_rules
from headwater.protocol.messages.control import NodeConfig
from headwater.protocol.network import Network, Sink, Source
from headwater.protocol.remote import TableTerms, Versions
from headwater.protocol.subscriptions import Subscription
from headwater.protocol.wire import rule_encoding

T = EventType("T", [("org", "string"), ("vol", "int")])
RULE = "Over: SEQ(T a, T b) WHERE b.vol > REMOTE.limits[a.org] WITHIN 10 s RETURN Over(org = a.org)"
HUNDRED = Versions.always(100)
KEPT = Path(__file__).parents[1] / "journal" / "kept"


class Node:
    """A network of one node."""

    def __init__(self, policy: str = "hybrid", terms: dict[str, TableTerms] | None = None) -> None:
        network = Network(
            (T,),
            ("p",),
            (),
            (Source("p", "T"),),
            (Sink("p", Subscription("Over")),),
            parse_rules([RuleText(RULE, "over", "sase")], [T]).rules,
        )
        self.coordinator = Coordinator(network, "st")
        self.core = NodeCore("p", {}, memory=Memory((), policy=policy, terms=terms))
        self.now_us = 0
        self.seq = 0
        waiting = self.coordinator.begin()
        while waiting:
            _, order = waiting.pop(0)
            for effect in self.core.handle(OrderReceived(order), 0):
                if isinstance(effect, Tell):
                    waiting += self.coordinator.reported("p", effect.report)

    def given(self, received: Any) -> list[Effect]:
        self.now_us += 1
        return self.core.handle(received, self.now_us)

    def born(self, org: str, vol: int) -> list[Effect]:
        self.seq += 1
        born_us = self.now_us + 1
        return self.given(Born(0, (Event(T, born_us, "p", self.seq, {"org": org, "vol": vol}),)))


def fetches(effects: list[Effect]) -> list[tuple[Any, ...]]:
    return [effect.places for effect in effects if isinstance(effect, Fetch)]


def delivered(effects: list[Effect]) -> list[str]:
    return [row[3].attributes["org"] for effect in effects if isinstance(effect, Deliver) for row in effect.rows]


def test_an_element_is_asked_for_once_and_the_core_goes_on() -> None:
    node = Node("lazy")
    node.born("acme", 1)
    assert fetches(node.born("acme", 200)) == [(("limits", ("acme",)),)]
    assert fetches(node.born("acme", 300)) == []
    found = node.given(Fetched((("limits", ("acme",), HUNDRED),)))
    assert delivered(found) == ["acme"] * 3
    assert delivered(node.born("acme", 500)) == ["acme"] * 3


def test_a_key_without_a_value_is_an_answer() -> None:
    node = Node()
    node.born("acme", 1)
    node.born("acme", 200)
    assert delivered(node.given(Fetched((("limits", ("acme",), None),)))) == []
    assert node.core.awaiting() == 0


def test_what_could_not_be_had_is_asked_for_again_after_a_while() -> None:
    node = Node("lazy")
    node.born("acme", 1)
    place = ("limits", ("acme",))
    assert fetches(node.born("acme", 200)) == [(place,)]
    failed = node.given(FetchFailed((place,)))
    assert [effect for effect in failed if isinstance(effect, SetTimer)] == [
        SetTimer(node.now_us + FETCH_AGAIN_US, "fetch")
    ]
    assert Report("failed_fetches") in failed
    node.now_us += FETCH_AGAIN_US
    assert fetches(node.given(TimerFired("fetch"))) == [(place,)]
    assert delivered(node.given(Fetched((("limits", ("acme",), HUNDRED),)))) == ["acme"]


def test_an_answer_that_was_not_asked_for_or_comes_again_changes_nothing() -> None:
    node = Node("lazy")
    assert Report("unasked_elements") in node.given(Fetched((("limits", ("acme",), HUNDRED),)))
    node.born("acme", 1)
    assert fetches(node.born("acme", 200))
    answer = Fetched((("limits", ("acme",), HUNDRED),))
    assert delivered(node.given(answer)) == ["acme"]
    again = node.given(answer)
    assert delivered(again) == []
    assert Report("unasked_elements") in again
    assert fetches(node.given(FetchFailed((("limits", ("acme",)),)))) == []


def test_what_is_asked_for_survives_a_crash() -> None:
    for policy in ("block", "cache", "last", "prefetch", "lazy", "hybrid"):
        node = Node(policy)
        node.born("acme", 1)
        node.born("acme", 200)
        node.given(Fetched((("limits", ("acme",), HUNDRED),)))
        node.born("umbrella", 300)
        node.born("umbrella", 400)
        before = node.core.fetches()
        assert before
        node.core = NodeCore.restored(node.core.save())
        assert node.core.fetches() == before
        places = {place for fetch in before for place in fetch.places}
        found: list[str] = []
        while places:
            effects = node.given(Fetched(tuple((*place, HUNDRED) for place in sorted(places))))
            found += delivered(effects)
            places = {place for effect in effects if isinstance(effect, Fetch) for place in effect.places}
        assert "umbrella" in found, policy
        assert node.core.awaiting() == 0


def test_a_restored_core_has_at_hand_what_it_had() -> None:
    node = Node()
    node.born("acme", 1)
    node.born("acme", 200)
    node.given(Fetched((("limits", ("acme",), HUNDRED),)))
    node.core = NodeCore.restored(node.core.save())
    last = node.born("acme", 500)
    assert delivered(last) == ["acme"] * 2
    assert fetches(last) == []


def test_a_fresh_element_is_used_for_as_long_as_it_may_be_old_and_no_longer() -> None:
    node = Node(terms={"limits": TableTerms(fresh_us=50)})
    node.born("acme", 1)
    node.born("acme", 200)
    node.given(Fetched((("limits", ("acme",), HUNDRED),)))
    fetched_us = node.now_us
    node.now_us = fetched_us + 49
    assert delivered(node.born("acme", 150)) == ["acme"] * 2
    assert fetches(node.born("acme", 150)) == [(("limits", ("acme",)),)]
    assert delivered(node.given(Fetched((("limits", ("acme",), Versions.always(149)),)))) == ["acme"] * 3
    assert delivered(node.born("acme", 149)) == []


def test_a_core_that_crashed_uses_the_fresh_element_that_it_had() -> None:
    """Its age is told by the times of inputs, which are in the journal, and not by when they are replayed."""
    node = Node(terms={"limits": TableTerms(fresh_us=50)})
    node.born("acme", 1)
    node.born("acme", 200)
    node.given(Fetched((("limits", ("acme",), HUNDRED),)))
    node.core = NodeCore.restored(node.core.save())
    node.now_us += 40
    assert delivered(node.born("acme", 150)) == ["acme"] * 2
    node.core = NodeCore.restored(node.core.save())
    node.now_us += 10
    assert fetches(node.born("acme", 150)) == [(("limits", ("acme",)),)]


def test_a_node_that_was_saved_before_nodes_learnt_anything_goes_on() -> None:
    """It has the limit of acme at hand, and one evaluation waits for that of umbrella."""
    node = Node()
    node.core = NodeCore.restored((KEPT / "node-with-elements-format-2.bin").read_bytes())
    node.now_us, node.seq = 5, 4
    assert node.core.fetches() == [Fetch((("limits", ("umbrella",)),))]
    assert delivered(node.given(Fetched((("limits", ("umbrella",), HUNDRED),)))) == ["acme", "acme", "umbrella"]
    last = node.born("acme", 500)
    assert sorted(delivered(last)) == ["acme", "acme", "umbrella", "umbrella"]
    assert fetches(last) == []


def test_an_element_is_asked_for_before_anything_needs_it() -> None:
    node = Node()
    assert fetches(node.born("acme", 1)) == [(("limits", ("acme",)),)]
    node.given(Fetched((("limits", ("acme",), HUNDRED),), took_us=700))
    assert delivered(node.born("acme", 200)) == ["acme"]
    assert node.core.memory.latency_us("limits") == 700
    assert (node.core.memory.prefetched, node.core.memory.prefetched_late) == (1, 0)


def test_what_is_only_fetched_ahead_and_could_not_be_had_is_asked_for_when_it_is_needed() -> None:
    node = Node()
    place = ("limits", ("acme",))
    node.born("acme", 1)
    failed = node.given(FetchFailed((place,)))
    assert not any(isinstance(effect, SetTimer) and effect.name == "fetch" for effect in failed)
    assert node.core.fetches() == []
    assert fetches(node.born("acme", 200)) == [(place,)]
    assert delivered(node.given(Fetched((("limits", ("acme",), HUNDRED),)))) == ["acme"]


def test_what_a_rule_that_is_gone_has_counted_is_worth_nothing() -> None:
    node = Node()
    node.born("acme", 1)
    assert node.core.memory.counts()
    node.core.works.clear()
    node.now_us += 10**9
    node.given(TimerFired("tick"))
    assert not node.core.memory.counts()
    node.given(Fetched((("limits", ("acme",), HUNDRED),)))
    assert node.core.memory.under_way == {}


def test_nodes_keep_elements_as_their_network_says() -> None:
    """In a simulation and in a process, whose configuration travels."""
    use: dict[str, Any] = {
        "remote_cache": "cost",
        "remote_priorities": (("Over", 3.0),),
        "remote_strategies": (("Over", "last"),),
    }
    network = Network((T,), ("p",), (), (), (), (), remote_strategy="lazy", **use)
    config = NodeConfig(1, "", "p", (T,), (), (), (), "sync", "st", remote_strategy="lazy", **use)
    told = rule_encoding.decode(rule_encoding.encode(config))
    machine = NodeMachine("p", "life")
    machine._configure(told)
    assert machine.core is not None
    with simulated_tables(network) as tables:
        for memory in (machine.core.memory, tables.memory()):
            policy, _, content = memory.saved()
            saved = decode_plain(content)
            assert (policy, saved["cache"], saved["priorities"]) == ("lazy", "cost", {"Over": 3.0})
            assert saved["policies"] == {"Over": "last"}
            assert memory.waiting("Over/a").only_last, "a part follows its rule"
            assert not memory.waiting("Other").only_last
