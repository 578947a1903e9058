"""The interface of the four backends, and what they share: where every process listens, and its command line."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from headwater.deploy.cluster.run_plan import BROKER, COORDINATOR, Kind, Process, RunPlan, file_name
from headwater.deploy.cluster.runs import Run, write_whole
from headwater.deploy.network.file import NetworkFile

NODE_PORT: Final = 5000
HTTP_PORT: Final = 8080
"""Ports of a node that has addresses of its own. On shared addresses every process gets free ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What the caller of ``up`` asks for."""

    file: NetworkFile
    data: Path
    """Where processes keep their data, each in a folder of its own."""
    strategy: str | None = None
    forks: bool = True
    allow_functions: bool = False
    """Whether nodes may run the Python functions that the network file names."""
    say: Callable[[str], None] = field(default=lambda text: None)
    """For steps that take long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessPlace:
    """Where one process is: what it binds, and where others reach that."""

    listen: str
    """``tcp://host:port`` that it binds."""
    reach: str
    """``tcp://host:port`` where others find it."""
    http_listen: str | None = None
    http_reach: str | None = None
    namespace: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterLayout:
    """Where everything is."""

    coordinator: ProcessPlace
    nodes: Mapping[str, ProcessPlace]
    broker: ProcessPlace | None = None
    dialled: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """For a node the addresses where its neighbours are to be dialled, if these differ from neighbour to neighbour."""
    keys: Path | None = None


class ClusterBackend(Protocol):
    """One way to run a network."""

    kind: Kind

    def check(self) -> None:
        """A ConfigError that says what is missing, where this machine cannot do it."""

    def build(self, run: Run, wishes: Wishes) -> RunPlan:
        """Make what processes need to run in, and plan them. What it makes is noted before it is made."""

    def remove(self, run: Run, parts: Mapping[str, Any]) -> None:
        """Take away what ``build`` made, as far as it is there; processes have ended already."""


def plan_here(
    run: Run, kind: Kind, wishes: Wishes, layout: ClusterLayout, parts: dict[str, Any] | None = None
) -> RunPlan:
    """The plan of a network whose processes this machine starts itself, in this layout. ``parts`` is what the backend
    has made for them and must remove."""
    return RunPlan(
        name=run.name,
        kind=kind,
        network=str(wishes.file.path.resolve()),
        token_file=token_of(wishes),
        processes=processes(run, wishes, layout),
        stage=parts or {},
        forks=wishes.forks,
    )


def processes(run: Run, wishes: Wishes, layout: ClusterLayout) -> tuple[Process, ...]:
    """The processes of a network in this layout, as this machine starts them."""
    run.logs.mkdir(parents=True, exist_ok=True)
    keys = [] if layout.keys is None else ["--keys", str(layout.keys)]
    planned = []
    if layout.broker is not None:
        planned.append(_broker(run, wishes, layout.broker))
    planned.append(_coordinator(run, wishes, layout, keys))
    planned += [_node(run, wishes, layout, keys, name, place) for name, place in layout.nodes.items()]
    return tuple(planned)


def _broker(run: Run, wishes: Wishes, place: ProcessPlace) -> Process:
    listen = place.listen.removeprefix("tcp://")
    return Process(
        name=BROKER,
        role="broker",
        arguments=("broker", "--listen", listen),
        namespace=place.namespace,
        log=str(log_of(run, BROKER)),
        address=place.reach.replace("tcp://", "mqtt://"),
    )


def _coordinator(run: Run, wishes: Wishes, layout: ClusterLayout, keys: list[str]) -> Process:
    place = layout.coordinator
    data = data_of(wishes, COORDINATOR)
    arguments = ["coordinator", os.path.abspath(wishes.file.path), "--network", run.name, "--data", str(data)]
    arguments += _listening(place)
    if wishes.strategy is not None:
        arguments += ["--strategy", wishes.strategy]
    if layout.broker is not None:
        arguments += ["--broker", layout.broker.reach.removeprefix("tcp://")]
    if layout.dialled:
        file = run.folder / "addresses.json"
        write_whole(file, json.dumps(layout.dialled, indent=2, ensure_ascii=False))
        arguments += ["--addresses", str(file)]
    return Process(
        name=COORDINATOR,
        role="coordinator",
        arguments=(*arguments, *keys),
        namespace=place.namespace,
        log=str(log_of(run, COORDINATOR)),
        data=str(data),
        address=place.reach,
        http=place.http_reach,
    )


def _listening(place: ProcessPlace) -> list[str]:
    words = ["--listen", place.listen]
    if place.reach != place.listen:
        words += ["--advertise", place.reach]
    if place.http_listen is not None:
        words += ["--http", place.http_listen]
    return words


def _node(run: Run, wishes: Wishes, layout: ClusterLayout, keys: list[str], name: str, place: ProcessPlace) -> Process:
    data = data_of(wishes, name)
    arguments = ["node", name, "--network", run.name, "--data", str(data)]
    arguments += ["--coordinator", layout.coordinator.reach, *_listening(place)]
    arguments += ["--allow-functions"] if wishes.allow_functions else []
    return Process(
        name=name,
        role="node",
        arguments=(*arguments, *keys),
        namespace=place.namespace,
        log=str(log_of(run, name)),
        data=str(data),
        address=place.reach,
        http=place.http_reach,
    )


def token_of(wishes: Wishes) -> str:
    """Where the coordinator keeps the token for everything that changes something."""
    return str(data_of(wishes, COORDINATOR) / "token")


def log_of(run: Run, name: str) -> Path:
    return run.logs / f"{file_name(name)}.log"


def data_of(wishes: Wishes, name: str) -> Path:
    folder = wishes.data / file_name(name)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def note(run: Run, kind: Kind, parts: Mapping[str, Any]) -> None:
    """Write down what is about to be made, so that it can be removed whatever happens next."""
    write_whole(run.folder / "stage.json", json.dumps({"kind": kind, **parts}, indent=2, ensure_ascii=False))


def noted(run: Run) -> dict[str, Any]:
    try:
        parts = json.loads((run.folder / "stage.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return parts if isinstance(parts, dict) else {}


def forget(run: Run) -> None:
    (run.folder / "stage.json").unlink(missing_ok=True)


def short_id(run: Run) -> str:
    """``hw`` and four letters: what the names of all devices, namespaces and containers of a run begin with.

    They tell runs in different folders apart; names of devices have room for 15 letters, so it must be short.
    """
    return f"hw{hashlib.sha256(os.fsencode(run.folder)).hexdigest()[:4]}"


def names_of(run: Run, names: Iterable[str]) -> dict[str, str]:
    """``hw1a2b-NODE`` for each; by its number where the name of the node is no name elsewhere."""
    return {
        name: f"{short_id(run)}-{name if re.fullmatch(r'[A-Za-z0-9_.-]{1,60}', name) else number}"
        for number, name in enumerate(names)
    }
