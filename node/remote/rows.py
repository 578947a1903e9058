"""The answers of databases: rows with a value, perhaps the columns of the key, perhaps ``ts``, as elements by key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from headwater.node.remote.provider import BadAnswer, Elements, Key, Refused, found_of, plain_key, too_large
from headwater.node.traces.times import parse_ts
from headwater.protocol.errors import EventError
from headwater.protocol.remote import RemoteValue, Versions
from headwater.protocol.text import listed

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Columns:
    """Where in a row things are."""

    value: int
    ts: int | None
    keys: tuple[int, ...] | None
    """None: the rows do not say which key they are for, so that only one can be asked for at a time."""

    @classmethod
    def of(cls, names: Sequence[str], keys: Sequence[str], shown: str) -> Columns:
        lower = [name.lower() for name in names]
        places = tuple(lower.index(key.lower()) for key in keys if key.lower() in lower)
        keyed = len(places) == len(keys)
        ts = lower.index("ts") if "ts" in lower and "ts" not in [key.lower() for key in keys] else None
        rest = [at for at in range(len(names)) if at != ts and not (keyed and at in places)]
        if len(rest) != 1:
            what = f"has {len(rest)} columns for the value ({listed(names)})" if rest else "has no column for the value"
            raise Refused(
                f"the query of {shown} {what}; select one, beside those of the key ({listed(keys)}) "
                "and ts where it has versions"
            )
        return cls(rest[0], ts, places if keyed else None)


class Gathered:
    """Elements, row by row."""

    def __init__(
        self, columns: Columns, asked: Sequence[Key], shown: str, bytes_max: int, *, whole: bool = False
    ) -> None:
        """``whole``: rows of other keys are taken, too."""
        if whole and columns.keys is None:
            raise Refused(f"the query of {shown} has no columns for the key, which whole: yes needs; select them")
        self._whole = whole
        assert columns.keys is not None or len(asked) == 1
        self._columns = columns
        self._shown = shown
        self._bytes_left = self._bytes_max = bytes_max
        self._only = asked[0] if columns.keys is None else None
        self._found: dict[Key, list[tuple[int | None, RemoteValue]]] = {key: [] for key in asked}

    def add(self, row: Sequence[Any]) -> None:
        columns = self._columns
        value = row[columns.value]
        self._bytes_left -= len(value) + 8 if isinstance(value, str | bytes) else 8
        if self._bytes_left < 0:
            raise too_large(self._shown, self._bytes_max)
        key = self._only
        if columns.keys is not None:
            key = plain_key(found_of(row[at], self._shown) for at in columns.keys)  # type: ignore[misc]
        if key not in self._found and not self._whole:
            raise BadAnswer(f"{self._shown} answered for the key {key!r:.80}, which it was not asked for")
        since = None if columns.ts is None else _since(row[columns.ts], self._shown)
        assert key is not None
        self._found.setdefault(key, []).append((since, found_of(value, self._shown)))

    def elements(self) -> Elements:
        return {key: Versions.of(values) for key, values in self._found.items() if values}


def _since(given: Any, shown: str) -> int | None:
    if given is None:
        return None
    if isinstance(given, datetime):
        moment = given if given.tzinfo is not None else given.replace(tzinfo=UTC)
        return (moment - _EPOCH) // timedelta(microseconds=1)
    try:
        return parse_ts(given)
    except EventError as error:
        raise BadAnswer(f"{shown}: {error}") from None


def places_in(query: str, mark: str) -> int:
    """How often a query asks for a key: ``%s`` or ``?``, outside of quotes."""
    quoted, count, at = "", 0, 0
    while at < len(query):
        character = query[at]
        if quoted:
            quoted = "" if character == quoted else quoted
        elif character in "'\"":
            quoted = character
        elif query.startswith("%%", at) and mark == "%s":
            at += 1
        elif query.startswith(mark, at):
            count += 1
        at += 1
    return count


def check_places(query: str, mark: str, keys: Sequence[str], shown: str) -> None:
    places = places_in(query, mark)
    if places != len(keys):
        raise Refused(
            f"the query of {shown} has {places} {'place' if places == 1 else 'places'} for a key ({mark}), but keys: "
            f"names {len(keys)} ({listed(keys)}); write one {mark} for each, in this order"
        )
