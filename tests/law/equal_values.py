"""Equalities that bind several attributes of one role to one value, in every place where an equality may stand.

``a.w = b.v and b.v = a.v`` says of a alone that its v is its w: an engine that keeps the values of a match by what is
equal must not forget that. The members of such a class are drawn first and then connected in any order and spelling, so
that some of them are equal only through others.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headwater.protocol.events import EventType
from headwater.protocol.expressions import Attribute, Binary, Call, Expression, Index, Parameter

EQUAL = "equal: "
"""How the names of all features begin that this module notes."""

NUMBERS = ("id", "v", "w")
STRINGS = ("s", "node", "type")
BOOLS = ("f", "g")
TEXTS = ("s", "string id", "string v", "string w")
"""The last ones stand for numbers as texts: 1 and 1.0 are equal, and their texts are not."""
KINDS: Mapping[str, tuple[str, ...]] = {"numbers": NUMBERS, "strings": STRINGS, "bools": BOOLS, "texts": TEXTS}

FULL_ONLY = frozenset({"w", "s", "string w", *BOOLS})
"""What only types with all attributes have."""


@dataclass
class Named:
    """A role as the maker of conjuncts sees it."""

    role: str
    type: str
    repetition: int | None = None  # number of the repetition it is an element of
    negation: int | None = None  # number of the negation it stands in
    in_or: bool = False

    @property
    def full(self) -> bool:
        return self.type in ("A", "B", "C")


def alike(features: Collection[str]) -> bool:
    """Whether a trace for a rule with these features should have few different values, so that many are equal."""
    return any(feature.startswith(EQUAL) for feature in features)


def values_alike(rng: random.Random, kind: EventType) -> dict[str, Any]:
    """Values among which many are equal, also across attributes and kinds: most of an event are one and the same."""
    number, truth = rng.choice((1, 2)), rng.random() < 0.5
    word = rng.choice(("n2", "n10", "A", "B", str(number), str(float(number))))

    def mostly(usual: Any, *others: Any) -> Any:
        return usual if rng.random() < 0.7 else rng.choice(others)

    values: dict[str, Any] = {"id": mostly(number, 0, 1, 2), "v": mostly(number, 1, 2)}
    if kind.position("s"):
        given = {"w": mostly(float(number), 1.0, 2.0, 1.5, None), "s": mostly(word, "n2", "A", "1", "1.0")}
        given |= {name: mostly(truth, not truth, None) for name in BOOLS}
        values |= {name: value for name, value in given.items() if value is not None}
    return values


@dataclass
class Member:
    """An attribute of a role, perhaps as a text, or (without a role) a parameter."""

    role: Named | None
    name: str


@dataclass
class EqualValues:
    """Draws one class of equal values and the conjuncts that make it one."""

    rng: random.Random
    features: set[str]
    kind: str = ""
    members: list[Member] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.kind = self.rng.choices(tuple(KINDS), (70, 12, 9, 9))[0]

    def note(self, what: str) -> None:
        self.features.add(EQUAL + what)

    # -- over the roles of a tree --------------------------------------------------------------------------------------

    def among(self, named: Sequence[Named]) -> list[Expression]:
        """Conjuncts over one to three of these roles; none where they have no attributes of the kind."""
        roles = self.rng.sample(list(named), min(len(named), self.rng.choices((1, 2, 3), (5, 70, 25))[0]))
        wanted = [Member(role, name) for number, role in enumerate(roles) for name in self.some_of(role, number == 0)]
        self.rng.shuffle(wanted)
        wanted[1:] = sorted(wanted[1:], key=lambda member: member.role is wanted[0].role)  # another role comes second
        made: list[Expression] = []
        for member in wanted:
            made += self.joined(member)
        if len(self.members) > 2 and self.rng.random() < 0.3:
            made += self.equality(*self.rng.sample(self.members, 2))
        self.rng.shuffle(made)
        return made

    def some_of(self, role: Named, several: bool) -> list[str]:
        """One attribute of the role, or two or three."""
        present = [name for name in KINDS[self.kind] if role.full or name not in FULL_ONLY]
        count = self.rng.choice((2, 2, 2, 3)) if several else self.rng.choice((1, 1, 1, 2))
        return self.rng.sample(present, min(len(present), count))

    def joined(self, member: Member) -> list[Expression]:
        """The equality that makes it a member: mostly with one of another role."""
        others = list(self.members)
        self.rng.shuffle(others)
        if self.rng.random() < 0.9:
            others.sort(key=lambda other: other.role is member.role)
        if not others:
            self.members.append(member)
            return []
        for other in others:
            if made := self.equality(member, other):
                self.members.append(member)
                return made
        return []

    def equality(self, one: Member, other: Member) -> list[Expression]:
        """The two are equal, written this way or that; nothing where no conjunct may say so."""
        if one.role is not None and other.role is not None:
            if None not in (one.role.negation, other.role.negation) and one.role.negation != other.role.negation:
                return []
            indexes = self.indexes(one.role, other.role)
        else:
            indexes = ("", "")
        left, right = self.written(one, indexes[0]), self.written(other, indexes[1])
        if left == right:
            return []
        self.note_equality(one, other)
        return [Binary("=", left, right) if self.rng.random() < 0.5 else Binary("=", right, left)]

    def indexes(self, one: Named, other: Named) -> tuple[Index, Index]:
        """Which elements of repetitions are meant: of two repetitions only one may be named element by element."""
        first: Index = ""
        second: Index = ""
        if one.repetition is not None and one.repetition == other.repetition:
            if self.rng.random() < 0.6:
                self.note("with the element before")
                return "i-1", ""
            return "", ""
        if one.repetition is not None and self.rng.random() < 0.15:
            first = self.rng.choice(("first", "last"))
        if other.repetition is not None and (self.rng.random() < 0.15 or (one.repetition is not None and not first)):
            second = self.rng.choice(("first", "last"))
        return first, second

    @staticmethod
    def written(member: Member, index: Index) -> Expression:
        if member.role is None:
            return Parameter(member.name)
        *function, name = member.name.split()
        attribute = Attribute(member.role.role, name, index)
        return Call(function[0], (attribute,)) if function else attribute

    # -- along a chain -------------------------------------------------------------------------------------------------

    def begun_with(self, anchor: Named) -> list[Expression]:
        """What the anchor brings along; sometimes two of its attributes that are equal."""
        names = self.some_of(anchor, True)
        if not names:
            return []
        self.members.append(Member(anchor, names[0]))
        return self.joined(Member(anchor, names[1])) if len(names) > 1 and self.rng.random() < 0.15 else []

    def of_step(self, role: Named, positive: bool) -> list[Expression]:
        """Equalities between a step's role and what the text has named before; mostly of two attributes of the role."""
        before = list(self.members)
        made: list[Expression] = []
        for name in self.some_of(role, self.rng.random() < 0.7):
            made += self.joined(Member(role, name))
        if made and not positive:
            self.note("of an absent or aggregated role")
        if not positive:
            self.members = before  # what is not part of a match says nothing about its parts
        return made

    def take_parameter(self, name: str) -> None:
        """What comes later may be compared with the parameter, too."""
        if self.kind == "numbers":
            self.members.append(Member(None, name))

    # -- what is drawn -------------------------------------------------------------------------------------------------

    def note_equality(self, one: Member, other: Member) -> None:
        self.note(self.kind)
        roles = [member.role for member in (one, other) if member.role is not None]
        if len(roles) < 2:
            self.note("with a parameter")
        if len(roles) == 2 and roles[0] is roles[1]:
            self.note("within one role")
        if {one.name, other.name} & {"w"} and one.name != other.name:
            self.note("int with float")
        inside = [*self.members, one, other]
        of_role = [(member.role.role, member.name) for member in inside if member.role is not None]
        if len({role for role, _ in of_role}) < len(set(of_role)):
            self.note("several attributes of a role")
        if len({role for role, _ in of_role}) > 2:
            self.note("over three roles")
        for role in roles:
            if role.negation is not None:
                self.note("of a negated role")
            if role.repetition is not None:
                self.note("of a repetition")
            if role.in_or:
                self.note("in an OR")


def chance_of_seed(seed: int) -> random.Random | None:
    """What draws the classes of every seventh seed; all others have none, and go on to mean what they did."""
    return random.Random(f"equal {seed}") if seed % 7 == 0 else None


def drawn(chance: random.Random | None, features: set[str]) -> EqualValues | None:
    """A class for one rule, where there is something to draw it with."""
    return None if chance is None else EqualValues(chance, features)
