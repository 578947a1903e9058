"""``down``: ends everything of a run and removes its backend, even if its keeper is gone. It can be repeated."""

from __future__ import annotations

import signal
import time
from typing import Final

from headwater.deploy.cluster.backend import forget, noted
from headwater.deploy.cluster.processes import end_all, send
from headwater.deploy.cluster.runs import Run, marked
from headwater.deploy.cluster.waiting import Patience

DRAIN_S: Final = 10.0  # for processes that have no keeper to ask them
KEEPER_S_MAX: Final = 20.0  # the keeper itself waits 10 s, or a little more


def stop(run: Run) -> bool:
    """Whether there was anything to end or to remove."""
    from headwater.deploy.cluster.backends import backend_of

    if not run.folder.exists():
        return False
    anything_ended = _end_keeper(run)
    parts = noted(run)
    # Its containers and drivers are asked by the backend; the rest are processes that lost their keeper.
    anything_ended = end_all(lambda: _left(run), DRAIN_S) > 0 or anything_ended
    if parts:
        backend_of(parts["kind"]).remove(run, parts)
        forget(run)
        anything_ended = True
    state = run.state()
    if state and state.get("state") != "down":
        for process in state["processes"]:
            process.update(state="dead", pid=None, started=None)
        run.write_state({**state, "state": "down", "keeper": None})
    return anything_ended


def _left(run: Run) -> list[int]:
    return list(marked(run))


def _end_keeper(run: Run) -> bool:
    if not run.is_kept():
        return False
    patience = Patience(KEEPER_S_MAX)
    asked_keeper: int | None = None
    while run.is_kept() and not patience.over:
        keeper = run.state().get("keeper")
        if keeper is not None and keeper != asked_keeper:
            send(keeper, signal.SIGTERM)
            asked_keeper = keeper
        time.sleep(0.03)
    return True
