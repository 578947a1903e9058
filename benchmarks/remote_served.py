"""The cases of ``benchmarks/remote.py`` in real time, with elements from server processes.

Servers: a web server of its own, which answers after drawn latencies (``benchmarks/remote_server.py``), and Redis and
PostgreSQL, as fast as they are, where they are installed. The engine fetches through the same clients as everywhere
else: requests in a thread beside it, many keys in one where several are asked for at once.
"""

from __future__ import annotations

import contextlib
import gc
import glob
import os
import pwd
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headwater.deploy.experiments.eires.station import ELEMENT_BYTES, Outcome, Range
from headwater.deploy.experiments.eires.synthetic import TABLE, Synthetic
from headwater.node.engine import Engine, Program
from headwater.node.remote.fetching import Fetcher, FetchingEngine
from headwater.node.remote.guard import Guard
from headwater.node.remote.http import HttpProvider, url_template
from headwater.node.remote.memory import Memory
from headwater.node.remote.postgres import PostgresProvider
from headwater.node.remote.provider import Provider
from headwater.node.remote.redis import RedisProvider
from headwater.node.remote.template import Template
from headwater.node.remote.threads import LoopThread
from headwater.protocol.composites import Composite
from headwater.protocol.events import Event

START_S_MAX: Final = 30.0
POSTGRES: Final = next(iter(sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True)), None)
REDIS: Final = shutil.which("redis-server")
EVERY_US: Final = 1000.0
"""Events come one by one, so far apart: a thousand a second."""
CASES: Final = (  # as large as one can wait for; Q1 with as many events for an ID as there are in simulated time
    Synthetic("Q1", "DS1", "next", 5_000, 2_000, EVERY_US, ids=20),
    Synthetic("Q1", "DS2", "next", 5_000, 2_000, EVERY_US, ids=20),
    Synthetic("Q1", "DS1", "any", 3_000, 440, EVERY_US, ids=20),
    Synthetic("Q1", "DS2", "any", 3_000, 440, EVERY_US, ids=20),
    Synthetic("Q2", "DS1", "next", 3_000, 400, EVERY_US),
    Synthetic("Q2", "DS2", "next", 3_000, 400, EVERY_US),
    Synthetic("Q2", "DS1", "any", 2_000, 60, EVERY_US),
    Synthetic("Q2", "DS2", "any", 2_000, 60, EVERY_US),
)


@dataclass(frozen=True, slots=True)
class Served:
    """Where elements come from."""

    name: str
    provider: Callable[[], Provider]
    """One for each run: it belongs to an event loop."""


@dataclass(frozen=True, slots=True)
class RealOutcome(Outcome):
    """One run in real time."""

    requests: int = 0
    mean_us: float = 0.0
    """From asking a provider to its answer."""
    cpu_us: float = 0.0
    """Of the process for one event, with the thread that fetches."""


# ---------------------------------------------------------------------------------------------------------- the servers


@contextlib.contextmanager
def web_server(case: Synthetic, latency_us: Range) -> Iterator[Served]:
    """A web server of its own that answers after drawn latencies."""
    command = [sys.executable, "-m", "benchmarks.remote_server", case.query, *map(str, latency_us)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        port = int(process.stdout.readline())
        address = f"http://127.0.0.1:{port}/elements/{{keys}}"
        yield Served("web server", lambda: HttpProvider(url_template(address, ["key"])))
    finally:
        process.stdin.close()
        process.wait(START_S_MAX)


@contextlib.contextmanager
def redis_server(case: Synthetic) -> Iterator[Served]:
    import redis

    assert REDIS is not None
    with tempfile.TemporaryDirectory(prefix="headwater-redis-") as folder:
        port = _free_port()
        process = subprocess.Popen(
            [REDIS, "--port", str(port), "--bind", "127.0.0.1", "--dir", folder, "--save", ""],
            stdout=subprocess.DEVNULL,
        )
        try:
            with redis.Redis(port=port) as client:
                _until(lambda: bool(client.ping()), redis.exceptions.ConnectionError)
                client.mset({f"element:{key}": value for key, value in _elements(case)})
            name = Template("element:{key}", ["key"])
            yield Served("Redis", lambda: RedisProvider(f"127.0.0.1:{port}", name, kind="int"))
        finally:
            process.terminate()
            process.wait(START_S_MAX)


@contextlib.contextmanager
def postgres_server(case: Synthetic) -> Iterator[Served]:
    """A cluster of its own, which does not run as root."""
    import psycopg

    assert POSTGRES is not None
    folder = Path(tempfile.mkdtemp(prefix="headwater-postgres-"))
    user = "postgres" if os.getuid() == 0 else None
    if user is not None:
        entry = pwd.getpwnam(user)
        os.chown(folder, entry.pw_uid, entry.pw_gid)
    port = _free_port()
    init = [f"{POSTGRES}/initdb", "-D", str(folder / "data"), "-U", "bench", "-A", "trust", "-N", "-E", "UTF8"]
    subprocess.run([*init, "--locale=C"], check=True, user=user, cwd=folder, stdout=subprocess.DEVNULL)
    command = [
        f"{POSTGRES}/postgres",
        "-D",
        str(folder / "data"),
        "-p",
        str(port),
        "-k",
        str(folder),
        "-c",
        "fsync=off",
    ]
    process = subprocess.Popen(command, user=user, cwd=folder, stderr=subprocess.DEVNULL)
    try:
        dsn = f"host=127.0.0.1 port={port} user=bench dbname=postgres"
        _until(lambda: not psycopg.connect(dsn).closed, psycopg.Error)
        with psycopg.connect(dsn, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute("create table elements (key int primary key, value int)")
            with cursor.copy("copy elements from stdin") as rows:
                for row in _elements(case):
                    rows.write_row(row)
            cursor.execute("analyze elements")
        query = "select key, value from elements where key = any(%s)"
        yield Served("PostgreSQL", lambda: PostgresProvider(dsn, query, ["key"]))
    finally:
        process.terminate()
        process.wait(START_S_MAX)
        shutil.rmtree(folder, ignore_errors=True)


def _elements(case: Synthetic) -> Iterable[tuple[int, int]]:
    return ((key, int(str(case.value(TABLE, (key,))))) for key in range(1, case.values + 1))


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def _until(is_ready: Callable[[], bool], not_yet: type[Exception]) -> None:
    began_s = time.monotonic()
    while True:
        try:
            if is_ready():
                return
        except not_yet:
            if time.monotonic() - began_s > START_S_MAX:
                raise
        time.sleep(0.05)


# ------------------------------------------------------------------------------------------------------------ real time


class RealStation:
    """An engine to which events come in real time.

    The latency of a match is the time from the arrival of its last event until it is given. An event arrives when its
    time says; where the process was idle then and the system woke it up later, when it was woken: that is the clock's
    delay, not the engine's.
    """

    def __init__(self, engine: Engine, case: Synthetic) -> None:
        self._engine = engine
        self._warm_ts = case.window_us
        self._arrived_us: dict[int, float] = {}
        self._began_ns = 0
        self.latencies_us: list[float] = []
        self.matches = 0

    def run(self, events: Sequence[Event]) -> None:
        engine = self._engine
        wakes = [engine.wakes()] if isinstance(engine, FetchingEngine) else []
        self._began_ns = time.perf_counter_ns()
        for event in events:
            due_us = event[0]
            arrived_us = due_us
            while (early_us := due_us - self._now_us()) > 0:
                ready, _, _ = select.select(wakes, [], [], early_us / 1e6)
                if ready and isinstance(engine, FetchingEngine):
                    self._give(engine.arrived())
                else:
                    arrived_us = max(due_us, self._now_us())
            self._arrived_us[due_us] = arrived_us
            self._give(engine.feed([event]))
            self._give(engine.advance(due_us))
        self._give(engine.close())

    def _now_us(self) -> float:
        return (time.perf_counter_ns() - self._began_ns) / 1000

    def _give(self, composites: list[Composite]) -> None:
        if not composites:
            return
        now_us = self._now_us()
        self.matches += len(composites)
        for composite in composites:
            if composite.ts >= self._warm_ts:
                self.latencies_us.append(now_us - self._arrived_us[composite.ts])


def measure_limit(case: Synthetic, events: Sequence[Event]) -> RealOutcome:
    """The table is in memory."""
    return _measure(RealStation(Engine(case.rules(), remote=case.tables()), case), events)


def measure_served(
    case: Synthetic, events: Sequence[Event], program: Program, served: Served, strategy: str, cache: str, cached: int
) -> RealOutcome:
    """``cached``: elements that are kept."""
    memory = Memory((TABLE,), policy=strategy, cache=cache, cache_bytes=cached * ELEMENT_BYTES)
    guard = Guard(served.provider(), table=TABLE)
    loop = LoopThread([guard.close])
    fetcher = Fetcher(memory, {TABLE: guard}, loop)
    try:
        loop.run(guard.check())
        return _measure(RealStation(FetchingEngine(program, fetcher), case), events, memory, guard)
    finally:
        loop.close()
        fetcher.close()


def _measure(
    station: RealStation, events: Sequence[Event], memory: Memory | None = None, guard: Guard | None = None
) -> RealOutcome:
    gc.collect()
    gc.disable()
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    try:
        station.run(events)
    finally:
        gc.enable()
    lasted_s, cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
    lookups = [] if memory is None else list(memory.lookups.values())
    return RealOutcome(
        latencies_us=sorted(station.latencies_us),
        matches=station.matches,
        events_per_s=len(events) / lasted_s,
        used=cpu_s / lasted_s,
        fetched=sum(table.misses for table in lookups),
        prefetched=0 if memory is None else memory.prefetched,
        prefetched_unused=0 if memory is None else memory.prefetched_unused,
        requests=0 if guard is None else guard.figures.requests,
        mean_us=0.0 if guard is None else guard.figures.mean_s * 1e6,
        cpu_us=cpu_s / len(events) * 1e6,
    )
