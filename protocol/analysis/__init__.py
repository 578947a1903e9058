"""Computations on patterns: their branches, horizons, projections and dependencies, and whether they are valid."""
