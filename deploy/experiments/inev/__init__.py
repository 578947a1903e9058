"""The evaluation of INEv graphs, repeated: what plans save, on random networks and on recorded streams."""
