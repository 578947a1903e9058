"""Events of several nodes, sorted by time, as what is sent to each of them: by slices of time, nodes and columns."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from protocol.errors import ConfigError
from protocol.replaying import BYTES_MAX, EVENTS_MAX, Part

if TYPE_CHECKING:
    import pyarrow as pa


class Message(NamedTuple):
    """What is sent to a node at once."""

    parts: list[Part]
    first_ts: int
    last_seq: int
    events: int


class NodeRows:
    """Some events of one node in the order of the trace, from which messages are taken as their time comes."""

    def __init__(self, rows: pa.Table | pa.RecordBatch, attributes: Mapping[str, Sequence[str]]) -> None:
        """``attributes``: what is sent of each type."""
        self._rows = rows
        self._attributes = attributes
        self._times: list[int] = _listed(rows.column("ts"))
        self._seqs: list[int] = _listed(rows.column("seq"))
        self._next = 0

    def __len__(self) -> int:
        return len(self._times) - self._next

    @property
    def first_us(self) -> int:
        return self._times[self._next]

    def up_to(self, ts: int) -> list[Message]:
        """The events at or before this time that were not taken yet."""
        end = bisect_right(self._times, ts, lo=self._next)
        found: list[Message] = []
        for start in range(self._next, end, EVENTS_MAX):
            found += self._messages(start, min(end, start + EVENTS_MAX))
        self._next = end
        return found

    def _messages(self, start: int, end: int) -> Iterator[Message]:
        parts = self._parts(start, end)
        if end - start > 1 and _size(parts) > BYTES_MAX:
            middle = (start + end) // 2
            yield from self._messages(start, middle)
            yield from self._messages(middle, end)
        else:
            yield Message(parts, self._times[start], self._seqs[end - 1], end - start)

    def _parts(self, start: int, end: int) -> list[Part]:
        rows = self._rows.slice(start, end - start)
        types = _listed(rows.column("type"))
        places: dict[str, list[int]] = {}
        for place, name in enumerate(types):
            known = places.get(name)
            if known is None:
                places[name] = [place]
            else:
                known.append(place)
        parts = []
        for name, mine in places.items():
            chosen = rows if len(places) == 1 else rows.take(mine)
            columns = {each: _listed(chosen.column(each)) for each in self._attributes[name]}
            parts.append(Part(name, _listed(chosen.column("ts")), _listed(chosen.column("seq")), columns))
        return parts


def _size(parts: list[Part]) -> int:
    """About how many bytes a message takes: only texts can make it large."""
    size = 0
    for part in parts:
        size += 18 * len(part.seq)
        for values in part.columns.values():
            size += 9 * len(values) + sum(len(value) for value in values if type(value) is str) * 2
    return size


def _listed(column: Any) -> list[Any]:
    import pyarrow as pa

    if column.null_count == 0 and (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        found: list[Any] = column.to_numpy().tolist()  # much faster than value by value
        return found
    listed: list[Any] = column.to_pylist()
    return listed


@dataclass(frozen=True, slots=True)
class Stretch:
    """Some of the events of a slice."""

    slice: int
    last_us: int
    """No event in it is later."""
    mark_us: int
    """Nothing at or before this follows after it, at any of the nodes."""
    rows: Mapping[str, NodeRows]
    completes: bool
    """Whether nothing of the slice follows."""


def stretches(
    batches: Iterable[pa.RecordBatch],
    bounds: Sequence[int],
    after: Mapping[str, int],
    attributes: Mapping[str, Sequence[str]],
) -> Iterator[Stretch]:
    """The events of some nodes, which come in the order (ts, node, seq), cut into slices of time that end with
    ``bounds``. Every slice is completed, also those without events. What a node has, up to the number in ``after``, is
    left out. Never more than a batch is held.
    """
    import numpy as np
    import pyarrow as pa

    place = 0
    seen: dict[str, int] = {}
    for batch in batches:
        if not batch.num_rows:
            continue
        rows = pa.Table.from_batches([batch])
        times = rows.column("ts").to_numpy()
        assert not np.any(np.diff(times) < 0), "events come in the order of time"
        start = 0
        while start < len(times):
            end = int(np.searchsorted(times, bounds[place], side="right"))
            mine = _by_node(rows.slice(start, end - start), after, seen, attributes)
            if end < len(times):  # what follows is of a later slice
                yield Stretch(place, bounds[place], bounds[place], mine, True)
                place += 1
            else:  # more of this slice may follow, also at the very last time
                last_us = int(times[-1])
                yield Stretch(place, last_us, last_us - 1, mine, False)
            start = end
    for rest in range(place, len(bounds)):
        yield Stretch(rest, bounds[rest], bounds[rest], {}, True)


def _by_node(
    rows: pa.Table, after: Mapping[str, int], seen: dict[str, int], attributes: Mapping[str, Sequence[str]]
) -> dict[str, NodeRows]:
    """The events of each node that it does not have yet. ``seen``, by node the last number met, is moved on."""
    import numpy as np

    if not rows.num_rows:
        return {}
    codes = rows.column("node").combine_chunks().dictionary_encode()
    of_row = codes.indices.to_numpy()
    found: dict[str, NodeRows] = {}
    for code, node in enumerate(codes.dictionary.to_pylist()):
        mine = rows if len(codes.dictionary) == 1 else rows.take(np.flatnonzero(of_row == code))
        numbers = mine.column("seq").to_numpy()
        if numbers[0] <= seen.get(node, 0) or bool(np.any(np.diff(numbers) <= 0)):
            raise ConfigError(f"the numbers (seq) of {node} do not grow with the times; prepare the trace anew")
        seen[node] = int(numbers[-1])
        start = int(np.searchsorted(numbers, after.get(node, 0), side="right"))
        if start < len(numbers):
            found[node] = NodeRows(mine.slice(start), attributes)
    return found
