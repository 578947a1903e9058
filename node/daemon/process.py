"""Starts a node process: opens its data folder and journal, restores its state, and runs the loop."""

from __future__ import annotations

import asyncio
import logging
import secrets
import shutil
import signal
import sys
import time
from typing import Final

from headwater.node.core import NodeSettings
from headwater.node.daemon import journal_records as records
from headwater.node.daemon.daemon import DaemonSettings, NodeDaemon
from headwater.node.daemon.garbage_collection import Collector
from headwater.node.daemon.machine import NodeMachine
from headwater.protocol.errors import ConfigError
from headwater.protocol.files import write_file
from headwater.protocol.journal import Durability, Journal
from headwater.protocol.state import OldState, StateError

LIFE_BYTES: Final = 8

log = logging.getLogger("headwater.node")


def run_node(settings: DaemonSettings, node_settings: NodeSettings | None = None) -> None:
    """Run a node until SIGTERM or SIGINT."""
    settings.data.mkdir(parents=True, exist_ok=True)
    running = _run(settings, node_settings)
    try:
        import uvloop
    except ImportError:  # not every platform has it
        asyncio.run(running)
    else:
        uvloop.run(running)


async def _run(settings: DaemonSettings, node_settings: NodeSettings | None) -> None:
    journal, machine, replayed = recovered(settings, node_settings)
    daemon = NodeDaemon(settings, machine, journal)
    daemon.watching.restarted(replayed)
    daemon.collector = Collector()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, daemon.stop)
    await daemon.run()


def recovered(settings: DaemonSettings, node_settings: NodeSettings | None) -> tuple[Journal, NodeMachine, int]:
    """The journal, the node as it was, and how many records it took to get there."""
    folder = settings.data / "journal"
    durability = _kept_durability(settings)
    if durability == "none" and folder.exists():
        shutil.rmtree(folder)  # a node that keeps nothing begins a new life each time
    if not folder.exists():
        _new_life(settings)
    if settings.functions is not None:
        settings.functions.offer_kept()
    journal = Journal.open(folder, durability, on_warning=log.warning)
    started_s = time.monotonic()
    machine = _machine(settings, journal, node_settings)
    count = 0
    for data in journal.records():
        machine.apply(records.decode(data))
        count += 1
    if journal.was_cut:
        log.error(
            "at least %d records of the journal, on which others rely, are lost: this node begins a new life and asks "
            "for all trees to be rebuilt",
            journal.lost_records,
        )
        machine = machine.reborn(_new_life(settings))
        journal.save_snapshot(machine.save())
    if machine.name != settings.name:
        raise ConfigError(
            f"{settings.data} is the data folder of node {machine.name!r}; give {settings.name!r} another"
        )
    if count:
        log.info("replayed %d records in %.2f s", count, time.monotonic() - started_s)
    return journal, machine, count


def _machine(settings: DaemonSettings, journal: Journal, node_settings: NodeSettings | None) -> NodeMachine:
    if journal.snapshot is None:
        life = (settings.data / "life").read_text(encoding="utf-8").strip()
        return NodeMachine(settings.name, life, node_settings)
    try:
        machine = NodeMachine.restored(journal.snapshot)
    except OldState as error:
        raise ConfigError(
            f"the snapshot in {journal.folder} cannot be used: {error}. To go on, move {journal.folder} away and start "
            f"the node again: it begins a new life and its trees are rebuilt. What only this node held is lost; to "
            f"keep it, start the version that saved it, end its sources and wait until everything is delivered"
        ) from error
    except StateError as error:
        raise ConfigError(f"the snapshot in {journal.folder} cannot be used: {error}") from error
    journal.snapshot = None  # it may be large
    return machine


def _new_life(settings: DaemonSettings) -> str:
    """The life of a node begins with its journal; this file is read until the first snapshot has it."""
    life = secrets.token_hex(LIFE_BYTES)
    write_file(settings.data / "life", life + "\n")
    return life


def _kept_durability(settings: DaemonSettings) -> Durability:
    """What the last configuration said; a node that was never configured keeps everything."""
    path = settings.data / "durability"
    word = path.read_text(encoding="utf-8").strip() if path.exists() else "sync"
    if word not in ("none", "async", "sync"):
        raise ConfigError(f"{path} says {word!r}; it must be none, async or sync")
    return word  # type: ignore[return-value]


def set_up_logging(level: int = logging.INFO) -> None:
    """One line for each thing worth saying, with its time, on standard error."""
    logging.basicConfig(
        stream=sys.stderr, level=level, format="%(asctime)s %(levelname).1s %(name)s: %(message)s", force=True
    )
