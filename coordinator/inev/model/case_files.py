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
    from headwater.coordinator.inev.model.case_models import case_content  # with pydantic, which takes long to import

    written = case_content(content)
    types = written.event_types
    rates = {type: {str(node): row.local_rate for node in row.sources} for type, row in types.items()}
    links = [(str(one), str(other)) for one, other in written.edges]
    network = event_network([str(node) for node in written.nodes], links, rates)
    pairs = _pairs(written.pairwise_selectivities, types)
    queries: list[Query] = []
    for text in written.queries:
        for label, branch in split_queries(text, parse(text)):
            if all(query.name != label for query in queries):
                queries.append(Query(label, branch, pairs))
    single = _single(written.single_selectivities, types)
    problem = Problem(network, tuple(queries), CaseCosts(network, single))
    result = written.result if isinstance(written.result, dict) else {}
    return Case(name if written.case is None else str(written.case), problem, result)


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
