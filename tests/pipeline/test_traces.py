"""Raw data becomes prepared traces: typed, timed, placed, sorted, numbered; and what cannot is told."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headwater.deploy.descriptions.traces import find_description, read_description, ready_made
from headwater.deploy.network.file import read_network
from headwater.deploy.simulation.births import births
from headwater.node.traces.source_rows import events_of_source, look
from headwater.pipeline.prepare.descriptions import (
    ByHash,
    ByNearest,
    ByRegion,
    ByValue,
    ClockTime,
    Description,
    Files,
    KeptAttribute,
    NumberTime,
    RawSource,
    Region,
    TextTime,
)
from headwater.pipeline.prepare.prepared_trace import MANIFEST, PreparedTrace, check_target, open_prepared
from headwater.pipeline.prepare.traces import prepare
from headwater.pipeline.spark.failures import in_a_sentence
from headwater.protocol.errors import ConfigError
from headwater.protocol.events import EventType
from tests.kit.slips import is_shown

PLAIN = RawSource(Files(("*.csv",), "csv"), "kind", NumberTime("at", "us", epoch=False), ByValue("place"))


def described(source: RawSource, *more: RawSource) -> Description:
    return Description("test", (source, *more))


def prepared(
    spark: Any, folder: Path, text: str | Mapping[str, str], source: RawSource = PLAIN, *more: RawSource
) -> PreparedTrace:
    raw = folder / "raw"
    raw.mkdir(exist_ok=True)
    for name, content in ({"rows.csv": text} if isinstance(text, str) else text).items():
        if name.endswith(".gz"):
            (raw / name).write_bytes(gzip.compress(content.encode()))
        else:
            (raw / name).write_text(content, encoding="utf-8")
    return prepare(spark, described(source, *more), raw, folder / "out")


def rows(spark: Any, trace: PreparedTrace) -> list[tuple[Any, ...]]:
    found = trace.events(spark).orderBy("node", "seq").collect()
    return [tuple(row) for row in found]


# -- events ------------------------------------------------------------------------------------------------------------


def test_rows_are_sorted_and_numbered_by_node(spark: Any, tmp_path: Path) -> None:
    text = "kind,at,place\nA,30,p2\nB,10,p1\nA,10,p1\nA,20,p1\nB,5,p2\n"
    trace = prepared(spark, tmp_path, text)
    assert rows(spark, trace) == [
        ("B", 10, 1, "p1"),  # equal times keep the order of the file
        ("A", 10, 2, "p1"),
        ("A", 20, 3, "p1"),
        ("B", 5, 1, "p2"),
        ("A", 30, 2, "p2"),
    ]
    manifest = open_prepared(trace.folder).manifest
    assert manifest == trace.manifest
    assert (manifest.events, manifest.first_us, manifest.last_us) == (5, 5, 30)
    assert {name: each.events for name, each in manifest.types.items()} == {"A": 3, "B": 2}
    assert {name: each.events for name, each in manifest.nodes.items()} == {"p1": 3, "p2": 2}


def test_equal_times_keep_the_order_of_files_whatever_they_are_called(spark: Any, tmp_path: Path) -> None:
    names = [
        "50%20 a.csv",
        "a b+c.csv",
        "a{1}[2].csv",
        "a~.csv",
        "b, é.csv",
        "z*?.csv",
    ]  # in the order of their letters
    texts = {name: f"kind,at,place\n{kind},7,p\n,1,q\n" for name, kind in zip(names, "FEDCBA", strict=True)}
    source = replace(PLAIN, attributes={"of": KeptAttribute("file", "string")})
    trace = prepared(spark, tmp_path, texts, source)
    assert [(kind, seq, of) for kind, _, seq, of, _ in rows(spark, trace)] == [
        (kind, seq, name) for seq, (kind, name) in enumerate(zip("FEDCBA", names, strict=True), start=1)
    ]
    bad = spark.read.parquet(str(trace.folder / "bad-rows")).collect()
    assert [json.loads(row["row"])["file"] for row in bad] == names


def test_numbers_go_on_from_task_to_task(spark: Any, tmp_path: Path) -> None:
    """One node has nearly everything, so several tasks share it; equal times lie on both sides of every border."""
    text = "kind,at,place\n" + "".join(f"A,{number // 7},{'p1' if number % 50 else 'p2'}\n" for number in range(5000))
    trace = prepared(spark, tmp_path, text)
    found = rows(spark, trace)
    for node in ("p1", "p2"):
        mine = [row for row in found if row[-1] == node]
        assert [row[2] for row in mine] == list(range(1, len(mine) + 1))
        assert [row[1] for row in mine] == sorted(row[1] for row in mine)
    assert len(list((trace.folder / "events").glob("node=p1/*.parquet"))) > 1
    trace.check(spark)


def test_a_file_of_a_node_is_in_trace_order(spark: Any, tmp_path: Path) -> None:
    text = "kind,at,place,v\n" + "".join(f"{'AB'[n % 2]},{(n * 7919) % 1000},p1,{n}\n" for n in range(2000))
    trace = prepared(spark, tmp_path, text, replace(PLAIN, attributes={"v": KeptAttribute("v", "int")}))
    assert look(str(trace.folder)) == (True, True)
    events = list(events_of_source(str(trace.folder), "p1", EventType("A", {"v": "int"}), in_order=True))
    assert len(events) == 1000
    assert [(event.ts, event.seq) for event in events] == sorted((event.ts, event.seq) for event in events)
    with pytest.raises(ConfigError, match="no events of the node p9; it has those of p1"):
        next(events_of_source(str(trace.folder), "p9", EventType("A", {"v": "int"}), in_order=True))


def test_a_network_is_fed_by_a_prepared_trace(spark: Any, tmp_path: Path) -> None:
    prepared(
        spark,
        tmp_path,
        "kind,at,place,v\nA,1,p1,7\nB,2,p2,8\nA,3,p1,9\n",
        replace(PLAIN, attributes={"v": KeptAttribute("v", "int")}),
    )
    (tmp_path / "network.yaml").write_text(
        "events: {A: {v: int}, B: {v: int}}\n"
        "nodes: [p1, p2]\n"
        "links: [{between: [p1, p2], delay: 1ms}]\n"
        "sources: [{node: p1, type: A, trace: out}, {node: p2, type: B, trace: out}]\n"
        "sinks: [{node: p1, subscribe: A}]\n"
        "rules: []\n"
    )
    born = [
        (at, event.node, event.seq, event.attributes["v"])
        for at, _, event in births(read_network(tmp_path / "network.yaml"), seed=1)
    ]
    assert born == [(1, "p1", 1, 7), (2, "p2", 1, 8), (3, "p1", 2, 9)]


def test_several_sources_and_formats(spark: Any, tmp_path: Path) -> None:
    zeek = "#separator \\x09\n#fields\tts\tuid\tid.resp_h\n#types\ttime\n1.5\tC1\t10.0.0.1\n2.25\t-\t10.0.0.2\n"
    lines = '{"t": 3, "where": "p1", "deep": {"v": 1}}\n{"t": 4, "where": "p2"}\n'
    trace = prepared(
        spark,
        tmp_path,
        {"dns.log.gz": zeek, "more.jsonl": lines},
        RawSource(
            Files(("dns.log*",), "zeek"),
            "'Dns'",
            NumberTime("ts", "s", epoch=False),
            ByValue("`id.resp_h`", {"10.0.0.1": "p1", "10.0.0.2": "p2"}),
            {"uid": KeptAttribute("uid", "string")},
        ),
        RawSource(
            Files(("*.jsonl",), "jsonl"),
            "'J'",
            NumberTime("t", "s", epoch=False),
            ByValue("`where`"),
            {"v": KeptAttribute("deep.v", "int")},
        ),
    )
    assert rows(spark, trace) == [
        ("Dns", 1_500_000, 1, "C1", None, "p1"),
        ("J", 3_000_000, 2, None, 1, "p1"),
        ("Dns", 2_250_000, 1, None, None, "p2"),
        ("J", 4_000_000, 2, None, None, "p2"),
    ]
    assert trace.manifest.types["Dns"].attributes == {"uid": "string?"}
    assert trace.manifest.types["J"].attributes == {"v": "int?"}


def test_times(spark: Any, tmp_path: Path) -> None:
    text = "kind,at,place\nA,2019-07-01 12:00:00.5,p1\n"
    berlin = prepared(spark, tmp_path, text, replace(PLAIN, time=TextTime("at", zone="Europe/Berlin")))
    assert rows(spark, berlin)[0][1] == 1_561_975_200_500_000  # ten o'clock in UTC
    other = tmp_path / "other"
    other.mkdir()
    clock = prepared(
        spark, other, "kind,at,place\nA,743:59:58,p1\nA,0:00:01.25,p1\n", replace(PLAIN, time=ClockTime("at"))
    )
    assert [row[1] for row in rows(spark, clock)] == [1_250_000, (743 * 3600 + 59 * 60 + 58) * 1_000_000]


# -- places ------------------------------------------------------------------------------------------------------------


def test_places(spark: Any, tmp_path: Path) -> None:
    text = "kind,at,lat,lon,k\nA,1,45.1,7.7,x\nA,2,41.9,12.5,y\nA,3,0,179.9,x\nA,4,10,10,z\n"
    point = {"latitude": "lat", "longitude": "lon"}
    near = ByNearest(**point, nodes={"turin": (45.07, 7.69), "rome": (41.9, 12.5), "fiji": (-17.7, -178.0)})
    trace = prepared(spark, tmp_path, text, replace(PLAIN, place=near))
    assert {row[1]: row[-1] for row in rows(spark, trace)} == {1: "turin", 2: "rome", 3: "fiji", 4: "rome"}
    for number, (place, expected) in enumerate(
        [
            (
                ByRegion(**point, regions={"north": Region(45, 46, 7, 9), "all": Region(40, 50, 0, 20)}),
                {1: "north", 2: "all"},
            ),
            (
                ByRegion(**point, regions={"north": Region(45, 46, 7, 9)}, otherwise="rest"),
                {1: "north", 2: "rest", 3: "rest", 4: "rest"},
            ),
        ]
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        trace = prepared(spark, folder, text, replace(PLAIN, place=place))
        assert {row[1]: row[-1] for row in rows(spark, trace)} == expected
        assert sum(trace.manifest.bad_rows.values()) == 4 - len(expected)
    folder = tmp_path / "hash"
    folder.mkdir()
    by_hash = {
        row[1]: row[-1]
        for row in rows(spark, prepared(spark, folder, text, replace(PLAIN, place=ByHash("k", ("a", "b", "c")))))
    }
    assert by_hash[1] == by_hash[3]
    assert set(by_hash.values()) <= {"a", "b", "c"}


# -- what is wrong -----------------------------------------------------------------------------------------------------


def test_bad_rows_are_kept_with_their_reasons(spark: Any, tmp_path: Path) -> None:
    text = "kind,at,place,v\nA,1,p1,5\n,2,p1,5\nA,then,p1,5\nA,,p1,5\nA,3,,5\nA,4,p1,five\nA,5,p1,\nA,6,p1,7.0\n"
    text += "A,7\nA,8,p1,9,10\n"
    trace = prepared(spark, tmp_path, text, replace(PLAIN, attributes={"v": KeptAttribute("v", "int")}))
    assert [(row[1], row[3]) for row in rows(spark, trace)] == [(1, 5), (5, None), (6, 7)]
    assert trace.manifest.bad_rows == {
        "the row cannot be read (too many or too few cells, or no JSON)": 2,
        "it has no node": 1,
        "it has no time": 1,
        "it has no type": 1,
        "its time is not a number of us": 1,
        "v is not of kind int": 1,
    }
    bad = {
        row["reason"]: json.loads(row["row"]) for row in spark.read.parquet(str(trace.folder / "bad-rows")).collect()
    }
    assert bad["v is not of kind int: five"]["at"] == "4"
    assert "its time is not a number of us: then" in bad


def test_a_row_with_too_many_or_too_few_cells_is_bad_whichever_are_asked_for(spark: Any, tmp_path: Path) -> None:
    text = "kind,at,place,x,y\nA,1,p1,5,6\nA,2,p1\nA,3,p1,5,6,7\n"
    found = prepared(spark, tmp_path, text).manifest
    assert (found.events, sum(found.bad_rows.values())) == (1, 2)


@pytest.mark.parametrize(
    ("text", "source", "sentence"),
    [
        ("kind,at,place\n", PLAIN, "no row became an event .there are no rows"),
        ("kind,when,place\nA,1,p1\n", PLAIN, "the time cannot be told from 'at'.*the columns kind, when, place"),
        ("kind,at,place\nA,1,p1\n", replace(PLAIN, type="kind +"), "the type is not an expression of Spark SQL"),
        ("kind,at,place\nA,1211871600000,p1\n", replace(PLAIN, time=NumberTime("at", "s")), "they look like ms"),
        ("kind,at,place\nA,1211871600,p1\n", replace(PLAIN, time=NumberTime("at", "us")), "they look like s$"),
        (
            "kind,at,place\nA,1211871600,p1\nA,1211871600000,p1\nA,3,p1\n",
            replace(PLAIN, time=NumberTime("at", "s")),
            "2 of 3 times at lie before 1985 or after 2100 .*a clock has jumped, or they are in another unit",
        ),
        ("kind,at,place\nA,1,p1\n", replace(PLAIN, type="count(kind)"), "the type cannot be told from 'count.kind"),
        ("kind,at,place,kind\nA,1,p1,A\n", PLAIN, "'kind' stands twice"),
        (
            {"a.csv": "kind,at,place\nA,1,p1\n", "b.csv": "at,kind,place\n1,A,p1\n"},
            PLAIN,
            "b.csv has other columns than",
        ),
        ({"a.csv": "kind,at,place\nA,1,p1\n", "b.csv": ""}, PLAIN, "b.csv in .*: the file is empty"),
        ({"rows.txt": "A\n"}, PLAIN, r"no file in .* is called \*.csv"),
        ({"a.csv.gz": "x"}, replace(PLAIN, files=Files(("*.log",), "zeek")), "is called"),
        ({"a.log": "ts\tuid\n"}, replace(PLAIN, files=Files(("*.log",), "zeek")), "has no line #fields"),
    ],
)
def test_what_cannot_be_prepared_leaves_nothing(
    spark: Any, tmp_path: Path, text: str | Mapping[str, str], source: RawSource, sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        prepared(spark, tmp_path, text, source)
    assert [path.name for path in tmp_path.iterdir()] == ["raw"]


def test_a_clock_that_jumps_is_named(spark: Any, tmp_path: Path) -> None:
    day = 86_400_000_000
    text = (
        "kind,at,place\n"
        + "".join(f"A,{hour * 3_600_000_000},p{hour % 2}\n" for hour in range(48))
        + f"A,{9000 * day},p1\n"
    )
    trace = prepared(spark, tmp_path, text)
    assert len(trace.manifest.warnings) == 1
    assert "1 event lies from 1994-08-23" in trace.manifest.warnings[0]


def test_what_may_not_be_meant_is_named(spark: Any, tmp_path: Path) -> None:
    text = "kind,at,place\n" + "".join(f"A b,{number},p1\n" for number in range(19))
    assert prepared(spark, tmp_path, text + "A,20,p2\n").manifest.warnings == (
        "no rule can name the types 'A b'; make them of letters, digits and _ in type: of the description",
        "95.0% of the events are born at p1; if that is not meant, look at node: in the description",
    )


def test_files_that_are_no_parquet_or_cut_off_are_named(spark: Any, tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    raw.mkdir()
    (raw / "a.parquet").write_text("this is not Parquet")
    whole = gzip.compress(("kind,at,place\n" + "".join(f"A,{n * n},p{n % 7}\n" for n in range(20_000))).encode())
    (raw / "b.csv.gz").write_bytes(whole[: len(whole) // 2])
    for pattern, form in (("a.parquet", "parquet"), ("b.csv.gz", "csv")):
        source = replace(PLAIN, files=Files((pattern,), form))
        with pytest.raises(ConfigError, match=rf"/raw/{pattern} is damaged, or only a part of a file"), in_a_sentence():
            prepare(spark, described(source), raw, tmp_path / "out")
        assert [path.name for path in tmp_path.iterdir()] == ["raw"]


def test_only_the_first_line_of_a_file_must_be_utf_8_to_be_read(spark: Any, tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    raw.mkdir()
    (raw / "a.csv").write_bytes("kind,at,place,of\nA,1,p1,x\nA,2,caf\xe9,\xe9t\xe9\n".encode("latin-1"))
    source = replace(PLAIN, attributes={"of": KeptAttribute("of", "string")})
    found = prepare(spark, described(source), raw, tmp_path / "out").manifest
    assert (found.events, list(found.nodes)) == (2, ["caf\ufffd", "p1"])
    assert "bytes in them that are not UTF-8" in found.warnings[0]
    assert found.warnings[1].startswith("1 value of of has \ufffd in place of bytes")


def test_where_a_trace_cannot_be_written_is_said_before_anything_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="/file is a file; name another folder"):
        check_target(tmp_path / "file" / "below" / "out", overwrite=False)


def test_what_is_there_is_not_overwritten_unasked(spark: Any, tmp_path: Path) -> None:
    trace = prepared(spark, tmp_path, "kind,at,place\nA,1,p1\n")
    with pytest.raises(ConfigError, match="exists already"):
        prepared(spark, tmp_path, "kind,at,place\nA,2,p1\n")
    again = prepare(spark, described(PLAIN), tmp_path / "raw", tmp_path / "out", overwrite=True)
    assert [row[1] for row in rows(spark, again)] == [2]
    assert trace.manifest.checksum != again.manifest.checksum
    with pytest.raises(ConfigError, match="is not a prepared trace, so it is not overwritten"):
        prepare(spark, described(PLAIN), tmp_path / "raw", tmp_path / "raw", overwrite=True)


def test_damage_is_found(spark: Any, tmp_path: Path) -> None:
    trace = prepared(spark, tmp_path, "kind,at,place\nA,1,p1\nA,2,p2\n")
    trace.check(spark)
    for file in (trace.folder / "events" / "node=p2").iterdir():
        file.unlink()
    with pytest.raises(ConfigError, match="1 events with the checksum"):
        trace.check(spark)
    with pytest.raises(ConfigError, match="lacks the events of p2"):
        open_prepared(trace.folder)
    (trace.folder / MANIFEST).write_text("{")
    with pytest.raises(ConfigError, match="is damaged"):
        open_prepared(trace.folder)
    (trace.folder / MANIFEST).unlink()
    with pytest.raises(ConfigError, match=f"has no {MANIFEST}"):
        open_prepared(trace.folder)


# -- descriptions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ready_made())
def test_ready_made_descriptions_can_be_read(name: str) -> None:
    assert read_description(find_description(name)).name == name


def test_mistakes_in_a_description_are_all_named(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(
        "sources:\n"
        "  - {files: a.csv, type: kind, time: {value: at, unit: fortnights}, node: {hash: k}}\n"
        "  - {files: ../b.csv, type: kind, time: {clock: at}, node: {region: {latitude: lat}}, atributes: {}}\n"
        "  - {files: c.xls, type: kind, time: {value: at, zone: Mars/Phobos}, node: place, attributes: {v: number}}\n"
        "  - {files: d.csv, type: kind}\n"
    )
    with pytest.raises(ConfigError) as caught:
        read_description(file)
    said = str(caught.value)
    for part in (
        "'fortnights' is not a unit of time",
        "a hash needs nodes to choose from",
        "leads out of the folder",
        "region lacks longitude, regions",
        "has no key 'atributes'",
        "write format: and one of csv, jsonl, parquet, zeek",
        "'number' is not a kind of attribute",
        "there is no time zone 'Mars/Phobos'",
        "the source does not say time: and node:",
    ):
        assert part in said, said


SLIPS = "sources: [{files: a.csv, type: kind, time: at, node: {hash: k, nodes: 2}}]\n"


@pytest.mark.parametrize(
    ("right", "wrong", "caret", "said"),
    [
        ("a.csv", "[]", "[]", "the source does not say files:"),
        ("time: at", "time: {}", "{}", "the time needs either value: or clock:"),
        ("time: at", "time: {value: at, epoch: no}", "epoch", "epoch: is for numbers"),
        ("nodes: 2", "nodes: many", "many", "the number of nodes is a whole number from 1 to 100,000"),
        ("nodes: 2", "nodes: [a, a]", "[a, a", "nodes are missing or stand twice"),
        ("hash: k, nodes: 2", "nearest: {latitude: x, longitude: y, nodes: {}}", "{lat", "nearest lacks nodes"),
        ("}}", "}, attributes: {v: {value: x}}}", "{value", "the attribute v has no kind"),
        ("}}", "}, columns: x}", "x}", "columns must be a list"),
    ],
)
def test_a_slip_is_shown_where_it_stands(tmp_path: Path, right: str, wrong: str, caret: str, said: str) -> None:
    is_shown(tmp_path, SLIPS, right, wrong, caret, said)


def test_a_name_that_means_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="ready-made are borg2019, cabspotting"):
        find_description("nosuch")
