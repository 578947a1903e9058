"""The kinds of mistakes in YAML files, each with its sentence, and how validators raise them.

In a sentence ``<0>`` stands for the key of the entry, ``<1>`` for the key of the mapping that it stands in, and so on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from pydantic_core import InitErrorDetails, PydanticCustomError, ValidationError

SENTENCES: Final[Mapping[str, tuple[str, str]]] = {
    "mapping": ("{what} must be a mapping of names to values", "{cure}"),
    "list": ("{what} must be a list", "{cure}"),
    "text": ("{what} must be a name or a text", "{cure}"),
    "key": ("a key of {what} must be a name", "{cure}"),
    "doubled": ("{key!r} stands twice in {what}", "leave one out"),
    "unknown": ("{what} has no key {key!r}", "{cure}"),
    "choice": ("{what} cannot be {text!r}", "{cure}"),
    "negative": ("{what} cannot be negative", "leave the sign out"),
    "quantity": ("{what}: {why}", ""),
    "number": ("{what} cannot be {text!r}", "write a number"),
    "lacking": ("{what} {why}", "{cure}"),
    "said": ("{message}", "{cure}"),
}
"""By the type of an error what is wrong, and the cure. An error of any other type is a consequence of one of these."""
CONSEQUENCE: Final = "consequence"


def mistake(kind: str, **about: Any) -> PydanticCustomError:
    """An error of one of the types of SENTENCES, shown at the value of its entry, with ``at_key`` at its key, or at a
    ``node``."""
    return PydanticCustomError(kind, "a mistake in the file", about)


def wrong(message: str, cure: str = "", **place: Any) -> PydanticCustomError:
    """An error with a sentence of its own."""
    return mistake("said", message=message, cure=cure, **place)


Flaw = tuple[tuple[str | int, ...], PydanticCustomError]
"""An error and its place below that of the validator: ``()`` is the whole, ``("rate",)`` one of its entries."""


def together(errors: Iterable[Flaw]) -> None:
    """Raise all of them; nothing if there is none."""
    details: list[InitErrorDetails] = [{"type": error, "loc": loc, "input": None} for loc, error in errors]
    if details:
        raise ValidationError.from_exception_data("file", details)
