"""The rule texts of a network file before they are parsed: where each stands, and its rules by name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import yaml

from headwater.deploy.network.sections import RuleEntry
from headwater.protocol.languages import syntax as s
from headwater.protocol.languages.diagnostics import Text
from headwater.protocol.languages.grammar_actions import SyntaxMistake
from headwater.protocol.languages.parser import parse_text
from headwater.protocol.languages.rule_texts import decode


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
