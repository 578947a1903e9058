"""Which rules read what others emit."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.protocol.errors import RuleError
from headwater.protocol.pattern import Rule, types_of


def in_dependency_order(rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """Rules after those whose composites they read; a RuleError that names the cycle if there is none."""
    names: set[str] = set()
    for rule in rules:
        if rule.name in names:
            raise RuleError(f"two rules are named {rule.name!r}; give one of them another name")
        names.add(rule.name)
    producers: dict[str, list[Rule]] = {}
    for rule in rules:
        producers.setdefault(rule.emits, []).append(rule)
    done: dict[str, Rule] = {}
    path: list[str] = []

    def visit(rule: Rule) -> None:
        if rule.name in done:
            return
        if rule.name in path:
            raise RuleError(
                f"rules read each other in a circle: {' -> '.join([*path[path.index(rule.name) :], rule.name])}"
            )
        path.append(rule.name)
        for name in sorted(types_of(rule.pattern)):
            for producer in producers.get(name, []):
                visit(producer)
        path.pop()
        done[rule.name] = rule

    for rule in rules:
        visit(rule)
    return tuple(done.values())
