"""What the processes of ``tests.kit.processes`` run."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
from pathlib import Path
from typing import Any

import aiohttp.web  # noqa: F401 (imported once, before the processes are forked)
import uvloop

import headwater.coordinator.daemon.process
import headwater.node.daemon.daemon
import headwater.node.edge.file_sink
import headwater.node.edge.trace_source
from headwater.coordinator.daemon.folder import DataFolder
from headwater.coordinator.daemon.inputs import Setup
from headwater.coordinator.daemon.process import CoordinatorDaemon, ProcessSettings
from headwater.coordinator.layout.stages import Layout
from headwater.coordinator.planners import PLANNERS
from headwater.node.core import NodeSettings
from headwater.node.daemon.daemon import DaemonSettings, NodeDaemon
from headwater.node.daemon.process import recovered, set_up_logging
from headwater.protocol.links import Keys
from headwater.protocol.messages.control import COORDINATOR
from tests.law.layouts import FixedPlanner


def _begin(log: Path) -> None:
    """Everything that is said goes to the log; Ctrl-C is for the test alone."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    set_up_logging()


def coordinator_main(
    log: Path,
    folder: Path,
    about: tuple[Any, ...],
    listen: str,
    http: str,
    keys: Path | None,
    snapshot_bytes: int | None,
    layout: Layout | None,
) -> None:
    _begin(log)
    if snapshot_bytes is not None:
        vars(headwater.coordinator.daemon.process)["SNAPSHOT_BYTES"] = snapshot_bytes
    if layout is not None:
        FixedPlanner.layout = layout
        PLANNERS.update(dict.fromkeys(PLANNERS, FixedPlanner))

    async def run() -> None:
        network, feeds, destinations, durability, told = about
        known = None if keys is None else Keys.read(keys, COORDINATOR)
        data = DataFolder(folder)
        setup = data.setup()
        if setup is None:
            setup = Setup(
                id="test",
                network=network,
                feeds=feeds,
                destinations=destinations,
                durability=durability,
                public_keys=() if known is None else tuple((n, known.public_key_of(n) or "") for n in network.nodes),
                **told,
            )
            data.keep_setup(setup)
        daemon = CoordinatorDaemon(data, setup, ProcessSettings(listen=listen, http=http, keys=known))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, daemon.stop)
        await daemon.run()

    uvloop.run(run())


def node_main(
    log: Path,
    name: str,
    data: Path,
    coordinator: str,
    listen: str,
    http: str,
    keys: Path | None,
    namespace: str | None,
    node_settings: NodeSettings | None,
    snapshot_bytes: int | None,
) -> None:
    _begin(log)
    if snapshot_bytes is not None:
        vars(headwater.node.daemon.daemon).update(SNAPSHOT_BYTES_LEAST=snapshot_bytes, SNAPSHOT_GROWTH=0)
    if namespace is not None:
        _enter(namespace)

    async def run() -> None:
        data.mkdir(parents=True, exist_ok=True)
        settings = DaemonSettings(
            name=name,
            data=data,
            coordinator=coordinator,
            network="test",
            listen=listen,
            http=http,
            keys=None if keys is None else Keys.read(keys, name),
        )
        journal, machine, replayed = recovered(settings, node_settings)
        daemon = NodeDaemon(settings, machine, journal)
        daemon.watching.restarted(replayed)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, daemon.stop)
        running = asyncio.create_task(daemon.run())
        while not daemon.http and not running.done():
            await asyncio.sleep(0.005)
        _write(log.with_suffix(".address"), daemon.address)  # not in its folder, whose disk a test may fill
        _write(log.with_suffix(".http"), daemon.http)
        await running

    uvloop.run(run())


def _enter(namespace: str) -> None:
    """Become a process of a network namespace that ``ip netns add`` has made."""
    handle = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).setns(handle, 0) != 0:
        raise OSError(ctypes.get_errno(), f"cannot enter the network namespace {namespace}")
    os.close(handle)


def _write(file: Path, text: str) -> None:
    beside = file.with_name(f".{file.name}")
    beside.write_text(text)
    beside.replace(file)
