"""Tracks whether the other end of a source or sink can be reached: a broker, a web server, a disk."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field

log = logging.getLogger("headwater.edge")


@dataclass(slots=True)
class Presence:
    """The other end of one source or sink. It is logged once when it goes away, and once when it is back."""

    who: str
    """``source 3 (Smoke)``, ``sink 1 (Fire)``"""
    end: str
    """``the broker 127.0.0.1:1883``"""
    is_there: bool = False
    why: str = "it was not reached yet"
    """Why it is not there."""
    _is_reported: bool = False
    _since_s: float = field(default_factory=time.monotonic)

    def came(self) -> None:
        if not self.is_there and self._is_reported:
            log.warning("%s: %s is reachable again after %.1f s", self.who, self.end, time.monotonic() - self._since_s)
        self.is_there = True

    def went(self, why: str) -> None:
        if self.is_there or not self._is_reported:
            self._is_reported = True
            self._since_s = time.monotonic()
            log.warning("%s: %s is unreachable: %s; trying again until it is back", self.who, self.end, why)
        self.is_there = False
        self.why = why

    def trouble(self) -> str | None:
        """A sentence while it is away."""
        return None if self.is_there else f"{self.end} is unreachable for {self.who}: {self.why}"
