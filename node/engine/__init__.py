"""The local engine: compiled rules over events that may arrive out of order."""

from node.engine.engine import Engine
from node.engine.program import Program, compile_rules

__all__ = ["Engine", "Program", "compile_rules"]
