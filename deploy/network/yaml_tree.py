"""The tree of a YAML file as plain values that know their places."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import yaml

_NOWHERE: Final = yaml.MappingNode("tag:yaml.org,2002:map", [])


class Scalar(str):
    """A value exactly as written."""

    __slots__ = ("node",)
    node: yaml.ScalarNode


class ItemList(list[Any]):
    """A list; ``places`` are those of its items. ``broken``: an item with a mistake was left out."""

    def __init__(self, items: Iterable[Any] = (), places: Iterable[yaml.Node] = (), *, broken: bool = False) -> None:
        super().__init__(items)
        self.places = list(places)
        self.broken = broken
        self.node: yaml.Node = _NOWHERE


class KeyTable(dict[str, Any]):
    """A mapping; ``entries`` has the places of keys and values, ``odd`` those of keys that cannot be one. ``broken``:
    the keys of entries with a mistake in them, which were left out, in whole or in part."""

    def __init__(
        self,
        values: Mapping[str, Any] | None = None,
        entries: Mapping[str, tuple[yaml.Node, yaml.Node]] | None = None,
        broken: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__(values or {})
        self.entries: dict[str, tuple[yaml.Node, yaml.Node]] = dict(entries or {})
        self.broken = broken
        self.odd: list[yaml.Node] = []
        self.node: yaml.MappingNode = _NOWHERE


def tree_of(node: yaml.Node) -> Any:
    """The values below a node. What stands twice by an alias is one value, and may even hold itself."""
    values: dict[int, Any] = {}

    def value(node: yaml.Node) -> Any:
        if id(node) in values:
            return values[id(node)]
        if isinstance(node, yaml.MappingNode):
            table = values[id(node)] = KeyTable()
            table.node = node
            for key, inside in node.value:
                if not isinstance(key, yaml.ScalarNode) or str(key.value) in table.entries:
                    table.odd.append(key)
                    continue
                name = _scalar(key)
                table.entries[name] = (key, inside)
                table[name] = value(inside)
            return table
        if isinstance(node, yaml.SequenceNode):
            items = values[id(node)] = ItemList(places=node.value)
            items.node = node
            items.extend(value(item) for item in node.value)
            return items
        return None if is_null(node) else _scalar(node)

    return value(node)


def _scalar(node: yaml.Node) -> Scalar:
    assert isinstance(node, yaml.ScalarNode)
    scalar = Scalar(node.value)
    scalar.node = node
    return scalar


def is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null" and node.style is None


def steps_of(tree: Any, loc: Iterable[int | str]) -> list[int | str]:
    """The steps of a location in pydantic's sense that lead through the tree: the others name shapes of an entry, keys
    that are missing, or the entry that a value is short for."""
    steps: list[int | str] = []
    for step in loc:
        if isinstance(tree, KeyTable) and step in tree:
            tree = tree[str(step)]
        elif isinstance(tree, ItemList) and isinstance(step, int) and step < len(tree):
            tree = tree[step]
        else:
            continue
        steps.append(step)
    return steps


def place_of(tree: Any, steps: Iterable[int | str]) -> tuple[yaml.Node, yaml.Node]:
    """Where an entry stands: its key, which for an item of a list is the item, and its value."""
    for step in steps:
        place = tree.entries[str(step)] if isinstance(tree, KeyTable) else (tree.places[step],) * 2
        tree = tree[step]
    return place


ODD: Final = -1


def without(tree: Any, steps: list[int | str]) -> Any:
    """The tree without an entry, or, where the last step is ODD, without the odd keys of a mapping."""
    if isinstance(tree, ItemList):
        (step, *rest) = steps
        assert isinstance(step, int)
        kept = [item for at, item in enumerate(tree) if at != step or rest]
        places = [place for at, place in enumerate(tree.places) if at != step or rest]
        if rest:
            kept[step] = without(tree[step], rest)
        items = ItemList(kept, places, broken=True)
        items.node = tree.node
        return items
    table = KeyTable(tree, tree.entries, tree.broken)
    table.node, table.odd = tree.node, tree.odd if steps != [ODD] else []
    if steps == [ODD]:
        table.broken |= {""}
    else:
        name, *rest = steps
        table.broken |= {str(name)}
        if rest:
            table[str(name)] = without(tree[name], rest)
        else:
            del table[str(name)]
    return table
