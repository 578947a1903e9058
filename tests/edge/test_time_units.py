"""Times in seconds, milliseconds, microseconds, nanoseconds and ISO 8601: read as what they are, or refused."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from headwater.deploy.cli.command import main
from headwater.deploy.network.file import NetworkFileError, read_network
from headwater.deploy.simulation.births import births
from headwater.node.edge.adapters import make_source
from headwater.node.edge.interfaces import Arrival
from headwater.node.remote.tables_in_files import load_remote_table
from headwater.node.traces.reader import TraceReader, TraceSource
from headwater.node.traces.times import BadTime, in_another_unit, likely_unit, time_reader, wrong_for_the_clock
from headwater.protocol.edge import Layout, TraceFeed
from headwater.protocol.errors import EventError
from headwater.protocol.events import EventType
from tests.kit.edge import Taken, an_edge, run

NOON_S = 1_772_366_400  # 2026-03-01T12:00:00Z
FACTORS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
NAMES = {"s": "seconds", "ms": "milliseconds", "ns": "nanoseconds"}
A = EventType("A", {"v": "int"})
RULE = "event A(v: int)\nX: SEQ(A a, A b) WHERE a.v = 1 AND b.v = 2 WITHIN 10 s RETURN X(v = b.v)\n"
OFFSETS_S = (0, 9, 12)
"""Of three events: the second is within ten seconds of the first, the third is not."""


def cells(unit: str) -> list[Any]:
    return [(NOON_S + offset) * FACTORS[unit] for offset in OFFSETS_S]


def write_csv(folder: Path, times: list[Any]) -> Path:
    path = folder / "t.csv"
    path.write_text("type,ts,v\n" + "".join(f"A,{ts},{min(v, 2)}\n" for v, ts in enumerate(times, 1)))
    return path


def write_jsonl(folder: Path, times: list[Any]) -> Path:
    path = folder / "t.jsonl"
    rows = [{"type": "A", "ts": ts, "v": min(v, 2)} for v, ts in enumerate(times, 1)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_parquet(folder: Path, times: list[Any]) -> Path:
    path = folder / "t.parquet"
    count = len(times)
    table = pyarrow.table({"type": ["A"] * count, "ts": times, "v": [min(v, 2) for v in range(1, count + 1)]})
    pyarrow.parquet.write_table(table, path)
    return path


Write = Callable[[Path, list[Any]], Path]
every_format = pytest.mark.parametrize("write", [write_csv, write_jsonl, write_parquet])
every_command = pytest.mark.parametrize("command_name", ["run", "check", "explain"])
other_units = pytest.mark.parametrize("unit", ["s", "ms", "ns"])


def command(*words: str | Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main([*map(str, words)])
    said = capsys.readouterr()
    return int(ended.value.code or 0), said.out, said.err


@pytest.fixture
def rule(tmp_path: Path) -> Path:
    path = tmp_path / "x.sase"
    path.write_text(RULE)
    return path


@other_units
@every_format
@every_command
def test_dates_in_another_unit_are_refused_with_the_unit_and_the_option(
    tmp_path: Path, rule: Path, capsys: pytest.CaptureFixture[str], command_name: str, write: Write, unit: str
) -> None:
    path = write(tmp_path, cells(unit))
    code, out, err = command(command_name, rule, "--events", path, capsys=capsys)
    assert (code, out) == (2, "")
    assert f"as {NAMES[unit]} it is 2026-03-01 12:00" in err
    assert (
        f"write --time-unit {unit} (in a network file time: {{unit: {unit}}}), or us if microseconds are meant" in err
    )
    place = f"{path}: row 1: " if path.suffix == ".parquet" else f"{path}:{2 if path.suffix == '.csv' else 1}: "
    assert place in err


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@every_format
@every_command
def test_with_its_unit_every_date_is_the_same_moment(
    tmp_path: Path, rule: Path, capsys: pytest.CaptureFixture[str], command_name: str, write: Write, unit: str
) -> None:
    path = write(tmp_path, cells(unit))
    code, out, err = command(command_name, rule, "--events", path, "--time-unit", unit, capsys=capsys)
    assert code == 0, err
    if command_name == "run":
        (found,) = map(json.loads, out.splitlines())
        assert (found["start"], found["end"]) == (NOON_S * 1_000_000, (NOON_S + 9) * 1_000_000)
    if command_name == "explain":
        assert out.startswith("X: 1 match\n")


@every_format
def test_numbers_that_count_from_a_beginning_of_their_own_stay_microseconds(
    tmp_path: Path, rule: Path, capsys: pytest.CaptureFixture[str], write: Write
) -> None:
    hour = 3_600_000_000  # a date in seconds, taken alone
    for times in ([1, 2, 3], [0, hour, 2 * hour], [hour, 0, 1], [-5, 0, hour]):
        code, _, err = command("run", rule, "--events", write(tmp_path, times), "--count", capsys=capsys)
        assert code == 0, err


def test_microseconds_that_look_like_seconds_are_read_when_the_unit_is_said(
    tmp_path: Path, rule: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_csv(tmp_path, [1_000_000_000, 1_009_000_000, 1_012_000_000])
    assert command("run", rule, "--events", path, capsys=capsys)[0] == 2
    code, out, _ = command("run", rule, "--events", path, "--time-unit", "us", capsys=capsys)
    assert code == 0
    assert [json.loads(line)["end"] for line in out.splitlines()] == [1_009_000_000]


def test_seconds_among_microseconds_are_refused_too(tmp_path: Path) -> None:
    path = write_csv(tmp_path, [NOON_S * 1_000_000, NOON_S + 1])
    with pytest.raises(EventError, match=f"t.csv:3: ts {NOON_S + 1}, taken as microseconds, lies in January 1970"):
        TraceReader(TraceSource.at(str(path)).open(), {"A": A}).whole()


@every_format
@pytest.mark.parametrize("how", ["whole", "batches"])
def test_a_row_in_another_unit_after_many_in_microseconds_is_malformed(tmp_path: Path, write: Write, how: str) -> None:
    times = [NOON_S * 1_000_000 + each for each in range(1500)]
    path = write(tmp_path, [*times, NOON_S + 1, NOON_S * 1_000_000 + 1500, 17])
    reader = TraceReader(TraceSource.at(str(path)).open(), {"A": A}, skip_bad=True)
    late: list[Any] = []
    if how == "whole":
        assert len(reader.whole()) == 1502, "17 is old, and no date in any unit"
    else:
        assert sum(len(batch) for batch, _ in reader.batches(late=late.append)) == 1501
        assert [each["ts"] for each in late] == [17]
    assert reader.tally.bad == 1
    assert "ts 1772366401, taken as microseconds, lies in January 1970; as seconds it is" in reader.tally.examples[0]
    assert "the first rows are in microseconds" in reader.tally.examples[0]


def test_a_stream_is_refused_at_its_first_row(
    rule: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stdin:
        buffer = io.BytesIO(f"type,ts,v\nA,{NOON_S},1\n".encode())

    monkeypatch.setattr("sys.stdin", Stdin)
    code, _, err = command("run", rule, "--events", "-", capsys=capsys)
    assert code == 2
    assert "standard input:2: ts 1772366400, taken as microseconds" in err


def test_parquet_timestamps_know_their_unit(tmp_path: Path) -> None:
    for unit in ("s", "ms", "us", "ns"):
        times = pyarrow.array([1200, 1201], pyarrow.int64())  # twenty minutes after 1970
        stamps = pyarrow.array([each.as_py() * FACTORS[unit] for each in times], pyarrow.timestamp(unit))
        pyarrow.parquet.write_table(
            pyarrow.table({"type": ["A", "A"], "ts": stamps, "v": [1, 2]}), tmp_path / "t.parquet"
        )
        source = TraceSource.at(str(tmp_path / "t.parquet"))
        events = TraceReader(source.open(), {"A": A}).whole()
        assert [event.ts for event in events] == [1_200_000_000, 1_201_000_000]
        with pytest.raises(EventError, match=r"holds timestamp.*, which says its unit itself; leave the unit 's' out"):
            TraceSource.at(source.name, layout=Layout(time_unit="s")).open()


# --- exactly ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("unit", "cell", "us"),
    [
        ("s", "1772366400.86", 1_772_366_400_860_000),
        ("s", 1772366400.86, 1_772_366_400_860_000),
        ("s", "1772366400.1234567", 1_772_366_400_123_456),
        ("s", " 12 ", 12_000_000),
        ("s", "-0.5", -500_000),
        ("s", ".25", 250_000),
        ("s", "7.", 7_000_000),
        ("s", "1.7723664e9", 1_772_366_400_000_000),
        ("ms", "1772366400123.456", 1_772_366_400_123_456),
        ("ms", 1772366400123.456, 1_772_366_400_123_456),
        ("ms", 1772366400123, 1_772_366_400_123_000),
        ("us", "1772366400123456", 1_772_366_400_123_456),
        ("us", "1.9", 1),
        ("ns", "1772366400123456789", 1_772_366_400_123_456),
        ("ns", 1772366400123456789, 1_772_366_400_123_456),
        ("iso", "2026-03-01T12:00:00Z", NOON_S * 1_000_000),
        ("iso", "2026-03-01T13:00:00.5+01:00", NOON_S * 1_000_000 + 500_000),
        (None, "2026-03-01T12:00:00", NOON_S * 1_000_000),
        (None, "17", 17),
    ],
)
def test_a_time_is_converted_by_its_decimal_text(unit: Any, cell: Any, us: int) -> None:
    assert time_reader(unit)(cell) == us


def test_random_fractions_of_seconds_are_exact() -> None:
    rng = Random(3)
    read = time_reader("s")
    for _ in range(2000):
        us = rng.randrange(0, 4_000_000_000_000_000)
        text = f"{us // 1_000_000}.{us % 1_000_000:06d}"
        assert read(text) == us
        assert read(float(text)) == us  # a float holds so many digits, and gives them back as its decimal text
        assert read(str(Decimal(text) / 10 * 10)) == us


@pytest.mark.parametrize(
    ("unit", "cell", "sentence"),
    [
        ("s", "soon", "ts 'soon' is not a number of seconds"),
        ("ms", "2026-03-01T12:00:00Z", "is not a number of milliseconds"),
        ("s", True, "ts True is not a number of seconds"),
        ("s", [1], "is not a number of seconds"),
        ("s", "", "the row has no ts"),
        ("s", None, "the row has no ts"),
        ("s", float("nan"), "ts nan is not a number of seconds"),
        ("s", "1e99", "does not fit into 64 bits"),
        ("s", 2**70, "does not fit into 64 bits"),
        ("s", "--5", "is not a number of seconds"),
        ("s", ".", "is not a number of seconds"),
        ("iso", "1772366400", "ts '1772366400' is not an ISO 8601 time"),
        ("iso", 5, "ts 5 is not an ISO 8601 time"),
        (None, 1.5, "nor an ISO 8601 time; write --time-unit s .*if it counts seconds"),
        (None, "1772366400.86", "nor an ISO 8601 time; write --time-unit s .*if it counts seconds"),
    ],
)
def test_what_is_no_time_of_the_unit_is_said(unit: Any, cell: Any, sentence: str) -> None:
    with pytest.raises(BadTime, match=sentence):
        time_reader(unit)(cell)


def test_no_number_is_a_date_in_two_units() -> None:
    rng = Random(5)
    for _ in range(2000):
        seconds = rng.randrange(946_684_800, 4_102_444_800)
        assert likely_unit(seconds * 1_000_000) is None
        for unit in ("s", "ms", "ns"):
            assert likely_unit(seconds * FACTORS[unit]) == unit
    assert in_another_unit([]) is None
    assert in_another_unit(["2026-03-01", None, "x"]) is None


# --- columns and delimiters -------------------------------------------------------------------------------------------

ODD_CSV = "event;when;v;ts;type\nA;1772366400.5;1;x;y\nA;1772366409.5;2;x;y\n"


@every_command
def test_columns_and_the_delimiter_may_be_called_otherwise(
    tmp_path: Path, rule: Path, capsys: pytest.CaptureFixture[str], command_name: str
) -> None:
    (tmp_path / "odd.csv").write_text(ODD_CSV)
    (tmp_path / "odd.txt").write_text(ODD_CSV.replace(";", "\t"))
    named = ("--time-column", "when", "--type-column", "event", "--time-unit", "s")
    for file, delimiter in (("odd.csv", ";"), ("odd.txt", "tab")):
        words = (tmp_path / file, "--format", "csv", *named, "--delimiter", delimiter)
        code, out, err = command(command_name, rule, "--events", *words, capsys=capsys)
        assert code == 0, err
        if command_name == "run":
            assert [json.loads(line)["end"] for line in out.splitlines()] == [1_772_366_409_500_000]


def test_columns_of_json_lines_and_parquet_may_be_called_otherwise(tmp_path: Path) -> None:
    rows = [{"event": "A", "when": 5, "v": 1, "ts": "x"}, {"event": "A", "when": 6, "v": 2, "ts": "y"}]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "t.parquet")
    layout = Layout("when", None, "event")
    for name in ("t.jsonl", "t.parquet"):
        reader = TraceReader(TraceSource.at(str(tmp_path / name), layout=layout).open(), {"A": A})
        assert [(event.ts, event.attributes["v"]) for event in reader.whole()] == [(5, 1), (6, 2)]
        assert set(reader.tally.ignored) == {("A", "_ts")}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ("--time-unit", "sec"),
            "'sec' is not a unit of time; did you mean s? write --time-unit and one of s, ms, us, ns, iso",
        ),
        (("--delimiter", "::"), "'::' cannot stand between cells; write one character, or tab"),
        (("--time-column", "type"), "the column 'type' cannot hold both the time and the type"),
        (("--time-column", "at"), "there is no column 'at'; the columns are type, ts, v"),
    ],
)
@every_command
def test_wrong_options_are_said(
    tmp_path: Path,
    rule: Path,
    capsys: pytest.CaptureFixture[str],
    command_name: str,
    words: tuple[str, ...],
    sentence: str,
) -> None:
    code, _, err = command(command_name, rule, "--events", write_csv(tmp_path, [1, 2, 3]), *words, capsys=capsys)
    assert code == 2
    assert sentence in err


def test_check_takes_these_options_with_events_only(rule: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = command("check", rule, "--time-unit", "s", capsys=capsys)
    assert code == 2
    assert "go with --events" in err


# --- networks ---------------------------------------------------------------------------------------------------------

NETWORK = """\
events:
  A: {v: int}
nodes: [p1]
sources:
  - {node: p1, type: A, trace: FILE}
sinks:
  - {node: p1, subscribe: A}
"""


def network(folder: Path, source: str) -> Path:
    (folder / "network.yaml").write_text(NETWORK.replace("FILE", source))
    return folder / "network.yaml"


@other_units
@every_format
def test_a_network_refuses_a_trace_in_another_unit_and_takes_it_with_its_unit(
    tmp_path: Path, write: Write, unit: str
) -> None:
    name = write(tmp_path, cells(unit)).name
    with pytest.raises(NetworkFileError) as wrong:
        read_network(network(tmp_path, name))
    (found,) = wrong.value.diagnostics
    assert found.line == 5
    assert f"as {NAMES[unit]} it is 2026-03-01 12:00" in found.message
    file = read_network(network(tmp_path, f"{name}, time: {{unit: {unit}}}"))
    assert [event.ts for _, _, event in births(file, seed=1)] == [(NOON_S + each) * 1_000_000 for each in OFFSETS_S]


def test_a_trace_of_a_network_may_have_columns_and_a_delimiter_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "odd.csv").write_text(ODD_CSV)
    source = 'odd.csv, time: {column: when, unit: s}, type_column: event, delimiter: ";"'
    file = read_network(network(tmp_path, source))
    assert file.feeds == (TraceFeed(str(tmp_path / "odd.csv"), 1.0, Layout("when", "s", "event", ";")),)
    times = [1_772_366_400_500_000, 1_772_366_409_500_000]
    assert [event.ts for _, _, event in births(file, seed=1)] == times

    async def scenario() -> list[Arrival]:
        feed = file.feeds[0]
        assert isinstance(feed, TraceFeed)
        taken = Taken()
        source = make_source(0, TraceFeed(feed.path, 0.0, feed.layout), A, an_edge(tmp_path))
        assert source is not None
        await source.run(taken, None)
        return taken.arrivals

    assert [arrival.ts for arrival in run(scenario())] == times


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ("time: {unit: sec}", "'sec' is not a unit of time"),
        ("time: {unt: s}", "time has no key 'unt'"),
        ("time: type", "the column 'type' cannot hold both the time and the type"),
        ("time: {column: at}", "there is no column 'at'"),
        ("delimiter: '::'", "'::' cannot stand between cells"),
        ("delimiter: ';'", "there is no column 'type'"),
    ],
)
def test_what_is_wrong_with_the_layout_of_a_trace_is_shown_with_its_line(
    tmp_path: Path, more: str, sentence: str
) -> None:
    write_csv(tmp_path, [1, 2, 3])
    with pytest.raises(NetworkFileError) as wrong:
        read_network(network(tmp_path, f"t.csv, {more}"))
    assert [found.line for found in wrong.value.diagnostics] == [5]
    assert sentence in wrong.value.diagnostics[0].message


# --- tables -----------------------------------------------------------------------------------------------------------


@other_units
def test_a_table_in_another_unit_is_refused_and_read_with_its_unit(tmp_path: Path, unit: str) -> None:
    file = tmp_path / "table.csv"
    file.write_text(f"key,value,ts\na,1,{cells(unit)[0]}\na,2,{cells(unit)[1]}\n")
    with pytest.raises(EventError, match=f"as {NAMES[unit]} it is 2026-03-01 12:00; write --time-unit {unit}"):
        load_remote_table(str(file))
    table = load_remote_table(str(file), unit)  # type: ignore[arg-type]
    assert [table.lookup(("a",), (NOON_S + at) * 1_000_000) for at in (-1, 0, 8, 9)] == [None, 1, 1, 2]


def test_the_times_of_a_table_may_be_iso_beside_a_trace_in_seconds(tmp_path: Path) -> None:
    file = tmp_path / "table.csv"
    file.write_text("key,value,ts\na,1,2026-03-01T12:00:00Z\n")
    assert load_remote_table(str(file), "s").lookup(("a",), NOON_S * 1_000_000) == 1


# --- live -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", ["s", "ms", "ns"])
def test_what_happens_now_is_refused_in_another_unit(unit: str) -> None:
    now_us = NOON_S * 1_000_000
    why = wrong_for_the_clock((NOON_S - 5) * FACTORS[unit], now_us)
    assert why is not None
    assert f"as {NAMES[unit]} it is 2026-03-01 11:59" in why
    assert f"time: {{from: .., unit: {unit}}}" in why


def test_what_happens_now_is_not_refused_by_a_clock_that_counts_from_a_beginning_of_its_own() -> None:
    assert wrong_for_the_clock(NOON_S, 2_000_000_000) is None
    assert wrong_for_the_clock(NOON_S * 1_000_000, NOON_S * 1_000_000) is None
    assert wrong_for_the_clock(17, NOON_S * 1_000_000) is None  # it is late, and no date in any unit
