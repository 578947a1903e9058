"""The section ``mqtt:`` of a network file: the broker through which devices and receivers are reached."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

import yaml

from headwater.deploy.network.models.mqtt import BROKER_EXAMPLE, MqttPart
from headwater.deploy.network.models.network import NetworkPart
from headwater.deploy.network.yaml_file import Sheet
from headwater.protocol.edge import Broker

EMBEDDED: Final = "embedded"
EMBEDDED_HOST: Final = "127.0.0.1"
PORT: Final = 1883
PORT_TLS: Final = 8883


class Brokers:
    """The broker of the file. It is the embedded one where something needs a broker and nothing names one."""

    def __init__(self, broker: Broker | None, embedded: Broker | None) -> None:
        self._broker = broker
        self._embedded = embedded

    def broker(self) -> Broker:
        """The broker, which some source or sink needs."""
        if self._broker is None:
            self._broker = self._embedded = Broker(EMBEDDED_HOST, PORT)
        return self._broker

    @property
    def embedded(self) -> Broker | None:
        """The broker to be started with the network, if one is."""
        return self._embedded


def brokers_of(sheet: Sheet, network: NetworkPart) -> Brokers:
    part = network.mqtt
    if part is None:
        return Brokers(Broker(EMBEDDED_HOST) if "mqtt" in network.broken else None, None)
    if part.broker == EMBEDDED:
        return _embedded(sheet, part)
    files = {name: _file(sheet, part, name) for name in _FILES if getattr(part, name) is not None}
    if part.has("port"):
        sheet.error(part.at_key("port"), "port belongs to the embedded broker", "write broker: mqtt://HOST:PORT")
    broker = _from_url(sheet, part.at("broker"), str(part.broker))
    if broker is None:
        return Brokers(Broker(EMBEDDED_HOST), None)
    username = None if part.username is None else str(part.username)
    if username is not None and broker.username is not None and username != broker.username:
        sheet.error(part.at("username"), f"the broker's address says {broker.username!r}", "leave one out")
    if "password_file" in files and (username or broker.username) is None:
        sheet.error(part.at_key("password_file"), "a password without a username", "add username: NAME")
    if ("cert" in files) != ("key" in files):
        present, lacking = ("cert", "key") if "cert" in files else ("key", "cert")
        sheet.error(part.at_key(present), f"{present} without {lacking}", f"add {lacking}: FILE")
    if not broker.tls:
        for name in ("ca", "cert", "key"):
            if part.has(name):
                sheet.error(part.at_key(name), f"{name} is for an encrypted connection", "write broker: mqtts://..")
    complete = Broker(
        broker.host,
        broker.port,
        username or broker.username,
        files.get("password_file"),
        files.get("ca"),
        files.get("cert"),
        files.get("key"),
        broker.tls,
    )
    return Brokers(complete, None)


_FILES: Final = ("password_file", "ca", "cert", "key")


def _embedded(sheet: Sheet, part: MqttPart) -> Brokers:
    for name in MqttPart.allowed_keys():
        if part.has(name) and name not in ("broker", "port"):
            cure = "leave it out, or name a broker of your own"
            sheet.error(part.at_key(name), f"the embedded broker has no {name}", cure)
    broker = Broker(EMBEDDED_HOST, part.port or PORT)
    return Brokers(broker, broker)


def _file(sheet: Sheet, part: MqttPart, name: str) -> str | None:
    path = sheet.path.parent / getattr(part, name)
    if not path.is_file():
        sheet.error(part.at(name), f"there is no file {path}", "names are relative to the network file")
        return None
    return str(path.absolute())


def _from_url(sheet: Sheet, place: yaml.Node, text: str) -> Broker | None:
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError:
        sheet.error(place, f"{text!r} is not the address of a broker", BROKER_EXAMPLE)
        return None
    if url.scheme not in ("mqtt", "mqtts") or not url.hostname or port == 0:
        near = f"did you mean {EMBEDDED!r}?" if text.lower().startswith("emb") else BROKER_EXAMPLE
        sheet.error(place, f"{text!r} is not the address of a broker", near)
        return None
    if url.password is not None:
        sheet.error(place, "a password in a network file", "write it into a file and name that: password_file: FILE")
        return None
    if url.path not in ("", "/") or url.query or url.fragment:
        sheet.error(place, f"nothing can follow the port in {text!r}", "topics stand with sources and sinks")
        return None
    tls = url.scheme == "mqtts"
    return Broker(url.hostname, port or (PORT_TLS if tls else PORT), url.username or None, tls=tls)
