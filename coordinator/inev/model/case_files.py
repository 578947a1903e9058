"""Reads case files (format ``inev-case-1``): an event network, a workload, and the plan of another planner."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from headwater.coordinator.inev.model.case_costs import CaseCosts
from headwater.coordinator.inev.model.patterns import PatternError, parse
from headwater.coordinator.inev.model.problem import (
    Problem,
    ProblemError,
    Query,
    checked_selectivity,
    event_network,
    split_queries,
)

FORMAT: Final = "inev-case-1"


@dataclass(frozen=True, slots=True)
class Case:
    """A problem, and the other planner's result as the file tells it (empty where it tells none)."""

    name: str
    problem: Problem
    result: Mapping[str, Any]

    @property
    def theirs(self) -> float | None:
        """What the other plan costs."""
        cost = self.result.get("inev_cost")
        return float(cost) if cost is not None else None

    @property
    def theirs_is_valid(self) -> bool:
        """Whether an independent check found the other plan to be correct."""
        validity = self.result.get("validity") or {}
        return not validity.get("partitioned_by_negated_type") and not validity.get("inputs_not_delivered")


def read_case(path: Path) -> Case:
    """The case in a file; ProblemError says what is wrong with it and where."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ProblemError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ProblemError(f"{path} is not a text in UTF-8; a case is a JSON file of format {FORMAT}") from error
    try:
        content = json.loads(text)
    except ValueError as error:
        raise ProblemError(f"{path} is not JSON ({error}); a case is a JSON file of format {FORMAT}") from error
    try:
        return case_from(content, path.stem)
    except (ProblemError, PatternError) as error:
        raise ProblemError(f"{path.name}: {error}") from error


def case_from(content: object, name: str) -> Case:
    """The case in a decoded file."""
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        stated = content.get("format") if isinstance(content, dict) else None
        raise ProblemError(f"this is not a case file: its field 'format' is {stated!r} and must be {FORMAT!r}")
    nodes = _names(_field(content, "nodes", list))
    links = [_link(link) for link in _field(content, "edges", list)]
    types = _field(content, "event_types", dict)
    network = event_network(nodes, links, {type: _rates(type, row) for type, row in types.items()})
    pairs = _pairs(_field(content, "pairwise_selectivities", dict), types)
    queries: list[Query] = []
    for at, text in enumerate(_field(content, "queries", list), 1):
        if not isinstance(text, str):
            raise ProblemError(f"query {at} is {text!r}; write it as a text like SEQ(A, AND(B, C))")
        for label, branch in split_queries(text, parse(text)):
            if all(query.name != label for query in queries):
                queries.append(Query(label, branch, pairs))
    shares = content.get("single_selectivities") or {}
    if not isinstance(shares, dict):
        raise ProblemError(
            "field 'single_selectivities' is not an object; write it as {\"A|AB\": 0.5}, or leave it out"
        )
    single = _single(shares, types)
    problem = Problem(network, tuple(queries), CaseCosts(network, single))
    result = content.get("result") or {}
    return Case(str(content.get("case", name)), problem, result if isinstance(result, dict) else {})


def _field(content: Mapping[str, Any], name: str, kind: type) -> Any:
    field = content.get(name)
    if not isinstance(field, kind):
        wanted = "a list" if kind is list else "an object"
        raise ProblemError(f"field {name!r} is missing or is not {wanted}; a case of format {FORMAT} has it")
    return field


def _names(nodes: list[Any]) -> list[str]:
    return [str(node) for node in nodes]


def _link(link: object) -> tuple[str, str]:
    if not isinstance(link, list) or len(link) != 2:
        raise ProblemError(f"edge {link!r} does not join two nodes; write it as [a, b]")
    return str(link[0]), str(link[1])


def _rates(type: str, row: object) -> dict[str, Any]:
    if not isinstance(row, dict) or "local_rate" not in row or not isinstance(row.get("sources"), list):
        raise ProblemError(f"event type {type} needs a 'local_rate' and a list of 'sources'")
    return {str(node): row["local_rate"] for node in row["sources"]}


def _pairs(selectivities: Mapping[str, Any], types: Mapping[str, Any]) -> dict[frozenset[str], float]:
    by_pair: dict[frozenset[str], float] = {}
    for name, value in selectivities.items():
        pair = _pair(name, types)
        chosen = checked_selectivity(value, f"pairwise selectivity {name}")
        if by_pair.setdefault(pair, chosen) != chosen:
            raise ProblemError(f"pairwise selectivity {name} is given twice with different values; keep one")
    return {pair: value for pair, value in by_pair.items() if value != 1}


def _pair(name: str, types: Mapping[str, Any]) -> frozenset[str]:
    """Both type names written one after the other, in either order, or with a comma or a bar between them."""
    for mark in (",", "|"):
        if mark in name:
            both = frozenset(part.strip() for part in name.split(mark))
            break
    else:
        cuts = [frozenset((name[:at], name[at:])) for at in range(1, len(name))]
        both = next((cut for cut in cuts if cut <= types.keys()), frozenset())
    if len(both) != 2 or not both <= types.keys():
        raise ProblemError(f"pairwise selectivity {name!r} does not name two of the event types {', '.join(types)}")
    return both


def _single(selectivities: Mapping[str, Any], types: Mapping[str, Any]) -> dict[tuple[str, frozenset[str]], float]:
    shares = {}
    for name, value in selectivities.items():
        type, bar, over = name.partition("|")
        if not bar:
            raise ProblemError(f"single selectivity {name!r} must be written as type|types, for example A|ABC")
        of = frozenset(part.strip() for part in over.split(",")) if "," in over else frozenset(over)
        if type not in of or not of <= types.keys():
            raise ProblemError(
                f"single selectivity {name!r} does not name one of several event types and these; "
                f"write A|ABC, or A|A,B,C where names are longer; the event types are {', '.join(types)}"
            )
        shares[type, of] = checked_selectivity(value, f"single selectivity {name}")
    return shares
