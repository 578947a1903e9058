"""Tasks: patterns that a node evaluates over the rows of its feeds."""
