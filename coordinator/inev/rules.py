"""Rules as queries that can be planned.

A role becomes an event type of its own where the rule constrains it alone: ``Temp[value > 45]`` occurs less often than
``Temp``, and is what its sources send. Conditions between roles become selectivities. What can only be decided with
everything in one place (last and first, aggregates, skip-till-next, negation at an end) is planned as one piece.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final

from coordinator.inev.asking import asking
from coordinator.inev.model import EventNetwork, Problem, ProblemError, Query, Told, split_queries
from coordinator.inev.patterns import Operator, Pattern
from coordinator.inev.physical import PhysicalCosts
from protocol import pattern as p
from protocol.errors import RuleError
from protocol.expressions import Attribute, Binary, Expression, Same, roles_of
from protocol.languages.printing import ExpressionPrinter, PrintError
from protocol.projection import joinable_components, project

DEFAULT_PAIR: Final = 0.1
DEFAULT_FILTER: Final = 0.5
"""Shares that pass a condition between two events, and one on a single event, where nobody gave any."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """What is known beside the rules: rates per second by type and node, selectivities by rule and roles or types."""

    rates: Mapping[str, Mapping[str, float]]
    selectivities: Mapping[str, Mapping[frozenset[str], float]] = field(default_factory=dict)


class _NotInParts(Exception):
    """The rule cannot be evaluated in parts."""


@dataclass
class _Reading:
    """One rule on its way to a query."""

    rule: p.Rule
    known: Mapping[frozenset[str], float]
    warnings: list[str]

    def __post_init__(self) -> None:
        self.leaves = tuple(p.leaves(self.rule.pattern.root))
        self.conditions = [each for each in self.rule.pattern.where if not isinstance(each, Same)]
        self.labels = {leaf.role: self._label(leaf) for leaf in self.leaves}

    def _label(self, leaf: p.Leaf) -> str:
        own = sorted(shown(each) for each in self.conditions if roles_of(each) == {leaf.role})
        return f"{leaf.type}[{' and '.join(own)}]" if own else leaf.type

    def share(self, roles: frozenset[str], default: float, what: str) -> float:
        """The selectivity given for these roles, by name or type; the default, with a warning, if there is none."""
        types = frozenset(leaf.type for leaf in self.leaves if leaf.role in roles)
        for name in (roles, types):
            if name in self.known:
                return self.known[name]
        shown_roles = ", ".join(sorted(roles))
        self.warnings.append(
            f"rule {self.rule.name}: nobody said how selective {what} is; {default:g} is assumed: write it under "
            f'statistics: selectivities: {self.rule.name}: {{"{shown_roles}": ..}}'
        )
        return default

    def filters(self) -> dict[str, float]:
        """For every label with conditions of its own: the share of its type's events that meet them."""
        found = {}
        for leaf in self.leaves:
            label = self.labels[leaf.role]
            if label != leaf.type:
                found[label] = self.share(frozenset((leaf.role,)), DEFAULT_FILTER, label)
        return found

    def pairs(self, equal: bool = True) -> dict[frozenset[str], float]:
        """By the labels that conditions concern, the share of combinations that meets them; ``equal``: also those that
        ask for equal values."""
        negative = self._negative()
        found: dict[frozenset[str], float] = {}
        for condition in self.conditions:
            roles = roles_of(condition)
            if len(roles) > 1 and not roles & negative and (equal or _equality(condition) is None):
                labels = frozenset(self.labels[role] for role in roles)
                found[labels] = found.get(labels, 1.0) * self.share(roles, DEFAULT_PAIR, shown(condition))
        for same in self.rule.pattern.where if equal else ():
            if isinstance(same, Same):
                self._same(negative, found)
        return found

    def alike(self) -> dict[frozenset[str], tuple[str, float]]:
        """The labels whose events must have equal values."""
        negative = self._negative()
        found: dict[frozenset[str], tuple[str, float]] = {}
        names: dict[tuple[str, str], str] = {}
        for condition in self.conditions:
            ends = _equality(condition)
            if ends is None or {role for role, _ in ends} & negative:
                continue
            name = min(names.get(end, "/".join(end)) for end in ends)
            before = {names[end] for end in ends if end in names}
            names = {end: name if known in before else known for end, known in names.items()}
            names.update(dict.fromkeys(ends, name))
        for condition in self.conditions:
            ends = _equality(condition)
            if ends is not None and ends[0] in names:
                roles = roles_of(condition)
                share = self.share(roles, DEFAULT_PAIR, shown(condition))
                found[frozenset(self.labels[role] for role in roles)] = (names[ends[0]], share)
        positive = [leaf.role for leaf in self.leaves if leaf.role not in negative]
        for same in self.rule.pattern.where:
            if isinstance(same, Same) and len(positive) > 1:
                share = self.share(frozenset(positive), DEFAULT_PAIR, "that all agree")
                for one, other in combinations(positive, 2):
                    found[frozenset((self.labels[one], self.labels[other]))] = ("", share)
        return {labels: each for labels, each in found.items() if len(labels) == 2}

    def _negative(self) -> set[str]:
        return {leaf.role for leaf in self.leaves} - {leaf.role for leaf in p.positive_leaves(self.rule.pattern.root)}

    def _same(self, negative: set[str], found: dict[frozenset[str], float]) -> None:
        """All agree: of m events each but one must. Over all subsets that is s for even and 1/s for odd sizes."""
        roles = [leaf.role for leaf in self.leaves if leaf.role not in negative]
        if len(roles) < 2:
            return
        share = self.share(frozenset(roles), DEFAULT_PAIR, "that all agree")
        for size in range(2, len(roles) + 1):
            for some in combinations(roles, size):
                labels = frozenset(self.labels[role] for role in some)
                found[labels] = found.get(labels, 1.0) * (share if size % 2 == 0 else 1 / share)

    def blocking(self) -> dict[str, float]:
        """The share of a negated type's events that meet its conditions with the other roles."""
        found: dict[str, float] = {}
        positive = {leaf.role for leaf in p.positive_leaves(self.rule.pattern.root)}
        for leaf in self.leaves:
            if leaf.role in positive:
                continue
            for condition in self.conditions:
                roles = roles_of(condition)
                if leaf.role in roles and len(roles) > 1:
                    label = self.labels[leaf.role]
                    found[label] = found.get(label, 1.0) * self.share(roles, DEFAULT_PAIR, shown(condition))
        return found

    def predicates(self) -> dict[frozenset[str], str]:
        found: dict[frozenset[str], str] = {}
        for condition in self.conditions:
            roles = roles_of(condition)
            if len(roles) > 1:
                labels = frozenset(self.labels[role] for role in roles)
                found[labels] = "; ".join(sorted({*found.get(labels, "").split("; "), shown(condition)} - {""}))
        for same in self.rule.pattern.where:
            if isinstance(same, Same):
                for one, other in combinations(sorted(set(self.labels.values())), 2):
                    labels = frozenset((one, other))
                    found[labels] = "; ".join(sorted({*found.get(labels, "").split("; "), shown(same)} - {""}))
        return found

    def asking(self) -> dict[tuple[str, str], Told]:
        """By the label that can ask for another, what it tells."""
        positive = frozenset(leaf.role for leaf in self.leaves) - self._negative()

        def share(condition: Expression) -> float:
            if isinstance(condition, Same):
                return self.share(positive, DEFAULT_PAIR, "that all agree") if len(positive) > 1 else DEFAULT_PAIR
            return self.share(frozenset(roles_of(condition)), DEFAULT_PAIR, shown(condition))

        found = asking(self.rule, share)
        return {(self.labels[master], self.labels[role]): told for (master, role), told in found.items()}

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
                if any(isinstance(each, p.Negation) for each in parts):
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
            found = self._part(part)
            if forbidden is not None:
                found = Operator("NSEQ", (done.pop(), forbidden, found))
                forbidden = None
            done.append(found)
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
            inner = [before(each) for each in below.get(leaf.role, ())]
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
        known: dict[frozenset[str], bool] = {}

        def joined(labels: frozenset[str]) -> bool:
            if labels not in known:
                try:
                    known[labels] = len(joinable_components(self.rule, self._roles(labels))) == 1
                except RuleError:
                    known[labels] = False
            return known[labels]

        return joined

    def gaps_s(self) -> Callable[[frozenset[str]], Mapping[tuple[str, str], float]] | None:
        """For chains of which every event is taken: how long before another each may lie, if both are kept."""
        root = self.rule.pattern.root
        if not isinstance(root, p.Chain):
            return None
        if any(not isinstance(step, p.Selection) or step.policy != "each" or step.count != 1 for step in root.steps):
            return None

        def gaps(labels: frozenset[str]) -> dict[tuple[str, str], float]:
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
            return float(window.length / sum(rates[leaf.type] for leaf in self.leaves))
        return float(window.length / 1e6)


def _equality(condition: Expression) -> tuple[tuple[str, str], tuple[str, str]] | None:
    """The two attributes, each with its role, that a condition asks to be equal."""
    match condition:
        case Binary("=", Attribute(one, name, ""), Attribute(other, other_name, "")) if one != other:
            return (one, name), (other, other_name)
    return None


def shown(condition: Expression) -> str:
    """A condition as text, without the names of roles where it concerns one only."""
    several = len(roles_of(condition)) > 1

    def attribute(each: Attribute) -> str:
        return f"{each.role}.{each.name}" if several else each.name

    if isinstance(condition, Same):
        return f"same {shown(condition.key)}"
    try:
        return ExpressionPrinter(attribute, lambda role: role, parameters=True).text(condition)
    except PrintError:
        return repr(condition)


def problem_from(
    rules: Iterable[p.Rule], names: tuple[str, ...], network: EventNetwork, statistics: Statistics,
    sinks: Mapping[str, tuple[int, ...]],
) -> Problem:  # fmt: skip
    """The rules of a network as a problem under the physical cost model. ``sinks``: nodes by the type a rule emits."""
    rules = tuple(rules)
    emitted = {rule.emits: rule.name for rule in rules}
    rates: dict[str, Mapping[int, float]] = dict(network.rates)
    queries: list[Query] = []
    wanted: dict[str, tuple[int, ...]] = {}
    blocking: dict[str, float] = {}
    most: dict[str, float] = {}
    warnings: list[str] = []
    for rule in rules:
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
        reading = _Reading(rule, statistics.selectivities.get(rule.name, {}), warnings)
        for label, share in reading.filters().items():
            type = label.partition("[")[0]
            rates[label] = {node: rate * share for node, rate in network.rates[type].items()}
        totals = {type: network.total(type) for type in network.rates}
        window = reading.window_s(totals)
        blocking.update(reading.blocking())
        pairs, apart, predicates = reading.pairs(), reading.pairs(equal=False), reading.predicates()
        try:
            pattern, whole = reading.pattern(), False
        except _NotInParts:
            pattern, whole = Operator("AND", tuple(dict.fromkeys(reading.labels.values()))), True
        for name, branch in split_queries(rule.name, pattern):
            query = Query(
                name,
                branch,
                pairs,
                window,
                predicates,
                whole,
                joinable=reading.joinable(),
                gaps_s=reading.gaps_s(),
                alike=reading.alike(),
                apart=apart,
                asking=reading.asking(),
            )
            queries.append(query)
            wanted[name] = sinks.get(rule.emits, ())
            anchor = reading.only_anchor()
            if anchor is not None:
                most[query.projection(frozenset(query.types)).key] = sum(rates[anchor].values())
    filled = EventNetwork(names, network.topology, rates)
    costs = PhysicalCosts(filled, blocking, at_most=most, queries=tuple(queries))
    return Problem(filled, tuple(queries), costs, wanted, tuple(dict.fromkeys(warnings)))


def labels_of(rule: p.Rule) -> dict[str, str]:
    """By role, the event type that stands for it in queries."""
    return _Reading(rule, {}, []).labels
