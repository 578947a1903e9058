"""What becomes of a story, told in lines: who matched what, who refused what, what was lost and what was changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headwater.coordinator.requests import (
    AddSource,
    AddSubscription,
    Change,
    DeployRules,
    EndSource,
    EndSubscription,
    UndeployRule,
)
from headwater.deploy.simulation.outcome import Delivery, Outcome
from headwater.deploy.simulation.simulator import Simulation, simulate
from headwater.deploy.simulation.traffic_and_delay import OVERHEAD_KINDS
from headwater.node.observe.accounts import KINDS
from headwater.protocol.composites import Composite
from headwater.protocol.events import Event
from headwater.protocol.languages.literals import print_duration
from headwater.protocol.text import listed
from tests.scenarios.story import Story


class Refusals:
    """Watches a run for events that a node did not take, and says so."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def begins(self, run: Simulation) -> None: ...

    def born(self, node: str, source: int, event: Event, refused: Sequence[tuple[str, int]]) -> None:
        for counter, _ in refused:
            why = "it was late" if counter == "late_events" else "no source had announced it"
            self.lines.append(f"{node} refused {shown(event)}: {why}")

    def delivered(self, delivery: Delivery) -> None: ...

    def ended(self, at_us: int) -> None: ...


def outcome_under(story: Story, strategy: str) -> str:
    """Simulate the story under this strategy, with everything watched, and tell what came of it."""
    faults = story.all_faults()
    network = story.network(strategy)
    faults.check(network)
    refusals = Refusals()
    outcome = simulate(
        network, story.births, strategy=strategy, faults=faults, changes=story.changes, check=True, watcher=refusals
    )
    lines = [*delivery_lines(outcome, story), *refusals.lines, *unusual_lines(outcome)]
    if "traffic" in story.shown:
        lines += traffic_lines(outcome)
    return "\n".join(lines or ["nothing happened"]) + "\n"


def delivery_lines(outcome: Outcome, story: Story) -> list[str]:
    """A line for each delivery, in trace order."""

    def key(delivery: Delivery) -> tuple[Any, ...]:
        item = delivery.item
        return (item.key if isinstance(item, Composite) else (*item.key, 0), delivery.node, delivery.sink)

    lines = []
    for delivery in sorted(outcome.delivered, key=key):
        item = delivery.item
        if isinstance(item, Composite):
            parts = ", ".join(part_shown(part) for _, part in item.events)
            line = f"{delivery.node} matched {item.type}({values_shown(item.attributes)}) from {parts}"
        else:
            line = f"{delivery.node} heard {shown(item)}"
        lines.append(f"{line} at {print_duration(delivery.delivered_us)}" if "times" in story.shown else line)
    return lines


def unusual_lines(outcome: Outcome) -> list[str]:
    lines = [f"{what_changed(change)} from {print_duration(from_us)} on" for change, from_us in outcome.held_from]
    if unborn := outcome.counters["unborn"]:
        count = "1 event was" if unborn == 1 else f"{unborn} events were"
        lines.append(f"{count} published and not taken: the node was down, or had no such source")
    for events in outcome.forgotten:
        lines.append(f"lost with {events[0].node}: {', '.join(shown(event) for event in events)}")
    return lines


def traffic_lines(outcome: Outcome) -> list[str]:
    lines = []
    for one, other in sorted({link[:2] for link in outcome.traffic}):
        carried = [(kind, outcome.traffic.get((one, other, kind))) for kind in KINDS if kind not in OVERHEAD_KINDS]
        told = [f"{traffic.events} {kind}" for kind, traffic in carried if traffic is not None and traffic.events]
        if told:
            lines.append(f"{one} -> {other}: {', '.join(told)}")
    return lines


def what_changed(change: Change) -> str:
    match change:
        case DeployRules(rules):
            return f"the rule {listed([rule.name for rule in rules])} holds"
        case UndeployRule(name):
            return f"the rule {name} is gone"
        case AddSubscription(sink):
            return f"the sink at {sink.node} hears {sink.subscription.type}"
        case EndSubscription(number):
            return f"sink {number} is gone"
        case AddSource(source):
            return f"the source of {source.type} at {source.node} counts"
        case EndSource(number):
            return f"source {number} is gone"
        case _:
            return type(change).__name__


def shown(event: Event) -> str:
    return f"{event.type}({values_shown(event.attributes)}) {event.node}#{event.seq}"


def part_shown(part: Event | Composite) -> str:
    if isinstance(part, Composite):
        return f"{part.type}[{', '.join(part_shown(inner) for _, inner in part.events)}]"
    return f"{part.type} {part.node}#{part.seq}"


def values_shown(attributes: Any) -> str:
    return ", ".join(f"{name}={value}" for name, value in attributes.items() if value is not None)
