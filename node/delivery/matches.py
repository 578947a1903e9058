"""Batches of matches for sinks, whose rows are computed only when they are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any, Final, overload

from headwater.node.tasks.predicates import Condition, match_selector
from headwater.protocol.composites import Composite, CompositeSpec, rows_of
from headwater.protocol.expressions import Expression

Row = tuple[Any, ...]
_first = itemgetter(0)

FEW: Final = 16  # matches up to which it is quicker to make their rows than to find out how to do without


class MatchBatch(Sequence[Row]):
    """The rows of some matches of one rule, at least one. Most sinks want few of them, and some rules have none."""

    __slots__ = ("_rows", "matches", "until_us")

    def __init__(self, matches: Sequence[Composite], until_us: int) -> None:
        """``until_us``: none of them ends later than this."""
        self.matches = matches
        self.until_us = until_us
        self._rows: list[Row] | None = None

    @property
    def spec(self) -> CompositeSpec:
        return self.matches[0].spec

    def rows(self) -> list[Row]:
        """All of them; made once."""
        if self._rows is None:
            self._rows = rows_of(self.matches)
        return self._rows

    def unmade(self) -> MatchBatch:
        """The same to be remembered, without the rows that were made when they were read."""
        return MatchBatch(self.matches, self.until_us)

    def __len__(self) -> int:
        return len(self.matches)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows())

    @overload
    def __getitem__(self, place: int) -> Row: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Row]: ...
    def __getitem__(self, place: int | slice) -> Row | Sequence[Row]:
        return self.rows()[place]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self.rows() == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"MatchBatch({self.rows()!r})"

    def ends(self) -> Sequence[int]:
        """The time at which each of them ends."""
        latest = self.spec.latest
        if latest is None:
            return [match.ts for match in self.matches]
        return list(map(_first, map(itemgetter(latest), self.matches)))

    def between(self, least: int | None, greatest: int | None) -> Sequence[Row]:
        """Those that end in an interval, both ends included; None is no bound."""
        if least is None and (greatest is None or self.until_us <= greatest):
            return self
        low = float("-inf") if least is None else least
        high = float("inf") if greatest is None else greatest
        chosen = [match for match, end in zip(self.matches, self.ends(), strict=True) if low <= end <= high]
        return MatchBatch(chosen, self.until_us) if chosen else ()

    def that(self, where: tuple[Expression, ...], condition: Condition) -> Sequence[Row]:
        """Those that meet the conjuncts; ``condition`` is what was made of them for rows."""
        selector = match_selector(where, self.spec) if len(self.matches) > FEW else None
        if selector is not None:
            try:
                chosen = selector(self.matches)
            except Exception:  # row by row, to say which one cannot be decided
                chosen = [row[3] for row in self.rows() if condition(row)]
            return MatchBatch(chosen, self.until_us) if chosen else ()
        return [row for row in self.rows() if condition(row)]
