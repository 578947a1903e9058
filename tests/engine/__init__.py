"""The engine as its users see it, and against the oracle."""
