"""Which nodes run the functions of a network, and what must wait or be refused until all of them do.

Rules that call functions of the user's file may be evaluated at any node. So the first plan waits, a change is refused,
and a node that comes back is told of no plan, until every node has loaded the file with the hash that the plan names.
"""

from __future__ import annotations

from collections.abc import Iterable

from headwater.coordinator.core import Coordinator
from headwater.coordinator.daemon.registry import Registry
from headwater.coordinator.requests import (
    AddClientSubscription,
    AddSubscription,
    DeployRules,
    ReplaceRule,
    Request,
)
from headwater.protocol.function_files import digests_of


def plan_calls(coordinator: Coordinator) -> bool:
    """Whether a rule or a subscription of the plan calls functions of a file."""
    rules = (planned.rule for planned in coordinator.rules.values())
    return bool(digests_of(rules, (planned.subscription for _, planned in coordinator.sinks.values())))


def request_calls(request: Request) -> bool:
    """Whether what is asked for calls functions of a file."""
    match request:
        case DeployRules(rules):
            return bool(digests_of(rules))
        case ReplaceRule(rule):
            return bool(digests_of([rule]))
        case AddSubscription(sink):
            return bool(digests_of((), [sink.subscription]))
        case AddClientSubscription(subscription=subscription):
            return bool(digests_of((), [subscription]))
        case _:
            return False


def undecided(registry: Registry, nodes: Iterable[str]) -> list[str]:
    """Nodes that have not said yet whether they run the functions."""
    return [node for node in nodes if node in registry.nodes and registry.nodes[node].functions is None]


def refusals(registry: Registry, nodes: Iterable[str]) -> list[str]:
    """A sentence for each node that does not run them."""
    return [refusal(node, why) for node in nodes if node in registry.nodes and (why := registry.nodes[node].functions)]


def refusal(node: str, why: str) -> str:
    return f"{node} refuses plans that call functions: {why}"
