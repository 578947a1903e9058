"""The coordinator as a process: a journaled state machine around ``coordinator.core``, its links to the nodes, its API.

machine.py     inputs -> effects, deterministic, without sockets and clocks
process.py     the machine with a hub, a journal and an HTTP server
api/           what can be asked over HTTP: models of what is taken and given, the table of routes, the server
"""
