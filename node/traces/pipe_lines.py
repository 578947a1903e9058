"""Reads lines from a pipe as they arrive."""

from __future__ import annotations

import io
import select


class PipeLines:
    """The lines of a pipe, which knows when nothing more is waiting (``drained``), so that a batch need not wait."""

    def __init__(self, stream: io.BufferedReader) -> None:
        self.drained = False
        self._stream = stream
        self._descriptor: int | None
        try:
            self._descriptor = stream.fileno()
            select.select([self._descriptor], [], [], 0)
        except (OSError, ValueError):
            self._descriptor = None
        self._lines: list[bytes] = []
        self._rest = b""
        self._ended = False

    def __iter__(self) -> PipeLines:
        return self

    def __next__(self) -> bytes:
        while not self._lines:
            if self._ended:
                if self._rest:
                    line, self._rest = self._rest, b""
                    return line
                raise StopIteration
            self._fill()
        line = self._lines.pop()
        self.drained = not self._lines and not self._readable()
        return line

    def more(self, other: int) -> bool:
        """Wait until more can be read, or nothing more will come, or until the file descriptor ``other`` can be read;
        false if only that is so."""
        if self._descriptor is None or not self.drained:
            return True
        return self._descriptor in select.select([self._descriptor, other], [], [])[0]

    def _fill(self) -> None:
        chunk = self._stream.read1(1 << 16)
        if not chunk:
            self._ended = True
            return
        whole = (self._rest + chunk).split(b"\n")
        self._rest = whole.pop()
        self._lines = [line + b"\n" for line in reversed(whole)]

    def _readable(self) -> bool:
        if self._descriptor is None or self._ended:
            return True
        return bool(select.select([self._descriptor], [], [], 0)[0])
