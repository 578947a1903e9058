"""The keeper of a run, with programs that stand in for nodes: it starts, starts again, and ends them; so does down."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headwater.deploy.cli.common import RunFailed
from headwater.deploy.cluster import log_files
from headwater.deploy.cluster.backend import ClusterBackend, Wishes, log_of
from headwater.deploy.cluster.keeper import how_it_ended
from headwater.deploy.cluster.processes import usage
from headwater.deploy.cluster.run_plan import Kind, Process, RunPlan, file_name, plan_from_json
from headwater.deploy.cluster.runs import Run, marked, the_run, write_whole
from headwater.deploy.cluster.start import Steps, start, start_keeper
from headwater.deploy.cluster.status import rows
from headwater.deploy.cluster.stop import stop
from headwater.deploy.network.file import read_network
from headwater.protocol.errors import ConfigError
from tests.kit.patience import until
from tests.kit.ports import free_port

STANDIN = Path(__file__).parent.parent / "kit" / "standin.py"


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    made = Run(tmp_path / ".headwater" / "trial")
    made.logs.mkdir(parents=True)
    yield made
    stop(made)
    assert not list(marked(made))


def standin(run: Run, name: str, *words: str, role: Any = "node", http: str | None = None) -> Process:
    pages = ["--http", http] if http is not None else []
    command = (sys.executable, str(STANDIN), name, *words, *pages)
    return Process(name=name, role=role, command=command, log=str(log_of(run, name)), http=http)


def keep(run: Run, *processes: Process, drain_s: float = 10.0) -> int:
    plan = RunPlan(name=run.name, kind="local", network="none.yaml", processes=processes, drain_s=drain_s)
    write_whole(run.plan_file, plan.to_json())
    pid = start_keeper(run)
    until(lambda: all("is there" in text_of(run, each.name) for each in processes), "everything has started")
    until(lambda: told(run, processes[0].name), "the keeper has told what it did")
    return pid


def text_of(run: Run, name: str) -> str:
    log = log_of(run, name)
    return log.read_text() if log.exists() else ""


def told(run: Run, name: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = [each for each in run.state().get("processes", ()) if each["name"] == name]
    return found[0] if found else {}


def test_a_process_that_is_killed_is_started_again_and_counted(run: Run) -> None:
    keep(run, standin(run, "p1"), standin(run, "p2"))
    killed, left_alone = told(run, "p1")["pid"], told(run, "p2")["pid"]

    os.kill(killed, signal.SIGKILL)

    until(partial(restarted, run, 1), "p1 is back")
    until(lambda: text_of(run, "p1").count("is there") == 2, "p1 has started again")
    assert told(run, "p1")["exit"] == "was ended by SIGKILL"
    assert told(run, "p1")["pid"] != killed
    assert told(run, "p2")["pid"] == left_alone
    assert {row.name: (row.state, row.restarts) for row in rows(run)} == {"p1": ("up", 1), "p2": ("up", 0)}


def restarted(run: Run, times: int) -> bool:
    process = told(run, "p1")
    return bool(process["restarts"] == times and process["pid"])


def test_a_process_that_keeps_dying_is_tried_again_less_and_less_often(run: Run) -> None:
    keep(run, standin(run, "p1"))
    until(lambda: told(run, "p1")["pid"], "p1 is up")
    for restarts in range(1, 4):
        os.kill(told(run, "p1")["pid"], signal.SIGKILL)
        until(partial(restarted, run, restarts), "p1 is back")
    waits = [
        line.rpartition(" in ")[2] for line in run.keeper_log.read_text().splitlines() if "restarting it in" in line
    ]
    assert waits == ["0.2 s", "0.4 s", "0.8 s"]


def test_nodes_end_before_the_coordinator_and_the_broker(run: Run, tmp_path: Path) -> None:
    ends = tmp_path / "ends"
    keep(
        run,
        standin(run, "@broker", "--ends", str(ends), role="broker"),
        standin(run, "@coordinator", "--ends", str(ends), role="coordinator"),
        standin(run, "p1", "--ends", str(ends)),
        standin(run, "p2", "--ends", str(ends)),
    )

    assert stop(run)

    order = ends.read_text().split()
    assert sorted(order[:2]) == ["p1", "p2"]
    assert sorted(order[2:]) == ["@broker", "@coordinator"]
    assert run.state()["state"] == "down"
    assert not run.is_kept()
    assert not list(marked(run))
    assert not stop(run), "there is nothing left to do"


def test_a_process_that_does_not_end_is_killed(run: Run) -> None:
    keep(run, standin(run, "p1", "--deaf"), drain_s=0.3)
    pid = told(run, "p1")["pid"]
    assert stop(run)
    assert usage(pid) is None
    assert "p1 did not end by itself" in run.keeper_log.read_text()


def test_a_process_can_have_a_way_of_its_own_to_be_ended(run: Run, tmp_path: Path) -> None:
    """As a container has: a signal to the client that holds it is not enough."""
    ends = tmp_path / "ends"
    process = replace(standin(run, "p1", "--deaf"), ending=("sh", "-c", f"echo asked > {ends}"))
    keep(run, process, drain_s=0.5)
    assert stop(run)
    assert ends.read_text() == "asked\n"


def test_down_cleans_up_after_a_keeper_that_was_killed(run: Run) -> None:
    keeper = keep(run, standin(run, "p1"), standin(run, "p2"))
    pids = [told(run, name)["pid"] for name in ("p1", "p2")]
    os.kill(keeper, signal.SIGKILL)
    until(lambda: not run.is_kept(), "the keeper is gone")
    assert all(usage(pid) is not None for pid in pids), "a network outlives its keeper"

    with pytest.raises(ConfigError, match="lost its keeper but 2 of its processes"):
        start(run, Standins(), wishes(run), Steps())

    assert stop(run)
    assert all(usage(pid) is None for pid in pids)
    assert run.state()["state"] == "down"
    assert not stop(run)


def test_a_run_has_one_keeper(run: Run) -> None:
    keep(run, standin(run, "p1"))
    pid = told(run, "p1")["pid"]
    start_keeper(run)
    until(lambda: "has a keeper already" in run.keeper_log.read_text(), "the second one has been refused")
    with pytest.raises(ConfigError, match="trial is up already"):
        start(run, Standins(), wishes(run), Steps())
    assert told(run, "p1")["pid"] == pid


# -------------------------------------------------------------------------------------------------------------- forks


def say_and_leave(words: list[str]) -> None:
    print("said", *words, flush=True)
    print(Path("/proc/self/cmdline").read_bytes().split(b"\0")[0].decode())
    print("its own group" if os.getpgid(0) == os.getpid() else "the group of others")
    print(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
    sys.exit(7)


def fail(words: list[str]) -> None:
    raise KeyError(words[0])


def forked(entry: str, log: Path) -> int:
    """The exit code of a forked process; forked from one of its own, since here output goes where pytest wants it."""
    code = f"""
import os, signal
from pathlib import Path
from headwater.deploy.cluster.children import fork
from tests.processes.test_cluster_keeper import {entry}
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGCHLD])
pid = fork("p1", ["a", "b"], Path({str(log)!r}), entry={entry})
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    project = Path(__file__).resolve().parent.parent.parent
    done = subprocess.run([sys.executable, "-c", code], cwd=project, capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_a_forked_process_has_a_log_a_group_and_a_name_of_its_own(tmp_path: Path) -> None:
    log = tmp_path / "p1.log"
    log.write_text("before\n")
    assert forked("say_and_leave", log) == 7
    assert log.read_text().splitlines() == ["before", "said a b", "headwater: p1", "its own group", "set()"]


def test_a_forked_process_that_fails_says_why_and_ends(tmp_path: Path) -> None:
    log = tmp_path / "p1.log"
    assert forked("fail", log) == 1
    assert "KeyError: 'a'" in log.read_text()


# ---------------------------------------------------------------------------------------------------- up, as a whole

NETWORK = "nodes: [p1, p2]\nlinks:\n  - {between: [p1, p2]}\n"


class Standins:
    """Local processes, but other programs."""

    kind: Kind = "local"

    def __init__(self, **words: list[str]) -> None:
        self.words = words

    def check(self) -> None:
        pass

    def build(self, run: Run, wishes: Wishes) -> RunPlan:
        run.logs.mkdir(parents=True, exist_ok=True)
        pages = {node: f"127.0.0.1:{free_port()}" for node in wishes.file.network.nodes}
        first = standin(
            run, "@coordinator", "--after", *pages.values(), role="coordinator", http=f"127.0.0.1:{free_port()}"
        )
        nodes = [standin(run, node, *self.words.get(node, []), http=page) for node, page in pages.items()]
        return RunPlan(name=run.name, kind=self.kind, network="none", processes=(first, *nodes))

    def remove(self, run: Run, made: Mapping[str, Any]) -> None:
        pass


def wishes(run: Run) -> Wishes:
    file = run.folder.parent / "network.yaml"
    file.write_text(NETWORK)
    return Wishes(file=read_network(file), data=run.folder / "data")


def test_up_returns_when_the_network_is_ready_and_leaves_it_running(run: Run) -> None:
    backend: ClusterBackend = Standins()
    plan = start(run, backend, wishes(run), Steps())
    assert [each.name for each in plan.processes] == ["@coordinator", "p1", "p2"]
    assert {row.state for row in rows(run)} == {"up"}
    assert stop(run)


def test_up_shows_the_end_of_the_log_of_what_died_and_leaves_nothing(run: Run) -> None:
    with pytest.raises(RunFailed) as failed:
        start(run, Standins(p2=["--exit", "3"]), wishes(run), Steps())
    assert "p2 ended with exit code 3 while the network was starting" in str(failed.value)
    assert "p2 cannot go on" in str(failed.value)
    assert not run.is_kept()
    assert not list(marked(run))


# ------------------------------------------------------------------------------------------------------- small things


def test_a_plan_survives_being_written_down(run: Run) -> None:
    plan = RunPlan(
        name="x",
        kind="netns",
        network="n.yaml",
        processes=(
            Process(name="a b", role="node", arguments=("node", "a b"), namespace="/run/netns/x", log="l"),
            Process(name="@broker", role="broker", command=("podman", "start"), ending=("a",), log="m", pid_file="p"),
        ),
        stage={"bridge": "hw0br"},
    )
    assert plan_from_json(plan.to_json()) == plan


def test_any_name_of_a_node_gives_a_file_of_its_own() -> None:
    names = ["p1", "P1", "a/b", "a%2Fb", "..", ".", "a b", "ä", "@coordinator", "coordinator"]
    files = [file_name(name) for name in names]
    assert len(set(files)) == len(names)
    assert not any("/" in each or each in (".", "..") for each in files)


def test_the_only_run_that_is_up_need_not_be_named(run: Run, tmp_path: Path) -> None:
    home = tmp_path / ".headwater"
    with pytest.raises(ConfigError, match="start one with: headwater up"):
        the_run(home, None, purpose="end")
    other = Run(home / "other")
    other.folder.mkdir()
    keep(run, standin(run, "p1"))
    assert the_run(home, None, purpose="end").name == "trial"
    write_whole(other.plan_file, run.plan_file.read_text())
    assert the_run(home, None, purpose="end").name == "trial"
    stop(run)
    with pytest.raises(ConfigError, match="several runs: other, trial"):
        the_run(home, None, purpose="end")
    with pytest.raises(ConfigError, match=r"there is no run 'third'.*other, trial"):
        the_run(home, "third", purpose="end")


def test_a_log_is_set_aside_when_it_is_long_and_writers_go_on(tmp_path: Path) -> None:
    log = tmp_path / "p1.log"
    with log.open("ab") as writer:
        writer.write(b"one\ntwo\n")
        writer.flush()
        follower = log_files.Follower(log)
        assert not log_files.bound(log, bytes_max=8)
        writer.write(b"three\n")
        writer.flush()
        assert list(follower.lines()) == ["three"]
        assert log_files.bound(log, bytes_max=8)
        assert log.stat().st_size == 0
        writer.write(b"four\nfi")
        writer.flush()
        assert list(follower.lines()) == ["four"]
        writer.write(b"ve\n")
        writer.flush()
        assert list(follower.lines()) == ["five"]
    assert log_files.last_lines(log, 1) == ["five"]
    assert log_files.last_lines(log, 4) == ["two", "three", "four", "five"]
    assert log_files.last_lines(log, 9) == ["one", "two", "three", "four", "five"]
    assert log_files.last_lines(tmp_path / "none.log", 5) == []


def test_how_a_process_ended_is_said_in_words() -> None:
    assert how_it_ended(0) == "ended with exit code 0"
    assert how_it_ended(2 << 8) == "ended with exit code 2"
    assert how_it_ended(9) == "was ended by SIGKILL"
