"""What nodes keep for the coordinator, and what a coordinator that has lost its memory makes of it."""

from __future__ import annotations

from dataclasses import replace

from headwater.coordinator.daemon.inputs import Asked, PeerReset, Reborn
from headwater.coordinator.daemon.journaled_machine import JournaledMachine
from headwater.coordinator.daemon.machine import Machine, Settings
from headwater.coordinator.requests import (
    AddSource,
    AddSubscription,
    GiveUpLink,
    GiveUpNode,
    TakeLinkBack,
    TakeNodeBack,
    UndeployRule,
)
from headwater.protocol.edge import ClientFeed, FileTo
from headwater.protocol.messages import recovery as memory
from headwater.protocol.messages.control import Ordered
from headwater.protocol.messages.plans import Adopt, Prepare, TellDelivered
from headwater.protocol.messages.recovery import NotedPlan, Recall, Remember, in_portions, key_of
from headwater.protocol.network import Network, Sink, Source
from headwater.protocol.strategy import STRATEGIES
from headwater.protocol.subscriptions import Subscription
from tests.coordinator.test_machine import Room
from tests.kit.scripted_nodes import HEAT, ScriptedNode, a_network


class ForgetfulRoom(Room):
    """A room whose coordinator can lose its memory."""

    def forget(self, network: Network | None = None) -> None:
        """A coordinator with an empty folder takes the place of the one that was there."""
        if network is not None:
            self.setup = replace(self.setup, network=network)
        self.journaled = JournaledMachine(Machine(self.setup, Settings(10_000_000)))
        self.journal.clear()
        self._lose_links()

    def begin_new_life(self) -> None:
        self.take(Reborn())
        self._lose_links()

    def _lose_links(self) -> None:
        self._said.clear()
        self._seq = dict.fromkeys(self.nodes, 0)
        self.answers.clear()

    def meet(self, *names: str) -> None:
        for name in names or self.nodes:
            for message in self.nodes[name].recalls():
                self.say(name, message)
        self.settle()

    def live_rules(self) -> list[str]:
        return sorted(name for name, rule in self.machine.coordinator.rules.items() if rule.until_us is None)

    def keeps(self, name: str) -> int:
        """The plan that a node keeps for the coordinator."""
        return memory.plan_of(self.nodes[name].memory.values())


def a_room(nodes: int = 3, strategy: str = "st") -> ForgetfulRoom:
    room = ForgetfulRoom(a_network(nodes, strategy))
    room.start()
    return room


def deployed(room: ForgetfulRoom) -> ForgetfulRoom:
    """With a rule, a sink and a source that the network file does not have."""
    assert room.ask(room.rules(HEAT), "rule").status == 200  # type: ignore[union-attr]
    sink = AddSubscription(Sink("n2", Subscription("Heat")), FileTo("heat.jsonl"))
    assert room.ask(sink, "sink", key="heat sink").status == 200  # type: ignore[union-attr]
    assert room.ask(AddSource(Source("n2", "Temp"), ClientFeed()), "source").status == 200  # type: ignore[union-attr]
    return room


# -- what nodes keep ---------------------------------------------------------------------------------------------------


def test_all_nodes_are_told_what_to_keep_before_the_plan_it_belongs_to() -> None:
    room = deployed(a_room())
    for node in room.nodes.values():
        assert room.keeps(node.name) == room.machine.coordinator.plan == node.newest().plan
        assert node.memory == room.machine.memory.told


def test_only_what_is_new_is_told_again() -> None:
    room = deployed(a_room())
    told = [message for name, message in _heard_by(room, "n3", lambda: room.ask(UndeployRule("Heat"), "later"))]
    (remember,) = [message for message in told if isinstance(message, Remember)]
    assert not remember.anew
    changed = {type(piece).__name__ for piece in remember.pieces}
    assert changed <= {"NotedPlan", "NotedRule", "NotedBuild", "NotedEpoch", "NotedSink"}
    assert len(remember.pieces) < len(room.nodes["n3"].memory)


def test_many_pieces_go_in_several_messages_and_count_when_the_last_has_come() -> None:
    pieces = [memory.NotedEpoch(f"n{number}", number) for number in range(2 * memory.PIECES_MAX + 1)]
    assert [len(portion) for portion in in_portions(pieces)] == [memory.PIECES_MAX, memory.PIECES_MAX, 1]
    assert list(in_portions([])) == [()]
    assert memory.plan_of(pieces) == 0
    assert len({key_of(piece) for piece in pieces}) == len(pieces)


def _heard_by(room: Room, name: str, does: object) -> list[tuple[str, object]]:
    """What a node is told while something is done."""
    from headwater.protocol.messages import control

    before = len(room.sent[name])
    does()  # type: ignore[operator]
    return [(name, control.decode(payload)) for payload in room.sent[name][before:]]


# -- a coordinator that remembers nothing ------------------------------------------------------------------------------


def test_what_was_deployed_is_found_again_and_can_be_changed_as_ever() -> None:
    for strategy in STRATEGIES:
        room = deployed(a_room(4, strategy))
        before = room.machine.coordinator
        room.forget()
        room.meet()
        now = room.machine.coordinator
        assert (now.rules, now.sinks, now.sources) == (before.rules, before.sinks, before.sources)
        assert now.plan > before.plan
        assert now.trees.all_stand()
        assert all(now.trees.epoch(tree) > before.trees.epoch(tree) for tree in before.trees.roots)
        assert any("plan 4, rules Fire, Heat" in note for note in room.notes), room.notes
        assert any("Heat is only in the network" in note for note in room.notes)
        later = room.ask(AddSubscription(Sink("n3", Subscription("Fire")), FileTo("f.jsonl")), "later")
        assert later is not None
        assert later.body["subscription"] == 2
        assert later.body["change"] > 3
        assert room.ask(UndeployRule("Heat"), "last").status == 200  # type: ignore[union-attr]
        assert room.live_rules() == ["Fire"]


def test_it_waits_until_all_nodes_have_registered() -> None:
    room = deployed(a_room())
    told = {name: len(node.orders) for name, node in room.nodes.items()}
    room.forget()
    room.meet("n1", "n3")
    assert room.machine.missing() == ["n2"]
    assert "n2 must register" in (room.machine.unsettled() or "")
    assert room.live_rules() == ["Fire", "Heat"]  # as far as is known
    assert told == {name: len(node.orders) for name, node in room.nodes.items()}
    room.meet("n2")
    assert room.machine.begun
    assert room.machine.unsettled() is None
    assert room.machine.coordinator.is_idle()


def test_nodes_that_are_gone_can_be_given_up_meanwhile() -> None:
    room = deployed(a_room(4))
    room.forget()
    room.meet("n1", "n2", "n3")
    assert room.ask(GiveUpNode("n4"), "lost").status == 200  # type: ignore[union-attr]
    assert room.machine.begun
    assert room.machine.coordinator.nodes() == ["n1", "n2", "n3"]
    assert room.machine.coordinator.is_idle()
    assert 1 not in room.machine.coordinator.sources  # it was at n4
    room.nodes["n4"] = ScriptedNode("n4", "second")
    room._seq["n4"] = 0
    room.say("n4", room.nodes["n4"].registers())
    assert room.ask(TakeNodeBack("n4"), "back").status == 200  # type: ignore[union-attr]
    assert 1 in room.machine.coordinator.sources


def test_nodes_and_links_that_were_given_up_stay_so_until_they_are_taken_back() -> None:
    room = ForgetfulRoom(_ring(5))
    room.start()
    assert room.ask(GiveUpNode("n4"), "node").status == 200  # type: ignore[union-attr]
    assert room.ask(GiveUpLink("n1", "n2"), "link").status == 200  # type: ignore[union-attr]
    room.forget()
    room.meet("n1", "n2", "n3", "n5")
    assert room.machine.begun
    assert room.machine.lost_nodes.keys() == {"n4"}
    assert room.machine.lost_links == {("n1", "n2")}
    assert room.ask(TakeLinkBack("n1", "n2"), "link again").status == 200  # type: ignore[union-attr]
    room.forget()
    room.meet("n1", "n2", "n3", "n5")
    assert not room.machine.lost_links
    room.say("n4", room.nodes["n4"].registers())
    refused = room.ask(TakeNodeBack("n4"), "with its old memory")
    assert refused is not None
    assert "still has the memory" in refused.body["error"]
    room.nodes["n4"] = ScriptedNode("n4", "second")
    room.say("n4", room.nodes["n4"].registers())
    assert room.ask(TakeNodeBack("n4"), "back").status == 200  # type: ignore[union-attr]
    assert room.machine.coordinator.is_idle()


def _ring(nodes: int) -> Network:
    line = a_network(nodes)
    return replace(line, links=(*line.links, replace(line.links[0], one="n1", other=f"n{nodes}")))


def test_a_node_that_remembers_nothing_either_starts_anew() -> None:
    room = deployed(a_room())
    room.forget()
    room.nodes["n2"] = ScriptedNode("n2", "second")
    room.meet()
    assert room.live_rules() == ["Fire", "Heat"]
    assert any("n2 remember nothing and start a new life" in note for note in room.notes)
    assert not [order for order in room.nodes["n2"].orders if isinstance(order, TellDelivered)]
    assert room.nodes["n2"].newest().plan == room.machine.coordinator.plan


def test_a_key_that_was_answered_is_answered_again() -> None:
    room = deployed(a_room())
    first = room.answers["sink"]
    room.forget()
    room.meet()
    again = room.ask(AddSubscription(Sink("n2", Subscription("Heat")), FileTo("heat.jsonl")), "again", key="heat sink")
    assert again is not None
    assert (again.status, again.body) == (200, first.body)
    assert len(room.machine.coordinator.sinks) == 2


def test_no_node_remembering_anything_is_the_first_start() -> None:
    room = deployed(a_room())
    room.forget()
    room.nodes = {name: ScriptedNode(name, "second") for name in room.nodes}
    room.meet()
    assert room.live_rules() == ["Fire"]
    assert all(node.adopted == {1: 1} for node in room.nodes.values())


def test_a_memory_of_another_network_is_not_taken_over() -> None:
    room = deployed(a_room())
    orders = {name: len(node.orders) for name, node in room.nodes.items()}
    room.forget(replace(room.setup.network, strategy="mt"))
    room.meet()
    assert not room.machine.begun
    assert any("the strategy is st, not mt" in note for note in room.notes)
    assert "the strategy is st, not mt" in (room.machine.unsettled() or "")
    assert orders == {name: len(node.orders) for name, node in room.nodes.items()}


# -- a change was under way --------------------------------------------------------------------------------------------


def test_a_plan_that_has_come_to_one_node_comes_to_all() -> None:
    """The others hear of it as they would have, with the time from which it holds, before anything else."""
    room = a_room()
    behind = {name: _copied(room.nodes[name]) for name in ("n1", "n3")}
    room.ask(room.rules(HEAT), "rule")
    room.forget()
    room.nodes |= behind
    (told,) = {node.newest().plan for node in behind.values()}
    room.meet()
    assert room.live_rules() == ["Fire", "Heat"]
    held_from = room.nodes["n2"].shares[told + 1].from_us
    assert held_from is not None
    for node in behind.values():
        assert node.shares[told + 1].from_us == held_from
        later = [order for order in node.orders if isinstance(order, Adopt | TellDelivered)][-3:]
        assert [type(order) for order in later] == [Adopt, TellDelivered, Adopt]
    assert any("n1, n3 did not have that plan" in note for note in room.notes)


def test_a_change_that_no_node_was_told_has_never_been_made() -> None:
    room = a_room()
    room.nodes["n2"].deaf = True
    assert room.ask(room.rules(HEAT), "rule") is None
    assert any(isinstance(order, Prepare) for order in room.nodes["n1"].orders)
    room.forget()
    room.nodes["n2"].deaf = False
    room.meet()
    assert room.live_rules() == ["Fire"]
    assert room.ask(room.rules(HEAT), "again").status == 200  # type: ignore[union-attr]


def _copied(node: ScriptedNode) -> ScriptedNode:
    """The node as it is now."""
    copy = ScriptedNode(node.name, node.life)
    copy.config, copy.versions, copy.memory = node.config, list(node.versions), dict(node.memory)
    copy.shares, copy.adopted, copy.orders = dict(node.shares), node.adopted.copy(), list(node.orders)
    return copy


# -- a coordinator that remembers less than its nodes ------------------------------------------------------------------


def test_what_is_left_of_a_cut_journal_counts_if_no_node_remembers_more() -> None:
    room = deployed(a_room())
    room.begin_new_life()
    assert not room.machine.begun
    room.nodes = {name: ScriptedNode(name, "second") for name in room.nodes}
    room.meet()
    assert room.live_rules() == ["Fire", "Heat"]


def test_an_old_copy_is_found_out_before_anything_is_ordered() -> None:
    room = a_room()
    copy = room.journaled.save()
    deployed(room)
    room.journaled = JournaledMachine.restored(copy)
    room._lose_links()
    for name, node in room.nodes.items():
        room.take(PeerReset(name, node.life))
    orders = len(room.nodes["n1"].orders)
    for message in room.nodes["n1"].recalls():
        room.say("n1", message)
    assert room.machine.is_outdated
    assert any("its data folder is an old copy" in note for note in room.notes)
    assert len(room.nodes["n1"].orders) == orders
    room.begin_new_life()
    room.meet()
    assert room.live_rules() == ["Fire", "Heat"]


def test_a_new_life_is_the_same_when_the_journal_is_read_again() -> None:
    room = deployed(a_room())
    room.begin_new_life()
    room.meet()
    room.ask(UndeployRule("Heat"), "undeploy")
    again = JournaledMachine(Machine(room.setup, Settings(10_000_000)))
    for record in room.journal:
        again.replay(record)
    assert again.machine.coordinator.rules == room.machine.coordinator.rules
    assert {name: link.out_seq for name, link in again.links.items()} == {
        name: link.out_seq for name, link in room.journaled.links.items()
    }


def test_a_node_whose_link_begins_anew_says_what_it_has_missed_and_hears_of_it() -> None:
    """Both ends remember everything, but what was on its way is lost: a plan, here."""
    room = a_room()
    behind = _copied(room.nodes["n3"])
    room.ask(room.rules(HEAT), "rule")
    room.nodes["n3"] = behind
    room.take(PeerReset("n3", "first"))
    assert room.keeps("n3") == 1
    room._seq["n3"] = 0
    room.meet("n3")
    assert behind.shares[2].from_us == room.nodes["n1"].shares[2].from_us
    assert behind.newest().plan == room.machine.coordinator.plan
    assert room.machine.coordinator.is_idle()


def test_a_recall_that_makes_no_sense_is_harmless() -> None:
    """A node that lies about what it keeps can at most have trees built anew, or be refused."""
    room = a_room()
    room.say("n1", Recall(1, 1, (NotedPlan(1, None, 0, 0, 0, 0),)))
    room.say("n1", room.nodes["n1"].registers())
    assert not room.machine.is_outdated
    assert room.live_rules() == ["Fire"]
    room.take(Asked("r", UndeployRule("Fire")))
    room.settle()
    assert room.answers["r"].status == 200


def test_orders_never_come_before_what_is_to_be_kept() -> None:
    room = a_room()
    told = [message for _, message in _heard_by(room, "n2", lambda: room.ask(room.rules(HEAT), "rule"))]
    kinds = [type(each.order) if isinstance(each, Ordered) else type(each) for each in told]
    assert kinds.index(Remember) < kinds.index(Adopt)
