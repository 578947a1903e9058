"""Frames of strangers, and of neighbours that err or lie.

Random bytes, good frames with a few bytes or parts changed, and messages of all kinds that look well and say something
else than they should: other numbers, names, times and values, things left out, doubled or in another order. Whatever
comes, a frame is a message or a CodecError, no message stops a node, and what a node does not believe it counts.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import cache
from typing import Any, get_args

import msgpack
import pytest

from headwater.deploy.simulation.faults import Faults
from headwater.deploy.simulation.simulator import Simulation
from headwater.node.core import NodeCore, NodeSettings
from headwater.node.effects import Born, Effect, Input, MessageReceived, Report, Send, TimerFired
from headwater.node.remote.encoding import encode_elements
from headwater.protocol.events import Event
from headwater.protocol.messages.neighbour import (
    Batch,
    GraphLaid,
    Message,
    Notify,
    ReverseMark,
    Run,
    SettledHere,
    TreeOver,
)
from headwater.protocol.messages.remote import ElementAnswer, ElementRefusal, ElementRequest
from headwater.protocol.messages.trees import LinkAgain, TreeNack
from headwater.protocol.network import Link, Network, Sink, Source
from headwater.protocol.subscriptions import parse_subscription
from headwater.protocol.wire.link_wire import LinkWire
from headwater.protocol.wire.messages import Wire
from headwater.protocol.wire.rule_encoding import CodecError
from tests.kit.builders import TYPES, aggregate, chain, rule
from tests.links.test_wire import ALL, composites
from tests.node.test_core import CHAINED, LAST, PAIR, ANode, body, event, reports

FRAMES = 100_000
SHARES = 10
"""As many tests, so that several processes can share them."""
LIFETIME = (
    400  # frames until the nodes are again as they were, so that what is said about their streams means something
)
BIRTHS = 150

STRATEGIES = ("st-pp", "mt-pp", "mt")
SUM = rule(chain("A a", aggregate("n", "sum", "B b", "v", within=100, of="a")), name="sum", emits="W", out={"n": "$n"})
WANTED = (("top", "X(v > 0)"), ("bottom", "Y"), ("middle", "Z"), ("bottom", "A(v = 1)"), ("top", "W"))
ATOMS: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    7,
    1 << 63,
    -(1 << 63),
    0.5,
    float("inf"),
    float("nan"),
    "",
    "A",
    b"",
    b"x",
    [],
    {},
)
WORDS = ("A", "B", "C", "X", "Y", "Z", "pair", "last", "top", "middle", "bottom", "a", "b", "", "v", "w", "and", "<")
TIMES = (0.5, float("inf"), float("-inf"), float("nan"), 1700.0)

# ----------------------------------------------------------------------------------------------------- changed messages


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
    return [plain] if rng.random() < 0.1 else rng.choice(ATOMS)


def misled(plain: Any, rng: random.Random) -> Any:
    """The same with one thing, anywhere inside, changed into another of its kind, left out, doubled or moved."""
    if isinstance(plain, bytes) and plain:
        return msgpack.packb(misled(msgpack.unpackb(plain), rng))
    if isinstance(plain, list) and plain:
        position = rng.randrange(len(plain))
        choice = rng.random()
        if choice < 0.04:
            return plain[:position] + plain[position + 1 :]
        if choice < 0.08:
            return [*plain[:position], plain[position], *plain[position:]]
        if choice < 0.1:
            return rng.sample(plain, len(plain))
        return [*plain[:position], misled(plain[position], rng), *plain[position + 1 :]]
    if isinstance(plain, bool):
        return not plain
    if isinstance(plain, int):
        other = rng.choice((plain - 1, plain + 1, rng.randrange(8), -plain, plain * 1000, 1 << 61))
        return max(-(1 << 63), min((1 << 64) - 1, other))
    if isinstance(plain, float):
        return rng.choice((*TIMES, plain + 1))
    if isinstance(plain, str):
        return rng.choice(WORDS)
    return rng.choice(ATOMS)


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


def changed(data: bytes, rng: random.Random) -> bytes:
    choice = rng.random()
    if choice < 0.05:
        return rng.randbytes(rng.randrange(40))
    if choice < 0.2:
        return with_changed_bytes(data, rng)
    plain = msgpack.unpackb(data)
    if choice < 0.35:
        return bytes(msgpack.packb(mutated(plain, rng)))
    for _ in range(rng.choice((0, 1, 1, 1, 2))):
        plain = misled(plain, rng)
    return bytes(msgpack.packb(plain))


# ----------------------------------------------------------------------------------------------------- a tree of three


def network() -> Network:
    return Network(
        types=tuple(TYPES[name] for name in "ABC"),
        nodes=("bottom", "middle", "top"),
        links=(Link("bottom", "middle", delay_us=10), Link("middle", "top", delay_us=10)),
        sources=tuple(Source(*each) for each in zip(("bottom", "middle", "top") * 3, "BACCBABCA", strict=True)),
        sinks=tuple(
            Sink(node, parse_subscription(text))
            for node, text in (
                ("top", "X(v > 0)"),
                ("bottom", "Y"),
                ("middle", "Z"),
                ("bottom", "A(v = 1)"),
                ("top", "W"),
            )
        ),
        rules=(PAIR, LAST, CHAINED, SUM),
    )


class Recorded:
    """Three nodes in the middle of their work, and what they have said to each other so far."""

    def __init__(self, strategy: str) -> None:
        settings = NodeSettings(tick_least_us=20, review_us=40, restless=True)
        sim = Simulation(network(), strategy, 1, Faults(), settings=settings)
        said: dict[tuple[str, str], list[Message]] = defaultdict(list)
        for name, core in sim.nodes.items():
            core.handle = self._listener(name, core, said)  # type: ignore[method-assign, assignment]
        sim.set_up(0)
        rng = random.Random(1)
        births = []
        for number in range(BIRTHS):
            at_us, source = sim.now_us + 10 * number, rng.randrange(len(sim.network.sources))
            where = sim.network.sources[source]
            values = {"id": number, "v": rng.randrange(3), "w": rng.choice((None, 0.5)), "s": rng.choice((None, "s"))}
            births.append((at_us, source, Event(TYPES[where.type], at_us, where.node, number, values)))
        sim.run(births, until_us=births[-1][0])
        for core in sim.nodes.values():
            del core.handle
        self.now_us = sim.now_us
        self.sources = sim.network.sources
        self.saved = {name: core.save() for name, core in sim.nodes.items()}
        self.wire = Wire(ALL, sim.network.rules)
        self.frames: dict[tuple[str, str], dict[str, list[bytes]]] = {}
        for pair, messages in said.items():
            kinds = self.frames[pair] = defaultdict(list)
            for message in [*messages, *self._unsaid(pair[1])]:
                kinds[type(message).__name__].append(self.wire.encode(message))

    @staticmethod
    def _listener(
        name: str, core: NodeCore, said: dict[tuple[str, str], list[Message]]
    ) -> Callable[[Input, int], list[Effect]]:
        def handle(received: Input, now_us: int) -> list[Effect]:
            effects = NodeCore.handle(core, received, now_us)
            for effect in effects:
                if isinstance(effect, Send):
                    said[name, effect.neighbour].append(effect.message)
            return effects

        return handle

    @staticmethod
    def _unsaid(tree: str) -> list[Message]:
        """What no node says while all goes well."""
        found = (*composites(), (50, "top", 1, TYPES["A"], 1, 1, None, None))
        of_trees = TreeOver(tree, 1), TreeNack(tree, 1, 20), SettledHere(tree, 1, 50.0), Notify(tree, 1, found)
        places = encode_elements([("limits", ("acme",), None)])
        remote = ElementRequest(places), ElementAnswer(places), ElementRefusal(places)
        return [
            *of_trees,
            *remote,
            GraphLaid(tree, 1),
            LinkAgain(1),
            *(ReverseMark(number, 1000.0) for number in range(1, 8)),
        ]


@cache
def recorded(strategy: str) -> Recorded:
    return Recorded(strategy)


def test_all_kinds_of_messages_are_among_those_that_are_changed() -> None:
    kinds = {kind for each in STRATEGIES for of_link in recorded(each).frames.values() for kind in of_link}
    assert kinds == {kind.__name__ for kind in get_args(Message)}


@pytest.mark.parametrize("share", range(SHARES))
def test_no_frame_stops_a_node(share: int) -> None:
    rng = random.Random(share)
    before = recorded(STRATEGIES[share % len(STRATEGIES)])
    links = {pair: LinkWire(ALL) for pair in before.frames}
    read: Counter[str] = Counter()
    counters: Counter[str] = Counter()
    nodes: dict[str, NodeCore] = {}
    now_us = 0
    for number in range(FRAMES // SHARES):
        if number % LIFETIME == 0:
            nodes.clear()
            now_us = before.now_us
        now_us += rng.choice((1, 1, 50))
        pair = rng.choice(sorted(before.frames))
        of_link = before.frames[pair]
        kind = "Batch" if "Batch" in of_link and rng.random() < 0.3 else rng.choice(sorted(of_link))
        data = changed(rng.choice(of_link[kind]), rng)
        try:
            message = (before.wire if rng.random() < 0.9 else links[pair]).decode(data)
        except CodecError:
            read["refused"] += 1
            continue
        read[type(message).__name__] += 1
        if pair[1] not in nodes:
            nodes[pair[1]] = NodeCore.restored(before.saved[pair[1]])
        received: list[Input] = [MessageReceived(pair[0], message)]
        if number % 20 == 0:
            source, where = rng.choice([each for each in enumerate(before.sources) if each[1].node == pair[1]])
            row = (now_us, pair[1], now_us, TYPES[where.type], number, rng.randrange(3), None, None)
            received += [Born(source, (Event.from_row(row),)), TimerFired("tick")]
        for each in received:
            for effect in nodes[pair[1]].handle(each, now_us):
                if isinstance(effect, Send):
                    before.wire.encode(effect.message)
                elif isinstance(effect, Report):
                    counters[effect.counter] += effect.count
        if isinstance(message, TreeOver):  # a tree may be gone now
            del nodes[pair[1]]
    assert read.total() == FRAMES // SHARES
    assert read["refused"] < read.total() * 0.8, "hardly anything got through: the fuzz says nothing of the nodes"
    assert read["refused"] > read.total() * 0.2
    for counter in ("unknown_tree", "unknown_stream", "contradicting_watermarks"):
        assert counters[counter], f"{counter}: {counters}"
    assert counters["foreign_events"] + counters["contradicting_events"], counters


# ----------------------------------------------------------------------------------------------- neighbours that lie


def test_an_event_that_is_told_in_two_ways_is_believed_as_it_was_told_first() -> None:
    node = ANode(PAIR, parent=None, children=("left", "right"), sources="A", sinks=("X",))
    node.child_says("left", "B")
    node.child_says("right", "B")
    streams = {inlet.child: inlet.number for inlet in node.core.inlets.values()}
    first = event("B", 30, 1, "far", 5)
    other = Event(TYPES["B"], 30, "far", 5, {"id": 30, "v": 1, "w": 0.5})

    def told_by(child: str, told: Event) -> list[str]:
        return reports(node.hears(child, batch(body(told, streams[child])), at_us=40))

    assert told_by("left", first) == []
    assert told_by("left", first) == told_by("right", first) == [], "the same again is not a contradiction"
    assert told_by("left", other) == told_by("right", other) == ["contradicting_events"]
    (found,) = [row for effect in node.bears(event("A", 60, 1), at_us=60) for row in getattr(effect, "rows", ())]
    assert found[3].events[-1] == ("b", first)


def test_an_event_that_was_never_declared_so_is_foreign() -> None:
    node = ANode(PAIR, CHAINED, parent=None, children=("left",), sources="A", sinks=("X",))
    node.child_says("left", "BC")
    number = next(n for n, inlet in node.core.inlets.items() if inlet.shapes.foreign([tuple(event("B", 1))]) == 0)
    assert reports(node.hears("left", batch(body(event("C", 30), number)), at_us=40)) == ["foreign_events"]
    strange = Event("B", 30, "far", 6, {"id": "text"})
    assert reports(node.hears("left", batch(body(strange, number)), at_us=40)) == ["foreign_events"]
    assert reports(node.hears("left", batch(body(event("B", 31), number)), at_us=40)) == []


def batch(*runs: Run) -> Batch:
    return Batch(runs, ())
