"""A provider of a table in a SQLite file."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from headwater.node.remote.guard import USUAL
from headwater.node.remote.provider import Elements, Key, Provider, ProviderError, Refused, Unreachable, sendable
from headwater.node.remote.rows import Columns, Gathered, check_places
from headwater.node.remote.threads import Threads

T = TypeVar("T")


class SqliteProvider(Provider):
    """``query`` has one ``?`` for each key attribute. With ``json_each(?)`` and the key among its columns it is asked
    for many keys at once. The file is only read, and a query that writes is refused."""

    versioned = None

    def __init__(
        self, path: str, query: str, keys: Sequence[str], answer_bytes_max: int = USUAL.answer_bytes_max
    ) -> None:
        self.shown = f"SQLite {path}"
        self.key_length = len(keys)
        self._path = path
        self._query = query
        self._keys = tuple(keys)
        self._bytes_max = answer_bytes_max
        self._takes_lists = len(keys) == 1 and re.search(r"\bjson_each\s*\(\s*\?", query, re.IGNORECASE) is not None
        self._connection: sqlite3.Connection | None = None
        self._turn = asyncio.Lock()
        self._threads = Threads()
        check_places(query, "?", keys, self.shown)

    async def check(self) -> None:
        async with self._turn:
            await self._in_thread(self._checked)

    async def fetch(self, keys: Sequence[Key]) -> Elements:
        async with self._turn:
            return await self._in_thread(self._fetched, keys)

    async def close(self) -> None:
        async with self._turn:
            self._drop()

    async def _in_thread(self, work: Callable[..., T], *arguments: Any) -> T:
        try:
            return await self._threads.run(self._translated, work, *arguments)
        except TimeoutError as error:
            raise Unreachable(f"{self.shown}: {error}") from None
        except asyncio.CancelledError:
            # The caller has gone: end the query. The thread still holds the connection, so it is left to it.
            if self._connection is not None:
                self._connection.interrupt()
                self._connection = None
            raise

    def _translated(self, work: Callable[..., T], *arguments: Any) -> T:
        """What a piece of work gives, with the errors of SQLite in our words."""
        try:
            return work(*arguments)
        except sqlite3.Error as error:
            raise self._in_words(error) from None

    def _in_words(self, error: sqlite3.Error) -> ProviderError:
        text = str(error)
        if "readonly" in text or "read-only" in text:
            return Refused(f"the query of {self.shown} writes; a remote table is only read: write a select")
        if "locked" in text or "busy" in text or "interrupted" in text:
            return Unreachable(f"{self.shown}: {text}")
        self._drop()
        if not Path(self._path).exists():
            return Refused(f"there is no file {self._path}")
        return Refused(f"{self.shown}: {text}")

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            if not Path(self._path).is_file():
                raise Refused(f"there is no file {self._path}")
            made = sqlite3.connect(
                f"file:{quote(self._path)}?mode=ro",
                uri=True,
                timeout=1.0,
                check_same_thread=False,
                isolation_level=None,
            )
            made.execute("pragma query_only = on")
            self._connection = made
        return self._connection

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _checked(self) -> None:
        self._open().execute("select count(*) from sqlite_master").fetchone()  # a file is not read before it must be
        nothing = ["[]"] if self._takes_lists else [None] * len(self._keys)
        self._columns(self._open().execute(self._query, nothing))

    def _columns(self, cursor: sqlite3.Cursor) -> Columns:
        if cursor.description is None:
            raise Refused(f"the query of {self.shown} gives no rows; write a select")
        columns = Columns.of([each[0] for each in cursor.description], self._keys, self.shown)
        self.batch_max = 500 if self._takes_lists and columns.keys is not None else 1
        self.versioned = columns.ts is not None
        return columns

    def _fetched(self, keys: Sequence[Key]) -> Elements:
        keys = sendable(keys)
        if not keys:
            return {}
        connection = self._open()
        given = [json.dumps([key[0] for key in keys])] if self._takes_lists else list(keys[0])
        try:
            cursor = connection.execute(self._query, given)
        except OverflowError:  # an integer that SQLite cannot hold, so it does not
            return {}
        gathered = Gathered(self._columns(cursor), keys, self.shown, self._bytes_max, whole=self.whole)
        for row in cursor:
            gathered.add(row)
        return gathered.elements()
