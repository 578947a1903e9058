"""Feeds and destinations: where the events of a source come from and where the deliveries of a sink go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

from headwater.protocol.events import Value
from headwater.protocol.wire.rule_encoding import register

# ------------------------------------------------------------------------------------------------------ made-up values


@dataclass(frozen=True, slots=True)
class Uniform:
    """Any number from low to high, both included; whole numbers for an int attribute."""

    low: float
    high: float
    whole: bool


@dataclass(frozen=True, slots=True)
class Normal:
    """Numbers around a mean; rounded for an int attribute."""

    mean: float
    deviation: float
    whole: bool


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the items, each as likely as its weight says."""

    items: tuple[Value, ...]
    weights: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class Cycle:
    """The items in turn, again from the first after the last; a constant is a cycle of one."""

    items: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Count:
    """``start``, ``start + 1``, ``start + 2``, .."""

    start: int | float


Generator = Uniform | Normal | Choice | Cycle | Count

# ------------------------------------------------------------------------------------------------------------- sources

TimeUnit = Literal["s", "ms", "us", "ns", "iso"]
"""What times are written in: numbers of seconds, milliseconds, microseconds or nanoseconds since 1970, or ISO 8601."""
TIME_UNITS: Final[tuple[TimeUnit, ...]] = get_args(TimeUnit)


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the rows of a trace say their time and their type, and how."""

    time_column: str = "ts"
    time_unit: TimeUnit | None = None
    """None: integers are microseconds, anything else is ISO 8601; integers that are clearly dates in another unit are
    refused."""
    type_column: str = "type"
    delimiter: str = ","
    """Between the cells of a CSV file."""


USUAL: Final = Layout()


@dataclass(frozen=True, slots=True)
class Broker:
    """An MQTT broker: how to reach it, and as whom."""

    host: str
    port: int = 1883
    username: str | None = None
    password_file: str | None = None
    """A file that holds the password: secrets stand in no network file."""
    ca_file: str | None = None
    """With it the connection is encrypted, and the broker must show a certificate of this authority."""
    cert_file: str | None = None
    """What the node shows to a broker that asks for a certificate, and the key to it."""
    key_file: str | None = None
    tls: bool = False
    """Encrypted; without a ``ca_file`` the broker's certificate must come from an authority that the machine trusts."""


@dataclass(frozen=True, slots=True)
class TraceFeed:
    """The rows of a file that have the type of the source and, where the file names nodes, its node.

    ``speed``: how many times faster than the timestamps say; 0: as fast as the node takes them. A simulation ignores
    it.
    """

    path: str
    speed: float = 1.0
    layout: Layout = USUAL


@dataclass(frozen=True, slots=True)
class RateFeed:
    """Generated events: so many per second, at regular or at random (Poisson) distances."""

    per_s: float
    times: Literal["poisson", "regular"]
    values: tuple[Generator, ...]
    """One for each attribute of the type, in its order."""
    duration_us: int | None = None
    """How long a running node makes them; None: for ever. A simulation has its own duration."""
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Mapped:
    """Where the value of an attribute comes from: a place in a message (`protocol.payload_maps`), or a constant.

    A number is multiplied by ``scale``, then ``offset`` is added, then it is converted from ``unit`` to ``to``.
    """

    attribute: str
    source: str | None = None
    constant: str | None = None
    """As it is written; it becomes the kind that the attribute is declared as."""
    unit: str | None = None
    to: str | None = None
    scale: float = 1.0
    offset: float = 0.0


@dataclass(frozen=True, slots=True)
class When:
    """Only messages, or items of one, that hold something at this place: anything, or what ``equals`` says."""

    source: str
    equals: str | None = None


@dataclass(frozen=True, slots=True)
class MqttFeed:
    """Events that a broker delivers; only a running node can receive them, a simulation cannot."""

    topic: str
    """A level ``{name}`` is a wildcard like ``+``; what it stands for is the value of the attribute of that name."""
    broker: Broker
    payload: Literal["json", "msgpack", "text"] = "json"
    qos: int = 1
    device: str | None = None
    """The field of a payload, or the place in a message, that names the device, and the one that holds its counter:
    with both they are the identity of the event. A device ``+N`` is what the N-th wildcard of the topic stands for."""
    counter: str | None = None
    time: str | None = None
    """The field or the place that holds the time of the event; None: the time of its arrival."""
    will: str | None = None
    """The topic on which the broker tells that a device has left."""
    time_unit: TimeUnit | None = None
    """What the time is written in; None: microseconds or ISO 8601."""
    map: tuple[Mapped, ...] | None = None
    """Where attributes get their values from; None: each from the field of its name."""
    each: str | None = None
    """The place of a list, or of a map, each item of which is an event."""
    when: tuple[When, ...] = ()
    unknown: Literal["ignore", "keep", "refuse"] = "ignore"
    """What becomes of fields that nothing asks for: left out; kept as JSON in the attribute ``unknown``; or the message
    is refused."""


@dataclass(frozen=True, slots=True)
class ClientFeed:
    """Events that programs publish through the client."""


@dataclass(frozen=True, slots=True)
class ReplayFeed:
    """Events of a prepared trace that a replayer sends (``headwater replay``), with their times and numbers."""


Feed = TraceFeed | RateFeed | MqttFeed | ClientFeed | ReplayFeed


def feed_name(feed: Feed) -> str:
    """The word for it in a network file."""
    return type(feed).__name__.removesuffix("Feed").lower()


def is_replayed(feed: Feed) -> bool:
    """Whether the events have the times of a trace, which have nothing to do with the clock."""
    return isinstance(feed, TraceFeed | ReplayFeed)


# --------------------------------------------------------------------------------------------------------------- sinks


@dataclass(frozen=True, slots=True)
class StdoutTo:
    """JSON lines on the standard output of the node."""


@dataclass(frozen=True, slots=True)
class FileTo:
    """JSON lines, each once, appended to a file. A relative name is relative to the data folder of the node."""

    path: str


@dataclass(frozen=True, slots=True)
class MqttTo:
    """A message for each, on this topic; ``{type}`` and ``{attribute}`` in the topic are filled in."""

    topic: str
    broker: Broker
    qos: int = 1


@dataclass(frozen=True, slots=True)
class WebhookTo:
    """An HTTP POST for each, at least once, with the identity in a header."""

    url: str


@dataclass(frozen=True, slots=True)
class ClientTo:
    """Kept for the program that subscribes under this name."""

    name: str


Destination = StdoutTo | FileTo | MqttTo | WebhookTo | ClientTo

register(
    Uniform, Normal, Choice, Cycle, Count, Layout, Broker, Mapped, When,
    TraceFeed, RateFeed, MqttFeed, ClientFeed, ReplayFeed,
    StdoutTo, FileTo, MqttTo, WebhookTo, ClientTo,
)  # fmt: skip
