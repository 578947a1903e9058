"""Checks the lengths of windows: positive, and with a unit where time is meant (``literals`` has the units)."""

from __future__ import annotations

from headwater.protocol.languages.diagnostics import Problems
from headwater.protocol.languages.syntax import Quantity


def length_us(written: Quantity, problems: Problems) -> int:
    """A length of time, which needs a unit."""
    if not written.has_unit:
        problems.add(
            written.at,
            "this window needs a unit of time",
            f"write {written.amount:g} s, or another of us, ms, min, h, d",
        )
    elif written.amount <= 0:
        problems.add(written.at, "a window must be longer than nothing", "write a positive duration such as 5 min")
    return max(1, int(written.amount))


def event_count(written: Quantity, problems: Problems) -> int:
    """A number of events."""
    if written.amount != int(written.amount) or written.amount <= 0:
        problems.add(
            written.at, "a window must count at least one event", "write a whole number from 1, or a unit of time"
        )
    return max(1, int(written.amount))
