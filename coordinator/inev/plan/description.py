"""Describes a plan in words and as JSON: what runs where, what crosses which links, and what each choice saves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from headwater.coordinator.inev.model.latency import LatencyBound
from headwater.coordinator.inev.plan.plans import PlacedTask, Plan, Pull, TaskInput, Transfer, as_born
from headwater.coordinator.inev.search.planners import PLANNERS
from headwater.coordinator.inev.search.space import Space
from headwater.protocol.text import plural

LINKS_SHOWN: Final = 12
NODES_SHOWN: Final = 8


@dataclass(frozen=True, slots=True)
class PlanningOutcome:
    """A plan with what it is compared with."""

    plan: Plan
    centralised: Plan
    lower_bound: float
    lower_bound_is: str
    """"bound" for the cost of an exact plan, "estimate" otherwise."""
    latency: float
    latency_bound: float | None
    centralised_latency: float
    latency_factor: float
    seconds: float
    failed: str | None = None
    """Why the plan is not that of the planner which was asked for, in a sentence."""

    @property
    def ratio(self) -> float:
        return self.plan.cost / self.centralised.cost if self.centralised.cost else 1.0

    @property
    def bound_obeyed(self) -> bool | None:
        """None where there is no bound."""
        return None if self.latency_bound is None else LatencyBound(self.latency_bound).obeyed(self.latency)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader should know before relying on the plan."""
        warnings = (*self.plan.problem.warnings, *((self.failed,) if self.failed else ()))
        if self.bound_obeyed is not False:
            return warnings
        limit = f"the latency bound of {self.latency_bound:,.4g}"
        slow = f"no plan was found that obeys {limit}; this is the fastest, with {self.latency:,.4g}: raise the bound"
        if not PLANNERS[self.plan.planner].obeys_bounds:
            slow = f"it takes {self.latency:,.4g}, more than {limit}: only --planner inev looks for one below it"
        return (*warnings, slow)


def as_json(outcome: PlanningOutcome, *, numbers: bool) -> dict[str, Any]:
    """The plan as stable JSON. Summing edges times rate over ``transfers`` gives ``cost``. ``numbers``: node names are

    the numbers of a case file."""
    plan = outcome.plan
    names: tuple[Any, ...] = plan.problem.network.names
    if numbers:
        names = tuple(int(name) if name.lstrip("-").isdigit() else name for name in names)
    return {
        "planner": plan.planner,
        "cost_model": plan.problem.costs.name,
        "cost": plan.cost,
        "centralized_cost": outcome.centralised.cost,
        "ratio": outcome.ratio,
        "lower_bound": outcome.lower_bound,
        "lower_bound_kind": outcome.lower_bound_is,
        "latency": outcome.latency,
        "latency_bound": outcome.latency_bound,
        "latency_bound_obeyed": outcome.bound_obeyed,
        "centralized_latency": outcome.centralised_latency,
        "latency_factor": outcome.latency_factor,
        "seconds": outcome.seconds,
        "queries": [query.name for query in plan.problem.queries],
        "projections": _projections_json(plan, names),
        "transfers": _transfers_json(plan, names),
        "warnings": list(outcome.warnings),
    }


def _projections_json(plan: Plan, names: tuple[Any, ...]) -> list[dict[str, Any]]:
    costs, network = plan.problem.costs, plan.problem.network
    fall_backs = {(fall_back.projection, fall_back.placement): fall_back for fall_back in plan.fall_backs}

    def fall_back_json(task: PlacedTask) -> dict[str, Any] | None:
        fall_back = fall_backs.get((task.projection, task.placement))
        if fall_back is None:
            return None
        node = None if fall_back.node is None else names[fall_back.node]
        return {"kind": "leave out" if node is None else "single", "node": node, "extra_cost": fall_back.extra}

    return [
        {
            "projection": task.projection.text,
            "types": sorted(task.projection.types),
            "queries": [name for name, final in plan.finals.items() if final == task],
            "placement": "single" if task.placement.node is not None else "multi",
            "partitioning_type": task.placement.split_by,
            "nodes": [names[node] for node in task.nodes],
            "inputs": [read.projection.text for read in task.inputs],
            "input_placements": [_place_json(read, names) for read in task.inputs],
            "output_selectors": {
                read.projection.text: sorted(read.sent) for read in task.inputs if read.sent is not None
            },
            "pulled": {pull.ask.type: pull.asked_by for pull in task.pulls},
            "total_rate": network.total(task.projection.key)
            if task.projection.primitive
            else costs.rate(task.projection),
            "selectivity": task.projection.selectivity,
            "fall_back": fall_back_json(task),
        }
        for task in plan.tasks
    ]


def _transfers_json(plan: Plan, names: tuple[Any, ...]) -> list[dict[str, Any]]:
    link_names, readers = plan.problem.network.topology.link_names, _readers(plan)
    return [
        {
            "projection": transfer.source.projection.text,
            "placement": _place_json(transfer.source, names),
            "from": names[transfer.node],
            "to": [names[node] for node in transfer.targets],
            "for": readers.get(transfer.source, []) if transfer.ask is None else _asking(plan, transfer),
            "edges": [[names[one], names[other]] for one, other in link_names(transfer.links)],
            "rate": transfer.rate,
            "kind": transfer.kind,
            "table": transfer.table,
            "asked_by": None if transfer.ask is None else transfer.ask.master or transfer.ask.by.text,
            "output_selector_types_not_sent": sorted(transfer.source.left_out),
        }
        for transfer in plan.transfers
    ]


def _place_json(read: TaskInput, names: tuple[Any, ...]) -> Any:
    return names[read.placement.node] if read.placement.node is not None else read.placement.split_by


def _readers(plan: Plan) -> dict[TaskInput, list[str]]:
    readers: dict[TaskInput, list[str]] = {}
    for task in plan.tasks:
        for read in task.inputs:
            if read in task.pulled:
                continue
            sent = as_born(read) if plan.unfiltered and read.projection.primitive else read
            if task.projection.text not in readers.setdefault(sent, []):
                readers[sent].append(task.projection.text)
    return readers


def _asking(plan: Plan, transfer: Transfer) -> list[str]:
    """What is put together of what a node asks for."""
    asker = transfer.node if transfer.kind == "requests" else transfer.targets[0]
    return [
        task.projection.text
        for task in plan.tasks
        if task.nodes == (asker,) and any(pull.ask == transfer.ask for pull in task.pulls)
    ]


# Words --------------------------------------------------------------------------------------------------------------


def in_words(outcome: PlanningOutcome) -> Iterator[str]:
    """The plan as a person reads it."""
    plan = outcome.plan
    yield f"cost            {plan.cost:,.4g}  ({_unit(plan)}: rate times links, summed)"
    yield f"centralised     {outcome.centralised.cost:,.4g}  at {_centre(outcome.centralised)}"
    yield f"ratio           {outcome.ratio:.4g}"
    about = "no plan can cost less" if outcome.lower_bound_is == "bound" else "an estimate; a plan may cost less"
    yield f"lower bound     {outcome.lower_bound:,.4g}  ({about})"
    limit = "no bound requested" if outcome.latency_bound is None else f"bound {outcome.latency_bound:,.4g}"
    if outcome.bound_obeyed is False:
        limit += ", NOT obeyed"
    beside = f"centralised {outcome.centralised_latency:,.4g}, factor {outcome.latency_factor:g}"
    yield f"latency         {outcome.latency:,.4g}  ({limit}; {beside})"
    yield f"planned in      {outcome.seconds:.2f} s by {plan.planner}"
    described: set[PlacedTask] = set()
    space = Space(plan.problem)
    for name, final in plan.finals.items():
        yield ""
        yield f"query {name}"
        for task in _steps(plan, final):
            again = " (as above)" if task in described else ""
            yield f"  {task.projection.text} at {place(plan, task)}{again}"
            if not again:
                yield from (f"    {line}" for line in _why(plan, task, space))
            described.add(task)
    yield ""
    yield "what travels"
    for read, transfers in _streams(plan).items():
        requests = "requests for " if transfers[0].kind == "requests" else ""
        yield f"  {requests}{_named(read)}: {sum(transfer.cost for transfer in transfers):,.4g}"
        for transfer in transfers[:3]:
            yield f"    {_from_to(plan, transfer)}"
        if len(transfers) > 3:
            yield f"    and {len(transfers) - 3} more sources likewise"
    lookups = [transfer for transfer in plan.transfers if transfer.kind == "lookups"]
    for table in dict.fromkeys(transfer.table for transfer in lookups):
        asking = [transfer for transfer in lookups if transfer.table == table]
        yield f"  lookups in {table}, with their answers: {sum(transfer.cost for transfer in asking):,.4g}"
        for transfer in asking[:3]:
            yield f"    {_from_to(plan, transfer)}, for {transfer.query}"
        if len(asking) > 3:
            yield f"    and {len(asking) - 3} more nodes likewise"


def _unit(plan: Plan) -> str:
    return "events times links per second" if plan.problem.costs.name == "physical" else "events times links"


def _centre(plan: Plan) -> str:
    task = next(iter(plan.finals.values()))
    return plan.problem.network.names[task.nodes[0]]


def _steps(plan: Plan, final: PlacedTask) -> list[PlacedTask]:
    """The tasks that a query needs, inputs first."""
    tasks = {(task.projection, task.placement): task for task in plan.tasks}
    order: list[PlacedTask] = []

    def visit(task: PlacedTask) -> None:
        if task in order:
            return
        for read in task.inputs:
            below = tasks.get((read.projection, read.placement))
            if below is not None and below != task:
                visit(below)
        order.append(task)

    visit(final)
    return order


def place(plan: Plan, task: PlacedTask) -> str:
    names = plan.problem.network.names
    if task.placement.node is not None:
        return names[task.placement.node]
    shown = ", ".join(names[node] for node in task.nodes[:NODES_SHOWN])
    more = f" and {len(task.nodes) - NODES_SHOWN} more" if len(task.nodes) > NODES_SHOWN else ""
    return f"the {len(task.nodes)} sources of {task.placement.split_by} ({shown}{more})"


def _named(read: TaskInput) -> str:
    if read.sent is None:
        return read.projection.text
    return f"{', '.join(sorted(read.sent))} in {read.projection.text}"


def _why(plan: Plan, task: PlacedTask, space: Space) -> Iterator[str]:
    """What the choices of a task save, in plain words and by the plan's own rates."""
    problem = plan.problem
    split = task.placement.split_by
    if split is not None and not task.projection.primitive:
        number = space.type_number[split]
        gathered = space.rates[number] * min(space.row(space.nodes + number, 0)[: space.nodes])
        yield (
            f"each source keeps its own {split} events ({problem.network.total(split):,.4g} in all): "
            f"gathering them on one node would cost {gathered:,.4g}"
        )
    elif not task.projection.primitive:
        yield "on one node, the cheapest for what it reads and for who reads it"
    for read in task.inputs:
        if read.sent is not None:
            whole = problem.costs.carried(read.projection)
            sent = problem.costs.carried(read.projection, read.sent)
            yield (
                f"of {read.projection.text} only {', '.join(sorted(read.sent))} is sent ({sent:,.4g} instead of "
                f"{whole:,.4g}): {', '.join(sorted(read.left_out))} is there anyway"
            )
        elif not read.projection.primitive and read.placement != task.placement:
            whole = problem.costs.carried(read.projection)
            raw = sum(map(problem.network.total, sorted(read.projection.types)))
            if whole < raw:
                yield f"reads {read.projection.text} ({whole:,.4g}) instead of its types ({raw:,.4g})"
    for pull in task.pulls:
        yield _why_asked(plan, task, pull, space)
    for fall_back in plan.fall_backs:
        if (fall_back.projection, fall_back.placement) == (task.projection, task.placement):
            way = "without it" if fall_back.node is None else f"at {problem.network.names[fall_back.node]} alone"
            yield f"falls back: {way}, which would cost {fall_back.extra:,.4g} more at these rates"
    shared = [name for name, final in plan.finals.items() if task in _steps(plan, final)]
    if len(shared) > 1:
        yield f"serves {len(shared)} queries"


def _why_asked(plan: Plan, task: PlacedTask, pull: Pull, space: Space) -> str:
    """What asking for an input saves beside sending it, which others may have it sent to them too."""
    costs, ask, node = plan.problem.costs, pull.ask, task.nodes[0]
    own_transfers = [
        transfer
        for transfer in plan.transfers
        if transfer.ask == ask and (transfer.node if transfer.kind == "requests" else transfer.targets[0]) == node
    ]
    pays = sum(transfer.cost for transfer in own_transfers)
    raw = space.raw(space.type_number[ask.type])
    sent = [transfer for transfer in plan.transfers if transfer.source == pull.read and transfer.kind == "events"]
    other_targets = 0
    for transfer in sent:
        other_targets |= sum(1 << target for target in transfer.targets)
    instead = space.price(raw, other_targets | 1 << node) - (space.price(raw, other_targets) if other_targets else 0.0)
    who = f"each {pull.asked_by}" if ask.master is not None or ask.by.primitive else f"each match of {pull.asked_by}"
    return (
        f"{ask.type} stays where it is until {who} asks for it ({costs.asked(ask):,.4g}), then "
        f"{costs.answered(ask):,.4g} of {plan.problem.network.total(ask.type):,.4g} come: "
        f"{pays:,.4g} instead of {instead:,.4g} for all of it"
    )


def _streams(plan: Plan) -> Mapping[TaskInput, list[Transfer]]:
    streams: dict[TaskInput, list[Transfer]] = {}
    for transfer in plan.transfers:
        if transfer.kind != "lookups":
            streams.setdefault(transfer.source, []).append(transfer)
    return dict(sorted(streams.items(), key=lambda item: -sum(transfer.cost for transfer in item[1])))


def _from_to(plan: Plan, transfer: Transfer) -> str:
    names = plan.problem.network.names
    links = [f"{names[one]}-{names[other]}" for one, other in plan.problem.network.topology.link_names(transfer.links)]
    shown = " ".join(links[:LINKS_SHOWN]) + (
        f" and {len(links) - LINKS_SHOWN} more" if len(links) > LINKS_SHOWN else ""
    )
    kind = "" if transfer.kind in ("events", "lookups") else f" ({transfer.kind})"
    return f"from {names[transfer.node]} at {transfer.rate:,.4g} over {plural(len(links), 'link')}: {shown}{kind}"


def link_loads(plan: Plan) -> Counter[int]:
    """The rate that crosses each link, by its number."""
    loads: Counter[int] = Counter()
    for transfer in plan.transfers:
        for number in range(transfer.links.bit_length()):
            if transfer.links >> number & 1:
                loads[number] += transfer.rate  # type: ignore[assignment]
    return loads
