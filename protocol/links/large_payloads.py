"""Payloads larger than a frame: split into parts by the sender and joined by the receiver.

A part begins with the one byte that no msgpack begins with, so whatever is not split travels as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headwater.protocol.links.settings import LinkError

PART_BYTES: Final = 2 << 20
"""Payloads up to this size are not split: well below the largest frame, and below the credit of a link, so that
acknowledgements come before the last part leaves."""

WHOLE_BYTES_MAX: Final = 256 << 20
"""More is not put together: a peer that lies must not take all memory. No batch of honest nodes comes near it."""

PART: Final = b"\xc1"
_MORE, _LAST = PART + b"\x01", PART + b"\x00"


def split(payload: bytes) -> Sequence[bytes]:
    """The payload in pieces that fit into frames; itself if it is small."""
    if len(payload) <= PART_BYTES:
        return (payload,)
    ends = range(PART_BYTES, len(payload) + PART_BYTES, PART_BYTES)
    return [(_MORE if end < len(payload) else _LAST) + payload[end - PART_BYTES : end] for end in ends]


class Joined:
    """Puts together what one peer sends. Plain, so that it can be saved in the midst of a payload."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def take(self, payload: bytes) -> bytes | None:
        """The whole payload that ends with this piece; None: more follows. LinkError if it is no piece that can be."""
        if payload[:1] != PART and not self._parts:
            return payload
        size = self._size + len(payload)
        if payload[:2] not in (_MORE, _LAST) or size > WHOLE_BYTES_MAX:
            self._parts, self._size = [], 0
            raise LinkError("a payload in parts that do not belong together, or that is too large as a whole")
        self._parts.append(payload[2:])
        self._size = size
        if payload[:2] == _MORE:
            return None
        whole = b"".join(self._parts)
        self._parts, self._size = [], 0
        return whole
