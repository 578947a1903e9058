"""Mappings from the messages of devices to events: what they give, what they refuse, and what is wrong with them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import msgpack
import pytest

from headwater.coordinator.daemon.api.body_errors import read_body
from headwater.coordinator.daemon.api.edge_models import as_json
from headwater.coordinator.daemon.api.models import SourceBody
from headwater.node.edge.devices import device_of_will
from headwater.node.edge.interfaces import Arrival
from headwater.node.edge.mqtt_connection import wildcards
from headwater.node.edge.payloads import PayloadReader, reader_of
from headwater.protocol.edge import Broker, Feed, Mapped, MqttFeed, When
from headwater.protocol.errors import ConfigError
from headwater.protocol.events import EventType
from headwater.protocol.payload_maps import Place, conversion, feed_flaws, place_of, topic_filter, units
from headwater.protocol.wire import rule_encoding
from tests.kit.edge import an_edge

HERE = Broker("b")
TEMP = EventType("Temp", {"area": "string?", "value": "float?", "n": "int?", "on": "bool?", "any": "any?"})


def feed(topic: str = "t", **said: Any) -> MqttFeed:
    if isinstance(said.get("map"), dict):
        said["map"] = tuple(
            each if isinstance(each, Mapped) else Mapped(name, each) for name, each in said["map"].items()
        )
    return MqttFeed(topic, HERE, **said)


def read(
    made: MqttFeed, payload: Any, topic: str = "t", event_type: EventType = TEMP
) -> tuple[list[Arrival], list[str]]:
    assert list(feed_flaws(made, event_type)) == []
    refused: list[str] = []
    levels = wildcards(topic, topic_filter(made.topic))
    assert levels is not None
    raw = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    reader = PayloadReader(event_type, feed=made, node="p1")
    return reader.read(raw, lambda _, why: refused.append(why), levels), refused


def values(made: MqttFeed, payload: Any, topic: str = "t") -> list[dict[str, Any]]:
    arrivals, refused = read(made, payload, topic)
    assert refused == []
    named = [dict(zip(TEMP.attributes, each.values, strict=True)) for each in arrivals]
    return [{name: value for name, value in each.items() if value is not None} for each in named]


def why(made: MqttFeed, payload: Any) -> str:
    arrivals, refused = read(made, payload)
    assert arrivals == []
    (said,) = refused
    return said


# --- places -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("payload", Place("payload")),
        ("payload.a.b", Place("payload", ("a", "b"))),
        ("payload.params.switch:0.apower", Place("payload", ("params", "switch:0", "apower"))),
        ("payload.DS18B20-1.Temperature", Place("payload", ("DS18B20-1", "Temperature"))),
        ("payload.list[0][-1].x", Place("payload", ("list", 0, -1, "x"))),
        ('payload["a.b c"].d', Place("payload", ("a.b c", "d"))),
        ("item", Place("item")),
        ("key", Place("key")),
        ("topic.area", Place("topic", ("area",))),
    ],
)
def test_a_place_is_a_way_through_names_and_positions(text: str, place: Place) -> None:
    assert place_of(text) == place


@pytest.mark.parametrize("text", ["", "value", "payload.", "payload..a", "payload[x]", "key.a", "topic", "payload.a["])
def test_what_is_no_place_is_an_error(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a place in a message"):
        place_of(text)


def test_places_reach_into_nested_maps_and_lists_of_both_encodings() -> None:
    payload = {"a": {"b c": [{"v": 1.5}, {"v": 2.5}]}, "s": "x"}
    made = {"value": 'payload.a["b c"][-1].v', "area": "payload.s"}
    assert values(feed(map=made), payload) == [{"value": 2.5, "area": "x"}]
    assert values(feed(map=made, payload="msgpack"), msgpack.packb(payload)) == [{"value": 2.5, "area": "x"}]


@pytest.mark.parametrize("payload", [{}, {"a": None}, {"a": []}, {"a": 5}, {"a": {"v": None}}, [], "x", 5])
def test_what_a_place_does_not_lead_to_is_absent(payload: Any) -> None:
    needed = EventType("Need", {"value": "float"})
    made = feed(map={"value": "payload.a.v"})
    (said,) = read(made, json.dumps([payload]).encode(), event_type=needed)[1]
    assert said.startswith("Need needs a value for 'value'")
    assert said.endswith("there is no payload.a.v")
    assert values(made, json.dumps([payload]).encode()) == [{}]


# --- kinds ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attribute", "given", "taken"),
    [
        ("value", "21.5", 21.5),
        ("value", " 21 ", 21.0),
        ("value", "-1e3", -1000.0),
        ("value", 21, 21.0),
        ("n", 21, 21),
        ("n", "21", 21),
        ("n", "100.00", 100),
        ("n", 21.0, 21),
        ("n", "9223372036854775807", 2**63 - 1),
        ("on", True, True),
        ("on", "ON", True),
        ("on", "off", False),
        ("on", "true", True),
        ("on", "False", False),
        ("on", 1, True),
        ("on", "0", False),
        ("area", "ON", "ON"),
        ("area", "007", "007"),
        ("any", "21.5", "21.5"),
        ("any", 7, 7),
        ("any", False, False),
    ],
)
@pytest.mark.parametrize("by", ["name", "map"])
def test_a_value_becomes_exactly_of_the_declared_kind(attribute: str, given: Any, taken: Any, by: str) -> None:
    made = feed(map={attribute: "payload.x"}) if by == "map" else feed()
    (found,) = values(made, {"x" if by == "map" else attribute: given})
    assert found == {attribute: taken}
    assert type(found[attribute]) is type(taken)


@pytest.mark.parametrize(
    ("attribute", "given", "said"),
    [
        ("value", "warm", "Temp.value is declared float, but 'warm' is not a number"),
        ("value", "nan", "Temp.value is declared float, but 'nan' is not a number"),
        ("value", "1_000", "Temp.value is declared float, but '1_000' is not a number"),
        ("value", "1e400", "Temp.value is too large for a float"),
        ("value", "", "Temp.value is declared float, but '' is not a number"),
        ("value", True, "Temp.value is declared float, but True is bool"),
        ("value", [1], "Temp.value is [1]; values are numbers, strings or booleans"),
        ("n", 21.5, "Temp.n is declared int, but 21.5 is not whole; declare it float"),
        ("n", "9223372036854775808", "Temp.n does not fit into 64 bits"),
        ("n", True, "Temp.n is declared int, but True is bool"),
        ("on", "open", "Temp.on is declared bool, but 'open' is neither true nor false"),
        ("on", 2, "Temp.on is declared bool, but 2 is neither true nor false"),
        ("on", 1.0, "Temp.on is declared bool, but 1.0 is neither true nor false"),
        ("area", 7, "Temp.area is declared string, but 7 is int"),
    ],
)
def test_a_value_that_is_not_exactly_of_the_declared_kind_is_refused(attribute: str, given: Any, said: str) -> None:
    assert why(feed(map={attribute: "payload.x"}), {"x": given}).startswith(said)


@pytest.mark.parametrize(
    ("entry", "given", "taken"),
    [
        (Mapped("value", "payload", unit="F", to="C"), 72.5, 22.5),
        (Mapped("value", "payload", unit="C", to="F"), 22.5, 72.5),
        (Mapped("value", "payload", unit="K", to="C"), 300, 26.85),
        (Mapped("value", "payload", unit="kWh", to="MJ"), 0.1, 0.36),
        (Mapped("value", "payload", unit="km/h", to="m/s"), 36, 10.0),
        (Mapped("value", "payload", unit="hPa", to="bar"), "1013.25", 1.01325),
        (Mapped("value", "payload", scale=0.01, offset=-40.0), 6150, 21.5),
        (Mapped("value", "payload", scale=0.1, unit="F", to="C"), 2426, 117.0),
        (Mapped("n", "payload", unit="V", to="mV"), 3.3, 3300),
        (Mapped("n", "payload", scale=0.1), 120, 12),
        (Mapped("any", "payload", scale=2), 3, 6.0),
    ],
)
def test_units_scales_and_offsets_are_exact_and_rounded_once(entry: Mapped, given: Any, taken: Any) -> None:
    (found,) = values(feed(map=(entry,)), given)
    assert found == {entry.attribute: taken}
    assert type(found[entry.attribute]) is type(taken)


def test_a_conversion_that_is_not_whole_is_refused_where_an_int_is_declared() -> None:
    said = why(feed(map=(Mapped("n", "payload", unit="F", to="C"),)), 72)
    assert said.startswith("Temp.n is declared int, but 22.2")


def test_every_unit_leads_to_every_other_of_its_quantity_and_back() -> None:
    for one, (quantity, _, _) in units().items():
        for other, (same, _, _) in units().items():
            if quantity == same:
                there = conversion(Mapped("v", "payload", unit=one, to=other)) or (Fraction(1), Fraction(0))
                back = conversion(Mapped("v", "payload", unit=other, to=one)) or (Fraction(1), Fraction(0))
                assert (Fraction("12.5") * there[0] + there[1]) * back[0] + back[1] == Fraction("12.5")


# --- topics, constants, unknown fields --------------------------------------------------------------------------------


def test_named_levels_of_the_topic_are_attributes_of_their_kinds() -> None:
    made = feed("s/{area}/+/{n}/#", map={"value": "payload"})
    assert values(made, 7, "s/A1/x/12/y/z") == [{"area": "A1", "n": 12, "value": 7.0}]
    assert values(feed("s/{room}/v", map={"area": "topic.room", "value": "payload"}), 7, "s/A1/v") == [
        {"area": "A1", "value": 7.0}
    ]
    assert read(made, 7, "s/A1/x/many/y")[1] == ["Temp.n is declared int, but 'many' is not a number"]


def test_what_the_topic_says_outweighs_a_field_of_the_same_name() -> None:
    assert values(feed("s/{area}"), {"area": "B9", "value": 1}, "s/A1") == [{"area": "A1", "value": 1.0}]


def test_a_constant_becomes_the_declared_kind() -> None:
    constants = {"area": "ON", "value": "1", "n": "2", "on": "ON"}
    entries = tuple(Mapped(name, constant=text) for name, text in constants.items())
    (found,) = values(feed(map=entries), {})
    assert found == {"area": "ON", "value": 1.0, "n": 2, "on": True}
    assert type(found["value"]) is float


def test_unknown_fields_are_left_out_and_counted_unless_the_source_says_otherwise(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    payload = json.dumps({"value": 1, "linkquality": 7, "battery": 3}).encode()
    edge = an_edge(tmp_path)
    reader = reader_of(feed(map={"value": "payload.value"}), TEMP, edge, 4)
    with caplog.at_level("INFO"):
        for _ in range(3):
            assert len(reader.read(payload, lambda raw, why: pytest.fail(why))) == 1
    assert edge.counters == {"payload_fields_ignored": 6}
    assert [record.getMessage() for record in caplog.records] == [
        "source 4: Temp does not use the field 'linkquality'; it is left out",
        "source 4: Temp does not use the field 'battery'; it is left out",
    ]
    assert why(feed(unknown="refuse"), {"value": 1, "linkquality": 7}).startswith("Temp has no attribute 'linkquality'")
    kept = EventType("Kept", {"value": "float", "unknown": "string?"})
    made = feed(unknown="keep")
    arrivals, _ = read(made, {"value": 1, "linkquality": 7, "x": {"y": [1]}}, event_type=kept)
    assert arrivals[0].values == (1.0, '{"linkquality": 7, "x": {"y": [1]}}')
    assert read(made, {"value": 1}, event_type=kept)[0][0].values == (1.0, None)


def test_unknown_fields_beside_and_in_items_are_counted_once_each(tmp_path: Path) -> None:
    edge = an_edge(tmp_path)
    made = feed(each="payload.r", map={"value": "item.v"})
    payload = json.dumps({"x": 1, "r": [{"v": 1, "y": 2}, {"v": 2, "y": 3}, {"v": 3}]}).encode()
    reader = reader_of(made, TEMP, edge, 0)
    assert len(reader.read(payload, lambda raw, why: pytest.fail(why))) == 3
    assert edge.counters == {"payload_fields_ignored": 3}
    refusing = feed(each="payload.r", map={"value": "item.v"}, unknown="refuse")
    assert why(refusing, {"x": 1, "r": [{"v": 1}, {"v": 2}]}) == "Temp has no attribute 'x'; it has: r, v"


# --- several events, and messages that do not count -------------------------------------------------------------------


def test_each_makes_an_event_of_every_item_of_a_list_or_map() -> None:
    made = feed(each="payload.r", map={"value": "item.v", "area": "payload.site", "n": "key"})
    payload = {"site": "A1", "r": [{"v": 1}, {"v": 2}]}
    assert values(made, payload) == [{"value": 1.0, "area": "A1", "n": 0}, {"value": 2.0, "area": "A1", "n": 1}]
    made = feed(each="payload", when=(When("item.v"),), map={"value": "item.v", "area": "key"})
    assert values(made, {"Time": "x", "s1": {"v": 1}, "s2": {"w": 1}}) == [{"value": 1.0, "area": "s1"}]
    assert values(feed(each="payload.r"), {"r": [{"value": 1, "area": "A1"}]}) == [{"value": 1.0, "area": "A1"}]
    assert values(feed(each="payload", map={"value": "item"}), [1, 2]) == [{"value": 1.0}, {"value": 2.0}]


def test_a_bad_item_does_not_take_the_others_with_it() -> None:
    made = feed(each="payload.r", map={"value": "item.v"})
    arrivals, refused = read(made, {"r": [{"v": 1}, {"v": "x"}, 7, {"v": 2}]})
    assert [each.values[1] for each in arrivals] == [1.0, None, 2.0]
    assert refused == ["Temp.value is declared float, but 'x' is not a number"]
    assert why(made, {"r": 5}) == "payload.r is 5, and must be a list or a map of events"
    assert why(made, {}) == "payload.r is absent, and must be a list or a map of events"


def test_a_list_is_several_messages_unless_a_place_counts_in_it() -> None:
    assert values(feed(map={"value": "payload"}), [1, 2]) == [{"value": 1.0}, {"value": 2.0}]
    assert values(feed(map={"value": "payload[0]", "n": "payload[1]"}), [1, 2]) == [{"value": 1.0, "n": 2}]


@pytest.mark.parametrize(
    ("when", "payload", "counts"),
    [
        (When("payload.a"), {"a": 0}, True),
        (When("payload.a"), {"a": None}, False),
        (When("payload.a"), {}, False),
        (When("payload.m", "Notify"), {"m": "Notify"}, True),
        (When("payload.m", "Notify"), {"m": "notify"}, False),
        (When("payload.m", "ON"), {"m": True}, True),
        (When("payload.m", "2"), {"m": 2}, True),
        (When("payload.m", "2"), {"m": 2.0}, True),
        (When("payload.m", "2"), {"m": "2"}, True),
        (When("payload.m", "2"), {"m": [2]}, False),
    ],
)
def test_only_messages_that_meet_the_condition_count(when: When, payload: Any, counts: bool, tmp_path: Path) -> None:
    edge = an_edge(tmp_path)
    reader = reader_of(feed(when=(when,), map={}), TEMP, edge, 0)
    arrivals = reader.read(json.dumps(payload).encode(), lambda raw, why: pytest.fail(why))
    assert len(arrivals) == counts
    assert edge.counters.get("mqtt_messages_passed_over", 0) == (not counts)


def test_text_is_taken_as_it_is() -> None:
    made = feed(payload="text", map={"area": "payload"})
    assert values(made, "größer als 5\n".encode()) == [{"area": "größer als 5\n"}]
    assert values(feed(payload="text", map={"value": "payload"}), b"21.5\n") == [{"value": 21.5}]
    assert why(made, b"\xff") == "not UTF-8 at byte 0"
    assert why(made, b" ") == "nothing in it"
    assert why(feed(map={"on": "payload"}), b"ON").endswith("; payload: text reads plain words")


# --- identity and time ------------------------------------------------------------------------------------------------


def test_device_counter_and_time_may_stand_anywhere() -> None:
    made = feed(
        "s/{site}", each="payload.r", device="item.id", counter="item.c", time="payload.t", time_unit="ms",
        map={"value": "item.v", "area": "topic.site"},
    )  # fmt: skip
    arrivals, refused = read(made, {"t": 1_772_366_400_123, "r": [{"id": 7, "c": 1, "v": 2}]}, "s/A1")
    assert refused == []
    assert arrivals == [Arrival(1_772_366_400_123_000, "7", 1, ("A1", 2.0, None, None, None))]
    made = feed("s/{site}", device="topic.site", counter="payload.h.c", time="payload.h.t", time_unit="iso", map={})
    arrivals, _ = read(made, {"h": {"c": 5, "t": "2026-03-01T12:00:00Z"}}, "s/A1")
    assert arrivals[0][:3] == (1_772_366_400_000_000, "A1", 5)


def test_a_last_will_names_its_device_as_events_do() -> None:
    made = feed("s/{site}/v", device="topic.site", counter="c", will="left/{x}/{site}")
    assert device_of_will(made, "left/a/b", ["a", "b"], b"") == "b"
    made = feed("s/v", device="payload.h.id", counter="c", will="left")
    assert device_of_will(made, "left", [], b'{"h": {"id": 7}}') == "7"
    assert device_of_will(made, "left", [], b"Offline") == "left"


# --- it travels -------------------------------------------------------------------------------------------------------

FULL = feed(
    "s/{area}", device="item.d", counter="item.c", time="payload.t", time_unit="ms", each="payload.r",
    when=(When("payload.r"), When("item.k", "temp")), unknown="refuse",
    map=(Mapped("value", "item.v", unit="F", to="C", scale=0.5), Mapped("n", constant="3"), Mapped("on", "item.on")),
)  # fmt: skip


def test_a_mapping_survives_the_wire_and_json() -> None:
    assert rule_encoding.decode(rule_encoding.encode(FULL)) == FULL
    sent = {"node": "n1", "type": "Temp", "from": as_json(FULL, Feed)}
    assert read_body(SourceBody, json.dumps(sent).encode()).feed == FULL


# --- any mapping, any message -----------------------------------------------------------------------------------------

PLACES = (
    "payload", "payload.a", "payload.b.c", "payload[0]", "payload.l[-1]", 'payload["x y"].a', "item", "item.a",
    "item[1]", "key", "topic.area", "topic.n", "topic.none", "a", "", "payload..", "payload.a.b.c.d",
)  # fmt: skip
WORDS = (None, "C", "F", "W", "kW", "parsec")
TOPICS = ("s/{area}", "s/+", "{n}/{area}/#", "s/{area}/{area}", "s", "s/x{n}")
LEAVES = (None, True, 0, 7, -3.5, 2**70, 1e300, "ON", "21.5", "nan", "", "x", "2026-03-01T12:00:00Z", 1_772_366_400)
PYTHON = {"string": str, "float": float, "int": int, "bool": bool}


def any_feed(rng: Random) -> MqttFeed:
    def perhaps(share: float, choices: Sequence[Any]) -> Any:
        return rng.choice(choices) if rng.random() < share else None

    entries = tuple(
        Mapped(
            name, perhaps(0.9, PLACES), perhaps(0.15, ("ON", "7", "x")), perhaps(0.2, WORDS), perhaps(0.2, WORDS),
            rng.choice((1.0, 1.0, 0.1, 0.0)), rng.choice((0.0, 0.0, -40.0)),
        )
        for name in rng.sample((*TEMP.attributes, "ts", "none"), rng.randint(0, 4))
    )  # fmt: skip
    identified = rng.random() < 0.2
    return MqttFeed(
        rng.choice(TOPICS), HERE, rng.choice(("json", "json", "msgpack", "text")), 1,
        rng.choice(("id", "+1", "item.a", "topic.area", "payload.")) if identified else None,
        rng.choice(("c", "item.a", "payload.a", "key")) if identified else None,
        perhaps(0.2, ("at", "payload.a", "item.a", "key")), None, perhaps(0.1, ("s", "ms", "us", "ns", "iso")),
        entries if rng.random() < 0.8 else None, perhaps(0.3, PLACES),
        tuple(When(rng.choice(PLACES), perhaps(0.5, ("ON", "7", "x"))) for _ in range(rng.choice((0, 0, 1, 2)))),
        rng.choice(("ignore", "keep", "refuse")),
    )  # fmt: skip


def any_value(rng: Random, depth: int = 0) -> Any:
    match rng.randrange(4 if depth < 4 else 2):
        case 2:
            names = ("a", "b", "c", "l", "x y", "id", "at", "value", "unknown")
            return {name: any_value(rng, depth + 1) for name in rng.sample(names, rng.randint(0, 5))}
        case 3:
            return [any_value(rng, depth + 1) for _ in range(rng.randint(0, 3))]
        case _:
            return rng.choice(LEAVES)


def test_any_mapping_is_found_wrong_or_reads_any_message_without_an_exception() -> None:
    rng = Random(11)
    kept = EventType("Temp", [*TEMP.declaration()[1], ("unknown", "string?")])
    seen = {"wrong": 0, "events": 0, "refused": 0}
    while seen["events"] < 3000:
        made = any_feed(rng)
        found = list(feed_flaws(made, kept))
        assert all(str(flaw) for flaw in found)
        if found:
            seen["wrong"] += 1
            continue
        reader = PayloadReader(kept, feed=made, node="p1")
        levels = [rng.choice(("A1", "7", ""))] * topic_filter(made.topic).count("+")
        for _ in range(20):
            value = any_value(rng)
            if made.payload == "msgpack":
                raw = msgpack.packb(value, default=str) if "1180591620717411303424" not in str(value) else b"\xc1"
            else:
                raw = json.dumps(value).encode()
            refused: list[str] = []
            arrivals = reader.read(raw, lambda _, why: refused.append(why), levels)  # noqa: B023 -- called at once
            assert all(refused)
            for arrival in arrivals:
                for each, kind in zip(arrival.values, kept.kinds, strict=True):
                    assert each is None or kind == "any" or type(each) is PYTHON[kind]
                msgpack.packb(arrival)
            seen["events"] += len(arrivals)
            seen["refused"] += len(refused)
    assert min(seen.values()) > 100, seen
