"""At which stage of a skip-till-next run the elements are fetched that a later one needs."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.node.engine.remote_memory import Counted, Key


class Timing:
    """When the elements of a lookup are fetched under skip-till-next: at the last stage of a run at which they still
    come in time. The classes are those of the stages at which the key is known, the earliest first."""

    def __init__(self, classes: Sequence[Counted], lookahead: int | None = None) -> None:
        """``lookahead``: they are always fetched so many stages before the one that needs them."""
        self._classes = classes
        self._chosen = len(classes) - 1 if lookahead is None else max(0, len(classes) - lookahead)
        self._fixed = lookahead is not None
        self._since: float = float("-inf")

    def at(self, stage: int, key: Key, ts: float) -> None:
        """A run stands at one of the stages."""
        if stage != self._chosen:
            return
        current = self._classes[stage]
        current.add(key, ts)
        if self._fixed:
            return
        if stage and current.too_late():
            self._chosen -= 1
            self._since = ts
        elif stage < len(self._classes) - 1 and ts - self._since > current.horizon:
            self._chosen += 1
            self._classes[self._chosen].forget()
            self._since = ts

    def saved(self) -> tuple[int, float]:
        return self._chosen, self._since

    def restore(self, chosen: int, since: float) -> None:
        self._chosen, self._since = chosen, since
