"""Frames of strangers: random bytes, and good frames with a few bytes or parts changed.

Whatever comes, a frame is a message or a CodecError, and no message of the data plane stops a node.
"""

from __future__ import annotations

import random
from typing import Any

import msgpack
import pytest

from node.effects import Send, TimerFired
from protocol.codec import CodecError
from protocol.expressions import Attribute, Binary, Constant
from protocol.messages import (
    Advertise,
    Awakening,
    Batch,
    Deploy,
    Filter,
    Mark,
    Message,
    Notify,
    ReverseMark,
    Run,
    SetMode,
    TreeReady,
    Want,
    Whole,
)
from protocol.subscriptions import SUBJECT
from protocol.tallies import Extreme, Total
from protocol.tally_messages import Question, Tally, TallyAnswer, TallyRequest
from protocol.wire import LinkWire, Wire
from tests.test_node_core import CHAINED, LAST, PAIR, ANode, event
from tests.test_wire import ALL, composites, random_row, row, run

FRAMES = 100_000  # half of them random or with changed bytes, half with changed parts
SHARES = 10
"""As many tests, so that several processes can share them."""

CONTROL = (Advertise, Deploy, TreeReady)  # what these ask for is judged where trees and rules are kept
ATOMS = (None, True, False, 0, -1, 7, 1 << 63, -(1 << 63), 0.5, float("inf"), float("nan"), "", "A", b"", b"x", [], {})


def good_messages(rng: random.Random, number: int) -> list[Message]:
    rows = tuple(random_row(rng) for _ in range(3))
    alike = tuple(row("A", 1000 + n, n, n % 3, None, "x") for n in range(5))
    older = Binary(">", Attribute(SUBJECT, "v", ""), Constant(3))
    return [
        Batch((run(*alike, streams=(number,)),), (Mark(number, 5),), 3),
        Batch((run(*rows, streams=(number, number + 1), blocker=True), Run((("n", 5),), None, (number,))), (), None),
        Batch((run(*composites(), streams=(number,)),), (Mark(number, 5.5, 1, 2, True, 3),), None),
        Notify("n", 1, (*alike, *composites())),
        Want(number, 77),
        ReverseMark(number, 50),
        SetMode(number, True, 2),
        Awakening(number, 1, 0, 50, (("A", (older,)),)),
        TallyRequest(number, (Question(1, (0, "", 0), (50, "n", 7), (1, 1 << 70)),), 5),
        TallyAnswer(number, ((1, 5), (2, Total(1, 2, 0, 1, 1, 1)), (3, Extreme(0.5, (1, "n", 1))), (4, None))),
        Advertise("n", 1, ("A", "B")),
        Deploy("n", 1, number, Filter("A")),
        TreeReady("n", 1, 1),
    ]


def mutated(plain: Any, rng: random.Random) -> Any:
    """The same with one part, anywhere inside, replaced, dropped, doubled or moved into a list."""
    if isinstance(plain, list) and plain and rng.random() < 0.85:
        position = rng.randrange(len(plain))
        choice = rng.random()
        if choice < 0.75:
            return [*plain[:position], mutated(plain[position], rng), *plain[position + 1 :]]
        if choice < 0.87:
            return plain[:position] + plain[position + 1 :]
        return [*plain[:position], plain[position], *plain[position:]]
    if isinstance(plain, int) and not isinstance(plain, bool) and rng.random() < 0.3:
        return max(-(1 << 63), min((1 << 64) - 1, plain + rng.choice((-1, 1, 1 << 40))))
    return [plain] if rng.random() < 0.1 else rng.choice(ATOMS)


def with_changed_bytes(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        position = rng.randrange(len(changed))
        choice = rng.random()
        if choice < 0.6:
            changed[position] = rng.randrange(256)
        elif choice < 0.8:
            del changed[position : position + rng.choice((1, 4, 1000))]
            if not changed:
                break
        else:
            changed[position:position] = rng.randbytes(rng.choice((1, 4)))
    return bytes(changed)


class Victim:
    """Two nodes: a root that puts together what it has and what its child sends, and one in the middle that sends its
    parent what it is asked for, pushed and pulled."""

    def __init__(self) -> None:
        self.root = ANode(PAIR, LAST, parent=None, children=("left",), sources="A", sinks=("A", "X", "Y"))
        said = self.root.child_says("left", "BC", ["B", "X"])
        self.numbers = [
            effect.message.number
            for effect in said
            if getattr(effect, "neighbour", "") == "left" and isinstance(effect.message, Deploy)
        ]
        assert any(found.tasks for found in self.root.core.works.values()), "the root evaluates something itself"
        self.middle = ANode(PAIR, children=("left",), sources="A")
        self.middle.child_says("left", "AB")
        streams = Filter("A"), Filter("B"), Whole(PAIR), Tally("A", "sum", "v")
        for number, stream in enumerate(streams, start=self.numbers[0]):
            self.middle.hears("up", Deploy("top", 1, number, stream))
        self.middle.starts()
        self.middle.hears("up", SetMode(self.numbers[0] + 1, True, 1))
        self.refused = 0
        self.messages = 0
        self.ts = 100
        self.sends = Wire(ALL)
        self.told: dict[Any, Any] = {}

    def read(self, wire: Wire | LinkWire, data: bytes) -> None:
        self.ts += 1
        try:
            message = wire.decode(data)
        except CodecError:
            self.refused += 1
            return
        self.messages += 1
        if not isinstance(message, CONTROL) and not self._lies(message):
            effects = self.root.hears("left", message, at_us=self.ts)
            effects += self.middle.hears("left", message, at_us=self.ts)
            effects += self.middle.hears("up", message, at_us=self.ts)
            for effect in effects:
                if isinstance(effect, Send):
                    self.sends.encode(effect.message)
        if self.messages % 50 == 0:
            born = event("A", self.ts, node="born here")
            self.root.bears(born, at_us=self.ts)
            self.middle.bears(born, at_us=self.ts)
            for node in (self.root, self.middle):
                node.handle(TimerFired("tick"), self.ts)

    def _lies(self, message: Message) -> bool:
        """Whether it gives two events one identity. That is no matter of shape: nobody can tell which one is true."""
        rows = message.rows if isinstance(message, Notify) else ()
        if isinstance(message, Batch):
            rows = tuple(row for run in message.runs for row in run.rows or ())
        return any(repr(self.told.setdefault(row[1:3], row)) != repr(row) for row in rows if row[3] in ALL)


@pytest.mark.parametrize("share", range(SHARES))
def test_no_frame_stops_a_node(share):
    rng = random.Random(share)
    victim = Victim()
    good: list[tuple[Wire | LinkWire, bytes]] = []
    known = Wire(ALL, [PAIR, LAST, CHAINED])
    for number in victim.numbers:
        for message in good_messages(rng, number):
            good += [(known, known.encode(message)), (LinkWire(ALL), LinkWire(ALL).encode(message))]
    plain = [(wire, msgpack.unpackb(data)) for wire, data in good]
    for _ in range(FRAMES // SHARES // 2):
        wire, data = rng.choice(good)
        victim.read(wire, rng.randbytes(rng.randrange(40)) if rng.random() < 0.1 else with_changed_bytes(data, rng))
        wire, parts = rng.choice(plain)
        victim.read(wire, msgpack.packb(mutated(parts, rng)))
    assert victim.refused + victim.messages == FRAMES // SHARES
    assert victim.messages > FRAMES // SHARES // 50, "hardly anything got through: the fuzz says nothing of the node"
    assert victim.refused > FRAMES // SHARES // 4
