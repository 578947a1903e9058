"""A source whose events come from devices, through an MQTT broker."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any, Final

from node.edge.backoff import Backoff
from node.edge.devices import Devices, device_of_topic, device_of_will
from node.edge.interfaces import Edge, Intake
from node.edge.mqtt_client import acknowledge, acknowledge_by_hand, connection, failures, wildcards
from node.edge.payloads import PayloadReader
from protocol.edge import MqttFeed
from protocol.events import EventType

if TYPE_CHECKING:
    import aiomqtt

QUEUED_MESSAGES_MAX: Final = 10_000
"""Received and not yet published: a few seconds of what a broker sends at most. Brokers send only so much of QoS 1
before it is acknowledged, so only QoS 0, which promises nothing, is ever thrown away here."""
QUEUED_BYTES_MAX: Final = 32 << 20  # so much of them may be held in memory
BURST_MESSAGES: Final = 200  # handled between two looks at everything else

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
        self._reader = PayloadReader(event_type, feed.payload, feed.device, feed.counter, feed.time, edge.node)
        self.is_connected = False
        self._devices: Devices | None = None
        edge.devices.pop(number, None)
        if feed.will is not None:
            self._devices = edge.devices[number] = Devices(event_type.name)

    async def run(self, intake: Intake, position: Any) -> None:
        backoff = Backoff()
        trouble = failures()
        while True:
            try:
                await self._connected(intake, backoff)
            except trouble as error:
                self._edge.count("mqtt_connections_lost")
                log.warning("source %d: broker %s: %s", self._number, _address(self._feed), error)
            finally:
                self.is_connected = False
            await backoff.wait()

    async def _connected(self, intake: Intake, backoff: Backoff) -> None:
        """One connection, until it breaks."""
        feed, edge = self._feed, self._edge
        # The broker keeps the session under this name; only with QoS 1 is there something to keep.
        identifier = f"headwater/{edge.network}/{edge.node}/{self._number}"
        client = connection(
            feed.broker,
            identifier,
            clean_session=feed.qos == 0,
            queue_type=_queue_type(self),
            max_queued_incoming_messages=QUEUED_MESSAGES_MAX,
        )
        acknowledge_by_hand(client)
        async with client:
            alive = [True]
            try:
                await client.subscribe(feed.topic, qos=feed.qos)
                if feed.will is not None and ("#" in feed.will or wildcards(feed.will, feed.topic) is None):
                    # Some brokers send a message twice that two subscriptions match.
                    await client.subscribe(feed.will, qos=feed.qos)
                backoff.reset()
                self.is_connected = True
                log.info("source %d listens to %s at %s", self._number, feed.topic, _address(feed))
                handled = 0
                async for message in client.messages:
                    await intake.may_publish()
                    self._take(intake, client, message, alive)
                    handled += 1
                    if handled % BURST_MESSAGES == 0:
                        await asyncio.sleep(0)
            finally:
                # What becomes durable from here on is not acknowledged: on another connection the number of a message
                # means another message. The broker sends it again, and its identity tells that it is the same.
                alive[0] = False

    def _take(self, intake: Intake, client: aiomqtt.Client, message: aiomqtt.Message, alive: list[bool]) -> None:
        feed = self._feed
        topic = str(message.topic)
        payload = bytes(message.payload) if isinstance(message.payload, bytes | bytearray) else b""
        will_of = None if feed.will is None else wildcards(topic, feed.will)
        if will_of is not None:
            self._left(device_of_will(feed, topic, will_of, payload), payload, is_old=bool(message.retain))
            acknowledge(client, message)
            return
        stood_for = wildcards(topic, feed.topic)
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
            if alive[0]:
                acknowledge(client, message)

        arrivals = self._reader.read(payload, refuse, stood_for)
        if self._devices is not None:
            said = {device_of_topic(topic, stood_for) if each.device is None else each.device for each in arrivals}
            for device in sorted(said):
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

    def overflowed(self) -> None:
        self._edge.count("mqtt_messages_dropped")


def _queue_type(adapter: MqttSourceAdapter) -> Any:
    """A queue that knows how many bytes are in it, and counts what does not fit."""

    class Queue(asyncio.Queue[Any]):
        held_bytes = 0

        def put_nowait(self, item: Any) -> None:
            if self.full() or (self.held_bytes and self.held_bytes + len(item.payload) > QUEUED_BYTES_MAX):
                adapter.overflowed()
                raise asyncio.QueueFull
            self.held_bytes += len(item.payload)
            super().put_nowait(item)

        def get_nowait(self) -> Any:
            item = super().get_nowait()
            self.held_bytes -= len(item.payload)
            return item

    return Queue


def _address(feed: MqttFeed) -> str:
    return f"{feed.broker.host}:{feed.broker.port}"
