"""``mqtt:`` of a network file: the broker through which devices and consumers are reached."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

import yaml

from headwater.deploy.network.sheet import Sheet, is_null
from headwater.protocol.edge import Broker

MQTT_KEYS: Final = ("broker", "port", "username", "password_file", "ca", "cert", "key")
EXAMPLE: Final = "write mqtt: {broker: embedded} or mqtt: {broker: mqtt://broker.example:1883}"
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
        """The broker, which somebody needs."""
        if self._broker is None:
            self._broker = self._embedded = Broker(EMBEDDED_HOST, PORT)
        return self._broker

    @property
    def embedded(self) -> Broker | None:
        """The broker to be started with the network, if one is."""
        return self._embedded


def host_and_port(text: str) -> tuple[str, int] | None:
    """``host:port`` or ``[::1]:port``; None if it is neither."""
    found = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^\s:/@\[\]]+):([0-9]{1,5})", text)
    if found is None or not 0 < int(found[2]) < 65536:
        return None
    return found[1].strip("[]"), int(found[2])


def read_brokers(sheet: Sheet, node: yaml.Node) -> Brokers:
    if is_null(node):
        return Brokers(None, None)
    entries: dict[str, tuple[yaml.Node, yaml.Node]]
    if isinstance(node, yaml.ScalarNode):
        entries = {"broker": (node, node)}
    else:
        entries = sheet.entries(node, "mqtt", MQTT_KEYS, EXAMPLE)
    if "broker" not in entries:
        if isinstance(node, yaml.MappingNode):
            sheet.error(node, "mqtt does not say which broker", EXAMPLE)
        return Brokers(Broker(EMBEDDED_HOST), None)
    place = entries["broker"][1]
    text = sheet.word(place, "a broker", EXAMPLE)
    if text == EMBEDDED:
        return _embedded(sheet, entries)
    files = {name: _file(sheet, entries[name][1], name) for name in _FILES if name in entries}
    username = sheet.word(entries["username"][1], "the username") if "username" in entries else None
    if "port" in entries:
        sheet.error(entries["port"][0], "port belongs to the embedded broker", "write broker: mqtt://HOST:PORT")
    broker = _from_url(sheet, place, text) if text is not None else None
    if broker is None:
        return Brokers(Broker(EMBEDDED_HOST), None)
    if username is not None and broker.username is not None and username != broker.username:
        sheet.error(entries["username"][1], f"the broker's address says {broker.username!r}", "leave one out")
    if "password_file" in files and (username or broker.username) is None:
        sheet.error(entries["password_file"][0], "a password without a username", "add username: NAME")
    if ("cert" in files) != ("key" in files):
        given, lacking = ("cert", "key") if "cert" in files else ("key", "cert")
        sheet.error(entries[given][0], f"{given} without {lacking}", f"add {lacking}: FILE")
    if not broker.tls:
        for name in ("ca", "cert", "key"):
            if name in entries:
                sheet.error(entries[name][0], f"{name} is for an encrypted connection", "write broker: mqtts://..")
    made = Broker(
        broker.host,
        broker.port,
        username or broker.username,
        files.get("password_file"),
        files.get("ca"),
        files.get("cert"),
        files.get("key"),
        broker.tls,
    )
    return Brokers(made, None)


_FILES: Final = ("password_file", "ca", "cert", "key")


def _embedded(sheet: Sheet, entries: dict[str, tuple[yaml.Node, yaml.Node]]) -> Brokers:
    for name, (key, _) in entries.items():
        if name not in ("broker", "port"):
            sheet.error(key, f"the embedded broker has no {name}", "leave it out, or name a broker of your own")
    port = PORT
    if "port" in entries:
        place = entries["port"][1]
        text = sheet.word(place, "a port", "write port: 1883")
        if text is not None and re.fullmatch(r"[0-9]{1,5}", text) and 0 < int(text) < 65536:
            port = int(text)
        elif text is not None:
            sheet.error(place, f"{text!r} is no port", "write a number from 1 to 65535")
    broker = Broker(EMBEDDED_HOST, port)
    return Brokers(broker, broker)


def _file(sheet: Sheet, place: yaml.Node, what: str) -> str | None:
    name = sheet.word(place, what, "write the name of a file")
    if name is None:
        return None
    path = sheet.path.parent / name
    if not path.is_file():
        sheet.error(place, f"there is no file {path}", "names are relative to the network file")
        return None
    return str(path.absolute())


def _from_url(sheet: Sheet, place: yaml.Node, text: str) -> Broker | None:
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError:
        sheet.error(place, f"{text!r} is not the address of a broker", EXAMPLE)
        return None
    if url.scheme not in ("mqtt", "mqtts") or not url.hostname or port == 0:
        near = f"did you mean {EMBEDDED!r}?" if text.lower().startswith("emb") else EXAMPLE
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
