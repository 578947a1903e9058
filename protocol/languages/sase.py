"""Turns SASE syntax into rules, with the spellings of INEv (NSEQ, KL, no aliases) and CED (a window after `;`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from headwater.protocol import expressions as e
from headwater.protocol.functions import Functions
from headwater.protocol.languages import syntax as s
from headwater.protocol.languages.diagnostics import UNKNOWN_EVENT_TYPE, Problems
from headwater.protocol.languages.foreign_syntax import hint_for_word
from headwater.protocol.languages.sase_meaning import SaseMeaning
from headwater.protocol.languages.tesla import next_name, output_kind
from headwater.protocol.languages.type_checking import Placed, Types, a, fits
from headwater.protocol.languages.windows import event_count, length_us
from headwater.protocol.pattern import (
    Conjunction,
    Disjunction,
    Leaf,
    Negation,
    OutputAttribute,
    Part,
    Pattern,
    Repetition,
    Rule,
    Sequence,
    Window,
    leaves,
)
from headwater.protocol.text import plural, suggestion


class SaseBuilder:
    """Builds one rule. Afterwards ``at`` knows where in the text each role, part and condition came from."""

    def __init__(self, rule: s.SaseRule, name: str, problems: Problems, types: Types, functions: Functions) -> None:
        self.rule = rule
        self.name = name
        self.problems = problems
        self.types = types
        self.functions = functions
        self.roles: dict[int, str] = {}
        self.at: dict[object, int] = {}
        self.gaps: list[tuple[str, s.WindowedPart]] = []

    def build(self) -> Rule:
        self._name_roles()
        root = self._part(self.rule.root)
        where: s.WhereClause | None = None
        within: s.WithinClause | None = None
        skip: s.SkipClause | None = None
        returned: s.ReturnClause | None = None
        for clause in self._once_each():
            match clause:
                case s.WhereClause():
                    where = clause
                case s.WithinClause():
                    within = clause
                case s.SkipClause():
                    skip = clause
                case s.ReturnClause():
                    returned = clause
        if within is not None:
            root = self._bounded(root, within.length)
        meaning = SaseMeaning(self.problems, self.types, self.functions, root)
        conditions = list(self._gap_conditions(meaning))
        if where is not None:
            conditions += meaning.conjuncts(where.condition)
        for condition in conditions:
            self.at.setdefault(condition.expression, condition.at)
        pattern = Pattern(
            root, tuple(condition.expression for condition in conditions), "next" if skip and skip.next else "any"
        )
        emits = returned.name.text if returned else self.name
        return Rule(self.name, pattern, emits, self._outputs(meaning, returned.outputs if returned else []))

    def _once_each(self) -> Iterator[s.WhereClause | s.WithinClause | s.SkipClause | s.ReturnClause]:
        words = {s.WhereClause: "WHERE", s.WithinClause: "WITHIN", s.SkipClause: "SKIP", s.ReturnClause: "RETURN"}
        seen: set[type] = set()
        for clause in self.rule.clauses:
            if type(clause) in seen:
                at = clause.condition.at if isinstance(clause, s.WhereClause) else clause.at
                self.problems.add(at, f"this rule has two {words[type(clause)]} clauses", "one is enough")
                continue
            seen.add(type(clause))
            yield clause

    # The pattern

    def _name_roles(self) -> None:
        """Aliases first, so that a leaf without one makes way: its role is its type, or type_2, type_3, .."""
        all_leaves = list(leaf_parts(self.rule.root))
        taken: set[str] = set()
        numbers: dict[str, int] = {}
        for leaf in all_leaves:
            if leaf.alias is not None:
                if leaf.alias.text in taken:
                    self.problems.add(
                        leaf.alias.at,
                        f"two parts of this pattern are called {leaf.alias.text!r}",
                        "give one of them another name",
                    )
                taken.add(leaf.alias.text)
                self.roles[id(leaf)] = leaf.alias.text
        for leaf in all_leaves:
            if leaf.alias is None:
                role = next_name(leaf.type.text, taken, numbers)
                taken.add(role)
                self.roles[id(leaf)] = role

    def _leaf(self, written: s.LeafPart) -> Leaf:
        name = written.type
        if not self.types.has(name.text):
            hint = hint_for_word(name.text, "sase") or suggestion(name.text, self.types.names, "event types")
            self.problems.add(name.at, f"unknown event type {name.text!r}", hint, UNKNOWN_EVENT_TYPE)
        role = self.roles[id(written)]
        self.at.setdefault(role, written.at)
        return Leaf(role, name.text)

    def _part(self, written: s.PartSyntax) -> Part:
        part = self._built(written)
        self.at.setdefault(part, written.at)
        return part

    def _built(self, written: s.PartSyntax) -> Part:
        match written:
            case s.LeafPart():
                return self._leaf_or_repetition(written)
            case s.NotPart():
                return Negation(self._part(written.part))
            case s.GroupPart():
                return self._group(written)
            case s.WindowedPart():
                return self._windowed(written)
            case s.OperatorPart():
                return self._operator(written)

    def _leaf_or_repetition(self, written: s.LeafPart) -> Part:
        leaf = self._leaf(written)
        if written.repeated:
            return Repetition((leaf,), self._limit(written.limit))
        if written.brackets:
            self.problems.add(written.at, f"{leaf.role}[] is not repeated", f"write {leaf.type}+ {leaf.role}[]")
        if written.limit is not None:
            self.problems.add(
                written.limit.at, "LIMIT needs a repeated event", f"write {leaf.type}+ {leaf.role}[] LIMIT .."
            )
        return leaf

    def _limit(self, written: s.Quantity | None) -> int | None:
        if written is None:
            return None
        if written.amount < 1 or written.amount != int(written.amount):
            self.problems.add(
                written.at, "LIMIT must be a whole number from 1", "more candidates than this give no match"
            )
            return 1
        return int(written.amount)

    def _group(self, written: s.GroupPart) -> Part:
        if not written.repeated:
            if written.limit is not None:
                self.problems.add(written.limit.at, "LIMIT needs a repeated event", "write B+ b[] LIMIT ..")
            if len(written.parts) > 1:
                self.problems.add(
                    written.at, "these brackets hold several parts", "write SEQ(..), or (..)+ to repeat them"
                )
                return Sequence(tuple(self._part(part) for part in written.parts))
            return self._part(written.parts[0])
        parts = [self._part(part) for part in written.parts]
        inner_leaves: list[Leaf] = []
        for part, syntax in zip(parts, written.parts, strict=True):
            if isinstance(part, Leaf):
                inner_leaves.append(part)
            else:
                self.problems.add(
                    syntax.at, "only plain events can be repeated", "write B+ b[] or a group such as (A a, B b)+"
                )
                inner_leaves += list(leaves(part))
        if written.limit is not None and len(inner_leaves) > 1:
            self.problems.add(
                written.limit.at, "LIMIT works for a single repeated event, not for a group", "leave it out"
            )
            return Repetition(tuple(inner_leaves))
        return Repetition(tuple(inner_leaves), self._limit(written.limit))

    def _windowed(self, written: s.WindowedPart) -> Part:
        part = self._part(written.part)
        single = part.part if isinstance(part, Negation) else part
        length = self._inner_length(written.length)
        if isinstance(single, Leaf) or (isinstance(single, Repetition) and len(single.parts) == 1):
            role = single.role if isinstance(single, Leaf) else single.parts[0].role
            if written.origin is None:
                self.problems.add(
                    written.length.at,
                    "this window needs an event to start from",
                    "add FROM and the name of another event",
                )
            else:
                self.gaps.append((role, written))
            return part
        if written.origin is not None:
            self.problems.add(written.origin.at, "FROM works for a single event", "give SEQ and AND a plain WITHIN")
        if not isinstance(single, Sequence | Conjunction):
            self.problems.add(written.length.at, "only SEQ and AND take a window", "give it to the SEQ or AND inside")
            return part
        if single.window is not None:
            self.problems.add(written.length.at, "this operator has two windows", "one is enough")
        bounded = replace(single, window=Window(length))
        return Negation(bounded) if isinstance(part, Negation) else bounded

    def _inner_length(self, written: s.Quantity) -> int:
        if not written.has_unit:
            self.problems.add(
                written.at,
                "only the outermost window can count events",
                f"write a duration, such as {written.amount:g} s",
            )
            return 1
        return length_us(written, self.problems)

    def _operator(self, written: s.OperatorPart) -> Part:
        operator = written.operator.text
        parts = [self._part(part) for part in written.parts]
        window = None if written.window is None else Window(length_us(written.window, self.problems))
        if operator == "kl":
            return self._repetition(written, parts)
        if operator == "nseq":
            if len(parts) != 3:
                self.problems.add(
                    written.at, f"NSEQ takes 3 parts, not {len(parts)}", "NSEQ(a, b, c): no b between a and c"
                )
            else:
                parts[1] = Negation(parts[1])
                self.at.setdefault(parts[1], written.parts[1].at)
        if operator == "or":
            if written.window is not None:
                self.problems.add(
                    written.window.at, "OR takes no window", "give it to the SEQ or AND inside or outside"
                )
            return Disjunction(tuple(parts))
        if operator == "and":
            return Conjunction(tuple(parts), window)
        return Sequence(tuple(spliced(parts)), window)

    def _repetition(self, written: s.OperatorPart, parts: list[Part]) -> Part:
        if written.window is not None:
            self.problems.add(written.window.at, "KL takes no window", "give it to the SEQ or AND around it")
        if len(parts) != 1 or not isinstance(parts[0], Leaf):
            self.problems.add(written.at, "KL repeats a single event", "write KL(B) or B+ b[]")
        return Repetition(tuple(leaf for part in parts for leaf in leaves(part)))

    def _bounded(self, root: Part, length: s.Quantity) -> Part:
        """The root under the outermost WITHIN, which spans the whole match."""
        if length.has_unit:
            window = Window(length_us(length, self.problems), "us", "span")
        else:
            window = Window(event_count(length, self.problems), "events", "span")
            if not length.says_events:
                self.problems.warn(
                    length.at,
                    f"this window is {plural(window.length, 'event')} long, whatever time they take",
                    f"write {window.length} s for a time, or {window.length} events to say that you mean it",
                )
        if isinstance(root, Sequence | Conjunction) and root.window is None:
            bounded: Part = replace(root, window=window)
        else:
            bounded = Sequence((root,), window)
        self.at.setdefault(bounded, self.rule.root.at)
        return bounded

    # Conditions and outputs

    def _gap_conditions(self, meaning: SaseMeaning) -> Iterator[Placed]:
        for role, written in self.gaps:
            origin = written.origin
            assert origin is not None
            if origin.text not in meaning.roles:
                hint = suggestion(origin.text, meaning.roles, "the pattern has")
                self.problems.add(origin.at, f"unbound name {origin.text!r}", hint)
            elif origin.text == role:
                self.problems.add(origin.at, f"{role!r} cannot be measured from itself", "name another event")
            difference = e.Binary("-", e.Attribute(role, "ts"), e.Attribute(origin.text, "ts"))
            length = max(1, int(written.length.amount))
            yield Placed(e.Binary("<=", difference, e.Constant(length)), written.length.at)

    def _outputs(self, meaning: SaseMeaning, outputs: list[s.Output]) -> tuple[OutputAttribute, ...]:
        meaning.in_output = True
        by_name: dict[str, OutputAttribute] = {}
        for output in outputs:
            name = output.name
            value = meaning.value(output.value)
            declared = output_kind(s.Field(name, output.kind or s.Word(name.at, "any"), False), self.problems)
            if name.text in by_name:
                self.problems.add(name.at, f"{name.text!r} gets a value twice", "give one of them another name")
            if not fits(value.kind, declared):
                self.problems.add(
                    output.value.at,
                    f"type mismatch: {name.text!r} is {a(declared)}, but this is {a(value.kind)}",
                    f"write {name.text}: {value.kind}, or convert the value",
                )
            kind = declared if output.kind is not None else value.kind
            by_name[name.text] = OutputAttribute(name.text, kind, value.expression)
        return tuple(by_name.values())


def leaf_parts(part: s.PartSyntax) -> Iterator[s.LeafPart]:
    """The leaves of a pattern in the order of the text."""
    match part:
        case s.LeafPart():
            yield part
        case s.NotPart() | s.WindowedPart():
            yield from leaf_parts(part.part)
        case s.GroupPart() | s.OperatorPart():
            for inner in part.parts:
                yield from leaf_parts(inner)


def spliced(parts: list[Part]) -> Iterator[Part]:
    """A SEQ directly inside a SEQ and without a window of its own is the same as its parts in its place."""
    for part in parts:
        if isinstance(part, Sequence) and part.window is None:
            yield from part.parts
        else:
            yield part
