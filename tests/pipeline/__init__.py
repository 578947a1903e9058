"""The commands on Spark, and reports."""
