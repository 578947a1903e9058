"""Messages between nodes and the coordinator, as frozen values."""
