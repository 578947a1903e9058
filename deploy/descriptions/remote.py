"""Descriptions of remote tables, in a file or on the command line: how they are read, and what is wrong with them.

limits:  {postgres: "service=cards", query: "select max_limit from limits where org = any(%s)", keys: [org]}
places:  {http: "http://profiles.local/users/{user}/places", value: places, fresh: 10min}
regions: {file: regions.csv}
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from headwater.deploy.descriptions.remote_models import PARTS, DescribedAt, FileTablePart, TablePart
from headwater.deploy.network.reading import read_part
from headwater.deploy.network.yaml_file import NetworkFileError, Sheet
from headwater.node.remote.call import CallProvider
from headwater.node.remote.file import FileProvider
from headwater.node.remote.provider import Provider
from headwater.node.remote.tables import Behind
from headwater.protocol.edge import TimeUnit
from headwater.protocol.errors import ConfigError, EventError, HeadwaterError
from headwater.protocol.remote import LookupTable, RemoteTable
from headwater.protocol.text import closest, listed

NAME: Final = re.compile(r"[^\W\d]\w*")
FILES: Final = (".yaml", ".yml")
_IN_WEB_ADDRESS: Final = re.compile(r"://[^/?#\s]*@")
"""A server of the web takes a name before ``@`` for half of a secret, and many for the whole of one."""
_IN_ADDRESS: Final = re.compile(r"://\S*:\S*@")
"""Passwords may hold any character, also such as should be written otherwise in an address."""
_IN_PAIRS: Final = re.compile(r"\b(ssl)?password\s*=|_secret\s*=", re.IGNORECASE)
_IN_QUERY: Final = re.compile(
    r"[?&;]([\w.-]*(?:password|passwd|secret|token|signature)|(?:\w+[_-])?api[_-]?key|auth|authorization)=[^&{]",
    re.IGNORECASE,
)
_ANYWHERE: Final = re.compile(r"\b(password|passwd|token|secret)\s*[:=]|://[^/\s@]*:[^/\s@]*@", re.IGNORECASE)
SECRETS: Final = ("password", "passwd", "token", "secret")


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


def table_in(sheet: Sheet, name: str, node: yaml.Node, place: DescribedAt) -> LookupTable | Behind | None:
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
        if word in SECRETS or _holds_secret(word, text):
            instead = "token_file: or token_env:" if word in ("token", "http") else "password_file: or password_env:"
            raise ConfigError(
                f"{sheet.shown}:{key.start_mark.line + 1}: the table {name} has a secret in its text; "
                f"take it out and write {instead} instead"
            )


def _holds_secret(word: str, text: str) -> bool:
    if word == "http":
        return bool(_IN_WEB_ADDRESS.search(text) or _IN_QUERY.search(text))
    if word == "redis":
        return bool(_IN_ADDRESS.search(text) or _IN_QUERY.search(text))
    if word == "postgres":
        return bool(_IN_ADDRESS.search(text) or _IN_PAIRS.search(text.partition("?")[2] or text))
    return False


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


def tables_in(sheet: Sheet, node: yaml.MappingNode, place: DescribedAt) -> dict[str, LookupTable | Behind]:
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
    tables = tables_in(sheet, _root(sheet), DescribedAt(path.parent, unit))
    sheet.finished()
    return tables


def described(name: str, text: str, unit: TimeUnit | None = None, shown: str = "") -> LookupTable | Behind:
    """The table of a description in YAML flow text, ``{sqlite: .., query: ..}``."""
    sheet = _Option(shown or f"--remote {name}", text)
    table = table_in(sheet, name, _root(sheet), DescribedAt(Path(), unit))
    sheet.finished()
    assert table is not None
    return table


def provided(name: str, text: str) -> Behind:
    """What asks a table of a description in YAML flow text; nothing is opened yet."""
    sheet = _Option(f"table {name}", text)
    part = part_in(sheet, name, _root(sheet))
    sheet.finished()
    assert part is not None
    return part.behind(DescribedAt(Path()))


def versioned_file(text: str) -> bool | None:
    """Whether the file of a description in YAML flow text has versions; None if it is no file, or cannot be read."""
    file = yaml.safe_load(text).get("file")
    try:
        return None if file is None else FileProvider(str(file)).table().versioned
    except HeadwaterError:
        return None


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
