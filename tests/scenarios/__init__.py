"""Stories of networks: commands, and the outcome they print."""
