"""The MQTT broker of a network file, and what sources and sinks say about topics."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from headwater.deploy.network.fields import FilePart
from headwater.deploy.network.mistakes import wrong
from headwater.deploy.network.values import OneOf, TextEntry
from headwater.deploy.network.yaml_tree import Scalar
from headwater.protocol.payload_maps import topic_filter

Qos = Annotated[
    Literal["0", "1"],
    OneOf(
        "qos",
        cure="write 0 or 1",
        hints={"2": "write 1; with device: and counter: a redelivery is not a second event"},
        near=False,
        written=(0, 1, "0", "1"),
    ),
]


def topic(text: Scalar) -> Scalar:
    levels = topic_filter(text).split("/")
    odd = next((level for level in levels if level not in ("+", "#") and ("+" in level or "#" in level)), None)
    if not text or "\0" in text:
        raise wrong("an empty topic", "write a topic, as in sensors/+/smoke")
    if odd is not None:
        raise wrong(f"{odd!r} is not a level of a topic", "+ and # stand for whole levels, as in sensors/+/smoke")
    if "#" in levels[:-1]:
        raise wrong("# stands for all that follows", "nothing can come after it; write + for one level")
    return text


def _port(text: Scalar) -> int:
    if re.fullmatch(r"[0-9]{1,5}", text) and 0 < int(text) < 65536:
        return int(text)
    raise wrong(f"{str(text)!r} is not a port", "write a number from 1 to 65535")


def _file(name: str) -> TextEntry:
    return TextEntry(name, "write the name of a file")


BROKER_EXAMPLE: Final = "write mqtt: {broker: embedded} or mqtt: {broker: mqtt://broker.example:1883}"


class MqttPart(FilePart):
    """The broker through which devices and consumers are reached."""

    WHAT: ClassVar = "mqtt"
    EXAMPLE: ClassVar = BROKER_EXAMPLE
    LACKS: ClassVar = "mqtt does not say which broker"
    SHORT: ClassVar = "broker"

    broker: Annotated[Scalar, TextEntry("a broker", BROKER_EXAMPLE)] = Field(
        description="embedded, or mqtt://HOST:PORT."
    )
    port: Annotated[int | None, TextEntry("a port", "write port: 1883", _port, {"type": "integer"})] = None
    username: Annotated[Scalar | None, TextEntry("the username")] = None
    password_file: Annotated[Scalar | None, _file("password_file")] = None
    ca: Annotated[Scalar | None, _file("ca")] = None
    cert: Annotated[Scalar | None, _file("cert")] = None
    key: Annotated[Scalar | None, _file("key")] = None
