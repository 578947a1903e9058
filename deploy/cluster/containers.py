"""The container backend: one container for each process, joined by networks; podman runs them.

The client that holds a container is a child of the keeper: its output is the log, and when the container ends, so does
it. A container is made once and started again when it has ended, with the same name, address and data.
"""

from __future__ import annotations

import ipaddress
import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from headwater.deploy.cluster import addresses, keys
from headwater.deploy.cluster.backend import (
    HTTP_PORT,
    NODE_PORT,
    ClusterLayout,
    ProcessPlace,
    Wishes,
    names_of,
    note,
    processes,
    short_id,
    token_of,
)
from headwater.deploy.cluster.host import call, require_linux, require_root, require_tools, succeeds, tool
from headwater.deploy.cluster.image import OPTIONS, exists, image
from headwater.deploy.cluster.inputs import named_files, readable_for
from headwater.deploy.cluster.run_plan import BROKER, COORDINATOR, Kind, Process, RunPlan
from headwater.deploy.cluster.runs import Run
from headwater.deploy.cluster.table_inputs import TableInputs, table_inputs
from headwater.node.remote.secrets import FILE_OF_SECRET
from headwater.protocol.errors import ConfigError
from headwater.protocol.files import write_file
from headwater.protocol.network import Network

USER: Final = 10001  # of the image
COORDINATOR_PORT: Final = 5001
BROKER_PORT: Final = 1883
STOP_S: Final = 9  # a second before the keeper loses patience
DATA: Final = "/data"
KEYS: Final = "/keys"
ADDRESSES_SKIPPED: Final = 2  # of the network itself, and of this machine in it

SETTINGS: Final = """\
[containers]
default_ulimits = []
[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
"""
"""Podman is told by options and by this file; nothing of the machine's own configuration is changed."""


class Containers:
    kind: Kind = "containers"

    def __init__(self, image_name: str | None = None) -> None:
        self._image = image_name

    def check(self) -> None:
        require_linux("--on containers")
        require_root("--on containers")
        tools = {"podman": "podman", "runc": "runc", "ip": "iproute2", "iptables": "iptables"}
        if self._image is None:
            tools["buildah"] = "buildah"
        require_tools("--on containers", tools)
        helpers = ("/usr/lib/podman/netavark", "/usr/libexec/podman/netavark", "/usr/local/libexec/podman/netavark")
        if tool("netavark") is None and not any(map(os.path.exists, helpers)):
            raise ConfigError(
                "--on containers needs netavark, which joins containers; install it "
                "(on Debian or Ubuntu: apt-get install -y --no-install-recommends netavark), or use --on local"
            )

    def build(self, run: Run, wishes: Wishes) -> RunPlan:
        environment = _environment(run)
        if self._image is not None and not exists(self._image, environment):
            raise ConfigError(f"there is no image {self._image}; build or pull it first, or leave --image out")
        name = self._image or image(environment, wishes.say)
        network = wishes.file.network
        subnets = addresses.choose_subnets(network, [*addresses.used_here(), *_kept_by_podman(run)])
        names = names_of(run, network.nodes)
        names |= {COORDINATOR: f"{short_id(run)}.coordinator", BROKER: f"{short_id(run)}.broker"}
        note(run, self.kind, {"network": short_id(run)})
        layout = _layout(network, subnets.management, broker=wishes.file.embedded_broker is not None)
        layout = keys.with_keys(run, layout, owner=USER)
        planned = processes(run, wishes, layout)
        wishes.say("making the containers")
        podman(run, "network", "create", "--disable-dns", "--subnet", str(subnets.management), short_id(run))
        options = _options(run, wishes, planned)
        contained = [
            _contained(run, process, names[process.name], name, options[process.name], layout) for process in planned
        ]
        return RunPlan(
            name=run.name,
            kind=self.kind,
            network=str(wishes.file.path.resolve()),
            token_file=token_of(wishes),
            processes=tuple(contained),
            stage={"containers": names, "network": short_id(run), "image": name},
        )

    def remove(self, run: Run, parts: Mapping[str, Any]) -> None:
        containers = podman(run, "ps", "--all", "--quiet", "--filter", f"label=headwater.run={short_id(run)}").split()
        if containers:
            podman(run, "rm", "--force", "--time", "2", *containers)
        if "network" in parts and succeeds(
            ["podman", *OPTIONS, "network", "exists", parts["network"]], environment=_environment(run)
        ):
            podman(run, "network", "rm", "--force", parts["network"])
        if secrets := _secrets(run):
            podman(run, "secret", "rm", *secrets)


def podman(run: Run, *words: str, stdin: str | None = None) -> str:
    return call(["podman", *OPTIONS, *words], stdin=stdin, environment=_environment(run), timeout_s=120)


def _kept_by_podman(run: Run) -> list[ipaddress.IPv4Network]:
    """The subnets of podman's networks, also of those whose devices are gone: it gives none of them twice."""
    names = podman(run, "network", "ls", "--quiet").split()
    networks = json.loads(podman(run, "network", "inspect", *names)) if names else []
    kept = [subnet["subnet"] for network in networks for subnet in network.get("subnets") or ()]
    return [ipaddress.IPv4Network(subnet) for subnet in kept if ":" not in subnet]


def _environment(run: Run) -> dict[str, str]:
    file = run.folder / "containers.conf"
    if not file.exists():
        write_file(file, SETTINGS, sync=False)
    return {"CONTAINERS_CONF": str(file)}


def _layout(network: Network, subnet: Any, *, broker: bool) -> ClusterLayout:
    def place(number: int, port: int) -> ProcessPlace:
        host = str(subnet[number + ADDRESSES_SKIPPED])
        return ProcessPlace(
            listen=f"tcp://{host}:{port}",
            reach=f"tcp://{host}:{port}",
            http_listen=f"{host}:{HTTP_PORT}",
            http_reach=f"{host}:{HTTP_PORT}",
        )

    return ClusterLayout(
        coordinator=place(0, COORDINATOR_PORT),
        broker=place(1, BROKER_PORT) if broker else None,
        nodes={node: place(number, NODE_PORT) for number, node in enumerate(network.nodes, 2)},
    )


def _options(run: Run, wishes: Wishes, planned: tuple[Process, ...]) -> dict[str, list[str]]:
    """By process the options of its container, so that it reads what the network file names under the same names as
    here: the coordinator and the nodes what all of them need, a node also what it needs to ask remote tables."""
    common = _mounts(run, named_files(wishes.file))
    options = {process.name: [] if process.role == "broker" else list(common) for process in planned}
    old = _secrets(run)
    if old:
        podman(run, "secret", "rm", *old)
    kept: set[str] = set()
    for node in wishes.file.network.nodes:
        options[node] += _of_tables(run, table_inputs(wishes.file.network, node, os.environ), kept)
    return options


def _mounts(run: Run, files: list[Path]) -> list[str]:
    words = []
    for file in files:
        words += ["--volume", f"{readable_for(run, file, USER)}:{file}:ro"]
    return words


def _of_tables(run: Run, inputs: TableInputs, kept: set[str]) -> list[str]:
    """What is secret in the environment comes as a file: podman shows the environment of a container to all who ask."""
    words = _mounts(run, list(inputs.files))
    for name, value in inputs.settings.items():
        words += ["--env", f"{name}={value}"]
    for name in inputs.variables:
        secret = f"{short_id(run)}-{name}"
        if secret not in kept:
            kept.add(secret)
            podman(run, "secret", "create", secret, "-", stdin=os.environ[name])
        words += ["--secret", f"{secret},target={name},uid={USER},gid={USER},mode=0400"]
        words += ["--env", f"{name}{FILE_OF_SECRET}=/run/secrets/{name}"]
    return words


def _secrets(run: Run) -> list[str]:
    """The names of those that podman keeps for the run."""
    names = podman(run, "secret", "ls", "--format", "{{.Name}}").split()
    return [name for name in names if name.startswith(f"{short_id(run)}-")]


def _give(folder: Path) -> None:
    """The user of the image owns the folder and all in it, also what an earlier run of another kind has left."""
    for path in [folder, *folder.rglob("*")]:
        os.chown(path, USER, USER, follow_symlinks=False)


def _contained(
    run: Run, process: Process, name: str, image_name: str, inputs: list[str], layout: ClusterLayout
) -> Process:
    """Make the container of a process; the process that holds it."""
    assert process.address is not None
    options = ["--name", name, "--hostname", name.replace(".", "-"), "--label", f"headwater.run={short_id(run)}"]
    options += ["--network", short_id(run), "--ip", process.address.partition("//")[2].rpartition(":")[0]]
    options += ["--log-driver", "none", "--pidfile", str(run.folder / f"{name}.pid")]
    options += ["--stop-timeout", str(STOP_S), "--cap-drop", "all", "--security-opt", "no-new-privileges"]
    if not Path("/run/systemd/system").exists():
        options.append("--no-healthcheck")  # podman leaves the clock of health checks to systemd
    arguments = list(process.arguments)
    if process.data is not None:
        _give(Path(process.data))
        options += ["--volume", f"{process.data}:{DATA}"]
        arguments[arguments.index("--data") + 1] = DATA
    if layout.keys is not None and "--keys" in arguments:
        options += ["--volume", f"{layout.keys}:{KEYS}:ro"]
        arguments[arguments.index("--keys") + 1] = KEYS
    podman(run, "create", *options, *inputs, image_name, *arguments)
    environment = f"CONTAINERS_CONF={_environment(run)['CONTAINERS_CONF']}"
    client = ("env", environment, tool("podman") or "podman", *OPTIONS)
    return replace(
        process,
        command=(*client, "start", "--attach", name),
        # A client that is signalled while it sets up the network of a container leaves that network behind.
        ending=(*client, "stop", "--time", str(STOP_S), name),
        arguments=(),
        pid_file=str(run.folder / f"{name}.pid"),
    )
