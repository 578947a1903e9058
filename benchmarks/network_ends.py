"""Scripted nodes: one that feeds another as fast as that one takes it, and one that only takes in.

Both are real nodes: they register, take part in building the trees, and speak through the same links. When a
measurement begins,

- the *feeder* has its events born beforehand, by its own core, and keeps the payloads that follow from them. On the
  word "go" they leave through its hub as fast as acknowledgements allow. So at that time it only sends bytes;
- the *taker* confirms what comes at once and keeps it; what it is, and whether all of it is there, is looked at
  afterwards.

So the node between them, or behind the feeder, is the only one with work to do.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.network_kit import heard
from headwater.node import effects
from headwater.node.daemon.daemon import NodeDaemon
from headwater.protocol.events import Event
from headwater.protocol.messages.neighbour import Batch, Notify

UNDER_WAY_BYTES = 8 << 20  # handed to the hub: twice what a link lets be under way, so that it never runs dry
SLICE = 50  # payloads handed over at once
SHOWN = 200  # payloads that are told of, for others to send them, too

Rows = Sequence[tuple[Any, ...]]


async def feeder(daemon: NodeDaemon, pipe: Connection) -> None:
    """Hears (peer, make, arguments), where ``make(*arguments)`` gives frames as lists of (source, rows, watermark);
    then "go"; any number of times.

    Says how many events there are, with the first payloads; then when it began, and when all was acknowledged.
    """
    while True:
        peer, make, arguments = await heard(pipe)
        held = _Held(daemon, peer)
        payloads, events = [], 0
        for number, frame in enumerate(make(*arguments)):
            payloads.append(_born(daemon, peer, frame))
            events += sum(len(rows) for _, rows, _ in frame)
            if number % SLICE == 0:
                await asyncio.sleep(0)  # a node that is silent for too long counts as dead
        pipe.send((events, payloads[:SHOWN]))
        await heard(pipe)
        began_s = time.monotonic()
        hub = daemon.hub
        place = 0
        while place < len(payloads):
            while place < len(payloads) and hub.queued(peer)[1] < UNDER_WAY_BYTES:
                hub.send(peer, payloads[place : place + SLICE])
                place += SLICE
            await asyncio.sleep(0.001)
        held.give_free()
        while hub.queued(peer)[0]:
            await asyncio.sleep(0.002)
        pipe.send((began_s, time.monotonic()))


class _Held:
    """What the feeder itself has to say to the peer meanwhile waits until the payloads before it have left."""

    def __init__(self, daemon: NodeDaemon, peer: str) -> None:
        self._daemon, self._peer = daemon, peer
        self._waiting: list[bytes] = []
        self._note = daemon._note
        daemon._note = self._noted  # type: ignore[method-assign]

    def _noted(self, out: Any) -> None:
        self._waiting += out.sends.pop(self._peer, ())
        self._note(out)

    def give_free(self) -> None:
        self._daemon._note = self._note  # type: ignore[method-assign]
        self._daemon.hub.send(self._peer, self._waiting)


def _born(daemon: NodeDaemon, peer: str, frame: Any) -> bytes:
    """The events of one frame are born; the payload for the peer. Several types are joined to one batch."""
    machine, core = daemon.machine, daemon.machine.core
    assert core is not None
    now_us = daemon.now_us()
    runs: list[Any] = []
    watermarks: dict[int, Any] = {}
    floor_us = None
    for source, rows, watermark in frame:
        declared = machine.type_of_source(source)
        events = tuple(Event.from_row((ts, node, seq, declared, *values)) for ts, node, seq, *values in rows)
        for effect in core.handle(effects.Born(source, events, watermark), now_us):
            if isinstance(effect, effects.Send) and effect.neighbour == peer:
                message = effect.message
                assert isinstance(message, Batch), message
                runs += message.runs
                watermarks.update((watermark.number, watermark) for watermark in message.watermarks)
                floor_us = message.floor_us if message.floor_us is not None else floor_us
    assert sum(len(run.identities) for run in runs) == sum(len(rows) for _, rows, _ in frame), "events were late"
    link = machine.links[peer]
    assert link.wire is not None
    payload = link.wire.encode(Batch(tuple(runs), tuple(watermarks.values()), floor_us))
    link.sent(payload)
    return payload


async def taker(daemon: NodeDaemon, pipe: Connection) -> None:
    """Hears ("take", peer), then "taken", any number of times; says "ready", and then when the last events came, how
    many there were, and how many of them were different ones."""
    received = daemon.received
    taken: list[tuple[float, list[bytes]]] = []
    from_peer = ""

    def take(peer: str, last_seq: int, payloads: list[bytes]) -> None:
        if peer != from_peer:
            received(peer, last_seq, payloads)
            return
        taken.append((time.monotonic(), payloads))
        daemon.machine.links[peer].received(last_seq, payloads)
        daemon.hub.confirm(peer, last_seq)

    daemon.received = take  # type: ignore[method-assign]
    while True:
        _, from_peer = await heard(pipe)
        taken.clear()
        pipe.send("ready")
        while await heard(pipe) == "how many":
            pipe.send(len(taken))
        last_s, events, seqs = 0.0, 0, set()
        link = daemon.machine.links[from_peer]
        assert link.wire is not None
        for at_s, payloads in taken:
            for payload in payloads:
                for row in _rows(link.wire.decode(payload)):
                    events += 1
                    seqs.add(row[1:3])
                    last_s = at_s
        from_peer = ""
        pipe.send((last_s, events, len(seqs)))


def _rows(message: Any) -> Rows:
    if isinstance(message, Notify):
        return message.rows
    if isinstance(message, Batch):
        return [row for run in message.runs for row in run.rows or ()]
    return ()
