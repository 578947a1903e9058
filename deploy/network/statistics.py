"""The section ``statistics`` of a network file: what planners know beside the rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import yaml

from coordinator.inev.bounds import USUAL_TERMS, LatencyTerms
from deploy.network.ends import one_of, quantity
from deploy.network.sheet import Sheet, is_null
from deploy.units import rate_per_s
from protocol.errors import ConfigError

KEYS: Final = ("rates", "selectivities", "latency", "pull")
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


def read_statistics(sheet: Sheet, node: yaml.Node) -> GivenStatistics:
    """What the section says; mistakes are noted in the sheet."""
    if is_null(node):
        return GivenStatistics()
    entries = sheet.entries(node, "statistics", KEYS, EXAMPLE)
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
