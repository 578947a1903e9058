"""What the descriptions of remote tables say that the coordinator and the nodes must know, too."""

from __future__ import annotations

import re
from typing import Any, Final

_PLACE: Final = re.compile(r"\{([^{}]*)\}")
MANY: Final = "keys"
"""The place of many keys at once, in an address or a name."""


def key_length(description: str) -> int | None:
    """How many values a key has: as many as the attributes that the description (YAML) names as its key, or the places
    in its address or name. None: only the provider knows."""
    import yaml  # only where there is a table

    entries: Any = yaml.safe_load(description)
    if not isinstance(entries, dict):
        return None
    keys = entries.get("keys")
    if isinstance(keys, list) and keys:
        return len(keys)
    template = entries.get("http") or entries.get("key")
    places = dict.fromkeys(_PLACE.findall(str(template or "")))
    return len(places) or None
