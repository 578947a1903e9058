"""Destinations of subscriptions in the API, in the same form as in network files."""

from __future__ import annotations

from typing import Any, Final

from headwater.coordinator.daemon.api.edge_models import as_json
from headwater.coordinator.daemon.api.models import DestinationWord, NamedDestination
from headwater.coordinator.daemon.operations import RequestRefused
from headwater.protocol.destinations import WAYS, placeholders, why_no_address, why_no_topic
from headwater.protocol.edge import Broker, ClientTo, Destination, FileTo, MqttTo, StdoutTo, WebhookTo
from headwater.protocol.events import EventType
from headwater.protocol.text import suggestion

EXAMPLE: Final = 'write "stdout", "client", {"file": PATH}, {"mqtt": TOPIC}, {"webhook": URL} or {"client": NAME}'


def destination_of(to: DestinationWord | NamedDestination | None, network_broker: Broker | None) -> Destination:
    """What a body stands for; RequestRefused where it makes no sense. ``network_broker`` serves topics that name
    none. A name that is left out is empty and comes with the number of the subscription."""
    if to is None:
        return FileTo("")
    if isinstance(to, str):
        return StdoutTo() if to == "stdout" else ClientTo("")
    fields_set = to.model_fields_set
    ways = [way for way in WAYS if way in fields_set]
    if len(ways) != 1:
        message = f"a sink goes to one place, not to {' and '.join(ways)}" if ways else "to does not say where"
        raise RequestRefused(400, f"{message}; {EXAMPLE}")
    way = ways[0]
    for option in ("qos", "broker"):
        if option in fields_set and way != "mqtt":
            raise RequestRefused(400, f"{option} belongs to mqtt, and this sink has {way}; leave it out")
    name: str = getattr(to, way)
    if not name.strip():
        raise RequestRefused(400, f"{way} needs a name; {EXAMPLE}")
    match way:
        case "file":
            return FileTo(name)
        case "client":
            return ClientTo(name)
        case "webhook":
            if (why := why_no_address(name)) is not None:
                raise RequestRefused(400, f"{why}; write one such as https://host/path")
            return WebhookTo(name)
        case _:
            return _mqtt(name, to, network_broker)


def _mqtt(topic: str, to: NamedDestination, network_broker: Broker | None) -> Destination:
    if (why := why_no_topic(topic)) is not None:
        raise RequestRefused(400, "; ".join(why))
    broker = to.broker or network_broker
    if broker is None:
        raise RequestRefused(
            400,
            "the file of this network names no MQTT broker (mqtt: {broker: ..}); over HTTP a subscription may name one "
            'itself: {"mqtt": TOPIC, "broker": {"host": HOST}}',
        )
    return MqttTo(topic, broker, 1 if to.qos is None else to.qos)


def check_topic(destination: Destination, event_type: EventType | None) -> None:
    """What stands in braces in a topic must be something that the events have."""
    if event_type is None:
        return
    allowed = ["type", *event_type.attributes]
    for name in placeholders(destination):
        if name not in allowed:
            cure = suggestion(name, allowed, f"{event_type.name} has")
            raise RequestRefused(400, f"{event_type.name} has nothing to fill in for {{{name}}}; {cure}".rstrip("; "))


def shown(destination: Destination) -> Any:
    """The JSON that stands for it."""
    match destination:
        case StdoutTo():
            return "stdout"
        case FileTo(path):
            return {"file": path}
        case MqttTo(topic, broker, qos):
            return {"mqtt": topic, "qos": qos, "broker": as_json(broker, Broker)}
        case WebhookTo(url):
            return {"webhook": url}
        case ClientTo(name):
            return {"client": name}
