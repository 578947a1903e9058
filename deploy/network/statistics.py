"""The section ``statistics`` of a network file, and the file that it may name: what planners know beside the rules."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import yaml

from headwater.coordinator.inev.model.latency_bounds import USUAL_TERMS, LatencyTerms
from headwater.coordinator.inev.model.rules import Measured
from headwater.deploy.network.readings import one_of, quantity
from headwater.deploy.network.sheet import NetworkFileError, Sheet, is_null
from headwater.deploy.network.units import rate_per_s
from headwater.protocol.errors import ConfigError
from headwater.protocol.languages.diagnostics import suggestion
from headwater.protocol.pattern import Rule, leaves
from headwater.protocol.wire.codec import digest

KEYS: Final = ("file", "rates", "selectivities", "latency", "pull")
FILE_KEYS: Final = (
    "trace", "sample", "rules", "rates", "selectivities", "projections", "arrivals", "notes",
)  # fmt: skip
"""Those of a file that ``headwater statistics`` writes (docs/spark/statistics.md)."""
SHARE_KEYS: Final = ("share", "low", "high", "passed", "of", "sampled")
PROJECTION_KEYS: Final = ("per_s", "low", "high", "matches", "sampled", "singles", "selectivity")
LATENCY_KEYS: Final = ("bound", "factor")
LATENCY_EXAMPLE: Final = "write latency: {bound: 3x, factor: 1}"
EXAMPLE: Final = 'write statistics: {rates: {Temp: 2/s}, selectivities: {Fire: {"smoke, temp": 0.05}}}'


@dataclass(frozen=True, slots=True)
class GivenStatistics:
    """Rates by type and node ("" for all its sources), selectivities by rule and the roles or types they join."""

    rates: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    selectivities: Mapping[str, Mapping[frozenset[str], float]] = field(default_factory=dict)
    latency: LatencyTerms = USUAL_TERMS
    pull: bool = True
    file: Path | None = None
    """The file that some of it comes from."""
    projections: Mapping[str, Mapping[frozenset[str], Measured]] = field(default_factory=dict)
    """By rule and roles, matches that were counted."""


@dataclass(frozen=True, slots=True)
class Described:
    """What a network has: statistics of anything else are a mistake. ``rules`` is None while they are broken."""

    types: Collection[str]
    nodes: Collection[str]
    rules: Mapping[str, Rule] | None


def read_statistics(
    sheet: Sheet, node: yaml.Node, network: Described, *, instead: Path | None = None, with_file: bool = True
) -> GivenStatistics:
    """What the section says, and what the file says that it names: where both speak, the section is right. Mistakes are
    noted in the sheet. ``instead``: a file that takes the place of the one that is named."""
    if is_null(node):
        own, file, place = GivenStatistics(), None, node
    elif isinstance(node, yaml.ScalarNode):
        own, file, place = GivenStatistics(), sheet.path.parent / str(node.value), node
    else:
        entries = sheet.entries(node, "statistics", KEYS, EXAMPLE)
        own, file, place = _own_words(sheet, entries), None, node
        if "file" in entries:
            place = entries["file"][1]
            name = sheet.word(place, "the file of the statistics", "write the name of what headwater statistics wrote")
            file = sheet.path.parent / name if name is not None else None
    chosen = instead or file
    if chosen is None or not with_file:
        return own
    try:
        counted = _read_file(chosen, network, sheet)
    except NetworkFileError as error:
        for made in error.diagnostics:
            sheet.adopt(made)
        return own
    except ConfigError as error:
        if instead is not None:
            raise
        sheet.error(place, str(error), "write it with headwater statistics --out, or take the name out")
        return own
    return _merged(counted, own, network, chosen)


def _own_words(sheet: Sheet, entries: dict[str, tuple[yaml.Node, yaml.Node]]) -> GivenStatistics:
    rates: dict[str, dict[str, float]] = {}
    selectivities: dict[str, dict[frozenset[str], float]] = {}
    if "rates" in entries:
        for type, (_, given) in sheet.entries(entries["rates"][1], "the rates", None, EXAMPLE).items():
            rates[type] = _rates(sheet, type, given)
    if "selectivities" in entries:
        for rule, (_, given) in sheet.entries(entries["selectivities"][1], "the selectivities", None, EXAMPLE).items():
            selectivities[rule] = _selectivities(sheet, rule, given)
    latency = _latency(sheet, entries["latency"][1]) if "latency" in entries else USUAL_TERMS
    pull = one_of(sheet, entries, "pull", ("on", "off"), "on") == "on"
    return GivenStatistics(rates, selectivities, latency, pull)


def _merged(counted: GivenStatistics, own: GivenStatistics, network: Described, file: Path) -> GivenStatistics:
    rates = dict(counted.rates)
    for type, at in own.rates.items():
        # What is said of all sources of a type is said of each node, too.
        rates[type] = dict(at) if "" in at else {**rates.get(type, {}), **at}
    shares = {name: dict(each) for name, each in counted.selectivities.items()}
    for name, written in own.selectivities.items():
        rule = (network.rules or {}).get(name)
        types = {leaf.role: leaf.type for leaf in leaves(rule.pattern.root)} if rule is not None else {}
        kept = {
            roles: share
            for roles, share in shares.get(name, {}).items()
            if frozenset(types.get(role, role) for role in roles) not in written
        }
        shares[name] = {**kept, **written}
    # What somebody says of a rule is meant to count, and would not beside matches that were counted.
    projections = {name: each for name, each in counted.projections.items() if name not in own.selectivities}
    return replace(own, rates=rates, selectivities=shares, file=file, projections=projections)


# Files of headwater statistics ----------------------------------------------------------------------------------------


def _read_file(path: Path, network: Described, into: Sheet) -> GivenStatistics:
    """What the file tells planners. Whatever the network does not have is a mistake in its line."""
    sheet = Sheet(path, "statistics file", "trace, rates, selectivities and projections")
    entries = sheet.entries(
        sheet.root(), "a statistics file", FILE_KEYS, "headwater statistics --out writes such files"
    )
    rates: dict[str, dict[str, float]] = {}
    selectivities: dict[str, dict[frozenset[str], float]] = {}
    projections: dict[str, dict[frozenset[str], Measured]] = {}
    take_out = "take it out, or count for this network: headwater statistics TRACE --network"
    if "rates" in entries:
        for type, (key, given) in sheet.entries(entries["rates"][1], "the rates", None, EXAMPLE).items():
            if type not in network.types:
                sheet.error(key, f"the network has no events of type {type!r}", take_out)
                continue
            if isinstance(given, yaml.MappingNode):
                for name, (place, _) in sheet.entries(given, f"the rates of {type}").items():
                    if name not in network.nodes:
                        sheet.error(place, f"the network has no node {name!r}", take_out)
            rates[type] = _rates(sheet, type, given)
    for section in ("selectivities", "projections"):
        if section not in entries:
            continue
        for name, (key, given) in sheet.entries(entries[section][1], f"the {section}", None, EXAMPLE).items():
            if network.rules is None:
                continue
            rule = network.rules.get(name)
            if rule is None:
                cure = suggestion(name, list(network.rules), "rules are")
                sheet.error(key, f"the network has no rule {name!r}", f"{cure}; {take_out}" if cure else take_out)
                continue
            _check_roles(sheet, rule, given, section)
            if section == "selectivities":
                selectivities[name] = _selectivities(sheet, name, given)
            else:
                projections[name] = _projections(sheet, rule, given, rates)
    if "rules" in entries and network.rules is not None:
        _check_versions(sheet, entries["rules"][1], network.rules)
    sheet.finished()
    for made in sheet.warnings():
        into.warned.append(((1 << 30, len(into.warned)), made))
    return GivenStatistics(rates, selectivities, projections=projections)


def _projections(
    sheet: Sheet, rule: Rule, given: yaml.Node, rates: Mapping[str, Mapping[str, float]]
) -> dict[frozenset[str], Measured]:
    """The matches that were counted. None that were found say too little: they are left to selectivities."""
    types = {leaf.role: leaf.type for leaf in leaves(rule.pattern.root)}
    found: dict[frozenset[str], Measured] = {}
    for names, (_, value) in sheet.entries(given, f"the projections of {rule.name}").items():
        roles = frozenset(name.strip() for name in names.split(","))
        entries = sheet.entries(value, f"the matches of {names}", PROJECTION_KEYS)
        per_s = _number(sheet, entries["per_s"][1], "matches per second") if "per_s" in entries else None
        singles: dict[str, float] = {}
        if "singles" in entries:
            for role, (_, single) in sheet.entries(entries["singles"][1], f"the single shares of {names}").items():
                if isinstance(single, yaml.MappingNode):
                    inside = sheet.entries(single, f"the single share of {role}", SHARE_KEYS)
                    single = inside["share"][1] if "share" in inside else single
                share = _number(sheet, single, "a share")
                if share is not None and 0 < share <= 1:
                    singles[role] = share
        known = roles <= types.keys() and all(types[role] in rates for role in roles)
        if per_s and known and singles.keys() == roles:
            totals = {types[role]: sum(rates[types[role]].values()) for role in sorted(roles)}
            found[roles] = Measured(per_s, singles, totals)
    return found


def _number(sheet: Sheet, node: yaml.Node, what: str) -> float | None:
    text = sheet.word(node, what)
    try:
        found = float(text) if text is not None else None
    except ValueError:
        found = -1.0
    if found is not None and not 0 <= found < float("inf"):
        sheet.error(node, f"{text!r} is no number of {what}", "count again with headwater statistics")
        return None
    return found


def _check_roles(sheet: Sheet, rule: Rule, given: yaml.Node, section: str) -> None:
    known = {name: None for leaf in leaves(rule.pattern.root) for name in (leaf.role, leaf.type)}
    for names, (key, _) in sheet.entries(given, f"the {section} of {rule.name}").items():
        for name in (each.strip() for each in names.split(",")):
            if name not in known:
                sheet.error(key, f"rule {rule.name} has no role {name!r}", suggestion(name, list(known), "it has"))


def _check_versions(sheet: Sheet, given: yaml.Node, rules: Mapping[str, Rule]) -> None:
    """What was counted for a rule that has changed since may no longer hold."""
    for name, (key, described) in sheet.entries(given, "the rules").items():
        said = sheet.entries(described, f"the rule {name}").get("digest")
        if name in rules and said is not None and getattr(said[1], "value", None) != rule_digest(rules[name]):
            sheet.warn(key, f"the statistics are of another version of rule {name}", "count again")


def rule_digest(rule: Rule) -> str:
    """What tells versions of a rule apart, as far as statistics depend on them."""
    return digest(rule.pattern)[:16]


def _latency(sheet: Sheet, given: yaml.Node) -> LatencyTerms:
    found = USUAL_TERMS
    for name, (_, value) in sheet.entries(given, "latency", LATENCY_KEYS, LATENCY_EXAMPLE).items():
        text = sheet.word(value, f"the {name} of the latency")
        if text is None:
            continue
        try:
            found = replace(found, bound=text) if name == "bound" else replace(found, factor=float(text))
        except ValueError:
            sheet.error(value, f"the factor {text!r} is not a number", "write what work counts beside a hop: factor: 1")
        except ConfigError as error:
            wrong, _, cure = str(error).partition("; ")
            sheet.error(value, wrong, cure)
    return found


def _rates(sheet: Sheet, type: str, given: yaml.Node) -> dict[str, float]:
    if not isinstance(given, yaml.MappingNode):
        rate = quantity(sheet, given, f"the rate of {type}", rate_per_s)
        return {"": rate} if rate is not None else {}
    found = {}
    for name, (_, value) in sheet.entries(given, f"the rates of {type}").items():
        rate = quantity(sheet, value, f"the rate of {type} at {name}", rate_per_s)
        if rate is not None:
            found[name] = rate
    return found


def _selectivities(sheet: Sheet, rule: str, given: yaml.Node) -> dict[frozenset[str], float]:
    found = {}
    for names, (_, value) in sheet.entries(given, f"the selectivities of {rule}", None, EXAMPLE).items():
        if isinstance(value, yaml.MappingNode):
            inside = sheet.entries(value, f"the selectivity of {names}", SHARE_KEYS, EXAMPLE)
            if "share" not in inside:
                sheet.error(value, f"the selectivity of {names} has no share", "write {share: 0.05}, or only 0.05")
                continue
            value = inside["share"][1]
        text = sheet.word(value, f"the selectivity of {names}")
        try:
            share = float(text) if text is not None else None
        except ValueError:
            share = None
        if share is None or not 0 < share <= 1:
            sheet.error(value, f"{text!r} is no selectivity", "write the share that passes, above 0 and at most 1")
            continue
        found[frozenset(name.strip() for name in names.split(","))] = share
    return found
