"""Merges the events of several nodes by time, and cuts them into the messages for each node."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headwater.protocol.errors import ConfigError
from headwater.protocol.messages.replay import BYTES_MAX, EVENTS_MAX, TracePart

if TYPE_CHECKING:
    import pyarrow as pa

READ_ROWS: Final = 8_192  # of a node that are read at once


class NodeMessage(NamedTuple):
    """What is sent to a node at once."""

    parts: list[TracePart]
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

    def up_to(self, ts: int) -> list[NodeMessage]:
        """The events at or before this time that were not taken yet."""
        end = bisect_right(self._times, ts, lo=self._next)
        messages: list[NodeMessage] = []
        for start in range(self._next, end, EVENTS_MAX):
            messages += self._messages(start, min(end, start + EVENTS_MAX))
        self._next = end
        return messages

    def _messages(self, start: int, end: int) -> Iterator[NodeMessage]:
        parts = self._parts(start, end)
        if end - start > 1 and _size(parts) > BYTES_MAX:
            middle = (start + end) // 2
            yield from self._messages(start, middle)
            yield from self._messages(middle, end)
        else:
            yield NodeMessage(parts, self._times[start], self._seqs[end - 1], end - start)

    def _parts(self, start: int, end: int) -> list[TracePart]:
        rows = self._rows.slice(start, end - start)
        types = _listed(rows.column("type"))
        places: dict[str, list[int]] = {}
        for place, name in enumerate(types):
            positions = places.get(name)
            if positions is None:
                places[name] = [place]
            else:
                positions.append(place)
        parts = []
        for name, mine in places.items():
            chosen = rows if len(places) == 1 else rows.take(mine)
            columns = {attribute: _listed(chosen.column(attribute)) for attribute in self._attributes[name]}
            parts.append(TracePart(name, _listed(chosen.column("ts")), _listed(chosen.column("seq")), columns))
        return parts


def _size(parts: list[TracePart]) -> int:
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
        cells: list[Any] = column.to_numpy().tolist()  # much faster than value by value
        return cells
    listed: list[Any] = column.to_pylist()
    return listed


@dataclass(frozen=True, slots=True)
class ReplayStretch:
    """Some of the events of a slice."""

    slice: int
    last_us: int
    """No event in it is later."""
    watermark_us: int
    """Nothing at or before this follows after it, at any of the nodes."""
    rows: Mapping[str, NodeRows]
    completes: bool
    """Whether nothing of the slice follows."""


def stretches(
    nodes: Mapping[str, Iterable[pa.RecordBatch]],
    bounds: Sequence[int],
    after: Mapping[str, int],
    attributes: Mapping[str, Sequence[str]],
    streams: Collection[tuple[str, str]],
) -> Iterator[ReplayStretch]:
    """The events of some nodes, each of which come in the order of the trace, merged by time and cut into slices that
    end with ``bounds``. Every slice is completed, also those without events.

    What a node has, up to the number in ``after``, is left out, and so are events whose node and type are not in
    ``streams``. Never more than two batches of a node are held.
    """
    readers = [
        _Reader(node, iter(batches), after.get(node, 0), [name for at, name in streams if at == node], attributes)
        for node, batches in nodes.items()
    ]
    for place, bound in enumerate(bounds):
        complete = False
        while not complete:
            open_ = [reader for reader in readers if reader.fill()]
            # More of the slice may follow where all that was read belongs to it, also at the very last time.
            ends = [reader.last_us for reader in open_ if reader.last_us <= bound]
            complete, last_us = not ends, min(ends, default=bound)
            rows = {reader.node: node_rows for reader in open_ if (node_rows := reader.up_to(last_us)) is not None}
            yield ReplayStretch(place, last_us, last_us if complete else last_us - 1, rows, complete)


class _Reader:
    """The events of one node, as far as they were read."""

    def __init__(
        self,
        node: str,
        batches: Iterator[pa.RecordBatch],
        after: int,
        types: Sequence[str],
        attributes: Mapping[str, Sequence[str]],
    ) -> None:
        self.node = node
        self._batches: Iterator[pa.RecordBatch] | None = batches
        self._after = after
        self._types = types
        self._attributes = attributes
        self._rows: pa.Table | None = None
        self._seen = 0
        self.last_us = 0
        """The time of the last event that was read."""

    def fill(self) -> bool:
        """Read on if few events are left; whether there are any."""
        import pyarrow as pa

        while self._batches is not None and (self._rows is None or self._rows.num_rows < READ_ROWS // 2):
            batch = next(self._batches, None)
            if batch is None:
                self._batches = None
            elif (fresh := self._fresh(batch)).num_rows:
                self._rows = fresh if self._rows is None else pa.concat_tables([self._rows, fresh])
                self.last_us = fresh.column("ts")[-1].as_py()
        return self._rows is not None

    def _fresh(self, batch: pa.RecordBatch) -> pa.Table:
        """What of a batch is to be sent."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        rows = pa.Table.from_batches([batch])
        if not rows.num_rows:
            return rows
        numbers, times = rows.column("seq").to_numpy(), rows.column("ts").to_numpy()
        grows = numbers[0] > self._seen and not np.any(np.diff(numbers) <= 0) and not np.any(np.diff(times) < 0)
        if not grows or times[0] < self.last_us:
            raise ConfigError(
                f"the events of {self.node} are not in the order of their times and numbers (seq); "
                "prepare the trace again"
            )
        self._seen = int(numbers[-1])
        rows = rows.slice(int(np.searchsorted(numbers, self._after, side="right")))
        return rows.filter(pc.is_in(rows.column("type"), pa.array(self._types, pa.string()))) if rows.num_rows else rows

    def up_to(self, ts: int) -> NodeRows | None:
        """Take the events at or before a time, if there are any."""
        import numpy as np

        assert self._rows is not None
        rows = self._rows
        end = int(np.searchsorted(rows.column("ts").to_numpy(), ts, side="right"))
        if not end:
            return None
        self._rows = rows.slice(end) if end < rows.num_rows else None
        return NodeRows(rows.slice(0, end), self._attributes)
