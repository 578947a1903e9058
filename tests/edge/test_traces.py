"""Reading traces: every format, what is inferred from it, and what is said of rows that are no events."""

from __future__ import annotations

import gzip
import io
import json
import os
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.deploy.network.units import duration_us
from headwater.node.traces.pipe_lines import PipeLines
from headwater.node.traces.reader import OutOfOrder, TraceReader, survey
from headwater.node.traces.rows import JsonRows, TraceSource
from headwater.node.traces.times import iso_us, parse_ts
from headwater.protocol.errors import ConfigError, EventError, HeadwaterError
from headwater.protocol.events import Event, EventType

TEMP = EventType("Temp", {"area": "string", "value": "float"})
SMOKE = EventType("Smoke", {"area": "string"})
DECLARED = {"Temp": TEMP, "Smoke": SMOKE}


def write(path: Path, text: str | bytes) -> TraceSource:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return TraceSource.at(str(path))


def whole(source: TraceSource, types: dict[str, EventType] | None = None, **options: Any) -> list[Event]:
    reader = TraceReader(source.open(), survey(source.open()).types if types is None else types, **options)
    return reader.whole()


def streamed(source: TraceSource, types: dict[str, EventType] | None = None, **options: Any) -> list[Event]:
    reader = TraceReader(source.open(), survey(source.open()).types if types is None else types)
    return [event for batch, _ in reader.batches(**options) for event in batch]


CSV = "type,ts,node,area,value\nTemp,1,p1,A1,44.5\nSmoke,2,p2,A1,\n"


def test_csv_rows_become_events_with_inferred_types(tmp_path: Path) -> None:
    source = write(tmp_path / "t.csv", CSV)
    assert survey(source.open()).types == DECLARED
    expected = [
        Event(TEMP, 1, "p1", 1, {"area": "A1", "value": 44.5}),
        Event(SMOKE, 2, "p2", 1, {"area": "A1"}),
    ]
    assert whole(source) == expected
    assert streamed(source) == expected


def test_json_lines_and_parquet_give_the_same_events_as_csv(tmp_path: Path) -> None:
    rows = [
        {"type": "Temp", "ts": 1, "node": "p1", "area": "A1", "value": 44.5},
        {"type": "Smoke", "ts": 2, "node": "p2", "area": "A1", "value": None},
    ]
    by_csv = whole(write(tmp_path / "t.csv", CSV))
    by_json = whole(write(tmp_path / "t.jsonl", "\n".join(map(json.dumps, rows))))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "t.parquet")
    assert by_csv == by_json == whole(TraceSource.at(str(tmp_path / "t.parquet")))


@pytest.mark.parametrize("name", ["t.csv.gz", "t.jsonl.gz"])
def test_compressed_files_are_read_by_their_double_extension(tmp_path: Path, name: str) -> None:
    text = CSV if "csv" in name else '{"type": "Temp", "ts": 1, "node": "p1", "area": "A1", "value": 44.5}\n'
    assert whole(write(tmp_path / name, gzip.compress(text.encode())))[0].attributes == {"area": "A1", "value": 44.5}


def test_truncated_gzip_is_said_in_a_sentence(tmp_path: Path) -> None:
    source = write(tmp_path / "t.csv.gz", gzip.compress((CSV + "Smoke,3,p2,A1,\n" * 1000).encode())[:-20])
    with pytest.raises(HeadwaterError, match=r"cannot read .*t\.csv\.gz"):
        whole(source, DECLARED)
    damaged = bytearray(gzip.compress(os.urandom(500).hex().encode()))
    damaged[20:200] = bytes(180)
    with pytest.raises(HeadwaterError, match=r"cannot read .*u\.csv\.gz"):
        write(tmp_path / "u.csv.gz", bytes(damaged)).open()


def test_kinds_are_the_narrowest_that_fit_all_rows_of_a_type(tmp_path: Path) -> None:
    source = write(
        tmp_path / "t.csv",
        "type,ts,i,f,b,s,zip,none,late\n"
        "A,1,1,1,true,x,007,,\n"
        "A,2,-20,2.5,False,1,123,,5\n"
        "B,3,x,,,,,,\n",
    )  # fmt: skip
    types = survey(source.open()).types
    assert types["A"] == EventType(
        "A", {"i": "int", "f": "float", "b": "bool", "s": "string", "zip": "string", "late": "int?"}
    )
    assert types["B"] == EventType("B", {"i": "string"})


def test_json_values_of_different_kinds_are_any_and_missing_ones_optional(tmp_path: Path) -> None:
    rows = '{"type": "A", "ts": 1, "x": 1, "y": 1}\n{"type": "A", "ts": 2, "x": "a", "z": NaN}\n'
    assert survey(write(tmp_path / "t.jsonl", rows).open()).types["A"] == EventType("A", {"x": "any", "y": "int?"})


def test_rows_without_seq_are_numbered_per_node_by_time_then_row(tmp_path: Path) -> None:
    source = write(tmp_path / "t.csv", "type,ts,node\nA,5,n\nA,3,n\nA,5,m\nA,3,n\nA,4,\n")
    assert [(event.ts, event.node, event.seq) for event in whole(source)] == [
        (3, "n", 1), (3, "n", 2), (4, "local", 1), (5, "n", 3), (5, "m", 1),
    ]  # fmt: skip


def test_rows_of_types_that_no_rule_names_are_counted_and_numbered(tmp_path: Path) -> None:
    source = write(tmp_path / "t.csv", "type,ts\nWind,1\nA,2\nWind,3\nA,4\n")
    for order in ("whole", "batches"):
        reader = TraceReader(source.open(), survey(source.open()).types, ["A"])
        events = reader.whole() if order == "whole" else [e for batch, _ in reader.batches() for e in batch]
        assert [event.seq for event in events] == [2, 4]
        assert reader.tally.unnamed == {"Wind": 2}


def test_an_unsorted_file_is_noticed(tmp_path: Path) -> None:
    source = write(tmp_path / "t.csv", "type,ts\nA,1\nA,3\nA,2\n")
    assert not survey(source.open()).in_order
    with pytest.raises(OutOfOrder):
        streamed(source)
    assert [event.ts for event in whole(source)] == [1, 2, 3]


def test_ties_are_in_order_and_the_watermark_stays_below_them(tmp_path: Path) -> None:
    source = write(tmp_path / "t.csv", "type,ts\nA,1\nA,1\nA,2\nA,2\n")
    assert survey(source.open()).in_order
    reader = TraceReader(source.open(), {"A": EventType("A")})
    assert [(len(batch), watermark) for batch, watermark in reader.batches(size=3)] == [(3, 1), (1, 1)]


@pytest.mark.parametrize("size", [1, 2, 500])
def test_lateness_does_not_depend_on_batches_and_late_rows_get_no_number(tmp_path: Path, size: int) -> None:
    source = write(tmp_path / "t.csv", "type,ts,x\nA,10,a\nA,8,b\nA,7,c\nA,12,d\nA,10,e\nW,1,f\n")
    late: list[dict[str, Any]] = []
    reader = TraceReader(source.open(), survey(source.open()).types, ["A"])
    batches = list(reader.batches(lateness_us=2, late=late.append, size=size))
    assert [(event.ts, event.seq) for batch, _ in batches for event in batch] == [(10, 1), (8, 2), (12, 3), (10, 4)]
    assert late == [
        {"type": "A", "ts": 7, "x": "c", "node": "local"},
        {"type": "W", "ts": 1, "x": "f", "node": "local"},
    ]
    assert reader.tally.late == 2
    assert batches[-1][1] == 9


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("5", 5),
        ("-5", -5),
        (" 7 ", 7),
        ("1970-01-01T00:00:01Z", 1_000_000),
        ("1970-01-01T00:00:01", 1_000_000),
        ("1970-01-01 01:00:00.000001+01:00", 1),
        ("1970-01-02", 86_400_000_000),
    ],
)
def test_times_are_integers_of_microseconds_or_iso(tmp_path: Path, text: str, microseconds: int) -> None:
    assert parse_ts(text) == microseconds
    source = write(tmp_path / "t.csv", f"type,ts,x\nA,{text},1\nA,{text},2\n")
    assert [event.ts for event in whole(source)] == [microseconds] * 2
    source = write(tmp_path / "t.jsonl", json.dumps({"type": "A", "ts": text}))
    assert [event.ts for event in streamed(source)] == [microseconds]


def test_iso_and_integer_times_may_be_mixed(tmp_path: Path) -> None:
    source = write(tmp_path / "t.csv", "type,ts\nA,1\nA,1970-01-01T00:00:01Z\nA,2000000\nA,1970-01-01T00:00:03Z\n")
    assert [event.ts for event in streamed(source)] == [1, 1_000_000, 2_000_000, 3_000_000]


def test_parquet_timestamps_become_microseconds(tmp_path: Path) -> None:
    import datetime

    at = datetime.datetime(1970, 1, 1, 0, 0, 2)
    table = pyarrow.table({"type": ["A"], "ts": [at], "seen": pyarrow.array([at], pyarrow.timestamp("ns", "UTC"))})
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    event = whole(TraceSource.at(str(tmp_path / "t.parquet")))[0]
    assert (event.ts, event.attributes) == (2_000_000, {"seen": 2_000_000})


def test_parquet_columns_of_lists_are_refused(tmp_path: Path) -> None:
    pyarrow.parquet.write_table(pyarrow.table({"type": ["A"], "ts": [1], "x": [[1, 2]]}), tmp_path / "t.parquet")
    with pytest.raises(EventError, match="column 'x' holds list"):
        whole(TraceSource.at(str(tmp_path / "t.parquet")))


BAD_CSV = {
    "Temp,x,p1,A1,1.5": "ts 'x' is neither an integer of microseconds nor an ISO 8601 time",
    "Temp,,p1,A1,1.5": "the row has no ts",
    "Temp,99999999999999999999,p1,A1,1.5": "ts 99999999999999999999 does not fit into 64 bits",
    ",1,p1,A1,1.5": "the row has no type",
    "Temp,1,p1,A1": "the row has 4 columns, the header has 5",
    "Temp,1,p1,A1,1.5,9": "the row has 6 columns, the header has 5",
    "Temp": "the row has 1 columns, the header has 5",
    "Temp,1,p1,A1,warm": "Temp.value is declared float, but 'warm' is not",
    "Temp,1,p1,A1,inf": "Temp.value is inf, which is not a finite number",
    "Temp,1,p1,A1,nan": "Temp needs a value for 'value'",
    "Temp,1,p1,A1,": "Temp needs a value for 'value'",
    "Temp,1,p1,,1.5": "Temp needs a value for 'area'",
    'Temp,1,p1,"A1"x,1.5': "the line is not CSV: a closing double quote is followed by something other than a comma",
    b"Temp,1,p1,A\r1,1.5": "the line is not CSV: a carriage return stands inside it; end every line with LF or CR LF",
    b"Temp,1,p1,A\xff,1.5": "the line is not UTF-8 text (byte 0xff)",
}


@pytest.mark.parametrize(("row", "sentence"), BAD_CSV.items())
def test_a_malformed_csv_row_stops_with_its_line_or_is_counted(tmp_path: Path, row: str | bytes, sentence: str) -> None:
    raw = row if isinstance(row, bytes) else row.encode()
    source = write(tmp_path / "t.csv", b"type,ts,node,area,value\nTemp,0,p1,A1,1\n\n" + raw + b"\nSmoke,2,p1,A1,\n")
    for read in (lambda reader: reader.whole(), lambda reader: [e for b, _ in reader.batches() for e in b]):
        with pytest.raises(EventError) as caught:
            read(TraceReader(source.open(), DECLARED))
        assert f"t.csv:4: {sentence}" in str(caught.value)
        reader = TraceReader(source.open(), DECLARED, skip_bad=True)
        assert [(event.type, event.seq) for event in read(reader)] == [("Temp", 1), ("Smoke", 2)]
        assert reader.tally.bad == 1
        assert sentence in reader.tally.examples[0]


BAD_JSON = {
    '{"type": "Temp"': "the line is not JSON",
    "[1]": "the line is not a JSON object but list",
    "3": "the line is not a JSON object but int",
    '{"ts": 1}': "the row has no type",
    '{"type": 3, "ts": 1}': "type 3 is not a name",
    '{"type": ["x"], "ts": 1}': "type ['x'] is not a name",
    '{"type": "Temp", "area": "A", "value": 1.0}': "the row has no ts",
    '{"type": "Temp", "ts": 1.5, "area": "A", "value": 1.0}': "ts 1.5 is neither",
    '{"type": "Temp", "ts": true, "area": "A", "value": 1.0}': "ts True is neither",
    '{"type": "Temp", "ts": 1, "area": 3, "value": 1.0}': "Temp.area is declared string, but 3 is int",
    '{"type": "Temp", "ts": 1, "area": "A", "value": "1"}': "Temp.value is declared float, but '1' is string",
    '{"type": "Temp", "ts": 1, "area": "A", "value": [1]}': "Temp.value is list; values are numbers",
    '{"type": "Temp", "ts": 1, "area": "A", "value": 1e999}': "not a finite number",
    '{"type": "Temp", "ts": 1, "area": "A"}': "Temp needs a value for 'value'",
    '{"type": "Temp", "ts": 1, "area": "A", "value": 1, "node": 1.5}': "node 1.5 is not a name",
    '{"type": "Temp", "ts": 1, "area": "A", "value": 1, "seq": 4}': "the row gives a seq, but the first row",
    "[" * 100_000: "nested too deeply",
}


@pytest.mark.parametrize(("row", "sentence"), BAD_JSON.items(), ids=lambda text: text[:40])
def test_a_malformed_json_line_stops_with_its_line_or_is_counted(tmp_path: Path, row: str, sentence: str) -> None:
    good = '{"type": "Temp", "ts": 0, "area": "A", "value": 1}\n'
    source = write(tmp_path / "t.jsonl", f"{good}\n{row}\n{good}")
    with pytest.raises(EventError) as caught:
        streamed(source, DECLARED)
    assert "t.jsonl:3: " in str(caught.value)
    assert sentence in str(caught.value)
    reader = TraceReader(source.open(), DECLARED, skip_bad=True)
    assert [event.seq for event in reader.whole()] == [1, 2]
    assert reader.tally.bad == 1


def test_seq_must_be_given_everywhere_or_nowhere(tmp_path: Path) -> None:
    source = write(tmp_path / "t.csv", "type,ts,seq\nA,1,7\nA,2,\n")
    with pytest.raises(EventError, match="the row has no seq"):
        whole(source)
    source = write(tmp_path / "u.csv", "type,ts,seq\nA,1,7\nA,2,-1\n")
    with pytest.raises(EventError, match="negative"):
        whole(source)
    source = write(tmp_path / "v.csv", "type,ts,node,seq\nA,2,n,7\nA,1,n,9\n")
    assert [event.seq for event in whole(source)] == [9, 7]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "the file is empty"),
        ("type,node\nA,1\n", "there is no column 'ts'"),
        ("ts,node\n1,n\n", "there is no column 'type'"),
        ("A,1,1\nB,2,2\n", "there is no column 'type'; the columns are A, 1, 1 .--type-column NAME"),
        ("type;ts\nA;1\n", "separated by ';' here: write --delimiter ';'"),
        ("type\tts\nA\t1\n", "separated by a tab here: write --delimiter tab"),
        ("Type,ts\nA,1\n", "write 'type', not 'Type'"),
        ("type,ts,x,x\nA,1,2,3\n", "the header names 'x' twice"),
        ("type,ts,\nA,1,2\n", "column 3 of the header has no name"),
        (b"type,ts,\xff\n", "the header is not UTF-8"),
    ],
)
def test_a_bad_header_is_said_in_a_sentence(tmp_path: Path, text: str | bytes, sentence: str) -> None:
    with pytest.raises(EventError, match=sentence):
        write(tmp_path / "t.csv", text).open()


def test_bytes_that_are_no_parquet_are_said_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(EventError, match="is not a Parquet file"):
        write(tmp_path / "t.parquet", "type,ts\n").open()


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm(tmp_path: Path) -> None:
    source = write(tmp_path / "t.csv", "\ufefftype,ts,x\r\nA,1,a\r\n")
    assert whole(source)[0].attributes == {"x": "a"}
    source = write(tmp_path / "t.jsonl", '\ufeff{"type": "A", "ts": 1, "x": "a"}\r\n')
    assert whole(source)[0].attributes == {"x": "a"}


def test_line_numbers_hold_after_quoted_line_breaks_and_undecodable_lines(tmp_path: Path) -> None:
    source = write(tmp_path / "t.csv", b'type,ts,x\nA,1,"a\nb"\n\xff\nA,bad,c\n')
    reader = TraceReader(source.open(), {"A": EventType("A", {"x": "string"})}, skip_bad=True)
    assert [event.attributes["x"] for event in reader.whole()] == ["a\nb"]
    assert [example.split(": ")[0].rsplit(":", 1)[1] for example in reader.tally.examples] == ["4", "5"]


def test_attributes_that_a_declared_type_lacks_are_mentioned_once(tmp_path: Path) -> None:
    csv_source = write(tmp_path / "t.csv", "type,ts,area,more,seen\nSmoke,1,A,x,\nSmoke,2,A,y,z\n")
    json_source = write(
        tmp_path / "t.jsonl",
        '{"type": "Smoke", "ts": 1, "area": "A", "more": 1}\n{"type": "Smoke", "ts": 2, "area": "A", "seen": 2}\n',
    )
    for source in (csv_source, json_source):
        reader = TraceReader(source.open(), {"Smoke": SMOKE})
        assert len(reader.whole()) == 2
        assert set(reader.tally.ignored) == {("Smoke", "more"), ("Smoke", "seen")}


def test_types_of_a_stream_are_inferred_from_its_first_rows(tmp_path: Path) -> None:
    source = write(tmp_path / "t.csv", "type,ts,x\n" + "A,1,1\n" * 5 + "bad\n" + "A,2,\nA,3,many\n")
    rows = source.open()
    found = survey(rows, sample_rows=6)
    assert found.types == {"A": EventType("A", {"x": "int?"})}
    reader = TraceReader(rows, found.types, skip_bad=True, inferred=True)
    events = [event for batch, _ in reader.batches(late=lambda record: None) for event in batch]
    assert [event.attributes["x"] for event in events] == [1, 1, 1, 1, 1, None]
    assert "t.csv:7: the row has 1 columns" in reader.tally.examples[0]
    assert "t.csv:9: A.x is declared int, but 'many' is not (the kind was inferred" in reader.tally.examples[1]


def test_a_pipe_says_when_nothing_more_is_waiting() -> None:
    reading, writing = os.pipe()
    with open(reading, "rb") as stream, open(writing, "wb", buffering=0) as sender:
        assert isinstance(stream, io.BufferedReader)
        lines = PipeLines(stream)
        sender.write(b"one\ntwo\nhal")
        assert (next(lines), lines.drained) == (b"one\n", False)
        assert (next(lines), lines.drained) == (b"two\n", True)
        sender.write(b"f\nlast")
        assert next(lines) == b"half\n"
        sender.close()
        assert list(lines) == [b"last"]


def test_unknown_formats_and_files_are_said_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no file"):
        TraceSource.at(str(tmp_path / "none.csv"))
    with pytest.raises(ConfigError, match="is a folder"):
        TraceSource.at(str(tmp_path))
    (tmp_path / "manifest.json").touch()
    with pytest.raises(ConfigError, match="is a prepared trace; one engine reads files"):
        TraceSource.at(str(tmp_path))
    (tmp_path / "t.txt").touch()
    with pytest.raises(ConfigError, match="cannot tell the format"):
        TraceSource.at(str(tmp_path / "t.txt"))
    with pytest.raises(ConfigError, match="unknown format"):
        TraceSource.at(str(tmp_path / "t.txt"), "xml")
    assert isinstance(TraceSource.at(str(tmp_path / "t.txt"), "jsonl").open(), JsonRows)


def test_durations_have_units() -> None:
    assert [duration_us(text) for text in ("5s", "1.5 min", "200ms", "0", "2h", "3 days")] == [
        5_000_000, 90_000_000, 200_000, 0, 7_200_000_000, 259_200_000_000,
    ]  # fmt: skip
    for text in ("5", "s", "-5s", "5 parsec", ""):
        with pytest.raises(ConfigError, match="is not a duration"):
            duration_us(text)
    assert iso_us("1969-12-31T23:59:59.5Z") == -500_000


CELLS = st.sampled_from(["", "0", "1", "-3", "2.5", "1e3", "nan", "inf", "true", "False", "x", " 4", "1_0", "007", "é"])
KINDS = st.sampled_from([kind + mark for kind in ("int", "float", "string", "bool", "any") for mark in ("", "?")])


@settings(max_examples=300)
@given(kinds=st.lists(KINDS, min_size=1, max_size=3), data=st.data())
def test_the_generated_converter_agrees_with_the_slow_one(
    tmp_path_factory: pytest.TempPathFactory, kinds: list[str], data: st.DataObject
) -> None:
    """The fast path and the one that explains mistakes must make the same events and refuse the same rows."""
    names = [f"v{index}" for index in range(len(kinds))]
    declared = EventType("A", dict(zip(names, kinds, strict=True)))
    cells = data.draw(st.lists(st.tuples(*(CELLS for _ in kinds)), min_size=1, max_size=4))
    text = "type,ts,node," + ",".join(names) + "\n" + "".join(f"A,1,n,{','.join(row)}\n" for row in cells)
    source = write(tmp_path_factory.mktemp("t") / "t.csv", text)
    fast = TraceReader(source.open(), {"A": declared}, skip_bad=True)
    slow = TraceReader(source.open(), {"A": declared}, skip_bad=True)
    slow._compile = lambda name: slow._slow  # type: ignore[method-assign]
    made = [next(reader.batches())[0] for reader in (fast, slow)]
    assert made[0] == made[1]
    assert [list(map(type, event)) for event in made[0]] == [list(map(type, event)) for event in made[1]]
    assert fast.tally.examples == slow.tally.examples
