"""The coordinator's machine: bring-up, changes, time-outs, losses, and the same again after a crash."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import pytest

from headwater.coordinator.daemon.api.rule_texts import read_rules
from headwater.coordinator.daemon.inputs import Answered, Asked, Heard, PeerReset, Setup, Started, Tick
from headwater.coordinator.daemon.journaled_machine import JournaledMachine
from headwater.coordinator.daemon.machine import Machine, Settings
from headwater.coordinator.daemon.snapshot import OldState, StateError
from headwater.coordinator.requests import (
    AddSource,
    AddSubscription,
    DeployRules,
    EndSource,
    EndSubscription,
    GiveUpLink,
    GiveUpNode,
    ReplaceRule,
    Request,
    TakeLinkBack,
    TakeNodeBack,
    TidyUp,
    UndeployRule,
)
from headwater.protocol.edge import Broker, ClientFeed, ClientTo, FileTo, MqttFeed, MqttTo, StdoutTo, TraceFeed
from headwater.protocol.languages import Source as RuleText
from headwater.protocol.messages import control
from headwater.protocol.messages.control import Control, Register, SubscribeClient, UnsubscribeClient
from headwater.protocol.messages.plans import TreeDrained
from headwater.protocol.network import Network, Sink, Source
from headwater.protocol.subscriptions import Subscription
from tests.kit.scripted_nodes import FIRE, HEAT, ScriptedNode, a_network, destinations_of, feeds_of


def a_setup(network: Network, **told: Any) -> Setup:
    return Setup(id="net", network=network, feeds=feeds_of(network), destinations=destinations_of(network), **told)


class Room:
    """A coordinator and its nodes in one process. Every input is recorded, as a journal would."""

    def __init__(self, network: Network | None = None, **told: Any) -> None:
        self.setup = a_setup(network or a_network(), **told)
        self.journaled = JournaledMachine(Machine(self.setup, Settings(10_000_000)))
        self.nodes = {name: ScriptedNode(name) for name in self.setup.network.nodes}
        self.journal: list[bytes] = []
        self.sent: dict[str, list[bytes]] = {name: [] for name in self.nodes}
        self.answers: dict[str, Answered] = {}
        self.notes: list[str] = []
        self.now_us = 1_000_000
        self._said: deque[tuple[str, Control]] = deque()
        self._seq = dict.fromkeys(self.nodes, 0)

    @property
    def machine(self) -> Machine:
        return self.journaled.machine

    def take(self, received: object) -> None:
        self.journal.append(JournaledMachine.record(received, self.now_us))  # type: ignore[arg-type]
        out = self.journaled.apply(received, self.now_us)  # type: ignore[arg-type]
        self.notes += out.notes
        for answer in out.answers:
            assert answer.request not in self.answers
            self.answers[answer.request] = answer
        for name, payloads in out.sends.items():
            self.sent[name] += payloads
            for payload in payloads:
                self._said += [(name, said) for said in self.nodes[name].hear(payload)]

    def say(self, name: str, message: Control) -> None:
        self._seq[name] += 1
        self.take(Heard(name, self._seq[name], (control.encode(message),)))

    def settle(self, shuffled: random.Random | None = None) -> None:
        while self._said:
            if shuffled is not None:
                self._said.rotate(shuffled.randrange(len(self._said)))
            self.say(*self._said.popleft())

    def start(self) -> Room:
        for node in self.nodes.values():
            self.say(node.name, node.registers())
        self.settle()
        return self

    def ask(self, ask: Request, request: str = "r", key: str | None = None) -> Answered | None:
        self.take(Asked(request, ask, key))
        self.settle()
        return self.answers.get(request)

    def pass_time(self, us: int) -> None:
        self.now_us += us
        self.take(Tick())
        self.settle()

    def rules(self, text: str) -> DeployRules:
        read = read_rules([RuleText(text, "t", "tesla")], {}, self.machine.registry.types, "st")
        return DeployRules(read.rules, read.types)


def test_nodes_register_in_any_order_and_all_are_told_the_same_in_the_end() -> None:
    outcomes = set()
    for seed in range(24):
        room = Room(a_network(4))
        chance = random.Random(seed)
        names = list(room.nodes)
        chance.shuffle(names)
        for name in [*names[:3], names[0], names[1]]:  # two of them twice
            room.say(name, room.nodes[name].registers())
            assert not room.machine.begun
        room.say(names[3], room.nodes[names[3]].registers())
        room.settle(chance)
        assert room.machine.begun
        assert room.machine.coordinator.trees.all_stand()
        assert all(node.adopted == {1: 1} for node in room.nodes.values())
        outcomes.add(tuple((n.name, n.config.peers, n.shares[1]) for n in room.nodes.values() if n.config))
    assert len(outcomes) == 1


def test_the_smaller_name_dials_and_is_told_the_address_as_soon_as_it_is_known() -> None:
    room = Room()
    room.say("n1", room.nodes["n1"].registers())
    (peer,) = room.nodes["n1"].config.peers  # type: ignore[union-attr]
    assert (peer.name, peer.dials, peer.address) == ("n2", True, None)
    room.say("n2", room.nodes["n2"].registers())
    (peer,) = room.nodes["n1"].config.peers  # type: ignore[union-attr]
    assert peer.address == "tcp://n2:1"
    assert [(p.name, p.dials, p.address) for p in room.nodes["n2"].config.peers] == [  # type: ignore[union-attr]
        ("n1", False, None),
        ("n3", True, None),
    ]


def test_a_node_that_comes_back_elsewhere_is_dialled_there() -> None:
    room = Room().start()
    before = list(room.nodes["n3"].versions)
    room.say("n2", Register("n2", "first", "tcp://elsewhere:9", "n2:2", "test"))
    assert next(p for p in room.nodes["n1"].config.peers if p.name == "n2").address == "tcp://elsewhere:9"  # type: ignore[union-attr]
    assert room.nodes["n3"].versions == before, "n3 does not dial n2 and need not know"
    versions = {name: list(node.versions) for name, node in room.nodes.items()}
    room.say("n2", Register("n2", "first", "tcp://elsewhere:9", "n2:2", "test"))
    assert {name: node.versions for name, node in room.nodes.items()} == versions, "nothing has changed"


def test_strangers_and_nonsense_change_nothing() -> None:
    room = Room()
    room.say("n1", Register("n2", "x", "tcp://evil:1", "", ""))
    room.take(Heard("n1", 2, (b"\xff\x00", b"", control.encode(control.Answer(1, None)))))
    assert room.machine.registry.nodes == {}
    assert room.machine.counts["refused_messages"] == 4


def test_a_rule_that_is_deployed_holds_from_above_all_promises() -> None:
    room = Room().start()
    answer = room.ask(room.rules(HEAT))
    assert answer is not None
    promised = max(node.promised_us for node in room.nodes.values())
    assert (answer.status, answer.body["rules"], answer.body["holds_from_us"]) == (200, ["Heat"], promised + 1)
    assert all(node.adopted == {1: 1, 2: 1} for node in room.nodes.values())
    names = {planned.rule.name for node in room.nodes.values() for planned in node.newest().rules}
    assert names == {"Fire", "Heat"}
    again = room.ask(room.rules(HEAT), "again")
    assert again is not None
    assert again.status == 409
    assert "deployed already" in again.body["error"]


def test_a_change_that_a_node_does_not_prepare_is_given_up_and_the_next_one_is_made() -> None:
    room = Room().start()
    room.nodes["n2"].deaf = True
    assert room.ask(room.rules(HEAT)) is None
    assert room.ask(UndeployRule("Fire"), "second") is None
    room.pass_time(9_000_000)
    assert room.answers == {}
    room.pass_time(1_000_000)
    assert room.answers["r"].status == 504
    assert "n2 did not answer within 10 s; nothing has been changed" in room.answers["r"].body["error"]
    room.nodes["n2"].deaf = False
    room.pass_time(10_000_000)  # n2 has missed the second one, too
    assert room.answers["second"].status == 504
    third = room.ask(UndeployRule("Fire"), "third")
    assert third is not None
    assert third.status == 200
    assert room.machine.coordinator.plan == 2


def test_replacing_a_rule_undeploys_the_old_one_and_numbers_the_new_one() -> None:
    room = Room().start()
    new = room.rules(FIRE.replace("5 min", "1 min")).rules[0]
    answer = room.ask(ReplaceRule(new))
    assert answer is not None
    assert answer.status == 200
    planned = room.machine.coordinator.rules["Fire"]
    assert (planned.rule.version, planned.until_us) == (2, None)
    assert room.machine.coordinator.plan == 3


def test_a_rule_that_another_reads_is_not_undeployed() -> None:
    alarm = FIRE + "\ndefine Alarm() from Fire() and each Fire() as other within 1 min from Fire"
    room = Room(a_network(rules=alarm)).start()
    answer = room.ask(UndeployRule("Fire"))
    assert answer is not None
    assert (answer.status, answer.body["error"]) == (409, "rule 'Alarm' reads Fire; undeploy that first")
    assert room.ask(UndeployRule("Alarm"), "a").status == 200  # type: ignore[union-attr]
    assert room.ask(UndeployRule("Fire"), "b").status == 200  # type: ignore[union-attr]


def test_a_subscription_is_configured_before_the_plan_and_until_the_old_trees_have_drained() -> None:
    room = Room().start()
    answer = room.ask(AddSubscription(Sink("n2", Subscription("Smoke")), StdoutTo()))
    assert answer is not None
    assert answer.body["subscription"] == 1
    config = room.nodes["n2"].config
    assert config is not None
    assert [(sink.number, sink.destination) for sink in config.sinks] == [(1, StdoutTo())]
    assert room.ask(EndSubscription(1), "end").status == 200  # type: ignore[union-attr]
    assert room.nodes["n2"].config.sinks == ()  # type: ignore[union-attr]
    assert room.ask(EndSubscription(1), "again").status == 404  # type: ignore[union-attr]


def test_sources_come_and_go() -> None:
    room = Room().start()
    answer = room.ask(AddSource(Source("n2", "Temp", 5), ClientFeed()))
    assert answer is not None
    assert answer.body["source"] == 2
    assert [source.number for source in room.nodes["n2"].config.sources] == [2]  # type: ignore[union-attr]
    assert room.ask(EndSource(2), "end").status == 200  # type: ignore[union-attr]
    assert room.ask(EndSource(2), "again").status == 404  # type: ignore[union-attr]
    assert room.ask(AddSource(Source("n2", "Tmp"), ClientFeed()), "type").status == 400  # type: ignore[union-attr]
    assert room.ask(AddSource(Source("n9", "Temp"), ClientFeed()), "node").status == 400  # type: ignore[union-attr]


def test_a_client_that_subscribes_twice_has_one_sink() -> None:
    room = Room().start()
    wanted = Subscription("Fire")
    for request in (1, 2):
        room.say("n3", SubscribeClient(request, "app", wanted))
    room.settle()
    assert [(each.request, each.refused) for each in room.nodes["n3"].answers] == [(1, None), (2, None)]
    sinks = room.nodes["n3"].config.sinks  # type: ignore[union-attr]
    assert [(sink.subscription, sink.destination) for sink in sinks] == [(wanted, ClientTo("app"))]
    room.say("n3", SubscribeClient(3, "app", Subscription("Smok")))
    room.say("n3", UnsubscribeClient(4, "app", wanted))
    room.say("n3", UnsubscribeClient(5, "app", wanted))
    room.settle()
    third, fourth, fifth = room.nodes["n3"].answers[2:]
    assert "did you mean 'Smoke'?" in (third.refused or "")
    assert (fourth.refused, fifth.refused) == (None, None)
    assert room.machine.coordinator.plan == 3


def test_the_same_key_is_the_same_request() -> None:
    room = Room().start()
    ask = AddSubscription(Sink("n2", Subscription("Smoke")), FileTo("x"))
    first = room.ask(ask, "one", key="k")
    again = room.ask(ask, "two", key="k")
    assert first is not None
    assert again is not None
    assert first.body == again.body
    assert len(room.machine.coordinator.sinks) == 2
    assert room.ask(ask, "three", key="other").body["subscription"] == 2  # type: ignore[union-attr]


def test_requests_before_all_nodes_are_there_wait_for_them() -> None:
    room = Room()
    room.say("n1", room.nodes["n1"].registers())
    assert room.ask(room.rules(HEAT)) is None
    room.start()
    assert room.answers["r"].status == 200


def test_after_a_crash_at_any_moment_the_same_orders_have_the_same_numbers() -> None:
    room = Room().start()
    asks: list[Request] = [
        room.rules(HEAT),
        AddSubscription(Sink("n2", Subscription("Heat")), FileTo("heat")),
        UndeployRule("Fire"),
        TidyUp(),
        EndSubscription(1),
    ]
    for number, ask in enumerate(asks):
        room.ask(ask, f"r{number}")
    assert [room.answers[f"r{number}"].status for number in range(len(asks))] == [200] * len(asks)
    whole = len(room.journal)
    for saved_at in range(0, whole, 3):
        journaled = JournaledMachine(Machine(room.setup, Settings(10_000_000)))
        for record in room.journal[:saved_at]:
            journaled.replay(record)
        journaled = JournaledMachine.restored(journaled.save())
        for record in room.journal[saved_at:]:
            journaled.replay(record)
        for name, link in journaled.links.items():
            assert list(link.unacknowledged) == room.sent[name]
            assert link.out_seq == len(room.sent[name])
            assert link.in_seq == room.journaled.links[name].in_seq
        assert journaled.machine.coordinator.plan == room.machine.coordinator.plan
        assert journaled.machine.counts == room.machine.counts


def test_acknowledged_messages_are_not_kept() -> None:
    room = Room().start()
    link = room.journaled.links["n1"]
    sent = len(room.sent["n1"])
    link.confirmed(sent - 1)
    assert list(link.unacknowledged) == room.sent["n1"][-1:]
    link.confirmed(sent)
    link.confirmed(sent)
    assert not link.unacknowledged


def test_an_input_that_fails_leaves_everything_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    room = Room().start()
    counts = room.machine.counts.copy()
    real = room.machine.coordinator.reported

    def broken(*_: object) -> object:
        room.machine.coordinator.plan = 99
        raise ZeroDivisionError

    monkeypatch.setattr(room.machine.coordinator, "reported", broken)
    room.say("n1", control.Reported(TreeDrained("n1", 7)))
    assert room.journaled.counts["internal_errors"] == 1
    assert room.machine.coordinator.plan == 1
    assert room.machine.coordinator.reported.__func__ is real.__func__  # type: ignore[attr-defined]
    assert room.machine.counts == counts
    assert room.ask(room.rules(HEAT)).status == 200  # type: ignore[union-attr]


def test_a_node_that_forgets_before_the_network_has_begun_registers_anew() -> None:
    room = Room()
    room.say("n1", room.nodes["n1"].registers())
    room.take(PeerReset("n1", "second"))
    assert room.machine.missing() == ["n1", "n2", "n3"]
    room.nodes["n1"] = ScriptedNode("n1", "second")
    room._seq["n1"] = 0
    room.start()
    assert room.machine.begun
    assert room.nodes["n1"].adopted == {1: 1}


def forgets(room: Room, name: str, life: str) -> None:
    """The node has lost its memory and begins anew."""
    room.take(PeerReset(name, life))
    room.sent[name].clear()
    room._seq[name] = 0
    room.nodes[name] = ScriptedNode(name, life)
    room.say(name, room.nodes[name].registers())
    room.settle()


def test_a_node_that_has_lost_its_memory_is_configured_again_and_gets_the_plan() -> None:
    room = Room().start()
    room.ask(room.rules(HEAT))
    forgets(room, "n2", "second")
    assert any("n2 has lost its memory" in note for note in room.notes)
    node = room.nodes["n2"]
    assert node.config is not None
    assert node.newest().plan == room.machine.coordinator.plan == 3
    assert room.machine.coordinator.trees.all_stand()
    assert room.ask(UndeployRule("Heat"), "after").status == 200  # type: ignore[union-attr]


def test_a_node_that_forgets_while_a_change_is_prepared_does_not_lose_the_change() -> None:
    room = Room().start()
    room.nodes["n2"].deaf = True
    assert room.ask(room.rules(HEAT)) is None
    forgets(room, "n2", "second")
    assert room.answers["r"].status == 200
    assert {p.rule.name for n in room.nodes.values() for p in n.newest().rules} == {"Fire", "Heat"}


def test_a_lost_node_is_done_without_and_taken_back_with_what_it_had() -> None:
    room = Room(a_network(4)).start()
    room.nodes["n4"].deaf = True
    assert room.ask(room.rules(HEAT), "waits") is None
    assert room.ask(GiveUpNode("n4"), "lost").status == 200  # type: ignore[union-attr]
    assert room.answers["waits"].status == 200, "the answers of a lost node are not waited for"
    assert 1 not in room.machine.coordinator.sources
    assert [peer.name for peer in room.nodes["n3"].config.peers] == ["n2"]  # type: ignore[union-attr]
    assert room.ask(TakeNodeBack("n4"), "early").status == 409  # type: ignore[union-attr]
    room.say("n4", Register("n4", "first", "tcp://n4:1", "", ""))
    same = room.ask(TakeNodeBack("n4"), "same memory")
    assert same is not None
    assert "empty data folder" in same.body["error"]
    forgets(room, "n4", "second")
    assert not room.nodes["n4"].orders
    assert room.ask(TakeNodeBack("n4"), "back").status == 200  # type: ignore[union-attr]
    assert room.machine.coordinator.sources[1][0] == "n4"
    assert [source.number for source in room.nodes["n4"].config.sources] == [1]  # type: ignore[union-attr]
    assert room.machine.coordinator.is_idle()


def test_a_link_is_given_up_and_taken_back() -> None:
    room = Room().start()
    assert room.ask(GiveUpLink("n1", "n3"), "none").status == 404  # type: ignore[union-attr]
    assert room.ask(GiveUpLink("n3", "n2"), "lost").status == 200  # type: ignore[union-attr]
    assert room.machine.lost_links == {("n2", "n3")}
    assert room.machine.coordinator.trees.cut_off("n2") == ("n3",)
    assert room.ask(TakeLinkBack("n2", "n3"), "back").status == 200  # type: ignore[union-attr]
    assert room.machine.lost_links == set()


def test_each_start_tells_where_the_embedded_broker_and_the_neighbours_are() -> None:
    embedded = Broker("127.0.0.1", 1883)
    network = a_network()
    setup = Setup(
        id="net",
        network=network,
        feeds=(MqttFeed("smoke", embedded), MqttFeed("temp", Broker("elsewhere"))),
        destinations=(MqttTo("fires", embedded),),
        embedded_broker=embedded,
    )
    room = Room(network)
    room.journaled = JournaledMachine(Machine(setup))
    room.take(Started(("10.0.0.1", 7), (("n1", "n2", "tcp://10.1.0.2:1"),)))
    room.start()
    config = room.nodes["n1"].config
    assert config is not None
    assert config.sources[0].feed == MqttFeed("smoke", Broker("10.0.0.1", 7))
    assert config.sinks[0].destination == MqttTo("fires", Broker("10.0.0.1", 7))
    assert config.peers[0].address == "tcp://10.1.0.2:1"
    assert room.nodes["n3"].config.sources[0].feed == MqttFeed("temp", Broker("elsewhere"))  # type: ignore[union-attr]
    room.take(Started())
    config = room.nodes["n1"].config
    assert config is not None
    assert config.sources[0].feed == MqttFeed("smoke", embedded)
    assert config.peers[0].address == "tcp://n2:1"


def test_a_trace_does_not_join_a_network_that_lives_by_the_clock() -> None:
    room = Room().start()
    answer = room.ask(AddSource(Source("n2", "Temp", replayed=True), TraceFeed("x.csv")))
    assert answer is not None
    assert (answer.status, "cannot be mixed" in answer.body["error"]) == (400, True)


def test_a_damaged_or_foreign_snapshot_is_refused_in_words() -> None:
    data = JournaledMachine(Machine(a_setup(a_network()))).save()
    for broken in (b"", data[:-5], data[:-5] + b"\0" * 5):
        with pytest.raises(StateError, match="damaged"):
            JournaledMachine.restored(broken)
    with pytest.raises(OldState, match="pickle"):
        JournaledMachine.restored(b"\x80\x05N.")
