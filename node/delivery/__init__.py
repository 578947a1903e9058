"""Deliveries: the subscriptions of a tree, and matches on their way to sinks."""
