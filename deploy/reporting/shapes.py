"""Turns a network into what a report needs to know of it."""

from __future__ import annotations

from headwater.coordinator.leader import leader
from headwater.coordinator.shortest_paths import shortest_path_tree
from headwater.pipeline.report.shape import Shape, ShapeLink, ShapeSink
from headwater.protocol.network import Network
from headwater.protocol.pattern import types_of


def shape_of(
    network: Network,
    name: str,
    strategy: str,
    *,
    run: str = "",
    seed: int | None = None,
    simulated: bool = False,
    events: str = "",
    replayed: bool = False,
    trace: str | None = None,
    centr_bytes: int | None = None,
    restarts: dict[str, int] | None = None,
) -> Shape:
    """The shape of a run. What centr would do is worked out here: the leader that st elects, and the tree to it."""
    at = leader(network)
    named = {sink.subscription.type for sink in network.sinks}
    named |= {read for rule in network.rules for read in types_of(rule.pattern)}
    return Shape(
        network=name,
        strategy=strategy,
        nodes=network.nodes,
        links=tuple(ShapeLink(link.one, link.other, link.delay_us) for link in network.links),
        sources=tuple((source.node, source.type) for source in network.sources),
        sinks=tuple(ShapeSink(sink.node, sink.subscription.type) for sink in network.sinks),
        rules=tuple(rule.name for rule in network.rules),
        types=tuple(sorted(named - {rule.emits for rule in network.rules})),
        leader=at,
        parents=shortest_path_tree(network, at),
        run=run,
        seed=seed,
        simulated=simulated,
        events=events,
        replayed=replayed,
        trace=trace,
        centr_bytes=centr_bytes,
        restarts=restarts or {},
    )
