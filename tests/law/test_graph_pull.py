"""Graphs in which frequent events stay where they are born until rare ones ask for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headwater.coordinator.layout.stages import Layout, Stage, at_one_node
from headwater.coordinator.requests import PlanAnew
from headwater.deploy.simulation.faults import Faults
from headwater.deploy.simulation.simulator import SETUP_US, simulate
from headwater.node.core import NodeCore
from headwater.node.pull.masters import PushPull
from headwater.node.streams.outbox import type_of
from headwater.protocol.messages.neighbour import Awakening, ReverseMark, SetMode
from headwater.protocol.network import Network
from headwater.protocol.streams import Part
from tests.kit.builders import both, seq
from tests.kit.builders import rule as a_rule
from tests.kit.processes import assert_exact, replayed
from tests.law.layouts import asking, fixed
from tests.law.networks import NetworkCase
from tests.law.test_push_pull import CALM, RARE_SMOKE, a_network, births_of, by_pushing, tasks
from tests.simulation.test_simulator import MS, Birth, Overheard, results
from tests.simulation.test_simulator import a_network as star_network
from tests.simulation.test_simulator import births_of as star_births

SECOND = 1_000 * MS


def pulling(network: Network, node: str = "r", master: str = "Smoke", pulled: Sequence[str] = ("Temp",)) -> Layout:
    return {rule.name: asking(rule, node, master, *pulled) for rule in network.rules}


def pushing(network: Network, node: str = "r") -> Layout:
    return {rule.name: at_one_node(rule, node) for rule in network.rules}


def laid_out(network: Network, births: Sequence[Birth], layout: Layout, **options: Any) -> Overheard:
    made = Overheard(network, "inev", 0, Faults(), check=True, settings=CALM, lay_out=fixed(layout), **options)
    made.set_up(births[0][0] - SETUP_US)
    made.run(births)
    return made


def bodies(run: Overheard, name: str, *link: str) -> list[Any]:
    return [row for row in run.rows(*link) if type_of(row) == name]


def managers(run: Overheard, node: str) -> list[PushPull]:
    return [task.push_pull for task in tasks(run, node) if task.push_pull is not None]


# -- what crosses ------------------------------------------------------------------------------------------------------


def test_a_rare_type_pulls_a_frequent_one_and_less_crosses_the_network() -> None:
    network = a_network()
    births = births_of(network, RARE_SMOKE)
    pushed = laid_out(network, births, pushing(network))
    pulled = laid_out(network, births, pulling(network))
    assert results(pulled.outcome) == results(pushed.outcome) == by_pushing(network, births) != []
    assert len(bodies(pulled, "Temp")) < len(bodies(pushed, "Temp")) / 5
    assert len(pulled.rows()) + len(pulled.of(Awakening)) < len(pushed.rows()) / 3
    assert len(bodies(pulled, "Smoke")) == len(bodies(pushed, "Smoke")), "the master is pushed"


def test_a_graph_begins_in_the_modes_that_were_planned_and_no_node_changes_them() -> None:
    network = a_network()
    births = births_of(network, (60 * MS, 15 * MS))
    run = laid_out(network, births, pulling(network, master="Temp", pulled=("Smoke",)))
    assert run.of(SetMode) == []
    (manager,) = managers(run, "r")
    assert manager.master == "Temp", "though Smoke is rarer"
    first = min(event.ts for _, _, event in births if event.type == "Temp")
    assert all(row[0] >= first for row in bodies(run, "Smoke"))
    assert results(run.outcome) == by_pushing(network, births) != []


def test_awakenings_carry_the_window_and_what_the_values_of_the_master_exclude() -> None:
    network = a_network()
    births = births_of(network, RARE_SMOKE)
    run = laid_out(network, births, pulling(network))
    smokes = {event.ts: event.attributes["area"] for _, _, event in births if event.type == "Smoke"}
    asked = run.of(Awakening, "r", "m")
    assert {message.greatest_us for message in asked} == smokes.keys()
    assert all(message.least_us == message.greatest_us - 50 * MS and message.where for message in asked)
    crossed = bodies(run, "Temp", "t", "m")
    assert crossed
    for ts, _, _, _, area, value in crossed:
        assert value > 45
        assert any(at - 50 * MS <= ts <= at and area == known for at, known in smokes.items())


def test_what_only_passes_is_not_kept_on_the_way() -> None:
    network = a_network()
    run = Kept(network, births_of(network, RARE_SMOKE))
    assert run.most["t"] > 20
    assert run.most["m"] == 0
    assert run.of(Awakening, "m", "t"), "m hands on what r asks"
    assert run.of(ReverseMark, "m", "t")


class Kept(Overheard):
    """Looks at what nodes keep of pulled streams."""

    def __init__(self, network: Network, births: list[Birth]) -> None:
        self.most = dict.fromkeys(network.nodes, 0)
        lay_out = fixed(pulling(network))
        super().__init__(network, "inev", 0, faults=Faults(), check=True, settings=CALM, lay_out=lay_out)
        self.set_up(births[0][0] - SETUP_US)
        self.run(births)

    def _bear(self, source: int, event: Any) -> None:
        super()._bear(source, event)
        for name, node in self.nodes.items():
            kept = sum(len(outlet._kept) for outlet in node.outlets.values())
            self.most[name] = max(self.most[name], kept)


def test_what_will_not_be_asked_for_is_freed() -> None:
    network = a_network()
    short = laid_out(network, births_of(network, RARE_SMOKE, 4 * SECOND), pulling(network))
    long = laid_out(network, births_of(network, RARE_SMOKE, 16 * SECOND), pulling(network))
    assert short.checkers is not None
    assert long.checkers is not None
    for node in network.nodes:
        assert long.checkers.held_max[node] < 1.3 * short.checkers.held_max[node] + 20, node


def test_a_selection_waits_until_the_answer_is_complete() -> None:
    text = """
    define Fire(area: string)
    from Smoke(area = $a) and last Temp(area = $a) within 50 ms from Smoke
    where area = Smoke.area
    """
    network = a_network(text, delay_us=40 * MS)
    births = births_of(network, RARE_SMOKE)
    run = laid_out(network, births, pulling(network))
    assert results(run.outcome) == by_pushing(network, births) != []
    assert all(each.delivered_us - each.item.ts >= 4 * 40 * MS for each in run.outcome.delivered)


def test_a_master_without_a_source_asks_for_nothing() -> None:
    network = a_network(sources=(("t", "Temp"),))
    births = births_of(network, (4 * MS,))
    run = laid_out(network, births, pulling(network))
    assert run.rows() == []
    assert run.outcome.delivered == []


# -- several readers ---------------------------------------------------------------------------------------------------

TWO = """
define Fire(area: string)
from Smoke(area = $a) and each Temp(area = $a and value > 45) within 50 ms from Smoke
where area = Smoke.area

define Gust(area: string)
from Wind(area = $a) and each Temp(area = $a) within 30 ms from Wind
where area = Wind.area
"""


def two_rules() -> Network:
    sources = (("s", "Smoke"), ("t", "Temp"), ("m", "Wind"))
    network = a_network(TWO, sources=sources)
    gusts = replace(network.sinks[0], subscription=replace(network.sinks[0].subscription, type="Gust"))
    return replace(network, sinks=(*network.sinks, gusts))


@pytest.mark.parametrize("nodes", [("r", "r"), ("r", "m"), ("s", "m")])
def test_readers_of_one_type_ask_for_it_on_streams_of_their_own(nodes: tuple[str, str]) -> None:
    """Bodies still cross a link once, however many ask: the checkers of the run look at every link."""
    network = two_rules()
    births = births_of(network, (400 * MS, 4 * MS, 300 * MS))
    fire, gust = network.rules
    layout = {"Fire": asking(fire, nodes[0], "Smoke", "Temp"), "Gust": asking(gust, nodes[1], "Wind", "Temp")}
    run = laid_out(network, births, layout)
    must = laid_out(network, births, {"Fire": at_one_node(fire, nodes[0]), "Gust": at_one_node(gust, nodes[1])})
    assert results(run.outcome) == results(must.outcome)
    assert {each.sink for each in run.outcome.delivered} == {0, 1}
    assert len(run.nodes["t"].outlets) == 2
    assert len(bodies(run, "Temp")) < len(bodies(must, "Temp")) / 3


def test_what_comes_to_a_node_anyway_is_not_asked_for() -> None:
    network = two_rules()
    births = births_of(network, (400 * MS, 4 * MS, 300 * MS))
    fire, gust = network.rules
    run = laid_out(network, births, {"Fire": asking(fire, "r", "Smoke", "Temp"), "Gust": at_one_node(gust, "r")})
    assert run.of(Awakening) == []
    assert len(run.nodes["t"].outlets) == 1
    assert {each.sink for each in run.outcome.delivered} == {0, 1}


# -- stages ------------------------------------------------------------------------------------------------------------

STORM = """
define Storm(area: string)
from Smoke(area = $a)
 and each Wind(area = $a) within 200 ms from Smoke
 and {policy} Temp(area = $a and value > Wind.value) within 50 ms from Wind
where area = Smoke.area
"""


@pytest.mark.parametrize("policy", ["each", "last"])
def test_what_a_stage_finds_may_awaken_others(policy: str) -> None:
    """Pairs of Smoke and Wind are found at m; around their Winds r asks for Temps."""
    links = (("s", "m"), ("w", "m"), ("m", "r"), ("r", "t"))
    sources = (("s", "Smoke"), ("w", "Wind"), ("t", "Temp"))
    network = a_network(STORM.format(policy=policy), links=links, sources=sources)
    births = births_of(network, (700 * MS, 100 * MS, 2 * MS), 10 * SECOND)
    roles = frozenset(("Smoke", "Wind", "Temp"))
    pairs = Stage(roles - {"Temp"}, ("m",), events=roles - {"Temp"}, master="Smoke", pulled=frozenset({"Wind"}))
    last = Stage(roles, ("r",), stages=(0,), events=frozenset({"Temp"}), master="Wind", pulled=frozenset({"Temp"}))
    run = laid_out(network, births, {"Storm": (pairs, last)})
    assert results(run.outcome) == by_pushing(network, births) != []
    assert [manager.master for manager in (*managers(run, "m"), *managers(run, "r"))] == ["Smoke", "Wind"]
    winds = [row[0] for row in bodies(run, "Wind", "m", "r")]
    assert 0 < len(bodies(run, "Wind", "w", "m")) < sum(birth[2].type == "Wind" for birth in births)
    assert {message.greatest_us for message in run.of(Awakening, "r", "t")} == set(winds)


def test_a_part_decides_by_itself_if_others_wait_for_what_it_finds() -> None:
    """r knows of nothing to decide before m has found a pair; so m does not wait until r wants to know."""
    links = (("w", "m"), ("t", "m"), ("m", "r"), ("r", "s"))
    sources = (("s", "Smoke"), ("w", "Wind"), ("t", "Temp"))
    text = """
    define Storm(area: string)
    from Smoke() and each Wind() within 20 ms from Smoke and last Temp(area = Wind.area) within 200 ms from Wind
    where area = Smoke.area
    """
    network = a_network(text, links=links, sources=sources)
    births = births_of(network, (4 * MS, 700 * MS, 50 * MS), 10 * SECOND)
    roles = frozenset(("Smoke", "Wind", "Temp"))
    pairs = Stage(roles - {"Smoke"}, ("m",), events=roles - {"Smoke"})
    last = Stage(roles, ("r",), stages=(0,), events=frozenset({"Smoke"}), master="Wind", pulled=frozenset({"Smoke"}))
    run = laid_out(network, births, {"Storm": (pairs, last)})
    assert results(run.outcome) == by_pushing(network, births) != []
    assert max(each.delivered_us - each.item.ts for each in run.outcome.delivered) < 40 * MS


CLOSE = a_rule(
    seq("B b", seq("D d", both("A a", "C c"), within=40 * MS), within=100 * MS, bounds="span"),
    name="close",
    emits="X",
)
FAR = a_rule(both("A x", "C y", "B z", within=100 * MS, bounds="span"), name="far", emits="Y")


def test_a_part_that_rules_share_asks_for_what_each_of_them_needs() -> None:
    """The first rule says more about how far A and C are apart than their common part does."""
    network = star_network(CLOSE, FAR, sinks=(("n5", "X"), ("n3", "Y")))
    births = star_births(network, 500, spread_us=12 * MS)
    layout = {}
    for each, names in ((CLOSE, "acbd"), (FAR, "xyz")):
        both = frozenset(names[:2])
        pair = Stage(both, ("n2",), None, (), both, frozenset(), names[0], frozenset(names[1]))
        layout[each.name] = (pair, Stage(frozenset(names), ("n1",), None, (0,), frozenset(names[2:])))
    run = laid_out(network, births, layout)
    streams = [task.stream for task in tasks(run, "n2")]
    assert [stream.partial.rule.name for stream in streams if isinstance(stream, Part)] == ["close"], (
        "one task for both"
    )
    assert managers(run, "n2")
    assert results(run.outcome) == results(simulate(network, births, strategy="centr"))
    assert {each.sink for each in run.outcome.delivered} == {0, 1}


def test_a_stage_at_many_nodes_asks_at_each_of_them() -> None:
    links = (("s", "r"), ("u", "r"), ("r", "t"))
    network = a_network(links=links, sources=(("s", "Smoke"), ("u", "Smoke"), ("t", "Temp")))
    births = births_of(network, (400 * MS, 400 * MS, 4 * MS))
    (stage,) = asking(network.rules[0], "r", "Smoke", "Temp")
    run = laid_out(network, births, {"Fire": (replace(stage, split="Smoke"),)})
    assert results(run.outcome) == by_pushing(network, births) != []
    assert managers(run, "s")
    assert managers(run, "u")
    assert bodies(run, "Smoke") == []


def test_tables_tell_who_awakens_and_what_is_pulled() -> None:
    network = a_network()
    run = laid_out(network, births_of(network, RARE_SMOKE), pulling(network))
    (table,) = [work.table() for work in run.nodes["r"].works.values()]
    assert table["tasks"] == ["rule Fire, awakened by Smoke"]
    assert [line.endswith(", pulled") for line in table["routes"]["taken"]] == [False, True]


def test_a_saved_node_goes_on_keeping_and_asking() -> None:
    network = a_network()
    births = births_of(network, RARE_SMOKE)
    run = Forgetful(network, births)
    assert run.saved > 50
    assert results(run.outcome) == by_pushing(network, births) != []


class Forgetful(Overheard):
    """Every node is saved and restored again and again."""

    def __init__(self, network: Network, births: list[Birth]) -> None:
        self.saved = 0
        lay_out = fixed(pulling(network))
        super().__init__(network, "inev", 0, faults=Faults(), settings=CALM, lay_out=lay_out)
        self.set_up(births[0][0] - SETUP_US)
        self.run(births)

    def _bear(self, source: int, event: Any) -> None:
        super()._bear(source, event)
        if event.seq % 50 == 0:
            for name, node in list(self.nodes.items()):
                self.nodes[name] = NodeCore.restored(node.save())
                self.saved += 1


# -- change ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delay_us", [2 * MS, 60 * MS])
def test_a_running_network_moves_between_pushed_and_pulled(delay_us: int) -> None:
    network = a_network(delay_us=delay_us)
    births = births_of(network, RARE_SMOKE, 8 * SECOND)
    layouts = [
        pulling(network),
        pushing(network, "m"),
        pulling(network, "m", "Temp", ("Smoke",)),
        pulling(network, "t"),
    ]
    changes = [(2 * SECOND * number, PlanAnew(fixed(layout))) for number, layout in enumerate(layouts) if number]
    outcome = simulate(
        network,
        births,
        strategy="inev",
        lay_out=fixed(layouts[0]),
        changes=changes,
        check=True,
        settings=CALM,
    )
    assert len(outcome.held_from) == len(changes)
    assert results(outcome) == by_pushing(network, births) != []


# -- processes ---------------------------------------------------------------------------------------------------------


def test_processes_ask_for_what_they_need_and_go_on_after_they_were_killed(tmp_path: Path) -> None:
    network = a_network()
    births = births_of(network, (100 * MS, 2 * MS))
    must = [[identity for sink, _, identity in by_pushing(network, births) if sink == 0]]
    case = NetworkCase(network, tuple(births))
    with replayed(case, "inev", tmp_path, speed=1.0, layout=pulling(network)) as cluster:
        cluster.wait_until_delivered(5)
        cluster.kill("r", "t")
        cluster.restart("t", "r")
        cluster.wait_until_done()
        assert_exact(cluster, must)
        (kept,) = (each for each in cluster.ask("m", "/statistics")["streams"] if each.get("pulled"))
        sent = cluster.ask("m", "/statistics")["links"]["r"]
        assert 0 < sent["answer"]["events"] < kept["generated"] / 2
        assert "primitive" not in sent
