"""Dead letters: messages that are no event of the trace, and deliveries that no receiver took, kept with the reason."""

from __future__ import annotations

import base64
import json
import logging
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from headwater.node.edge.interfaces import Arrival

FILE_BYTES_MAX: Final = 16 << 20
"""Past it a file becomes the old one and a new one begins: a faulty device fills no disk."""
RAW_BYTES_MAX: Final = 64 << 10  # so much of a payload is kept
WHY_CHARACTERS_MAX: Final = 1000

log = logging.getLogger("headwater.edge")


class DeadLetters:
    """``dead-letters.jsonl`` and ``late.jsonl`` in a folder, each with an older one (``late.1.jsonl``). Never raises.

    A line has ``time`` (when it came, in microseconds), ``source``, ``why``, and ``raw`` (``base64`` where it is no
    text); of a long payload the beginning, with its length as ``bytes``. A late event has ``ts`` and ``values``.
    """

    def __init__(self, folder: Path, file_bytes_max: int = FILE_BYTES_MAX) -> None:
        self._dead = _Bounded(folder / "dead-letters.jsonl", file_bytes_max)
        self._late = _Bounded(folder / "late.jsonl", file_bytes_max)
        self.counts: dict[str, int] = {}
        """How many came, by where they came from or where they were to go: ``source 3``, ``source 3 late``, ``sink
        1``."""

    @property
    def unwritten(self) -> int:
        """How many of them could not be kept, for example because the disk was full."""
        return self._dead.unwritten + self._late.unwritten

    def late(self, source: int, arrival: Arrival, ts: int) -> None:
        """An event came after its source had promised that nothing so old would follow."""
        self._count(f"source {source} late")
        letter = {"time": time.time_ns() // 1000, "source": f"source {source}", "why": "late", "ts": ts}
        if arrival.device is not None:
            letter |= {"device": arrival.device, "counter": arrival.counter}
        self._late.append({**letter, "values": arrival.values})

    def put(self, where: str, raw: bytes, why: str) -> None:
        """Something came from ``source N`` that is no event, or cannot go to ``sink N``, for this reason."""
        self._count(where)
        letter: dict[str, Any] = {"time": time.time_ns() // 1000, "source": where, "why": why[:WHY_CHARACTERS_MAX]}
        kept = raw[:RAW_BYTES_MAX]
        try:
            # A cut may go through a character.
            letter["raw"] = kept.decode() if len(kept) == len(raw) else _decoded(kept)
        except UnicodeDecodeError:
            letter["base64"] = base64.b64encode(kept).decode()
        if len(raw) > len(kept):
            letter["bytes"] = len(raw)
        self._dead.append(letter)

    def _count(self, where: str) -> None:
        self.counts[where] = self.counts.get(where, 0) + 1


def _decoded(kept: bytes) -> str:
    """The text without half a character at its end, of which there are at most three bytes."""
    for end in range(len(kept), len(kept) - 3, -1):
        try:
            return kept[:end].decode()
        except UnicodeDecodeError:
            continue
    return kept[:-3].decode()


class _Bounded:
    """JSON lines in two files of bounded size."""

    def __init__(self, path: Path, bytes_max: int) -> None:
        self._path = path
        self._older = path.with_suffix(".1.jsonl")
        self._bytes_max = bytes_max
        self._size: int | None = None
        self.unwritten = 0

    def append(self, letter: dict[str, Any]) -> None:
        line = json.dumps(letter).encode() + b"\n"
        try:
            if self._size is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._size = self._path.stat().st_size if self._path.exists() else 0
            if self._size and self._size + len(line) > self._bytes_max:
                os.replace(self._path, self._older)
                self._size = 0
            with self._path.open("ab", buffering=0) as file:
                file.write(line)
            self._size += len(line)
        except OSError as error:
            self.unwritten += 1
            if self.unwritten == 1:
                log.warning("cannot keep what was refused in %s: %s", self._path, error.strerror)
