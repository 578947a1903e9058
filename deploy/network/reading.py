"""Reads a YAML tree into a model, and reports every mistake in a sentence with its place."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from headwater.deploy.network.fields import FilePart
from headwater.deploy.network.mistakes import SENTENCES
from headwater.deploy.network.yaml_file import Sheet
from headwater.deploy.network.yaml_tree import ODD, place_of, steps_of, tree_of, without

P = TypeVar("P", bound=FilePart)


def read_part(
    sheet: Sheet, node: yaml.Node, model: type[P], *, of: object = None, path: tuple[str, ...] = ()
) -> P | None:
    """What the model makes of a node; None if nothing. Mistakes are noted in the sheet, and the model has the rest: an
    entry with a mistake is left out, and so is a part that cannot be without it.

    ``of`` is the context of the validators, and such a part is read in whole or not at all; ``path`` leads to it.
    """
    tree: Any = tree_of(node)
    while True:
        try:
            return model.model_validate(tree, context=of)
        except ValidationError as error:
            places = [(steps_of(tree, details["loc"]), details) for details in error.errors(include_url=False)]
        for steps, details in places:
            key, value = place_of(tree, steps) if steps else (node, node)
            _note(sheet, details, [*path, *(step for step in steps if isinstance(step, str))], key, value)
        if of is not None:
            return None
        # From the end of a list, so that the places of its other items stay as they are.
        for steps in _outermost(
            [*steps, ODD] if details["type"] in ("doubled", "key") else steps for steps, details in places
        ):
            if not steps:
                return None
            tree = without(tree, steps)


def _note(sheet: Sheet, error: ErrorDetails, path: list[str], key: yaml.Node, value: yaml.Node) -> None:
    """Note an error of pydantic, or one of our own, in words of people."""
    if error["type"] not in SENTENCES:
        return
    about = dict(error.get("ctx", {}))
    if error["type"] != "said":
        path = path[:-1] if error["type"] == "unknown" else path
        about |= {name: _filled(about[name], path) for name in ("what", "cure") if name in about}
    message, cure = (sentence.format(**about) for sentence in SENTENCES[error["type"]])
    sheet.error(about.get("node") or (key if about.get("at_key") else value), message, cure)


def _filled(sentence: str, path: list[str]) -> str:
    """A sentence with the keys of the entry that it is about."""
    return re.sub(r"<([0-9])>", lambda placeholder: path[-1 - int(placeholder[1])], sentence)


def _outermost(places: Iterable[list[int | str]]) -> list[list[int | str]]:
    """The places that are in no other one, the last of a list first."""
    outermost: list[list[int | str]] = []
    for steps in sorted(places, key=len):
        if not any(steps[: len(other)] == other for other in outermost):
            outermost.append(steps)
    return sorted(outermost, key=lambda steps: [step if isinstance(step, int) else 0 for step in steps], reverse=True)
