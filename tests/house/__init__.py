"""The project itself: import directions, packaging, scripts, documentation that runs."""
