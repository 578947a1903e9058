"""Turns rules into queries that can be planned.

A role becomes an event type of its own where the rule constrains it alone: ``Temp[value > 45]`` occurs less often than
``Temp``, and is what its sources send. Conditions between roles become selectivities. What can only be decided with
everything in one place (last and first, aggregates, skip-till-next, negation at an end) is planned as one piece.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final

from headwater.coordinator.inev.model.awakenings import asking
from headwater.coordinator.inev.model.latency_bounds import USUAL_TERMS, LatencyTerms
from headwater.coordinator.inev.model.lookups import TableLookups, lookups_in
from headwater.coordinator.inev.model.patterns import Operator, Pattern
from headwater.coordinator.inev.model.physical_costs import PhysicalCosts
from headwater.coordinator.inev.model.problem import EventNetwork, Problem, ProblemError, Query, split_queries
from headwater.coordinator.inev.model.role_types import born_type
from headwater.coordinator.inev.model.selectivities import Conditions
from headwater.protocol import pattern as p
from headwater.protocol.analysis.projection import joinable_components, project
from headwater.protocol.errors import RuleError
from headwater.protocol.network import DescribedTable

AGREE: Final = 0.01
"""Matches that were counted at rates which differ by more than this share from those in force say nothing."""


@dataclass(frozen=True, slots=True)
class Measured:
    """How often some roles of a rule matched in a trace, and by role the share of its events that were in matches.

    ``rates``: those of the types, over all nodes, at which this was counted. An event counts if it meets what is asked
    of its role alone.
    """

    per_s: float
    singles: Mapping[str, float]
    rates: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Statistics:
    """What is known beside the rules: rates per second by type and node, selectivities by rule and roles or types."""

    rates: Mapping[str, Mapping[str, float]]
    selectivities: Mapping[str, Mapping[frozenset[str], float]] = field(default_factory=dict)
    latency: LatencyTerms = USUAL_TERMS
    """How slow plans may be."""
    pull: bool = True
    """Whether events may stay at their sources until a task asks for them, where that is cheaper."""
    projections: Mapping[str, Mapping[frozenset[str], Measured]] = field(default_factory=dict)
    """By rule and positive roles, what was counted; it outweighs what selectivities would say of these."""
    keys: tuple[tuple[str, float], ...] = ()
    """Remote tables, each with the number of its keys that are looked up within a window."""


class _NotInParts(Exception):
    """The rule cannot be evaluated in parts."""


@dataclass
class _Reading:
    """One rule on its way to a query."""

    rule: p.Rule
    labels: Mapping[str, str]

    # Patterns -------------------------------------------------------------------------------------------------------

    def pattern(self) -> Pattern:
        root = self.rule.pattern.root
        if self.rule.pattern.skip == "next":
            raise _NotInParts
        return self._chain(root) if isinstance(root, p.Chain) else self._part(root)

    def _part(self, part: p.Part) -> Pattern:
        match part:
            case p.Leaf(role):
                return self.labels[role]
            case p.Sequence(parts):
                return self._sequence(parts)
            case p.Conjunction(parts):
                if any(isinstance(inner, p.Negation) for inner in parts):
                    raise _NotInParts
                return Operator("AND", tuple(map(self._part, parts)))
            case p.Disjunction(parts):
                return Operator("OR", tuple(map(self._part, parts)))
            case p.Repetition(parts, limit):
                if len(parts) > 1 or limit is not None:
                    raise _NotInParts
                return Operator("KL", (self.labels[parts[0].role],))
            case p.Negation():
                raise _NotInParts

    def _sequence(self, parts: tuple[p.Part, ...]) -> Pattern:
        done: list[Pattern] = []
        forbidden: Pattern | None = None
        for part in parts:
            if isinstance(part, p.Negation):
                if forbidden is not None or not done:
                    raise _NotInParts
                forbidden = self._part(part.part)
                continue
            pattern = self._part(part)
            if forbidden is not None:
                pattern = Operator("NSEQ", (done.pop(), forbidden, pattern))
                forbidden = None
            done.append(pattern)
        if forbidden is not None:
            raise _NotInParts
        return done[0] if len(done) == 1 else Operator("SEQ", tuple(done))

    def _chain(self, chain: p.Chain) -> Pattern:
        """What is selected from an event lies before it: SEQ of all that hangs from it, and it."""
        below: dict[str, list[p.Leaf]] = {}
        for step in chain.steps:
            if not isinstance(step, p.Selection) or step.policy != "each" or step.count != 1:
                raise _NotInParts
            below.setdefault(step.within.origin, []).append(step.leaf)

        def before(leaf: p.Leaf) -> Pattern:
            inner = [before(child) for child in below.get(leaf.role, ())]
            if not inner:
                return self.labels[leaf.role]
            first = inner[0] if len(inner) == 1 else Operator("AND", tuple(inner))
            return Operator("SEQ", (first, self.labels[leaf.role]))

        return before(chain.anchor)

    # What nodes can put together ------------------------------------------------------------------------------------

    def _roles(self, labels: frozenset[str]) -> frozenset[str]:
        return frozenset(role for role, label in self.labels.items() if label in labels)

    def joinable(self) -> Callable[[frozenset[str]], bool]:
        """Whether nodes can put together some types by themselves. Negations are decided with all that a rule reads."""
        cached: dict[frozenset[str], bool] = {}

        def joined(labels: frozenset[str]) -> bool:
            if labels not in cached:
                try:
                    cached[labels] = len(joinable_components(self.rule, self._roles(labels))) == 1
                except RuleError:
                    cached[labels] = False
            return cached[labels]

        return joined

    def gaps_s(self) -> Callable[[frozenset[str]], Mapping[tuple[str, str], float] | None] | None:
        """For chains of which every event is taken: how long before another each may lie, if both are kept. None of
        types that nothing binds to each other: these lie within the window of the rule."""
        root = self.rule.pattern.root
        if not isinstance(root, p.Chain):
            return None
        if any(not isinstance(step, p.Selection) or step.policy != "each" or step.count != 1 for step in root.steps):
            return None

        bound = self.joinable()

        def gaps(labels: frozenset[str]) -> dict[tuple[str, str], float] | None:
            if not bound(labels):
                return None
            chain = project(self.rule, self._roles(labels)).pattern.root
            assert isinstance(chain, p.Chain)
            return {
                (self.labels[step.leaf.role], self.labels[step.within.origin]): step.within.length_us / 1e6
                for step in chain.steps
                if isinstance(step, p.Selection) and isinstance(step.within, p.Within)
            }

        return gaps

    def only_anchor(self) -> str | None:
        """The label of the anchor of a chain that takes one event of every other part: one match for each anchor."""
        root = self.rule.pattern.root
        if not isinstance(root, p.Chain):
            return None
        if any(isinstance(step, p.Selection) and (step.policy == "each" or step.count > 1) for step in root.steps):
            return None
        return self.labels[root.anchor.role]

    def window_s(self, rates: Mapping[str, float]) -> float:
        root = self.rule.pattern.root
        if isinstance(root, p.Chain):
            reach = {root.anchor.role: 0}
            for step in root.steps:
                if isinstance(step, p.Selection):
                    reach[step.leaf.role] = reach.get(step.within.origin, 0) + step.within.length_us
            return max(reach.values()) / 1e6
        window = getattr(root, "window", None)
        if window is None:
            return 0.0
        if window.unit == "events":
            return float(window.length / sum(rates[leaf.type] for leaf in p.leaves(root)))
        return float(window.length / 1e6)


def problem_from(
    rules: Iterable[p.Rule], names: tuple[str, ...], network: EventNetwork, statistics: Statistics,
    sinks: Mapping[str, tuple[int, ...]], tables: Iterable[DescribedTable] = (),
) -> Problem:  # fmt: skip
    """The rules of a network as a problem under the physical cost model. ``sinks``: nodes by the type a rule emits;
    ``tables``: those that rules may look into."""
    rules = tuple(rules)
    emitted = {rule.emits: rule.name for rule in rules}
    assembly = _Assembly(network, statistics, sinks, tuple(tables))
    for rule in rules:
        _check_types(rule, emitted, network)
        assembly.add(rule)
    rule_names = [rule.name for rule in rules]
    assembly.warnings += [
        f"there is no rule {name}, so its selectivities are not used; rules are {', '.join(rule_names)}"
        for name in statistics.selectivities
        if name not in rule_names
    ]
    table_names = [table.name for table in assembly.tables]
    assembly.warnings += [
        f"there is no remote table {name}, so the number of its keys is not used; tables are {', '.join(table_names)}"
        for name, _ in statistics.keys
        if name not in table_names and table_names
    ]
    return assembly.problem(names)


class _Assembly:
    """Rules on their way to a problem: their queries, and what the cost model must know of them."""

    def __init__(
        self, network: EventNetwork, statistics: Statistics, sinks: Mapping[str, tuple[int, ...]],
        tables: tuple[DescribedTable, ...],
    ) -> None:  # fmt: skip
        self.warnings: list[str] = []
        self.tables = tables
        self._lookups: dict[str, tuple[TableLookups, ...]] = {}
        self._network = network
        self._statistics = statistics
        self._sinks = sinks
        self._rates: dict[str, Mapping[int, float]] = dict(network.rates)
        self._queries: list[Query] = []
        self._wanted: dict[str, tuple[int, ...]] = {}
        self._blocking: dict[str, float] = {}
        self._most: dict[str, float] = {}
        self._counted: dict[str, float] = {}
        self._single: dict[tuple[str, str], float] = {}

    def add(self, rule: p.Rule) -> None:
        network = self._network
        conditions = Conditions(rule, self._statistics.selectivities.get(rule.name, {}), self.warnings)
        reading = _Reading(rule, conditions.labels)
        for label, share in conditions.filters().items():
            self._rates[label] = {node: rate * share for node, rate in network.rates[born_type(label)].items()}
        queries = self._queries_of(reading, conditions)
        in_force = self._measured_in_force(rule)
        anchor = reading.only_anchor()
        for query in queries:
            self._queries.append(query)
            for key, matches in _counted(query, in_force, conditions.labels):
                self._counted[key] = matches.per_s
                self._single.update({(conditions.labels[role], key): share for role, share in matches.singles.items()})
            self._wanted[query.name] = self._sinks.get(rule.emits, ())
            if asked := self._asked(rule, query, conditions.labels):
                self._lookups[query.name] = asked
            if anchor is not None:
                self._most[query.projection(frozenset(query.types)).key] = sum(self._rates[anchor].values())

    def _asked(self, rule: p.Rule, query: Query, labels: Mapping[str, str]) -> tuple[TableLookups, ...]:
        """What one of the rule's queries asks of remote tables."""
        rates = {label: sum(self._rates[label].values()) for label in query.types}
        names, keys = self._network.names, dict(self._statistics.keys)
        return lookups_in(rule, labels, rates, query.window_s or 0.0, self.tables, names, keys)

    def _queries_of(self, reading: _Reading, conditions: Conditions) -> Iterator[Query]:
        """One query for each alternative. They are made as they are taken, which orders the warnings."""
        rule, labels = reading.rule, conditions.labels
        window = reading.window_s({type: self._network.total(type) for type in self._network.rates})
        self._blocking.update(conditions.blocking())
        pairs, predicates = conditions.pairs(), conditions.predicates()
        scopes = asking(rule, conditions.passing)
        self.warnings += conditions.unused()
        try:
            pattern, whole = reading.pattern(), False
        except _NotInParts:
            pattern, whole = Operator("AND", tuple(dict.fromkeys(reading.labels.values()))), True
        return (
            Query(
                name,
                branch,
                pairs,
                window,
                predicates,
                whole,
                joinable=reading.joinable(),
                gaps_s=reading.gaps_s(),
                alike=conditions.alike(),
                apart=conditions.apart(),
                asking={(labels[master], labels[role]): scope for (master, role), scope in scopes.items()},
            )
            for name, branch in split_queries(rule.name, pattern)
        )

    def _measured_in_force(self, rule: p.Rule) -> dict[frozenset[str], Measured]:
        """What was counted of a rule, up to the first that was counted at other rates."""
        measured = self._statistics.projections.get(rule.name, {})
        in_force = dict(takewhile(lambda item: _holds(item[1], self._network), measured.items()))
        if len(in_force) < len(measured):
            self.warnings.append(
                f"rule {rule.name}: its matches were counted at other rates than those in force, and are "
                "reckoned from selectivities; count again"
            )
        return in_force

    def problem(self, names: tuple[str, ...]) -> Problem:
        queries = tuple(self._queries)
        filled = EventNetwork(names, self._network.topology, self._rates)
        costs = PhysicalCosts(filled, self._blocking, self._single, self._most, queries, counted=self._counted)
        warnings = tuple(dict.fromkeys(self.warnings))
        return Problem(filled, queries, costs, self._wanted, warnings, self._lookups)


def _check_types(rule: p.Rule, emitted: Mapping[str, str], network: EventNetwork) -> None:
    """ProblemError unless a rule reads only events of sources, and their rates are known."""
    for leaf in p.leaves(rule.pattern.root):
        if leaf.type in emitted:
            raise ProblemError(
                f"rule {rule.name} reads {leaf.type}, which rule {emitted[leaf.type]} finds; the planner takes "
                f"rules over events of sources: write the pattern of {emitted[leaf.type]} into {rule.name}"
            )
        if leaf.type not in network.rates:
            raise ProblemError(
                f"rule {rule.name} reads {leaf.type}, of which no source has a rate; "
                f"add a source with a rate, or write statistics: rates: {{{leaf.type}: 2/s}}"
            )


def _counted(
    query: Query, measured: Mapping[frozenset[str], Measured], labels: Mapping[str, str]
) -> Iterator[tuple[str, Measured]]:
    """What was counted of those projections that the query has, by their key."""
    for roles, matches in measured.items():
        types = frozenset(labels[role] for role in roles if role in labels)
        if len(types) == len(roles) and not query.whole and not types & query.negated and query.has(types):
            yield query.projection(types).key, matches


def _holds(matches: Measured, network: EventNetwork) -> bool:
    return all(abs(network.total(type) - rate) <= AGREE * rate for type, rate in matches.rates.items())


def labels_of(rule: p.Rule) -> dict[str, str]:
    """By role, the event type that stands for it in queries."""
    return Conditions(rule, {}, []).labels
