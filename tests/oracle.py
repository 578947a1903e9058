"""The oracle: finds the matches of rules by trying every combination of events, straight from docs/guide/rules.md.

It looks at the whole finite trace at once and knows no arrival order, no state and no index. It shares no code with the
engine: of the project it uses only the values that rules and events are made of. Read it beside the section "Meaning";
each function below is one sentence or paragraph of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import pairwise, product
from typing import Any

import msgpack

from headwater.protocol import expressions as ex
from headwater.protocol import pattern as pt
from headwater.protocol.events import Event, EventType

Key = tuple[int, str, int]
Identity = tuple[str, int] | str


@dataclass(frozen=True)
class Item:
    """A primitive or composite event as a rule sees it."""

    type: str
    start: Key
    end: Key
    own_key: tuple[Any, ...]
    identity: Identity
    values: Mapping[str, Any] = field(compare=False, hash=False)
    primitives: frozenset[tuple[str, int]] = frozenset()
    """Identities of the primitive events it was made from, at any depth."""

    @property
    def ts(self) -> int:
        return self.end[0]


@dataclass(frozen=True)
class Found:
    """One composite event that a rule must produce."""

    rule: str
    version: int
    type: str
    parts: tuple[tuple[str, Identity], ...]
    id: str
    ts: int
    start: Key
    end: Key
    own_key: tuple[Any, ...]
    attributes: Mapping[str, Any] = field(compare=False, hash=False)
    primitives: frozenset[tuple[str, int]] = frozenset()
    binding: Mapping[str, Any] = field(compare=False, hash=False, default_factory=dict)
    """Role to Item, or to the tuple of Items of a repeated role."""


Binding = dict[str, Any]


STEPS_MAX = 500_000  # combinations of events tried for one rule: a few seconds; a case beyond it is left out


class TooManyMatches(Exception):
    """The case has more matches than the caller wants to enumerate."""


def evaluate(
    rules: Sequence[pt.Rule],
    events: Sequence[Event],
    types: Iterable[EventType] = (),
    functions: Any = None,
    remote: Mapping[str, Any] | None = None,
    *,
    matches_max: int | None = None,
    read_max: int | None = None,
    since: Mapping[str, int] | None = None,
    until: Mapping[str, int] | None = None,
) -> list[Found]:
    """All composite events of all the rules over the finite trace, in the order of their own keys.

    ``since`` and ``until`` by the names of rules: what ends before does not exist for a rule, and it gives nothing that
    ends later.
    Past ``matches_max`` matches in all, or ``read_max`` of a rule whose composites others read, it gives up with
    TooManyMatches: generated cases may explode.
    """
    del types  # events carry their types; the declarations matter only to the check of rules
    items = {item.identity: item for item in map(primitive, events)}
    found: dict[str, Found] = {}
    for rule in in_dependency_order(rules):
        is_read = any(rule.emits in pt.types_of(other.pattern) for other in rules)
        limits = [limit for limit in (matches_max, read_max if is_read else None) if limit is not None]
        of_rule: dict[str, Found] = {}
        first_us, last_us = (since or {}).get(rule.name), (until or {}).get(rule.name)
        seen = [item for item in items.values() if first_us is None or item.end[0] >= first_us]
        for match in matches_of(rule, seen, functions, remote or {}):
            if last_us is not None and match.ts > last_us:
                continue
            of_rule[match.id] = match
            if any(len(of_rule) > limit for limit in limits):
                raise TooManyMatches(rule.name)
        found |= of_rule
        items |= {match.id: as_item(match) for match in of_rule.values()}
    return sorted(found.values(), key=lambda match: match.own_key)


def primitive(event: Event) -> Item:
    key = (event.ts, event.node, event.seq)
    identity = (event.node, event.seq)
    return Item(event.type, key, key, (*key, 0), identity, dict(event.attributes), frozenset([identity]))


def as_item(match: Found) -> Item:
    return Item(match.type, match.start, match.end, match.own_key, match.id, match.attributes, match.primitives)


def in_dependency_order(rules: Sequence[pt.Rule]) -> list[pt.Rule]:
    """Every rule after the rules whose composites it reads."""
    waiting, ordered = list(rules), []
    while waiting:
        ready = [r for r in waiting if not any(other.emits in pt.types_of(r.pattern) for other in waiting)]
        assert ready, "the rules are cyclic"
        ordered += ready
        waiting = [r for r in waiting if r not in ready]
    return ordered


def matches_of(rule: pt.Rule, items: list[Item], functions: Any, remote: Mapping[str, Any]) -> Iterator[Found]:
    ordered = sorted(items, key=lambda item: item.own_key)
    if isinstance(rule.pattern.root, pt.Chain):
        chain = ChainEvaluator(rule.pattern, ordered, functions, remote)
        for binding, parameters in chain.matches():
            yield composite(rule, binding, Scope(binding, parameters, functions=functions, remote=remote))
    else:
        tree = TreeEvaluator(rule.pattern, ordered, functions, remote)
        for binding in tree.matches():
            yield composite(rule, binding, Scope(binding, functions=functions, remote=remote))


def shown(output: pt.OutputAttribute, scope: Scope) -> Any:
    computed = value(output.value, scope)
    return declared(output.kind, None if is_accepted(computed) else computed)


def composite(rule: pt.Rule, binding: Binding, scope: Scope) -> Found:
    """The composite event of one match: parts role by role in the order of the text, repeated ones in key order."""
    parts: list[tuple[str, Item]] = []
    for leaf in pt.positive_leaves(rule.pattern.root):
        bound = binding.get(leaf.role)
        if isinstance(bound, tuple):
            parts += [(leaf.role, item) for item in sorted(bound, key=lambda item: item.own_key)]
        elif bound is not None:
            parts.append((leaf.role, bound))
    identities = [[role, [*i.identity] if isinstance(i.identity, tuple) else i.identity] for role, i in parts]
    packed = msgpack.packb([rule.name, rule.version, identities])
    end = max(item.end for _, item in parts)
    return Found(
        rule=rule.name,
        version=rule.version,
        type=rule.emits,
        parts=tuple((role, item.identity) for role, item in parts),
        id=blake2b(packed, digest_size=16).hexdigest(),
        ts=end[0],
        start=min(item.start for _, item in parts),
        end=end,
        own_key=(*end, 1, rule.name, rule.version, tuple((role, item.own_key) for role, item in parts)),
        attributes={each.name: shown(each, scope) for each in rule.attributes},
        primitives=frozenset().union(*(item.primitives for _, item in parts)),
        binding=dict(binding),
    )


# ---------------------------------------------------------------------------------------------------------------------
# Expressions
# ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scope:
    """What the names in an expression stand for."""

    binding: Mapping[str, Any]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    iteration: int | None = None  # which element b, b[i] and (one earlier) b[i-1] mean
    everyone: Item | None = None  # what the role "" inside Same means
    functions: Any = None
    remote: Mapping[str, Any] = field(default_factory=dict)


def item_named(attribute: ex.Attribute, scope: Scope) -> Item | None:
    if attribute.role == "":
        return scope.everyone
    bound: Item | tuple[Item, ...] | None = scope.binding.get(attribute.role)
    if not isinstance(bound, tuple):
        return bound
    match attribute.index:
        case "first":
            return bound[0]
        case "last":
            return bound[-1]
        case "i-1":
            assert scope.iteration
            return bound[scope.iteration - 1]
        case _:
            assert scope.iteration is not None, f"{attribute} names no particular element"
            return bound[scope.iteration]


def attribute_of(item: Item | None, name: str) -> Any:
    if item is None:
        return None
    match name:
        case "ts":
            return item.end[0]
        case "node":
            return item.end[1]
        case "seq":
            return item.end[2]
        case "type":
            return item.type
        case _:
            return item.values.get(name)


class Accepted:
    """In place of a looked-up value that cannot be had: every comparison of it with a value is true."""


ACCEPTED = Accepted()


def is_accepted(*values: Any) -> bool:
    return any(value is ACCEPTED for value in values)


def value(expression: ex.Expression, scope: Scope) -> Any:
    """The value of an expression; None is "no value"."""
    match expression:
        case ex.Constant(constant):
            return constant
        case ex.Attribute(_, name):
            return attribute_of(item_named(expression, scope), name)
        case ex.Fold(function, role, name):
            bound = scope.binding.get(role)
            if bound is None:
                return None
            elements = bound if isinstance(bound, tuple) else (bound,)
            return aggregate(function, elements, name)
        case ex.Parameter(name):
            return scope.parameters[name]
        case ex.Call(name, arguments):
            function = functions_of(scope).get(name)
            values = [value(argument, scope) for argument in arguments]
            if None in values and not function.accepts_missing:
                return None
            return ACCEPTED if is_accepted(*values) else function.call(*values)
        case ex.Remote(table, arguments):
            values = [value(argument, scope) for argument in arguments]
            named = [item for argument in arguments for item in items_named(argument, scope)]
            if None in values or not named:
                return None
            if is_accepted(*values):
                return ACCEPTED
            return scope.remote[table].lookup(tuple(values), max(item.ts for item in named))
        case ex.Unary("-", operand):
            number = value(operand, scope)
            return number if number is None or is_accepted(number) else -number
        case ex.Unary("not", operand):
            return not value(operand, scope)
        case ex.Binary("and", left, right):
            return bool(value(left, scope)) and bool(value(right, scope))
        case ex.Binary("or", left, right):
            return bool(value(left, scope)) or bool(value(right, scope))
        case ex.Binary("in" | "not in" as operator, left, right):
            wanted = value(left, scope)
            if isinstance(right, ex.Items):
                choices = [value(item, scope) for item in right.items]
            else:
                choices = value(right, scope)
            if wanted is None or choices is None:
                return False
            if is_accepted(wanted, choices) or (isinstance(choices, list | tuple) and is_accepted(*choices)):
                return True
            return (wanted in choices) == (operator == "in")
        case ex.Binary(operator, left, right):
            a, b = value(left, scope), value(right, scope)
            if operator in ex.COMPARISONS:
                return a is not None and b is not None and (is_accepted(a, b) or COMPARE[operator](a, b))
            if a is None or b is None or (operator in ("/", "%") and b == 0):
                return None
            return ACCEPTED if is_accepted(a, b) else COMPUTE[operator](a, b)
        case _:
            raise AssertionError(f"no value: {expression!r}")


COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
COMPUTE: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "%": lambda a, b: a % b,
}


def functions_of(scope: Scope) -> Any:
    if scope.functions is not None:
        return scope.functions
    from headwater.protocol.functions import Functions

    return Functions()


def items_named(expression: ex.Expression, scope: Scope) -> list[Item]:
    """The events whose attributes an expression reads."""
    named: list[Item] = []
    for part in ex.walk(expression):
        if isinstance(part, ex.Attribute):
            item = item_named(part, scope)
            named += [item] if item is not None else []
        elif isinstance(part, ex.Fold):
            named += scope.binding.get(part.role) or ()
    return named


def aggregate(function: str, items: Iterable[Item], name: str | None) -> Any:
    """An aggregate ignores missing values; over nothing only count has a value."""
    items = list(items)
    if name is None:
        assert function == "count"
        return len(items)
    values = [v for v in (attribute_of(item, name) for item in items) if v is not None]
    if function == "count":
        return len(values)
    if not values:
        return None
    match function:
        case "min":
            return min(values)
        case "max":
            return max(values)
        case "sum":
            return exact_sum(values)
        case "avg":
            return exact_sum(values) / len(values)
    raise AssertionError(function)


def declared(kind: str, given: Any) -> Any:
    """An attribute declared as a float has floats only."""
    return float(given) if kind == "float" and isinstance(given, int) else given


def exact_sum(values: list[Any]) -> Any:
    return sum(values) if all(isinstance(v, int) for v in values) else math.fsum(values)


def holds(conjunct: ex.Expression, scope: Scope) -> bool:
    """Whether a conjunct allows this binding. It applies where all its roles are bound."""
    if isinstance(conjunct, ex.Same):
        keys = [value(conjunct.key, replace(scope, everyone=item)) for item in all_items(scope.binding)]
        return all(key is not None and key == keys[0] for key in keys)
    if any(role not in scope.binding for role in ex.roles_of(conjunct)):
        return True
    repeated = {role for role in element_roles(conjunct) if isinstance(scope.binding[role], tuple)}
    if not repeated:
        return bool(value(conjunct, scope))
    count = len(scope.binding[min(repeated)])
    first = 1 if looks_back(conjunct) else 0
    return all(value(conjunct, replace(scope, iteration=i)) for i in range(first, count))


def element_roles(conjunct: ex.Expression) -> set[str]:
    """The roles whose elements a conjunct names as b or b[i-1]."""
    return {part.role for part in ex.walk(conjunct) if isinstance(part, ex.Attribute) and part.index in ("", "i-1")}


def looks_back(conjunct: ex.Expression) -> bool:
    return any(isinstance(part, ex.Attribute) and part.index == "i-1" for part in ex.walk(conjunct))


def needs_finished(conjunct: ex.Expression) -> set[str]:
    """The repeated roles of which a conjunct names a fold, [first] or [last]."""
    return {
        part.role
        for part in ex.walk(conjunct)
        if isinstance(part, ex.Fold) or (isinstance(part, ex.Attribute) and part.index in ("first", "last"))
    }


def all_items(binding: Mapping[str, Any]) -> list[Item]:
    return [item for bound in binding.values() for item in (bound if isinstance(bound, tuple) else (bound,))]


# ---------------------------------------------------------------------------------------------------------------------
# Operator trees
# ---------------------------------------------------------------------------------------------------------------------


def items_in(part: pt.Part, binding: Binding) -> list[Item]:
    """The events bound to the positive roles of a part of the pattern."""
    return all_items({leaf.role: binding[leaf.role] for leaf in pt.positive_leaves(part) if leaf.role in binding})


def start_of(part: pt.Part, binding: Binding) -> Key:
    return min(item.start for item in items_in(part, binding))


def end_of(part: pt.Part, binding: Binding) -> Key:
    return max(item.end for item in items_in(part, binding))


def flattened(part: Any) -> Any:
    """A SEQ directly inside a SEQ and without a window of its own is the same as its parts written in its place."""
    if not isinstance(part, pt.Sequence | pt.Conjunction | pt.Disjunction):
        return part
    parts: list[pt.Part] = []
    for inner in map(flattened, part.parts):
        parts += inner.parts if dissolves(inner, part) else (inner,)
    return replace(part, parts=tuple(parts))


def dissolves(inner: Any, outer: Any) -> bool:
    return isinstance(inner, pt.Sequence) and inner.window is None and isinstance(outer, pt.Sequence)


def bound_parts(operator: Any, binding: Binding) -> list[pt.Part]:
    """The direct positive parts of an operator that have any event bound; in place of an OR, the branch it took."""
    found: list[pt.Part] = []
    for part in operator.parts:
        if isinstance(part, pt.Negation) or not items_in(part, binding):
            continue
        while isinstance(part, pt.Disjunction):
            part = next(branch for branch in part.parts if items_in(branch, binding))
        found += bound_parts(part, binding) if dissolves(part, operator) else [part]
    return found


def operators(part: pt.Part) -> Iterator[Any]:
    """All positive operators of a tree, outermost first."""
    if isinstance(part, pt.Sequence | pt.Conjunction | pt.Disjunction):
        yield part
        for inner in part.parts:
            yield from operators(inner)
    elif isinstance(part, pt.Repetition):
        yield part


def in_order(root: pt.Part, binding: Binding) -> bool:
    """Whether the events bound so far keep the order that sequences and repetitions demand."""
    return all(operator_in_order(operator, binding) for operator in operators(root))


def operator_in_order(operator: Any, binding: Binding) -> bool:
    if isinstance(operator, pt.Sequence):
        parts = bound_parts(operator, binding)
        return all(end_of(a, binding) < start_of(b, binding) for a, b in pairwise(parts))
    if isinstance(operator, pt.Repetition) and operator.parts[0].role in binding:
        iterations = zip(*(binding[leaf.role] for leaf in operator.parts), strict=True)
        row = [item for iteration in iterations for item in iteration]
        return all(a.end < b.start for a, b in pairwise(row))
    return True


def spans_of_ends(operator: Any, binding: Binding) -> list[int]:
    """The end ts of each direct part; every element of a repetition standing directly in the operator is one."""
    ends: list[int] = []
    for part in bound_parts(operator, binding):
        if isinstance(part, pt.Repetition):
            ends += [item.ts for item in items_in(part, binding)]
        else:
            ends.append(end_of(part, binding)[0])
    return ends


def only_grows(window: pt.Window | None) -> bool:
    """Whether what the window bounds only grows as parts are added (the end of an inner operator may move)."""
    return window is not None and (window.unit == "events" or window.bounds == "span")


def choices_of_branches(part: pt.Part) -> list[tuple[pt.Leaf | pt.Repetition, ...]]:
    """What must be bound, in text order, for each way of choosing the branches of the ORs."""
    match part:
        case pt.Leaf() | pt.Repetition():
            return [(part,)]
        case pt.Negation():
            return [()]
        case pt.Disjunction(parts):
            return [choice for branch in parts for choice in choices_of_branches(branch)]
        case _:
            combined = product(*(choices_of_branches(inner) for inner in part.parts))
            return [tuple(slot for slots in combination for slot in slots) for combination in combined]


def branches_of(part: pt.Part) -> Iterator[pt.Part]:
    """Each branch of an OR stands for itself."""
    if isinstance(part, pt.Disjunction):
        for branch in part.parts:
            yield from branches_of(branch)
    else:
        yield part


class TreeEvaluator:
    """All matches of one operator tree over one trace."""

    def __init__(self, pattern: pt.Pattern, items: list[Item], functions: Any, remote: Mapping[str, Any]) -> None:
        self.pattern = pattern
        self.root: Any = flattened(pattern.root)
        self.items = items  # in own-key order
        self.steps = 0
        own_types = pt.types_of(pattern)
        numbered = [item for item in items if item.type in own_types]
        self.number = {item.identity: i for i, item in enumerate(numbered)}
        self.by_type = {name: [item for item in numbered if item.type == name] for name in own_types}
        self.functions = functions
        self.remote = remote
        positive = {leaf.role for leaf in pt.positive_leaves(self.root)}
        self.same = [c for c in pattern.where if isinstance(c, ex.Same)]
        self.positive_conjuncts = [c for c in pattern.where if ex.roles_of(c) <= positive]  # Same included
        self.negated_conjuncts = [c for c in pattern.where if not ex.roles_of(c) <= positive]

    def holds(self, conjunct: ex.Expression, binding: Binding) -> bool:
        return holds(conjunct, Scope(binding, functions=self.functions, remote=self.remote))

    def matches(self) -> Iterator[Binding]:
        candidates = self.next_runs() if self.pattern.skip == "next" else self.any_bindings()
        for binding in candidates:
            if self.within_limits(binding) and not self.forbidden(binding):
                yield binding

    # -- skip till any match: every combination ------------------------------------------------------------------------

    def any_bindings(self) -> Iterator[Binding]:
        return self.bindings(self.root, getattr(self.root, "window", None), self.positive_conjuncts, {})

    def bindings(
        self, root: pt.Part, window: pt.Window | None, conjuncts: list[ex.Expression], given: Binding
    ) -> Iterator[Binding]:
        """Every way to bind the roles of ``root`` so that order, windows and conjuncts hold beside what is given."""
        for slots in choices_of_branches(root):
            yield from self.bind(slots, root, window, conjuncts, given, {})

    def bind(
        self,
        slots: tuple[pt.Leaf | pt.Repetition, ...],
        root: pt.Part,
        window: pt.Window | None,
        conjuncts: list[ex.Expression],
        given: Binding,
        chosen: Binding,
    ) -> Iterator[Binding]:
        if not slots:
            # Everything is bound: judge it all at once.
            whole = given | chosen
            if self.within_windows(root, window, chosen) and all(self.holds(c, whole) for c in conjuncts):
                yield chosen
            return
        slot, *rest = slots
        for binding in self.fill(slot, chosen):
            self.steps += 1
            if self.steps > STEPS_MAX:
                raise TooManyMatches(f"more than {STEPS_MAX} combinations to try")
            # These only cut short what the judgement above would refuse whatever else is bound: more parts never undo a
            # wrong order, a false conjunct, or too wide a span.
            distinct = len({item.identity for item in all_items(binding)}) == len(all_items(binding))
            whole = given | binding
            near = not only_grows(window) or self.within(root, window, binding)
            if distinct and near and in_order(root, binding) and all(self.holds(c, whole) for c in conjuncts):
                yield from self.bind(tuple(rest), root, window, conjuncts, given, binding)

    def fill(self, slot: pt.Leaf | pt.Repetition, binding: Binding) -> Iterator[Binding]:
        """Every way to bind one leaf, or one repetition as a whole."""
        if isinstance(slot, pt.Leaf):
            for item in self.by_type[slot.type]:
                yield binding | {slot.role: item}
            return
        for row in self.repetitions(slot, ()):
            width = len(slot.parts)
            yield binding | {leaf.role: row[i::width] for i, leaf in enumerate(slot.parts)}

    def repetitions(self, slot: pt.Repetition, row: tuple[Item, ...]) -> Iterator[tuple[Item, ...]]:
        """Every non-empty run of whole groups, each event's end before the next one's start."""
        if row and len(row) % len(slot.parts) == 0:
            yield row
        for item in self.by_type[slot.parts[len(row) % len(slot.parts)].type]:
            if not row or row[-1].end < item.start:
                yield from self.repetitions(slot, (*row, item))

    # -- windows -------------------------------------------------------------------------------------------------------

    def within_windows(self, root: pt.Part, window: pt.Window | None, binding: Binding) -> bool:
        """``window`` is the root's own, or the one a negated sub-pattern takes from its surroundings."""
        inner = [op for op in operators(root) if op is not root and getattr(op, "window", None)]
        return self.within(root, window, binding) and all(self.within(op, op.window, binding) for op in inner)

    def within(self, operator: Any, window: pt.Window | None, binding: Binding) -> bool:
        items = items_in(operator, binding)
        if window is None or not items or isinstance(operator, pt.Leaf):  # a single event counts by its end alone
            return True
        if window.unit == "events":
            numbers = [self.number[item.identity] for item in items]
            return max(numbers) - min(numbers) <= window.length - 1
        if window.bounds == "span":
            return max(i.end for i in items)[0] - min(i.start for i in items)[0] <= window.length
        ends = spans_of_ends(operator, binding)
        return max(ends) - min(ends) <= window.length

    # -- limits --------------------------------------------------------------------------------------------------------

    def within_limits(self, binding: Binding) -> bool:
        """No repetition with a limit has more candidates than that beside the other parts of this match."""
        for slot in operators(self.root):
            if isinstance(slot, pt.Repetition) and slot.limit is not None and slot.parts[0].role in binding:
                others = {role: bound for role, bound in binding.items() if role != slot.parts[0].role}
                if sum(self.is_candidate(slot.parts[0], item, others) for item in self.items) > slot.limit:
                    return False
        return True

    def is_candidate(self, leaf: pt.Leaf, item: Item, others: Binding) -> bool:
        """Could the event, as the only element, stand between the neighbours and meet the element's own conjuncts?"""
        if item.type != leaf.type or item in all_items(others):
            return False
        tried = others | {leaf.role: (item,)}
        own = [c for c in self.positive_conjuncts if ex.roles_of(c) == {leaf.role}]
        own = [c for c in own if not needs_finished(c) and not looks_back(c)]
        return (
            in_order(self.root, tried)
            and self.within_windows(self.root, self.root.window, tried)
            and all(self.holds(c, tried) for c in own)
        )

    # -- negation ------------------------------------------------------------------------------------------------------

    def forbidden(self, binding: Binding) -> bool:
        return self.forbidden_in(self.root, self.root, binding)

    def forbidden_in(self, part: Any, owner: Any, binding: Binding) -> bool:
        """Whether a negation anywhere inside ``part`` forbids the match; ``owner`` owns the nearest window outside."""
        if not isinstance(part, pt.Sequence | pt.Conjunction | pt.Disjunction) or not items_in(part, binding):
            return False
        if getattr(part, "window", None) is not None:
            owner = part
        for position, inner in enumerate(part.parts):
            if isinstance(inner, pt.Negation):
                if self.negated(inner, part, position, owner, binding):
                    return True
            elif self.forbidden_in(inner, owner, binding):
                return True
        return False

    def negated(self, negation: pt.Negation, operator: Any, position: int, owner: Any, binding: Binding) -> bool:
        """Whether something forbids the match at this negation, which is part number ``position`` of the operator."""
        parts = all_items(binding)
        negated_roles = {leaf.role for leaf in pt.leaves(negation)}
        conjuncts = [c for c in self.negated_conjuncts if ex.roles_of(c) & negated_roles] + self.same
        return any(
            self.in_range(all_items(found), operator, position, owner, binding)
            for branch in branches_of(negation.part)
            for found in self.bindings(branch, self.window_of_negated(branch, owner), conjuncts, binding)
            if not any(item in parts for item in all_items(found))
        )

    @staticmethod
    def window_of_negated(part: pt.Part, owner: Any) -> pt.Window | None:
        """A negated operator takes the owner's window if it has none; a single event needs none."""
        if isinstance(part, pt.Leaf):
            return None
        window: pt.Window = getattr(part, "window", None) or owner.window
        return window

    def in_range(self, found: list[Item], operator: Any, position: int, owner: Any, binding: Binding) -> bool:
        """Whether what was found ends in the range of the negation at this position."""
        end = max(item.end for item in found)
        inside = items_in(owner, binding)
        window: pt.Window = owner.window
        if window.unit == "events":
            reach = window.length - 1
            at = max(self.number[item.identity] for item in found)
            least = min(self.number[item.identity] for item in inside)
            greatest = max(self.number[item.identity] for item in inside)
        else:
            reach = window.length
            at = end[0]
            least = min(item.start for item in inside)[0]
            greatest = max(item.end for item in inside)[0]
        if isinstance(operator, pt.Conjunction):
            return greatest - reach <= at <= least + reach
        left = [p for p in operator.parts[:position] if not isinstance(p, pt.Negation)]
        right = [p for p in operator.parts[position:] if not isinstance(p, pt.Negation)]
        if left and right:
            return end_of(left[-1], binding) < end < start_of(right[0], binding)
        if right:
            return greatest - reach <= at and end < start_of(right[0], binding)
        return end_of(left[-1], binding) < end and at <= least + reach

    # -- skip till next match ------------------------------------------------------------------------------------------

    def next_runs(self) -> Iterator[Binding]:
        for position, item in enumerate(self.items):
            for slot, rest in openings((self.root,)):
                binding = self.take(slot, item, {})
                if binding is not None and self.unbroken(binding):
                    yield from self.go_on(binding, slot, rest, position)

    def go_on(self, binding: Binding, taken: Any, rest: tuple[pt.Part, ...], position: int) -> Iterator[Binding]:
        """The finished runs that follow when ``taken`` has just bound the event at ``position``."""
        wanted = openings(rest)
        repeating = taken if isinstance(taken, pt.Repetition) else None
        if not wanted and repeating is None:
            yield binding
            return
        for later, item in enumerate(self.items[position + 1 :], position + 1):
            if item.start <= max(i.end for i in all_items(binding)):
                continue
            tried = [(slot, after, self.take(slot, item, binding)) for slot, after in wanted]
            fitting = [(slot, after, bound) for slot, after, bound in tried if bound is not None]
            if fitting:
                for slot, after, bound in fitting:
                    if self.unbroken(bound):
                        yield from self.go_on(bound, slot, after, later)
                return
            if repeating is not None:
                longer = self.take(repeating, item, binding)
                if longer is not None and self.unbroken(longer):
                    binding = longer
        if not wanted and all(self.holds(c, binding) for c in self.positive_conjuncts):
            yield binding

    def take(self, slot: pt.Leaf | pt.Repetition, item: Item, binding: Binding) -> Binding | None:
        """The binding with the event in the slot, if every conjunct holds whose roles are then all bound.

        What needs the finished repetition is left to the event that ends it.
        """
        leaf = slot.parts[0] if isinstance(slot, pt.Repetition) else slot
        if item.type != leaf.type:
            return None
        repeated = isinstance(slot, pt.Repetition)
        bound = binding | {leaf.role: (*binding.get(leaf.role, ()), item) if repeated else item}
        judged = [c for c in self.positive_conjuncts if not (repeated and leaf.role in needs_finished(c))]
        return bound if all(self.holds(c, bound) for c in judged) else None

    def unbroken(self, binding: Binding) -> bool:
        return self.within_windows(self.root, self.root.window, binding)


def openings(parts: tuple[pt.Part, ...]) -> list[tuple[Any, tuple[pt.Part, ...]]]:
    """What a run may take next when these parts are still to come, each with what is to come after it."""
    if not parts:
        return []
    first, rest = parts[0], parts[1:]
    match first:
        case pt.Negation():
            return openings(rest)
        case pt.Sequence(inner):
            return openings((*inner, *rest))
        case pt.Disjunction(branches):
            return [opening for branch in branches for opening in openings((branch, *rest))]
        case _:
            return [(first, rest)]


# ---------------------------------------------------------------------------------------------------------------------
# Chains
# ---------------------------------------------------------------------------------------------------------------------


class ChainEvaluator:
    """All matches of one TESLA pattern over one trace."""

    def __init__(self, pattern: pt.Pattern, items: list[Item], functions: Any, remote: Mapping[str, Any]) -> None:
        assert isinstance(pattern.root, pt.Chain)
        self.chain = pattern.root
        self.items = items
        self.functions = functions
        self.remote = remote
        order: dict[str, int] = {self.chain.anchor.role: 0}
        for number, step in enumerate(self.chain.steps, 1):
            order[step.leaf.role] = number
            if isinstance(step, pt.Aggregate):
                order["$" + step.name] = number
        self.conjuncts_at: dict[int, list[ex.Expression]] = {}
        for conjunct in pattern.where:
            names = [*ex.roles_of(conjunct), *("$" + p for p in ex.parameters_of(conjunct))]
            self.conjuncts_at.setdefault(max((order[name] for name in names), default=0), []).append(conjunct)

    def matches(self) -> Iterator[tuple[Binding, dict[str, Any]]]:
        for item in self.satisfying(self.chain.anchor, 0, {}, {}):
            yield from self.steps_from(1, {self.chain.anchor.role: item}, {})

    def steps_from(self, number: int, binding: Binding, parameters: dict[str, Any]) -> Iterator[Any]:
        if number > len(self.chain.steps):
            if not self.forbidden(binding, parameters):
                yield binding, parameters
            return
        step = self.chain.steps[number - 1]
        match step:
            case pt.Selection(leaf, policy, within, count):
                candidates = [
                    item
                    for item in self.satisfying(leaf, number, binding, parameters)
                    if in_chain_range(item, within, binding) and item not in binding.values()
                ]
                chosen = {"each": candidates, "last": candidates[-count:], "first": candidates[:count]}[policy]
                for item in chosen:
                    yield from self.steps_from(number + 1, binding | {leaf.role: item}, parameters)
            case pt.Absence():
                # Parts that later steps choose do not count, so this is judged when the match is whole.
                yield from self.steps_from(number + 1, binding, parameters)
            case pt.Aggregate(name, function, leaf, attribute, where):
                seen = [
                    item
                    for item in self.satisfying(leaf, number, binding, parameters)
                    if in_chain_range(item, where, binding)
                ]
                known = parameters | {name: aggregate(function, seen, attribute)}
                conditions = [c for c in self.conjuncts_at.get(number, []) if name in ex.parameters_of(c)]
                if all(self.holds(c, binding, known) for c in conditions):
                    yield from self.steps_from(number + 1, binding, known)

    def satisfying(self, leaf: pt.Leaf, number: int, binding: Binding, parameters: dict[str, Any]) -> list[Item]:
        """The events, in own-key order, that meet the conjuncts whose last-introduced role is this leaf's."""
        conjuncts = self.conjuncts_at.get(number, [])
        if number and isinstance(step := self.chain.steps[number - 1], pt.Aggregate):
            conjuncts = [c for c in conjuncts if step.name not in ex.parameters_of(c)]
        return [
            item
            for item in self.items
            if item.type == leaf.type and all(self.holds(c, binding | {leaf.role: item}, parameters) for c in conjuncts)
        ]

    def forbidden(self, binding: Binding, parameters: dict[str, Any]) -> bool:
        parts = list(binding.values())
        return any(
            in_chain_range(item, step.range, binding) and item not in parts
            for number, step in enumerate(self.chain.steps, 1)
            if isinstance(step, pt.Absence)
            for item in self.satisfying(step.leaf, number, binding, parameters)
        )

    def holds(self, conjunct: ex.Expression, binding: Binding, parameters: dict[str, Any]) -> bool:
        return holds(conjunct, Scope(binding, parameters, functions=self.functions, remote=self.remote))


def in_chain_range(item: Item, where: pt.Within | pt.Between, binding: Binding) -> bool:
    if isinstance(where, pt.Within):
        origin: Item = binding[where.origin]
        return item.end < origin.end and origin.ts - item.ts <= where.length_us
    ends = sorted([binding[where.one].end, binding[where.other].end])
    return bool(ends[0] < item.end < ends[1])
