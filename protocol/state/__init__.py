"""Saved state: what nodes and coordinators write to their disks and read when they start (see ``format``)."""

from headwater.protocol.state.classes import Made
from headwater.protocol.state.format import Format, OldState, was_pickled
from headwater.protocol.state.kinds import StateError
from headwater.protocol.state.object_graphs import Tables, Vocabulary

__all__ = ["Format", "Made", "OldState", "StateError", "Tables", "Vocabulary", "was_pickled"]
