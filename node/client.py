"""The client for Python programs: publishes events to a running network and receives what it finds.

    async with Client("p7", "tcp://127.0.0.1:7007", name="smoke-detector") as client:
        await client.publish("Smoke", {"area": "A1"})

    async with Client("p1", "tcp://127.0.0.1:7001", name="fire-brigade") as client:
        async for fire in client.subscribe("Fire(area = 'A1')"):
            print(fire["attributes"])

A publication is durable at the node when ``publish`` returns. A subscription belongs to the name of the client: what is
found while the program is away waits for it, and nothing is delivered twice as long as the same client object, or one
that is told ``since``, reads on. A node that has lost its memory begins a new life and counts from 1 again: whatever it
delivers then is new, also what it had delivered before and does not remember.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Final

import msgpack

from headwater.protocol.errors import EventError, HeadwaterError
from headwater.protocol.events import Value, plain, whole
from headwater.protocol.links import Hub, Keys, LinkSettings
from headwater.protocol.links.large_payloads import Joined
from headwater.protocol.messages.control import CLIENT

PUBLICATIONS_MAX: Final = 32  # that may wait for their answers; ``publish`` waits for room
EVENTS_MAX: Final = 10_000  # in one publication
CONFIRM_S: Final = 0.02  # an acknowledgement waits so long for something to go with
TAKEN_S: Final = 3.0  # a program that was killed is known to be gone before that; longer, and its name is taken
GOT_EVERY: Final = 500  # deliveries read before the node is told, while more are there


class ClientError(HeadwaterError):
    """The node does not take this: the author of the program must act."""


def _plain(type_name: str, ts: int | None, event: Mapping[str, Value]) -> list[Any]:
    """An event as it travels: plain values, which scalars of numpy become."""
    try:
        return [None if ts is None else whole("ts", ts), {name: plain(value) for name, value in event.items()}]
    except EventError as error:
        raise ClientError(f"{type_name}: {error}") from None


def _packed(type_name: str, message: list[Any]) -> bytes:
    try:
        packed: bytes = msgpack.packb(message)
    except (TypeError, OverflowError) as error:
        raise ClientError(
            f"{type_name}: {error}; values are numbers (integers of at most 64 bits), strings and booleans"
        ) from None
    return packed


class Client:
    """One program at one node."""

    def __init__(
        self, node: str, address: str, *, name: str | None = None, network: str = "headwater", keys: Keys | None = None
    ) -> None:
        """``node`` listens at ``address``. Where links are encrypted, ``keys`` holds the client's secret key and the
        node's public one (``Keys.read(folder, name)``)."""
        self.node = node
        self.name = name or f"anonymous-{secrets.token_hex(4)}"
        self._address = address
        self._network = network
        self._keys = keys
        self._hub: Hub | None = None
        self._life = secrets.token_hex(8)
        """Tells this object from any other under the name. Publications are counted from 1 in each life."""
        self._count = 0
        self._slots = asyncio.Semaphore(PUBLICATIONS_MAX)
        self._publications: dict[int, tuple[bytes, asyncio.Future[list[Any]]]] = {}
        self._subscriptions: dict[int, _Subscription] = {}
        self._numbers = 0
        self._up = asyncio.Event()
        """Set while the node answers, and for good when it has turned this client away."""
        self._taken_since_s: float | None = None
        self._turned_away: str | None = None
        self._unconfirmed = 0
        self._joined = Joined()
        self._confirming: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Client:
        peer = CLIENT + self.name
        hub = Hub(peer, self._life, self._network, self, keys=self._keys, on_refused=self._link_refused)
        await hub.start(None)
        hub.add_peer(self.node, dial=self._address)
        self._hub = hub
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._hub is not None
        self._confirm()
        await self._hub.close(1.0)
        self._hub = None

    async def connected(self, timeout_s: float = 10.0) -> None:
        """Wait until the node answers; a ClientError says if it does not. ``publish`` needs no such waiting."""
        try:
            await asyncio.wait_for(self._up.wait(), timeout_s)
        except TimeoutError:
            raise ClientError(
                f"{self.node} does not answer at {self._address}; is it running, and is {self.name!r} allowed there?"
            ) from None
        if self._turned_away is not None:
            raise ClientError(f"{self.node} refuses: {self._turned_away}")

    # ------------------------------------------------------------------------------------------------------ publishing

    async def publish(self, type_name: str, *events: Mapping[str, Value], ts: int | None = None) -> None:
        """Publish events of one type, all at ``ts`` (microseconds) or now. Returns when they are durable at the node.

        A ClientError tells which of them the node does not take, and why; the others are taken.
        """
        await self.publish_at(type_name, ((ts, event) for event in events))

    async def publish_at(self, type_name: str, events: Iterable[tuple[int | None, Mapping[str, Value]]]) -> None:
        """The same with a time for each event."""
        rows = [_plain(type_name, ts, event) for ts, event in events]
        if len(rows) > EVENTS_MAX:
            raise ClientError(f"{len(rows)} events at once; publish at most {EVENTS_MAX}")
        async with self._slots:
            self._count += 1
            count = self._count
            payload = _packed(type_name, ["publish", self._life, count, type_name, rows])
            answered: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
            self._publications[count] = (payload, answered)
            try:
                self._send(payload)
                wrong = await answered
            finally:
                self._publications.pop(count, None)
        if wrong:
            place, why = wrong[0]
            which = "" if place < 0 else f"event {place}: "
            more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
            raise ClientError(f"{self.node} does not take {type_name}: {which}{why}{more}")

    # ----------------------------------------------------------------------------------------------------- subscribing

    async def subscribe(
        self, text: str, *, since: str | None = None, on_subscribed: Callable[[], None] | None = None
    ) -> AsyncIterator[dict[str, Any]]:
        """Everything the subscription matches, as it is found: mappings as in docs/reference/command.md, with
        ``"delivery"``, which names the delivery. Deliveries up to the one that ``since`` names are left out.
        ``on_subscribed`` is called once the subscription holds: from then on nothing is missed."""
        self._numbers += 1
        number = self._numbers
        subscription = self._subscriptions[number] = _Subscription(number, text, since)
        if on_subscribed is not None:
            call = on_subscribed
            subscription.answer.add_done_callback(lambda answer: None if answer.exception() else call())
        self._send(msgpack.packb(["subscribe", number, text]))
        try:
            while True:
                life, delivery, item = await subscription.next()
                yield {**item, "delivery": f"{life}:{delivery}"}
                subscription.read = subscription.finished = (life, delivery)
                if subscription.is_empty() or delivery % GOT_EVERY == 0:
                    self._got(subscription)
        finally:
            del self._subscriptions[number]
            if self._hub is not None and self._turned_away is None:
                self._got(subscription)

    def _got(self, subscription: _Subscription) -> None:
        """Tell the node what was read, unless it knows."""
        if subscription.read is not None:
            self._send(msgpack.packb(["got", subscription.number, *subscription.read]))
            subscription.read = None

    async def unsubscribe(self, text: str) -> None:
        """Give a subscription up for good: nothing waits for this program any more."""
        self._numbers += 1
        number = self._numbers
        subscription = self._subscriptions[number] = _Subscription(number, text, None)
        self._send(msgpack.packb(["subscribe", number, text]))
        try:
            await subscription.answer
            subscription.answer = asyncio.get_running_loop().create_future()
            self._send(msgpack.packb(["unsubscribe", number]))
            await subscription.answer
        finally:
            del self._subscriptions[number]

    # ----------------------------------------------------------------------------------------------------- from the hub

    def _send(self, payload: bytes) -> None:
        if self._hub is None:
            raise ClientError("the client is not connected; use it in an `async with` block")
        if self._turned_away is not None:
            raise ClientError(f"{self.node} refuses: {self._turned_away}")
        self._confirm()
        self._hub.send(self.node, [payload])

    def _confirm(self) -> None:
        """Acknowledge what came: with whatever is said next, or a little later."""
        if self._confirming is not None:
            self._confirming.cancel()
            self._confirming = None
            if self._hub is not None and self._turned_away is None:
                self._hub.confirm(self.node, self._unconfirmed)

    def received(self, peer: str, last_seq: int, payloads: list[bytes]) -> None:
        for payload in payloads:
            whole = self._joined.take(payload)
            if whole is None:
                continue
            match msgpack.unpackb(whole):
                case ["published", int(count), list(wrong)]:
                    waiting = self._publications.get(count)
                    if waiting is not None and not waiting[1].done():
                        waiting[1].set_result(wrong)
                case ["subscribed" | "unsubscribed", int(number), why] if number in self._subscriptions:
                    self._subscriptions[number].answered(why)
                case ["deliver", int(number), str(life), list(items)] if number in self._subscriptions:
                    subscription = self._subscriptions[number]
                    if subscription.put(life, items) and subscription.finished is not None:
                        subscription.read = subscription.finished  # what the node repeats it believes to be unread
                        self._got(subscription)
                case ["refused", str(why)]:
                    self._refused(why)
        self._unconfirmed = last_seq
        if self._confirming is None:
            self._confirming = asyncio.get_running_loop().call_later(CONFIRM_S, self._confirm)

    def _refused(self, why: str) -> None:
        error = ClientError(f"{self.node} refuses: {why}")
        for _, waiting in self._publications.values():
            if not waiting.done():
                waiting.set_exception(error)
        for subscription in self._subscriptions.values():
            subscription.answered(why)

    def _link_refused(self, peer: str, key: str, text: str) -> None:
        """Another program has the name. It may be the last life of this one, which the node still believes to be there;
        when that can no longer be, this client is at its end: nothing that it was asked to say may leave later."""
        if key != "taken":
            return
        now_s = asyncio.get_running_loop().time()
        if self._taken_since_s is None:
            self._taken_since_s = now_s
        if now_s - self._taken_since_s >= TAKEN_S and self._hub is not None:
            self._turned_away = (
                f"the name {self.name!r} is taken by another program that is connected there now; "
                "give this one another name, or end the other"
            )
            self._hub.remove_peer(peer)
            self._refused(self._turned_away)
            self._up.set()

    def link_up(self, peer: str) -> None:
        self._taken_since_s = None
        self._up.set()

    def link_down(self, peer: str, reason: str) -> None:
        self._up.clear()

    def link_reset(self, peer: str, life: str) -> None:
        """The node has started again and does not know what was under way: say it once more."""
        if self._confirming is not None:  # what came before is of another numbering
            self._confirming.cancel()
            self._confirming = None
        self._joined = Joined()
        for payload, _ in list(self._publications.values()):
            self._send(payload)
        for subscription in self._subscriptions.values():
            self._send(msgpack.packb(["subscribe", subscription.number, subscription.text]))

    def whispered(self, peer: str, payload: bytes) -> None:
        pass

    def acknowledged(self, peer: str, seq: int) -> None:
        pass

    def admit(self, name: str, key_name: str | None) -> LinkSettings | None:
        return None


class _Subscription:
    def __init__(self, number: int, text: str, since: str | None) -> None:
        self.number = number
        self.text = text
        self._life, self._last = ("", 0) if since is None else _named(since)
        """Of the node, and the number of its last delivery that has come in it."""
        self.read: tuple[str, int] | None = None
        """The last delivery that was read, while the node does not know that it was."""
        self.finished: tuple[str, int] | None = None if since is None else (self._life, self._last)
        """The last delivery that the program has dealt with."""
        self._waiting: asyncio.Queue[tuple[str, int, dict[str, Any]] | str] = asyncio.Queue()
        self.answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def answered(self, why: str | None) -> None:
        if why is not None:
            self._waiting.put_nowait(why)
        if not self.answer.done():
            if why is None:
                self.answer.set_result(None)
            else:
                self.answer.set_exception(ClientError(why))
                self.answer.exception()  # a reader of the stream hears of it, too

    def put(self, life: str, items: list[Any]) -> bool:
        """Keep what is new for the program; whether there were duplicates."""
        if life != self._life:  # the node has lost its memory and counts from 1 again
            self._life, self._last = life, 0
        repeated = False
        for number, item in items:
            if number > self._last:
                self._last = number
                self._waiting.put_nowait((life, number, item))
            else:  # the node has started again and does not know that it was read
                repeated = True
        return repeated

    def is_empty(self) -> bool:
        return self._waiting.empty()

    async def next(self) -> tuple[str, int, dict[str, Any]]:
        queued = await self._waiting.get()
        if isinstance(queued, str):
            raise ClientError(f"the subscription {self.text!r} is refused: {queued}")
        return queued


def _named(delivery: object) -> tuple[str, int]:
    """The life of the node and the number in it that a ``"delivery"`` names."""
    life, _, number = delivery.rpartition(":") if isinstance(delivery, str) else ("", "", "")
    if not life or not number.isdecimal():
        raise ClientError(f'since is {delivery!r:.60}; give it the "delivery" of the last one that was dealt with')
    return life, int(number)
