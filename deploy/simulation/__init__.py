"""A whole network in one process and in virtual time."""
