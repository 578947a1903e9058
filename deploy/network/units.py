"""Durations, rates, bandwidths and addresses as users write them."""

from __future__ import annotations

import re
from typing import Final

from headwater.protocol.errors import ConfigError

MICROSECONDS: Final = {
    "us": 1, "µs": 1, "microsecond": 1, "microseconds": 1,
    "ms": 1_000, "millisecond": 1_000, "milliseconds": 1_000,
    "s": 1_000_000, "sec": 1_000_000, "second": 1_000_000, "seconds": 1_000_000,
    "m": 60_000_000, "min": 60_000_000, "minute": 60_000_000, "minutes": 60_000_000,
    "h": 3_600_000_000, "hour": 3_600_000_000, "hours": 3_600_000_000,
    "d": 86_400_000_000, "day": 86_400_000_000, "days": 86_400_000_000,
}  # fmt: skip

BITS: Final = {
    "bit": 1, "bits": 1, "kbit": 1_000, "mbit": 1_000_000, "gbit": 1_000_000_000,
    "bps": 1, "kbps": 1_000, "mbps": 1_000_000, "gbps": 1_000_000_000,
}  # fmt: skip
BYTES: Final = {"B": 8, "kB": 8_000, "KB": 8_000, "MB": 8_000_000, "GB": 8_000_000_000}
"""Bytes are told from bits by their capital B: ``Mb`` would be read either way, so it is neither."""

DURATION_MOST_US: Final = 366_000 * 86_400_000_000
RATE_LEAST_PER_S: Final = 1e6 / DURATION_MOST_US
RATE_MOST_PER_S: Final = 1e6  # an event has its own microsecond
LOSS_MOST: Final = 0.99  # a link that loses more is an outage
SPEED_MOST: Final = 1e9

_BANDWIDTH: Final = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]+)\s*(/\s*s(?:ec|econd)?)?\s*")
_RATE: Final = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)\s*(?:/|per\s)\s*([a-zµ]+)\s*", re.IGNORECASE)
_DURATION: Final = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zµ]*)\s*", re.IGNORECASE)


UNIT_WORDS: Final = {
    "sec": "s", "second": "s", "seconds": "s", "millisecond": "ms", "milliseconds": "ms", "µs": "us",
    "microsecond": "us", "microseconds": "us", "nanosecond": "ns", "nanoseconds": "ns", "iso8601": "iso",
}  # fmt: skip
"""What people may write for the unit of a time, and how it is written."""


def delimiter_of(text: str) -> str:
    """The character between the cells of CSV; ``tab`` for the one that cannot be seen."""
    delimiter = {"tab": "\t", "\\t": "\t"}.get(text, text)
    if len(delimiter) != 1 or delimiter in '"\r\n':
        raise ConfigError(f"{text!r} cannot stand between cells; write one character, or tab")
    return delimiter


def duration_us(text: str) -> int:
    """``5s``, ``1.5 min``, ``200ms`` as microseconds; ``0`` needs no unit."""
    match = _DURATION.fullmatch(text)
    unit = match[2].lower() if match else ""
    if match is None or (unit not in MICROSECONDS and not (unit == "" and float(match[1]) == 0)):
        raise ConfigError(f"{text!r} is not a duration; write a number and a unit: us, ms, s, min, h or d (as in 5s)")
    length_us = float(match[1]) * MICROSECONDS.get(unit, 1)
    if length_us > DURATION_MOST_US:
        raise ConfigError(f"{text!r} is longer than a thousand years; look at its unit")
    return round(length_us)


def bandwidth_bps(text: str) -> int:
    """``10Mbit``, ``500 kbit/s``, ``2 MB/s`` as bits per second, at least one."""
    match = _BANDWIDTH.fullmatch(text)
    factor = BYTES.get(match[2]) or BITS.get(match[2].lower()) if match else None
    if match is None or factor is None:
        raise ConfigError(f"{text!r} is not a bandwidth; write a number and a unit: kbit, Mbit, Gbit or MB (10Mbit)")
    bits = round(float(match[1]) * factor)
    if bits < 1:
        raise ConfigError(f"{text!r} is not a bandwidth at all; leave it out for a link without limit")
    return bits


def rate_per_s(text: str) -> float:
    """``2/s``, ``120 per minute``, ``0.5/h`` as events per second; more than none."""
    match = _RATE.fullmatch(text)
    unit = MICROSECONDS.get(match[2].lower()) if match else None
    if match is None or unit is None:
        raise ConfigError(f"{text!r} is not a rate; write events per unit of time, as in 2/s, 120/min or 5/h")
    rate = float(match[1]) * 1_000_000 / unit
    if not rate > 0:
        raise ConfigError(f"{text!r}: a rate is more than nothing; leave the source out instead")
    if not RATE_LEAST_PER_S <= rate <= RATE_MOST_PER_S:
        raise ConfigError(
            f"{text!r} is out of bounds; write from one event in a thousand years up to a million a second"
        )
    return rate


def share_of(text: str) -> float:
    """``1%`` or ``0.01``: the share of frames that a link loses."""
    stripped = text.strip()
    try:
        share = float(stripped.rstrip("% ")) / (100 if stripped.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= LOSS_MOST:
        raise ConfigError(
            f"{text!r} is not a share of frames that a link may lose; write 1% or 0.01, at most {LOSS_MOST:.0%}"
        )
    return share


def speed_of(text: str) -> float:
    """``10`` or ``10x``: times faster than the timestamps say; ``max`` is 0."""
    if text.strip().lower() == "max":
        return 0.0
    try:
        speed = float(text.strip().rstrip("xX"))
    except ValueError:
        speed = -1.0
    if not 0 < speed <= SPEED_MOST:
        raise ConfigError(
            f"{text!r} is not a speed; write how many times faster than the timestamps say, as in 10, or max"
        )
    return speed


def host_and_port(text: str) -> tuple[str, int] | None:
    """``host:port`` or ``[::1]:port``; None if it is neither."""
    match = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^\s:/@\[\]]+):([0-9]{1,5})", text)
    if match is None or not 0 < int(match[2]) < 65536:
        return None
    return match[1].strip("[]"), int(match[2])
