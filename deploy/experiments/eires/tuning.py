"""A memory whose decisions are set by hand or misled, to see what they are worth.

Nothing of this changes results: it only says what is fetched and kept, and what waits.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from headwater.node.engine.remote_memory import Counted, Key, Waiting
from headwater.node.remote.memory import Memory
from headwater.node.remote.utility import DEFAULT_WEIGHTS, Weights


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """What is set by hand; the defaults leave every decision to the engine."""

    noise: float = 0.0
    """The share of estimations that are wrong: a partial match is expected to need another element."""
    weights: Weights = DEFAULT_WEIGHTS
    lookahead: int | None = None
    """See ``Waiting.lookahead``."""
    stages_in_doubt: int | None = None
    """See ``Waiting.stages_in_doubt``."""


class TunedMemory(Memory):
    """The elements at hand, kept and fetched as a tuning says."""

    def __init__(self, asked: Iterable[str], tuning: Tuning, seed: int = 1, **settings: Any) -> None:
        super().__init__(asked, weights=tuning.weights, **settings)
        self._tuning = tuning
        self._draw = random.Random(f"{seed}/noise")

    def waiting(self, rule: str) -> Waiting:
        tuning = self._tuning
        return replace(super().waiting(rule), lookahead=tuning.lookahead, stages_in_doubt=tuning.stages_in_doubt)

    def key_class(
        self, rule: str, name: str, table: str, horizon: int, *, numbered: bool, early: bool
    ) -> Any:  # a KeyClass, or what misleads it
        key_class = super().key_class(rule, name, table, horizon, numbered=numbered, early=early)
        if key_class is None or not self._tuning.noise:
            return key_class
        return Misled(key_class, self._tuning.noise, self._draw)


class Misled:
    """A class of partial matches that takes some of them for such as need another key: one that was seen before."""

    SEEN_MAX = 1000  # keys to draw from

    def __init__(self, counted: Counted, noise: float, draw: random.Random) -> None:
        self._counted = counted
        self._noise = noise
        self._draw = draw
        self._seen: list[Key] = []
        self.horizon = counted.horizon
        self.too_late = counted.too_late
        self.forget = counted.forget

    @property
    def seeks(self) -> int:
        return self._counted.seeks

    @seeks.setter
    def seeks(self, seeks: int) -> None:
        self._counted.seeks = seeks

    def add(self, key: Key, ts: float) -> None:
        """One more partial match needs the key; some of them are counted for another, and that is fetched instead."""
        draw, seen = self._draw, self._seen
        if len(seen) < self.SEEN_MAX:
            seen.append(key)
        else:
            seen[int(draw.random() * len(seen))] = key
        if draw.random() < self._noise:
            key = seen[int(draw.random() * len(seen))]
        self._counted.add(key, ts)
