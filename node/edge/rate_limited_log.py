"""A log that is not flooded: the first message of a kind at once, then one a minute with the number left out."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

AGAIN_S: Final = 60.0
KEPT_MAX: Final = 1_000  # kinds of things that are known; beyond it all are logged again


class Seldom:
    """Logs the first thing of a kind at once and another one every minute, with the number of those in between."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._said: dict[str, tuple[float, int]] = {}
        """When each kind was last logged, and how many came since."""

    def say(self, kind: str, sentence: str) -> None:
        now_s = self._clock()
        said_s, unsaid = self._said.get(kind, (None, 0))
        if said_s is not None and now_s - said_s < AGAIN_S:
            self._said[kind] = (said_s, unsaid + 1)
            return
        if len(self._said) >= KEPT_MAX:
            self._said.clear()
        self._said[kind] = (now_s, 0)
        more = f" ({unsaid} more like it since the last was said)" if unsaid else ""
        self._log.warning("%s%s", sentence, more)
