"""What a node holds in memory, by purpose. The sum is ``core.held()``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headwater.node.core import NodeCore

HELD: Final = (
    "partial_matches",
    "tasks",
    "kept",
    "aggregates",
    "events",
    "sent_bodies",
    "received_bodies",
    "delivered",
    "accounts",
)
"""partial_matches: rows and partial matches inside engines; tasks: what tasks remember beside that (what was sent or
blocked, candidates, windows); kept: rows that wait to be asked for; aggregates: rows and questions of aggregates;
events: events born here that something new may need; sent_bodies, received_bodies: what may be referred to on links;
delivered: what sinks must not be given again; accounts: what was said of events, to tell who contradicts it."""


def held_by(core: NodeCore) -> dict[str, int]:
    """How many rows, partial matches and remembered identities are kept, by purpose (``HELD``)."""
    kept = dict.fromkeys(HELD, 0)
    for tasks in core.works.values():
        stored = sum(task.engine.stored() for task in tasks.tasks)
        waiting = sum(outlet.held() for outlet in tasks.outlets.values())
        aggregates = tasks.aggregates_held()
        kept["partial_matches"] += stored
        kept["kept"] += waiting
        kept["aggregates"] += aggregates
        kept["tasks"] += tasks.held() - stored - waiting - aggregates
    kept["events"] = sum(len(feed.history) for feed in core.local.values())
    kept["sent_bodies"] = sum(len(outbox.history) for outbox in core.outboxes.values())
    kept["received_bodies"] = sum(len(inbox.bodies) for inbox in core.inboxes.values())
    kept["delivered"] = core.forest.delivered.held()
    kept["accounts"] = core.testimony.held()
    return kept
