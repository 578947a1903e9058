"""Streams through a node: sources and feeds in, outlets and outboxes out."""
