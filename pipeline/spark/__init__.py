"""Spark itself: its session, its Java, its errors, and the code that it ships to workers."""
