"""What is wrong with a mapping is said where it stands."""

from __future__ import annotations

from pathlib import Path

import msgpack
import pytest

from headwater.deploy.network.file import NetworkFileError, read_network, running_feeds
from headwater.protocol.edge import Mapped, MqttFeed, When
from headwater.protocol.events import EventType
from tests.edge.test_payload_maps import feed, read

# --- what is wrong with a mapping -------------------------------------------------------------------------------------

NETWORK = """\
events:
  Temp: {area: string, value: float, n: int?, on: bool?}
  Kept: {area: string, unknown: string?}
nodes: [p1]
sources:
  - node: p1
    type: TYPE
    SOURCE
sinks:
  - {node: p1, subscribe: Temp}
"""


def network(folder: Path, source: str, type_name: str = "Temp") -> Path:
    path = folder / "network.yaml"
    path.write_text(NETWORK.replace("SOURCE", source.replace("\n", "\n    ")).replace("TYPE", type_name))
    return path


def mistakes(folder: Path, source: str, type_name: str = "Temp") -> list[str]:
    with pytest.raises(NetworkFileError) as raised:
        read_network(network(folder, source, type_name))
    return [f"{each.line}: {each.message} [{each.hint}]" for each in raised.value.diagnostics]


AREA = "mqtt: 's/{area}'\n"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (AREA + "map: {value: payload.x, valu: payload.y}", "9: Temp has no attribute 'valu' [did you mean 'value'?]"),
        (AREA + "map: {n: payload.n}", "9: nothing fills Temp.value [add value: payload.value to map:"),
        ("mqtt: s\nmap: {value: payload}", "9: nothing fills Temp.area"),
        (AREA + "map: {value: temperature}", "9: 'temperature' is not a place in a message [write payload.temperature"),
        (AREA + "map: {value: payload.x, area: payload.y}", "9: area is told by the topic already ({area})"),
        (AREA + "map: {value: {from: payload.x, unit: F}}", "9: a unit is converted to another"),
        (AREA + "map: {value: {from: payload.x, unit: F, to: bar}}", "9: F is a unit of temperature and bar one of"),
        (AREA + "map: {value: {from: payload.x, unit: Fahrenheit, to: C}}", "9: unknown unit 'Fahrenheit'"),
        (AREA + "map: {value: {from: payload.x, scale: much}}", "9: scale cannot be 'much' [write a number]"),
        (AREA + "map: {value: {from: payload.x, scale: 0}}", "9: scale and offset are finite numbers"),
        (
            AREA + "map: {value: payload.x, on: {from: payload.y, scale: 2}}",
            "9: Temp.on is declared bool; only",
        ),
        (AREA + "map: {value: {constant: warm}}", "9: Temp.value is declared float, but 'warm' is not"),
        (AREA + "map: {value: {constant: 5, from: payload}}", "9: value needs a place or a constant, and not both"),
        (AREA + "map: {value: {}}", "9: value needs a place or a constant"),
        (AREA + "map: {value: {fron: payload.x}}", "9: the entry of value has no key 'fron' [did you mean 'from'?]"),
        (AREA + "map: {value: payload.x, ts: payload.t}", "9: the time of an event is not an attribute [write time: "),
        (AREA + "map: {value: item.x}", "9: item is an item of each:, and there is none here"),
        (AREA + "map: {value: topic.vlue}", "9: the topic s/{area} has no level {vlue} [levels with names: area]"),
        (AREA + "map: payload", "9: map must be a mapping"),
        (AREA + "each: readings", "9: 'readings' is not a place in a message"),
        (AREA + "each: item.x", "9: item is an item of each:"),
        (AREA + "when: {method: x}", "9: 'method' is not a place in a message"),
        (AREA + "unknown: drop", "9: unknown cannot be 'drop' [write one of ignore, keep, refuse]"),
        (AREA + "unknown: keep", "9: what is kept becomes the attribute 'unknown' of Temp [declare it as unknown:"),
        (AREA + "payload: text", "8: nothing fills Temp.value [add value: payload to map:"),
        (AREA + "payload: text\nmap: {value: payload.x}", "10: a text has no fields"),
        (AREA + "time: {unit: s}", "9: time does not say where it stands"),
        (AREA + "time: {from: payload.t, unit: sec}", "9: 'sec' is not a unit of time [did you mean 's'?]"),
        (AREA + "each: payload.r\ndevice: payload.d\ncounter: payload.c", "9: all events of a message would have"),
        ("mqtt: 's/{aera}'", "8: Temp has no attribute 'aera', and no place asks for topic.aera [did you mean"),
        ("mqtt: 's/{area}/{area}'", "8: {area} stands twice in the topic"),
        ("mqtt: 's/x{area}'", "8: 'x{area}' is not a level of a topic"),
        ("client: any\nmap: {value: payload}", "9: map belongs to mqtt, and this source has client"),
    ],
)
def test_a_wrong_mapping_is_shown_with_its_line_and_a_cure(tmp_path: Path, source: str, said: str) -> None:
    found = mistakes(tmp_path, source)
    assert any(each.startswith(said) for each in found), found


def test_a_mapping_of_a_network_file_is_read_as_it_is_said(tmp_path: Path) -> None:
    source = """\
mqtt: s/{area}/+
payload: msgpack
each: payload.r
when: [payload.r, item.v]
unknown: refuse
time: {from: payload.t, unit: ns}
map:
  value: {from: item.v, unit: F, to: C, scale: 0.5, offset: -1}
  n: {constant: 007}
  on: payload.on"""
    (made,) = running_feeds(read_network(network(tmp_path, source)))
    assert isinstance(made, MqttFeed)
    mapped = (
        Mapped("value", "item.v", None, "F", "C", 0.5, -1.0),
        Mapped("n", None, "007"),
        Mapped("on", "payload.on"),
    )
    assert made == MqttFeed(
        "s/{area}/+", made.broker, "msgpack", 1, None, None, "payload.t", None, "ns", mapped, "payload.r",
        (When("payload.r"), When("item.v")), "refuse",
    )  # fmt: skip
    (made,) = running_feeds(read_network(network(tmp_path, "mqtt: s\nunknown: keep\nwhen: {payload.on: ON}", "Kept")))
    assert isinstance(made, MqttFeed)
    assert (made.map, made.when, made.unknown) == (None, (When("payload.on", "ON"),), "keep")


def test_two_sources_that_identify_the_events_of_one_message_alike_are_doubtful(tmp_path: Path) -> None:
    rest = "device: d, counter: c}"
    lines = [
        f"  - {{node: p1, type: Temp, mqtt: 's/{{area}}', {rest}",
        f"  - {{node: p1, type: Kept, mqtt: s/+, {rest}",
    ]
    path = tmp_path / "network.yaml"
    path.write_text(NETWORK.replace("  - node: p1\n    type: TYPE\n    SOURCE", "\n".join(lines)))
    (warning,) = read_network(path).warnings
    assert "a message that this source and the source of Temp both take is one event" in warning.message


@pytest.mark.parametrize(
    "text", ["9" * 5000, "1" * 500 + ".5", "-" + "9" * 60_000, "1e999", "0." + "3" * 50_000, "9" * 25]
)
def test_numbers_of_any_length_are_taken_or_refused_and_never_an_exception(text: str) -> None:
    for said in (
        {"map": {"value": "payload.x"}},
        {"map": {"n": "payload.x"}},
        {"map": (Mapped("n", "payload.x", scale=2),)},
    ):
        arrivals, refused = read(feed(**said), {"x": text})
        assert len(arrivals) + len(refused) == 1
    for unit in ("s", "ms", "us", "ns", "iso", None):
        arrivals, refused = read(feed(time="payload.x", time_unit=unit, map={}), {"x": text})
        assert len(arrivals) + len(refused) == 1


def test_what_cannot_be_kept_as_json_is_refused() -> None:
    kept = EventType("Kept", {"unknown": "string?"})
    made = feed(unknown="keep", payload="msgpack")
    assert read(made, msgpack.packb({"a": {"b": b"\xff"}}), event_type=kept)[0][0].values == (
        '{"a": {"b": "b\'\\\\xff\'"}}',
    )
    arrivals, refused = read(made, msgpack.packb({"a": {b"b": 1}}), event_type=kept)
    assert (arrivals, refused) == ([], ["the fields that nothing asks for cannot be kept as JSON"])
