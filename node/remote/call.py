"""A provider that is a Python function, called with the values of a key."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headwater.node.remote.provider import Elements, Key, Provider, ProviderError, Unreachable, found_of, plain_key
from headwater.node.remote.threads import Threads
from headwater.protocol.remote import Versions


class CallProvider(Provider):
    """``call(*key)`` gives a value, a list, ``Versions``, or None for a key that it does not have; it may be async.

    A ``ProviderError`` that it raises says for itself whether asking again helps; an OSError (a TimeoutError is one)
    is taken for a server behind it that is away. Anything else is a mistake in the function, and ends the run.
    """

    versioned = None

    def __init__(self, call: Callable[..., Any], name: str = "") -> None:
        self._call = call
        self._threads = Threads()
        self.shown = f"the function {name or getattr(call, '__qualname__', repr(call))}"
        self.key_length = _key_length(call)

    async def fetch(self, keys: Sequence[Key]) -> Elements:
        (key,) = keys
        found = await self._called(key)
        if found is None:
            return {}
        if isinstance(found, Versions):
            return {key: found}
        if self.whole and isinstance(found, Mapping):
            members = {plain_key(each if isinstance(each, tuple) else (each,)): found[each] for each in found}
            return {
                each: value if isinstance(value, Versions) else Versions.always(found_of(value, self.shown))
                for each, value in members.items()
                if value is not None
            }
        return {key: Versions.always(found_of(found, self.shown))}

    async def _called(self, key: Key) -> Any:
        try:
            if inspect.iscoroutinefunction(self._call):
                return await self._call(*key)
            found = await self._threads.run(self._call, *key)
            return await found if inspect.isawaitable(found) else found
        except ProviderError:
            raise
        except OSError as error:  # a TimeoutError is one
            raise Unreachable(f"{self.shown} failed: {type(error).__name__}: {error}") from error
        except Exception as error:
            raise FunctionFailed(f"{self.shown} failed for {key!r:.80}: {type(error).__name__}: {error}") from error


class FunctionFailed(ProviderError):
    """The function has a mistake: its author must act."""


def _key_length(call: Callable[..., Any]) -> int | None:
    """How many values it takes, where that is one number."""
    try:
        parameters = inspect.signature(call).parameters.values()
    except (TypeError, ValueError):
        return None
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if any(each.kind not in positional or each.default is not each.empty for each in parameters):
        return None
    return len(parameters)
