"""What a node needs of this machine to ask its remote tables, where it does not see the machine's files by itself."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from headwater.deploy.network.remote_tables import FILES
from headwater.node.remote.secrets import FILE_OF_SECRET
from headwater.protocol.network import Network

VARIABLES: Final = ("password_env", "token_env")
"""Entries of descriptions that name a variable of the environment."""
_SERVICE: Final = re.compile(r"\bservice\s*=")


@dataclass(frozen=True, slots=True)
class TableInputs:
    """Without doubles, in order."""

    files: tuple[Path, ...]
    """Tables, and secrets in files; those that are there, for nodes say what is wrong with a table."""
    variables: tuple[str, ...]
    """Of the environment, with secrets; those that are set."""
    settings: Mapping[str, str]
    """Of the environment, without secrets."""


def table_inputs(network: Network, node: str, environment: Mapping[str, str]) -> TableInputs:
    """For the tables that a node reaches, and no others."""
    files: list[Path] = []
    variables: list[str] = []
    settings: dict[str, str] = {}
    for table in network.tables:
        if table.at and node not in table.at:
            continue
        entries: dict[str, Any] = yaml.safe_load(table.description)
        files += [Path(entries[word]) for word in FILES if word in entries]
        for variable in (entries[word] for word in VARIABLES if word in entries):
            variables.append(variable)
            if elsewhere := environment.get(variable + FILE_OF_SECRET):
                files.append(Path(elsewhere))
                settings[variable + FILE_OF_SECRET] = os.path.abspath(elsewhere)
        if "postgres" in entries:
            for name, file in _of_libpq(entries, environment).items():
                files.append(file)
                settings[name] = str(file)
    return TableInputs(
        tuple(dict.fromkeys(Path(os.path.abspath(file)) for file in files if file.is_file())),
        tuple(
            name
            for name in dict.fromkeys(variables)
            if environment.get(name, "").strip() and name + FILE_OF_SECRET not in settings
        ),
        {name: path for name, path in settings.items() if Path(path).is_file()},
    )


def _of_libpq(entries: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Path]:
    """The files where libpq looks services and passwords up, by the variable that names each."""
    home = Path(environment.get("HOME", "/"))
    files = {}
    if _SERVICE.search(entries["postgres"]):
        files["PGSERVICEFILE"] = Path(environment.get("PGSERVICEFILE") or home / ".pg_service.conf")
    if not any(word in entries for word in ("password_file", "password_env")):
        files["PGPASSFILE"] = Path(environment.get("PGPASSFILE") or home / ".pgpass")
    return {name: Path(os.path.abspath(file)) for name, file in files.items()}
