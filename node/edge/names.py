"""What the other ends of sources and sinks are called in metrics: where they are, without anything that is secret."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

from headwater.protocol.edge import (
    ClientTo,
    Destination,
    Feed,
    FileTo,
    MqttFeed,
    MqttTo,
    ReplayFeed,
    StdoutTo,
    WebhookTo,
    feed_name,
)


def source_end(feed: Feed) -> str:
    match feed:
        case MqttFeed():
            return f"mqtt {feed.broker.host}:{feed.broker.port} {feed.topic}"
        case ReplayFeed():
            return "client"
        case _:
            return feed_name(feed)


def sink_end(destination: Destination) -> str:
    match destination:
        case MqttTo(topic, broker):
            return f"mqtt {broker.host}:{broker.port} {topic}"
        case WebhookTo(url):
            return f"webhook {shown(url)}"
        case FileTo(path):
            return f"file {path}"
        case ClientTo(name):
            return f"client {name}"
        case StdoutTo():
            return "stdout"


def shown(url: str) -> str:
    """Where it is, without names, passwords and what follows a question mark."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
