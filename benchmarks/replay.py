"""How fast ``headwater replay`` brings events into 3 and into 20 nodes of this machine, beside their own ``trace:``.

    python -m benchmarks.replay [--events 300000]

Both bring the same prepared trace in as fast as the network takes it, with the same rule; the numbers of matches are
printed and must be equal. Time runs from when all nodes are ready (of their own traces they have read a little by then)
and, for a replay, from when its tasks are, until everything that follows is delivered.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.network_kit import NETWORK, Stage, a_folder, load
from headwater.pipeline.prepare.prepared_trace import (
    EVENTS,
    Manifest,
    NodeSummary,
    PreparedTrace,
    TypeSummary,
    open_prepared,
    write_manifest,
)
from headwater.pipeline.replay.replay import Targets, replay
from headwater.pipeline.spark.session import spark_session
from headwater.protocol.edge import Feed, FileTo, ReplayFeed, TraceFeed
from headwater.protocol.events import EventType
from headwater.protocol.languages import Source as RuleText
from headwater.protocol.languages import parse_rules
from headwater.protocol.network import Link, Network, Sink, Source
from headwater.protocol.subscriptions import parse_subscription

KINDS = {"key": "int", "value": "float", "place": "string"}
A, B = EventType("A", KINDS), EventType("B", KINDS)
RULE = """define Pair(key: int, value: float)
from B(value > 0.5) and last A(key = B.key, value > 0.5) within 1 s from B
where key = B.key, value = A.value"""
STEP_US = 200  # between two events of the whole network
KEYS = 20_000  # few matches: what is measured is the way in


def a_network(nodes: int) -> Network:
    """A tree in which every node has two children; both types are born everywhere."""
    names = tuple(f"n{number}" for number in range(1, nodes + 1))
    links = tuple(Link(names[(number - 1) // 2], names[number]) for number in range(1, nodes))
    sources = tuple(Source(name, declared.name, replayed=True) for name in names for declared in (A, B))
    rules = parse_rules([RuleText(RULE, "pair", "tesla")], [A, B]).rules
    return Network((A, B), names, links, sources, (Sink(names[0], parse_subscription("Pair", "bench")),), rules, "st")


def a_trace(folder: Path, nodes: tuple[str, ...], events: int) -> PreparedTrace:
    """Events as ``headwater traces`` prepares them."""
    rng = np.random.default_rng(1)
    of = rng.integers(len(nodes), size=events)
    times = np.arange(events, dtype=np.int64) * STEP_US + 1_000_000_000
    columns = {
        "type": np.where(rng.random(events) < 0.5, "A", "B"),
        "key": rng.integers(KEYS, size=events),
        "value": rng.random(events),
        "place": rng.choice(["north", "south", "east", "west"], size=events),
    }
    summaries = {}
    for number, node in enumerate(nodes):
        mine = of == number
        rows = {name: values[mine] for name, values in columns.items()}
        count = int(mine.sum())
        table = pa.table({"ts": times[mine], "seq": np.arange(1, count + 1), **rows})
        (folder / EVENTS / f"node={node}").mkdir(parents=True)
        pq.write_table(table, folder / EVENTS / f"node={node}" / "part-00000.parquet")
        summaries[node] = NodeSummary(count, int(times[mine][0]), int(times[mine][-1]))
    span = (int(times[0]), int(times[-1]))
    types = {name: TypeSummary(int((columns["type"] == name).sum()), *span, KINDS) for name in ("A", "B")}
    write_manifest(folder, Manifest("bench", events, *span, f"{events}-{len(nodes)}", types, summaries, KINDS))
    return open_prepared(folder)


@contextmanager
def staged(network: Network, folder: Path, feed: Feed) -> Iterator[Stage]:
    folder.mkdir()
    with Stage(network, folder, tuple(feed for _ in network.sources), (FileTo("found.jsonl"),), "async") as stage:
        yield stage


def drained(stage: Stage) -> None:
    stage.until(lambda: not any(stage.ask(node, "/waiting") for node in stage.network.nodes), "all is delivered", 900)


def matches(stage: Stage) -> int:
    return (stage.folder / stage.network.nodes[0] / "found.jsonl").read_bytes().count(b"\n")


def by_trace(network: Network, trace: PreparedTrace, folder: Path) -> tuple[float, int]:
    """The nodes read the files themselves."""
    with staged(network, folder, TraceFeed(str(trace.folder), 0.0)) as stage:
        began = time.perf_counter()
        drained(stage)
        return time.perf_counter() - began, matches(stage)


def by_replay(spark: Any, network: Network, trace: PreparedTrace, folder: Path) -> tuple[float, int]:
    with staged(network, folder, ReplayFeed()) as stage:
        addresses = {node: stage.address(node) for node in network.nodes}
        sources = frozenset((source.node, source.type) for source in network.sources)
        targets = Targets(NETWORK, addresses, sources, {"A": tuple(KINDS), "B": tuple(KINDS)})
        began: list[float] = []

        def watch(progress: Any) -> None:
            if not began and any(fed.slices is not None for fed in progress.values()):
                began.append(time.perf_counter())

        replay(spark, trace, targets, watch=watch)
        drained(stage)
        return time.perf_counter() - began[0], matches(stage)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=300_000)
    parser.add_argument("--nodes", type=int, nargs="*", default=[3, 20])
    options = parser.parse_args()
    print(f"{options.events:,} events, load {load()}")
    equal = True
    with spark_session("benchmark", None, {"spark.driver.memory": "1g"}) as spark:
        for nodes in options.nodes:
            network = a_network(nodes)
            with a_folder() as folder:
                trace = a_trace(folder / "trace-of-events", network.nodes, options.events)
                own_s, own = by_trace(network, trace, folder / "trace")
                replay_s, replayed = by_replay(spark, network, trace, folder / "replay")
            equal = equal and own == replayed
            ratio = own_s / replay_s
            print(f"{nodes:>3} nodes  trace:  matches={own} seconds={own_s:.1f} events/s={options.events / own_s:,.0f}")
            print(
                f"{nodes:>3} nodes  replay  matches={replayed} seconds={replay_s:.1f} "
                f"events/s={options.events / replay_s:,.0f}  {ratio:.2f} times trace:"
            )
    if not equal:
        print("the two do not find the same", file=sys.stderr)
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
