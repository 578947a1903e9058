"""What a node's share of a plan means for the node."""

from __future__ import annotations

from typing import Any

from headwater.node.plans.catalog import Catalog
from headwater.node.plans.rule_store import RuleStore
from headwater.node.remote.memory import Memory
from headwater.protocol.messages.plans import Share
from headwater.protocol.strategy import Strategy, strategy_of


class PlanShare:
    """A share with what is derived from it."""

    def __init__(self, node: str, share: Share, memory: Memory) -> None:
        """``memory``: what the node has at hand of remote tables."""
        self.share = share
        self.catalog = Catalog(share.types, share.composites, memory, node, share.reached_from)
        self.rules = RuleStore(share.rules)

    @property
    def strategy(self) -> Strategy:
        return strategy_of(self.share.strategy)

    def table(self) -> dict[str, Any]:
        return {
            "strategy": self.strategy.name,
            "from_us": self.share.from_us,
            "sources": [f"{source.number}: {source.type}" for source in self.share.sources],
            "sinks": [sink.number for sink in self.share.sinks],
            "rules": self.rules.table(),
        }
