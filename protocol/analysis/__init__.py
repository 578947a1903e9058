"""What can be read off patterns: their branches, bounds, projections, dependencies, and whether they are valid."""
