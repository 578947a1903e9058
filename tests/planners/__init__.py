"""Planners, their cost models, and the experiments on them."""
