"""Recovers a coordinator from its nodes: its decisions as pieces that nodes store, and how it is rebuilt from them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from headwater.coordinator.core import Coordinator
from headwater.coordinator.layout.planner_interface import Planner
from headwater.coordinator.requests import AddSource, AddSubscription
from headwater.protocol.messages.recovery import Noted, NotedBuild, NotedLoss, NotedPlan, NotedReturn, NotedTypes
from headwater.protocol.network import Network, Sink, Source
from headwater.protocol.subscriptions import Subscription


def noted(coordinator: Coordinator, operations: int, lives: Mapping[str, str | None]) -> Iterator[Noted]:
    """Everything that a successor must know, as it is right after nodes were sent a plan. ``lives`` are those that lost
    nodes had."""
    yield NotedTypes(coordinator.network.types)
    yield from coordinator.contents.noted()
    yield from coordinator.trees.noted()
    for (tree, epoch), plan, from_us in coordinator.served():
        current = (tree, epoch) not in coordinator.trees.superseded
        yield NotedBuild(tree, epoch, plan, from_us, current)
    for node in coordinator.network.nodes:
        if node not in coordinator.nodes():
            yield NotedLoss(node, lives.get(node))
    for back, waits in coordinator.returning():
        match back:
            case AddSource(source, number=int(number)):
                yield NotedReturn(number, source, source.node, None, waits)
            case AddSubscription(sink, number=int(number)):
                yield NotedReturn(number, None, sink.node, sink.subscription, waits)
    numbers = (coordinator.contents.next_source, coordinator.contents.next_sink, operations)
    yield NotedPlan(coordinator.plan, coordinator.plan_from_us, *numbers, coordinator.changed_us)


def recalled(network: Network, pieces: Iterable[Noted], lay_out: Planner, *, falls_back: bool = True) -> Coordinator:
    """The coordinator that has noted these, of a network with these nodes and links. It waits to be told what its nodes
    remember (``relinked``)."""
    pieces = list(pieces)
    types = next((piece.types for piece in pieces if isinstance(piece, NotedTypes)), network.types)
    coordinator = Coordinator(replace(network, types=types), network.strategy, lay_out=lay_out, falls_back=falls_back)
    coordinator.contents.recall(pieces)
    coordinator.trees.recall(pieces, replace(coordinator.network, sinks=coordinator.contents.as_sinks()))
    for piece in pieces:
        match piece:
            case NotedPlan(plan, from_us, changed_us=changed_us):
                coordinator.plan, coordinator.plan_from_us, coordinator.changed_us = plan, from_us, changed_us
            case NotedReturn(number, Source() as source, _, _, waits):
                coordinator.returns(AddSource(source, number=number), waits=waits)
            case NotedReturn(number, _, node, Subscription() as subscription, waits):
                coordinator.returns(AddSubscription(Sink(node, subscription), number=number), waits=waits)
    coordinator.recall_builds(
        ((piece.tree, piece.epoch), piece.plan, piece.from_us) for piece in pieces if isinstance(piece, NotedBuild)
    )
    coordinator.recall_losses(piece.node for piece in pieces if isinstance(piece, NotedLoss))
    return coordinator
