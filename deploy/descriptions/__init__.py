"""Descriptions of data sets, generated traces, statistics and remote tables."""
