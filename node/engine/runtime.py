"""Functions that generated code calls: arithmetic, aggregates, and the subsets of a repetition."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from typing import Any

from headwater.node.engine import arithmetic, counting
from headwater.node.engine.aggregates import FOLD_FUNCTIONS
from headwater.protocol.composites import start_of
from headwater.protocol.remote import ACCEPTED

Row = tuple[Any, ...]

CANDIDATES_MAX = 22  # events whose subsets are listed at once: 4 million matches, some gigabytes; more is a mistake


def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """A function that does not know missing values has none where an argument is missing."""
    return None if None in arguments else function(*arguments)


def lookup(table: Any, ts: int, *arguments: Any) -> Any:
    return None if None in arguments else table.lookup(arguments, ts)


# Where a table accepts in place of elements that cannot be had, ACCEPTED may stand for a value. It equals every value,
# so that it is told by its identity.


def lookup_accepting(table: Any, ts: int, *arguments: Any) -> Any:
    if any(argument is None for argument in arguments):
        return None
    return ACCEPTED if _accepted(arguments) else table.lookup(arguments, ts)


def single(value: Any) -> Any:
    """A value that is compared or computed with; None in place of a collection."""
    return None if type(value) is tuple else value


def call_accepting(function: Callable[..., Any], accepts_missing: bool, *arguments: Any) -> Any:
    if not accepts_missing and any(argument is None for argument in arguments):
        return None
    return ACCEPTED if _accepted(arguments) else function(*arguments)


def member(inside: bool, item: Any, collection: Any) -> bool:
    """``item in collection``, or not."""
    if item is None or collection is None:
        return False
    values = collection if isinstance(collection, tuple) else (collection,)
    return item is ACCEPTED or _accepted(values) or (item in values) is inside


def given(value: Any) -> Any:
    """A value for an attribute: none where it could not be had."""
    return None if value is ACCEPTED else value


def _accepted(values: Iterable[Any]) -> bool:
    return any(value is ACCEPTED for value in values)


class TooManySubsets(Exception):
    """One event would complete more matches than a user can want listed."""

    def __init__(self, candidates: int) -> None:
        super().__init__(
            f"a repetition has {candidates} candidates at once, and every subset of them would be a match; "
            f"give it a LIMIT of at most {CANDIDATES_MAX}, a shorter window or more conditions, or use SKIP TILL NEXT "
            "MATCH"
        )


def subsets(candidates: list[Row]) -> list[tuple[Row, ...]]:
    """Every non-empty subset, elements in order."""
    if len(candidates) > CANDIDATES_MAX:
        raise TooManySubsets(len(candidates))
    choices: list[tuple[Row, ...]] = [()]
    for candidate in candidates:
        choices += [(*chosen, candidate) for chosen in choices]
    del choices[0]
    return choices


def subsets_with(candidates: list[Row], forced: Row) -> list[tuple[Row, ...]]:
    """Every subset that contains ``forced``, which is not among the sorted candidates."""
    if len(candidates) > CANDIDATES_MAX:
        raise TooManySubsets(len(candidates))
    split = bisect_left(candidates, forced)
    choices: list[tuple[Row, ...]] = [()]
    for candidate in candidates[:split]:
        choices += [(*chosen, candidate) for chosen in choices]
    choices = [(*chosen, forced) for chosen in choices]
    for candidate in candidates[split:]:
        choices += [(*chosen, candidate) for chosen in choices]
    return choices


def chains(candidates: list[Row], forced: Row | None, follows: Callable[[Row, Row], bool]) -> list[tuple[Row, ...]]:
    """Subsets in order whose neighbours satisfy ``follows(before, after)``; with ``forced``, those that contain it."""
    if forced is not None:
        candidates = list(candidates)
        insort(candidates, forced)
    ending: list[list[tuple[Row, ...]]] = []
    chain_count = 0
    for position, candidate in enumerate(candidates):
        here: list[tuple[Row, ...]] = [(candidate,)]
        for before in range(position):
            if follows(candidates[before], candidate):
                here += [(*chosen, candidate) for chosen in ending[before]]
        ending.append(here)
        chain_count += len(here)
        if chain_count > 1 << CANDIDATES_MAX:
            raise TooManySubsets(len(candidates))
    choices = [chosen for here in ending for chosen in here]
    if forced is None:
        return choices
    return [chosen for chosen in choices if any(element is forced for element in chosen)]


def group_chains(
    candidates: list[list[Row]],
    forced_leaf: int,
    forced: Row | None,
    within: Callable[..., bool],
    follows: Callable[[tuple[Row, ...], tuple[Row, ...]], bool],
) -> list[tuple[tuple[Row, ...], ...]]:
    """All runs of groups. Each result holds one tuple per leaf of the group: that leaf's events, group by group.

    A group takes one event per leaf, each ending before the next one starts; groups follow each other the same way.
    With ``forced``, that event stands in at least one group at ``forced_leaf``.
    """
    groups = counting.all_groups(candidates, forced_leaf, forced, within)
    ending: list[list[tuple[tuple[Row, ...], ...]]] = []
    chain_count = 0
    for position, group in enumerate(groups):
        here: list[tuple[tuple[Row, ...], ...]] = [(group,)]
        for before in range(position):
            earlier = groups[before]
            if earlier[-1][:3] < start_of(group[0]) and follows(earlier, group):
                here += [(*chosen, group) for chosen in ending[before]]
        ending.append(here)
        chain_count += len(here)
        if chain_count > 1 << CANDIDATES_MAX:
            raise TooManySubsets(len(groups))
    choices = [chosen for here in ending for chosen in here]
    if forced is not None:
        choices = [chosen for chosen in choices if any(group[forced_leaf] is forced for group in chosen)]
    return [tuple(zip(*chosen, strict=True)) for chosen in choices]


def after(key: Row) -> Row:
    """The least key that is greater than this one."""
    return key[0], key[1], key[2] + 1


def exceeds(candidates: list[int], limit: int, count: list[int]) -> bool:
    """Whether a repetition has more candidates than its limit; such a choice is counted."""
    if len(candidates) <= limit:
        return False
    count[0] += 1
    return True


def overlaps(rows: Iterable[Row], parts: tuple[Any, ...]) -> bool:
    """Whether one of the rows is bound in the match; repeated roles are tuples of rows."""
    for row in rows:
        for part in parts:
            if part is None:
                continue
            if isinstance(part[0], tuple):
                if any(element[1:4] == row[1:4] for element in part):
                    return True
            elif part[1:4] == row[1:4]:
                return True
    return False


NAMES: dict[str, Any] = {
    **{function.__name__: function for function in arithmetic.FUNCTIONS},
    "single": single, "call": call, "lookup": lookup,
    "call_accepting": call_accepting, "lookup_accepting": lookup_accepting,
    "member": member, "given": given, "subsets": subsets, "subsets_with": subsets_with, "chains": chains,
    "group_chains": group_chains, "overlaps": overlaps, "start_of": start_of, "after": after,
    "exceeds": exceeds, **counting.NAMES,
    **{f"fold_{name}": function for name, function in FOLD_FUNCTIONS.items()},
}  # fmt: skip
"""What generated code may call, by the name it uses."""
