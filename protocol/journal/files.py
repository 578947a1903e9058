"""The files of a journal: their names, headers, and records with checksums, and how to read them.

A *segment* is a header and then records, each `[u32 length][u32 crc32 of length and payload][payload]`, all numbers
little-endian. A *snapshot* is a header with the length and checksum of the bytes that follow. Generation `g` begins
with snapshot `g` (generation 0 with nothing); its segments are numbered from 0, and the header of each names the
segment before it and how many bytes of that count. So the chain can be followed over any number of generations.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from zlib import crc32

from headwater.protocol.errors import ConfigError
from headwater.protocol.formats import JOURNAL_FILES

SEGMENT_MAGIC = b"\x89HWjrnl\n"  # the first byte is no text, the last is changed by anything that treats it as text
SNAPSHOT_MAGIC = b"\x89HWsnap\n"
RECORD_BYTES_MAX = 256 << 20  # a length above it is damage; no input of a node comes near it
READ_BYTES = 1 << 20  # what is read from a file at once

_BEGIN = struct.Struct("<8sH")  # the same in every version, so that a version can be told before anything else
_SEGMENT = struct.Struct("<8sHHIQQIQ")
_SNAPSHOT = struct.Struct("<8sHHIQQ")
_CHECK = struct.Struct("<I")
_RECORD = struct.Struct("<II")
SEGMENT_HEADER_BYTES = _SEGMENT.size + _CHECK.size
SNAPSHOT_HEADER_BYTES = _SNAPSHOT.size + _CHECK.size
RECORD_HEADER_BYTES = _RECORD.size

_SEGMENT_NAME = re.compile(r"journal-(\d{8,})-(\d{4,})\.log")
_SNAPSHOT_NAME = re.compile(r"snapshot-(\d{8,})\.bin")


@dataclass(frozen=True, slots=True, order=True)
class SegmentId:
    """Which segment: segments are written, and read, in this order."""

    generation: int
    serial: int

    @property
    def name(self) -> str:
        return f"journal-{self.generation:08}-{self.serial:04}.log"


@dataclass(frozen=True, slots=True)
class SegmentLink:
    """The segment before this one, and how many of its bytes count; what is behind them was written again here."""

    segment: SegmentId
    end: int


class Damaged(Exception):
    """A header or a snapshot fails its checksum. Never leaves this package."""


def snapshot_name(generation: int) -> str:
    return f"snapshot-{generation:08}.bin"


def segments_in(folder: Path) -> list[SegmentId]:
    """All segments by their names, in order."""
    matches = (_SEGMENT_NAME.fullmatch(name) for name in os.listdir(folder))
    return sorted(SegmentId(int(match[1]), int(match[2])) for match in matches if match)


def snapshots_in(folder: Path) -> list[int]:
    """The generations that have a snapshot, by name, in order."""
    matches = (_SNAPSHOT_NAME.fullmatch(name) for name in os.listdir(folder))
    return sorted(int(match[1]) for match in matches if match)


def write_all(descriptor: int, data: bytes | memoryview, offset: int) -> None:
    """Write everything at the offset; raises OSError if that fails, with an unknown part written."""
    written = os.pwrite(descriptor, data, offset)
    if written < len(data):
        rest = memoryview(data)
        while written < len(data):
            written += os.pwrite(descriptor, rest[written:], offset + written)


# ----------------------------------------------------------------------------------------------------------- headers


def segment_header(own: SegmentId, link: SegmentLink | None) -> bytes:
    before = link or SegmentLink(SegmentId(0, 0), 0)  # no segment ends at 0: each has a header
    header = _SEGMENT.pack(
        SEGMENT_MAGIC,
        JOURNAL_FILES,
        SEGMENT_HEADER_BYTES,
        own.serial,
        own.generation,
        before.segment.generation,
        before.segment.serial,
        before.end,
    )
    return header + _CHECK.pack(crc32(header))


def snapshot_header(generation: int, data: bytes) -> bytes:
    header = _SNAPSHOT.pack(SNAPSHOT_MAGIC, JOURNAL_FILES, SNAPSHOT_HEADER_BYTES, crc32(data), generation, len(data))
    return header + _CHECK.pack(crc32(header))


def _refuse_strangers(path: Path, begin: bytes, magic: bytes) -> None:
    """Files that this program did not write, or that another version did, are not ours to cut or remove."""
    expected = magic[: len(begin)]
    if begin[: len(expected)] != expected and begin.strip(b"\0"):
        raise ConfigError(
            f"{path} has the name of a journal's file but was not written by Headwater; "
            f"nothing was changed: move it away, or give the node another data folder"
        )
    if len(begin) >= _BEGIN.size and begin.strip(b"\0"):
        _, version = _BEGIN.unpack_from(begin)
        if version != JOURNAL_FILES:
            raise ConfigError(
                f"{path} is written in version {version} of the journal's format and this program knows only "
                f"version {JOURNAL_FILES}; nothing was changed: run the version of Headwater that wrote it, or move "
                f"the folder away to start afresh"
            )


def read_segment_header(path: Path, own: SegmentId) -> SegmentLink | None:
    """The link to the segment before; raises Damaged, ConfigError for what is not ours, EOFError if the header was
    never completely written (the file is shorter, or holds only zeros)."""
    with path.open("rb") as file:
        header = file.read(SEGMENT_HEADER_BYTES)
    _refuse_strangers(path, header, SEGMENT_MAGIC)
    if len(header) < SEGMENT_HEADER_BYTES or not header.strip(b"\0"):
        raise EOFError
    if _CHECK.unpack_from(header, _SEGMENT.size)[0] != crc32(header[: _SEGMENT.size]):
        raise Damaged("its header fails its checksum")
    _, _, _, serial, generation, before_generation, before_serial, before_end = _SEGMENT.unpack_from(header)
    if SegmentId(generation, serial) != own:
        raise Damaged(f"its header says that it is {SegmentId(generation, serial).name}")
    return SegmentLink(SegmentId(before_generation, before_serial), before_end) if before_end else None


def check_snapshot_is_ours(path: Path) -> None:
    """Raises ConfigError otherwise."""
    with path.open("rb") as file:
        _refuse_strangers(path, file.read(SNAPSHOT_HEADER_BYTES), SNAPSHOT_MAGIC)


def read_snapshot(path: Path, own_generation: int) -> bytes:
    """The bytes that were saved; raises Damaged, or ConfigError for what is not ours."""
    with path.open("rb") as file:
        header = file.read(SNAPSHOT_HEADER_BYTES)
        _refuse_strangers(path, header, SNAPSHOT_MAGIC)
        if len(header) < SNAPSHOT_HEADER_BYTES:
            raise Damaged("it is shorter than its header")
        if _CHECK.unpack_from(header, _SNAPSHOT.size)[0] != crc32(header[: _SNAPSHOT.size]):
            raise Damaged("its header fails its checksum")
        _, _, _, checksum, generation, size = _SNAPSHOT.unpack_from(header)
        if generation != own_generation:
            raise Damaged(f"its header says that it is {snapshot_name(generation)}")
        data = file.read()
    if len(data) != size:
        raise Damaged(f"it holds {len(data):,} bytes instead of {size:,}")
    if crc32(data) != checksum:
        raise Damaged("its bytes fail their checksum")
    return data


# ----------------------------------------------------------------------------------------------------------- records


def frame(records: Iterable[bytes]) -> bytes:
    """The records as they are written."""
    # The length is part of what is checked, so that a block of zeros is never a record: 0 is not the checksum of 0.
    parts: list[bytes] = []
    for record in records:
        size = len(record)
        parts.append(_RECORD.pack(size, crc32(record, crc32(size.to_bytes(4, "little")))))
        parts.append(record)
    return b"".join(parts)


def read_records(file: BinaryIO, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Each good record between the offsets with the offset behind it, up to the first that is not good."""
    file.seek(start)
    held, at, offset = b"", 0, start
    while True:
        if len(held) - at < RECORD_HEADER_BYTES:
            held, at = held[at:] + file.read(min(READ_BYTES, end - offset - (len(held) - at))), 0
            if len(held) < RECORD_HEADER_BYTES:
                return
        size, checksum = _RECORD.unpack_from(held, at)
        if size > RECORD_BYTES_MAX or offset + RECORD_HEADER_BYTES + size > end:
            return
        missing = RECORD_HEADER_BYTES + size - (len(held) - at)
        if missing > 0:
            ahead = end - offset - (len(held) - at)
            held, at = held[at:] + file.read(min(max(missing, READ_BYTES), ahead)), 0
            if len(held) < RECORD_HEADER_BYTES + size:
                return
        record = held[at + RECORD_HEADER_BYTES : at + RECORD_HEADER_BYTES + size]
        if crc32(record, crc32(held[at : at + 4])) != checksum:
            return
        at += RECORD_HEADER_BYTES + size
        offset += RECORD_HEADER_BYTES + size
        yield offset, record
