"""Decisions of the operator about nodes and links: the network goes on without one, or takes it back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import assert_never

from headwater.coordinator.core import Coordinator, Orders
from headwater.coordinator.daemon.operations import RequestRefused
from headwater.coordinator.daemon.registry import Registry
from headwater.coordinator.losses import LostLink, LostNode
from headwater.coordinator.requests import Decision, GiveUpLink, GiveUpNode, TakeLinkBack, TakeNodeBack
from headwater.protocol.messages.control import Register


@dataclass(frozen=True, slots=True)
class Decisions:
    """The parts of a machine that decisions change."""

    coordinator: Coordinator
    registry: Registry
    lost_nodes: dict[str, str | None]
    lost_links: set[tuple[str, str]]
    returned: dict[str, Register]
    """Lost nodes that have registered again."""
    early: list[LostNode | LostLink]
    """What was given up before the nodes were sent a plan."""
    begun: bool = field(kw_only=True)
    """Whether the nodes were sent a plan."""
    remembers: bool = field(kw_only=True)
    """Whether there is a memory of an earlier life. Until it has begun with it, what holds is not known."""

    def orders_for(self, decision: Decision, now_us: int) -> Orders:
        """What nodes are ordered because of a decision; RequestRefused or ConfigError if it makes no sense."""
        match decision:
            case GiveUpNode(node):
                return self._give_up_node(node)
            case GiveUpLink(one, other):
                return self._give_up_link(min(one, other), max(one, other))
            case TakeNodeBack(node):
                return self._take_node_back(node, now_us)
            case TakeLinkBack(one, other):
                return self._take_link_back(one, other)
            case _:
                assert_never(decision)

    def _give_up_node(self, node: str) -> Orders:
        self.coordinator.trees.check_node(node)
        orders = self.coordinator.lost_node(node) if self._holds_now(LostNode(node)) else []
        registration = self.registry.nodes.pop(node, None)
        self.lost_nodes.setdefault(node, registration.life if registration is not None else None)
        self.registry.forget_sent(node)
        return orders

    def _give_up_link(self, one: str, other: str) -> Orders:
        self.coordinator.trees.check_link(one, other)
        orders = self.coordinator.lost_link(one, other) if self._holds_now(LostLink(one, other)) else []
        self.lost_links.add((one, other))
        return orders

    def _holds_now(self, fact: LostNode | LostLink) -> bool:
        """Whether a loss holds at once. It does unless what holds is not known yet: then when it is."""
        if not self.begun:
            self.early.append(fact)
        return self._is_settled()

    def _take_link_back(self, one: str, other: str) -> Orders:
        self._check_settled()
        link = (min(one, other), max(one, other))
        self._forget_early(LostLink(*link))
        orders = self.coordinator.link_back(one, other)
        self.lost_links.discard(link)
        return orders

    def _take_node_back(self, node: str, now_us: int) -> Orders:
        if node not in self.lost_nodes:
            raise RequestRefused(409, f"{node} was not given up")
        message = self.returned.get(node)
        if message is None:
            raise RequestRefused(
                409, f"{node} has not registered since it was given up; start it with an empty data folder"
            )
        if message.life == self.lost_nodes[node]:
            raise RequestRefused(
                409,
                f"{node} still has the memory of what it did before it was given up, while the others went on without "
                f"it; start it with an empty data folder",
            )
        self._check_settled()
        del self.returned[node]
        del self.lost_nodes[node]
        self._forget_early(LostNode(node))
        self.registry.register(message, now_us)
        return self.coordinator.node_back(node)

    def _is_settled(self) -> bool:
        return self.begun or not self.remembers

    def _check_settled(self) -> None:
        if not self._is_settled():
            raise RequestRefused(409, "the coordinator does not know yet what holds; ask again when it is ready")

    def _forget_early(self, loss: LostNode | LostLink) -> None:
        self.early[:] = [fact for fact in self.early if fact != loss]
