"""The format of saved state: its header, its number, and how state of an earlier number is upgraded.

    data = FORMAT.packed(machine)
    machine = FORMAT.read(data)

The bytes begin with a header, which is read before anything else: that this is state, what of, in which format, and a
checksum. Behind it are tables of plain values in msgpack (``protocol.state.object_graphs``).

**Changing what is saved.** A change of the fields or the meaning of a class in a vocabulary is a new format: raise its
number in ``protocol.formats`` and add to ``upgrades`` a function from the tables of the number before to those of the
new one. Tests keep folders of earlier formats and the fields of every class, so that this cannot be forgotten.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from zlib import crc32

from headwater.protocol.state.kinds import StateError
from headwater.protocol.state.object_graphs import Tables, Vocabulary, uncollected

MAGIC: Final = b"\x89HWstat\n"  # the first byte is no text, the last is changed by anything that treats it as text
_HEADER: Final = struct.Struct("<8s16sHHI")
_PICKLED: Final = tuple(bytes((0x80, protocol)) for protocol in range(2, 6))

Upgrade = Callable[[Tables], Tables]


class OldState(StateError):
    """Saved state of a version whose format this one neither reads nor upgrades."""


def was_pickled(data: bytes) -> bool:
    """Whether this is state as versions wrote it before formats had numbers. Reading it could run code."""
    return data.startswith(_PICKLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """How one kind of state is saved."""

    kind: str
    """What it is the state of, in at most 16 letters: stands in the header."""
    number: int
    """From ``protocol.formats``."""
    vocabulary: Vocabulary
    upgrades: Mapping[int, Upgrade] = field(default_factory=dict)
    """By the number of an earlier format, what makes tables of the next number of its tables."""

    def packed(self, state: Any, named: Mapping[str, Any] | None = None) -> bytes:
        """The state with everything it holds; ``named`` is only referred to, by these names."""
        tables = self.vocabulary.tables(state, named)
        return _HEADER.pack(MAGIC, self.kind.encode(), self.number, 0, crc32(tables)) + tables

    def read(self, data: bytes, named: Mapping[str, Any] | None = None) -> Any:
        """What was packed, perhaps by an earlier version; a StateError otherwise."""
        number = self.number_of(data)
        tables = data[_HEADER.size :]
        if crc32(tables) != _HEADER.unpack_from(data)[4]:
            raise StateError("the saved state is damaged: its checksum is wrong")
        with uncollected():
            unpacked = self.vocabulary.unpacked(tables)
            for step in range(number, self.number):
                unpacked = self._upgraded(unpacked, step)
            return self.vocabulary.state(unpacked, named)

    def number_of(self, data: bytes) -> int:
        """The number of the format, from the header alone; a StateError if this version cannot read it."""
        if was_pickled(data):
            raise OldState(
                "it was saved by a version of Headwater from before saved state had a format number (as a pickle, "
                "which is not read because it can run code)"
            )
        if len(data) < _HEADER.size or not data.startswith(MAGIC):
            raise StateError("it is damaged, or no saved state of Headwater")
        _, kind, number, _, _ = _HEADER.unpack_from(data)
        name = kind.rstrip(b"\0").decode("utf-8", "replace")
        if name != self.kind:
            raise StateError(f"this is the saved state of a {name}, not of a {self.kind}")
        if number > self.number:
            raise StateError(
                f"it was saved in format {number} by a newer version of Headwater; this one reads up to format "
                f"{self.number}: start the version that wrote it"
            )
        missing = [step for step in range(number, self.number) if step not in self.upgrades]
        if missing:
            raise OldState(f"it was saved in format {number}, which this version (format {self.number}) cannot upgrade")
        return int(number)

    def _upgraded(self, tables: Tables, number: int) -> Tables:
        try:
            return self.upgrades[number](tables)
        except Exception as error:
            raise StateError(f"the saved state cannot be upgraded from format {number}: {error!r:.200}") from error
