"""The syntax tree that the grammars produce, with positions, before any name is resolved.

``at`` is always an offset into the text, where a caret would point.
"""

from __future__ import annotations

from dataclasses import dataclass

from headwater.protocol.events import Value


@dataclass(slots=True)
class Word:
    """A name as written."""

    at: int
    text: str


# Expressions -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Literal:
    at: int
    value: Value
    depth: int = 1


@dataclass(slots=True)
class Bare:
    """A name alone: an attribute of the current event, or a mistake."""

    at: int
    name: str
    depth: int = 1


@dataclass(slots=True)
class Dollar:
    """``$name``."""

    at: int
    name: str
    depth: int = 1


@dataclass(slots=True)
class Path:
    """``base.name``, ``base[].name`` or ``base[index].name``."""

    base: Word
    name: Word
    indexed: bool = False
    index: Syntax | None = None
    depth: int = 1

    @property
    def at(self) -> int:
        return self.base.at


@dataclass(slots=True)
class Bracketed:
    """``base[arguments]``: a function called with square brackets, or ``b[]`` inside an aggregate."""

    base: Word
    arguments: list[Syntax]
    depth: int = 1

    @property
    def at(self) -> int:
        return self.base.at


@dataclass(slots=True)
class Called:
    base: Word
    arguments: list[Syntax]
    depth: int = 1

    @property
    def at(self) -> int:
        return self.base.at


@dataclass(slots=True)
class RemoteLookup:
    at: int
    table: Word | None
    arguments: list[Syntax]
    depth: int = 1


@dataclass(slots=True)
class Inner:
    """An expression in round brackets."""

    at: int
    inside: Syntax
    depth: int = 1


@dataclass(slots=True)
class Negative:
    at: int
    operand: Syntax
    depth: int = 1


@dataclass(slots=True)
class Not:
    at: int
    operand: Syntax
    depth: int = 1


@dataclass(slots=True)
class Arithmetic:
    operator: Word
    left: Syntax
    right: Syntax
    depth: int = 1

    @property
    def at(self) -> int:
        return self.left.at


@dataclass(slots=True)
class ComparisonChain:
    """``a < b <= c``: one comparison after each operator."""

    operands: list[Syntax]
    operators: list[Word]
    depth: int = 1

    @property
    def at(self) -> int:
        return self.operands[0].at


@dataclass(slots=True)
class In:
    operand: Syntax
    operator: Word
    members: list[Syntax] | RemoteLookup
    negated: bool
    depth: int = 1

    @property
    def at(self) -> int:
        return self.operand.at


@dataclass(slots=True)
class Range:
    """``x BETWEEN low AND high``."""

    operand: Syntax
    operator: Word
    low: Syntax
    high: Syntax
    negated: bool
    depth: int = 1

    @property
    def at(self) -> int:
        return self.operand.at


@dataclass(slots=True)
class All:
    """Conjunction of two or more."""

    items: list[Syntax]
    depth: int = 1

    @property
    def at(self) -> int:
        return self.items[0].at


@dataclass(slots=True)
class Any:
    """Disjunction of two or more."""

    items: list[Syntax]
    depth: int = 1

    @property
    def at(self) -> int:
        return self.items[0].at


@dataclass(slots=True)
class SameKeys:
    at: int
    keys: list[Syntax]
    depth: int = 1


@dataclass(slots=True)
class FoldCall:
    """SASE: ``AVG(b[].v)``."""

    function: Word
    arguments: list[Syntax]
    depth: int = 1

    @property
    def at(self) -> int:
        return self.function.at


@dataclass(slots=True)
class AggregateCall:
    """TESLA: ``Avg(E(..).attribute within T from F)``."""

    function: Word
    selector: Selector
    attribute: Word | None
    range: WithinRange | BetweenRange
    depth: int = 1

    @property
    def at(self) -> int:
        return self.function.at


Syntax = (
    Literal | Bare | Dollar | Path | Bracketed | Called | RemoteLookup | Inner | Negative | Not | Arithmetic
    | ComparisonChain | In | Range | All | Any | SameKeys | FoldCall | AggregateCall
)  # fmt: skip


# Declarations and quantities -------------------------------------------------------------------------------------


@dataclass(slots=True)
class Quantity:
    """A window's length: microseconds, or a plain number where no unit was written."""

    at: int
    amount: int | float
    has_unit: bool
    says_events: bool = False
    """Whether ``events`` stands behind the number, so that it cannot be a slip."""


@dataclass(slots=True)
class Field:
    name: Word
    kind: Word
    optional: bool


@dataclass(slots=True)
class TypeDeclaration:
    name: Word
    fields: list[Field]


# TESLA -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Selector:
    """``E(constraints) as name``."""

    type: Word
    constraints: list[Syntax]
    alias: Word | None


@dataclass(slots=True)
class WithinRange:
    length: Quantity
    origin: Word


@dataclass(slots=True)
class BetweenRange:
    one: Word
    other: Word


@dataclass(slots=True)
class SelectionStep:
    policy: Word
    selector: Selector
    range: WithinRange


@dataclass(slots=True)
class AbsenceStep:
    selector: Selector
    range: WithinRange | BetweenRange


@dataclass(slots=True)
class ConditionStep:
    condition: Syntax


@dataclass(slots=True)
class Assignment:
    name: Word
    value: Syntax


@dataclass(slots=True)
class TeslaRule:
    name: Word | None
    emits: Word
    fields: list[Field]
    anchor: Selector
    steps: list[SelectionStep | AbsenceStep | ConditionStep]
    assignments: list[Assignment]

    @property
    def at(self) -> int:
        return (self.name or self.emits).at

    @property
    def emits_at(self) -> int:
        return self.emits.at

    @property
    def output_names(self) -> set[str]:
        """The attributes that the text gives to what the rule emits."""
        return {attribute.name.text for attribute in self.fields}


# SASE ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class LeafPart:
    type: Word
    alias: Word | None
    repeated: bool
    brackets: bool
    limit: Quantity | None

    @property
    def at(self) -> int:
        return self.type.at


@dataclass(slots=True)
class OperatorPart:
    """``SEQ(..)``, ``AND(..)``, ``OR(..)``, ``NSEQ(..)``, ``KL(..)``; ``window`` is CED's, after the semicolon."""

    operator: Word
    parts: list[PartSyntax]
    window: Quantity | None

    @property
    def at(self) -> int:
        return self.operator.at


@dataclass(slots=True)
class NotPart:
    at: int
    part: PartSyntax


@dataclass(slots=True)
class GroupPart:
    """Round brackets: ``(a OR b)``, or a repeated group ``(A a, B b)+``."""

    at: int
    parts: list[PartSyntax]
    repeated: bool
    limit: Quantity | None


@dataclass(slots=True)
class WindowedPart:
    """``part WITHIN length [FROM origin]``."""

    part: PartSyntax
    length: Quantity
    origin: Word | None

    @property
    def at(self) -> int:
        return self.part.at


PartSyntax = LeafPart | OperatorPart | NotPart | GroupPart | WindowedPart


@dataclass(slots=True)
class Output:
    name: Word
    kind: Word | None
    value: Syntax


@dataclass(slots=True)
class WhereClause:
    condition: Syntax


@dataclass(slots=True)
class WithinClause:
    at: int
    length: Quantity


@dataclass(slots=True)
class SkipClause:
    at: int
    next: bool


@dataclass(slots=True)
class ReturnClause:
    at: int
    name: Word
    outputs: list[Output]


@dataclass(slots=True)
class SaseRule:
    name: Word | None
    root: PartSyntax
    clauses: list[WhereClause | WithinClause | SkipClause | ReturnClause]

    @property
    def at(self) -> int:
        return self.name.at if self.name else self.root.at

    @property
    def emits(self) -> Word | None:
        """What the rule emits, where the text says so."""
        return next((clause.name for clause in self._returns), None)

    @property
    def emits_at(self) -> int:
        return self.emits.at if self.emits else self.at

    @property
    def output_names(self) -> set[str]:
        """The attributes that the text gives to what the rule emits."""
        return {output.name.text for clause in self._returns for output in clause.outputs}

    @property
    def _returns(self) -> list[ReturnClause]:
        return [clause for clause in self.clauses if isinstance(clause, ReturnClause)]


RuleSyntax = TeslaRule | SaseRule
