"""Writes the Python code of a compiled rule, from parsed expressions alone."""
