"""Waits for something on a machine that may be busy.

A limit in seconds of the clock is one on the machine: where ten processes want the same processor, what takes two
seconds elsewhere takes twenty. So patience runs out by seconds in which the machine had time; those in which processes
waited for a processor hardly count. A caller that sees progress begins again.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

PRESSURE: Final = Path("/proc/pressure/cpu")
COUNTED: Final = 0.05
"""What a second counts in which processes waited for a processor: even what never happens is given up some time."""

LOOK_S: Final = 0.1


def starved_s() -> float | None:
    """For how long, since the machine started, some process has waited for a processor; None: not known."""
    try:
        some = PRESSURE.read_text(encoding="ascii").splitlines()[0]
        return int(some.rpartition("total=")[2]) / 1e6
    except (OSError, ValueError, IndexError):
        return None


class Patience:
    """So many seconds of a machine that has time for what is waited for."""

    def __init__(
        self,
        seconds: float,
        *,
        now: Callable[[], float] = time.monotonic,
        starved: Callable[[], float | None] = starved_s,
        load: Callable[[], float] = lambda: os.getloadavg()[0] / (os.cpu_count() or 1),
    ) -> None:
        """``load``: how many processes want each processor; for systems that do not tell how long they waited."""
        self.seconds = seconds
        self._now, self._starved, self._load = now, starved, load
        self.begin_again()

    def begin_again(self) -> None:
        """Something has happened."""
        self._began, self._starved_before = self._now(), self._starved()

    def spent_s(self) -> float:
        """How much of the patience is gone."""
        passed = self._now() - self._began
        starved = self._starved()
        if starved is None or self._starved_before is None:
            waited = passed * (1 - 1 / max(1.0, self._load()))
        else:
            waited = min(passed, starved - self._starved_before)
        return passed - (1 - COUNTED) * waited

    @property
    def over(self) -> bool:
        return self.spent_s() > self.seconds


def ended(process: subprocess.Popen[Any], patience: Patience, stdin: Any = None) -> tuple[Any, Any]:
    """What a process has printed, to both of its outputs, once it has ended; TimeoutExpired if it does not."""
    while True:
        try:
            return process.communicate(stdin, timeout=LOOK_S)
        except subprocess.TimeoutExpired:
            stdin = None  # it is on its way
            if patience.over:
                raise
