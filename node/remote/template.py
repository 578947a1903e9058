"""Names and addresses with places for the attributes of a key: ``limits:{org}``, ``http://host/users/{user}``."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from headwater.node.remote.provider import Key
from headwater.protocol.errors import ConfigError
from headwater.protocol.functions import as_text
from headwater.protocol.table_descriptions import MANY
from headwater.protocol.text import suggestion

_PLACE: Final = re.compile(r"\{([^{}]*)\}")


class Template:
    """A text with places. ``keys``: their order in a lookup, by default that of the places."""

    def __init__(
        self, text: str, keys: Sequence[str] = (), safe: Callable[[str], str] = str, what: str = "the name"
    ) -> None:
        places = list(dict.fromkeys(_PLACE.findall(text)))
        self.text = text
        self.many = places == [MANY]
        self.keys = tuple(keys) or tuple(places)
        self._safe = safe
        if not places:
            raise ConfigError(f"{what} has no place for a key; write it in braces, as in {{org}}")
        if self.many and len(self.keys) != 1:
            raise ConfigError(f"{what} asks for many keys at once, which then have one attribute; write keys: [id]")
        if self.many:
            return
        for place in places:
            if place not in self.keys:
                near = suggestion(place, self.keys, "the keys are")
                raise ConfigError(f"{what} has a place for {place!r}, which is not a key; {near}")
        for key in self.keys:
            if key not in places:
                raise ConfigError(f"{what} has no place for the key {key!r}; write {{{key}}} into it, or leave it out")

    def filled(self, key: Key) -> str:
        """The text for one key."""
        values = dict(zip(self.keys, key, strict=True))
        return _PLACE.sub(lambda place: self._safe(as_text(values[place[1]])), self.text)

    def filled_with_many(self, keys: Sequence[Key]) -> str:
        """The text for many keys of one attribute."""
        joined = ",".join(self._safe(as_text(key[0])) for key in keys)
        return _PLACE.sub(lambda _: joined, self.text)
