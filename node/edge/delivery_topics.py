"""The topic of a delivery: a text with names in braces."""

from __future__ import annotations

import re
from typing import Any, Final

_BRACES: Final = re.compile(r"\{(\w+)\}")
_UNSAFE: Final = re.compile(r"[+#/\0]")


def filled(topic: str, delivery: dict[str, Any]) -> str:
    """``fires/{area}`` for a delivery: each name replaced by the attribute, ``{type}`` by the type.

    What would make another topic of it (``/``, ``+``, ``#``) and a value that is absent become ``_``.
    """

    def value(placeholder: re.Match[str]) -> str:
        name = placeholder[1]
        attributes = delivery.get("attributes", {})
        attribute = delivery.get("type") if name == "type" and name not in attributes else attributes.get(name)
        return _UNSAFE.sub("_", str(attribute)) or "_" if attribute is not None else "_"

    return _BRACES.sub(value, topic)
