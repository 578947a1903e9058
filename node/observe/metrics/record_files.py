"""JSON lines in files of bounded size and number: ``KIND-00001.jsonl``, ``KIND-00002.jsonl``, .. in one folder.

The numbers only grow, so a reader that remembers the last file and offset it has read can go on from there. The oldest
file goes when there would be too many.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

FILE_BYTES_MAX: Final = 8 << 20
FILES_MAX: Final = 8  # of each kind: 64 MiB, about a million matches
TAIL_BYTES: Final = 1 << 20  # a line is far shorter: where the last whole line ends is found in so much


class RecordFiles:
    """Appends lines of one kind. An OSError (a full disk) leaves what was written before as it is."""

    def __init__(
        self, folder: Path, kind: str, *, file_bytes_max: int = FILE_BYTES_MAX, files_max: int = FILES_MAX
    ) -> None:
        self._folder = folder
        self._kind = kind
        self._file_bytes_max = file_bytes_max
        self._files_max = files_max
        self._name = re.compile(rf"{re.escape(kind)}-(\d+)\.jsonl")
        self._number = 0
        """Of the file that is written; 0 before the first line."""
        self._bytes = 0

    def paths(self) -> list[Path]:
        """All files there are, the oldest first."""
        numbered = [
            (int(match[1]), path) for path in self._folder.iterdir() if (match := self._name.fullmatch(path.name))
        ]
        return [path for _, path in sorted(numbered)]

    def write(self, lines: Iterable[bytes]) -> None:
        """Append lines, each without its line end, and begin another file where one is full."""
        pending: list[bytes] = []
        size = 0
        if not self._number:
            self._resume()
        for line in lines:
            if self._bytes + size + len(line) + 1 > self._file_bytes_max and self._bytes + size:
                self._append(pending, size)
                pending, size = [], 0
                self._begin(self._number + 1)
            pending.append(line)
            size += len(line) + 1
        self._append(pending, size)

    def _append(self, lines: list[bytes], size: int) -> None:
        if not lines:
            return
        path = self._path(self._number)
        with path.open("ab") as file:
            file.write(b"\n".join([*lines, b""]))
        self._bytes += size

    def _resume(self) -> None:
        """Go on with the newest file; a line that a crash has cut is taken out."""
        self._folder.mkdir(parents=True, exist_ok=True)
        paths = self.paths()
        if not paths:
            self._begin(1)
            return
        newest = paths[-1]
        with newest.open("rb+") as file:
            size = file.seek(0, os.SEEK_END)
            start = max(0, size - TAIL_BYTES)
            file.seek(start)
            tail = file.read()
            whole = start + tail.rfind(b"\n") + 1
            if whole < size:
                file.truncate(whole)
        match = self._name.fullmatch(newest.name)
        assert match is not None
        self._number, self._bytes = int(match[1]), whole

    def _begin(self, number: int) -> None:
        self._path(number).touch()
        self._number, self._bytes = number, 0
        for old in self.paths()[: -self._files_max]:
            old.unlink(missing_ok=True)

    def _path(self, number: int) -> Path:
        return self._folder / f"{self._kind}-{number:05}.jsonl"
