"""The rule texts of a network file before they are parsed: where each stands, and what they look up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass

import yaml

from headwater.deploy.network.sections import RuleEntry
from headwater.protocol.languages import Diagnostic
from headwater.protocol.languages import syntax as s
from headwater.protocol.languages.diagnostics import Text
from headwater.protocol.languages.grammar_actions import SyntaxMistake
from headwater.protocol.languages.parser import parse_text
from headwater.protocol.languages.rule_texts import decode
from headwater.protocol.text import plural, suggestion


@dataclass(frozen=True, slots=True)
class RuleText:
    """A rule file or an inline text, read."""

    entry: RuleEntry
    text: Text
    items: list[s.TypeDeclaration | s.RuleSyntax]


def rule_texts(entries: Iterable[RuleEntry]) -> list[RuleText]:
    """All texts that can be read at all."""
    texts = []
    for entry in entries:
        text = decode(entry.source)
        if isinstance(text, Text):
            try:
                texts.append(RuleText(entry, text, list(parse_text(text, entry.source.language))))
            except SyntaxMistake:
                continue
    return texts


def places_of_rules(texts: Iterable[RuleText]) -> dict[str, yaml.Node]:
    """Where the network file names each rule; a SASE rule that has no name of its own is not found."""
    places: dict[str, yaml.Node] = {}
    for rule_text in texts:
        for item in rule_text.items:
            name = item.name if not isinstance(item, s.TypeDeclaration) else None
            if name is None and isinstance(item, s.TeslaRule):
                name = item.emits
            if name is not None:
                places.setdefault(name.text, rule_text.entry.place)
    return places


def wrong_lookups(
    texts: Iterable[RuleText], key_lengths: Mapping[str, int | None]
) -> Iterator[tuple[RuleEntry, Diagnostic]]:
    """Lookups in tables that there are not, or with keys of another length."""
    for rule_text in texts:
        for item in _inside(rule_text.items):
            if isinstance(item, s.RemoteLookup):
                table = item.table.text if item.table is not None else "remote"
                if (flaw := _wrong_lookup(table, len(item.arguments), key_lengths)) is not None:
                    yield rule_text.entry, rule_text.text.diagnostic(item.at, *flaw)


def _wrong_lookup(table: str, given: int, key_lengths: Mapping[str, int | None]) -> tuple[str, str] | None:
    """What is wrong with a lookup, and the cure."""
    if table not in key_lengths:
        near = suggestion(table, sorted(key_lengths), "the tables are") if key_lengths else ""
        return (
            f"the network has no remote table {table!r}",
            near or f"describe it, as in remote: {{{table}: {{file: {table}.csv}}}}",
        )
    length = key_lengths[table]
    if length in (None, given):
        return None
    return f"a key of the table {table} has {plural(length or 0, 'value')}, not {given}", "look up as many as it has"


def _inside(part: object) -> Iterator[object]:
    """Everything that a piece of syntax is made of, in the order of the text."""
    waiting = [part]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting.extend(reversed(part))
        elif is_dataclass(part) and not isinstance(part, type):
            yield part
            waiting.extend(getattr(part, field.name) for field in reversed(fields(part)))
