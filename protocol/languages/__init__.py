"""The two rule languages, TESLA and SASE: text to rules, and rules back to text."""

from __future__ import annotations

from headwater.protocol.analysis.validate import check_rule
from headwater.protocol.languages.diagnostics import Diagnostic, RuleTextError
from headwater.protocol.languages.foreign_syntax import Language
from headwater.protocol.languages.print_sase import print_sase
from headwater.protocol.languages.print_tesla import print_tesla
from headwater.protocol.languages.printing import PrintError
from headwater.protocol.languages.rule_texts import RuleSet, Source, language_of, parse_rules, rule_names
from headwater.protocol.pattern import Rule

__all__ = [
    "Diagnostic",
    "Language",
    "PrintError",
    "RuleSet",
    "RuleTextError",
    "Source",
    "language_of",
    "parse_rules",
    "print_rule",
    "rule_names",
]


def print_rule(rule: Rule, language: Language) -> str:
    """The rule as text: parsing it gives an equal rule. PrintError where the language cannot say it."""
    flaws = check_rule(rule)
    if flaws:
        raise PrintError(f"rule {rule.name!r}: {flaws[0]}")
    return print_tesla(rule) if language == "tesla" else print_sase(rule)
