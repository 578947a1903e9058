"""A network on this machine: local processes, network namespaces, Mininet, containers (docs/guide/running.md).

``up`` prepares a *backend* (namespaces, containers; nothing for local processes), writes down in a plan which processes
there are to be, and starts a *keeper* that runs them until ``down``.
"""
