"""The folder of a run: its plan, status, logs and data, and whether its keeper is alive."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from headwater.deploy.cluster.run_plan import RunPlan, plan_from_json
from headwater.protocol.errors import ConfigError
from headwater.protocol.files import write_file

HOME: Final = ".headwater"
"""Where runs have their folders, in the current folder."""

MARK: Final = "HEADWATER_RUN"
"""Every process of a run has this in its environment, with the folder of the run: so all can be found, always."""


class Run:
    """One run, up or not. Everything about it is in its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.name = self.folder.name

    @property
    def plan_file(self) -> Path:
        return self.folder / "plan.json"

    @property
    def state_file(self) -> Path:
        return self.folder / "run.json"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def keys(self) -> Path:
        return self.folder / "keys"

    @property
    def keeper_log(self) -> Path:
        return self.logs / "@keeper.log"

    def exists(self) -> bool:
        return self.plan_file.is_file()

    def plan(self) -> RunPlan:
        try:
            return plan_from_json(self.plan_file.read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(f"there is no run in {self.folder}: {error.strerror}") from None
        except (ValueError, KeyError, TypeError):
            raise ConfigError(
                f"{self.plan_file} is damaged or of another version; remove {self.folder} and start the network again"
            ) from None

    def state(self) -> dict[str, Any]:
        """What the keeper last reported; empty before its first report."""
        try:
            state = json.loads(self.state_file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return state if isinstance(state, dict) else {}

    def write_state(self, state: dict[str, Any]) -> None:
        write_whole(self.state_file, json.dumps(state, indent=2, ensure_ascii=False))

    def lock(self) -> int | None:
        """A lock that says that the run is up, for as long as the process lives; None if another one has it."""
        handle = os.open(self.folder / "keeper.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            return None
        return handle

    def is_kept(self) -> bool:
        """Whether its keeper lives."""
        if not (self.folder / "keeper.lock").exists():
            return False
        handle = self.lock()
        if handle is None:
            return True
        os.close(handle)
        return False


def write_whole(file: Path, text: str) -> None:
    """Readers see the old content or the new one, never a part."""
    write_file(file, text, sync=False)


def runs_in(home: Path) -> list[Run]:
    runs = []
    with contextlib.suppress(OSError):
        runs = [Run(folder) for folder in sorted(home.iterdir()) if Run(folder).exists()]
    return runs


def marked(run: Run) -> Iterator[int]:
    """The ids of all processes of a run, its keeper too, however they were started; not that of the caller."""
    mark = f"{MARK}={run.folder}".encode()
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            environment = Path("/proc", entry, "environ").read_bytes()
            if mark in environment.split(b"\0"):
                yield int(entry)


def the_run(home: Path, name: str | None, *, purpose: str) -> Run:
    """The run of this name; without a name the only one there is, or the only one that is up."""
    if name is not None:
        run = Run(home / name)
        if not run.exists():
            there = ", ".join(run.name for run in runs_in(home))
            hint = f"there are: {there}" if there else "nothing was started from this folder"
            raise ConfigError(f"there is no run {name!r} in {home}; {hint}")
        return run
    runs = runs_in(home)
    if not runs:
        raise ConfigError(f"there is no run in {home}; start one with: headwater up NETWORK.yaml")
    if len(runs) > 1:
        kept = [run for run in runs if run.is_kept()]
        if len(kept) == 1:
            return kept[0]
        raise ConfigError(
            f"there are several runs: {', '.join(run.name for run in runs)}; say which one to {purpose} with --name"
        )
    return runs[0]
