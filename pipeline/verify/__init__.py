"""An independent check: computes in Spark, without the engine, what rules should find, and compares it with a run."""
