"""The sources of a network file: traces, rates, MQTT, programs and replays."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Discriminator, Field, Tag

from headwater.deploy.network.fields import (
    HIDDEN,
    ITEMS,
    MAPPING,
    FilePart,
    Given,
    Named,
    NamedEntries,
    OneOrMore,
    shape,
)
from headwater.deploy.network.mistakes import wrong
from headwater.deploy.network.models.forms import DURATION, NUMBER, RATE
from headwater.deploy.network.models.mqtt import Qos, topic
from headwater.deploy.network.units import UNIT_WORDS, delimiter_of, duration_us, rate_per_s, speed_of
from headwater.deploy.network.values import SCALAR, NumberEntry, OneOf, QuantityEntry, TextEntry
from headwater.deploy.network.yaml_tree import Scalar
from headwater.protocol.edge import TIME_UNITS, TimeUnit
from headwater.protocol.errors import ConfigError
from headwater.protocol.text import listed


def _unit(text: Scalar) -> TimeUnit:
    if text in TIME_UNITS:
        return str(text)  # type: ignore[return-value]
    near = UNIT_WORDS.get(text.lower())
    raise wrong(f"{str(text)!r} is not a unit of time", f"did you mean {near!r}?" if near else UNIT_CURE)


UNIT_CURE: Final = f"write one of {listed(TIME_UNITS)}"
TIME_OF_TRACE: Final = "write time: {column: at, unit: ms}, or one of both"
TIME_OF_MESSAGE: Final = (
    "write the name of a field of the payload, as in time: at, or time: {from: payload.at, unit: ms}"
)


class TimePart(FilePart):
    """Where the time of an event stands: in a column of a trace, or in a field of a message."""

    WHAT: ClassVar = "time"
    EXAMPLE: ClassVar = TIME_OF_MESSAGE
    SHORT: ClassVar = HIDDEN

    name: Annotated[Scalar | None, TextEntry("time", TIME_OF_MESSAGE)] = Field(None, alias=HIDDEN)
    column: Annotated[Scalar | None, TextEntry("the column of the time", TIME_OF_TRACE)] = Field(
        None, description="Of a trace: the column."
    )
    field: Annotated[Scalar | None, TextEntry("time", TIME_OF_MESSAGE)] = Field(
        None, alias="from", description="Of MQTT: the field of the payload."
    )

    @property
    def place_of_field(self) -> Scalar | None:
        return self.name or self.field

    unit: Annotated[TimeUnit | None, TextEntry("the unit of a time", UNIT_CURE, _unit, {"enum": [*TIME_UNITS]})] = None


ENTRY_EXAMPLE: Final = "write payload.FIELD, {from: payload.FIELD, unit: F, to: C} or {constant: VALUE}"


class MapPart(FilePart):
    """Where the value of one attribute comes from."""

    WHAT: ClassVar = "the entry of <0>"
    EXAMPLE: ClassVar = ENTRY_EXAMPLE
    SHORT: ClassVar = HIDDEN

    short: Annotated[Scalar | None, TextEntry("the place of <0>", ENTRY_EXAMPLE)] = Field(None, alias=HIDDEN)
    field: Annotated[Scalar | None, TextEntry("from", ENTRY_EXAMPLE)] = Field(None, alias="from")
    constant: Annotated[Scalar | None, TextEntry("constant", ENTRY_EXAMPLE)] = None
    unit: Annotated[Scalar | None, TextEntry("unit", ENTRY_EXAMPLE)] = None
    to: Annotated[Scalar | None, TextEntry("to", ENTRY_EXAMPLE)] = None
    scale: Annotated[float, NumberEntry("scale", schema=NUMBER)] = 1.0
    offset: Annotated[float, NumberEntry("offset", schema=NUMBER)] = 0.0


WHEN_EXAMPLE: Final = "write when: payload.temperature, or when: {payload.method: NotifyStatus}"
When = Annotated[
    Annotated[
        NamedEntries[Annotated[Scalar, TextEntry("what <0> equals", WHEN_EXAMPLE)]],
        Named("when", WHEN_EXAMPLE),
        Tag(MAPPING),
    ]
    | Annotated[tuple[Annotated[Scalar, TextEntry("when", WHEN_EXAMPLE)], ...], OneOrMore(), Tag(ITEMS)],
    Discriminator(lambda entry: MAPPING if shape(entry) == MAPPING else ITEMS),
]


def _delimiter(text: Scalar) -> str:
    try:
        return delimiter_of(text)
    except ConfigError as error:
        raise wrong(str(error)) from None


def _field(name: str) -> TextEntry:
    return TextEntry(name, f"write the name of a field of the payload, as in {name}: id")


GENERATOR: Final = {
    "anyOf": [
        {**SCALAR, "type": [*SCALAR["type"], "null"]},
        {
            "type": "object",
            "properties": {
                "uniform": {"type": "array", "items": NUMBER, "minItems": 2, "maxItems": 2},
                "normal": {"type": "array", "items": NUMBER, "minItems": 2, "maxItems": 2},
                "choice": {"type": ["array", "object"]},
                "sequence": {"type": ["array", "number"]},
            },
            "additionalProperties": False,
            "minProperties": 1,
            "maxProperties": 1,
        },
    ]
}
"""What an attribute is drawn from; generators.py reads it, as it depends on the kind of the attribute."""

FEED_KEYS: Final = ("trace", "rate", "mqtt", "client", "replay")
FEED_OPTIONS: Final[dict[str, tuple[str, ...]]] = {
    "speed": ("trace",), "type_column": ("trace",), "delimiter": ("trace",),
    "values": ("rate",), "times": ("rate",),
    "payload": ("mqtt",), "qos": ("mqtt",), "device": ("mqtt",), "counter": ("mqtt",), "will": ("mqtt",),
    "map": ("mqtt",), "each": ("mqtt",), "when": ("mqtt",), "unknown": ("mqtt",),
    "time": ("mqtt", "trace"),
}  # fmt: skip
"""What else a source may say, and with which way of getting events."""


class SourcePart(FilePart):
    """Where events of a type enter the network."""

    WHAT: ClassVar = "a source"
    EXAMPLE: ClassVar = "write - {node: a, type: Temp, trace: temp.csv}"
    LACKS: ClassVar = "this source does not say its {missing}"

    node: Annotated[tuple[Annotated[Scalar, TextEntry("the node of a source")], ...], OneOrMore()]
    type: Annotated[tuple[Annotated[Scalar, TextEntry("the type of a source")], ...], OneOrMore()]
    lateness: Annotated[int, QuantityEntry("lateness", "", duration_us, DURATION)] = Field(
        0, description="How long the source waits for events that come late."
    )
    trace: Annotated[Scalar | None, TextEntry("a trace", "write the name of a file of events")] = Field(
        None, description="A file of events (CSV, JSON lines, Parquet), or the folder of a prepared trace."
    )
    rate: Annotated[float | None, QuantityEntry("rate", "", rate_per_s, RATE)] = Field(
        None, description="Events are generated at this rate, as in 2/s."
    )
    mqtt: Annotated[Scalar | None, TextEntry("an MQTT topic", "", topic)] = Field(
        None, description="A topic, as in s/+/t."
    )
    client: Annotated[
        Literal["any"] | None, OneOf("client", cure="write client: any; every program may publish", near=False)
    ] = Field(None, description="Programs publish the events.")
    replay: Annotated[
        Literal["any"] | None, OneOf("replay", cure="write replay: any; headwater replay names the trace", near=False)
    ] = Field(None, description="headwater replay streams a prepared trace.")
    speed: Annotated[float, QuantityEntry("speed", "", speed_of, NUMBER)] = Field(
        1.0, description="How many times faster than its timestamps say a trace runs; max: as fast as it can."
    )
    type_column: Annotated[Scalar | None, TextEntry("type_column", "write the name of a column")] = None
    delimiter: Annotated[str, TextEntry("delimiter", "write one character in quotes, or tab", _delimiter)] = ","
    values: Annotated[
        NamedEntries[Any] | None,
        Named("values", "write {area: A1, value: {..}}", or_null=True),
        Field(json_schema_extra={"type": ["object", "null"], "additionalProperties": GENERATOR}),
    ] = Field(None, description="With rate: what each attribute is drawn from.")
    times: Annotated[Literal["poisson", "regular"], OneOf("times", cure="write regular or poisson", near=False)] = (
        "poisson"
    )
    payload: Annotated[Literal["json", "msgpack", "text"], OneOf("payload")] = "json"
    qos: Qos = "1"
    device: Annotated[Scalar | None, _field("device")] = None
    counter: Annotated[Scalar | None, _field("counter")] = None
    will: Annotated[Scalar | None, TextEntry("will", "", topic)] = None
    map: Annotated[
        NamedEntries[MapPart] | None, Named("map", "write map: {value: payload.temperature, site: {constant: roof}}")
    ] = None
    each: Annotated[Scalar | None, TextEntry("each", "write each: payload.readings")] = None
    when: Annotated[When | None, Given()] = None
    unknown: Annotated[Literal["ignore", "keep", "refuse"], OneOf("unknown")] = "ignore"
    time: Annotated[TimePart | None, Given()] = None
