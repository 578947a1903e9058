"""A network of processes whose rules look into PostgreSQL, Redis, a web server, SQLite and a file, and its events.

Cards have numbers. What the tables say of a card, and so what the rules find, follows from its number alone.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sqlite3
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import headwater as hw
from headwater.deploy.cluster.processes import send
from headwater.deploy.cluster.runs import Run
from headwater.node.client import Client
from headwater.protocol.remote import LookupTable, RemoteTable
from tests.kit.fire_folder import FireFolder
from tests.kit.patience import PATIENCE_S, output_of, patiently, until
from tests.kit.remote_servers import PASSWORD, Postgres, RedisServer, Server, WebServer

CARDS: Final = 240
RULES: Final = """\
Raised: SEQ(T t, L l)
WHERE SAME[card] AND l.limit > REMOTE.limits[t.org] AND t.shop NOT IN REMOTE.blocked[t.card]
WITHIN 5 min
RETURN Raised(card = t.card, place = REMOTE.places[t.card], region = REMOTE.regions[t.org], name = REMOTE.names[t.org],
              fee = REMOTE.fees[t.shop])

Unseen: SEQ(T t, !(C c), L l)
WHERE SAME[card] AND c.level > REMOTE.limits[t.org] AND l.limit > 0
WITHIN 5 min
RETURN Unseen(card = t.card, place = REMOTE.places[t.card])
"""
NETWORK: Final = """\
events:
  T: {card: string, org: string, shop: string}
  C: {card: string, level: int}
  L: {card: string, limit: int}
nodes: [p1, p2, p3, p4]
links:
  - {between: [p1, p2], delay: 1ms}
  - {between: [p2, p3], delay: 1ms}
  - {between: [p3, p4], delay: 1ms}
sources:
  - {node: p1, type: T, client: any}
  - {node: p1, type: C, client: any}
  - {node: p4, type: L, client: any}
sinks:
  - {node: p2, subscribe: Raised, to: {file: raised.jsonl}}
  - {node: p3, subscribe: Raised, to: {file: raised.jsonl}}
  - {node: p3, subscribe: Unseen, to: {file: unseen.jsonl}}
rules: cards.sase
statistics: {rates: {T: {p1: 10/s}, C: {p1: 2/s}, L: {p4: 10/s}}}
"""
SINKS: Final = {"Raised": ("p2/raised.jsonl", "p3/raised.jsonl"), "Unseen": ("p3/unseen.jsonl",)}


def _orgs() -> range:
    return range(CARDS)


def limits() -> dict[str, int]:
    """By organisation; some have none."""
    return {f"o{n}": 100 if n % 4 else 500 for n in _orgs() if n % 3}


def blocked() -> dict[str, tuple[str, ...]]:
    """By card the shops where it is not taken."""
    return {f"c{n}": ("s0", "s1") if n % 5 == 0 else ("s2",) for n in _orgs()}


def places() -> dict[str, str]:
    return {f"c{n}": f"place {n % 7}" for n in _orgs() if n % 2}


def regions() -> dict[str, int]:
    return {f"o{n}": n % 11 for n in _orgs()}


def names() -> dict[str, str]:
    return {f"o{n}": f"The {n}" for n in _orgs() if n % 6}


def fees() -> dict[str, float]:
    """By shop; they may change at any time, but do not."""
    return {"s0": 0.5, "s1": 1.5}


def events_of(card: int) -> list[tuple[str, str, dict[str, Any]]]:
    """By node and type, in the order in which they happen."""
    found: list[tuple[str, str, dict[str, Any]]] = [
        ("p1", "T", {"card": f"c{card}", "org": f"o{card}", "shop": f"s{card % 3}"})
    ]
    if card % 7 == 0:
        found.append(("p1", "C", {"card": f"c{card}", "level": 300}))
    return [*found, ("p4", "L", {"card": f"c{card}", "limit": 300})]


def expected(cards: Iterable[int]) -> dict[str, list[dict[str, Any]]]:
    """By rule what one engine finds that has all tables at hand."""
    tables: dict[str, dict[str, Any]] = {
        "limits": limits(), "blocked": blocked(), "places": places(), "regions": regions(), "names": names(),
        "fees": fees(),
    }  # fmt: skip
    remote: dict[str, LookupTable] = {name: RemoteTable.from_mapping(data) for name, data in tables.items()}
    trace = [{"type": kind, **event} for card in cards for _, kind, event in events_of(card)]
    rows = [{"ts": 1000 * number, **row} for number, row in enumerate(trace)]
    found: dict[str, list[dict[str, Any]]] = {rule: [] for rule in SINKS}
    for match in hw.Engine(RULES, remote=remote).run(rows):
        found[match.type].append(dict(match.attributes))
    return found


class CardServers:
    """What holds the tables. Start them, kill them, start them again."""

    def __init__(self, folder: Path) -> None:
        for name in ("redis", "web"):
            (folder / name).mkdir()
        self.postgres = Postgres()
        self.redis = RedisServer(folder / "redis", PASSWORD)
        pages = {f"/cards/{card}": [200, json.dumps({"seen": {"place": place}})] for card, place in places().items()}
        pages |= {f"/fees/{shop}": [200, json.dumps(fee)] for shop, fee in fees().items()}
        self.web = WebServer(folder / "web", pages, PASSWORD)
        self.by_table: dict[str, Server] = {"limits": self.postgres, "blocked": self.redis, "places": self.web}

    def start(self) -> None:
        for server in self.by_table.values():
            server.start()
        rows = ", ".join(f"('{org}', {limit})" for org, limit in limits().items())
        self.postgres.run(f"create table limits (org text, most int); insert into limits values {rows}")
        for card, shops in blocked().items():
            self.redis.execute("sadd", f"blocked:{card}", *shops)

    def delete(self) -> None:
        for server in self.by_table.values():
            server.kill()
        self.postgres.delete()


class CardFolder(FireFolder):
    """The folder of the user who runs the network."""

    def __init__(self, folder: Path, servers: CardServers, strategy: str, at: Mapping[str, str]) -> None:
        """``at``: where tables are reached that are not reached everywhere."""
        super().__init__(folder)
        self.run = Run(folder / ".headwater" / "cards")
        self.write("password", PASSWORD + "\n")
        self.write("cards.sase", RULES)
        self.write("names.csv", "key,value\n" + "".join(f"{org},{name}\n" for org, name in names().items()))
        with sqlite3.connect(folder / "regions.db") as database:
            database.execute("create table regions (org text, region int)")
            database.executemany("insert into regions values (?, ?)", regions().items())
        database.close()
        tables = self.tables(servers)
        for table, nodes in at.items():
            tables = tables.replace(f"  {table}:\n", f"  {table}:\n    at: [{nodes}]\n")
        self.write("cards.yaml", f"{NETWORK}{tables}strategy: {strategy}\n")

    @staticmethod
    def tables(servers: CardServers) -> str:
        return f"""\
remote:
  limits:
    postgres: {servers.postgres.dsn}
    query: select org, most from limits where org = any(%s)
    keys: [org]
    password_file: password
    timeout: 2s
  blocked:
    redis: "127.0.0.1:{servers.redis.port}"
    key: "blocked:{{card}}"
    members: yes
    password_env: CARDS_KEY
  places:
    http: "http://127.0.0.1:{servers.web.port}/cards/{{card}}"
    value: seen.place
    token_file: password
    timeout: 2s
  fees: {{http: "http://127.0.0.1:{servers.web.port}/fees/{{shop}}", token_env: CARDS_KEY, timeout: 2s, fresh: 3s}}
  regions: {{sqlite: regions.db, query: "select region from regions where org = ?", keys: [org]}}
  names: names.csv
"""

    def command(self, *words: str) -> str:
        called = self.start(*words)
        out, err = output_of(called, PATIENCE_S)
        assert called.returncode == 0, f"headwater {' '.join(words)}:\n{out}\n{err}"
        return str(out + err)

    # ------------------------------------------------------------------------------------------------------- processes

    def process(self, name: str) -> dict[str, Any]:
        return next(process for process in self.run.state()["processes"] if process["name"] == name)

    def kill(self, *names: str) -> None:
        """kill -9; the keeper starts them again."""
        before = {name: self.process(name)["restarts"] for name in names}
        for name in names:
            send(self.process(name)["pid"], signal.SIGKILL)
        for name in names:
            until(lambda name=name: self.process(name)["restarts"] > before[name], f"{name} is started again")  # type: ignore[misc]

    def publish(self, cards: Iterable[int]) -> None:
        """The events of these cards, each durable at its node before the next."""

        async def work() -> None:
            address = {name: self.process(name)["address"] for name in ("p1", "p4")}
            clients = {name: Client(name, at, name=f"shop-{name}", network="cards") for name, at in address.items()}
            async with patiently(), clients["p1"], clients["p4"]:
                for card in cards:
                    for node, kind, event in events_of(card):
                        await clients[node].publish(kind, event)

        asyncio.run(work())

    # ----------------------------------------------------------------------------------------------------------- seeing

    def received(self) -> dict[str, list[dict[str, Any]]]:
        """By sink the attributes of what it has received."""
        found: dict[str, list[dict[str, Any]]] = {}
        for name in (name for files in SINKS.values() for name in files):
            file = self.run.folder / "data" / name
            lines = file.read_text().split("\n")[:-1] if file.exists() else []
            found[name] = [json.loads(line)["attributes"] for line in lines]
        return found

    def wait_until_received(self, cards: Iterable[int]) -> None:
        """Until every sink has as much as it must have."""
        must = {name: len(found) for rule, found in expected(cards).items() for name in SINKS[rule]}

        def has_come() -> bool:
            return all(len(found) >= must[name] for name, found in self.received().items())

        until(has_come, f"everything is found: {must}", why=lambda: f"{self.counts()}\n{self.all_logs()[-4000:]}")

    def counts(self) -> dict[str, int]:
        return {name: len(found) for name, found in self.received().items()}

    def assert_exact(self, cards: Sequence[int]) -> None:
        """Nothing lost, nothing repeated, nothing else."""
        must = {name: found for rule, found in expected(cards).items() for name in SINKS[rule]}
        for name, found in self.received().items():
            wanted, came = _counted(must[name]), _counted(found)
            assert came == wanted, f"{name}: lost {wanted - came}, too many {came - wanted}\n{self.all_logs()[-4000:]}"

    def log(self, name: str) -> str:
        file = self.run.logs / f"{name}.log"
        return file.read_text(errors="replace") if file.exists() else ""

    def all_logs(self) -> str:
        return "\n".join(f"--- {file.name}\n{file.read_text(errors='replace')}" for file in self.run.logs.glob("*"))

    def said(self, node: str, table: str) -> list[str]:
        """What a node has logged of a table: ``away``, ``back``, or another sentence, line by line."""
        lines = [line for line in self.log(node).splitlines() if f"table '{table}'" in line]
        states = [re.search(rf"table '{table}' is (away|back)", line) for line in lines]
        return [line if state is None else state[1] for line, state in zip(lines, states, strict=True)]

    def page(self, name: str, path: str) -> str:
        """A page of a process; what it says of one that it does not have."""
        try:
            with urllib.request.urlopen(f"http://{self.process(name)['http']}/{path}") as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            return error.read().decode()

    def metrics(self, name: str) -> dict[str, float]:
        lines = [line for line in self.page(name, "metrics").splitlines() if not line.startswith("#")]
        return {metric: float(value) for metric, _, value in (line.rpartition(" ") for line in lines)}


def _counted(found: Iterable[dict[str, Any]]) -> Counter[str]:
    return Counter(json.dumps(attributes, sort_keys=True) for attributes in found)
