"""Turns a network file into a planning problem: its rules as queries, its declared rates, its sinks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from headwater.coordinator.inev.model.problem import Problem, ProblemError, event_network
from headwater.coordinator.inev.model.rules import Statistics, problem_from
from headwater.deploy.network.file import NetworkFile
from headwater.protocol.edge import RateFeed
from headwater.protocol.pattern import types_of


def network_problem(file: NetworkFile, sample: Statistics | None = None) -> Problem:
    """The problem of placing the rules; ProblemError says which rate is missing or which rule cannot be planned."""
    network = file.network
    read = {type for rule in network.rules for type in types_of(rule.pattern)}
    if not network.rules:
        raise ProblemError(f"{file.path} has no rules; there is nothing to plan")
    statistics = statistics_of(file, sample)
    for source in network.sources:
        if source.type in read and source.node not in statistics.rates.get(source.type, {}):
            raise ProblemError(
                f"{file.path}: nothing says how often {source.type} occurs at {source.node}; "
                f"write statistics: {{rates: {{{source.type}: {{{source.node}: 2/s}}}}}}, or let --sample count"
            )
    rates = {name: at for name, at in statistics.rates.items() if name in read}
    bare = event_network(network.nodes, [(link.one, link.other) for link in network.links], rates)
    number = {name: at for at, name in enumerate(network.nodes)}
    sinks: dict[str, tuple[int, ...]] = {}
    for sink in network.sinks:
        name = sink.subscription.type
        sinks[name] = tuple(sorted({*sinks.get(name, ()), number[sink.node]}))
    problem = problem_from(network.rules, network.nodes, bare, statistics, sinks, network.tables)
    return replace(problem, warnings=(*problem.warnings, *_unused_rates(file)))


def _unused_rates(file: NetworkFile) -> Iterator[str]:
    """A sentence for every rate in the statistics that belongs to no source."""
    at = {(source.type, source.node) for source in file.network.sources}
    for name, rates in file.statistics.rates.items():
        for node in rates:
            if (name, node) not in at and (node or all(name != type for type, _ in at)):
                where = f" at {node}" if node else ""
                yield f"the rate of {name}{where} is not used: {name} has no source{where}; add one, or take it out"


def statistics_of(file: NetworkFile, sample: Statistics | None = None) -> Statistics:
    """What the file tells planners: its section of statistics, and the rates of sources that have one. ``sample`` tells
    the rest."""
    counted = sample or Statistics({})
    rates: dict[str, dict[str, float]] = {}
    for source, simulated, live in zip(file.network.sources, file.feeds, file.running(), strict=True):
        stated = file.statistics.rates.get(source.type, {})
        rate = stated.get(source.node, stated.get(""))
        if rate is None:
            rate = next((feed.per_s for feed in (live, simulated) if isinstance(feed, RateFeed)), None)
        if rate is None and source.node not in rates.get(source.type, {}):
            rate = counted.rates.get(source.type, {}).get(source.node)  # of all its sources of the type there
        if rate is not None:
            at = rates.setdefault(source.type, {})
            at[source.node] = at.get(source.node, 0.0) + rate
    written = file.statistics.selectivities
    rules = {*written, *counted.selectivities}
    shares = {rule: {**counted.selectivities.get(rule, {}), **written.get(rule, {})} for rule in rules}
    given = file.statistics
    return Statistics(rates, shares, given.latency, given.pull, projections=given.projections, keys=given.keys)
