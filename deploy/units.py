"""Durations and times as people write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from protocol.errors import ConfigError

MICROSECONDS: Final = {
    "us": 1, "µs": 1, "microsecond": 1, "microseconds": 1,
    "ms": 1_000, "millisecond": 1_000, "milliseconds": 1_000,
    "s": 1_000_000, "sec": 1_000_000, "second": 1_000_000, "seconds": 1_000_000,
    "m": 60_000_000, "min": 60_000_000, "minute": 60_000_000, "minutes": 60_000_000,
    "h": 3_600_000_000, "hour": 3_600_000_000, "hours": 3_600_000_000,
    "d": 86_400_000_000, "day": 86_400_000_000, "days": 86_400_000_000,
}  # fmt: skip

_DURATION: Final = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zµ]*)\s*", re.IGNORECASE)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def duration_us(text: str) -> int:
    """``5s``, ``1.5 min``, ``200ms`` as microseconds; ``0`` needs no unit."""
    found = _DURATION.fullmatch(text)
    unit = found[2].lower() if found else ""
    if found is None or (unit not in MICROSECONDS and not (unit == "" and float(found[1]) == 0)):
        raise ConfigError(f"{text!r} is not a duration; write a number and a unit: us, ms, s, min, h or d (as in 5s)")
    return round(float(found[1]) * MICROSECONDS.get(unit, 1))


def iso_us(text: str) -> int:
    """An ISO 8601 time as microseconds since 1970; without a zone it is UTC. ValueError if it is no such time."""
    moment = datetime.fromisoformat(text.strip())
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // _MICROSECOND
