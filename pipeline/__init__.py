"""Bulk data on Spark: prepares and generates traces, counts statistics, replays, verifies and analyses runs."""
