"""What messages become on a link: the same message at the other end, or a CodecError."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import msgpack
import pytest

from headwater.node.engine import Engine
from headwater.node.snapshot import restore, save
from headwater.protocol.composites import Composite
from headwater.protocol.events import EventType
from headwater.protocol.messages.neighbour import Advertise, Batch, Message, Notify, Run, Want, Watermark
from headwater.protocol.wire.link_wire import LinkWire
from headwater.protocol.wire.messages import Wire
from headwater.protocol.wire.rule_encoding import CodecError
from tests.kit.builders import TYPES, chain, each, rule

PAIR = rule(chain("A a", each("B b", 100, "a")), name="pair", emits="X", out={"v": "a.v"})
CHAINED = rule(chain("X x", each("C c", 50, "x")), name="chained", emits="Z")
ALL = tuple(TYPES.values())
BIG = 1 << 80


def row(kind: str, ts: int, *values: Any, node: str = "n", seq: int | None = None) -> tuple[Any, ...]:
    given = values or (ts, 0, None, None)
    return (ts, node, ts if seq is None else seq, TYPES[kind], *given)


def run(*rows: Any, streams: tuple[int, ...] = (3,), blocker: bool = False) -> Run:
    names = tuple(each[3].id if isinstance(each[3], Composite) else (each[1], each[2]) for each in rows)
    return Run(names, rows, streams, blocker)


def flat(message: Message) -> Any:
    """A batch with each event by itself: how events are put together on the way does not matter."""
    if not isinstance(message, Batch):
        return message
    found = [
        (identity, None if run.rows is None else run.rows[position], run.streams, run.blocker)
        for run in message.runs
        for position, identity in enumerate(run.identities)
    ]
    return found, message.watermarks, message.floor_us


def composites() -> list[tuple[Any, ...]]:
    """Two that a rule found, and two that a rule found with them."""
    engine = Engine([PAIR, CHAINED], ALL)
    found = engine.feed([row("C", 1), row("B", 2), row("B", 3), row("A", 9)])
    assert [match.type for match in found].count("Z") == 2
    return [match.row() for match in found]


def random_row(rng: random.Random) -> tuple[Any, ...]:
    whole = rng.choice((0, -1, 70_000, 1 << 62, -(1 << 63), (1 << 64) - 1, BIG, -BIG))
    number = rng.choice((whole, rng.randrange(1000)))
    values = number, rng.randrange(10), rng.choice((None, 0.5, 7, -1e300, float("inf"))), rng.choice((None, "", "ä"))
    return row(
        rng.choice("ABC"), rng.randrange(-5, 1 << 55), *values, node=rng.choice("pq"), seq=rng.randrange(1 << 60)
    )


# ------------------------------------------------------------------------------------------------------------- messages


def test_a_single_event_is_a_short_list() -> None:
    batch = Batch((run(row("B", 5)),), (), None)
    assert Wire(ALL).encode(batch) == msgpack.packb(
        [0, [[[3], False, None, [1, 5, "n", 5, 5, 0, None, None]]], [], None]
    )


def test_events_of_one_type_become_columns_which_take_a_fraction() -> None:
    wire = Wire(ALL)
    rows = [row("A", 1_700_000_000_000_000 + 1000 * n, n, n % 7, None, None, seq=n) for n in range(200)]
    together = wire.encode(Batch((run(*rows),), (), None))
    alone = [wire.encode(Batch((run(each),), (), None)) for each in rows]
    assert len(together) < sum(map(len, alone)) / 2
    assert wire.decode(together) == Batch((run(*rows),), (), None)


@pytest.mark.parametrize("seed", range(40))
def test_every_batch_comes_as_it_went(seed: int) -> None:
    rng = random.Random(seed)
    wire = Wire(ALL, [PAIR, CHAINED])
    runs = []
    for _ in range(rng.randrange(4)):
        rows = [random_row(rng) for _ in range(rng.choice((1, 2, 30)))]
        if rng.random() < 0.5:
            rows = sorted([(*each[:3], TYPES["A"], *each[4:]) for each in rows])
        made = run(*rows, *(composites() if rng.random() < 0.2 else ()), streams=(1, 2), blocker=rng.random() < 0.3)
        runs.append(made._replace(rows=None) if rng.random() < 0.2 else made)
    watermarks = tuple(
        rng.sample([Watermark(1, 5), Watermark(2, float("inf"), 3, 4), Watermark(3, 0.5, 1, 2, True, 9)], 2)
    )
    batch = Batch(tuple(runs), watermarks, rng.choice((None, -7)))
    for ends in ((wire, wire), (LinkWire(ALL), LinkWire(ALL))):
        read = ends[1].decode(ends[0].encode(batch))
        assert flat(read) == flat(batch)
        assert [type(value) for each in flat(read)[0] for value in each[1] or ()] == [
            type(value) for each in flat(batch)[0] for value in each[1] or ()
        ]


def test_events_that_go_down_a_tree_come_as_they_went() -> None:
    rows = tuple([row("A", n) for n in range(50)] + composites() + [row("B", 60), row("C", 61)])
    wire = Wire(ALL, [PAIR, CHAINED])
    assert wire.decode(wire.encode(Notify("t", 1, rows))) == Notify("t", 1, rows)


def test_the_bytes_of_a_batch_are_those_of_its_runs_and_the_rest() -> None:
    wire = Wire(ALL)
    runs = run(row("A", 1), row("A", 2)), run(row("B", 3)), Run((("n", 4), ("n", 5)), None, (3,))
    batch = Batch(runs, (Watermark(1, 5),), 7)
    assert len(wire.encode(batch)) == sum(map(wire.run_bytes, runs)) + wire.overhead_bytes(batch)


# --------------------------------------------------------------------------------------------------------------- shapes

ROW = [1, 5, "n", 5, 5, 0, None, None]
COLUMNS = [[1], [5, 1], "n", [5, 1], [5, 6], [0, 0], [None, 0.5], [None, "x"]]


def in_a_batch(body: Any) -> Any:
    return [0, [[[3], False, None, body]], [], None]


def without(body: list[Any], position: int) -> list[Any]:
    return body[:position] + body[position + 1 :]


def instead(body: list[Any], position: int, value: Any) -> list[Any]:
    return [*body[:position], value, *body[position + 1 :]]


WRONG = {
    "an attribute is missing": in_a_batch(ROW[:-1]),
    "an attribute too many": in_a_batch([*ROW, 1]),
    "text for an int": in_a_batch(instead(ROW, 4, "x")),
    "nothing where something is needed": in_a_batch(instead(ROW, 4, None)),
    "a truth for an int": in_a_batch(instead(ROW, 4, True)),
    "bytes": in_a_batch(instead(ROW, 7, b"x")),
    "a mapping": in_a_batch(instead(ROW, 7, {})),
    "a list that is not an integer": in_a_batch(instead(ROW, 4, [5])),
    "digits that are none": in_a_batch(instead(ROW, 4, ["0x5"])),
    "a ts that is a float": in_a_batch(instead(ROW, 1, 5.0)),
    "a node that is none": in_a_batch(instead(ROW, 2, None)),
    "a seq that is a truth": in_a_batch(instead(ROW, 3, True)),
    "a type that is not declared": in_a_batch(instead(ROW, 0, 99)),
    "a negative type": in_a_batch(instead(ROW, 0, -1)),
    "columns: one is missing": in_a_batch(without(COLUMNS, 7)),
    "columns: one too many": in_a_batch([*COLUMNS, [1, 2]]),
    "columns: one is short": in_a_batch(instead(COLUMNS, 5, [0])),
    "columns: one is long": in_a_batch(instead(COLUMNS, 5, [0, 0, 0])),
    "columns: one is text": in_a_batch(instead(COLUMNS, 5, "xx")),
    "columns: text among ints": in_a_batch(instead(COLUMNS, 5, [0, "x"])),
    "columns: ts is a float": in_a_batch(instead(COLUMNS, 1, [5, 1.0])),
    "columns: no events": in_a_batch([[1], [], "n", [], [], [], [], []]),
    "columns: nodes are numbers": in_a_batch(instead(COLUMNS, 2, [1, 2])),
    "columns: seqs are short": in_a_batch(instead(COLUMNS, 3, [5])),
    "columns: two types": in_a_batch(instead(COLUMNS, 0, [1, 2])),
    "a time beyond all bounds": in_a_batch(instead(ROW, 1, 1 << 62)),
    "columns: times beyond all bounds": in_a_batch(instead(COLUMNS, 1, [1 << 61, 1 << 61])),
    "columns: seqs beyond all bounds": in_a_batch(instead(COLUMNS, 3, [1 << 62, 1 << 62])),
    "an awakening beyond all bounds": [3, 1, 1, 0, 1 << 62, []],
    "streams are not numbers": [0, [[["x"], False, None, ROW]], [], None],
    "streams are not a list": [0, [[3, False, None, ROW]], [], None],
    "no streams": [0, [[[], False, None, ROW]], [], None],
    "a blocker that is a number": [0, [[[3], 1, None, ROW]], [], None],
    "an identity of three": [0, [[[3], False, ["n", 5, 6]]], [], None],
    "an identity that cannot be hashed": [0, [[[3], False, ["n", []]]], [], None],
    "a body that is nothing": in_a_batch(None),
    "a body that is empty": in_a_batch([]),
    "a watermark at no time": [0, [], [[3, float("nan")]], None],
    "a watermark at a text": [0, [], [[3, "x"]], None],
    "a watermark with a negative count": [0, [], [[3, 5, 0, -1]], None],
    "a watermark of a stream that is not a number": [0, [], [["x", 5]], None],
    "a watermark with a mode that is a number": [0, [], [[3, 5, 0, 0, 1, 1]], None],
    "a watermark that is too long": [0, [], [[3, 5, 0, 0, True, 1, 1]], None],
    "a floor that is a text": [0, [], [], "x"],
    "a want of text": [2, 3, "x"],
    "a want without a stream": [2, None, 5],
    "a want at no time": [2, 3, float("nan")],
    "a notification of nothing": [1, "t", 1, []],
    "a notification whose tree is a number": [1, 5, 1, [ROW]],
    "an awakening without bounds": [3, 1, 1, None, None, []],
    "an awakening with conditions that are none": [3, 1, 1, 0, 5, [["A", msgpack.packb([1, ["()", 5]])]]],
    "something that neighbours do not say": [4, msgpack.packb([1, ["()", 5]])],
    "a question without an end": [5, 1, [[1, 5]], None],
    "a question about text": [5, 1, [[1, 5, "x", "n", 1]], None],
    "a question with a mapping": [5, 1, [[1, 5, 5, "n", 1, {}]], None],
    "an answer with a negative shift": [6, 1, [[1, [0, 1, 0, 0, 1, 1, -1]]]],
    "an answer that would fill the memory": [6, 1, [[1, [0, 1, 0, 0, 1, 1, 1 << 40]]]],
    "an answer that is a mapping": [6, 1, [[1, [1, {}]]]],
    "a negative number of answers": [6, 1, [[1, -1]]],
    "an unknown kind": [99, 1],
    "nothing": None,
    "a number": 7,
    "a composite whose part has no parts": in_a_batch(["", ["pair", 1, "X", [0], [["a", ["pair", 1, "X", [0], []]]]]]),
}


def rows_in(wire: Wire, plain: object) -> Sequence[tuple[Any, ...]]:
    """What is read of a batch with one run."""
    batch = wire.decode(msgpack.packb(in_a_batch(plain)))
    assert isinstance(batch, Batch)
    (only,) = batch.runs
    assert only.rows is not None
    return only.rows


@pytest.mark.parametrize("plain", WRONG.values(), ids=WRONG)
def test_wrong_shapes_are_refused(plain: object) -> None:
    assert Wire(ALL).decode(msgpack.packb(in_a_batch(ROW))) == Batch((run(row("B", 5)),), (), None)
    assert len(rows_in(Wire(ALL), COLUMNS)) == 2
    for wire in (Wire(ALL, [PAIR]), LinkWire(ALL)):
        with pytest.raises(CodecError):
            wire.decode(msgpack.packb(plain))


def test_a_composite_with_values_that_no_rule_gives_is_refused() -> None:
    wire = Wire(ALL, [PAIR])
    good: list[Any] = ["", ["pair", 1, "X", [0], [["a", 9, "n", 9, "A"], ["b", 2, "n", 2, "B"]]]]
    assert rows_in(wire, good)[0][0] == 9
    wrong: tuple[list[Any], ...] = ([{}], [b""], [["()", {}]], [], ["a", "b"])
    for bad in wrong:
        changed = ["", [*good[1][:3], bad, good[1][4]]]
        with pytest.raises(CodecError):
            wire.decode(msgpack.packb(in_a_batch(changed)))


@pytest.mark.parametrize("data", [b"", b"\x91" * 5000, b"\xdd\xff\xff\xff\xff", b"\xc1", b"\x94\x00\x90\x90\xc0extra"])
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    for wire in (Wire(ALL), LinkWire(ALL)):
        with pytest.raises(CodecError):
            wire.decode(data)


# -------------------------------------------------------------------------------------------------------------- schemas


class Link:
    def __init__(self, types: Any = ALL) -> None:
        self.near, self.far = LinkWire(types), LinkWire(types)

    def carry(self, message: Message) -> int:
        """Takes the message over the link; its size."""
        data = self.near.encode(message)
        assert flat(self.far.decode(data)) == flat(message)
        return len(data)


def test_schemas_go_once_before_the_first_event_that_needs_them() -> None:
    link, plain = Link(), Wire(ALL, [PAIR, CHAINED])
    event, found = Batch((run(row("A", 5)),), (), None), Notify("t", 1, tuple(composites()))
    assert link.carry(Want(1, 5)) == len(plain.encode(Want(1, 5)))
    assert link.carry(Advertise("t", 1, ("A",))) > 0
    for message in (event, found):
        assert link.carry(message) > len(plain.encode(message))
        assert link.carry(message) == len(plain.encode(message))


def test_composites_of_composites_are_read_without_knowing_any_rule() -> None:
    link = Link()
    nested = [made for made in composites() if made[3].type == "Z"]
    read = link.far.decode(link.near.encode(Notify("t", 1, tuple(nested))))
    assert isinstance(read, Notify)
    assert [made[3].to_json() for made in read.rows] == [made[3].to_json() for made in nested]


def test_ends_that_were_saved_go_on_where_they_were() -> None:
    link, message = Link(), Batch((run(row("A", 5), *composites()),), (), None)
    first = link.carry(message)
    link.near, link.far = restore(save((link.near, link.far)))
    assert link.carry(message) < first


def test_after_a_reset_everything_is_told_again() -> None:
    link, message = Link(), Batch((run(row("A", 5), *composites()),), (), None)
    first = link.carry(message)
    link.far.reset()
    with pytest.raises(CodecError):
        link.far.decode(link.near.encode(message))
    link.near.reset()
    assert link.carry(message) == first


def test_rows_of_a_type_that_was_never_declared_are_refused() -> None:
    link = Link()
    link.carry(Batch((run(row("A", 5)),), (), None))
    with pytest.raises(CodecError, match="never declared"):
        link.far.decode(Wire(ALL).encode(Batch((run(row("B", 5)),), (), None)))


def test_both_directions_are_told_apart() -> None:
    link, message = Link(), Batch((run(row("A", 5)),), (), None)
    first = link.carry(message)
    link.near, link.far = link.far, link.near
    assert link.carry(message) == first


def test_types_that_are_something_else_here_are_refused() -> None:
    other = EventType("A", {"id": "string"})
    near, far = LinkWire([other]), LinkWire(ALL)
    with pytest.raises(CodecError, match="same network file"):
        far.decode(near.encode(Notify("t", 1, ((5, "n", 5, other, "x"),))))


def test_a_node_that_learns_of_more_types_renumbers_them_and_says_so() -> None:
    link, message = Link([TYPES["B"], TYPES["C"]]), Batch((run(row("B", 5)),), (), None)
    link.carry(message)
    link.near.retyped(ALL)
    assert link.carry(Batch((run(row("A", 1), row("C", 2), row("B", 3)),), (), None))
    assert link.carry(Batch((run(row("A", 1), row("C", 2), row("B", 3)),), (), None))


@pytest.mark.parametrize(
    "schema",
    [
        [0],
        [0, "A", [["x"]]],
        [0, "A", [["x", "no kind"]]],
        [0, "A", [[1, 2]]],
        [0, 5, []],
        ["r", 1, "X", [], ["a"], [], True],
        ["r", 1, "X", [], [1], [True], True],
        ["r", "1", "X", [], [], [], True],
        None,
    ],
)
def test_malformed_schemas_are_refused(schema: object) -> None:
    with pytest.raises(CodecError):
        LinkWire(ALL).decode(msgpack.packb([7, [schema], [2, 1, 5]]))


def test_a_link_takes_only_so_many_schemas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.protocol.wire.link_wire.SCHEMAS_MAX", 20)
    wire = LinkWire(())
    for number in range(20):
        wire.decode(msgpack.packb([7, [[number, f"T{number}", []]], [2, 1, 5]]))
    with pytest.raises(CodecError, match="more than 20"):
        wire.decode(msgpack.packb([7, [[20, "T20", []]], [2, 1, 5]]))
