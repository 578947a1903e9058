"""Traces: events in files or from a pipe."""
