"""Runs one engine over one trace, in the order of arrival or of time; composite events come at once or sorted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, Any

from headwater.deploy.cli.output import JsonLines, in_key_order
from headwater.deploy.cli.progress import ProgressLine
from headwater.deploy.cli.rules_and_trace import TraceWork
from headwater.node.engine import Engine
from headwater.node.engine.running import batch_events
from headwater.node.remote.fetching import FetchingEngine
from headwater.node.traces.pipe_lines import PipeLines
from headwater.node.traces.reader import OutOfOrder, TraceReader
from headwater.protocol.composites import Composite
from headwater.protocol.events import Event

Batches = Iterator[tuple[list[Event], int]]


class Evaluation:
    """An engine, the rows that it reads and the output of its composite events.

    All three start over where rows turn out not to be in order, so ask for them when the evaluation has ended.
    """

    engine: Engine
    reader: TraceReader
    sink: CompositeOutput

    def __init__(
        self,
        work: TraceWork,
        new_engine: Callable[[], Engine],
        output: IO[str],
        progress: ProgressLine,
        *,
        live: bool,
        skip_bad: bool,
    ) -> None:
        self._work = work
        self._new_engine = new_engine
        self._output = output
        self._progress = progress
        self._live = live
        self._skip_bad = skip_bad
        self._begin()

    def _begin(self) -> None:
        self.engine = self._new_engine()
        self.reader = self._work.reader(skip_bad=self._skip_bad)
        self.sink = CompositeOutput(self._output, live=self._live)

    def stream(self, lateness_us: int, late: Callable[[dict[str, Any]], None]) -> None:
        """Evaluate rows as they come. ``late`` gets each that comes more than ``lateness_us`` behind an earlier one."""
        self._feed(self.reader.batches(lateness_us=lateness_us, late=late, size=batch_events(self.engine)))
        self._end()

    def whole(self) -> None:
        """Evaluate the rows of a file in the order of time, in whatever order they stand."""
        survey = self._work.survey
        if survey is None or survey.in_order:
            try:
                self._feed(self.reader.batches(size=batch_events(self.engine)))
            except OutOfOrder:
                # Nothing has been printed yet: start again with the rows put in order.
                assert not self._live
                self._begin()
                self._feed(self._in_order())
        else:
            self._feed(self._in_order())
        self._end()

    def _feed(self, batches: Batches) -> None:
        engine, reader, sink, progress = self.engine, self.reader, self.sink, self._progress
        tally = reader.tally
        for batch, watermark in batches:
            if batch:
                sink.take(engine.feed(batch))
            sink.take(engine.advance(watermark))
            sink.flush()
            progress.update(tally.read, reader.rows.done_share())
            if isinstance(engine, FetchingEngine) and reader.rows.pipe is not None:
                self._await_rows(engine, reader.rows.pipe)

    def _await_rows(self, engine: FetchingEngine, pipe: PipeLines) -> None:
        """While no further row comes, elements of remote tables may."""
        while not pipe.more(engine.wakes()):
            self.sink.take(engine.arrived())
            self.sink.flush()

    def _in_order(self) -> Batches:
        self._progress.label("sorting")
        events = self.reader.whole()
        self._progress.label("running")
        size = batch_events(self.engine)
        for start in range(0, len(events), size):
            batch = events[start : start + size]
            yield batch, batch[-1][0] - 1

    def _end(self) -> None:
        self.sink.take(self.engine.close())
        self.sink.finish()


class CompositeOutput:
    """Composite events on their way out: at once, or at the end in the order of their keys."""

    def __init__(self, output: IO[str], *, live: bool) -> None:
        self.count = 0
        self._output = output
        self._live = live
        self._kept: list[Composite] = []
        self._lines = JsonLines()

    def take(self, composites: Sequence[Composite]) -> None:
        if not composites:
            return
        self.count += len(composites)
        if self._live:
            self._write(composites)
        else:
            self._kept.extend(composites)

    def _write(self, composites: Iterable[Composite]) -> None:
        self._output.writelines(map(self._lines.line, composites))

    def flush(self) -> None:
        if self._live:
            self._output.flush()

    def finish(self) -> None:
        self._write(in_key_order(self._kept))
        self._output.flush()
