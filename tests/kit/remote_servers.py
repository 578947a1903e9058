"""PostgreSQL, Redis and a web server for tests, which may be killed and started again."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.kit.patience import until
from tests.kit.ports import free_port

POSTGRES = next(iter(sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True)), None)
REDIS = shutil.which("redis-server")
HOST = "127.0.0.1"
PASSWORD = "a-password-that-nothing-shows"
NO_POSTGRES = "PostgreSQL is not installed: apt-get install postgresql"
NO_REDIS = "Redis is not installed: apt-get install redis-server"
needs_postgres = pytest.mark.skipif(POSTGRES is None, reason=NO_POSTGRES)
needs_redis = pytest.mark.skipif(REDIS is None, reason=NO_REDIS)


def _listens(host: str, port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1):
        return True
    return False


class Server:
    """A process that listens at a port of this machine."""

    def __init__(
        self, command: Sequence[str], port: int, *, user: str | None = None, folder: Path, host: str = HOST
    ) -> None:
        self.port = port
        self._host = host
        self._command = list(command)
        self._user = user
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with open(self._folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=log, user=self._user, cwd=self._folder, start_new_session=True
            )
        until(self.is_ready, f"{self._command[0]} listens", why=lambda: (self._folder / "log").read_text()[-500:])

    def is_ready(self) -> bool:
        return _listens(self._host, self.port)

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait()
            self._process = None


class Postgres(Server):
    """A cluster of its own, in a folder of its own: it does not run as root, and nobody else gets into tmp_path."""

    def __init__(self) -> None:
        assert POSTGRES is not None
        folder = Path(tempfile.mkdtemp(prefix="headwater-postgres-"))
        user = "postgres" if os.getuid() == 0 else None
        if user is not None:
            entry = pwd.getpwnam(user)
            os.chown(folder, entry.pw_uid, entry.pw_gid)
        (folder / "password").write_text(PASSWORD + "\n")
        (folder / "password").chmod(0o644)
        data = folder / "data"
        made = [f"{POSTGRES}/initdb", "-D", str(data), "-U", "cards", "-A", "scram-sha-256", "-N", "-E", "UTF8"]
        made += ["--locale=C", f"--pwfile={folder / 'password'}"]
        subprocess.run(made, check=True, user=user, cwd=folder, stdout=subprocess.DEVNULL)
        port = free_port()
        command = [f"{POSTGRES}/postgres", "-D", str(data), "-p", str(port), "-k", str(folder)]
        settings = ("listen_addresses=127.0.0.1", "fsync=off", "shared_buffers=16MB", "max_connections=20")
        super().__init__(command + [word for each in settings for word in ("-c", each)], port, user=user, folder=folder)
        self.folder = folder
        self.dsn = f"host=127.0.0.1 port={port} user=cards dbname=postgres"

    def is_ready(self) -> bool:
        import psycopg

        with contextlib.suppress(psycopg.Error), psycopg.connect(self.dsn, password=PASSWORD, connect_timeout=5):
            return True
        return False

    def run(self, statements: str) -> None:
        import psycopg

        with psycopg.connect(self.dsn, password=PASSWORD, autocommit=True) as connection:
            connection.execute(statements.encode())

    def kill(self, number: signal.Signals = signal.SIGQUIT) -> None:
        """At once and without a farewell to those connected, with all the processes of the cluster."""
        super().kill(number)

    def delete(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class RedisServer(Server):
    def __init__(self, folder: Path, password: str = "") -> None:
        assert REDIS is not None
        port = free_port()
        command = [REDIS, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--appendonly", "yes"]
        command += ["--appendfsync", "always", *(["--requirepass", password] if password else [])]
        super().__init__(command, port, folder=folder)
        self.password = password

    def execute(self, *words: Any) -> None:
        import redis

        with redis.Redis(port=self.port, password=self.password or None) as client:
            client.execute_command(*words)


class WebServer(Server):
    """Answers ``GET /path`` with what ``pages`` has for it; every request is a line of ``requests``. With a ``token``,
    only who sends it gets an answer."""

    def __init__(self, folder: Path, pages: dict[str, Any], token: str = "", host: str = HOST) -> None:
        port = free_port()
        (folder / "pages.json").write_text(json.dumps(pages))
        super().__init__([sys.executable, "-c", _WEB, str(port), token, host], port, folder=folder, host=host)

    @property
    def requests(self) -> list[str]:
        return (self._folder / "requests").read_text().splitlines()

    def forget_requests(self) -> None:
        os.truncate(self._folder / "requests", 0)


_WEB = """
import http.server, json, sys
pages = json.load(open("pages.json"))
seen = open("requests", "a", buffering=1)
class Pages(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer in two packets would wait for an acknowledgement of the first
    def do_GET(self):
        seen.write(self.path + " " + self.headers.get("Authorization", "") + chr(10))
        status, body = pages.get(self.path, [404, ""])
        if sys.argv[2] and self.headers.get("Authorization") != "Bearer " + sys.argv[2]:
            status, body = 401, ""
        body = ("x" * body if isinstance(body, int) else body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer((sys.argv[3], int(sys.argv[1])), Pages).serve_forever()
"""


@contextlib.contextmanager
def running(server: Server) -> Iterator[None]:
    server.start()
    try:
        yield
    finally:
        server.kill()
