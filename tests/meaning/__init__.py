"""What the rule languages mean, example by example, on the oracle and the engine."""
