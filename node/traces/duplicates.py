"""Recognises repeated rows of a trace: a second row with the same (node, seq) is the same event."""

from __future__ import annotations

from bisect import bisect_right
from operator import itemgetter
from typing import Final

RANGES_MAX: Final = 100_000
"""Gaps in the numbers of one node that are remembered; past it the lowest numbers are forgotten, so that a stream that
runs for weeks does not fill the memory. Numbers without gaps cost nothing."""


class TraceIdentities:
    """Remembers numbers by node, as ranges: rows mostly come numbered one after the other."""

    def __init__(self) -> None:
        self._ranges: dict[str, list[list[int]]] = {}

    def is_new(self, node: str, seq: int) -> bool:
        """Whether this number of this node comes for the first time; it is remembered."""
        ranges = self._ranges.get(node)
        if ranges is None:
            self._ranges[node] = [[seq, seq]]
            return True
        last = ranges[-1]
        if seq == last[1] + 1:
            last[1] = seq
            return True
        if seq > last[1]:
            ranges.append([seq, seq])
            if len(ranges) > RANGES_MAX:
                del ranges[0]
            return True
        return self._insert(ranges, seq)

    @staticmethod
    def _insert(ranges: list[list[int]], seq: int) -> bool:
        after = bisect_right(ranges, seq, key=itemgetter(0))
        before = ranges[after - 1] if after else None
        if before is not None and seq <= before[1]:
            return False
        if before is not None and before[1] == seq - 1:
            before[1] = seq
            if after < len(ranges) and ranges[after][0] == seq + 1:
                before[1] = ranges.pop(after)[1]
        elif after < len(ranges) and ranges[after][0] == seq + 1:
            ranges[after][0] = seq
        else:
            ranges.insert(after, [seq, seq])
        return True
