"""A provider of a table in PostgreSQL."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from headwater.node.remote.guard import USUAL
from headwater.node.remote.provider import Elements, Key, Provider, ProviderError, Refused, Unreachable, sendable
from headwater.node.remote.rows import Columns, Gathered, check_places
from headwater.node.remote.secrets import Secret, driver_missing, without

if TYPE_CHECKING:
    import psycopg

ROWS_AT_ONCE: Final = 200  # where libpq can do that; else one
IDLE_MAX: Final = 8  # connections kept for the next request, as many as may be under way
CREDENTIALS: Final = re.compile(
    r"authentication failed|no password supplied|role .* does not exist|no pg_hba\.conf entry", re.IGNORECASE
)
SUPPOSED: Final = re.compile(r"\s*(This probably means|Is the server running)[^?]*?(\.|\?)(?=\s|$)")
NOT_THERE: Final = re.compile(r"database .* does not exist|definition of service .* not found|permission denied for")


class PostgresProvider(Provider):
    """``query`` has one ``%s`` for each key attribute. With ``= any(%s)`` (or ``unnest``) and the keys among its
    columns it is asked for many keys at once. Transactions are read-only, so a query that writes is refused."""

    versioned = None

    def __init__(
        self,
        connection: str,
        query: str,
        keys: Sequence[str],
        *,
        password: Secret | None = None,
        request_s: float = USUAL.request_s,
        answer_bytes_max: int = USUAL.answer_bytes_max,
    ) -> None:
        self.shown = f"PostgreSQL {place_of(connection)}"
        self.key_length = len(keys)
        self._connection = connection
        self._query = query
        self._keys = tuple(keys)
        self._password = password or Secret()
        self._request_s = request_s
        self._bytes_max = answer_bytes_max
        self._takes_lists = re.search(r"\b(any|all|unnest)\s*\(\s*%s", query, re.IGNORECASE) is not None
        self._columns: Columns | None = None
        self._idle: list[psycopg.AsyncConnection[Any]] = []
        check_places(query, "%s", keys, self.shown)

    async def check(self) -> None:
        async with self._connected() as connection:
            nothing: list[Any] = [[] if self._takes_lists else None for _ in self._keys]
            async with connection.cursor() as cursor:
                await cursor.execute(self._query.encode(), nothing)
                self._learn(cursor)

    async def fetch(self, keys: Sequence[Key]) -> Elements:
        keys = sendable(keys)
        if not keys:
            return {}
        async with self._connected() as connection, connection.cursor() as cursor:
            import psycopg

            # A few rows at a time, so that an answer that is too large is not in memory before that is seen.
            gathered: Gathered | None = None
            size = ROWS_AT_ONCE if psycopg.capabilities.has_stream_chunked() else 1
            async for row in cursor.stream(self._query.encode(), self._arguments(keys), size=size):
                if gathered is None:
                    gathered = Gathered(self._learn(cursor), keys, self.shown, self._bytes_max, whole=self.whole)
                gathered.add(row)
            return {} if gathered is None else gathered.elements()

    async def close(self) -> None:
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.close()

    def _arguments(self, keys: Sequence[Key]) -> list[Any]:
        if not self._takes_lists:
            return list(keys[0])
        return [_of_one_kind([key[at] for key in keys]) for at in range(len(self._keys))]

    def _learn(self, cursor: psycopg.AsyncCursor[Any]) -> Columns:
        if self._columns is None:
            if cursor.description is None:
                raise Refused(f"the query of {self.shown} gives no rows; write a select")
            self._columns = Columns.of([each.name for each in cursor.description], self._keys, self.shown)
            self.batch_max = 500 if self._takes_lists and self._columns.keys is not None else 1
            self.versioned = self._columns.ts is not None
        return self._columns

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        """A connection for one request; it is kept for the next if nothing went wrong."""
        try:
            import psycopg
        except ImportError:
            raise driver_missing("psycopg", "PostgreSQL") from None
        password = self._password.read()
        connection = self._idle.pop() if self._idle else None
        try:
            if connection is None:
                connection = await self._connect(password)
            yield connection
        except psycopg.Error as error:
            if connection is not None:
                await _closed(connection)
            said = self._in_words(error, password)
            if isinstance(said, Unreachable):
                # The others are of the same server as it was: each would fail once more when it is back.
                idle, self._idle = self._idle, []
                for other in idle:
                    await _closed(other)
            raise said from None
        except BaseException:
            if connection is not None:
                await _closed(connection)
            raise
        if len(self._idle) < IDLE_MAX:
            self._idle.append(connection)
        else:
            await connection.close()

    async def _connect(self, password: str | None) -> psycopg.AsyncConnection[Any]:
        import psycopg

        connection = await psycopg.AsyncConnection.connect(
            self._connection,
            autocommit=True,
            connect_timeout=max(2, round(self._request_s)),
            application_name="headwater",
            password=password,  # None: libpq looks for one in its usual places
        )
        limit_ms = max(1, round(1000 * self._request_s))
        await connection.execute("set session characteristics as transaction read only")
        await connection.execute(f"set statement_timeout = {limit_ms}".encode())
        return connection

    def _in_words(self, error: psycopg.Error, password: str | None) -> ProviderError:
        import psycopg

        text = without(error.diag.message_primary or str(error), password)
        if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
            return Refused(f"the query of {self.shown} writes; a remote table is only read: write a select")
        if CREDENTIALS.search(text):
            return Refused(f"{self.shown} does not accept these credentials: {_core(text)}")
        if NOT_THERE.search(text) or not isinstance(error, psycopg.OperationalError):
            return Refused(f"{self.shown}: {_core(text)}")
        return Unreachable(f"{self.shown} does not answer: {_core(text)}")


async def _closed(connection: psycopg.AsyncConnection[Any]) -> None:
    """A connection in an unknown state: the server is not told, which might take long."""
    with suppress(Exception):
        connection.pgconn.finish()
        await asyncio.sleep(0)


def _core(text: str) -> str:
    """What the server says, without where it was asked, and without what libpq supposes about it."""
    said = text.rpartition("FATAL: ")[2] if "FATAL: " in text else text
    return SUPPOSED.sub("", said).strip()


def _of_one_kind(values: list[Any]) -> list[Any]:
    """An array has one kind: beside a fraction whole numbers are fractions, too."""
    if any(isinstance(each, float) for each in values):
        return [float(each) if isinstance(each, int) else each for each in values]
    return values


def place_of(connection: str) -> str:
    """Where a server is, for sentences: the host, port and database of its connection text, and nothing else of it."""
    if "://" in connection:
        where = connection.partition("://")[2].rpartition("@")[2].partition("?")[0]
        return where or "on this machine"
    found: dict[str, str] = dict(re.findall(r"\b(service|host|port|dbname)\s*=\s*('[^']*'|\S+)", connection))
    if "service" in found:
        return f"service {found['service']}"
    where = found.get("host", "on this machine") + (f":{found['port']}" if "port" in found else "")
    return where + (f"/{found['dbname']}" if "dbname" in found else "")
