"""What a node shows of itself: accounts, metrics, statistics and records; real cores, files and a real Prometheus."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest
from prometheus_client.parser import text_string_to_metric_families

from headwater.deploy.simulation.faults import Faults
from headwater.deploy.simulation.simulator import Simulation
from headwater.node.core import NodeCore
from headwater.node.effects import Send
from headwater.node.observe import accounts
from headwater.node.observe.accounts import KINDS, RECEIVED_KINDS, Accounts, Traffic
from headwater.node.observe.http import Response, serve
from headwater.node.observe.metrics import records as records_module
from headwater.node.observe.metrics.catalogue import metrics, samples
from headwater.node.observe.metrics.counters import Histogram, NodeCounters
from headwater.node.observe.metrics.exposition import CONTENT_TYPE, Exposition
from headwater.node.observe.metrics.held import held_by
from headwater.node.observe.metrics.loop_lag import LoopLag
from headwater.node.observe.metrics.observed import Observed
from headwater.node.observe.metrics.record_files import RecordFiles
from headwater.node.observe.metrics.records import Records
from headwater.node.observe.metrics.watermarks import SOURCES, lag_s, watermarks_of
from headwater.node.observe.selectivity import Past, Predicate, Selected, selected
from headwater.node.observe.statistics import REPEAT_AFTER_US, Whispers, statistics
from headwater.node.step import FOREVER
from headwater.protocol.composites import Composite
from headwater.protocol.events import Event
from headwater.protocol.messages.control import decode_statistics, encode_statistics
from headwater.protocol.messages.neighbour import Awakening, Batch, Deploy, Notify, Run, TreeStart, Want, Watermark
from headwater.protocol.network import Link, Network, Sink, Source
from headwater.protocol.subscriptions import parse_subscription
from headwater.protocol.wire.messages import Wire
from tests.kit.builders import TYPES, chain, each, rule
from tests.kit.patience import ANSWER_S, output_of, patiently, soon
from tests.kit.ports import free_port
from tests.node.test_core import LAST, ANode
from tests.node.test_core import event as a_born_event

DOC = Path(__file__).parent.parent.parent / "docs" / "reference" / "metrics.md"
MS = 1_000
PAIR = rule(chain("A a", each("B b", 20 * MS, "a")), "b.v = a.v", "b.v >= 1", name="pair", emits="X", out={"v": "a.v"})


class AHub:
    """Links as the hub shows them."""

    counters = {"resent": 3, "refused_version": 2, "refused_key": 1, "payloads_out": 9}  # noqa: RUF012

    def queued(self, peer: str) -> tuple[int, int]:
        return 2, 700

    def is_up(self, peer: str) -> bool:
        return peer != "n9"

    def is_full(self, peer: str) -> bool:
        return False


class AJournal:
    bytes_since_snapshot = 1234
    is_full = False


def an_event(kind: str, ts: int, v: int, node: str = "n1") -> Event:
    return Event(TYPES[kind], ts, node, ts, {"id": ts, "v": v})


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
    booked = Accounts(Wire(TYPES.values(), [PAIR]))
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


def documented() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Name, kind and labels of every metric in the table of the documentation."""
    rows = re.findall(r"^\| `(\w+)` \| (counter|gauge|histogram) \| ?(.*?) ?\| .+ \|$", DOC.read_text(), re.MULTILINE)
    return {name: (kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}


def exposed(text: str) -> dict[str, str]:
    """Name and kind of every metric in an answer to a scrape, with the name that counters are known by."""
    families = text_string_to_metric_families(text)
    return {family.name + "_total" * (family.type == "counter"): family.type for family in families}


# -- accounts ----------------------------------------------------------------------------------------------------------


def a_run(kind: str, number: int, first: int = 0) -> Run:
    rows = tuple(tuple(an_event("A", first + at, at)) for at in range(number))
    return Run(tuple((row[1], row[2]) for row in rows), rows, (1,), kind == "blocker", kind)


def test_a_batch_of_one_kind_is_accounted_without_looking_at_its_events(monkeypatch: pytest.MonkeyPatch) -> None:
    wire = Wire(TYPES.values())
    booked = Accounts(wire)
    batch = Batch((a_run("primitive", 200),), (Watermark(1, 5),))
    size = len(wire.encode(batch))
    monkeypatch.setattr(wire, "run_bytes", lambda run: pytest.fail("the events were encoded again"))
    booked.note("n2", batch, size, 2)
    primitive, watermark = booked.sent["n2"]["primitive"], booked.sent["n2"]["watermark"]
    assert (primitive.events, primitive.messages, watermark.events, watermark.messages) == (200, 2, 0, 0)
    assert primitive.bytes + watermark.bytes == 2 * size
    assert 0 < watermark.bytes < 40


def test_the_bytes_of_a_mixed_batch_are_split_by_what_each_kind_takes() -> None:
    wire = Wire(TYPES.values())
    booked = Accounts(wire)
    runs = a_run("blocker", 2), a_run("match", 30, 100), a_run("answer", 3, 200)
    batch = Batch(runs, (Watermark(1, 5),))
    size = len(wire.encode(batch))
    booked.note("n2", batch, size)
    found = booked.sent["n2"]
    assert {kind: (of.events, of.messages) for kind, of in found.items()} == {
        "blocker": (2, 1),
        "match": (30, 0),
        "answer": (3, 0),
        "watermark": (0, 0),
    }
    assert sum(of.bytes for of in found.values()) == size
    assert (found["blocker"].bytes, found["answer"].bytes) == (wire.run_bytes(runs[0]), wire.run_bytes(runs[2]))
    assert abs(found["match"].bytes - wire.run_bytes(runs[1])) <= 2  # the length of the list of events may be longer


@pytest.mark.parametrize(
    ("message", "sent", "received", "events"),
    [
        (Want(1, 5), "watermark", "watermark", 0),
        (Batch((), (Watermark(1, 5),)), "watermark", "watermark", 0),
        (Awakening(1, 1, 0, 5), "awakening", "awakening", 1),
        (TreeStart("n1", 1), "control", "control", 0),
        (Batch((a_run("reference", 3),), ()), "reference", "events", 3),
        (Notify("n1", 1, (tuple(an_event("A", 1, 1)),)), "primitive", "events", 1),
    ],
    ids=["want", "watermark", "awakening", "control", "batch", "notify"],
)
def test_messages_have_a_kind_for_the_sender_and_one_for_the_receiver(
    message: Any, sent: str, received: str, events: int
) -> None:
    booked = Accounts(Wire(TYPES.values()))
    booked.note("n2", message, 50)
    booked.note_received("n3", message, 50)
    assert booked.sent == {"n2": {sent: Traffic(events, 1, 50)}}
    assert booked.received == {"n3": {received: Traffic(events, 1, 50)}}
    assert sent in KINDS
    assert received in RECEIVED_KINDS


def test_the_simulator_accounts_by_the_same_code(simulation: Simulation) -> None:
    from headwater.deploy.simulation import accounts as simulated

    assert issubclass(simulated._Sender, accounts.Accounts)
    assert {kind for _, _, kind in simulation.outcome.traffic} <= set(KINDS)
    assert simulation.outcome.traffic["n1", "n2", "primitive"].events == 40


# -- metrics -----------------------------------------------------------------------------------------------------------


def test_every_metric_is_documented_and_every_documented_one_is_exposed(observed: Observed) -> None:
    known = documented()
    assert exposed(Exposition(observed).text().decode()) == {name: kind for name, (kind, _) in known.items()}
    ours = {metric.name: (metric.kind, metric.labels) for metric in metrics()}
    assert ours == {name: found for name, found in known.items() if name.startswith("headwater_")}


def test_a_node_that_is_not_configured_exposes_the_same_names() -> None:
    text = Exposition(Observed(node="n1")).text().decode()
    assert exposed(text).keys() == documented().keys()


def test_names_follow_the_conventions() -> None:
    for metric in metrics():
        assert re.fullmatch(r"headwater_[a-z_]+", metric.name), metric
        assert metric.name.endswith("_total") == (metric.kind == "counter"), metric
        assert not re.search(r"_(ms|us|milliseconds|kb|mb)(_|$)", metric.name), metric
        assert len(metric.labels) <= 3, metric


def test_values_are_those_of_the_parts_that_are_looked_at(observed: Observed) -> None:
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(Exposition(observed).text().decode())
        for sample in family.samples
    }
    assert found["headwater_events_born_total", "A"] == 12
    assert found["headwater_events_late_total", "A"] == 2
    assert found["headwater_events_refused_total", "A"] == 1
    assert found["headwater_events_malformed_total", "A"] == 4
    assert found["headwater_deliveries_total", "0"] == 2
    assert found["headwater_link_up", "n9"] == 0
    assert found["headwater_link_queue_bytes", "n1"] == 700
    assert found["headwater_link_resent_messages_total",] == 3
    assert found["headwater_link_refused_frames_total", "version"] == 2
    assert found["headwater_awakenings_sent_total",] == 1
    assert found["headwater_journal_since_snapshot_bytes",] == 1234
    assert found["headwater_detection_latency_seconds_sum", "0"] == 0.0045
    buckets = {key[1:]: value for key, value in found.items() if key[0] == "headwater_detection_latency_seconds_bucket"}
    assert sorted(buckets.values())[-1] == 1
    assert {value for key, value in buckets.items() if "0.003" in key} == {0}
    assert {value for key, value in buckets.items() if "0.005" in key} == {1}


def test_matches_are_counted_where_they_are_found(simulation: Simulation) -> None:
    found = sum(
        sample.value
        for core in simulation.nodes.values()
        for sample in samples(Observed(node=core.name, core=core))
        if sample.metric.name == "headwater_matches_total" and not isinstance(sample.value, Histogram)
    )
    assert found == len(simulation.outcome.delivered) > 10


def test_what_is_held_by_purpose_is_all_that_is_held(simulation: Simulation) -> None:
    for core in simulation.nodes.values():
        assert sum(held_by(core).values()) == core.held()
    assert sum(core.held() for core in simulation.nodes.values()) > 0


def test_lag_is_measured_from_the_least_watermark() -> None:
    assert lag_s(2_000_000, 5_500_000, 0) == 3.5
    assert lag_s(FOREVER, 5, 0) == 0
    assert lag_s(-FOREVER, 5_500_000, 3_000_000) == 2.5  # since the process began, and never infinite


def test_a_node_shows_whom_it_waits_for() -> None:
    node = ANode(LAST, parent=None, children=["left"], sources="A", sinks=["Y"])
    deployed = [effect.message for effect in node.child_says("left", "B") if isinstance(effect, Send)]
    numbers = [message.number for message in deployed if isinstance(message, Deploy)]
    assert numbers
    node.bears(a_born_event("A", 50), at_us=50)
    watermarks = watermarks_of(node.core, 60)
    assert watermarks.inputs["left"] == -FOREVER
    assert watermarks.awaited["left"] >= 1
    assert watermarks.inputs[SOURCES] == 59
    node.hears("left", Batch((), tuple(Watermark(number, 50) for number in numbers)), at_us=60)
    watermarks = watermarks_of(node.core, 60)
    assert (watermarks.inputs["left"], watermarks.awaited["left"]) == (50, 0)


def test_histograms_count_what_is_at_a_bound_under_it() -> None:
    found = Histogram((10, 20))
    for us in (10, 11, 20, 21, -5):
        found.observe(us)
    assert (found.counts, found.sum_us, found.count) == ([2, 2, 1], 62, 5)


def test_a_loop_that_is_held_up_shows_it() -> None:
    async def run() -> Histogram:
        found = Histogram((1_000, 40_000))
        lag = LoopLag(found, every_s=0.01)
        await asyncio.sleep(0.015)
        time.sleep(0.1)
        await asyncio.sleep(0.01)
        lag.stop()
        counted = found.count
        await asyncio.sleep(0.03)
        assert found.count == counted
        return found

    assert asyncio.run(run()).counts[-1] >= 1


# -- statistics --------------------------------------------------------------------------------------------------------


def test_predicates_tell_how_much_they_let_pass(simulation: Simulation) -> None:
    by_node = {name: selected(core.works.values(), core.forest.past) for name, core in sorted(simulation.nodes.items())}
    assert by_node["n3"][Predicate("filter", "B(v >= 1)")] == Selected(40, 30)
    whole = [counts[Predicate("rule", "pair")] for counts in by_node.values() if Predicate("rule", "pair") in counts]
    assert whole == [Selected(70, len(simulation.outcome.delivered))]


def test_counts_of_predicates_survive_saving_and_the_end_of_a_tree(simulation: Simulation) -> None:
    core = simulation.nodes["n3"]
    again = NodeCore.restored(core.save())
    before = dict(selected(core.works.values(), core.forest.past))
    assert dict(selected(again.works.values(), again.forest.past)) == before
    for name in list(again.works):
        again.forest.forget(*name)
    assert not again.works
    assert dict(selected(again.works.values(), again.forest.past)) == before
    assert dict(selected((), Past())) == {}


def test_statistics_travel_and_say_what_is_needed(observed: Observed) -> None:
    found = statistics(observed)
    travelled = decode_statistics(encode_statistics(found))
    assert travelled == found
    assert msgpack.packb(found)
    assert found["events"][0] == {
        "source": 0, "type": "A", "born": 7, "late": 2, "malformed": 4, "refused": 1, "repeated": 0,
    }  # fmt: skip
    assert found["links"]["n1"]["awakening"] == {"events": 1, "messages": 1, "bytes": 20}
    assert [tree["root"] for tree in found["trees"]] == sorted(tree for tree, _ in observed.core.works)  # type: ignore
    assert all(tree["delivered"] is not None for tree in found["trees"])
    assert {stream["from"] for stream in found["streams"]} >= {"n1", "n3"}
    assert found["up"] == {"n1": True, "n3": True, "n9": False}
    keys = re.findall(r"^\| (`.*?`) \|", DOC.read_text().split("## Statistics")[1].split("## Records")[0], re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", " ".join(keys))) == found.keys()


def test_a_node_whispers_only_what_is_new(observed: Observed) -> None:
    clock = [1_000_000]
    observed.now_us = lambda: clock[0]
    whispers = Whispers(observed)
    assert whispers.next() is not None
    assert whispers.next() is None
    assert observed.accounts is not None
    observed.accounts.note("n1", Want(1, 9), 9)
    assert whispers.next() is None, "watermarks alone are no news"
    observed.counters.source(0, "A").born += 1
    assert whispers.next() is not None
    assert whispers.next() is None
    whispers.again()
    assert whispers.next() is not None
    clock[0] += REPEAT_AFTER_US
    assert whispers.next() is not None


# -- records -----------------------------------------------------------------------------------------------------------


def lines_of(files: list[Path]) -> Iterator[Any]:
    for file in files:
        yield from map(json.loads, file.read_text(encoding="utf-8").splitlines())


def test_record_files_are_bounded_in_size_and_number(tmp_path: Path) -> None:
    files = RecordFiles(tmp_path / "records", "metrics", file_bytes_max=100, files_max=3)
    for number in range(60):
        files.write([json.dumps({"number": number}).encode()])
    names = [path.name for path in files.paths()]
    assert len(names) == 3
    assert names == sorted(names)
    assert all(path.stat().st_size <= 100 for path in files.paths())
    kept = [record["number"] for record in lines_of(files.paths())]
    assert kept == list(range(60 - len(kept), 60))


def test_record_files_go_on_after_a_crash_without_the_line_that_was_cut(tmp_path: Path) -> None:
    RecordFiles(tmp_path, "matches").write([b'{"n": 1}', b'{"n": 2}'])
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes() + b'{"n": 3')
    files = RecordFiles(tmp_path, "matches")
    files.write([b'{"n": 4}'])
    assert [record["n"] for record in lines_of(files.paths())] == [1, 2, 4]


def a_match(simulation: Simulation) -> Composite:
    item = simulation.outcome.delivered[0].item
    assert isinstance(item, Composite)
    return item


def test_records_hold_matches_and_what_was_counted_in_between(
    observed: Observed, simulation: Simulation, tmp_path: Path
) -> None:
    match = a_match(simulation)

    async def run() -> None:
        records = Records(tmp_path, observed, metrics_every_s=3600, flush_every_s=0.01)
        records.start()
        observed.counters.source(0, "A").bear(1, 9_000)
        observed.counters.source(3, "A").bear(2, 9_500)
        observed.counters.source(3, "A").bear(0, 9_900)
        records.delivered(0, 1, match, match.ts + 2_000, live=True)
        records.delivered(0, 2, match, match.ts + 3_000, live=False)
        records.born(7_000, 3, (4, 6), (5_000, 6_000), "0a1b")
        await soon(lambda: len(list(lines_of(sorted(tmp_path.glob("matches-*"))))) == 2)
        await records.close()

    asyncio.run(run())
    first, second = lines_of(sorted(tmp_path.glob("matches-*")))
    assert first == {
        "v": 1, "run": "r1", "node": "n2", "sink": 0, "number": 1, "id": match.id, "rule": "pair",
        "version": match.version, "type": "X", "ts": match.ts, "end_node": match.end[1], "end_seq": match.end[2],
        "delivered": match.ts + 2_000, "latency_us": 2_000,
    }  # fmt: skip
    assert (second["number"], second["latency_us"]) == (2, None)
    (metrics_record,) = lines_of(sorted(tmp_path.glob("metrics-*")))
    assert {name: metrics_record[name] for name in ("run", "network", "strategy")} == {
        "run": "r1", "network": "test", "strategy": "st",
    }  # fmt: skip
    assert (metrics_record["born_from"], metrics_record["born_to"]) == (9_000, 9_500)
    assert metrics_record["counters"] == [{"name": "headwater_events_born_total", "labels": {"type": "A"}, "value": 3}]
    gauges = {(each["name"], *each["labels"].values()): each["value"] for each in metrics_record["gauges"]}
    assert gauges["headwater_link_up", "n9"] == 0
    section = DOC.read_text().split("## Records")[1]
    in_doc = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (.*?) \|", section, re.MULTILINE))))
    (births,) = lines_of(sorted(tmp_path.glob("births-*")))
    assert births == {
        "v": 1, "run": "r1", "node": "n2", "time": 7_000, "first_seq": 4, "last_seq": 6, "first_ts": 5_000,
        "last_ts": 6_000, "events": 3, "trace": "0a1b",
    }  # fmt: skip
    assert in_doc == first.keys() | metrics_record.keys() | births.keys()


def test_metrics_are_recorded_again_and_again(observed: Observed, tmp_path: Path) -> None:
    async def run() -> None:
        records = Records(tmp_path, observed, metrics_every_s=0.02, flush_every_s=0.01)
        records.start()
        await soon(lambda: len(list(lines_of(sorted(tmp_path.glob("metrics-*"))))) > 2)
        await records.close()

    asyncio.run(run())
    found = list(lines_of(sorted(tmp_path.glob("metrics-*"))))
    assert len(found) > 2
    assert all(record["counters"] == [] for record in found)
    assert all(record["born_from"] is record["born_to"] is None for record in found)


def test_records_that_cannot_be_written_are_counted_and_let_go(
    observed: Observed, simulation: Simulation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way of a folder")
    monkeypatch.setattr(records_module, "PENDING_MAX", 5)
    match = a_match(simulation)

    async def run() -> None:
        records = Records(tmp_path / "file", observed, metrics_every_s=3600)
        records.start()
        for number in range(8):
            records.delivered(0, number, match, match.ts, live=True)
        await records.close()

    observed.counters.records_dropped.clear()
    asyncio.run(run())
    assert observed.counters.records_dropped == {"matches": 8, "metrics": 1}


# -- Prometheus itself -------------------------------------------------------------------------------------------------


def query(port: int, expression: str) -> Any:
    address = f"http://127.0.0.1:{port}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
    with urllib.request.urlopen(address, timeout=ANSWER_S) as answer:
        return json.load(answer)["data"]["result"]


def test_prometheus_scrapes_a_node_and_answers_questions_about_it(observed: Observed, tmp_path: Path) -> None:
    prometheus = shutil.which("prometheus")
    if prometheus is None:
        pytest.skip("prometheus is not installed (apt-get install prometheus): no real scrape was tried")
    exposition = Exposition(observed)

    async def run() -> None:
        routes = {"/metrics": lambda: Response(200, exposition.text(), CONTENT_TYPE)}
        server = await serve("127.0.0.1", 0, routes, observed.counters.http)
        port = free_port()
        config = tmp_path / "prometheus.yml"
        config.write_text(
            "global: {scrape_interval: 1s, scrape_timeout: 1s}\n"
            f"scrape_configs: [{{job_name: headwater, static_configs: [{{targets: ['127.0.0.1:{server.port}']}}]}}]\n"
        )
        process = subprocess.Popen(
            [
                prometheus,
                f"--config.file={config}",
                f"--storage.tsdb.path={tmp_path / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=subprocess.DEVNULL,
            stderr=(tmp_path / "log").open("wb"),
        )
        try:
            latency = "histogram_quantile(1, headwater_detection_latency_seconds_bucket)"
            asked = ('headwater_events_born_total{type="A"}', "up", latency)
            found: list[list[Any]] = []
            async with patiently():
                while not (all(found) and found):  # it has not begun, or the latest scrape came too late
                    await asyncio.sleep(0.1)
                    with contextlib.suppress(OSError):
                        found = [await asyncio.to_thread(query, port, each) for each in asked]
            ((born,), (up,), (latency_s,)) = found
            assert born["value"][1] == "12"
            assert up["value"][1] == "1"
            assert 0.003 < float(latency_s["value"][1]) <= 0.005
        finally:
            process.terminate()
            output_of(process)
            await server.close()

    asyncio.run(run())
