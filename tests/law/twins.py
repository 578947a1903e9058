"""What was saved and restored goes on as what it was saved from: the same results, and the same elements asked for, in
the same order.

A process that crashes is made of its last snapshot and of the inputs since then. Its neighbours have what it has sent,
by numbers, so that it must do exactly what it did.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from headwater.node.core import NodeCore
from headwater.node.effects import Effect, Fetch, Input
from headwater.node.engine import Engine, waiting, waiting_match
from headwater.node.engine.program import Program
from headwater.node.remote import caches, prefetching
from headwater.node.remote.encoding import decode_plain
from headwater.node.remote.memory import Memory

FEW = (
    (prefetching, "REFRESH_EVERY"),
    (prefetching, "FAILURES_MAX"),
    (prefetching, "KEYS_MAX"),
    (waiting, "HELD_MAX"),
    (waiting_match, "ROWS_BETWEEN_DECISIONS"),
    (caches, "LEAST_EVERY"),
    (caches, "SAMPLE"),
)
"""After how many of something a decision is made again, or is made at all."""


@contextmanager
def hasty(rng: random.Random) -> Iterator[None]:
    """Within it, what is decided after many events is decided after a few: cases are short."""
    with ExitStack() as stack:
        for module, name in FEW:
            stack.enter_context(patch.object(module, name, rng.choice((1, 2, 4, getattr(module, name)))))
        yield


class Twin:
    """An engine, and beside it one that was restored from it, with a memory of its own."""

    def __init__(self, program: Program, memory: Memory) -> None:
        self.program = program
        self.memory = memory
        self.engine = Engine(program, memory=memory)
        self._restored: tuple[Memory, Engine] | None = None

    def save_and_restore(self) -> None:
        """From now on there is a twin; the twin of a twin, if there is one already. A memory that an experiment has set
        by hand cannot be saved: then only the engine is restored, and goes on in place of the other."""
        if type(self.memory) is not Memory:
            snapshot = self.engine.snapshot()
            self.engine = Engine(self.program, memory=self.memory)
            self.engine.restore(snapshot)
            return
        saved_memory, saved_engine = self.memory, self.engine
        if self._restored is not None:
            self.compare()
            saved_memory, saved_engine = self._restored
        memory = Memory.restored(*saved_memory.saved())
        engine = Engine(self.program, memory=memory)
        engine.restore(saved_engine.snapshot())
        self._restored = memory, engine

    def do(self, call: Callable[[Memory, Engine], Any]) -> Any:
        """What the engine answers; an AssertionError if its twin answers something else."""
        answer = call(self.memory, self.engine)
        if self._restored is not None:
            other = call(*self._restored)
            assert answer == other, f"the restored one answers {other!r}, not {answer!r}"
            marks = [engine.output_watermark() for engine in (self.engine, self._restored[1])]
            assert marks[0] == marks[1], f"the restored one promises {marks[1]}, not {marks[0]}"
        return answer

    def compare(self) -> None:
        """Whether both of them have learnt and keep the same."""
        if self._restored is not None:
            memory, engine = self._restored
            assert decode_plain(self.memory.saved()[2]) == decode_plain(memory.saved()[2])
            assert self.engine._waiting_state() == engine._waiting_state()


@contextmanager
def twin_nodes(rng: random.Random, restoring: float = 0.02) -> Iterator[list[int]]:
    """Within it, beside every node of a simulation runs another that was restored from it at some time, or from that
    one, and must do what it does. Gives how many steps were compared that asked for elements."""
    twins: dict[int, tuple[NodeCore, NodeCore]] = {}
    handle = NodeCore.handle
    compared = [0]

    def both(core: NodeCore, received: Input, now_us: int) -> list[Effect]:
        if rng.random() < restoring:
            saved = twins[id(core)][1] if id(core) in twins else core
            twins[id(core)] = core, NodeCore.restored(saved.save())
        effects = handle(core, received, now_us)
        if id(core) in twins:
            others = handle(twins[id(core)][1], received, now_us)
            assert others == effects, f"the restored node does {others!r}, not {effects!r} at {received!r}"
            compared[0] += any(isinstance(effect, Fetch) for effect in effects)
        return effects

    with patch.object(NodeCore, "handle", both):
        yield compared
