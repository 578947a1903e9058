"""Nodes that only obey: they answer the coordinator as a node would, and keep what they were told to be looked at."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from headwater.protocol.edge import ClientFeed, FileTo
from headwater.protocol.events import EventType
from headwater.protocol.languages import Source as RuleText
from headwater.protocol.languages import parse_rules
from headwater.protocol.messages import control
from headwater.protocol.messages.control import Answer, Configure, Control, NodeConfig, Ordered, Register, Reported
from headwater.protocol.messages.plans import (
    Adopt,
    BeginTree,
    DeliveredTo,
    Prepare,
    Prepared,
    ReportToCoordinator,
    Share,
    TellDelivered,
    TreeDrained,
    TreeStands,
)
from headwater.protocol.messages.recovery import Noted, Recall, Remember, in_portions, key_of
from headwater.protocol.messages.trees import InstallTree, StartTree
from headwater.protocol.network import Link, Network, Sink, Source
from headwater.protocol.subscriptions import Subscription

TYPES = (EventType("Smoke", {"area": "string"}), EventType("Temp", {"area": "string", "value": "float"}))
FIRE = """define Fire(area: string) from Smoke() and last Temp(area = Smoke.area) within 5 min from Smoke
where area = Smoke.area"""
HEAT = """define Heat(area: string) from Temp(value > 60) and each Smoke(area = Temp.area) within 1 min from Temp
where area = Temp.area"""


def a_network(nodes: int = 3, strategy: str = "st", rules: str = FIRE) -> Network:
    """A line of nodes; Smoke at the first, Temp at the last, and a sink for fires at the first."""
    names = tuple(f"n{number}" for number in range(1, nodes + 1))
    return Network(
        types=TYPES,
        nodes=names,
        links=tuple(Link(one, other, 1_000) for one, other in pairwise(names)),
        sources=(Source(names[0], "Smoke"), Source(names[-1], "Temp")),
        sinks=(Sink(names[0], Subscription("Fire")),),
        rules=parse_rules([RuleText(rules, "rules.tesla", "tesla")], TYPES).rules,
        strategy=strategy,
    )


def feeds_of(network: Network) -> tuple[ClientFeed, ...]:
    return tuple(ClientFeed() for _ in network.sources)


def destinations_of(network: Network) -> tuple[FileTo, ...]:
    return tuple(FileTo(f"sink{number}.jsonl") for number in range(len(network.sinks)))


class ScriptedNode:
    """One node. ``hear`` takes what the coordinator says and gives what the node says to it."""

    def __init__(self, name: str, life: str = "first", *, deaf: bool = False) -> None:
        self.name = name
        self.life = life
        self.deaf = deaf
        """Whether it leaves Prepare without an answer."""
        self.config: NodeConfig | None = None
        self.versions: list[int] = []
        self.shares: dict[int, Share] = {}
        self.adopted: Counter[int] = Counter()
        self.memory: dict[str, Noted] = {}
        self.answers: list[Answer] = []
        self.orders: list[object] = []
        self.promised_us = 1_000.0
        self.functions: str | None = None
        """What it says of the functions of the network."""
        self._begun: dict[str, int] = {}

    def registers(self) -> Register:
        return Register(self.name, self.life, f"tcp://{self.name}:1", f"{self.name}:2", "test", self.functions)

    def recalls(self) -> list[Control]:
        """What it says to a coordinator that may remember nothing."""
        version = self.config.version if self.config is not None else 0
        plan = max(self.shares, default=0)
        return [*(Recall(plan, version, each) for each in in_portions(list(self.memory.values()))), self.registers()]

    def hear(self, payload: bytes) -> list[Control]:
        match control.decode(payload):
            case Configure(config):
                assert not self.versions or config.version > self.versions[-1]
                self.config = config
                self.versions.append(config.version)
            case Answer() as answer:
                self.answers.append(answer)
            case Remember(anew, pieces, gone):
                if anew:
                    self.memory = {}
                self.memory |= {key_of(piece): piece for piece in pieces}
                for key in gone:
                    del self.memory[key]
            case Ordered(order):
                assert self.config is not None, "a node must be configured before it is ordered"
                self.orders.append(order)
                return [Reported(report) for report in self._obey(order)]
            case other:
                raise AssertionError(f"a coordinator does not say {other}")
        return []

    def _obey(self, order: object) -> list[ReportToCoordinator]:
        match order:
            case StartTree(tree, epoch):
                assert tree == self.name
                return [TreeStands(tree, epoch)]
            case InstallTree(tree, epoch):
                return [TreeStands(tree, epoch)] if tree == self.name else []
            case Prepare(change):
                self.promised_us += 1_000
                return [] if self.deaf else [Prepared(change, self.promised_us)]
            case Adopt(share):
                self._check_sinks(share)
                self.shares[share.plan] = share
                self.adopted[share.plan] += 1
            case TellDelivered(loss):
                return [DeliveredTo(loss, ())]
            case BeginTree(tree, epoch):
                before, self._begun[tree] = self._begun.get(tree), epoch
                return [TreeDrained(tree, before)] if before is not None and before != epoch else []
        return []

    def _check_sinks(self, share: Share) -> None:
        """Whatever a plan says happens here must have been configured before."""
        assert self.config is not None
        assert {each.number for each in share.sinks} <= {each.number for each in self.config.sinks}
        assert {each.number for each in share.sources} <= {each.number for each in self.config.sources}

    def newest(self) -> Share:
        return self.shares[max(self.shares)]
