"""JSON Schemas as plain dictionaries, and what does not fit them in sentences.

Only the part of JSON Schema that the API uses. Frozen dataclasses that travel (feeds, destinations) are described from
their fields, and made from JSON by the same description.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from headwater.protocol.languages.diagnostics import listed, suggestion

Schema = dict[str, Any]

STRING: Final[Schema] = {"type": "string"}
INTEGER: Final[Schema] = {"type": "integer"}
NUMBER: Final[Schema] = {"type": "number"}
BOOLEAN: Final[Schema] = {"type": "boolean"}
ANYTHING: Final[Schema] = {}

_KINDS: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
}


def record(required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> Schema:
    """An object with these fields and no others."""
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
        "additionalProperties": False,
    }


def mapping(values: Schema) -> Schema:
    return {"type": "object", "additionalProperties": values}


def array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def nullable(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def described(schema: Schema, text: str, example: Any = None) -> Schema:
    return {**schema, "description": text, **({"examples": [example]} if example is not None else {})}


# ------------------------------------------------------------------------------------------------------------- checking


def flaws(value: Any, schema: Schema, where: str = "the body") -> Iterator[str]:
    """What does not fit, each as a sentence; nothing where all is well."""
    if "anyOf" in schema:
        if not any(next(flaws(value, choice, where), None) is None for choice in schema["anyOf"]):
            # The one that was meant is most likely one of the kind that was given.
            alike = [choice for choice in schema["anyOf"] if isinstance(value, _KINDS.get(choice.get("type"), ()))]
            yield next(flaws(value, (alike or schema["anyOf"])[0], where))
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{where} is {value!r:.60}; write one of {listed(map(str, schema['enum']))}"
        return
    kind = schema.get("type")
    if kind is None:
        return
    if not isinstance(value, _KINDS[kind]) or (isinstance(value, bool) and kind in ("integer", "number")):
        yield f"{where} must be {_a(kind)}, not {value!r:.60}"
        return
    if isinstance(value, dict):
        yield from _flaws_of_object(value, schema, where)
    elif isinstance(value, list):
        if "minItems" in schema and len(value) < schema["minItems"]:
            yield f"{where} must have at least {schema['minItems']} items"
        for index, item in enumerate(value):
            yield from flaws(item, schema["items"], f"{where}[{index}]")


def _flaws_of_object(value: dict[str, Any], schema: Schema, where: str) -> Iterator[str]:
    known = schema.get("properties", {})
    others = schema.get("additionalProperties", True)
    for name, inside in value.items():
        if name in known:
            yield from flaws(inside, known[name], name if where == "the body" else f"{where}.{name}")
        elif others is False:
            yield f"{where} has an unknown field {name!r:.60}; {suggestion(name, known, 'fields')}".rstrip("; ")
        elif others is not True:
            yield from flaws(inside, others, f"{where}.{name}")
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{where} lacks the field {name!r}"
    if "maxProperties" in schema and not schema["minProperties"] <= len(value) <= schema["maxProperties"]:
        yield f"{where} must have exactly one of the fields {listed(known)}"


def _a(kind: str) -> str:
    return {"integer": "a whole number", "object": "an object", "array": "a list", "null": "null"}.get(
        kind, f"a {kind}"
    )


# ---------------------------------------------------------------------------------------------------------- dataclasses


def schema_of(hint: Any) -> Schema:
    """The schema of what a field of a travelling dataclass may hold.

    One of several dataclasses is an object with a single field that tells which: ``{"mqtt": {"topic": ..}}``.
    """
    if isinstance(hint, type) and is_dataclass(hint):
        hints = _hints(hint)
        needed = {field.name for field in fields(hint) if field.default is MISSING}
        made = {name: schema_of(inner) for name, inner in hints.items()}
        return record(
            {name: made[name] for name in made if name in needed},
            {name: made[name] for name in made if name not in needed},
        )
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return _schema_of_union(get_args(hint))
    if origin is tuple:
        return array(schema_of(get_args(hint)[0]))
    if origin is Literal:
        return {"enum": list(get_args(hint))}
    plain = {str: STRING, int: INTEGER, float: NUMBER, bool: BOOLEAN, type(None): {"type": "null"}}
    return dict(plain[hint])


def _schema_of_union(choices: tuple[Any, ...]) -> Schema:
    classes = [each for each in choices if isinstance(each, type) and is_dataclass(each)]
    if len(classes) > 1:
        named = {tag(each): schema_of(each) for each in classes}
        one: Schema = {**record({}, named), "minProperties": 1, "maxProperties": 1}
        return one if len(classes) == len(choices) else nullable(one)
    return {"anyOf": [schema_of(each) for each in choices]}


def tag(cls: type) -> str:
    """``MqttFeed`` and ``MqttTo`` are ``mqtt``."""
    return cls.__name__.removesuffix("Feed").removesuffix("To").lower()


@cache
def _hints(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


def made_of(value: Any, hint: Any) -> Any:
    """The value that JSON stands for, where it fits ``schema_of(hint)``."""
    if isinstance(hint, type) and is_dataclass(hint):
        return hint(**{name: made_of(inner, _hints(hint)[name]) for name, inner in value.items()})
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        if value is None:
            return None
        classes = [each for each in get_args(hint) if isinstance(each, type) and is_dataclass(each)]
        if len(classes) > 1:
            ((name, inner),) = value.items()
            return made_of(inner, next(each for each in classes if tag(each) == name))
        fitting = next(each for each in get_args(hint) if next(flaws(value, schema_of(each)), None) is None)
        return made_of(value, fitting)
    if origin is tuple:
        return tuple(made_of(item, get_args(hint)[0]) for item in value)
    return float(value) if hint is float else value


def as_json(value: Any, hint: Any) -> Any:
    """The JSON that ``made_of`` makes the value from."""
    if isinstance(hint, type) and is_dataclass(hint):
        return {name: as_json(getattr(value, name), inner) for name, inner in _hints(hint).items()}
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        classes = [each for each in get_args(hint) if isinstance(each, type) and is_dataclass(each)]
        if is_dataclass(value) and not isinstance(value, type):
            inside = as_json(value, type(value))
            return {tag(type(value)): inside} if len(classes) > 1 else inside
        if isinstance(value, tuple):
            return as_json(value, next(each for each in get_args(hint) if get_origin(each) is tuple))
        return value
    if origin is tuple:
        return [as_json(item, get_args(hint)[0]) for item in value]
    return value
