"""A provider of a table in Redis: strings, fields of hashes, or sets, by the name that a key gives."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Literal

from headwater.node.remote.guard import USUAL
from headwater.node.remote.provider import (
    BadAnswer,
    Elements,
    Key,
    Provider,
    ProviderError,
    Refused,
    Unreachable,
    found_of,
    sendable,
    too_large,
)
from headwater.node.remote.secrets import Secret, driver_missing, without
from headwater.node.remote.template import Template
from headwater.node.traces.types import BOOLEANS
from headwater.protocol.remote import RemoteValue, Versions

if TYPE_CHECKING:
    from redis.asyncio import Redis

Kind = Literal["string", "int", "float", "bool", "json"]
KINDS: Final[Mapping[str, Callable[[str], Any]]] = {
    "string": str,
    "int": int,
    "float": float,
    "bool": lambda text: BOOLEANS[text],
    "json": json.loads,
}
"""Redis holds texts; what they mean must be said."""


class RedisProvider(Provider):
    """``name`` is what a key is stored under, ``limits:{org}``. With ``field`` it is a hash, with ``members`` a set."""

    batch_max = 500

    def __init__(
        self,
        url: str,
        name: Template,
        *,
        kind: Kind = "string",
        field: str | None = None,
        members: bool = False,
        password: Secret | None = None,
        request_s: float = USUAL.request_s,
        answer_bytes_max: int = USUAL.answer_bytes_max,
    ) -> None:
        self._url = url if "://" in url else f"redis://{url}"
        self.shown = f"Redis {self._url.partition('://')[2].rpartition('@')[2]}"
        self.key_length = len(name.keys)
        self._name = name
        self._kind = kind
        self._field = field
        self._members = members
        self._password = password or Secret()
        self._request_s = request_s
        self._bytes_max = answer_bytes_max
        self._client: Redis | None = None
        self._used: str | None = None
        """The password with which the client connects."""

    async def check(self) -> None:
        await self._asked(lambda client: client.ping())

    async def fetch(self, keys: Sequence[Key]) -> Elements:
        keys = sendable(keys)
        if not keys:
            return {}
        names = [self._name.filled(key) for key in keys]
        answers = await self._asked(lambda client: self._answers(client, names))
        if sum(_length(each) for each in answers) > self._bytes_max:
            raise too_large(self.shown, self._bytes_max)
        pairs = zip(keys, names, answers, strict=True)
        return {key: Versions.always(self._value(raw, name)) for key, name, raw in pairs if raw is not None}

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _answers(self, client: Redis, names: list[str]) -> list[Any]:
        """For each name the bytes it stands for, those of all members of a set, or None."""
        if self._field is None and not self._members:
            return list(await client.mget(names))
        pipe = client.pipeline(transaction=False)
        for name in names:
            pipe.smembers(name) if self._members else pipe.hget(name, self._field or "")
        answers = await pipe.execute()
        # Redis has no empty sets: one without members is a key that is not there.
        return [sorted(each) or None for each in answers] if self._members else answers

    def _value(self, raw: Any, name: str) -> RemoteValue:
        if isinstance(raw, list):
            return tuple(self._scalar(each, name) for each in raw)  # type: ignore[misc]
        return self._scalar(raw, name)

    def _scalar(self, raw: bytes, name: str) -> RemoteValue:
        try:
            return found_of(KINDS[self._kind](raw.decode("utf-8")), self.shown)
        except (ValueError, KeyError, RecursionError):
            raise BadAnswer(f"{self.shown} holds {raw[:60]!r} under {name!r:.80}, which is no {self._kind}") from None

    async def _asked(self, question: Callable[[Redis], Any]) -> Any:
        try:
            import redis.exceptions as wrong
        except ImportError:
            raise driver_missing("redis", "Redis") from None
        password = self._password.read()
        if password != self._used:
            await self.close()
        try:
            return await question(self._connected(password))
        except ValueError:  # the address; its text might hold a secret
            raise Refused(
                f"{self.shown} is not an address of a Redis server; write host:port or redis://host:port/0"
            ) from None
        except (wrong.RedisError, OSError) as error:
            said = self._in_words(error, password)
            if isinstance(said, Unreachable) and self._client is not None:
                # The others are of the same server as it was: each would fail once more when it is back.
                with suppress(wrong.RedisError, OSError):
                    await self._client.connection_pool.disconnect(inuse_connections=False)
            raise said from None

    def _connected(self, password: str | None) -> Redis:
        if self._client is None:
            self._used = password
            from redis.asyncio import Redis
            from redis.asyncio.retry import Retry
            from redis.backoff import NoBackoff

            self._client = Redis.from_url(
                self._url,
                password=password,
                socket_connect_timeout=self._request_s,
                client_name="headwater",
                retry=Retry(NoBackoff(), 0),  # the guard tries again, and counts
            )
        return self._client

    def _in_words(self, error: Exception, password: str | None) -> ProviderError:
        import redis.exceptions as wrong

        text = without(str(error) or type(error).__name__, password)
        if isinstance(error, wrong.AuthenticationError | wrong.NoPermissionError) or "NOAUTH" in text.upper():
            return Refused(f"{self.shown} does not accept these credentials: {text}")
        if isinstance(error, wrong.ResponseError) and not isinstance(error, wrong.BusyLoadingError):
            return Refused(f"{self.shown}: {text}")
        return Unreachable(f"{self.shown} does not answer: {text}")


def _length(answer: Any) -> int:
    return sum(map(len, answer)) if isinstance(answer, list) else len(answer or b"")
