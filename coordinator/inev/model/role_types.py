"""Event types as the roles of rules read them: all events of a type, or those that meet a role's own conditions."""

from __future__ import annotations

from typing import Self


class RoleType(str):
    """The events of a type that meet the conditions of one role, as a type of its own in queries.

    It is the text that people read, ``Temp[value > 45]``, so that it can stand wherever a query has the name of an
    event type. Two are the same if their texts are.
    """

    name: str
    """The event type as sources and nodes know it."""
    conditions: str
    """What its events must meet."""

    def __new__(cls, name: str, conditions: str) -> Self:
        role_type = super().__new__(cls, f"{name}[{conditions}]")
        role_type.name = name
        role_type.conditions = conditions
        return role_type

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]
        return self.name, self.conditions


def born_type(type: str) -> str:
    """The event type of which a query reads all events or some."""
    return type.name if isinstance(type, RoleType) else type
