"""Turns raw data into prepared traces."""
