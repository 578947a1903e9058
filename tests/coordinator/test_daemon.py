"""The coordinator as a process, with nodes on real links: bring-up, changes, kill -9, restarts, strangers."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiohttp

from headwater.protocol.links import make_keys
from headwater.protocol.messages.control import COORDINATOR, SubscribeClient
from headwater.protocol.subscriptions import Subscription
from tests.kit.live_coordinator import LiveCoordinator, LiveNode, a_live_network, until
from tests.kit.patience import output_of
from tests.kit.scripted_nodes import HEAT, a_network


def test_nodes_register_and_a_rule_is_deployed_replaced_and_undeployed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with a_live_network(tmp_path, a_network()) as (coordinator, nodes):
            assert (await coordinator.call("GET", "/ready"))[0] == 200
            status, body = await coordinator.call("POST", "/rules", {"text": HEAT})
            assert (status, body["rules"]) == (200, ["Heat"])
            holds_from_us = max(node.script.promised_us for node in nodes.values()) + 1
            assert body["holds_from_us"] == holds_from_us
            shown = (await coordinator.get("/rules/Heat"))["text"]
            status, body = await coordinator.call("PUT", "/rules/Heat", {"text": shown.replace("60", "70")})
            assert status == 200, body
            rule = await coordinator.get("/rules/Heat")
            assert (rule["version"], "70" in rule["text"]) == (2, True)
            assert (await coordinator.call("DELETE", "/rules/Heat"))[0] == 200
            assert [rule["name"] for rule in (await coordinator.get("/rules"))["rules"]] == ["Fire"]
            plans = await coordinator.get("/plans")
            assert [past["what"] for past in plans["changes"]] == ["deploy Heat", "replace Heat", "undeploy Heat"]
            assert plans["plan"] == 5

    asyncio.run(scenario())


def test_each_change_holds_once_however_often_the_coordinator_is_killed(tmp_path: Path) -> None:
    """It is killed at random moments while changes are made; the client asks again with the same key."""

    async def scenario() -> None:
        chance = random.Random(5)
        async with a_live_network(tmp_path, a_network()) as (coordinator, nodes):

            async def asked(number: int) -> Any:
                body = {"node": f"n{number % 3 + 1}", "subscribe": "Fire", "to": {"file": f"{number}"}}
                while True:
                    try:
                        status, answer = await coordinator.call(
                            "POST", "/subscriptions", body, headers={"Idempotency-Key": f"change {number}"}
                        )
                    except (aiohttp.ClientError, OSError):
                        await asyncio.sleep(0.02)
                        continue
                    assert status == 200, answer
                    return answer["subscription"]

            changes: list[asyncio.Task[Any]] = []
            for _ in range(8):
                changes += [asyncio.create_task(asked(len(changes) + more)) for more in range(2)]
                await asyncio.sleep(chance.uniform(0.0, 0.12))
                coordinator.kill()
                await coordinator.start()
                if chance.random() < 0.5:  # otherwise the next kill meets these changes, too
                    await asyncio.wait(changes)
            numbers = [await task for task in changes]
            assert sorted(numbers) == list(range(1, len(changes) + 1))
            found = (await coordinator.get("/subscriptions"))["subscriptions"]
            assert {each["number"]: each["to"]["file"] for each in found if each["number"]} == {
                number: str(change) for change, number in enumerate(numbers)
            }
            plan = (await coordinator.get("/plans"))["plan"]
            assert plan == len(changes) + 1
            await until(lambda: all(max(n.script.shares) == plan for n in nodes.values()), "all have the last plan")
            for node in nodes.values():
                assert node.script.adopted == dict.fromkeys(range(1, plan + 1), 1), "each plan is told once"
                assert node.resets == 0, "the links go on where they were"

    asyncio.run(scenario())


def test_nodes_register_in_any_order_twice_and_while_the_coordinator_is_down(tmp_path: Path) -> None:
    async def scenario() -> None:
        network = a_network(4)
        coordinator = await LiveCoordinator(tmp_path, network).start()
        nodes = [await LiveNode(name, coordinator).start() for name in ("n3", "n1")]
        try:
            await until(lambda: all(node.script.config for node in nodes), "two nodes are configured")
            coordinator.kill()
            nodes[0].say(nodes[0].script.registers())
            nodes.append(await LiveNode("n4", coordinator).start())
            await coordinator.start()
            nodes.append(await LiveNode("n2", coordinator).start())
            await until(lambda: all(node.script.adopted for node in nodes), "all nodes have the first plan")
            assert all(node.script.adopted == {1: 1} for node in nodes)
            listed = (await coordinator.get("/nodes"))["nodes"]
            assert [(each["name"], each["state"]) for each in listed] == [(f"n{i}", "up") for i in range(1, 5)]
        finally:
            for node in nodes:
                await node.hub.close()
            await coordinator.close()

    asyncio.run(scenario())


def test_a_node_of_another_network_and_an_unknown_name_are_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        coordinator = await LiveCoordinator(tmp_path, a_network()).start()
        strangers = [LiveNode("n1", coordinator, network="other"), LiveNode("n9", coordinator)]
        known = LiveNode("n2", coordinator)
        try:
            for node in (*strangers, known):
                await node.start()
            await until(lambda: known.script.config, "the node that belongs here is configured")
            await asyncio.sleep(1.0)
            assert not any(node.is_up.is_set() or node.script.config for node in strangers)
            listed = (await coordinator.get("/nodes"))["nodes"]
            assert [each["state"] for each in listed] == ["unregistered", "up", "unregistered"]
        finally:
            for node in (*strangers, known):
                await node.hub.close()
            await coordinator.close()

    asyncio.run(scenario())


def test_with_keys_only_who_has_one_is_configured(tmp_path: Path) -> None:
    async def scenario() -> None:
        keys = tmp_path / "keys"
        make_keys(keys, [COORDINATOR, "n1", "n2", "n3"])
        async with a_live_network(tmp_path, a_network(), keys=keys) as (coordinator, nodes):
            peer = nodes["n1"].script.config.peers[0]  # type: ignore[union-attr]
            assert peer.public_key == (keys / "n2.pub").read_text().strip()
            assert (await coordinator.call("GET", "/ready"))[0] == 200

    asyncio.run(scenario())


def test_a_change_that_a_node_does_not_prepare_is_given_up(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with a_live_network(tmp_path, a_network(), timeout_us=300_000) as (coordinator, nodes):
            nodes["n2"].script.deaf = True
            status, body = await coordinator.call("POST", "/rules", {"text": HEAT})
            assert (status, body["error"]) == (504, "n2 did not answer within 0.3 s; nothing has been changed")
            nodes["n2"].script.deaf = False
            assert (await coordinator.call("POST", "/rules", {"text": HEAT}))[0] == 200

    asyncio.run(scenario())


def test_clients_of_nodes_subscribe_through_their_node(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with a_live_network(tmp_path, a_network()) as (coordinator, nodes):
            nodes["n2"].say(SubscribeClient(7, "app", Subscription("Fire")))
            nodes["n2"].say(SubscribeClient(8, "app", Subscription("Fire")))
            await until(lambda: len(nodes["n2"].script.answers) == 2, "both requests are answered")
            assert [(a.request, a.refused) for a in nodes["n2"].script.answers] == [(7, None), (8, None)]
            found = (await coordinator.get("/subscriptions"))["subscriptions"]
            assert [each["to"] for each in found if each["node"] == "n2"] == [{"client": "app"}]

    asyncio.run(scenario())


def test_a_node_that_has_lost_its_memory_is_told_everything_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with a_live_network(tmp_path, a_network()) as (coordinator, nodes):
            await coordinator.call("POST", "/rules", {"text": HEAT})
            await nodes["n2"].hub.close()
            nodes["n2"] = await LiveNode("n2", coordinator, life="second").start()
            await until(lambda: nodes["n2"].script.adopted, "the node has the plan")
            assert (await coordinator.call("DELETE", "/rules/Heat"))[0] == 200
            listed = {each["name"]: each["life"] for each in (await coordinator.get("/nodes"))["nodes"]}
            assert listed["n2"] == "second"

    asyncio.run(scenario())


def test_sigterm_leaves_a_snapshot_and_the_next_start_replays_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with a_live_network(tmp_path, a_network()) as (coordinator, nodes):
            await coordinator.call("POST", "/rules", {"text": HEAT})
            assert await coordinator.terminate() == 0
            await coordinator.start()
            metrics = await coordinator.get("/metrics")
            assert "headwater_coordinator_replayed_inputs_total 0.0" in metrics
            assert "headwater_coordinator_plan 2.0" in metrics
            await until(lambda: all(node.is_up.is_set() for node in nodes.values()), "the nodes are connected again")
            assert (await coordinator.call("DELETE", "/rules/Heat"))[0] == 200
            assert all(node.resets == 0 for node in nodes.values())

    asyncio.run(scenario())


def test_a_token_survives_restarts_and_no_other_user_can_read_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        coordinator = await LiveCoordinator(tmp_path, a_network()).start()
        try:
            first = coordinator.token
            assert (coordinator.data / "token").stat().st_mode & 0o777 == 0o600
            coordinator.kill()
            await coordinator.start()
            assert coordinator.token == first
        finally:
            await coordinator.close()

    asyncio.run(scenario())


def test_a_node_that_is_silent_for_longer_than_the_file_allows_is_given_up(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with a_live_network(tmp_path, a_network(), lost_after_us=1_000_000) as (coordinator, nodes):
            await nodes["n3"].hub.close()
            plan = nodes["n1"].script.newest().plan
            await until(lambda: nodes["n1"].script.newest().plan > plan, "a plan without the node")
            states = {each["name"]: each["state"] for each in (await coordinator.get("/nodes"))["nodes"]}
            assert states == {"n1": "up", "n2": "up", "n3": "lost"}
            assert [each["type"] for each in (await coordinator.get("/sources"))["sources"]] == ["Smoke"]

    asyncio.run(scenario())


NETWORK = """
events: {Smoke: {area: string}, Temp: {area: string, value: float}}
nodes: [n1, n2]
links: [{between: [n1, n2]}]
sources:
  - {node: n1, type: Smoke, rate: 1/s, values: {area: {choice: [a]}}}
  - {node: n2, type: Temp, rate: 1/s, values: {area: {choice: [a]}, value: {uniform: [0, 100]}}}
sinks: [{node: n1, subscribe: Fire}]
rules: ["define Fire() from Smoke() and each Temp() within 5 s from Smoke"]
"""


def test_the_command_says_where_it_listens_and_warns_of_a_file_that_has_changed(tmp_path: Path) -> None:
    file, data = tmp_path / "network.yaml", tmp_path / "data"
    file.write_text(NETWORK)

    def started() -> tuple[str, str]:
        """Run the command until it listens, and end it; what it printed."""
        (data / "endpoints.json").unlink(missing_ok=True)
        process = subprocess.Popen(
            [sys.executable, "-m", "headwater.deploy.cli.command", "coordinator", str(file), "--data", str(data)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        line = process.stdout.readline()
        assert json.loads((data / "endpoints.json").read_text())["http"] in line
        process.terminate()
        _, errors = output_of(process)
        assert process.returncode == 0, errors
        return line, errors

    line, errors = started()
    assert line.startswith("coordinator of headwater: nodes at tcp://127.0.0.1:")
    assert "has changed" not in errors
    assert "has changed" not in started()[1]
    file.write_text(NETWORK.replace("5 s", "6 s"))
    assert "has changed since this coordinator first started; the network continues unchanged" in started()[1]
    file.write_text("nodes: 7")
    assert "cannot be read" in started()[1]
