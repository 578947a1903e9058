"""A source whose events come from devices, through an MQTT broker."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any, Final

from headwater.node.edge.backoff import Backoff
from headwater.node.edge.devices import Devices, device_of_topic, device_of_will
from headwater.node.edge.interfaces import Edge, Intake
from headwater.node.edge.mqtt_connection import MqttListener, acknowledge, failures, listener, wildcards
from headwater.node.edge.payloads import reader_of
from headwater.protocol.edge import MqttFeed
from headwater.protocol.events import EventType
from headwater.protocol.payload_maps import topic_filter

if TYPE_CHECKING:
    import aiomqtt

QUEUED_MESSAGES_MAX: Final = 10_000
"""Received and not yet published: a few seconds of what a broker sends at most. Past it the socket is not read, so the
broker waits: nothing is thrown away here."""
QUEUED_BYTES_MAX: Final = 32 << 20  # so much of them may be held in memory; a single message may be larger
UNDER_WAY_MAX: Final = 1_000
"""Messages that a broker for MQTT 5 may have sent and not seen acknowledged: a journal that is synced fifty times a
second takes 50,000 messages a second so, and they all fit into the queue."""
BURST_MESSAGES: Final = 200  # handled between two looks at everything else
BUSY_S: Final = 0.25  # for so long there was always something left to take: the broker may hold more
QUIET_S: Final = 0.25
QUIET_ROUNDS: Final = 2
ANSWER_S: Final = 30.0  # what the broker sends before its answer may be much

log = logging.getLogger("headwater.edge")


class MqttSourceAdapter:
    """Publishes what arrives on the topic of a feed.

    A message of QoS 1 is acknowledged to the broker when its events are durable, and the session at the broker
    outlives the connection: what was not acknowledged when the node stopped comes again when it is back.
    """

    def __init__(self, number: int, feed: MqttFeed, event_type: EventType, edge: Edge) -> None:
        self._number = number
        self._feed = feed
        self._edge = edge
        self._reader = reader_of(feed, event_type, edge, number)
        self._topic = topic_filter(feed.topic)
        self._will = None if feed.will is None else topic_filter(feed.will)
        self._presence = edge.present("source", number, event_type.name, f"the broker {_address(feed)}")
        self._version_5 = True
        """Whether the broker is spoken to in MQTT 5 the next time; one that does not take it gets 3.1.1."""
        self._devices: Devices | None = None
        edge.devices.pop(number, None)
        if feed.will is not None:
            self._devices = edge.devices[number] = Devices(event_type.name)

    @property
    def is_connected(self) -> bool:
        return self._presence.is_there

    async def run(self, intake: Intake, position: Any) -> None:
        backoff = Backoff()
        trouble = failures()
        while True:
            try:
                await self._connected(intake, backoff)
            except trouble as error:
                self._edge.count("mqtt_connections_lost")
                self._presence.went(str(error) or type(error).__name__)
            finally:
                intake.hearing.lost(self._number)
            await backoff.wait()

    async def _connected(self, intake: Intake, backoff: Backoff) -> None:
        """One connection, until it breaks."""
        feed, edge = self._feed, self._edge
        # The broker keeps the session under this name; only with QoS 1 is there something to keep.
        identifier = f"headwater/{edge.network}/{edge.node}/{self._number}"
        connection = await self._entered(identifier)
        client = connection.client
        catching_up: asyncio.Task[None] | None = None
        try:
            await client.subscribe(self._topic, qos=feed.qos)
            if self._will is not None and ("#" in self._will or wildcards(self._will, self._topic) is None):
                # Some brokers send a message twice that two subscriptions match.
                await client.subscribe(self._will, qos=feed.qos)
            backoff.reset()
            self._presence.came()
            intake.hearing.connected(self._number)
            catching_up = asyncio.create_task(self._catch_up(intake, connection))
            log.info("source %d listens to %s at %s", self._number, feed.topic, _address(feed))
            await self._listen(intake, connection)
        finally:
            # What becomes durable from here on is not acknowledged: on another connection the number of a message
            # means another message. The broker sends it again, and its identity tells that it is the same.
            connection.is_alive = False
            if catching_up is not None:
                catching_up.cancel()
            await client.__aexit__(None, None, None)

    async def _entered(self, identifier: str) -> _Connection:
        """A connection in MQTT 5 or, if the broker is there and does not take that, in MQTT 3.1.1."""
        feed = self._feed
        while True:
            client = listener(
                feed.broker, identifier, keeps=feed.qos > 0, version_5=self._version_5, under_way_max=UNDER_WAY_MAX
            )
            connection = _Connection(client)
            try:
                await client.__aenter__()
                return connection
            except failures():
                if not client.was_reached:
                    raise
                self._version_5 = not self._version_5
                if self._version_5:
                    raise

    async def _listen(self, intake: Intake, connection: _Connection) -> None:
        loop = asyncio.get_running_loop()
        handled = 0
        async for message in connection.client.messages:
            await intake.may_publish()
            self._take(intake, connection, message)
            handled += 1
            if loop.time() - connection.idle_s > BUSY_S:
                intake.hearing.busy(self._number)
            if handled % BURST_MESSAGES == 0:
                await asyncio.sleep(0)

    async def _catch_up(self, intake: Intake, connection: _Connection) -> None:
        """Find out, whenever the node wants to know, when everything that the broker has held has come.

        A broker answers in order: behind an answer to a question that was asked when everything was acknowledged
        nothing is left that it could have sent before. Twice, since some brokers send what they hold a little later.
        """
        client, nothing = connection.client, f"headwater/{self._edge.network}/nothing"
        while True:
            gap = await intake.hearing.gap(self._number)
            rounds = 0
            while rounds < QUIET_ROUNDS:
                received = connection.queue.received
                try:
                    await client.unsubscribe(nothing, timeout=ANSWER_S)  # from what was never subscribed to
                except failures():
                    received = -1
                await asyncio.sleep(QUIET_S)
                quiet = connection.is_idle() and connection.queue.received == received
                rounds = rounds + 1 if quiet else 0
            intake.hearing.caught_up(gap)

    def _take(self, intake: Intake, connection: _Connection, message: aiomqtt.Message) -> None:
        feed, client = self._feed, connection.client
        topic = str(message.topic)
        payload = bytes(message.payload) if isinstance(message.payload, bytes | bytearray) else b""
        will_of = None if self._will is None else wildcards(topic, self._will)
        if will_of is not None:
            self._left(device_of_will(feed, topic, will_of, payload), payload, is_old=bool(message.retain))
            acknowledge(client, message)
            return
        stood_for = wildcards(topic, self._topic)
        if stood_for is None:  # of a subscription that the broker remembers and the network file no longer has
            acknowledge(client, message)
            return
        if message.retain and feed.counter is None:
            # The broker repeats a retained message on every connection; without an identity it would happen each time.
            self._edge.count("mqtt_retained_skipped")
            acknowledge(client, message)
            return

        def refuse(raw: bytes, why: str) -> None:
            intake.refused(self._number, raw, f"{topic}: {why}")

        def done() -> None:
            connection.unacknowledged -= 1
            if connection.is_alive:
                acknowledge(client, message)
            connection.look()

        connection.unacknowledged += 1
        arrivals = self._reader.read(payload, refuse, stood_for)
        if self._devices is not None:
            devices = {
                device_of_topic(topic, stood_for) if arrival.device is None else arrival.device for arrival in arrivals
            }
            for device in sorted(devices):
                if self._devices.heard(device):
                    log.info("source %d: the device %.200s is back", self._number, device)
        if arrivals:
            intake.publish(self._number, arrivals, done=done)
        else:
            done()

    def _left(self, device: str, payload: bytes, *, is_old: bool) -> None:
        assert self._devices is not None
        if self._devices.left(device, time.time_ns() // 1000, is_old=is_old):
            self._edge.count("devices_left")
            more = "; no device of the source is left" if self._devices.all_left else ""
            log.warning("source %d: the device %.200s has left: %.200r%s", self._number, device, payload, more)


class _Connection:
    """What is under way on one connection."""

    def __init__(self, client: MqttListener) -> None:
        self.client = client
        self.is_alive = True
        self.unacknowledged = 0
        """Messages that were taken and are not durable yet."""
        self.idle_s = asyncio.get_running_loop().time()
        """When everything that had come was last taken and acknowledged."""
        self.queue = client._queue = _Queue(self)  # type: ignore[attr-defined]

    def is_idle(self) -> bool:
        return self.queue.empty() and not self.unacknowledged and not self.client.is_paused

    def look(self) -> None:
        if self.is_idle():
            self.idle_s = asyncio.get_running_loop().time()


class _Queue(asyncio.Queue[Any]):
    """What was received and not taken yet. A client whose queue is full pauses until half of it was taken."""

    def __init__(self, connection: _Connection) -> None:
        super().__init__()
        self._connection = connection
        self._client = connection.client
        self._held_bytes = 0
        self.received = 0

    def put_nowait(self, item: Any) -> None:
        self.received += 1
        self._connection.look()
        self._held_bytes += len(item.payload)
        super().put_nowait(item)
        if self.qsize() >= QUEUED_MESSAGES_MAX or self._held_bytes >= QUEUED_BYTES_MAX:
            self._client.pause()

    def get_nowait(self) -> Any:
        item = super().get_nowait()
        self._held_bytes -= len(item.payload)
        if (
            self._client.is_paused
            and self.qsize() <= QUEUED_MESSAGES_MAX // 2
            and self._held_bytes <= QUEUED_BYTES_MAX // 2
        ):
            self._client.resume()
        return item


def _address(feed: MqttFeed) -> str:
    return f"{feed.broker.host}:{feed.broker.port}"
