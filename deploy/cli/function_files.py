"""Functions for rules from a Python file."""

from __future__ import annotations

import functools
import importlib.util
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headwater.deploy.cli.common import RunFailed
from headwater.protocol.errors import ConfigError
from headwater.protocol.functions import Functions


def load_functions(file: Path | None) -> Functions:
    """The built-in functions and, from a Python file, those in its FUNCTIONS dict or else all its public functions."""
    functions = Functions()
    if file is None:
        return functions
    if not file.is_file():
        raise ConfigError(f"there is no file {file} to take functions from")
    spec = importlib.util.spec_from_file_location(f"headwater_functions_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{file} is not a Python file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{file} cannot be loaded: {type(error).__name__}: {error}") from None
    offered = getattr(module, "FUNCTIONS", None)
    if offered is None:
        offered = {
            name: function
            for name, function in vars(module).items()
            if not name.startswith("_") and inspect.isfunction(function) and function.__module__ == module.__name__
        }
    if not isinstance(offered, dict) or not offered or not all(callable(function) for function in offered.values()):
        raise ConfigError(f"{file} offers no functions: define some, or a dict FUNCTIONS of name to function")
    for name, function in offered.items():
        functions.register(name, _guarded(name, function), _parameters(function))
    return functions


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _parameters(function: Callable[..., Any]) -> tuple[str, ...] | None:
    """As many of any kind as the function takes, or None where that may vary or cannot be told."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(parameter.kind not in _POSITIONAL or parameter.default is not parameter.empty for parameter in parameters):
        return None
    return ("any",) * len(parameters)


def _guarded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        try:
            result = function(*arguments)
        except Exception as error:
            shown = ", ".join(map(repr, arguments))
            raise RunFailed(f"function {name}({shown}) failed: {type(error).__name__}: {error}") from error
        if result is not None and not isinstance(result, int | float | str):
            shown = ", ".join(map(repr, arguments))
            raise RunFailed(
                f"function {name}({shown}) returned a {type(result).__name__}; it may return an int, a float, a str, "
                "a bool or None"
            )
        return result

    return call
