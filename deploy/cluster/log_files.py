"""Log files of bounded size, and reading their ends."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

LOG_BYTES_MAX: Final = 10 << 20
"""Past this a log is set aside, as NAME.log.1 in place of the one before: a process has about 20 MB of logs at most."""

TAIL_BYTES_MAX: Final = 1 << 20  # how far back the last lines are looked for


def bound(log: Path, bytes_max: int = LOG_BYTES_MAX) -> bool:
    """Set a log aside if it has grown too long; whether it had.

    Its writers keep it open, so it is copied and cut, not renamed: lines written in between are lost.
    """
    try:
        if log.stat().st_size <= bytes_max:
            return False
        shutil.copyfile(log, log.with_name(f"{log.name}.1"))
        os.truncate(log, 0)
    except OSError:
        return False  # a full disk, perhaps; the next look may succeed
    return True


def last_lines(log: Path, lines: int) -> list[str]:
    """The end of a log; of what was set aside only what is needed to have enough."""
    tail = _tail(log, lines)
    if len(tail) < lines:
        tail = [*_tail(log.with_name(f"{log.name}.1"), lines - len(tail)), *tail]
    return tail


def _tail(log: Path, lines: int) -> list[str]:
    if lines <= 0:
        return []
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES_MAX))
            text = file.read()
    except OSError:
        return []
    return text.decode(errors="replace").splitlines()[-lines:]


class Follower:
    """Lines as they are added to a log, from now on; also when it is cut or not there yet."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._at = 0
        self._rest = b""
        with contextlib.suppress(OSError):
            self._at = log.stat().st_size

    def lines(self) -> Iterator[str]:
        try:
            size = self._log.stat().st_size
            if size < self._at:
                self._at, self._rest = 0, b""
            if size == self._at:
                return
            with self._log.open("rb") as file:
                file.seek(self._at)
                text = self._rest + file.read(TAIL_BYTES_MAX)
                self._at = file.tell()
        except OSError:
            return
        *whole, self._rest = text.split(b"\n")
        for line in whole:
            yield line.decode(errors="replace")
