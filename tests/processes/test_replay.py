"""Replays into nodes of real processes, without Spark: the law, resuming, refusals, records."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest

from headwater.pipeline.replay.lockstep import Council, CouncilLost, Seat, Stopped, TaskProgress
from headwater.pipeline.replay.rows import stretches
from headwater.pipeline.replay.sender import NodeGroup, ReplayRefused, Sender
from headwater.protocol.events import Event, EventType
from headwater.protocol.languages import Source as RuleText
from headwater.protocol.languages import parse_rules
from headwater.protocol.messages.replay import At, Taken, TracePart
from headwater.protocol.network import Link, Network, Sink, Source
from headwater.protocol.subscriptions import parse_subscription
from tests.kit.first_seed import first_seed
from tests.kit.processes import CONTEXT, Cluster, assert_exact, lines_of, until
from tests.kit.replay import TRACE, batches_of, bounds_of, numbered_by_time, places, replay, replay_main, replaying
from tests.law.law import SERVED, Unjudged, expected, promised
from tests.law.networks import NetworkCase, network_case
from tests.processes.test_processes import simulated

LAW_CASES = int(os.environ.get("HEADWATER_REPLAY_CASES", "4"))


def judged(first: int) -> Iterator[tuple[NetworkCase, list[Any]]]:
    """Small networks from this seed on, with what must be delivered."""
    for seed in itertools.count(first):
        case = numbered_by_time(network_case(seed, "small"))
        with suppress(Unjudged):
            yield case, [*expected(case, promised(case))]


@pytest.mark.parametrize("number", range(LAW_CASES))
def test_replayed_networks_keep_the_law(number: int, tmp_path: Path) -> None:
    """Random networks: what a replay brings in is what the oracle reads."""
    first = first_seed() + 1_000 * number
    case, must = next((case, must) for case, must in judged(first) if any(must))
    strategy = SERVED[(first + number) % len(SERVED)]
    events = promised(case)
    with replaying(case, strategy, tmp_path) as cluster:
        fed = asyncio.run(replay(cluster, events, tasks=2, slices=7, rows=13))
        cluster.wait_until_done()
        assert_exact(cluster, must, f"HEADWATER_FUZZ_SEED={case.seed}, {strategy}")
    assert sum(each.born for each in fed) == len(events)
    assert sum(each.repeated + each.late for each in fed) == 0


# -- a network and a trace of which enough is found --------------------------------------------------------------------

A, B, C = (EventType(name, {"k": "int", "v": "float", "s": "string?"}) for name in "ABC")
RULES = """
define Last(k: int, v: float)
from B() and last A(k = B.k, v > 0.3) within 2 s from B and not C(k = B.k) within 1 s from B
where k = B.k, v = A.v

define Pair(k: int)
from C() and each B(k = C.k, v > 0.8) within 1 s from C
where k = C.k
"""
SPAN_US = 30_000_000


def a_case(events: int = 3_000) -> NetworkCase:
    """p1 - p2 - p3; A and C are born at p1, B at p2 and C at p3, where one waits for what the others find."""
    rules = parse_rules([RuleText(RULES, "rules", "tesla")], [A, B, C]).rules
    sources = tuple(Source(node, name) for node, name in (("p1", "A"), ("p1", "C"), ("p2", "B"), ("p3", "C")))
    sinks = tuple(Sink("p3", parse_subscription(name, "test")) for name in ("Last", "Pair"))
    links = (Link("p1", "p2"), Link("p2", "p3"))
    network = Network((A, B, C), ("p1", "p2", "p3"), links, sources, sinks, rules, "st")
    rng = random.Random(7)
    births = []
    for number in range(events):
        source = rng.randrange(len(sources))
        ts = 1_000_000_000 + rng.randrange(SPAN_US) // 10_000 * 10_000  # several at the same time
        values = {"k": rng.randrange(8), "v": rng.random()} | ({"s": "é"} if rng.random() < 0.5 else {})
        declared = {each.name: each for each in (A, B, C)}[sources[source].type]
        births.append((ts, source, Event(declared, ts, sources[source].node, number, values)))
    return numbered_by_time(NetworkCase(network, tuple(births)))


def must_of(case: NetworkCase) -> list[list[str]]:
    """By sink what the simulator delivers, which reads the same trace."""
    births = tuple(sorted(case.births, key=lambda birth: (birth[0], birth[1], birth[2].seq)))
    return simulated(case.network, births, "st")


def born(cluster: Cluster) -> int:
    """Events that nodes have made part of the trace, as the records say; each once, or this fails."""
    numbers: dict[str, list[tuple[int, int, int]]] = {}
    total = 0
    for node in cluster.network.nodes:
        for file in sorted((cluster.data(node) / "records").glob("births-*.jsonl")):
            for line in lines_of(file):
                assert line["node"] == node
                assert line["first_ts"] <= line["last_ts"]
                numbers.setdefault(node, []).append((line["first_seq"], line["last_seq"], line["events"]))
                total += line["events"]
    for spans in numbers.values():
        for before, after in itertools.pairwise(spans):
            assert before[1] < after[0], "a number was born twice"
    return total


def at(events: int, act: Callable[[], None]) -> Callable[[dict[int, TaskProgress]], None]:
    """Does it once, in a thread of its own, when nodes have taken so many events."""
    done: list[threading.Thread] = []

    def watch(progress: dict[int, TaskProgress]) -> None:
        if not done and sum(each.events for each in progress.values()) >= events:
            done.append(threading.Thread(target=act))
            done[0].start()

    return watch


# -- going on after a crash --------------------------------------------------------------------------------------------


def test_a_node_that_is_killed_is_told_the_rest_and_nothing_twice(tmp_path: Path) -> None:
    case = a_case()
    with replaying(case, "st", tmp_path) as cluster:

        def strike() -> None:
            cluster.kill("p2")
            cluster.restart("p2")
            cluster.kill("p1", "p3")
            cluster.restart("p1", "p3")

        fed = asyncio.run(replay(cluster, promised(case), speed=15.0, slices=30, watch=at(600, strike)))
        cluster.wait_until_done()
        assert cluster.kills == 3
        assert_exact(cluster, must_of(case))
    assert sum(each.born + each.repeated for each in fed) == len(case.births)
    assert sum(each.late for each in fed) == 0


def test_a_replayer_that_is_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    case = a_case()
    events = promised(case)
    with replaying(case, "st", tmp_path) as cluster:
        cluster.wait_until_ready()
        arguments = (places(cluster, 2), cluster.network.types, events)
        process = CONTEXT.Process(target=replay_main, args=arguments, kwargs={"speed": 15.0, "slices": 30}, daemon=True)
        process.start()
        until(lambda: sum(counted(cluster, "born").values()) > 600, "events are born", cluster)
        assert process.is_alive()
        process.kill()
        process.join()
        cluster.kill("p1")
        cluster.restart("p1")
        before = sum(counted(cluster, "born").values())
        fed = asyncio.run(replay(cluster, events, tasks=1))
        assert 0 < sum(each.born for each in fed) < len(events)
        again = asyncio.run(replay(cluster, events))
        assert sum(sum(each[1:4]) for each in again) == 0, "everything was there, so nothing was sent"
        cluster.wait_until_done()
        assert_exact(cluster, must_of(case))
        assert before <= len(events)
        cluster.terminate("p1", "p2", "p3")  # so that they write their records
        assert born(cluster) <= len(events)


def test_what_is_sent_again_is_counted_as_repeated_and_not_born(tmp_path: Path) -> None:
    case = a_case(200)
    events = [event for event in promised(case) if event.node == "p1"]
    parts = [TracePart(name, *columns(events, name)) for name in ("A", "C")]
    last = events[-1]

    async def twice(cluster: Cluster) -> Taken:
        (place,) = places(cluster, 1)
        async with Sender(replace(place, addresses={"p1": place.addresses["p1"]})) as sender:
            assert (await sender.positions())["p1"] == At(0, False)
            for _ in range(3):
                number = await sender.send("p1", parts, last.ts, last.seq)
            late = TracePart("A", [last.ts], [last.seq + 1], {"k": [1], "v": [0.5]})
            number = await sender.send("p1", [late], None, last.seq + 1)
            await sender.answered("p1", number)
            return sender.taken("p1")

    with replaying(case, "st", tmp_path) as cluster:
        assert asyncio.run(twice(cluster)) == Taken(len(events), 2 * len(events), 1)
        assert counted(cluster, "born")["p1"] == len(events)
        assert counted(cluster, "repeated")["p1"] == 2 * len(events)
        assert counted(cluster, "late")["p1"] == 1
        cluster.terminate("p1")
        assert born(cluster) == len(events)
        (letter,) = lines_of(cluster.data("p1") / "late.jsonl")
        assert (letter["device"], letter["counter"]) == ("p1", last.seq + 1)


def columns(events: Sequence[Event], name: str) -> tuple[list[int], list[int], dict[str, list[Any]]]:
    mine = [event for event in events if event.type == name]
    values = {each: [event.attributes[each] for event in mine] for each in ("k", "v", "s")}
    return [event.ts for event in mine], [event.seq for event in mine], values


def counted(cluster: Cluster, what: str) -> dict[str, int]:
    """By node how many events were born, late or repeated, since its last start."""
    found = {}
    for node in cluster.network.nodes:
        pattern = rf"^headwater_events_{what}_total{{[^}}]*}} (\S+)$"
        found[node] = sum(int(float(each)) for each in re.findall(pattern, cluster.metrics(node), re.MULTILINE))
    return found


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_what_a_node_does_not_take_is_said_in_a_sentence(tmp_path: Path) -> None:
    case = a_case(60)

    async def said(cluster: Cluster, node: str, *parts: TracePart, trace: str = TRACE) -> str:
        file = cluster.log(node).with_suffix(".address")
        until(file.exists, f"{node} listens", cluster)
        async with Sender(NodeGroup("test", {node: file.read_text()}, trace)) as sender:
            try:
                await sender.positions()
                await sender.answered(node, await sender.send(node, list(parts), None, 9))
            except ReplayRefused as refused:
                return str(refused)
        return "nothing"

    sources = case.network.sources[:3]  # none at p3
    births = tuple(each for each in case.births if each[1] < len(sources))
    case = replace(case, network=replace(case.network, sources=sources), births=births)
    with replaying(case, "st", tmp_path) as cluster:
        for node, part, sentence in (
            (
                "p3",
                TracePart("C", [1], [1], {}),
                "no source at p3 is replayed; give it one in the network file: replay: any",
            ),
            ("p2", TracePart("A", [1], [1], {}), "no source of 'A' at p2 is replayed (replay: any); those here: B"),
            ("p2", TracePart("B", [1], [1], {"k": [1], "x": [1]}), "B has no attribute 'x'; it has: k, v, s"),
            ("p2", TracePart("B", [1], [1], {"k": [1]}), "B needs a value for 'v'; declare it as optional"),
            ("p2", TracePart("B", [1], [1], {"k": ["1"], "v": [1.0]}), "B.k is declared int, but '1' is string"),
            ("p2", TracePart("B", [1], [1], {"k": [1], "v": [inf]}), "B.v is inf, which is not a finite number"),
            ("p2", TracePart("B", [2, 1], [1, 2], {"k": [1, 1], "v": [1.0, 1.0]}), "the numbers of a trace (seq) grow"),
            ("p2", TracePart("B", [1], [], {}), "0 events at once"),
        ):
            assert sentence in asyncio.run(said(cluster, node, part))
        asyncio.run(replay(cluster, promised(case)[:10]))
        assert "has begun with another trace (checksum 00000000c0ffee00, up to" in asyncio.run(
            said(cluster, "p1", trace="another")
        )
        fresh = TracePart("B", [5_000_000_000], [1_000], {"k": [1], "v": [1.0]})
        assert "was told that the replay has ended" in asyncio.run(said(cluster, "p2", fresh))
        assert not cluster.bugs()


def test_a_second_replayer_is_refused(tmp_path: Path) -> None:
    case = a_case(300)
    events = promised(case)

    async def both(cluster: Cluster) -> None:
        first = asyncio.create_task(replay(cluster, events, speed=3.0))
        await asyncio.to_thread(until, lambda: sum(counted(cluster, "born").values()) > 0, "it has begun", cluster)
        for name in ("replay", "another"):
            with pytest.raises(ReplayRefused, match=r"another (one|replay) into (it|this node) is under way"):
                await replay(cluster, events, name=name, tasks=1)
        first.cancel()

    with replaying(case, "st", tmp_path) as cluster:
        asyncio.run(both(cluster))


def test_a_replay_that_is_left_open_decides_nothing_beyond_its_watermarks(tmp_path: Path) -> None:
    case = a_case(600)
    events = promised(case)
    with replaying(case, "st", tmp_path) as cluster:
        asyncio.run(replay(cluster, events, ends=False))
        waiting = {node: [each for each in said if "not ended" in each] for node, said in cluster.waiting().items()}
        assert sorted(waiting) == ["p1", "p2", "p3"]
        asyncio.run(replay(cluster, events))
        cluster.wait_until_done()
        assert_exact(cluster, must_of(case))


# -- keeping together --------------------------------------------------------------------------------------------------


def test_no_task_runs_ahead_of_the_slowest() -> None:
    async def scenario() -> None:
        with Council(2) as council:
            async with Seat(council.invitation(), 0) as fast, Seat(council.invitation(), 1) as slow:
                fast.tell({"slices": 0, "from_us": 70})
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(fast.all_have(0), 0.2)  # the other is not ready
                slow.tell({"slices": 0, "from_us": 50})
                await fast.all_have(0)
                assert fast.zero_us == 50
                fast.tell({"slices": 9})
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(fast.all_have(1), 0.2)
                slow.tell({"slices": 3})
                await fast.all_have(3)
                await slow.stop("the disk is full")
                with pytest.raises(Stopped, match="the disk is full"):
                    await fast.all_have(4)
            assert council.stopped == "the disk is full"

    asyncio.run(scenario())


def test_no_task_sits_in_the_council_without_its_token() -> None:
    async def scenario() -> None:
        with Council(1) as council:
            async with Seat(replace(council.invitation(), token="é"), 0) as stranger:
                with pytest.raises(CouncilLost):
                    await stranger.all_have(0)
            async with Seat(council.invitation(), 0) as mine:
                mine.tell({"slices": 0})
                await mine.all_have(0)

    asyncio.run(scenario())


def test_slices_cover_the_trace_whatever_the_batches() -> None:
    case = a_case(500)
    events = promised(case)
    bounds = bounds_of(events, 9)
    attributes = {each.name: each.attributes for each in (A, B, C)}
    known = {(event.node, event.type) for event in events} - {("p1", "C")}
    for rows in (1, 7, 500):
        after = {"p1": 40}
        found: dict[str, list[int]] = {}
        completed = []
        for stretch in stretches(batches_of(events, (A, B, C), rows), bounds, after, attributes, known):
            for node, mine in stretch.rows.items():
                for message in mine.up_to(stretch.last_us):
                    assert message.first_ts > (bounds[stretch.slice - 1] if stretch.slice else 0)
                    numbers = sorted(seq for part in message.parts for seq in part.seq)
                    assert numbers[-1] == message.last_seq
                    found.setdefault(node, []).extend(numbers)
            if stretch.completes:
                completed.append(stretch.slice)
        assert completed == list(range(len(bounds)))
        assert found == {
            node: [
                event.seq
                for event in events
                if event.node == node and event.seq > after.get(node, 0) and (node, event.type) in known
            ]
            for node in ("p1", "p2", "p3")
        }
