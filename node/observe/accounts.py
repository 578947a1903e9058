"""The accounts of a node: what it has sent to each neighbour, in events, messages and bytes, by kind.

The daemon and the simulator note every frame through the same code, so their figures can be laid side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from headwater.node.streams.outbox import by_type, holds_composites
from headwater.protocol.messages.neighbour import Awakening, Batch, Message, Notify, ReverseMark, Want
from headwater.protocol.messages.remote import ElementAnswer, ElementRefusal, ElementRequest, number_of
from headwater.protocol.messages.tallies import TallyAnswer, TallyRequest
from headwater.protocol.wire.messages import Wire

KINDS: Final = (
    "primitive",
    "match",
    "composite",
    "blocker",
    "reference",
    "awakening",
    "answer",
    "aggregate",
    "lookup",
    "watermark",
    "control",
)
"""What crosses links, as traffic is accounted. "primitive": bodies of events sent for a filter or a relay; "match":
bodies of events sent because a partial rule matched; "reference": identity of an event whose body the neighbour has."""

RECEIVED_KINDS: Final = ("events", "awakening", "aggregate", "lookup", "watermark", "control")
"""What a receiver tells apart: why an event was sent is known to its sender alone."""


@dataclass(slots=True)
class Traffic:
    """What crossed one link in one direction, of one kind. A frame of several kinds is one message of its main kind;
    its bytes are split among the kinds by what each really takes."""

    events: int = 0
    messages: int = 0
    bytes: int = 0


class LinkAccounts:
    """Notes frames by neighbour and kind. Bytes are those of the encoded message, times the number of times it was
    sent."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self.sent: dict[str, dict[str, Traffic]] = {}
        """By neighbour, then by kind (``KINDS``)."""
        self.received: dict[str, dict[str, Traffic]] = {}
        """By neighbour, then by kind (``RECEIVED_KINDS``)."""
        self.sent_types: dict[str, dict[tuple[str, str], int]] = {}
        """By neighbour, then by kind and type: events. References are not among them: they name no type."""

    def note(self, neighbour: str, message: Message, size: int, copies: int = 1) -> None:
        """A message was sent."""
        if type(message) is Batch:
            self._note_batch(neighbour, message, size, copies)
        else:
            kind, events = _described(message)
            if kind == "events":
                assert isinstance(message, Notify)
                kind = "composite" if holds_composites(message.rows) else "primitive"
                self._add_types(neighbour, kind, message.rows)
            self._add(neighbour, kind, events, copies, size * copies)

    def note_received(self, neighbour: str, message: Message, size: int) -> None:
        """A message came; whole frames are counted, whatever else is in them."""
        kind, events = _described(message)
        by_kind = self.received.get(neighbour)
        if by_kind is None:
            by_kind = self.received[neighbour] = {}
        traffic = by_kind.get(kind)
        if traffic is None:
            traffic = by_kind[kind] = Traffic()
        traffic.events += events
        traffic.messages += 1
        traffic.bytes += size

    def opened(self, neighbour: str, kind: str, traffic: Traffic) -> None:
        """Called once for every new account of something sent; a watcher that shows accounts elsewhere may keep it."""

    def _note_batch(self, neighbour: str, batch: Batch, size: int, copies: int) -> None:
        runs = batch.runs
        if not runs:
            self._add(neighbour, "watermark", 0, copies, size * copies)
            return
        main = runs[0].kind
        kinds = {main: 0}
        for run in runs:
            kinds[run.kind] = kinds.get(run.kind, 0) + len(run.identities)
            if run.rows is not None:
                self._add_types(neighbour, run.kind, run.rows)
        if len(kinds) == 1 and not batch.watermarks:
            self._add(neighbour, main, kinds[main], copies, size * copies)
            return
        overhead = self._wire.overhead_bytes(batch)
        most = max(kinds, key=kinds.__getitem__)  # what is left when the bytes of all others are taken off is its own
        taken = dict.fromkeys(kinds, 0)
        for run in runs:
            if run.kind != most:
                taken[run.kind] += self._wire.run_bytes(run)
        taken[most] = size - overhead - sum(taken.values())
        for kind, events in kinds.items():
            self._add(neighbour, kind, events, copies if kind == main else 0, taken[kind] * copies)
        self._add(neighbour, "watermark" if batch.watermarks else main, 0, 0, overhead * copies)

    def _add_types(self, neighbour: str, kind: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Rows are grouped by type where they can be of several, so this costs next to nothing for each of them."""
        counts = self.sent_types.get(neighbour)
        if counts is None:
            counts = self.sent_types[neighbour] = {}
        for name, alike in by_type(rows):
            counts[kind, name] = counts.get((kind, name), 0) + len(alike)

    def _add(self, neighbour: str, kind: str, events: int, messages: int, size: int) -> None:
        by_kind = self.sent.get(neighbour)
        if by_kind is None:
            by_kind = self.sent[neighbour] = {}
        traffic = by_kind.get(kind)
        if traffic is None:
            traffic = by_kind[kind] = Traffic()
            self.opened(neighbour, kind, traffic)
        traffic.events += events
        traffic.messages += messages
        traffic.bytes += size


def _described(message: Message) -> tuple[str, int]:
    """The kind of a message as its receiver sees it, and how many events, questions or answers it brings."""
    if type(message) is Batch:
        return ("events", sum(len(run.identities) for run in message.runs)) if message.runs else ("watermark", 0)
    match message:
        case Want() | ReverseMark():
            return "watermark", 0
        case Notify():
            return "events", len(message.rows)
        case Awakening():
            return "awakening", 1
        case TallyRequest():
            return ("awakening" if message.questions else "watermark"), len(message.questions)
        case TallyAnswer():
            return "aggregate", len(message.answers)
        case ElementRequest() | ElementAnswer() | ElementRefusal():
            return "lookup", number_of(message)
        case _:
            return "control", 0
