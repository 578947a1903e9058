"""A sink whose deliveries are published to an MQTT broker."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from headwater.node.edge.backoff import Backoff
from headwater.node.edge.delivery_topics import filled
from headwater.node.edge.interfaces import Deliveries, Edge
from headwater.node.edge.mqtt_connection import connection, failures
from headwater.protocol.edge import MqttTo

if TYPE_CHECKING:
    import aiomqtt

UNDER_WAY_MAX: Final = 20
"""Messages published and not yet acknowledged: what brokers commonly take at once."""

log = logging.getLogger("headwater.edge")


class MqttSinkAdapter:
    """A message for each delivery, in order. With QoS 1 at least once, with QoS 0 at most once."""

    def __init__(self, number: int, destination: MqttTo, edge: Edge) -> None:
        self._number = number
        self._to = destination
        self._edge = edge
        self._waiting: deque[tuple[int, dict[str, Any]]] = deque()
        """Taken and not yet confirmed, oldest first."""
        self._fetching: asyncio.Future[list[tuple[int, dict[str, Any]]]] | None = None
        broker = destination.broker
        self._presence = edge.present("sink", number, "", f"the broker {broker.host}:{broker.port}")

    @property
    def is_connected(self) -> bool:
        return self._presence.is_there

    async def run(self, deliveries: Deliveries, confirmed: int) -> None:
        backoff = Backoff()
        trouble = failures()
        try:
            while True:
                try:
                    await self._connected(deliveries, backoff)
                except trouble as error:
                    self._edge.count("mqtt_connections_lost")
                    self._presence.went(str(error) or type(error).__name__)
                await backoff.wait()
        finally:
            if self._fetching is not None:
                self._fetching.cancel()

    async def _connected(self, deliveries: Deliveries, backoff: Backoff) -> None:
        identifier = f"headwater/{self._edge.network}/{self._edge.node}/sink-{self._number}"
        client = connection(self._to.broker, identifier, clean_session=True, max_inflight_messages=UNDER_WAY_MAX)
        client.pending_calls_threshold = UNDER_WAY_MAX + 1
        async with client:
            backoff.reset()
            self._presence.came()
            watch = asyncio.ensure_future(_until_disconnected(client))
            try:
                while True:
                    if not self._waiting:
                        await self._fetch(deliveries, watch)
                    under_way = [self._waiting[index] for index in range(min(UNDER_WAY_MAX, len(self._waiting)))]
                    # They leave in this order: each is handed over before the next one is looked at.
                    await asyncio.gather(*(self._publish(client, delivery) for _, delivery in under_way))
                    for _ in under_way:
                        number, _ = self._waiting.popleft()
                    deliveries.confirm(number)
            finally:
                watch.cancel()

    async def _fetch(self, deliveries: Deliveries, watch: asyncio.Future[None]) -> None:
        """Wait for deliveries, or fail with the connection: it must be there when they come."""
        if self._fetching is None:
            self._fetching = asyncio.ensure_future(deliveries.next())
        # It goes on while there is no connection, so that nothing that it was about to be given is dropped.
        await asyncio.wait((self._fetching, watch), return_when=asyncio.FIRST_COMPLETED)
        if self._fetching.done():
            fetched, self._fetching = self._fetching, None
            self._waiting.extend(fetched.result())
        else:
            watch.result()

    async def _publish(self, client: aiomqtt.Client, delivery: dict[str, Any]) -> None:
        payload = json.dumps(delivery, ensure_ascii=False)
        await client.publish(filled(self._to.topic, delivery), payload, qos=self._to.qos)


async def _until_disconnected(client: aiomqtt.Client) -> None:
    """Raises when the connection is gone."""
    import aiomqtt

    await asyncio.shield(client._disconnected)
    raise aiomqtt.MqttError("disconnected")
