"""Functions for rules from a Python file."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headwater.deploy.cli.common import RunFailed
from headwater.node.user_functions import CallFailed, functions_in, guarded, parameters_of
from headwater.protocol.errors import ConfigError
from headwater.protocol.functions import Functions


def load_functions(file: Path | None) -> Functions:
    """The built-in functions and, from a Python file, those in its FUNCTIONS dict or else all its public functions. One
    that fails ends the run."""
    functions = Functions()
    if file is None:
        return functions
    if not file.is_file():
        raise ConfigError(f"there is no file {file} to take functions from")
    if file.suffix != ".py":
        raise ConfigError(f"{file} is not a Python file; its name must end in .py")
    for name, function in functions_in(file.read_bytes(), file).items():
        functions.register(name, _ending_the_run(name, function), parameters_of(function))
    return functions


def _ending_the_run(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    attempt = guarded(name, function)

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        try:
            return attempt(*arguments)
        except CallFailed as failure:
            raise RunFailed(str(failure)) from failure.__cause__

    return call
