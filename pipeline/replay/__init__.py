"""Streams prepared traces to running nodes."""
