"""The accounts of a run: what crossed which link, in events, messages and bytes, by kind."""

from __future__ import annotations

from deploy.simulation.outcome import Outcome, Traffic
from node.outbox import is_composite
from protocol.messages import Awakening, Batch, Message, Notify, ReverseMark, Want
from protocol.tally_messages import TallyAnswer, TallyRequest
from protocol.wire import Wire

MARKS: frozenset[type[Message]] = frozenset((Want, ReverseMark))


class Accounts:
    """Notes every frame. Bytes are those of the encoded frame, times the number of times it was sent."""

    def __init__(self, outcome: Outcome, wire: Wire) -> None:
        self._traffic = outcome.traffic
        self._wire = wire

    def note(self, sender: str, receiver: str, message: Message, size: int, copies: int) -> None:
        if type(message) is Batch:
            self._note_batch(sender, receiver, message, size, copies)
            return
        kind, events = "control", 0
        if type(message) in MARKS:
            kind = "watermark"
        elif isinstance(message, Awakening):
            kind, events = "awakening", 1
        elif isinstance(message, TallyRequest):
            kind, events = "awakening" if message.questions else "watermark", len(message.questions)
        elif isinstance(message, TallyAnswer):
            kind, events = "aggregate", len(message.answers)
        elif isinstance(message, Notify):
            kind, events = "composite" if is_composite(message.rows[0]) else "primitive", len(message.rows)
        self._add(sender, receiver, kind, events, copies, size * copies)

    def _note_batch(self, sender: str, receiver: str, batch: Batch, size: int, copies: int) -> None:
        items = batch.items
        if not items:
            self._add(sender, receiver, "watermark", 0, copies, size * copies)
            return
        main = items[0].kind
        if not batch.marks and (len(items) == 1 or all(item.kind == main for item in items)):
            self._add(sender, receiver, main, len(items), copies, size * copies)
            return
        rest = size
        for item in batch.items:
            taken = self._wire.item_bytes(item)
            rest -= taken
            self._add(sender, receiver, item.kind, 1, 0, taken * copies)
        self._add(sender, receiver, "watermark" if batch.marks else main, 0, 0, rest * copies)
        self._add(sender, receiver, main, 0, copies, 0)

    def _add(self, sender: str, receiver: str, kind: str, events: int, messages: int, size: int) -> None:
        found = self._traffic.get((sender, receiver, kind))
        if found is None:
            found = self._traffic[sender, receiver, kind] = Traffic()
        found.events += events
        found.messages += messages
        found.bytes += size
