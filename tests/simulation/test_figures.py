"""What a simulated run cost: figures, report and delivery lines."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headwater.deploy.simulation.outcome import KINDS, Delivery, Outcome
from headwater.deploy.simulation.traffic_and_delay import (
    OVERHEAD_KINDS,
    delivery_line,
    delivery_lines,
    figures,
    percentile,
    render,
)
from headwater.node.observe.accounts import Traffic
from headwater.protocol.composites import Composite, CompositeSpec
from headwater.protocol.events import Event, EventType

SMOKE = EventType("Smoke", {"area": "string"})
TEMP = EventType("Temp", {"area": "string", "value": "float?"})
FIRE = CompositeSpec(
    rule="Fire",
    version=1,
    type=EventType("Fire", {"area": "string"}),
    roles=("Smoke", "Temp"),
    repeated=(False, False),
    values=lambda smoke, temp: (smoke[4],),
    plain=True,
)


def smoke(ts: int, seq: int = 1, area: str = "A1") -> Event:
    return Event(SMOKE, ts, "p2", seq, {"area": area})


def temp(ts: int, seq: int = 1) -> Event:
    return Event(TEMP, ts, "p1", seq, {"area": "A1", "value": 50.0})


def fire(at: int, seq: int = 1) -> Composite:
    return Composite((FIRE, smoke(at, seq), temp(at - 5, seq)))


def delivered(*delays: int, sink: int = 0) -> list[Delivery]:
    """Fires number 1, 2, .. at 1000, 2000, .. that took these times to reach their sink."""
    return [Delivery(sink, "p3", fire(1000 * n, n), 1000 * n + delay) for n, delay in enumerate(delays, 1)]


def a_run(strategy: str = "st") -> Outcome:
    traffic = {
        ("p2", "p1", "primitive"): Traffic(10, 4, 400),
        ("p1", "p2", "match"): Traffic(6, 3, 300),
        ("p1", "p3", "composite"): Traffic(2, 2, 1_200),
        ("p3", "p1", "awakening"): Traffic(0, 5, 50),
        ("p1", "p3", "watermark"): Traffic(0, 40, 480),
        ("p4", "p3", "control"): Traffic(0, 7, 700),
    }
    tasks = {"p2": ["Smoke for Fire", "Smoke for Fire"], "p1": ["Fire, whole"], "p3": []}
    return Outcome(strategy, delivered=delivered(30, 10, 20), traffic=traffic, tasks=tasks)


def a_central_run() -> Outcome:
    traffic = {("p2", "p1", "primitive"): Traffic(36, 7, 3_900), ("p2", "p1", "watermark"): Traffic(0, 900, 9_000)}
    return Outcome("centr", delivered=delivered(8, 8, 8), traffic=traffic, tasks={"p1": ["Fire, whole"]})


# -- figures -----------------------------------------------------------------------------------------------------------


def test_the_json_form_is_as_documented() -> None:
    nothing = {"events": 0, "messages": 0, "bytes": 0}
    assert figures(a_run(), a_central_run()).to_json() == {
        "strategy": "st",
        "composites": 3,
        "traffic": {
            "events": 18,
            "messages": 14,
            "bytes": 1_950,
            "by_kind": {
                "primitive": {"events": 10, "messages": 4, "bytes": 400},
                "match": {"events": 6, "messages": 3, "bytes": 300},
                "composite": {"events": 2, "messages": 2, "bytes": 1_200},
                "blocker": nothing,
                "reference": nothing,
                "awakening": {"events": 0, "messages": 5, "bytes": 50},
                "answer": nothing,
                "aggregate": nothing,
                "lookup": nothing,
                "watermark": {"events": 0, "messages": 40, "bytes": 480},
                "control": {"events": 0, "messages": 7, "bytes": 700},
            },
            "by_link": {
                "p1-p2": {"events": 16, "messages": 7, "bytes": 700},
                "p1-p3": {"events": 2, "messages": 7, "bytes": 1_250},
                "p3-p4": nothing,
            },
            "overhead": {"messages": 47, "bytes": 1_180},
        },
        "delay_us": {"p50": 20, "p95": 30, "p99": 30},
        "tasks": {"p1": 1, "p2": 2, "p3": 0},
        "relative_to_centr": {
            "events": 0.5,
            "messages": 2.0,
            "bytes": 0.5,
            "delay_p50": 2.5,
            "delay_p95": 3.75,
            "delay_p99": 3.75,
            "overhead_messages": 0.0522,
            "overhead_bytes": 0.1311,
        },
    }


def test_equal_runs_have_equal_figures_whatever_came_first() -> None:
    run, other = a_run(), a_run()
    other.traffic = dict(reversed(other.traffic.items()))
    other.tasks = dict(reversed(other.tasks.items()))
    assert json.dumps(figures(run).to_json()) == json.dumps(figures(other).to_json())


def test_without_centr_there_is_nothing_relative() -> None:
    assert figures(a_run()).to_json()["relative_to_centr"] is None


def test_a_ratio_to_nothing_is_none() -> None:
    relative = figures(a_run(), Outcome("centr")).to_json()["relative_to_centr"]
    assert relative is not None
    assert set(relative.values()) == {None}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_counts_once(kind: str) -> None:
    found = figures(Outcome("st", traffic={("a", "b", kind): Traffic(3, 2, 100)}))
    assert found.by_kind[kind] == Traffic(3, 2, 100)
    counted, other = (found.overhead, found.traffic) if kind in OVERHEAD_KINDS else (found.traffic, found.overhead)
    assert counted == Traffic(3, 2, 100)
    assert other == Traffic()


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        (range(1, 101), (50, 95, 99)),
        (range(1, 201), (100, 190, 198)),
        ([7], (7, 7, 7)),
        ([1, 2], (1, 2, 2)),
        ([1, 2, 3], (2, 3, 3)),
        ([], (None, None, None)),
    ],
)
def test_percentiles_of_known_numbers(numbers: Any, expected: tuple[int | None, ...]) -> None:
    assert tuple(percentile(list(numbers), share) for share in (50, 95, 99)) == expected


def test_the_delay_counts_from_the_latest_event_of_a_match() -> None:
    run = Outcome("st", delivered=[Delivery(0, "p3", fire(5_000), 5_700), Delivery(1, "p3", smoke(9_000), 9_100)])
    found = figures(run).to_json()
    assert found["delay_us"] == {"p50": 100, "p95": 700, "p99": 700}
    assert found["composites"] == 1  # the other is a primitive event


# -- the report --------------------------------------------------------------------------------------------------------


def test_the_report_shows_kinds_overhead_links_tasks_and_the_comparison() -> None:
    text = render(figures(a_run(), a_central_run()))
    assert text.splitlines() == [
        "strategy st: 3 composite events delivered",
        "delay from the latest event to the sink: p50 20 us, p95 30 us, p99 30 us",
        "",
        "traffic over all links  events  messages  bytes",
        "total                       18        14  1,950",
        "  primitive                 10         4    400",
        "  match                      6         3    300",
        "  composite                  2         2  1,200",
        "  awakening                  0         5     50",
        "overhead                     0        47  1,180",
        "  watermark                  0        40    480",
        "  control                    0         7    700",
        "",
        "traffic by link, without overhead  events  messages  bytes",
        "  p1-p2                                16         7    700",
        "  p1-p3                                 2         7  1,250",
        "  and 1 link with nothing but overhead",
        "",
        "tasks by node:",
        "  p1: Fire, whole",
        "  p2: 2 x Smoke for Fire",
        "",
        "relative to centr: events 50.0%, messages 200.0%, bytes 50.0%, bytes of overhead 13.1%, "
        "median delay 250.0%, p99 375.0%",
    ]


def test_the_report_of_a_run_without_traffic_is_short() -> None:
    text = render(figures(Outcome("centr", delivered=[Delivery(0, "p3", smoke(1), 1)])))
    assert text.splitlines() == [
        "strategy centr: 0 composite events and 1 event delivered",
        "delay from the latest event to the sink: p50 0 us, p95 0 us, p99 0 us",
        "",
        "traffic over all links  events  messages  bytes",
        "total                        0         0      0",
        "overhead                     0         0      0",
        "",
        "nothing crossed a link",
        "",
        "no node has a task",
    ]


def test_the_report_of_a_run_with_nothing_but_overhead_lists_no_links() -> None:
    traffic = {("a", "b", "control"): Traffic(0, 3, 90), ("c", "b", "watermark"): Traffic(0, 1, 9)}
    found = figures(Outcome("st", traffic=traffic))
    lines = render(found).splitlines()
    assert "nothing but overhead crossed 2 links" in lines
    assert not any(line.startswith("traffic by link") for line in lines)
    assert list(found.to_json()["traffic"]["by_link"]) == ["a-b", "b-c"]


# -- delivery lines ----------------------------------------------------------------------------------------------------


def test_a_delivered_composite_event_is_told_as_run_tells_it_and_where_and_when() -> None:
    item = fire(5_000)
    line = delivery_line(Delivery(0, "p3", item, 5_700))
    assert line.endswith("}\n")
    assert list(json.loads(line).items()) == [*item.to_json().items(), ("sink", "p3"), ("delivered", 5_700)]


def test_a_composite_event_of_composite_events_is_told_too() -> None:
    spec = CompositeSpec("Alarm", 1, EventType("Alarm"), ("Fire",), (False,), lambda fire: (), plain=True)
    item = Composite((spec, fire(5_000).row()))
    told = json.loads(delivery_line(Delivery(0, "p3", item, 6_000)))
    assert told == {**item.to_json(), "sink": "p3", "delivered": 6_000}
    assert told["events"][0]["id"] == fire(5_000).id


def test_a_delivered_primitive_event_has_its_identity_and_attributes() -> None:
    line = delivery_line(Delivery(0, "größe", smoke(7, seq=3, area='A"1'), 9))
    assert line == (
        '{"type": "Smoke", "ts": 7, "node": "p2", "seq": 3, "attributes": {"area": "A\\"1"}, '
        '"sink": "größe", "delivered": 9}\n'
    )


def test_lines_are_sorted_by_arrival_sink_and_key() -> None:
    late, early = Delivery(0, "p3", fire(1_000, 1), 9_000), Delivery(1, "p1", fire(2_000, 2), 8_000)
    other_sink = Delivery(1, "p1", fire(500, 3), 9_000)
    same_end = Delivery(0, "p3", smoke(1_000, 1), 9_000)  # the event that the fire ends with comes before it
    earlier_end = Delivery(0, "p3", fire(900, 9), 9_000)
    expected = [early, earlier_end, same_end, late, other_sink]
    lines = list(delivery_lines([other_sink, late, same_end, earlier_end, early]))
    assert lines == [delivery_line(each) for each in expected]
    assert lines == list(delivery_lines(reversed(expected)))
