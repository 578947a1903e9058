"""A second opinion: what rules should find in a trace, computed in Spark without the engine, beside what was found."""
