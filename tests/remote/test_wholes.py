"""Elements that contain others: asking for one key brings all that belong to the same whole."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.deploy.descriptions.remote import described
from headwater.node.effects import Fetched, Report
from headwater.node.engine.remote_memory import MISSING
from headwater.node.remote.call import CallProvider
from headwater.node.remote.guard import Guard
from headwater.node.remote.memory import ENTRY_BYTES, Memory
from headwater.node.remote.policies import POLICIES
from headwater.node.remote.provider import BadAnswer, Refused
from headwater.node.remote.tables import Behind
from headwater.protocol.remote import TableTerms, Versions
from tests.kit.remote_servers import WebServer
from tests.node.test_fetches import HUNDRED, Node, delivered, fetches

ORGS = {"acme": {"ann": 1, "bob": 2}, "umbrella": {"eve": 3}}
WHOLE = {"limits": TableTerms(whole=True)}
QUERY = "select user, most from limits where org = (select org from limits where user = ?)"


@pytest.fixture
def database(tmp_path: Path) -> str:
    with sqlite3.connect(tmp_path / "cards.db") as made:
        made.execute("create table limits (org text, user text, most int)")
        rows = [(org, user, most) for org, members in ORGS.items() for user, most in members.items()]
        made.executemany("insert into limits values (?, ?, ?)", rows)
    made.close()
    return str(tmp_path / "cards.db")


def asked(table: Behind, *key: Any) -> dict[Any, Any]:
    async def work() -> dict[Any, Any]:
        guard = Guard(table.provider, table.limits)
        try:
            return {key: element and element.at(0) for key, element in (await guard.fetch([key])).items()}
        finally:
            await guard.close()

    return asyncio.run(work())


def sqlite_table(database: str, query: str, whole: str = "yes") -> Behind:
    table = described("limits", json.dumps({"sqlite": database, "query": query, "keys": ["user"], "whole": whole}))
    assert isinstance(table, Behind)
    return table


def test_a_query_gives_all_that_belong_together(database: str) -> None:
    table = sqlite_table(database, QUERY)
    assert table.terms.whole
    assert asked(table, "ann") == {("ann",): 1, ("bob",): 2}
    assert asked(table, "nobody") == {("nobody",): None}
    with pytest.raises(BadAnswer):
        asked(sqlite_table(database, QUERY, "no"), "ann")
    with pytest.raises(Refused, match="has no columns for the key, which whole: yes needs"):
        asked(sqlite_table(database, "select most from limits where user = ?"), "ann")


@pytest.mark.parametrize(
    "members", [{"1": {"most": 5}, "2": {"most": 6}}, [{"id": 1, "most": 5}, {"id": 2, "most": 6}]]
)
def test_a_web_server_gives_all_that_belong_together(tmp_path: Path, members: Any) -> None:
    server = WebServer(tmp_path, {"/orgs/of/1": [200, json.dumps({"members": members})]})
    server.start()
    try:
        address = f"http://127.0.0.1:{server.port}/orgs/of/{{id}}"
        table = described("limits", json.dumps({"http": address, "items": "members", "value": "most", "whole": "yes"}))
        assert isinstance(table, Behind)
        assert asked(table, 1) == {(1,): 5, (2,): 6}
    finally:
        server.kill()


@pytest.mark.parametrize("strategy", POLICIES)
def test_one_request_serves_every_member(strategy: Any) -> None:
    requests = []

    def limits(user: str) -> dict[str, int]:
        requests.append(user)
        return next((members for members in ORGS.values() if user in members), {})

    provider = CallProvider(limits)
    provider.whole = True
    table = Behind(provider, terms=TableTerms(whole=True))
    rule = "X: SEQ(A a) WHERE a.v > REMOTE.limits[a.user] WITHIN 1 s RETURN X(user = a.user)"
    engine = hw.Engine(rule, remote={"limits": table}, remote_strategy=strategy)
    found = []
    for ts, user in enumerate(("ann", "bob", "eve", "ann", "nobody"), 1):
        found += engine.feed([{"type": "A", "ts": ts, "user": user, "v": 3}])
        found += engine.settle()
    found += engine.close()
    assert sorted(str(match.attributes["user"]) for match in found) == ["ann", "ann", "bob"]
    if strategy == "block":
        assert len(requests) == 5, "nothing is kept"
    else:
        assert requests == ["ann", "eve", "nobody"]


def test_a_node_keeps_what_came_along() -> None:
    node = Node("lazy", terms=WHOLE)
    node.born("acme", 1)
    assert fetches(node.born("acme", 200)) == [(("limits", ("acme",)),)]
    came = node.given(Fetched((("limits", ("acme",), HUNDRED), ("limits", ("umbrella",), HUNDRED))))
    assert delivered(came) == ["acme"]
    assert Report("unasked_elements") not in came
    node.core = type(node.core).restored(node.core.save())
    node.born("umbrella", 1)
    last = node.born("umbrella", 200)
    assert fetches(last) == []
    assert "umbrella" in delivered(last)


def test_what_comes_along_counts_where_it_is_decided_what_to_fetch() -> None:
    """A key that few need is worth fetching if its whole holds many that are needed."""
    memory = Memory(["limits"], policy="prefetch", cache="cost", cache_bytes=3 * (ENTRY_BYTES + 16), terms=WHOLE)
    few = memory.key_class("r", "a", "limits", 1000, numbered=False, early=False)
    assert few is not None
    for key in range(10):
        few.add((key % 5,), 1)
    place = ("limits", (7,))
    alone = memory._utility.of_fetching(place, 0.7)
    memory.came_together("limits", [(7,), (0,), (1,)])
    assert memory._utility.of_fetching(place, 0.7) == pytest.approx(
        alone + sum(memory._utility.of(("limits", (key,)), 0.7) for key in (0, 1))
    )
    assert memory._utility.of_fetching(("limits", (2,)), 0.7) == memory._utility.of(("limits", (2,)), 0.7)


def test_what_came_along_and_was_not_asked_for_is_not_taken_from_other_tables() -> None:
    memory = Memory(["limits"])
    assert not memory.supply("limits", ("ann",), Versions.always(1))
    assert memory.finder("limits")(("ann",)) is MISSING
