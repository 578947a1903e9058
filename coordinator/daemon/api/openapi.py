"""The OpenAPI 3.1 description of the API, made from the table of routes."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Any

from headwater.coordinator.daemon.api import shapes
from headwater.coordinator.daemon.api.routes import ROUTES, Route
from headwater.coordinator.daemon.api.schema import Schema

_MEANINGS = {
    400: "What was sent makes no sense; the sentence says why",
    401: "No token, or a wrong one",
    404: "There is no such thing",
    409: "It does not go with what is there",
    413: "The body is too large",
    503: "Not now: what it needs is not there",
    504: "Nodes did not answer in time; nothing, or only what the sentence says, was changed",
}


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
            "schemas": {"Error": shapes.ERROR},
        },
    }


def statuses(route: Route) -> list[int]:
    """All statuses that a route may answer with."""
    found = {200, *route.also}
    if route.changes:
        found |= {202, 400, 401, 413}
    if re.search(r"\{(number)\}", route.path):
        found.add(400)
    return sorted(found)


def answer_schema(route: Route, status: int) -> Schema | None:
    """What the body of an answer holds; None: text."""
    if status == 200:
        return route.answer
    return shapes.ACCEPTED if status == 202 else shapes.ERROR


def _operation(route: Route) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": route.handler,
        "summary": route.summary,
        "parameters": [_parameter(name) for name in re.findall(r"\{(\w+)\}", route.path)],
        "responses": {str(status): _response(route, status) for status in statuses(route)},
    }
    if route.changes:
        found["security"] = [{"token": []}]
        found["parameters"] += [
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
    found["parameters"] += [{"name": name, "in": "query", **shapes.QUERY[name]} for name in route.query]
    if route.body is not None:
        content: dict[str, Any] = {"application/json": {"schema": route.body}}
        if route.takes_text:
            content["text/plain"] = {"schema": shapes.RULE_TEXT}
        found["requestBody"] = {"required": True, "content": content}
    return found


def _parameter(name: str) -> dict[str, Any]:
    kind = "integer" if name == "number" else "string"
    return {"name": name, "in": "path", "required": True, "schema": {"type": kind}}


def _response(route: Route, status: int) -> dict[str, Any]:
    if status == 200 and route.answer is None:
        return {"description": "OK", "content": {"text/plain": {"schema": {"type": "string"}}}}
    if status >= 400:
        schema: Schema = {"$ref": "#/components/schemas/Error"}
    else:
        schema = answer_schema(route, status) or {}
    meaning = _MEANINGS.get(status, HTTPStatus(status).phrase)
    return {"description": meaning, "content": {"application/json": {"schema": schema}}}
