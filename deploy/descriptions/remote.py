"""Descriptions of remote tables, in a file or on the command line, and the providers they define.

limits:  {postgres: "service=cards", query: "select max_limit from limits where org = any(%s)", keys: [org]}
places:  {http: "http://profiles.local/users/{user}/places", value: places, fresh: 10min}
regions: {file: regions.csv}
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal

import yaml
from pydantic import Field

from headwater.deploy.network.fields import FilePart, Listed, OneOrMore
from headwater.deploy.network.mistakes import Flaw, wrong
from headwater.deploy.network.reading import read_part
from headwater.deploy.network.values import OneOf, QuantityEntry, TextEntry, lasting
from headwater.deploy.network.yaml_file import NetworkFileError, Sheet
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
from headwater.protocol.errors import ConfigError, EventError, HeadwaterError
from headwater.protocol.remote import LookupTable, RemoteTable
from headwater.protocol.text import closest, listed

NAME: Final = re.compile(r"[^\W\d]\w*")
FILES: Final = (".yaml", ".yml")
EXAMPLE: Final = "write NAME={file: regions.csv}, or name another provider"

_IN_ADDRESS: Final = re.compile(r"://[^/?#@\s]*:[^/?#@\s]*@")
_IN_PAIRS: Final = re.compile(r"\bpassword\s*=", re.IGNORECASE)
_ANYWHERE: Final = re.compile(r"\b(password|passwd|token|secret)\s*[:=]|://[^/\s@]*:[^/\s@]*@", re.IGNORECASE)
SECRETS: Final = ("password", "passwd", "token", "secret")


@dataclass(frozen=True, slots=True)
class Place:
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


class TablePart(FilePart):
    """One table and its provider."""

    WHAT: ClassVar = "the table <0>"
    EXAMPLE: ClassVar = EXAMPLE
    LACKS: ClassVar = "the table has no {missing}:"

    @property
    def word(self) -> str:
        return next(word for word, part in PARTS.items() if isinstance(self, part))

    def table(self, place: Place) -> LookupTable | Behind:
        raise NotImplementedError

    def behind(self, place: Place) -> Behind:
        """The table as one that is asked, wherever it is."""
        raise NotImplementedError


class AskedPart(TablePart):
    """A table that is asked key by key."""

    keys: Keys = Field((), description="The attributes of a key, in the order of a lookup's arguments.")
    fresh: Fresh = Field(None, description="How long an element may be used; without it, for ever.")
    timeout: Length = Field(None, description="How long one request may take.")
    wait: Length = Field(None, description="How long a lookup waits for a provider that is away.")

    def flaws(self) -> Iterator[Flaw]:
        names = [str(key) for key in self.keys]
        if len(set(names)) < len(names):
            yield ("keys",), wrong("a key attribute stands twice", "name each once")

    @property
    def limits(self) -> Limits:
        return replace(
            USUAL,
            request_s=USUAL.request_s if self.timeout is None else self.timeout / 1e6,
            wait_s=USUAL.wait_s if self.wait is None else self.wait / 1e6,
        )

    def table(self, place: Place) -> Behind:
        fresh_s = None if self.fresh is None else self.fresh / 1e6
        return Behind(self.provider(place, [str(key) for key in self.keys]), self.limits, fresh_s)

    def behind(self, place: Place) -> Behind:
        return self.table(place)

    def provider(self, place: Place, keys: list[str]) -> Provider:
        raise NotImplementedError


class FileTablePart(TablePart):
    EXAMPLE: ClassVar = "write {file: regions.csv}"
    SHORT: ClassVar = "file"

    file: Annotated[Scalar, TextEntry("file", "write file: regions.csv")] = Field(
        description="CSV, JSON lines or Parquet."
    )

    def table(self, place: Place) -> RemoteTable:
        return FileProvider(place.file(str(self.file)), place.unit).table()

    def behind(self, place: Place) -> Behind:
        return Behind(FileProvider(place.file(str(self.file)), place.unit))


class QueryPart(AskedPart):
    query: Annotated[Scalar, TextEntry("query", "write query: and a select")]

    def flaws(self) -> Iterator[Flaw]:
        yield from super().flaws()
        if not self.keys and "keys" not in self.broken:
            yield (), wrong("the table does not say what its key is", "write keys: [org]")


class SqlitePart(QueryPart):
    EXAMPLE: ClassVar = "write {sqlite: cards.db, query: select max from limits where org = ?, keys: [org]}"

    sqlite: Annotated[Scalar, TextEntry("sqlite", "write sqlite: cards.db")] = Field(description="The database file.")

    def provider(self, place: Place, keys: list[str]) -> Provider:
        return SqliteProvider(place.file(str(self.sqlite)), str(self.query), keys)


class PostgresPart(QueryPart):
    EXAMPLE: ClassVar = "write {postgres: service=cards, query: select max from limits where org = %s, keys: [org]}"

    postgres: Annotated[Scalar, TextEntry("postgres", "write postgres: service=cards")] = Field(
        description="A connection text of libpq, without a password."
    )
    password_file: Annotated[Scalar | None, TextEntry("password_file")] = None
    password_env: Annotated[Scalar | None, TextEntry("password_env")] = None

    def provider(self, place: Place, keys: list[str]) -> Provider:
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

    def provider(self, place: Place, keys: list[str]) -> Provider:
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

    def provider(self, place: Place, keys: list[str]) -> Provider:
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

    def provider(self, place: Place, keys: list[str]) -> Provider:
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


def secret_of(place: Place, file: Scalar | None, variable: Scalar | None) -> Secret:
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


# --- reading ----------------------------------------------------------------------------------------------------------


class _Option(Sheet):
    """A description that is no file but a text from the command line or the API."""

    def __init__(self, shown: str, text: str) -> None:
        self._text = text
        super().__init__(Path(shown), "description of a remote table", f"one of {listed(PARTS)}")

    def _read(self) -> str:
        return self._text


def part_in(sheet: Sheet, name: str, node: yaml.Node) -> TablePart | None:
    """What a node says of a table; what is wrong with it is noted in the sheet, and then it is None."""
    _refuse_secrets(sheet, name, node)
    model = _model(sheet, name, node)
    part = None if model is None else read_part(sheet, node, model, path=(name,))
    return None if part is None or part.broken else part


def table_in(sheet: Sheet, name: str, node: yaml.Node, place: Place) -> LookupTable | Behind | None:
    """The table that a node describes; what is wrong with it is noted in the sheet, and then it is None."""
    part = part_in(sheet, name, node)
    if part is None:
        return None
    try:
        return part.table(place)
    except EventError:
        raise  # of a line in a file of its own
    except HeadwaterError as error:
        message, _, cure = str(error).partition("; ")
        sheet.error(part.at(part.word), message, cure)
        return None


def _model(sheet: Sheet, name: str, node: yaml.Node) -> type[TablePart] | None:
    if isinstance(node, yaml.ScalarNode):
        return FileTablePart
    words = [str(key.value) for key, _ in node.value] if isinstance(node, yaml.MappingNode) else []
    named = [word for word in words if word in PARTS]
    if len(named) == 1:
        return PARTS[named[0]]
    if named:
        sheet.error(node, f"the table {name} has {len(named)} providers", f"leave all but one out: {listed(named)}")
        return None
    near = next((near for word in words if (near := closest(word, PARTS)) is not None), None)
    cure = f"did you mean {near!r}?" if near else f"write one of {listed(PARTS)}"
    sheet.error(node, f"the table {name} names no provider", cure)
    return None


def _refuse_secrets(sheet: Sheet, name: str, node: yaml.Node) -> None:
    """A secret in the text would be shown with the first mistake: this one is said without its text."""
    for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
        text = str(value.value) if isinstance(value, yaml.ScalarNode) else ""
        word = str(key.value)
        if (
            word in SECRETS
            or _IN_ADDRESS.search(text)
            or (word == "postgres" and _IN_PAIRS.search(text.partition("?")[2] or text))
        ):
            instead = "token_file: or token_env:" if word in ("token", "http") else "password_file: or password_env:"
            raise ConfigError(
                f"{sheet.shown}:{key.start_mark.line + 1}: the table {name} has a secret in its text; "
                f"take it out and write {instead} instead"
            )


def _root(sheet: Sheet) -> yaml.MappingNode:
    try:
        return sheet.root()
    except NetworkFileError as error:
        if _ANYWHERE.search(sheet.source.text):
            line = error.diagnostics[0].line
            raise ConfigError(
                f"{sheet.shown}:{line}: this is not YAML; the line is not shown, for the text seems to hold a secret"
            ) from None
        raise


def tables_in(sheet: Sheet, node: yaml.MappingNode, place: Place) -> dict[str, LookupTable | Behind]:
    """The tables of a mapping by name; mistakes are noted in the sheet."""
    found: dict[str, LookupTable | Behind] = {}
    named: set[str] = set()
    for key, value in node.value:
        name = str(key.value)
        if not isinstance(key, yaml.ScalarNode) or not NAME.fullmatch(name):
            sheet.error(key, "a table must have a name of letters, digits and _", "as in limits: {..}")
        elif name in named:
            sheet.error(key, f"there are two tables {name}", "call one of them otherwise")
        else:
            named.add(name)
            table = table_in(sheet, name, value, place)
            if table is not None:
                found[name] = table
    return found


def read_tables(path: Path, unit: TimeUnit | None = None) -> dict[str, LookupTable | Behind]:
    """The tables that a file describes; a ConfigError that lists everything wrong with it."""
    sheet = Sheet(path, "file of remote tables", "a name and a provider for each: limits: {file: limits.csv}")
    tables = tables_in(sheet, _root(sheet), Place(path.parent, unit))
    sheet.finished()
    return tables


def described(name: str, text: str, unit: TimeUnit | None = None, shown: str = "") -> LookupTable | Behind:
    """The table of a description in YAML flow text, ``{sqlite: .., query: ..}``."""
    sheet = _Option(shown or f"--remote {name}", text)
    table = table_in(sheet, name, _root(sheet), Place(Path(), unit))
    sheet.finished()
    assert table is not None
    return table


def provided(name: str, text: str) -> Behind:
    """What asks a table of a description in YAML flow text; nothing is opened yet."""
    sheet = _Option(f"table {name}", text)
    part = part_in(sheet, name, _root(sheet))
    sheet.finished()
    assert part is not None
    return part.behind(Place(Path()))


def remote_tables(options: Iterable[str], unit: TimeUnit | None = None) -> dict[str, LookupTable | Behind]:
    """Tables by name from options: ``NAME=FILE``, ``NAME={..}``, or a YAML file that describes several."""
    tables: dict[str, LookupTable | Behind] = {}
    for option in options:
        for name, table in _of_option(option, unit).items():
            if name in tables:
                raise ConfigError(f"--remote names the table {name!r} twice")
            tables[name] = table
    return tables


def _of_option(option: str, unit: TimeUnit | None) -> dict[str, LookupTable | Behind]:
    name, sign, given = option.partition("=")
    if option.endswith(FILES) and not (sign and NAME.fullmatch(name)):
        return read_tables(Path(option), unit)
    if not sign or not NAME.fullmatch(name) or not given:
        raise ConfigError(f"--remote {option!r:.200} should be NAME=FILE, NAME={{..}} or a file of tables, remote.yaml")
    if given.lstrip().startswith("{"):
        return {name: described(name, given, unit)}
    return {name: FileProvider(given, unit).table()}


def files_in(options: Iterable[str]) -> list[str]:
    """The files that options name directly, which no output may replace."""
    given = [option if option.endswith(FILES) else option.partition("=")[2] for option in options]
    return [each for each in given if not each.lstrip().startswith("{")]


# --- from Python ------------------------------------------------------------------------------------------------------


def table_from_python(name: str, given: Any) -> LookupTable | Behind:
    """A table as programs give one: an object with ``lookup``, a provider, a function, a description or the data."""
    if hasattr(given, "lookup"):
        return given  # type: ignore[no-any-return]
    if isinstance(given, Provider):
        return given.table() if isinstance(given, FileProvider) else Behind(given)
    if isinstance(given, Behind):
        return given
    if isinstance(given, Mapping):
        words = [word for word in PARTS if isinstance(given.get(word), str)]
        if len(words) != 1:
            return RemoteTable.from_mapping(given)
        try:
            text = yaml.safe_dump(dict(given), default_flow_style=True, width=10**6, allow_unicode=True)
        except yaml.YAMLError:
            raise ConfigError(f"remote[{name!r}] is not a description; {PARTS[words[0]].EXAMPLE}") from None
        return described(name, text, shown=f"remote[{name!r}]")
    if callable(given):
        return Behind(CallProvider(given))
    raise ConfigError(
        f"remote[{name!r}] is {type(given).__name__}; give a function, a provider, a description such as "
        "{'sqlite': 'cards.db', ..}, a dict of the data, or an object with lookup(arguments, ts)"
    )
