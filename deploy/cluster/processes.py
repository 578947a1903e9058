"""What the operating system knows of processes: alive or not, memory, time; ends those that a run has left."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from headwater.deploy.cluster.waiting import Patience

PAGE = os.sysconf("SC_PAGE_SIZE")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Usage:
    memory_bytes: int
    """Resident, with what it shares with others."""
    cpu_s: float
    started: int
    """In ticks since the system started: a process id together with this is never used twice."""


def usage(pid: int) -> Usage | None:
    """What a process uses, or None where it is not alive (or only waits to be reaped)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    fields = text.rpartition(")")[2].split()
    if fields[0] in "ZX":
        return None
    return Usage(pages * PAGE, (int(fields[11]) + int(fields[12])) / TICKS_PER_S, int(fields[19]))


def is_same(pid: int, started: int | None) -> bool:
    """Whether the process that had this id is still the one that has it."""
    now = usage(pid)
    return now is not None and (started is None or now.started == started)


def send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def end_all(find: Callable[[], Collection[int]], patience_s: float) -> int:
    """Ask these processes to end, and kill those that have not after a while; how many there were. On a busy machine
    the while is longer: who gets no processor cannot hand over what it has."""
    first = set(find())
    for pid in first:
        send(pid, signal.SIGTERM)
    patience = Patience(patience_s)
    while (left := find()) and not patience.over:
        time.sleep(0.05)
    for pid in left:
        send(pid, signal.SIGKILL)
    patience = Patience(2.0)
    while find() and not patience.over:
        time.sleep(0.02)
    return len(first)
