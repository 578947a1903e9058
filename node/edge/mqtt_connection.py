"""A connection to an MQTT broker, and the few internals of aiomqtt and paho that it needs."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from headwater.protocol.edge import Broker
from headwater.protocol.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import aiomqtt

KEEPALIVE_S: Final = 15
"""A broker that is silent for so long is asked whether it is there; it takes a device for gone after 1.5 of them."""
TIMEOUT_S: Final = 5.0  # for one answer of the broker
NEVER_EXPIRES: Final = 0xFFFFFFFF  # how long the broker keeps a session of MQTT 5 that is away

log = logging.getLogger("headwater.edge")
_mqtt_log = logging.getLogger("headwater.edge.mqtt")
_mqtt_log.setLevel(logging.ERROR)  # every refused connection would be logged twice


def connection(broker: Broker, identifier: str, *, clean_session: bool, **options: Any) -> aiomqtt.Client:
    """A client that connects when it is entered; a ConfigError if a file that it needs is not there."""
    from headwater.node.edge.mqtt_clients import MqttClient

    return _new_client(MqttClient, broker, identifier, clean_session=clean_session, **options)


def listener(broker: Broker, identifier: str, *, keeps: bool, version_5: bool, under_way_max: int) -> MqttListener:
    """A client for a source, which does not read the socket while it is told to pause.

    ``keeps``: the broker keeps the session while the source is away. A broker for MQTT 5 is told how many messages it
    may have under way that are not acknowledged; with MQTT 3.1.1 nothing but the socket can hold it back.
    """
    from headwater.node.edge.mqtt_clients import Pausable

    options: dict[str, Any] = {"clean_session": not keeps}
    if version_5:
        import aiomqtt
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.ReceiveMaximum = under_way_max
        if keeps:
            properties.SessionExpiryInterval = NEVER_EXPIRES
        options = {"protocol": aiomqtt.ProtocolVersion.V5, "clean_start": not keeps, "properties": properties}
    client = _new_client(Pausable, broker, identifier, **options)
    client._client.manual_ack_set(True)  # messages are acknowledged to the broker by `acknowledge` alone
    return cast("MqttListener", client)


def _new_client(kind: Any, broker: Broker, identifier: str, **options: Any) -> aiomqtt.Client:
    client: aiomqtt.Client = kind(
        broker.host,
        broker.port,
        username=broker.username,
        password=_password(broker),
        identifier=identifier,
        keepalive=KEEPALIVE_S,
        timeout=TIMEOUT_S,
        tls_context=_tls(broker),
        logger=_mqtt_log,
        **options,
    )
    # Users of the client learn of its end in other ways; asyncio must not warn that none has asked this future.
    client._disconnected.add_done_callback(lambda end: end.cancelled() or end.exception())
    return client


class MqttListener(Protocol):
    """What a source needs of its client."""

    was_reached: bool
    """Whether a server has accepted the connection, whatever was said then."""
    is_paused: bool

    async def __aenter__(self) -> Any: ...

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None: ...

    async def subscribe(self, topic: str, qos: int = 0) -> Any: ...

    async def unsubscribe(self, topic: str, *, timeout: float | None = None) -> None: ...

    @property
    def messages(self) -> AsyncIterator[aiomqtt.Message]: ...

    def pause(self) -> None:
        """Leave in the socket what comes, so that the broker can send no more."""

    def resume(self) -> None: ...


def acknowledge(client: Any, message: aiomqtt.Message) -> None:
    if message.qos:
        client._client.ack(message.mid, message.qos)


def failures() -> tuple[type[Exception], ...]:
    """What can go wrong with a connection and is cured by another one, later."""
    import aiomqtt

    return (aiomqtt.MqttError, OSError, ConfigError, TimeoutError)


def _password(broker: Broker) -> str | None:
    if broker.password_file is None:
        return None
    try:
        return Path(broker.password_file).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the password in {broker.password_file}: {error}") from None


def _tls(broker: Broker) -> ssl.SSLContext | None:
    if not broker.tls and broker.ca_file is None:
        return None
    try:
        context = ssl.create_default_context(cafile=broker.ca_file)
        if broker.cert_file is not None:
            context.load_cert_chain(broker.cert_file, broker.key_file)
    except OSError as error:  # ssl.SSLError is one
        raise ConfigError(f"cannot use the certificates for the broker {broker.host}: {error}") from None
    return context


def matches(topic: str, pattern: str) -> bool:
    return wildcards(topic, pattern) is not None


def wildcards(topic: str, pattern: str) -> list[str] | None:
    """What the wildcards of a pattern stand for in a topic; None if it does not match."""
    matched: list[str] = []
    levels, wanted = topic.split("/"), pattern.split("/")
    if topic.startswith("$") and wanted[0] in ("+", "#"):
        return None
    for index, want in enumerate(wanted):
        if want == "#":
            matched.append("/".join(levels[index:]))
            return matched
        if index >= len(levels):
            return None
        if want == "+":
            matched.append(levels[index])
        elif want != levels[index]:
            return None
    return matched if len(levels) == len(wanted) else None
