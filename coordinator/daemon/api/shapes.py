"""The shapes of what the API takes and gives, as JSON Schemas."""

from __future__ import annotations

from typing import Final

from headwater.coordinator.daemon.api.destinations import DESTINATION
from headwater.coordinator.daemon.api.schema import (
    ANYTHING,
    BOOLEAN,
    INTEGER,
    NUMBER,
    STRING,
    Schema,
    array,
    described,
    mapping,
    nullable,
    record,
    schema_of,
)
from headwater.protocol.edge import Feed

TIME: Final = described(INTEGER, "microseconds since 1970")
EVENT_TIME: Final = described(nullable(INTEGER), "event time in microseconds; null: from the beginning")
UNTIL: Final = described(nullable(INTEGER), "event time in microseconds until which it holds; null: it has not ended")
FEED: Final = schema_of(Feed)

ERROR: Final = record(
    {"error": described(STRING, "what is wrong and what to do, in a sentence")},
    {"missing": described(array(STRING), "of a network that is not ready: what it waits for, in sentences")},
)
ACCEPTED: Final = record({"accepted": BOOLEAN})
HEALTH: Final = record({"status": STRING, "version": STRING, "network": STRING})
READY: Final = record({"status": STRING})
OPENAPI: Final[Schema] = {"type": "object"}

NODE: Final = record(
    {
        "name": STRING,
        "state": {"enum": ["up", "down", "unregistered", "lost"]},
        "address": nullable(STRING),
        "http": nullable(STRING),
        "life": nullable(STRING),
        "version": nullable(STRING),
        "registered_us": nullable(TIME),
        "last_heard_us": described(nullable(INTEGER), "when this coordinator process last heard of it"),
        "watermark_lag_s": nullable(NUMBER),
        "configuration": described(nullable(INTEGER), "version of the configuration it was last sent"),
        "unacknowledged": described(INTEGER, "messages sent to it that it has not confirmed"),
        "neighbours": array(STRING),
        "statistics": described({"type": "object"}, "what the node last told of itself"),
    }
)
NODES: Final = record({"nodes": array(NODE)})
TABLES: Final = described({"type": "object"}, "everything the node knows, as it tells it itself")

COUNTS: Final = mapping(INTEGER)
LINK: Final = record(
    {
        "between": array(STRING),
        "state": {"enum": ["up", "down", "unknown", "lost"]},
        "delay_us": INTEGER,
        "bandwidth_bps": nullable(INTEGER),
        "traffic": described(mapping(mapping(COUNTS)), "by sender, then by kind: events, messages and bytes"),
    }
)
LINKS: Final = record({"links": array(LINK)})

RULE: Final = record(
    {
        "name": STRING,
        "version": INTEGER,
        "emits": STRING,
        "reads": array(STRING),
        "text": STRING,
        "language": {"enum": ["tesla", "sase"]},
        "since_us": EVENT_TIME,
        "until_us": UNTIL,
    }
)
RULES: Final = record({"rules": array(RULE)})

SUBSCRIPTION: Final = record(
    {
        "number": INTEGER,
        "node": STRING,
        "subscribe": STRING,
        "to": DESTINATION,
        "since_us": EVENT_TIME,
        "until_us": UNTIL,
    }
)
SUBSCRIPTIONS: Final = record({"subscriptions": array(SUBSCRIPTION)})

SOURCE: Final = record(
    {
        "number": INTEGER,
        "node": STRING,
        "type": STRING,
        "lateness_us": INTEGER,
        "from": FEED,
        "since_us": EVENT_TIME,
        "until_us": UNTIL,
    }
)
SOURCES: Final = record({"sources": array(SOURCE)})

SELECTIVITY: Final = record(
    {
        "kind": STRING,
        "predicate": STRING,
        "seen": INTEGER,
        "passed": INTEGER,
        "selectivity": described(nullable(NUMBER), "share of what it has seen; null: nothing yet"),
    }
)
STATISTICS: Final = record(
    {
        "rates": described(mapping(mapping(NUMBER)), "events per second, by type and node"),
        "selectivities": array(SELECTIVITY),
        "joined": described(
            array(record({"rule": STRING, "roles": array(STRING), "per_s": NUMBER})),
            "matches per second of roles that are put together somewhere",
        ),
        "traffic": described(mapping(mapping(mapping(COUNTS))), "by sender, receiver and kind"),
        "nodes": described(mapping(ANYTHING), "what each node last told"),
    }
)

TREE: Final = record(
    {
        "root": STRING,
        "epoch": INTEGER,
        "stands": BOOLEAN,
        "parents": described(mapping(nullable(STRING)), "the parent that each node should have"),
        "cut_off": array(STRING),
    }
)
PAST: Final = record(
    {
        "change": INTEGER,
        "what": STRING,
        "asked_us": TIME,
        "holds_from_us": EVENT_TIME,
        "refused": nullable(STRING),
    }
)
WAITING: Final = record({"change": INTEGER, "what": STRING, "asked_us": TIME, "state": STRING})
PLANS: Final = record(
    {
        "plan": INTEGER,
        "begun": BOOLEAN,
        "strategy": STRING,
        "horizon_us": INTEGER,
        "trees": array(TREE),
        "fall_backs": described(
            array(
                record(
                    {
                        "stage": STRING,
                        "nodes": array(STRING),
                        "instead": STRING,
                        "has_fallen_back": BOOLEAN,
                    }
                )
            ),
            "stages whose nodes watch whether they pay, and those that did not",
        ),
        "planner_failed": described(
            nullable(STRING), "why the plan that holds is not what the planner has decided, and what is done instead"
        ),
        "draining": array(record({"root": STRING, "epoch": INTEGER})),
        "changes": described(array(PAST), "what was asked for and decided, the latest last"),
        "waiting": array(WAITING),
    }
)
NETWORK: Final = record(
    {
        "id": STRING,
        "strategy": STRING,
        "durability": STRING,
        "nodes": array(STRING),
        "links": array(
            record({"between": array(STRING), "delay_us": INTEGER, "bandwidth_bps": nullable(INTEGER)}),
        ),
        "events": described(mapping(mapping(STRING)), "by type: its attributes and their kinds"),
    }
)

CHANGED: Final = record(
    {"change": INTEGER, "what": STRING, "holds_from_us": EVENT_TIME},
    {"rules": array(STRING), "subscription": INTEGER, "source": INTEGER, "warnings": array(STRING)},
)

RULE_TEXT: Final = described(
    STRING, "one or more rules", "define Fire() from Smoke() and last Temp() within 5 min from Smoke"
)
LANGUAGE: Final = described(
    {"enum": ["tesla", "sase"]},
    "the language of the text; unless told, as its name ends (.tesla, .sase), or else tesla if it says 'define'",
)
TEXT_NAME: Final = described(
    STRING, "stands in front of mistakes and names rules without a name, as that of a file does"
)
RULE_FILE: Final = record({"text": RULE_TEXT}, {"language": LANGUAGE, "name": TEXT_NAME})
POST_RULES: Final = record(
    {},
    {
        **RULE_FILE["properties"],
        "files": described({**array(RULE_FILE), "minItems": 1}, "several texts in place of one, deployed together"),
    },
)
PUT_RULE: Final = RULE_FILE
POST_SUBSCRIPTIONS: Final = record(
    {"node": STRING, "subscribe": described(STRING, "a type and conditions", "Fire(area = 'A1')")}, {"to": DESTINATION}
)
POST_SOURCES: Final = record(
    {"node": STRING, "type": STRING, "from": FEED},
    {"lateness_us": described(INTEGER, "how late events may come; 0 unless told")},
)
EMPTY: Final = record({})

QUERY: Final[dict[str, Schema]] = {
    "replace": {
        "schema": {**BOOLEAN, "default": False},
        "description": "true: rules of the same names that are deployed end, and these take their places",
    },
    "language": {"schema": LANGUAGE, "description": "of a text that is sent as it is"},
    "name": {"schema": TEXT_NAME, "description": "of a text that is sent as it is"},
}
"""Parameters of requests, by name."""
