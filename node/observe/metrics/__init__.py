"""What a running node counts and shows: counters, Prometheus metrics, records for later analysis."""
