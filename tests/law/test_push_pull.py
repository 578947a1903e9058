"""Push and pull: rare events awaken frequent ones, which stay where they are born until a task asks for them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from headwater.deploy.simulation.faults import Faults
from headwater.deploy.simulation.simulator import simulate
from headwater.node.core import NodeSettings
from headwater.node.pull.masters import PushPull, Slot
from headwater.node.streams.feeds import Inlet
from headwater.node.tasks.task import JoinTask
from headwater.protocol.events import Event, EventType, Value
from headwater.protocol.expressions import Attribute, Binary, Constant, Expression, walk
from headwater.protocol.languages import Source as RuleText
from headwater.protocol.languages import parse_rules
from headwater.protocol.messages.neighbour import Awakening, ReverseMark, SetMode, Watermark
from headwater.protocol.network import Link, Network, Sink, Source
from headwater.protocol.subscriptions import SUBJECT, parse_subscription
from tests.simulation.test_simulator import MS, Birth, Overheard, overheard, results

SECOND = 1_000 * MS
TYPES = (
    EventType("Smoke", {"area": "string", "threshold": "float"}),
    EventType("Temp", {"area": "string", "value": "float"}),
    EventType("Wind", {"area": "string", "value": "float"}),
)
FIRE = """
define Fire(area: string)
from Smoke(area = $a) and each Temp(area = $a and value > 45) within 50 ms from Smoke
where area = Smoke.area
"""
CALM = NodeSettings(tick_least_us=10 * MS, review_us=500 * MS)
RESTLESS = NodeSettings(tick_least_us=10 * MS, review_us=50 * MS, restless=True)

# s - r - m - t: who asks is r; what it asks for is born behind m.
LINE = (("s", "r"), ("r", "m"), ("m", "t"))


def a_network(
    text: str = FIRE,
    *,
    links: Sequence[tuple[str, str]] = LINE,
    sources: Sequence[tuple[str, str]] = (("s", "Smoke"), ("t", "Temp")),
    sink: str = "r",
    delay_us: int = 2 * MS,
) -> Network:
    """With many trees the root of the only one is where the sink is."""
    rules = parse_rules([RuleText(text, "rule.tesla", "tesla")], TYPES).rules
    return Network(
        types=TYPES,
        nodes=tuple(sorted({node for pair in links for node in pair})),
        links=tuple(Link(one, other, delay_us) for one, other in links),
        sources=tuple(Source(node, name) for node, name in sources),
        sinks=(Sink(sink, parse_subscription(rules[0].emits)),),
        rules=tuple(rules),
        strategy="mt-pp",
    )


def is_hot(event: Event) -> bool:
    value = event.attributes.get("value")
    return event.type == "Temp" and isinstance(value, float) and value > 45


def births_of(network: Network, every_us: Sequence[int], until_us: int = 4 * SECOND, seed: int = 1) -> list[Birth]:
    """Events of each source at about this distance from each other, in two areas."""
    chance = random.Random(seed)
    born: list[Birth] = []
    for number, (source, distance_us) in enumerate(zip(network.sources, every_us, strict=True)):
        kind = next(each for each in TYPES if each.name == source.type)
        ts, seq = chance.randrange(distance_us), 0
        while ts < until_us:
            seq += 1
            second = chance.uniform(20, 60)
            values: dict[str, Value] = dict(zip(kind.attributes, (chance.choice("xy"), second), strict=True))
            born.append((ts, number, Event(kind, ts, source.node, seq, values)))
            ts += chance.randrange(distance_us // 2, 3 * distance_us // 2)
    return sorted(born, key=lambda birth: birth[0])


RARE_SMOKE = (400 * MS, 4 * MS)
RARE_TEMP = (4 * MS, 400 * MS)


def the_manager(run: Overheard, node: str = "r") -> PushPull:
    (task,) = tasks(run, node)
    assert task.push_pull is not None
    return task.push_pull


def tasks(run: Overheard, node: str) -> list[JoinTask]:
    return [task for work in run.nodes[node].works.values() for task in work.tasks]


def slot_of(manager: PushPull, event_type: str) -> Slot:
    return next(slot for slot in manager.slots if event_type in {slot.types[role] for role in slot.roles})


def matches(run: Overheard) -> list[Any]:
    return results(run.outcome)


def by_pushing(network: Network, births: Sequence[Birth]) -> list[Any]:
    return results(simulate(network, births, strategy="mt"))


# -- who is master -----------------------------------------------------------------------------------------------------


def test_rare_events_become_the_master_and_frequent_ones_are_pulled() -> None:
    network = a_network()
    births = births_of(network, RARE_SMOKE)
    run = overheard(network, births, "mt-pp", CALM)
    manager = the_manager(run)
    assert manager.slots
    assert slot_of(manager, "Temp").pulled
    assert not slot_of(manager, "Smoke").pulled
    assert manager.able[manager.master or ""] == (slot_of(manager, "Smoke"),)
    assert matches(run) == by_pushing(network, births) != []


def test_when_the_rates_are_the_other_way_round_so_are_the_roles() -> None:
    network = a_network()
    births = births_of(network, RARE_TEMP)
    run = overheard(network, births, "mt-pp", CALM)
    manager = the_manager(run)
    assert slot_of(manager, "Smoke").pulled
    assert not slot_of(manager, "Temp").pulled
    assert matches(run) == by_pushing(network, births) != []


def test_where_pulling_saves_nothing_everything_is_pushed() -> None:
    network = a_network()
    run = overheard(network, births_of(network, (10 * MS, 10 * MS)), "mt-pp", CALM)
    manager = the_manager(run)
    assert manager.master is None
    assert not any(slot.pulled for slot in manager.slots)
    assert run.of(Awakening) == []


def test_the_master_changes_when_the_rates_do() -> None:
    network = a_network()
    before = births_of(network, RARE_SMOKE)
    after = [
        (at + 4 * SECOND, number, Event.from_row((event.ts + 4 * SECOND, event.node, event.seq + 9_999, *event[3:])))
        for at, number, event in births_of(network, RARE_TEMP)
    ]
    run = overheard(network, [*before, *after], "mt-pp", CALM)
    manager = the_manager(run)
    assert slot_of(manager, "Smoke").pulled
    assert not slot_of(manager, "Temp").pulled
    asked = {(one, other) for _, one, other, message in run.messages if isinstance(message, Awakening)}
    assert asked == {("r", "m"), ("m", "t"), ("r", "s")}
    assert matches(run) == by_pushing(network, [*before, *after]) != []


# -- what is asked for -------------------------------------------------------------------------------------------------


def conditions(message: Awakening) -> dict[str, tuple[Expression, ...]]:
    return dict(message.where)


def awakenings(run: Overheard, sender: str, receiver: str) -> list[Awakening]:
    found = run.of(Awakening, sender, receiver)
    assert found
    return found


def constants(expression: Expression) -> list[Any]:
    return [part.value for part in walk(expression) if isinstance(part, Constant)]


def attributes(expression: Expression) -> set[tuple[str, str]]:
    return {(part.role, part.name) for part in walk(expression) if isinstance(part, Attribute)}


def test_an_awakening_carries_the_values_of_shared_parameters() -> None:
    network = a_network()
    births = births_of(network, RARE_SMOKE)
    areas = {event.ts: event.attributes["area"] for _, _, event in births if event.type == "Smoke"}
    run = overheard(network, births, "mt-pp", CALM)
    for message in awakenings(run, "r", "m"):
        (conjunct,) = conditions(message)["Temp"]
        assert isinstance(conjunct, Binary)
        assert conjunct.operator == "="
        assert attributes(conjunct) == {(SUBJECT, "area")}
        assert constants(conjunct) == [areas[message.greatest_us]]


def test_predicates_compare_with_what_the_master_says() -> None:
    network = a_network(
        """
        define Fire(area: string)
        from Smoke() and each Temp(value > Smoke.threshold) within 50 ms from Smoke
        where area = Smoke.area
        """
    )
    births = births_of(network, RARE_SMOKE)
    thresholds = {event.ts: event.attributes["threshold"] for _, _, event in births if event.type == "Smoke"}
    run = overheard(network, births, "mt-pp", CALM)
    for message in awakenings(run, "r", "m"):
        (conjunct,) = conditions(message)["Temp"]
        assert attributes(conjunct) == {(SUBJECT, "value")}
        assert constants(conjunct) == [thresholds[message.greatest_us]]
    assert matches(run) == by_pushing(network, births) != []


def test_what_fails_the_conditions_of_an_awakening_does_not_cross() -> None:
    network = a_network()
    births = births_of(network, RARE_SMOKE)
    run = overheard(network, births, "mt-pp", CALM)
    pulled_from = first_pull(run, "m", "t")
    smokes = [event for _, _, event in births if event.type == "Smoke"]
    crossed = [row for row in run.rows("t", "m") if row[0] > pulled_from]
    assert crossed
    for row in crossed:
        values = dict(zip(TYPES[1].attributes, row[4:], strict=True))
        assert any(
            smoke.ts - 50 * MS <= row[0] <= smoke.ts and values["area"] == smoke.attributes["area"] for smoke in smokes
        )
        assert values["value"] > 45


def first_pull(run: Overheard, parent: str, child: str) -> float:
    """Up to where everything was pushed, as the first watermark in pull mode says."""
    for _, one, other, message in run.messages:
        if (one, other) == (child, parent):
            for watermark in getattr(message, "watermarks", ()):
                if isinstance(watermark, Watermark) and watermark.pull:
                    return watermark.ts
    raise AssertionError(f"{child} never kept anything back")


def test_the_past_of_a_master_is_asked_for_in_one_window() -> None:
    network = a_network()
    births = births_of(network, RARE_SMOKE)
    run = overheard(network, births, "mt-pp", CALM)
    smokes = {event.ts for _, _, event in births if event.type == "Smoke"}
    for message in awakenings(run, "r", "m"):
        assert message.greatest_us in smokes
        assert message.least_us == message.greatest_us - 50 * MS


def test_the_future_of_a_master_is_asked_for_in_one_window() -> None:
    network = a_network()
    births = births_of(network, RARE_TEMP)
    run = overheard(network, births, "mt-pp", CALM)
    temps = {event.ts for _, _, event in births if event.type == "Temp"}
    found = awakenings(run, "r", "s")
    for message in found:
        assert message.least_us in temps
        assert message.greatest_us == message.least_us + 50 * MS
    # Part of the answer was not yet born when it was asked for.
    sent = {id(message): at for at, _, _, message in run.messages}
    assert any(message.greatest_us > sent[id(message)] for message in found)


def test_a_window_is_decided_on_only_when_its_answer_is_complete() -> None:
    """The last Temp before a Smoke is still on its way when the Smoke is there: the decision waits for it."""
    text = FIRE.replace("each Temp(area = $a and value > 45)", "last Temp(area = $a)")
    network = a_network(text, delay_us=40 * MS)
    births = births_of(network, RARE_SMOKE)
    run = overheard(network, births, "mt-pp", CALM)
    assert slot_of(the_manager(run), "Temp").pulled
    assert matches(run) == by_pushing(network, births) != []
    late = [each for each in run.outcome.delivered if each.item.ts > 2 * SECOND]
    assert all(each.delivered_us - each.item.ts >= 4 * 40 * MS for each in late)


# -- buffers -----------------------------------------------------------------------------------------------------------


def test_reverse_marks_free_what_is_kept() -> None:
    network = a_network()
    short = overheard(network, births_of(network, RARE_SMOKE, 4 * SECOND), "mt-pp", CALM)
    long = overheard(network, births_of(network, RARE_SMOKE, 16 * SECOND), "mt-pp", CALM)
    promised = [message.ts for message in long.of(ReverseMark, "m", "t")]
    assert promised == sorted(promised)
    assert len(promised) > 20
    assert max(ts for ts in promised if ts < float("inf")) > 15 * SECOND
    assert short.checkers is not None
    assert long.checkers is not None
    for node in network.nodes:
        assert long.checkers.held_max[node] < 1.3 * short.checkers.held_max[node] + 20, node


def test_nothing_is_kept_twice_where_a_stream_only_passes() -> None:
    """m hands modes and questions on, so what is not asked for is kept at t alone."""
    network = a_network()
    run = Middle(network, births_of(network, RARE_SMOKE))
    assert run.most_at_source > 20
    assert run.most_on_the_way == 0


class Middle(Overheard):
    """Looks at what m and t keep of a pulled stream."""

    def __init__(self, network: Network, births: list[Birth]) -> None:
        self.most_at_source = self.most_on_the_way = 0
        super().__init__(network, "mt-pp", 0, faults=Faults(), check=True, settings=CALM)
        self.set_up(births[0][0] - SECOND)
        self.run(births)

    def _bear(self, source: int, event: Event) -> None:
        super()._bear(source, event)
        self.most_at_source = max(self.most_at_source, self.kept("t"))
        self.most_on_the_way = max(self.most_on_the_way, self.kept("m"))

    def kept(self, node: str) -> int:
        return sum(len(outlet._kept) for outlet in self.nodes[node].outlets.values())


# -- modes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["st-pp", "mt-pp"])
@pytest.mark.parametrize("seed", range(6))
def test_changing_masters_all_the_time_loses_and_doubles_nothing(strategy: str, seed: int) -> None:
    network = a_network()
    births = births_of(network, (60 * MS, 15 * MS), 2 * SECOND, seed)
    run = overheard(network, births, strategy, RESTLESS, seed=seed)
    assert len(run.of(SetMode)) > 20
    assert len({message.pull for message in run.of(SetMode)}) == 2
    must = by_pushing(network, births)
    assert matches(run) == must
    assert len(must) > 10


def test_what_was_kept_comes_when_the_stream_is_pushed_again() -> None:
    network = a_network()
    births = births_of(network, (60 * MS, 15 * MS), 2 * SECOND)
    run = overheard(network, births, "mt-pp", RESTLESS)
    for (_, _), outlet in run.nodes["t"].outlets.items():
        assert outlet.pull or not outlet._kept
    back = [watermark for watermark in watermarks(run, "t") if not watermark.pull and watermark.mode]
    assert back
    pushed = {row[1:3] for row in run.rows("t", "m")}
    upto = max(watermark.ts for watermark in back if watermark.ts < float("inf"))
    hot = {(event.node, event.seq) for _, _, event in births if is_hot(event)}
    early = {(event.node, event.seq) for _, _, event in births if event.ts <= upto - 200 * MS}
    missing = (hot & early) - pushed
    freed = [message.ts for message in run.of(ReverseMark, "m", "t")]
    # Only what a reverse mark has freed may have stayed behind.
    assert all(event.ts < max(freed) for _, _, event in births if (event.node, event.seq) in missing)


def watermarks(run: Overheard, sender: str) -> Iterator[Watermark]:
    for _, one, _, message in run.messages:
        if one == sender:
            yield from getattr(message, "watermarks", ())


# -- relays and steps --------------------------------------------------------------------------------------------------


def test_nothing_crosses_until_it_is_asked_for() -> None:
    """No Smoke at all in the second half: no Temp crosses any link any more."""
    network = a_network()
    births = [
        birth
        for birth in births_of(network, RARE_SMOKE, 6 * SECOND)
        if birth[2].type == "Temp" or birth[2].ts < 3 * SECOND
    ]
    run = overheard(network, births, "mt-pp", CALM)
    late = [row for row in run.rows() if row[0] > 3 * SECOND]
    assert late == []
    assert len([birth for birth in births if birth[2].ts > 3 * SECOND]) > 100
    early = [row for row in run.rows("t", "m") if first_pull(run, "m", "t") < row[0] <= 3 * SECOND]
    assert early


def test_a_pulled_part_may_itself_be_made_of_pulled_parts() -> None:
    """r asks m for what m has put together, and m has asked t for its share: w is rarer than t, and s than both."""
    text = """
    define Storm(area: string)
    from Smoke(area = $a)
     and each Wind(area = $a) within 200 ms from Smoke
     and each Temp(area = $a and value > Wind.value) within 50 ms from Wind
    where area = Smoke.area
    """
    links = (("s", "r"), ("r", "m"), ("m", "t"), ("m", "w"))
    network = a_network(text, links=links, sources=(("s", "Smoke"), ("w", "Wind"), ("t", "Temp")))
    births = births_of(network, (700 * MS, 300 * MS, 2 * MS), 10 * SECOND)
    run = overheard(network, births, "mt-pp", CALM)
    assert run.of(Awakening, "r", "m"), "r asks m for pairs"
    assert run.of(Awakening, "m", "t"), "m asks t for what lies around a Wind"
    (task,) = tasks(run, "m")
    assert task.push_pull is not None
    assert slot_of(task.push_pull, "Temp").pulled
    (inlet,) = (slot.source for slot in the_manager(run).slots if isinstance(slot.source, Inlet) and slot.pulled)
    assert inlet.child == "m"
    assert len(run.rows("m", "r")) < len(run.rows("t", "m")) < sum(1 for birth in births if birth[2].type == "Temp") / 3
    assert matches(run) == by_pushing(network, births) != []


@pytest.mark.parametrize("seed", range(4))
def test_steps_survive_changes_of_masters_too(seed: int) -> None:
    text = """
    define Storm(area: string)
    from Smoke(area = $a)
     and last Wind(area = $a) within 50 ms from Smoke
     and each Temp(area = $a) within 50 ms from Wind
     and not Temp(value > 58) as hot within 10 ms from Smoke
    where area = Smoke.area
    """
    links = (("s", "r"), ("r", "m"), ("m", "t"), ("m", "w"))
    network = a_network(text, links=links, sources=(("s", "Smoke"), ("w", "Wind"), ("t", "Temp")))
    births = births_of(network, (100 * MS, 40 * MS, 15 * MS), 2 * SECOND, seed)
    run = overheard(network, births, "mt-pp", RESTLESS, seed=seed)
    assert matches(run) == by_pushing(network, births) != []
