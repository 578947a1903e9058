"""Sources, sinks, devices, clients and traces."""
