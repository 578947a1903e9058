"""Numbers, measures and times in a description, each with a sentence where it is none."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeVar

import yaml

from headwater.deploy.network.sheet import Sheet
from headwater.protocol.errors import ConfigError

T = TypeVar("T")


def measure(sheet: Sheet, node: yaml.Node, what: str, read: Callable[[str], T]) -> T | None:
    """A duration or a rate, with its unit."""
    text = sheet.word(node, what)
    if text is None:
        return None
    try:
        return read(text)
    except ConfigError as error:
        message, _, cure = str(error).partition("; ")
        sheet.error(node, message, cure)
        return None


def moment_us(sheet: Sheet, node: yaml.Node) -> int | None:
    """When a trace starts; without a zone it is in UTC."""
    text = sheet.word(node, "the start")
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        sheet.error(node, f"{text!r} is no date and time", "write one in ISO 8601, such as 2026-01-31T12:00:00Z")
        return None
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    since = aware - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def number(sheet: Sheet, node: yaml.Node, what: str, least: float, most: float) -> float | None:
    try:
        found = float(str(node.value)) if isinstance(node, yaml.ScalarNode) else math.nan
    except ValueError:
        found = math.nan
    if not least <= found <= most:
        sheet.error(node, f"{what} is a number from {least:g} to {most:g}", "")
        return None
    return found


def whole(
    sheet: Sheet, node: yaml.Node, what: str, least: int, most: int, example: str = "write a whole number"
) -> int | None:
    text = str(node.value) if isinstance(node, yaml.ScalarNode) else ""
    if not (text.isascii() and text.isdecimal()) or not least <= int(text) <= most:
        sheet.error(node, f"{what} is a whole number from {least:,} to {most:,}", example)
        return None
    return int(text)


def numbers(sheet: Sheet, node: yaml.Node, what: str, count: int, example: str) -> list[float] | None:
    try:
        found = [float(str(each.value)) for each in node.value] if isinstance(node, yaml.SequenceNode) else []
    except ValueError:
        found = []
    if len(found) != count or not all(map(math.isfinite, found)):
        sheet.error(node, f"{what} needs {count} numbers", f"write {example}")
        return None
    return found
