"""The node that tests of metrics, statistics and records look at."""

from __future__ import annotations

import pytest

from headwater.deploy.simulation.faults import Faults
from headwater.deploy.simulation.simulator import Simulation
from headwater.node.observe.accounts import LinkAccounts
from headwater.node.observe.metrics.counters import NodeCounters
from headwater.node.observe.metrics.observed import Observed
from headwater.protocol.messages.neighbour import Awakening, Notify, Want
from headwater.protocol.network import Link, Network, Sink, Source
from headwater.protocol.subscriptions import parse_subscription
from headwater.protocol.wire.messages import Wire
from tests.kit.builders import TYPES
from tests.node.observed_node import MS, PAIR, AHub, AJournal, an_event


@pytest.fixture(scope="module")
def simulation() -> Simulation:
    """n1 (source A) - n2 (the sink) - n3 (source B), after 40 events of each kind."""
    network = Network(
        nodes=("n1", "n2", "n3"),
        links=(Link("n1", "n2", 1 * MS), Link("n2", "n3", 1 * MS)),
        types=tuple(TYPES.values()),
        sources=(Source("n1", "A", 0), Source("n3", "B", 0)),
        sinks=(Sink("n2", parse_subscription("X")),),
        rules=(PAIR,),
    )
    run = Simulation(network, "st", 1, Faults())
    births = []
    for at in range(40):
        births.append((at * 10 * MS, 0, an_event("A", at * 10 * MS, at % 4, "n1")))
        births.append((at * 10 * MS - MS, 1, an_event("B", at * 10 * MS - MS, at % 4, "n3")))
    run.set_up(-1_000_000)
    run.run(sorted(births, key=lambda birth: birth[0]))
    return run


@pytest.fixture
def observed(simulation: Simulation) -> Observed:
    """The node n2 as a daemon would show it."""
    counters = NodeCounters(since_us=5)
    counters.source(0, "A").taken(10, 7, [("late_events", 2), ("unadvertised_events", 1)])
    counters.source(0, "A").malformed += 4
    counters.source(3, "A").taken(5, 8)
    counters.delivered_to(0, 4_500)
    counters.delivered_to(0, None)
    counters.reported("unknown_stream", 2)
    counters.commits.observe(300)
    counters.http[200] = 7
    counters.records_dropped["matches"] = 1
    booked = LinkAccounts(Wire(TYPES.values(), [PAIR]))
    booked.note("n1", Awakening(1, 1, 0, 5), 20)
    booked.note("n1", Want(1, 5), 9)
    booked.note_received("n3", Notify("n2", 1, (tuple(an_event("A", 1, 1)),)), 40)
    return Observed(
        node="n2",
        life="life",
        network="test",
        run="r1",
        strategy="st",
        counters=counters,
        core=simulation.nodes["n2"],
        accounts=booked,
        hub=AHub(),
        journal=AJournal(),
        peers=("n1", "n3", "n9"),
        now_us=lambda: 1_000_000,
    )
