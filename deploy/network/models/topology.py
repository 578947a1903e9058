"""Event types, nodes and links of a network file."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from pydantic import Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

from headwater.deploy.network.fields import ITEMS, MAPPING, VALUE, FilePart, Listed, Named, NamedEntries, shape
from headwater.deploy.network.mistakes import wrong
from headwater.deploy.network.models.forms import DURATION, NUMBER
from headwater.deploy.network.units import bandwidth_bps, duration_us, share_of
from headwater.deploy.network.values import QuantityEntry, TextEntry
from headwater.deploy.network.yaml_tree import Scalar

KINDS: Final = "write int, float, string, bool or any"
Kind = Annotated[
    Scalar,
    TextEntry(
        "the kind of <1>.<0>",
        KINDS,
        schema={"type": "string", "examples": ["string", "int", "float", "bool", "any", "float?"]},
    ),
]
EventAttributes = Annotated[
    NamedEntries[Kind], Named("event type <0>", "write <0>: {area: string, value: float?}", or_null=True)
]
NODES_EXAMPLE: Final = "write nodes: [a, b, c]"
NodeName = Annotated[Scalar, TextEntry("a node", NODES_EXAMPLE)]


class NodePart(FilePart):
    """One node, where it has settings of its own."""

    WHAT: ClassVar = "node <0>"
    EXAMPLE: ClassVar = "write p1: {listen: 127.0.0.1:7001}"

    listen: Annotated[Scalar | None, TextEntry("an address", "write listen: 127.0.0.1:7001")] = Field(
        None, description="Where the node listens, as host:port."
    )


Nodes = Annotated[
    Annotated[tuple[NodeName, ...], Listed("nodes", NODES_EXAMPLE), Tag(ITEMS)]
    | Annotated[NamedEntries[NodePart | None], Named("nodes"), Tag(MAPPING)],
    Discriminator(lambda entry: ITEMS if shape(entry) == VALUE else shape(entry)),
]


def _two_ends(count: int) -> PydanticCustomError | None:
    return None if count == 2 else wrong(f"a link has two ends, not {count}", "write between: [a, b]")


class LinkPart(FilePart):
    """A link between two nodes, in both directions."""

    WHAT: ClassVar = "a link"
    EXAMPLE: ClassVar = "write - {between: [a, b], delay: 5ms}"
    LACKS: ClassVar = "a link needs its two ends"

    between: Annotated[
        tuple[Annotated[Scalar, TextEntry("the end of a link")], ...],
        Listed("between", "write between: [a, b]", _two_ends, {"minItems": 2, "maxItems": 2}),
    ] = Field(description="The two nodes.")
    delay: Annotated[int, QuantityEntry("delay", "", duration_us, DURATION)] = Field(
        0, description="How long a frame takes, as in 5ms."
    )
    bandwidth: Annotated[
        int | None, QuantityEntry("bandwidth", "", bandwidth_bps, {"type": "string", "examples": ["10Mbit", "2 MB/s"]})
    ] = Field(None, description="Bits or bytes per second, as in 10Mbit; without limit where it is left out.")
    jitter: Annotated[int, QuantityEntry("jitter", "", duration_us, DURATION)] = Field(
        0, description="By how much the delay varies."
    )
    loss: Annotated[float, QuantityEntry("loss", "", share_of, {**NUMBER, "examples": ["1%", 0.01]})] = Field(
        0.0, description="The share of frames that are lost, as in 1% or 0.01."
    )
