"""What programs may write for rules, event types, functions and columns, as the rest of the package takes it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from headwater.protocol.edge import TIME_UNITS, Layout
from headwater.protocol.errors import ConfigError
from headwater.protocol.events import EventType, Value
from headwater.protocol.functions import Functions
from headwater.protocol.languages import Source, language_of
from headwater.protocol.languages.rule_texts import LANGUAGES

if TYPE_CHECKING:
    from headwater.node.remote.tables import Tables

RuleText: TypeAlias = "str | os.PathLike[str] | Source"
"""Rules as a text, or as the path of a ``.tesla`` or ``.sase`` file."""
Types: TypeAlias = "Iterable[EventType] | Mapping[str, Mapping[str, str]]"
TimeUnit: TypeAlias = Literal["s", "ms", "us", "ns", "iso"]
RemoteCache: TypeAlias = Literal["lru", "cost"]
RemoteStrategy: TypeAlias = Literal["block", "cache", "last", "prefetch", "lazy", "hybrid"]

RULES_ACCEPTED: Final = "give a text, the path of a .tesla or .sase file, a list of these, or what parse_rules returned"


def rule_sources(rules: RuleText | Iterable[RuleText]) -> list[Source]:
    if isinstance(rules, str | os.PathLike | Source):
        return [_rule_source(rules, "rule")]
    texts = list(rules)
    if not texts:
        raise ConfigError(f"there are no rules; {RULES_ACCEPTED}")
    return [_rule_source(text, f"rule_{number}") for number, text in enumerate(texts, 1)]


def _rule_source(text: RuleText, name: str) -> Source:
    if isinstance(text, Source):
        return text
    if isinstance(text, str) and not _is_path(text):
        return Source(text, name, language_of(text))
    if not isinstance(text, str | os.PathLike):
        raise ConfigError(f"{text!r:.60} is not a rule; {RULES_ACCEPTED}")
    path = Path(text)
    if not path.is_file():
        raise ConfigError(f"there is no rule file {path}")
    return Source.from_path(path)


def _is_path(text: str) -> bool:
    """A line that ends like the name of a rule file is one: no rule ends so."""
    return "\n" not in text and Path(text.strip()).suffix.lower() in LANGUAGES


def declared_list(types: Types) -> list[EventType]:
    if isinstance(types, Mapping) and all(isinstance(attributes, Mapping) for attributes in types.values()):
        return [EventType(name, attributes) for name, attributes in types.items()]
    declared = [] if isinstance(types, Mapping | str) else list(types)
    if isinstance(types, Mapping | str) or not all(isinstance(event_type, EventType) for event_type in declared):
        raise ConfigError(
            f"types is {types!r:.60}; write {{'Name': {{'attribute': 'kind', ..}}, ..}} or a list of EventType objects"
        )
    return declared


def registered(mapping: Functions | Mapping[str, Callable[..., Value]] | None) -> Functions:
    if isinstance(mapping, Functions):
        return mapping
    functions = Functions()
    for name, call in (mapping or {}).items():
        functions.register(name, call)
    return functions


def layout_of(time_column: str, type_column: str, time_unit: TimeUnit | None) -> Layout:
    if time_unit is not None and time_unit not in TIME_UNITS:
        raise ConfigError(f"{time_unit!r} is not a unit of time; give one of {', '.join(TIME_UNITS)}")
    if time_column == type_column:
        raise ConfigError(f"the column {time_column!r} cannot hold both the time and the type")
    return Layout(time_column, time_unit, type_column)


def remote_tables(
    tables: Mapping[str, Any],
    strategy: str,
    cache: str = "lru",
    priorities: Mapping[str, float] | None = None,
    strategies: Mapping[str, str] | None = None,
    *,
    lineage: bool = False,
) -> Tables | None:
    """What an engine looks values up in, by name of the table; None where it only has objects with ``lookup``, and does
    not note what they give."""
    if not lineage and all(hasattr(table, "lookup") for table in tables.values()):
        return None
    from headwater.deploy.descriptions.remote import table_from_python
    from headwater.node.remote.tables import Tables

    given = {name: table_from_python(name, table) for name, table in tables.items()}
    return Tables(given, strategy, cache=cache, strategies=strategies, priorities=priorities, lineage=lineage)
