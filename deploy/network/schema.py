"""The JSON schema of network files, for editors, generated from the models that read them."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any, Final

SCHEMA_FILE: Final = "network.schema.json"
"""Kept in the package, so that it can be shown without pydantic; a test says when it is out of date."""


def kept_schema() -> str:
    """The schema that comes with the program."""
    return (files("headwater.deploy.network") / SCHEMA_FILE).read_text(encoding="utf-8")


def made_schema() -> str:
    """The schema as the models have it now."""
    from headwater.deploy.network.models.network import NetworkPart

    schema: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Headwater network file",
        **_tidied(NetworkPart.model_json_schema()),
    }
    # A section without a value is the same as none.
    for name, section in schema["properties"].items():
        about = {key: section.pop(key) for key in ("description", "default") if key in section}
        schema["properties"][name] = {**about, "anyOf": [section, {"type": "null"}]}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _tidied(part: Any) -> Any:
    """Without what only repeats names of classes and fields, and without defaults that say nothing."""
    if isinstance(part, list):
        return [_tidied(item) for item in part]
    if not isinstance(part, dict):
        return part
    return {
        key: {name: _tidied(subschema) for name, subschema in value.items()}
        if key in ("properties", "$defs")
        else _tidied(value)
        for key, value in part.items()
        if key != "title" and not (key == "default" and value in (None, [], ()))
    }


if __name__ == "__main__":
    print(made_schema(), end="")
