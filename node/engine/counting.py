"""Counting the choices of a repetition without listing them.

Conditions over a whole repetition see little of it: how many events it has, a sum, a least value, the first and the
last event. Choices that look alike to everything that is still asked are one *kind*: one of them stands for all, with
their number beside it. Kinds are found by dynamic programming over the candidates. Where there are too many kinds, or a
condition looks at every event, the choices are gone through one by one, within a limit.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator, Sequence
from math import isfinite, lcm
from typing import Any

from headwater.protocol.composites import start_of

Row = tuple[Any, ...]
Item = tuple[Any, ...]  # a row, or the rows of one group
Fold = tuple[str, Callable[[Item], Any] | None]  # the function's name, and what it reads of an item

KINDS_MAX = 100_000  # kinds of choices told apart at once: some 50 MB
CHOICES_MAX = 1 << 22  # choices gone through one by one for one event: some ten seconds


class TooManyChoices(Exception):
    """More choices than can be told apart, even for counting them."""

    def __init__(self, candidates: int, kinds: bool) -> None:
        why = (
            f"its conditions tell more than {KINDS_MAX:,} kinds of choices among them apart"
            if kinds
            else f"its conditions look at each of more than {CHOICES_MAX:,} choices among them"
        )
        super().__init__(
            f"a repetition has {candidates:,} candidates at once, and {why}, which is too many even for counting; "
            f"give it a LIMIT of at most {CHOICES_MAX.bit_length() - 1}, a shorter window or more conditions on single "
            "events, use SKIP TILL NEXT MATCH, or ask for count(), min(), max() or sums of whole numbers, of which "
            "many choices have the same"
        )


class _TooManyKinds(Exception):
    """The dynamic programme has grown too large."""


def choices_of(
    candidates: list[Row], forced: Row | None, follows: Callable[[Row, Row], bool] | None, demand: Demand
) -> Iterator[tuple[int, Sequence[Row]]]:
    """``(number, one of them)`` for each kind of choice among sorted rows; with ``forced``, of those that hold it."""
    if forced is not None:
        candidates = list(candidates)
        insort(candidates, forced)
    required = [candidate is forced for candidate in candidates] if forced is not None else None
    return _kinds(candidates, required, follows, demand)


def group_choices_of(
    candidates: list[list[Row]],
    forced_leaf: int,
    forced: Row | None,
    within: Callable[..., bool],
    follows: Callable[[Item, Item], bool],
    demand: Demand,
) -> Iterator[tuple[int, tuple[tuple[Row, ...], ...]]]:
    """The same for runs of groups, of which each kind is shown as one tuple of rows for each leaf of the group."""
    groups = all_groups(candidates, forced_leaf, forced, within)

    def after(earlier: Item, later: Item) -> bool:
        return earlier[-1][:3] < start_of(later[0]) and follows(earlier, later)

    required = [group[forced_leaf] is forced for group in groups] if forced is not None else None
    for number, chosen in _kinds(groups, required, after, demand):
        yield number, tuple(zip(*chosen, strict=True))


def all_groups(
    candidates: list[list[Row]], forced_leaf: int, forced: Row | None, within: Callable[..., bool]
) -> list[Item]:
    """Every group that the events of its leaves can make, by their ends. Each event ends before the next one starts."""
    if forced is not None:
        candidates = [list(rows) for rows in candidates]
        insort(candidates[forced_leaf], forced)
    groups: list[Item] = [()]
    for rows in candidates:
        groups = [(*group, row) for group in groups for row in rows if not group or group[-1][:3] < start_of(row)]
    groups = [group for group in groups if within(*group)]
    groups.sort(key=lambda group: group[-1])
    return groups


class Demand:
    """What is still asked of a finished repetition: its first and last event (``ends``), folds, or every event."""

    def __init__(self, ends: bool, elements: bool, *folds: Fold) -> None:
        self.ends = ends
        self.elements = elements
        self.folds = folds
        self.only_length = not ends and bool(folds) and all(function == "len" for function, _ in folds)


def _kinds(
    items: list[Item],
    required: list[bool] | None,
    follows: Callable[[Item, Item], bool] | None,
    demand: Demand,
) -> Iterator[tuple[int, Sequence[Item]]]:
    if required is not None and not any(required):
        return
    if not demand.elements and follows is None and demand.only_length:
        yield from _by_length(items, required)
        return
    if not demand.elements and follows is None and demand.ends and not demand.folds:
        yield from _by_ends(items, required)
        return
    channels = None if demand.elements else _channels(items, demand.folds)
    if channels is not None:
        try:
            kinds = _Kinds(items, required, follows, demand.ends, channels).choices()
        except _TooManyKinds:
            pass
        else:
            yield from kinds
            return
    if _number(items, follows) > CHOICES_MAX:
        raise TooManyChoices(len(items), kinds=channels is not None)
    for chosen in _one_by_one(items, required, follows):
        yield 1, chosen


def _by_length(items: list[Item], required: list[bool] | None) -> Iterator[tuple[int, Sequence[Item]]]:
    """Choices of so many events: a binomial number. Of what stands for them only the length is looked at."""
    fixed = 0 if required is None else 1
    free = len(items) - fixed
    number = 1
    for size in range(free + 1):
        if size + fixed:
            yield number, range(size + fixed)  # type: ignore[misc]
        number = number * (free - size) // (size + 1)


def _by_ends(items: list[Item], required: list[bool] | None) -> Iterator[tuple[int, Sequence[Item]]]:
    """Choices with this first and this last event: whatever lies between them may be in or out."""
    inside = len(items) if required is None else required.index(True)
    for first in range(len(items)):
        if required is not None and first > inside:
            return
        for last in range(first if required is None else max(first, inside), len(items)):
            between = max(0, last - first - 1)
            if required is not None and first < inside < last:
                between -= 1
            yield 1 << between, (items[first],) if first == last else (items[first], items[last])


# What folds keep of a choice is a tuple of values, one for each channel, with a function that joins those of two
# disjoint choices.

Channel = tuple[Callable[[Any, Any], Any], list[Any]]


def _channels(items: list[Item], folds: Sequence[Fold]) -> list[Channel] | None:
    """None where a fold meets values that have no exact sum or no order."""
    channels: list[Channel] = []
    for function, read in folds:
        if read is None:
            channels.append((_plus, [1] * len(items)))
            continue
        values = [read(item) for item in items]
        if function in ("min", "max"):
            if any(value != value for value in values):
                return None
            channels.append((_least if function == "min" else _greatest, values))
            continue
        present = [int(value is not None) for value in values]
        if function in ("count", "avg"):
            channels.append((_plus, present))
        elif not all(present):
            channels.append((_greatest, present))
        if function in ("sum", "avg"):
            exact = _exact(values)
            if exact is None:
                return None
            channels.append((_plus, exact))
            # A sum of integers stays an integer; with one float among them it is rounded to a float.
            rounded = [int(value is not None and type(value) is not int) for value in values]
            if any(rounded):
                channels.append((_greatest, rounded))
    return channels


def _exact(values: list[Any]) -> list[int] | None:
    """The values as whole numbers of one common fraction, so that sums are equal exactly where these are."""
    numbers = [0 if value is None else value for value in values]
    if not all(isinstance(number, int | float) and isfinite(number) for number in numbers):
        return None
    ratios = [number.as_integer_ratio() for number in numbers]
    unit = lcm(*(below for _, below in ratios))
    return [above * (unit // below) for above, below in ratios]


def _plus(one: int, other: int) -> int:
    return one + other


def _least(one: Any, other: Any) -> Any:
    return other if one is None else one if other is None or one <= other else other


def _greatest(one: Any, other: Any) -> Any:
    return other if one is None else one if other is None or one >= other else other


class _Kinds:
    """The dynamic programme. A kind is kept as ``[number, chosen]`` under (first, has what is required, channels..),
    and apart by its last event where that matters; ``chosen`` is a list linked backwards."""

    def __init__(
        self,
        items: list[Item],
        required: list[bool] | None,
        follows: Callable[[Item, Item], bool] | None,
        ends: bool,
        channels: list[Channel],
    ) -> None:
        self.items = items
        self.required = required
        self.follows = follows
        self.ends = ends
        self.joins = [join for join, _ in channels]
        self.values = list(zip(*(values for _, values in channels), strict=True)) or [()] * len(items)

    def choices(self) -> list[tuple[int, Sequence[Item]]]:
        by_last = self.ends or self.follows is not None
        size = 0
        together: dict[Any, list[Any]] = {}
        ending: list[tuple[Item, dict[Any, list[Any]]]] = []
        for position, item in enumerate(self.items):
            here: dict[Any, list[Any]] = {}
            self._begin(position, item, here)
            for before, kinds in ending if by_last else [(item, together)]:
                if not by_last or self.follows is None or self.follows(before, item):
                    for key, (number, chosen) in kinds.items():
                        _add(here, self._joined(key, position), number, (chosen, item))
            if by_last:
                ending.append((item, here))
                size += len(here)
            else:
                for key, (number, chosen) in here.items():
                    _add(together, key, number, chosen)
                size = len(together)
            if size > KINDS_MAX:
                raise _TooManyKinds
        everything = [kinds for _, kinds in ending] if by_last else [together]
        return [
            (number, _unlinked(chosen))
            for kinds in everything
            for (_, complete, _), (number, chosen) in kinds.items()
            if complete
        ]

    def _begin(self, position: int, item: Item, here: dict[Any, list[Any]]) -> None:
        complete = self.required is None or self.required[position]
        _add(here, (position if self.ends else None, complete, self.values[position]), 1, (None, item))

    def _joined(self, key: Any, position: int) -> Any:
        first, complete, values = key
        new = self.values[position]
        joined = tuple([join(one, other) for join, one, other in zip(self.joins, values, new, strict=True)])
        return first, complete or (self.required is not None and self.required[position]), joined


def _add(kinds: dict[Any, list[Any]], key: Any, number: int, chosen: Any) -> None:
    kind = kinds.get(key)
    if kind is None:
        kinds[key] = [number, chosen]
    else:
        kind[0] += number


def _unlinked(chosen: Any) -> tuple[Item, ...]:
    items = []
    while chosen is not None:
        chosen, item = chosen
        items.append(item)
    return tuple(reversed(items))


def _number(items: list[Item], follows: Callable[[Item, Item], bool] | None) -> int:
    """How many choices there are."""
    if follows is None:
        return (1 << len(items)) - 1
    ending: list[int] = []
    for position, item in enumerate(items):
        ending.append(1 + sum(ending[before] for before in range(position) if follows(items[before], item)))
    return sum(ending)


def _one_by_one(
    items: list[Item], required: list[bool] | None, follows: Callable[[Item, Item], bool] | None
) -> Iterator[tuple[Item, ...]]:
    """Every choice in turn; few are held at a time."""
    open_choices: list[tuple[int, tuple[Item, ...], bool]] = [(-1, (), required is None)]
    while open_choices:
        last, chosen, complete = open_choices.pop()
        if chosen and complete:
            yield chosen
        for position in range(last + 1, len(items)):
            if not chosen or follows is None or follows(chosen[-1], items[position]):
                done = complete or (required is not None and required[position])
                open_choices.append((position, (*chosen, items[position]), done))


NAMES: dict[str, Any] = {"choices_of": choices_of, "group_choices_of": group_choices_of, "Demand": Demand}
"""What generated code may call, by the name it uses."""
