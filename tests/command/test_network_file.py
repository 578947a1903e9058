"""The network file: what it says, and what is said about one that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.deploy.cli.command import main
from headwater.deploy.network.file import MqttFeed, NetworkFile, NetworkFileError, RateFeed, TraceFeed, read_network
from headwater.deploy.network.units import bandwidth_bps, rate_per_s
from headwater.protocol.edge import Broker, Choice, Count, Cycle, Normal, Uniform
from headwater.protocol.errors import ConfigError
from headwater.protocol.events import EventType
from headwater.protocol.functions import Functions
from headwater.protocol.network import Link, Sink, Source
from headwater.protocol.subscriptions import Subscription, parse_subscription

PROJECT = Path(__file__).parent.parent.parent
FIRE = "define Fire(area: string)\nfrom Smoke() and last Temp(area = Smoke.area) within 5 min from Smoke\n"
FIRE += "where area = Smoke.area\n"

GOOD = """\
events:
  Smoke: {area: string}
  Temp: {area: string, value: float?}
  Rain: {}
nodes: [p1, p2, p3]
links:
  - {between: [p1, p2], delay: 5ms, bandwidth: 10Mbit, jitter: 200us, loss: 1%}
  - {between: [p2, p3]}
sources:
  - {node: p2, type: Smoke, trace: smoke.csv, lateness: 2s}
  - {node: p3, type: Temp, rate: 2/s, values: {area: {choice: [A1, A2]}}}
sinks:
  - {node: p1, subscribe: "Fire(area = 'A1')"}
rules:
  - fire.tesla
strategy: mt
duration: 10 min
seed: 7
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "fire.tesla").write_text(FIRE)
    (tmp_path / "smoke.csv").write_text("type,ts,area\nSmoke,1000,A1\n")
    return tmp_path


def read(folder: Path, text: str) -> NetworkFile:
    (folder / "network.yaml").write_text(text)
    return read_network(folder / "network.yaml")


def changed(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new)


def mistakes(folder: Path, text: str) -> list[str]:
    """``line: message [cure]`` of every mistake."""
    with pytest.raises(NetworkFileError) as raised:
        read(folder, text)
    return [f"{each.line}: {each.message} [{each.hint}]" for each in raised.value.diagnostics]


def warnings(folder: Path, text: str) -> list[str]:
    return [f"{each.line}: {each.message} [{each.hint}]" for each in read(folder, text).warnings]


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


# --- what is wrong with it --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        # nodes and links
        ("[p1, p2, p3]", "[p1, p2, p3, p2]", ["5: there is already a node 'p2' [leave one out]"]),
        ("[p1, p2, p3]", "p1", ["5: nodes must be a list [write nodes: [a, b, c]]"]),
        ("[p2, p3]", "[p2, p2]", ["6: falls into 2 parts: p1, p2 | p3 [link them", "8: this links p2 to itself"]),
        ("[p2, p3]", "[p2, p1]", ["6: falls into 2 parts", "8: p2 and p1 are linked already [see line 7;"]),
        ("[p2, p3]", "[p2]", ["8: a link has two ends, not 1 [write between: [a, b]]"]),
        ("{between: [p2, p3]}", "{delay: 5ms}", ["8: a link needs its two ends"]),
        ("{between: [p2, p3]}", "[p2, p3]", ["8: a link must be a mapping"]),
        ("delay: 5ms", "delay: 5", ["7: delay: '5' is not a duration; write a number and a unit"]),
        ("delay: 5ms", "delay: -5ms", ["7: delay cannot be negative"]),
        ("delay: 5ms", "deley: 5ms", ["7: a link has no key 'deley' [did you mean 'delay'?]"]),
        ("10Mbit", "10Mb", ["7: bandwidth: '10Mb' is not a bandwidth"]),
        ("loss: 1%", "loss: 120%", ["7: loss: '120%' is not a share"]),
        ("links:\n", "linsk:\n", ["5: falls into 3 parts: p1 | p2 | p3", "6: no key 'linsk' [did you mean 'links'?]"]),
        # sources
        ("{node: p2, type: Smoke,", "{node: P2, type: Smoke,", ["10: there is no node 'P2' [did you mean 'p2'?]"]),
        ("type: Smoke,", "type: Smok,", ["10: event type 'Smok' is not declared [did you mean 'Smoke'?]"]),
        ("type: Smoke,", "type: Fire,", ["10: Fire is what a rule makes of other events"]),
        ("node: p2, type: Smoke, ", "", ["10: this source does not say its node and type"]),
        ("{node: p2, type: Smoke,", "{node: [p2, P2], type: Smoke,", ["10: there is no node 'P2'"]),
        ("type: Smoke,", "type: [Smoke, Fire, Smok],", ["10: Fire is what a rule makes", "10: 'Smok' is not declared"]),
        ("node: p2, type: Smoke,", "node: [], type: Smoke,", ["10: this source names no node"]),
        ("trace: smoke.csv, ", "", ["10: does not say where its events come from [write one of trace: FILE"]),
        ("trace: smoke.csv", "trace: smoke.csv, mqtt: x", ["10: has both trace and mqtt"]),
        ("trace: smoke.csv", "trace: fog.csv", ["10: there is no trace"]),
        ("trace: smoke.csv", "trace: fire.tesla", ["10: cannot tell the format of fire.tesla"]),
        ("trace: smoke.csv", "trace: smoke.csv, values: {}", ["10: values belongs to rate"]),
        ("lateness: 2s", "lateness: soon", ["10: lateness: 'soon' is not a duration"]),
        ("rate: 2/s", "rate: 2", ["11: rate: '2' is not a rate; write events per unit of time, as in 2/s"]),
        ("rate: 2/s", "rate: 0/s", ["11: a rate is more than nothing"]),
        ("rate: 2/s", "rate: 2/s, times: often", ["11: times cannot be 'often' [write regular or poisson]"]),
        (", values: {area: {choice: [A1, A2]}}", "", ["11: nothing says which values Temp events have for area"]),
        ("{choice: [A1, A2]}", "x, valeu: 3", ["11: Temp has no attribute 'valeu' [did you mean 'value'?]"]),
        ("{choice: [A1, A2]}", "x, value: hot", ["11: Temp.value is a float, but 'hot' is not"]),
        ("{choice: [A1, A2]}", "x, value: {uniform: [5, 1]}", ["11: 5 is more than 1 [write the smaller"]),
        ("{choice: [A1, A2]}", "x, value: {uniform: [5]}", ["11: uniform takes two numbers, not 1"]),
        ("{choice: [A1, A2]}", "x, value: {normal: [5, -1]}", ["11: a deviation cannot be negative"]),
        ("{choice: [A1, A2]}", "{uniform: [1, 2]}", ["11: Temp.area is a string, not a number"]),
        ("{choice: [A1, A2]}", "{choose: [1, 2]}", ["11: no key 'choose' [did you mean 'choice'?]"]),
        ("{choice: [A1, A2]}", "[A1, A2]", ["11: Temp.area is given a list [write {choice: [..]}"]),
        ("{choice: [A1, A2]}", "{choice: {}}", ["11: choice needs at least one value"]),
        ("{choice: [A1, A2]}", "{choice: {A1: 2, A1: 3}}", ["11: 'A1' stands twice in choice"]),
        ("{choice: [A1, A2]}", "{choice: }", ["11: choice must be a list [write {choice: [a, b, c]}]"]),
        ("{choice: [A1, A2]}", "{}", ["11: Temp.area needs exactly one way to draw its values"]),
        ("{choice: [A1, A2]}", "~", ["11: Temp.area must be a single value"]),
        ("{area: {choice: [A1, A2]}}", "[A1]", ["11: values must be a mapping of names to values"]),
        ("{choice: [A1, A2]}", "x, value: {choice: [a, 1, b]}", ["11: but 'a' is not", "11: but 'b' is not"]),
        # sinks
        ("Fire(area = 'A1')", "Fier(area = 'A1')", ["13: unknown event type 'Fier' [did you mean 'Fire'?]"]),
        ("Fire(area = 'A1')", "Snow", ["13: unknown event type 'Snow' [no rule emits it and events: does not"]),
        ("Fire(area = 'A1')", "Fire(aera = 'A1')", ["13: Fire has no attribute 'aera'"]),
        (", subscribe: \"Fire(area = 'A1')\"", "", ["13: this sink does not say its subscribe"]),
        (
            "\"Fire(area = 'A1')\"",
            "Fire(area = 'A1', area != 'x')",
            ["13: the subscription ends too early", "13: [a text that holds a comma must stand in quotes]"],
        ),
        # rules and settings
        ("- fire.tesla", "- smoke.tesla", ["15: there is no rule file"]),
        ("- fire.tesla", "- fire.txt", ["15: neither a rule nor a rule file [rule files end in .tesla or .sase]"]),
        (
            "- fire.tesla",
            "- 'F: SEQ(Smoke s, Fog f) WITHIN 5 s'",
            ["15: unknown event type 'Fog' [declare it under events:"],
        ),
        (
            "- fire.tesla",
            "- 'Fire: SEQ(Smoke s, Temp t) WITHIN 5'",
            ["13:", "15: counts events [write strategy: centr"],
        ),
        (
            "strategy: mt",
            "strategy: mt-p",
            ["16: unknown strategy 'mt-p' [did you mean 'mt-pp'? strategies: centr, st"],
        ),
        ("duration: 10 min", "duration: 10", ["17: duration: '10' is not a duration"]),
        ("duration: 10 min", "duration: 0s", ["17: a duration of nothing"]),
        ("seed: 7", "seed: x", ["18: 'x' is no seed"]),
        ("seed: 7", "seed: 7\nseed: 8", ["19: 'seed' stands twice"]),
        # events
        ("{area: string}", "{area: strng}", ["2: unknown kind 'strng' [write int"]),
        ("{area: string}", "{ts: int}", ["2: every event has 'ts' already"]),
        ("Rain: {}", "2Rain: {}", ["4: '2Rain' cannot be the name of an event type"]),
    ],
)
def test_a_mistake_is_told_with_its_line_and_its_cure(folder: Path, old: str, new: str, expected: list[str]) -> None:
    found = mistakes(folder, changed(old, new))
    assert len(found) >= len(expected)
    for wanted in expected:
        line, _, rest = wanted.partition(":")
        words, _, cure = (
            rest.strip().partition(" [") if not rest.strip().startswith("[") else ("", "", rest.strip()[1:])
        )
        assert any(each.startswith(f"{line}: ") and words in each and cure in each for each in found), (wanted, found)


def test_one_mistake_makes_one_diagnostic(folder: Path) -> None:
    for old, new in [
        ("{area: string}", "{area: strng}"),
        ("delay: 5ms", "delay: 5"),
        ("mt", "nt"),
        ("Smoke,", "Smok,"),
    ]:
        assert len(mistakes(folder, changed(old, new))) == 1, new


def test_all_mistakes_are_told_in_the_order_of_the_file(folder: Path) -> None:
    text = changed("delay: 5ms", "delay: 5").replace("strategy: mt", "strategy: nt").replace("node: p1", "node: p9")
    assert [each.split(":")[0] for each in mistakes(folder, text)] == ["7", "13", "16"]


def test_a_part_that_is_left_out_for_a_mistake_hides_none_of_its_other_mistakes(folder: Path) -> None:
    text = changed("  - {between: [p2, p3]}", "  - {delay: -1s, loss: 2, deley: 5ms, delay: 1s}")
    text = text.replace("{node: p1, subscribe", "{nod: p1, to: stdot, subscribe")
    assert mistakes(folder, text) == [
        "8: a link needs its two ends [write - {between: [a, b], delay: 5ms}]",
        "8: delay cannot be negative [leave the sign out]",
        "8: loss: '2' is not a share of frames that a link may lose; write 1% or 0.01, at most 99% []",
        "8: a link has no key 'deley' [did you mean 'delay'?]",
        "8: 'delay' stands twice in a link [leave one out]",
        """13: this sink does not say its node [write - {node: a, subscribe: "Fire(area = 'A1')"}]""",
        "13: a sink has no key 'nod' [did you mean 'node'?]",
        "13: a sink cannot go to 'stdot' [did you mean 'stdout'? write to: stdout, client, {file: PATH}, "
        "{mqtt: TOPIC}, {webhook: URL} or {client: NAME}]",
    ]


def test_what_is_left_out_for_a_mistake_is_not_missed_elsewhere(folder: Path) -> None:
    text = changed("[p1, p2, p3]", "{p1: {lisen: x}, p2: 7, p3: }").replace("Rain: {}", "Rain: 3")
    assert mistakes(folder, text.replace("Fire(area = 'A1')", "Rain")) == [
        "4: event type Rain must be a mapping of names to values [write Rain: {area: string, value: float?}]",
        "5: node p1 has no key 'lisen' [did you mean 'listen'?]",
        "5: node p2 must be a mapping of names to values [write p1: {listen: 127.0.0.1:7001}]",
    ]


def test_a_part_that_holds_itself_is_told_like_any_other(folder: Path) -> None:
    assert mistakes(folder, changed("{between: [p2, p3]}", "&a [*a]")) == [
        "8: a link must be a mapping of names to values [write - {between: [a, b], delay: 5ms}]"
    ]
    assert "8: the end of a link must be a name or a text []" in mistakes(folder, changed("[p2, p3]", "&a [p2, *a]"))


def test_a_mistake_shows_its_line_with_a_caret(folder: Path) -> None:
    with pytest.raises(NetworkFileError) as raised:
        read(folder, changed("delay: 5ms", "deley: 5ms"))
    place, shown, pointer = str(raised.value).splitlines()
    assert place == f"{folder / 'network.yaml'}:7:25: a link has no key 'deley'"
    assert shown[pointer.index("^") :].startswith("deley")


@pytest.mark.parametrize("header", ["|", "'"])
def test_a_mistake_in_an_inline_rule_is_told_where_it_stands_in_the_file(folder: Path, header: str) -> None:
    rule = "X: SEQ(Smoke s, Temp t) WHERE s.aera = 'x' WITHIN 5 s"
    inline = f"  - |\n      # why\n      {rule}" if header == "|" else f"  - '{rule.replace(chr(39), chr(39) * 2)}'"
    with pytest.raises(NetworkFileError) as raised:
        read(folder, changed("  - fire.tesla", inline))
    found = next(each for each in raised.value.diagnostics if "aera" in each.message)
    assert found.line == (17 if header == "|" else 15)
    assert found.shown[found.caret :].startswith("aera")


def test_a_mistake_in_a_rule_file_names_that_file(folder: Path) -> None:
    (folder / "fire.tesla").write_text(FIRE.replace("Smoke.area)", "Smoke.aera)"))
    with pytest.raises(NetworkFileError, match=r"fire.tesla:2:\d+: Smoke has no attribute 'aera'"):
        read(folder, GOOD)


def test_a_broken_rule_makes_no_further_complaints_about_what_it_would_emit(folder: Path) -> None:
    (folder / "fire.tesla").write_text(FIRE.replace("define", "defin"))
    assert len(mistakes(folder, GOOD)) == 1


def test_a_circle_of_rules_is_an_error(folder: Path) -> None:
    (folder / "fire.tesla").write_text("define A() from B()\ndefine B() from A()\n")
    assert any("in a circle: A -> B -> A" in each for each in mistakes(folder, GOOD))


def test_a_count_window_needs_the_central_strategy(folder: Path) -> None:
    text = changed("- fire.tesla", "- 'Fire: SEQ(Smoke s, Temp t) WITHIN 5 RETURN Fire(area = s.area)'")
    assert any("counts events" in each for each in mistakes(folder, text))
    assert read(folder, text.replace("strategy: mt", "strategy: centr")).network.strategy == "centr"


def test_a_given_strategy_replaces_that_of_the_file_before_anything_is_checked(folder: Path) -> None:
    text = changed("- fire.tesla", "- 'Fire: SEQ(Smoke s, Temp t) WITHIN 5 RETURN Fire(area = s.area)'")
    (folder / "network.yaml").write_text(text)
    assert read_network(folder / "network.yaml", strategy="centr").network.strategy == "centr"
    (folder / "network.yaml").write_text(text.replace("strategy: mt", "strategy: centr"))
    with pytest.raises(NetworkFileError, match=r"network.yaml:15:.* counts events(.|\n)*use --strategy centr"):
        read_network(folder / "network.yaml", strategy="st")
    (folder / "network.yaml").write_text(GOOD.replace("strategy: mt\n", ""))
    assert read_network(folder / "network.yaml", strategy="st-pp").network.strategy == "st-pp"


def test_a_given_duration_replaces_that_of_the_file(folder: Path) -> None:
    (folder / "network.yaml").write_text(changed("duration: 10 min\n", ""))
    found = read_network(folder / "network.yaml", duration_us=5_000_000)
    assert (found.duration_us, found.warnings) == (5_000_000, ())
    (folder / "network.yaml").write_text(GOOD)
    assert read_network(folder / "network.yaml", duration_us=5_000_000).duration_us == 5_000_000


# --- what one engine serves and a network does not --------------------------------------------------------------------

REMOTE_CURE = "leave this rule out, or evaluate it with headwater run --remote limits=FILE"


def test_a_lookup_in_a_rule_file_is_refused_where_it_stands(folder: Path) -> None:
    (folder / "fire.tesla").write_text(FIRE.replace("Temp(area = Smoke.area)", "Temp(value > REMOTE.limits[area])"))
    with pytest.raises(NetworkFileError) as raised:
        read(folder, GOOD)
    (found,) = raised.value.diagnostics
    assert (found.file, found.line) == (str(folder / "fire.tesla"), 2)
    assert found.shown[found.caret :].startswith("REMOTE.limits")
    assert (found.message, found.hint) == ("networks do not serve remote tables yet", REMOTE_CURE)


@pytest.mark.parametrize(
    "rule",
    [
        "Fire: SEQ(Smoke s, Temp t) WHERE t.value > 1 + REMOTE.limits[s.area] WITHIN 5 s RETURN Fire(area = s.area)",
        "Fire: SEQ(Smoke s, Temp t) WHERE t.area IN REMOTE.limits[s.area] WITHIN 5 s RETURN Fire(area = s.area)",
        "SEQ(Smoke s, Temp t) WITHIN 5 s RETURN Fire(area = s.area, most = REMOTE.limits[s.area])",
        "define Fire(area: string) from Smoke() and Count(Temp(value > REMOTE.limits[area]) within 5 s from Smoke) > 3 "
        "where area = Smoke.area",
    ],
)
def test_a_lookup_in_an_inline_rule_is_refused_where_it_stands(folder: Path, rule: str) -> None:
    with pytest.raises(NetworkFileError) as raised:
        read(folder, changed("  - fire.tesla", f"  - |\n    # why\n    {rule}"))
    (found,) = raised.value.diagnostics
    assert (found.file, found.line) == (str(folder / "network.yaml"), 17)
    assert found.shown[found.caret :].startswith("REMOTE.limits")
    assert found.hint == REMOTE_CURE


def test_calls_of_registered_functions_are_refused_and_those_of_built_in_ones_are_not(folder: Path) -> None:
    functions = Functions()
    functions.register("danger", lambda value: value, ("float",), "float")
    text = changed("Fire(area = 'A1')", "Fire(length(area) = 2)")
    (folder / "network.yaml").write_text(text)
    (folder / "fire.tesla").write_text(FIRE.replace("Temp(area", "Temp(ABS(value) > 3, area"))
    assert read_network(folder / "network.yaml", functions).warnings == ()
    (folder / "fire.tesla").write_text(FIRE.replace("Temp(area", "Temp(danger(value) > 3, area"))
    with pytest.raises(NetworkFileError) as raised:
        read_network(folder / "network.yaml", functions)
    (found,) = raised.value.diagnostics
    assert (found.file, found.line) == (str(folder / "fire.tesla"), 2)
    assert found.shown[found.caret :].startswith("danger(value)")
    assert found.message == "the nodes of a network do not know the function 'danger', only the built-in ones"
    assert found.hint == "leave it out, or evaluate the rule with headwater run --functions FILE.py"


def test_a_subscription_cannot_call_registered_functions(folder: Path) -> None:
    functions = Functions()
    functions.register("danger", lambda value: value, ("float",), "float")
    (folder / "network.yaml").write_text(changed("Fire(area = 'A1')", "Temp(danger(value) > 2)"))
    with pytest.raises(NetworkFileError, match=r"network.yaml:13:\d+: .*do not know the function 'danger'"):
        read_network(folder / "network.yaml", functions)


def test_an_unknown_function_is_told_with_what_a_network_has(folder: Path) -> None:
    (folder / "fire.tesla").write_text(FIRE.replace("Temp(area", "Temp(danger(value) > 3, area"))
    (found,) = mistakes(folder, GOOD)
    assert found.startswith("2: unknown function 'danger' [a network has only the built-in ones; functions: ")


def test_a_trace_that_lacks_a_column_or_is_no_trace_is_an_error(folder: Path) -> None:
    (folder / "smoke.csv").write_text("type,ts,place\nSmoke,1000,A1\n")
    assert "smoke.csv has no column area, which Smoke needs [it has: place;" in mistakes(folder, GOOD)[0]
    (folder / "smoke.csv").write_text("what,ts,area\nSmoke,1000,A1\n")
    assert mistakes(folder, GOOD)[0].startswith("10: ")


def test_a_node_numbers_all_its_events_or_none(folder: Path) -> None:
    (folder / "smoke.csv").write_text("type,ts,seq,area\nSmoke,1000,4,A1\n")
    assert read(folder, GOOD).warnings == ()
    assert "numbers its events (seq)" in mistakes(folder, changed("node: p3, type: Temp", "node: p2, type: Temp"))[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "1: the file is empty"),
        ("# nothing\n", "1: the file is empty"),
        ("- a\n- b\n", "1: this is YAML, but not a network file"),
        ("nodes: [a, b\nlinks: []\n", "this is not YAML"),
        ("nodes:\n\t- a\n", "2: a tab in the indentation"),
        ("nodes:\n  - a\n  \t- b\n: :", "3: a tab in the indentation"),
        ("nodes: a: b\n", "1: this is not YAML: mapping values are not allowed here [a text that holds ': '"),
        ("nodes: [a]\nx: \x07\n", "2: this is not YAML: a control character"),
        ("nodes:\n", "1: there are no nodes [write nodes: [a, b, c]]"),
        ("links: []\n", "1: there are no nodes"),
        ("nodes: {a: {slow: 2ms}}\n", "1: node a has no key 'slow' [write one of listen]"),
    ],
)
def test_what_is_no_network_file_is_refused_with_a_sentence(folder: Path, text: str, said: str) -> None:
    assert any(said in each for each in mistakes(folder, text))


def test_a_file_that_cannot_be_read_is_refused_with_a_sentence(folder: Path) -> None:
    with pytest.raises(ConfigError, match="there is no network file"):
        read_network(folder / "none.yaml")
    with pytest.raises(ConfigError, match="is a folder"):
        read_network(folder)
    (folder / "latin.yaml").write_bytes(b"nodes: [a]\n# gr\xfcn\n")
    with pytest.raises(ConfigError, match=r"latin.yaml:2: byte 0xfc is no UTF-8"):
        read_network(folder / "latin.yaml")


# --- what is doubtful -------------------------------------------------------------------------------------------------


def test_a_rule_without_a_source_of_a_part_can_never_fire(folder: Path) -> None:
    start = GOOD.index("  - {node: p3, type: Temp")
    text = GOOD[:start] + GOOD[GOOD.index("sinks:") :]
    found = warnings(folder, text)
    assert found == [
        "12: warning: no rule that emits Fire can ever fire [there is no source of Temp]",
        "14: warning: rule 'Fire' can never fire: there is no source of Temp [add a source, or leave the rule out]",
    ]


def test_a_rule_whose_other_branch_has_a_source_can_fire(folder: Path) -> None:
    (folder / "r.sase").write_text("Fire: OR(Smoke s, SEQ(Rain r, Rain q)) WITHIN 5 s RETURN Fire(area = s.area)\n")
    found = warnings(folder, changed("fire.tesla", "r.sase"))
    assert [each for each in found if "Fire" in each] == [
        "15: warning: rule 'Fire' reads 'Rain', which no source advertises "
        "[it is as if it never happened; add a source if it can]"
    ]


def test_a_rule_that_reads_a_silent_rule_is_silent_too(folder: Path) -> None:
    (folder / "r.sase").write_text("Wet: SEQ(Rain a, Rain b) WITHIN 5 s\nTwo: SEQ(Wet a, Smoke b) WITHIN 5 s\n")
    found = warnings(folder, changed("fire.tesla", "fire.tesla\n  - r.sase"))
    assert [each.split(" [")[0] for each in found] == [
        "16: warning: rule 'Wet' can never fire: there is no source of Rain",
        "16: warning: rule 'Two' can never fire: there is no source of Wet",
    ]


def test_a_negated_type_without_a_source_is_mentioned(folder: Path) -> None:
    (folder / "fire.tesla").write_text(FIRE.replace("where", "and not Rain() within 5 min from Smoke\nwhere"))
    assert warnings(folder, GOOD) == [
        "15: warning: rule 'Fire' reads 'Rain', which no source advertises "
        "[it is as if it never happened; add a source if it can]"
    ]


def test_a_subscription_to_a_type_without_a_source_is_mentioned(folder: Path) -> None:
    assert warnings(folder, changed("\"Fire(area = 'A1')\"", "Rain"))[0].startswith(
        "13: warning: no source advertises 'Rain'"
    )


def test_a_rate_without_a_duration_never_ends(folder: Path) -> None:
    assert warnings(folder, changed("duration: 10 min\n", "")) == [
        "11: warning: this source never ends [say how long it runs, as in duration: 10 min]"
    ]


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
    assert "network.yaml:11:5: this network lives in the times of its traces, and this source would not" in said
    assert "they cannot be mixed" in said
    assert "only a simulation can have both" in said

    swapped = LIVE.replace("rate: 2/s, values: {area: {choice: [A1, A2]}}", "trace: temp.csv")
    (folder / "temp.csv").write_text("type,ts,area\nTemp,1000,A1\n")
    (folder / "network.yaml").write_text(swapped)
    with pytest.raises(SystemExit):
        main([command, str(folder / "network.yaml"), *more])
    assert "network.yaml:11:5: this network lives in the time of the clock" in capsys.readouterr().err


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
    assert "--functions is for rule files; the nodes of a network have only the built-in functions" in err


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
