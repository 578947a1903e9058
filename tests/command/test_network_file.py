"""The network file: what it says, and what is said about one that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.deploy.cli.command import main
from headwater.deploy.network.file import MqttFeed, RateFeed, TraceFeed, read_network
from headwater.deploy.network.units import bandwidth_bps, rate_per_s
from headwater.protocol.edge import Broker, Choice, Count, Cycle, Normal, Uniform
from headwater.protocol.errors import ConfigError
from headwater.protocol.events import EventType
from headwater.protocol.network import Link, Sink, Source
from headwater.protocol.subscriptions import Subscription, parse_subscription
from tests.command.network_texts import FIRE, GOOD, changed, mistakes, read, warnings

PROJECT = Path(__file__).parent.parent.parent


# --- what it says -----------------------------------------------------------------------------------------------------


def test_every_section_becomes_a_part_of_the_network(folder: Path) -> None:
    found = read(folder, GOOD)
    network = found.network
    temp = EventType("Temp", {"area": "string", "value": "float?"})
    assert network.types == (EventType("Smoke", {"area": "string"}), temp, EventType("Rain"))
    assert network.nodes == ("p1", "p2", "p3")
    assert network.links == (Link("p1", "p2", 5_000, 10_000_000, 200, 0.01), Link("p2", "p3"))
    assert network.sources == (Source("p2", "Smoke", 2_000_000), Source("p3", "Temp"))
    assert network.sinks == (Sink("p1", parse_subscription("Fire(area = 'A1')")),)
    assert [rule.name for rule in network.rules] == ["Fire"]
    assert (network.strategy, found.duration_us, found.seed) == ("mt", 600_000_000, 7)
    area, value = Choice(("A1", "A2")), Cycle((None,))
    assert found.feeds == (TraceFeed(str(folder / "smoke.csv")), RateFeed(2.0, "poisson", (area, value)))
    assert found.warnings == ()


def test_nodes_may_be_a_mapping_and_a_sink_may_have_several_subscriptions(folder: Path) -> None:
    text = changed("[p1, p2, p3]", "{p1: {}, p2: , p3: {}}")
    text = text.replace('''"Fire(area = 'A1')"''', "[Fire, Temp(value > 3)]")
    network = read(folder, text).network
    assert network.nodes == ("p1", "p2", "p3")
    assert network.sinks == (Sink("p1", Subscription("Fire")), Sink("p1", parse_subscription("Temp(value > 3)")))


def test_a_source_with_lists_stands_for_each_type_at_each_node(folder: Path) -> None:
    (folder / "smoke.csv").write_text("type,ts,node,area\nSmoke,1000,p2,A1\n")
    text = changed("{node: p2, type: Smoke, trace", "{node: [p2, p1], type: [Rain, Smoke], trace")
    found = read(folder, text)
    assert [(each.node, each.type) for each in found.network.sources] == [
        ("p2", "Rain"), ("p2", "Smoke"), ("p1", "Rain"), ("p1", "Smoke"), ("p3", "Temp"),
    ]  # fmt: skip
    assert {each.lateness_us for each in found.network.sources[:4]} == {2_000_000}
    assert found.feeds[:4] == (TraceFeed(str(folder / "smoke.csv")),) * 4


def test_names_are_taken_as_written(folder: Path) -> None:
    network = read(folder, GOOD.replace("p1", "no").replace("p2", "007").replace("p3", "1.50")).network
    assert network.nodes == ("no", "007", "1.50")


def test_rules_may_stand_in_the_file_in_either_language(folder: Path) -> None:
    inline = "rules:\n  - |\n    # a comment\n    " + FIRE.replace("\n", "\n    ")
    inline += "\n  - 'Twice: SEQ(Smoke a, Smoke b) WITHIN 5 s'\n"
    network = read(folder, changed("rules:\n  - fire.tesla\n", inline)).network
    assert [rule.name for rule in network.rules] == ["Fire", "Twice"]


def test_event_types_may_be_declared_in_rule_files(folder: Path) -> None:
    (folder / "fire.tesla").write_text("event Smoke(area: string)\nevent Temp(area: string, value: float?)\n" + FIRE)
    start = GOOD.index("nodes:")
    assert {each.name for each in read(folder, GOOD[start:]).network.types} == {"Smoke", "Temp"}


def test_without_a_strategy_it_is_st(folder: Path) -> None:
    assert read(folder, changed("strategy: mt\n", "")).network.strategy == "st"


def test_values_are_drawn_in_all_documented_ways(folder: Path) -> None:
    text = changed(
        "  Rain: {}", "  Rain: {a: int, b: float, c: string, d: bool, e: int, f: any, g: int, h: string, i: int}"
    )
    values = "{a: {uniform: [1, 6]}, b: {normal: [20, 5]}, c: {choice: {x: 3, no: 1}}, d: true, e: {sequence: 5}, "
    values += "f: {uniform: [0.5, 1]}, g: {sequence: [3, 1]}, h: 007, i: {normal: [0, 1]}}"
    source = "sinks:\n  - {node: p1, subscribe: Rain}\nsources:\n  - {node: p1, type: Rain, rate: 60 per minute, "
    source += f"times: regular, values: {values}}}\n"
    start, end = text.index("sources:"), text.index("rules:")
    feed = read(folder, text[:start] + source + text[end:].replace("  - fire.tesla\n", "")).feeds[0]
    assert feed == RateFeed(
        1.0,
        "regular",
        (
            Uniform(1, 6, True), Normal(20, 5, False), Choice(("x", "no"), (3, 1)), Cycle((True,)), Count(5),
            Uniform(0.5, 1, False), Cycle((3, 1)), Cycle(("007",)), Normal(0, 1, True),
        ),
    )  # fmt: skip


def test_an_mqtt_source_is_accepted(folder: Path) -> None:
    found = read(folder, changed("trace: smoke.csv", "mqtt: sensors/+/smoke"))
    assert found.feeds[0] == MqttFeed("sensors/+/smoke", Broker("127.0.0.1"))


def test_the_example_is_the_network_it_says_it_is() -> None:
    found = read_network(PROJECT / "examples" / "fire" / "network.yaml")
    network = found.network
    assert network.nodes == tuple(f"p{number}" for number in range(1, 8))
    assert {(each.type, each.node) for each in network.sources} == {("Smoke", "p7"), ("Temp", "p6")}
    assert [each.node for each in network.sinks] == ["p1", "p5"]
    assert {link.delay_us for link in network.links} == {5_000}
    assert found.duration_us == 600_000_000
    assert found.warnings == ()


def test_the_network_file_of_the_documentation_can_be_read(folder: Path) -> None:
    page = (PROJECT / "docs" / "guide" / "networks.md").read_text(encoding="utf-8")
    (folder / "temp.csv").write_text("type,ts,area,value\nTemp,1000,A1,50\n")
    whole = page.split("```yaml\n", 1)[1].split("```", 1)[0]
    assert read(folder, whole).warnings == ()


# --- units and the command --------------------------------------------------------------------------------------------


def test_bandwidths_and_rates_have_units() -> None:
    assert [bandwidth_bps(text) for text in ("10Mbit", "500 kbit/s", "2 MB/s", "9600 bps", "1.5Gbit")] == [
        10_000_000, 500_000, 16_000_000, 9_600, 1_500_000_000,
    ]  # fmt: skip
    assert [rate_per_s(text) for text in ("2/s", "120/min", "36 per hour", "1e3/s")] == [2, 2, 0.01, 1000]
    for wrong in ("10", "10 Mb", "fast", "0 Mbit"):
        with pytest.raises(ConfigError):
            bandwidth_bps(wrong)


def check(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[object, str, str]:
    with pytest.raises(SystemExit) as left:
        main(["check", *map(str, arguments)])
    said = capsys.readouterr()
    return left.value.code, said.out, said.err


LIVE = changed("trace: smoke.csv", "client: any")
"""The same network, as it can run."""


def test_check_says_what_a_network_is(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "network.yaml").write_text(LIVE)
    code, out, err = check(capsys, folder / "network.yaml")
    assert code == 0
    first, rule, last = out.splitlines()
    assert first == (f"{folder / 'network.yaml'}: 3 nodes, 2 links, 2 sources, 1 sink, 1 rule; strategy mt, for 10 min")
    assert rule.startswith("Fire: emits Fire(area: string) from Smoke, last Temp")
    assert last == "ok"
    assert err == ""


def test_check_shows_all_mistakes_of_all_files_and_fails(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "network.yaml").write_text(changed("delay: 5ms", "delay: 5").replace("strategy: mt", "strategy: nt"))
    (folder / "bad.sase").write_text("X: SEQ(A a, B b)\n")
    code, out, err = check(capsys, folder / "network.yaml", folder / "bad.sase")
    assert code == 2
    assert out == ""
    for part in ("network.yaml:7:32:", "network.yaml:16:11:", "bad.sase:1:"):
        assert part in err


def test_check_warns_and_succeeds(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "network.yaml").write_text(LIVE.replace("duration: 10 min\n", ""))
    code, _, err = check(capsys, folder / "network.yaml")
    assert code == 0
    assert "network.yaml:11:5: warning: this source never ends" in err


@pytest.mark.parametrize("command", ["check", "up", "coordinator"])
def test_traces_beside_sources_that_live_by_the_clock_are_refused_where_they_stand(
    folder: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    (folder / "network.yaml").write_text(GOOD)  # Smoke from a trace, Temp at a rate
    more = ["--data", str(folder / "data")] if command == "coordinator" else []
    with pytest.raises(SystemExit) as left:
        main([command, str(folder / "network.yaml"), *more])
    assert left.value.code == 2
    said = capsys.readouterr().err
    assert "network.yaml:11:5: this network runs on the times of its traces, but this source would not" in said
    assert "they cannot be mixed" in said
    assert "only a simulation can have both" in said

    swapped = LIVE.replace("rate: 2/s, values: {area: {choice: [A1, A2]}}", "trace: temp.csv")
    (folder / "temp.csv").write_text("type,ts,area\nTemp,1000,A1\n")
    (folder / "network.yaml").write_text(swapped)
    with pytest.raises(SystemExit):
        main([command, str(folder / "network.yaml"), *more])
    assert "network.yaml:11:5: this network runs on the time of the clock" in capsys.readouterr().err


def test_check_takes_no_trace_for_a_network(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "network.yaml").write_text(GOOD)
    code, _, err = check(capsys, folder / "network.yaml", "--events", folder / "smoke.csv")
    assert code == 2
    assert "a network file names its own traces" in err


def test_check_takes_no_functions_for_a_network(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "network.yaml").write_text(GOOD)
    (folder / "f.py").write_text("def danger(value):\n    return value\n")
    code, out, err = check(capsys, folder / "network.yaml", "--functions", folder / "f.py")
    assert (code, out) == (2, "")
    assert "--functions is for rule files; a network file names its own functions (functions: FILE.py)" in err


@pytest.mark.parametrize(
    ("conditions", "said"),
    [
        ("value > 5, value < 3", "Temp.value < 3 and Temp.value > 5"),
        ("value = 5, value = 6", "Temp.value = 5 and Temp.value = 6"),
        ("value >= 5, 5 > value", "value >= 5"),
        ("value > 5, value < 6", None),
        ("value >= 5, value <= 5", None),
        ("value > 5, value > 3", None),
    ],
)
def test_conditions_that_nothing_meets_are_warned_of(tmp_path: Path, conditions: str, said: str | None) -> None:
    text = f"""
events:
  Temp: {{value: float}}
nodes: [p1]
sources:
  - {{node: p1, type: Temp, rate: 1/s, values: {{value: {{uniform: [0, 10]}}}}}}
sinks:
  - {{node: p1, subscribe: "Temp({conditions.replace(", ", " and ")})"}}
rules:
  - "define Odd() from Temp({conditions})"
duration: 1s
"""
    path = tmp_path / "network.yaml"
    path.write_text(text, encoding="utf-8")
    warnings = [str(warning) for warning in read_network(path).warnings]
    if said is None:
        assert not warnings
    else:
        assert any("rule 'Odd' can never fire: nothing meets " in warning and said in warning for warning in warnings)
        assert any("no event meets" in warning for warning in warnings)


def test_a_mistake_in_a_rule_hides_no_mistake_in_a_subscription(folder: Path) -> None:
    text = changed("- fire.tesla", "- fire.tesla\n  - \"define Odd(x: int) from Smoke(aera = 'A1') where x = 1\"")
    text = text.replace(
        "subscribe: \"Fire(area = 'A1')\"}",
        "subscribe: \"Fier(area = 'A1')\"}\n  - {node: p1, subscribe: \"Fire(aera = 'A1')\"}\n"
        '  - {node: p2, subscribe: "Odd(whatever = 1)"}',
    )
    found = mistakes(folder, text)
    assert [each.split(" [")[0].partition(": ")[2] for each in found] == [
        "unknown event type 'Fier'",
        "Fire has no attribute 'aera'",
        "Odd has no attribute 'whatever'",
        "Smoke has no attribute 'aera'",
    ], found
    assert "did you mean 'Fire'?" in found[0]


def test_a_rule_text_that_cannot_be_read_leaves_the_names_of_types_open_and_nothing_else(folder: Path) -> None:
    text = changed("- fire.tesla", '- fire.tesla\n  - "define Odd( from"')
    text = text.replace(
        "subscribe: \"Fire(area = 'A1')\"}",
        'subscribe: "Perhaps(x = 1)"}\n  - {node: p1, subscribe: "Smoke(aera = 1)"}',
    )
    found = mistakes(folder, text)
    assert [each.split(" [")[0].partition(": ")[2] for each in found] == [
        "Smoke has no attribute 'aera'",
        "the text ends too early",
    ], found


def test_a_window_that_counts_events_without_saying_so_is_warned_of(folder: Path) -> None:
    text = changed("- fire.tesla", '- fire.tesla\n  - "Two: SEQ(Smoke s, Temp t) WITHIN 5"').replace("mt\n", "centr\n")
    assert warnings(folder, text) == [
        "16: warning: this window is 5 events long, whatever time they take "
        "[write 5 s for a time, or 5 events to say that you mean it]"
    ]
    assert warnings(folder, text.replace("WITHIN 5", "WITHIN 5 events")) == []


def test_a_condition_that_is_always_true_is_warned_of_in_rules_and_subscriptions(folder: Path) -> None:
    text = GOOD.replace("Fire(area = 'A1')", "Fire(area = area)")
    text = text.replace("- fire.tesla", "- fire.tesla\n  - \"define Odd() from Smoke(area != 'a' or area != 'b')\"")
    said = [each.partition(": ")[2] for each in warnings(folder, text)]
    assert said == [
        "warning: `event.area = event.area` is true of every event that has the value "
        "[name another event on one side, or leave it out]",
        "warning: rule 'Odd': `Smoke.area != 'a' or Smoke.area != 'b'` is true of every event that has the value "
        "[write and instead of or, or correct one of them]",
    ]


def test_a_rule_file_is_no_network(tmp_path: Path) -> None:
    path = tmp_path / "fire.tesla"
    path.write_text("define Fire() from Smoke()", encoding="utf-8")
    with pytest.raises(ConfigError, match="holds rules; name a network file"):
        read_network(path)
