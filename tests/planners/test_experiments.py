"""Repeated experiments: the networks they are made on, what is measured, what is kept and what is concluded."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import pytest

from headwater.deploy.experiments.confidence import mean
from headwater.deploy.experiments.jobs import bounded_time_s
from headwater.deploy.experiments.trex.figures import DEFAULT, SWEEPS, pull_scenario
from headwater.deploy.experiments.trex.generator import build, expected_deliveries_per_s, rates_per_s
from headwater.deploy.experiments.trex.measures import measure
from headwater.deploy.experiments.trex.scenario import Scenario, degree_for
from headwater.deploy.experiments.trex.sizes import FULL, MODERATE, QUICK
from headwater.deploy.experiments.trex.topology import nearest
from headwater.deploy.simulation.outcome import Delivery, Outcome
from headwater.node.engine import Engine
from headwater.node.observe.accounts import Traffic
from headwater.protocol.analysis.validate import check_rule
from headwater.protocol.errors import ConfigError
from headwater.protocol.events import Event
from headwater.protocol.languages import Source, parse_rules
from headwater.protocol.languages.print_tesla import print_tesla
from headwater.protocol.network import Link, Network
from headwater.protocol.pattern import Chain, Selection, types_of
from headwater.protocol.strategy import TREE_STRATEGIES

SEEDS = (1, 2, 3)
SECOND_US = 1_000_000


def chain_of(network: Network, rule: int) -> Chain:
    root = network.rules[rule].pattern.root
    assert isinstance(root, Chain)
    return root


def selections(network: Network) -> list[Selection]:
    chains = (chain_of(network, number) for number in range(len(network.rules)))
    return [step for chain in chains for step in chain.steps if isinstance(step, Selection)]


def reached(network: Network, start: str) -> set[str]:
    around, found, todo = network.neighbours(), {start}, [start]
    while todo:
        for other in around[todo.pop()]:
            if other not in found:
                found.add(other)
                todo.append(other)
    return found


# -- networks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_the_default_network_has_the_size_that_the_paper_states(seed: int) -> None:
    network, _ = build(DEFAULT, seed)
    assert (len(network.nodes), len(network.types), len(network.rules)) == (20, 120, 100)
    assert 2 * len(network.links) / len(network.nodes) == 5
    assert len({(link.one, link.other) for link in network.links}) == len(network.links)
    assert all(link.one < link.other for link in network.links)
    delays = [link.delay_us for link in network.links]
    assert sum(delays) / len(delays) == pytest.approx(5_000, rel=0.02)
    assert min(delays) < 2_500
    assert max(delays) > 7_500
    assert len({rule.emits for rule in network.rules}) == 100


@pytest.mark.parametrize("scenario", [point for sweep in SWEEPS.values() for point in sweep.points.values()], ids=str)
def test_every_point_of_every_figure_gives_a_connected_network_with_right_rules(scenario: Scenario) -> None:
    network, births = build(scenario, 7)
    assert reached(network, network.nodes[0]) == set(network.nodes)
    assert [source.type for source in network.sources] == [declared.name for declared in network.types]
    assert all(not check_rule(rule) for rule in network.rules)
    assert all(len(types_of(rule.pattern)) == scenario.length for rule in network.rules), "types differ within a rule"
    per_node = Counter(sink.node for sink in network.sinks)
    assert per_node == dict.fromkeys(network.nodes, scenario.subscriptions)
    assert len({(sink.node, sink.subscription) for sink in network.sinks}) == len(network.sinks)
    assert {sink.subscription.type for sink in network.sinks} <= {rule.emits for rule in network.rules}
    assert next(births(60 * SECOND_US))


def test_small_networks_have_as_many_links_as_there_are_pairs() -> None:
    assert Scenario(processors=5, degree=5).links == 10
    assert Scenario(processors=5, degree=1).links == 4, "a tree, at least"


def test_the_degree_grows_with_the_network_so_that_hops_stay() -> None:
    assert degree_for(20) == pytest.approx(5)
    assert 2 < degree_for(5) < degree_for(10) < 5 < degree_for(50) < 10


def test_rules_are_sequences_of_last_within_that_the_language_can_say() -> None:
    network, _ = build(DEFAULT, 1)
    chain = chain_of(network, 0)
    first, second = chain.steps
    assert isinstance(first, Selection)
    assert isinstance(second, Selection)
    assert (first.within.origin, second.within.origin) == (chain.anchor.role, first.leaf.role)
    assert {each.policy for each in selections(network)} == {"last"}
    lengths = [each.within.length_us / 1e6 for each in selections(network)]
    assert 30 <= min(lengths) < 45 < 75 < max(lengths) <= 90
    assert sum(lengths) / len(lengths) == pytest.approx(60, rel=0.05)
    text = "\n".join(print_tesla(rule) for rule in network.rules)
    assert parse_rules([Source(text, "rules.tesla", "tesla")], network.types).rules == network.rules


def test_the_engine_finds_about_as_many_composite_events_as_are_expected() -> None:
    scenario = replace(DEFAULT, each_share=0.05, values=2)
    network, births = build(scenario, 4)
    until_us = 1_000 * SECOND_US
    engine = Engine(network.rules, network.types)
    found = Counter(each.type for each in engine.feed([event for _, _, event in births(until_us)]))
    found += Counter(each.type for each in engine.close())
    delivered = sum(found[sink.subscription.type] for sink in network.sinks)
    expected = expected_deliveries_per_s(network, rates_per_s(scenario, 4), scenario.values) * 1_000
    assert delivered == pytest.approx(expected, rel=0.3)


@pytest.mark.parametrize("share", [0, 0.1, 0.3])
def test_the_asked_share_of_selections_is_each(share: float) -> None:
    network, _ = build(replace(DEFAULT, each_share=share), 3)
    assert sum(each.policy == "each" for each in selections(network)) == round(200 * share)


def test_every_rule_selects_one_value_of_its_events() -> None:
    network, births = build(replace(DEFAULT, values=10), 1)
    for rule in network.rules:
        assert len(rule.pattern.where) == 3
        assert len({condition.right for condition in rule.pattern.where}) == 1  # type: ignore[union-attr]
    seen = Counter(event[4] for _, _, event in births(100 * SECOND_US))
    assert sorted(seen) == list(range(10))
    assert min(seen.values()) > 0.8 * max(seen.values())
    assert not build(DEFAULT, 1)[0].rules[0].pattern.where


def test_rules_of_a_class_share_types_that_are_born_near_to_each_other() -> None:
    scenario = replace(DEFAULT, rules_per_class=10, processors_per_class=3)
    network, _ = build(scenario, 2)
    home = {source.type: source.node for source in network.sources}
    used = [set().union(*(types_of(rule.pattern) for rule in network.rules[number::10])) for number in range(10)]
    assert all(not one & other for one, other in itertools.combinations(used, 2))
    for types in used:
        homes = {home[name] for name in types}
        assert len(homes) <= 3
        assert any(homes <= set(nearest(network.nodes, network.links, centre, 3)) for centre in network.nodes)


def test_nearest_goes_by_delay_not_by_hops() -> None:
    links = [Link("a", "b", 10), Link("b", "c", 10), Link("a", "d", 50)]
    assert nearest("abcd", links, "a", 3) == ["a", "b", "c"]


@pytest.mark.parametrize("length", range(2, 7))
def test_in_the_scenario_for_pull_no_type_is_read_by_two_rules(length: int) -> None:
    network, _ = build(pull_scenario(length), 1)
    uses = Counter(name for rule in network.rules for name in types_of(rule.pattern))
    assert len(network.nodes) == 50
    assert set(uses.values()) == {1}
    assert len(uses) == 100 * length


def test_scenarios_that_differ_in_one_aspect_agree_in_the_others() -> None:
    few, births = build(replace(DEFAULT, subscriptions=2), 5)
    many, other_births = build(replace(DEFAULT, subscriptions=20), 5)
    assert (few.links, few.rules, few.sources) == (many.links, many.rules, many.sources)
    assert set(few.sinks) < set(many.sinks)
    until = 10 * SECOND_US
    assert list(births(until)) == list(other_births(until))
    fewer_rules, _ = build(replace(DEFAULT, rules=50), 5)
    assert [rule.pattern for rule in fewer_rules.rules] == [rule.pattern for rule in few.rules[:50]]


def test_the_same_seed_gives_the_same_network_and_events_and_another_seed_others() -> None:
    until = 20 * SECOND_US
    (one, births), (again, births_again), (other, other_births) = (
        build(DEFAULT, 1),
        build(DEFAULT, 1),
        build(DEFAULT, 2),
    )
    assert one == again
    assert list(births(until)) == list(births_again(until)) == list(births(until))
    assert (one.links, one.rules, one.sinks, one.sources) != (other.links, other.rules, other.sinks, other.sources)
    assert list(births(until)) != list(other_births(until))


@pytest.mark.parametrize(
    "wrong",
    [{"types": 2}, {"rate_least_per_s": 0}, {"subscriptions": 101}, {"processors": 1}, {"processors_per_class": 3}],
    ids=str,
)
def test_impossible_scenarios_are_refused_with_a_sentence(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="cannot be built"):
        Scenario(**wrong)  # type: ignore[arg-type]


# -- events ------------------------------------------------------------------------------------------------------------


def test_births_are_in_order_numbered_per_node_and_born_at_their_sources() -> None:
    network, births = build(DEFAULT, 1)
    born = list(births(300 * SECOND_US))
    times = [at for at, _, _ in born]
    assert all(one < other for one, other in itertools.pairwise(times))
    numbers: Counter[str] = Counter()
    for at, source, event in born:
        numbers[event.node] += 1
        assert (event.ts, event.seq) == (at, numbers[event.node])
        assert (event.node, event.type) == (network.sources[source].node, network.sources[source].type)
        assert isinstance(event, Event)


def test_rates_span_the_range_on_a_logarithmic_scale_whatever_the_seed() -> None:
    rates = rates_per_s(DEFAULT, 1)
    assert sorted(rates) == sorted(rates_per_s(DEFAULT, 2))
    assert rates != rates_per_s(DEFAULT, 2)
    assert 0.001 < min(rates) < 0.0011
    assert 9 < max(rates) < 10
    for decade in (0.001, 0.01, 0.1, 1):
        assert sum(decade <= rate < 10 * decade for rate in rates) == 30


def test_events_come_at_the_rates_of_their_types() -> None:
    _, births = build(DEFAULT, 1)
    rates = rates_per_s(DEFAULT, 1)
    seen = Counter(source for _, source, _ in births(1_000 * SECOND_US))
    assert sum(seen.values()) == pytest.approx(1_000 * sum(rates), rel=0.02)
    for source, rate in enumerate(rates):
        # Poisson: the standard deviation is the root of the mean; five of them, so that no seed fails by chance.
        assert abs(seen[source] - 1_000 * rate) < 5 * (1_000 * rate) ** 0.5 + 1


def test_intervals_between_events_of_a_type_are_exponential() -> None:
    _, births = build(Scenario(types=3, rules=1, subscriptions=1, rate_least_per_s=5), 1)
    times = [at for at, source, _ in births(1_000 * SECOND_US) if source == 0]
    waits = sorted(later - earlier for earlier, later in itertools.pairwise(times))
    centre = sum(waits) / len(waits)
    assert waits[len(waits) // 2] / centre == pytest.approx(0.693, rel=0.05)


# -- figures -----------------------------------------------------------------------------------------------------------


def test_figures_10_to_20_are_there_and_start_from_the_default_scenario() -> None:
    assert sorted(SWEEPS) == list(range(10, 21))
    through_default = {figure for figure, sweep in SWEEPS.items() if DEFAULT in sweep.points.values()}
    assert through_default == {10, 11, 12, 13, 14, 15, 16, 19}
    assert SWEEPS[16].points[50].rules == 250
    assert SWEEPS[16].points[50].types == 300
    assert SWEEPS[18].points[20].values == 10


def test_a_run_that_several_figures_need_is_made_once() -> None:
    made = MODERATE.jobs([10, 12], ["st"])
    assert len(made) == 3 * len(SWEEPS[12].points)
    assert [job.places for job in made if len(job.places) > 1] == [((10, 0.0), (12, 10.0))] * 3


def test_quick_answers_the_findings_with_ten_windows_and_one_seed() -> None:
    made = QUICK.jobs(list(QUICK.points or ()), TREE_STRATEGIES)
    assert {job.seed for job in made} == {1}
    assert all(job.time_s >= 10 * job.scenario.window_s for job in made)
    assert {(figure, job.strategy) for job in made for figure, _ in job.places} == {
        *((10, strategy) for strategy in TREE_STRATEGIES),
        *((12, strategy) for strategy in ("st", "mt")),
        *((20, strategy) for strategy in ("st", "mt", "st-pp", "mt-pp")),
    }
    assert len(made) == 5 + 2 * 4 + 4


def test_full_is_a_day_and_ten_seeds() -> None:
    made = FULL.jobs([13], ["st"])
    assert {job.time_s for job in made} == {86_400}
    assert {job.seed for job in made} == set(range(1, 11))


def test_runs_with_too_many_composite_events_are_shortened_but_span_three_windows() -> None:
    busy = replace(DEFAULT, each_share=0.3)
    assert bounded_time_s(1_200, DEFAULT, 1) == 1_200
    assert 180 <= bounded_time_s(1_200, busy, 1) < 1_200
    assert bounded_time_s(100, busy, 1) == 100


# -- measuring ---------------------------------------------------------------------------------------------------------


def outcome(*deliveries: tuple[int, int], **events_by_kind: int) -> Outcome:
    """Deliveries as (occurred, delivered) in microseconds; as many events of each kind on one link."""
    made = Outcome("st")
    made.born = [Event("A", ts, "p", seq) for seq, (ts, _) in enumerate(deliveries)]
    made.delivered = [Delivery(0, "p", made.born[i], at) for i, (_, at) in enumerate(deliveries)]
    made.traffic = {("p", "q", kind): Traffic(n, n // 2, n * 10) for kind, n in events_by_kind.items()}
    return made


def test_measures_leave_the_warm_up_out() -> None:
    whole = outcome((5, 1_005), (20, 4_020), (30, 2_030), match=50, composite=30, watermark=400)
    found = measure(whole, outcome((5, 1_005), match=10, watermark=100), from_us=10, until_us=2_000_010)
    assert (found.born, found.delivered) == (2, 2)
    assert found.delay_mean_ms == 3
    assert (found.delay_p50_ms, found.delay_max_ms) == (2, 4)
    assert found.events_per_s["match"] == 20
    assert found.traffic_per_s == (40 + 30) / 2, "events over two seconds, watermarks left out"
    assert found.events_per_s["watermark"] == 150
    assert found.bytes_per_s["composite"] == 150


def test_without_deliveries_there_is_no_delay() -> None:
    found = measure(outcome(match=1), outcome(), 0, SECOND_US)
    assert (found.delivered, found.delay_mean_ms, found.delay_p95_ms) == (0, None, None)


def test_a_mean_has_a_confidence_interval_from_two_values_on() -> None:
    assert mean([3.0]).half_width is None
    found = mean([1.0, 2.0, 3.0])
    assert found.value == 2
    assert found.half_width == pytest.approx(4.303 / 3**0.5, rel=1e-3)
    assert mean([2.0] * 50).half_width == 0
