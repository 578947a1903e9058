"""The algorithms of the INEv paper (1 and 2), to compare the planner with.

Three slips of the printed text are corrected: a projection is suitable if its rate is *below* that of its types,
inputs are taken if they save *more*, and the number of links multiplies both terms of a vertex's cost. Combinations
are enumerated with at most a few inputs each; the paper's enumeration has no such limit and no end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

from headwater.coordinator.inev.model.problem import Problem
from headwater.coordinator.inev.plan.plans import Plan, plan_from
from headwater.coordinator.inev.search.baselines import best_centre, central_solution
from headwater.coordinator.inev.search.query_search import QuerySearch
from headwater.coordinator.inev.search.space import Solution, Space, Stream, Task, Tasks

INPUTS_MAX: Final = 3
"""Inputs of one projection that are tried together."""


def suitable(space: Space, query: QuerySearch, mask: int) -> bool:
    """Whether sending matches of a projection can be cheaper than sending its types."""
    types = sum(space.rates[type] for at, type in enumerate(query.types) if mask >> at & 1)
    return space.rates[query.projection[mask]] < types


def worth_many_nodes(space: Space, query: QuerySearch, whole: int, inputs: tuple[int, ...], at: int) -> float:
    """Equation 1: what splitting a projection by one of its types saves over gathering that type; negative if none."""
    delta = space.topology.typical_distance
    type = query.types[at]
    links = space.topology.size(space.signature(space.masks[space.nodes + type]))
    other_rates = sum(space.rates[query.projection[mask]] for mask in inputs if mask != 1 << at)
    further = 0.0 if whole == query.whole else space.rates[query.projection[whole]] * delta
    return space.rates[type] * delta - (links * other_rates + further)


@dataclass
class Combination:
    """For each chosen projection its inputs, and the type that splits it if one does."""

    inputs: dict[int, tuple[int, ...]] = field(default_factory=dict)
    split: dict[int, int | None] = field(default_factory=dict)


def combination(space: Space, query: QuerySearch, refused: set[int], shared: set[int]) -> Combination:
    """Algorithm 1. ``refused`` are types that may not split; ``shared`` projections that other queries have anyway."""
    choice = Combination()
    delta = space.topology.typical_distance
    # Of each projection: what every splitting type saves, counted once however many placements it splits, and what
    # is paid for each placement on one node, counted once however many projections read it.
    gains: dict[int, dict[int, float]] = {1 << at: {} for at in range(len(query.types))}
    payments: dict[int, dict[int, float]] = {1 << at: {} for at in range(len(query.types))}
    usable = [mask for mask in query.sets if mask == query.whole or suitable(space, query, mask)]
    for mask in usable:
        before = [other for other in [*(1 << at for at in range(len(query.types))), *usable] if _inside(other, mask)]
        best = -math.inf
        for inputs in _covers(mask, before, ()):
            gained: dict[int, float] = {}
            paid: dict[int, float] = {}
            for other in inputs:
                for at, gain in gains[other].items():
                    gained[at] = max(gain, gained.get(at, 0.0))
                paid.update(payments[other])
            splitting, saved = None, 0.0
            for at in query.splitting:
                if 1 << at in inputs and query.types[at] not in refused:
                    gain = worth_many_nodes(space, query, mask, inputs, at)
                    if gain > saved:
                        splitting, saved = at, gain
            if splitting is not None:
                gained[splitting] = max(saved, gained.get(splitting, 0.0))
            else:
                sent = [other for other in inputs if query.projection[other] not in shared]
                paid[mask] = delta * sum(space.rates[query.projection[other]] for other in sent)
            total = sum(gained.values()) - sum(paid.values())
            if total > best:
                best = total
                choice.inputs[mask], choice.split[mask] = inputs, splitting
                gains[mask], payments[mask] = gained, paid
    return choice


def _inside(one: int, other: int) -> bool:
    return one & other == one != other


def _covers(whole: int, before: list[int], chosen: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Sets of inputs with all types of a projection, none of which is superfluous."""
    covered = 0
    for mask in chosen:
        covered |= mask
    if covered == whole:
        return [chosen]
    if len(chosen) == INPUTS_MAX and (whole & ~covered).bit_count() > 0:
        rest = tuple(1 << at for at in range(whole.bit_length()) if (whole & ~covered) >> at & 1)
        return [(*chosen, *rest)] if all(mask in before for mask in rest) else []
    lowest = (whole & ~covered) & -(whole & ~covered)
    covers = []
    for mask in before:
        if mask & lowest and not any(_inside(other, mask) or other == mask for other in chosen):
            covers += _covers(whole, before, (*chosen, mask))
    return covers


def paper_plan(problem: Problem) -> Plan:
    """The plan of algorithms 1 and 2, query by query; centralised where that is cheaper."""
    space = Space(problem)
    queries = [QuerySearch(space, at) for at in range(len(problem.queries))]
    refused: set[int] = set()
    shared: set[int] = set()
    chosen: list[Combination] = []
    for query in queries:
        choice = combination(space, query, refused, shared)
        for mask in _used(query, choice):
            shared.add(query.projection[mask])
            splitting = choice.split[mask]
            if splitting is not None:
                refused |= {
                    query.types[at]
                    for at in range(len(query.types))
                    if 1 << at in choice.inputs[mask] and at != splitting
                }
        chosen.append(choice)
    solution = _placed(space, queries, chosen)
    centre = central_solution(space, best_centre(space))
    return plan_from(space, min(solution, centre, key=space.cost), "paper")


def _used(query: QuerySearch, choice: Combination) -> list[int]:
    """The projections that the query's combination holds, inputs first."""
    if query.whole not in choice.inputs:
        return []
    order: list[int] = []

    def visit(mask: int) -> None:
        if mask in order or mask not in choice.inputs:
            return
        for other in choice.inputs[mask]:
            visit(other)
        order.append(mask)

    visit(query.whole)
    return order


def _placed(space: Space, queries: list[QuerySearch], chosen: list[Combination]) -> Solution:
    """Algorithm 2: output selectors from what is disseminated anyway, then places for what is not split."""
    disseminated: set[int] = set()
    for query, choice in zip(queries, chosen, strict=True):
        for mask in _used(query, choice):
            at = choice.split[mask]
            if at is not None:
                disseminated |= {query.projection[one] for one in choice.inputs[mask] if one.bit_count() == 1} - {
                    query.types[at]
                }
    tasks: Tasks = {}
    finals: list[Task] = []
    for query, choice in zip(queries, chosen, strict=True):
        place_of: dict[int, int] = {}
        for mask in _used(query, choice):
            at = choice.split[mask]
            inputs: list[Stream] = []
            for other in choice.inputs[mask]:
                if other.bit_count() == 1:
                    inputs.append(space.raw(query.projection[other]))
                else:
                    inputs += _selected(space, query, other, place_of[other], disseminated)
            place = space.nodes + query.types[at] if at is not None else _cheapest(space, inputs)
            place_of[mask] = place
            tasks.setdefault((query.projection[mask], place), tuple(dict.fromkeys(inputs)))
        projection = query.projection[query.whole]
        finals.append((projection, place_of.get(query.whole, space.nodes + projection)))
    return Solution(space.needed(tasks, finals), tuple(finals))


def _selected(space: Space, query: QuerySearch, mask: int, place: int, disseminated: set[int]) -> list[Stream]:
    """An input as whole matches, or as the events of the types that are not disseminated, with those that are."""
    whole = Stream(query.projection[mask], place)
    types = [type for at, type in enumerate(query.types) if mask >> at & 1]
    left_out = [type for type in types if type in disseminated]
    sent = [type for type in types if type not in disseminated]
    negation = space.projections[whole.projection].types & query.query.negated
    if not left_out or not sent or negation:
        return [whole]
    stream = Stream(whole.projection, place, sum(1 << type for type in sent))
    rates = space.selected_rates(stream)
    if rates is None or sum(rates) >= space.rates[whole.projection]:
        return [whole]
    return [stream, *(space.raw(type) for type in left_out)]


def _cheapest(space: Space, inputs: list[Stream]) -> int:
    """The node to which all inputs come most cheaply, each by shortest paths."""
    return min(range(space.nodes), key=lambda node: sum(space.price(stream, 1 << node) for stream in inputs))
