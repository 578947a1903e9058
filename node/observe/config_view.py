"""The configuration of a node without secrets, as any client that can reach the node may see it."""

from __future__ import annotations

import dataclasses
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from headwater.protocol.messages.control import NodeConfig

HIDDEN: Final = "(hidden)"
_SECRET_WORDS: Final = ("password", "secret", "token", "credential")


def config_view(config: NodeConfig) -> dict[str, Any]:
    """Plain data. Passwords and tokens, should there be any, and the private parts of addresses are hidden."""
    shown: dict[str, Any] = _shown(config)
    return shown


def _shown(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {name: HIDDEN if _is_secret(name, kept) else _shown(kept) for name, kept in fields.items()}
    if isinstance(value, list | tuple):
        return [_shown(element) for element in value]
    if isinstance(value, str) and "://" in value:
        return _without_secrets(value)
    if value is None or isinstance(value, str | bool | int | float):
        return value
    return str(value)


def _is_secret(name: str, value: Any) -> bool:
    # The name of a file that holds a secret is none.
    return value is not None and not name.endswith("_file") and any(word in name for word in _SECRET_WORDS)


def _without_secrets(url: str) -> str:
    """The address without user, password and query, in which web hooks like to carry tokens."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return HIDDEN
    netloc = parts.netloc.rpartition("@")[2]
    query = HIDDEN if parts.query else ""
    return urlunsplit((parts.scheme, netloc, parts.path, query, ""))
