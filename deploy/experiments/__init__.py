"""Experiments of papers, repeated in the simulator."""
