"""Records of a node for later analysis: its counts every ten seconds, its deliveries, and when replayed events entered.

They are notes, not the product: they are written behind the work, at most once a second, by a thread; what cannot be
written is counted and let go. After a crash the last second may be missing, or stand there twice, under the same ids.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from headwater.node.delivery.matches import MatchBatch
from headwater.node.observe.metrics.observed import Observed
from headwater.node.observe.metrics.record_files import FILE_BYTES_MAX, FILES_MAX, RecordFiles
from headwater.node.observe.metrics.record_lines import Growth, birth_record, match_record
from headwater.protocol.composites import Composite

FLUSH_EVERY_S: Final = 1.0
METRICS_EVERY_S: Final = 10.0
PENDING_MAX: Final = 10_000  # records that wait to be written: noting more a second would cost more than finding them

_written_out: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

_log = logging.getLogger(__name__)


class MetricRecords:
    """Writes ``metrics-*.jsonl``, ``matches-*.jsonl`` and ``births-*.jsonl`` into a folder, from ``start()``
    to ``close()``.

    Everything is called from the event loop. docs/reference/metrics.md describes the fields.
    """

    def __init__(
        self,
        folder: Path,
        observed: Observed,
        *,
        file_bytes_max: int = FILE_BYTES_MAX,
        files_max: int = FILES_MAX,
        metrics_every_s: float = METRICS_EVERY_S,
        flush_every_s: float = FLUSH_EVERY_S,
    ) -> None:
        self._observed = observed
        self._files = {
            kind: RecordFiles(folder, kind, file_bytes_max=file_bytes_max, files_max=files_max)
            for kind in ("metrics", "matches", "births")
        }
        self._metrics_every_s = metrics_every_s
        self._flush_every_s = flush_every_s
        self._pending: dict[str, list[Any]] = {kind: [] for kind in self._files}
        self._growth: Growth | None = None
        self._flush_timer: asyncio.TimerHandle | None = None
        self._metrics_timer: asyncio.TimerHandle | None = None
        self._flushing: asyncio.Task[None] | None = None
        self._in_trouble = False

    def start(self) -> None:
        self._growth = Growth(self._observed)
        self._wait_for_metrics()

    async def close(self) -> None:
        """Write down what is left, with a last record of the metrics."""
        if self._metrics_timer is not None:
            self._metrics_timer.cancel()
            self._metrics_timer = None
            self._put("metrics", self._metrics_record())
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        if self._flushing is not None:
            await self._flushing
        await self._flush()

    # --------------------------------------------------------------------------------------------------------- matches

    def delivered(self, sink: int, number: int, match: Composite, delivered_us: int, *, live: bool) -> None:
        """A composite event was given to a sink, under this number. ``live``: its latency means something."""
        self._put("matches", (sink, number, match, delivered_us, live))

    def delivered_rows(
        self, sink: int, first: int, rows: Sequence[tuple[Any, ...]], delivered_us: int, *, live: bool
    ) -> None:
        """Events were given to a sink, under numbers from ``first`` on; composites among them are noted."""
        room = max(0, PENDING_MAX - len(self._pending["matches"]))
        if isinstance(rows, MatchBatch):
            matches: Sequence[Composite] = rows.matches[:room]
        elif isinstance(rows[0][3], Composite):  # those for one sink are all of one type
            matches = [row[3] for row in rows[:room]]
        else:
            return
        for number, match in enumerate(matches, first):
            self._put("matches", (sink, number, match, delivered_us, live))
        if len(rows) > room:
            self._drop("matches", len(rows) - room)

    # ---------------------------------------------------------------------------------------------------------- births

    def born(self, now_us: int, events: int, numbers: tuple[int, int], times: tuple[int, int], trace: str = "") -> None:
        """Events of a replay became part of the trace, from the first to the last number, and time. ``trace``: the
        checksum of the prepared trace that they belong to, where the node knows it."""
        observed = self._observed
        self._put("births", birth_record(observed.run, observed.node, now_us, events, numbers, times, trace))

    # --------------------------------------------------------------------------------------------------------- metrics

    def _wait_for_metrics(self) -> None:
        loop = asyncio.get_running_loop()
        self._metrics_timer = loop.call_later(self._metrics_every_s, self._note_metrics)

    def _note_metrics(self) -> None:
        self._put("metrics", self._metrics_record())
        self._wait_for_metrics()

    def _metrics_record(self) -> dict[str, Any]:
        assert self._growth is not None, "records are started first"
        return self._growth.record()

    # --------------------------------------------------------------------------------------------------------- writing

    def _put(self, kind: str, record: Any) -> None:
        pending = self._pending[kind]
        if len(pending) >= PENDING_MAX:
            self._drop(kind, 1)
            return
        pending.append(record)
        if self._flush_timer is None:
            loop = asyncio.get_running_loop()
            self._flush_timer = loop.call_later(self._flush_every_s, self._begin_flush)

    def _begin_flush(self) -> None:
        self._flush_timer = None
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.get_running_loop().create_task(self._flush())
        else:  # the disk is slow: come back
            loop = asyncio.get_running_loop()
            self._flush_timer = loop.call_later(self._flush_every_s, self._begin_flush)

    async def _flush(self) -> None:
        for kind, pending in self._pending.items():
            if not pending:
                continue
            self._pending[kind] = []
            line = _match_line(self._observed) if kind == "matches" else _metrics_line
            try:
                await asyncio.to_thread(lambda: self._files[kind].write(map(line, pending)))  # noqa: B023
                self._in_trouble = False
            except OSError as error:
                self._drop(kind, len(pending))
                if not self._in_trouble:
                    self._in_trouble = True
                    _log.warning("records of %s cannot be written and are dropped: %s; make room on disk", kind, error)

    def _drop(self, kind: str, number: int) -> None:
        dropped = self._observed.counters.records_dropped
        dropped[kind] = dropped.get(kind, 0) + number


def _metrics_line(record: dict[str, Any]) -> bytes:
    return _written_out(record).encode()


def _match_line(observed: Observed) -> Callable[[tuple[int, int, Composite, int, bool]], bytes]:
    run, node = observed.run, observed.node

    def line(noted: tuple[int, int, Composite, int, bool]) -> bytes:
        sink, number, match, delivered_us, live = noted
        return _written_out(match_record(run, node, sink, number, match, delivered_us, live=live)).encode()

    return line
