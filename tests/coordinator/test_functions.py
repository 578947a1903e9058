"""Plans that call functions of a user's file: no node is told of one before every node has said that it runs them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headwater.coordinator.daemon.api.rule_texts import read_rules, read_subscription, shown_rule
from headwater.coordinator.daemon.inputs import PeerReset
from headwater.coordinator.daemon.journaled_machine import JournaledMachine
from headwater.coordinator.requests import AddSubscription, DeployRules, GiveUpNode, TakeNodeBack
from headwater.protocol.edge import FileTo
from headwater.protocol.function_files import described
from headwater.protocol.languages import RuleTextError, parse_rules
from headwater.protocol.languages import Source as RuleText
from headwater.protocol.network import Network, Sink
from tests.coordinator.test_machine import Room
from tests.kit.scripted_nodes import FIRE, TYPES, ScriptedNode, a_network

FILE = described(b"def risk(x):\n    return x\n", "/f.py")
RISKY = "define Risky(v: float) from Temp(risk(value) > 3) as t where v = t.value"
WHY = "it was not started with --allow-functions"


def calling() -> Network:
    """A network whose only rule calls a function."""
    rules = parse_rules([RuleText(RISKY, "r", "tesla")], TYPES, FILE.declared()).rules
    return replace(a_network(), rules=rules, functions=FILE)


def with_file() -> Network:
    """A network that names a file, with a rule that calls nothing of it."""
    return replace(a_network(), functions=FILE)


def deploy_risky(room: Room) -> DeployRules:
    read = read_rules([RuleText(RISKY, "t", "tesla")], {}, room.machine.registry.types, "st", functions=FILE)
    return DeployRules(read.rules, read.types)


def consent(room: Room, said: str | None = "", *names: str) -> None:
    """Nodes have been told of the functions, and say whether they run them."""
    for name in names or room.nodes:
        room.nodes[name].functions = said
        room.say(name, room.nodes[name].registers())
    room.settle()


def test_the_first_plan_waits_until_every_node_runs_its_functions() -> None:
    room = Room(calling()).start()
    assert all(node.config is not None and node.config.functions == FILE for node in room.nodes.values())
    assert not room.machine.begun
    assert "not every node has said yet" in str(room.machine.unsettled())
    consent(room, "", "n1", "n2")
    assert not room.machine.begun
    consent(room, WHY, "n3")
    assert not room.machine.begun
    sentence = f"n3 refuses plans that call functions: {WHY}"
    assert room.machine.refusals() == [sentence]
    assert room.machine.unsettled() == sentence
    assert sentence in room.notes
    consent(room, "", "n3")  # it was started again
    assert room.machine.begun
    assert all(node.adopted == {1: 1} for node in room.nodes.values())


def test_a_network_whose_rules_call_nothing_waits_for_no_consent() -> None:
    room = Room(with_file()).start()
    assert room.machine.begun
    consent(room, WHY, "n1")
    assert room.machine.refusals() == []


def test_a_rule_that_calls_a_function_is_refused_with_the_sentence_of_the_node_and_the_old_plan_goes_on() -> None:
    room = Room(with_file()).start()
    consent(room, "", "n1", "n3")
    refused = room.ask(deploy_risky(room), "one")
    assert refused is not None
    assert (refused.status, refused.body) == (409, {"error": "n2 must load the functions first; ask again"})
    consent(room, WHY, "n2")
    refused = room.ask(deploy_risky(room), "two")
    assert refused is not None
    assert refused.body == {"error": f"n2 refuses plans that call functions: {WHY}"}
    assert list(room.machine.coordinator.rules) == ["Fire"]
    assert room.machine.coordinator.plan == 1
    consent(room, "", "n2")
    made = room.ask(deploy_risky(room), "three")
    assert made is not None
    assert made.status == 200
    assert list(room.machine.coordinator.rules) == ["Fire", "Risky"]


def test_a_subscription_that_calls_a_function_needs_the_consent_of_all() -> None:
    room = Room(with_file()).start()
    consent(room, "", "n1", "n3")
    consent(room, WHY, "n2")
    wanted = read_subscription("Temp(risk(value) > 1)", (), room.machine.registry.types, FILE)
    refused = room.ask(AddSubscription(Sink("n1", wanted), FileTo("more.jsonl")))
    assert refused is not None
    assert refused.status == 409


def test_a_node_that_refuses_while_the_change_is_prepared_ends_it() -> None:
    room = Room(with_file()).start()
    consent(room)
    room.nodes["n2"].deaf = True  # it is down, and comes back without the permission
    assert room.ask(deploy_risky(room), "one") is None
    consent(room, WHY, "n2")
    answer = room.answers["one"]
    assert answer.status == 409
    assert answer.body == {"error": f"n2 refuses plans that call functions: {WHY}; nothing has been changed"}
    room.nodes["n2"].deaf = False
    heat = room.ask(room.rules(FIRE.replace("Fire", "Fires")), "two")  # the network goes on
    assert heat is not None
    assert heat.status == 200
    assert list(room.machine.coordinator.rules) == ["Fire", "Fires"]


def test_a_node_that_begins_a_new_life_is_told_of_the_plan_when_it_runs_its_functions() -> None:
    room = Room(calling()).start()
    consent(room)
    assert room.machine.begun
    room.nodes["n2"] = ScriptedNode("n2", "second")
    room.take(PeerReset("n2", "second"))
    room.say("n2", room.nodes["n2"].registers())
    room.settle()
    assert room.nodes["n2"].config is not None
    assert not room.nodes["n2"].adopted
    consent(room, WHY, "n2")
    assert not room.nodes["n2"].adopted
    room.journaled = JournaledMachine.restored(room.journaled.save())
    consent(room, "", "n2")
    assert room.nodes["n2"].adopted
    assert room.machine.coordinator.trees.all_stand()


def test_a_lost_node_that_is_taken_back_is_told_of_the_plan_when_it_runs_its_functions() -> None:
    room = Room(calling()).start()
    consent(room)
    gone = room.ask(GiveUpNode("n3"), "gone")
    assert gone is not None
    room.nodes["n3"] = ScriptedNode("n3", "second")
    room.take(PeerReset("n3", "second"))
    room.say("n3", room.nodes["n3"].registers())
    back = room.ask(TakeNodeBack("n3"), "back")
    assert back is not None
    assert back.status == 200
    assert not room.nodes["n3"].adopted
    consent(room, "", "n3")
    assert room.nodes["n3"].adopted
    assert room.machine.coordinator.trees.all_stand()


def test_rules_are_shown_with_the_plain_names_of_functions_and_read_back() -> None:
    (rule,) = calling().rules
    text, language = shown_rule(rule)
    assert "risk(value) > 3" in text
    again = read_rules([RuleText(text, "t", "tesla")], {}, {each.name: each for each in TYPES}, "st", functions=FILE)
    assert language == "tesla"
    assert again.rules == (rule,)
    with pytest.raises(RuleTextError, match="unknown function 'risk'"):
        read_rules([RuleText(text, "t", "tesla")], {}, {each.name: each for each in TYPES}, "st")
