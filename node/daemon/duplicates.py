"""Recognises events that devices and programs send twice, by the identities that a node has already taken."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

COUNTERS_MAX: Final = 1024  # how far behind its newest event a device may still send an older one for the first time
DEVICES_MAX: Final = 100_000  # devices remembered; past it the one that was silent longest is forgotten


class _Device:
    __slots__ = ("highest", "recent")

    def __init__(self) -> None:
        self.highest = -1
        self.recent: set[int] = set()


class SeenCounters:
    """Counters of devices. A counter far below the newest of its device counts as seen."""

    def __init__(self) -> None:
        self._devices: OrderedDict[str, _Device] = OrderedDict()

    def is_new(self, device: str, counter: int) -> bool:
        counters = self._devices.get(device)
        return counters is None or (counter not in counters.recent and counter > counters.highest - COUNTERS_MAX)

    def note(self, device: str, counter: int) -> None:
        counters = self._devices.get(device)
        if counters is None:
            counters = self._devices[device] = _Device()
            if len(self._devices) > DEVICES_MAX:
                self._devices.popitem(last=False)
        else:
            self._devices.move_to_end(device)
        counters.recent.add(counter)
        counters.highest = max(counters.highest, counter)
        if len(counters.recent) > 2 * COUNTERS_MAX:
            counters.recent = {number for number in counters.recent if number > counters.highest - COUNTERS_MAX}

    def __len__(self) -> int:
        return len(self._devices)
