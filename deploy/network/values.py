"""Single values in YAML files, as pydantic fields: texts, quantities, numbers, choices."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, get_args

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from headwater.deploy.network.fields import without_none
from headwater.deploy.network.mistakes import mistake, together, wrong
from headwater.deploy.network.units import duration_us
from headwater.deploy.network.yaml_tree import ItemList, Scalar
from headwater.protocol.errors import ConfigError
from headwater.protocol.text import closest, listed

SCALAR: Final[JsonSchemaValue] = {"type": ["string", "number", "boolean"]}
"""Names are taken as written: for an editor 007 is a number, and yes may be a boolean."""


@dataclass(frozen=True, eq=False)
class TextEntry:
    """A name or a text exactly as written: 007 and no are names like any other. ``parse`` makes a value of it."""

    what: str
    cure: str = ""
    parse: Callable[[Scalar], Any] | None = None
    schema: Mapping[str, Any] = field(default_factory=lambda: SCALAR)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.read)

    def read(self, entry: Any) -> Any:
        if not isinstance(entry, Scalar):
            raise mistake("text", what=self.what, cure=self.cure)
        try:
            return entry if self.parse is None else self.parse(entry)
        except ConfigError as error:
            message, _, cure = str(error).partition("; ")
            raise wrong(message, cure) from None

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return dict(self.schema)


class QuantityEntry(TextEntry):
    """A number with its unit."""

    def read(self, entry: Any) -> Any:
        text = TextEntry(self.what, self.cure).read(entry)
        if text.lstrip().startswith("-"):
            raise mistake("negative", what=self.what)
        assert self.parse is not None
        try:
            return self.parse(text)
        except ConfigError as error:
            raise mistake("quantity", what=self.what, why=str(error)) from None


def lasting(least_us: int, message: str, cure: str) -> Callable[[str], int]:
    """Parses a duration that is at least so long."""

    def parse(text: str) -> int:
        length = duration_us(text)
        if length < least_us:
            raise wrong(message, cure)
        return length

    return parse


class NumberEntry(TextEntry):
    def read(self, entry: Any) -> Any:
        text = TextEntry(self.what, "write a number").read(entry)
        try:
            return float(text)
        except ValueError:
            raise mistake("number", what=self.what, text=str(text)) from None


@dataclass(frozen=True, eq=False)
class Read:
    """A value that ``read`` makes of an entry."""

    read: Callable[[Any], Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.read)


def within(what: str, least: float, most: float) -> Read:
    """A number with bounds."""

    def read(entry: Any) -> float:
        number = float_of(entry)
        if not least <= number <= most:
            raise mistake("lacking", what=what, why=f"is a number from {least:g} to {most:g}", cure="")
        return number

    return Read(read)


def whole(what: str, least: int, most: int, cure: str = "write a whole number") -> Read:
    """A whole number with bounds."""

    def read(entry: Any) -> int:
        text = entry if isinstance(entry, Scalar) else ""
        if not (text.isascii() and text.isdecimal()) or not least <= int(text) <= most:
            raise mistake("lacking", what=what, why=f"is a whole number from {least:,} to {most:,}", cure=cure)
        return int(text)

    return Read(read)


def numbers(what: str, count: int, cure: str) -> Read:
    """A list of so many numbers."""

    def read(entry: Any) -> tuple[float, ...]:
        floats = tuple(map(float_of, entry)) if isinstance(entry, ItemList) else ()
        if len(floats) != count or not all(map(math.isfinite, floats)):
            raise mistake("lacking", what=what, why=f"needs {count} numbers", cure=cure)
        return floats

    return Read(read)


def float_of(entry: Any) -> float:
    """Not a number where it is none."""
    try:
        return float(entry) if isinstance(entry, Scalar) else math.nan
    except ValueError:
        return math.nan


def several(what: str, number: str, most: int, cure: str) -> Read:
    """A list of texts, or how many there are."""

    def read(entry: Any) -> tuple[Scalar, ...] | int:
        if not isinstance(entry, ItemList):
            return whole(number, 1, most, cure).read(entry)  # type: ignore[no-any-return]
        flaw = mistake("text", what=what, cure="")
        together(((at,), flaw) for at, item in enumerate(entry) if not isinstance(item, Scalar))
        return tuple(entry)

    return Read(read)


def numbered(names_or_count: tuple[Scalar, ...] | int, letter: str) -> tuple[str, ...]:
    """The names_or_count, or as many as are wanted."""
    if isinstance(names_or_count, int):
        return tuple(f"{letter}{rank}" for rank in range(1, names_or_count + 1))
    return tuple(map(str, names_or_count))


@dataclass(frozen=True, eq=False)
class OneOf:
    """One of the choices of a Literal. ``message`` and ``cure`` take the place of the usual sentence, ``hints`` that of
    its cure for some texts."""

    what: str
    message: str = ""
    cure: str = ""
    hints: Mapping[str, str] = field(default_factory=dict)
    near: bool = True
    choices: tuple[str, ...] = ()
    written: tuple[str | int, ...] = ()
    """The choices as editors see them, if not as texts."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        choices = self.choices or get_args(without_none(source)) or get_args(source)
        return core_schema.no_info_plain_validator_function(
            lambda entry: self._read(entry, choices),
            json_schema_input_schema=core_schema.literal_schema([*(self.written or choices)]),
        )

    def _read(self, entry: Any, choices: tuple[str, ...]) -> str:
        cure = self.cure or f"write one of {listed(choices)}"
        text = TextEntry(self.what, cure).read(entry)
        if text in choices:
            return str(text)
        near = closest(text, choices) if self.near else None
        cure = self.hints.get(text) or f"did you mean {near!r}? " * (near is not None) + cure
        if self.message:
            raise wrong(self.message.format(text=str(text)), cure)
        raise mistake("choice", what=self.what, text=str(text), cure=cure)
