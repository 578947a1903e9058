"""The local engine: compiled rules over events that may arrive out of order."""

from node.engine.engine import Engine

__all__ = ["Engine"]
