"""The keeper of a run: starts its processes, restarts those that die, and ends all of them on request.

``python -m headwater.deploy.cluster.keeper RUN_FOLDER``. It has one thread and no event loop, so that it can fork
processes from itself: they begin with everything imported, and share its memory.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from headwater.deploy.cluster import log_files
from headwater.deploy.cluster.children import Entry, fork, headwater, set_title, spawn
from headwater.deploy.cluster.processes import send, usage
from headwater.deploy.cluster.run_plan import Process, RunPlan
from headwater.deploy.cluster.runs import Run
from headwater.deploy.cluster.waiting import LOOK_S, Patience

BACKOFF_MIN_S: Final = 0.2
BACKOFF_MAX_S: Final = 5.0
STEADY_S: Final = 10.0  # what ran for so long and then dies is started again at once, as if for the first time
CLOSE_S: Final = 2.0  # the least time to end for the processes that nodes need while they drain
LOGS_EVERY_S: Final = 5.0
SIGNALS: Final = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(slots=True)
class KeptProcess:
    """A process and its state."""

    process: Process
    pid: int | None = None
    started: int | None = None
    """When the process with this id started, as the system counts."""
    since: float = 0.0
    restarts: int = 0
    backoff_s: float = BACKOFF_MIN_S
    due: float | None = None
    """When it is to be started again."""
    exit: str | None = None
    """How it ended last."""

    def as_json(self) -> dict[str, Any]:
        fields = asdict(self.process)
        fields.update(
            state="up" if self.pid is not None else "restarting" if self.due is not None else "dead",
            pid=self.pid,
            started=self.started,
            restarts=self.restarts,
            exit=self.exit,
        )
        return fields


class Keeper:
    def __init__(self, run: Run, plan: RunPlan, *, entry: Entry = headwater, lock: int | None = None) -> None:
        self.run = run
        self.plan = plan
        self.kept = [KeptProcess(process) for process in plan.processes]
        self._entry = entry
        self._lock = () if lock is None else (lock,)
        self._stopping = False
        # Held open, so that a namespace can be entered again as long as the keeper lives, whatever became of its file.
        self._namespaces = {
            path: os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            for path in dict.fromkeys(process.namespace for process in plan.processes)
            if path is not None
        }

    def keep(self) -> None:
        """Until SIGTERM or SIGINT; then everything has ended."""
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        for kept in self.kept:
            self._start(kept)
        self._write_state()
        look_at_logs = time.monotonic() + LOGS_EVERY_S
        while True:
            due = min([look_at_logs, *(kept.due for kept in self.kept if kept.due is not None)])
            received = signal.sigtimedwait(SIGNALS, max(0.0, due - time.monotonic()))
            if received is not None and received.si_signo in (signal.SIGTERM, signal.SIGINT):
                break
            changed = self._reap()
            now = time.monotonic()
            for kept in self.kept:
                if kept.due is not None and kept.due <= now:
                    kept.restarts += 1
                    self._start(kept)
                    changed = True
            if now >= look_at_logs:
                look_at_logs = now + LOGS_EVERY_S
                for log in [self.run.keeper_log, *(Path(kept.process.log) for kept in self.kept)]:
                    log_files.bound(log)
            if changed:
                self._write_state()
        self._stop()

    def _start(self, kept: KeptProcess) -> None:
        process = kept.process
        namespace = None if process.namespace is None else self._namespaces[process.namespace]
        log = Path(process.log)
        kept.due = None
        try:
            if process.command is not None:
                kept.pid = spawn(process.command, log, namespace=namespace)
            elif self.plan.forks:
                kept.pid = fork(
                    process.name,
                    process.arguments,
                    log,
                    entry=self._entry,
                    namespace=namespace,
                    close=[*self._lock, *(other for other in self._namespaces.values() if other != namespace)],
                )
            else:
                command = [sys.executable, "-m", "headwater.deploy.cli.command", *process.arguments]
                kept.pid = spawn(command, log, namespace=namespace)
        except OSError as error:
            self._ended(kept, f"could not be started: {error}")
            return
        kept.since = time.monotonic()
        now = usage(kept.pid)
        kept.started = now.started if now is not None else None

    def _reap(self) -> bool:
        """Take note of everything that has ended since; whether anything has."""
        by_pid = {kept.pid: kept for kept in self.kept if kept.pid is not None}
        changed = False
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return changed
            if pid == 0:
                return changed
            if (kept := by_pid.get(pid)) is not None:
                self._ended(kept, how_it_ended(status))
                changed = True

    def _ended(self, kept: KeptProcess, how: str) -> None:
        now = time.monotonic()
        kept.exit = how
        if kept.pid is not None and now - kept.since >= STEADY_S:
            kept.backoff_s = BACKOFF_MIN_S
        kept.pid = kept.started = None
        if self._stopping:
            return
        kept.due = now + kept.backoff_s
        self._say(f"{kept.process.name} {how}; restarting it in {kept.backoff_s:.1f} s")
        kept.backoff_s = min(2 * kept.backoff_s, BACKOFF_MAX_S)

    def _stop(self) -> None:
        """Nodes first, so that they can hand over what they have; then what they need for it."""
        self._stopping = True
        for kept in self.kept:
            kept.due = None
        self._write_state()
        patience = Patience(self.plan.drain_s)
        nodes = [kept for kept in self.kept if kept.process.role == "node"]
        servers = [kept for kept in self.kept if kept.process.role != "node"]
        self._end(nodes, patience)
        left_s = patience.seconds - patience.spent_s()
        self._end(servers, patience if left_s > CLOSE_S else Patience(CLOSE_S))
        self._write_state("down")

    def _end(self, processes: Iterable[KeptProcess], patience: Patience) -> None:
        processes = list(processes)
        for kept in processes:
            if kept.pid is not None:
                self._ask_to_end(kept.pid, kept.process)
        self._reap()
        while any(kept.pid is not None for kept in processes) and not patience.over:
            signal.sigtimedwait([signal.SIGCHLD], LOOK_S)
            self._reap()
        for kept in processes:
            if kept.pid is not None:
                self._say(f"{kept.process.name} did not end by itself and is killed")
                send(kept.pid, signal.SIGKILL)
        while any(kept.pid is not None for kept in processes):
            signal.sigtimedwait([signal.SIGCHLD], 1.0)
            self._reap()

    def _ask_to_end(self, pid: int, process: Process) -> None:
        if process.ending is None:
            send(pid, signal.SIGTERM)
            return
        try:
            spawn(process.ending, self.run.keeper_log)
        except OSError as error:
            self._say(f"{process.name} cannot be asked to end: {error}")

    def _write_state(self, state: str | None = None) -> None:
        report = {
            "name": self.plan.name,
            "kind": self.plan.kind,
            "network": self.plan.network,
            "state": state or ("stopping" if self._stopping else "up"),
            "keeper": os.getpid(),
            "token_file": self.plan.token_file,
            "processes": [kept.as_json() for kept in self.kept],
        }
        try:
            self.run.write_state(report)
        except OSError as error:
            self._say(f"cannot write {self.run.state_file}: {error.strerror}")

    def _say(self, text: str) -> None:
        print(time.strftime("%Y-%m-%dT%H:%M:%S"), text, flush=True)


def how_it_ended(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def preload() -> None:
    """Import what nodes and the coordinator need, once for all of them."""
    import importlib

    for name in (
        "headwater.deploy.cli.command",
        "headwater.node.daemon.process",
        "headwater.coordinator.daemon.process",
        "uvloop",
        "zmq.asyncio",
    ):
        try:
            importlib.import_module(name)
        except ImportError:
            traceback.print_exc()


def main(folder: str, ready: Callable[[], None] = lambda: None) -> int:
    run = Run(Path(folder))
    lock = run.lock()
    if lock is None:
        print(f"{run.folder} has a keeper already", file=sys.stderr)
        return 1
    plan = run.plan()
    if plan.forks and any(process.command is None for process in plan.processes):
        preload()
        gc.collect()
        gc.freeze()  # what is here now stays; looking at it again would only unshare its memory
    set_title(f"keeper of {run.name}")
    ready()
    Keeper(run, plan, lock=lock).keep()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
