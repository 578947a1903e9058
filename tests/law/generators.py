"""Random valid rules and traces, over every operator and policy, from a seed.

Types are few, timestamps tie, windows are small and equality joins likely to succeed, so that about half of the cases
have matches. ``Case.features`` says what a case exercises.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Any, Literal

from headwater.protocol.events import Event, EventType
from headwater.protocol.expressions import (
    FOLDS,
    Attribute,
    Binary,
    Call,
    Constant,
    Expression,
    Fold,
    Items,
    Parameter,
    Remote,
    Same,
    Unary,
)
from headwater.protocol.pattern import (
    Absence,
    Aggregate,
    Between,
    Chain,
    Conjunction,
    Disjunction,
    Leaf,
    Negation,
    OutputAttribute,
    Part,
    Pattern,
    Repetition,
    Rule,
    Selection,
    Step,
    Window,
    Within,
    leaves,
)
from headwater.protocol.pattern import Sequence as Seq
from tests.law.equal_values import EqualValues, Named, alike, chance_of_seed, drawn, values_alike
from tests.law.shapes import has_lonely_limit, named_roles, note_operator, without_limits

POLICIES: Sequence[Literal["each", "last", "first"]] = ("each", "each", "last", "last", "first")

FULL = {"id": "int", "v": "int", "w": "float?", "s": "string", "f": "bool?", "g": "bool?"}

TYPES: Mapping[str, EventType] = {
    "A": EventType("A", FULL),
    "B": EventType("B", FULL),
    "C": EventType("C", FULL),
    "D": EventType("D", {"v": "int", "id": "int"}),
}
"""D declares its attributes in another order and lacks most of them."""

NODES = ("n2", "n10", "é", "z")  # n10 < n2 < z < é as UTF-8 bytes
FLOATS = (0.0, 0.1, 0.2, 0.3, 1.5, 2.25, 7.0)
STRINGS = ("x", "y", "xy")
COMPOSITE_ATTRIBUTES = ("id", "v")


@dataclass(frozen=True)
class Case:
    """Rules and a trace to evaluate them on, in trace order."""

    rules: tuple[Rule, ...]
    events: tuple[Event, ...]
    types: tuple[EventType, ...] = tuple(TYPES.values())
    features: frozenset[str] = field(default=frozenset(), compare=False)
    seed: int | None = None
    remote: Mapping[str, Any] = field(default_factory=dict)


class Table:
    """A remote table whose versions change with event time: what it finds depends on the ts it is asked for."""

    def lookup(self, arguments: tuple[Any, ...], ts: int) -> Any:
        (key,) = arguments
        if key == 0:
            return None
        return int(key) + ts // 4

    def __repr__(self) -> str:
        return "Table()"


class Sets:
    """A remote table of collections, for ``in``."""

    def lookup(self, arguments: tuple[Any, ...], ts: int) -> tuple[int, ...] | None:
        (key,) = arguments
        if key == 2:
            return None
        return (int(key), int(key) + 1, ts % 5)

    def __repr__(self) -> str:
        return "Sets()"


HAS_FUNCTIONS = find_spec("headwater.protocol.functions") is not None
REMOTE = {"table": Table(), "sets": Sets()}


def case_of_seed(seed: int, size: int = 12) -> Case:
    """The case of an integer seed, always the same."""
    return replace(random_case(random.Random(f"case {seed}"), size, chance_of_seed(seed)), seed=seed)


def random_case(rng: random.Random, size: int = 12, equal: random.Random | None = None) -> Case:
    """A case of one to three rules and at most ``size`` events or a few more. ``equal`` draws classes of equal values,
    one for each rule."""
    features: set[str] = set()
    rules: list[Rule] = []
    count = rng.choices((1, 2, 3), (70, 20, 10))[0]
    for number in range(1, count + 1):
        last = number == count
        made = RuleMaker(rng, f"r{number}", rules, features, drawn(equal, features)).make(last)
        rules.append(made)
    if count > 1:
        features.add("several rules")
    rng.shuffle(rules)
    read = {leaf.type for rule in rules for leaf in leaves(rule.pattern.root)}
    events = random_trace(rng, sorted(read & set(TYPES)), size, features)
    return Case(tuple(rules), events, features=frozenset(features), remote=REMOTE)


def random_trace(rng: random.Random, used: Sequence[str], size: int, features: set[str]) -> tuple[Event, ...]:
    count = rng.randint(max(1, size // 3), size + 2)
    span = rng.choice((3, 8, 12, 20))
    nodes = rng.sample(NODES, rng.randint(1, len(NODES)))
    wanted = list(used) * 4 + list(TYPES)
    stamps = sorted(rng.randint(0, span) for _ in range(count))
    rows = [(ts, rng.choice(nodes), TYPES[rng.choice(wanted)]) for ts in stamps]
    numbers: dict[str, list[int]] = {node: list(range(sum(row[1] == node for row in rows))) for node in nodes}
    if rng.random() < 0.2:
        features.add("trace: seq not in order of ts")
        for sequence in numbers.values():
            rng.shuffle(sequence)
    values = values_of(features)
    events = [Event(kind, ts, node, numbers[node].pop(0), values(rng, kind)) for ts, node, kind in rows]
    return tuple(sorted(events, key=lambda event: event.key))


def values_of(features: Collection[str]) -> Callable[[random.Random, EventType], dict[str, Any]]:
    """What draws the values of events for rules with these features."""
    return values_alike if alike(features) else random_values


def random_values(rng: random.Random, kind: EventType) -> dict[str, Any]:
    values: dict[str, Any] = {"id": rng.choice((0, 0, 1, 2)), "v": rng.randint(0, 9)}
    if kind.position("s"):
        values["s"] = rng.choice(STRINGS)
        if rng.random() < 0.6:
            values["w"] = rng.choice(FLOATS)
    return values


def comparison(rng: random.Random) -> str:
    return rng.choice(("<", "<=", ">", ">=", "!=", "<=", ">="))


class RuleMaker:
    """Makes one rule that may read the composites of the rules before it."""

    def __init__(
        self,
        rng: random.Random,
        name: str,
        before: Sequence[Rule],
        features: set[str],
        equal: EqualValues | None = None,
    ) -> None:
        self.rng = rng
        self.name = name
        self.unique = f"Z{len(before)}"
        self.features = features
        self.emitted = sorted({rule.emits for rule in before})
        self.pool = rng.sample(sorted(TYPES), rng.choice((2, 3, 3, 4)))
        self.names: dict[str, int] = {}
        self.repetitions = 0
        self.next = False
        self.spans = True  # the outermost window bounds how far back a match reaches
        self.parameters: list[str] = []
        self.equal = equal

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    # -- rules ---------------------------------------------------------------------------------------------------------

    def make(self, last: bool) -> Rule:
        pattern = self.chain() if self.chance(0.4) else self.tree()
        emits = self.rng.choice(("X", "Y")) if not last or self.chance(0.3) else self.unique
        reads = {leaf.type for leaf in leaves(pattern.root)}
        if emits in reads or (emits in self.emitted and reads & set(self.emitted)):
            emits = (
                self.unique
            )  # keeps the rules free of cycles: a rule that reads composites emits what none before emits
        if emits in self.emitted:
            self.features.add("rules: several emit one type")
        return Rule(
            self.name,
            pattern,
            emits,
            self.outputs(pattern, last and emits == self.unique),
            version=self.rng.choice((1, 1, 2)),
        )

    def fresh(self, kind: str) -> str:
        number = self.names[kind] = self.names.get(kind, 0) + 1
        return kind.lower() + (str(number) if number > 1 else "")

    def leaf(self, where: str = "") -> Leaf:
        if self.emitted and self.chance(0.4):
            kind = self.rng.choice(self.emitted)
            self.features.add(f"composite read{where}")
        else:
            kind = self.rng.choice(self.pool)
        if kind in self.names:
            self.features.add("same type twice")
        return Leaf(self.fresh(kind), kind)

    def outputs(self, pattern: Pattern, free: bool) -> tuple[OutputAttribute, ...]:
        """Types that others may read have id and v; others have what comes."""
        named = [role for role in named_roles(pattern.root) if role.negation is None]
        if not free:
            return (
                OutputAttribute("id", "int", self.output(named, "id")),
                OutputAttribute("v", "int", self.output(named, "v")),
            )
        made = [OutputAttribute(f"o{i}", "int", self.output(named, "v")) for i in range(self.rng.randint(0, 2))]
        if self.chance(0.2):
            role = self.rng.choice(named)
            index: Literal["", "first", "last"] = "last" if role.repetition is not None else ""
            ratio = Binary("/", Attribute(role.role, "v", index), Constant(self.rng.randint(0, 2)))
            made.append(OutputAttribute("ratio", "float", ratio))
            self.features.add("output: division")
        if self.chance(0.2):
            role = self.rng.choice(named)
            if role.repetition is not None and role.full:
                made.append(OutputAttribute("mean", "float", Fold("avg", role.role, "w")))
            elif role.full:
                made.append(OutputAttribute("w", "float", Attribute(role.role, "w")))
        if self.chance(0.15) and pattern.skip:
            role = self.rng.choice(named)
            index = "first" if role.repetition is not None else ""
            made.append(OutputAttribute("where", "string", Attribute(role.role, "node", index)))
        return tuple(made)

    def output(self, named: list[Named], name: str) -> Expression:
        """An integer expression over positive roles and parameters."""
        role = self.rng.choice(named)
        if role.in_or:
            self.features.add("output: role of an OR")
        if role.repetition is not None:
            self.features.add("output: of a repetition")
            if self.chance(0.5):
                return Fold(self.rng.choice(("sum", "min", "max", "count")), role.role, name)
            return Attribute(role.role, name, self.rng.choice(("first", "last")))
        here = Attribute(role.role, name)
        if self.parameters and name == "v" and self.chance(0.4):
            self.features.add("output: parameter")
            return Parameter(self.rng.choice(self.parameters))
        if name == "v" and self.chance(0.3):
            return Binary(self.rng.choice("+-*"), here, self.rng.choice((Constant(2), Attribute(role.role, "ts"))))
        if self.chance(0.1):
            return Constant(1)
        return here

    # -- trees ---------------------------------------------------------------------------------------------------------

    def tree(self) -> Pattern:
        self.next = self.chance(0.3)
        window = self.outer_window()
        self.spans = window.unit == "events" or window.bounds == "span"
        count = self.rng.choices((1, 2, 3, 4), (12, 38, 35, 15))[0]
        if self.next or self.chance(0.75):
            root: Part = Seq(self.parts(count, 0, "seq", window, False), window)
            self.features.add("tree: SEQ")
        else:
            root = Conjunction(self.parts(count, 0, "and", window, False), window)
            self.features.add("tree: AND")
        if self.next:
            self.features.add("skip till next")
        if has_lonely_limit(root):
            root = without_limits(root)
        where = self.conjuncts(named_roles(root))
        pattern = Pattern(root, tuple(where), "next" if self.next else "any")
        self.note_tree(pattern)
        return pattern

    def outer_window(self) -> Window:
        kind = self.rng.choices(("span", "ends", "events"), (60, 22, 18))[0]
        self.features.add(f"window: {kind}")
        if kind == "events":
            return Window(self.rng.randint(2, 9), "events")
        return Window(self.rng.choice((0, 1, 2, 3, 4, 5, 6, 8, 10)), "us", "span" if kind == "span" else "ends")

    def unbounded(self, owner: Window) -> bool:
        """Whether to give an operator a window because it would reach back without end: mostly, but not always."""
        return owner.unit == "us" and owner.bounds == "ends" and not self.spans and self.chance(0.8)

    def inner_window(self) -> Window:
        self.features.add("window: inner")
        return Window(self.rng.choice((0, 1, 2, 3, 4, 6)), "us", "ends")

    def parts(self, count: int, depth: int, inside: str, owner: Window, in_or: bool) -> tuple[Part, ...]:
        """``count`` positive parts of an operator, and negations among them."""
        made: list[Part] = [self.part(depth, inside, owner, in_or) for _ in range(count)]
        if not in_or:
            for _ in range(self.rng.choices((0, 1, 2), (60, 32, 8))[0]):
                made.insert(self.rng.randint(0, len(made)), self.negation(owner))
        return tuple(made)

    def part(self, depth: int, inside: str, owner: Window, in_or: bool) -> Part:
        weights = {"leaf": 60, "repeat": 14, "group": 4, "sequence": 7, "both": 7, "either": 9}
        if self.repetitions >= 2:
            del weights["repeat"], weights["group"]
        if self.next:
            del weights["both"]
            weights.pop("group", None)
        if depth >= 2:
            for nested in ("sequence", "both", "either"):
                weights.pop(nested, None)
        kind = self.rng.choices(list(weights), list(weights.values()))[0]
        if kind == "repeat":
            self.repetitions += 1
            limit = self.rng.randint(1, 4) if self.chance(0.2) and not self.next else None
            return Repetition((self.leaf(" in a repetition"),), limit)
        if kind == "group":
            self.repetitions += 2
            return Repetition((self.leaf(), self.leaf()))
        if kind == "sequence":
            window = self.inner_window() if inside == "seq" or self.chance(0.5) or self.unbounded(owner) else None
            count = self.rng.choice((1, 2, 2))
            return Seq(self.parts(count, depth + 1, "seq", window or owner, in_or), window)
        if kind == "both":
            window = self.inner_window() if self.chance(0.4) or self.unbounded(owner) else None
            return Conjunction(self.parts(self.rng.choice((1, 2, 2)), depth + 1, "and", window or owner, in_or), window)
        if kind == "either":
            branches = [self.part(depth + 1, "or", owner, True) for _ in range(self.rng.choice((2, 2, 3)))]
            return Disjunction(tuple(branches))
        return self.leaf()

    def negation(self, owner: Window) -> Negation:
        if self.chance(0.7):
            return Negation(self.leaf(" negated"))
        self.features.add("negation: of a sub-pattern")
        window = self.inner_window() if self.chance(0.4) else None
        kind = self.rng.choice(("seq", "or") if self.next else ("seq", "and", "or"))
        self.features.add(f"negation: of {kind.upper()}")
        if kind == "seq":
            second: Part = self.leaf()
            if self.chance(0.15):
                second = Disjunction((second, self.leaf()))
            return Negation(Seq((self.leaf(), second), window))
        if kind == "and":
            return Negation(Conjunction((self.leaf(), self.leaf()), window))
        first: Part = self.leaf()
        if self.chance(0.2) and not self.next:
            first = Seq((first, self.leaf()), self.inner_window() if self.unbounded(owner) else None)
        return Negation(Disjunction((first, self.leaf())))

    def note_tree(self, pattern: Pattern) -> None:
        note_operator(pattern.root, self.features, pattern.skip == "next")

    # -- conjuncts of trees --------------------------------------------------------------------------------------------

    def conjuncts(self, named: list[Named]) -> list[Expression]:
        count = self.rng.choices((0, 1, 2, 3), (20, 40, 28, 12))[0]
        made: list[Expression] = []
        if len(named) > 1 and self.chance(0.12):
            key: Expression = Attribute("", "id")
            if self.chance(0.3):
                key = Binary("%", key, Constant(2))
            if all(role.full for role in named) and self.chance(0.15):
                key = Attribute("", "w")
                self.features.add("where: SAME of an optional attribute")
            made.append(Same(key))
            self.features.add("where: SAME")
        if self.equal is not None:
            equalities = self.equal.among(named)
            made += equalities
            if equalities and self.chance(0.25):
                self.equal.note("beside SAME")
                made.append(Same(Attribute("", self.rng.choice(("id", "v")))))
            count = min(count, 1)
        for _ in range(count):
            made.append(self.conjunct(named))
        for repetition in {role.repetition for role in named if role.repetition is not None}:
            if self.chance(0.4):
                made.append(self.about_repetition([r for r in named if r.repetition == repetition], named))
        return made

    def conjunct(self, named: list[Named]) -> Expression:
        """Over one or two roles that may meet: of at most one negation and at most one repetition's elements."""
        one = self.rng.choice(named)
        others = [
            role
            for role in named
            if role.role != one.role
            and (role.negation is None or one.negation is None or role.negation == one.negation)
        ]
        if one.negation is not None:
            self.features.add("where: negated role")
        if not others or self.chance(0.35):
            return self.about_one(one)
        return self.about_two(one, self.rng.choice(others))

    def about_one(self, one: Named) -> Expression:
        def of(name: str) -> Attribute:
            return Attribute(one.role, name)

        known = of("id") if one.type in TYPES else Constant(3)  # a composite may lack its id
        choices: list[Callable[[], Expression]] = [
            lambda: Binary(comparison(self.rng), of("v"), Constant(self.rng.randint(0, 9))),
            lambda: Binary(self.rng.choice((">=", "<=")), of("v"), Constant(self.rng.randint(3, 6))),
            lambda: Binary("in", of("id"), Items((Constant(0), Constant(1)))),
            lambda: Binary("not in", of("v"), Items((Constant(1), Constant(2), known))),
            lambda: Binary("=", Binary("%", of("v"), Constant(2)), Constant(0)),
            lambda: Binary(">=", Binary("/", of("v"), of("id")), Constant(1)),
            lambda: Binary("or", Binary("=", of("id"), Constant(0)), Binary(">", of("v"), Constant(5))),
            lambda: Unary("not", Binary("<", Unary("-", of("v")), Constant(-6))),
            lambda: Binary("!=", of("node"), Constant("n2")),
        ]
        if one.full:
            choices += [
                lambda: Binary(comparison(self.rng), of("w"), Constant(0.3)),
                lambda: Unary("not", Binary(comparison(self.rng), of("w"), Constant(0.3))),
                lambda: Binary("=", of("s"), Constant("x")),
                lambda: Binary("in", Binary("+", of("s"), Constant("y")), Items((Constant("xy"), Constant("yy")))),
            ]
        if self.chance(0.06):
            self.features.add("where: remote")
            if self.chance(0.5):
                return Binary(self.rng.choice(("in", "not in")), of("v"), Remote("sets", (of("id"),)))
            return Binary(comparison(self.rng), of("v"), Remote("table", (of("id"),)))
        if self.chance(0.06):
            self.features.add("where: call")
            distance: Expression = Binary("-", of("v"), Constant(5))
            return Binary("<=", Call("abs", (distance,)) if HAS_FUNCTIONS else distance, Constant(3))
        return self.rng.choice(choices)()

    def about_two(self, one: Named, other: Named) -> Expression:
        def a(name: str) -> Attribute:
            return self.either_index(one, name)

        apart = one.repetition is not None and other.repetition not in (None, one.repetition)
        if apart:
            self.features.add("where: across repetitions")

        def b(name: str) -> Attribute:
            if apart:
                return Attribute(other.role, name, self.rng.choice(("first", "last")))
            return self.either_index(other, name)

        choices: list[Callable[[], Expression]] = [
            lambda: Binary("=", a("id"), b("id")),
            lambda: Binary("=", a("id"), b("id")),
            lambda: Binary(comparison(self.rng), a("v"), b("v")),
            lambda: Binary(comparison(self.rng), a("v"), Binary("+", b("v"), Constant(self.rng.randint(-2, 3)))),
            lambda: Binary("<", Binary("-", a("v"), b("v")), Constant(self.rng.randint(0, 5))),
            lambda: Binary(">=", Binary("/", a("v"), b("v")), Constant(1)),
            lambda: Binary("=", Binary("%", Binary("+", a("v"), b("v")), Constant(2)), Constant(0)),
            lambda: Binary("or", Binary("=", a("id"), b("id")), Binary(">", a("v"), Constant(5))),
            lambda: Binary("=", Binary("+", a("id"), Constant(1)), b("id")),
            lambda: Binary("!=", a("node"), b("node")),
            lambda: Binary("<=", Binary("-", a("ts"), b("ts")), Constant(1)),
        ]
        if one.full and other.full:
            choices += [
                lambda: Binary("<=", a("w"), b("w")),
                lambda: Binary("!=", a("s"), b("s")),
                lambda: Binary("=", Binary("+", a("s"), b("s")), Constant("xy")),
            ]
        if self.chance(0.03):
            self.features.add("where: remote")
            return Binary("<=", a("v"), Remote("table", (Binary("+", a("id"), b("id")),)))
        return self.rng.choice(choices)()

    def either_index(self, role: Named, name: str) -> Attribute:
        """An element, or (rarely) the first or last one."""
        if role.repetition is not None and self.chance(0.2):
            self.features.add("where: [first] or [last]")
            return Attribute(role.role, name, self.rng.choice(("first", "last")))
        return Attribute(role.role, name)

    def about_repetition(self, group: list[Named], named: list[Named]) -> Expression:
        one, other = self.rng.choice(group), self.rng.choice(group)
        outside = [role for role in named if role.repetition is None]

        def known(name: str) -> Expression:
            if outside and self.chance(0.4):
                return Attribute(self.rng.choice(outside).role, name)
            return Constant(self.rng.randint(1, 8))

        kind = self.rng.choice(("back", "back", "fold", "fold", "ends", "mixed"))
        self.features.add(f"where: repetition {kind}")
        if kind == "back":
            operator = self.rng.choice(("<", "<=", ">", "=", "!="))
            name = "id" if operator == "=" else "v"
            return Binary(operator, Attribute(one.role, name, "i-1"), Attribute(other.role, name))
        if kind == "ends":
            first, last = Attribute(one.role, "v", "first"), Attribute(other.role, "v", "last")
            return Binary(comparison(self.rng), first, last if self.chance(0.5) else known("v"))
        if kind == "mixed":
            return Binary(comparison(self.rng), Attribute(one.role, "v"), Fold("avg", other.role, "v"))
        if self.chance(0.3):
            return Binary(comparison(self.rng), Fold("count", one.role, None), Constant(self.rng.randint(1, 3)))
        name = "w" if one.full and self.chance(0.3) else "v"
        return Binary(comparison(self.rng), Fold(self.rng.choice(FOLDS), one.role, name), known("v"))

    # -- chains --------------------------------------------------------------------------------------------------------

    def chain(self) -> Pattern:
        anchor = self.leaf(" as anchor")
        known = [Named(anchor.role, anchor.type)]
        where: list[Expression] = []
        steps: list[Step] = []
        if self.chance(0.3):
            where.append(self.about_one(known[0]))
        if self.equal is not None:
            where += self.equal.begun_with(known[0])
        for _ in range(self.rng.choices((0, 1, 2, 3, 4), (5, 25, 35, 25, 10))[0]):
            kind = self.rng.choices(("selection", "absence", "aggregate"), (55, 20, 25))[0]
            if kind == "selection":
                leaf = self.leaf(" selected")
                policy = self.rng.choice(POLICIES)
                count = 1 if policy == "each" or self.chance(0.6) else self.rng.randint(2, 3)
                self.features.add(f"chain: {'n-' if count > 1 else ''}{policy}")
                within = self.within(known)
                if within.origin != anchor.role:
                    self.features.add("chain: from a later role")
                steps.append(Selection(leaf, policy, within, count))
                role = Named(leaf.role, leaf.type)
                where += self.constraints(role, known, positive=True)
                known.append(role)
                continue
            reach = self.range(known)
            shape = "within" if isinstance(reach, Within) else "between"
            self.features.add(f"chain: {kind} {shape}")
            if kind == "absence":
                leaf = self.leaf(" absent")
                steps.append(Absence(leaf, reach))
                where += self.constraints(Named(leaf.role, leaf.type), known)
                continue
            leaf = self.leaf(" aggregated")
            function = self.rng.choice(FOLDS)
            self.features.add(f"chain: {function}")
            role = Named(leaf.role, leaf.type)
            attribute = (
                None if function == "count" and self.chance(0.7) else "w" if role.full and self.chance(0.3) else "v"
            )
            name = f"p{len(self.parameters) + 1}"
            steps.append(Aggregate(name, function, leaf, attribute, reach))
            where += self.constraints(role, known)
            self.parameters.append(name)
            if self.equal is not None:
                self.equal.take_parameter(name)
            if self.chance(0.5):
                self.features.add("chain: aggregate condition")
                bound: Expression = Constant(self.rng.randint(0, 6))
                if self.chance(0.3):
                    bound = Attribute(self.rng.choice(known).role, "v")
                where.append(Binary(comparison(self.rng), Parameter(name), bound))
        return Pattern(Chain(anchor, tuple(steps)), tuple(where))

    def within(self, known: list[Named]) -> Within:
        origin = known[0] if self.chance(0.6) else self.rng.choice(known)
        return Within(self.rng.choice((0, 1, 2, 3, 4, 5, 6, 8)), origin.role)

    def range(self, known: list[Named]) -> Within | Between:
        if len(known) < 2 or self.chance(0.5):
            return self.within(known)
        one, other = self.rng.sample(known, 2)
        return Between(one.role, other.role)

    def constraints(self, role: Named, known: list[Named], *, positive: bool = False) -> list[Expression]:
        made: list[Expression] = self.equal.of_step(role, positive) if self.equal is not None else []
        if self.chance(0.3):
            made.append(self.about_one(role))
        if self.chance(0.4):
            made.append(self.about_two(role, self.rng.choice(known)))
        if self.parameters and self.chance(0.35):
            self.features.add("chain: parameter in a later step")
            parameter: Expression = Parameter(self.rng.choice(self.parameters))
            if self.chance(0.4):
                parameter = Binary("+", parameter, Attribute(self.rng.choice(known).role, "id"))
            made.append(Binary(comparison(self.rng), Attribute(role.role, "v"), parameter))
        return made
