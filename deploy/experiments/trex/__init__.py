"""The evaluation of the T-Rex deployment strategies, repeated."""
