"""The sinks of a network file, and where their deliveries go."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from headwater.deploy.network.fields import HIDDEN, FilePart, Given, OneOrMore
from headwater.deploy.network.models.mqtt import Qos
from headwater.deploy.network.values import OneOf, TextEntry
from headwater.deploy.network.yaml_tree import Scalar

DESTINATION_EXAMPLE: Final = "write to: stdout, client, {file: PATH}, {mqtt: TOPIC}, {webhook: URL} or {client: NAME}"


class DestinationPart(FilePart):
    """Where the deliveries of a sink go."""

    WHAT: ClassVar = "to"
    EXAMPLE: ClassVar = DESTINATION_EXAMPLE
    SHORT: ClassVar = HIDDEN

    plain: Annotated[
        Literal["stdout", "client"] | None,
        OneOf("to", "a sink cannot go to {text!r}", DESTINATION_EXAMPLE, choices=("stdout", "client")),
    ] = Field(None, alias=HIDDEN)
    file: Annotated[Scalar | None, TextEntry("file", DESTINATION_EXAMPLE)] = None
    mqtt: Annotated[Scalar | None, TextEntry("mqtt", DESTINATION_EXAMPLE)] = None
    webhook: Annotated[Scalar | None, TextEntry("webhook", DESTINATION_EXAMPLE)] = None
    client: Annotated[Scalar | None, TextEntry("client", DESTINATION_EXAMPLE)] = None
    qos: Qos = "1"


SINK_EXAMPLE: Final = "write - {node: a, subscribe: \"Fire(area = 'A1')\"}"


class SinkPart(FilePart):
    """Where composite events leave the network."""

    WHAT: ClassVar = "a sink"
    EXAMPLE: ClassVar = SINK_EXAMPLE
    LACKS: ClassVar = "this sink does not say its {missing}"

    node: Annotated[Scalar, TextEntry("the node of a sink")]
    subscribe: Annotated[tuple[Annotated[Scalar, TextEntry("a subscription", SINK_EXAMPLE)], ...], OneOrMore()]
    to: Annotated[DestinationPart | None, Given()] = None
