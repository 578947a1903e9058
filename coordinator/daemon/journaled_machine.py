"""The machine of the coordinator with the state of its links: takes journaled inputs, saves and restores both."""

from __future__ import annotations

import logging
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any, assert_never

from headwater.coordinator.daemon import snapshot
from headwater.coordinator.daemon.inputs import (
    Answered,
    Asked,
    Effect,
    Heard,
    Input,
    Note,
    Outdated,
    PeerMet,
    PeerReset,
    Reborn,
    Started,
    Tell,
    Tick,
)
from headwater.coordinator.daemon.machine import Machine
from headwater.coordinator.daemon.snapshot import StateError
from headwater.protocol.links import PeerState
from headwater.protocol.links.numbering import digest_with
from headwater.protocol.messages import control

log = logging.getLogger("headwater.coordinator")


@dataclass(slots=True)
class LinkState:
    """What both ends of the link to a node rely on (see ``protocol.links.PeerState``)."""

    life: str | None = None
    """Of the node, as far as it has said hello."""
    era: str = ""
    in_seq: int = 0
    in_digest: int = 0
    acknowledged: int = 0
    """The number of the last payload that the node has confirmed."""
    out_digest: int = 0
    """The digest of everything it has confirmed."""
    unacknowledged: deque[bytes] = field(default_factory=deque)
    """The payloads after it."""

    @property
    def out_seq(self) -> int:
        return self.acknowledged + len(self.unacknowledged)

    def received(self, last_seq: int, payloads: tuple[bytes, ...]) -> None:
        self.in_seq = last_seq
        for payload in payloads:
            self.in_digest = digest_with(payload, self.in_digest)

    def confirmed(self, seq: int) -> None:
        """Not journaled: after a restart the node says again what it has."""
        while self.acknowledged < seq and self.unacknowledged:
            self.out_digest = digest_with(self.unacknowledged.popleft(), self.out_digest)
            self.acknowledged += 1

    def peer_state(self) -> PeerState:
        return PeerState(
            self.life,
            self.era,
            self.acknowledged,
            self.out_digest,
            tuple(self.unacknowledged),
            self.in_seq,
            self.in_digest,
        )


@dataclass(slots=True)
class Outputs:
    """What must be done once the input that led to it is durable."""

    sends: dict[str, list[bytes]] = field(default_factory=dict)
    answers: list[Answered] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    outdated: bool = False
    """Whether nodes remember more than the machine does."""


class JournaledMachine:
    """``apply`` every input in the order of the journal: the same inputs give the same state and the same outputs."""

    def __init__(self, machine: Machine, links: dict[str, LinkState] | None = None) -> None:
        self.machine = machine
        self.links = links if links is not None else {node: LinkState() for node in machine.setup.network.nodes}
        self.counts: Counter[str] = Counter()
        self._base = snapshot.save(machine)
        self._since: list[tuple[int, Input]] = []
        """What the machine has handled since ``_base``; a snapshot empties it, so the journal's bound is its bound."""

    # --------------------------------------------------------------------------------------------------------- inputs

    @staticmethod
    def record(received: Input, now_us: int) -> bytes:
        """An input as the journal keeps it."""
        return snapshot.input_format().packed((now_us, received))

    def replay(self, record: bytes) -> None:
        """An input of an earlier run: its outputs have left or will leave over the links again."""
        match snapshot.input_format().read(record):
            case (int(now_us), received) if isinstance(received, Input):
                self.apply(received, now_us)
            case _:
                raise StateError("a record of the journal is not an input of a coordinator")

    def apply(self, received: Input, now_us: int) -> Outputs:
        """Take one input; what follows from it."""
        self._note_link(received)
        out = Outputs()
        try:
            effects = self.machine.handle(received, now_us)
        except Exception:
            # A bug. It must neither stop the coordinator nor leave it half changed, and will happen again on replay.
            log.exception("an input could not be handled and is left out")
            self.counts["internal_errors"] += 1
            self._step_back()
            if (request := getattr(received, "request", None)) is not None:
                out.answers.append(Answered(request, 500, {"error": "the coordinator failed on this request (a bug)"}))
            return out
        self._since.append((now_us, received))
        for effect in effects:
            self._put_out(effect, out)
        return out

    def _note_link(self, received: Input) -> None:
        """What an input says of the link that it came over."""
        match received:
            case Heard(peer, last_seq, payloads):
                self.links[peer].received(last_seq, payloads)
            case PeerMet(peer, life, era):
                self.links[peer].life, self.links[peer].era = life, era
            case PeerReset(peer, life):
                self.links[peer] = LinkState(life)
            case Reborn():
                self._begin_anew()
            case Started() | Asked() | Tick():
                pass  # they come over no link
            case _:
                assert_never(received)

    def _put_out(self, effect: Effect, out: Outputs) -> None:
        match effect:
            case Tell(node, message):
                payload = control.encode(message)
                self.links[node].unacknowledged.append(payload)
                out.sends.setdefault(node, []).append(payload)
            case Answered():
                out.answers.append(effect)
            case Note(sentence):
                out.notes.append(sentence)
            case Outdated(sentence):
                out.notes.append(sentence)
                out.outdated = True
            case _:
                assert_never(effect)

    def _step_back(self) -> None:
        self.machine = snapshot.restored_machine(self._base)
        for now_us, received in self._since:
            self.machine.handle(received, now_us)

    def _begin_anew(self) -> None:
        """Another life: no node was met yet, and what holds must be learnt from them."""
        self.machine = self.machine.reborn()
        self.links = {node: LinkState() for node in self.machine.setup.network.nodes}
        self._base = snapshot.save(self.machine)
        self._since.clear()

    # --------------------------------------------------------------------------------------------------------- saving

    def save(self) -> bytes:
        self._base = snapshot.save(self.machine)
        self._since.clear()
        return snapshot.save((self._base, self.links, self.counts))

    @staticmethod
    def restored(data: bytes) -> JournaledMachine:
        match snapshot.restored(data):
            case (bytes(base), dict(links), Counter() as counts):
                journaled = JournaledMachine(snapshot.restored_machine(base), links)
                journaled.counts = counts
                return journaled
        raise StateError("the snapshot is not that of a coordinator")

    def figures(self) -> dict[str, Any]:
        return {**self.machine.counts, **self.counts}
