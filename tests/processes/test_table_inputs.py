"""What nodes get of the machine to ask remote tables: files and secrets, each node its own, and in containers."""

from __future__ import annotations

import json
import socket
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.deploy.cluster.backend import short_id
from headwater.deploy.cluster.backends import backend_of
from headwater.deploy.cluster.host import call
from headwater.deploy.cluster.runs import Run
from headwater.deploy.cluster.stop import stop
from headwater.deploy.cluster.table_inputs import TableInputs, table_inputs
from headwater.deploy.network.file import read_network
from headwater.protocol.errors import ConfigError
from tests.kit.fire_folder import FireFolder
from tests.kit.patience import output_of, until
from tests.kit.remote_servers import PASSWORD, WebServer, running

BUILD_S_MAX = 900.0
NETWORK = """\
events:
  T: {card: string, org: string}
nodes: [p1, p2]
links: [{between: [p1, p2]}]
sources: [{node: p1, type: T, trace: t.csv, speed: max}]
sinks: [{node: p2, subscribe: Seen, to: {file: seen.jsonl}}]
rules:
  - |
    Seen: SEQ(T t) WHERE REMOTE.limits[t.org] > 0 WITHIN 1 s
    RETURN Seen(card = t.card, limit = REMOTE.limits[t.org], name = REMOTE.names[t.org], place = REMOTE.places[t.card])
strategy: st
remote:
  limits: {sqlite: limits.db, query: "select most from limits where org = ?", keys: [org]}
  names: names.csv
  places: {http: "http://HOST:PORT/cards/{card}", value: place, token_env: PLACES_TOKEN}
  others: {http: "http://HOST:PORT/others/{card}", token_file: token, at: [p2]}
  lost: {http: "http://HOST:PORT/lost/{card}", token_env: NO_SUCH_VARIABLE}
"""


class Folder(FireFolder):
    def __init__(self, folder: Path, host: str, port: int) -> None:
        super().__init__(folder)
        self.run = Run(folder / ".headwater" / "cards")
        self.write("cards.yaml", NETWORK.replace("HOST", host).replace("PORT", str(port)))
        self.write("t.csv", "type,ts,card,org\n" + "".join(f"T,{n},c{n},o{n}\n" for n in range(1, 6)))
        self.write("names.csv", "key,value\no1,One\n")
        self.write("token", PASSWORD + "\n")
        (folder / "token").chmod(0o600)
        with sqlite3.connect(folder / "limits.db") as database:
            database.execute("create table limits (org text, most int)")
            database.executemany("insert into limits values (?, ?)", [("o1", 1), ("o2", 0), ("o3", 3)])
        database.close()

    def __call__(self, *words: str) -> str:
        called = self.start(*words)
        out, err = output_of(called, BUILD_S_MAX)
        assert called.returncode == 0, f"headwater {' '.join(words)}:\n{out}\n{err}"
        return str(out + err)

    def received(self) -> list[dict[str, Any]]:
        file = self.run.folder / "data" / "p2" / "seen.jsonl"
        return [json.loads(line)["attributes"] for line in file.read_text().splitlines()] if file.exists() else []


def test_a_node_gets_what_it_needs_for_the_tables_that_it_reaches(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "10.0.0.1", 80)
    network = read_network(tmp_path / "cards.yaml").network
    environment = {"PLACES_TOKEN": PASSWORD, "OTHER": "x"}
    common = (tmp_path / "limits.db", tmp_path / "names.csv")
    assert table_inputs(network, "p1", environment) == TableInputs(common, ("PLACES_TOKEN",), {})
    assert table_inputs(network, "p2", environment) == TableInputs((*common, tmp_path / "token"), ("PLACES_TOKEN",), {})
    by_file = {"PLACES_TOKEN_FILE": str(tmp_path / "token")}
    assert table_inputs(network, "p1", by_file) == TableInputs((*common, tmp_path / "token"), (), by_file)
    (tmp_path / "names.csv").unlink()
    assert table_inputs(network, "p1", {}) == TableInputs((tmp_path / "limits.db",), (), {}), "nodes say what is wrong"
    assert folder.run.name == "cards"


@pytest.mark.parametrize(("secret", "asked"), [("", ["PGSERVICEFILE", "PGPASSFILE"]), ("pw", ["PGSERVICEFILE"])])
def test_the_files_in_which_libpq_looks_things_up_come_along(tmp_path: Path, secret: str, asked: list[str]) -> None:
    file = tmp_path / "net.yaml"
    more = f", password_file: {secret}" if secret else ""
    query = '"select most from limits where org = any(%s)"'
    file.write_text(f"nodes: [p1]\nremote:\n  a: {{postgres: service=cards, query: {query}, keys: [org]{more}}}\n")
    (tmp_path / ".pg_service.conf").write_text("[cards]\n")
    (tmp_path / "passes").write_text("*:*:*:*:x\n")
    environment = {"HOME": str(tmp_path), "PGPASSFILE": str(tmp_path / "passes")}
    inputs = table_inputs(read_network(file).network, "p1", environment)
    where = {"PGSERVICEFILE": str(tmp_path / ".pg_service.conf"), "PGPASSFILE": str(tmp_path / "passes")}
    assert inputs.settings == {name: where[name] for name in asked}
    assert inputs.files == tuple(Path(where[name]) for name in asked)


@pytest.fixture
def host() -> str:
    """An address of this machine that containers reach, too."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            asked.connect(("192.0.2.1", 9))  # sends nothing
            return str(asked.getsockname()[0])
        except OSError:
            pytest.skip("this machine has no address beyond loopback")


@pytest.fixture
def web(tmp_path: Path, host: str) -> Iterator[WebServer]:
    (tmp_path / "web").mkdir()
    server = WebServer(tmp_path / "web", {"/cards/c1": [200, '{"place": "Rome"}']}, PASSWORD, host=host)
    with running(server):
        yield server


def test_containers_ask_tables_with_files_and_secrets_that_podman_does_not_show(
    tmp_path: Path, host: str, web: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        backend_of("containers").check()
    except ConfigError as lacking:
        pytest.skip(str(lacking))
    monkeypatch.setenv("PLACES_TOKEN", PASSWORD)
    headwater = Folder(tmp_path, host, web.port)
    try:
        said = headwater("up", "cards.yaml", "--on", "containers")

        wrong = [line for line in said.splitlines() if "cannot be used" in line]
        assert len(wrong) == 1, said
        assert wrong[0].startswith("table 'lost' cannot be used at p1, p2: the environment variable NO_SUCH_VARIABLE ")
        until(lambda: len(headwater.received()) == 2, "both cards are seen", why=lambda: headwater("logs"))
        assert sorted(map(json.dumps, headwater.received())) == sorted(
            json.dumps(each)
            for each in (
                {"card": "c1", "limit": 1, "name": "One", "place": "Rome"},
                {"card": "c3", "limit": 3, "name": None, "place": None},
            )
        )
        names = headwater.run.plan().stage["containers"]
        inspected = {node: call(["podman", "inspect", names[node]]) for node in ("p1", "p2", "@coordinator")}
        assert not any(PASSWORD in shown for shown in inspected.values())
        token = f":{tmp_path / 'token'}:ro"
        assert [token in shown for shown in inspected.values()] == [False, True, False]
        headwater("down")
    finally:
        stop(headwater.run)
    kept = call(["podman", "secret", "ls", "--format", "{{.Name}}"]).split()
    assert not [name for name in kept if name.startswith(short_id(headwater.run))]
