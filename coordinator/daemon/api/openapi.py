"""Generates the OpenAPI 3.1 description of the API from the table of routes and their models."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Any, Final

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import models_json_schema

from headwater.coordinator.daemon.api import models
from headwater.coordinator.daemon.api.body_errors import PlainSchema, Schema
from headwater.coordinator.daemon.api.routes import ROUTES, Route


def _schema_of(hint: Any) -> Schema:
    return TypeAdapter(hint).json_schema()


_MEANINGS = {
    400: "What was sent makes no sense; the sentence says why",
    401: "No token, or a wrong one",
    404: "There is no such thing",
    409: "It does not go with what is there",
    413: "The body is too large",
    503: "Not now: what it needs is not there",
    504: "Nodes did not answer in time; nothing, or only what the sentence says, was changed",
}

QUERY: Final[dict[str, Schema]] = {
    "replace": {
        "schema": {"type": "boolean", "default": False},
        "description": "true: rules of the same names that are deployed end, and these take their places",
    },
    "language": {"schema": _schema_of(models.Language), "description": "of a text that is sent as it is"},
    "name": {"schema": _schema_of(models.TextName), "description": "of a text that is sent as it is"},
}
"""Parameters of requests, by name."""


def description(version: str) -> dict[str, Any]:
    """The whole document."""
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Headwater coordinator",
            "version": version or "0",
            "description": "What runs in a network, and how to change it while it runs.",
        },
        "paths": paths,
        "components": {
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "The file `token` of the data folder"}
            },
            "schemas": _schemas(),
        },
    }


def statuses(route: Route) -> list[int]:
    """All statuses that a route may answer with."""
    codes = {200, *route.also}
    if route.changes:
        codes |= {202, 400, 401, 413}
    if re.search(r"\{(number)\}", route.path):
        codes.add(400)
    return sorted(codes)


def answer_model(route: Route, status: int) -> type[BaseModel] | None:
    """What the body of an answer holds; None: text."""
    if status == 200:
        return route.answer
    return models.AcceptedView if status == 202 else models.Error


def _schemas() -> Schema:
    """Every model of the routes, and those that they are made of, by name."""
    used: list[type[BaseModel]] = [
        model for route in ROUTES for model in (route.body, route.answer) if model is not None
    ]
    used += [models.Error, models.AcceptedView]
    _, document = models_json_schema(
        [(model, "validation") for model in dict.fromkeys(used)],
        ref_template="#/components/schemas/{model}",
        schema_generator=PlainSchema,
    )
    schemas: Schema = document["$defs"]
    return schemas


def _reference(model: type[BaseModel]) -> Schema:
    return {"$ref": f"#/components/schemas/{model.__name__}"}


def _operation(route: Route) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.handler,
        "summary": route.summary,
        "parameters": [_parameter(name) for name in re.findall(r"\{(\w+)\}", route.path)],
        "responses": {str(status): _response(route, status) for status in statuses(route)},
    }
    if route.changes:
        operation["security"] = [{"token": []}]
        operation["parameters"] += [
            {
                "name": "wait",
                "in": "query",
                "schema": {"type": "boolean", "default": True},
                "description": "false: answer 202 as soon as the request cannot be forgotten any more",
            },
            {
                "name": "Idempotency-Key",
                "in": "header",
                "schema": {"type": "string", "maxLength": 200},
                "description": "The same key again is the same request, and is answered as before",
            },
        ]
    operation["parameters"] += [{"name": name, "in": "query", **QUERY[name]} for name in route.query]
    if route.body is not None:
        content: dict[str, Any] = {"application/json": {"schema": _reference(route.body)}}
        if route.takes_text:
            content["text/plain"] = {"schema": _schema_of(models.RuleText)}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _parameter(name: str) -> dict[str, Any]:
    kind = "integer" if name == "number" else "string"
    return {"name": name, "in": "path", "required": True, "schema": {"type": kind}}


def _response(route: Route, status: int) -> dict[str, Any]:
    model = answer_model(route, status)
    if model is None:
        return {"description": "OK", "content": {"text/plain": {"schema": {"type": "string"}}}}
    meaning = _MEANINGS.get(status, HTTPStatus(status).phrase)
    return {"description": meaning, "content": {"application/json": {"schema": _reference(model)}}}
