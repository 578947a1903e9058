"""How quantities are written, for the JSON schema."""

from __future__ import annotations

from typing import Final

DURATION: Final = {
    "type": ["string", "number"],
    "pattern": r"^\s*[0-9.]+\s*[A-Za-zµ]*\s*$",
    "examples": ["5ms", "10 min"],
}
RATE: Final = {
    "type": "string",
    "pattern": r"^\s*[0-9.eE+-]+\s*(/|per\s)\s*[A-Za-zµ]+\s*$",
    "examples": ["2/s", "120/min"],
}
NUMBER: Final = {"type": ["number", "string"]}
