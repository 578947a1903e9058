"""Descriptions of traces that are made up."""
