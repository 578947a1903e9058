"""Replays into real nodes without Spark: the same code that a task runs, several tasks in one process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from headwater.pipeline.replay.lockstep import Council, TaskProgress
from headwater.pipeline.replay.replay_task import Fed, FeedingOptions, feed
from headwater.pipeline.replay.sender import NodeGroup
from headwater.protocol.edge import ReplayFeed
from headwater.protocol.events import Event, EventType
from tests.kit.processes import Cluster, as_replayed, until
from tests.law.networks import NetworkCase

KINDS = {"int": pa.int64(), "float": pa.float64(), "string": pa.string(), "bool": pa.bool_()}
TRACE = "00000000c0ffee00"


def numbered_by_time(case: NetworkCase) -> NetworkCase:
    """The case without its late events, and the others of each node numbered as a prepared trace numbers them."""
    counts: dict[str, int] = {}
    births = []
    for at_us, source, event in sorted(case.births, key=lambda birth: (birth[2].ts, birth[2].seq)):
        if not case.is_late((at_us, source, event)):
            counts[event.node] = counts.get(event.node, 0) + 1
            births.append((at_us, source, Event.from_row((event.ts, event.node, counts[event.node], *event[3:]))))
    return replace(case, births=tuple(births))


def batches_of(
    events: Sequence[Event], types: Sequence[EventType], rows: int = 50
) -> dict[str, Iterator[pa.RecordBatch]]:
    """By node its events in the order of the trace, some at a time, as the files of a prepared trace give them."""
    kinds = {name: kind for each in types for name, kind in zip(each.attributes, each.kinds, strict=True)}
    names = [("type", pa.string()), ("ts", pa.int64()), ("seq", pa.int64())]
    schema = pa.schema([*names, *((name, KINDS[kind]) for name, kind in kinds.items())])

    def batches(node: str) -> Iterator[pa.RecordBatch]:
        mine = sorted((event for event in events if event.node == node), key=lambda event: (event.ts, event.seq))
        for start in range(0, len(mine), rows):
            some = [
                {"type": each.type, "ts": each.ts, "seq": each.seq, **each.attributes}
                for each in mine[start : start + rows]
            ]
            yield pa.RecordBatch.from_pylist(some, schema)

    return {node: batches(node) for node in {event.node for event in events}}


def bounds_of(events: Sequence[Event], slices: int) -> tuple[int, ...]:
    """Slices of time with about as many events each."""
    times = sorted(event.ts for event in events)
    if not times:
        return (0,)
    step = max(1, -(-len(times) // slices))
    return tuple(sorted({*times[step - 1 :: step], times[-1]}))


@contextmanager
def replaying(case: NetworkCase, strategy: str, folder: Path, **options: Any) -> Iterator[Cluster]:
    """The network of a case in real processes, which wait for a replay."""
    network = as_replayed(case.network, strategy)
    feeds = tuple(ReplayFeed() for _ in network.sources)
    with Cluster(network, folder, feeds, **options) as cluster:
        yield cluster


def places(cluster: Cluster, tasks: int, trace: str = TRACE, name: str = "replay") -> list[NodeGroup]:
    """The nodes that have sources, divided among tasks."""
    addresses = {}
    for node in sorted({source.node for source in cluster.network.sources}):
        file = cluster.log(node).with_suffix(".address")
        until(file.exists, f"{node} listens", cluster)
        addresses[node] = file.read_text()
    shares: list[dict[str, str]] = [{} for _ in range(min(tasks, len(addresses)))]
    for number, (node, address) in enumerate(addresses.items()):
        shares[number % len(shares)][node] = address
    return [NodeGroup("test", share, trace, name=name) for share in shares]


async def replay(
    cluster: Cluster,
    events: Sequence[Event],
    *,
    tasks: int = 2,
    trace: str = TRACE,
    name: str = "replay",
    **options: Any,
) -> list[Fed]:
    """All events, by so many tasks, to the end; what became of them at each node."""
    return await replay_to(places(cluster, tasks, trace, name), cluster.network.types, events, **options)


async def replay_to(
    shares: Sequence[NodeGroup],
    types: Sequence[EventType],
    events: Sequence[Event],
    *,
    slices: int = 10,
    rows: int = 50,
    watch: Callable[[dict[int, TaskProgress]], None] = lambda progress: None,
    **options: Any,
) -> list[Fed]:
    attributes = {each.name: each.attributes for each in types}
    known = frozenset((event.node, event.type) for event in events)
    assignment = FeedingOptions(bounds_of(events, slices), attributes, streams=known, **options)
    with Council(len(shares), watch=watch) as council:
        found = await asyncio.gather(
            *(
                feed(
                    share,
                    assignment,
                    batches_of([event for event in events if event.node in share.addresses], types, rows),
                    council.invitation(),
                    seat,
                )
                for seat, share in enumerate(shares)
            )
        )
    return [each for of_task in found for each in of_task]


def replay_main(
    shares: Sequence[NodeGroup], types: Sequence[EventType], events: Sequence[Event], **options: Any
) -> None:
    """A replayer that is a process of its own, to be killed."""
    asyncio.run(replay_to(shares, types, events, **options))
