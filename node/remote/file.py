"""A provider of a table in a file: CSV, JSON lines or Parquet, read whole when it is first asked."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.node.remote.provider import Elements, Key, Provider, Refused
from headwater.node.remote.tables_in_files import load_remote_table
from headwater.node.remote.threads import Threads
from headwater.protocol.edge import TimeUnit
from headwater.protocol.errors import HeadwaterError
from headwater.protocol.remote import RemoteTable


class FileProvider(Provider):
    """One engine takes ``table`` instead, which has everything at hand."""

    batch_max = 10_000
    versioned = None

    def __init__(self, path: str, unit: TimeUnit | None = None) -> None:
        self.shown = path
        self._path = path
        self._unit = unit
        self._table: RemoteTable | None = None

    def table(self) -> RemoteTable:
        """The whole table; an error that says what is wrong with the file."""
        if self._table is None:
            self._table = load_remote_table(self._path, self._unit)
            self.key_length = max(self._table.key_lengths(), default=None)
            self.versioned = self._table.versioned
        return self._table

    async def check(self) -> None:
        try:
            await Threads().run(self.table)
        except HeadwaterError as error:
            raise Refused(str(error)) from None

    async def fetch(self, keys: Sequence[Key]) -> Elements:
        await self.check()
        table = self.table()
        return {key: versions for key in keys if (versions := table.versions(key)) is not None}
