"""A compiled rule set: immutable, made once, shared by as many running engines as one likes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headwater.node.engine.codegen.code import Pool, RowLayout
from headwater.node.engine.codegen.outputs import composite_spec
from headwater.node.engine.codegen.rules import RulePlan, add_rule
from headwater.node.engine.codegen.store_builder import CompiledStore, StoreBuilder
from headwater.node.engine.next_plan import NextPlan
from headwater.protocol.analysis.branches import take_apart
from headwater.protocol.analysis.dependencies import in_dependency_order
from headwater.protocol.analysis.units import Branch, Logical
from headwater.protocol.analysis.validate import check_rule
from headwater.protocol.errors import RuleError
from headwater.protocol.events import HEADER_WIDTH, RESERVED_ATTRIBUTES, EventType
from headwater.protocol.expressions import Attribute, Fold, Same, walk
from headwater.protocol.functions import Functions
from headwater.protocol.pattern import Aggregate, Chain, Rule, leaves, types_of
from headwater.protocol.wire.rule_encoding import digest


@dataclass(frozen=True, slots=True)
class Program:
    """Rules in dependency order with the code of their stores. ``Engine(program)`` starts a new running instance."""

    rules: tuple[Rule, ...]
    types: Mapping[str, EventType]
    """The primitive event types that rules read, by name."""
    composites: Mapping[str, EventType]
    """The types of composite events that come from outside, by name."""
    columns: Mapping[str, RowLayout]
    plans: tuple[tuple[RulePlan, int], ...]
    """Each rule with the number of its store."""
    stores: tuple[CompiledStore, ...]
    machines: tuple[tuple[NextPlan, int], ...]
    count_only: bool
    fingerprint: str
    """The same for equal rules and types: tells whether a snapshot fits."""
    takes_old: bool
    """Whether ``Engine.insert_old`` is possible: no rule skips till next or counts events."""
    asked: Mapping[str, str]
    """Remote tables whose elements may come later, with the name of each in generated code."""

    def read_types(self) -> frozenset[str]:
        return frozenset(name for rule in self.rules for name in types_of(rule.pattern))


def compile_rules(
    rules: Any,
    types: Iterable[EventType] = (),
    *,
    composites: Iterable[EventType] = (),
    functions: Functions | None = None,
    remote: Mapping[str, Any] | None = None,
    count_only: bool = False,
) -> Program:
    """Compile a sequence of rules, or a RuleSet with its types; the arguments are those of Engine."""
    declared = list(types)
    outside = {t.name: t for t in composites}
    if hasattr(rules, "rules"):
        names = {t.name for t in declared} | outside.keys()
        declared += [t for t in rules.types.values() if t.name not in names]
        rules = rules.rules
    ordered = in_dependency_order(tuple(rules))
    for rule in ordered:
        for flaw in check_rule(rule):
            raise RuleError(f"rule {rule.name!r}: {flaw}")
    input_types = _input_types(ordered, declared, outside)
    pool = Pool(functions if functions is not None else Functions(), remote or {})
    compiler = _Compiler(ordered, input_types, outside, pool)
    return compiler.compile(count_only)


class _Compiler:
    def __init__(
        self, rules: tuple[Rule, ...], types: dict[str, EventType], outside: dict[str, EventType], pool: Pool
    ) -> None:
        self.rules = rules
        self.types = types
        read = {name for rule in rules for name in types_of(rule.pattern)}
        self.outside = {name: outside[name] for name in sorted(outside.keys() & read)}
        self.pool = pool
        self.columns = _all_columns(rules, types, self.outside)
        self.composite_types = frozenset(rule.emits for rule in rules) | self.outside.keys()
        self.shared = {ordered: self.builder("ordered" if ordered else "eager", ordered) for ordered in (False, True)}
        self.builders: list[StoreBuilder] = list(self.shared.values())

    def builder(self, name: str, ordered: bool, counted: int | None = None) -> StoreBuilder:
        return StoreBuilder(name, self.pool, self.columns, ordered=ordered, counted=counted)

    def compile(self, count_only: bool) -> Program:
        read = {name for rule in self.rules for name in types_of(rule.pattern)}
        plans: list[tuple[RulePlan, int]] = []
        machines: list[tuple[NextPlan, int]] = []
        for number, rule in enumerate(self.rules):
            try:
                logical = _asking_last(take_apart(rule.pattern, self.composite_types), self.pool)
                spec, parameters, sought = composite_spec(rule, logical, self.columns, self.pool)
                plan = RulePlan(number, rule, logical, spec, parameters)
                plan.counts = count_only and rule.emits not in read
                plan.sought = () if plan.counts else sought
                builder = self.home(rule, logical)
                builder.writing = rule.name
                place = self.builders.index(builder)
                if rule.pattern.skip == "next":
                    machines.append((NextPlan(builder, plan), place))
                else:
                    add_rule(builder, plan)
            except RuleError as error:
                if rule.name in str(error):
                    raise
                raise RuleError(f"rule {rule.name!r}: {error}") from error
            plans.append((plan, place))
        return Program(
            self.rules,
            self.types,
            self.outside,
            self.columns,
            tuple(plans),
            tuple(builder.compile() for builder in self.builders),
            tuple(machines),
            count_only,
            digest(self.rules, *(_declarations(types) for types in (self.types, self.outside))),
            not machines and all(builder.counted is None for builder in self.builders),
            self.pool.asked,
        )

    def home(self, rule: Rule, logical: Logical) -> StoreBuilder:
        """The store of a rule. Rules on primitive events share two; others have a clock of their own."""
        counted = next((branch.count for branch in logical.branches if branch.count is not None), None)
        reads_composites = bool(types_of(rule.pattern) & self.composite_types)
        if counted is None and not reads_composites:
            return self.shared[not logical.monotone]
        builder = self.builder(rule.name, not logical.monotone, counted)
        builder.has_composites = reads_composites
        self.builders.append(builder)
        return builder


def _asking_last(logical: Logical, pool: Pool) -> Logical:
    """Conditions inside a negated sub-pattern that ask for elements are judged with the negation: a match of the
    sub-pattern is kept whether they hold or not."""
    branches = tuple(_branch_asking_last(branch, pool) for branch in logical.branches)
    return logical if branches == logical.branches else replace(logical, branches=branches)


def _branch_asking_last(branch: Branch, pool: Pool) -> Branch:
    forbidden = []
    for negated in branch.forbidden:
        asking = dict.fromkeys(c for sub in negated.sub for c in sub.where if pool.asks(c))
        if asking:
            sub = tuple(replace(inner, where=[c for c in inner.where if c not in asking]) for inner in negated.sub)
            negated = replace(negated, sub=sub, where=(*negated.where, *asking))
        forbidden.append(negated)
    return branch if forbidden == branch.forbidden else replace(branch, forbidden=forbidden)


def _declarations(types: Mapping[str, EventType]) -> tuple[Any, ...]:
    return tuple(types[name].declaration() for name in sorted(types))


def _input_types(
    rules: Sequence[Rule], declared: Sequence[EventType], outside: Mapping[str, EventType]
) -> dict[str, EventType]:
    """The primitive types rules read; one that is not declared has the attributes that they name, of any kind."""
    emitted = {rule.emits for rule in rules} | outside.keys()
    types = {t.name: t for t in declared}
    for name in sorted(emitted & types.keys()):
        raise RuleError(f"{name!r} is both an event type of a source and the output of a rule; rename one of them")
    used: dict[str, dict[str, None]] = {}
    for rule in rules:
        for event_type, attribute in _attributes_used(rule):
            used.setdefault(event_type, {}).setdefault(attribute, None)
    for name, attributes in used.items():
        if name not in types and name not in emitted:
            types[name] = EventType(name, [(a, "any?") for a in attributes if a and a not in RESERVED_ATTRIBUTES])
    return {name: t for name, t in types.items() if name in used}


def _attributes_used(rule: Rule) -> Iterable[tuple[str, str]]:
    """(type, attribute) for everything the rule reads; the attribute is empty where only the type is named."""
    types = {leaf.role: leaf.type for leaf in leaves(rule.pattern.root)}
    yield from ((name, "") for name in types.values())
    for expression in (*rule.pattern.where, *(output.value for output in rule.attributes)):
        for part in walk(expression):
            if isinstance(part, Attribute | Fold) and part.name is not None:
                concerned = list(types.values()) if isinstance(expression, Same) else [types[part.role]]
                yield from ((name, part.name) for name in concerned)
    if isinstance(rule.pattern.root, Chain):
        for step in rule.pattern.root.steps:
            if isinstance(step, Aggregate) and step.attribute is not None:
                yield step.leaf.type, step.attribute


def _all_columns(
    rules: Sequence[Rule], types: Mapping[str, EventType], outside: Mapping[str, EventType]
) -> dict[str, RowLayout]:
    columns = {}
    for name, event_type in types.items():
        pairs = zip(event_type.attributes, event_type.optional, strict=True)
        optional = frozenset(attribute for attribute, may_lack in pairs if may_lack)
        position = {attribute: HEADER_WIDTH + i for i, attribute in enumerate(event_type.attributes)}
        columns[name] = RowLayout(name, position, optional, composite=False)
    for name, event_type in outside.items():
        position = {attribute: HEADER_WIDTH + i for i, attribute in enumerate(event_type.attributes)}
        columns[name] = RowLayout(name, position, frozenset(position), composite=True)
    for rule in rules:  # several rules may emit one type: readers see the attributes of all of them
        shared = columns.get(rule.emits)
        united = dict(shared.position) if shared is not None else {}
        for output in rule.attributes:
            united.setdefault(output.name, HEADER_WIDTH + len(united))
        columns[rule.emits] = RowLayout(rule.emits, united, frozenset(united), composite=True)
    return columns
