"""Maps the messages of a source to events; compiled once from the mapping in the network file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from headwater.node.edge.values import TEXT_BYTES_MAX, Convert, Refusal, lenient, shown, strict
from headwater.node.traces.times import time_reader
from headwater.protocol.edge import MqttFeed, When
from headwater.protocol.events import EventType, Value
from headwater.protocol.payload_maps import (
    FALSE,
    NUMBER,
    TRUE,
    UNKNOWN,
    Place,
    field_place,
    place_of,
    topic_names,
    walk,
)

Levels = Sequence[str]
"""What the wildcards of the topic stand for."""


class MessageItem(NamedTuple):
    """A message, or one item of it."""

    payload: Any
    item: Any
    """The payload itself where there are no items."""
    key: Any
    levels: Levels


Get = Callable[[MessageItem], Any]
"""What stands at a place in a message; None: nothing."""


class MappedAttribute(NamedTuple):
    get: Get
    convert: Convert
    place: str
    """The place in words, for what is absent there; empty where it is the field of the attribute's own name."""


class Mapping:
    """The mapping of one source: pure functions of messages."""

    def __init__(self, feed: MqttFeed | None, event_type: EventType) -> None:
        """Without a feed the event is the payload itself, as programs publish it."""
        self.type = event_type
        self.by_name = feed is None or (feed.map is None and feed.payload != "text")
        self.unknown = "refuse" if feed is None else feed.unknown
        self._names = {} if feed is None else topic_names(feed.topic)
        self._items_place = None if feed is None or feed.each is None else place_of(feed.each)
        self._items_text = "" if feed is None or feed.each is None else feed.each
        conditions = [] if feed is None else [_condition(condition, self._get) for condition in feed.when]
        self._of_message = [holds for of_item, holds in conditions if not of_item]
        self._of_items = [holds for of_item, holds in conditions if of_item]
        self._places: list[Place] = [place_of(condition.source) for condition in feed.when] if feed is not None else []
        if self._items_place is not None:
            self._places.append(self._items_place)
        self.attributes = [self._attribute(feed, name) for name in event_type.attributes]
        self.device = self._field(feed.device if feed is not None else None)
        self.counter = self._field(feed.counter if feed is not None else None)
        self.time = self._field(feed.time if feed is not None else None)
        self.time_named = "" if feed is None or feed.time is None else f"the time ({feed.time})"
        self.time_of = time_reader(feed.time_unit if feed is not None else None, self.time_named)
        self.keeps_lists = self._items_place == Place("payload") or any(
            place.root == "payload" and place.steps and isinstance(place.steps[0], int) for place in self._places
        )
        """Whether a payload that is a list is one message, and not several."""
        self._payload_fields = self._fields_of("payload")
        self._item_fields = self._fields_of("item")

    # --- what the feed says, compiled ---------------------------------------------------------------------------------

    def _attribute(self, feed: MqttFeed | None, name: str) -> MappedAttribute:
        if feed is None:
            return MappedAttribute(self._own(name), strict(self.type, name), "")
        entry = next((mapped for mapped in feed.map or () if mapped.attribute == name), None)
        if entry is not None and entry.constant is not None:
            value = lenient(self.type, name)(entry.constant)
            return MappedAttribute(lambda message: value, lambda same: same, "")
        if entry is not None and entry.source is not None:
            place = place_of(entry.source)
            self._places.append(place)
            return MappedAttribute(self._get(place), lenient(self.type, name, entry), entry.source)
        if name in self._names:
            return MappedAttribute(self._get(Place("topic", (name,))), lenient(self.type, name), f"topic.{name}")
        if name == UNKNOWN and self.unknown == "keep":
            return MappedAttribute(self._rest, strict(self.type, name), "")
        if not self.by_name:
            return MappedAttribute(lambda message: None, strict(self.type, name), "")
        return MappedAttribute(self._own(name), lenient(self.type, name), "")

    def _own(self, name: str) -> Get:
        """The field of this name of the event, which is a map (`PayloadReader` has checked that)."""
        self._places.append(Place("item" if self._items_place is not None else "payload", (name,)))
        return lambda message: message.item.get(name)

    def _field(self, text: str | None) -> Get | None:
        if text is None:
            return None
        if re.fullmatch(r"\+[0-9]+", text):
            return _level(int(text[1:]) - 1)
        place = field_place(text, in_item=self._items_place is not None)
        self._places.append(place)
        return self._get(place)

    def _get(self, place: Place) -> Get:
        steps = place.steps
        match place.root:
            case "topic":
                return _level(self._names[str(steps[0])])
            case "key":
                return lambda message: message.key
            case "item":
                return lambda message: walk(message.item, steps)
            case _ if len(steps) == 1 and isinstance(steps[0], str):
                return _field_of_payload(steps[0])
            case _:
                return lambda message: walk(message.payload, steps)

    def _fields_of(self, root: str) -> frozenset[Any] | None:
        """The fields that something asks for; None where all are asked for at once."""
        firsts = [place.steps[0] if place.steps else None for place in self._places if place.root == root]
        own = (
            {*self.type.attributes}
            if self.by_name and root == ("item" if self._items_place is not None else "payload")
            else ()
        )
        return None if None in firsts else frozenset((*firsts, *own))

    # --- messages -----------------------------------------------------------------------------------------------------

    def counts(self, part: Any, levels: Levels) -> bool:
        """Whether a message is one that the source is for."""
        if not self._of_message:
            return True
        message = MessageItem(part, part, None, levels)
        return all(holds(message) for holds in self._of_message)

    def items(self, part: Any, levels: Levels) -> Iterator[MessageItem]:
        """The events of a message. Items that the source is not for are passed over."""
        if self._items_place is None:
            yield MessageItem(part, part, None, levels)
            return
        events = walk(part, self._items_place.steps)
        if isinstance(events, list):
            pairs: Iterator[tuple[Any, Any]] = iter(enumerate(events))
        elif isinstance(events, dict):
            pairs = iter(events.items())
        else:
            raise Refusal(f"{self._items_text} is {shown(events)}, and must be a list or a map of events")
        for key, item in pairs:
            message = MessageItem(part, item, key, levels)
            if all(holds(message) for holds in self._of_items):
                yield message

    def unknown_beside_items(self, part: Any) -> list[Any]:
        """The fields of a message of several events that nothing asks for."""
        return [] if self._items_place is None else _unasked(part, self._payload_fields)

    def unknown_fields(self, message: MessageItem) -> list[Any]:
        """The fields of an event that nothing asks for."""
        return _unasked(message.item, self._payload_fields if self._items_place is None else self._item_fields)

    def known_names(self) -> list[str]:
        return sorted({str(name) for fields in (self._payload_fields, self._item_fields) for name in fields or ()})

    def _rest(self, message: MessageItem) -> Value:
        fields = message.item if self._items_place is not None else message.payload
        wanted = self._item_fields if self._items_place is not None else self._payload_fields
        unasked = _unasked(fields, wanted)
        if not unasked:
            return None
        try:
            kept = json.dumps({name: fields[name] for name in unasked}, default=repr)
        except (TypeError, ValueError, RecursionError):  # nested too deeply, or with names that are no texts
            raise Refusal("the fields that nothing asks for cannot be kept as JSON") from None
        if len(kept) > TEXT_BYTES_MAX:
            raise Refusal(
                f"the fields that nothing asks for have {len(kept)} characters; {TEXT_BYTES_MAX} are the most"
            )
        return kept


def _unasked(fields: Any, wanted: frozenset[Any] | None) -> list[Any]:
    if wanted is None or fields.__class__ is not dict or fields.keys() <= wanted:
        return []
    return [name for name in fields if name not in wanted]


def _field_of_payload(name: str) -> Get:
    """As `walk`, for the way that most places have."""

    def get(message: MessageItem) -> Any:
        fields = message.payload
        return fields.get(name) if fields.__class__ is dict else None

    return get


def _level(position: int) -> Get:
    return lambda message: message.levels[position] if position < len(message.levels) else None


def _condition(condition: When, get: Callable[[Place], Get]) -> tuple[bool, Callable[[MessageItem], bool]]:
    """Whether it is about items, and the test."""
    place = place_of(condition.source)
    value_of, wanted = get(place), condition.equals
    if wanted is None:
        return place.root in ("item", "key"), lambda message: value_of(message) is not None
    return place.root in ("item", "key"), lambda message: says(value_of(message), wanted)


def says(value: Any, text: str) -> bool:
    """Whether a value is what a text says: the text itself, a number, or a boolean."""
    if value.__class__ is str:
        return bool(value == text)
    if value.__class__ is bool:
        return text.lower() in (TRUE if value else FALSE)
    if value.__class__ in (int, float) and NUMBER.fullmatch(text):
        return bool(value == (int(text) if text.lstrip("+-").isdecimal() else float(text)))
    return False


FIELDS_LOGGED_MAX: Final = 100
"""Fields that nothing asks for and that the log names, for each source; the others are only counted."""
