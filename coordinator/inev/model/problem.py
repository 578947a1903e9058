"""The planning problem: an event network, queries and a cost model, and the projections of the queries.

Nodes are numbers 0, 1, .. with names beside them. Every event type has a rate at each of its sources. A projection is
a query kept to some of its types; equal projections of different queries are one and the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from headwater.coordinator.inev.model.lookups import TableLookups
from headwater.coordinator.inev.model.patterns import (
    Pattern,
    checked,
    guards,
    leaves,
    listed,
    negated,
    negation_closed,
    precedence,
    project,
    repeated,
    same_as,
    serves,
    subsets,
    without_repetitions,
)
from headwater.coordinator.inev.model.topology import Topology
from headwater.protocol.errors import ConfigError

RATE_MAX: Final = 1e12
"""Rates of many types are multiplied; with larger ones the products would leave the range of floating point numbers."""


class ProblemError(ConfigError):
    """A network or workload that cannot be planned for, with what to change."""


@dataclass(frozen=True, slots=True)
class EventNetwork:
    """The topology, and for every event type its rate at each node that is a source of it."""

    names: tuple[str, ...]
    topology: Topology
    rates: Mapping[str, Mapping[int, float]]

    def sources(self, type: str) -> tuple[int, ...]:
        return tuple(sorted(self.rates[type]))

    def total(self, type: str) -> float:
        """The network-wide rate of a type."""
        return math.fsum(self.rates[type].values())

    def share(self, type: str, node: int) -> float:
        """The part of a type's events that is born at one of its sources."""
        return self.rates[type][node] / self.total(type)


def event_network(
    names: Iterable[str], links: Iterable[tuple[str, str]], rates: Mapping[str, Mapping[str, float]]
) -> EventNetwork:
    """Checks and numbers a network; ProblemError says what is wrong with it."""
    names = tuple(names)
    if not names:
        raise ProblemError("the network has no nodes; name at least one")
    number = {name: at for at, name in enumerate(names)}
    if len(number) < len(names):
        double = next(name for at, name in enumerate(names) if name in names[:at])
        raise ProblemError(f"node {double} is named twice; give every node a name of its own")
    numbered = []
    for one, other in links:
        for end in (one, other):
            if end not in number:
                raise ProblemError(f"link {one} - {other} ends at {end}, which is not among the nodes")
        if one == other:
            raise ProblemError(f"link {one} - {other} leads from a node to itself; take it out")
        numbered.append((number[one], number[other]))
    topology = Topology(len(names), numbered)
    if not topology.connected:
        groups = topology.parts()
        apart = ", ".join(names[node] for node in min(groups, key=len)[:5])
        raise ProblemError(
            f"the network falls into {len(groups)} parts that no link joins ({apart} cannot reach the rest); "
            "add links until every node can be reached"
        )
    return EventNetwork(
        names, topology, {type: _checked_rates(type, node_rates, number) for type, node_rates in rates.items()}
    )


def _checked_rates(type: str, node_rates: Mapping[str, float], number: Mapping[str, int]) -> dict[int, float]:
    if not node_rates:
        raise ProblemError(f"event type {type} has no source; name a node that produces it, or take the type out")
    by_node = {}
    for name, rate in node_rates.items():
        if name not in number:
            raise ProblemError(f"event type {type} has a source at {name}, which is not among the nodes")
        if not isinstance(rate, (int, float)) or isinstance(rate, bool) or math.isnan(rate):
            raise ProblemError(
                f"event type {type} at node {name}: its rate {rate!r} is not a number; write how often it occurs"
            )
        if rate > RATE_MAX and not math.isinf(rate):
            raise ProblemError(
                f"event type {type} at node {name}: a rate of {rate:g} is beyond what costs can be computed with; "
                f"write one of at most {RATE_MAX:g}, in a smaller unit of time"
            )
        if math.isinf(rate):
            raise ProblemError(
                f"event type {type} at node {name}: its rate is infinite; write the rate that was measured"
            )
        if rate < 0:
            raise ProblemError(
                f"event type {type} at node {name}: a rate cannot be negative ({rate:g}); write how often it occurs"
            )
        if rate == 0:
            raise ProblemError(
                f"event type {type} at node {name}: its rate is 0; take the source out if it is silent, "
                "or write a small rate if it is rare"
            )
        by_node[number[name]] = float(rate)
    return by_node


def checked_selectivity(value: object, subject: str) -> float:
    """A share of pairs or events in (0, 1]; ``subject`` begins the sentence that refuses anything else."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value <= 1:
        raise ProblemError(
            f"{subject}: {value!r} is not a selectivity; write the share that passes, above 0 and at most 1"
            + (" (a predicate that lets nothing through needs no plan)" if value == 0 else "")
        )
    return float(value)


@dataclass(frozen=True, slots=True)
class Projection:
    """A query kept to some of its types. Two are the same if their keys are.

    ``selectivity``: the share of combinations of its events that passes its predicates.
    """

    pattern: Pattern
    key: str
    types: frozenset[str]
    selectivity: float = field(compare=False)
    window_s: float | None = None
    conditions: str = ""
    """The predicates between its types, as text; part of the key."""

    @property
    def text(self) -> str:
        return str(self.pattern)

    @property
    def primitive(self) -> bool:
        return isinstance(self.pattern, str)


class AskScope(NamedTuple):
    """What an event says when it asks for those of another type: the share of them that fits, and for how long it asks.

    ``span_s`` is None where there are no windows."""

    share: float
    span_s: float | None = None


@dataclass(frozen=True, slots=True)
class Query:
    """A pattern without OR, and how selective its predicates are between each two of its types (1 where absent).

    ``predicates`` tells queries apart that have the same types and different conditions: for each set of types, what it
    maps to is part of a projection's key. ``whole``: the query can only be evaluated as one piece, on one node.
    """

    name: str
    pattern: Pattern
    pairs: Mapping[frozenset[str], float]
    window_s: float | None = None
    predicates: Mapping[frozenset[str], str] = field(default_factory=dict)
    whole: bool = False
    joinable: Callable[[frozenset[str]], bool] | None = field(default=None, compare=False)
    """Which sets of types, beside all of them, can be put together by themselves; None: all that have a projection."""
    gaps_s: Callable[[frozenset[str]], Mapping[tuple[str, str], float] | None] | None = field(
        default=None, compare=False
    )
    """For queries without one window for all: by how much a type of a joinable set may precede another."""
    alike: Mapping[frozenset[str], tuple[str, float]] = field(default_factory=dict, compare=False)
    """Those of the conditions that ask for equal values: of which two types, under a name that conditions over the same
    value share, and how selective each is."""
    apart: Mapping[frozenset[str], float] | None = field(default=None, compare=False)
    """How selective all other conditions are; None: as all are."""
    asking: Mapping[tuple[str, str], AskScope] | None = field(default=None, compare=False)
    """By a type whose events can ask for those of another, and that other: what they tell. None: every type of which
    each match has one event can ask for all others, and tells what ``pairs`` says."""

    @property
    def core(self) -> Pattern:
        """What is matched in the network: repetitions are formed where the query's matches end up."""
        return without_repetitions(self.pattern)

    @property
    def types(self) -> tuple[str, ...]:
        return tuple(leaves(self.pattern))

    @property
    def negated(self) -> frozenset[str]:
        return negated(self.pattern)

    @property
    def splitting(self) -> tuple[str, ...]:
        """The types by which a placement on many nodes may be split.

        Never a negated one: each node would see only its own share of what must not occur. Nor a repeated one: no node
        would see all that a repetition is made of.
        """
        refused = self.negated | repeated(self.pattern)
        return tuple(type for type in self.types if type not in refused and not self.whole)

    def closed(self, types: frozenset[str]) -> bool:
        return negation_closed(self.core, types)

    def subsets(self) -> list[frozenset[str]]:
        """The sets of two or more types that have a projection, small ones first."""
        if self.whole:
            return [frozenset(self.types)] if len(self.types) > 1 else []
        type_sets = list(subsets(self.core))
        if self.joinable is None:
            return type_sets
        return [types for types in type_sets if len(types) == len(self.types) or self.joinable(types)]

    def has(self, types: frozenset[str]) -> bool:
        """Whether these types have a projection, or are a single one that must occur."""
        if not types or types <= self.negated:
            return False
        if len(types) == 1:
            return True
        if self.whole or not self.closed(types):
            return len(types) == len(self.types)
        return self.joinable is None or len(types) == len(self.types) or self.joinable(types)

    def ask_scope(self, master: str, type: str) -> AskScope | None:
        """What an event of the master tells when it asks for those of a type; None if it cannot ask: not every match
        has exactly one such event, or it does not say where the others lie."""
        if self.asking is not None:
            return self.asking.get((master, type))
        if self.whole or master in self.negated | repeated(self.pattern):
            return None
        if any(type in middle and len(middle) > 1 for middle, _ in guards(self.pattern)):
            return None
        ordered = {(master, type), (type, master)} & precedence(self.core)
        span_s = None if self.window_s is None else self.window_s * (1 if ordered else 2)
        return AskScope(self.pairs.get(frozenset((master, type)), 1.0), span_s)

    def projection(self, types: frozenset[str]) -> Projection:
        """The query kept to these types."""
        pattern = project(self.core, types)
        assert pattern is not None
        if isinstance(pattern, str):
            return primitive(pattern)
        selectivity = 1.0
        for pair, value in self.pairs.items():
            if pair <= types:
                selectivity *= value
        conditions = ";".join(sorted(text for over, text in self.predicates.items() if over <= types))
        window = "" if self.window_s is None else f"@{self.window_s:g}"
        key = same_as(pattern) + window + self._seen_whole(types) + (f"[{conditions}]" if conditions else "")
        return Projection(pattern, key, types, selectivity, self.window_s, conditions)

    def _seen_whole(self, types: frozenset[str]) -> str:
        """What keeps a projection apart from one that looks the same but may be split by more types."""
        if self.whole:
            return "!"
        return "".join(f"+{type}" for type in sorted(types & repeated(self.pattern)))

    def takes(self, offered: Projection, wanted: Projection) -> bool:
        """Whether matches of a projection of another query can stand in for those of a projection of this one.

        They can if they miss none: the same window and predicates, and no order that this query does not ask for; in
        running networks only if they are the same. Whether they are found where this query may read them is another
        question: nothing below may be split by a type that is not among its ``splitting``.
        """
        if offered.key == wanted.key:
            return True
        if self.joinable is not None:  # nodes share what is the same only
            return False
        if offered.window_s != wanted.window_s or offered.conditions != wanted.conditions:
            return False
        return serves(offered.pattern, wanted.pattern)


def primitive(type: str) -> Projection:
    """An event type as the simplest projection: its events as they are born."""
    return Projection(type, type, frozenset((type,)), 1.0)


@dataclass(frozen=True, slots=True)
class Ask:
    """A type whose events stay at their sources until a task asks for them, to be put together to ``of``.

    ``by``: what is there already and asks. ``master``: the type whose events, as they come with it, ask for what lies
    around them and fits; None: every match of it does.
    """

    type: str
    by: Projection
    of: Projection
    master: str | None = None
    query: Query = field(compare=False, repr=False, kw_only=True)
    """The one that ``of`` is part of, or one of several: they agree on it."""


class CostModel(Protocol):
    """How often things happen. All costs are sums of rates times links."""

    @property
    def name(self) -> str:
        """What the model is called in output."""

    def rate(self, projection: Projection) -> float:
        """Matches per unit of time, over the whole network."""

    @property
    def sends_events(self) -> bool:
        """Whether of a projection the events in its matches travel, each once, rather than whole matches."""

    def selected(self, type: str, projection: Projection) -> float | None:
        """The share of a type's events that are part of some match of a projection; None where it is not known."""

    def carried(
        self,
        projection: Projection,
        types: frozenset[str] | None = None,
        split_by: str | None = None,
        part: float = 1.0,
    ) -> float:
        """What one node sends of a projection per unit of time: of all its types, or of those that are given. It has
        ``part`` of the events of the type by which the projection is split."""

    def delivered(self, query: Query) -> float:
        """What the sinks get of a query per unit of time."""

    @property
    def asks_by_event(self) -> bool:
        """Whether the events of one type ask, each source by itself, rather than matches, all sources along a tree."""

    def asked(self, ask: Ask) -> float:
        """How often is asked per unit of time."""

    def answered(self, ask: Ask) -> float:
        """How many events are sent for that per unit of time, by all sources together; each once."""

    def refined(self, samples: int) -> CostModel:
        """The same model as precise as it can be, with so many draws for each rate that it would have to draw."""


@dataclass(frozen=True)
class Problem:
    """A network, the queries, the cost model, and for each query by name the nodes that want its matches."""

    network: EventNetwork
    queries: tuple[Query, ...]
    costs: CostModel
    sinks: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    lookups: Mapping[str, tuple[TableLookups, ...]] = field(default_factory=dict)
    """By query, what it asks of remote tables that not every node reaches, where its matches are completed."""

    def __post_init__(self) -> None:
        if not self.queries:
            raise ProblemError("there is no query to plan for; write at least one")
        for query in self.queries:
            unknown = [type for type in query.types if type not in self.network.rates]
            if unknown:
                raise ProblemError(
                    f"query {query.name} reads {listed(unknown)}, which no node produces; "
                    "name a source with its rate, or take it out of the query"
                )
            if len(query.types) == len(query.negated):
                raise ProblemError(f"query {query.name} has only negated parts; add one that must occur")

    @property
    def types(self) -> tuple[str, ...]:
        """The types that any query reads, in the order in which they appear."""
        return tuple(dict.fromkeys(type for query in self.queries for type in query.types))

    def single(self, name: str) -> Problem:
        """The same with one query only."""
        queries = tuple(query for query in self.queries if query.name == name)
        return Problem(self.network, queries, self.costs, self.sinks, lookups=self.lookups)


def split_queries(name: str, pattern: Pattern) -> list[tuple[str, Pattern]]:
    """A query as the planners take it: itself, or one for each choice at its ORs, numbered from 1."""
    branches = checked(pattern, name)
    return (
        [(name, branches[0])]
        if len(branches) == 1
        else [(f"{name} ({at})", branch) for at, branch in enumerate(branches, 1)]
    )
