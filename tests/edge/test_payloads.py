"""What devices send: which payloads are events, and what is said about the others."""

from __future__ import annotations

import json
import random
from typing import Any

import msgpack
import pytest

from headwater.node.edge.interfaces import Arrival
from headwater.node.edge.payloads import PAYLOAD_BYTES_MAX, PAYLOAD_EVENTS_MAX, PayloadReader
from headwater.protocol.edge import Broker, MqttFeed
from headwater.protocol.events import EventType

TEMP = EventType("Temp", {"area": "string", "value": "float", "n": "int?", "ok": "bool?", "note": "any?"})
GOOD = {"area": "A1", "value": 1.5}
GOOD_ROW = ("A1", 1.5, None, None, None)


def read(reader: PayloadReader, payload: bytes, *wildcards: str) -> tuple[list[Arrival], list[tuple[bytes, str]]]:
    refused: list[tuple[bytes, str]] = []
    return reader.read(payload, lambda raw, why: refused.append((raw, why)), wildcards), refused


def of_device(topic: str = "t", **said: Any) -> PayloadReader:
    """The reader of a source at p1 that listens to MQTT."""
    return PayloadReader(TEMP, feed=MqttFeed(topic, Broker("b"), **said), node="p1")


def values(payload: bytes, kind: Any = "json") -> list[tuple[Any, ...]]:
    arrivals, refused = read(PayloadReader(TEMP, kind), payload)
    assert refused == []
    return [each.values for each in arrivals]


def why(payload: bytes, kind: Any = "json") -> str:
    arrivals, refused = read(PayloadReader(TEMP, kind), payload)
    assert arrivals == []
    assert len(refused) == 1
    return refused[0][1]


LIST = [GOOD, {**GOOD, "n": 3}]


@pytest.mark.parametrize(
    "payload",
    [
        json.dumps(LIST).encode(),
        "\n".join(map(json.dumps, LIST)).encode(),
        ("\r\n\r\n".join(map(json.dumps, LIST)) + "\n").encode(),
        "\n".join(json.dumps([each]) for each in LIST).encode(),
        json.dumps(LIST, indent=2).encode(),
    ],
    ids=["list", "lines", "lines of Windows", "a list on each line", "indented"],
)
def test_several_events_may_come_as_a_json_list_or_as_lines(payload: bytes) -> None:
    assert values(payload) == [GOOD_ROW, ("A1", 1.5, 3, None, None)]


@pytest.mark.parametrize(
    "payload", [msgpack.packb(LIST), b"".join(map(msgpack.packb, LIST))], ids=["list", "one after the other"]
)
def test_several_events_may_come_as_msgpack(payload: bytes) -> None:
    assert values(payload, "msgpack") == [GOOD_ROW, ("A1", 1.5, 3, None, None)]


def test_one_event_is_a_payload_and_an_empty_list_is_none() -> None:
    assert values(json.dumps(GOOD).encode()) == [GOOD_ROW]
    assert values(msgpack.packb(GOOD), "msgpack") == [GOOD_ROW]
    assert values(b"[]") == []


def test_a_whole_number_is_a_float_and_a_null_is_an_absent_value() -> None:
    (row,) = values(b'{"area": "A1", "value": 7, "n": null, "ok": true, "note": "x"}')
    assert row == ("A1", 7.0, None, True, "x")
    assert type(row[1]) is float


@pytest.mark.parametrize(
    ("event", "said"),
    [
        ({"value": 1.0}, "Temp needs a value for 'area'"),
        ({**GOOD, "valu": 2}, "Temp has no attribute 'valu'; it has: area, n, note, ok, value"),
        ({**GOOD, "value": "1"}, "Temp.value is declared float, but '1' is string"),
        ({**GOOD, "value": True}, "Temp.value is declared float, but True is bool"),
        ({**GOOD, "n": 1.0}, "Temp.n is declared int, but 1.0 is float"),
        ({**GOOD, "n": 2**63}, "Temp.n does not fit into 64 bits"),
        ({**GOOD, "area": ["A1"]}, "Temp.area is ['A1']; values are numbers, strings or booleans"),
        ({**GOOD, "note": {"a": 1}}, "Temp.note is {'a': 1}; values are numbers, strings or booleans"),
        ({**GOOD, "area": "x" * 70_000}, "Temp.area has 70000 characters; 65536 are the most"),
        ([GOOD], "an event is a map from names to values, not [{"),
        (7, "an event is a map from names to values, not 7"),
        (None, "an event is a map from names to values, not absent"),
    ],
)
@pytest.mark.parametrize("kind", ["json", "msgpack"])
def test_what_is_no_event_of_the_type_is_refused_with_a_reason(event: Any, said: str, kind: str) -> None:
    whole = [event]  # in a list, so that a list is an event of the list
    payload = json.dumps(whole).encode() if kind == "json" else msgpack.packb(whole)
    assert why(payload, kind).startswith(said)


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b"", "nothing in it"),
        (b" \n ", "nothing in it"),
        (b"{", "not JSON: Expecting property name"),
        (b"\xff\xfe", "not UTF-8 at byte 0"),
        (b'{"area": "A1", "value": NaN}', "Temp.value is nan, which is not a finite number"),
        (b'{"area": "A1", "value": -Infinity}', "Temp.value is -inf, which is not a finite number"),
        (b'{"area": "A1", "value": 1e999}', "Temp.value is inf, which is not a finite number"),
        (b'{"area": "\\ud800", "value": 1}', "Temp.area is not a Unicode text"),
        (b'{"area": "A1", "value": 1} x', "line 1: something follows the event"),
        (b"[" * 100_000, "not JSON: nested too deeply"),
        (b'{"area": "A1", "value": ' + b"9" * 5000 + b"}", "not JSON: Exceeds the limit"),
        (b'"' + b"x" * PAYLOAD_BYTES_MAX + b'"', f"{PAYLOAD_BYTES_MAX + 2} bytes, and at most {PAYLOAD_BYTES_MAX}"),
    ],
    ids=lambda each: str(each)[:30],
)
def test_what_cannot_be_read_is_refused_with_a_reason(payload: bytes, said: str) -> None:
    assert why(payload).startswith(said)


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b"", "nothing in it"),
        (msgpack.packb(GOOD)[:-2], "not msgpack: cut off"),
        (msgpack.packb({"area": b"A1", "value": 1.0}), "Temp.area is b'A1'; values are"),
        (msgpack.packb({"area": "A1", "value": float("nan")}), "Temp.value is nan"),
        (msgpack.packb({1: 2}), "not msgpack: int is not allowed for map key"),
        (b"\xc1", "not msgpack"),
        (b"\xdd\xff\xff\xff\xff", "not msgpack"),
        (b"\x91" * 5000, "not msgpack"),
        (msgpack.packb(msgpack.ExtType(1, b"xx")), "not msgpack"),
    ],
    ids=lambda each: str(each)[:30],
)
def test_what_is_no_msgpack_is_refused_with_a_reason(payload: bytes, said: str) -> None:
    assert why(payload, "msgpack").startswith(said)


def test_a_bad_event_does_not_take_the_good_ones_with_it() -> None:
    lines = [json.dumps(GOOD), "{bad", '{"area": 1, "value": 1}', json.dumps(GOOD)]
    arrivals, refused = read(PayloadReader(TEMP), "\n".join(lines).encode())
    assert [each.values for each in arrivals] == [GOOD_ROW, GOOD_ROW]
    assert [raw for raw, _ in refused] == [b"{bad", b'{"area": 1, "value": 1}']
    assert refused[0][1].startswith("line 2: not JSON")
    arrivals, refused = read(PayloadReader(TEMP), json.dumps([GOOD, 5, GOOD]).encode())
    assert (len(arrivals), refused) == (2, [(b"5", "an event is a map from names to values, not 5")])


def test_a_payload_has_a_bound_on_its_events() -> None:
    kind = EventType("Rain")
    arrivals, refused = read(PayloadReader(kind), b"[" + b"{}," * PAYLOAD_EVENTS_MAX + b"{}]")
    assert len(arrivals) == PAYLOAD_EVENTS_MAX
    assert [said for _, said in refused] == [f"more than {PAYLOAD_EVENTS_MAX} events in one payload; send it in parts"]


# --- identity and time ------------------------------------------------------------------------------------------------


def test_device_counter_and_time_are_fields_of_the_payload() -> None:
    reader = of_device(device="id", counter="count", time="at")
    payload = {**GOOD, "id": "t7", "count": 3, "at": "2026-01-01T00:00:00Z"}
    arrivals, refused = read(reader, json.dumps([payload, {**payload, "id": 8, "at": 5}]).encode())
    assert refused == []
    assert arrivals == [Arrival(1_767_225_600_000_000, "t7", 3, GOOD_ROW), Arrival(5, "8", 3, GOOD_ROW)]


def test_the_device_may_stand_in_the_topic() -> None:
    reader = of_device(topic="+/+", device="+2", counter="n")
    arrivals, _ = read(reader, json.dumps({**GOOD, "n": 9}).encode(), "hall", "t7")
    assert arrivals == [Arrival(None, "t7", 9, ("A1", 1.5, 9, None, None))]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"count": None}, "the counter count is absent, and must be a whole number"),
        ({"count": -1}, "the counter count is -1"),
        ({"count": True}, "the counter count is True"),
        ({"count": 1.0}, "the counter count is 1.0"),
        ({"count": 2**63}, "the counter count is 9223372036854775808"),
        ({"id": ""}, "the device id is '', and must be a name"),
        ({"id": None}, "the device id is absent"),
        ({"id": [1]}, "the device id is [1]"),
        ({"id": "p1"}, "the device is called 'p1' like its node"),
        ({"at": None}, "the time (at) is absent"),
        ({"at": 1.5}, "the time (at) 1.5 is neither an integer of microseconds nor an ISO 8601 time"),
        ({"at": 2**64}, "the time (at) 18446744073709551616 does not fit into 64 bits"),
    ],
)
def test_a_bad_identity_or_time_is_refused(change: dict[str, Any], said: str) -> None:
    reader = of_device(device="id", counter="count", time="at")
    payload = {**GOOD, "id": "t7", "count": 3, "at": 1, **change}
    arrivals, refused = read(reader, json.dumps(payload).encode())
    assert arrivals == []
    assert refused[0][1].startswith(said)


# --- strangers --------------------------------------------------------------------------------------------------------


def _mangled(rng: random.Random, good: bytes) -> bytes:
    data = bytearray(good)
    for _ in range(rng.randint(1, 6)):
        place = rng.randrange(len(data) + 1)
        match rng.randrange(4):
            case 0:
                data[place : place + rng.randint(1, 8)] = b""
            case 1:
                data[place:place] = rng.randbytes(rng.randint(1, 8))
            case 2:
                data[place : place + 1] = rng.choice(b'{}[]",:0123456789eE+-.\\u\n').to_bytes()
            case _:
                data[place:place] = data[: rng.randrange(len(data) + 1)]
        if not data:
            break
    return bytes(data)


@pytest.mark.parametrize("kind", ["json", "msgpack"])
def test_random_payloads_are_events_or_refused_and_never_an_exception(kind: Any) -> None:
    rng = random.Random(4)
    whole = [{**GOOD, "n": 3, "ok": True, "note": "\u00e4"}, {**GOOD, "id": "t", "count": 1}]
    good = json.dumps(whole).encode() if kind == "json" else msgpack.packb(whole)
    reader = of_device(payload=kind, device="id", counter="count")
    outcomes = {"events": 0, "refused": 0}
    for number in range(4000):
        payload = rng.randbytes(rng.randint(0, 60)) if number % 4 == 0 else _mangled(rng, good)
        arrivals, refused = read(reader, payload)
        for arrival in arrivals:
            # Whatever gets through is of the declared kinds and can travel.
            assert [type(each) in kinds for each, kinds in zip(arrival.values, KINDS, strict=True)] == [True] * 5
            msgpack.packb(arrival)
        outcomes["events"] += len(arrivals)
        outcomes["refused"] += len(refused)
        assert all(isinstance(raw, bytes) and said for raw, said in refused)
    assert outcomes["refused"] > 3000
    assert outcomes["events"] > 0


NONE = type(None)
KINDS = [(str,), (float,), (int, NONE), (bool, NONE), (int, float, str, bool, NONE)]
