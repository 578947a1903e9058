"""Links in virtual time: when a frame arrives, and how often it had to be sent."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Final

from headwater.protocol.errors import ConfigError
from headwater.protocol.network import Link

FOREVER: Final = 1 << 62
"""A time that never comes: the end of an outage that does not heal, the arrival of a frame that is lost in it."""

TIMEOUT_SLACK_US: Final = 10_000  # for the acknowledgement to be made and read
TIMEOUT_MAX_US: Final = 1_000_000  # a link that has healed is noticed after this at the latest

Interval = tuple[int, int]
"""From (inclusive) and to (exclusive), in virtual microseconds."""


class LinkDirection:
    """One direction of a link.

    Frames leave one after the other at the link's bandwidth, travel for its delay and some jitter, and arrive in the
    order they were sent. A frame is lost with the link's probability, and whenever the link is down at some moment
    between its first bit leaving and its arrival. The sender notices by a time-out that doubles up to a second, and
    sends it again until it gets through. While an outage holds one frame up, those behind it wait for it and are not
    sent in vain.

    Equal arguments and an equal state of ``rng`` give equal arrivals. It draws numbers only for jitter and loss.
    """

    __slots__ = (
        "_bandwidth_bps",
        "_delay_us",
        "_free_ns",
        "_jitter_us",
        "_last_us",
        "_loss",
        "_outages",
        "_past",
        "_plain",
        "_random",
        "_timeout_ns",
    )

    def __init__(self, link: Link, rng: random.Random, outages: Sequence[Interval] = ()) -> None:
        """``outages`` may overlap and come in any order; one that ends at FOREVER does not heal."""
        if not 0 <= link.loss < 1:
            raise ConfigError(
                f"the link {link.one}-{link.other} has a loss of {link.loss}; write a share from 0 up to, but not, 1 "
                "(an outage cuts it for good)"
            )
        if link.bandwidth_bps is not None and link.bandwidth_bps <= 0:
            raise ConfigError(
                f"the link {link.one}-{link.other} has a bandwidth of {link.bandwidth_bps} bit/s; "
                "write more than 0, or none for no limit"
            )
        self._delay_us = link.delay_us
        self._bandwidth_bps = link.bandwidth_bps
        self._jitter_us = link.jitter_us
        self._loss = link.loss
        self._random = rng.random
        self._outages = merged(outages)
        self._past = 0  # how many outages are over
        self._plain = not (link.bandwidth_bps or link.jitter_us or link.loss or self._outages)
        self._timeout_ns = (2 * link.delay_us + link.jitter_us + TIMEOUT_SLACK_US) * 1000
        # Nanoseconds, because on a fast link many small frames leave within one microsecond.
        self._free_ns = -(1 << 80)
        self._last_us = -(1 << 62)

    def send(self, now_us: int, size_bytes: int) -> tuple[int, int]:
        """When a frame that is handed over now arrives, and how many times it is sent.

        ``now_us`` never decreases from call to call. The arrival is FOREVER if an outage that does not heal takes the
        frame; one that waits behind such a frame is sent no more (0 times).
        """
        if not self._plain:
            return self._send(now_us, size_bytes)
        arrival = now_us + self._delay_us
        if arrival < self._last_us:
            arrival = self._last_us
        else:
            self._last_us = arrival
        return arrival, 1

    def _send(self, now_us: int, size_bytes: int) -> tuple[int, int]:
        if self._last_us == FOREVER:
            return FOREVER, 0
        bandwidth = self._bandwidth_bps
        takes_ns = -(-size_bytes * 8_000_000_000 // bandwidth) if bandwidth else 0
        wait_ns = self._timeout_ns
        wait_max_ns = max(wait_ns, TIMEOUT_MAX_US * 1000)
        while self._past < len(self._outages) and self._outages[self._past][1] <= now_us:
            self._past += 1
        start_ns = max(now_us * 1000, self._free_ns)
        self._free_ns = start_ns + takes_ns
        copies, held_up = 1, False
        while True:
            end_ns = start_ns + takes_ns
            arrival = -(-end_ns // 1000) + self._delay_us
            if self._jitter_us:
                arrival += int(self._random() * (self._jitter_us + 1))
            healed = self._healed(start_ns // 1000, arrival)
            if healed == FOREVER:
                self._last_us = FOREVER
                return FOREVER, copies
            if not healed and not (self._loss and self._random() < self._loss):
                break
            held_up = held_up or healed > 0
            # The wire is not idle until the time-out: others may send meanwhile, but every copy takes its time.
            start_ns = max(end_ns + wait_ns, self._free_ns)
            self._free_ns += takes_ns
            wait_ns = min(2 * wait_ns, wait_max_ns)
            copies += 1
        if held_up:
            self._free_ns = max(self._free_ns, end_ns)
        self._last_us = max(arrival, self._last_us)
        return self._last_us, copies

    def _healed(self, start_us: int, arrival_us: int) -> int:
        """The end of the first outage that takes a frame on its way in this time, or 0."""
        outages = self._outages
        for number in range(self._past, len(outages)):
            from_us, to_us = outages[number]
            if from_us > arrival_us:
                break
            if start_us < to_us:
                return to_us
        return 0


def merged(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    """The same times as disjoint intervals in order; empty ones are left out."""
    disjoint: list[Interval] = []
    for from_us, to_us in sorted(intervals):
        if to_us <= from_us:
            continue
        if disjoint and from_us <= disjoint[-1][1]:
            disjoint[-1] = (disjoint[-1][0], max(disjoint[-1][1], to_us))
        else:
            disjoint.append((from_us, to_us))
    return tuple(disjoint)
