"""INEv: placing a workload of queries in a network so that as little as possible crosses its links.

A query is split into projections, each projection is placed on one node or on all sources of one event type, and what
it finds is forwarded along trees. The model, its costs and the planners live here; docs/planning.md tells how to use
them and what a plan promises.
"""
