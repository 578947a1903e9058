"""Saved state: what nodes and coordinators write to their disks and read when they start (see ``format``)."""

from headwater.protocol.state.classes import Made
from headwater.protocol.state.format import Format, OldState, was_pickled
from headwater.protocol.state.graph import Tables, Vocabulary
from headwater.protocol.state.kinds import StateError

__all__ = ["Format", "Made", "OldState", "StateError", "Tables", "Vocabulary", "was_pickled"]
