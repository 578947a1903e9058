"""Sources that a node feeds itself: traces and rates."""

from __future__ import annotations

import asyncio
import itertools
import time
from pathlib import Path
from typing import Any

from headwater.node.edge.adapters import make_source
from headwater.node.edge.interfaces import Arrival
from headwater.node.edge.trace_order import Turns
from headwater.protocol.edge import Choice, ClientFeed, Count, Cycle, RateFeed, TraceFeed
from headwater.protocol.events import EventType
from tests.kit.edge import Taken, an_edge, run, running, until
from tests.kit.patience import patiently

A, B = EventType("A", {"x": "int"}), EventType("B", {"x": "int"})
ROWS = "type,ts,x\nA,10,1\nB,20,2\nA,20,3\nB,30,4\nA,40,5\n"


def trace(folder: Path, text: str = ROWS, name: str = "t.csv", speed: float = 0.0) -> TraceFeed:
    (folder / name).write_text(text)
    return TraceFeed(str(folder / name), speed)


async def replayed(
    folder: Path, *feeds: tuple[int, TraceFeed, EventType], positions: dict[int, Any] | None = None
) -> Taken:
    """What these sources of one node publish, all of it."""
    edge, taken = an_edge(folder), Taken()
    made = [(number, make_source(number, feed, event_type, edge)) for number, feed, event_type in feeds]
    await asyncio.gather(*(source.run(taken, (positions or {}).get(number)) for number, source in made if source))
    return taken


def test_a_trace_is_published_in_order_of_time_with_watermarks_and_positions(tmp_path: Path) -> None:
    taken = run(replayed(tmp_path, (0, trace(tmp_path), A)))
    assert taken.arrivals == [Arrival(ts, None, None, (x,)) for ts, x in ((10, 1), (20, 3), (40, 5))]
    assert taken.calls[-1][2:] == (40, 3)
    assert taken.over == [0]


def test_rows_in_any_order_are_sorted(tmp_path: Path) -> None:
    feed = trace(tmp_path, "type,ts,x\nA,40,5\nA,10,1\nA,20,3\n")
    assert [each.ts for each in run(replayed(tmp_path, (0, feed, A))).arrivals] == [10, 20, 40]


def test_a_source_takes_the_rows_of_its_node_or_of_none(tmp_path: Path) -> None:
    feed = trace(tmp_path, "type,ts,x,node\nA,1,1,p1\nA,2,2,p2\nA,3,3,\n")
    assert run(replayed(tmp_path, (0, feed, A))).values == [(1,), (3,)]


def test_rows_with_a_seq_keep_it_as_the_nodes_own(tmp_path: Path) -> None:
    feed = trace(tmp_path, "type,ts,x,seq\nA,1,1,7\nA,2,2,5\n")
    assert [(each.device, each.counter) for each in run(replayed(tmp_path, (0, feed, A))).arrivals] == [
        ("p1", 7),
        ("p1", 5),
    ]


def test_a_watermark_is_below_the_next_row_and_never_below_what_was_published(tmp_path: Path) -> None:
    rows = "type,ts,x\n" + "".join(f"A,{ts},0\n" for ts in sorted([1, 1, 1, 5, 5, *range(9, 2000)]))
    taken = run(replayed(tmp_path, (0, trace(tmp_path, rows), A)))
    assert len(taken.arrivals) == 1996
    for call, following in itertools.pairwise(taken.calls):
        assert call[2] is not None
        assert all(each.ts is not None and each.ts > call[2] for each in following[1])
        assert following[1][0].ts == call[2] + 1


def test_every_position_is_a_place_to_go_on_from(tmp_path: Path) -> None:
    feed = trace(tmp_path)
    whole = run(replayed(tmp_path, (0, feed, A))).values
    for position in range(4):
        taken = run(replayed(tmp_path, (0, feed, A), positions={0: position}))
        assert taken.values == whole[position:]
        assert taken.over == [0]


def test_the_traces_of_a_node_enter_in_the_order_of_the_global_trace(tmp_path: Path) -> None:
    feed = trace(tmp_path)
    other = trace(tmp_path, "type,ts,x\nB,5,9\nB,40,8\n", "u.csv")
    taken = run(replayed(tmp_path, (2, feed, B), (0, other, B), (1, feed, A)))
    assert [(each.ts, call[0]) for call in taken.calls for each in call[1]] == [
        (5, 0), (10, 1), (20, 1), (20, 2), (30, 2), (40, 0), (40, 1),
    ]  # fmt: skip


def test_a_source_that_stops_lets_the_others_go_on() -> None:
    async def scenario() -> None:
        turns = Turns()
        turns.join("first", 0)
        turns.join("second", 1)
        turns.leave("former")  # one that has been unknown for long
        waiting = asyncio.ensure_future(turns.mine("second", 1, 5))
        await asyncio.sleep(0)
        assert not waiting.done()
        turns.leave("first")
        async with patiently():
            await waiting

    run(scenario())


def test_bad_rows_are_refused_and_the_rest_goes_on(tmp_path: Path) -> None:
    feed = trace(tmp_path, "type,ts,x\nA,1,1\nA,2,no\nA,zwei,3\nA,4,4\n")
    taken = run(replayed(tmp_path, (0, feed, A)))
    assert taken.values == [(1,), (4,)]
    assert [why.removeprefix(f"{feed.path}:")[:2] for _, _, why in taken.bad] == ["3:", "4:"]
    again = run(replayed(tmp_path, (0, feed, A), positions={0: 1}))
    assert (again.values, again.bad) == ([(4,)], [])


def test_a_trace_that_is_not_there_is_waited_for(tmp_path: Path) -> None:
    async def scenario() -> None:
        edge, taken = an_edge(tmp_path), Taken()
        source = make_source(0, TraceFeed(str(tmp_path / "t.csv"), 0.0), A, edge)
        assert source is not None
        async with running(source.run(taken, None)):
            await asyncio.sleep(0.05)
            assert taken.calls == []
            trace(tmp_path)
            await until(lambda: taken.over == [0])
        assert taken.values == [(1,), (3,), (5,)]

    run(scenario())


def test_a_speed_paces_by_the_timestamps(tmp_path: Path) -> None:
    """Ten seconds of trace at 100 times the speed take at least a tenth of a second; without a speed, none."""
    feed = trace(tmp_path, "type,ts,x\nA,0,1\nA,10000000,2\n", speed=100.0)
    started = time.monotonic()
    taken = run(replayed(tmp_path, (0, feed, A)))
    assert time.monotonic() - started >= 0.1
    assert len(taken.calls) == 2


def test_nothing_is_published_while_the_node_takes_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        edge, taken = an_edge(tmp_path), Taken()
        taken.open.clear()
        source = make_source(0, trace(tmp_path), A, edge)
        assert source is not None
        async with running(source.run(taken, None)):
            await asyncio.sleep(0.1)
            assert taken.calls == []
            taken.open.set()
            await until(lambda: taken.over == [0])

    run(scenario())


# --- rates ------------------------------------------------------------------------------------------------------------


def a_rate(per_s: float = 1000.0, duration_us: int | None = 100_000, times: Any = "regular") -> RateFeed:
    return RateFeed(per_s, times, (Count(1),), duration_us)


async def made_up(folder: Path, feed: RateFeed, position: Any = None) -> tuple[Taken, int]:
    """What a source publishes, and how many events it skipped because the machine was too busy to make them."""
    taken, edge = Taken(), an_edge(folder)
    source = make_source(3, feed, A, edge)
    assert source is not None
    await source.run(taken, position)
    return taken, edge.counters.get("rate_events_skipped", 0)


def test_a_rate_makes_events_up_that_happen_now_until_its_duration_is_over(tmp_path: Path) -> None:
    taken, skipped = run(made_up(tmp_path, a_rate()))
    assert len(taken.values) + skipped == 99
    assert taken.values == sorted({(number,) for number in range(1, 100)} & set(taken.values))
    assert {(each.ts, each.device) for each in taken.arrivals} == {(None, None)}
    assert taken.over == [3]


def test_a_poisson_rate_has_about_as_many_events(tmp_path: Path) -> None:
    taken, skipped = run(made_up(tmp_path, a_rate(2000.0, 200_000, "poisson")))
    assert 280 < len(taken.arrivals) + skipped < 520  # six deviations of 400


def test_after_a_restart_a_rate_ends_when_it_would_have_ended_and_draws_anew(tmp_path: Path) -> None:
    feed = RateFeed(1000.0, "regular", (Choice(tuple(range(1000))), Cycle((1,))), 50_000)
    first, _ = run(made_up(tmp_path, feed))
    end_us = first.calls[-1][3][1]
    assert run(made_up(tmp_path, feed, [0, end_us]))[0].arrivals == []
    later = time.time_ns() // 1000 + 200_000
    second, _ = run(made_up(tmp_path, feed, [0, later]))
    assert second.calls[-1][3] == [1, later]
    assert second.values[:20] != first.values[:20]


def test_programs_are_served_by_the_daemon(tmp_path: Path) -> None:
    assert make_source(0, ClientFeed(), A, an_edge(tmp_path)) is None


def test_what_is_behind_by_much_is_not_made_up_any_more(tmp_path: Path) -> None:
    async def scenario() -> None:
        edge, taken = an_edge(tmp_path), Taken()
        source = make_source(0, a_rate(1000.0, 3_000_000), A, edge)
        assert source is not None
        taken.open.clear()
        async with running(source.run(taken, None)):
            await asyncio.sleep(1.5)  # longer than what is caught up with
            taken.open.set()
            await until(lambda: edge.counters.get("rate_events_skipped", 0) > 0)

    run(scenario())
