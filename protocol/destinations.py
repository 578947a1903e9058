"""Destinations of deliveries as users write them: in network files, in requests, and on the command line."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final
from urllib.parse import urlsplit

from headwater.protocol.edge import ClientTo, Destination, FileTo, MqttTo

PLAIN: Final = ("stdout", "client")
"""Ways that may be said in one word."""
WAYS: Final = ("file", "mqtt", "webhook", "client")
"""Ways that are said with a name, as in ``{file: fires.jsonl}``."""
QOS: Final = (0, 1)


def why_no_address(url: str) -> str | None:
    """Why deliveries cannot be posted there; None: they can."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    return None if usable else f"{url!r} is not a web address"


def why_no_topic(topic: str) -> tuple[str, str] | None:
    """Why deliveries cannot be published there, and what to write; None: they can."""
    bare = re.sub(r"\{\w+\}", "", topic)
    if "+" in bare or "#" in bare:
        return f"{topic!r} has a wildcard", "a sink publishes to one topic; write {type} or {attribute}"
    if "{" in bare or "}" in bare:
        return f"{topic!r} has a brace too many", "write {type} or {attribute}, nothing else in braces"
    return None


def placeholders(destination: Destination | None) -> list[str]:
    """The names in braces that are filled in for each delivery."""
    return re.findall(r"\{(\w+)\}", destination.topic) if isinstance(destination, MqttTo) else []


def named(destination: Destination, number: int) -> Destination:
    """With the name that is left out: ``sink-N``, after the number of the sink."""
    match destination:
        case FileTo(path=""):
            return replace(destination, path=f"sink-{number}.jsonl")
        case ClientTo(name=""):
            return replace(destination, name=f"sink-{number}")
        case _:
            return destination
