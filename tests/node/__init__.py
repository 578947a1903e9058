"""One node, without a network."""
