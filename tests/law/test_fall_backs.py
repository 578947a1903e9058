"""Stages of a plan that cost more than they save: what takes their place, who notices, and that nothing gets lost."""

from __future__ import annotations

import random
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from headwater.coordinator.core import Coordinator
from headwater.coordinator.daemon.inputs import Asked
from headwater.coordinator.daemon.journaled_machine import JournaledMachine
from headwater.coordinator.daemon.machine import Machine, Settings
from headwater.coordinator.inev.plan.fallback import solution_of, with_fall_backs
from headwater.coordinator.inev.plan.layouts import InevPlanner
from headwater.coordinator.inev.search.space import Space
from headwater.coordinator.layout.cost_watch import watched_stages
from headwater.coordinator.layout.current_layout import Layings
from headwater.coordinator.layout.fallback import all_fallen_back, fallen_back, home_of, name_of, position_of
from headwater.coordinator.layout.graph_building import Draft, drafted
from headwater.coordinator.layout.planner_interface import Ground, Routes, shortest_routes
from headwater.coordinator.layout.stages import Home, Layout, Stage, at_one_node, divided
from headwater.coordinator.requests import AddSubscription, FallBack, PlanAnew
from headwater.deploy.network.file import read_network
from headwater.deploy.network.yaml_file import NetworkFileError
from headwater.deploy.simulation.outcome import Outcome
from headwater.deploy.simulation.simulator import simulate
from headwater.node.core import NodeSettings
from headwater.node.plans.stage_cost import PATIENT, StagePatience, StageWatch
from headwater.node.step import Work
from headwater.node.streams.feeds import Merge
from headwater.protocol.edge import FileTo
from headwater.protocol.errors import ConfigError
from headwater.protocol.graphs import BornHere, TakenFrom, Watch, Weight
from headwater.protocol.messages.control import COORDINATOR, Reported
from headwater.protocol.messages.plans import CostsMore, PlannedRule, TreeStands
from headwater.protocol.network import Sink
from headwater.protocol.streams import Filter
from headwater.protocol.subscriptions import Subscription
from tests.coordinator.test_layouts import LAST, PLAIN, SOURCES, sase
from tests.coordinator.test_machine import Room
from tests.kit.faults import finish, under_load
from tests.kit.processes import until
from tests.law.fuzz_changes import judge
from tests.law.law import check, reference
from tests.law.layouts import random_planner, strike, twinned
from tests.law.networks import NetworkCase, network_case
from tests.law.rate_swap import AFTER, BEFORE, a_ring, a_swap, known

FOUR = sase("SEQ(A a, B b, C c, D d) WITHIN 1 s RETURN R()")


# What takes the place of a stage -------------------------------------------------------------------------------------


def test_a_split_stage_is_put_together_at_its_home() -> None:
    pair = Stage(frozenset("ab"), ("n1",), "a", events=frozenset("ab"), home=Home("n3"))
    last = Stage(frozenset("abc"), ("n2",), stages=(0,), events=frozenset("c"))
    stages = divided(PLAIN, (pair, last), SOURCES)
    assert (stages[0].nodes, home_of(stages, 0)) == (("n1", "n2"), (True, "n3"))
    gathered, reader = divided(PLAIN, fallen_back(stages, 0, "n3"), SOURCES)
    assert (gathered.nodes, gathered.split, gathered.events) == (("n3",), None, frozenset("ab"))
    assert reader == stages[1]


def test_a_stage_that_is_not_split_is_left_out_and_its_readers_read_what_it_reads() -> None:
    pair = Stage(frozenset("ab"), ("n1",), events=frozenset("ab"))
    three = Stage(frozenset("abc"), ("n3",), stages=(0,), events=frozenset("c"))
    last = Stage(frozenset("abcd"), ("n2",), stages=(1,), events=frozenset("d"))
    assert home_of((pair, three, last), 1) == (True, None)
    first, end = divided(FOUR, fallen_back((pair, three, last), 1, None), SOURCES)
    assert first == pair
    assert (end.stages, end.events) == ((0,), frozenset("cd"))


def test_what_a_reader_did_not_take_it_takes_from_nowhere_else() -> None:
    """It has all A as they are born; so it need not get any from the pair below either."""
    pair = Stage(frozenset("ab"), ("n1",), events=frozenset("ab"))
    three = Stage(frozenset("abc"), ("n3",), stages=(0,), events=frozenset("c"))
    last = Stage(frozenset("abcd"), ("n2",), stages=(1,), events=frozenset("ad"), left_out=frozenset({(1, "a")}))
    _, end = divided(FOUR, fallen_back((pair, three, last), 1, None), SOURCES)
    assert (end.stages, end.events, end.left_out) == ((0,), frozenset("acd"), frozenset({(0, "a")}))


def test_chains_fall_back_to_what_chains_can_be() -> None:
    pair = Stage(frozenset("BC"), ("n2",), events=frozenset("BC"))
    last = Stage(frozenset("ABC"), ("n3",), stages=(0,), events=frozenset("A"))
    assert divided(LAST, fallen_back((pair, last), 0, None), SOURCES) == at_one_node(LAST, "n3")


def test_the_last_stage_has_a_fall_back_only_if_it_is_split() -> None:
    assert home_of(at_one_node(PLAIN, "n3"), 0) == (False, None)
    split = (Stage(frozenset("abc"), ("n1", "n2"), "a", events=frozenset("abc"), home=Home("n2")),)
    assert home_of(split, 0) == (True, "n2")
    assert fallen_back(split, 0, "n2") == at_one_node(PLAIN, "n2")


def test_stages_are_found_again_however_they_are_numbered() -> None:
    pair = Stage(frozenset("ab"), ("n1",), events=frozenset("ab"))
    last = Stage(frozenset("abc"), ("n3",), stages=(0,), events=frozenset("c"))
    name = name_of("R", pair)
    assert position_of(name, (pair, last)) == 0
    assert position_of(name, at_one_node(PLAIN, "n3")) is None
    assert all_fallen_back({"R": at_one_node(PLAIN, "n3")}, [name], None) is None


# What planners decide ------------------------------------------------------------------------------------------------


def test_every_plan_has_fall_backs_and_says_what_they_would_cost() -> None:
    plan = InevPlanner(known(BEFORE)).plan(_ground(), {})
    assert plan is not None
    pair, last = plan.tasks
    inner, split = plan.fall_backs
    assert (inner.projection, inner.node) == (pair.projection, None)
    assert (split.projection, split.node) == (last.projection, 0)
    assert min(inner.extra, split.extra) > 0, "what is planned pays at the rates that it is planned for"
    space = Space(plan.problem)
    assert space.cost(solution_of(space, plan)) == pytest.approx(plan.cost)
    assert with_fall_backs(plan) == plan


def _ground() -> Ground:
    network = a_ring()
    sources: dict[str, tuple[str, ...]] = {}
    for source in network.sources:
        sources[source.type] = (*sources.get(source.type, ()), source.node)
    links = tuple((link.one, link.other) for link in network.links)
    rules = tuple(PlannedRule(rule) for rule in network.rules)
    return Ground(network.nodes, links, sources, (("n1", "Trio"),), rules)


# What nodes are told to watch ----------------------------------------------------------------------------------------


def a_watched_line() -> tuple[Draft, Routes]:
    """a and b are put together at n1 and n2, where A is born; c joins them at n3. The links are n1 - n2 - n3."""
    links = (("n1", "n2"), ("n2", "n3"))
    ground = Ground(("n1", "n2", "n3"), links, SOURCES, (("n3", "R"),), (PlannedRule(PLAIN),))
    home = Home("n3", (("n1", 3.0), ("n2", 1.0)))
    pair = Stage(frozenset("ab"), ("n1",), "a", events=frozenset("ab"), home=home)
    last = Stage(frozenset("abc"), ("n3",), stages=(0,), events=frozenset("c"))
    draft = drafted(ground, {PLAIN.name: (pair, last)})
    routes = shortest_routes(ground)
    draft.graphs(routes, "n2", 1, 1)
    return draft, routes


def test_a_node_compares_what_it_sees_and_takes_the_others_to_be_as_planned() -> None:
    draft, routes = a_watched_line()
    (watched,) = watched_stages(draft, routes, ())
    assert (watched.home, watched.nodes) == ("n3", ("n1", "n2"))
    first, second = (dict(watched.weights[node]) for node in ("n1", "n2"))
    # B is born at n2: now it goes to n1, instead it would go to n3.
    assert (first["B"].now, first["B"].instead) == (second["B"].now, second["B"].instead) == (1, 1)
    assert isinstance(first["B"].source, TakenFrom)
    assert isinstance(second["B"].source, BornHere)
    # Of four A three are born at n1, two links away from n3, and one at n2, one link away.
    assert (first["A"].now, first["A"].instead) == pytest.approx((0, (3 * 2 + 1) / 3))
    assert (second["A"].now, second["A"].instead) == pytest.approx((0, (3 * 2 + 1) / 1))
    # What is found goes to n3 now, and is found there with the fall-back.
    assert (first["a and b found"].now, first["a and b found"].instead) == pytest.approx(((3 * 2 + 1) / 3, 0))


def test_what_rules_share_is_watched_once_and_falls_back_for_all_of_them() -> None:
    one = sase("One: SEQ(A a, B b, C c) WHERE a.v = b.v WITHIN 1 s RETURN R()")
    other = sase("Other: SEQ(A x, B y, D z) WHERE x.v = y.v WITHIN 1 s RETURN S()")
    links = (("n1", "n2"), ("n2", "n3"))
    rules = (PlannedRule(one), PlannedRule(other))
    ground = Ground(("n1", "n2", "n3"), links, SOURCES, (("n3", "R"), ("n3", "S")), rules)

    def lay_out(ground: Ground, kept: Layout) -> tuple[Layout, Routes]:
        return {"One": a_detour("ab", "c"), "Other": a_detour("xy", "z")}, shortest_routes(ground)

    layings = Layings(lay_out, watches=True)
    graphs = layings.laid(ground, "n2", 1, 1)
    (watched,) = layings.watched
    assert watched.stage() == "a and b of One, x and y of Other"
    (watch,) = graphs["n1"].watches
    found = layings.judged("n1", CostsMore("n2", 1, watch.number, 1_000_000, (9,) * len(watch.weights)))
    assert found is not None
    layings.fall_back(found)
    graphs = layings.laid(ground, "n2", 2, 2)
    assert [len(graphs[node].tasks) for node in ground.nodes] == [0, 0, 2]
    assert all(len(stages) == 1 for stages in layings.as_run.values())


def a_detour(pair: str, rest: str) -> tuple[Stage, Stage]:
    """A pair at n1, though everything else, and most of the pair, is nearer to n3."""
    first = Stage(frozenset(pair), ("n1",), events=frozenset(pair))
    return first, Stage(frozenset(pair + rest), ("n3",), stages=(0,), events=frozenset(rest))


def test_what_has_fallen_back_is_not_watched_again() -> None:
    draft, routes = a_watched_line()
    assert not list(watched_stages(draft, routes, {(PLAIN.name, ("a", "b"))}))


# What nodes notice ---------------------------------------------------------------------------------------------------


class Watching:
    """A watch of what comes (one link now, two instead) and of what goes (four links now, none instead)."""

    def __init__(self, patience: StagePatience) -> None:
        self.feeds = (Merge(()), Merge(()))
        weights = (Weight(TakenFrom(-1), 1, 2), Weight(TakenFrom(-2), 4, 0))
        self.watch = StageWatch(Watch(7, weights), self.feeds, "n1", 3, patience)
        self.now_us = 0

    def turn(self, came: int, went: int) -> CostsMore | None:
        for feed, count in zip(self.feeds, (came, went), strict=True):
            if count:
                feed.pass_on([(0,)] * count, Work(self.now_us, {}, {}))
        self.now_us += 100
        return self.watch.look(Work(self.now_us, {}, {}))


def turns(given: Sequence[tuple[int, int]], patience: StagePatience | None = None) -> list[bool]:
    watching = Watching(patience or StagePatience(turn_us=100, events_least=40))
    return [watching.turn(*each) is not None for each in given]


def test_a_stage_is_told_of_once_when_it_has_cost_more_for_long_enough() -> None:
    assert turns([(10, 10)] * (PATIENT.turns + 3)) == [False] * (PATIENT.turns - 1) + [True] + [False] * 3


def test_the_report_has_what_was_counted() -> None:
    watching = Watching(StagePatience(turn_us=100, events_least=40))
    found = [watching.turn(10, count) for count in (10, 11, 12, 13)]
    assert found[-1] == CostsMore("n1", 3, 7, 400, (40, 46))


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ([(10, 1)] * 8, "it pays"),
        ([(100, 26)] * 8, "it costs hardly more"),
        ([(1, 1)] * 8, "too little came to say anything"),
        ([(10, 10), (10, 10), (10, 0)] * 4, "now and then it pays"),
        ([(10, 10), (10, 10), (0, 0)] * 4, "now and then nothing comes"),
    ],
)
def test_a_stage_is_not_told_of_if(given: list[tuple[int, int]], why: str) -> None:
    assert not any(turns(given)), why


def test_a_turn_lasts_as_long_as_it_should() -> None:
    assert turns([(10, 10)] * 11, StagePatience(turn_us=300, events_least=40)) == [False] * 11
    assert turns([(10, 10)] * 12, StagePatience(turn_us=300, events_least=40))[-1]


def test_a_watch_sleeps_while_nothing_comes() -> None:
    watching = Watching(StagePatience(turn_us=100, events_least=40))
    timers: dict[str, int] = {}
    watching.feeds[0].pass_on([(0,)], Work(0, {}, timers))
    assert timers == {"watch": 100}
    timers.clear()
    watching.watch.look(Work(100, {}, timers))
    assert timers == {"watch": 200}
    timers.clear()
    watching.watch.look(Work(200, {}, timers))
    assert not timers


# What the coordinator makes of it ------------------------------------------------------------------------------------


def a_coordinator() -> Coordinator:
    made = Coordinator(a_ring(), "inev", lay_out=InevPlanner(known(BEFORE)))
    made.begin()
    (tree,) = made.trees.roots
    made.reported(tree, TreeStands(tree, 1))
    return made


def a_report(coordinator: Coordinator, watch: int, node: str, epoch: int = 1) -> CostsMore:
    (tree,) = coordinator.trees.roots
    weights = coordinator.layings.watched[watch].weights[node]
    return CostsMore(tree, epoch, watch, 1_000_000, (5,) * len(weights))


def test_reports_that_make_no_sense_change_nothing() -> None:
    coordinator = a_coordinator()
    good = a_report(coordinator, 1, "n0")
    for node, wrong in [
        ("n3", good),
        ("n0", CostsMore(good.tree, 2, 1, 1, good.counts)),
        ("n0", CostsMore("n9", 1, 1, 1, good.counts)),
        ("n0", CostsMore(good.tree, 1, 9, 1, good.counts)),
        ("n0", CostsMore(good.tree, 1, -1, 1, good.counts)),
        ("n0", CostsMore(good.tree, 1, 1, 1, (*good.counts, 1))),
    ]:
        assert coordinator.judged(node, wrong) is None


def test_half_of_the_nodes_of_a_stage_decide_and_only_once() -> None:
    coordinator = a_coordinator()
    found = coordinator.judged("n2", a_report(coordinator, 1, "n2"))
    assert found is not None
    assert (found.home, found.what()) == ("n0", "put a and b and c of Trio together at n0 alone")
    assert "n2 measured A 5/s" in found.why
    assert coordinator.judged("n2", a_report(coordinator, 1, "n2")) is None, "it has told already"
    assert coordinator.judged("n0", a_report(coordinator, 1, "n0")) is None, "that was decided already"


def test_a_plan_that_is_made_anew_knows_nothing_of_what_was_found_about_the_last() -> None:
    coordinator = a_coordinator()
    found = coordinator.judged("n2", a_report(coordinator, 1, "n2"))
    assert found is not None
    coordinator.layings.begin_anew(InevPlanner(known(AFTER)))
    coordinator.layings.laid(_ground(), "n1", 2, 2)
    with pytest.raises(ConfigError, match="laid out again"):
        coordinator.request(found)


def test_a_stage_falls_back_at_most_once() -> None:
    coordinator = a_coordinator()
    found = coordinator.judged("n5", a_report(coordinator, 0, "n5"))
    assert found is not None
    coordinator.layings.fall_back(found)
    coordinator.layings.laid(_ground(), "n1", 2, 2)
    assert list(coordinator.layings.fallen) == [("Trio", ("b", "c"))]
    assert [watched.stages[0].roles for watched in coordinator.layings.watched] == [("a", "b", "c")]
    with pytest.raises(ConfigError, match="has fallen back already"):
        coordinator.request(found)


def a_room(**told: Any) -> Room:
    return Room(a_ring(), statistics=known(BEFORE), **told).start()


def told_by(room: Room, node: str, watch: int) -> Reported:
    """What a node says of a stage in the graph that it has."""
    (graph,) = room.nodes[node].newest().graphs
    (watched,) = [each for each in graph.watches if each.number == watch]
    return Reported(CostsMore(graph.tree, graph.epoch, watch, 1_000_000, (9,) * len(watched.weights)))


def test_a_stage_falls_back_in_its_turn_and_that_is_said_and_counted() -> None:
    room = a_room()
    room.say("n5", told_by(room, "n5", 0))
    room.settle()
    assert room.machine.counts["fall_backs"] == 1
    assert [past.what for past in room.machine.history] == ["fall back: leave out b and c of Trio"]
    (note,) = room.notes
    assert "b and c of Trio costs more at n5 than it saves: n5 measured B 18/s" in note
    assert "events times links per second instead of" in note
    assert [watch.number for watch in room.nodes["n5"].newest().graphs[0].watches] == []
    again = JournaledMachine(Machine(room.setup, Settings(10_000_000)))
    for record in room.journal:
        again.replay(record)
    assert again.machine.coordinator.layings.fallen == room.machine.coordinator.layings.fallen != {}
    kept = JournaledMachine.restored(room.journaled.save()).machine.coordinator.layings
    assert kept.as_run == room.machine.coordinator.layings.as_run
    assert kept.watched == room.machine.coordinator.layings.watched


def test_a_stage_waits_until_the_change_before_it_is_made() -> None:
    room = a_room()
    report = told_by(room, "n5", 0)
    room.take(Asked("r", AddSubscription(Sink("n4", Subscription("Trio")), FileTo("f"))))
    room.say("n5", report)
    assert room.machine.counts["fall_backs"] == 0
    room.settle()
    assert [past.what.split(":")[0] for past in room.machine.history] == ["subscribe n4 to Trio", "fall back"]
    assert room.machine.counts["fall_backs"] == 1


def test_a_stage_that_waits_while_everything_is_planned_anew_does_not_fall_back() -> None:
    room = a_room()
    report = told_by(room, "n5", 0)
    room.take(Asked("r", PlanAnew(InevPlanner(known(BEFORE)))))
    room.say("n5", report)
    room.settle()
    anew, late = room.machine.history
    assert (anew.what, anew.refused) == ("plan anew", None)
    assert late.refused is not None
    assert "everything was laid out again" in late.refused
    room.say("n5", told_by(room, "n5", 0))
    room.settle()
    assert room.machine.counts["fall_backs"] == 1, "the new plan is watched again"


def test_a_stage_that_cannot_fall_back_now_may_do_so_after_the_next_change() -> None:
    room = a_room()
    room.nodes["n4"].deaf = True
    room.say("n5", told_by(room, "n5", 0))
    room.settle()
    room.pass_time(11_000_000)
    assert room.machine.history[-1].refused is not None
    assert "n4 did not answer" in room.machine.history[-1].refused
    room.nodes["n4"].deaf = False
    room.ask(AddSubscription(Sink("n4", Subscription("Trio")), FileTo("f")))
    room.say("n5", told_by(room, "n5", 0))
    room.settle()
    assert room.machine.counts["fall_backs"] == 1


def test_nothing_is_watched_where_nothing_may_fall_back() -> None:
    room = a_room(falls_back=False)
    assert not any(graph.watches for node in room.nodes.values() for graph in node.newest().graphs)


# Whole networks ------------------------------------------------------------------------------------------------------


def test_a_network_mends_itself_when_rates_change_and_a_new_plan_begins_anew() -> None:
    case = a_swap(60.0)
    planned = InevPlanner(known(BEFORE))
    anew = [(50_000_000, PlanAnew(InevPlanner(known(AFTER))))]
    outcome = simulate(case.network, case.births, lay_out=planned, changes=anew, check=True)
    must = sorted(found.id for found in reference(case).composites())
    assert sorted(found.id for found in outcome.composites()) == must
    *fallen, last = [change for change, _ in outcome.held_from]
    assert [(type(change), change.home) for change in fallen] == [(FallBack, "n0")]
    assert isinstance(last, PlanAnew)
    unwatched = simulate(case.network, case.births, lay_out=planned, falls_back=False)
    assert not unwatched.held_from


def test_a_projection_that_lets_everything_pass_is_left_out() -> None:
    """There is only one key in the end: what b and c find is nearly everything, and goes back where most came from."""
    case = a_swap(30.0, keys=1)

    def lay_out(ground: Ground, kept: Layout) -> tuple[Layout, Routes]:
        pair = Stage(frozenset("bc"), ("n5",), events=frozenset("bc"))
        last = Stage(frozenset("abc"), ("n3",), stages=(0,), events=frozenset("a"))
        return {"Trio": (pair, last)}, shortest_routes(ground)

    outcome = simulate(case.network, case.births, lay_out=lay_out, check=True)
    assert sorted(found.id for found in outcome.composites()) == sorted(
        found.id for found in reference(case).composites()
    )
    ((change, _),) = outcome.held_from
    assert isinstance(change, FallBack)
    assert change.what() == "leave out b and c of Trio"
    assert outcome.tasks["n5"] == []


LAW = [
    ("fall-backs+storms", 44),
    *(("fall-backs", seed) for seed in range(40)),
    *(("fall-backs+storms", seed) for seed in range(100, 130)),
]


@pytest.mark.parametrize(("kind", "seed"), LAW)
def test_the_law_holds_when_any_stage_falls_back_at_any_time(kind: str, seed: int) -> None:
    verdict = judge(kind, seed, "inev")
    assert verdict is None or not verdict.wrong, verdict.wrong[0]


def test_the_law_holds_where_what_rules_share_falls_back() -> None:
    struck = 0

    def run(case: NetworkCase, strategy: str, faults: bool) -> Outcome:
        nonlocal struck
        chance = random.Random(f"shared {case.seed}")
        first, last = (case.births[0][0], case.births[-1][0]) if case.births else (0, 0)
        strikes = [(chance.randint(first, last), strike(chance.randrange(10**6))) for _ in range(3)]
        planner = random_planner(case.seed + 1 if case.seed % 3 == 0 else case.seed)
        outcome = simulate(
            case.network, case.births, strategy=strategy, seed=case.seed, lay_out=planner, changes=strikes, check=True
        )
        struck += len(outcome.held_from)
        return outcome

    for seed in range(910_000, 910_060):
        case = twinned(network_case(seed))
        verdict = check(case, "inev", runner=run)
        assert not verdict.wrong, f"seed {seed}: {verdict.wrong[0]}"
    assert struck >= 10


def test_real_nodes_notice_that_rates_have_changed(tmp_path: Path) -> None:
    case = a_swap(60.0)
    settings = NodeSettings(replayed=True, patience=StagePatience(turn_us=200_000, events_least=20))
    told = {"statistics": known(BEFORE)}
    with under_load(case, "inev", tmp_path, seconds=6.0, started=False, settings=settings, told=told) as cluster:

        def fallen() -> list[str]:
            _, plans = cluster.ask_coordinator("GET", "/plans")
            return [each["stage"] for each in plans["fall_backs"] if each["has_fallen_back"]]

        until(lambda: bool(fallen()), "a stage falls back", cluster)
        before = fallen()
        cluster.kill(COORDINATOR)
        cluster.restart(COORDINATOR)
        assert set(before) <= set(fallen()), "a coordinator that was killed remembers"
        finish(cluster, case)
        _, plans = cluster.ask_coordinator("GET", "/plans")
        made = [each for each in plans["changes"] if each["what"].startswith("fall back: ") and not each["refused"]]
        with urllib.request.urlopen(cluster.coordinator["http"] + "/metrics") as answer:
            metrics = answer.read().decode()
        assert f"headwater_coordinator_fall_backs_total {len(made)}.0" in metrics.splitlines()


# The network file ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "falls_back", "sentence"),
    [
        ("strategy: inev", True, ""),
        ("strategy: inev\nfall_back: on", True, ""),
        ("strategy: inev\nfall_back: off", False, ""),
        ("strategy: inev\nfall_back: sometimes", None, "write on or off"),
        ("strategy: st\nfall_back: off", False, "the strategy st has no plan"),
    ],
)
def test_the_network_file_says_whether_stages_fall_back(
    written: str, falls_back: bool | None, sentence: str, tmp_path: Path
) -> None:
    file = tmp_path / "network.yaml"
    file.write_text(
        f"events: {{A: {{v: int}}}}\nnodes: [n1]\nlinks: []\nsources: []\nsinks: []\nrules: []\n{written}\n"
    )
    if falls_back is None:
        with pytest.raises(NetworkFileError, match=sentence):
            read_network(file)
    else:
        found = read_network(file)
        assert found.falls_back is falls_back
        assert sentence in "\n".join(map(str, found.warnings))


def test_what_has_no_conditions_of_its_own_is_watched_as_it_is() -> None:
    draft, routes = a_watched_line()
    draft, routes = a_watched_line()
    (watched,) = watched_stages(draft, routes, ())
    assert {weight.source for _, weight in watched.weights["n2"]} >= {BornHere(Filter("A")), BornHere(Filter("B"))}
