"""``up``: prepares the backend, starts the keeper, waits until the network is ready; if it never is, undoes it all."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from headwater.deploy.cli.common import RunFailed
from headwater.deploy.cluster.backend import ClusterBackend, Wishes
from headwater.deploy.cluster.children import open_log
from headwater.deploy.cluster.log_files import last_lines
from headwater.deploy.cluster.pages import ask
from headwater.deploy.cluster.run_plan import Process, RunPlan
from headwater.deploy.cluster.runs import MARK, Run, marked, write_whole
from headwater.deploy.cluster.stop import stop
from headwater.deploy.cluster.waiting import Patience
from headwater.pipeline.spark.shipping import HOME
from headwater.protocol.errors import ConfigError

STILL_S_MAX: Final = 60.0
"""After so long without any progress a network that is not ready is a failure; on a busy machine after longer."""
STILLS_MAX: Final = 10
"""Processes that never come to an end with what they do are waited for so many times as long."""
LOOK_S: Final = 0.1
ANSWER_S: Final = 10.0
"""For an answer of a process that listens; it may have no processor."""
SAY_EVERY_S: Final = 15.0
"""How often those hear what is waited for who do not see it."""
ASKED_AT_ONCE: Final = 8
SHOWN_LINES: Final = 15


@dataclass(frozen=True, slots=True)
class Steps:
    """What is called as a network starts: ``say`` with a line of text, ``ready`` with how many nodes are ready, of how
    many, and what is waited for."""

    say: Callable[[str], None] = lambda text: None
    ready: Callable[[int, int, str], None] = lambda done, of, waiting_for: None


def start(
    run: Run, backend: ClusterBackend, wishes: Wishes, steps: Steps, *, patience_s: float = STILL_S_MAX
) -> RunPlan:
    """Bring a network up; when this returns it is ready and runs by itself. Otherwise nothing is left of it."""
    backend.check()
    _refuse_if_up(run)
    run.folder.mkdir(parents=True, exist_ok=True)
    stop(run)  # what is left of a run whose keeper was killed, or of a machine that was switched off
    try:
        plan = backend.build(run, wishes)
        write_whole(run.plan_file, plan.to_json())
        run.state_file.unlink(missing_ok=True)
        start_keeper(run)
        _wait(run, plan, steps, patience_s)
    except BaseException:
        steps.say("stopping everything again")
        stop(run)
        raise
    return plan


def _refuse_if_up(run: Run) -> None:
    if run.is_kept():
        raise ConfigError(
            f"{run.name} is up already; `headwater ps` shows it, `headwater down --name {run.name}` ends it, "
            "and --name gives a second run another name"
        )
    left = list(marked(run)) if run.folder.exists() else []
    if left:
        raise ConfigError(
            f"{run.name} has lost its keeper but {len(left)} of its processes are still there; "
            f"`headwater down --name {run.name}` ends them"
        )


def start_keeper(run: Run) -> int:
    """The keeper in the background, in a session of its own; its process id."""
    run.logs.mkdir(parents=True, exist_ok=True)
    output = open_log(run.keeper_log)
    path = os.pathsep.join(filter(None, [str(HOME), os.environ.get("PYTHONPATH", "")]))
    try:
        keeper = subprocess.Popen(
            [sys.executable, "-m", "headwater.deploy.cluster.keeper", str(run.folder)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={**os.environ, MARK: str(run.folder), "PYTHONPATH": path},
        )
    finally:
        os.close(output)
    _keepers.append(keeper)
    return keeper.pid


_keepers: list[subprocess.Popen[bytes]] = []  # so that one that ends while its starter lives is not left a zombie


def _wait(run: Run, plan: RunPlan, steps: Steps, patience_s: float) -> None:
    """Until the coordinator and then every node say that they are ready; RunFailed if something dies first, or if for
    ``patience_s`` nothing happens that can be seen: none starts, says or logs anything new."""
    patience, in_all = Patience(patience_s), Patience(STILLS_MAX * patience_s)
    waiting = [plan.coordinator(), *plan.nodes()]
    nodes = len(plan.nodes())
    missing = ""
    last_progress: object = None
    began = said_at = time.monotonic()
    while not patience.over and not in_all.over:
        _look_for_dead(run)
        first, *later = waiting
        _look_for_refusals(first)
        ready, missing = _is_ready(first)
        if ready:
            with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
                answers = list(pool.map(_is_ready, later))
            waiting = [process for process, (is_so, _) in zip(later, answers, strict=True) if not is_so]
            missing = next((why for is_so, why in answers if not is_so), "")
            if not waiting:
                steps.ready(nodes, nodes, "")
                return
        steps.ready(_running(run), nodes, missing)
        if time.monotonic() - said_at > SAY_EVERY_S:
            said_at = time.monotonic()
            steps.say(f"{said_at - began:.0f} s: {_running(run)} of {nodes} nodes run; {waiting[0].name}: {missing}")
        if (now := (_running(run), len(waiting), missing, _log_bytes(run))) != last_progress:
            last_progress = now
            patience.begin_again()
        time.sleep(LOOK_S)
    name = waiting[0].name
    how = f"for {patience_s:.0f} s nothing has happened" if patience.over else f"{in_all.seconds:.0f} s have passed"
    raise RunFailed(f"{run.name} is not ready, and {how}; {name}: {missing}; {_end_of(run, name)}")


def _log_bytes(run: Run) -> int:
    """How much all processes have said."""
    log_bytes = 0
    for process in run.state().get("processes", ()):
        with contextlib.suppress(OSError):
            log_bytes += Path(process["log"]).stat().st_size
    return log_bytes


def _is_ready(process: Process) -> tuple[bool, str]:
    """Whether a process says that it is ready; if not, what it waits for."""
    answer = ask(process.http, "/ready", ANSWER_S) if process.http is not None else (200, None)
    if answer is None:
        return False, f"does not answer on {process.http}"
    status, body = answer
    return status == 200, "; ".join(_missing(body)[:3])


def _look_for_refusals(process: Process) -> None:
    """RunFailed where nodes refuse the plan: to wait would not help."""
    answer = ask(process.http, "/ready", ANSWER_S) if process.role == "coordinator" and process.http else None
    if answer is not None and (refused := _listed(answer[1], "refused")):
        raise RunFailed("; ".join(refused[:3]))


def _missing(body: Any) -> list[str]:
    return _listed(body, "missing")


def _listed(body: Any, entry: str) -> list[str]:
    listed = body.get(entry) if isinstance(body, dict) else None
    return [str(item) for item in listed] if isinstance(listed, list) else []


def _running(run: Run) -> int:
    """How many nodes have been started."""
    return sum(process["role"] == "node" and process["pid"] is not None for process in run.state().get("processes", ()))


def _look_for_dead(run: Run) -> None:
    keeper = _keepers[-1] if _keepers else None
    if keeper is not None and keeper.poll() is not None:
        raise RunFailed(f"the keeper ended: {' / '.join(last_lines(run.keeper_log, SHOWN_LINES))}")
    for process in run.state().get("processes", ()):
        if process["exit"] is not None:
            raise RunFailed(
                f"{process['name']} {process['exit']} while the network was starting; {_end_of(run, process['name'])}"
            )


def _end_of(run: Run, name: str) -> str:
    """The last lines of a log, for people."""
    logs = {process["name"]: process["log"] for process in run.state().get("processes", ())}
    lines = last_lines(Path(logs[name]), SHOWN_LINES) if name in logs else []
    return f"the last lines of {name}:" + "".join(f"\n    {line}" for line in lines or ["(none)"])
