"""The file that ``headwater statistics`` writes and ``headwater plan`` reads, also as text for people."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from headwater.deploy.cli.statistics_task import StatisticsTask
from headwater.deploy.cli.tables import table_lines
from headwater.deploy.network.statistics import rule_digest
from headwater.deploy.network.units import RATE_LEAST_PER_S
from headwater.pipeline.prepare.trace_warnings import moment
from headwater.pipeline.statistics.arrivals import Arrivals, Place
from headwater.pipeline.statistics.combinations import RoleConstraints, names
from headwater.pipeline.statistics.sampling import Estimate
from headwater.pipeline.statistics.selectivities import RuleStatistics, Selectivity, shown
from headwater.protocol.errors import ConfigError
from headwater.protocol.expressions import Same, roles_of
from headwater.protocol.files import write_file
from headwater.protocol.languages.print_sase import print_sase
from headwater.protocol.languages.print_tesla import print_tesla
from headwater.protocol.languages.printing import PrintError
from headwater.protocol.pattern import Chain, Rule
from headwater.protocol.text import whole_us

HEAD: Final = """\
# What a trace tells planners. headwater plan NETWORK --statistics FILE reads rates, selectivities and projections,
# or write statistics: FILE into the network file. low and high enclose a figure with a confidence of 95 %; where they
# are absent everything was counted. passed, of: how many of how many. sampled: the share of the time looked at.
"""


@dataclass(frozen=True, slots=True)
class CountedTrace:
    """All that was counted for a task."""

    task: StatisticsTask
    arrivals: Mapping[Place, Arrivals]
    rules: Mapping[str, RuleStatistics]
    sample: str
    seed: int


def document(counted: CountedTrace) -> dict[str, Any]:
    """Everything as plain values, in the order in which it is read."""
    manifest = counted.task.trace.manifest
    sections: dict[str, Any] = {
        "trace": {
            "name": manifest.name,
            "checksum": manifest.checksum,
            "events": manifest.events,
            "from": moment(manifest.first_us),
            "to": moment(manifest.last_us),
            "seconds": (manifest.last_us - manifest.first_us) / 1e6,
        },
        "sample": {"wanted": counted.sample, "seed": counted.seed},
    }
    orders = {name: RoleConstraints(rule).number for name, (rule, _) in counted.task.rules.items()}
    if counted.task.rules:
        sections["rules"] = {
            name: {"text": _text(rule), "digest": rule_digest(rule)} for name, (rule, _) in counted.task.rules.items()
        }
    sections["rates"] = _rates(counted)
    sections["selectivities"] = {
        name: {names(roles, orders[name]): _share(share) for roles, share in _sorted(statistics.shares, orders[name])}
        for name, statistics in counted.rules.items()
        if statistics.shares
    }
    sections["projections"] = {
        name: {
            names(roles, orders[name]): {
                "per_s": _rounded(projection.per_s.value),
                **_ends(projection.per_s),
                "matches": round(projection.found),
                **({} if projection.sampled == 1 else {"sampled": _rounded(projection.sampled)}),
                "singles": {
                    role: _rounded(single.value) if single.exact else {"share": _rounded(single.value), **_ends(single)}
                    for role, single in projection.singles.items()
                },
                **({"selectivity": _share(projection.selectivity)} if projection.selectivity is not None else {}),
            }
            for roles, projection in _sorted(of_rule.projections, orders[name])
        }
        for name, of_rule in counted.rules.items()
        if of_rule.projections
    }
    sections["arrivals"] = {
        type: {
            **_arrivals(counted.arrivals[type, None]),
            "nodes": {
                node: _arrivals(arrivals)
                for (of, node), arrivals in sorted(counted.arrivals.items(), key=lambda pair: _place_order(pair[0]))
                if of == type and node is not None
            },
        }
        for type, node in sorted(counted.arrivals, key=_place_order)
        if node is None
    }
    notes = [f"rule {name}: {note}" for name, statistics in counted.rules.items() for note in statistics.notes]
    if counted.task.warnings or notes:
        sections["notes"] = [*counted.task.warnings, *notes]
    return {key: value for key, value in sections.items() if value}


def _sorted(by_roles: Mapping[frozenset[str], Any], order: Mapping[str, int]) -> list[tuple[frozenset[str], Any]]:
    return sorted(by_roles.items(), key=lambda pair: (len(pair[0]), sorted(order[role] for role in pair[0])))


def _rates(counted: CountedTrace) -> dict[str, dict[str, str]]:
    types = counted.task.types
    rates: dict[str, dict[str, str]] = {}
    for (type, node), arrivals in sorted(counted.arrivals.items(), key=lambda pair: _place_order(pair[0])):
        if node is not None and type in types and arrivals.per_s >= RATE_LEAST_PER_S:
            rates.setdefault(type, {})[node] = rate(arrivals.per_s)
    return rates


def _share(share: Selectivity) -> dict[str, Any]:
    return {
        "share": _rounded(share.told),
        **_ends(share.estimate),
        "passed": round(share.passed),
        "of": round(share.of),
        **({} if share.sampled == 1 else {"sampled": _rounded(share.sampled)}),
    }


def _ends(estimate: Estimate) -> dict[str, float]:
    return {} if estimate.exact else {"low": _rounded(estimate.low), "high": _rounded(estimate.high)}


def _arrivals(arrivals: Arrivals) -> dict[str, Any]:
    return {
        "events": arrivals.events,
        "per_s": _rounded(arrivals.per_s),
        **({} if arrivals.variation is None else {"variation": _rounded(arrivals.variation)}),
        **({} if arrivals.burstiness is None else {"burstiness": _rounded(arrivals.burstiness)}),
        **{
            name: {whole_us(size): _rounded(getattr(spread, name)) for size, spread in arrivals.windows.items()}
            for name in ("dispersion", "peak_to_mean")
            if arrivals.windows
        },
        **({"gaps": {whole_us(floor): count for floor, count in arrivals.gaps.items()}} if arrivals.gaps else {}),
    }


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def _place_order(place: Place) -> tuple[str, list[tuple[int, str]]]:
    """By type, then by node: n2 before n10."""
    type, node = place
    words = re.findall(r"[0-9]+|[^0-9]+", node or "")
    return type, [(int(word), "") if word.isdecimal() else (-1, word) for word in words]


def rate(per_s: float) -> str:
    """A rate in the unit in which it is at least one, if there is one."""
    for unit, seconds in (("s", 1), ("min", 60), ("h", 3_600)):
        if per_s * seconds >= 1:
            return f"{per_s * seconds:.9g}/{unit}"
    return f"{per_s * 86_400:.9g}/d"


def _text(rule: Rule) -> str:
    try:
        text = print_tesla(rule) if isinstance(rule.pattern.root, Chain) else print_sase(rule)
    except PrintError:
        return ""
    return " ".join(text.split())


def as_yaml(counted: CountedTrace) -> str:
    return (
        HEAD
        + "\n"
        + yaml.safe_dump(document(counted), sort_keys=False, allow_unicode=True, default_flow_style=None, width=10**6)
    )


def check_statistics_target(path: Path) -> None:
    """A ConfigError if a file of statistics cannot be put there; nothing but such a file is replaced."""
    if path.is_dir():
        raise ConfigError(f"{path} is a folder; name the file to write")
    if not path.absolute().parent.is_dir():
        raise ConfigError(f"there is no folder {path.parent} to write {path.name} into")
    if path.exists() and not path.read_bytes().startswith(HEAD.encode().partition(b"\n")[0]):
        raise ConfigError(f"{path} is not a file of statistics, so it is not overwritten; name another file")


def write_statistics(path: Path, text: str) -> None:
    """The file appears under its name when all of it is there."""
    try:
        write_file(path, text)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None


# For people -----------------------------------------------------------------------------------------------------------


def in_words(counted: CountedTrace) -> Iterator[str]:
    """What a person wants to see: how events arrive, and what each rule lets pass."""
    manifest = counted.task.trace.manifest
    ends = f"{moment(manifest.first_us)} to {moment(manifest.last_us)}"
    yield f"{counted.task.trace.folder}: {manifest.events:,} events, {ends}"
    yield ""
    sizes = next((list(arrivals.windows) for arrivals in counted.arrivals.values()), [])
    header = ["type", "events", "per hour", "nodes", "variation", "burstiness"]
    header += [f"disp. {whole_us(size)}" for size in sizes]
    rows = []
    for type, node in sorted(counted.arrivals, key=_place_order):
        if node is not None:
            continue
        arrivals = counted.arrivals[type, None]
        nodes = sum(1 for of, at in counted.arrivals if of == type and at is not None)
        figures = (f"{arrivals.events:,}", f"{arrivals.per_s * 3600:,.4g}", str(nodes))
        spread = (_cell(arrivals.variation), _cell(arrivals.burstiness))
        rows.append((type, *figures, *spread, *(f"{arrivals.windows[size].dispersion:.3g}" for size in sizes)))
    yield from table_lines(header, rows, figures=range(1, len(header)))
    for name, of_rule in counted.rules.items():
        yield from _rule_in_words(name, counted.task.rules[name][0], of_rule)


def _rule_in_words(name: str, rule: Rule, statistics: RuleStatistics) -> Iterator[str]:
    order = RoleConstraints(rule).number
    yield ""
    yield f"{name}: {_text(rule).removeprefix(name + ':').strip()}"
    figures = range(1, 5)
    shares = [
        (
            names(roles, order),
            f"{share.told:.4g}",
            _interval(share.estimate),
            f"{share.passed:,.0f}",
            f"{share.of:,.0f}",
            _asked(rule, roles),
        )
        for roles, share in _sorted(statistics.shares, order)
    ]
    if shares:
        header = ("roles", "selectivity", "95 %", "passed", "of", "asked")
        yield from table_lines(header, shares, figures=figures, indent=2)
    projections = [
        (
            names(roles, order),
            f"{projection.per_s.value * 3600:.4g}",
            _interval(projection.per_s.scaled(3600)),
            f"{projection.found:,.0f}",
            "all" if projection.sampled == 1 else f"{projection.sampled:.3g}",
            ", ".join(f"{role} {single.value:.3g}" for role, single in projection.singles.items()),
        )
        for roles, projection in _sorted(statistics.projections, order)
    ]
    if projections:
        header = ("roles", "matches/h", "95 %", "matches", "sampled", "events in matches")
        yield from table_lines(header, projections, figures=figures, indent=2)
    for note in statistics.notes:
        yield f"  note: {note}"


def _asked(rule: Rule, roles: frozenset[str]) -> str:
    where = [condition for condition in rule.pattern.where if roles_of(condition) == roles]
    agree = [condition for condition in rule.pattern.where if isinstance(condition, Same)] if len(roles) > 1 else []
    return " and ".join(map(shown, (*where, *agree)))


def _interval(estimate: Estimate) -> str:
    return "counted" if estimate.exact else f"{estimate.low:.4g} to {estimate.high:.4g}"


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
