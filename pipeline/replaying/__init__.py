"""Streams prepared traces to running nodes: what each task of ``pipeline.replay`` does, without Spark."""
