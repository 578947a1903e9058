"""What a node makes of its share of a plan."""

from __future__ import annotations

from typing import Any

from headwater.node.plans.catalog import Catalog
from headwater.node.plans.rule_store import RuleStore
from headwater.protocol.messages.plans import Share

ONE_TREE = ("centr", "st", "st-pp", "inev")
"""Strategies in which one tree serves all sinks."""


class PlanShare:
    """A share with what is derived from it."""

    def __init__(self, share: Share) -> None:
        self.share = share
        self.strategy = share.strategy
        self.catalog = Catalog(share.types, share.composites)
        self.rules = RuleStore(share.rules)

    def table(self) -> dict[str, Any]:
        return {
            "strategy": self.strategy,
            "from_us": self.share.from_us,
            "sources": [f"{source.number}: {source.type}" for source in self.share.sources],
            "sinks": [sink.number for sink in self.share.sinks],
            "rules": self.rules.table(),
        }
