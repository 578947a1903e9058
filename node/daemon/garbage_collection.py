"""Schedules Python's cyclic garbage collection so that it does not interrupt the work of a node.

Rows, matches and payloads are in no cycles: they go when nothing refers to them any more. A busy node holds hundreds of
thousands of them, and looking through them again and again takes a fifth of its time and finds nothing. So what has
survived a busy second is set aside, which costs nothing, and all of it is looked through only once in a while.
"""

from __future__ import annotations

import gc
from typing import Final

YOUNG_MAX: Final = 2_000_000  # new objects at which Python collects by itself; hardly ever reached in a second
CALM: Final = 10_000  # new objects in a second that are looked through at once: that takes less than a millisecond
LOOK_EVERY: Final = 10  # beats, which are seconds, between two looks at the new objects of a calm node
DEEP_EVERY: Final = 600  # beats between two looks at everything, if anything was set aside


class Collector:
    """One for a process. ``beat`` is to be called once a second."""

    def __init__(self) -> None:
        gc.collect()
        gc.freeze()  # what was imported stays
        gc.set_threshold(YOUNG_MAX, 50, 50)
        self._beats = 0
        self._has_set_aside = False

    def beat(self) -> None:
        self._beats += 1
        if self._has_set_aside and self._beats % DEEP_EVERY == 0:
            gc.unfreeze()
            gc.collect()
            gc.freeze()
            self._has_set_aside = False
        elif gc.get_count()[0] > CALM:
            gc.freeze()
            self._has_set_aside = True
        elif self._beats % LOOK_EVERY == 0:
            gc.collect(0)
