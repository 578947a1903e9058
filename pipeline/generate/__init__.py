"""Generates traces: events with times, nodes and values, the same for the same seed on any machine."""
