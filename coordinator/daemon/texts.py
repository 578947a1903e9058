"""Texts that people send: rules and subscriptions, checked against what is deployed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from coordinator.daemon.operations import Refused
from protocol.events import EventType
from protocol.expressions import Remote, walk
from protocol.languages import Language, PrintError, RuleTextError, Source, parse_rules, print_rule
from protocol.languages.emitted import composite_types
from protocol.pattern import Rule
from protocol.subscriptions import Subscription, parse_subscription


@dataclass(frozen=True, slots=True)
class ReadRules:
    rules: tuple[Rule, ...]
    """In an order in which each comes after those whose composites it reads."""
    types: tuple[EventType, ...]
    """Event types that the text declares and that nobody knew before."""


def read_rules(
    text: str,
    name: str,
    language: Language,
    deployed: Mapping[str, Rule],
    types: Mapping[str, EventType],
    strategy: str,
) -> ReadRules:
    """The rules of a text, which may read what deployed rules emit; RuleTextError or Refused if they cannot be served.

    The deployed rules are read again with them, as text, so that what one emits is known to the other, names stay
    unique, and circles are found.
    """
    before = [_printed(rule) for rule in deployed.values()]
    given = Source(text, name, language)
    try:
        found = parse_rules([*before, given], types.values())
    except RuleTextError as error:
        own = [each for each in error.diagnostics if each.file == name]
        raise RuleTextError(own or error.diagnostics) from None
    rules = tuple(rule for rule in found.rules if rule.name not in deployed)
    for rule in rules:
        _check_served(rule, strategy)
    new_types = tuple(made for known, made in found.types.items() if known not in types)
    return ReadRules(rules, new_types)


def _printed(rule: Rule) -> Source:
    for language in ("tesla", "sase"):
        try:
            return Source(print_rule(rule, language), f"deployed rule {rule.name}", language)
        except PrintError:
            continue
    raise Refused(500, f"the deployed rule {rule.name!r} cannot be written as text, so nothing can be checked with it")


def shown_rule(rule: Rule) -> tuple[str, str]:
    """A rule as text, and the language of the text."""
    source = _printed(rule)
    return str(source.text), source.language


def _check_served(rule: Rule, strategy: str) -> None:
    window = getattr(rule.pattern.root, "window", None)
    if window is not None and window.unit == "events" and strategy != "centr":
        raise Refused(
            400,
            f"rule {rule.name!r} has a window that counts events, which only a place that sees them all can do; "
            f"the strategy of this network is {strategy}: give the rule a window of time",
        )
    looked_at = [*rule.pattern.where, *(each.value for each in rule.attributes)]
    if any(isinstance(part, Remote) for expression in looked_at for part in walk(expression)):
        raise Refused(400, f"rule {rule.name!r} looks into a remote table; networks do not serve these yet")


def read_subscription(text: str, deployed: Iterable[Rule], types: Mapping[str, EventType]) -> Subscription:
    """The subscription of a text, or a RuleTextError."""
    return parse_subscription(text, "subscribe", [*types.values(), *composite_types(deployed).values()])
