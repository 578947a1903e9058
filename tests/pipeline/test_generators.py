"""Events that are made up: the same for the same seed, however they are divided, and distributed as described."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headwater.deploy.descriptions.traces import find_description, read_description
from headwater.pipeline.generate.arrivals import CHUNK_EVENTS, Chunk, StreamCell, chunks, times_us
from headwater.pipeline.generate.generate import alias_table, generate, generated_events
from headwater.pipeline.generate.model import (
    Arrivals,
    Attribute,
    Bursty,
    Choice,
    Derived,
    GeneratedStream,
    Generation,
    Motion,
    Normal,
    Poisson,
    Regular,
    Uniform,
    zipf_shares,
)
from headwater.pipeline.generate.motion import DEGREE_M, extent_m, positions
from headwater.pipeline.generate.seeded_random import cosines, exponentials, key_of, logarithms, normals, uniforms
from headwater.pipeline.generate.values import NormalValues
from headwater.pipeline.prepare.prepared_trace import HEADER, PreparedTrace
from headwater.protocol.errors import ConfigError
from tests.kit.slips import is_shown

HOUR_US = 3_600_000_000
PLACES = {"a": (45.0, 7.0), "b": (45.0, 7.1), "c": (45.1, 7.0)}
MOTION = Motion(6, 45.0, 45.1, 7.0, 7.1, 5.0, 15.0)


def a_cell(arrivals: Arrivals, *, events: int = 40_000, seed: int = 3, number: int = 0) -> StreamCell:
    """A cell that expects so many events in an hour."""
    return StreamCell(seed, 0, number, events / HOUR_US, HOUR_US, arrivals)


def times(cell: StreamCell) -> Any:
    return np.concatenate([times_us(cell, chunk) for chunk in chunks(cell)])


def dispersion(found: Any, window_us: int) -> float:
    """Variance over mean of the events in a window: 1 for Poisson, more where events come in bursts."""
    counts = np.bincount((found // window_us).astype(int), minlength=HOUR_US // window_us)
    return float(counts.var() / counts.mean())


# -- chance ------------------------------------------------------------------------------------------------------------


def test_numpy_and_spark_draw_alike(spark: Any) -> None:
    from pyspark.sql import functions as F

    key = key_of(7, 2, "value")
    rows = spark.range(-3, 5).select(
        (F.shiftrightunsigned(F.xxhash64(F.lit(key), F.lit(11).cast("bigint"), "id"), 11) * 2.0**-53).alias("u")
    )
    assert [row["u"] for row in rows.collect()] == uniforms(key, 11, np.arange(-3, 5)).tolist()


def test_functions_of_chance_are_what_they_are_called() -> None:
    drawn = uniforms(key_of(1, 0, "x"), 0, np.arange(100_000))
    assert np.abs(logarithms(1 - drawn) - np.log(1 - drawn)).max() < 1e-14
    assert np.abs(cosines(drawn) - np.cos(2 * np.pi * drawn)).max() < 1e-14
    assert abs(drawn.mean() - 0.5) < 4 * math.sqrt(1 / 12 / 100_000)
    waits = exponentials(key_of(1, 0, "x"), 0, np.arange(100_000))
    assert abs(waits.mean() - 1) < 4 / math.sqrt(100_000)
    bell = normals(key_of(1, 0, "x"), key_of(1, 0, "y"), 0, np.arange(100_000))
    assert abs(bell.mean()) < 4 / math.sqrt(100_000)
    assert abs((bell**2).mean() - 1) < 4 * math.sqrt(2 / 100_000)
    assert abs((bell**4).mean() - 3) < 4 * math.sqrt(96 / 100_000)


def test_seeds_streams_cells_and_purposes_are_independent() -> None:
    numbers = np.arange(20_000)
    base = uniforms(key_of(1, 0, "x"), 0, numbers)
    for other in (
        uniforms(key_of(2, 0, "x"), 0, numbers),
        uniforms(key_of(1, 1, "x"), 0, numbers),
        uniforms(key_of(1, 0, "y"), 0, numbers),
        uniforms(key_of(1, 0, "x"), 1, numbers),
        uniforms(key_of(1, 0, "x"), 0, numbers + 1),
    ):
        assert abs(np.corrcoef(base, other)[0, 1]) < 4 / math.sqrt(20_000)


# -- arrivals ----------------------------------------------------------------------------------------------------------


def test_poisson_arrivals_have_their_rate_and_no_memory() -> None:
    found = times(a_cell(Poisson()))
    assert abs(len(found) - 40_000) < 4 * math.sqrt(40_000)
    gaps = np.diff(found)
    assert gaps.min() >= 0
    assert found[0] >= 0
    assert found[-1] < HOUR_US
    assert gaps.std() / gaps.mean() == pytest.approx(1, abs=0.03)
    assert abs(np.corrcoef(gaps[1:], gaps[:-1])[0, 1]) < 4 / math.sqrt(len(gaps))
    windows = HOUR_US // 1_000_000
    assert abs(dispersion(found, 1_000_000) - 1) < 4 * math.sqrt(2 / windows)


def test_regular_arrivals_are_equally_far_apart_and_begin_differently() -> None:
    one, other = (times(a_cell(Regular(), events=3600, number=number)) for number in (0, 1))
    assert len(one) == len(other) == 3600
    assert np.allclose(np.diff(one), 1_000_000)
    assert one[0] != other[0]


def test_bursts_have_the_rate_but_come_in_bursts() -> None:
    """Means and variances of on and off times are known, so the deviation of the number of events is."""
    bursty = Bursty(on_us=2_000_000, off_us=8_000_000, quiet=0.1)
    found = times(a_cell(bursty))
    # Of a two-state process: var N = n + 2 (r1 - r0)^2 p q T / (a + b), with a and b the rates of leaving a state.
    on_rate = 40_000 / 3600 * 10 / (2 + 0.1 * 8)
    variance = 40_000 + 2 * (0.9 * on_rate) ** 2 * 0.2 * 0.8 * 3600 / (1 / 2 + 1 / 8)
    assert abs(len(found) - 40_000) < 4 * math.sqrt(variance)
    assert dispersion(found, 1_000_000) > 10
    assert dispersion(times(a_cell(Poisson())), 1_000_000) < 1.2
    # Without a rate in between there are stretches of nothing, of which off times have their mean length.
    silent = times(a_cell(replace(bursty, quiet=0.0)))
    gaps = np.diff(silent)
    offs = gaps[gaps > 1_000_000]
    assert offs.mean() - 1_000_000 == pytest.approx(8_000_000, rel=4 / math.sqrt(len(offs)))


@pytest.mark.parametrize("arrivals", [Poisson(), Regular(), Bursty(1_000_000, 5_000_000)])
def test_a_chunk_needs_none_before_it(arrivals: Arrivals) -> None:
    cell = a_cell(arrivals)
    cut = list(chunks(cell))
    assert [chunk.first for chunk in cut] == [CHUNK_EVENTS * number for number in range(len(cut))]
    assert len(cut) == 3
    alone = times_us(cell, cut[1])
    assert times(cell)[CHUNK_EVENTS : 2 * CHUNK_EVENTS].tolist() == alone.tolist()
    assert alone[0] >= times_us(cell, Chunk(0, 0.0, CHUNK_EVENTS))[-1]


# -- values ------------------------------------------------------------------------------------------------------------


def drawn(attributes: Mapping[str, Attribute], count: int = 40_000) -> dict[str, Any]:
    return NormalValues(5, 0, GeneratedStream(("A",), ("n1",), 1.0, attributes=attributes)).drawn(0, 0, count)


def test_correlations_are_as_given() -> None:
    found = drawn({"x": Normal(20, 5), "y": Normal(0, 2, {"x": -0.7}), "z": Normal(1, 1, {"x": 0.3, "y": 0.2})})
    wanted = {("x", "y"): -0.7, ("x", "z"): 0.3, ("y", "z"): 0.2}
    for (one, other), correlation in wanted.items():
        deviation = (1 - correlation**2) / math.sqrt(40_000)
        assert abs(np.corrcoef(found[one], found[other])[0, 1] - correlation) < 4 * deviation
    assert abs(found["x"].mean() - 20) < 4 * 5 / math.sqrt(40_000)
    assert found["x"].std() == pytest.approx(5, rel=0.02)


def test_a_value_follows_the_event_before() -> None:
    found = drawn({"x": Normal(20, 5, previous=0.9), "y": Normal(0, 1, {"x": 0.5}, previous=0.6), "z": Normal(0, 1)})
    for name, previous in (("x", 0.9), ("y", 0.6), ("z", 0.0)):
        for lag in (1, 2, 5):
            measured = np.corrcoef(found[name][lag:], found[name][:-lag])[0, 1]
            assert abs(measured - previous**lag) < 0.04
    assert abs(np.corrcoef(found["x"], found["y"])[0, 1] - 0.5) < 0.05
    assert found["x"].std() == pytest.approx(5, rel=0.05)


def test_values_do_not_depend_on_the_chunk_they_are_made_in() -> None:
    stream = GeneratedStream(("A",), ("n1",), 1.0, attributes={"x": Normal(20, 5, previous=0.97)})
    values = NormalValues(5, 0, stream)
    whole = values.drawn(3, 0, 5000)["x"]
    assert whole[4000:].tolist() == values.drawn(3, 4000, 1000)["x"].tolist()


@pytest.mark.parametrize(
    ("attributes", "sentence"),
    [
        (
            {"x": Normal(0, 1), "y": Normal(0, 1, {"x": 0.9}), "z": Normal(0, 1, {"x": 0.9, "y": -0.9})},
            "no numbers have all these correlations between x, y, z",
        ),
        (
            {"x": Normal(0, 1, previous=0.95), "y": Normal(0, 1, {"x": 0.9})},
            "y and x cannot have the correlation 0.9: they follow",
        ),
    ],
)
def test_correlations_that_cannot_be_are_refused(attributes: Mapping[str, Attribute], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        drawn(attributes)


def test_an_alias_table_gives_every_value_its_share() -> None:
    shares = zipf_shares(50, 1.3)
    kept, other = alias_table(shares)
    given = [0.0] * 50
    for column in range(50):
        given[column] += kept[column] / 50
        given[other[column]] += (1 - kept[column]) / 50
    assert given == pytest.approx(shares)


# -- vehicles ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("roads", [None, 500.0])
def test_vehicles_move_at_their_speed_inside_the_area(roads: float | None) -> None:
    motion = replace(MOTION, roads_m=roads)
    seconds = np.arange(0, HOUR_US, 1_000_000).astype(float)
    lat, lon, speed = positions(motion, 1, 0, 2, seconds, HOUR_US)
    assert lat.min() >= 45.0
    assert lat.max() <= 45.1
    assert lon.min() >= 7.0
    assert lon.max() <= 7.1
    across = DEGREE_M * math.cos(math.radians(45.05))
    up, right = np.diff(lat) * DEGREE_M, np.diff(lon) * across
    steady = speed[1:] == speed[:-1]
    moved = np.hypot(up, right)[steady]
    assert (moved <= speed[1:][steady] + 0.3).all()
    assert np.median(np.abs(moved - speed[1:][steady])) < 0.2  # all but those that turned a corner
    assert ((speed >= 5) & (speed <= 15)).all()
    if roads is not None:
        high, wide = extent_m(motion)
        on_road = [
            np.abs((part * whole / roads + 0.5) % 1 - 0.5) * roads
            for part, whole in (((lat - 45.0) / 0.1, high), ((lon - 7.0) / 0.1, wide))
        ]
        assert np.minimum(*on_road).max() < 0.2


def test_vehicles_differ() -> None:
    seconds = np.arange(0, HOUR_US, 60_000_000).astype(float)
    one, other = (positions(MOTION, 1, 0, vehicle, seconds, HOUR_US)[0] for vehicle in (0, 1))
    assert np.abs(one - other).max() > 0.01


# -- on Spark ----------------------------------------------------------------------------------------------------------

STREAMS = (
    GeneratedStream(
        ("T1", "T2", "T3"),
        ("a", "b", "c"),
        4.0,
        types_zipf=1.0,
        nodes_zipf=2.0,
        attributes={
            "key": Choice(tuple(str(number) for number in range(1, 9)), 1.5, "int"),
            "x": Normal(20, 5, previous=0.8),
            "twice": Derived("2 * x", "float"),
            "share": Uniform(2, 3),
        },
    ),
    GeneratedStream(
        ("Alarm",), ("b",), 0.5, Bursty(10_000_000, 50_000_000), attributes={"level": Uniform(1, 3, "int")}
    ),
    GeneratedStream(("Position",), ("a", "b", "c"), 0.6, Regular(), motion=replace(MOTION, vehicles=6)),
)
SMALL = Generation("small", 11, 1_000_000_000, HOUR_US, STREAMS, PLACES)


@pytest.fixture(scope="module")
def small(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> PreparedTrace:
    return generate(spark, SMALL, tmp_path_factory.mktemp("generated") / "small")


def test_a_generated_trace_is_a_prepared_one(spark: Any, small: PreparedTrace) -> None:
    small.check(spark)
    manifest = small.manifest
    assert abs(manifest.events - SMALL.expected()) < 6 * math.sqrt(SMALL.expected())
    assert manifest.first_us >= 1_000_000_000
    assert manifest.last_us < 1_000_000_000 + HOUR_US
    assert manifest.types["Position"].events == 6 * 360
    assert manifest.types["Position"].attributes == {
        "vehicle": "string",
        "lat": "float",
        "lon": "float",
        "speed": "float",
    }
    assert manifest.types["Alarm"].attributes == {"level": "int"}
    # Four events a second, of which a type has its share, and of that a node has its share.
    for name, share in zip(("T1", "T2", "T3"), zipf_shares(3, 1.0), strict=True):
        expected = 4 * 3600 * share
        assert abs(manifest.types[name].events - expected) < 4 * math.sqrt(expected)
    numbered = small.events(spark).groupBy("node").agg({"seq": "max", "*": "count"}).collect()
    assert all(row["max(seq)"] == row["count(1)"] for row in numbered)


def test_events_are_the_same_however_they_are_divided(spark: Any, small: PreparedTrace, tmp_path: Path) -> None:
    """Rows that Spark has put into more and other tasks are the same rows; another seed gives others."""
    from pyspark.sql import functions as F

    from headwater.pipeline.prepare.prepared_trace import checksum

    def summed(generation: Generation, parts: int) -> Any:
        rows = generated_events(spark, generation, tasks=parts).withColumn("seq", F.lit(0).cast("bigint"))
        return rows.agg(F.count("*"), checksum(generation.kinds())).first()

    plain = small.events(spark).withColumn("seq", F.lit(0).cast("bigint"))
    written = plain.agg(F.count("*"), checksum(SMALL.kinds())).first()
    assert summed(SMALL, 1) == summed(SMALL, 5) == written
    assert summed(replace(SMALL, seed=12), 5) != written


def test_values_nodes_and_skew_are_as_described(spark: Any, small: PreparedTrace) -> None:
    rows = [row.asDict() for row in small.events(spark).orderBy("node", "seq").collect()]
    plain = [row for row in rows if row["type"].startswith("T")]
    for node, share in zip("abc", zipf_shares(3, 2.0), strict=True):
        expected = 4 * 3600 * share
        assert abs(sum(row["node"] == node for row in plain) - expected) < 4 * math.sqrt(expected)
    for value, share in zip(range(1, 9), zipf_shares(8, 1.5), strict=True):
        expected = len(plain) * share
        assert abs(sum(row["key"] == value for row in plain) - expected) < 4 * math.sqrt(expected)
    assert all(row["twice"] == 2 * row["x"] for row in plain)
    assert all(2 <= row["share"] < 3 for row in plain)
    mine = np.array([row["x"] for row in plain if row["type"] == "T1" and row["node"] == "a"])
    assert np.corrcoef(mine[1:], mine[:-1])[0, 1] == pytest.approx(0.8, abs=0.05)
    assert {row["level"] for row in rows if row["type"] == "Alarm"} == {1, 2, 3}
    across = math.cos(math.radians(45.05))
    for row in rows:
        if row["type"] == "Position":
            far = {
                name: math.hypot(row["lat"] - north, (row["lon"] - east) * across)
                for name, (north, east) in PLACES.items()
            }
            assert far[row["node"]] < min(far.values()) + 1e-3
    assert {row["node"] for row in rows if row["type"] == "Position"} == {"a", "b", "c"}


def test_an_expression_that_means_nothing_is_named(spark: Any, tmp_path: Path) -> None:
    wrong = replace(
        SMALL, streams=(replace(STREAMS[0], attributes={"x": Normal(0, 1), "y": Derived("w + 1", "float")}),)
    )
    with pytest.raises(ConfigError, match=r"stream 1: the attribute y cannot be told from 'w . 1'.*x"):
        generate(spark, wrong, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


# -- descriptions ------------------------------------------------------------------------------------------------------


def read(tmp_path: Path, text: str) -> Generation:
    (tmp_path / "made.yaml").write_text(text)
    found = read_description(tmp_path / "made.yaml")
    assert isinstance(found, Generation)
    return found


def test_a_description_says_what_is_made_up(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        "generate:\n"
        "  seed: 9\n"
        "  start: 2026-01-31T12:00:00+01:00\n"
        "  duration: 90 min\n"
        "  nodes: {a: [45, 7], b: [45.1, 7.1]}\n"
        "  streams:\n"
        "    - {types: [A, B], nodes: [a], rate: 120/min, zipf: {types: 1.5}, arrivals: {on: 5s, off: 1min}}\n"
        "    - {type: Car, vehicles: 50, every: 500ms, roads: 100, speed: [3, 9]}\n"
        "    - type: M\n"
        "      rate: 1/s\n"
        "      arrivals: regular\n"
        "      attributes:\n"
        "        x: {normal: [0, 1]}\n"
        "        y: {normal: [10, 2], with: {x: 0.5}, previous: 0.4, kind: int}\n"
        "        z: {choice: 3, zipf: 1}\n"
        "        w: {value: x + y, kind: float}\n",
    )
    assert (found.name, found.seed, found.duration_us) == ("made", 9, 5_400_000_000)
    assert found.start_us == 1_769_857_200_000_000
    plain, moving, more = found.streams
    assert plain == GeneratedStream(("A", "B"), ("a",), 2.0, Bursty(5_000_000, 60_000_000), types_zipf=1.5)
    assert moving.motion == Motion(50, 45.0, 45.1, 7.0, 7.1, 3.0, 9.0, 100.0)
    assert (moving.rate_per_s, moving.arrivals) == (100.0, Regular())
    assert more.attributes == {
        "x": Normal(0, 1),
        "y": Normal(10, 2, {"x": 0.5}, 0.4, "int"),
        "z": Choice(("v1", "v2", "v3"), 1.0),
        "w": Derived("x + y", "float"),
    }
    assert found.expected() == 5400 * (2 + 100 + 1)


def test_mistakes_are_all_named_with_their_lines(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read(
            tmp_path,
            "generate:\n"
            "  duration: 1h\n"
            "  nodes: [a, b]\n"
            "  streams:\n"
            "    - {type: A, nodes: [c], rate: 1/s}\n"
            "    - {type: A, rate: often}\n"
            "    - {types: [A], type: B, rate: 1/s}\n"
            "    - {type: A, rate: 1/s, arrivals: {on: 5s}}\n"
            "    - {type: A, rate: 1/s, zipf: {typ: 1}}\n"
            "    - {type: V, vehicles: 3, every: 1s}\n"
            "    - {type: A, rate: 1/s, attributes: {x: {normal: [0, 1], zipf: 2}}}\n"
            "    - {type: A, rate: 1/s, attributes: {x: {normal: [0, 1]}, y: {normal: [0, 1], with: {q: 1}}}}\n"
            "    - {type: A, rate: 1/s, attributes: {seq: {uniform: [0, 1]}}}\n"
            "    - {type: A, rate: 1/s, attributes: {k: {choice: [a, 2], kind: int}}}\n",
        )
    said = str(caught.value)
    for part in (
        "made.yaml:5:24: there is no node c",
        "made.yaml:6:23: 'often' is not a rate",
        "made.yaml:7:7: a stream has either type: or types:",
        "made.yaml:8:38: bursts need the mean lengths on: and off:",
        "made.yaml:9:35: zipf has no key 'typ'",
        "made.yaml:10:17: vehicles need nodes with coordinates",
        "made.yaml:11:61: zipf: is for choice:",
        "made.yaml:12:89: q is not a normal attribute that stands before y",
        "made.yaml:13:41: an attribute cannot be called 'seq'",
        "made.yaml:14:53: 'a' is not of kind int",
    ):
        assert part in said, said


SLIPS = "generate: {duration: 1h, nodes: 2, streams: [{type: A, rate: 1/s}]}\n"


@pytest.mark.parametrize(
    ("right", "wrong", "caret", "said"),
    [
        ("nodes: 2", "nodes: {}", "{}", "a node is missing or stands twice"),
        ("nodes: 2", "nodes: {a: [95, 7]}", "[95", "the node a lies nowhere on Earth"),
        ("nodes: 2", "nodes: {a: [45, x]}", "[45", "the node a needs 2 numbers"),
        ("nodes: 2, ", "", "{duration", "generate does not say nodes:"),
        ("1h", "0s", "0s", "the trace has no length"),
        ("rate: 1/s", "rat: 1/s", "rat:", "a stream has no key 'rat'"),
        ("{type: A, rate: 1/s}", "{}", "{}", "the stream does not say rate:"),
        ("type: A", "types: [A, A]", "[A", "a type is missing or stands twice"),
        ("1/s", "1/s, attributes: {x: {}}", "{}", "the values of x come in one of the ways normal"),
        ("1/s", "1/s, attributes: {x: {choice: 0}}", "0}", "the number of values of x is a whole number from 1"),
        ("1/s", "1/s, arrivals: {on: 0s, off: 1s}", "{on", "this would switch on and off more than 10,000,000"),
    ],
)
def test_a_slip_is_shown_where_it_stands(tmp_path: Path, right: str, wrong: str, caret: str, said: str) -> None:
    is_shown(tmp_path, SLIPS, right, wrong, caret, said)


def test_too_many_events_are_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="this would make about 31,536,000,000,000 events, more than 2,000,000,000"):
        read(tmp_path, "generate: {duration: 365d, nodes: 2, streams: [{type: A, rate: 1000000/s}]}\n")


def test_kinds_must_agree_between_streams(tmp_path: Path) -> None:
    streams = (
        "[{type: A, rate: 1/s, attributes: {x: {normal: [0, 1]}}}, {type: B, rate: 1/s, attributes: {x: {choice: 3}}}]"
    )
    with pytest.raises(ConfigError, match="x is string here and float in an earlier stream"):
        read(tmp_path, f"generate: {{duration: 1h, nodes: 2, streams: {streams}}}\n")


@pytest.mark.parametrize("name", ["zipf", "vehicles"])
def test_ready_made_generators_expect_what_a_laptop_can_make(name: str) -> None:
    found = read_description(find_description(name))
    assert isinstance(found, Generation)
    assert 100_000 < found.expected() < 2_000_000
    assert set(HEADER).isdisjoint(found.kinds())
