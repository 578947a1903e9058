"""Where an event must lie to forbid a match, and which events of a negation lie there together."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.node.explain.expressions import Row
from headwater.node.explain.shape import Element, Forbidden, Open, PatternShape
from headwater.node.explain.steps import RowsOfType, World, identity
from headwater.protocol.composites import start_of


def near_range(negation: Forbidden, match: Open, typed: RowsOfType) -> tuple[int, int]:
    """Indexes between which the events in the range of a negation lie; these are still to be judged."""
    low, high = 0, len(typed.rows)
    if negation.left:
        low = typed.up_to(max(row[:3] for row in match.rows(negation.left)))
    if negation.right:
        high = typed.before(min(start_of(row) for row in match.rows(negation.right)))
    owner = negation.owner
    if owner is not None and owner.window.unit == "us" and not (negation.left and negation.right):
        rows = match.rows(owner.units)
        low = max(low, typed.before_ts(max(row[0] for row in rows) - owner.window.length))
        high = min(high, typed.up_to_ts(min(start_of(row)[0] for row in rows) + owner.window.length))
    return low, high


def in_range(world: World, negation: Forbidden, match: Open, row: Row) -> bool:
    """Whether an event that ends here lies where the negation forbids it."""
    end = row[:3]
    owner = negation.owner
    rows = match.rows(owner.units) if owner else match.rows()
    low: float | None = None
    high: float | None = None
    at: float = row[0]
    if owner is not None:
        length = owner.window.length
        if owner.window.unit == "events":
            numbers = [world.numbers[identity(part)] for part in rows]
            at = world.numbers[identity(row)]
            low, high = max(numbers) - (length - 1), min(numbers) + (length - 1)
        else:
            low = max(part[0] for part in rows) - length
            high = min(start_of(part)[0] for part in rows) + length
    after = max((part[:3] for part in match.rows(negation.left)), default=None) if negation.left else None
    before = min((start_of(part) for part in match.rows(negation.right)), default=None) if negation.right else None
    if after is not None and not after < end:
        return False
    if before is not None and not end < before:
        return False
    if before is not None and after is not None:
        return True
    if (after is None or not negation.in_sequence) and low is not None and at < low:
        return False
    return not ((before is None or not negation.in_sequence) and high is not None and at > high)


def near_times(negation: Forbidden, match: Open, sub: PatternShape) -> tuple[float, float]:
    """Times between which the events of whatever negates a match lie; these are still to be judged."""
    rows, owner = match.rows(), negation.owner
    lengths = [bound.window.length for bound in sub.windows if bound.window.unit == "us"]
    if owner is None or owner.window.unit != "us" or not lengths:
        return float("-inf"), float("inf")
    since = min(start_of(row)[0] for row in rows) - owner.window.length - sum(lengths)
    return since, max(row[0] for row in rows) + owner.window.length


def sub_matches(world: World, sub: PatternShape, begun: Element, since: float, until: float) -> Iterator[Element]:
    """The matches of a negated part between two times, by order and windows alone."""
    number = len(begun)
    if number == len(sub.units):
        if number == 1 or not breaks_window(sub, begun, world):
            yield begun
        return
    typed = world.of(sub.units[number].leaves[0].type)
    for row in typed.rows[typed.before_ts(since) : typed.up_to_ts(until)]:
        world.budget.spend()
        if any((earlier, number) in sub.before and not begun[earlier][:3] < start_of(row) for earlier in range(number)):
            continue
        if all(identity(row) != identity(other) for other in begun):
            yield from sub_matches(world, sub, (*begun, row), since, until)


def breaks_window(sub: PatternShape, rows: Element, world: World) -> bool:
    for bound in sub.windows:
        inside = [rows[unit] for unit in bound.units]
        if bound.window.unit == "events":
            numbers = [world.numbers[identity(row)] for row in inside]
            if max(numbers) - min(numbers) > bound.window.length - 1:
                return True
        elif bound.window.bounds == "span":
            if max(row[0] for row in inside) - min(start_of(row)[0] for row in inside) > bound.window.length:
                return True
        else:
            ends = [max(rows[unit][0] for unit in part) for part in bound.parts if part]
            if max(ends) - min(ends) > bound.window.length:
                return True
    return False
