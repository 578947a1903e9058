"""The file of Python functions that the rules of a network may call, as plans and processes name it.

Code never travels: a plan carries the hash of the file and the names in it, and each node runs its own copy, if it was
started with ``--allow-functions`` and the copy has that hash. What only reads rules (the coordinator, ``headwater
check``) takes the names from the text of the file and runs none of it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from headwater.protocol.errors import ConfigError
from headwater.protocol.expressions import Call, Expression, walk
from headwater.protocol.functions import Function, Functions, file_digests, in_file
from headwater.protocol.pattern import Rule
from headwater.protocol.subscriptions import Subscription

OFFERED: Final = "FUNCTIONS"
"""The dict of a file that says which functions it offers; without it, it offers all that have public names."""
SHOWN: Final = 12  # digits of a hash, for people


@dataclass(frozen=True, slots=True)
class FunctionSignature:
    """A function of the file."""

    name: str
    parameters: int | None
    """How many arguments it takes; None: that may vary."""


@dataclass(frozen=True, slots=True)
class DescribedFunctions:
    """A file of functions."""

    file: str
    """Its whole name on the machine where the network file was read."""
    digest: str
    """The SHA-256 of its bytes."""
    functions: tuple[FunctionSignature, ...]

    def declared(self) -> Functions:
        """What rules may call, for reading them. These functions cannot be run."""
        functions = Functions()
        for each in self.functions:
            kinds = None if each.parameters is None else ("any",) * each.parameters
            functions.declare(each.name, Function(in_file(each.name, self.digest), _not_run, kinds))
        return functions


def declared(described: DescribedFunctions | None) -> Functions:
    """What the rules of a network may call, for reading them."""
    return Functions() if described is None else described.declared()


def digest_of(content: bytes) -> str:
    return sha256(content).hexdigest()


def shown(digest: str) -> str:
    """A hash for people."""
    return digest[:SHOWN]


def described(content: bytes, file: str) -> DescribedFunctions:
    """What a file offers, read from its text without running it; ConfigError if that is nothing."""
    try:
        module = ast.parse(content, file)
    except (SyntaxError, ValueError, RecursionError) as error:
        line = f":{error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        what = error.msg if isinstance(error, SyntaxError) else str(error)
        raise ConfigError(f"{file}{line}: this is not Python: {what}") from None
    defined = {function.name: function for function in _defined(module.body)}
    signatures = _listed(module, defined, file)
    if signatures is None:
        signatures = [_signature(name, function) for name, function in defined.items() if not name.startswith("_")]
    if not signatures:
        raise ConfigError(f"{file} offers no functions: define some, or a dict FUNCTIONS of name to function")
    read = DescribedFunctions(file, digest_of(content), tuple(signatures))
    read.declared()  # names that are taken are said now
    return read


def digests_of(rules: Iterable[Rule], subscriptions: Iterable[Subscription] = ()) -> set[str]:
    """The hashes of the files whose functions these call."""
    expressions: list[Expression] = []
    for rule in rules:
        expressions += (*rule.pattern.where, *(output.value for output in rule.attributes))
    expressions += [conjunct for subscription in subscriptions for conjunct in subscription.where]
    calls = (part.function for expression in expressions for part in walk(expression) if isinstance(part, Call))
    return file_digests(calls)


def _not_run(*_arguments: Any) -> Any:
    raise AssertionError("functions that were only read from a file cannot be called")


def _defined(statements: Iterable[ast.stmt]) -> Iterator[ast.FunctionDef]:
    """The functions that a module defines, those under ``if`` and ``try`` included."""
    for statement in statements:
        match statement:
            case ast.FunctionDef():
                yield statement
            case ast.If() | ast.Try() | ast.With():
                for block in ("body", "handlers", "orelse", "finalbody"):
                    yield from _defined(getattr(statement, block, ()))
            case ast.ExceptHandler():
                yield from _defined(statement.body)


def _listed(module: ast.Module, defined: dict[str, ast.FunctionDef], file: str) -> list[FunctionSignature] | None:
    """What the dict FUNCTIONS of the file names; None if it has none."""
    for statement in module.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name == OFFERED:
                pass
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value) if name == OFFERED:
                pass
            case _:
                continue
        match value:
            case ast.Dict(keys=keys, values=values):
                names = [key.value if isinstance(key, ast.Constant) else None for key in keys]
                if all(isinstance(name, str) for name in names):
                    return [
                        _signature(str(name), _named(held, defined)) for name, held in zip(names, values, strict=True)
                    ]
        raise ConfigError(
            f'{file}:{statement.lineno}: FUNCTIONS must be written out, as in FUNCTIONS = {{"risk": risk}}: its names '
            f"are read without running the file"
        )
    return None


def _named(value: ast.expr, defined: dict[str, ast.FunctionDef]) -> ast.FunctionDef | None:
    return defined.get(value.id) if isinstance(value, ast.Name) else None


def _signature(name: str, function: ast.FunctionDef | None) -> FunctionSignature:
    if function is None or function.decorator_list:
        return FunctionSignature(name, None)
    arguments = function.args
    if arguments.vararg or arguments.kwarg or arguments.kwonlyargs or arguments.defaults:
        return FunctionSignature(name, None)
    return FunctionSignature(name, len(arguments.posonlyargs) + len(arguments.args))
