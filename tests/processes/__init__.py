"""Networks of real processes, and what goes wrong with them."""
