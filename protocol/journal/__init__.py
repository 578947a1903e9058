"""An append-only journal with group commit and snapshots: what was reported durable is there after a crash."""

from __future__ import annotations

from headwater.protocol.journal.journal import Durability, Journal

__all__ = ["Durability", "Journal"]
