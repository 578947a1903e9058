"""Will decide what runs where: processing trees, cost models, planners."""
