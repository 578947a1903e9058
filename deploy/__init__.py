"""What people run: the command, and the reading of traces and tables."""
