"""What the subcommands share: exit codes, messages, and reading the given rule files."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from headwater.protocol.errors import ConfigError, HeadwaterError
from headwater.protocol.languages import Source
from headwater.protocol.languages.diagnostics import Text
from headwater.protocol.languages.grammar_actions import SyntaxMistake
from headwater.protocol.languages.parser import parse_text
from headwater.protocol.languages.rule_texts import decode
from headwater.protocol.languages.syntax import TypeDeclaration
from headwater.protocol.pattern import Rule, types_of

NETWORK_FILES: Final = (".yaml", ".yml")


class RunFailed(HeadwaterError):
    """The input was right, and yet the run could not be finished: exit code 1."""


def say(text: str) -> None:
    """A line for the person at the terminal; results go to standard output, everything else here."""
    print(text, file=sys.stderr, flush=True)


def read_sources(files: Iterable[Path]) -> list[Source]:
    """The texts of rule files; a ConfigError for a file that is absent, unreadable or something else."""
    sources = []
    for file in files:
        if file.suffix.lower() in NETWORK_FILES:
            wrong = f"{file} is not a rule file" if file.exists() else f"there is no rule file {file}"
            raise ConfigError(
                f"{wrong}; rules (.tesla or .sase) are expected here, headwater simulate and headwater up run a network"
            )
        if not file.exists():
            raise ConfigError(f"there is no rule file {file}")
        if file.is_dir():
            raise ConfigError(f"{file} is a folder; name rule files (.tesla or .sase)")
        try:
            sources.append(Source.from_path(file))
        except OSError as error:
            raise ConfigError(f"cannot read {file}: {error.strerror}") from None
    return sources


def declared_types(sources: Iterable[Source]) -> set[str]:
    """The names of the event types that rule texts declare; mistakes are left for parse_rules to report."""
    names: set[str] = set()
    for source in sources:
        text = decode(source)
        if isinstance(text, Text):
            with contextlib.suppress(SyntaxMistake):
                items = parse_text(text, source.language)
                names.update(item.name.text for item in items if isinstance(item, TypeDeclaration))
    return names


def primitive_types(rules: Iterable[Rule]) -> set[str]:
    """The types that rules read and no rule emits."""
    rules = list(rules)
    return set().union(*(types_of(rule.pattern) for rule in rules)) - {rule.emits for rule in rules}
