"""Checks rules and subscriptions in requests against what is deployed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from headwater.coordinator.daemon.api.models import RuleBody
from headwater.coordinator.daemon.operations import RequestRefused, already_deployed
from headwater.protocol.analysis.lookups import lookups_of, tables_of
from headwater.protocol.events import EventType
from headwater.protocol.function_files import DescribedFunctions, declared
from headwater.protocol.languages import (
    PrintError,
    RuleTextError,
    Source,
    language_of,
    parse_rules,
    print_rule,
    rule_names,
)
from headwater.protocol.languages.composite_types import composite_types
from headwater.protocol.languages.foreign_syntax import Language
from headwater.protocol.languages.rule_texts import LANGUAGES
from headwater.protocol.network import DescribedTable
from headwater.protocol.pattern import Rule
from headwater.protocol.strategy import strategy_of
from headwater.protocol.subscriptions import Subscription, parse_subscription
from headwater.protocol.table_descriptions import key_length
from headwater.protocol.text import listed, plural


@dataclass(frozen=True, slots=True)
class ReadRules:
    rules: tuple[Rule, ...]
    """In an order in which each comes after those whose composites it reads."""
    types: tuple[EventType, ...]
    """Event types that the text declares and that were not known before."""


def is_rule_text(content_type: str, data: bytes) -> bool:
    """Whether a body holds rules as they are, and not JSON. Tools that send files, or JSON, often call both a form."""
    if content_type.startswith("text/"):
        return True
    return not content_type.endswith("json") and not data.lstrip().startswith((b"{", b"["))


def plain_source(data: bytes, query: Mapping[str, str]) -> Source:
    """A body that holds rules as they are."""
    language_name = query.get("language")
    language = next((supported for supported in LANGUAGES.values() if supported == language_name), None)
    if language_name is not None and language is None:
        raise RequestRefused(400, f"language is {language_name!r:.40}; write one of {listed(LANGUAGES.values())}")
    return _source(data, language, query.get("name"), "body")


def rule_sources(texts: Sequence[RuleBody]) -> list[Source]:
    """The texts of a body, one or several."""
    names = ["body"] if len(texts) == 1 else [f"body-{number}" for number, _ in enumerate(texts, 1)]
    return [_source(body.text, body.language, body.name, name) for body, name in zip(texts, names, strict=True)]


def _source(text: str | bytes, language: Language | None, name: str | None, unnamed: str) -> Source:
    name = name or ""
    language = language or LANGUAGES.get(PurePath(name).suffix.lower())
    language = language or language_of(text.decode("utf-8", "replace") if isinstance(text, bytes) else text)
    return Source(text, name or f"{unnamed}.{language}", language)


def read_rules(
    sources: Sequence[Source],
    deployed: Mapping[str, Rule],
    types: Mapping[str, EventType],
    strategy: str,
    *,
    replaces: bool = False,
    tables: Collection[DescribedTable] = (),
    functions: DescribedFunctions | None = None,
) -> ReadRules:
    """The rules of texts, which may read what deployed rules emit. RuleTextError or RequestRefused if they cannot be
    served.

    The deployed rules are read again with them, as text, so that what one emits is known to the other, names stay
    unique, and circles are found. Those that the texts replace are not. ``tables``: the remote tables there are,
    and ``functions`` the file of functions that rules may call.
    """
    names = rule_names(sources)
    redeployed = [name for name in deployed if name in names]
    before = [_printed(rule) for name, rule in deployed.items() if name not in redeployed]
    try:
        parsed = parse_rules([*before, *sources], types.values(), declared(functions))
    except RuleTextError as error:
        files = {source.name for source in sources}
        own = [diagnostic for diagnostic in error.diagnostics if diagnostic.file in files]
        raise RuleTextError(own or error.diagnostics) from None
    if redeployed and not replaces:
        raise RequestRefused(409, already_deployed(redeployed))
    rules = tuple(rule for rule in parsed.rules if rule.name in names)
    for rule in rules:
        _check_served(rule, strategy, tables)
    new_types = tuple(event_type for name, event_type in parsed.types.items() if name not in types)
    return ReadRules(rules, new_types)


def _printed(rule: Rule) -> Source:
    for language in ("tesla", "sase"):
        try:
            return Source(print_rule(rule, language), f"deployed rule {rule.name}", language)
        except PrintError:
            continue
    raise RequestRefused(
        500, f"the deployed rule {rule.name!r} cannot be written as text, so nothing can be checked with it"
    )


def shown_rule(rule: Rule) -> tuple[str, str]:
    """A rule as text, and the language of the text."""
    source = _printed(rule)
    return str(source.text), source.language


def _check_served(rule: Rule, strategy: str, tables: Collection[DescribedTable]) -> None:
    window = getattr(rule.pattern.root, "window", None)
    if window is not None and window.unit == "events" and strategy_of(strategy).filters:
        raise RequestRefused(
            400,
            f"rule {rule.name!r} has a window that counts events, which only a place that sees them all can do; "
            f"the strategy of this network is {strategy}: give the rule a window of time",
        )
    needed, known = tables_of(rule), [table.name for table in tables]
    for name in sorted(needed - set(known)):
        hint = f"the tables are {listed(known)}" if known else "its file describes none"
        raise RequestRefused(
            400, f"rule {rule.name!r} looks into {name!r}, which is no remote table of this network; {hint}"
        )
    lengths = {table.name: key_length(table.description) for table in tables}
    for lookup in lookups_of(rule):
        length, given = lengths[lookup.table], len(lookup.arguments)
        if length is not None and length != given:
            raise RequestRefused(
                400,
                f"rule {rule.name!r} looks up {plural(given, 'value')} in the table {lookup.table!r}, "
                f"whose key has {length}",
            )


def read_subscription(
    text: str,
    deployed: Iterable[Rule],
    types: Mapping[str, EventType],
    functions: DescribedFunctions | None = None,
) -> Subscription:
    """The subscription of a text, or a RuleTextError."""
    known = [*types.values(), *composite_types(deployed).values()]
    return parse_subscription(text, "subscribe", known, declared(functions))
