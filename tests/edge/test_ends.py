"""What a node tells of receivers and brokers that are away, by metrics, readiness and log: with real ones."""

from __future__ import annotations

import asyncio
import http.server
import logging
import re
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headwater.node.client import Client
from headwater.node.edge.rate_limited_log import AGAIN_S, Seldom
from headwater.node.observe.metrics.waits import Waits
from headwater.protocol.edge import Broker, Choice, ClientFeed, Count, Cycle, MqttTo, RateFeed, WebhookTo
from tests.kit.edge import MOSQUITTO, Mosquitto
from tests.kit.patience import ANSWER_S
from tests.kit.ports import free_port
from tests.kit.processes import Cluster, until
from tests.simulation.test_simulator import a_network

VALUES = (Count(1), Choice((0, 1, 2)), Cycle((None,)), Cycle((None,)))


class _Taking(http.server.BaseHTTPRequestHandler):
    taken = 0

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        type(self).taken += 1
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def a_receiver(port: int) -> Iterator[type[_Taking]]:
    kind = type("Taking", (_Taking,), {"taken": 0})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), kind)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield kind
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def value(cluster: Cluster, name: str, node: str = "n1") -> float | None:
    """The value of the metric's only sample."""
    found = re.findall(rf"^headwater_{name}(?:{{[^\n]*}})? (\S+)$", cluster.metrics(node), re.MULTILINE)
    assert len(found) <= 1, found
    return float(found[0]) if found else None


def test_a_webhook_that_is_away_is_told_of_and_so_is_its_return(tmp_path: Path) -> None:
    port = free_port()
    to = WebhookTo(f"http://user:secret@127.0.0.1:{port}/fires?token=secret")
    network = a_network(links=(("n1", "n2"),), sources=(("n1", "A"),), sinks=(("n1", "A"),))
    feed = RateFeed(20, "regular", VALUES)
    with Cluster(network, tmp_path, (feed,), (to,)) as cluster:
        cluster.wait_until_ready()
        until(lambda: (value(cluster, "sink_waiting") or 0) > 30, "deliveries wait", cluster)
        until(lambda: (value(cluster, "sink_oldest_waiting_seconds") or 0) > 1, "they have waited", cluster)
        found = value(cluster, "deliveries_found_total")
        assert found is not None
        assert found > 30
        assert not value(cluster, "deliveries_total"), "no program has taken one"
        assert value(cluster, "sink_connected") == 0
        ready = cluster.ask("n1", "/ready")
        assert ready["ready"], "it does its work"
        assert f"the receiver http://127.0.0.1:{port}/fires is unreachable for sink 0" in ready["degraded"][0]
        assert f'end="webhook http://127.0.0.1:{port}/fires"' in cluster.metrics("n1")
        assert "secret" not in cluster.metrics("n1") + cluster.said("n1")
        assert cluster.said("n1").count("is unreachable: ") == 1, "it is said once"

        before, at_s = value(cluster, "sink_oldest_waiting_seconds") or 0, time.monotonic()
        cluster.kill("n1")
        cluster.restart("n1")
        cluster.wait_until_ready()
        assert (value(cluster, "sink_waiting") or 0) > 30, "they wait on disk"
        least = before + time.monotonic() - at_s
        assert (value(cluster, "sink_oldest_waiting_seconds") or 0) >= least, "and have waited all the time"
        assert "Inf" not in re.sub(r'le="\+Inf"', "", cluster.metrics("n1"))
        assert re.search(r'^headwater_build_info{version="[^"]*"} 1', cluster.metrics("n1"), re.MULTILINE)
        with urllib.request.urlopen(cluster.coordinator["http"] + "/metrics", timeout=ANSWER_S) as page:
            assert re.search(rb'^headwater_build_info{version="[^"]*"} 1', page.read(), re.MULTILINE)

        with a_receiver(port) as receiver:
            until(lambda: value(cluster, "sink_connected") == 1, "the receiver is there", cluster)
            until(lambda: (value(cluster, "deliveries_total") or 0) > 30, "it has taken some", cluster)
            until(lambda: (value(cluster, "sink_oldest_waiting_seconds") or 0) < 60, "it catches up", cluster)
            assert receiver.taken >= (value(cluster, "deliveries_total") or 0) > 0
            until(lambda: cluster.ask("n1", "/ready")["degraded"] == [], "nothing is away", cluster)
        assert cluster.said("n1").count("is reachable again") == 1


@pytest.mark.skipif(MOSQUITTO is None, reason="mosquitto is not installed: apt-get install mosquitto")
def test_a_broker_that_is_killed_is_told_of_for_sinks(tmp_path: Path) -> None:
    port = free_port()
    broker = Mosquitto(tmp_path, port)
    network = a_network(links=(("n1", "n2"),), sources=(("n1", "A"),), sinks=(("n1", "A"),))
    to = MqttTo("out", Broker("127.0.0.1", port))
    asyncio.run(broker.start())
    try:
        with Cluster(network, tmp_path, (RateFeed(20, "regular", VALUES),), (to,)) as cluster:
            cluster.wait_until_ready()
            until(lambda: (value(cluster, "deliveries_total") or 0) > 5, "some were taken", cluster)
            assert value(cluster, "sink_connected") == 1
            asyncio.run(broker.stop(kill=True))
            until(lambda: value(cluster, "sink_connected") == 0, "the broker is gone", cluster)
            taken = value(cluster, "deliveries_total")
            until(lambda: (value(cluster, "sink_waiting") or 0) > 5, "deliveries wait", cluster)
            assert value(cluster, "deliveries_total") == taken
            assert "the broker" in cluster.ask("n1", "/ready")["degraded"][0]
            asyncio.run(broker.start())
            until(lambda: (value(cluster, "deliveries_total") or 0) > (taken or 0) + 5, "it goes on", cluster)
            assert value(cluster, "sink_connected") == 1
    finally:
        asyncio.run(broker.stop())


def test_late_and_malformed_events_are_logged_with_the_source_and_the_reason(tmp_path: Path) -> None:
    network = a_network(links=(("n1", "n2"),), sources=(("n1", "A"),), sinks=(("n1", "A"),), lateness_us=1_000_000)
    with Cluster(network, tmp_path, (ClientFeed(),)) as cluster:
        cluster.wait_until_ready()

        async def publish() -> None:
            address = cluster.log("n1").with_suffix(".address").read_text()
            async with Client("n1", address, name="late", network="test") as client:
                await client.publish("A", {"id": 1, "v": 1})
                assert value(cluster, "source_connected") == 1
                for number in range(20):
                    await client.publish("A", {"id": number, "v": 1}, ts=time.time_ns() // 1000 - 60_000_000)
                for _ in range(20):
                    with pytest.raises(Exception, match="has no attribute"):
                        await client.publish("A", {"id": 1, "wrong": 1})

        asyncio.run(publish())
        said = cluster.said("n1")
        late = [line for line in said.splitlines() if "is late" in line]
        assert len(late) == 1, "not twenty times"
        assert re.search(
            r"source 0 \(A\): an event came 6\d\.\d+ s after its time and is late by 59|6\d\.\d+ s", late[0]
        )
        assert len(re.findall(r"source 0 \(A\): A has no attribute 'wrong'", said)) == 1
        until(lambda: value(cluster, "source_connected") == 0, "the program has left", cluster)


def test_what_happens_often_is_said_now_and_then_with_how_often(caplog: pytest.LogCaptureFixture) -> None:
    now_s = [0.0]
    seldom = Seldom(logging.getLogger("test"), lambda: now_s[0])
    with caplog.at_level(logging.WARNING, "test"):
        for number in range(5):
            seldom.say("late 1", f"event {number} is late")
        seldom.say("late 2", "another source")
        now_s[0] = AGAIN_S
        seldom.say("late 1", "event 5 is late")
    assert caplog.messages == [
        "event 0 is late",
        "another source",
        "event 5 is late (4 more like it since the last was said)",
    ]


def test_the_age_of_what_waits_is_that_of_the_oldest_however_many_came() -> None:
    waits = Waits()
    assert waits.oldest_s(10) == 0
    for number in range(1, 10_000):
        waits.came(number, number * 1_000_000)
    now_us = 10_000 * 1_000_000
    assert waits.oldest_s(now_us) == 9_999
    waits.left(5_000)
    assert 4_999 <= waits.oldest_s(now_us) <= 5_100  # never younger than it is
    assert len(waits._steps) < 5_000
    waits.left(10_000)
    assert waits.oldest_s(now_us) == 0
