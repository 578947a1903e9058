"""A neighbour that lies: well-formed messages in a good session, and none of them true. The node survives, and when the
real neighbour is back the network heals."""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

import msgpack
import pytest

from headwater.protocol.links import Hub, LinkSettings
from headwater.protocol.messages.control import COORDINATOR
from headwater.protocol.messages.neighbour import (
    Advertise,
    Awakening,
    Batch,
    Deploy,
    FetchRules,
    Filter,
    Message,
    Notify,
    ReverseMark,
    RulesFetched,
    Run,
    SetMode,
    Settled,
    SettledHere,
    Subscribe,
    TreeOver,
    TreeReady,
    TreeStart,
    Want,
    Watermark,
)
from headwater.protocol.messages.trees import CreateTree, LinkAgain, TreeAck, TreeNack
from headwater.protocol.subscriptions import parse_subscription
from headwater.protocol.wire.link_wire import LinkWire
from tests.kit.patience import patiently
from tests.kit.processes import Cluster, until
from tests.kit.strangers import EVERYTHING, NODES, SEED, TEMP, Load, Memory, Rogue, address, assert_all_found, cluster

# -- a neighbour that lies ---------------------------------------------------------------------------------------------


def lies(rng: random.Random, count: int) -> Iterator[Message]:
    """Well-formed messages that no honest node would send."""
    huge = 1 << 61
    for _ in range(count):
        tree = rng.choice((*NODES, "nowhere", f"tree {rng.random()}"))
        epoch = rng.choice((0, 1, 2, 3, -1, huge))
        number = rng.choice((0, 1, 2, 3, 77, -5, huge))
        ts = rng.choice((0, -huge, huge, time.time_ns() // 1000, 5))
        about = (tree, epoch, rng.choice((0, 10, huge)))
        serial = rng.randrange(9)
        rows = [(ts, "p3", each, TEMP, rng.choice((None, "A")), 1.5) for each in (1, 1, 2, huge)]
        names = tuple((row[1], row[2]) for row in rows)
        everything = tuple(parse_subscription(text, "lie") for text in EVERYTHING)
        yield rng.choice(
            (
                CreateTree(*about),
                TreeAck(*about),
                TreeNack(*about),
                TreeReady(tree, epoch, rng.choice((0, 1, 2, huge)), ts, ts),
                TreeStart(tree, epoch),
                TreeOver(tree, epoch),
                Settled(tree, epoch, ts, ts),
                SettledHere(tree, epoch, ts),
                Advertise(tree, epoch, rng.choice((("Smoke",), ("Smoke", "Temp"), ("Never",), ()))),
                Subscribe(tree, epoch, everything),
                FetchRules(tree, epoch, "Fire"),
                RulesFetched(tree, epoch, "Fire", ()),
                Deploy(tree, epoch, number, Filter(rng.choice(("Temp", "Never")))),
                Want(number, ts),
                Awakening(number, serial, -huge, huge),
                ReverseMark(number, ts),
                SetMode(number, rng.random() < 0.5, serial),
                Batch((Run(names, tuple(rows), (number, 1)), Run(names, None, (number,))), (), None),
                Batch((), (Watermark(number, ts), Watermark(1, ts), Watermark(1, -ts)), ts),
                Notify(tree, epoch, tuple(rows)),
                LinkAgain(serial),
            )
        )


class Liar(Rogue):
    """A neighbour that is not who it says it is; it acknowledges everything."""

    def admit(self, name: str, key_name: str | None) -> LinkSettings | None:
        return None


@pytest.mark.parametrize("liar", ["p1", "p3"])
def test_a_neighbour_that_lies_is_survived_and_forgotten(liar: str, tmp_path: Path) -> None:
    rng = random.Random(SEED)
    print(f"seed {SEED}")

    async def lie(at: Cluster) -> None:
        found = Liar()
        found.hub = Hub(liar, secrets.token_hex(8), "test", found)
        dials = liar == "p1"
        await found.hub.start(None if dials else address(at, liar))
        found.hub.add_peer("p2", dial=address(at, "p2") if dials else None)
        async with patiently():
            await found._up.wait()
        wire = LinkWire(at.network.types)
        for _ in range(10):
            payloads = [wire.encode(message) for message in lies(rng, 300)]
            payloads += [rng.randbytes(20), b"\xc1\x01half", b"\xc1\x07", msgpack.packb([7, [[1, "Temp", []]], []])]
            rng.shuffle(payloads)
            found.node = "p2"
            await found.say(payloads)
            for _ in range(20):
                found.hub.whisper("p2", msgpack.packb([f"node {rng.random()}", 1 << 60, True]))
        await found.hub.close()

    with cluster(tmp_path) as at:
        with Load(at, "before") as before:
            before.goes_on()
        assert_all_found(at, before.areas)
        at.kill(liar)
        memory = Memory(at, "p2")
        asyncio.run(lie(at))
        assert not at.dead()
        memory.assert_bounded()
        reports = at.reports_of("p2")
        assert reports.get("malformed_messages", 0) >= 10
        assert reports.get("unknown_tree", 0) + reports.get("unknown_stream", 0) > 10
        assert "(a bug)" not in at.said("p2"), at.said("p2")[-5000:]
        at.start(liar)
        until(lambda: not at.missing(), "the network heals", at, at.missing)
        with Load(at, "after") as after:
            after.goes_on()
        assert_all_found(at, [*before.areas, *after.areas])
        assert "(a bug)" not in "".join(map(at.said, (*NODES, COORDINATOR)))
