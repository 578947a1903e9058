"""Models of the values of ``protocol.edge``, generated from their fields: nodes need no pydantic to hold them.

One of several classes is an object with a single field that tells which: ``{"mqtt": {"topic": ..}}``.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, GetPydanticSchema, create_model
from pydantic_core import PydanticCustomError

from headwater.protocol.edge import Feed, Generator
from headwater.protocol.text import listed


class Closed(BaseModel):
    """An object with the fields it declares and no others. Numbers are not read out of strings."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


def absent(**about: Any) -> Any:
    """The default of a field that may be left out but not be null. It is None in a model that lacks it."""
    return Field(default_factory=lambda: None, **about)


AS_ITS_FIELDS = GetPydanticSchema(lambda hint, handler: handler.generate_schema(_shape_of(hint)))
"""``Annotated[Feed, AS_ITS_FIELDS]`` in a model: a feed, described and read from JSON by the fields of its class."""


def _shape_of(hint: Any) -> Any:
    """What pydantic makes the values of a field from."""
    if isinstance(hint, type) and is_dataclass(hint):
        return Annotated[_model_of(hint), AfterValidator(_maker(hint))]
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        classes = _dataclasses(hint)
        if len(classes) > 1:
            return Annotated[_one_of(hint), AfterValidator(_only_field)]
        return Union[tuple(_shape_of(choice) for choice in get_args(hint))]  # noqa: UP007
    if origin is tuple:
        return tuple[_shape_of(get_args(hint)[0]), ...]  # type: ignore[misc]
    return hint


@cache
def _model_of(cls: type[Any]) -> type[BaseModel]:
    hints = get_type_hints(cls)
    model_fields: dict[str, Any] = {}
    for field in fields(cls):
        plain = field.default is None or isinstance(field.default, str | int | float)
        default = ... if field.default is MISSING else Field(default=field.default) if plain else absent()
        model_fields[field.name] = (_shape_of(hints[field.name]), default)
    return create_model(cls.__name__, __base__=Closed, __doc__=cls.__doc__, **model_fields)


def _maker(cls: type[Any]) -> Callable[[BaseModel], Any]:
    return lambda model: cls(**{name: getattr(model, name) for name in model.model_fields_set})


_NAMES: Final[Mapping[Any, str]] = {Feed: "Feed", Generator: "Generator"}
"""Of the models of unions."""


class _OneOf(Closed):
    """Exactly one of its fields is given."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    def model_post_init(self, _: Any) -> None:
        if len(self.model_fields_set) != 1:
            names = listed(type(self).model_fields)
            raise PydanticCustomError("one_of", "must have exactly one of the fields {names}", {"names": names})


@cache
def _one_of(hint: Any) -> type[BaseModel]:
    model_fields: dict[str, Any] = {tag(cls): (_shape_of(cls), absent()) for cls in _dataclasses(hint)}
    return create_model(_NAMES[hint], __base__=_OneOf, **model_fields)


def _only_field(model: BaseModel) -> Any:
    (name,) = model.model_fields_set
    return getattr(model, name)


def _dataclasses(hint: Any) -> tuple[type[Any], ...]:
    return tuple(choice for choice in get_args(hint) if isinstance(choice, type) and is_dataclass(choice))


def tag(cls: type) -> str:
    """``MqttFeed`` and ``MqttTo`` are ``mqtt``."""
    return cls.__name__.removesuffix("Feed").removesuffix("To").lower()


def as_json(value: Any, hint: Any) -> Any:
    """The JSON from which ``AS_ITS_FIELDS`` makes the value."""
    if isinstance(value, tuple):
        choices = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
        items = next(get_args(choice)[0] for choice in choices if get_origin(choice) is tuple)
        return [as_json(item, items) for item in value]
    if not is_dataclass(value):
        return value
    hints = get_type_hints(type(value))
    inside = {field.name: as_json(getattr(value, field.name), hints[field.name]) for field in fields(value)}
    return {tag(type(value)): inside} if len(_dataclasses(hint)) > 1 else inside
