"""Statistics of prepared traces for planners."""
