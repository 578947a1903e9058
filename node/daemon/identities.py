"""Which events a node has already taken, for devices and programs that may send the same one twice."""

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


class Seen:
    """Counters of devices. A counter far below the newest of its device counts as seen."""

    def __init__(self) -> None:
        self._devices: OrderedDict[str, _Device] = OrderedDict()

    def is_new(self, device: str, counter: int) -> bool:
        known = self._devices.get(device)
        return known is None or (counter not in known.recent and counter > known.highest - COUNTERS_MAX)

    def note(self, device: str, counter: int) -> None:
        known = self._devices.get(device)
        if known is None:
            known = self._devices[device] = _Device()
            if len(self._devices) > DEVICES_MAX:
                self._devices.popitem(last=False)
        else:
            self._devices.move_to_end(device)
        known.recent.add(counter)
        known.highest = max(known.highest, counter)
        if len(known.recent) > 2 * COUNTERS_MAX:
            known.recent = {each for each in known.recent if each > known.highest - COUNTERS_MAX}

    def __len__(self) -> int:
        return len(self._devices)
