"""Dependencies point one way: protocol <- node, coordinator <- deploy; pipeline talks to the rest through protocol."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent.parent.parent
MAY_IMPORT = {
    "protocol": {"protocol"},
    "node": {"protocol", "node"},
    "coordinator": {"protocol", "coordinator"},
    "pipeline": {"protocol", "pipeline"},
    "deploy": {"protocol", "node", "coordinator", "pipeline", "deploy"},
}


def imported(file: Path) -> Iterator[tuple[int, str]]:
    """Line and full name of every module that a module imports, at the top or inside a function."""
    for syntax in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(syntax, ast.Import):
            for alias in syntax.names:
                yield syntax.lineno, alias.name
        elif isinstance(syntax, ast.ImportFrom):
            assert syntax.level == 0, f"{file}:{syntax.lineno}: relative imports hide the direction"
            for alias in syntax.names:
                yield syntax.lineno, f"{syntax.module}.{alias.name}"


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_imports_point_one_way(package: str) -> None:
    others = MAY_IMPORT.keys() - MAY_IMPORT[package]
    wrong = [
        f"{file.relative_to(PROJECT)}:{line} imports {name}"
        for file in sorted((PROJECT / package).rglob("*.py"))
        for line, name in imported(file)
        if name.split(".")[0] in ("tests", "benchmarks") or (name.split(".")[0] == "headwater" and part(name) in others)
    ]
    assert not wrong, "\n".join(wrong)


def part(name: str) -> str:
    """The folder that a module of the package is in; for a public name of the package itself that name."""
    return name.split(".")[1]


@pytest.mark.parametrize("folder", [*MAY_IMPORT, "headwater", "tests", "benchmarks", "examples", "scripts"])
def test_everything_is_imported_as_headwater(folder: str) -> None:
    """In a checkout Python would find the folders under their own names, too: as other modules with other classes."""
    wrong = [
        f"{file.relative_to(PROJECT)}:{line} imports {name}"
        for file in sorted((PROJECT / folder).rglob("*.py"))
        for line, name in imported(file)
        if name.split(".")[0] in MAY_IMPORT
    ]
    assert not wrong, "\n".join(wrong)


WRAPPERS = {"headwater.node.edge.qos1_broker", "headwater.node.edge.mqtt_clients"}
"""Modules around a heavy library, which others import only where they need one: inside of functions."""


def test_importing_the_protocol_loads_nothing_heavy() -> None:
    heavy = {"pyarrow", "typer", "rich", "numpy", "pyspark", "yaml", "aiomqtt", "amqtt", "paho", "aiohttp"}
    for package in ("headwater", "protocol", "node"):
        for file in (PROJECT / package).rglob("*.py"):
            at_once = set(imported_at_once(file))
            assert not WRAPPERS & at_once, file
            if f"headwater.node.edge.{file.stem}" not in WRAPPERS:
                assert not heavy & {name.split(".")[0] for name in at_once}, file


def imported_at_once(file: Path) -> Iterator[str]:
    """What importing a module imports: not what its functions do when they are called, nor what only types need."""
    waiting: list[ast.AST] = [ast.parse(file.read_text(encoding="utf-8"))]
    while waiting:
        syntax = waiting.pop()
        if isinstance(syntax, ast.Import):
            yield from (alias.name for alias in syntax.names)
        elif isinstance(syntax, ast.ImportFrom):
            yield syntax.module or ""
        elif isinstance(syntax, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        elif isinstance(syntax, ast.If) and ast.unparse(syntax.test) == "TYPE_CHECKING":
            waiting.extend(syntax.orelse)
        else:
            waiting.extend(ast.iter_child_nodes(syntax))
