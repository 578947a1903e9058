"""Single entries of a network file that several sections have: quantities, choices, units."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import yaml

from headwater.deploy.network.sheet import Sheet
from headwater.deploy.network.units import UNIT_WORDS
from headwater.protocol.edge import TIME_UNITS, TimeUnit
from headwater.protocol.errors import ConfigError
from headwater.protocol.languages.diagnostics import closest, listed

Entries = dict[str, tuple[yaml.Node, yaml.Node]]
T = TypeVar("T")


def quantity(sheet: Sheet, node: yaml.Node, what: str, parse: Callable[[str], T]) -> T | None:
    """A number with its unit, or None and a note of what is wrong with it."""
    text = sheet.word(node, what)
    if text is None:
        return None
    if text.lstrip().startswith("-"):
        sheet.error(node, f"{what} cannot be negative", "leave the sign out")
        return None
    try:
        return parse(text)
    except ConfigError as error:
        sheet.error(node, f"{what}: {error}")
        return None


def one_of(sheet: Sheet, entries: Entries, name: str, choices: tuple[str, ...], default: str) -> str:
    """What an entry says, which must be one of the choices; the default where it is absent or wrong."""
    if name not in entries:
        return default
    place = entries[name][1]
    text = sheet.word(place, name, f"write one of {listed(choices)}")
    if text is None or text in choices:
        return text or default
    near = closest(text, choices)
    cure = f"did you mean {near!r}? " if near else ""
    sheet.error(place, f"{name} cannot be {text!r}", f"{cure}write one of {listed(choices)}")
    return default


def read_unit(sheet: Sheet, place: yaml.Node) -> TimeUnit | None:
    """The unit of a time; None and a note where it is none."""
    cure = f"write one of {listed(TIME_UNITS)}"
    text = sheet.word(place, "the unit of a time", cure)
    if text is None or text in TIME_UNITS:
        return text
    near = UNIT_WORDS.get(text.lower())
    sheet.error(place, f"{text!r} is no unit of time", f"did you mean {near!r}?" if near else cure)
    return None


def read_qos(sheet: Sheet, entries: Entries) -> int:
    if "qos" not in entries:
        return 1
    text = sheet.word(entries["qos"][1], "qos", "write 0 or 1")
    if text is not None and text not in ("0", "1"):
        cure = "write 0 or 1"
        if text == "2":
            cure = "write 1; with device: and counter: a redelivery is not a second event"
        sheet.error(entries["qos"][1], f"qos cannot be {text!r}", cure)
        return 1
    return int(text or 1)
