"""The status of a run: one row for each process, from the keeper's reports and the operating system."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from headwater.deploy.cluster.pages import ask
from headwater.deploy.cluster.processes import usage
from headwater.deploy.cluster.runs import Run

ASKED_AT_ONCE: Final = 16
ANSWER_S_MAX: Final = 1.0

State = Literal["up", "starting", "restarting", "dead"]


@dataclass(frozen=True, slots=True)
class ProcessRow:
    """A process. ``up``: it runs and says that it is ready; ``starting``: it runs and does not."""

    name: str
    role: str
    state: State
    pid: int | None
    restarts: int
    memory_bytes: int | None
    cpu_s: float | None
    address: str | None
    http: str | None
    data: str | None
    log: str
    exit: str | None


def rows(run: Run) -> list[ProcessRow]:
    processes = run.state().get("processes", [])
    with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
        return list(pool.map(_row, processes))


def _row(process: dict[str, Any]) -> ProcessRow:
    pid = _real_pid(process)
    now = usage(pid) if pid is not None else None
    if now is None or (
        process["pid_file"] is None and process["started"] is not None and now.started != process["started"]
    ):
        now, pid = None, None
    state: State = "dead"
    if now is not None:
        state = "up" if process["http"] is None or _is_ready(process["http"]) else "starting"
    elif process["state"] == "restarting" or process["pid"] is not None:
        state = "restarting"
    return ProcessRow(
        process["name"],
        process["role"],
        state,
        pid,
        process["restarts"],
        now.memory_bytes if now is not None else None,
        round(now.cpu_s, 2) if now is not None else None,
        process["address"],
        process["http"],
        process["data"],
        process["log"],
        process["exit"],
    )


def _real_pid(process: dict[str, Any]) -> int | None:
    """In a container, of what runs inside; the keeper only knows who holds it."""
    holder: int | None = process["pid"]
    if holder is None or process["pid_file"] is None:
        return holder
    try:
        return int(Path(process["pid_file"]).read_text())
    except (OSError, ValueError):
        return None


def _is_ready(http: str) -> bool:
    answer = ask(http, "/ready", ANSWER_S_MAX)
    return answer is not None and answer[0] == 200
