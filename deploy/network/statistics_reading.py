"""Reads the section ``statistics`` of a network file and the file that it may name, for planners."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from headwater.coordinator.inev.model.latency_bounds import USUAL_TERMS, LatencyTerms
from headwater.coordinator.inev.model.rules import Measured
from headwater.deploy.network.fields import NamedEntries
from headwater.deploy.network.models.network import NetworkPart
from headwater.deploy.network.models.statistics import ProjectionPart, SharePart, StatisticsFilePart
from headwater.deploy.network.reading import read_part
from headwater.deploy.network.statistics import GivenStatistics, rule_digest
from headwater.deploy.network.yaml_file import NetworkFileError, Sheet
from headwater.protocol.errors import ConfigError
from headwater.protocol.pattern import Rule, leaves
from headwater.protocol.text import suggestion


@dataclass(frozen=True, slots=True)
class Described:
    """What a network has: statistics of anything else are a mistake. ``rules`` is None while they are broken."""

    types: Collection[str]
    nodes: Collection[str]
    rules: Mapping[str, Rule] | None


def given_statistics(
    sheet: Sheet, network: NetworkPart, described: Described, *, instead: Path | None = None, with_file: bool = True
) -> GivenStatistics:
    """What the section says, and what the file says that it names: where both speak, the section is right. Mistakes are
    noted in the sheet. ``instead``: a file that takes the place of the one that is named."""
    part = network.statistics
    own, file = GivenStatistics(), None
    if part is not None:
        latency = USUAL_TERMS if part.latency is None else LatencyTerms(part.latency.bound, part.latency.factor)
        keys = tuple((part.keys or {}).items())
        shares = _selectivities(part.selectivities)
        own = GivenStatistics(_rates(part.rates), shares, latency, part.pull == "on", keys=keys)
        file = None if part.file is None else sheet.path.parent / part.file
    chosen = instead or file
    if chosen is None or not with_file:
        return own
    try:
        counted = _read_file(chosen, described, sheet)
    except NetworkFileError as error:
        for diagnostic in error.diagnostics:
            sheet.adopt(diagnostic)
        return own
    except ConfigError as error:
        if instead is not None or part is None:
            raise
        sheet.error(part.at("file"), str(error), "write it with headwater statistics --out, or take the name out")
        return own
    return _merged(counted, own, described, chosen)


def _rates(rates: NamedEntries[float | NamedEntries[float]] | None) -> dict[str, dict[str, float]]:
    return {
        str(type): {str(node): rate for node, rate in at.items()} if isinstance(at, NamedEntries) else {"": at}
        for type, at in (rates or {}).items()
    }


def _selectivities(
    selectivities: NamedEntries[NamedEntries[SharePart]] | None,
) -> dict[str, dict[frozenset[str], float]]:
    return {
        str(rule): {_roles(names): part.share for names, part in shares.items()}
        for rule, shares in (selectivities or {}).items()
    }


def _roles(names: str) -> frozenset[str]:
    return frozenset(name.strip() for name in names.split(","))


def _merged(counted: GivenStatistics, own: GivenStatistics, network: Described, file: Path) -> GivenStatistics:
    rates = dict(counted.rates)
    for type, at in own.rates.items():
        # What is said of all sources of a type is said of each node, too.
        rates[type] = dict(at) if "" in at else {**rates.get(type, {}), **at}
    shares = {name: dict(by_roles) for name, by_roles in counted.selectivities.items()}
    for name, written in own.selectivities.items():
        rule = (network.rules or {}).get(name)
        types = {leaf.role: leaf.type for leaf in leaves(rule.pattern.root)} if rule is not None else {}
        kept = {
            roles: share
            for roles, share in shares.get(name, {}).items()
            if frozenset(types.get(role, role) for role in roles) not in written
        }
        shares[name] = {**kept, **written}
    # What the network file says of a rule is meant to count, and would not beside counted matches.
    projections = {name: measured for name, measured in counted.projections.items() if name not in own.selectivities}
    return replace(own, rates=rates, selectivities=shares, file=file, projections=projections)


# Files of headwater statistics ----------------------------------------------------------------------------------------


TAKE_OUT: Final = "take it out, or count for this network: headwater statistics TRACE --network"


def _read_file(path: Path, network: Described, into: Sheet) -> GivenStatistics:
    """What the file tells planners. Whatever the network does not have is a mistake in its line."""
    sheet = Sheet(path, "statistics file", "trace, rates, selectivities and projections")
    part = read_part(sheet, sheet.root(), StatisticsFilePart)
    assert part is not None  # no section is required
    _check_names(sheet, part, network)
    sheet.finished()
    for diagnostic in sheet.warnings():
        into.adopt(diagnostic, warning=True)
    rules = network.rules
    rates = _rates(part.rates)
    projections = (
        {
            str(name): dict(_measured(rules[name], of_roles, rates))
            for name, of_roles in (part.projections or {}).items()
        }
        if rules is not None
        else {}
    )
    return GivenStatistics(
        rates, _selectivities(part.selectivities) if rules is not None else {}, projections=projections
    )


def _check_names(sheet: Sheet, part: StatisticsFilePart, network: Described) -> None:
    for type, at in (part.rates or {}).items():
        if type not in network.types:
            sheet.error(type.node, f"the network has no events of type {str(type)!r}", TAKE_OUT)
        elif isinstance(at, NamedEntries):
            for node in at:
                if node not in network.nodes:
                    sheet.error(node.node, f"the network has no node {str(node)!r}", TAKE_OUT)
    if network.rules is not None:
        _check_rules(sheet, part, network.rules)


def _check_rules(sheet: Sheet, part: StatisticsFilePart, rules: Mapping[str, Rule]) -> None:
    for by_rule in (part.selectivities, part.projections):
        for name, of_roles in (by_rule or {}).items():
            if name in rules:
                _check_roles(sheet, rules[name], of_roles)
                continue
            cure = suggestion(name, list(rules), "rules are")
            cure = f"{cure}; {TAKE_OUT}" if cure else TAKE_OUT
            sheet.error(name.node, f"the network has no rule {str(name)!r}", cure)
    for name, counted in (part.rules or {}).items():
        if name in rules and counted.digest is not None and counted.digest != rule_digest(rules[name]):
            sheet.warn(name.node, f"the statistics are of another version of rule {name}", "count again")


def _measured(
    rule: Rule, projections: NamedEntries[ProjectionPart], rates: Mapping[str, Mapping[str, float]]
) -> Iterator[tuple[frozenset[str], Measured]]:
    """The matches that were counted. None that were found say too little: they are left to selectivities."""
    types = {leaf.role: leaf.type for leaf in leaves(rule.pattern.root)}
    for names, projection in projections.items():
        roles = _roles(names)
        singles = {
            str(role): single.share for role, single in (projection.singles or {}).items() if 0 < single.share <= 1
        }
        has_rates = roles <= types.keys() and all(types[role] in rates for role in roles)
        if projection.per_s and has_rates and singles.keys() == roles:
            totals = {types[role]: sum(rates[types[role]].values()) for role in sorted(roles)}
            yield roles, Measured(projection.per_s, singles, totals)


def _check_roles(sheet: Sheet, rule: Rule, by_roles: NamedEntries[Any]) -> None:
    roles = {name: None for leaf in leaves(rule.pattern.root) for name in (leaf.role, leaf.type)}
    for names in by_roles:
        for name in (part.strip() for part in names.split(",")):
            if name not in roles:
                message = f"rule {rule.name} has no role {name!r}"
                sheet.error(names.node, message, suggestion(name, list(roles), "it has"))
