"""A node as a process: the core with its journal, its links, and its sources and sinks."""
