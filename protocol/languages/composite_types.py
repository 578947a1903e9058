"""The types of the composite events that rules emit."""

from __future__ import annotations

from collections.abc import Iterable

from headwater.protocol.events import RESERVED_ATTRIBUTES, EventType
from headwater.protocol.languages.rule_texts import common_kind
from headwater.protocol.pattern import Rule


def composite_types(rules: Iterable[Rule]) -> dict[str, EventType]:
    """What the rules emit; where several emit the same type, with the kinds that hold all their values."""
    kinds: dict[str, dict[str, str]] = {}
    for rule in rules:
        attribute_kinds = kinds.setdefault(rule.emits, {})
        for attribute in rule.attributes:
            if attribute.name not in RESERVED_ATTRIBUTES:
                attribute_kinds[attribute.name] = common_kind(
                    attribute.kind, attribute_kinds.get(attribute.name, attribute.kind)
                )
    return {
        name: EventType(name, {attribute: kind + "?" for attribute, kind in attributes.items()})
        for name, attributes in kinds.items()
    }
