"""Rules on a simulated network: planned with the physical cost model, and compared with centralised evaluation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from headwater.coordinator.inev.model.latency_bounds import OFF, LatencyTerms
from headwater.coordinator.inev.model.problem import Problem, event_network
from headwater.coordinator.inev.model.rules import Statistics, problem_from
from headwater.coordinator.inev.plan.layouts import ATTEMPTS, InevPlanner
from headwater.coordinator.inev.plan.plans import Plan, plan_from
from headwater.coordinator.inev.search.baselines import centralised
from headwater.coordinator.inev.search.search import Clock, Search
from headwater.coordinator.layout.planner_interface import Ground
from headwater.coordinator.layout.stages import Layout
from headwater.deploy.simulation.outcome import Outcome
from headwater.deploy.simulation.simulator import Birth, simulate
from headwater.deploy.simulation.traffic_and_delay import OVERHEAD_KINDS, figures
from headwater.protocol.events import EventType
from headwater.protocol.languages import Source as RuleText
from headwater.protocol.languages import parse_rules
from headwater.protocol.network import Link, Network, Sink, Source
from headwater.protocol.subscriptions import Subscription


@dataclass(frozen=True, slots=True)
class Ruled:
    """A network with rules, and what is known of its events."""

    network: Network
    statistics: Statistics
    births: Callable[[], Iterable[Birth]]
    until_us: int
    draws: bool = True
    """Whether the cost of a plan is drawn rather than estimated: exact, but slow where a window holds many events."""


def network_of(
    links: Iterable[tuple[int, int]], attribute: str, rates: Mapping[str, Mapping[str, float]], text: str, sink: str,
    link_delay_ms: float,
) -> Network:  # fmt: skip
    """Nodes n0, n1, .. with sources where there are rates, SASE rules, and one sink for all that they find."""
    links = list(links)
    nodes = tuple(f"n{number}" for number in range(max(max(link) for link in links) + 1))
    types = tuple(EventType(name, {attribute: "int"}) for name in sorted(rates))
    rules = parse_rules([RuleText(text, "rules.sase", "sase")], types).rules
    delay_us = round(link_delay_ms * 1000)
    return Network(
        types,
        nodes,
        tuple(Link(f"n{first}", f"n{other}", delay_us) for first, other in links),
        tuple(Source(node, name) for name in sorted(rates) for node in sorted(rates[name])),
        tuple(Sink(sink, Subscription(rule.emits)) for rule in rules),
        rules,
    )


def modelled(ruled: Ruled) -> Plan:
    """The plan that the running network gets."""
    problem = problem_of(ruled)
    search = Search(problem, Clock(ATTEMPTS), patient=len(problem.queries) > 1)
    plan = plan_from(search.space, search.run(), "inev")
    return plan.refined() if ruled.draws else plan


def problem_of(ruled: Ruled) -> Problem:
    network = ruled.network
    number = {name: at for at, name in enumerate(network.nodes)}
    bare = event_network(network.nodes, [(link.one, link.other) for link in network.links], ruled.statistics.rates)
    sinks = {sink.subscription.type: (number[sink.node],) for sink in network.sinks}
    return problem_from(network.rules, network.nodes, bare, ruled.statistics, sinks)


class Central(InevPlanner):
    """Evaluates everything at one node, the one that is cheapest: the baseline of the INEv evaluation. The strategy
    ``centr`` takes the node in the middle instead, wherever frequent types are born."""

    def plan(self, ground: Ground, kept: Layout) -> Plan | None:
        planned = super().plan(ground, kept)
        return None if planned is None else centralised(planned.problem)


def compared(ruled: Ruled, progress: Callable[[float], None]) -> dict[str, float | None]:
    """Runs the plan and the baseline in the simulator: traffic, delay and the load of the busiest node, relative to the
    baseline's, which must find the same."""
    plan = modelled(ruled)
    centre = centralised(plan.problem).cost
    as_in_the_paper = replace(ruled.statistics, latency=LatencyTerms(OFF), pull=False)
    planners = (InevPlanner(as_in_the_paper), Central(as_in_the_paper))
    outcomes: list[Outcome] = []
    for planner in planners:

        def tell_progress(now_us: int, done: int = len(outcomes)) -> None:
            progress(min(1.0, (done + now_us / ruled.until_us) / len(planners)))

        outcomes.append(
            simulate(
                ruled.network,
                ruled.births(),
                strategy="inev",
                on_progress=tell_progress,
                lay_out=planner,
                falls_back=False,  # what is measured is the plan, not what becomes of it
            )
        )
    inev, centr = outcomes
    measured, base = figures(inev), figures(centr)
    assert _identities(inev) == _identities(centr), "both find the same"
    mean_delay, base_delay = _mean_delay_ms(inev), _mean_delay_ms(centr)
    return {
        "ratio": plan.cost / centre,
        "cost": plan.cost,
        "centralised": centre,
        "split": sum(task.placement.split_by is not None and len(task.inputs) > 1 for task in plan.tasks),
        "measured_ratio": measured.traffic.events / base.traffic.events,
        "delay_ms": mean_delay,
        "delay_ratio": None if mean_delay is None or not base_delay else mean_delay / base_delay,
        "load_ratio": _busiest(inev) / _busiest(centr),
        "delivered": measured.composites,
        "delivered_centr": base.composites,
    }


def _identities(outcome: Outcome) -> Counter[object]:
    return Counter((delivery.sink, getattr(delivery.item, "id", None)) for delivery in outcome.delivered)


def _mean_delay_ms(outcome: Outcome) -> float | None:
    delays = [delivery.delivered_us - delivery.item.ts for delivery in outcome.delivered]
    return sum(delays) / len(delays) / 1000 if delays else None


def _busiest(outcome: Outcome) -> int:
    """The greatest number of events that any node has to deal with: born there, or received."""
    load = Counter(event.node for event in outcome.born)
    for (_, receiver, kind), amount in outcome.traffic.items():
        if kind not in OVERHEAD_KINDS:
            load[receiver] += amount.events
    return max(load.values())
