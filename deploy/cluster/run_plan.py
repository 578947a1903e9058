"""The plan of a run: which processes there are, as plain data that ``up`` writes and the keeper reads."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal
from urllib.parse import quote

COORDINATOR: Final = "@coordinator"
BROKER: Final = "@broker"
"""Names of processes that are no nodes; no node is called so."""

Kind = Literal["local", "netns", "mininet", "containers"]
KINDS: Final = ("local", "netns", "mininet", "containers")
Role = Literal["node", "coordinator", "broker"]


def file_name(name: str) -> str:
    """The name of a process as a name of a file: any name will do, and two names never give the same."""
    quoted = quote(name, safe="@ ")
    return quoted.replace(".", "%2E", 1) if quoted.startswith(".") else quoted


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process that the keeper starts and starts again when it dies."""

    name: str
    role: Role
    arguments: tuple[str, ...] = ()
    """What follows ``headwater`` on its command line."""
    command: tuple[str, ...] | None = None
    """Another program with its arguments in place of ``headwater``: the client that holds a container."""
    ending: tuple[str, ...] | None = None
    """A program that asks it to end, where a signal to the child of the keeper is not enough."""
    namespace: str | None = None
    """The file of the network namespace that it runs in; None: the machine's own."""
    log: str
    data: str | None = None
    address: str | None = None
    """Where others reach it, for people; what neighbours dial is told by the coordinator."""
    http: str | None = None
    """``host:port`` where this machine reaches its pages."""
    pid_file: str | None = None
    """Where the process id of what really runs is written, if it is not the child of the keeper itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """A run: what is started where, and what must be taken away afterwards."""

    name: str
    kind: Kind
    network: str
    """The network file."""
    processes: tuple[Process, ...]
    stage: dict[str, Any] = field(default_factory=dict)
    """What the backend made and must remove: names of namespaces, bridges, containers."""
    token_file: str | None = None
    drain_s: float = 10.0
    """So long may processes take to end in peace."""
    forks: bool = True
    """Whether the keeper forks processes from itself, which is faster, or starts a fresh interpreter for each."""

    def coordinator(self) -> Process:
        return next(process for process in self.processes if process.role == "coordinator")

    def nodes(self) -> list[Process]:
        return [process for process in self.processes if process.role == "node"]

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2, ensure_ascii=False)


def plan_from_json(text: str) -> RunPlan:
    fields = json.loads(text)
    processes = []
    for process in fields.pop("processes"):
        process["arguments"] = tuple(process["arguments"])
        for name in ("command", "ending"):
            if process[name] is not None:
                process[name] = tuple(process[name])
        processes.append(Process(**process))
    return RunPlan(processes=tuple(processes), **fields)
