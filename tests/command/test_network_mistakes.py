"""What is wrong with a network file, or doubtful, is said where it stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.deploy.network.file import NetworkFileError, read_network
from headwater.protocol.errors import ConfigError
from tests.command.network_texts import FIRE, GOOD, changed, mistakes, read, warnings

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
        ("seed: 7", "seed: x", ["18: 'x' is not a seed"]),
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


def test_a_mistake_in_a_rule_hides_none_in_sources_and_other_rules(folder: Path) -> None:
    broken = "X: SEQ(Smoke s, Temp t) WHERE s.aera = 'A1' WITHIN 5 s"
    text = changed("  - fire.tesla", f'  - fire.tesla\n  - "{broken}"').replace("type: Smoke", "type: Smok")
    wrong = ["event type 'Smok' is not declared [did you mean 'Smoke'?]", "Smoke has no attribute 'aera'"]
    assert all(any(words in each for each in mistakes(folder, text)) for words in wrong), mistakes(folder, text)
    text = text.replace("fire.tesla", "gone.tesla").replace("Temp t", "Elsewhere t")
    found = mistakes(folder, text)
    assert [each.partition(": ")[2].partition(" [")[0] for each in found] == [
        f"there is no rule file {folder / 'gone.tesla'}",
        "Smoke has no attribute 'aera'",
    ], "the file that is not there may declare whatever is not known"


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

REMOTE_CURE = "describe it, as in remote: {limits: {file: limits.csv}}"
LOOKS_UP = FIRE.replace("Temp(area = Smoke.area)", "Temp(value > REMOTE.limits[area])")


def test_a_lookup_in_a_rule_file_is_refused_where_it_stands(folder: Path) -> None:
    (folder / "fire.tesla").write_text(LOOKS_UP)
    with pytest.raises(NetworkFileError) as raised:
        read(folder, GOOD)
    (found,) = raised.value.diagnostics
    assert (found.file, found.line) == (str(folder / "fire.tesla"), 2)
    assert found.shown[found.caret :].startswith("REMOTE.limits")
    assert (found.message, found.hint) == ("there is no remote table 'limits'", REMOTE_CURE)


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


REMOTE = """
remote:
  limits: {sqlite: limits.db, query: 'select most from limits where area = ?', keys: [area]}
  names: names.csv
  risk: {python: 'risks:risk'}
  streets: {redis: '127.0.0.1:6379', key: 'street:{area}', at: [p1, p3]}
remote_strategy: lazy
remote_strategies: {Fire: last}
remote_cache: cost
remote_priorities: {Fire: 2.5}
"""
ONE_TREE = GOOD.replace("strategy: mt", "strategy: st")


def test_remote_tables_are_described_for_nodes_wherever_they_run(folder: Path) -> None:
    (folder / "fire.tesla").write_text(LOOKS_UP)
    network = read(folder, ONE_TREE + REMOTE).network
    tables = {table.name: table for table in network.tables}
    assert (network.remote_strategy, network.remote_cache) == ("lazy", "cost")
    assert network.remote_priorities == (("Fire", 2.5),)
    assert network.remote_strategies == (("Fire", "last"),)
    assert list(tables) == ["limits", "names", "risk", "streets"]
    assert tables["names"].description == f"{{file: {folder / 'names.csv'}}}"
    assert f"sqlite: {folder / 'limits.db'}" in tables["limits"].description
    assert (tables["streets"].at, tables["names"].at) == (("p1", "p3"), ())
    assert "at" not in tables["streets"].description


def test_a_function_as_a_table_is_only_simulated(folder: Path) -> None:
    (folder / "fire.tesla").write_text(LOOKS_UP)
    network_file = read(folder, ONE_TREE + REMOTE)
    (reason,) = [found for found in network_file.only_simulated if "function" in found.message]
    assert reason.message == "the table risk is a function, which only a simulation and headwater run call"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("names: names.csv", "limits: names.csv", "there are two tables limits [call one of them otherwise]"),
        ("names: names.csv", "2nd: names.csv", "a table must have a name of letters, digits and _"),
        ("names: names.csv", "names: {fiel: names.csv}", "the table names names no provider [did you mean 'file'?]"),
        ("at: [p1, p3]", "at: [p1, p4]", "there is no node 'p4' [nodes: p1, p2, p3]"),
        ("at: [p1, p3]", "at: []", "at: names the nodes that reach the table [write at: [p3, p4]]"),
        ("at: [p1, p3]", "fresh: soon", "'soon' is not a duration"),
        ("keys: [area]", "keys: [area, street]", "a key of the table limits has 2 values, not 1"),
        ("strategy: lazy", "strategy: lasy", "unknown strategy 'lasy' [did you mean 'lazy'?"),
        ("{Fire: last}", "{Fyre: last}", "there is no rule 'Fyre' [did you mean 'Fire'?]"),
        ("{Fire: last}", "{Fire: lest}", "the remote strategy of Fire is unknown [did you mean 'last'?]"),
        ("{Fire: last}", "{Fire: last, Fire: lazy}", "Fire has two remote strategies [leave one of them out]"),
        ("{Fire: last}", "last", "remote_strategies: names rules, each with a strategy [write Raised: lazy]"),
        ("cache: cost", "cache: costs", "there is no cache 'costs' [did you mean 'cost'?"),
        ("{Fire: 2.5}", "{Fyre: 2.5}", "there is no rule 'Fyre' [did you mean 'Fire'?]"),
        ("{Fire: 2.5}", "{Fire: 0}", "the priority of Fire is no number above 0 [write Fire: 3]"),
        ("{Fire: 2.5}", "{Fire: high}", "the priority of Fire is no number above 0 [write Fire: 3]"),
        ("{Fire: 2.5}", "3", "remote_priorities: names rules, each with a number [write Raised: 3]"),
        ("limits: {sqlite", "limit: {sqlite", "there is no remote table 'limits' [did you mean 'limit'?]"),
    ],
)
def test_what_is_wrong_with_a_remote_table_is_said_where_it_stands(
    folder: Path, old: str, new: str, expected: str
) -> None:
    (folder / "fire.tesla").write_text(LOOKS_UP)
    assert old in REMOTE
    found = mistakes(folder, ONE_TREE + REMOTE.replace(old, new))
    assert any(expected in mistake for mistake in found), found


def test_no_node_needs_to_reach_the_tables_of_its_rules(folder: Path) -> None:
    (folder / "fire.tesla").write_text(LOOKS_UP)
    (folder / "network.yaml").write_text(ONE_TREE + REMOTE.replace("keys: [area]}", "keys: [area], at: p2}"))
    for strategy in ("centr", "st", "st-pp", "mt", "mt-pp", "inev"):
        tables = read_network(folder / "network.yaml", strategy=strategy).network.tables
        assert [table.at for table in tables] == [("p2",), (), (), ("p1", "p3")]


def test_an_unknown_function_is_told_with_what_a_network_has(folder: Path) -> None:
    (folder / "fire.tesla").write_text(FIRE.replace("Temp(area", "Temp(danger(value) > 3, area"))
    (found,) = mistakes(folder, GOOD)
    assert found.startswith("2: unknown function 'danger' [")
    assert found.endswith("; functions: FILE.py names a file with more]")


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
    with pytest.raises(ConfigError, match=r"latin.yaml:2: byte 0xfc is not UTF-8"):
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
