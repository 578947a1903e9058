"""What the API answers, as JSON that fits the views of ``models``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from headwater.coordinator.daemon.api import destinations
from headwater.coordinator.daemon.api.edge_models import as_json
from headwater.coordinator.daemon.api.rule_texts import shown_rule
from headwater.coordinator.daemon.operations import event_time
from headwater.protocol.edge import Feed
from headwater.protocol.messages.plans import PlannedRule
from headwater.protocol.pattern import types_of
from headwater.protocol.subscriptions import print_subscription

if TYPE_CHECKING:
    from headwater.coordinator.daemon.process import CoordinatorDaemon
    from headwater.coordinator.layout.current_layout import Layings

Json = dict[str, Any]


def network(daemon: CoordinatorDaemon) -> Json:
    machine = daemon.machine
    made_of = machine.setup.network
    return {
        "id": machine.setup.id,
        "strategy": made_of.strategy,
        "durability": machine.setup.durability,
        "nodes": list(made_of.nodes),
        "links": [
            {"between": [link.one, link.other], "delay_us": link.delay_us, "bandwidth_bps": link.bandwidth_bps}
            for link in made_of.links
        ],
        "events": {
            name: dict(event_type.declaration()[1]) for name, event_type in sorted(machine.registry.types.items())
        },
    }


# --------------------------------------------------------------------------------------------------------------- nodes


def node(daemon: CoordinatorDaemon, name: str) -> Json:
    machine = daemon.machine
    registration = machine.registry.nodes.get(name)
    config = machine.registry.sent.get(name)
    reported = daemon.statistics.figures(name)
    return {
        "name": name,
        "state": node_state(daemon, name),
        "address": registration.address if registration else None,
        "http": registration.http if registration else None,
        "life": registration.life if registration else None,
        "version": registration.version if registration else None,
        "registered_us": registration.since_us if registration else None,
        "last_heard_us": daemon.last_heard_us.get(name),
        "watermark_lag_s": daemon.statistics.watermark_lag_s(name),
        "configuration": config.version if config else None,
        "unacknowledged": len(daemon.journaled.links[name].unacknowledged),
        "neighbours": list(machine.setup.network.neighbours()[name]),
        "statistics": reported,
    }


def node_state(daemon: CoordinatorDaemon, name: str) -> str:
    if name in daemon.machine.lost_nodes:
        return "lost"
    if name not in daemon.machine.registry.nodes:
        return "unregistered"
    return "up" if daemon.hub.is_up(name) else "down"


def links(daemon: CoordinatorDaemon) -> Json:
    traffic = {name: daemon.statistics.traffic(name) for name in daemon.machine.setup.network.nodes}
    rows = []
    for link in daemon.machine.setup.network.links:
        ends = (link.one, link.other)
        rows.append(
            {
                "between": list(ends),
                "state": _link_state(daemon, *ends),
                "delay_us": link.delay_us,
                "bandwidth_bps": link.bandwidth_bps,
                "traffic": {
                    sender: traffic[sender][receiver]
                    for sender, receiver in (ends, ends[::-1])
                    if receiver in traffic[sender]
                },
            }
        )
    return {"links": rows}


def _link_state(daemon: CoordinatorDaemon, one: str, other: str) -> str:
    machine = daemon.machine
    if (min(one, other), max(one, other)) in machine.lost_links or {one, other} & machine.lost_nodes.keys():
        return "lost"
    if "down" in (node_state(daemon, one), node_state(daemon, other)):
        return "down"
    seen = (daemon.statistics.is_up(one, other), daemon.statistics.is_up(other, one))
    reported = [is_up for is_up in seen if is_up is not None]
    if not reported:
        return "unknown"
    return "up" if all(reported) else "down"


# -------------------------------------------------------------------------------------------------------- what is there


def rule(planned: PlannedRule) -> Json:
    text, language = shown_rule(planned.rule)
    return {
        "name": planned.rule.name,
        "version": planned.rule.version,
        "emits": planned.rule.emits,
        "reads": sorted(types_of(planned.rule.pattern)),
        "text": text,
        "language": language,
        "since_us": _time(planned.since_us),
        "until_us": planned.until_us,
    }


def subscriptions(daemon: CoordinatorDaemon) -> Json:
    machine = daemon.machine
    return {
        "subscriptions": [
            {
                "number": number,
                "node": node,
                "subscribe": print_subscription(planned.subscription),
                "to": destinations.shown(machine.registry.sinks[number].config.destination),
                "since_us": _time(planned.from_us),
                "until_us": planned.until_us,
            }
            for number, (node, planned) in sorted(machine.coordinator.sinks.items())
        ]
    }


def sources(daemon: CoordinatorDaemon) -> Json:
    machine = daemon.machine
    return {
        "sources": [
            {
                "number": number,
                "node": node,
                "type": planned.type,
                "lateness_us": planned.lateness_us,
                "from": as_json(machine.registry.sources[number].config.feed, Feed),
                "since_us": _time(planned.from_us),
                "until_us": planned.until_us,
            }
            for number, (node, planned) in sorted(machine.coordinator.sources.items())
        ]
    }


def _time(from_us: int | None) -> int | None:
    return None if from_us is None else event_time(from_us)


# ---------------------------------------------------------------------------------------------------- plans, statistics


def plans(daemon: CoordinatorDaemon) -> Json:
    machine = daemon.machine
    coordinator = machine.coordinator
    trees = coordinator.trees
    current = [machine.current] if machine.current is not None else []
    return {
        "plan": coordinator.plan,
        "begun": machine.begun,
        "strategy": coordinator.strategy,
        "horizon_us": coordinator.horizon_us(),
        "trees": [
            {
                "root": tree,
                "epoch": trees.epoch(tree),
                "stands": trees.stands(tree),
                "parents": dict(sorted(trees.expected(tree).items())),
                "cut_off": list(trees.cut_off(tree)),
            }
            for tree in trees.roots
        ],
        "fall_backs": [*_fall_backs(coordinator.layings)],
        "planner_failed": coordinator.layings.failure,
        "draining": [{"root": tree, "epoch": epoch} for tree, epoch in trees.superseded],
        "changes": [
            {
                "change": past.number,
                "what": past.what,
                "asked_us": past.asked_us,
                "holds_from_us": past.holds_from_us,
                "refused": past.refused,
            }
            for past in machine.history
        ],
        "waiting": [
            {
                "change": operation.number,
                "what": operation.what(),
                "asked_us": operation.asked_us,
                "state": "is being prepared" if operation.started else "waits",
            }
            for operation in (*current, *machine.waiting)
        ],
    }


def _fall_backs(layings: Layings) -> Iterator[Json]:
    """The stages that nodes watch, and those that have fallen back since everything was placed."""
    for watched in layings.watched:
        home = watched.home
        way = "its readers read its inputs" if home is None else f"at {home} alone"
        yield {"stage": watched.stage(), "nodes": list(watched.nodes), "instead": way, "has_fallen_back": False}
    for (rule, roles), done in sorted(layings.fallen.items()):
        yield {"stage": f"{' and '.join(roles)} of {rule}", "nodes": [], "instead": done, "has_fallen_back": True}


def statistics(daemon: CoordinatorDaemon) -> Json:
    measured = daemon.statistics
    return {
        "rates": measured.rates(daemon.now_us()),
        "selectivities": measured.selectivities(),
        "joined": [
            {"rule": rule, "roles": sorted(roles), "per_s": seen.per_s}
            for (rule, roles), seen in sorted(
                measured.matches(daemon.now_us()).items(), key=lambda entry: (entry[0][0], sorted(entry[0][1]))
            )
        ],
        "traffic": {name: measured.traffic(name) for name in sorted(measured.last)},
        "nodes": {
            name: {"heard_us": whisper.heard_us, **whisper.figures} for name, whisper in sorted(measured.last.items())
        },
    }
