"""Events that came together and are passed on as they came: what is known of them, and what others are sent."""

from __future__ import annotations

import gc
import random
from collections import Counter
from collections.abc import Iterator
from operator import itemgetter
from typing import Any

import msgpack
import pytest

from headwater.node.core import NodeCore
from headwater.node.effects import Send
from headwater.node.snapshot import restore, save
from headwater.node.step import Work
from headwater.node.streams.identity_map import LANES_MAX, NEAR_MAX, STRETCH_MAX, IdentityMap
from headwater.node.streams.neighbour_checks import Testimony as Told
from headwater.node.streams.outbox import Inbox, Outbox
from headwater.protocol.events import EventType
from headwater.protocol.messages.neighbour import Batch, Deploy, Filter, Message, Notify, Run
from headwater.protocol.wire.link_wire import LinkWire
from headwater.protocol.wire.messages import Wire
from headwater.protocol.wire.received_columns import LAZY_LEAST, ColumnIdentities, Columns
from headwater.protocol.wire.rule_encoding import CodecError
from tests.kit.builders import TYPES
from tests.law.law import columns_from
from tests.node.test_core import ANode, reports, sent

EXACT = EventType("E", {"v": "int", "x": "float"})
LOOSE = EventType("L", {"v": "int?"})
Row = tuple[Any, ...]


def rows_of(count: int, first: int = 1, step: int = 1, ts: int = 100, node: str = "n") -> tuple[Row, ...]:
    return tuple((ts + place, node, first + step * place, EXACT, place, place / 8) for place in range(count))


def names_of(rows: Any) -> tuple[Any, ...]:
    return tuple((row[1], row[2]) for row in rows)


def batch_of(*rows: Row, stream: int = 3) -> Batch:
    return Batch((Run(names_of(rows), rows, (stream,)),), ())


def columns_of(rows: tuple[Row, ...]) -> Columns:
    """As they arrive at the other end of a link."""
    wire = Wire({EXACT, LOOSE})
    (run,) = wire.decode(wire.encode(batch_of(*rows))).runs  # type: ignore[union-attr]
    assert type(run.rows) is Columns
    return run.rows


# ------------------------------------------------------------------------------------------------------------- the wire


@pytest.mark.parametrize(
    "rows",
    [
        rows_of(200),
        rows_of(LAZY_LEAST, first=7, step=3),
        rows_of(200, ts=-50),
        tuple(reversed(rows_of(50))),
        rows_of(20) + rows_of(20, node="m"),
    ],
    ids=["in order", "with gaps", "before zero", "backwards", "of two nodes"],
)
def test_columns_are_the_rows_that_were_sent(rows: tuple[Row, ...]) -> None:
    read = columns_of(rows)
    assert (read.least_us, read.greatest_us) == (min(row[0] for row in rows), max(row[0] for row in rows))
    assert (read.first, read.last) == (min(row[2] for row in rows), max(row[2] for row in rows))
    assert len(read) == len(read.identities) == len(rows)
    assert tuple(read.identities) == names_of(rows)
    assert read.times() == [row[0] for row in rows]
    assert tuple(read) == rows
    for same in (read, read.bare(), restore(save(read))):
        assert same == rows
        assert tuple(same.identities) == names_of(rows)
        assert same.times() == [row[0] for row in rows]


@pytest.mark.parametrize("message", [batch_of(*rows_of(200)), Notify("t", 1, rows_of(200))], ids=["up", "down"])
def test_columns_leave_as_the_bytes_that_came(message: Message) -> None:
    source, relay, target = LinkWire([EXACT]), LinkWire([EXACT]), LinkWire([EXACT])
    schema, data = source.encode(message), source.encode(message)
    relay.decode(schema)
    onward = LinkWire([EXACT])
    first, second = (onward.encode(relay.decode(data)) for _ in range(2))
    assert second == data
    assert target.decode(first) == target.decode(second) == message, "and who has never heard of the type is told"


def test_columns_are_written_anew_where_their_type_has_another_number() -> None:
    near, far = LinkWire([EXACT]), LinkWire([EXACT])
    before, beyond = LinkWire([EXACT, EventType("A", {})]), LinkWire([EXACT])
    message = batch_of(*rows_of(50))
    far.decode(near.encode(message))
    read = far.decode(near.encode(message))
    assert type(read.runs[0].rows) is Columns  # type: ignore[union-attr]
    assert beyond.decode(before.encode(read)) == message
    assert before.encode(read) != near.encode(message)


def plain_batch(*, times: Any = None, seqs: Any = None, values: Any = None, node: Any = "n") -> list[Any]:
    count = 100
    columns = [[0], times or [5] + [1] * (count - 1), node, seqs or [1] * count, values or [7] * count, [0.5] * count]
    return [0, [[[3], False, None, columns]], [], None]


WRONG = {
    "text among numbers": plain_batch(values=[7] * 99 + ["x"]),
    "truth among numbers": plain_batch(values=[7] * 99 + [True]),
    "nothing where something is needed": plain_batch(values=[7] * 99 + [None]),
    "a column that is short": plain_batch(values=[7] * 99),
    "a float among times": plain_batch(times=[5] + [1.0] * 99),
    "times beyond all bounds": plain_batch(times=[1 << 56] * 100),
    "times beyond all bounds below": plain_batch(times=[-(1 << 56)] * 100),
    "seqs beyond all bounds": plain_batch(seqs=[1 << 60] * 100),
    "seqs that are short": plain_batch(seqs=[1] * 99),
    "a node that is a number": plain_batch(node=5),
    "nodes that are too few": plain_batch(node=["n"] * 99),
    "streams that are text": [0, [[["x"], False, None, plain_batch()[1][0][3]]], [], None],
    "a run that is too long": [0, [[[3], False, None, plain_batch()[1][0][3], 5]], [], None],
    "watermarks that are none": [0, plain_batch()[1], 5, None],
    "a floor that is none": [0, plain_batch()[1], [], "x"],
    "a tree without a name": [1, 5, 1, [plain_batch()[1][0][3]]],
}


@pytest.mark.parametrize("plain", WRONG.values(), ids=WRONG)
def test_columns_that_no_node_could_read_are_not_passed_on(plain: object) -> None:
    assert type(batch_in(Wire([EXACT]).decode(msgpack.packb(plain_batch()))).runs[0].rows) is Columns
    with pytest.raises(CodecError):
        Wire([EXACT]).decode(msgpack.packb(plain))


@pytest.mark.parametrize("place", range(0, 700, 7))
def test_a_large_batch_that_is_cut_or_goes_on_is_refused(place: int) -> None:
    wire = Wire([EXACT])
    data = wire.encode(batch_of(*rows_of(60)))
    assert len(data) > 700
    with pytest.raises(CodecError):
        wire.decode(data[:place])
    with pytest.raises(CodecError):
        wire.decode(data + data[: place + 1])


# ------------------------------------------------------------------------------------------------------ what is known


def test_what_is_known_of_many_events_is_what_a_dict_would_know() -> None:
    """Whatever is added in whatever way: known, found, counted and forgotten as if each event were kept by itself."""
    added = 0
    for seed in range(150):
        rng = random.Random(seed)
        known: IdentityMap[Row] = IdentityMap(tuple, itemgetter(0))
        model: dict[Any, Row] = {}
        now = 0
        for _ in range(rng.randrange(5, 60)):
            now += rng.randrange(40)
            rows = rows_of(
                rng.choice((16, 17, 40)),
                first=rng.choice((now, now, rng.randrange(now + 1))),
                step=rng.choice((1, 1, 2, 3)),
                ts=rng.choice((now, rng.randrange(now + 1))),
                node=rng.choice("nnnm"),
            )
            if rng.random() < 0.2:
                rows = tuple(rng.sample(rows, len(rows)))
            disjoint = not any(name in model for name in names_of(rows))
            assert known.has_none_of(names_of(rows)) is disjoint
            columns = columns_of(rows)
            if known.add(columns):
                added += 1
                assert disjoint
                model.update(zip(names_of(rows), rows, strict=True))
            else:
                assert not known.has_room_for(columns)
                for row in rows[: rng.randrange(4)]:
                    if row[1:3] not in model:
                        known[row[1:3]] = model[row[1:3]] = row
            if rng.random() < 0.2:
                floor = rng.randrange(now + 1)
                before, model = model, {name: row for name, row in model.items() if row[0] >= floor}
                assert known.forget_before(floor) is (len(model) < len(before))
            if rng.random() < 0.2:
                known = restore(save(known))
            assert len(known) == len(model)
            assert {*known} == model.keys()
            for name in [*names_of(rows), ("n", rng.randrange(now + 50)), ("o", 1), "composite"]:
                assert (name in known) == (name in model)
                assert known.get(name) == model.get(name)
        if model:
            middle = known.middle_us()
            assert sum(row[0] <= middle for row in model.values()) * 2 >= len(model)
    assert added > 2000


def test_events_of_many_kinds_that_interleave_are_still_known_each() -> None:
    known: IdentityMap[int] = IdentityMap(itemgetter(0), int)
    kinds = LANES_MAX + 2
    for kind in range(kinds):
        assert known.add(columns_of(rows_of(20, first=kind, step=kinds))) is (kind < LANES_MAX)
    assert all((("n", seq) in known) is (seq % kinds < LANES_MAX) for seq in range(20 * kinds))


def test_numbers_that_lie_far_apart_are_not_compared_with_everything() -> None:
    known: IdentityMap[int] = IdentityMap(itemgetter(0), int)
    for place in range(NEAR_MAX + 3):
        assert known.add(columns_of(rows_of(16, first=1 + place * 100)))
    assert known.add(columns_of(rows_of(16, first=50, step=100)))
    assert not known.add(columns_of(rows_of(NEAR_MAX + 3, first=51, step=100)))


def test_what_would_take_long_to_read_again_is_not_kept_as_bytes() -> None:
    known: IdentityMap[int] = IdentityMap(itemgetter(0), int)
    assert known.add(columns_of(rows_of(STRETCH_MAX)))
    assert not known.add(columns_of(rows_of(STRETCH_MAX + 1, first=STRETCH_MAX + 1)))


# ------------------------------------------------------------------------------------------------------- a neighbour


def batch_in(message: Message) -> Batch:
    assert isinstance(message, Batch)
    return message


def flushed(box: Outbox) -> list[Batch]:
    work = Work(0, {box.neighbour: box}, {})
    box.flush(work)
    return [batch_in(effect.message) for effect in work.effects if isinstance(effect, Send)]


def test_each_event_crosses_a_link_once_whether_it_came_in_columns_or_not() -> None:
    rows = rows_of(60)
    box, inbox = Outbox("up"), Inbox(Told())
    crossed: list[tuple[int, Row]] = []

    def carry() -> list[bool]:
        with_bodies = []
        for batch in flushed(box):
            for run in batch.runs:
                with_bodies.append(run.rows is not None)
                crossed.extend((stream, row) for row in inbox.rows(run) for stream in run.streams)
        return with_bodies

    box.add(columns_of(rows[:30]), 1, "primitive")
    assert carry() == [True]
    box.add(columns_of(rows[10:40]), 2, "primitive")  # some of them once more, for another stream
    assert carry() == [False, True]
    box.add(rows[38:42], 1, "primitive")
    assert carry() == [False, True]
    box.add(columns_of(rows[42:60]), 1, "primitive")
    box.add(columns_of(rows[42:60]), 2, "primitive")  # for both at once
    assert carry() == [True]
    assert sorted(crossed) == sorted(
        [(1, row) for row in (*rows[:30], *rows[38:60])] + [(2, row) for row in (*rows[10:40], *rows[42:60])]
    )
    box.forget_before(rows[30][0])
    box.add(rows[29:31], 1, "primitive")
    (again,) = flushed(box)
    assert again.floor_us == rows[30][0]
    assert [run.rows is not None for run in again.runs] == [True, False], "of what was forgotten the body comes again"


@pytest.fixture
def short_columns() -> Iterator[None]:
    with columns_from(2):
        yield


def test_whatever_goes_over_a_link_arrives_for_every_stream_and_each_body_once(short_columns: None) -> None:
    """Events in columns and alone, again and again for other streams, while both ends forget what is old."""
    seen: Counter[str] = Counter()
    for seed in range(60):
        rng = random.Random(seed)
        wire = Wire({EXACT, LOOSE})
        box, inbox = Outbox("up"), Inbox(Told())
        floor, bodies = 0, set[tuple[str, int]]()
        trace = sorted(
            (rng.randrange(seq, seq + 60), rng.choice("nnm"), seq, kind, *((seq, 0.5) if kind is EXACT else (None,)))
            for seq in range(1, 2000)
            for kind in (rng.choice((EXACT, EXACT, LOOSE)),)
        )
        for step in range(40):
            wanted = set()
            for _ in range(rng.randrange(1, 4)):
                start = max(0, 40 * step - rng.choice((0, 0, 0, 50, 200)))
                rows = tuple(row for row in trace[start : start + rng.choice((1, 3, 40, 90))] if row[0] >= floor)
                rows = tuple(row for row in rows if row[1] == "n" or rng.random() < 0.3)
                kind = rng.choice((None, EXACT, LOOSE))
                rows = tuple(sorted((row for row in rows if kind in (None, row[3])), key=itemgetter(2)))
                stream = rng.randrange(3)
                wanted |= {(stream, row) for row in rows}
                alike = len({row[3] for row in rows}) == 1 and len(rows) > 1
                box.add(columns_of(rows) if alike else rows, stream, "primitive")
            found = []
            for batch in flushed(box):
                came = wire.decode(wire.encode(batch))
                assert isinstance(came, Batch)
                if came.floor_us is not None:
                    inbox.forget_before(came.floor_us)
                for run in came.runs:
                    rows = tuple(inbox.rows(run))
                    assert len(rows) == len(run.identities), "a body is missing, or not believed"
                    seen["columns" if type(run.rows) is Columns else "rows" if run.rows else "references"] += 1
                    if run.rows is not None:
                        assert bodies.isdisjoint(names_of(rows)), "a body crosses again"
                        bodies.update(names_of(rows))
                    found += [(stream, row) for row in rows for stream in run.streams]
            assert len(found) == len(set(found))
            assert set(found) == wanted
            assert {*box.history} <= {*inbox.bodies}
            if rng.random() < 0.2:
                floor = max(floor, 40 * step - rng.randrange(300))
                box.forget_before(floor)
    assert min(seen["columns"], seen["rows"], seen["references"]) > 1000, seen


def test_columns_that_contradict_what_was_told_before_are_not_believed() -> None:
    for kind in (EXACT, LOOSE):
        values = (0, 0.5) if kind is EXACT else (0,)
        rows = tuple((100 + place, "n", place, kind, *values) for place in range(40))
        lies = tuple((*row[:4], 1, *row[5:]) for row in rows[30:]) + tuple(
            (200 + place, "n", place, kind, *values) for place in range(40, 120)
        )
        testimony = Told()
        inbox = Inbox(testimony)
        assert inbox.rows(Run(names_of(rows), columns_of(rows), (1,))) == rows
        assert inbox.rows(Run(names_of(lies), columns_of(lies), (1,))) == list(lies[10:])
        assert inbox.rows(Run(names_of(rows), columns_of(rows), (1,))) == rows, "the same again is not a contradiction"
        assert inbox.rows(Run(names_of(lies), None, (1,))) == [*rows[30:], *lies[10:]]
        elsewhere = Inbox(testimony).rows(Run(names_of(lies), columns_of(lies), (1,)))
        assert elsewhere == (lies if kind is EXACT else list(lies[10:])), "from any neighbour"


# ------------------------------------------------------------------------------------------------------------ a node


def test_a_node_passes_columns_on_as_they_came_up_a_tree_and_down_and_after_it_was_restored() -> None:
    node = ANode(children=["left", "right"])
    node.child_says("left", "A")
    node.child_says("right", "", subscriptions=["A"])
    node.starts()
    node.hears("up", Deploy("top", 1, 77, Filter("A")))
    ((number, inlet),) = node.core.inlets.items()
    assert inlet.child == "left"
    wire = Wire(TYPES.values())
    for first in (0, 50):
        rows = tuple((100 + seq, "far", seq, TYPES["A"], seq, 0, None, None) for seq in range(first, first + 50))
        down = wire.encode(Notify("top", 1, rows))
        effects = node.hears("up", wire.decode(down))
        assert [wire.encode(message) for message in sent(effects, Notify, "right")] == [down]
        came = batch_in(wire.decode(wire.encode(batch_of(*rows, stream=number))))
        effects += node.hears("left", came)
        (passed,) = sent(effects, Batch, "up")
        assert passed.runs[0].rows is came.runs[0].rows
        assert wire.encode(passed) == wire.encode(batch_of(*rows, stream=77))
        effects += node.hears("left", came)
        (again,) = sent(effects, Batch, "up")[1:]
        assert [run.rows for run in again.runs] == [None], "the body crosses once"
        assert not reports(effects)
        node.core = NodeCore.restored(node.core.save())


def test_what_is_passed_on_and_forgotten_is_freed_at_once() -> None:
    """Nothing may wait for the collector, which a busy node rarely runs."""

    def held() -> int:
        return sum(type(each) in (Columns, ColumnIdentities) for each in gc.get_objects())

    box, inbox = Outbox("up"), Inbox(Told())
    gc.collect()
    gc.disable()
    try:
        before = held()
        for first in (1, 501):
            (run,) = Wire([EXACT]).decode(Wire([EXACT]).encode(batch_of(*rows_of(100, first)))).runs  # type: ignore[union-attr]
            box.add(inbox.rows(run), 1, "primitive")
            del run
            assert len(flushed(box)) == 1
        assert held() == before + 2, "both histories hold the same"
        box.forget_before(1000)
        inbox.forget_before(1000)
        assert held() == before
    finally:
        gc.enable()
