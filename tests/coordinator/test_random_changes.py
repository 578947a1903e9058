"""Random changes, losses, crashes and delays at once: in the end all have one plan, each request has one answer."""

from __future__ import annotations

import random
from collections import deque

import pytest

from headwater.coordinator.daemon.api.rule_texts import read_rules
from headwater.coordinator.daemon.inputs import Asked, Heard, Input, PeerReset, Reborn, Setup, Tick
from headwater.coordinator.daemon.journaled_machine import JournaledMachine
from headwater.coordinator.daemon.machine import Machine, Settings
from headwater.coordinator.layout.planner_interface import at_the_middle
from headwater.coordinator.recovery import recalled
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
from headwater.protocol.edge import ClientFeed, StdoutTo
from headwater.protocol.languages import Source as RuleText
from headwater.protocol.messages import control
from headwater.protocol.messages.control import Control, SubscribeClient, UnsubscribeClient
from headwater.protocol.network import Link, Sink, Source
from headwater.protocol.subscriptions import Subscription
from tests.kit.scripted_nodes import HEAT, ScriptedNode, a_network, destinations_of, feeds_of

STEPS = 400


class Storm:
    """A ring of five nodes. Messages wait, in order for each node, until chance lets them arrive."""

    def __init__(self, seed: int, amnesia: float = 0.0) -> None:
        """``amnesia``: how often the coordinator forgets; messages arrive 80 times as often as 1."""
        self.amnesia = amnesia
        self.forgotten = 0
        """Requests up to this number may have been forgotten, or answered before and forgotten."""
        self.chance = random.Random(seed)
        line = a_network(5, self.chance.choice(["st", "mt", "centr"]))
        self.network = line.__class__(
            **{name: getattr(line, name) for name in line.__slots__} | {"links": (*line.links, Link("n1", "n5", 1_000))}
        )
        self.setup = Setup(
            id="net",
            network=self.network,
            feeds=feeds_of(self.network),
            destinations=destinations_of(self.network),
        )
        self.journaled = self._fresh()
        self.snapshot: bytes | None = None
        self.journal: list[bytes] = []
        self.nodes = {name: ScriptedNode(name) for name in self.network.nodes}
        self.to_node: dict[str, deque[bytes]] = {name: deque() for name in self.nodes}
        self.to_coordinator: dict[str, deque[Control]] = {name: deque() for name in self.nodes}
        self.seq = dict.fromkeys(self.nodes, 0)
        self.now_us = 1_000_000
        self.asked = 0
        self.answered: dict[str, int] = {}
        self.lives = 1
        for node in self.nodes.values():
            self.to_coordinator[node.name].append(node.registers())
        read = read_rules([RuleText(HEAT, "t", "tesla")], {}, self.journaled.machine.registry.types, "st")
        self.heat = read.rules[0]

    def _fresh(self) -> JournaledMachine:
        return JournaledMachine(Machine(self.setup, Settings(10_000_000)))

    def take(self, received: Input) -> None:
        self.journal.append(JournaledMachine.record(received, self.now_us))
        out = self.journaled.apply(received, self.now_us)
        assert not self.journaled.counts["internal_errors"]
        for answer in out.answers:
            number = int(answer.request.split()[1])
            assert number <= self.forgotten or answer.request not in self.answered, "one answer for each request"
            self.answered[answer.request] = answer.status
        for name, payloads in out.sends.items():
            self.to_node[name] += payloads
        if out.outdated:
            self.cut_links()
            self.take(Reborn())
            self.meet_again()

    def cut_links(self) -> None:
        """What is under way is lost, and with it who waits for what."""
        for name in self.nodes:
            self.to_node[name].clear()
            self.to_coordinator[name].clear()
            self.seq[name] = 0
        self.forgotten = self.asked
        self.answered |= {f"request {number}": 0 for number in range(1, self.asked + 1)}

    def deliver(self, name: str) -> None:
        """One message each way, if there is one."""
        if self.to_node[name] and self.chance.random() < 0.5:
            self.to_coordinator[name] += self.nodes[name].hear(self.to_node[name].popleft())
        elif self.to_coordinator[name]:
            self.seq[name] += 1
            message = self.to_coordinator[name].popleft()
            self.take(Heard(name, self.seq[name], (control.encode(message),)))

    def crash(self) -> None:
        """The coordinator comes back from its snapshot and journal; links go on where they were."""
        before = self.journaled
        self.journaled = self._fresh() if self.snapshot is None else JournaledMachine.restored(self.snapshot)
        for record in self.journal:
            self.journaled.replay(record)
        for name, link in self.journaled.links.items():
            assert link.out_seq == before.links[name].out_seq
            assert list(link.unacknowledged)[-3:] == list(before.links[name].unacknowledged)[-3:]

    def save(self) -> None:
        self.snapshot = self.journaled.save()
        self.journal.clear()

    def forget(self, name: str) -> None:
        """A node loses its memory."""
        self.lives += 1
        self.nodes[name] = ScriptedNode(name, f"life {self.lives}")
        self.to_node[name].clear()
        self.to_coordinator[name].clear()
        self.seq[name] = 0
        self.take(PeerReset(name, f"life {self.lives}"))
        self.to_coordinator[name].append(self.nodes[name].registers())

    def relink(self, name: str) -> None:
        """A node and the coordinator cannot go on with their link, though both remember everything else."""
        known = self.journaled.machine.registry.nodes.get(name)
        if known is not None and known.life == self.nodes[name].life:
            self.to_node[name].clear()
            self.to_coordinator[name].clear()
            self.seq[name] = 0
            self.take(PeerReset(name, known.life))
            self.to_coordinator[name] += self.nodes[name].recalls()

    def lose_memory(self) -> None:
        """The coordinator forgets everything, or all but the beginning of its journal, and begins a new life; or
        an operator puts an old copy of its folder in place, which it finds out by itself."""
        kept = self.chance.randrange(len(self.journal) + 1)
        self.journaled = self._fresh() if self.snapshot is None else JournaledMachine.restored(self.snapshot)
        for record in self.journal[:kept]:
            self.journaled.replay(record)
        del self.journal[kept:]
        self.cut_links()
        match self.chance.randrange(3):
            case 0:
                self.journaled, self.snapshot, self.journal = self._fresh(), None, []
                self.meet_again()
            case 1:
                self.take(Reborn())
                self.meet_again()
            case _:
                for name, node in self.nodes.items():
                    self.take(PeerReset(name, node.life))
                self.meet_again()

    def meet_again(self) -> None:
        for name, node in self.nodes.items():
            self.to_coordinator[name] += node.recalls()

    def an_ask(self) -> Request:
        chance = self.chance
        node = chance.choice(self.network.nodes)
        number = chance.randrange(6)
        link = chance.choice(self.network.links)
        choices: list[Request] = [
            DeployRules((self.heat,)),
            UndeployRule(chance.choice(["Heat", "Fire"])),
            ReplaceRule(self.heat),
            AddSubscription(Sink(node, Subscription(chance.choice(["Fire", "Smoke", "Heat"]))), StdoutTo()),
            EndSubscription(number),
            AddSource(Source(node, "Temp"), ClientFeed()),
            EndSource(number),
            TidyUp(),
            GiveUpNode(node),
            TakeNodeBack(node),
            GiveUpLink(link.one, link.other),
            TakeLinkBack(link.one, link.other),
        ]
        weights = [4, 4, 4, 4, 4, 4, 4, 2, 0.3, 3, 0.5, 1]
        return chance.choices(choices, weights)[0]

    def step(self) -> None:
        name = self.chance.choice(self.network.nodes)
        match self.chance.choices(range(9), [80, 6, 1, 0.5, 2, 1, 1, 0.5, self.amnesia])[0]:
            case 0:
                self.deliver(name)
            case 1:
                self.asked += 1
                self.take(Asked(f"request {self.asked}", self.an_ask()))
            case 2:
                self.crash()
            case 3:
                self.forget(name)
            case 4:
                self.now_us += self.chance.randrange(4_000_000)
                self.take(Tick())
            case 5:
                self.save()
            case 7:
                self.relink(name)
            case 8:
                self.lose_memory()
            case 6:
                wish = SubscribeClient, UnsubscribeClient
                self.to_coordinator[name].append(self.chance.choice(wish)(1, "app", Subscription("Fire")))

    def calm(self) -> None:
        """Let everything arrive, however long it takes."""
        for _ in range(200):
            for name in self.nodes:
                while self.to_node[name] or self.to_coordinator[name]:
                    self.deliver(name)
            if not any([*self.to_node.values(), *self.to_coordinator.values()]):
                if self.journaled.machine.due_us() is None:
                    return
                self.now_us += 10_000_000
                self.take(Tick())
        raise AssertionError("it does not come to rest")

    def check(self) -> None:
        machine = self.journaled.machine
        assert machine.begun
        assert machine.coordinator.is_idle(), (machine.coordinator.unanswered(), machine.coordinator.unprepared())
        assert not machine.waiting
        assert set(self.answered) == {f"request {number}" for number in range(1, self.asked + 1)}
        assert machine.registry.sinks.keys() >= machine.coordinator.sinks.keys()
        for name in machine.coordinator.nodes():
            node = self.nodes[name]
            share = node.newest()
            assert share.plan == machine.coordinator.plan
            assert {s.number for s in share.sinks} == {
                number for number, (at, _) in machine.coordinator.sinks.items() if at == name
            }
            assert node.config == machine.registry.sent[name]
            self.check_memory(machine, node)

    @staticmethod
    def check_memory(machine: Machine, node: ScriptedNode) -> None:
        """What each node keeps makes the same coordinator again."""
        again = recalled(machine.setup.network, node.memory.values(), at_the_middle)
        now = machine.coordinator
        assert (again.plan, again.rules, again.sinks, again.sources) == (now.plan, now.rules, now.sinks, now.sources)
        assert (again.nodes(), again.trees.used_epochs) == (now.nodes(), now.trees.used_epochs)
        assert {tree: again.trees.expected(tree) for tree in again.trees.roots} == {
            tree: now.trees.expected(tree) for tree in now.trees.roots
        }


@pytest.mark.parametrize("seed", range(40))
def test_after_any_storm_all_nodes_have_the_same_plan(seed: int) -> None:
    storm = Storm(seed)
    for _ in range(STEPS):
        storm.step()
    storm.calm()
    storm.check()


@pytest.mark.parametrize("seed", range(60))
def test_after_any_storm_in_which_the_coordinator_forgets_all_nodes_have_the_same_plan(seed: int) -> None:
    storm = Storm(seed, amnesia=0.7)
    for _ in range(STEPS):
        storm.step()
    storm.calm()
    storm.check()
