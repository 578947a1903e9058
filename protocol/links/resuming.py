"""Decides whether the two ends of a link can resume where they were."""

from __future__ import annotations

from headwater.protocol.links.frames import Hello
from headwater.protocol.links.notifications import Identity
from headwater.protocol.links.numbering import Incoming, Outgoing


def why_not(me: Identity, life: str | None, era: str, outgoing: Outgoing, incoming: Incoming, theirs: Hello) -> str:
    """Why this end, which remembers the peer's ``life`` and the ``era``, cannot go on with one that says ``theirs``;
    empty if it can. A session goes on only if both ends find nothing."""
    if life is not None and life != theirs.life:
        return f"{theirs.name} has lost its memory"
    if theirs.peer_life is not None and theirs.peer_life != me.life:
        return f"{me.name} has lost its memory"
    if era != theirs.era:
        return "only one end remembers the last reset"
    if theirs.received > outgoing.last:
        return f"{me.name} no longer remembers what it has sent"
    if theirs.confirmed < outgoing.acknowledged:
        return f"{theirs.name} no longer remembers what it has confirmed"
    if incoming.received > theirs.sent:
        return f"{theirs.name} no longer remembers what it has sent"
    if incoming.confirmed < theirs.acknowledged:
        return f"{me.name} no longer remembers what it has confirmed"
    if theirs.digest is not None and theirs.digest != outgoing.digest_at(theirs.received):
        return f"{me.name} has given numbers to something else"
    return ""
