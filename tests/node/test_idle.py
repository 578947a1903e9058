"""Where little happens little is said and held."""

from __future__ import annotations

import pytest

from headwater.deploy.simulation.faults import Faults
from headwater.deploy.simulation.simulator import Simulation, simulate
from headwater.node.effects import Effect, Input
from headwater.protocol.events import Event, EventType
from headwater.protocol.languages import Source as RuleText
from headwater.protocol.languages import parse_rules
from headwater.protocol.network import Link, Network, Sink, Source
from headwater.protocol.subscriptions import Subscription

S = 1_000_000
A, B = EventType("A", {"v": "int"}), EventType("B", {"v": "int"})
RULE = """
event A(v: int)
event B(v: int)
define X() from B() and each A() within 5 s from B
"""


def a_network() -> Network:
    rules = parse_rules([RuleText(RULE, "rule.tesla", "tesla")]).rules
    links = (Link("p1", "p2", 5000), Link("p2", "p3", 5000))
    sources = (Source("p1", "A"), Source("p3", "B"))
    return Network((A, B), ("p1", "p2", "p3"), links, sources, (Sink("p2", Subscription("X")),), tuple(rules))


def test_a_day_without_events_costs_few_messages() -> None:
    births = [
        (at, number % 2, Event((A, B)[number % 2], at, ("p1", "p3")[number % 2], number + 1, {"v": 0}))
        for number, at in enumerate((0, S, 86_400 * S, 86_401 * S))
    ]
    outcome = simulate(a_network(), births, strategy="st", check=True)
    assert len(outcome.delivered) == 2
    assert sum(traffic.messages for traffic in outcome.traffic.values()) < 3000


def test_events_are_not_held_for_a_partner_that_never_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten A a second for half an hour, and no B: what is held stays that of some windows."""
    births = [(at, 0, Event(A, at, "p1", at, {"v": 0})) for at in range(S // 10, 1800 * S, S // 10)]
    simulation = Simulation(a_network(), "st", 0, Faults())
    simulation.set_up(-S)
    held = []
    handle = simulation._handle

    def handled(node: str, received: Input) -> list[Effect]:
        effects = handle(node, received)
        if simulation.now_us % (10 * S) == 0:
            held.append(sum(core.held() for core in simulation.nodes.values()))
        return effects

    monkeypatch.setattr(simulation, "_handle", handled)
    simulation.run(births)
    assert len(held) > 100
    assert max(held) < 1500
