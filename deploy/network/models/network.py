"""A whole network file, as a model."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field

from headwater.deploy.network.fields import FilePart, Given, Listed, Named, NamedEntries, OneOrMore
from headwater.deploy.network.mistakes import wrong
from headwater.deploy.network.models.forms import DURATION
from headwater.deploy.network.models.mqtt import MqttPart
from headwater.deploy.network.models.sinks import SinkPart
from headwater.deploy.network.models.sources import SourcePart
from headwater.deploy.network.models.statistics import StatisticsPart
from headwater.deploy.network.models.topology import EventAttributes, LinkPart, Nodes
from headwater.deploy.network.values import OneOf, QuantityEntry, TextEntry, lasting
from headwater.deploy.network.yaml_tree import Scalar
from headwater.node.remote.caches import CACHES
from headwater.node.remote.policies import POLICIES
from headwater.protocol.strategy import STRATEGIES
from headwater.protocol.text import listed

LEAST_US: Final = 5_000_000
"""Of lost_after, as a process needs a second or two to be started again, and of replan."""


def _seed(text: Scalar) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise wrong(f"{str(text)!r} is not a seed", "write a whole number, 0 or greater")
    return int(text)


SOME_TIME: Final = lasting(1, "a duration of nothing", "write how long the network runs, as in 10 min")
LOST_AFTER: Final = lasting(
    LEAST_US, "a node that restarts would count as lost", "write at least 5s; what is lost does not come back"
)
REPLAN: Final = lasting(
    LEAST_US, "plans would follow each other too fast", "write at least 5s; each new plan costs a set-up"
)
RuleText = Annotated[
    Scalar,
    TextEntry(
        "a rule", "write the name of a file (.tesla or .sase), or the rule's text after |", schema={"type": "string"}
    ),
]


class NetworkPart(FilePart):
    """A network of Headwater: nodes, links, where events come in, by which rules they are joined, where results go."""

    WHAT: ClassVar = "a network file"
    DROPS_NULL: ClassVar = True

    events: Annotated[NamedEntries[EventAttributes] | None, Named("events", "write Temp: {area: string}")] = Field(
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
    functions: Annotated[
        Scalar | None, TextEntry("functions", "write the name of a Python file, as in my_functions.py")
    ] = Field(
        None, description="A Python file with functions that rules may call; nodes need --allow-functions to run it."
    )
    remote: Annotated[Any, Given()] = Field(
        None,
        description="Tables that rules look into, by name, each with its provider.",
        json_schema_extra={"type": "object"},
    )
    remote_strategy: Annotated[
        str | None,
        OneOf(
            "the strategy for remote tables",
            "unknown strategy {text!r}",
            f"strategies: {listed(POLICIES)}",
            choices=tuple(POLICIES),
        ),
    ] = Field(None, description="How rules come by what they look up.")
    remote_strategies: Annotated[Any, Given()] = Field(
        None,
        description="The strategy for remote tables of single rules.",
        json_schema_extra={"type": "object", "additionalProperties": {"enum": list(POLICIES)}},
    )
    remote_cache: Annotated[
        str | None,
        OneOf(
            "what makes room where nodes keep too much of remote tables",
            "there is no cache {text!r}",
            f"caches: {listed(CACHES)}",
            choices=tuple(CACHES),
        ),
    ] = Field(None, description="What makes room where nodes keep too much of remote tables.")
    remote_priorities: Annotated[Any, Given()] = Field(
        None,
        description="How much the matches of a rule count where nodes decide what to fetch ahead and what to keep.",
        json_schema_extra={"type": "object", "additionalProperties": {"type": "number", "exclusiveMinimum": 0}},
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
    duration: Annotated[int | None, QuantityEntry("duration", "", SOME_TIME, DURATION)] = Field(
        None, description="How long the network runs."
    )
    seed: Annotated[
        int | None, TextEntry("the seed", "write a whole number", _seed, {"type": ["integer", "string"]})
    ] = Field(None, description="For what a simulation draws at random.")
    durability: Annotated[Literal["none", "async", "sync"], OneOf("durability")] = Field(
        "sync", description="Which inputs of a node are on disk before their effects leave the node."
    )
    mqtt: Annotated[MqttPart | None, Given()] = None
    lost_after: Annotated[int | None, QuantityEntry("lost_after", "", LOST_AFTER, DURATION)] = Field(
        None, description="A node that is silent for this long is given up."
    )
    statistics: Annotated[StatisticsPart | None, Given()] = None
    replan: Annotated[int | None, QuantityEntry("replan", "", REPLAN, DURATION)] = Field(
        None,
        description="With strategy inev: how often a running network looks for a better plan.",
    )
    fall_back: Annotated[
        Literal["on", "off"],
        OneOf("fall_back", "{text!r} says nothing about falling back", "write on or off", near=False),
    ] = Field("on", description="With strategy inev: whether stages that cost more than they save fall back.")
