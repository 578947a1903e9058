"""Delivery: the subscriptions of a tree, and the matches that are sent to sinks."""
