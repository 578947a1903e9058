"""What a session reports to its user, and the identities of its two ends."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Up:
    pass


@dataclass(frozen=True, slots=True)
class Down:
    reason: str


@dataclass(frozen=True, slots=True)
class Reset:
    """The numbering must start over; it does with `accept_reset`, and nothing travels before that."""

    life: str
    era: str
    reason: str


@dataclass(frozen=True, slots=True)
class Received:
    last_seq: int
    payloads: list[bytes]


@dataclass(frozen=True, slots=True)
class Whispered:
    payload: bytes


@dataclass(frozen=True, slots=True)
class Acknowledged:
    seq: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The peer does not want this link, or is not who it should be."""

    key: str
    text: str


Notification = Up | Down | Reset | Received | Whispered | Acknowledged | Refused


@dataclass(frozen=True, slots=True)
class Identity:
    """Who an end is."""

    name: str
    life: str
    network: str
