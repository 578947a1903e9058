"""Chooses the adapter for each kind of feed and destination."""

from __future__ import annotations

from typing import assert_never

from headwater.node.edge.interfaces import Edge, SinkAdapter, SourceAdapter
from headwater.protocol.edge import (
    ClientFeed,
    ClientTo,
    Destination,
    Feed,
    FileTo,
    MqttFeed,
    MqttTo,
    RateFeed,
    ReplayFeed,
    StdoutTo,
    TraceFeed,
    WebhookTo,
)
from headwater.protocol.events import EventType


def make_source(number: int, feed: Feed, event_type: EventType, edge: Edge) -> SourceAdapter | None:
    """The adapter of a source, or None where programs or replayers bring the events: the daemon serves them itself.

    Make the adapters of all sources before one of them runs: traces of a node take turns.
    """
    match feed:
        case TraceFeed():
            from headwater.node.edge.trace_source import TraceSourceAdapter

            return TraceSourceAdapter(number, feed, event_type, edge)
        case RateFeed():
            from headwater.node.edge.rate_source import RateSourceAdapter

            return RateSourceAdapter(number, feed, edge)
        case MqttFeed():
            from headwater.node.edge.mqtt_source import MqttSourceAdapter

            return MqttSourceAdapter(number, feed, event_type, edge)
        case ClientFeed() | ReplayFeed():
            return None
        case _:
            assert_never(feed)


def make_sink(number: int, destination: Destination, edge: Edge) -> SinkAdapter | None:
    """The adapter of a sink, or None where programs fetch the deliveries: the daemon serves them itself."""
    match destination:
        case StdoutTo():
            from headwater.node.edge.file_sink import StdoutSinkAdapter

            return StdoutSinkAdapter(number)
        case FileTo():
            from headwater.node.edge.file_sink import FileSinkAdapter

            return FileSinkAdapter(number, destination, edge)
        case MqttTo():
            from headwater.node.edge.mqtt_sink import MqttSinkAdapter

            return MqttSinkAdapter(number, destination, edge)
        case WebhookTo():
            from headwater.node.edge.webhook_sink import WebhookSinkAdapter

            return WebhookSinkAdapter(number, destination, edge)
        case ClientTo():
            return None
        case _:
            assert_never(destination)
