"""Decides what runs where: trees, cost models and planners, and how a change reaches a running network."""
