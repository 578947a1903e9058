"""Subscriptions as functions: does this event meet the conditions?

The code is generated like that of the engine's predicates, so that missing values mean the same in both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from node.engine import runtime
from node.engine.code import Piece, Pool, Scope
from protocol.errors import RuleError
from protocol.events import Value
from protocol.expressions import Attribute, Expression, Fold, walk
from protocol.functions import Functions
from protocol.languages.diagnostics import listed
from protocol.languages.printing import PrintError
from protocol.subscriptions import Subscription, print_subscription

Matcher = Callable[..., bool]
"""``matcher(values)`` or ``matcher(values, (ts, node, seq))``."""

_HEADER: Final = {"ts": 0, "node": 1, "seq": 2}
_HELPERS: Final = (
    "add", "subtract", "multiply", "divide", "modulo", "negate", "less", "less_equal", "greater", "greater_equal",
    "equal", "unequal", "contained", "not_contained", "call",
)  # fmt: skip


def needs_header(subscription: Subscription) -> bool:
    """Whether its conditions name ts, node or seq, so that the matcher must be given them."""
    return any(
        isinstance(part, Attribute) and part.name in _HEADER for each in subscription.where for part in walk(each)
    )


def compile_subscription(
    subscription: Subscription, attributes: Sequence[str], functions: Functions | None = None
) -> Matcher:
    """A function of the values of an event, in the order of ``attributes``, that says whether the sink wants it.

    Its second argument is the event's ``(ts, node, seq)`` (for a composite event those of its end); it may be left out
    unless `needs_header`. Any value may be None. RuleError names what cannot be compiled, or compared later on.
    """
    columns = {name: position for position, name in enumerate(attributes)}
    shown = _shown(subscription)
    pool = Pool(functions or Functions(), {})

    def read(attribute: Attribute) -> Piece:
        if attribute.name in columns:
            return Piece(f"values[{columns[attribute.name]}]", nullable=True, simple=True)
        if attribute.name in _HEADER:
            return Piece(f"header[{_HEADER[attribute.name]}]", simple=True)
        if attribute.name == "type":
            return Piece(repr(subscription.type), simple=True)
        raise RuleError(
            f"subscription {shown}: {subscription.type} has no attribute {attribute.name!r}; "
            f"it has: {listed(attributes) or 'no attributes'}"
        )

    def no_fold(fold: Fold) -> Piece:
        raise RuleError(f"subscription {shown}: {fold.function} needs several events, but a subscription is about one")

    scope = Scope(pool, read, no_fold, lambda _: "header[0]")
    conditions = [_checked(scope, each, shown) for each in subscription.where]
    # Without the default, a caller who forgets the header is told so at once instead of at some event.
    second = "header" if needs_header(subscription) else "header=None"
    code = f"def matches(values, {second}):\n    return bool({' and '.join(conditions) or 'True'})\n"
    names: dict[str, Any] = {helper: getattr(runtime, helper) for helper in _HELPERS}
    names |= pool.objects
    exec(compile(code, "<subscription>", "exec"), names)
    return _guarded(names["matches"], shown) if conditions else _everything


def _checked(scope: Scope, condition: Expression, shown: str) -> str:
    try:
        return scope.truth(condition)
    except RuleError as error:
        raise error if shown in str(error) else RuleError(f"subscription {shown}: {error}") from None


def _everything(values: Sequence[Value], header: Sequence[Any] | None = None) -> bool:
    return True


def _guarded(matches: Matcher, shown: str) -> Matcher:
    def guarded(values: Sequence[Value], *header: Any) -> bool:
        try:
            return matches(values, *header)
        except TypeError as error:
            if not header and "header" in str(error):
                raise RuleError(f"subscription {shown} names ts, node or seq, which were not given") from None
            raise RuleError(f"subscription {shown} cannot be decided for {tuple(values)!r}: {error}") from None

    return guarded


def _shown(subscription: Subscription) -> str:
    try:
        return print_subscription(subscription)
    except PrintError:
        return subscription.type
