"""Traffic shaping: adds delay and limits bandwidth on a link, for testbeds where the kernel cannot."""

from __future__ import annotations

from bisect import insort
from collections import deque
from operator import itemgetter
from typing import Final

AHEAD_S: Final = 0.002
"""A frame may enter so long before the one in front has left: timers are no more exact than this."""


class Shaper:
    """Frames wait here, in order, for as long as a line of this delay and bandwidth would need."""

    def __init__(self, delay_us: int, bandwidth_bps: int | None) -> None:
        self._delay_s = delay_us / 1e6
        self._bandwidth_bps = bandwidth_bps
        self._free = 0.0  # when the last frame has entered the line completely
        self._waiting: deque[tuple[float, bytes]] = deque()

    def may_enter(self, now: float) -> bool:
        """Whether the line takes another frame. What it does not take yet waits with the sender, so that an
        acknowledgement never queues behind megabytes."""
        return self._free <= now + AHEAD_S

    def enter(self, frame: bytes, now: float) -> None:
        started = max(now, self._free)
        if self._bandwidth_bps is not None:
            started += len(frame) * 8 / self._bandwidth_bps
        self._free = started
        self._waiting.append((started + self._delay_s, frame))

    def overtake(self, frame: bytes, now: float) -> None:
        """For what must not wait behind a large frame: it takes the delay alone."""
        insort(self._waiting, (now + self._delay_s, frame), key=itemgetter(0))

    def leave(self, now: float) -> bytes | None:
        """The next frame whose time has come; it stays until `left`."""
        if self._waiting and self._waiting[0][0] <= now:
            return self._waiting[0][1]
        return None

    def left(self) -> None:
        self._waiting.popleft()

    def due(self, wants_to_enter: bool) -> float | None:
        """When to look again; None if nothing waits."""
        times = [self._waiting[0][0]] if self._waiting else []
        if wants_to_enter:
            times.append(self._free - AHEAD_S / 2)
        return min(times, default=None)

    def clear(self) -> None:
        self._waiting.clear()
        self._free = 0.0
