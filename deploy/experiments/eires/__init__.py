"""The evaluation of EIRES: how long matches wait for remote elements under each strategy."""
