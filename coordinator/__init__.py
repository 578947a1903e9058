"""Decides what runs where: processing trees, cost models and planners, and how a change reaches a running network."""
