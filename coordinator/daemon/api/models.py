"""The models of the API: request bodies are checked with them, and the OpenAPI description is generated from them.

A body is what a request brings, a view what an answer shows.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Discriminator, Field, RootModel, Tag, model_validator
from pydantic_core import PydanticCustomError

from headwater.coordinator.daemon.api.edge_models import AS_ITS_FIELDS, Closed, absent
from headwater.protocol.edge import Broker, Feed

Time: TypeAlias = Annotated[int, Field(description="microseconds since 1970")]
EventTime: TypeAlias = Annotated[
    int | None, Field(description="event time in microseconds; null: from the beginning of time")
]
Until: TypeAlias = Annotated[
    int | None, Field(description="event time in microseconds until which it holds; null: it has not ended")
]
Counts: TypeAlias = dict[str, int]
Language: TypeAlias = Annotated[
    Literal["tesla", "sase"],
    Field(
        description="the language of the text; if it is left out, what the name ends in (.tesla, .sase) decides, and "
        "else it is tesla if the text has 'define'"
    ),
]
TextName: TypeAlias = Annotated[
    str, Field(description="stands in front of mistakes and names rules without a name, as the name of a file does")
]
RuleText: TypeAlias = Annotated[
    str,
    Field(
        description="one or more rules", examples=["define Fire() from Smoke() and last Temp() within 5 min from Smoke"]
    ),
]

# -------------------------------------------------------------------------------------------------------------- bodies


class RuleBody(Closed):
    """One text of rules."""

    text: RuleText
    language: Language = absent()
    name: TextName = absent()


class RulesBody(Closed):
    """One text of rules, or several."""

    text: RuleText = absent()
    language: Language = absent()
    name: TextName = absent()
    files: list[RuleBody] = absent(min_length=1, description="several texts in place of one, deployed together")

    @model_validator(mode="after")
    def _has_one_or_several(self) -> RulesBody:
        fields_set = self.model_fields_set
        if ("text" in fields_set) == ("files" in fields_set) or ("files" in fields_set and len(fields_set) > 1):
            raise PydanticCustomError(
                "text_or_files", "must have a text (with its language and name, if need be), or else files"
            )
        return self

    def texts(self) -> list[RuleBody]:
        """Each text with its language and name."""
        return self.files or [RuleBody.model_construct(self.model_fields_set, **dict(self))]


class NamedDestination(Closed):
    """Exactly one of file, mqtt, webhook and client; qos and broker belong to mqtt."""

    file: str = absent(description="JSON lines; a relative name is relative to the data folder of the node")
    mqtt: str = absent(description="a topic; {type} and {attribute} in it are filled in")
    qos: Literal[0, 1] = absent(description="of mqtt; 1 if it is left out")
    broker: Annotated[Broker, AS_ITS_FIELDS] = absent(
        description="of mqtt; if it is left out, the broker of the network"
    )
    webhook: str = absent(description="a web address, which gets a POST for each delivery")
    client: str = absent(description="the name of the program for which deliveries are kept")


DestinationWord: TypeAlias = Literal["stdout", "client"]
DestinationBody: TypeAlias = Annotated[
    Annotated[DestinationWord, Tag("word")] | Annotated[NamedDestination, Tag("named")],
    Discriminator(lambda destination: "named" if isinstance(destination, dict | NamedDestination) else "word"),
    Field(
        description="where deliveries go, as in a network file: a word, or exactly one of file, mqtt, webhook and "
        "client; if it is left out, a file sink-N.jsonl in the data folder of the node, N being the number of the "
        "subscription",
        examples=[{"webhook": "https://example.org/fires"}],
    ),
]


class SubscriptionBody(Closed):
    """A subscription at a node."""

    node: str
    subscribe: str = Field(description="a type and conditions", examples=["Fire(area = 'A1')"])
    to: DestinationBody = absent()


class SourceBody(Closed):
    """A source of events at a node."""

    node: str
    type: str
    feed: Annotated[Feed, AS_ITS_FIELDS] = Field(alias="from")
    lateness_us: int = Field(default=0, ge=0, description="how late events may come")


# --------------------------------------------------------------------------------------------------------------- views


class Error(Closed):
    """Why a request was refused."""

    error: str = Field(description="what is wrong and what to do, in a sentence")
    missing: list[str] = absent(description="of a network that is not ready: what it waits for, in sentences")
    refused: list[str] = absent(description="which nodes refuse its plan, and why; waiting does not help")


class AcceptedView(Closed):
    """A request that cannot be forgotten any more."""

    accepted: bool


class ChangeView(Closed):
    """A change that holds."""

    change: int
    what: str
    holds_from_us: EventTime
    rules: list[str] = absent()
    subscription: int = absent()
    source: int = absent()
    warnings: list[str] = absent()


class HealthView(Closed):
    status: str
    version: str
    network: str


class ReadyView(Closed):
    status: str


class OpenApiView(RootModel[dict[str, Any]]):
    """An OpenAPI 3.1 document."""


class TablesView(RootModel[dict[str, Any]]):
    """Everything that a node knows, as it tells it itself."""


class NodeView(Closed):
    name: str
    state: Literal["up", "down", "unregistered", "lost"]
    address: str | None
    http: str | None
    life: str | None
    version: str | None
    registered_us: Time | None
    last_heard_us: int | None = Field(description="when this coordinator process last heard of it")
    watermark_lag_s: float | None
    configuration: int | None = Field(description="version of the configuration it was last sent")
    unacknowledged: int = Field(description="messages sent to it that it has not confirmed")
    neighbours: list[str]
    statistics: dict[str, Any] = Field(description="what the node last reported about itself")


class NodesView(Closed):
    nodes: list[NodeView]


class LinkView(Closed):
    between: list[str]
    state: Literal["up", "down", "unknown", "lost"]
    delay_us: int
    bandwidth_bps: int | None
    traffic: dict[str, dict[str, Counts]] = Field(description="by sender, then by kind: events, messages and bytes")


class LinksView(Closed):
    links: list[LinkView]


class RuleView(Closed):
    name: str
    version: int
    emits: str
    reads: list[str]
    text: str
    language: Literal["tesla", "sase"]
    since_us: EventTime
    until_us: Until


class RulesView(Closed):
    rules: list[RuleView]


class SubscriptionView(Closed):
    number: int
    node: str
    subscribe: str
    to: DestinationBody
    since_us: EventTime
    until_us: Until


class SubscriptionsView(Closed):
    subscriptions: list[SubscriptionView]


class SourceView(Closed):
    number: int
    node: str
    type: str
    lateness_us: int
    feed: Annotated[Feed, AS_ITS_FIELDS] = Field(alias="from")
    since_us: EventTime
    until_us: Until


class SourcesView(Closed):
    sources: list[SourceView]


class SelectivityView(Closed):
    kind: str
    predicate: str
    seen: int
    passed: int
    selectivity: float | None = Field(description="share of what it has seen; null: nothing yet")


class JoinedView(Closed):
    rule: str
    roles: list[str]
    per_s: float


class StatisticsView(Closed):
    rates: dict[str, dict[str, float]] = Field(description="events per second, by type and node")
    selectivities: list[SelectivityView]
    joined: list[JoinedView] = Field(description="matches per second of roles that are joined somewhere")
    traffic: dict[str, dict[str, dict[str, Counts]]] = Field(description="by sender, receiver and kind")
    nodes: dict[str, Any] = Field(description="what each node last reported")


class TreeView(Closed):
    root: str
    epoch: int
    stands: bool
    parents: dict[str, str | None] = Field(description="the parent that each node should have")
    cut_off: list[str]


class FallBackView(Closed):
    stage: str
    nodes: list[str]
    instead: str
    has_fallen_back: bool


class DrainingView(Closed):
    root: str
    epoch: int


class PastChangeView(Closed):
    change: int
    what: str
    asked_us: Time
    holds_from_us: EventTime
    refused: str | None


class WaitingChangeView(Closed):
    change: int
    what: str
    asked_us: Time
    state: str


class PlansView(Closed):
    plan: int
    begun: bool
    strategy: str
    horizon_us: int
    trees: list[TreeView]
    fall_backs: list[FallBackView] = Field(
        description="stages whose nodes watch whether they pay, and those that did not"
    )
    planner_failed: str | None = Field(
        description="why the plan that holds is not what the planner has decided, and what is done instead"
    )
    draining: list[DrainingView]
    changes: list[PastChangeView] = Field(description="what was asked for and decided, the latest last")
    waiting: list[WaitingChangeView]


class NetworkLinkView(Closed):
    between: list[str]
    delay_us: int
    bandwidth_bps: int | None


class NetworkView(Closed):
    id: str
    strategy: str
    durability: str
    nodes: list[str]
    links: list[NetworkLinkView]
    events: dict[str, dict[str, str]] = Field(description="by type: its attributes and their kinds")
