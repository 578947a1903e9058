"""One node: the engine that evaluates rules, and the explanation of what it finds."""
