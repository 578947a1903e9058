"""A progress bar on a terminal; nothing at all in a pipe."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any, Final

REDRAW_S: Final = 0.1


class ProgressLine:
    """Shows how many events have been read and how fast, and how far the file is."""

    def __init__(self, label: str, *, shown: bool | None = None) -> None:
        self._label = label
        self._shown = sys.stderr.isatty() if shown is None else shown
        self._bar: Any = None
        self._started = time.perf_counter()
        self._drawn = 0.0

    def __enter__(self) -> ProgressLine:
        if self._shown:
            from rich.console import Console
            from rich.progress import BarColumn, SpinnerColumn, TextColumn
            from rich.progress import Progress as RichProgress

            self._bar = RichProgress(
                SpinnerColumn(),
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.fields[events]:,} events  {task.fields[rate]:,.0f}/s"),
                console=Console(stderr=True),
                transient=True,
            )
            self._task = self._bar.add_task(self._label, total=None, events=0, rate=0.0)
            self._bar.start()
        return self

    def update(self, events: int, share: float | None) -> None:
        if self._bar is None:
            return
        now = time.perf_counter()
        if now - self._drawn < REDRAW_S:
            return
        self._drawn = now
        rate = events / max(now - self._started, 1e-9)
        total = None if share is None else 1.0
        self._bar.update(self._task, total=total, completed=share, events=events, rate=rate)

    def label(self, text: str) -> None:
        if self._bar is not None:
            self._bar.update(self._task, description=text)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()
