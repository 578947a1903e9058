"""The task of ``headwater statistics``, checked before Spark starts: a trace, and rules that fit it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from headwater.coordinator.inev.model.problem import event_network
from headwater.coordinator.inev.model.rules import Statistics, labels_of, problem_from
from headwater.deploy.cli.common import declared_types, read_sources
from headwater.deploy.network.file import NetworkFile, read_network
from headwater.pipeline.prepare.prepared_trace import Manifest, PreparedTrace, open_prepared
from headwater.pipeline.statistics.combinations import RoleConstraints, subsets
from headwater.protocol.errors import ConfigError, RuleError
from headwater.protocol.events import EventType
from headwater.protocol.expressions import Attribute, Same, walk
from headwater.protocol.languages import RuleTextError, parse_rules
from headwater.protocol.languages.diagnostics import UNKNOWN_EVENT_TYPE
from headwater.protocol.pattern import Rule, leaves, types_of
from headwater.protocol.text import listed

ROLES_MAX: Final = 3
"""Matches of more roles together are counted only on request: there is a set for each choice."""

ROLES_LIMIT: Final = 8
"""More roles than this would take too long to count."""

_NUMBERS: Final = ("int", "float")


@dataclass(frozen=True, slots=True)
class StatisticsTask:
    """``sources``: the types and nodes of which events count; None for all of the trace."""

    trace: PreparedTrace
    rules: Mapping[str, tuple[Rule, Sequence[frozenset[str]]]] = field(default_factory=dict)
    sources: frozenset[tuple[str, str]] | None = None
    warnings: tuple[str, ...] = ()

    @property
    def types(self) -> tuple[str, ...]:
        """The types whose rates planners may ask for: those that rules read, or all where there are none."""
        if self.sources is not None:
            return tuple(sorted({type for type, _ in self.sources}))
        read = {type for rule, _ in self.rules.values() for type in types_of(rule.pattern)}
        return tuple(type for type in self.trace.manifest.types if type in read or not self.rules)


def task_of(trace: Path, rules: Sequence[Path], network: Path | None, roles_max: int) -> StatisticsTask:
    """A ConfigError says what does not fit together."""
    if rules and network is not None:
        raise ConfigError("a network has rules of its own; name it, or rule files, and not both")
    if not 2 <= roles_max <= ROLES_LIMIT:
        raise ConfigError(f"--roles {roles_max}: matches of 2 to {ROLES_LIMIT} roles can be counted")
    prepared = open_prepared(trace)
    manifest = prepared.manifest
    if not manifest.events:
        raise ConfigError(f"{trace} has no events, so there is nothing to count")
    if manifest.first_us == manifest.last_us:
        raise ConfigError(
            f"all {manifest.events:,} events of {trace} have the same time, so it cannot be said how often they occur; "
            "look at the time in the description that it was prepared with"
        )
    if network is not None:
        return _of_network(prepared, read_network(network, counted=False), roles_max)
    read_rules = _read_rules(rules, manifest, trace) if rules else ()
    for rule in read_rules:
        _check_attributes(rule, manifest, trace)
    kept, warnings = _readable(read_rules, manifest, trace, strict=True)
    counted = {rule.name: (rule, considered(rule, roles_max)) for rule in kept}
    return StatisticsTask(prepared, counted, None, (*manifest.warnings, *warnings))


def _read_rules(files: Sequence[Path], manifest: Manifest, trace: Path) -> tuple[Rule, ...]:
    sources = read_sources(files)
    declared = declared_types(sources)
    types = [EventType(name, recorded.attributes) for name, recorded in manifest.types.items() if name not in declared]
    try:
        return parse_rules(sources, types).rules
    except RuleTextError as error:
        if any(diagnostic.code == UNKNOWN_EVENT_TYPE for diagnostic in error.diagnostics):
            raise RuleError(f"{error}\n{trace} has events of type {listed(manifest.types, 20)}") from None
        raise


def _of_network(trace: PreparedTrace, file: NetworkFile, roles_max: int) -> StatisticsTask:
    manifest, network = trace.manifest, file.network
    warnings = [*manifest.warnings]
    sources = {(source.type, source.node) for source in network.sources}
    nodes = {node for _, node in sources}
    if not nodes & manifest.nodes.keys():
        raise ConfigError(
            f"{trace.folder} has no events of any node of {file.path} that has sources: it has "
            f"{listed(manifest.nodes, 12)}, and the network {listed(sorted(nodes), 12)}; prepare it for these nodes"
        )
    missing = sorted(nodes - manifest.nodes.keys())
    if missing:
        warnings.append(f"the trace has no events at {listed(missing, 12)}, so nothing is known of sources there")
    strangers = [node for node in manifest.nodes if node not in network.nodes]
    if strangers:
        lost = sum(manifest.nodes[node].events for node in strangers)
        warnings.append(
            f"the network has no node {listed(strangers, 12)}: {lost:,} events of the trace are not counted"
        )
    silent = sorted({type for type, _ in sources} - manifest.types.keys())
    if silent:
        warnings.append(f"the trace has no events of type {listed(silent, 12)}")
    kept, more = _readable(network.rules, manifest, trace.folder, strict=False)
    for rule in kept:
        _check_attributes(rule, manifest, trace.folder)
    rules = {rule.name: (rule, considered(rule, roles_max)) for rule in kept}
    return StatisticsTask(trace, rules, frozenset(sources), (*warnings, *more))


def _readable(rules: Iterable[Rule], manifest: Manifest, trace: Path, *, strict: bool) -> tuple[list[Rule], list[str]]:
    """The rules whose types the trace has, and a sentence for each other one."""
    rules = list(rules)
    emitted = {rule.emits: rule.name for rule in rules}
    kept, warnings = [], []
    for rule in rules:
        lacking = [name for name in sorted(types_of(rule.pattern)) if name not in manifest.types]
        composites = [name for name in lacking if name in emitted]
        if composites:
            warnings.append(
                f"rule {rule.name} reads {listed(composites)}, which rule {emitted[composites[0]]} finds, so it is "
                "left out: the trace has what sources tell"
            )
        elif lacking:
            sentence = f"rule {rule.name} reads {listed(lacking)}, of which {trace} has no events"
            if strict:
                raise ConfigError(f"{sentence}; it has {listed(manifest.types, 20)}")
            warnings.append(f"{sentence}, so it is left out")
        else:
            kept.append(rule)
    return kept, warnings


def _check_attributes(rule: Rule, manifest: Manifest, trace: Path) -> None:
    """A ConfigError where conditions name what the events of the trace do not have."""
    types = {leaf.role: leaf.type for leaf in leaves(rule.pattern.root)}
    for condition in rule.pattern.where:
        for part in walk(condition):
            if not isinstance(part, Attribute) or part.name in ("ts", "node", "seq", "type"):
                continue
            roles = types if isinstance(condition, Same) else [part.role]
            for role in roles:
                summary = manifest.types.get(types.get(role, ""))
                if summary is not None and part.name not in summary.attributes:
                    raise ConfigError(
                        f"rule {rule.name} asks for {types[role]}.{part.name}, which its events in {trace} lack; "
                        f"{types[role]} has {listed(summary.attributes, 20) or 'no attributes'}"
                    )


def considered(rule: Rule, roles_max: int) -> tuple[frozenset[str], ...]:
    """The sets of positive roles, at most so many at once, that a planner may have nodes put together."""
    pattern_roles = RoleConstraints(rule)
    totals = {type: {"all": 1.0} for type in sorted(types_of(rule.pattern))}
    try:
        network = event_network(("all",), (), totals)
        problem = problem_from([rule], ("all",), network, Statistics(totals), {})
    except ConfigError:
        # The planner refuses the rule; how often its parts match may be of interest all the same.
        return tuple(roles for roles in subsets(pattern_roles.positive, roles_max) if pattern_roles.compatible(roles))
    labels = labels_of(rule)
    role_sets: dict[frozenset[str], None] = {}
    for query in problem.queries:
        if query.whole:
            continue  # it is decided in one piece, and not by combinations alone
        for types in query.subsets():
            roles = frozenset(role for role in pattern_roles.positive if labels[role] in types)
            if 2 <= len(roles) <= roles_max:
                role_sets[roles] = None
    return tuple(role_sets)
