"""Traces: events that stand in files or come through a pipe."""
