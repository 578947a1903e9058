"""Aggregates of chains whose values are asked for in the network, so that the aggregated events stay where they enter.

``planning`` says for which aggregates of a rule that is possible, ``tallies`` counts and merges on the way up, and
``completion`` puts the values to the matches that wait for them.
"""
