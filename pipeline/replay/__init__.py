"""Streams prepared traces to running nodes: what each task of ``pipeline.replay.replay`` does, without Spark."""
