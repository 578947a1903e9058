"""The network file of a running network: how events get in and out, durability, addresses, the broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headwater.deploy.cli.command import main
from headwater.deploy.network.file import NetworkFile, NetworkFileError, read_network, running_feeds, running_network
from headwater.protocol.edge import (
    Broker,
    ClientFeed,
    ClientTo,
    Cycle,
    FileTo,
    MqttFeed,
    MqttTo,
    RateFeed,
    StdoutTo,
    TraceFeed,
    WebhookTo,
)
from headwater.protocol.network import Source
from headwater.protocol.wire import rule_encoding

GOOD = """\
events:
  Smoke: {area: string, at: int?, level: float?}
nodes: [p1, p2]
links:
  - {between: [p1, p2]}
sources:
  - {node: p2, type: Smoke, SOURCE}
sinks:
  - {node: p1, subscribe: Smoke, SINK}
  - {node: p1, subscribe: [Smoke, "Smoke(area = 'A1')"]}
END
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "smoke.csv").write_text("type,ts,area\nSmoke,1000,A1\n")
    for name in ("ca.pem", "cert.pem", "key.pem", "secret"):
        (tmp_path / name).write_text("x")
    return tmp_path


def text(source: str = "trace: smoke.csv", sink: str = "to: stdout", end: str = "", nodes: str = "[p1, p2]") -> str:
    made = GOOD.replace("SOURCE", source).replace("SINK", sink).replace("END", end)
    return made.replace("nodes: [p1, p2]", f"nodes: {nodes}")


def read(folder: Path, *arguments: str, **named: str) -> NetworkFile:
    (folder / "network.yaml").write_text(text(*arguments, **named))
    return read_network(folder / "network.yaml")


def mistakes(folder: Path, *arguments: str, **named: str) -> list[str]:
    with pytest.raises(NetworkFileError) as raised:
        read(folder, *arguments, **named)
    return [f"{each.line}: {each.message} [{each.hint}]" for each in raised.value.diagnostics]


# --- what it says -----------------------------------------------------------------------------------------------------

HERE = Broker("127.0.0.1", 1883)


@pytest.mark.parametrize(
    ("source", "feed"),
    [
        ("trace: smoke.csv, speed: 10", ("smoke.csv", 10.0)),
        ("trace: smoke.csv, speed: 0.5x", ("smoke.csv", 0.5)),
        ("trace: smoke.csv, speed: max", ("smoke.csv", 0.0)),
        ("client: any", ClientFeed()),
        ("mqtt: s/+/smoke", MqttFeed("s/+/smoke", HERE)),
        (
            "mqtt: s/+/#, payload: msgpack, qos: 0, device: +2, counter: c, time: at, will: s/left",
            MqttFeed("s/+/#", HERE, "msgpack", 0, "+2", "c", "at", "s/left"),
        ),
    ],
)
def test_where_events_come_from(folder: Path, source: str, feed: Any) -> None:
    expected = TraceFeed(str(folder / feed[0]), feed[1]) if isinstance(feed, tuple) else feed
    found = read(folder, source)
    assert found.feeds == (expected,)
    assert rule_encoding.decode(rule_encoding.encode(expected)) == expected
    assert found.embedded_broker == (HERE if isinstance(feed, MqttFeed) else None)


@pytest.mark.parametrize(
    ("sink", "destination"),
    [
        ("to: stdout", StdoutTo()),
        ("to: client", ClientTo("sink-0")),
        ("to: {client: alarm}", ClientTo("alarm")),
        ("to: {file: fires.jsonl}", FileTo("fires.jsonl")),
        ("to: {mqtt: 'fires/{type}/{area}'}", MqttTo("fires/{type}/{area}", HERE, 1)),
        ("to: {mqtt: fires, qos: 0}", MqttTo("fires", HERE, 0)),
        ("to: {webhook: 'https://alarm.example:8443/fires?x=1'}", WebhookTo("https://alarm.example:8443/fires?x=1")),
    ],
)
def test_where_deliveries_go(folder: Path, sink: str, destination: Any) -> None:
    found = read(folder, sink=sink)
    assert found.destinations == (destination, FileTo("sink-1.jsonl"), FileTo("sink-2.jsonl"))
    assert len(found.network.sinks) == 3
    assert rule_encoding.decode(rule_encoding.encode(destination)) == destination


def test_several_subscriptions_of_a_sink_share_what_is_named_and_not_what_is_left_out(folder: Path) -> None:
    made = text().replace("""A1')"]}""", """A1')"], to: client}""")
    (folder / "network.yaml").write_text(made)
    assert read_network(folder / "network.yaml").destinations[1:] == (ClientTo("sink-1"), ClientTo("sink-2"))


@pytest.mark.parametrize(
    ("section", "broker", "is_embedded"),
    [
        ("mqtt: embedded", Broker("127.0.0.1", 1883), True),
        ("mqtt: {broker: embedded, port: 18830}", Broker("127.0.0.1", 18830), True),
        ("mqtt: mqtt://broker.example", Broker("broker.example", 1883), False),
        ("mqtt: {broker: 'mqtt://node@[::1]:1884'}", Broker("::1", 1884, "node"), False),
        (
            "mqtt: {broker: mqtts://broker.example, username: n, password_file: secret, ca: ca.pem, cert: cert.pem, "
            "key: key.pem}",
            Broker("broker.example", 8883, "n", "secret", "ca.pem", "cert.pem", "key.pem", True),
            False,
        ),
        ("mqtt: {broker: mqtts://broker.example:99}", Broker("broker.example", 99, tls=True), False),
    ],
)
def test_the_broker(folder: Path, section: str, broker: Broker, is_embedded: bool) -> None:
    found = read(folder, "mqtt: s", end=section)
    (feed,) = found.feeds
    assert isinstance(feed, MqttFeed)
    names = ("password_file", "ca_file", "cert_file", "key_file")
    files = {name: str(folder / value) for name in names if (value := getattr(broker, name)) is not None}
    expected = Broker(broker.host, broker.port, broker.username, tls=broker.tls, **files)
    assert feed.broker == expected
    assert found.embedded_broker == (expected if is_embedded else None)


def test_an_embedded_broker_that_is_asked_for_is_started_although_no_source_needs_it(folder: Path) -> None:
    assert read(folder, end="mqtt: {broker: embedded, port: 9}").embedded_broker == Broker("127.0.0.1", 9)
    assert read(folder).embedded_broker is None


def test_settings_of_a_running_network(folder: Path) -> None:
    found = read(folder)
    assert (found.durability, found.lost_after_us, found.listen) == ("sync", None, {})
    end = "durability: async\nlost_after: 60s"
    found = read(folder, end=end, nodes='{p1: {listen: "10.0.0.1:7001"}, p2: {listen: "[::1]:7001"}}')
    assert (found.durability, found.lost_after_us) == ("async", 60_000_000)
    assert found.listen == {"p1": "10.0.0.1:7001", "p2": "[::1]:7001"}
    assert found.network.nodes == ("p1", "p2")


def test_only_in_a_running_network_traces_are_replayed(folder: Path) -> None:
    found = read(folder)
    assert found.network.sources == (Source("p2", "Smoke"),)
    assert running_network(found).sources == (Source("p2", "Smoke", replayed=True),)
    live = read(folder, "client: any")
    assert running_network(live) == live.network


def test_feeds_of_a_running_network_hold_wherever_a_node_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    (folder / "network.yaml").write_text(text())
    assert running_feeds(read_network("network.yaml")) == (TraceFeed(str(folder / "smoke.csv")),)
    source = "rate: 2/s, values: {area: A1}"
    (folder / "network.yaml").write_text(text(source, end="duration: 5s\nseed: 3"))
    found = read_network("network.yaml")
    values = (Cycle(("A1",)), Cycle((None,)), Cycle((None,)))
    assert found.feeds == (RateFeed(2.0, "poisson", values),)
    assert running_feeds(found) == (RateFeed(2.0, "poisson", values, 5_000_000, 3),)


# --- what is wrong ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("trace: smoke.csv, speed: 0", "7: speed: '0' is not a speed; write how many times faster"),
        ("trace: smoke.csv, speed: -1", "7: speed cannot be negative"),
        ("trace: smoke.csv, speed: fast", "7: speed: 'fast' is not a speed"),
        ("client: any, speed: 2", "7: speed belongs to trace, and this source has client [leave it out]"),
        ("trace: smoke.csv, payload: json", "7: payload belongs to mqtt, and this source has trace"),
        ("client: me", "7: client cannot be 'me' [write client: any"),
        ("lateness: 1s", "7: this source does not say where its events come from [write one of trace: FILE"),
        ("mqtt: s, client: any", "7: this source has both mqtt and client"),
        ("mqtt: s, payload: jsn", "7: payload cannot be 'jsn' [did you mean 'json'? write one of json, msgpack, text]"),
        ("mqtt: s, qos: 2", "7: qos cannot be '2' [write 1; with device: and counter:"),
        ("mqtt: s, qos: yes", "7: qos cannot be 'yes' [write 0 or 1]"),
        ("mqtt: s, device: d", "7: device without counter: only both together identify an event [add counter: FIELD"),
        ("mqtt: s, counter: c", "7: counter without device"),
        ("mqtt: s/+, device: +2, counter: c", "7: the topic 's/+' has 1 wildcard [+1 is its first wildcard]"),
        ("mqtt: s, device: +1, counter: c", "7: the topic 's' has no wildcard"),
        ("mqtt: s, time: level", "7: Smoke.level is declared float, which is not a time"),
        ("mqtt: s/a+/b", "7: 'a+' is not a level of a topic [+ and # stand for whole levels"),
        ("mqtt: 's/#/b'", "7: # stands for all that follows"),
        ("mqtt: ''", "7: an empty topic"),
        ("mqtt: s, will: 's#'", "7: 's#' is not a level of a topic"),
        ("mqtt: s, devise: d, counter: c", "7: a source has no key 'devise' [did you mean 'device'?]"),
    ],
)
def test_a_wrong_source_is_shown_with_a_cure(folder: Path, source: str, said: str) -> None:
    assert any(each.startswith(said) for each in mistakes(folder, source)), mistakes(folder, source)


@pytest.mark.parametrize(
    ("sink", "said"),
    [
        ("to: stdot", "9: a sink cannot go to 'stdot' [did you mean 'stdout'? write to: stdout"),
        ("to: file", "9: a sink cannot go to 'file' [write to: stdout, client, {file: PATH}"),
        ("to: [stdout]", "9: to must be a mapping of names to values"),
        ("to: {}", "9: to does not say where"),
        ("to: {qos: 1}", "9: to does not say where"),
        ("to: {file: a, webhook: 'http://x'}", "9: a sink goes to one place, not to file and webhook"),
        ("to: {fil: a}", "9: to has no key 'fil' [did you mean 'file'?]"),
        ("to: {file: ''}", "9: file needs a name"),
        ("to: {file: a, qos: 1}", "9: qos belongs to mqtt, and this sink has file"),
        ("to: {mqtt: a, qos: 3}", "9: qos cannot be '3'"),
        ("to: {mqtt: a/+}", "9: 'a/+' has a wildcard"),
        ("to: {mqtt: 'a/{'}", "9: 'a/{' has a brace too many"),
        ("to: {mqtt: 'a/{aera}'}", "9: Smoke has nothing to fill in for {aera} [did you mean 'area'?]"),
        ("to: {webhook: alarm.example}", "9: 'alarm.example' is not a web address [write webhook: https://host/path]"),
        ("to: {webhook: 'ftp://x'}", "9: 'ftp://x' is not a web address"),
        ("to: {webhook: 'http://x:99999'}", "9: 'http://x:99999' is not a web address"),
    ],
)
def test_a_wrong_destination_is_shown_with_a_cure(folder: Path, sink: str, said: str) -> None:
    found = mistakes(folder, sink=sink)
    assert len(found) == 1
    assert found[0].startswith(said), found


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("mqtt: {}", "11: mqtt does not say which broker [write mqtt: {broker: embedded}"),
        ("mqtt: embeded", "11: 'embeded' is not the address of a broker [did you mean 'embedded'?]"),
        ("mqtt: http://x", "11: 'http://x' is not the address of a broker"),
        ("mqtt: 'mqtt://x:99999'", "11: 'mqtt://x:99999' is not the address of a broker"),
        ("mqtt: mqtt://node:secret@x", "11: a password in a network file [write it into a file"),
        ("mqtt: mqtt://x/topic", "11: nothing can follow the port in 'mqtt://x/topic'"),
        ("mqtt: {broker: embedded, port: http}", "11: 'http' is not a port [write a number from 1 to 65535]"),
        ("mqtt: {broker: embedded, ca: ca.pem}", "11: the embedded broker has no ca [leave it out"),
        ("mqtt: {broker: mqtt://x, port: 1}", "11: port belongs to the embedded broker"),
        ("mqtt: {broker: mqtt://x, ca: ca.pem}", "11: ca is for an encrypted connection [write broker: mqtts://..]"),
        ("mqtt: {broker: mqtts://x, cert: cert.pem}", "11: cert without key [add key: FILE]"),
        ("mqtt: {broker: mqtts://x, password_file: secret}", "11: a password without a username"),
        ("mqtt: {broker: mqtt://a@x, username: b}", "11: the broker's address says 'a'"),
        ("mqtt: {brocker: embedded}", "11: mqtt has no key 'brocker' [did you mean 'broker'?]"),
        ("durability: syn", "11: durability cannot be 'syn' [did you mean 'sync'? write one of none, async, sync]"),
        ("lost_after: 1s", "11: a node that restarts would count as lost [write at least 5s"),
        ("lost_after: 60", "11: lost_after: '60' is not a duration"),
        ("durabilty: sync", "11: a network file has no key 'durabilty' [did you mean 'durability'?]"),
    ],
)
def test_a_wrong_setting_is_shown_with_a_cure(folder: Path, end: str, said: str) -> None:
    found = mistakes(folder, end=end)
    assert any(each.startswith(said) for each in found), found


def test_files_of_the_broker_must_be_there(folder: Path) -> None:
    end = "mqtt: {broker: mqtts://x, username: n, password_file: no, ca: neither}"
    assert mistakes(folder, end=end) == [
        f"11: there is no file {folder}/no [names are relative to the network file]",
        f"11: there is no file {folder}/neither [names are relative to the network file]",
    ]


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ("[p1, p2, '@p3']", "3: a node cannot be called '@p3' [names with @ are those of coordinators and clients]"),
        ("{p1: , p2: , '@p3': }", "3: a node cannot be called '@p3'"),
        ("{p1: {listen: 7001}, p2: }", "3: '7001' is not a host and a port [write listen: 127.0.0.1:7001]"),
        ("{p1: {listen: 'h:0'}, p2: }", "3: 'h:0' is not a host and a port"),
        ("{p1: {listen: 'h:1'}, p2: {listen: 'h:1'}}", "3: p1 listens at h:1, too [give each node a port of its own]"),
        ("{p1: {lisen: 'h:1'}, p2: }", "3: node p1 has no key 'lisen' [did you mean 'listen'?]"),
    ],
)
def test_a_wrong_node_is_shown_with_a_cure(folder: Path, nodes: str, said: str) -> None:
    found = mistakes(folder, nodes=nodes)
    assert any(each.startswith(said) for each in found), found


def test_all_mistakes_are_shown_together(folder: Path) -> None:
    found = mistakes(folder, "mqtt: s, qos: 7", "to: nowhere", "durability: maybe\nmqtt: nothing", "[p1, p2, '@c']")
    assert [each.partition(":")[0] for each in found if "parts" not in each] == ["3", "7", "9", "11", "12"]


def test_a_simulation_ignores_what_only_a_running_network_has(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)

    def simulated(made: str) -> str:
        (folder / "network.yaml").write_text(made)
        with pytest.raises(SystemExit) as left:
            main(["simulate", "network.yaml", "--json"])
        assert left.value.code == 0
        return capsys.readouterr().out

    plain = simulated(text(sink="to: stdout"))
    end = "durability: none\nlost_after: 1h\nmqtt: embedded"
    nodes = '{p1: {listen: "h:1"}, p2: }'
    sink = "to: {webhook: 'http://nowhere.example'}"
    assert simulated(text("trace: smoke.csv, speed: 1", sink, end, nodes)) == plain


def test_programs_cannot_be_simulated(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "network.yaml").write_text(text("client: any"))
    with pytest.raises(SystemExit) as left:
        main(["simulate", str(folder / "network.yaml")])
    assert left.value.code == 2
    assert "the source of Smoke at p2 is fed by programs, which a simulation does not have" in capsys.readouterr().err
