"""Does what a planned network sends agree with what the physical cost model says?

    python -m benchmarks.inev_measured [--networks N] [--traces N] [--seconds S] [--seed N] [--shape SHAPE]
                                       [--pull] [--flows]

Draws networks, rates and rules at random, plans them, draws traces from the model (independent Poisson sources, values
that give the stated selectivities), and runs each trace in the simulator under 'inev' and under 'centr'. A line is one
plan: events per second times links as modelled and as measured, with the standard error over the traces, for events
that are sent as they are born, for events of matches, and for composites; then all of it, the deviation in standard
errors, and the ratio to centralised evaluation, modelled and measured. *bodies* is what really crosses the links: an
event that several streams carry over a link crosses it once, and for the others its identity follows (*references*).
Watermarks and control are not counted. With --pull plans may ask for events, and requests are counted, too. What the
network does before its first window has passed is left out.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from statistics import fmean, stdev

from benchmarks.inev_networks import SHAPES, Example, random_network, trace
from headwater.coordinator.inev.model.problem import primitive
from headwater.coordinator.inev.plan.layouts import InevPlanner
from headwater.coordinator.inev.plan.plans import Placement, Plan, TaskInput, Transfer, plan_from
from headwater.coordinator.inev.search.baselines import central_solution
from headwater.coordinator.inev.search.space import Space
from headwater.coordinator.leader import leader
from headwater.deploy.simulation.faults import Faults
from headwater.deploy.simulation.simulator import SETUP_US, Simulation
from headwater.node.effects import Send
from headwater.protocol.events import Event
from headwater.protocol.messages.neighbour import Awakening, Batch, Notify
from headwater.protocol.streams import Filter, Part

KINDS = ("events", "matches", "composites", "requests")
"""Events that are sent on request count as events, too."""
BODIES = ("primitive", "match", "composite")
WARM_UP_WINDOWS = 3.0


@dataclass
class Measured:
    """Events per second times links, in one run."""

    sent: Counter[str] = field(default_factory=Counter)
    """By kind of stream, each event once for every stream."""
    bodies: float = 0.0
    references: float = 0.0
    delivered: int = 0


@dataclass(frozen=True)
class Compared:
    """One plan, as modelled and as measured over several traces."""

    example: Example
    plan: Plan
    modelled: dict[str, float]
    measured: list[Measured]
    centre: Plan
    centre_measured: list[Measured]
    seconds: float
    """For how long all runs together were measured."""

    @property
    def centre_modelled(self) -> float:
        return self.centre.cost

    def least_error(self, kind: str = "") -> float:
        """The error if all that is sent were independent: a few traces may agree with each other by chance."""
        return _least_error(self.plan, kind, self.seconds)

    def mean(self, kind: str) -> float:
        return fmean(run.sent[kind] for run in self.measured)

    def error(self, kind: str) -> float:
        return max(standard_error([run.sent[kind] for run in self.measured]), self.least_error(kind))

    @property
    def error_of_all(self) -> float:
        return max(standard_error(self.totals), self.least_error())

    @property
    def error_of_centre(self) -> float:
        return max(standard_error(self.centre_totals), _least_error(self.centre, "", self.seconds))

    @property
    def totals(self) -> list[float]:
        return [sum(run.sent.values()) for run in self.measured]

    @property
    def centre_totals(self) -> list[float]:
        return [sum(run.sent.values()) for run in self.centre_measured]

    def deviations(self) -> dict[str, float]:
        """How many standard errors each kind, and the whole, is off."""
        deviations = {
            kind: off_by(self.modelled[kind], self.mean(kind), self.error(kind))
            for kind in KINDS
            if self.modelled[kind] or self.mean(kind)
        }
        deviations["all"] = off_by(sum(self.modelled.values()), fmean(self.totals), self.error_of_all)
        if self.centre_measured:
            deviations["centr"] = off_by(self.centre_modelled, fmean(self.centre_totals), self.error_of_centre)
        return deviations


def standard_error(values: list[float]) -> float:
    return stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0


def off_by(modelled: float, measured: float, error: float) -> float:
    return (measured - modelled) / error if error else (0.0 if math.isclose(measured, modelled) else math.inf)


def _least_error(plan: Plan, kind: str, seconds: float) -> float:
    sent = [transfer for transfer in plan.transfers if not kind or kind_of(transfer) == kind]
    return math.sqrt(sum(transfer.rate * transfer.links.bit_count() ** 2 for transfer in sent) / seconds)


def kind_of(transfer: Transfer) -> str:
    if transfer.kind in ("composites", "requests"):
        return transfer.kind
    return "events" if transfer.source.projection.primitive else "matches"


# Measuring ----------------------------------------------------------------------------------------------------------


class _Watched(Simulation):
    """Counts what is sent, from a time on."""

    from_us = 0
    measured: Measured

    def _send(self, node: str, effect: Send) -> None:
        message = effect.message
        if isinstance(message, Batch) and self.now_us >= self.from_us:
            for run in message.runs:
                count = len(run.identities)
                if run.kind == "reference":
                    self.measured.references += count
                elif not run.blocker:
                    self.measured.bodies += count
                for number in run.streams:
                    self.measured.sent[self._kind(node, number, run.kind)] += count
        elif self.now_us >= self.from_us and isinstance(message, Awakening):
            self.measured.sent["requests"] += 1
        elif self.now_us >= self.from_us and isinstance(message, Notify):
            self.measured.bodies += len(message.rows)
            self.measured.sent["composites"] += len(message.rows)
        super()._send(node, effect)

    def _kind(self, node: str, number: int, kind: str) -> str:
        for work in self.nodes[node].works.values():
            stream = work.given_stream(number)
            if stream is not None:
                return (
                    "events" if isinstance(stream, Filter) else "matches" if isinstance(stream, Part) else "composites"
                )
        return "composites" if kind == "composite" else "events"


def measure(
    example: Example, strategy: str, births: list[tuple[int, int, Event]], seconds: float, pull: bool = False
) -> Measured:
    """One run."""
    set_up_us = SETUP_US
    while True:
        planner = InevPlanner(replace(example.statistics, pull=pull))
        run = _Watched(example.network, strategy, 0, Faults(), keep=False, lay_out=planner, falls_back=False)
        run.measured = Measured()
        if run.set_up(births[0][0] - set_up_us) < births[0][0]:
            break
        set_up_us *= 8
    warm_up_s = WARM_UP_WINDOWS * example.window_s
    run.from_us, run.measured = round(warm_up_s * 1e6), Measured()
    outcome = run.run(births, until_us=round(seconds * 1e6))
    measured, counted_s = run.measured, seconds - warm_up_s
    measured.sent = Counter({kind: count / counted_s for kind, count in measured.sent.items()})
    measured.bodies /= counted_s
    measured.references /= counted_s
    measured.delivered = outcome.counters["delivered"]
    return measured


def modelled(plan: Plan) -> dict[str, float]:
    """What a plan sends, by kind."""
    cost_of = dict.fromkeys(KINDS, 0.0)
    for transfer in plan.transfers:
        cost_of[kind_of(transfer)] += transfer.cost
    return cost_of


def central_plan(plan: Plan, example: Example) -> Plan:
    """What the strategy 'centr' does: every event of every type that is read, unfiltered, goes to the leader."""
    problem = plan.problem
    space = Space(problem)
    node = example.network.nodes.index(leader(example.network))
    centre = plan_from(space, central_solution(space, node), "centr")
    topology = problem.network.topology
    transfers = [transfer for transfer in centre.transfers if transfer.kind == "composites"]
    for source, rate in zip(example.network.sources, example.per_s, strict=True):
        at = example.network.nodes.index(source.node)
        read = TaskInput(primitive(source.type), Placement(split_by=source.type))
        links = topology.spanning([at, node])
        if links:
            transfers.append(Transfer(read, at, links, rate, (node,)))
    return replace(centre, transfers=tuple(transfers))


def compare(example: Example, traces: int, seconds: float, centre: bool = True, pull: bool = False) -> Compared:
    planned = InevPlanner(replace(example.statistics, pull=pull)).plan(example.ground(), {})
    assert planned is not None, f"{example.name}: nothing can be planned"
    plan = planned.refined(draws=100_000)
    runs, centres = [], []
    for seed in range(traces):
        births = trace(example, seconds, seed)
        runs.append(measure(example, "inev", births, seconds, pull))
        if centre:
            centres.append(measure(example, "centr", births, seconds))
    counted_s = traces * (seconds - WARM_UP_WINDOWS * example.window_s)
    return Compared(example, plan, modelled(plan), runs, central_plan(plan, example), centres, counted_s)


# Telling ------------------------------------------------------------------------------------------------------------


def shown(compared: Compared) -> str:
    off = compared.deviations()
    cells = [f"{compared.example.name:<18}"]
    for kind in KINDS:
        cells.append(f"{compared.modelled[kind]:7.2f} {compared.mean(kind):7.2f} ±{compared.error(kind):4.2f}")
    whole, measured = sum(compared.modelled.values()), fmean(compared.totals)
    cells.append(f"{whole:7.2f} {measured:7.2f} ±{compared.error_of_all:4.2f} {off['all']:4.1f}")
    cells.append(f"{fmean(run.bodies for run in compared.measured):6.2f}")
    cells.append(f"{fmean(run.references for run in compared.measured):5.2f}")
    centre = fmean(compared.centre_totals)
    cells.append(f"{compared.centre_modelled:7.2f} {centre:7.2f} {off['centr']:4.1f}")
    cells.append(f"{whole / compared.centre_modelled:5.3f} {measured / centre:5.3f}")
    return " | ".join(cells)


HEADER = " | ".join(
    (
        f"{'seed and rules':<18}",
        *(f"{kind + ': model, measured':<21}"[:21] for kind in KINDS),
        f"{'all: model, measured, off':<26}",
        f"{'bodies':>6}",
        f"{'refs':>5}",
        f"{'centr: model, meas., off':<20}"[:20],
        "ratio meas.",
    )
)


def flows(compared: Compared) -> Iterable[str]:
    """What the plan says of each stream."""
    names = compared.plan.problem.network.names
    for transfer in compared.plan.transfers:
        sent = "" if transfer.source.sent is None else f" only {', '.join(sorted(transfer.source.sent))}"
        yield (
            f"    {transfer.kind} {transfer.source.projection.text}{sent} from {names[transfer.node]} "
            f"at {transfer.rate:.3f} over {transfer.links.bit_count()} links"
        )


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.inev_measured")
    parser.add_argument("--networks", type=int, default=20)
    parser.add_argument("--traces", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=200.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shape", choices=sorted(SHAPES), help="only rules of this shape")
    parser.add_argument("--pull", action="store_true", help="events may be asked for where that is cheaper")
    parser.add_argument("--flows", action="store_true", help="also show what each plan sends")
    options = parser.parse_args(arguments)
    print(HEADER)
    deviations: list[float] = []
    for seed in range(options.seed, options.seed + options.networks):
        example = random_network(seed, options.shape and [options.shape])
        compared = compare(example, options.traces, options.seconds, pull=options.pull)
        print(shown(compared), flush=True)
        if options.flows:
            print("\n".join(flows(compared)), flush=True)
        deviations.append(compared.deviations()["all"])
    within = sum(abs(deviation) <= 2 for deviation in deviations)
    print(
        f"{within} of {len(deviations)} plans within two standard errors, root mean square "
        f"{math.sqrt(fmean(deviation * deviation for deviation in deviations)):.2f}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
