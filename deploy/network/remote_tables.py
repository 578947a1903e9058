"""The section ``remote:`` of a network file: which tables there are, and what nodes must know to ask them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any, Final

import yaml

from headwater.deploy.descriptions.remote import NAME, part_in
from headwater.deploy.descriptions.remote_models import DescribedAt, FileTablePart, PythonPart, TablePart
from headwater.deploy.network.file import DescribedTables
from headwater.deploy.network.sections import known_node
from headwater.deploy.network.yaml_file import Sheet
from headwater.deploy.network.yaml_tree import Scalar, tree_of
from headwater.node.remote.policies import POLICIES
from headwater.protocol.errors import HeadwaterError
from headwater.protocol.languages import Diagnostic
from headwater.protocol.network import DescribedTable
from headwater.protocol.remote import RemoteTable, TableShape
from headwater.protocol.table_descriptions import key_length
from headwater.protocol.text import suggestion

EXAMPLE: Final = "write limits: {file: limits.csv}"
_PRIORITY: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
READ_BYTES_MAX: Final = 10_000_000
"""A file of elements that is larger is not read before a node needs it."""
FILES: Final = ("file", "sqlite", "password_file", "token_file")
"""Entries that name a file beside the network file."""


def tables_of(sheet: Sheet, section: yaml.Node, nodes: Mapping[str, yaml.Node]) -> DescribedTables:
    """The tables of the section; mistakes are noted in the sheet."""
    if not isinstance(section, yaml.MappingNode):
        sheet.error(section, "remote: names tables, each with its provider", EXAMPLE)
        return DescribedTables()
    tables: list[DescribedTable] = []
    only_simulated: list[Diagnostic] = []
    shapes: dict[str, TableShape] = {}
    for key, value in section.value:
        name = str(key.value)
        if not isinstance(key, yaml.ScalarNode) or not NAME.fullmatch(name):
            sheet.error(key, "a table must have a name of letters, digits and _", "as in limits: {..}")
            continue
        if name in shapes:
            sheet.error(key, f"there are two tables {name}", "call one of them otherwise")
            continue
        shapes[name] = TableShape()
        described, places = _apart(value)
        at = tuple(_nodes(sheet, places, nodes))
        part = part_in(sheet, name, described)
        if part is None:
            continue
        if isinstance(part, PythonPart):
            message = f"the table {name} is a function, which only a simulation and headwater run call"
            at_mark = part.place.start_mark.index
            only_simulated.append(sheet.source.diagnostic(at_mark, message, "name another provider"))
        everywhere = set(at) == set(nodes)
        text = _text(tree_of(described), sheet.path.parent)
        tables.append(DescribedTable(name, text, () if everywhere else at, *astuple(part.terms)))
        shapes[name] = _shape(part, text, sheet.path.parent)
    return DescribedTables(tuple(tables), shapes, tuple(only_simulated))


def _shape(part: TablePart, text: str, folder: Path) -> TableShape:
    """What is known of a table without asking for it. A file may lie on other machines than this one, and a large one
    is not read only for this."""
    if isinstance(part, FileTablePart):
        try:
            if (folder / str(part.file)).stat().st_size <= READ_BYTES_MAX:
                table = part.table(DescribedAt(folder))
                return table.shape() if isinstance(table, RemoteTable) else TableShape()
        except (OSError, HeadwaterError):
            pass  # the nodes that read it say what is wrong with it
    length = key_length(text)
    return TableShape(frozenset(() if length is None else (length,)))


def priorities_of(sheet: Sheet, section: yaml.Node, rules: Sequence[str]) -> tuple[tuple[str, float], ...]:
    """The priorities of rules for remote data; mistakes are noted in the sheet."""
    if not isinstance(section, yaml.MappingNode):
        sheet.error(section, "remote_priorities: names rules, each with a number", "write Raised: 3")
        return ()
    priorities: dict[str, float] = {}
    for key, value in section.value:
        rule = str(key.value)
        if rule not in rules:
            sheet.error(key, f"there is no rule {rule!r}", suggestion(rule, rules, "rules"))
        elif rule in priorities:
            sheet.error(key, f"{rule} has two priorities", "leave one of them out")
        elif not isinstance(value, yaml.ScalarNode) or not _PRIORITY.fullmatch(value.value) or not float(value.value):
            sheet.error(value, f"the priority of {rule} is no number above 0", f"write {rule}: 3")
        else:
            priorities[rule] = float(value.value)
    return tuple(priorities.items())


def strategies_of(sheet: Sheet, section: yaml.Node, rules: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """The remote strategies of single rules; mistakes are noted in the sheet."""
    if not isinstance(section, yaml.MappingNode):
        sheet.error(section, "remote_strategies: names rules, each with a strategy", "write Raised: lazy")
        return ()
    strategies: dict[str, str] = {}
    for key, value in section.value:
        rule, strategy = str(key.value), str(value.value)
        if rule not in rules:
            sheet.error(key, f"there is no rule {rule!r}", suggestion(rule, rules, "rules"))
        elif rule in strategies:
            sheet.error(key, f"{rule} has two remote strategies", "leave one of them out")
        elif strategy not in POLICIES:
            sheet.error(
                value,
                f"the remote strategy of {rule} is unknown",
                suggestion(strategy, list(POLICIES), "strategies"),
            )
        else:
            strategies[rule] = strategy
    return tuple(strategies.items())


def _apart(node: yaml.Node) -> tuple[yaml.Node, yaml.Node | None]:
    """What describes the provider, and the nodes that reach it."""
    if not isinstance(node, yaml.MappingNode):
        return node, None
    places = [value for key, value in node.value if key.value == "at"]
    rest = [(key, value) for key, value in node.value if key.value != "at"]
    if not places:
        return node, None
    return yaml.MappingNode(node.tag, rest, node.start_mark, node.end_mark, node.flow_style), places[0]


def _nodes(sheet: Sheet, places: yaml.Node | None, nodes: Mapping[str, yaml.Node]) -> list[str]:
    if places is None:
        return []
    tree = tree_of(places)
    names = [tree] if isinstance(tree, Scalar) else tree
    if not isinstance(names, list | tuple) or not names or not all(isinstance(name, Scalar) for name in names):
        sheet.error(places, "at: names the nodes that reach the table", "write at: [p3, p4]")
        return []
    known = [known_node(sheet, name, nodes) for name in names]
    return list(dict.fromkeys(name for name in known if name is not None))


def _text(tree: Any, folder: Path) -> str:
    """The description for node processes, which run elsewhere: with the whole names of files."""
    entries: dict[str, Any] = {"file": tree} if isinstance(tree, Scalar) else dict(tree.items())
    plain: dict[str, Any] = {}
    for key, value in entries.items():
        if isinstance(value, Scalar):
            plain[str(key)] = str((folder / value).absolute()) if key in FILES else str(value)
        else:
            plain[str(key)] = [str(item) for item in value]
    return yaml.safe_dump(plain, default_flow_style=True, allow_unicode=True, width=1 << 30, sort_keys=False).strip()
