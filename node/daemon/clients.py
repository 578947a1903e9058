"""Serves client programs (``node.client``) that publish and subscribe at a node.

What they say to each other, as msgpack lists:

    client: ["publish", life, count, type, [[ts or None, {attribute: value}], ..]]
    node:   ["published", count, [[place, why], ..]]
    client: ["subscribe", id, text]                     node: ["subscribed", id, why not or None]
    node:   ["deliver", id, life, [[number, object], ..]]    client: ["got", id, life, number]
    client: ["unsubscribe", id]                         node: ["unsubscribed", id, why not or None]

Replayers of prepared traces say more (``protocol.messages.replay``, served by ``node.daemon.trace_replays``).

Publications are counted by the client; one that comes again, because the answer to it got lost, is recognised.
Deliveries are numbered by the node; one that comes again, because "got" was lost, is recognised by the client.
Both count from 1 in each life, theirs and not that of the other: a number says nothing without the life it belongs to.
"""

from __future__ import annotations

import asyncio
import logging
import reprlib
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgpack

from headwater.node.daemon.deliveries import SinkDeliveries
from headwater.node.daemon.journal_records import Publication, Requested
from headwater.node.daemon.trace_replays import WORDS, Replays
from headwater.node.edge.interfaces import Arrival
from headwater.node.edge.payloads import PayloadReader
from headwater.node.traces.times import wrong_for_the_clock
from headwater.protocol.edge import ClientFeed, ClientTo
from headwater.protocol.errors import HeadwaterError
from headwater.protocol.function_files import declared
from headwater.protocol.links import LinkSettings
from headwater.protocol.links.large_payloads import split
from headwater.protocol.messages import control
from headwater.protocol.messages.control import CLIENT, SinkConfig
from headwater.protocol.subscriptions import Subscription, parse_subscription

if TYPE_CHECKING:
    from headwater.node.daemon.daemon import NodeDaemon

CLIENTS_MAX: Final = 256  # programs connected to one node
PUBLICATIONS_MAX: Final = 64  # of one program that wait; what it sends beyond is refused
PUBLICATIONS_BYTES_MAX: Final = 64 << 20  # of all programs that wait
EVENTS_MAX: Final = 10_000  # in one publication: as many as ``node.client`` sends
WRONG_MAX: Final = 100  # events of a publication whose mistakes the answer describes
SUBSCRIPTIONS_MAX: Final = 64  # of one program
SINKS_MAX: Final = 1_000  # subscriptions of all programs at a node; they outlive their programs
TEXT_MAX: Final = 4_096  # characters of a subscription
LIFE_MAX: Final = 64  # characters that tell one life of a program from another
SENTENCE_MAX: Final = 300  # characters of an answer, which may repeat what was said
OUTSTANDING_MAX: Final = 5_000  # deliveries under way that the program has not read yet
DELIVERY_BYTES: Final = 256 << 10  # deliveries are joined up to about this size
OUTSTANDING_BYTES_MAX: Final = (
    4 << 20
)  # of deliveries under way that the program has not acknowledged; one may be larger
ANSWERS_MAX: Final = 1_000  # that a program has not acknowledged while it asks for more
ANSWERS_BYTES_MAX: Final = 8 << 20  # past both it is dropped
PLAN_EVERY_S: Final = 0.1  # how often a new node looks whether it has a plan, if a program waits for it
WAITING_MAX: Final = 100_000  # deliveries kept for a program that does not come for them; the oldest are dropped

log = logging.getLogger("headwater.clients")


class _Client:
    """One program that is connected."""

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.name = peer.removeprefix(CLIENT)
        self.publications: asyncio.Queue[bytes] = asyncio.Queue(PUBLICATIONS_MAX)
        self.publisher: asyncio.Task[None] | None = None
        self.published: set[int] = set()
        """The sources that it has published to."""
        self.texts: dict[int, str] = {}
        """What the client has subscribed to, or asks for, by the id that it uses."""
        self.wanted: dict[int, Subscription] = {}
        self.asking: set[asyncio.Task[None]] = set()
        """Subscriptions that wait until the node has a plan, and knows the types."""
        self.room = asyncio.Event()
        """Set whenever the client has acknowledged something."""
        self.streams: dict[int, tuple[int, SinkDeliveries, asyncio.Task[None]]] = {}
        """By the id that the client gives a subscription: the sink, its deliveries, and the task that sends them."""

    def stop(self) -> None:
        for task in (*self.asking, *(task for _, _, task in self.streams.values())):
            task.cancel()
        self.streams.clear()
        if self.publisher is not None:
            self.publisher.cancel()


class Clients:
    """All programs at one node."""

    def __init__(self, daemon: NodeDaemon) -> None:
        self._daemon = daemon
        self._replays = Replays(daemon)
        self._clients: dict[str, _Client] = {}
        self._requests: dict[int, tuple[str, int, str]] = {}
        """Requests to the coordinator: who asked, for which subscription, and the word of the answer."""
        self._request = 0
        self._waiting_bytes = 0
        """The size of all publications that wait."""
        self._up_s: dict[str, float] = {}
        """Since when each link is up."""

    def admit(self, peer: str) -> LinkSettings | None:
        hub = self._daemon.hub
        programs = [name for name in hub.peers() if name.startswith(CLIENT)]
        if len(programs) >= CLIENTS_MAX:
            deaf = [name for name in programs if not hub.is_up(name)]  # they have said hello and nothing else
            for name in deaf:
                self._forget(name)
            self._daemon.watching.reported({"refused_clients": len(deaf) or 1})
            if not deaf:
                return None
        # Of two programs under one name, what the one publishes would count as a duplicate of the other's.
        return LinkSettings(exclusive=True)

    def came(self, peer: str) -> None:
        self._up_s[peer] = self._daemon.loop.time()

    def publishers(self) -> frozenset[str]:
        """The programs that are connected and have published something."""
        return frozenset(client.name for client in self._clients.values() if client.published)

    def is_fed(self, source: int) -> bool:
        """Whether a program is connected that has published to this source."""
        return any(source in client.published for client in self._clients.values())

    def is_read(self, sink: int) -> bool:
        """Whether a program is connected that takes the deliveries of this sink."""
        return any(number == sink for client in self._clients.values() for number, _, _ in client.streams.values())

    def is_behind(self) -> bool:
        """Whether publications wait to be taken."""
        return any(not client.publications.empty() for client in self._clients.values())

    def is_back(self, name: str, settle_s: float) -> bool:
        """Whether a program is connected for so long that it has repeated what it had no answer to."""
        hub, peer = self._daemon.hub, CLIENT + name
        if peer not in hub.peers() or not hub.is_up(peer):
            return False
        return self._daemon.loop.time() - self._up_s.get(peer, float("inf")) >= settle_s

    def left(self, peer: str, *, said_so: bool = True) -> None:
        """The link is down. What was on its way to the program is forgotten: when it is back, both start over, and it
        asks again for what it wants. A program that has published and did not say that it leaves may hold more."""
        self._replays.left(peer)
        client = self._clients.pop(peer, None)
        if client is not None:
            if not said_so and client.published:
                self._daemon.hearing.program_left(client.name, client.published)
            client.stop()
            while not client.publications.empty():
                self._waiting_bytes -= len(client.publications.get_nowait())
        self._daemon.loop.call_soon(self._forget, peer)  # unless it is a reset, and the link is up again at once

    def _forget(self, peer: str) -> None:
        hub = self._daemon.hub
        if peer in hub.peers() and not hub.is_up(peer):
            hub.remove_peer(peer)
            self._up_s.pop(peer, None)

    def acknowledged(self, peer: str) -> None:
        client = self._clients.get(peer)
        if client is not None:
            client.room.set()

    def close(self) -> None:
        for peer in list(self._clients):
            self.left(peer)

    def received(self, peer: str, payloads: list[bytes]) -> None:
        client = self._clients.get(peer)
        if client is None:
            client = self._clients[peer] = _Client(peer)
        for payload in payloads:
            if self._is_deaf(peer):
                return
            try:
                self._said(client, payload)
            except HeadwaterError as error:
                self._refuse(client, str(error))
            except Exception as error:
                self._refuse(client, f"not something a client says: {error}")

    def _is_deaf(self, peer: str) -> bool:
        """Whether a program keeps asking without taking the answers. It is dropped then."""
        count, size = self._daemon.hub.queued(peer)
        if count <= ANSWERS_MAX or size <= ANSWERS_BYTES_MAX:
            return False
        log.warning("the program %s does not read its answers (%d bytes wait) and is disconnected", peer, size)
        self._daemon.watching.reported({"dropped_clients": 1})
        self._daemon.hub.remove_peer(peer)
        self.left(peer)
        return True

    def _refuse(self, client: _Client, why: str) -> None:
        self._daemon.watching.reported({"refused_requests": 1})
        self._send(client.peer, ["refused", why[:SENTENCE_MAX]])

    def _send(self, peer: str, message: list[Any]) -> None:
        if peer in self._clients:
            self._daemon.send(peer, [*split(msgpack.packb(message))])

    def _said(self, client: _Client, payload: bytes) -> None:
        match msgpack.unpackb(payload):
            case ["publish", str(life), int(), str(), list(items)] if len(life) <= LIFE_MAX:
                self._queue_publication(client, payload, len(items))
            case ["subscribe", int(number), str(text)]:
                self._begin_subscription(client, number, text)
            case ["unsubscribe", int(number)]:
                self._unsubscribe(client, number)
            case ["got", int(number), str(life), int(delivery)]:
                # What it has read of an earlier life says nothing about this one.
                if (stream := client.streams.get(number)) is not None and life == self._daemon.machine.life:
                    stream[1].confirm(delivery)
            case [str(word), *_] as message if word in WORDS:
                self._replays.said(client.peer, message, partial(self._send, client.peer))
            case message:
                raise HeadwaterError(f"not something a client says: {reprlib.repr(message)}")

    # ------------------------------------------------------------------------------------------------------ publishing

    def _queue_publication(self, client: _Client, payload: bytes, events: int) -> None:
        if client.publications.full():
            raise HeadwaterError(f"{PUBLICATIONS_MAX} publications wait already; wait for their answers")
        if events > EVENTS_MAX:
            raise HeadwaterError(f"{events} events at once; publish at most {EVENTS_MAX}")
        if self._waiting_bytes + len(payload) > PUBLICATIONS_BYTES_MAX:
            raise HeadwaterError("too much waits to be published already; wait for the answers")
        self._waiting_bytes += len(payload)
        client.publications.put_nowait(payload)  # as it came: packed, it takes far less memory
        if client.publisher is None:
            client.publisher = asyncio.create_task(self._publish(client))

    async def _publish(self, client: _Client) -> None:
        while True:
            payload = await client.publications.get()
            self._waiting_bytes -= len(payload)
            _, life, count, name, items = msgpack.unpackb(payload)
            await self._daemon.intake.may_publish()
            try:
                self._take(client, Publication(client.name, life, count), name, items)
            except HeadwaterError as error:
                self._send(client.peer, ["published", count, [[-1, str(error)[:SENTENCE_MAX]]]])
            except Exception as error:
                self._refuse(client, f"publication {count} cannot be read: {error}")

    def _take(self, client: _Client, publication: Publication, name: str, items: list[Any]) -> None:
        daemon = self._daemon
        machine = daemon.machine
        assert machine.config is not None
        sources = [s for s in machine.config.sources if s.source.type == name and isinstance(s.feed, ClientFeed)]
        if not sources:
            raise HeadwaterError(f"no source of {name} at {machine.name} takes events of programs (client: any)")
        client.published.add(sources[0].number)
        wrong: list[list[Any]] = []

        def answer() -> None:
            if client.peer in self._clients:
                self._send(client.peer, ["published", publication.number, wrong])

        if machine.has_taken(publication):
            daemon.watching.source(sources[0].number).repeated += len(items)
            daemon.when_durable(answer)
            return
        number = sources[0].number
        declared = machine.type_of_source(number)
        assert declared is not None
        reader = PayloadReader(declared, "msgpack")
        now_us = daemon.now_us()
        arrivals: list[Arrival] = []
        for place, item in enumerate(items):

            def refuse(raw: bytes, why: str, place: int = place) -> None:
                if len(wrong) < WRONG_MAX:
                    wrong.append([place, why[:SENTENCE_MAX]])
                daemon.malformed(number, raw, why)

            match item:
                case [int(ts), dict(values)] if why := wrong_for_the_clock(ts, now_us):
                    refuse(msgpack.packb(item), why)
                case [ts, dict(values)] if ts is None or (type(ts) is int and abs(ts) < 1 << 62):
                    arrivals += [arrival._replace(ts=ts) for arrival in reader.read(msgpack.packb(values), refuse)]
                case _:
                    refuse(msgpack.packb(item), "an event is a time (or none) and a mapping of attributes to values")
        daemon.intake.publish(number, arrivals, done=answer, publication=publication)

    # ----------------------------------------------------------------------------------------------------- subscribing

    def _begin_subscription(self, client: _Client, number: int, text: str) -> None:
        if len(text) > TEXT_MAX:
            raise HeadwaterError(f"a subscription of {len(text)} characters; {TEXT_MAX} are the most")
        if client.texts.get(number, text) != text:
            raise HeadwaterError(f"subscription {number} is {client.texts[number]!r}; give another number")
        if number not in client.texts and len(client.texts) >= SUBSCRIPTIONS_MAX:
            raise HeadwaterError(f"a program may have {SUBSCRIPTIONS_MAX} subscriptions at a node")
        client.texts[number] = text
        task = asyncio.create_task(self._subscribe(client, number, text))
        client.asking.add(task)
        task.add_done_callback(client.asking.discard)

    async def _subscribe(self, client: _Client, number: int, text: str) -> None:
        machine = self._daemon.machine
        while machine.config is None or machine.core is None or not machine.core.forest.shares:
            await asyncio.sleep(PLAN_EVERY_S)  # before it has a plan the node does not know the types
        share = machine.core.forest.shares[max(machine.core.forest.shares)].share
        try:
            wanted = parse_subscription(
                text,
                "subscription",
                [*machine.config.types, *share.composites],
                declared(machine.config.functions),
            )
        except HeadwaterError as error:
            client.texts.pop(number, None)
            self._send(client.peer, ["subscribed", number, str(error)[:SENTENCE_MAX]])
            return
        client.wanted[number] = wanted
        if number in client.streams:
            self._send(client.peer, ["subscribed", number, None])
        elif not self._start(client, number):
            if (why := self._too_many(client)) is not None:
                client.texts.pop(number, None)
                del client.wanted[number]
                self._daemon.watching.reported({"refused_requests": 1})
                self._send(client.peer, ["subscribed", number, why])
                return
            self._ask(client, number, "subscribed", control.SubscribeClient(self._number(), client.name, wanted))

    def _too_many(self, client: _Client) -> str | None:
        """Why no further subscription is asked for. Those of programs that are away count: they go on."""
        pending = sum(peer == client.peer for peer, _, _ in self._requests.values())
        if len(self._sinks(client.name)) + pending >= SUBSCRIPTIONS_MAX:
            return f"{client.name} has {SUBSCRIPTIONS_MAX} subscriptions here; give some up with unsubscribe"
        config = self._daemon.machine.config
        sinks = () if config is None else config.sinks
        if sum(isinstance(sink.destination, ClientTo) for sink in sinks) + len(self._requests) >= SINKS_MAX:
            return f"programs have {SINKS_MAX} subscriptions at this node; give some up with unsubscribe"
        return None

    def _unsubscribe(self, client: _Client, number: int) -> None:
        client.texts.pop(number, None)
        wanted = client.wanted.pop(number, None)
        if wanted is None:
            self._send(client.peer, ["unsubscribed", number, "there is no such subscription"])
            return
        stream = client.streams.pop(number, None)
        if stream is not None:
            stream[2].cancel()
        self._ask(client, number, "unsubscribed", control.UnsubscribeClient(self._number(), client.name, wanted))

    def _number(self) -> int:
        """Numbers of requests grow over restarts, too."""
        self._request = max(self._request + 1, self._daemon.now_us())
        return self._request

    def _ask(self, client: _Client, number: int, word: str, request: control.Control) -> None:
        self._requests[self._request] = (client.peer, number, word)
        self._daemon.apply(Requested(self._daemon.now_us(), control.encode(request)))

    def answered(self, answer: control.Answer) -> None:
        peer, number, word = self._requests.pop(answer.request, ("", 0, ""))
        client = self._clients.get(peer)
        if client is None:
            return
        if answer.refused is not None or word == "unsubscribed":
            client.texts.pop(number, None)
            client.wanted.pop(number, None)
            self._send(peer, [word, number, answer.refused])
        elif not self._start(client, number):
            # It holds, and this node is about to hear of the plan that it belongs to.
            self._daemon.loop.call_later(PLAN_EVERY_S, self.follow)

    def follow(self) -> None:
        """The configuration is new: sinks of clients may be there now."""
        for client in self._clients.values():
            for number in client.wanted:
                self._start(client, number)

    def _start(self, client: _Client, number: int) -> bool:
        """Whether deliveries of the subscription go to the client from now on."""
        if number in client.streams:
            return True
        sink = next((s for s in self._sinks(client.name) if s.subscription == client.wanted[number]), None)
        if sink is None:
            return False
        deliveries = SinkDeliveries(self._daemon, sink.number)
        task = asyncio.create_task(self._deliver(client, number, deliveries))
        client.streams[number] = (sink.number, deliveries, task)
        self._send(client.peer, ["subscribed", number, None])
        return True

    def _sinks(self, name: str) -> list[SinkConfig]:
        """Those of a program that have not ended. A node stays configured with the others until they have drained."""
        machine = self._daemon.machine
        if machine.config is None or machine.core is None or not machine.core.forest.shares:
            return []
        share = machine.core.forest.shares[max(machine.core.forest.shares)].share
        live = {sink.number for sink in share.sinks if sink.until_us is None}
        return [sink for sink in machine.config.sinks if sink.destination == ClientTo(name) and sink.number in live]

    async def _deliver(self, client: _Client, number: int, deliveries: SinkDeliveries) -> None:
        """Send deliveries; while the program reads slowly, the rest waits with the sink."""
        hub = self._daemon.hub
        while True:
            for group in _joined(await deliveries.next()):
                await deliveries.read(group[0][0] - OUTSTANDING_MAX)
                while hub.queued(client.peer)[1] > OUTSTANDING_BYTES_MAX:
                    client.room.clear()
                    await client.room.wait()
                self._send(client.peer, ["deliver", number, self._daemon.machine.life, group])

    def released(self, sink: int, count: int) -> None:
        """Deliveries are durable. For programs that never come for them only the latest are kept."""
        for client in self._clients.values():
            for number, deliveries, _ in client.streams.values():
                if number == sink:
                    deliveries.released(count)
        state = self._daemon.machine.sinks[sink]
        if len(state.waiting) > WAITING_MAX:
            dropped = state.count - WAITING_MAX
            self._daemon.watching.reported({"dropped_deliveries": dropped - state.confirmed})
            log.warning("%d deliveries of sink %d wait for an absent program; the older are dropped", WAITING_MAX, sink)
            self._daemon.drop_deliveries(sink, dropped)


def _joined(deliveries: list[tuple[int, dict[str, Any]]]) -> Iterator[list[tuple[int, dict[str, Any]]]]:
    """Deliveries in groups that are not too large."""
    group: list[tuple[int, dict[str, Any]]] = []
    size = 0
    for delivery in deliveries:
        packed = len(msgpack.packb(delivery))
        if group and size + packed > DELIVERY_BYTES:
            yield group
            group, size = [], 0
        group.append(delivery)
        size += packed
    yield group
