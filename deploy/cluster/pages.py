"""Queries the HTTP pages of nodes and the coordinator."""

from __future__ import annotations

import http.client
import json
from typing import Any

ANSWER_BYTES_MAX = 16 << 20


def ask(address: str, path: str, timeout_s: float = 2.0) -> tuple[int, Any] | None:
    """Status and JSON (or text) of a page; None if no process answers. No proxy is asked."""
    connection = http.client.HTTPConnection(address, timeout=timeout_s)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read(ANSWER_BYTES_MAX)
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
    try:
        return response.status, json.loads(body)
    except ValueError:
        return response.status, body.decode(errors="replace")
