"""Sequence numbers of one end of a link: what was sent and not acknowledged yet, and what was received.

Both keep a running digest of everything that had a number. Two ends that agree on a number agree on the digest, too,
unless one of them came back with an older memory and has given the number to something else since.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import chain, islice

from headwater.protocol.links.frames import PAYLOAD_OVERHEAD, PAYLOADS_MAX


def digest_with(payload: bytes, before: int) -> int:
    """The digest after one more payload. The length keeps two payloads apart from their concatenation."""
    return zlib.crc32(payload, before ^ len(payload))


class Outgoing:
    """Payloads for the peer, numbered from 1 on, until they are acknowledged."""

    def __init__(self, acknowledged: int = 0, digest: int = 0, payloads: Iterable[bytes] = ()) -> None:
        self.acknowledged = acknowledged
        self.bytes_sent = 0  # sent on this session and not acknowledged
        self.bytes_kept = 0  # all that is kept
        self._first_digest = digest
        self._last_digest = digest
        self._sent: deque[tuple[bytes, int]] = deque()
        self._unsent: deque[tuple[bytes, int]] = deque()
        self.add(payloads)

    @property
    def last(self) -> int:
        """The last number that was given out."""
        return self.acknowledged + len(self._sent) + len(self._unsent)

    @property
    def last_sent(self) -> int:
        return self.acknowledged + len(self._sent)

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)

    @property
    def first_digest(self) -> int:
        """The digest of everything acknowledged."""
        return self._first_digest

    def __len__(self) -> int:
        return len(self._sent) + len(self._unsent)

    def payloads(self) -> tuple[bytes, ...]:
        return tuple(payload for payload, _ in chain(self._sent, self._unsent))

    def add(self, payloads: Iterable[bytes]) -> None:
        digest = self._last_digest
        for payload in payloads:
            digest = digest_with(payload, digest)
            self._unsent.append((payload, digest))
            self.bytes_kept += len(payload)
        self._last_digest = digest

    def take(self, window_bytes: int, frame_bytes: int) -> list[bytes]:
        """What the next frame carries. The first payload is taken whatever its size if nothing is under way, so that
        a window smaller than a payload slows a link down and does not stop it."""
        taken: list[bytes] = []
        room = frame_bytes
        unsent = self._unsent
        while unsent and len(taken) < PAYLOADS_MAX:
            size = len(unsent[0][0])
            if self.bytes_sent and self.bytes_sent + size > window_bytes:
                break
            if taken and size + PAYLOAD_OVERHEAD > room:
                break
            room -= size + PAYLOAD_OVERHEAD
            entry = unsent.popleft()
            self._sent.append(entry)
            self.bytes_sent += size
            taken.append(entry[0])
        return taken

    def acknowledge(self, number: int) -> bool:
        """Forget what the peer has for good; whether that was anything. The number must not be past `last`."""
        if number <= self.acknowledged:
            return False
        for _ in range(number - self.acknowledged):
            if self._sent:
                payload, digest = self._sent.popleft()
                self.bytes_sent -= len(payload)
            else:
                payload, digest = self._unsent.popleft()
            self.bytes_kept -= len(payload)
            self._first_digest = digest
        self.acknowledged = number
        return True

    def rewind(self, received: int) -> int:
        """Everything after `received` is to be sent (again); how much of it had been sent before."""
        again = max(0, self.last_sent - received)
        everything = list(chain(self._sent, self._unsent))
        there = received - self.acknowledged
        self._sent = deque(everything[:there])
        self._unsent = deque(everything[there:])
        self.bytes_sent = sum(len(payload) for payload, _ in self._sent)
        return again

    def digest_at(self, number: int) -> int:
        """The digest up to a number between `acknowledged` and `last`."""
        if number == self.acknowledged:
            return self._first_digest
        at = number - self.acknowledged - 1
        return next(islice(chain(self._sent, self._unsent), at, None))[1]


class Incoming:
    """Numbers of what came from the peer: received, and of that confirmed."""

    def __init__(self, confirmed: int = 0, digest: int | None = 0) -> None:
        self.confirmed = confirmed
        self.received = confirmed
        self.digest = digest
        self._confirmed_digest = digest
        self._digests: deque[int | None] = deque()  # after each payload received and not confirmed

    @property
    def confirmed_digest(self) -> int | None:
        return self._confirmed_digest

    def accept(self, first: int, payloads: list[bytes]) -> list[bytes] | None:
        """What of these is new; None if something before them is missing."""
        if first > self.received + 1:
            return None
        if first <= self.received:
            payloads = payloads[self.received + 1 - first :]
        self.take(payloads)
        return payloads

    def take(self, payloads: Sequence[bytes]) -> None:
        digest = self.digest
        for payload in payloads:
            digest = None if digest is None else digest_with(payload, digest)
            self._digests.append(digest)
        self.digest = digest
        self.received += len(payloads)

    def confirm(self, number: int) -> bool:
        """Whether anything was not confirmed before. A number never received counts as received from now on: a node
        that reads its journal again says so of what it handled before it stopped."""
        if number <= self.confirmed:
            return False
        if number > self.received:
            self.received = number
            self.digest = self._confirmed_digest = None
            self._digests.clear()
        else:
            for _ in range(number - self.confirmed):
                self._confirmed_digest = self._digests.popleft()
        self.confirmed = number
        return True
