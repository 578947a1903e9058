"""headwater replay: tasks of Spark stream a prepared trace into real nodes, also when one of them is killed."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.deploy.reporting.inputs import find_runs
from headwater.pipeline.prepare.prepared_trace import (
    EVENTS,
    Manifest,
    NodeSummary,
    PreparedTrace,
    TypeSummary,
    open_prepared,
    write_manifest,
)
from headwater.pipeline.replay.replay import Targets, grouped, replay
from headwater.pipeline.replay.sender import ReplayRefused
from headwater.protocol.errors import ConfigError
from tests.kit.patience import run_to_its_end
from tests.kit.processes import Cluster, assert_exact
from tests.kit.replay import batches_of, places, replaying
from tests.kit.report import tables_of
from tests.law.law import promised
from tests.law.networks import NetworkCase
from tests.processes.test_replay import RULES, a_case, at, must_of

PROJECT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def case() -> NetworkCase:
    return a_case(1_500)


@pytest.fixture(scope="module")
def trace(case: NetworkCase, tmp_path_factory: pytest.TempPathFactory) -> PreparedTrace:
    """The events of the case as ``headwater traces`` would prepare them; those of each node in two files."""
    folder = tmp_path_factory.mktemp("trace") / "letters"
    events = promised(case)
    for node, batches in batches_of(events, case.network.types, 300).items():
        rows = pa.Table.from_batches(batches)
        (folder / EVENTS / f"node={node}").mkdir(parents=True)
        for number, part in enumerate((rows.slice(0, 211), rows.slice(211))):
            pq.write_table(part, folder / EVENTS / f"node={node}" / f"part-0000{number}.parquet")
    kinds = {"k": "int", "v": "float", "s": "string"}
    attributes = {**kinds, "s": "string?"}
    times = [event.ts for event in events]
    span = (min(times), max(times))
    types = {
        name: TypeSummary(sum(event.type == name for event in events), *span, attributes) for name in ("A", "B", "C")
    }
    nodes = {name: NodeSummary(sum(event.node == name for event in events), *span) for name in ("p1", "p2", "p3")}
    manifest = Manifest("letters", len(events), *span, "c0ffee", types, nodes, kinds)
    write_manifest(folder, manifest)
    return open_prepared(folder)


def targets(cluster: Cluster) -> Targets:
    (place,) = places(cluster, 1)
    sources = frozenset((source.node, source.type) for source in cluster.network.sources)
    attributes = {each.name: each.attributes for each in cluster.network.types}
    return Targets("test", place.addresses, sources, attributes)


def test_nodes_are_divided_by_their_events_and_no_task_is_without() -> None:
    counts = {"a": 100, "b": 60, "c": 50, "d": 1}
    assert grouped(counts, ["a", "b", "c", "d", "none"], 2) == [["a", "d", "none"], ["b", "c"]]
    assert grouped(counts, counts, 4) == [["a"], ["b"], ["c"], ["d"]]


def test_a_task_that_is_killed_goes_on_and_no_event_is_born_twice(
    case: NetworkCase, trace: PreparedTrace, spark: Any, tmp_path: Path
) -> None:
    pids: dict[int, int] = {}

    def strike() -> None:
        os.kill(pids[0], signal.SIGKILL)

    with replaying(case, "st", tmp_path) as cluster:
        kill = at(300, strike)

        def watch(progress: Any) -> None:
            if 0 in progress:
                pids.setdefault(0, progress[0].pid)
            kill(progress)

        outcome = replay(spark, trace, targets(cluster), speed=6.0, watch=watch)
        cluster.wait_until_done()
        assert_exact(cluster, must_of(case))
        again = replay(spark, trace, targets(cluster))
    assert pids
    assert outcome.tasks == 2
    assert (outcome.sent, outcome.before, outcome.late, outcome.left_out) == (1_500, 0, 0, 0)
    assert 0 < sum(each.born for each in outcome.fed) < 1_500, "the second attempt sent the rest, and only that"
    assert sum(each.born + each.repeated for each in again.fed) == 0


def test_what_the_network_has_no_source_for_is_named_or_left_out(
    case: NetworkCase, trace: PreparedTrace, spark: Any, tmp_path: Path
) -> None:
    with replaying(case, "st", tmp_path) as cluster:
        found = targets(cluster)
        fewer = Targets("test", found.addresses, found.sources - {("p1", "C")}, found.attributes)
        lacking = sum(event.node == "p1" and event.type == "C" for event in promised(case))
        with pytest.raises(ConfigError, match=rf"no source that is replayed for C at p1 \({lacking} events\)"):
            replay(spark, trace, fewer)
        with pytest.raises(ConfigError, match="there is room for 2"):
            replay(spark, trace, found, tasks=3)
        outcome = replay(spark, trace, fewer, only_known=True, tasks=1)
        assert (outcome.sent, outcome.left_out) == (1_500 - lacking, lacking)
        wrong = Targets("test", found.addresses, found.sources, {**found.attributes, "A": ("k",)})
        other = PreparedTrace(trace.folder, replace(trace.manifest, checksum="another"))
        with pytest.raises(ReplayRefused, match=r"p\d has begun with another trace"):
            replay(spark, other, wrong)


# -- the command -------------------------------------------------------------------------------------------------------


def headwater(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    command = [sys.executable, "-m", "headwater.deploy.cli.command", *words]
    return run_to_its_end(command, cwd=folder, env=environment, text=True)


def network_text(trace: PreparedTrace) -> str:
    rules = "\n".join(f"  - |\n{_indented(each)}" for each in RULES.strip().split("\n\n"))
    return f"""
events: {{A: {{k: int, v: float, s: string?}}, B: {{k: int, v: float}}, C: {{k: int, v: float, s: string?}}}}
nodes: [p1, p2, p3]
links: [{{between: [p1, p2]}}, {{between: [p2, p3]}}]
sources:
  - {{node: p1, type: A, replay: any}}
  - {{node: p1, type: C, replay: any}}
  - {{node: p2, type: B, replay: any, trace: {trace.folder}}}
  - {{node: p3, type: C, replay: any}}
sinks:
  - {{node: p3, subscribe: [Last, Pair]}}
rules:
{rules}
"""


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


def test_the_command_replays_into_a_run(spark: Any, case: NetworkCase, trace: PreparedTrace, tmp_path: Path) -> None:
    (tmp_path / "letters.yaml").write_text(network_text(trace))
    for name in ("odd", "typed"):
        shutil.copytree(trace.folder, tmp_path / name)
    shutil.copytree(trace.folder / "events" / "node=p1", tmp_path / "odd" / "events" / "node=p9")
    odd = replace(trace.manifest, nodes={**trace.manifest.nodes, "p9": NodeSummary(7, 0, 0)})
    write_manifest(tmp_path / "odd", odd)
    types = {**trace.manifest.types, "B": TypeSummary(1, 0, 0, {"k": "string?"})}
    write_manifest(tmp_path / "typed", replace(trace.manifest, types=types))
    started = headwater(tmp_path, "up", "letters.yaml")
    assert started.returncode == 0, started.stderr
    try:
        for name, *sentences in (
            ("odd", "events for nodes that letters does not have, or that replay nothing: p9 (7 events)"),
            ("typed", "some B have no k there; declare it int?", "B has no v there, and the network declares it float"),
        ):
            refused = headwater(tmp_path, "replay", name, "--name", "letters")
            assert refused.returncode == 2
            assert all(sentence in refused.stderr for sentence in sentences), refused.stderr
        slow = headwater(tmp_path, "replay", str(trace.folder), "--name", "letters", "--speed", "fast")
        assert slow.returncode == 2
        assert "--speed: 'fast' is not a speed" in slow.stderr
        done = headwater(tmp_path, "replay", str(trace.folder), "--name", "letters", "--json", "--master", "local[1]")
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        assert (told["events"], told["before"], told["late"], told["tasks"]) == (1_500, 0, 0, 1)
        assert told["nodes"]["p2"]["events"] == trace.manifest.nodes["p2"].events
        assert "waiting until the network has drained" in done.stderr
        files = [tmp_path / ".headwater" / "letters" / "data" / "p3" / f"sink-{number}.jsonl" for number in (0, 1)]
        found = [sorted(re.findall(r'"id": ?"([^"]+)"', file.read_text())) for file in files]
        assert found == [sorted(each) for each in must_of(case)]
    finally:
        headwater(tmp_path, "down", "--name", "letters")
    (run,), _ = find_runs(["letters"], tmp_path / ".headwater")
    reported = tables_of(spark, [run], trace=trace).run("letters")
    assert (reported["born"], reported["input"]) == (1_500, "trace c0ffee")
    # The replay was short beside the time that the network was up, and its rate is that of the replay.
    assert reported["active_s"] <= told["seconds"] < reported["span_s"]
    assert reported["born_per_s"] >= told["events_per_s"]
