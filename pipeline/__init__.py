"""Prepares traces, learns statistics and analyses what runs have collected, in bulk, on Spark."""
