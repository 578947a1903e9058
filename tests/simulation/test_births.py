"""Births: which events a simulated network is given, when, and under which numbers."""

from __future__ import annotations

from itertools import islice, pairwise
from pathlib import Path

import pytest

from headwater.deploy.network.file import NetworkFile, read_network
from headwater.deploy.simulation.births import Birth, births
from headwater.protocol.errors import ConfigError, EventError
from tests.kit.patience import time_limit

HEAD = """\
events:
  A: {v: int}
  B: {v: float, w: string?}
nodes: [n1, n2]
links: [{between: [n1, n2]}]
sinks: [{node: n1, subscribe: A}]
sources:
"""


def network(folder: Path, sources: str, more: str = "") -> NetworkFile:
    lines = "".join(f"  - {{{line}}}\n" for line in sources.strip().splitlines())
    (folder / "network.yaml").write_text(HEAD + lines + more)
    return read_network(folder / "network.yaml")


def all_of(found: NetworkFile, seed: int = 1, until_us: int | None = None) -> list[Birth]:
    return list(births(found, seed=seed, until_us=until_us))


RATES = """\
node: n1, type: A, rate: 50/s, values: {v: {uniform: [1, 6]}}
node: n1, type: B, rate: 20/s, values: {v: {normal: [10, 2]}, w: {choice: [x, y]}}
node: n2, type: A, rate: 30/s, values: {v: {sequence: [1, 2]}}
"""


def test_births_are_in_order_and_numbered_per_node_by_time_and_source(tmp_path: Path) -> None:
    found = all_of(network(tmp_path, RATES), until_us=10_000_000)
    assert [(at, source, event.seq) for at, source, event in found] == sorted(
        (at, source, event.seq) for at, source, event in found
    )
    for node in ("n1", "n2"):
        mine = [(event.ts, source, event.seq) for _, source, event in found if event.node == node]
        assert [seq for _, _, seq in sorted(mine)] == list(range(1, len(mine) + 1))
    assert {event.node for _, source, event in found if source == 1} == {"n1"}
    assert {(source, event.type) for _, source, event in found} == {(0, "A"), (1, "B"), (2, "A")}
    assert all(at == event.ts < 10_000_000 for at, _, event in found)


def test_rates_and_values_are_as_the_file_says(tmp_path: Path) -> None:
    found = all_of(network(tmp_path, RATES), until_us=100_000_000)
    by_source = [[event for _, source, event in found if source == each] for each in range(3)]
    assert [len(events) for events in by_source] == pytest.approx([5_000, 2_000, 3_000], rel=0.1)
    assert {event[4] for event in by_source[0]} == {1, 2, 3, 4, 5, 6}
    assert all(type(event[4]) is float for event in by_source[1])
    assert sum(event[4] for event in by_source[1]) / len(by_source[1]) == pytest.approx(10, abs=0.3)
    assert {event[5] for event in by_source[1]} == {"x", "y"}
    assert [event[4] for event in by_source[2]][:4] == [1, 2, 1, 2]


def test_poisson_gaps_vary_and_regular_ones_do_not(tmp_path: Path) -> None:
    found = network(tmp_path, "node: n1, type: A, rate: 3/s, times: regular, values: {v: {sequence: 5}}")
    events = [event for _, _, event in all_of(found, until_us=3_000_000)]
    assert [event.ts for event in events] == [333333, 666667, 1000000, 1333333, 1666667, 2000000, 2333333, 2666667]
    assert [event[4] for event in events] == [5, 6, 7, 8, 9, 10, 11, 12]
    found = network(tmp_path, "node: n1, type: A, rate: 3/s, values: {v: 1}")
    times = [event.ts for _, _, event in all_of(found, until_us=1_000_000_000)]
    gaps = [after - before for before, after in pairwise(times)]
    mean = sum(gaps) / len(gaps)
    assert mean == pytest.approx(333_333, rel=0.1)
    # Of exponential gaps the deviation equals the mean.
    assert (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5 == pytest.approx(mean, rel=0.15)


def test_the_same_seed_gives_the_same_births_and_another_one_others(tmp_path: Path) -> None:
    found = network(tmp_path, RATES)
    assert all_of(found, 1, 5_000_000) == all_of(found, 1, 5_000_000)
    assert all_of(found, 1, 5_000_000) != all_of(found, 2, 5_000_000)


def test_the_births_of_a_seed_stay_what_they_are(tmp_path: Path) -> None:
    """Experiments are repeated by their seed, so this must not change by accident."""
    found = network(tmp_path, "node: n1, type: A, rate: 10/s, values: {v: {uniform: [1, 1000]}}")
    assert [(at, event[4]) for at, _, event in islice(births(found, seed=42, until_us=10**9), 4)] == [
        (57896, 131),
        (154979, 478),
        (182768, 768),
        (217723, 538),
    ]


def test_one_source_does_not_depend_on_the_others(tmp_path: Path) -> None:
    first, second, third = RATES.strip().splitlines()

    def of_first(sources: str) -> list[tuple[object, ...]]:
        found = all_of(network(tmp_path, sources), until_us=5_000_000)
        return [(event[0], event[4]) for _, source, event in found if source == 0]

    assert of_first(RATES) == of_first(first) == of_first("\n".join([first, third, second]))


def test_a_change_of_one_attribute_leaves_times_and_other_attributes_alone(tmp_path: Path) -> None:
    def seen(w: str) -> list[tuple[object, ...]]:
        source = f"node: n1, type: B, rate: 20/s, values: {{v: {{normal: [10, 2]}}, w: {w}}}"
        return [(event[0], event[4]) for _, _, event in all_of(network(tmp_path, source), until_us=5_000_000)]

    assert seen("{choice: [x, y]}") == seen("{choice: [x, y, z]}") == seen("x")


def test_the_duration_of_the_file_ends_it_unless_another_is_given(tmp_path: Path) -> None:
    found = network(tmp_path, RATES, "duration: 2s\n")
    assert 1_900_000 < all_of(found)[-1][0] < 2_000_000
    assert all_of(found, until_us=1_000_000)[-1][0] < 1_000_000


def test_births_are_made_when_asked_for_and_fast(tmp_path: Path) -> None:
    found = network(tmp_path, RATES)
    with time_limit(2.0):  # of work; they take about 0.1 s
        assert sum(1 for _ in islice(births(found, seed=1, until_us=10**15), 50_000)) == 50_000


# --- traces -----------------------------------------------------------------------------------------------------------


def test_a_trace_keeps_its_times_and_is_numbered_by_time_then_row(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("type,ts,v,w\nA,3000,1,\nA,1000,2,\nB,1500,2.5,x\nC,1,1,\nA,1000,3,\n")
    found = network(tmp_path, "node: n2, type: B, trace: t.csv\nnode: n2, type: A, trace: t.csv")
    assert [(at, source, event.seq, event[4]) for at, source, event in all_of(found)] == [
        (1000, 1, 1, 2), (1000, 1, 2, 3), (1500, 0, 3, 2.5), (3000, 1, 4, 1),
    ]  # fmt: skip
    assert {event.node for _, _, event in all_of(found)} == {"n2"}


def test_at_the_same_time_the_source_that_stands_first_is_numbered_first(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"type": "A", "ts": 5, "v": 1}\n{"type": "B", "ts": 5, "v": 1.5}\n')
    found = network(tmp_path, "node: n1, type: B, trace: t.jsonl\nnode: n1, type: A, trace: t.jsonl")
    assert [(source, event.type, event.seq) for _, source, event in all_of(found)] == [(0, "B", 1), (1, "A", 2)]


def test_a_trace_that_gives_seq_keeps_it(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("type,ts,seq,v\nA,1000,9,1\nA,1000,4,2\nA,2000,7,3\n")
    found = network(tmp_path, "node: n1, type: A, trace: t.csv")
    assert [(at, event.seq) for at, _, event in all_of(found)] == [(1000, 4), (1000, 9), (2000, 7)]


def test_where_a_trace_names_nodes_a_source_takes_its_own_rows(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("type,ts,node,v\nA,1,n1,1\nA,2,n2,2\nA,3,n1,3\n")
    found = network(tmp_path, "node: n1, type: A, trace: t.csv\nnode: n2, type: A, trace: t.csv")
    assert [(source, event.node, event.seq, event[4]) for _, source, event in all_of(found)] == [
        (0, "n1", 1, 1), (1, "n2", 1, 2), (0, "n1", 2, 3),
    ]  # fmt: skip


def test_a_source_that_finds_nothing_in_its_trace_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("type,ts,node,v\nA,1,n2,1\n")
    found = network(tmp_path, "node: n1, type: A, trace: t.csv")
    with pytest.raises(EventError, match="no row of type A for the node n1"):
        births(found, seed=1)


def test_a_bad_row_is_told_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("type,ts,v\nA,1,1\nA,2,x\n")
    with pytest.raises(EventError, match=r"t.csv:3: A.v is declared int, but 'x' is not"):
        all_of(network(tmp_path, "node: n1, type: A, trace: t.csv"))


def test_rates_begin_with_the_earliest_trace_and_the_duration_counts_from_there(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("type,ts,v\nA,2026-07-01T12:00:00Z,1\nA,2026-07-01T12:01:00Z,1\n")
    found = network(tmp_path, "node: n1, type: A, trace: t.csv\n" + RATES.splitlines()[1], "duration: 30s\n")
    start = 1_782_907_200_000_000
    times = [at for at, _, _ in all_of(found)]
    assert times[0] == start
    assert start + 29_000_000 < times[-1] < start + 30_000_000
    assert [source for _, source, _ in all_of(found)].count(0) == 1


# --- lateness ---------------------------------------------------------------------------------------------------------


def test_late_arrivals_are_out_of_order_within_the_lateness_and_change_no_number(tmp_path: Path) -> None:
    prompt = all_of(network(tmp_path, RATES), until_us=20_000_000)
    tardy = all_of(network(tmp_path, RATES.replace("rate: 50/s", "lateness: 200ms, rate: 50/s")), until_us=20_000_000)
    assert sorted(event for _, _, event in tardy) == sorted(event for _, _, event in prompt)
    delays = [at - event.ts for at, source, event in tardy if source == 0]
    assert min(delays) >= 0
    assert 190_000 < max(delays) <= 200_000
    times = [event.ts for _, source, event in tardy if source == 0]
    assert times != sorted(times)
    assert all(at == event.ts for at, source, event in tardy if source != 0)
    assert [(at, source, event.seq) for at, source, event in tardy] == sorted(
        (at, source, event.seq) for at, source, event in tardy
    )


# --- what cannot be simulated -----------------------------------------------------------------------------------------


def test_a_rate_needs_an_end(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="never ends; say how long to run"):
        births(network(tmp_path, RATES), seed=1)


def test_an_mqtt_source_is_refused_with_a_sentence(tmp_path: Path) -> None:
    found = network(tmp_path, "node: n1, type: A, mqtt: a/b")
    with pytest.raises(ConfigError, match=r"listens to MQTT \(a/b\), which a simulation cannot do"):
        births(found, seed=1)
