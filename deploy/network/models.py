"""What a network file may hold (docs/guide/networks.md), by section; its JSON schema is made from these models."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

from headwater.coordinator.inev.model.latency_bounds import USUAL_TERMS, LatencyTerms
from headwater.deploy.network.fields import (
    HIDDEN,
    ITEMS,
    MAPPING,
    SCALAR,
    VALUE,
    Given,
    Listed,
    Named,
    Names,
    Number,
    OneOf,
    OneOrMore,
    Part,
    Quantity,
    Text,
    float_of,
    lasting,
    mistake,
    shape,
    wrong,
)
from headwater.deploy.network.tree import Scalar
from headwater.deploy.network.units import (
    UNIT_WORDS,
    bandwidth_bps,
    delimiter_of,
    duration_us,
    rate_per_s,
    share_of,
    speed_of,
)
from headwater.protocol.edge import TIME_UNITS, TimeUnit
from headwater.protocol.errors import ConfigError
from headwater.protocol.languages.diagnostics import listed
from headwater.protocol.payload_maps import topic_filter
from headwater.protocol.strategy import STRATEGIES

LEAST_US: Final = 5_000_000
"""Of lost_after, as a process needs a second or two to be started again, and of replan."""

DURATION: Final = {
    "type": ["string", "number"],
    "pattern": r"^\s*[0-9.]+\s*[A-Za-zµ]*\s*$",
    "examples": ["5ms", "10 min"],
}
RATE: Final = {
    "type": "string",
    "pattern": r"^\s*[0-9.eE+-]+\s*(/|per\s)\s*[A-Za-zµ]+\s*$",
    "examples": ["2/s", "120/min"],
}
NUMBER: Final = {"type": ["number", "string"]}

# --- events, nodes, links ---------------------------------------------------------------------------------------------

KINDS: Final = "write int, float, string, bool or any"
Kind = Annotated[
    Scalar,
    Text(
        "the kind of <1>.<0>",
        KINDS,
        schema={"type": "string", "examples": ["string", "int", "float", "bool", "any", "float?"]},
    ),
]
EventAttributes = Annotated[
    Names[Kind], Named("event type <0>", "write <0>: {area: string, value: float?}", or_null=True)
]
NODES_EXAMPLE: Final = "write nodes: [a, b, c]"
NodeName = Annotated[Scalar, Text("a node", NODES_EXAMPLE)]


class NodePart(Part):
    """One node, where it has settings of its own."""

    WHAT: ClassVar = "node <0>"
    EXAMPLE: ClassVar = "write p1: {listen: 127.0.0.1:7001}"

    listen: Annotated[Scalar | None, Text("an address", "write listen: 127.0.0.1:7001")] = Field(
        None, description="Where the node listens, as host:port."
    )


Nodes = Annotated[
    Annotated[tuple[NodeName, ...], Listed("nodes", NODES_EXAMPLE), Tag(ITEMS)]
    | Annotated[Names[NodePart | None], Named("nodes"), Tag(MAPPING)],
    Discriminator(lambda given: ITEMS if shape(given) == VALUE else shape(given)),
]


def _two_ends(count: int) -> PydanticCustomError | None:
    return None if count == 2 else wrong(f"a link has two ends, not {count}", "write between: [a, b]")


class LinkPart(Part):
    """A link between two nodes, in both directions."""

    WHAT: ClassVar = "a link"
    EXAMPLE: ClassVar = "write - {between: [a, b], delay: 5ms}"
    LACKS: ClassVar = "a link needs its two ends"

    between: Annotated[
        tuple[Annotated[Scalar, Text("the end of a link")], ...],
        Listed("between", "write between: [a, b]", _two_ends, {"minItems": 2, "maxItems": 2}),
    ] = Field(description="The two nodes.")
    delay: Annotated[int, Quantity("delay", "", duration_us, DURATION)] = Field(
        0, description="How long a frame takes, as in 5ms."
    )
    bandwidth: Annotated[
        int | None, Quantity("bandwidth", "", bandwidth_bps, {"type": "string", "examples": ["10Mbit", "2 MB/s"]})
    ] = Field(None, description="Bits or bytes per second, as in 10Mbit; without limit where it is left out.")
    jitter: Annotated[int, Quantity("jitter", "", duration_us, DURATION)] = Field(
        0, description="By how much the delay varies."
    )
    loss: Annotated[float, Quantity("loss", "", share_of, {**NUMBER, "examples": ["1%", 0.01]})] = Field(
        0.0, description="The share of frames that are lost, as in 1% or 0.01."
    )


# --- sources ----------------------------------------------------------------------------------------------------------


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


class TimePart(Part):
    """Where the time of an event stands: in a column of a trace, or in a field of a message."""

    WHAT: ClassVar = "time"
    EXAMPLE: ClassVar = TIME_OF_MESSAGE
    SHORT: ClassVar = HIDDEN

    name: Annotated[Scalar | None, Text("time", TIME_OF_MESSAGE)] = Field(None, alias=HIDDEN)
    column: Annotated[Scalar | None, Text("the column of the time", TIME_OF_TRACE)] = Field(
        None, description="Of a trace: the column."
    )
    field: Annotated[Scalar | None, Text("time", TIME_OF_MESSAGE)] = Field(
        None, alias="from", description="Of MQTT: the field of the payload."
    )

    @property
    def place_of_field(self) -> Scalar | None:
        return self.name or self.field

    unit: Annotated[TimeUnit | None, Text("the unit of a time", UNIT_CURE, _unit, {"enum": [*TIME_UNITS]})] = None


ENTRY_EXAMPLE: Final = "write payload.FIELD, {from: payload.FIELD, unit: F, to: C} or {constant: VALUE}"


class MapPart(Part):
    """Where the value of one attribute comes from."""

    WHAT: ClassVar = "the entry of <0>"
    EXAMPLE: ClassVar = ENTRY_EXAMPLE
    SHORT: ClassVar = HIDDEN

    short: Annotated[Scalar | None, Text("the place of <0>", ENTRY_EXAMPLE)] = Field(None, alias=HIDDEN)
    field: Annotated[Scalar | None, Text("from", ENTRY_EXAMPLE)] = Field(None, alias="from")
    constant: Annotated[Scalar | None, Text("constant", ENTRY_EXAMPLE)] = None
    unit: Annotated[Scalar | None, Text("unit", ENTRY_EXAMPLE)] = None
    to: Annotated[Scalar | None, Text("to", ENTRY_EXAMPLE)] = None
    scale: Annotated[float, Number("scale", schema=NUMBER)] = 1.0
    offset: Annotated[float, Number("offset", schema=NUMBER)] = 0.0


WHEN_EXAMPLE: Final = "write when: payload.temperature, or when: {payload.method: NotifyStatus}"
When = Annotated[
    Annotated[
        Names[Annotated[Scalar, Text("what <0> equals", WHEN_EXAMPLE)]], Named("when", WHEN_EXAMPLE), Tag(MAPPING)
    ]
    | Annotated[tuple[Annotated[Scalar, Text("when", WHEN_EXAMPLE)], ...], OneOrMore(), Tag(ITEMS)],
    Discriminator(lambda given: MAPPING if shape(given) == MAPPING else ITEMS),
]
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


def _topic(text: Scalar) -> Scalar:
    levels = topic_filter(text).split("/")
    odd = next((level for level in levels if level not in ("+", "#") and ("+" in level or "#" in level)), None)
    if not text or "\0" in text:
        raise wrong("an empty topic", "write a topic, as in sensors/+/smoke")
    if odd is not None:
        raise wrong(f"{odd!r} is not a level of a topic", "+ and # stand for whole levels, as in sensors/+/smoke")
    if "#" in levels[:-1]:
        raise wrong("# stands for all that follows", "nothing can come after it; write + for one level")
    return text


def _delimiter(text: Scalar) -> str:
    try:
        return delimiter_of(text)
    except ConfigError as error:
        raise wrong(str(error)) from None


def _field(name: str) -> Text:
    return Text(name, f"write the name of a field of the payload, as in {name}: id")


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


class SourcePart(Part):
    """Where events of a type enter the network."""

    WHAT: ClassVar = "a source"
    EXAMPLE: ClassVar = "write - {node: a, type: Temp, trace: temp.csv}"
    LACKS: ClassVar = "this source does not say its {missing}"

    node: Annotated[tuple[Annotated[Scalar, Text("the node of a source")], ...], OneOrMore()]
    type: Annotated[tuple[Annotated[Scalar, Text("the type of a source")], ...], OneOrMore()]
    lateness: Annotated[int, Quantity("lateness", "", duration_us, DURATION)] = Field(
        0, description="How long the source waits for events that come late."
    )
    trace: Annotated[Scalar | None, Text("a trace", "write the name of a file of events")] = Field(
        None, description="A file of events (CSV, JSON lines, Parquet), or the folder of a prepared trace."
    )
    rate: Annotated[float | None, Quantity("rate", "", rate_per_s, RATE)] = Field(
        None, description="Events are generated at this rate, as in 2/s."
    )
    mqtt: Annotated[Scalar | None, Text("an MQTT topic", "", _topic)] = Field(None, description="A topic, as in s/+/t.")
    client: Annotated[
        Literal["any"] | None, OneOf("client", cure="write client: any; every program may publish", near=False)
    ] = Field(None, description="Programs publish the events.")
    replay: Annotated[
        Literal["any"] | None, OneOf("replay", cure="write replay: any; headwater replay names the trace", near=False)
    ] = Field(None, description="headwater replay streams a prepared trace.")
    speed: Annotated[float, Quantity("speed", "", speed_of, NUMBER)] = Field(
        1.0, description="How many times faster than its timestamps say a trace runs; max: as fast as it can."
    )
    type_column: Annotated[Scalar | None, Text("type_column", "write the name of a column")] = None
    delimiter: Annotated[str, Text("delimiter", "write one character in quotes, or tab", _delimiter)] = ","
    values: Annotated[
        Names[Any] | None,
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
    will: Annotated[Scalar | None, Text("will", "", _topic)] = None
    map: Annotated[
        Names[MapPart] | None, Named("map", "write map: {value: payload.temperature, site: {constant: roof}}")
    ] = None
    each: Annotated[Scalar | None, Text("each", "write each: payload.readings")] = None
    when: Annotated[When | None, Given()] = None
    unknown: Annotated[Literal["ignore", "keep", "refuse"], OneOf("unknown")] = "ignore"
    time: Annotated[TimePart | None, Given()] = None


# --- sinks ------------------------------------------------------------------------------------------------------------

DESTINATION_EXAMPLE: Final = "write to: stdout, client, {file: PATH}, {mqtt: TOPIC}, {webhook: URL} or {client: NAME}"


class DestinationPart(Part):
    """Where the deliveries of a sink go."""

    WHAT: ClassVar = "to"
    EXAMPLE: ClassVar = DESTINATION_EXAMPLE
    SHORT: ClassVar = HIDDEN

    plain: Annotated[
        Literal["stdout", "client"] | None,
        OneOf("to", "a sink cannot go to {text!r}", DESTINATION_EXAMPLE, choices=("stdout", "client")),
    ] = Field(None, alias=HIDDEN)
    file: Annotated[Scalar | None, Text("file", DESTINATION_EXAMPLE)] = None
    mqtt: Annotated[Scalar | None, Text("mqtt", DESTINATION_EXAMPLE)] = None
    webhook: Annotated[Scalar | None, Text("webhook", DESTINATION_EXAMPLE)] = None
    client: Annotated[Scalar | None, Text("client", DESTINATION_EXAMPLE)] = None
    qos: Qos = "1"


SINK_EXAMPLE: Final = "write - {node: a, subscribe: \"Fire(area = 'A1')\"}"


class SinkPart(Part):
    """Where composite events leave the network."""

    WHAT: ClassVar = "a sink"
    EXAMPLE: ClassVar = SINK_EXAMPLE
    LACKS: ClassVar = "this sink does not say its {missing}"

    node: Annotated[Scalar, Text("the node of a sink")]
    subscribe: Annotated[tuple[Annotated[Scalar, Text("a subscription", SINK_EXAMPLE)], ...], OneOrMore()]
    to: Annotated[DestinationPart | None, Given()] = None


# --- settings ---------------------------------------------------------------------------------------------------------


def _port(text: Scalar) -> int:
    if re.fullmatch(r"[0-9]{1,5}", text) and 0 < int(text) < 65536:
        return int(text)
    raise wrong(f"{str(text)!r} is not a port", "write a number from 1 to 65535")


def _file(name: str) -> Text:
    return Text(name, "write the name of a file")


BROKER_EXAMPLE: Final = "write mqtt: {broker: embedded} or mqtt: {broker: mqtt://broker.example:1883}"


class MqttPart(Part):
    """The broker through which devices and consumers are reached."""

    WHAT: ClassVar = "mqtt"
    EXAMPLE: ClassVar = BROKER_EXAMPLE
    LACKS: ClassVar = "mqtt does not say which broker"
    SHORT: ClassVar = "broker"

    broker: Annotated[Scalar, Text("a broker", BROKER_EXAMPLE)] = Field(description="embedded, or mqtt://HOST:PORT.")
    port: Annotated[int | None, Text("a port", "write port: 1883", _port, {"type": "integer"})] = None
    username: Annotated[Scalar | None, Text("the username")] = None
    password_file: Annotated[Scalar | None, _file("password_file")] = None
    ca: Annotated[Scalar | None, _file("ca")] = None
    cert: Annotated[Scalar | None, _file("cert")] = None
    key: Annotated[Scalar | None, _file("key")] = None


STATISTICS_EXAMPLE: Final = 'write statistics: {rates: {Temp: 2/s}, selectivities: {Fire: {"smoke, temp": 0.05}}}'


def _selectivity(text: Scalar) -> float:
    share = float_of(text)
    if not 0 < share <= 1:
        raise wrong(f"{str(text)!r} is not a selectivity", "write the share that passes, above 0 and at most 1")
    return share


class SharePart(Part):
    """A selectivity; beside the share, what it was counted from."""

    WHAT: ClassVar = "the selectivity of <0>"
    EXAMPLE: ClassVar = STATISTICS_EXAMPLE
    SHORT: ClassVar = "share"

    share: Annotated[float, Text("the selectivity of <0>", "", _selectivity, NUMBER)]
    low: Any = None
    high: Any = None
    passed: Any = None
    of: Any = None
    sampled: Any = None

    @classmethod
    def lacking(cls, missing: list[str]) -> PydanticCustomError:
        return mistake("lacking", what=cls.WHAT, why="has no share", cure="write {share: 0.05}, or only 0.05")


Rates = Annotated[
    Annotated[float, Quantity("the rate of <0>", "", rate_per_s, RATE), Tag(VALUE)]
    | Annotated[
        Names[Annotated[float, Quantity("the rate of <1> at <0>", "", rate_per_s, RATE)]],
        Named("the rates of <0>"),
        Tag(MAPPING),
    ],
    Discriminator(lambda given: MAPPING if shape(given) == MAPPING else VALUE),
]
RatesByType = Annotated[Names[Rates], Named("the rates", STATISTICS_EXAMPLE)]
Selectivities = Annotated[
    Names[Annotated[Names[SharePart], Named("the selectivities of <0>", STATISTICS_EXAMPLE)]],
    Named("the selectivities", STATISTICS_EXAMPLE),
]


def _factor(text: Scalar) -> float:
    try:
        factor = float(text)
    except ValueError:
        message = f"the factor {str(text)!r} is not a number"
        raise wrong(message, "write what work counts beside a hop: factor: 1") from None
    return LatencyTerms(factor=factor).factor


def _bound(text: Scalar) -> str:
    return LatencyTerms(bound=str(text)).bound


class LatencyPart(Part):
    """How late a match may be for the sake of less traffic."""

    WHAT: ClassVar = "latency"
    EXAMPLE: ClassVar = "write latency: {bound: 3x, factor: 1}"

    bound: Annotated[str, Text("the bound of the latency", "", _bound)] = USUAL_TERMS.bound
    factor: Annotated[float, Text("the factor of the latency", "", _factor, NUMBER)] = USUAL_TERMS.factor


class StatisticsPart(Part):
    """What planners know beside the rules."""

    WHAT: ClassVar = "statistics"
    EXAMPLE: ClassVar = STATISTICS_EXAMPLE
    SHORT: ClassVar = "file"

    file: Annotated[
        Scalar | None, Text("the file of the statistics", "write the name of what headwater statistics wrote")
    ] = Field(None, description="A file that headwater statistics wrote.")
    rates: Annotated[RatesByType | None, Given()] = None
    selectivities: Annotated[Selectivities | None, Given()] = None
    latency: Annotated[LatencyPart | None, Given()] = None
    pull: Annotated[Literal["on", "off"], OneOf("pull")] = "on"


# --- files of headwater statistics (docs/spark/statistics.md) ---------------------------------------------------------


def _counted(what: str) -> Text:
    """A number that headwater statistics wrote."""

    def parse(text: Scalar) -> float:
        number = float_of(text)
        if not 0 <= number < float("inf"):
            raise wrong(f"{str(text)!r} is not a number of {what}", "count again with headwater statistics")
        return number

    return Text(what, "", parse, NUMBER)


class SinglePart(SharePart):
    """The share of the events of a role that are in matches."""

    WHAT: ClassVar = "the single share of <0>"
    EXAMPLE: ClassVar = ""

    share: Annotated[float, _counted("a share")]


class ProjectionPart(Part):
    """Matches of some roles of a rule, counted."""

    WHAT: ClassVar = "the matches of <0>"

    per_s: Annotated[float | None, _counted("matches per second")] = None
    singles: Annotated[Names[SinglePart] | None, Named("the single shares of <1>")] = None
    low: Any = None
    high: Any = None
    matches: Any = None
    sampled: Any = None
    selectivity: Any = None


class CountedRulePart(Part):
    """The rule that was counted for."""

    WHAT: ClassVar = "the rule <0>"

    text: Any = None
    digest: Any = None


class StatisticsFilePart(Part):
    """What headwater statistics writes."""

    WHAT: ClassVar = "a statistics file"
    EXAMPLE: ClassVar = "headwater statistics --out writes such files"

    rates: Annotated[RatesByType | None, Given()] = None
    selectivities: Annotated[Selectivities | None, Given()] = None
    projections: Annotated[
        Names[Annotated[Names[ProjectionPart], Named("the projections of <0>")]] | None,
        Named("the projections", STATISTICS_EXAMPLE),
    ] = None
    rules: Annotated[Names[CountedRulePart] | None, Named("the rules")] = None
    trace: Any = None
    sample: Any = None
    arrivals: Any = None
    notes: Any = None


# --- the whole --------------------------------------------------------------------------------------------------------


def _seed(text: Scalar) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise wrong(f"{str(text)!r} is not a seed", "write a whole number, 0 or greater")
    return int(text)


SOME_TIME: Final = lasting(1, "a duration of nothing", "write how long the network runs, as in 10 min")
LOST_AFTER: Final = lasting(
    LEAST_US, "a node that restarts would count as lost", "write at least 5s; what is lost does not come back"
)
REPLAN: Final = lasting(LEAST_US, "a plan would follow the other", "write at least 5s; each new plan costs a set-up")
RuleText = Annotated[
    Scalar,
    Text("a rule", "write the name of a file (.tesla or .sase), or the rule's text after |", schema={"type": "string"}),
]


class NetworkPart(Part):
    """A network of Headwater: nodes, links, where events come in, by which rules they are joined, where results go."""

    WHAT: ClassVar = "a network file"
    DROPS_NULL: ClassVar = True

    events: Annotated[Names[EventAttributes] | None, Named("events", "write Temp: {area: string}")] = Field(
        None, description="The types of events that enter, with their attributes and kinds."
    )
    nodes: Annotated[Nodes | None, Given()] = Field(
        None, description="A list of names, or a mapping of names to settings."
    )
    links: Annotated[tuple[LinkPart, ...], Listed("links", LinkPart.EXAMPLE)] = ()
    sources: Annotated[tuple[SourcePart, ...], Listed("sources", SourcePart.EXAMPLE)] = ()
    sinks: Annotated[tuple[SinkPart, ...], Listed("sinks", SinkPart.EXAMPLE)] = ()
    rules: Annotated[tuple[RuleText, ...], OneOrMore()] = Field(
        (), description="Rule files (.tesla, .sase), or rules themselves."
    )
    strategy: Annotated[
        str | None,
        OneOf(
            "the strategy",
            "unknown strategy {text!r}",
            f"strategies: {listed(STRATEGIES)}",
            choices=tuple(STRATEGIES),
        ),
    ] = Field(None, description="How the rules are evaluated in the network.")
    duration: Annotated[int | None, Quantity("duration", "", SOME_TIME, DURATION)] = Field(
        None, description="How long the network runs."
    )
    seed: Annotated[int | None, Text("the seed", "write a whole number", _seed, {"type": ["integer", "string"]})] = (
        Field(None, description="For what a simulation draws at random.")
    )
    durability: Annotated[Literal["none", "async", "sync"], OneOf("durability")] = Field(
        "sync", description="What of the inputs of a node is on disk before anything comes of them."
    )
    mqtt: Annotated[MqttPart | None, Given()] = None
    lost_after: Annotated[int | None, Quantity("lost_after", "", LOST_AFTER, DURATION)] = Field(
        None, description="A node that is silent for this long is given up."
    )
    statistics: Annotated[StatisticsPart | None, Given()] = None
    replan: Annotated[int | None, Quantity("replan", "", REPLAN, DURATION)] = Field(
        None,
        description="With strategy inev: how often a running network looks for a better plan.",
    )
    fall_back: Annotated[
        Literal["on", "off"],
        OneOf("fall_back", "{text!r} says nothing about falling back", "write on or off", near=False),
    ] = Field("on", description="With strategy inev: whether stages that cost more than they save fall back.")
