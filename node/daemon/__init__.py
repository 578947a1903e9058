"""A node as a process: the core, its journal, its links, and what is at its edge."""
