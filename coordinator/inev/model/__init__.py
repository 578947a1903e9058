"""What a planner is given: topology, queries, rates, selectivities, and the cost of plans."""
