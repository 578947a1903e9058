"""Layouts: which parts of each rule run where, the stream graphs that follow, and what a stage falls back to."""
