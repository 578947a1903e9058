"""What a description of a remote table may say: a model for each provider, and the table or provider it defines."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field

from headwater.deploy.network.fields import FilePart, Listed, OneOrMore
from headwater.deploy.network.mistakes import Flaw, wrong
from headwater.deploy.network.values import OneOf, QuantityEntry, TextEntry, lasting
from headwater.deploy.network.yaml_tree import Scalar
from headwater.node.remote.call import CallProvider
from headwater.node.remote.file import FileProvider
from headwater.node.remote.guard import USUAL, Limits
from headwater.node.remote.http import HttpProvider, url_template
from headwater.node.remote.postgres import PostgresProvider
from headwater.node.remote.provider import Provider
from headwater.node.remote.redis import KINDS, RedisProvider
from headwater.node.remote.secrets import Secret
from headwater.node.remote.sqlite import SqliteProvider
from headwater.node.remote.tables import Behind
from headwater.node.remote.template import Template
from headwater.protocol.edge import TimeUnit
from headwater.protocol.errors import ConfigError
from headwater.protocol.remote import WAIT, LookupTable, RemoteTable, TableTerms
from headwater.protocol.text import listed

EXAMPLE: Final = "write NAME={file: regions.csv}, or name another provider"


@dataclass(frozen=True, slots=True)
class DescribedAt:
    """Where a description stands: files that it names are in ``folder``; ``unit`` is that of numbers that are times."""

    folder: Path
    unit: TimeUnit | None = None

    def file(self, name: str) -> str:
        return name if self.folder == Path() else str(self.folder / name)


Keys = Annotated[
    tuple[Annotated[Scalar, TextEntry("a key attribute")], ...], Listed("keys", "write keys: [org]"), OneOrMore()
]
Fresh = Annotated[
    int | None, QuantityEntry("fresh", "", lasting(1, "nothing is fresh for no time", "write fresh: 10min"))
]
Length = Annotated[
    int | None, QuantityEntry("<0>", "", lasting(1_000, "<0> is too short", "write a duration such as 5s"))
]


def _yes(text: Scalar) -> bool:
    if text not in ("yes", "no", "true", "false"):
        raise wrong("members: is yes or no", "yes: the name stands for a set")
    return text in ("yes", "true")


def _says(text: Scalar) -> bool:
    if text not in ("yes", "no", "true", "false"):
        raise wrong("lineage: is yes or no", "yes: composite events say which values they rest on")
    return text in ("yes", "true")


def _together(text: Scalar) -> bool:
    if text not in ("yes", "no", "true", "false"):
        raise wrong("whole: is yes or no", "yes: an answer holds all keys that belong together")
    return text in ("yes", "true")


class TablePart(FilePart):
    """One table and its provider."""

    WHAT: ClassVar = "the table <0>"
    EXAMPLE: ClassVar = EXAMPLE
    LACKS: ClassVar = "the table has no {missing}:"

    lineage: Annotated[bool, TextEntry("lineage", "", _says)] = Field(
        False, description="Whether composite events say which values they rest on."
    )

    @property
    def word(self) -> str:
        return next(word for word, part in PARTS.items() if isinstance(self, part))

    @property
    def terms(self) -> TableTerms:
        """What lookups in it mean beyond what its data say."""
        return TableTerms(lineage=self.lineage)

    def table(self, place: DescribedAt) -> LookupTable | Behind:
        raise NotImplementedError

    def behind(self, place: DescribedAt) -> Behind:
        """The table as one that is asked, wherever it is."""
        raise NotImplementedError


class AskedPart(TablePart):
    """A table that is asked key by key."""

    keys: Keys = Field((), description="The attributes of a key, in the order of a lookup's arguments.")
    fresh: Fresh = Field(None, description="How long an element may be used; without it, for ever.")
    timeout: Length = Field(None, description="How long one request may take.")
    wait: Length = Field(None, description="How long a lookup waits for a provider that is away.")
    whole: Annotated[bool, TextEntry("whole", "", _together)] = Field(
        False, description="Whether an answer holds all keys that belong together, and not only those asked for."
    )
    on_failure: Annotated[
        Literal["wait", "reject", "accept"],
        OneOf("on_failure", cure="write wait, reject (comparisons are false) or accept (they are true)"),
    ] = Field("wait", description="What becomes of a comparison whose element cannot be had.")

    def flaws(self) -> Iterator[Flaw]:
        names = [str(key) for key in self.keys]
        if len(set(names)) < len(names):
            yield ("keys",), wrong("a key attribute stands twice", "name each once")

    @property
    def limits(self) -> Limits:
        return replace(
            USUAL,
            request_s=USUAL.request_s if self.timeout is None else self.timeout / 1e6,
            wait_s=USUAL.wait_s if self.wait is None and self.on_failure == WAIT else (self.wait or 0) / 1e6,
        )

    @property
    def terms(self) -> TableTerms:
        return TableTerms(self.fresh, self.on_failure, self.lineage, self.whole)

    def table(self, place: DescribedAt) -> Behind:
        provider = self.provider(place, [str(key) for key in self.keys])
        provider.whole = self.whole
        return Behind(provider, self.limits, self.terms)

    def behind(self, place: DescribedAt) -> Behind:
        return self.table(place)

    def provider(self, place: DescribedAt, keys: list[str]) -> Provider:
        raise NotImplementedError


class FileTablePart(TablePart):
    EXAMPLE: ClassVar = "write {file: regions.csv}"
    SHORT: ClassVar = "file"

    file: Annotated[Scalar, TextEntry("file", "write file: regions.csv")] = Field(
        description="CSV, JSON lines or Parquet."
    )

    def table(self, place: DescribedAt) -> RemoteTable | Behind:
        return self.behind(place) if self.lineage else FileProvider(place.file(str(self.file)), place.unit).table()

    def behind(self, place: DescribedAt) -> Behind:
        return Behind(FileProvider(place.file(str(self.file)), place.unit), terms=self.terms)


WRITING: Final = (
    "alter", "call", "copy", "create", "delete", "drop", "grant", "insert", "merge", "reindex", "replace", "truncate",
    "update", "vacuum",
)  # fmt: skip
"""Words that begin a statement which changes something. What else writes, the database refuses."""


class QueryPart(AskedPart):
    query: Annotated[Scalar, TextEntry("query", "write query: and a select")]

    def flaws(self) -> Iterator[Flaw]:
        yield from super().flaws()
        if not self.keys and "keys" not in self.broken:
            yield (), wrong("the table does not say what its key is", "write keys: [org]")
        word = re.match(r"\s*(?:--[^\n]*\n\s*)*(\w+)", str(self.query)) if "query" not in self.broken else None
        if word is not None and word[1].lower() in WRITING:
            yield ("query",), wrong(f"this query writes ({word[1]})", "a remote table is only read: write a select")


class SqlitePart(QueryPart):
    EXAMPLE: ClassVar = "write {sqlite: cards.db, query: select max from limits where org = ?, keys: [org]}"

    sqlite: Annotated[Scalar, TextEntry("sqlite", "write sqlite: cards.db")] = Field(description="The database file.")

    def provider(self, place: DescribedAt, keys: list[str]) -> Provider:
        return SqliteProvider(place.file(str(self.sqlite)), str(self.query), keys)


class PostgresPart(QueryPart):
    EXAMPLE: ClassVar = "write {postgres: service=cards, query: select max from limits where org = %s, keys: [org]}"

    postgres: Annotated[Scalar, TextEntry("postgres", "write postgres: service=cards")] = Field(
        description="A connection text of libpq, without a password."
    )
    password_file: Annotated[Scalar | None, TextEntry("password_file")] = None
    password_env: Annotated[Scalar | None, TextEntry("password_env")] = None

    def provider(self, place: DescribedAt, keys: list[str]) -> Provider:
        secret = secret_of(place, self.password_file, self.password_env)
        return PostgresProvider(
            str(self.postgres), str(self.query), keys, password=secret, request_s=self.limits.request_s
        )


class RedisPart(AskedPart):
    EXAMPLE: ClassVar = "write {redis: 127.0.0.1:6379, key: 'limits:{org}', kind: int}"

    redis: Annotated[Scalar, TextEntry("redis", "write redis: 127.0.0.1:6379")] = Field(
        description="host:port, or redis://host:port/0, without a password."
    )
    key: Annotated[Scalar, TextEntry("key", "write key: 'limits:{org}'")] = Field(
        description="What a key is stored under, with its attributes in braces."
    )
    kind: Annotated[
        Literal["string", "int", "float", "bool", "json"], OneOf("kind", cure=f"write one of {listed(KINDS)}")
    ] = "string"
    field: Annotated[Scalar | None, TextEntry("field")] = Field(
        None, description="Of a hash: the field that is the value."
    )
    members: Annotated[bool, TextEntry("members", "", _yes)] = Field(False, description="Whether it is a set.")
    password_file: Annotated[Scalar | None, TextEntry("password_file")] = None
    password_env: Annotated[Scalar | None, TextEntry("password_env")] = None

    def flaws(self) -> Iterator[Flaw]:
        yield from super().flaws()
        if self.members and self.field is not None:
            yield ("members",), wrong("a field of a hash has no members", "leave one of field: and members: out")

    def provider(self, place: DescribedAt, keys: list[str]) -> Provider:
        return RedisProvider(
            str(self.redis),
            Template(str(self.key), keys, what="the name in key:"),
            kind=self.kind,
            field=None if self.field is None else str(self.field),
            members=self.members,
            password=secret_of(place, self.password_file, self.password_env),
            request_s=self.limits.request_s,
        )


def _address(text: Scalar) -> Scalar:
    if not text.startswith(("http://", "https://")):
        raise wrong("this is not an address of a web server", "write http: http://host/users/{user}")
    return text


class HttpPart(AskedPart):
    EXAMPLE: ClassVar = "write {http: 'http://host/users/{user}/places', value: places}"

    http: Annotated[Scalar, TextEntry("http", "write http: 'http://host/users/{user}'", _address)] = Field(
        description="The address, with the attributes of the key in braces, or {keys} for many at once."
    )
    value: Annotated[Scalar | None, TextEntry("value")] = Field(None, description="The path to the value: a.b.0")
    items: Annotated[Scalar | None, TextEntry("items")] = Field(
        None, description="With {keys}: the path to what holds an element for each key."
    )
    token_file: Annotated[Scalar | None, TextEntry("token_file")] = None
    token_env: Annotated[Scalar | None, TextEntry("token_env")] = None

    def provider(self, place: DescribedAt, keys: list[str]) -> Provider:
        return HttpProvider(
            url_template(str(self.http), keys),
            value=str(self.value or ""),
            items=str(self.items or ""),
            token=secret_of(place, self.token_file, self.token_env),
            request_s=self.limits.request_s,
        )


class PythonPart(AskedPart):
    EXAMPLE: ClassVar = "write {python: 'my_module:my_function'}"

    python: Annotated[Scalar, TextEntry("python", "write python: 'my_module:my_function'")] = Field(
        description="A function that is called with the values of a key."
    )

    def provider(self, place: DescribedAt, keys: list[str]) -> Provider:
        provider = CallProvider(imported(str(self.python), place.folder), str(self.python))
        if keys and provider.key_length not in (None, len(keys)):
            raise ConfigError(f"{provider.shown} takes {provider.key_length}, but keys: names {len(keys)}")
        provider.key_length = len(keys) or provider.key_length
        return provider


PARTS: Final[Mapping[str, type[TablePart]]] = {
    "file": FileTablePart,
    "sqlite": SqlitePart,
    "postgres": PostgresPart,
    "redis": RedisPart,
    "http": HttpPart,
    "python": PythonPart,
}
"""The providers, by the word that names one in a description."""


def secret_of(place: DescribedAt, file: Scalar | None, variable: Scalar | None) -> Secret:
    if file is not None and variable is not None:
        raise ConfigError("a secret is in a file or in the environment; leave one out")
    return Secret(None if file is None else place.file(str(file)), None if variable is None else str(variable))


def imported(name: str, folder: Path) -> Callable[..., Any]:
    """The function that ``module:function`` names; the module may be a file in the folder."""
    module, sign, function = name.partition(":")
    if not sign or not all(map(str.isidentifier, module.split("."))) or not function.isidentifier():
        raise ConfigError(f"{name!r} names no function; write module:function")
    sys.path.insert(0, str(folder.absolute()))
    try:
        found = getattr(importlib.import_module(module), function, None)
    except ImportError as error:
        raise ConfigError(f"the module {module!r} cannot be imported: {error}") from None
    except Exception as error:
        raise ConfigError(f"the module {module!r} cannot be loaded: {type(error).__name__}: {error}") from None
    finally:
        sys.path.remove(str(folder.absolute()))
    if not callable(found):
        raise ConfigError(f"the module {module!r} has no function {function!r}")
    return found  # type: ignore[no-any-return]
