"""Explains why a pattern did or did not match: a slow walk through it that shares no code with the engine."""
