"""Reads traces that ``headwater traces`` has prepared: a folder of Parquet files by node, in trace order."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import unquote

from headwater.protocol.errors import ConfigError

MANIFEST: Final = "manifest.json"
EVENTS: Final = "events"
NODE_PREFIX: Final = "node="


def is_prepared(path: str) -> bool:
    return (Path(path) / MANIFEST).is_file()


def files_of(path: str, node: str) -> list[str]:
    """The files with the events of a node, in trace order; a ConfigError if the trace knows no such node."""
    folders = {unquote(folder.name.removeprefix(NODE_PREFIX)): folder for folder in nodes_in(path)}
    if node not in folders:
        nodes = ", ".join(sorted(folders)[:10]) + (", .." if len(folders) > 10 else "")
        raise ConfigError(f"the trace {path} has no events of the node {node}; it has those of {nodes}")
    return sorted(str(file) for file in folders[node].glob("*.parquet"))


def nodes_in(path: str) -> list[Path]:
    return sorted(folder for folder in (Path(path) / EVENTS).glob(f"{NODE_PREFIX}*") if folder.is_dir())


def any_file(path: str) -> str:
    """One of the files, to see what columns they have."""
    for folder in nodes_in(path):
        for file in sorted(folder.glob("*.parquet")):
            return str(file)
    raise ConfigError(f"the trace {path} has no events; prepare it again with headwater traces")
