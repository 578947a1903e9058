"""A node: evaluates rules over events, forwards streams and delivers composite events."""
