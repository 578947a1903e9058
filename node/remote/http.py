"""A provider of a table behind HTTP: an address with places for the key, and a path into the JSON that it answers."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from headwater.node.edge.names import shown as without_secrets
from headwater.node.remote.guard import USUAL
from headwater.node.remote.provider import (
    BadAnswer,
    Elements,
    Key,
    Provider,
    Refused,
    Unreachable,
    found_of,
    plain_key,
    sendable,
    too_large,
)
from headwater.node.remote.secrets import Secret, without
from headwater.node.remote.template import Template
from headwater.protocol.functions import as_text
from headwater.protocol.remote import Versions

if TYPE_CHECKING:
    import aiohttp

NOT_THERE: Final = (404, 410)
LATER: Final = (408, 425, 429)
RETRY_AFTER_S_MAX: Final = 60.0
MANY_MAX: Final = 100  # keys in one request, so that its address stays short enough for any server
MADE_UP: Final = "0"  # the key of a check: whether it is there does not matter


class HttpProvider(Provider):
    """The answer is JSON. ``value`` leads to the element in it, ``items`` to the rows of many keys (``a.b.0``).

    Where the address has ``{keys}``, many keys go into one request, joined by commas. The answer is then an object by
    key, or a list of objects that have the key's attribute.
    """

    def __init__(
        self,
        url: Template,
        *,
        value: str = "",
        items: str = "",
        token: Secret | None = None,
        request_s: float = USUAL.request_s,
        answer_bytes_max: int = USUAL.answer_bytes_max,
    ) -> None:
        self.shown = without_secrets(url.text)
        self.key_length = len(url.keys)
        self.batch_max = MANY_MAX if url.many else 1
        self._url = url
        self._value = value
        self._items = items
        self._token = token or Secret()
        self._request_s = request_s
        self._bytes_max = answer_bytes_max
        self._session: aiohttp.ClientSession | None = None

    async def check(self) -> None:
        key = (MADE_UP,) * len(self._url.keys)
        # A server may well refuse a key that is made up; what counts is that it listens to us.
        await self._get(self._address([key]), also_fine=(400, 422))

    async def fetch(self, keys: Sequence[Key]) -> Elements:
        keys = sendable(keys)
        body = await self._get(self._address(keys)) if keys else None
        if body is None:
            return {}
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            start = body[:40].decode("utf-8", "replace")
            raise BadAnswer(f"{self.shown} answered with something that is not JSON: {start!r}") from None
        found = self._rows(answer, keys) if self._url.many or self.whole else [(keys[0], answer)]
        elements = {}
        for key, row in found:
            value = at_path(row, self._value)
            if value is not None:
                elements[key] = Versions.always(found_of(value, self.shown))
        return elements

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _address(self, keys: Sequence[Key]) -> str:
        return self._url.filled_with_many(keys) if self._url.many else self._url.filled(keys[0])

    def _rows(self, answer: Any, keys: Sequence[Key]) -> list[tuple[Key, Any]]:
        rows = at_path(answer, self._items)
        if isinstance(rows, Mapping):
            by_text = {as_text(key[0]): key for key in keys}
            if self.whole:
                by_text = {text: _like(keys[0], text) for text in rows} | by_text
            return [(by_text[text], row) for text, row in rows.items() if text in by_text]
        if isinstance(rows, list):
            asked, name = {key: key for key in keys}, self._url.keys[0]
            if self.whole:
                asked |= {key: key for row in rows if (key := _key_of(row, name)) is not None}
            by_key = [(asked.get(_key_of(row, name)), row) for row in rows]  # type: ignore[arg-type]
            return [(key, row) for key, row in by_key if key is not None]
        raise BadAnswer(
            f"{self.shown} answered for many keys with neither an object by key nor a list; say items: PATH"
        )

    async def _get(self, address: str, also_fine: tuple[int, ...] = ()) -> bytes | None:
        """The body of the answer; None if the server does not have it."""
        import aiohttp
        from yarl import URL

        token = self._token.read()
        headers = {"Accept": "application/json"} | ({} if token is None else {"Authorization": f"Bearer {token}"})
        try:
            target = URL(address, encoded=True)
            async with self._opened().get(target, headers=headers, allow_redirects=False) as answer:
                if answer.status in NOT_THERE or answer.status in also_fine:
                    return None
                self._judge(answer.status, answer.headers.get("Retry-After"))
                return await self._body(answer)
        except (aiohttp.InvalidURL, ValueError):
            raise Refused(f"{self.shown} is not an address; write http://host/path with the key in braces") from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unreachable(f"{self.shown} does not answer: {without(_reason(error), token)}") from None

    def _opened(self) -> aiohttp.ClientSession:
        import aiohttp

        if self._session is None:
            limit = aiohttp.ClientTimeout(total=self._request_s)
            self._session = aiohttp.ClientSession(timeout=limit, cookie_jar=aiohttp.DummyCookieJar())
        return self._session

    def _judge(self, status: int, retry_after: str | None) -> None:
        if 200 <= status < 300:
            return
        if status in (401, 403):
            raise Refused(f"{self.shown} does not accept these credentials: it answered {status}")
        if status in LATER or status >= 500:
            asked = float(retry_after) if retry_after is not None and retry_after.isdecimal() else 0.0
            raise Unreachable(f"{self.shown} answered {status}", min(asked, RETRY_AFTER_S_MAX))
        raise Refused(f"{self.shown} answered {status}; look at the address")

    async def _body(self, answer: aiohttp.ClientResponse) -> bytes:
        parts, size = [], 0
        async for part in answer.content.iter_chunked(65_536):
            size += len(part)
            if size > self._bytes_max:
                answer.close()
                raise too_large(self.shown, self._bytes_max)
            parts.append(part)
        return b"".join(parts)


def _reason(error: Exception) -> str:
    """Why a server could not be reached, without the client's own words about it."""
    inner = getattr(error, "os_error", error)
    if isinstance(inner, OSError) and inner.errno is not None and inner.errno > 0:
        return os.strerror(inner.errno)
    return getattr(inner, "strerror", None) or str(error) or type(error).__name__


def _like(key: Key, text: str) -> Key:
    """The key that a text names where others are like this one."""
    return (int(text),) if type(key[0]) is int and re.fullmatch(r"-?[0-9]{1,18}", text) else (text,)


def _key_of(row: Any, name: str) -> Key | None:
    value = row.get(name) if isinstance(row, Mapping) else None
    return plain_key((value,)) if isinstance(value, bool | int | float | str) else None


def at_path(value: Any, path: str) -> Any:
    """What stands at ``a.b.0`` in an answer; None where nothing does."""
    for step in filter(None, path.split(".")):
        if isinstance(value, Mapping):
            value = value.get(step)
        elif isinstance(value, list) and step.isdecimal():
            value = value[int(step)] if int(step) < len(value) else None
        else:
            return None
    return value


def url_template(text: str, keys: Sequence[str] = ()) -> Template:
    """A template whose values cannot break out of their place in an address."""
    return Template(text, keys, lambda value: quote(value, safe=""), "the address")
