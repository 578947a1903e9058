"""``attributes:`` of a stream that is made up: what their values are drawn from."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Final

import yaml

from headwater.deploy.descriptions.measures import number, numbers, whole
from headwater.deploy.network.sheet import Sheet
from headwater.pipeline.generate.correlations import triangular
from headwater.pipeline.generate.model import MOTION_KINDS, Attribute, Choice, Derived, Normal, Uniform
from headwater.protocol.errors import ConfigError
from headwater.protocol.events import RESERVED_ATTRIBUTES

CHOICES_MAX: Final = 100_000  # values of an attribute; the list goes to every task
PREVIOUS_MAX: Final = 0.99  # beyond it, more than two thousand events before would count for each

WAYS: Final = ("normal", "uniform", "choice", "value")
KINDS: Final = {
    "normal": ("float", "int"),
    "uniform": ("float", "int"),
    "choice": ("string", "int", "float", "bool"),
    "value": ("string", "int", "float", "bool"),
}
VALUES_EXAMPLE: Final = (
    "write {normal: [20, 5]}, {uniform: [0, 1]}, {choice: [a, b], zipf: 1.2} or {value: 2 * x, kind: float}"
)
NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Entries = dict[str, tuple[yaml.Node, yaml.Node]]


class Attributes:
    """Reads the attributes of a stream; vehicles (``moving``) have some already."""

    def __init__(self, sheet: Sheet, moving: bool) -> None:
        self._sheet = sheet
        self._moving = moving

    def read(self, node: yaml.Node) -> dict[str, Attribute] | None:
        found: dict[str, Attribute] = {}
        errors = len(self._sheet.errors)
        for name, (key, given) in self._sheet.entries(node, "the attributes", None, VALUES_EXAMPLE).items():
            if not NAME.fullmatch(name) or name.startswith("_") or name in (*RESERVED_ATTRIBUTES, *self._taken()):
                self._sheet.error(
                    key,
                    f"an attribute cannot be called {name!r}",
                    "use letters, digits and _, begin with a letter, and take no name that such events have already",
                )
                continue
            made = self._attribute(name, given, found)
            if made is not None:
                found[name] = made
        if len(self._sheet.errors) == errors:
            self._check_correlations(node, found)
        return found if len(self._sheet.errors) == errors else None

    def _taken(self) -> tuple[str, ...]:
        return tuple(MOTION_KINDS) if self._moving else ()

    def _attribute(self, name: str, node: yaml.Node, before: Mapping[str, Attribute]) -> Attribute | None:
        sheet = self._sheet
        entries = sheet.entries(
            node, f"the attribute {name}", (*WAYS, "kind", "zipf", "with", "previous"), VALUES_EXAMPLE
        )
        ways = [way for way in WAYS if way in entries]
        if len(ways) != 1:
            if entries:
                sheet.error(node, f"the values of {name} come in one of the ways {', '.join(WAYS)}", VALUES_EXAMPLE)
            return None
        (way,) = ways
        kind = sheet.word(entries["kind"][1], "the kind") if "kind" in entries else KINDS[way][0]
        if kind not in KINDS[way] or (way == "value" and "kind" not in entries):
            sheet.error(
                node, f"{name} needs a kind that {way} can give", f"write kind: and one of {', '.join(KINDS[way])}"
            )
            return None
        for key, owner in (("zipf", "choice"), ("with", "normal"), ("previous", "normal")):
            if key in entries and way != owner:
                sheet.error(entries[key][0], f"{key}: is for {owner}:", VALUES_EXAMPLE)
                return None
        given = entries[way][1]
        match way:
            case "normal":
                return self._normal(name, given, kind, entries, before)
            case "uniform":
                ends = numbers(sheet, given, name, 2, "[low, high]")
                if ends is None:
                    return None
                if ends[0] > ends[1] or (kind == "int" and any(each != int(each) for each in ends)):
                    sheet.error(given, f"{name} has no such values", "write [low, high], whole ones for kind: int")
                    return None
                return Uniform(ends[0], ends[1], kind)
            case "choice":
                return self._choice(name, given, kind, entries)
            case _:
                text = sheet.word(given, f"the value of {name}", "write an expression of Spark SQL")
                return None if text is None else Derived(text, kind)

    def _normal(
        self, name: str, node: yaml.Node, kind: str, entries: Entries, before: Mapping[str, Attribute]
    ) -> Normal | None:
        sheet = self._sheet
        parts = numbers(sheet, node, name, 2, "[mean, deviation]")
        previous = (
            number(sheet, entries["previous"][1], "previous", -PREVIOUS_MAX, PREVIOUS_MAX)
            if "previous" in entries
            else 0.0
        )
        correlated: dict[str, float] = {}
        if "with" in entries:
            for other, (key, given) in sheet.entries(entries["with"][1], "with", None, "write with: {x: 0.8}").items():
                if not isinstance(before.get(other), Normal):
                    normal = ", ".join(each for each, made in before.items() if isinstance(made, Normal)) or "none"
                    sheet.error(
                        key, f"{other} is no normal attribute that stands before {name}", f"before it: {normal}"
                    )
                    continue
                correlation = number(sheet, given, f"the correlation with {other}", -1, 1)
                if correlation is not None:
                    correlated[other] = correlation
        if parts is None or previous is None:
            return None
        if parts[1] < 0:
            sheet.error(node, "a deviation cannot be negative", "write [mean, deviation]")
            return None
        return Normal(parts[0], parts[1], correlated, previous, kind)

    def _choice(self, name: str, node: yaml.Node, kind: str, entries: Entries) -> Choice | None:
        sheet = self._sheet
        exponent = number(sheet, entries["zipf"][1], "the exponent", 0, 20) if "zipf" in entries else 0.0
        if isinstance(node, yaml.SequenceNode):
            values = [str(sheet.word(each, f"a value of {name}")) for each in node.value]
        else:
            count = whole(sheet, node, f"the number of values of {name}", 1, CHOICES_MAX, "write a list, or how many")
            prefix = {"string": "v"}.get(kind, "")
            values = [f"{prefix}{rank}" for rank in range(1, (count or 0) + 1)]
        wrong = [each for each in values if not _is(each, kind)]
        if wrong or not values:
            if wrong:
                sheet.error(node, f"{wrong[0]!r} is no {kind}", "write another kind:, or other values")
            elif isinstance(node, yaml.SequenceNode):
                sheet.error(node, f"{name} has nothing to choose from", "write at least one value")
            return None
        return None if exponent is None else Choice(tuple(values), exponent, kind)

    def _check_correlations(self, node: yaml.Node, found: Mapping[str, Attribute]) -> None:
        if not any(isinstance(each, Normal) and each.correlated for each in found.values()):
            return
        try:
            triangular({name: each for name, each in found.items() if isinstance(each, Normal)})
        except ConfigError as error:
            message, _, cure = str(error).partition("; ")
            self._sheet.error(node, message, cure)


def _is(text: str, kind: str) -> bool:
    try:
        match kind:
            case "int":
                return -(2**63) <= int(text) < 2**63
            case "float":
                return math.isfinite(float(text))
            case "bool":
                return text in ("true", "false")
            case _:
                return True
    except ValueError:
        return False
