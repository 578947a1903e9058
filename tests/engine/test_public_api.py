"""``import headwater as hw``: events of any shape in, matches out as a table, networks simulated, in sentences."""

from __future__ import annotations

import ast
import asyncio
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import yaml

import headwater as hw
from headwater.node.engine import Engine as CoreEngine

PROJECT = Path(__file__).parent.parent.parent
FIRE = """
define Fire(area: string, temperature: float)
from Smoke() and last Temp(area = Smoke.area, value > 45) within 5 min from Smoke
where area = Smoke.area, temperature = Temp.value
"""
EVENTS: list[dict[str, Any]] = [
    {"type": "Smoke", "ts": 2_000_000, "area": "A1"},
    {"type": "Temp", "ts": 1_000_000, "area": "A1", "value": 51.0},
    {"type": "Temp", "ts": 1_500_000, "area": "A2", "value": 60},
    {"type": "Door", "ts": 1_600_000, "open": True},
]
SHAPES: dict[str, Callable[[list[dict[str, Any]]], Any]] = {
    "dicts": lambda events: events,
    "a generator": iter,
    "Events": lambda events: [
        hw.Event(e["type"], e["ts"], "local", n, {k: v for k, v in e.items() if k not in ("type", "ts")})
        for n, e in enumerate(sorted(events, key=lambda e: e["ts"]), 1)
    ],
    "pandas": pd.DataFrame,
    "pandas, nullable": lambda events: pd.DataFrame(events).convert_dtypes(),
    "pandas, arrow": lambda events: pd.DataFrame(events).convert_dtypes(dtype_backend="pyarrow"),
    "pandas, categories": lambda events: pd.DataFrame(events).astype({"type": "category"}),
    "Polars": pl.DataFrame,
    "Polars, lazy": lambda events: pl.DataFrame(events).lazy(),
    "Polars, categories": lambda events: pl.DataFrame(events).with_columns(pl.col("type").cast(pl.Categorical)),
    "Arrow": lambda events: pa.table(pd.DataFrame(events)),
    "Arrow batch": lambda events: pa.table(pd.DataFrame(events)).combine_chunks().to_batches()[0],
    "Arrow batches": lambda events: pa.table(pd.DataFrame(events)).to_batches(max_chunksize=2),
    "Arrow reader": lambda events: pa.table(pd.DataFrame(events)).to_reader(),
    "Arrow, dictionaries": lambda events: pa.table(pd.DataFrame(events).astype({"type": "category"})),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_events_of_every_shape_give_the_same_matches(shape: str) -> None:
    expected = hw.Engine(FIRE).run(EVENTS)
    assert expected.counts() == {"Fire": 1}
    found = hw.Engine(FIRE).run(SHAPES[shape](EVENTS))
    assert found.to_dicts() == expected.to_dicts()


def test_the_engine_of_the_nodes_finds_the_same(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    frame = pd.DataFrame(
        {
            "type": rng.choice(["Smoke", "Temp"], 2_000, p=[0.1, 0.9]),
            "ts": rng.integers(0, 3_600_000_000, 2_000),
            "area": rng.choice(["A1", "A2", "A3"], 2_000),
            "value": rng.normal(40, 5, 2_000),
            "node": rng.choice(["p1", "p2"], 2_000),
        }
    )
    found = hw.run(FIRE, frame)
    expected = CoreEngine(hw.parse_rules(FIRE)).run(frame.to_dict("records"))
    assert len(found) > 50
    assert {match.id for match in found} == {match.id for match in expected}
    assert [match.ts for match in found] == sorted(match.ts for match in found)
    frame.to_csv(tmp_path / "trace.csv", index=False)
    assert hw.run(FIRE, tmp_path / "trace.csv").to_dicts() == found.to_dicts()


def test_one_engine_serves_any_number_of_inputs() -> None:
    engine = hw.Engine(FIRE)
    first, second = engine.run(EVENTS), engine.run(EVENTS)
    assert first == second
    assert list(first) == list(first) == [first[0]]
    assert engine.run([]) == first[1:]
    whole_numbers = [{**event, "value": 50} if event["type"] == "Temp" else event for event in EVENTS]
    assert engine.run(whole_numbers)[0].attributes == {"area": "A1", "temperature": 50}
    assert engine.count(EVENTS) == {"Fire": 1}


# -- rules and types ---------------------------------------------------------------------------------------------------


def test_rules_may_be_texts_files_and_what_parse_rules_gave(tmp_path: Path) -> None:
    file = tmp_path / "fire.tesla"
    file.write_text(FIRE, encoding="utf-8")
    sase = "Hot: SEQ(Temp t, Smoke s) WHERE t.area = s.area WITHIN 5 min RETURN Hot(area = s.area)"
    for rules in (file, str(file), [FIRE], hw.parse_rules(FIRE), list(hw.parse_rules(FIRE).rules)):
        assert hw.Engine(rules).run(EVENTS).counts() == {"Fire": 1}
    mixed: list[Path | str] = [file, sase]
    assert hw.Engine(mixed).run(EVENTS).counts() == {"Fire": 1, "Hot": 1}
    both = hw.Engine([FIRE, "define Alarm(area: string) from Fire() where area = Fire.area"])
    assert both.run(EVENTS).counts() == {"Alarm": 1, "Fire": 1}
    assert [rule.name for rule in both.rules] == ["Fire", "Alarm"]


def test_types_may_be_declared_for_all_events_or_for_some() -> None:
    types = {"Smoke": {"area": "string"}, "Temp": {"area": "string", "value": "float"}}
    assert hw.Engine(FIRE, types).run(EVENTS).counts() == {"Fire": 1}
    assert hw.Engine(FIRE, types).run(EVENTS[:1]).counts() == {}
    some = hw.Engine(FIRE, [hw.EventType("Smoke", {"area": "string"})])
    assert some.run(EVENTS).counts() == {"Fire": 1}
    with pytest.raises(hw.RuleTextError, match="unknown event type 'Temp'"):
        some.feed(EVENTS)


def test_mistakes_in_rules_are_shown_as_early_as_they_can_be() -> None:
    with pytest.raises(hw.RuleTextError, match="rule:1:18: the text ends too early"):
        hw.Engine("define Fire( from")
    with pytest.raises(hw.RuleTextError, match="Smoke has no attribute 'aera'"):
        hw.Engine(FIRE.replace("Smoke.area,", "Smoke.aera,"), {"Smoke": {"area": "string"}})
    with pytest.raises(hw.RuleError, match="Temp has no attribute 'valeu'"):
        hw.Engine(FIRE.replace("value >", "valeu >")).run(EVENTS)
    with pytest.raises(hw.RuleError, match=r"unknown event type 'Temp'[\s\S]*taken from the events; .* declare them"):
        hw.Engine(FIRE).run(EVENTS[:1])
    with pytest.raises(hw.RuleError, match=r"in the events, Temp\.value holds a list"):
        hw.Engine(FIRE).run([EVENTS[0], {**EVENTS[1], "value": [51.0]}])
    with pytest.raises(hw.ConfigError, match=r"there is no rule file absent\.tesla"):
        hw.Engine("absent.tesla")
    with pytest.raises(hw.ConfigError, match="5 is not a rule"):
        hw.Engine([5])  # type: ignore[arg-type]
    with pytest.raises(hw.ConfigError, match="None holds no rules; give a text"):
        hw.Engine(None)  # type: ignore[arg-type]
    for types in ("Smoke", {"Smoke": "string"}, [("Smoke", "string")]):
        with pytest.raises(hw.ConfigError, match=r"types is .*; write \{'Name': \{'attribute': "):
            hw.Engine(FIRE, types)  # type: ignore[arg-type]


def test_rules_call_python_functions() -> None:
    rules = "define Warm(f: float) from Temp(fahrenheit(Temp.value) > 120) where f = fahrenheit(Temp.value)"
    found = hw.run(rules, EVENTS, functions={"fahrenheit": lambda celsius: celsius * 9 / 5 + 32})
    assert [match.attributes for match in found] == [{"f": 51 * 9 / 5 + 32}, {"f": 140.0}]


# -- times -------------------------------------------------------------------------------------------------------------

BERLIN = ZoneInfo("Europe/Berlin")
MOMENT = datetime(2026, 7, 1, 14, 0, 0, 123456, BERLIN)
MOMENT_US = 1_782_907_200_123_456
MOMENTS: dict[str, tuple[list[Any], str | None]] = {
    "datetimes in a zone": ([MOMENT, MOMENT - timedelta(seconds=1)], "Europe/Berlin"),
    "datetimes in two zones": ([MOMENT, (MOMENT - timedelta(seconds=1)).astimezone(ZoneInfo("Asia/Tokyo"))], "UTC"),
    "datetimes with an offset": ([MOMENT.astimezone(timezone(timedelta(hours=3)))] * 2, "UTC"),
    "datetimes without a zone": ([MOMENT.astimezone(UTC).replace(tzinfo=None)] * 2, None),
    "Timestamps": ([pd.Timestamp(MOMENT), pd.Timestamp(MOMENT) - pd.Timedelta("1s")], "Europe/Berlin"),
    "datetime64": ([np.datetime64("2026-07-01T12:00:00.123456789")] * 2, None),
    "ISO 8601": (["2026-07-01T14:00:00.123456+02:00", "2026-07-01T11:59:59Z"], "UTC"),
}


def fire_at(smoke: Any, temp: Any) -> list[dict[str, Any]]:
    return [{"type": "Smoke", "ts": smoke, "area": "A1"}, {"type": "Temp", "ts": temp, "area": "A1", "value": 51.0}]


@pytest.mark.parametrize("written", MOMENTS)
def test_times_are_exact_however_they_are_written_and_results_are_written_so_too(written: str) -> None:
    (smoke, temp), zone = MOMENTS[written]
    if smoke == temp:
        temp = temp - np.timedelta64(1, "s") if isinstance(temp, np.datetime64) else temp - timedelta(seconds=1)
    for shape in ("dicts", "pandas"):
        found = hw.run(FIRE, SHAPES[shape](fire_at(smoke, temp)))
        assert found[0].ts == MOMENT_US
        assert str(found.to_pandas()["ts"].dtype) == ("datetime64[us]" if zone is None else f"datetime64[us, {zone}]")
        assert str(found.to_arrow().schema.field("ts").type) == str(pa.timestamp("us", zone))
        assert found.to_polars().schema["ts"] == pl.Datetime("us", zone)
        expected = pd.Timestamp(MOMENT_US, unit="us", tz="UTC")
        assert found.to_pandas()["ts"][0] == (expected if zone else expected.tz_localize(None))
        assert found.to_polars()["ts"].dt.epoch("us")[0] == MOMENT_US
        assert found.to_arrow()["ts"].cast(pa.int64())[0].as_py() == MOMENT_US


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "America/New_York"])
def test_timestamps_of_every_unit_are_read_to_the_microsecond_also_before_1970(unit: Any, zone: str | None) -> None:
    per_second = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}[unit]
    for second in (-86_400, 1_782_907_200):
        counts = [second * per_second + (7 if per_second > 1 else 0), second * per_second - 1]
        arrow = pa.table(
            {
                "type": ["Smoke", "Temp"],
                "ts": pa.array(counts, pa.int64()).cast(pa.timestamp(unit, zone)),
                "area": ["A1", "A1"],
                "value": [None, 51.0],
            }
        )
        polars_frame = pl.DataFrame(
            {
                "type": ["Smoke", "Temp"],
                "ts": pl.Series(counts).cast(pl.Datetime(unit, zone) if unit != "s" else pl.Int64),
                "area": ["A1", "A1"],
                "value": [None, 51.0],
            }
        )
        expected = counts[0] * 1_000_000 // per_second
        for frame in (arrow, arrow.to_pandas(), *((polars_frame,) if unit != "s" else ())):
            (match,) = hw.run(FIRE, frame)
            assert (match.ts, match.start[0]) == (expected, counts[1] * 1_000_000 // per_second)


@pytest.mark.parametrize("shape", ["dicts", "pandas", "Polars", "Arrow"])
def test_numbers_that_are_dates_in_another_unit_are_refused_with_the_sentence_of_the_command(shape: str) -> None:
    seconds = fire_at(1_782_907_260, 1_782_907_200)
    with pytest.raises(hw.EventError) as refused:
        hw.run(FIRE, SHAPES[shape](seconds))
    sentence = "ts 1782907260, taken as microseconds, lies in January 1970; as seconds it is 2026-07-01 12:01"
    assert sentence in str(refused.value)
    assert "pass time_unit='s'" in str(refused.value)
    (match,) = hw.run(FIRE, SHAPES[shape](seconds), time_unit="s")
    assert match.ts == 1_782_907_260_000_000
    with pytest.raises(hw.EventError, match="taken as microseconds, lies in January 1970"):
        hw.Engine(FIRE).feed(seconds)


@pytest.mark.parametrize(
    ("events", "sentence"),
    [
        (fire_at(5, MOMENT), "row 2 has the time datetime.*, and an earlier row has 5; write all times in one way"),
        (fire_at(MOMENT, datetime(2026, 1, 1)), "write all times in one way"),
        (fire_at(1.5, 1), r"row 1: ts 1\.5 is neither .* ISO 8601 time; pass time_unit='s' if it counts seconds"),
        (fire_at(None, 1), "row 1: the row has no ts"),
        (fire_at("noon", 1), "write all times in one way"),
        (fire_at("noon", "noon"), "'noon' is neither an integer of microseconds nor an ISO 8601 time"),
        ([{"ts": 1}], "event 1 has no 'type'"),
        ([{"type": "Smoke"}], "event 1 has no 'ts'"),
        ([*fire_at(2, 1), ("Smoke", 3)], "event 3 is a tuple; give an Event, or a mapping"),
        ({"type": "Smoke", "ts": 1}, "one mapping is not a list of events; put it into a list"),
        (5, "an int holds no events; give an iterable of dicts"),
        ([None], "event 1 is a NoneType; give an Event"),
        (pd.DataFrame({"kind": ["Smoke"], "ts": [1]}), r"the frame has no column 'type'; the columns are kind, ts"),
        (pl.DataFrame({"type": ["Smoke"]}), r"the frame has no column 'ts'; .* \(time_column= names another one\)"),
        (pd.DataFrame(fire_at(MOMENT, None)), "the frame: row 2: the row has no ts"),
        ([{**event, "seq": 1} for event in fire_at(2, 1)], "two events have the node 'local' and the seq 1"),
        (pd.DataFrame(fire_at(2, 1)).assign(seq=1), "two events have the node 'local' and the seq 1"),
        ([{**EVENTS[0], "seq": 1}, EVENTS[1]], "the row has no seq, but the trace gives them"),
        ([pa.record_batch({"type": ["A"], "ts": [1]}), pa.record_batch({"type": ["A"]})], "do not fit together"),
        ("absent.csv", "there is no file absent.csv"),
    ],
)
def test_what_is_no_event_is_refused_with_a_sentence(events: Any, sentence: str) -> None:
    with pytest.raises(hw.HeadwaterError, match=sentence):
        hw.Engine(FIRE, {"Smoke": {"area": "string"}, "Temp": {"area": "string", "value": "float"}}).run(events)


def test_other_columns_may_hold_the_time_and_the_type_and_values_may_be_decimals_and_scalars_of_numpy() -> None:
    frame = pd.DataFrame(EVENTS).rename(columns={"ts": "when", "type": "kind"})
    found = hw.Engine(FIRE).run(frame, time_column="when", type_column="kind")
    assert found.to_dicts() == hw.run(FIRE, EVENTS).to_dicts()
    with pytest.raises(hw.EventError, match="holds timestamps, which say their unit themselves; leave time_unit= out"):
        hw.run(FIRE, pd.DataFrame(fire_at(MOMENT, MOMENT)), time_unit="s")
    odd = [
        {**EVENTS[0], "node": np.nan},
        {**EVENTS[1], "value": Decimal("51"), "area": np.str_("A1"), "ts": np.int64(1_000_000)},
    ]
    assert hw.run(FIRE, odd)[0].attributes == {"area": "A1", "temperature": 51.0}


# -- results -----------------------------------------------------------------------------------------------------------


def test_tables_of_results_have_a_column_for_each_attribute_and_gaps_where_a_rule_has_none() -> None:
    rules = [
        FIRE,
        "define Open(start: int, sure: bool, big: int) from Door() where start = 7, sure = Door.open, big = Door.ts",
    ]
    found = hw.run(rules, EVENTS)
    columns = [*("type", "ts", "start", "rule"), "attribute.start", "sure", "big", "area", "temperature", "id"]
    frame = found.to_pandas()
    assert list(frame.columns) == found.to_polars().columns == found.to_arrow().column_names == columns
    assert frame["type"].tolist() == ["Open", "Fire"]
    assert [str(kind) for kind in frame.dtypes[["ts", "attribute.start", "sure", "temperature"]]] == [
        "int64",
        "Int64",
        "boolean",
        "float64",
    ]
    assert found.to_polars()["sure"].to_list() == found.to_arrow()["sure"].to_pylist() == [True, None]
    parts = found.to_arrow(events=True)["events"].to_pylist()
    assert parts == found.to_polars(events=True)["events"].to_list() == found.to_pandas(events=True)["events"].tolist()
    assert [part["role"] for part in parts[1]] == ["Smoke", "Temp"]


def test_no_matches_are_a_table_too() -> None:
    found = hw.run(FIRE, [])
    assert repr(found) == "<Matches: no composite events>"
    assert len(found.to_pandas()) == len(found.to_polars()) == len(found.to_arrow()) == 0
    assert found.to_arrow().schema.field("ts").type == pa.int64()
    assert "no composite events" in found._repr_html_()


def test_a_notebook_shows_matches_as_a_table() -> None:
    found = hw.run("define Odd(what: string) from Door() where what = Door.what",
                   [{"type": "Door", "ts": n, "what": "<b>"} for n in range(30)])  # fmt: skip
    assert repr(found) == "<Matches: 30 composite events (30 Odd)>"
    shown = found._repr_html_()
    assert shown.count("<tr>") == 21
    assert "&lt;b&gt;" in shown
    assert "<b>" not in shown
    assert "and 10 more" in shown


def test_values_that_a_column_cannot_hold_are_refused_by_tables_and_kept_by_dicts() -> None:
    big = hw.run("define Big(n: int) from Door() where n = Door.n", [{"type": "Door", "ts": 1, "n": 2**70}])
    for table in (big.to_polars, big.to_arrow):
        with pytest.raises(hw.EventError, match="'n' holds an integer of more than 64 bits; to_dicts"):
            table()
    assert big.to_pandas()["n"][0] == 2**70 == big.to_dicts()[0]["attributes"]["n"]
    events = [{"type": "Door", "ts": 1, "n": 1}, {"type": "Door", "ts": 2, "n": "two"}]
    mixed = hw.run("define Any(n: any) from Door() where n = Door.n", events)
    for table in (mixed.to_polars, mixed.to_arrow):
        with pytest.raises(hw.EventError, match="'n' holds values of different kinds"):
            table()
    assert mixed.to_pandas()["n"].tolist() == [1, "two"]


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_libraries_are_imported_only_when_they_are_used_and_their_absence_is_a_sentence(library: str) -> None:
    method = {"pandas": "to_pandas", "polars": "to_polars", "pyarrow": "to_arrow"}[library]
    program = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("pandas", "polars", "pyarrow", "numpy"):
            raise ImportError(name)
sys.meta_path.insert(0, Absent())
import headwater as hw
found = hw.run({FIRE!r}, {EVENTS!r})
assert len(found) == 1 and found._repr_html_() and found.to_dicts()
try:
    found.{method}()
except hw.ConfigError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=PROJECT)
    assert f"pip install {library}" in done.stdout


# -- streams -----------------------------------------------------------------------------------------------------------


def test_a_stream_is_fed_and_advanced_and_closed() -> None:
    engine = hw.Engine(FIRE)
    assert engine.feed(fire_at(MOMENT, "2026-07-01T14:00:00+02:00")) == []
    snapshot = engine.snapshot()
    (found,) = engine.advance(MOMENT)
    assert found.ts == MOMENT_US
    assert [part["seq"] for part in found.to_json()["events"]] == [1, 2]
    assert engine.feed([{"type": "Smoke", "ts": MOMENT, "area": "A1"}]) == []
    assert [event.seq for event in engine.take_late()] == [3]
    assert engine.close() == []
    with pytest.raises(hw.EventError, match="the engine is closed"):
        engine.feed(EVENTS)
    again = hw.Engine(FIRE)
    again.restore(snapshot)
    assert again.close() == [found]
    with pytest.raises(hw.EventError, match="the watermark is 'noon'; give integer microseconds or a datetime"):
        hw.Engine(FIRE).advance("noon")  # type: ignore[arg-type]


def test_a_stream_gives_matches_while_it_is_read() -> None:
    read: list[int] = []

    def events() -> Any:
        for ts in (1, 2, 400_000_000):
            read.append(ts)
            yield {"type": "Smoke" if ts == 2 else "Temp", "ts": ts, "area": "A1", "value": 50.0}

    found = hw.Engine(FIRE).run(events(), lateness_us=10)
    assert read == []
    assert next(found).ts == 2
    assert len(list(found)) == 0


# -- networks ----------------------------------------------------------------------------------------------------------

NETWORK = PROJECT / "examples" / "fire" / "network.yaml"


def test_a_network_is_simulated_inside_a_running_event_loop_as_in_a_notebook() -> None:
    async def cell() -> hw.Simulated:
        return hw.simulate(NETWORK, seed=3)

    result = asyncio.run(cell())
    assert list(result.deliveries) == ["p1: Fire", "p5: Fire"]
    received = [{delivery.item.id for delivery in each} for each in result.deliveries.values()]  # type: ignore[union-attr]
    assert received[0] == received[1] == {match.id for match in result.matches}
    assert result.matches.to_dicts() == hw.run(hw.read_network(NETWORK).network.rules, result.events).to_dicts()
    assert {"primitive", "composite", "watermark", "control"} <= result.traffic.keys()
    assert result.share_of_centr is not None
    assert 0 < result.share_of_centr < 1
    assert repr(result).startswith("<Simulated: strategy st, seed 3: ")
    assert "relative to centr: " in str(result)
    assert "<td>p1: Fire</td>" in result._repr_html_()


def test_equal_seeds_give_equal_runs_and_no_strategy_changes_what_sinks_receive() -> None:
    network = hw.read_network(NETWORK)
    runs = [hw.simulate(network, strategy=strategy, duration="2 min") for strategy in ("mt", "mt", "centr")]
    assert runs[0].figures == runs[1].figures
    assert runs[0].matches.to_dicts() == runs[2].matches.to_dicts()
    assert runs[2].share_of_centr == 1.0
    shorter = hw.simulate(network, duration=timedelta(seconds=90), compare=False)
    assert shorter.share_of_centr is None
    assert len(shorter.events) < len(runs[0].events)


def test_a_network_may_be_a_text_or_a_dict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(NETWORK).parent)  # where the files are that the network names
    text = Path(NETWORK).read_text(encoding="utf-8")
    wanted = hw.simulate(NETWORK, duration="1 min").figures
    assert hw.simulate(text, duration="1 min").figures == wanted
    assert hw.simulate(yaml.safe_load(text), duration="1 min").figures == wanted
    read = hw.read_network(text)
    assert hw.simulate(read, duration="1 min").figures == wanted
    assert len(hw.simulate(read, compare=False).events) > 0
    with pytest.raises(hw.NetworkFileError) as error:
        hw.simulate(text.replace("sinks:", "sink:"))
    assert str(error.value).startswith("network:")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"strategy": "best"}, "unknown strategy 'best'; did you mean 'st'"),
        ({"duration": timedelta()}, "a run of no duration has no events"),
        ({"duration": "soon"}, "soon"),
    ],
)
def test_what_cannot_be_simulated_is_refused_with_a_sentence(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(hw.ConfigError, match=sentence):
        hw.simulate(NETWORK, **arguments)


def test_a_network_without_its_file_has_no_events_to_simulate() -> None:
    with pytest.raises(hw.ConfigError, match="5 is not a network; give the path of a network file"):
        hw.simulate(5)  # type: ignore[arg-type]
    with pytest.raises(hw.ConfigError, match="this dict is not a network"):
        hw.simulate({"nodes": {1j}})
    with pytest.raises(hw.NetworkFileError, match="network:2:38: this is not YAML"):
        hw.simulate(FIRE)
    with pytest.raises(hw.ConfigError, match="a Network alone has no events"):
        hw.simulate(hw.read_network(NETWORK).network)  # type: ignore[arg-type]


# -- the package -------------------------------------------------------------------------------------------------------


def test_every_public_name_is_there_documented_and_known_to_type_checkers() -> None:
    tree = ast.parse((PROJECT / "headwater" / "__init__.py").read_text(encoding="utf-8"))
    typed: dict[str, str] = {}
    for statement in ast.walk(tree):
        if isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith("headwater."):
            typed |= {alias.name: str(statement.module) for alias in statement.names}
    assert typed == hw._HOMES
    assert sorted({*typed, "__version__"}) == sorted(hw.__all__)
    assert {name for name in dir(hw) if not name.startswith("__")} == {*hw.__all__} - {"__version__"}
    for name in typed:
        assert (getattr(hw, name).__doc__ or "").strip(), f"{name} has no docstring"
    with pytest.raises(AttributeError, match="module 'headwater' has no attribute 'Motor'"):
        hw.Motor  # type: ignore[attr-defined]  # noqa: B018


def test_importing_the_package_loads_nothing_else() -> None:
    program = "import sys; import headwater; print(sorted(n for n in sys.modules if n.startswith('headwater')))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=PROJECT)
    assert done.stdout.strip() == "['headwater']"
