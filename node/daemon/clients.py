"""Programs that publish and subscribe at a node, through ``node.client``.

What they say to each other, as msgpack lists:

    client: ["publish", count, type, [[ts or None, {attribute: value}], ..]]
    node:   ["published", count, [[place, why], ..]]
    client: ["subscribe", id, text]               node: ["subscribed", id, why not or None]
    node:   ["deliver", id, [[number, object], ..]]    client: ["got", id, number]
    client: ["unsubscribe", id]                   node: ["unsubscribed", id, why not or None]

Publications are counted by the client; one that comes again, because the answer to it got lost, is recognised.
Deliveries are numbered by the node; one that comes again, because "got" was lost, is recognised by the client.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

import msgpack

from node.daemon.outflow import SinkDeliveries
from node.daemon.records import Requested
from node.edge.interfaces import Arrival
from node.edge.payloads import PayloadReader
from protocol import control
from protocol.control import CLIENT, SinkConfig
from protocol.edge import ClientFeed, ClientTo
from protocol.errors import HeadwaterError
from protocol.links import LinkSettings
from protocol.subscriptions import Subscription, parse_subscription

if TYPE_CHECKING:
    from node.daemon.daemon import NodeDaemon

CLIENTS_MAX: Final = 256  # programs connected to one node
PUBLICATIONS_MAX: Final = 64  # of one program that wait; a program that sends more at once is cut off
SUBSCRIPTIONS_MAX: Final = 64  # of one program
OUTSTANDING_MAX: Final = 5_000  # deliveries under way that the program has not read yet
PLAN_EVERY_S: Final = 0.1  # how often a new node looks whether it has a plan, if somebody waits for it
WAITING_MAX: Final = 100_000  # deliveries kept for a program that does not come for them; the oldest are dropped

log = logging.getLogger("headwater.clients")


class _Client:
    """One program that is connected."""

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.name = peer.removeprefix(CLIENT)
        self.publications: asyncio.Queue[list[Any]] = asyncio.Queue(PUBLICATIONS_MAX)
        self.publisher: asyncio.Task[None] | None = None
        self.wanted: dict[int, Subscription] = {}
        self.asking: set[asyncio.Task[None]] = set()
        """Subscriptions that wait for the node to know what there is."""
        self.streams: dict[int, tuple[int, SinkDeliveries, asyncio.Task[None]]] = {}
        """By the client's id of a subscription: the sink, what it gets, and who sends it."""

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
        self._clients: dict[str, _Client] = {}
        self._requests: dict[int, tuple[str, int, str]] = {}
        """Requests to the coordinator: who asked, for which subscription, and the word of the answer."""
        self._request = 0

    def admit(self, peer: str) -> LinkSettings | None:
        if peer not in self._clients and len(self._clients) >= CLIENTS_MAX:
            self._daemon.watching.reported({"refused_clients": 1})
            return None
        return LinkSettings()

    def left(self, peer: str) -> None:
        found = self._clients.pop(peer, None)
        if found is not None:
            found.stop()

    def close(self) -> None:
        for peer in list(self._clients):
            self.left(peer)

    def received(self, peer: str, payloads: list[bytes]) -> None:
        client = self._clients.get(peer)
        if client is None:
            client = self._clients[peer] = _Client(peer)
        for payload in payloads:
            try:
                self._said(client, msgpack.unpackb(payload))
            except HeadwaterError as error:
                self._refuse(client, str(error))
            except Exception as error:
                self._refuse(client, f"not something a client says: {error}")

    def _refuse(self, client: _Client, why: str) -> None:
        self._daemon.watching.reported({"refused_requests": 1})
        self._send(client.peer, ["refused", why])

    def _send(self, peer: str, said: list[Any]) -> None:
        self._daemon.send(peer, [msgpack.packb(said)])

    def _said(self, client: _Client, said: Any) -> None:
        match said:
            case ["publish", int(), str(), list()]:
                if client.publications.full():
                    raise HeadwaterError(f"{PUBLICATIONS_MAX} publications wait already; wait for their answers")
                client.publications.put_nowait(said)
                if client.publisher is None:
                    client.publisher = asyncio.create_task(self._publish(client))
            case ["subscribe", int(number), str(text)]:
                if len(client.wanted) + len(client.asking) >= SUBSCRIPTIONS_MAX:
                    raise HeadwaterError(f"a program may have {SUBSCRIPTIONS_MAX} subscriptions at a node")
                task = asyncio.create_task(self._subscribe(client, number, text))
                client.asking.add(task)
                task.add_done_callback(client.asking.discard)
            case ["unsubscribe", int(number)]:
                self._unsubscribe(client, number)
            case ["got", int(number), int(delivery)]:
                if (stream := client.streams.get(number)) is not None:
                    stream[1].confirm(delivery)
            case _:
                raise HeadwaterError(f"not something a client says: {str(said)[:80]}")

    # ------------------------------------------------------------------------------------------------------ publishing

    async def _publish(self, client: _Client) -> None:
        while True:
            _, count, name, items = await client.publications.get()
            await self._daemon.intake.may_publish()
            try:
                self._take(client, count, name, items)
            except HeadwaterError as error:
                self._send(client.peer, ["published", count, [[-1, str(error)]]])

    def _take(self, client: _Client, count: int, name: str, items: list[Any]) -> None:
        daemon = self._daemon
        machine = daemon.machine
        assert machine.config is not None
        sources = [s for s in machine.config.sources if s.source.type == name and isinstance(s.feed, ClientFeed)]
        if not sources:
            raise HeadwaterError(f"no source of {name} at {machine.name} takes events of programs (client: any)")
        wrong: list[list[Any]] = []

        def answer() -> None:
            if client.peer in self._clients:
                self._send(client.peer, ["published", count, wrong])

        if count <= machine.publications.get(client.name, 0):
            daemon.watching.source(sources[0].number).repeated += len(items)
            daemon.when_durable(answer)
            return
        number = sources[0].number
        declared = machine.type_of_source(number)
        assert declared is not None
        reader = PayloadReader(declared, "msgpack")
        arrivals: list[Arrival] = []
        for place, item in enumerate(items):

            def refuse(raw: bytes, why: str, place: int = place) -> None:
                wrong.append([place, why])
                daemon.malformed(number, raw, why)

            match item:
                case [ts, dict(values)] if ts is None or (type(ts) is int and abs(ts) < 1 << 62):
                    arrivals += [each._replace(ts=ts) for each in reader.read(msgpack.packb(values), refuse)]
                case _:
                    refuse(msgpack.packb(item), "an event is a time (or none) and a mapping of attributes to values")
        daemon.intake.publish(number, arrivals, done=answer, publisher=client.name, count=count)

    # ----------------------------------------------------------------------------------------------------- subscribing

    async def _subscribe(self, client: _Client, number: int, text: str) -> None:
        machine = self._daemon.machine
        while machine.config is None or machine.core is None or not machine.core.forest.shares:
            await asyncio.sleep(PLAN_EVERY_S)  # before it has a plan the node does not know what there is
        share = machine.core.forest.shares[max(machine.core.forest.shares)].share
        try:
            wanted = parse_subscription(text, "subscription", [*machine.config.types, *share.composites])
        except HeadwaterError as error:
            self._send(client.peer, ["subscribed", number, str(error)])
            return
        client.wanted[number] = wanted
        if not self._start(client, number):
            self._ask(client, number, "subscribed", control.SubscribeClient(self._number(), client.name, wanted))

    def _unsubscribe(self, client: _Client, number: int) -> None:
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

    def _ask(self, client: _Client, number: int, word: str, asked: control.Control) -> None:
        self._requests[self._request] = (client.peer, number, word)
        self._daemon.apply(Requested(self._daemon.now_us(), control.encode(asked)))

    def answered(self, answer: control.Answer) -> None:
        peer, number, word = self._requests.pop(answer.request, ("", 0, ""))
        client = self._clients.get(peer)
        if client is None:
            return
        if answer.refused is not None or word == "unsubscribed":
            client.wanted.pop(number, None)
            self._send(peer, [word, number, answer.refused])
        else:
            self._start(client, number)

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
        task = asyncio.create_task(self._deliver(client.peer, number, deliveries))
        client.streams[number] = (sink.number, deliveries, task)
        self._send(client.peer, ["subscribed", number, None])
        return True

    def _sinks(self, name: str) -> list[SinkConfig]:
        config = self._daemon.machine.config
        found = config.sinks if config is not None else ()
        return [sink for sink in found if isinstance(sink.destination, ClientTo) and sink.destination.name == name]

    async def _deliver(self, peer: str, number: int, deliveries: SinkDeliveries) -> None:
        while True:
            found = await deliveries.next()
            await deliveries.read(found[0][0] - OUTSTANDING_MAX)  # of a slow reader: what follows waits with the sink
            self._send(peer, ["deliver", number, [list(each) for each in found]])

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
            log.warning("a program has not come for %d deliveries of sink %d; they are dropped", WAITING_MAX, sink)
            self._daemon.drop_deliveries(sink, dropped)
