"""Values of the protocol that saved state may contain: rules, events, plans, networks and the state of links."""

from __future__ import annotations

from typing import Any, Final, get_args

import msgpack

from headwater.protocol import edge, expressions, function_files, graphs, network, pattern, streams
from headwater.protocol.composites import (
    Composite,
    CompositeSpec,
    InformedComposite,
    LookedUp,
    carrying_spec,
    informed,
)
from headwater.protocol.events import Event, EventType
from headwater.protocol.messages import control, plans, recovery
from headwater.protocol.messages.neighbour import GraphLaid, TreeReady
from headwater.protocol.messages.trees import CreateTree
from headwater.protocol.state.classes import Made
from headwater.protocol.state.kinds import StateError
from headwater.protocol.subscriptions import Subscription
from headwater.protocol.wire.received_columns import Columns


def by_name(*classes: type) -> dict[str, type]:
    """Each class under the name it has now. One that is renamed stays under its old name: ``{"Old": New}``."""
    return {cls.__name__.lstrip("_"): cls for cls in classes}


CLASSES: Final[dict[str, type]] = {
    **by_name(Event, Subscription, GraphLaid, TreeReady, CreateTree),
    **by_name(*get_args(expressions.Expression)),
    **by_name(pattern.Rule, pattern.Pattern, pattern.Window, pattern.OutputAttribute, pattern.Chain),
    **by_name(*get_args(pattern.Part), *get_args(pattern.Step), pattern.Within, pattern.Between),
    **by_name(streams.Filter, streams.Whole),
    "PartOfRule": streams.Part,
    **by_name(*get_args(edge.Generator), edge.Layout, edge.Broker, edge.Mapped, edge.When),
    **by_name(*get_args(edge.Feed), *get_args(edge.Destination)),
    **by_name(network.Network, network.Link, network.Source, network.Sink, network.DescribedTable),
    **by_name(function_files.DescribedFunctions, function_files.FunctionSignature),
    **by_name(*get_args(graphs.Tap), graphs.Graph, graphs.GraphInlet, graphs.GraphTask, graphs.GraphOutlet),
    **by_name(graphs.GraphDelivery, graphs.Watch, graphs.Weight),
    **by_name(control.NodeConfig, control.PeerConfig, control.SourceConfig, control.SinkConfig, control.Register),
    **by_name(plans.PlannedSource, plans.PlannedSink, plans.PlannedRule, plans.PlannedTree, plans.Share),
    **by_name(plans.TableWay),
    **by_name(plans.Prepared),
    **by_name(*get_args(recovery.Noted)),
}
"""By the names under which they are saved."""


def _event_type(name: Any, *pairs: Any) -> EventType:
    return EventType(name, tuple(zip(pairs[::2], pairs[1::2], strict=True)))


def _event_type_parts(declared: EventType) -> list[str]:
    name, attributes = declared.declaration()
    return [name, *(word for pair in attributes for word in pair)]


def _spec_parts(spec: CompositeSpec) -> tuple[Any, ...]:
    return spec.rule, spec.version, spec.type, spec.plain, *spec.roles, *spec.repeated


def _spec(rule: Any, version: Any, event_type: Any, plain: Any, *roles: Any) -> CompositeSpec:
    names, repeated = roles[: len(roles) // 2], roles[len(roles) // 2 :]
    shape = (type(rule), type(version), type(event_type), type(plain), *map(type, names), *map(type, repeated))
    if shape != (str, int, EventType, bool, *[str] * len(names), *[bool] * len(names)):
        raise StateError("the saved state is damaged: composite events of no rule")
    return carrying_spec(rule, version, event_type, names, repeated, plain)


def _composite_parts(composite: Composite) -> tuple[Any, ...]:
    """The spec, the bindings, and the values of the attributes, which the spec would compute."""
    spec = composite[0]
    return (*composite[: 1 + len(spec.roles)], spec.values(*composite[1:]))


def _composite(spec: Any, *parts: Any) -> Composite:
    if type(spec) is not CompositeSpec or len(parts) != len(spec.roles) + 1:
        raise StateError("the saved state is damaged: a composite event without its parts")
    return Composite((spec, *parts))


def _informed_parts(composite: Composite) -> tuple[Any, ...]:
    """The same, and the values that it rests on as plain tuples."""
    return (*_composite_parts(composite), tuple(tuple(value) for value in composite.looked_up))


def _informed(*parts: Any) -> Composite:
    *of_composite, looked_up = parts
    if type(looked_up) is not tuple or not all(type(value) is tuple and len(value) == 5 for value in looked_up):
        raise StateError("the saved state is damaged: a composite event that rests on no values")
    return informed(_composite(*of_composite), (LookedUp(*value) for value in looked_up))


def _columns(event_type: EventType, number: int, data: bytes) -> Columns:
    return Columns(event_type, number, data, msgpack.unpackb(data)).bare()


MADE: Final[dict[str, Made]] = {
    "EventType": Made(EventType, _event_type_parts, _event_type),
    "CompositeSpec": Made(CompositeSpec, _spec_parts, _spec, is_interned=True),
    "Composite": Made(Composite, _composite_parts, _composite),
    "InformedComposite": Made(InformedComposite, _informed_parts, _informed),
    "Columns": Made(Columns, lambda columns: (columns.event_type, columns.number, columns.data), _columns),
}
