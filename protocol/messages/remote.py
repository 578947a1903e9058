"""Messages about elements of remote tables: a node that does not reach a table asks a neighbour that is nearer to it.

Places and elements travel as bytes (``node.remote.encoding``), in the form in which they stand in journals.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgpack

HEAD_BYTES = 5  # of a list in msgpack: its kind, and how long it is


@dataclass(frozen=True, slots=True)
class ElementRequest:
    """To the next node on the way to the tables: the sender needs these elements. It is answered when they are there,
    together or one by one. ``at_hand``: if the receiver has them, or has them under way; otherwise it refuses."""

    places: bytes
    at_hand: bool = False


@dataclass(frozen=True, slots=True)
class ElementAnswer:
    """Elements that the receiver has asked for."""

    elements: bytes


@dataclass(frozen=True, slots=True)
class ElementRefusal:
    """The sender does not get these elements for the receiver, which may ask again later."""

    places: bytes


ElementMessage = ElementRequest | ElementAnswer | ElementRefusal


def number_of(message: ElementMessage) -> int:
    """How many elements a message is about; a ValueError if it holds no list of them."""
    unpacker = msgpack.Unpacker()
    unpacker.feed(packed_in(message)[:HEAD_BYTES])
    return int(unpacker.read_array_header())


def packed_in(message: ElementMessage) -> bytes:
    """The places or elements of a message."""
    return message.elements if isinstance(message, ElementAnswer) else message.places
