"""The Mininet backend: the same network as with namespaces, with hosts, direct links and a management bridge.

A driver (mininet_driver.py) holds the network; processes are started in its hosts by the keeper, as everywhere.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from headwater.deploy.cli.common import RunFailed
from headwater.deploy.cluster import addresses, keys
from headwater.deploy.cluster.addresses import Subnets
from headwater.deploy.cluster.backend import Wishes, note, plan_here, short_id
from headwater.deploy.cluster.children import open_log
from headwater.deploy.cluster.host import SYSTEM_PYTHON, require_linux, require_root, require_tools, succeeds
from headwater.deploy.cluster.log_files import last_lines
from headwater.deploy.cluster.namespaces import MANAGEMENT_DEVICE, remove_devices, shaping
from headwater.deploy.cluster.processes import end_all, usage
from headwater.deploy.cluster.run_plan import Kind, RunPlan
from headwater.deploy.cluster.runs import MARK, Run
from headwater.deploy.cluster.waiting import Patience
from headwater.protocol.errors import ConfigError

DRIVER: Final = Path(__file__).with_name("mininet_driver.py")
BUILD_S_MAX: Final = 60.0  # a network of a hundred nodes takes about 10 s
END_S_MAX: Final = 15.0


class InMininet:
    kind: Kind = "mininet"

    def check(self) -> None:
        require_linux("--on mininet")
        require_root("--on mininet")
        require_tools(
            "--on mininet", {"ip": "iproute2", "tc": "iproute2", "mnexec": "mininet", "brctl": "bridge-utils"}
        )
        if not succeeds([SYSTEM_PYTHON, "-c", "import mininet"]):
            raise ConfigError(
                f"--on mininet needs the Python package mininet of the system ({SYSTEM_PYTHON}); install it "
                "(on Debian or Ubuntu: apt-get install -y --no-install-recommends mininet), or use --on netns"
            )

    def build(self, run: Run, wishes: Wishes) -> RunPlan:
        subnets = addresses.choose_subnets(wishes.file.network, addresses.used_here())
        bridge = short_id(run)  # Mininet joins those devices to a bridge whose names begin with its name
        note(run, self.kind, {"bridge": bridge})
        pids = _start_driver(run, _order(run, subnets, bridge))
        paths = {node: f"/proc/{pid}/ns/net" for node, pid in pids.items()}
        layout = addresses.layout(subnets, broker=wishes.file.embedded_broker is not None, namespaces=paths)
        layout = keys.with_keys(run, layout)
        return plan_here(run, self.kind, wishes, layout, {"hosts": pids, "bridge": bridge})

    def remove(self, run: Run, parts: Mapping[str, Any]) -> None:
        end_all(lambda: _drivers(run), END_S_MAX)
        remove_devices(run)
        for file in (_order_file(run), _answer_file(run)):
            file.unlink(missing_ok=True)


def _order_file(run: Run) -> Path:
    return run.folder / "mininet.json"


def _answer_file(run: Run) -> Path:
    return run.folder / "hosts.json"


def _order(run: Run, subnets: Subnets, bridge: str) -> dict[str, Any]:
    return {
        "nodes": subnets.nodes,
        "bridge": bridge,
        "prefix_length": subnets.prefix,
        "gateway": subnets.gateway,
        "management_device": MANAGEMENT_DEVICE,
        "wires": [asdict(wire) for wire in subnets.wires],
        "shaping": {node: shaping(node, subnets) for node in subnets.nodes},
    }


def _start_driver(run: Run, order: dict[str, Any]) -> dict[str, int]:
    _answer_file(run).unlink(missing_ok=True)
    _order_file(run).write_text(json.dumps(order, ensure_ascii=False), encoding="utf-8")
    run.logs.mkdir(parents=True, exist_ok=True)
    log = run.logs / "@mininet.log"
    output = open_log(log)
    try:
        driver = subprocess.Popen(
            [SYSTEM_PYTHON, "-I", str(DRIVER), str(_order_file(run)), str(_answer_file(run))],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={**os.environ, MARK: str(run.folder)},
            cwd="/",
        )
    finally:
        os.close(output)
    patience = Patience(BUILD_S_MAX)
    while not patience.over:
        with contextlib.suppress(OSError):
            pids: dict[str, int] = json.loads(_answer_file(run).read_text(encoding="utf-8"))
            return pids
        if driver.poll() is not None:
            why = " / ".join(last_lines(log, 3))
            raise RunFailed(f"Mininet could not build the network: {why}")
        time.sleep(0.05)
    raise RunFailed(f"Mininet has not built the network within {BUILD_S_MAX:.0f} s; see {log}")


def _drivers(run: Run) -> list[int]:
    """The driver of this run, by its command line: the shells of its hosts end with it."""
    arguments = [os.fsencode(DRIVER), os.fsencode(_order_file(run))]
    pids = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                words = Path("/proc", entry, "cmdline").read_bytes().split(b"\0")
                if words[2:4] == arguments and usage(int(entry)) is not None:
                    pids.append(int(entry))
    return pids
