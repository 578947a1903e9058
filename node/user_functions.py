"""Runs a user's Python file for the functions in it, and guards the calls of them.

On one engine a function that fails ends the run. In a network the others must go on, and no placement may change what
is found: there a call that fails has no value, whichever node evaluates it, and is counted and said.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from headwater.node.tasks.rule_failures import NOTED
from headwater.protocol.errors import ConfigError
from headwater.protocol.files import new_file
from headwater.protocol.function_files import OFFERED, DescribedFunctions, digest_of, shown
from headwater.protocol.functions import Function, is_offered, offer

ARGUMENTS_SHOWN: Final = 200  # letters of the arguments of a call that has failed
VALUES: Final = "an int, a float, a str, a bool or None"
KEPT: Final = "functions"
"""The folder in a node's data folder with the files that its plans have named, by their hashes."""

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class CallFailed(Exception):
    """A user's function has raised, or has returned what is no value; the text says so in a sentence."""


def functions_in(content: bytes, file: Path) -> dict[str, Callable[..., Any]]:
    """Run the file; those in its dict FUNCTIONS, or else all functions with public names that it defines."""
    module = ModuleType(f"headwater_functions_{file.stem}")
    module.__file__ = str(file)
    try:
        exec(compile(content, str(file), "exec"), vars(module))
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{file} cannot be loaded: {type(error).__name__}: {error}") from None
    offered = getattr(module, OFFERED, None)
    if offered is None:
        offered = {
            name: function
            for name, function in vars(module).items()
            if not name.startswith("_") and inspect.isfunction(function) and function.__module__ == module.__name__
        }
    if not isinstance(offered, dict) or not offered or not all(callable(function) for function in offered.values()):
        raise ConfigError(f"{file} offers no functions: define some, or a dict FUNCTIONS of name to function")
    return offered


def parameters_of(function: Callable[..., Any]) -> tuple[str, ...] | None:
    """As many of any kind as the function takes, or None where that may vary or cannot be told."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(parameter.kind not in _POSITIONAL or parameter.default is not parameter.empty for parameter in parameters):
        return None
    return ("any",) * len(parameters)


def guarded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with a CallFailed where it raises or returns what is no value."""

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        try:
            result = function(*arguments)
        except Exception as error:
            raise CallFailed(f"function {_called(name, arguments)} failed: {type(error).__name__}: {error}") from error
        if result is None or type(result) in (int, float, str, bool):
            return result
        for kind in (int, float, str):  # a subclass, as numpy has them, which could not travel
            if isinstance(result, kind):
                return kind(result)
        raise CallFailed(
            f"function {_called(name, arguments)} returned a {type(result).__name__}; it may return {VALUES}"
        )

    return call


def _called(name: str, arguments: tuple[Any, ...]) -> str:
    shown_arguments = ", ".join(map(repr, arguments))
    if len(shown_arguments) > ARGUMENTS_SHOWN:
        shown_arguments = f"{shown_arguments[:ARGUMENTS_SHOWN]}.."
    return f"{name}({shown_arguments})"


def offer_file(content: bytes, file: Path) -> str:
    """Have the functions of a file at hand, as nodes call them; the hash of the file."""
    digest = digest_of(content)
    if not is_offered(digest):
        functions = functions_in(content, file)
        offer(digest, {name: _noting(name, function) for name, function in functions.items()})
    return digest


def _noting(name: str, function: Callable[..., Any]) -> Function:
    attempt = guarded(name, function)

    def call(*arguments: Any) -> Any:
        try:
            return attempt(*arguments)
        except CallFailed as failure:
            NOTED.note(f"function {name}", f"{failure}; it has no value there")
            return None

    return Function(name, call, parameters_of(function))


class NodeFunctions:
    """The functions of one node process: whether it may run any, and where their files are."""

    def __init__(self, data: Path, *, allowed: bool, file: Path | None = None) -> None:
        """``file``: the file on this machine; None: it is where the network file names it."""
        self._kept = data / KEPT
        self._allowed = allowed
        self._file = file

    def offer_kept(self) -> None:
        """Load what earlier plans of this node have named, so that it can go on with them whatever became of the file
        since."""
        if not self._allowed or not self._kept.is_dir():
            return
        for copy in sorted(self._kept.glob("*.py")):
            content = copy.read_bytes()
            if digest_of(content) == copy.stem:
                offer_file(content, copy)

    def refusal(self, described: DescribedFunctions) -> str:
        """Load the functions that a network describes. Why they cannot be run here, in a sentence; empty: they can."""
        if not self._allowed:
            return (
                f"it was not started with --allow-functions, and the network has functions in {described.file} (hash "
                f"{shown(described.digest)}); start it with --allow-functions if you trust that file"
            )
        if is_offered(described.digest):
            return ""
        file = self._file or Path(described.file)
        try:
            content = file.read_bytes()
        except OSError as error:
            return (
                f"it cannot read the functions in {file}: {error.strerror}; copy the file there (hash "
                f"{shown(described.digest)}), or name it with --functions"
            )
        if (digest := digest_of(content)) != described.digest:
            return (
                f"its {file} has the hash {shown(digest)}, and the plan asks for {shown(described.digest)}; copy the "
                f"file of the coordinator's machine there and start the node again"
            )
        try:
            offer_file(content, file)
        except ConfigError as error:
            return f"{error}; correct the file on every machine and start the network anew"
        self._kept.mkdir(parents=True, exist_ok=True)
        with new_file(self._kept / f"{digest}.py") as out:
            out.write(content)
        return ""
