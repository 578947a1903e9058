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
from pathlib import Path
from typing import Any

import msgpack
import pytest
from prometheus_client.parser import text_string_to_metric_families

from headwater.deploy.simulation.simulator import Simulation
from headwater.node.core import NodeCore
from headwater.node.effects import Send
from headwater.node.observe import accounts
from headwater.node.observe.accounts import KINDS, RECEIVED_KINDS, LinkAccounts, Traffic
from headwater.node.observe.http import Response, serve
from headwater.node.observe.metrics.catalogue import metrics, samples
from headwater.node.observe.metrics.counters import Histogram
from headwater.node.observe.metrics.exposition import CONTENT_TYPE, Exposition
from headwater.node.observe.metrics.held import held_by
from headwater.node.observe.metrics.loop_lag import LoopLag
from headwater.node.observe.metrics.observed import Observed
from headwater.node.observe.metrics.watermarks import SOURCES, lag_s, watermarks_of
from headwater.node.observe.selectivity import PastCounts, Predicate, Selected, selected
from headwater.node.observe.statistics import REPEAT_AFTER_US, Whispers, statistics
from headwater.node.step import FOREVER
from headwater.protocol.messages.control import decode_statistics, encode_statistics
from headwater.protocol.messages.neighbour import Awakening, Batch, Deploy, Notify, Run, TreeStart, Want, Watermark
from headwater.protocol.wire.messages import Wire
from tests.kit.builders import TYPES
from tests.kit.patience import ANSWER_S, output_of, patiently
from tests.kit.ports import free_port
from tests.node.observed_node import an_event
from tests.node.test_core import LAST, ANode
from tests.node.test_core import event as a_born_event

DOC = Path(__file__).parent.parent.parent / "docs" / "reference" / "metrics.md"


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
    booked = LinkAccounts(wire)
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
    booked = LinkAccounts(wire)
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
    booked = LinkAccounts(Wire(TYPES.values()))
    booked.note("n2", message, 50)
    booked.note_received("n3", message, 50)
    assert booked.sent == {"n2": {sent: Traffic(events, 1, 50)}}
    assert booked.received == {"n3": {received: Traffic(events, 1, 50)}}
    assert sent in KINDS
    assert received in RECEIVED_KINDS


def test_the_simulator_accounts_by_the_same_code(simulation: Simulation) -> None:
    from headwater.deploy.simulation import accounts as simulated

    assert issubclass(simulated._Sender, accounts.LinkAccounts)
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
    assert dict(selected((), PastCounts())) == {}


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
    assert whispers.next() is None, "watermarks alone are not news"
    observed.counters.source(0, "A").born += 1
    assert whispers.next() is not None
    assert whispers.next() is None
    whispers.again()
    assert whispers.next() is not None
    clock[0] += REPEAT_AFTER_US
    assert whispers.next() is not None


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
