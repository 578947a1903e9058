"""The links of one task to the nodes that it streams to.

Whatever is sent to a node goes in order and is kept until the node has answered that it is durable. After
a node was killed, everything that it has not answered is sent again; it recognises by the numbers what it has already.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import msgpack

from headwater.protocol.errors import HeadwaterError
from headwater.protocol.links import Hub, Keys, LinkSettings
from headwater.protocol.links.large_payloads import Joined
from headwater.protocol.messages.control import CLIENT
from headwater.protocol.messages.replay import (
    REPLAYER,
    UNDER_WAY_MAX,
    At,
    Taken,
    TracePart,
    replay,
    replay_end,
    replay_from,
)

TAKEN_S: Final = 5.0  # a replayer that was killed is known to be gone before that; longer, and another one is there
ANSWER_S_MAX: Final = 60.0  # at the start, for a node that is being started again


class ReplayError(HeadwaterError):
    """Something went wrong on the way; a replay that is begun again goes on after what nodes have."""


class ReplayRefused(HeadwaterError):
    """A node does not take this, and would not take it if it were said again: the user who replays must act."""


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Where the nodes are that a task feeds, and what it must know to reach them. Travels to tasks."""

    network: str
    addresses: Mapping[str, str]
    trace: str
    """The checksum of the trace."""
    keys: str | None = None
    """The folder of the keys where links are encrypted."""
    name: str = REPLAYER


class _Node:
    """One node that is fed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.numbers = 0
        self.answered = 0
        self.under_way: dict[int, tuple[bytes, int]] = {}
        """By number what has no answer yet, and the last seq in it."""
        self.begun = False
        """Whether the node has said how far it has come since the link began or started over."""
        self.at: At | None = None
        self.last_seq = 0
        """The last one that the node has answered for."""
        self.taken = Taken(0, 0, 0)
        self.joined = Joined()


class Sender:
    """Sends to several nodes. Use it in an ``async with`` block; everything waits until it can be done, or raises."""

    def __init__(self, group: NodeGroup) -> None:
        self._group = group
        self._hub: Hub | None = None
        self._nodes = {name: _Node(name) for name in group.addresses}
        self._error: HeadwaterError | None = None
        self._moved = asyncio.Condition()
        self._waking: asyncio.Task[None] | None = None
        self._taken_since_s: dict[str, float] = {}

    async def __aenter__(self) -> Sender:
        group = self._group
        keys = None if group.keys is None else Keys.read(Path(group.keys), group.name)
        peer = CLIENT + group.name
        hub = Hub(peer, secrets.token_hex(8), group.network, self, keys=keys, on_refused=self._link_refused)
        await hub.start(None)
        self._hub = hub
        for node, address in group.addresses.items():
            hub.add_peer(node, dial=address)
            hub.send(node, [replay_from(group.trace)])
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._hub is not None
        await self._hub.close(1.0)
        self._hub = None

    # ------------------------------------------------------------------------------------------------------- for a task

    async def positions(self) -> dict[str, At]:
        """How far each node has come: it goes on after that."""
        silent = [name for name, node in self._nodes.items() if node.at is None]
        try:
            await asyncio.wait_for(self._until(lambda: all(node.at for node in self._nodes.values())), ANSWER_S_MAX)
        except TimeoutError:
            silent = [name for name, node in self._nodes.items() if node.at is None]
            where = ", ".join(f"{name} at {self._group.addresses[name]}" for name in silent[:5])
            raise ReplayError(f"no answer of {where}; is it running, and may {self._group.name!r} connect?") from None
        return {name: node.at for name, node in self._nodes.items() if node.at is not None}

    async def send(self, node: str, parts: list[TracePart], watermark: int | None, last_seq: int) -> int:
        """Events that follow those sent before, and a watermark. Returns the number of the message when there is room
        for it; ``answered`` tells when it is durable."""
        return await self._send(node, lambda number: replay(number, parts, watermark), last_seq)

    async def end(self, node: str) -> int:
        """Nothing will follow at this node."""
        return await self._send(node, replay_end, 0)

    async def answered(self, node: str, number: int) -> None:
        sending = self._nodes[node]
        await self._until(lambda: sending.answered >= number)

    def taken(self, node: str) -> Taken:
        """The outcome of all that was sent to a node."""
        return self._nodes[node].taken

    def behind(self) -> str:
        """The node with the most messages under way."""
        return max(self._nodes.values(), key=lambda node: (len(node.under_way), node.name)).name

    async def _send(self, node: str, packed: Any, last_seq: int) -> int:
        sending = self._nodes[node]
        await self._until(lambda: len(sending.under_way) < UNDER_WAY_MAX)
        sending.numbers += 1
        payload = packed(sending.numbers)
        sending.under_way[sending.numbers] = (payload, last_seq)
        if sending.begun and self._hub is not None:
            self._hub.send(node, [payload])
        return sending.numbers

    async def _until(self, holds: Any) -> None:
        async with self._moved:
            await self._moved.wait_for(lambda: self._error is not None or holds())
        if self._error is not None:
            raise self._error

    # ----------------------------------------------------------------------------------------------------- from the hub

    def received(self, peer: str, last_seq: int, payloads: list[bytes]) -> None:
        node = self._nodes[peer]
        for payload in payloads:
            whole = node.joined.take(payload)
            if whole is None:
                continue
            match msgpack.unpackb(whole):
                case ["replay-at", int(at), bool(ended), None]:
                    self._begun(node, At(at, ended))
                case ["replayed", int(number), int(born), int(repeated), int(late), None]:
                    self._answered(node, number, Taken(born, repeated, late))
                case ["replay-at" | "replayed", *_, str(why)] | ["refused", str(why)]:
                    self._fail(ReplayRefused(f"{peer} refuses the replay: {why}"))
        if self._hub is not None:
            self._hub.confirm(peer, last_seq)
        self._wake()

    def _begun(self, node: _Node, at: At) -> None:
        if node.at is None:
            node.at = at
        if at.last_seq < node.last_seq:
            self._fail(
                ReplayError(f"{node.name} has lost events that it had (it knows {at.last_seq}, not {node.last_seq})")
            )
            return
        node.begun = True
        if self._hub is not None:
            self._hub.send(node.name, [payload for payload, _ in node.under_way.values()])

    def _answered(self, node: _Node, number: int, taken: Taken) -> None:
        waiting = node.under_way.pop(number, None)
        if waiting is None:
            return
        node.answered = max(node.answered, number)
        node.last_seq = max(node.last_seq, waiting[1])
        node.taken = Taken(*map(sum, zip(node.taken, taken, strict=True)))

    def _fail(self, error: HeadwaterError) -> None:
        if self._error is None:
            self._error = error
        self._wake()

    def _wake(self) -> None:
        """All who wait look again, once for all that has come in this turn of the loop."""
        if self._waking is None or self._waking.done():
            self._waking = asyncio.get_running_loop().create_task(self._notify())

    async def _notify(self) -> None:
        async with self._moved:
            self._moved.notify_all()

    def _link_refused(self, peer: str, key: str, text: str) -> None:
        """Another replayer is there. It may be the last life of this one, which the node still believes to be there."""
        if key != "taken":
            return
        now_s = asyncio.get_running_loop().time()
        if now_s - self._taken_since_s.setdefault(peer, now_s) >= TAKEN_S:
            self._fail(
                ReplayRefused(f"{peer} refuses the replay: another one into it is under way; wait for it, or end it")
            )

    def link_up(self, peer: str) -> None:
        self._taken_since_s.pop(peer, None)

    def link_down(self, peer: str, reason: str) -> None:
        pass

    def link_reset(self, peer: str, life: str) -> None:
        """The node does not know what was under way: ask how far it has come, then say the rest once more."""
        node = self._nodes[peer]
        node.begun = False
        node.joined = Joined()
        if self._hub is not None:
            self._hub.send(peer, [replay_from(self._group.trace)])

    def whispered(self, peer: str, payload: bytes) -> None:
        pass

    def acknowledged(self, peer: str, seq: int) -> None:
        pass

    def admit(self, name: str, key_name: str | None) -> LinkSettings | None:
        return None
