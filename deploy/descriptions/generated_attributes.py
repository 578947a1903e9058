"""The section ``attributes:`` of a generated stream: the distributions of its values."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator
from typing import Annotated, ClassVar, Final

from pydantic import Field

from headwater.deploy.network.fields import FilePart, Named, NamedEntries
from headwater.deploy.network.mistakes import Flaw, mistake, wrong
from headwater.deploy.network.values import TextEntry, numbered, numbers, several, within
from headwater.deploy.network.yaml_file import Sheet
from headwater.deploy.network.yaml_tree import Scalar
from headwater.pipeline.generate.correlations import triangular
from headwater.pipeline.generate.model import Attribute, Choice, Derived, Normal, Uniform
from headwater.protocol.errors import ConfigError
from headwater.protocol.events import RESERVED_ATTRIBUTES

CHOICES_MAX: Final = 100_000  # values of an attribute; the list goes to every task
PREVIOUS_MAX: Final = 0.99  # beyond it, more than two thousand events before would count for each

KINDS: Final = {
    "normal": ("float", "int"),
    "uniform": ("float", "int"),
    "choice": ("string", "int", "float", "bool"),
    "value": ("string", "int", "float", "bool"),
}
OWNERS: Final = {"zipf": "choice", "with": "normal", "previous": "normal"}
VALUES_EXAMPLE: Final = (
    "write {normal: [20, 5]}, {uniform: [0, 1]}, {choice: [a, b], zipf: 1.2} or {value: 2 * x, kind: float}"
)
NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class AttributePart(FilePart):
    """What the values of one attribute are drawn from."""

    WHAT: ClassVar = "the attribute <0>"
    EXAMPLE: ClassVar = VALUES_EXAMPLE

    normal: Annotated[tuple[float, float] | None, numbers("<1>", 2, "write [mean, deviation]")] = None
    uniform: Annotated[tuple[float, float] | None, numbers("<1>", 2, "write [low, high]")] = None
    choice: Annotated[
        tuple[Scalar, ...] | int | None,
        several("a value of <1>", "the number of values of <1>", CHOICES_MAX, "write a list, or how many"),
    ] = None
    value: Annotated[Scalar | None, TextEntry("the value of <1>", "write an expression of Spark SQL")] = None
    kind: Annotated[Scalar | None, TextEntry("the kind")] = None
    zipf: Annotated[float, within("the exponent", 0, 20)] = 0.0
    correlated: Annotated[
        NamedEntries[Annotated[float, within("the correlation with <0>", -1, 1)]] | None,
        Named("with", "write with: {x: 0.8}"),
    ] = Field(None, alias="with")
    previous: Annotated[float, within("previous", -PREVIOUS_MAX, PREVIOUS_MAX)] = 0.0

    def flaws(self) -> Iterator[Flaw]:
        if self.broken:
            return
        ways = [way for way in KINDS if self.has(way)]
        if len(ways) != 1:
            why = f"come in one of the ways {', '.join(KINDS)}"
            yield (), mistake("lacking", what="the values of <0>", why=why, cure=VALUES_EXAMPLE)
            return
        (way,) = ways
        kinds = KINDS[way]
        if self.kind not in kinds and (way == "value" or self.kind is not None):
            cure = f"write kind: and one of {', '.join(kinds)}"
            yield (), mistake("lacking", what="<0>", why=f"needs a kind that {way} can give", cure=cure)
            return
        for key, owner in OWNERS.items():
            if self.has(key) and way != owner:
                yield (key,), wrong(f"{key}: is for {owner}:", VALUES_EXAMPLE, at_key=True)
        if self.uniform and (self.uniform[0] > self.uniform[1] or any(map(self._is_odd, self.uniform))):
            cure = "write [low, high], whole ones for kind: int"
            yield ("uniform",), mistake("lacking", what="<1>", why="has no such values", cure=cure)
        if self.normal and self.normal[1] < 0:
            yield ("normal",), wrong("a deviation cannot be negative", "write [mean, deviation]")
        if self.choice is not None:
            odd = next((value for value in self._choices() if not _is(value, self.kind or kinds[0])), None)
            if odd is not None:
                yield ("choice",), wrong(f"{odd!r} is not of kind {self.kind}", "write another kind:, or other values")
            elif not self.choice:
                why = "has nothing to choose from"
                yield ("choice",), mistake("lacking", what="<1>", why=why, cure="write at least one value")

    def _is_odd(self, number: float) -> bool:
        return self.kind == "int" and number != int(number)

    def _choices(self) -> tuple[str, ...]:
        return numbered(self.choice or (), "v" if self.kind in (None, "string") else "")

    def build(self) -> Attribute:
        if self.normal is not None:
            correlated = {str(name): share for name, share in (self.correlated or {}).items()}
            return Normal(*self.normal, correlated, self.previous, str(self.kind or "float"))
        if self.uniform is not None:
            return Uniform(*self.uniform, str(self.kind or "float"))
        if self.choice is not None:
            return Choice(self._choices(), self.zipf, str(self.kind or "string"))
        return Derived(str(self.value), str(self.kind))


def attributes_of(sheet: Sheet, parts: NamedEntries[AttributePart], reserved: Collection[str]) -> dict[str, Attribute]:
    """The attributes of a stream, whose events have those that are ``taken`` already."""
    attributes: dict[str, Attribute] = {}
    before = len(sheet.errors)
    for name, part in parts.items():
        if not NAME.fullmatch(name) or name.startswith("_") or name in (*RESERVED_ATTRIBUTES, *reserved):
            cure = "use letters, digits and _, begin with a letter, and take no name that such events have already"
            sheet.error(name.node, f"an attribute cannot be called {str(name)!r}", cure)
            continue
        for other in part.correlated or ():
            if not isinstance(attributes.get(other), Normal) and other not in parts.broken:
                normal = ", ".join(earlier for earlier, of in attributes.items() if isinstance(of, Normal)) or "none"
                message = f"{other} is not a normal attribute that stands before {name}"
                sheet.error(other.node, message, f"before it: {normal}")
        attributes[str(name)] = part.build()
    if len(sheet.errors) == before and any(part.correlated for part in parts.values()) and not parts.broken:
        try:
            triangular({name: normal for name, normal in attributes.items() if isinstance(normal, Normal)})
        except ConfigError as error:
            message, _, cure = str(error).partition("; ")
            sheet.error(parts.table.node, message, cure)
    return attributes


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
