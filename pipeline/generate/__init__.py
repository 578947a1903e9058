"""Events that are made up: when, where and with which values; the same for the same seed, wherever made."""
