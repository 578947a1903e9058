"""Explains what is wrong with a request body: where, what is there, and what could be there instead."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic.json_schema import GenerateJsonSchema

from headwater.coordinator.daemon.operations import RequestRefused
from headwater.protocol.text import listed, suggestion

FLAWS_MAX: Final = 20  # more of them are no help

Schema = dict[str, Any]
Body = TypeVar("Body", bound=BaseModel)

KINDS: Final[Mapping[str, str]] = {
    "string_type": "a string",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "a boolean",
    "model_type": "an object",
    "dict_type": "an object",
    "list_type": "a list",
    "tuple_type": "a list",
}
"""By the code of pydantic's error: what must stand there."""


class PlainSchema(GenerateJsonSchema):
    """Without titles that repeat the names of fields."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def read_body(model: type[Body], data: bytes) -> Body:
    """The body as JSON of this model; RequestRefused with everything that is wrong with it."""
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise RequestRefused(400, f"the body is not JSON: {error}") from None
    try:
        return model.model_validate_json(json.dumps(body))
    except ValidationError as error:
        raise RequestRefused(400, "\n".join(flaws(error, model, body)[:FLAWS_MAX])) from None


def flaws(error: ValidationError, model: type[BaseModel], body: Any) -> list[str]:
    """One sentence for each place of the body that is wrong, in the order of the body."""
    by_place: dict[tuple[str | int, ...], tuple[tuple[int, ...], str]] = {}
    for number, detail in enumerate(error.errors(include_url=False)):
        place = _Place(_schema(model), body)
        names = detail["loc"][:-1] if detail["type"] == "missing" else detail["loc"]
        for name in names:
            place.enter(name)
        if detail["type"] == "missing":
            place.enter_missing(str(detail["loc"][-1]), number)
        # Of the choices that a value may be, the first says what could stand there.
        by_place.setdefault(tuple(place.path), (tuple(place.order), _sentence(detail, place)))
    return [sentence for _, sentence in sorted(by_place.values(), key=lambda entry: entry[0])]


@cache
def _schema(model: type[BaseModel]) -> Schema:
    return model.model_json_schema(schema_generator=PlainSchema)


class _Place:
    """A place in a body, with what its schema says."""

    def __init__(self, schema: Schema, body: Any) -> None:
        self._definitions = schema.get("$defs", {})
        self.path: list[str | int] = []
        self.order: list[int] = []
        self.value = body
        self.schemas = [*self._choices(schema)]
        self.outer = self.schemas
        """What the schema says of the object in which this place is."""

    def enter(self, name: str | int) -> None:
        """Go on inside. The name of one of several choices is no place of its own."""
        if isinstance(self.value, list) and isinstance(name, int):
            self._go(name, name, self.value[name])
        elif isinstance(self.value, dict) and name in self.value:
            self._go(name, [*self.value].index(name), self.value[name])

    def enter_missing(self, name: str, number: int) -> None:
        """After everything that the object has."""
        self._go(name, len(self.value) + number, None)

    def _go(self, name: str | int, order: int, value: Any) -> None:
        self.path.append(name)
        self.order.append(order)
        self.value, self.outer = value, self.schemas
        self.schemas = [choice for schema in self.outer for choice in self._inside(schema, name)]

    def _inside(self, schema: Schema, name: str | int) -> Iterator[Schema]:
        inside = schema.get("items") if isinstance(name, int) else schema.get("properties", {}).get(name)
        return self._choices(inside) if isinstance(inside, dict) else iter(())

    def _choices(self, schema: Schema) -> Iterator[Schema]:
        if "$ref" in schema:
            yield from self._choices(self._definitions[schema["$ref"].rpartition("/")[2]])
        for choice in [*schema.get("anyOf", ()), *schema.get("oneOf", ())]:
            yield from self._choices(choice)
        yield schema


def _sentence(detail: Any, place: _Place) -> str:
    where, value = _where(place.path), place.value
    match detail["type"]:
        case "missing":
            return f"{_where(place.path[:-1])} lacks the field {place.path[-1]!r}"
        case "extra_forbidden":
            field_names = [name for schema in place.outer for name in schema.get("properties", ())]
            cure = suggestion(str(place.path[-1]), dict.fromkeys(field_names), "fields")
            return f"{_where(place.path[:-1])} has an unknown field {place.path[-1]!r:.60}; {cure}".rstrip("; ")
        case "literal_error":
            words = [word for schema in place.schemas for word in schema.get("enum", ())]
            return f"{where} is {value!r:.60}; write one of {listed(map(str, words))}"
        case "too_short":
            return f"{where} must have at least {detail['ctx']['min_length']} items"
        case "greater_than_equal":
            return f"{where} cannot be less than {detail['ctx']['ge']}"
        case "json_invalid":
            return f"the body is not JSON: {detail['ctx']['error']}"
        case code if code in KINDS:
            return f"{where} must be {KINDS[code]}, not {value!r:.60}"
        case _:
            return f"{where} {detail['msg']}"


def _where(path: list[str | int]) -> str:
    if not path:
        return "the body"
    return "".join(f"[{name}]" if isinstance(name, int) else f".{name}" for name in path).removeprefix(".")
