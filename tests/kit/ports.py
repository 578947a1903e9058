"""Ports for what tests start, which no other test takes: not in this process, nor in any other on this machine.

A process that is killed wants its port again when it is restarted, so a port that is merely free may not be taken.
Every test process therefore has a block of ports of its own, whose first port it listens on for as long as it lives:
whoever finds that port taken tries another block, and the system gives the block back when the process ends.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from functools import cache
from itertools import cycle
from typing import Final

from headwater.deploy.cluster.local import HOST, is_free

PORTS: Final = range(10_000, 20_000)
"""Below those of ``headwater up``, and below those that the system gives to outgoing connections."""

BLOCK: Final = 250


def free_port() -> int:
    """One that nothing listens on and that this process has not given for as long as possible."""
    ports = _ports()
    return next(port for port in (next(ports) for _ in range(BLOCK)) if is_free(HOST, port))


@cache
def _ports() -> Iterator[int]:
    guard, block = take_block()
    _GUARDS.append(guard)
    return cycle(block)


_GUARDS: Final[list[socket.socket]] = []


def take_block() -> tuple[socket.socket, range]:
    """A block of ports, which is the caller's until the socket is closed."""
    blocks = range(PORTS.start, PORTS.stop, BLOCK)
    for number in range(len(blocks)):
        first = blocks[(os.getpid() + number) % len(blocks)]
        try:
            return socket.create_server((HOST, first)), range(first + 1, first + BLOCK)
        except OSError:
            continue
    raise AssertionError(f"all ports from {PORTS.start} to {PORTS.stop - 1} are taken; end some of the tests that run")
