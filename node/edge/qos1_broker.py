"""Subclasses of amqtt's broker and protocol handler that keep the promises of QoS 1.

Imported only where a broker is started: amqtt takes a while to load.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Any, Final

from amqtt.adapters import StreamReaderAdapter, StreamWriterAdapter
from amqtt.broker import Broker
from amqtt.mqtt.protocol.broker_handler import BrokerProtocolHandler
from amqtt.session import OUTGOING, OutgoingApplicationMessage

UNDER_WAY_MAX: Final = 100
"""Messages sent to a session and not acknowledged; more wait until some are."""
BACKLOG_MAX: Final = 100_000
"""Messages that wait for a session. Past it the newest are thrown away, which is logged: memory is bounded."""

CONNECT: Final = 0x10
MQTT: Final = b"\x00\x04MQTT"
UNSUPPORTED_VERSION: Final = b"\x20\x02\x00\x01"  # the answer to a CONNECT, as clients of all versions read it

log = logging.getLogger("headwater.broker")


class BrokerHandler(BrokerProtocolHandler):  # type: ignore[misc]
    """Sends messages of QoS 1 as long as there is room, and remembers them until they are acknowledged."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._over: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        """The client's farewell, or None if it left without one. amqtt misses those that leave at once."""

    async def start(self) -> None:
        # The end of an earlier connection of the session may have been noticed after this one was accepted.
        _be_connected(self.session)
        await super().start()

    async def stop(self) -> None:
        await super().stop()
        await self.handle_disconnect(None)

    async def handle_disconnect(self, disconnect: Any) -> None:
        if not self._over.done():
            self._over.set_result(disconnect)

    async def wait_disconnect(self) -> Any:
        return await self._over

    def handle_read_timeout(self) -> None:
        # A client that is silent for longer than it said has lost its power or its network.
        if self._reader_task is not None:
            self._reader_task.cancel()

    async def mqtt_publish(
        self, topic: str, data: bytes | bytearray, qos: int | None, retain: bool, ack_timeout: int | None = None
    ) -> Any:
        if qos != 1 or self.session is None:
            return await super().mqtt_publish(topic, data, qos, retain, ack_timeout)
        message = OutgoingApplicationMessage(None, topic, qos, data, retain)
        backlog = _backlog(self.session)
        if len(backlog) >= BACKLOG_MAX:
            log.error("%d messages wait for %s; the newest are lost", len(backlog), self.session.client_id)
            return message
        backlog.append(message)
        await self._send_waiting()
        return message

    async def _send_waiting(self) -> None:
        session = self.session
        if session is None:
            return
        backlog = _backlog(session)
        while backlog and len(session.inflight_out) < UNDER_WAY_MAX:
            message = backlog.popleft()
            message.packet_id = session.next_packet_id
            session.inflight_out[message.packet_id] = message
            await self._handle_qos1_message_flow(message)

    async def _handle_qos1_message_flow(self, app_message: Any) -> None:
        if app_message.direction != OUTGOING:
            await super()._handle_qos1_message_flow(app_message)
            return
        packet = app_message.build_publish_packet(dup=app_message.publish_packet is not None)
        app_message.publish_packet = packet
        await self._send_packet(packet)

    async def _send_packet(self, packet: Any) -> None:
        try:
            await super()._send_packet(packet)
        except (OSError, RuntimeError):
            # The connection has just broken. What matters is remembered and sent on the next one.
            log.debug("the connection of %s is gone", self.session and self.session.client_id)

    async def handle_puback(self, puback: Any) -> None:
        if self.session is not None and puback.variable_header is not None:
            self.session.inflight_out.pop(puback.variable_header.packet_id, None)
            await self._send_waiting()

    async def _retry_deliveries(self) -> None:
        if self.session is None:
            return
        for message in list(self.session.inflight_out.values()):
            await self._handle_message_flow(message)
        await self._send_waiting()


class Rest(StreamReaderAdapter):  # type: ignore[misc]
    """A stream of which the beginning was read already."""

    def __init__(self, head: bytes, reader: asyncio.StreamReader) -> None:
        super().__init__(reader)
        self._head = head

    async def read(self, n: int = -1) -> bytes:
        if not self._head:
            return bytes(await super().read(n))
        head, self._head = self._head[: n if n >= 0 else None], self._head[n:] if n >= 0 else b""
        return head + (await super().read(n - len(head)) if n > len(head) else b"")


class HeadwaterBroker(Broker):  # type: ignore[misc]
    async def stream_connected(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, listener_name: str
    ) -> None:
        head, version = await _version(reader)
        if version == 5:  # amqtt would wait for more: clients that also speak 3.1.1 should hear of it at once
            writer.write(UNSUPPORTED_VERSION)
            writer.close()
            return
        await self._client_connected(listener_name, Rest(head, reader), StreamWriterAdapter(writer))

    async def _authenticate(self, session: Any, _: Any) -> bool:
        session.is_anonymous = False  # amqtt keeps nothing for a session that is
        return True

    async def _initialize_client_session(self, *arguments: Any, **named: Any) -> Any:
        _, session = await super()._initialize_client_session(*arguments, **named)
        return BrokerHandler(self.plugins_manager, loop=self._loop), session

    async def _publish_session_retained_messages(self, session: Any) -> None:
        # What came while the session was away. It is no retained message, as amqtt would mark it.
        handler = self._get_handler(session)
        while handler is not None and not session.retained_messages.empty():
            kept = session.retained_messages.get_nowait()
            await handler.mqtt_publish(kept.topic, kept.data, kept.qos, retain=False)

    async def _publish_retained_messages_for_subscription(self, subscription: Any, session: Any) -> None:
        # amqtt would give a session that comes back the retained messages of all clients' subscriptions.
        subscribed = self._subscriptions.get(subscription[0], [])
        if any(subscriber.client_id == session.client_id for subscriber, _ in subscribed):
            await super()._publish_retained_messages_for_subscription(subscription, session)

    async def _handle_disconnect(self, client_session: Any, handler: Any, disconnect_waiter: Any) -> None:
        await super()._handle_disconnect(client_session, handler, disconnect_waiter)
        now = self._sessions.get(client_session.client_id)
        if now is not None and now[0] is client_session and now[1] is not handler:
            # The client has reconnected before its old connection was found broken: it is connected.
            _be_connected(client_session)


async def _version(reader: asyncio.StreamReader) -> tuple[bytes, int | None]:
    """What was read of the first packet, and which version of MQTT it speaks; None if it is no beginning of MQTT."""
    head = b""
    try:
        head += await reader.readexactly(2)
        while head[-1] & 0x80 and len(head) < 5:  # the length of the packet
            head += await reader.readexactly(1)
        if head[0] != CONNECT:
            return head, None
        begin = len(head)
        head += await reader.readexactly(len(MQTT) + 1)
        return head, head[-1] if head[begin:-1] == MQTT else None
    except asyncio.IncompleteReadError as error:
        return head + error.partial, None
    except OSError:
        return head, None


def _be_connected(session: Any) -> None:
    if session is not None and not session.transitions.is_connected():
        session.transitions.connect()


def _backlog(session: Any) -> deque[Any]:
    """What waits to be sent to a session."""
    if not hasattr(session, "headwater_backlog"):
        session.headwater_backlog = deque()
    backlog: deque[Any] = session.headwater_backlog
    return backlog
