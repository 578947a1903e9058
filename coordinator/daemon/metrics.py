"""The coordinator's metrics for Prometheus, read from its state when they are requested."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headwater.coordinator.daemon.api import views

if TYPE_CHECKING:
    from headwater.coordinator.daemon.process import CoordinatorDaemon


class CoordinatorMetrics(Collector):
    def __init__(self, daemon: CoordinatorDaemon) -> None:
        self._daemon = daemon

    def collect(self) -> Iterator[Metric]:
        daemon, machine = self._daemon, self._daemon.machine
        build = GaugeMetricFamily(
            "headwater_build_info", "Always 1; says which version of Headwater this is.", labels=["version"]
        )
        build.add_metric([daemon.settings.version], 1)
        yield build
        nodes = GaugeMetricFamily("headwater_coordinator_nodes", "Nodes of the network, by state", labels=["state"])
        states = [views.node_state(daemon, node) for node in machine.setup.network.nodes]
        for state in ("up", "down", "unregistered", "lost"):
            nodes.add_metric([state], states.count(state))
        yield nodes
        trees = machine.coordinator.trees
        gauges = {
            "plan": ("Number of the plan that holds", machine.coordinator.plan),
            "rules": ("Rules in the plan", len(machine.coordinator.rules)),
            "subscriptions": ("Subscriptions in the plan", len(machine.coordinator.sinks)),
            "sources": ("Sources in the plan", len(machine.coordinator.sources)),
            "trees": ("Processing trees of the plan", len(trees.roots)),
            "trees_standing": ("Processing trees that stand", sum(map(trees.stands, trees.roots))),
            "trees_draining": ("Replaced trees that are not yet over", len(trees.superseded)),
            "waiting_changes": (
                "Changes asked for and not decided",
                len(machine.waiting) + (machine.current is not None),
            ),
            "unacknowledged_messages": (
                "Messages sent to nodes and not confirmed",
                sum(len(link.unacknowledged) for link in daemon.journaled.links.values()),
            ),
            "journal_bytes": ("Journal since the last snapshot", daemon.journal.bytes_since_snapshot),
            "journal_full": ("1 while the journal cannot be written", int(daemon.journal.is_full)),
        }
        for name, (text, value) in gauges.items():
            yield GaugeMetricFamily(f"headwater_coordinator_{name}", text, value=value)
        counts = {**daemon.journaled.figures(), **daemon.counts, "refused_whispers": daemon.statistics.refused}
        for name, text in _COUNTERS.items():
            yield CounterMetricFamily(f"headwater_coordinator_{name}", text, value=counts.get(name, 0))
        yield CounterMetricFamily(
            "headwater_coordinator_replayed_inputs", "Inputs replayed from the journal at start", value=daemon.replayed
        )


_COUNTERS = {
    "changes": "Changes that hold",
    "fall_backs": "Stages of plans that cost more than they saved and fell back",
    "planner_failures": "Times that the planner failed because of a bug, and everything went on without it",
    "aborted_changes": "Changes given up because nodes did not answer in time",
    "requests_done": "Requests that were brought about",
    "requests_refused": "Requests that were refused",
    "orders": "Orders given to nodes",
    "registrations": "Registrations of nodes",
    "refused_registrations": "Registrations of nodes that were given up",
    "refused_messages": "Messages of nodes that made no sense",
    "refused_whispers": "Statistics of nodes that made no sense",
    "internal_errors": "Inputs that could not be handled because of a bug",
    "http_requests": "HTTP requests",
    "http_unauthorized": "HTTP requests without a valid token",
    "http_oversized": "HTTP requests with a body that is too large",
    "http_malformed": "HTTP requests that made no sense",
    "http_refused": "HTTP connections that were one too many, or sent no request in time",
}


def exposition(daemon: CoordinatorDaemon) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(CoordinatorMetrics(daemon))
    return generate_latest(registry)
