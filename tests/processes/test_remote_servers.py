"""A network of processes whose rules look into real servers, which are killed and come back, as its nodes are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.deploy.cluster.stop import stop
from tests.kit.card_network import CARDS, CardFolder, CardServers
from tests.kit.patience import until
from tests.kit.remote_servers import PASSWORD, needs_postgres, needs_redis

NODES = ("p1", "p2", "p3", "p4")
SERVED = ("limits", "blocked", "places")


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CardServers]:
    servers = CardServers(tmp_path_factory.mktemp("servers"))
    try:
        servers.start()
        yield servers
    finally:
        servers.delete()


EVERYWHERE: dict[str, str] = {}
APART = {"limits": "p1", "blocked": "p4", "places": "p1, p4"}


@pytest.fixture(
    params=[("mt", EVERYWHERE), ("inev", EVERYWHERE), ("st", APART)], ids=["mt", "inev", "st, tables asked by others"]
)
def network(
    request: pytest.FixtureRequest, servers: CardServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[CardFolder]:
    monkeypatch.setenv("CARDS_KEY", PASSWORD)
    servers.web.forget_requests()
    folder = CardFolder(tmp_path, servers, *request.param)
    try:
        assert "cards is up" in folder.command("up", "cards.yaml")
        yield folder
    finally:
        stop(folder.run)


@needs_postgres
@needs_redis
def test_servers_and_nodes_that_die_and_come_back_change_no_result(network: CardFolder, servers: CardServers) -> None:
    cards = iter(range(CARDS))
    published: list[int] = []

    def publish(number: int) -> None:
        new = [next(cards) for _ in range(number)]
        network.publish(new)
        published.extend(new)

    publish(30)
    network.wait_until_received(published)
    asked_at_most_once(network, servers)

    for table, server in servers.by_table.items():
        server.kill()
        publish(15)
        until(lambda table=table: missing(network, table), f"{table} is missed", why=network.all_logs)  # type: ignore[misc]
        askers = missing(network, table)
        network.kill(*askers)
        publish(15)
        for node in askers:
            until(
                lambda node=node, table=table: network.said(node, table)[-2:] == ["away", "away"],  # type: ignore[misc]
                f"{node} asks for {table} again in its new life", why=network.all_logs,
            )  # fmt: skip
        server.start()
        network.wait_until_received(published)
        for node in askers:
            until(lambda node=node, table=table: network.said(node, table)[-1] == "back", "it is back")  # type: ignore[misc]

    for server in servers.by_table.values():
        server.kill()
    publish(30)
    # Which of them are missed first depends on the order in which a rule asks.
    until(lambda: any(missing(network, table) for table in SERVED), "they are missed", why=network.all_logs)
    for server in reversed(servers.by_table.values()):
        server.start()
    publish(30)
    network.wait_until_received(published)
    network.assert_exact(published)
    one_line_each(network)
    fees_are_asked_for_again(servers, published)
    assert_no_secrets(network)


def assert_no_secrets(network: CardFolder) -> None:
    """Not on a page of any process, and not in a file of the run: logs, journals, snapshots, plans."""
    for node in NODES:
        for page in ("config", "metrics", "remote", "sources", "statistics", "tables", "waiting"):
            assert PASSWORD not in network.page(node, page), (node, page)
    for page in ("metrics", "network", "nodes", "nodes/p2", "plans", "rules", "sources", "statistics"):
        assert PASSWORD not in network.page("@coordinator", page), page
    assert PASSWORD not in network.command("ps", "--json") + network.command("rules") + network.command("down")
    files = [file for file in network.run.folder.rglob("*") if file.is_file()]
    assert any(file.match("data/*/journal/*") for file in files)
    assert not [file for file in files if PASSWORD.encode() in file.read_bytes()]
    for words in (("check", "cards.yaml", "--remote-check"), ("plan", "cards.yaml")):
        assert PASSWORD not in network.command(*words), words


def missing(network: CardFolder, table: str) -> list[str]:
    """The nodes that have said that the table is away, and not that it is back."""
    return [node for node in NODES if network.said(node, table)[-1:] == ["away"]]


def one_line_each(network: CardFolder) -> None:
    """Every node has said once, in each of its lives, that a table was away, and once that it was back."""
    for node in NODES:
        for table in (*SERVED, "fees", "regions", "names"):
            said = network.said(node, table)
            assert set(said) <= {"away", "back"}, said
            assert said[-1:] != ["away"], f"{node} has not said that {table} is back"
            assert said.count("away") <= 3, f"{node} repeats itself: {said}"  # two outages, and a life in between
            assert said.count("back") <= 2, f"{node} repeats itself: {said}"


def fees_are_asked_for_again(servers: CardServers, published: list[int]) -> None:
    """Fees are kept for a few seconds, also that a shop has none; and no longer."""
    asked = Counter(line.partition(" ")[0] for line in servers.web.requests if "/fees/s" in line)
    for shop in ("s1", "s2"):  # cards of the third are never raised
        assert 1 < asked[f"/fees/{shop}"] < len(published) // 3, asked


def asked_at_most_once(network: CardFolder, servers: CardServers) -> None:
    """Two rules need the places of a card, and many have none: a node asks once for each all the same."""
    askers = [node for node in NODES if network.metrics(node).get('headwater_remote_requests_total{table="places"}')]
    paths = Counter(line.partition(" ")[0] for line in servers.web.requests if "/cards/c" in line)
    assert askers
    assert max(paths.values()) <= len(askers), (askers, paths)
    assert any(int(path.removeprefix("/cards/c")) % 2 == 0 for path in paths), "a card without a place was asked for"
