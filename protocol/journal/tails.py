"""The bytes after the last good record of a journal: an unfinished write, or damage with more records after it."""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass
from zlib import crc32

from headwater.protocol.journal.files import RECORD_BYTES_MAX, RECORD_HEADER_BYTES, read_records

SEARCH_BYTES_MAX = 4 << 20  # how far behind a damaged place the next good record is looked for: some 5 s of work
CHECK_BYTES_MAX = 256 << 20  # how much may be checksummed in that search, where many bytes look like a length

_RECORD = struct.Struct("<II")


@dataclass(frozen=True, slots=True)
class Tail:
    """Torn: the last record was never completely written, hence never reported durable. Otherwise records that may
    have been are lost, at least so many."""

    is_torn: bool
    records: int


def judge(tail: bytes) -> Tail:
    """What is behind the last good record; `tail` begins where the next record should."""
    if len(tail) < RECORD_HEADER_BYTES or not tail.strip(b"\0"):
        # Zeros are what a file system leaves where a file's new length was recorded but not what was written there.
        return Tail(True, 0)
    size, checksum = _RECORD.unpack_from(tail)
    if RECORD_HEADER_BYTES + size <= len(tail):
        # The record is whole and wrong. Its length may be right, and then the next record follows behind it.
        behind = _count(tail, RECORD_HEADER_BYTES + size)
        if not behind and RECORD_HEADER_BYTES + size < len(tail):
            behind = _search(tail)
        return Tail(False, 1 + behind)
    # The record goes on behind the end of the file: torn, unless its length is what was damaged.
    if behind := _search(tail):
        return Tail(False, 1 + behind)
    length = len(tail) - RECORD_HEADER_BYTES
    if crc32(tail[RECORD_HEADER_BYTES:], crc32(length.to_bytes(4, "little"))) == checksum:
        return Tail(False, 1)
    return Tail(True, 0)


def _count(tail: bytes, start: int) -> int:
    return sum(1 for _ in read_records(io.BytesIO(tail), start, len(tail)))


def _search(tail: bytes) -> int:
    """How many records follow from the next place on where one does."""
    may_check = CHECK_BYTES_MAX
    unpack, end = _RECORD.unpack_from, len(tail)
    view = memoryview(tail)
    for at in range(1, min(end - RECORD_HEADER_BYTES, SEARCH_BYTES_MAX) + 1):
        size, checksum = unpack(tail, at)
        behind = at + RECORD_HEADER_BYTES + size
        if behind > end or size > RECORD_BYTES_MAX:
            continue
        may_check -= size
        if may_check < 0:
            return 0
        if crc32(view[at + RECORD_HEADER_BYTES : behind], crc32(view[at : at + 4])) == checksum:
            return _count(tail, at)
    return 0
