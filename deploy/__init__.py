"""What users run: the command, network files, the simulator, clusters, reports and experiments."""
