"""The building blocks of YAML files, as pydantic models and fields: parts, names and lists.

A model says what a file may hold. A field says beside its type what people call it, so that a mistake is told in a
sentence about that entry and not about pydantic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Generic, TypeVar, get_args

import yaml
from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler, PrivateAttr, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, ValidationError, core_schema

from headwater.deploy.network.mistakes import CONSEQUENCE, Flaw, mistake, together, wrong
from headwater.deploy.network.yaml_tree import ItemList, KeyTable, Scalar
from headwater.protocol.text import closest, listed

T = TypeVar("T")


class FilePart(BaseModel):
    """A mapping with known keys. ``at`` and ``at_key`` tell where its entries stand in the file."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True, populate_by_name=False)

    WHAT: ClassVar[str]
    EXAMPLE: ClassVar[str] = ""
    LACKS: ClassVar[str]
    """What is wrong where required entries are ``missing``."""
    SHORT: ClassVar[str | None] = None
    """The key of the entry that a value in place of the mapping stands for."""
    DROPS_NULL: ClassVar[bool] = False
    """Whether an entry without a value is the same as none."""

    _table: KeyTable = PrivateAttr()

    @classmethod
    def allowed_keys(cls) -> list[str]:
        """The keys it may have."""
        return [name for attribute, field in cls.model_fields.items() if (name := field.alias or attribute) != HIDDEN]

    @classmethod
    def lacking(cls, missing: list[str]) -> PydanticCustomError:
        """What is wrong where required entries are missing."""
        return wrong(cls.LACKS.format(missing=" and ".join(missing)), cls.EXAMPLE)

    def flaws(self) -> Iterable[Flaw]:
        """What is wrong with its entries together. An entry in ``broken`` has been noted already."""
        return ()

    @model_validator(mode="wrap")
    @classmethod
    def _from_table(cls, entry: Any, handler: Callable[[Any], Any]) -> Any:
        if cls.SHORT is not None and not isinstance(entry, KeyTable | ItemList):
            entry = KeyTable({cls.SHORT: entry}, entries={cls.SHORT: (node_of(entry), node_of(entry))})
        table = mapping(entry, cls.WHAT, cls.EXAMPLE)
        allowed = cls.allowed_keys()
        unknown = [key for key in table if key not in allowed and key != HIDDEN]
        required = [
            model_field.alias or name for name, model_field in cls.model_fields.items() if model_field.is_required()
        ]
        missing = [key for key in required if key not in table]
        errors: list[Flaw] = [
            ((key,), mistake("unknown", what=cls.WHAT, key=key, cure=_key_cure(table, key, allowed), at_key=True))
            for key in unknown
        ]
        if missing:
            errors.append(((), mistake(CONSEQUENCE) if table.broken & {*missing} else cls.lacking(missing)))
        kept = {key: value for key, value in table.items() if value is not None or not cls.DROPS_NULL}
        try:
            part = handler({key: value for key, value in kept.items() if key not in unknown})
            part._table = table
            errors += [] if errors else part.flaws()
        except ValidationError as error:
            errors += [
                (error_details["loc"], mistake(error_details["type"], **error_details.get("ctx", {})))
                for error_details in error.errors()
            ]
        together(errors)
        return part

    @property
    def place(self) -> yaml.Node:
        return self._table.node

    @property
    def broken(self) -> frozenset[str]:
        """The keys of entries with mistakes in them, which were left out."""
        return self._table.broken

    def at(self, name: str) -> yaml.Node:
        """Where the value of an entry stands."""
        return self._table.entries[name][1]

    def at_key(self, name: str) -> yaml.Node:
        return self._table.entries[name][0]

    def has(self, name: str) -> bool:
        """Whether the file has the entry, right or wrong."""
        return name in self._table.entries

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        json_schema = handler(schema)
        if cls.SHORT is None:
            return json_schema
        inside = handler.resolve_ref_schema(json_schema)
        short = dict(inside["properties"][cls.SHORT])
        if cls.SHORT == HIDDEN:
            del inside["properties"][HIDDEN]
        whole = dict(inside)
        inside.clear()
        inside.update({"anyOf": [short, whole]})
        return json_schema


HIDDEN: Final = " "
"""The alias of an entry that has no key: it is only written short."""


def node_of(entry: Any) -> yaml.Node:
    node = getattr(entry, "node", None)
    return node if isinstance(node, yaml.Node) else _NOWHERE


_NOWHERE: Final = yaml.ScalarNode("tag:yaml.org,2002:null", "")


def mapping(entry: Any, what: str, example: str) -> KeyTable:
    """The mapping, whose keys are names that stand there once."""
    if not isinstance(entry, KeyTable):
        raise mistake("mapping", what=what, cure=example)
    together(
        ((), mistake("doubled", what=what, key=str(node.value), node=node))
        if isinstance(node, yaml.ScalarNode)
        else ((), mistake("key", what=what, cure=example, node=node))
        for node in entry.odd
    )
    return entry


def _key_cure(table: KeyTable, key: str, allowed: list[str]) -> str:
    near = closest(key, allowed)
    if near is not None:
        return f"did you mean {near!r}?"
    if getattr(table.node, "flow_style", False) and table[key] is None:
        return "a text that holds a comma must stand in quotes"
    return f"write one of {listed(allowed, 12)}"


class NamedEntries(dict[Scalar, T], Generic[T]):
    """A mapping of free names. The keys know their places."""

    table: KeyTable

    @property
    def broken(self) -> frozenset[str]:
        return self.table.broken


@dataclass(frozen=True, eq=False)
class Named:
    """Of ``Names``: what the mapping is called. ``or_null``: nothing written is an empty one."""

    what: str
    example: str = ""
    or_null: bool = False

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        (inner,) = get_args(without_none(source))
        names = core_schema.dict_schema(core_schema.any_schema(), handler.generate_schema(inner))
        return core_schema.no_info_wrap_validator_function(self._read, names)

    def _read(self, entry: Any, handler: Callable[[Any], Any]) -> Any:
        table = KeyTable() if entry is None and self.or_null else mapping(entry, self.what, self.example)
        names: NamedEntries[Any] = NamedEntries(handler(table))
        names.table = table
        return names

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        json_schema = handler(schema)
        return {**json_schema, "type": ["object", "null"]} if self.or_null else json_schema


class Given:
    """An entry that may be left out, but says something where it stands."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return handler.generate_schema(without_none(source))


def without_none(source: Any) -> Any:
    """``X`` of ``X | None``."""
    return next(
        (
            alternative
            for alternative in get_args(source)
            if type(None) in get_args(source) and alternative is not type(None)
        ),
        source,
    )


@dataclass(frozen=True, eq=False)
class Listed:
    """A list, and what it is called; nothing written is an empty one. ``flaw``: what is wrong with its length."""

    what: str
    example: str = ""
    flaw: Callable[[int], PydanticCustomError | None] | None = None
    schema: Mapping[str, Any] = field(default_factory=dict)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._read, handler(source))

    def _read(self, entry: Any) -> Any:
        entry = ItemList() if entry is None else entry
        if not isinstance(entry, ItemList):
            raise mistake("list", what=self.what, cure=self.example)
        if self.flaw is not None and (error := self.flaw(len(entry))) is not None:
            raise mistake(CONSEQUENCE) if entry.broken else error
        return entry

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {**handler(schema), **self.schema}


class OneOrMore:
    """A list, or its only item."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._read, handler(source))

    def _read(self, entry: Any) -> Any:
        return entry if isinstance(entry, ItemList) else ItemList([entry])

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        json_schema = handler(schema)
        return {"anyOf": [json_schema["items"], json_schema]}


def shape(entry: Any) -> str:
    """Which of the shapes of an entry is written, for a Discriminator."""
    return MAPPING if isinstance(entry, KeyTable) else ITEMS if isinstance(entry, ItemList) else VALUE


MAPPING: Final = "<a mapping>"
ITEMS: Final = "<a list>"
VALUE: Final = "<a value>"
