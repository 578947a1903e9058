"""The coordinator's HTTP API: its description is true, strangers and nonsense are refused with a sentence."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from headwater.coordinator.daemon.api.body_errors import read_body
from headwater.coordinator.daemon.api.destinations import destination_of, shown
from headwater.coordinator.daemon.api.edge_models import as_json
from headwater.coordinator.daemon.api.models import SourceBody, SubscriptionBody
from headwater.coordinator.daemon.api.openapi import answer_model, description, statuses
from headwater.coordinator.daemon.api.routes import ROUTES, Route
from headwater.coordinator.daemon.api.server import BODY_BYTES_MAX, Api
from headwater.coordinator.daemon.operations import RequestRefused
from headwater.deploy.network.file import read_network
from headwater.protocol.destinations import named
from headwater.protocol.edge import (
    Broker,
    Choice,
    ClientTo,
    Cycle,
    Destination,
    Feed,
    FileTo,
    MqttFeed,
    MqttTo,
    RateFeed,
    StdoutTo,
    TraceFeed,
    Uniform,
    WebhookTo,
)
from headwater.protocol.messages.control import COORDINATOR, encode_statistics
from tests.kit.live_coordinator import LiveCoordinator, LiveNode, a_live_network, until
from tests.kit.patience import patiently
from tests.kit.scripted_nodes import HEAT, a_network

# ------------------------------------------------------------------------------------------------------ the description


def test_every_route_is_served_and_described() -> None:
    described = description("1")
    assert described["openapi"] == "3.1.0"
    for route in ROUTES:
        assert callable(getattr(Api, route.handler)), route
        operation = described["paths"][route.path][route.method.lower()]
        assert operation["summary"] == route.summary
        assert set(operation["responses"]) == {str(status) for status in statuses(route)}
        names = {each["name"] for each in operation["parameters"] if each["in"] == "path"}
        assert names == set(re.findall(r"\{(\w+)\}", route.path))
        assert ("security" in operation) == (route.method != "GET")
    assert len({route.handler for route in ROUTES}) == len(ROUTES)


def test_the_description_refers_only_to_what_it_describes() -> None:
    described = description("1")
    text = json.dumps(described)
    assert set(re.findall(r'"#/components/schemas/([^"]+)"', text)) <= described["components"]["schemas"].keys()
    source = described["components"]["schemas"]["SourceBody"]
    assert source["required"] == ["node", "type", "from"]
    assert source["additionalProperties"] is False


def test_nodes_and_the_command_start_without_pydantic() -> None:
    code = (
        "import sys, headwater.node.daemon.process, headwater.deploy.cli.command, headwater.coordinator.daemon.process;"
        "sys.exit('pydantic' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def a_source(feed: Any) -> SourceBody:
    return read_body(SourceBody, json.dumps({"node": "n1", "type": "Smoke", "from": feed}).encode())


def a_subscription(to: Any) -> SubscriptionBody:
    return read_body(SubscriptionBody, json.dumps({"node": "n1", "subscribe": "Smoke", "to": to}).encode())


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (TraceFeed("x.csv", 2.0), Feed),
        (
            RateFeed(2.0, "poisson", (Uniform(1, 2.5, False), Choice(("a", 1, None, True), (1.0, 2.0)), Cycle((1,)))),
            Feed,
        ),
        (MqttFeed("a/+/b", Broker("h", 1, "me", "pw")), Feed),
    ],
)
def test_feeds_survive_json(value: Any, hint: Any) -> None:
    assert a_source(as_json(value, hint)).feed == value


NETWORK = """
events: {{Smoke: {{area: string}}}}
nodes: [p1]
mqtt: {{broker: mqtt://h:1884}}
sources:
  - {{node: p1, type: Smoke, client: any}}
sinks:
  - {{node: p1, subscribe: Smoke, to: {to}}}
"""


@pytest.mark.parametrize(
    ("to", "meant"),
    [
        ("stdout", StdoutTo()),
        ("client", ClientTo("sink-0")),
        ({"client": "me"}, ClientTo("me")),
        ({"file": "x.jsonl"}, FileTo("x.jsonl")),
        ({"webhook": "https://h/x"}, WebhookTo("https://h/x")),
        ({"mqtt": "out/{type}"}, MqttTo("out/{type}", Broker("h", 1884))),
        ({"mqtt": "out", "qos": 0}, MqttTo("out", Broker("h", 1884), 0)),
    ],
)
def test_where_deliveries_go_is_written_alike_in_network_files_and_to_the_api(
    to: Any, meant: Destination, tmp_path: Path
) -> None:
    file = tmp_path / "network.yaml"
    file.write_text(NETWORK.format(to=json.dumps(to)))
    assert read_network(file).destinations == (meant,)
    assert named(destination_of(a_subscription(to).to, Broker("h", 1884)), 0) == meant
    assert destination_of(a_subscription(shown(meant)).to, None) == meant


def test_a_subscription_that_does_not_say_where_goes_to_a_file_of_its_number() -> None:
    assert named(destination_of(None, None), 7) == FileTo("sink-7.jsonl")


@pytest.mark.parametrize(
    ("sent", "sentence"),
    [
        ({}, "exactly one of the fields"),
        ({"trace": {"path": "x"}, "client": {}}, "exactly one of the fields"),
        ({"trac": {"path": "x"}}, "did you mean 'trace'?"),
        ({"trace": {}}, "lacks the field 'path'"),
        ({"trace": {"path": 7}}, "path must be a string, not 7"),
        ({"trace": {"path": "x", "more": 1}}, "unknown field 'more'"),
        ([], "must be an object"),
        (None, "must be an object"),
    ],
)
def test_what_does_not_fit_is_said_in_words(sent: Any, sentence: str) -> None:
    with pytest.raises(RequestRefused) as refused:
        a_source(sent)
    assert refused.value.status == 400
    assert sentence in refused.value.sentence


@pytest.mark.parametrize(
    ("to", "sentence"),
    [
        ("stdoot", "is 'stdoot'; write one of stdout, client"),
        ({"fil": "x"}, "unknown field 'fil'; did you mean 'file'?"),
        ({"file": 7}, "file must be a string, not 7"),
        ({"mqtt": "x", "qos": 2}, "qos is 2; write one of 0, 1"),
        ({"file": {"path": "x"}}, "file must be a string"),
        ({}, 'to does not say where; write "stdout"'),
        ({"file": "x", "webhook": "http://h"}, "a sink goes to one place, not to file and webhook"),
        ({"file": " "}, "file needs a name"),
        ({"file": "x", "qos": 1}, "qos belongs to mqtt, and this sink has file"),
        ({"webhook": "ftp://h"}, "'ftp://h' is not a web address"),
        ({"mqtt": "a/+"}, "has a wildcard"),
        ({"mqtt": "a/{"}, "has a brace too many"),
        ({"mqtt": "a"}, "names no MQTT broker"),
    ],
)
def test_what_is_no_place_for_deliveries_is_said_in_words(to: Any, sentence: str) -> None:
    with pytest.raises(RequestRefused) as refused:
        destination_of(a_subscription(to).to, None)
    assert refused.value.status == 400
    assert sentence in refused.value.sentence


# -------------------------------------------------------------------------------------------------------- a live server


class Checked:
    """A client that holds every answer to the description."""

    def __init__(self, coordinator: LiveCoordinator) -> None:
        self._coordinator = coordinator
        self.seen: set[tuple[str, str]] = set()

    async def __call__(self, method: str, path: str, body: Any = None, **options: Any) -> tuple[int, Any]:
        route = route_of(method, path)
        well_formed = True
        if body is not None and not isinstance(body, bytes) and route.body is not None:
            try:
                route.body.model_validate_json(json.dumps(body))
            except ValidationError:
                well_formed = False
        status, answer = await self._coordinator.call(method, path, body, **options)
        assert status in statuses(route), f"{method} {path} answers {status}, which is not described: {answer}"
        model = answer_model(route, status)
        if model is None:
            assert isinstance(answer, str)
        else:
            model.model_validate_json(json.dumps(answer))
        assert well_formed or status in (400, 401)
        self.seen.add((route.method, route.path))
        return status, answer


def route_of(method: str, path: str) -> Route:
    plain = path.partition("?")[0]
    for route in ROUTES:
        if route.method == method and re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", route.path), plain):
            return route
    raise AssertionError(f"no route for {method} {path}")


async def in_time(holds: Callable[[], Awaitable[bool]]) -> None:
    async with patiently():
        while not await holds():
            await asyncio.sleep(0.01)


def test_every_answer_of_a_live_run_fits_its_description(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with a_live_network(tmp_path, a_network(4)) as (coordinator, nodes):
            call = Checked(coordinator)
            told = {
                "time_us": 11_000_000,
                "since_us": 1_000_000,
                "events": [{"source": 0, "type": "Smoke", "born": 100_000}],
                "predicates": [{"kind": "filter", "text": "Temp(value > 45)", "seen": 10, "passed": 4}],
                "links": {"n2": {"primitive": {"events": 5, "messages": 1, "bytes": 99}}},
                "streams": [{"watermark": 10_750_000}, {"watermark": None}, {"watermark": float("inf")}],
                "up": {"n2": True},
                "odd": {"raw": b"x", "nan": float("nan")},
            }
            nodes["n1"].hub.whisper(COORDINATOR, encode_statistics(told))
            nodes["n2"].hub.whisper(COORDINATOR, b"nonsense")

            async def has_heard() -> bool:
                return bool((await call("GET", "/statistics"))[1]["rates"])

            await in_time(has_heard)
            for path in ("/health", "/ready", "/openapi.json", "/metrics", "/network", "/nodes", "/nodes/n1", "/links"):
                assert (await call("GET", path))[0] == 200
            statistics = (await call("GET", "/statistics"))[1]
            assert 0 < statistics["rates"]["Smoke"]["n1"] <= 10_000
            assert statistics["selectivities"][0]["selectivity"] == 0.4
            assert (await call("GET", "/nodes/n1"))[1]["watermark_lag_s"] == 0.25
            link = (await call("GET", "/links"))[1]["links"][0]
            assert (link["state"], link["traffic"]["n1"]["primitive"]["bytes"]) == ("up", 99)
            assert (await call("POST", "/rules", {"text": HEAT}))[0] == 200
            shown = (await call("GET", "/rules/Heat"))[1]
            assert (await call("PUT", "/rules/Heat", {"text": shown["text"], "language": shown["language"]}))[0] == 200
            made = await call("POST", "/subscriptions", {"node": "n2", "subscribe": "Heat", "to": "stdout"})
            assert made == (200, {**made[1], "subscription": 1})
            source = {"node": "n2", "type": "Temp", "from": {"client": {}}, "lateness_us": 5}
            assert (await call("POST", "/sources", source))[1]["source"] == 2
            for path in ("/rules", "/subscriptions", "/sources", "/plans"):
                assert (await call("GET", path))[0] == 200
            assert (await call("DELETE", "/subscriptions/1"))[0] == 200
            assert (await call("DELETE", "/sources/2"))[0] == 200
            assert (await call("DELETE", "/rules/Heat"))[0] == 200
            assert (await call("POST", "/plans"))[0] == 409, "st places nothing by rates"
            assert (await call("POST", "/tidy-up?wait=false"))[0] == 202
            assert (await call("GET", "/nodes/n1/tables"))[0] == 503, "scripted nodes have no tables"
            assert (await call("POST", "/links/n2/n1/lost"))[0] == 200
            assert (await call("POST", "/links/n2/n1/back"))[0] == 200
            assert (await call("POST", "/nodes/n4/lost"))[0] == 409, "it is up"
            await nodes["n4"].hub.close()

            async def is_down() -> bool:
                return bool((await call("GET", "/nodes/n4"))[1]["state"] == "down")

            await in_time(is_down)
            assert (await call("POST", "/nodes/n4/lost"))[0] == 200
            assert (await call("GET", "/nodes/n4"))[1]["state"] == "lost"
            assert (await call("POST", "/nodes/n4/back"))[0] == 409
            nodes["n4"] = await LiveNode("n4", coordinator, life="second").start()
            await until(lambda: nodes["n4"].is_up.is_set(), "the node is connected again")

            async def is_taken_back() -> bool:
                return bool((await call("POST", "/nodes/n4/back"))[0] == 200)

            await in_time(is_taken_back)
            await until(lambda: nodes["n4"].script.adopted, "the node has the plan again")
            assert call.seen == {(route.method, route.path) for route in ROUTES}

    asyncio.run(scenario())


def test_a_client_without_a_token_may_look_and_change_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        coordinator = await LiveCoordinator(tmp_path, a_network()).start()
        try:
            call = Checked(coordinator)
            for route in ROUTES:
                path = re.sub(r"\{\w+\}", "1", route.path)
                if route.changes:
                    for token in ("", "wrong", coordinator.token[:-1], coordinator.token + "x", "\u00e9"):
                        status, body = await call(route.method, path, {}, token=token)
                        assert status == 401
                        assert "token" in body["error"]
            status, _ = await coordinator.call("POST", "/tidy-up", headers={"Authorization": coordinator.token})
            assert status == 401, "a token must say that it is one"
            metrics = await coordinator.get("/metrics")
            count = sum(route.changes for route in ROUTES) * 5 + 1
            assert f"headwater_coordinator_http_unauthorized_total {count}.0" in metrics
            assert coordinator.token not in metrics
        finally:
            await coordinator.close()

    asyncio.run(scenario())


PIECE = b"x" * 0x10000


async def raw_call(coordinator: LiveCoordinator, head: str, body_bytes: int, piece: bytes = PIECE) -> tuple[str, int]:
    """Send a head and as much of a body as the other end lets us; the answer, and how much was sent."""
    host, _, port = coordinator.http.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(head.replace("\n", "\r\n").encode())
    sent = 0
    with contextlib.suppress(ConnectionError):
        while sent < body_bytes and not reader._buffer:  # type: ignore[attr-defined]
            writer.write(piece)
            sent += len(PIECE)
            await writer.drain()
            await asyncio.sleep(0)
    async with patiently():
        answer = await reader.read(65_536)
    writer.close()
    return answer.decode(), sent


def test_a_body_of_100_mb_is_refused_before_it_is_read(tmp_path: Path) -> None:
    async def scenario() -> None:
        coordinator = await LiveCoordinator(tmp_path, a_network()).start()
        size = 100_000_000
        authorized = f"Authorization: Bearer {coordinator.token}\n"
        try:
            head = f"POST /rules HTTP/1.1\nHost: x\n{authorized}"
            answer, sent = await raw_call(coordinator, f"{head}Content-Length: {size}\n\n", size)
            assert answer.startswith("HTTP/1.1 413"), answer
            assert sent < size // 2
            answer, sent = await raw_call(coordinator, f"{head}Content-Length: {size}\nExpect: 100-continue\n\n", 0)
            assert answer.startswith("HTTP/1.1 413"), answer
            chunked = f"{head}Transfer-Encoding: chunked\n\n10000\n"
            answer, sent = await raw_call(coordinator, chunked, size, PIECE + b"\r\n10000\r\n")
            assert answer.startswith("HTTP/1.1 413"), answer
            assert sent < size // 2
            status, _ = await coordinator.call("POST", "/rules", b" " * (BODY_BYTES_MAX + 1))
            assert status == 413
            head = "POST /rules HTTP/1.1\nHost: x\n"
            answer, sent = await raw_call(coordinator, f"{head}Content-Length: {size}\n\n", size)
            assert answer.startswith("HTTP/1.1 401"), answer
            assert sent < size // 2
            metrics = await coordinator.get("/metrics")
            assert "headwater_coordinator_http_oversized_total 4.0" in metrics
        finally:
            await coordinator.close()

    asyncio.run(scenario())


BAD_RULE = "define Hot() from Temp(valeu > 45) and each Smoke() within 1 min from Temp"


def mapped(attribute: str, place: str = "payload.x") -> dict[str, Any]:
    """A source whose messages are mapped to one attribute."""
    entry = {"attribute": attribute, "source": place}
    feed = {"topic": "s", "broker": {"host": "b"}, "map": [entry]}
    return {"node": "n1", "type": "Temp", "from": {"mqtt": feed}}


def test_nonsense_is_refused_with_the_place_of_the_mistake(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with a_live_network(tmp_path, a_network()) as (coordinator, _):
            call = Checked(coordinator)
            cases: list[tuple[str, str, Any, int, str]] = [
                ("POST", "/rules", b"{", 400, "not JSON"),
                ("POST", "/rules", b"[" * 100_000, 400, "not JSON"),
                ("POST", "/rules", b"\xff\xfe", 400, "body.sase:1:1: byte 0xff is not UTF-8"),
                ("POST", "/rules", b"", 400, "there is no rule in this text"),
                ("POST", "/rules", BAD_RULE.encode(), 400, "body.tesla:1:24: Temp has no attribute 'valeu'"),
                ("POST", "/rules?name=hot.tesla", BAD_RULE.encode(), 400, "hot.tesla:1:24: Temp has no"),
                ("POST", "/rules?language=sql", BAD_RULE.encode(), 400, "write one of tesla, sase"),
                ("POST", "/rules?replace=perhaps", BAD_RULE.encode(), 400, "write true or false"),
                ("POST", "/rules", {}, 400, "must have a text"),
                ("POST", "/rules", {"files": []}, 400, "at least 1"),
                ("POST", "/rules", {"files": [{"text": HEAT}], "text": HEAT}, 400, "must have a text"),
                ("POST", "/rules", {"files": [{"text": HEAT}, {"text": BAD_RULE}]}, 400, "body-2.tesla:1:24"),
                ("POST", "/rules", [], 400, "must be an object"),
                ("POST", "/rules", {"text": HEAT, "langauge": "tesla"}, 400, "did you mean 'language'?"),
                ("POST", "/rules", {"text": HEAT, "language": "sql"}, 400, "write one of tesla, sase"),
                ("POST", "/rules", {"text": BAD_RULE}, 400, "body.tesla:1:24: Temp has no attribute 'valeu'"),
                ("POST", "/rules", {"text": BAD_RULE, "name": "hot.tesla"}, 400, "hot.tesla:1:24"),
                ("POST", "/rules", {"text": "define"}, 400, "body.tesla:1:"),
                ("POST", "/rules", {"text": "SEQ(Smok s, Temp t) WITHIN 1 min", "language": "sase"}, 400, "'Smoke'?"),
                (
                    "POST",
                    "/rules",
                    {"text": HEAT.replace("Heat", "Fire")},
                    409,
                    "a rule 'Fire' is deployed already; replace",
                ),
                ("POST", "/rules", {"text": HEAT.replace("Heat(", "Smoke(")}, 400, "reads what it emits"),
                ("PUT", "/rules/None", {"text": HEAT}, 404, "no rule 'None'"),
                ("PUT", "/rules/Fire", {"text": HEAT}, 400, "must define the rule 'Fire'"),
                ("DELETE", "/rules/None", None, 404, "no rule 'None'"),
                ("DELETE", "/rules/Fire", b"body", 400, "has no body"),
                ("DELETE", "/subscriptions/x", None, 400, "is not a number"),
                ("DELETE", "/subscriptions/99", None, 404, "no subscription 99"),
                ("DELETE", "/sources/99", None, 404, "no source 99"),
                ("POST", "/sources", mapped("valeu"), 400, "map.valeu: Temp has no attribute 'valeu'; did you mean"),
                ("POST", "/sources", mapped("value", "x"), 400, "map.value: 'x' is not a place in a message"),
                ("POST", "/nodes/n9/lost", None, 404, "no node 'n9'"),
                ("POST", "/links/n1/n3/lost", None, 404, "no link joins"),
                ("POST", "/tidy-up?wait=perhaps", None, 400, "write true or false"),
            ]
            subscription = {"node": "n1", "subscribe": "Fire", "to": "stdout"}
            for change, sentence in (
                ({"node": "n9"}, "no node 'n9'"),
                ({"subscribe": "Fyre"}, "did you mean 'Fire'?"),
                ({"subscribe": "Fire(are = 1)"}, "subscribe:1:6"),
                ({"to": {"fiel": "x"}}, "did you mean 'file'?"),
                ({"to": {"mqtt": "x/{aera}", "broker": {"host": "h"}}}, "nothing to fill in for {aera}; did you mean"),
                ({"node": 7}, "node must be a string, not 7"),
            ):
                cases.append(("POST", "/subscriptions", {**subscription, **change}, 400, sentence))
            for method, path, body, status, sentence in cases:
                found, answer = await call(method, path, body)
                assert (found, sentence in answer["error"]) == (status, True), (method, path, body, answer)
            assert (await coordinator.call("GET", "/nothing"))[0] == 404
            assert (await coordinator.call("PATCH", "/rules"))[0] == 405
            assert (await coordinator.get("/plans"))["plan"] == 1

    asyncio.run(scenario())


def test_a_rule_may_read_what_a_deployed_one_emits_and_declare_types(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with a_live_network(tmp_path, a_network()) as (coordinator, nodes):
            call = Checked(coordinator)
            text = (
                "event Rain(area: string)\n"
                "define Doused(area: string) from Fire() and each Rain(area = Fire.area) within 1 min from Fire "
                "where area = Fire.area"
            )
            status, body = await call("POST", "/rules", {"text": text})
            assert (status, body.get("rules")) == (200, ["Doused"]), body
            config = nodes["n1"].script.config
            assert config is not None
            assert "Rain" in {each.name for each in config.types}
            status, body = await call("DELETE", "/rules/Fire")
            assert (status, body["error"]) == (409, "rule 'Doused' reads Fire; undeploy that first")
            status, _ = await call("POST", "/sources", {"node": "n1", "type": "Rain", "from": {"client": {}}})
            assert status == 200

    asyncio.run(scenario())


def test_the_same_key_again_is_answered_as_before_also_where_the_request_would_be_wrong_by_now(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with a_live_network(tmp_path, a_network()) as (coordinator, _):
            rule = {"text": "define Hot(area: string) from Temp(value > 50) where area = Temp.area"}
            key = {"Idempotency-Key": "one"}
            first = await coordinator.call("POST", "/rules", rule, headers=key)
            assert first[0] == 200, first
            assert await coordinator.call("POST", "/rules", rule, headers=key) == first
            status, answer = await coordinator.call("POST", "/rules", rule)
            assert (status, "a rule 'Hot' is deployed already" in answer["error"]) == (409, True)
            key = {"Idempotency-Key": "two"}
            gone = await coordinator.call("DELETE", "/rules/Hot", headers=key)
            assert gone[0] == 200, gone
            assert await coordinator.call("DELETE", "/rules/Hot", headers=key) == gone

    asyncio.run(scenario())


def test_file_destinations_are_shown_as_they_are_given() -> None:
    assert as_json(FileTo("x"), Destination) == {"file": {"path": "x"}}


RAIN = """# Rain puts fires out.
event Rain(area: string)
define Doused(area: string)
from Fire() and each Rain(area = Fire.area) within 1 min from Fire
where area = Fire.area
"""


def test_rules_are_sent_as_they_are_written(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with a_live_network(tmp_path, a_network()) as (coordinator, _):
            call = Checked(coordinator)
            form = {"Content-Type": "application/x-www-form-urlencoded"}  # as curl --data-binary says
            status, body = await call("POST", "/rules", RAIN.encode(), headers=form)
            assert (status, body["rules"]) == (200, ["Doused"]), body
            status, body = await call("POST", "/rules", b"Hot: SEQ(Temp t, Smoke s) WITHIN 5 min")
            assert (status, body["rules"]) == (200, ["Hot"]), body
            plain = {"Content-Type": "text/plain; charset=utf-8"}
            asked = b"SEQ(Smoke s, Temp t) WITHIN 1 min"
            status, body = await call("POST", "/rules?language=sase&name=cold.sase", asked, headers=plain)
            assert (status, body["rules"]) == (200, ["cold"]), body
            newer = RAIN.partition("define")[2].replace("1 min", "2 min")
            status, body = await call("PUT", "/rules/Doused", f"define{newer}".encode(), headers=plain)
            assert (status, body["rules"]) == (200, ["Doused"]), body
            shown = (await call("GET", "/rules/Doused"))[1]
            assert (shown["version"], "2 min" in shown["text"]) == (2, True)
            as_json = json.dumps({"text": HEAT}).encode()
            status, body = await call("POST", "/rules", as_json, headers=form)
            assert (status, body["rules"]) == (200, ["Heat"]), body

    asyncio.run(scenario())


def test_several_texts_are_deployed_and_replaced_together(tmp_path: Path) -> None:
    pair = "Pair: SEQ(Heat h, Smoke s) WITHIN 5 min"

    async def scenario() -> None:
        async with a_live_network(tmp_path, a_network()) as (coordinator, _):
            call = Checked(coordinator)

            async def versions() -> dict[str, int]:
                return {each["name"]: each["version"] for each in (await call("GET", "/rules"))[1]["rules"]}

            files = [{"text": pair, "name": "pair.sase"}, {"text": HEAT, "name": "heat.tesla"}]
            status, body = await call("POST", "/rules", {"files": files})
            assert (status, body["rules"]) == (200, ["Heat", "Pair"]), body
            status, body = await call("POST", "/rules", {"files": files})
            assert (status, "rules 'Heat', 'Pair' are deployed already" in body["error"]) == (409, True), body
            status, body = await call("POST", "/rules?replace=true", {"files": files})
            assert (status, await versions()) == (200, {"Fire": 1, "Heat": 1, "Pair": 1}), body
            files[0]["text"] = pair.replace("5 min", "6 min")
            status, body = await call("POST", "/rules?replace=true", {"files": files})
            assert (status, await versions()) == (200, {"Fire": 1, "Heat": 1, "Pair": 2}), body
            files[1]["text"] = HEAT.replace("60", "50")
            status, body = await call("POST", "/rules?replace=true", {"files": files[1:]})
            assert (status, await versions()) == (200, {"Fire": 1, "Heat": 2, "Pair": 2}), body

    asyncio.run(scenario())
