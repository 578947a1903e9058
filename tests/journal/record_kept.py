"""Writes what tests/journal/kept holds: data folders of a small network, and what classes are saved as.

    python -m tests.journal.record_kept [FOLDER COMMAND ..]

Without arguments: for the formats that this version writes. A change of what is saved is a new format, which reads the
folders of earlier ones (``headwater.protocol.state``); only a format that no release has written may be recorded again.
With arguments: only the folders, by COMMAND, which runs Headwater of another version. The coordinator and both nodes
are stopped once, so that each has a snapshot, and killed later, so that its journal goes on behind it.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from headwater.protocol.formats import NODE_STATE
from tests.journal.shapes import SHAPES, as_text, saved_shapes

HERE = Path(__file__).parent / "kept"
COMMAND = [sys.executable, "-m", "headwater.deploy.cli.command"]
NODES = ("near", "far")
PATIENCE_S = 60.0
RUNNING_S = 1.5
"""How long the network runs before it is stopped, and again before it is killed."""
ROLES = ("coordinator", *NODES)
LEFT_OUT = ("token", "endpoints.json", "journal.lock", "records", "dead-letters.jsonl")
"""What is secret, or says where things were."""


def record(target: Path, command: list[str]) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for number in (signal.SIGTERM, signal.SIGKILL):
            running = started(folder, command)
            time.sleep(RUNNING_S)
            for process in reversed(running):
                process.send_signal(number)
            for process in running:
                process.wait(PATIENCE_S)
        for role in ROLES:
            keep(folder / role, target / role)


def started(folder: Path, command: list[str]) -> list[subprocess.Popen[bytes]]:
    """The coordinator and the nodes, when the network is ready."""
    endpoints = folder / "coordinator" / "endpoints.json"
    endpoints.unlink(missing_ok=True)
    data = ["--data", str(folder / "coordinator")]
    running = [subprocess.Popen([*command, "coordinator", str(HERE / "network.yaml"), *data])]
    until(endpoints.exists)
    told = json.loads(endpoints.read_text(encoding="utf-8"))
    for node in NODES:
        data = ["--data", str(folder / node)]
        running.append(subprocess.Popen([*command, "node", node, "--coordinator", told["hub"], *data]))
    until(lambda: is_ready(told["http"]))
    return running


def until(holds: Callable[[], bool]) -> None:
    give_up_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < give_up_s, "the network does not come up"
        time.sleep(0.1)


def is_ready(http: str) -> bool:
    try:
        with urllib.request.urlopen(f"{http}/ready") as answer:
            return bool(answer.status == 200)
    except urllib.error.HTTPError:
        return False


def keep(source: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(*LEFT_OUT, "sink-*"))


def main() -> None:
    if len(sys.argv) > 1:
        record(Path(sys.argv[1]), sys.argv[2:])
        return
    record(HERE / f"format-{NODE_STATE}", COMMAND)
    SHAPES.write_text(as_text(saved_shapes()), encoding="utf-8")


if __name__ == "__main__":
    main()
