"""The local engine: compiled rules over events that may arrive out of order."""

from headwater.node.engine.engine import Engine
from headwater.node.engine.program import Program, compile_rules

__all__ = ["Engine", "Program", "compile_rules"]
