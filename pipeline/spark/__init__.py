"""Spark itself: its session, its Java, what it says when it fails, and the code it ships to workers."""
