"""Saved state: what goes in comes out, the same state is the same bytes, and no bytes do harm."""

from __future__ import annotations

import math
import os
import pickle
import random
import struct
import subprocess
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain
from typing import Any, NamedTuple
from zlib import crc32

import msgpack
import pytest

from headwater.protocol.state import Format, OldState, StateError, Tables, Vocabulary

HEADER_BYTES = 32


class Colour(Enum):
    RED = 1
    BLUE = 2


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass(frozen=True, slots=True)
class Frozen:
    first: Any
    second: Any = None


@dataclass(frozen=True)
class Checked:
    inside: Any

    def __post_init__(self) -> None:
        assert self.inside != "never", "checks belong to the one who makes it first"


@dataclass(slots=True)
class Open:
    parts: list[Any] = field(default_factory=list)
    back: Any = None


class Plain:
    """Whatever fields it is given."""

    number: int
    me: Plain

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)

    def act(self) -> str:
        return "acted"

    @property
    def seen(self) -> int:
        return 1


class Slotted:
    __slots__ = ("one", "other")
    one: int
    other: int


class Later(Slotted):
    """With slots of a base class and fields of its own."""

    more: int


class Remade:
    """What is derived is made again when everything else is there."""

    def __init__(self, source: Plain) -> None:
        self.source = source
        self._prepare()

    def _prepare(self) -> None:
        self.derived = self.source.number * 2

    def __getstate__(self) -> dict[str, Any]:
        return {"source": self.source}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._prepare()


CLASSES = (Colour, Pair, Frozen, Checked, Open, Plain, Slotted, Later, Remade)


def a_format(number: int = 1, **more: Any) -> Format:
    vocabulary = Vocabulary({cls.__name__: cls for cls in CLASSES}, named={"len": len})
    return Format(kind="test", number=number, vocabulary=vocabulary, **more)


FORM = a_format()


def again(state: Any) -> Any:
    data = FORM.packed(state)
    restored = FORM.read(data)
    assert FORM.packed(restored) == data
    return restored


# ---------------------------------------------------------------------------------------------------- what comes back


@pytest.mark.parametrize(
    "value",
    [
        None, True, False, 0, 1, -1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64 - 1, 2**64, -(2**64), 10**400,
        -(10**400), 0.0, -0.0, 1.5, math.inf, -math.inf, 5e-324, "", "a", "\ud800", "\0é\U0001f600", b"", b"\xff\0",
        (), (1,), ((), ((),)), [], [1, [2]], {}, {1: 2, (3, "4"): [5]}, set(), {1, 2}, {"a", "b"},
        {1, "a", None, (2, 3)},
        frozenset(), frozenset({(1, "a"), (2, "b")}), frozenset({frozenset({1}), frozenset({2})}), deque([1, 2]),
        deque([1, 2], maxlen=5), Counter("abba"), Counter({"a": -1}), OrderedDict([(2, 1), (1, 2)]), bytearray(b"xy"),
        Colour.BLUE, Pair(1, [2]), Frozen((1, 2), {"a": None}), Frozen(Frozen(1)), [10**30, {10**30: (-(10**30),)}],
    ],
    ids=lambda value: type(value).__name__,  # the order in which sets are shown differs between processes
)  # fmt: skip
def test_values_come_back_as_they_were(value: Any) -> None:
    restored = again(value)
    assert type(restored) is type(value)
    assert restored == value if isinstance(value, set | frozenset) else repr(restored) == repr(value)
    assert getattr(restored, "maxlen", None) == getattr(value, "maxlen", None)


def test_numbers_keep_their_kinds() -> None:
    values = [1, True, 1.0, 0, False, -0.0]
    assert [*map(repr, again(values))] == [*map(repr, values)]
    assert math.isnan(again(math.nan))


def test_dicts_keep_their_order_and_their_factory() -> None:
    assert list(again({"b": 1, "a": 2, 3: 4})) == ["b", "a", 3]
    counted = again(defaultdict(list, {"b": [1]}))
    counted["new"].append(2)
    assert counted == {"b": [1], "new": [2]}


def test_objects_come_back_with_their_fields() -> None:
    slotted, later = Slotted(), Later()
    slotted.one = 1  # the other is not set
    later.other, later.more = 2, 3
    one, two, plain, opened = again((slotted, later, Plain(b=1, a=[2]), Open([1])))
    assert (type(one), one.one, hasattr(one, "other")) == (Slotted, 1, False)
    assert (type(two), two.other, two.more, hasattr(two, "one")) == (Later, 2, 3, False)
    assert (type(plain), list(plain.__dict__.items())) == (Plain, [("b", 1), ("a", [2])])
    assert opened == Open([1])


def test_what_was_one_object_is_one_object_and_cycles_stay() -> None:
    shared = [1]
    key = (1, "k")
    plain = Plain(mine=shared)
    plain.me = plain
    opened = Open([plain, shared], None)
    opened.back = (opened, {key: Frozen(opened, shared)})
    state = again({"x": opened, "y": [shared, key, plain]})
    opened, (shared, key, plain) = state["x"], state["y"]
    assert opened.parts == [plain, shared]
    assert plain.mine is shared is opened.parts[1]
    assert plain.me is plain is opened.parts[0]
    assert opened.back[0] is opened
    ((kept, frozen),) = opened.back[1].items()
    assert kept is key
    assert (frozen.first, frozen.second) == (opened, shared)


def test_what_is_derived_is_made_again_when_the_rest_is_there() -> None:
    source = Plain(number=21)
    first, second = again([Remade(source), source])
    assert (first.derived, first.source) == (42, second)


def test_checks_of_a_class_are_not_made_again() -> None:
    made = object.__new__(Checked)
    object.__setattr__(made, "inside", "never")
    assert again(made).inside == "never"


def test_named_things_are_referred_to() -> None:
    given = object()
    data = FORM.packed([len, given, given], {"given": given})
    assert FORM.read(data, {"given": "another"}) == [len, "another", "another"]
    with pytest.raises(StateError, match="does not know"):
        FORM.read(data)


def test_graphs_may_be_deeper_than_the_interpreter_recurs() -> None:
    chained: Any = None
    for _ in range(50_000):
        chained = [chained]
    nested: Any = ()
    for number in range(50_000):
        nested = Frozen(nested) if number % 3 else (nested, number)
    first, second = FORM.read(FORM.packed([chained, nested]))
    depth = 0
    while first is not None:
        (first,), depth = first, depth + 1
    assert depth == 50_000
    depth = 0
    while second != ():
        second, depth = second.first if type(second) is Frozen else second[0], depth + 1
    assert depth == 50_000


def test_a_value_that_is_shared_in_depth_is_written_once() -> None:
    value: Any = ()
    for _ in range(500):
        value = (value, value)
    assert len(FORM.packed([value])) < 10_000


# ------------------------------------------------------------------------------------------------------ the same bytes


def test_the_same_state_is_the_same_bytes_in_every_process() -> None:
    program = (
        "import sys; from tests.journal.test_state import FORM, Frozen, Colour\n"
        "words = [f'w{n}' for n in range(50)]\n"
        "mixed = {*words, *range(9), None, 1.5, (1, 'a'), ('a', 1), Frozen('x'), frozenset(words), Colour.RED}\n"
        "pairs = {(word, n) for n, word in enumerate(words)}\n"
        "sys.stdout.buffer.write(FORM.packed([set(words), mixed, pairs, frozenset(pairs)]))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in (1, 2)
    }
    assert len(found) == 1
    assert len(found.pop()) > 1000


def test_a_set_without_an_order_is_not_saved() -> None:
    with pytest.raises(AssertionError, match="a set of Plain is in no order"):
        FORM.packed({Plain(), Plain()})


class Forgotten:
    pass


class Cleverer(list[int]):
    pass


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (Forgotten(), "Forgotten"),
        ([{1: (Forgotten(),)}], "Forgotten"),
        (Cleverer(), "Cleverer"),
        (print, "print"),
        (Plain().act, "Plain.act"),
        (lambda: None, "lambda"),
        (int, "int"),
        (1j, "complex"),
        (iter([]), "list_iterator"),
    ],
)
def test_what_is_not_in_the_vocabulary_is_named(value: Any, name: str) -> None:
    with pytest.raises(AssertionError, match=f"{name}.* cannot be saved: it is not in the vocabulary"):
        FORM.packed([value])


def test_a_class_that_could_not_be_restored_cannot_be_listed() -> None:
    class Hashed:
        def __hash__(self) -> int:
            return 1

    for cls in (Hashed, Cleverer):
        with pytest.raises(AssertionError, match=cls.__name__):
            Vocabulary({"it": cls})
    with pytest.raises(AssertionError, match="two classes"):
        FORM.vocabulary.allow("Pair", Forgotten)
    with pytest.raises(AssertionError, match="under two names"):
        FORM.vocabulary.allow("Another", Pair)


# --------------------------------------------------------------------------------------------------------- the header


def test_the_header_is_read_first() -> None:
    data = FORM.packed([1])
    assert FORM.read(data) == [1]
    other = Format(kind="other", number=1, vocabulary=FORM.vocabulary)
    for broken, sentence in [
        (b"", "damaged, or no saved state of Headwater"),
        (data[:20], "damaged, or no saved state of Headwater"),
        (b"x" + data[1:], "damaged, or no saved state of Headwater"),
        (data[:-1], "damaged: its checksum is wrong"),
        (data + b"\0", "damaged: its checksum is wrong"),
        (other.packed([1]), "the saved state of a other, not of a test"),
        (a_format(7).packed([1]), "format 7 by a newer version of Headwater; this one reads up to format 1"),
    ]:
        with pytest.raises(StateError, match=sentence):
            FORM.read(broken)
    with pytest.raises(OldState, match="format 1, which this version \\(format 3\\) cannot upgrade"):
        a_format(3, upgrades={2: lambda tables: tables}).read(data)


def test_what_was_pickled_is_told_and_not_unpickled() -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return os._exit, (1,)

    for protocol in range(2, 6):
        with pytest.raises(OldState, match="from before saved state had a format number"):
            FORM.read(pickle.dumps(Bomb(), protocol))


def test_earlier_formats_are_upgraded_step_by_step() -> None:
    """Format 1 has pairs, format 2 calls their sides first and second and freezes them, format 3 doubles numbers."""
    data = FORM.packed({"it": Pair(1, [2])})

    def renamed(tables: Tables) -> Tables:
        place = tables.shapes.index(["Pair", "left", "right"])
        tables.shapes[place] = ["Frozen", "first", "second"]
        return tables

    def doubled(tables: Tables) -> Tables:
        place = tables.shapes.index(["Frozen", "first", "second"])
        values = [[2 * entry[0], *entry[1:]] if entry[-1] == place else entry for entry in tables.values]
        return tables._replace(values=values)

    assert a_format(2, upgrades={1: renamed}).read(data) == {"it": Frozen(1, [2])}
    assert a_format(3, upgrades={1: renamed, 2: doubled}).read(data) == {"it": Frozen(2, [2])}
    with pytest.raises(StateError, match="cannot be upgraded from format 1"):
        a_format(2, upgrades={1: lambda tables: tables.nothing}).read(data)


def test_fields_that_the_class_does_not_have_are_refused() -> None:
    data = FORM.packed({"it": Pair(1, 2), "open": Open()})

    def with_fields(*names: str) -> Callable[[Tables], Tables]:
        def change(tables: Tables) -> Tables:
            place = next(number for number, shape in enumerate(tables.shapes) if shape[0] == names[0])
            tables.shapes[place] = list(names)
            return tables

        return change

    for names, sentence in [
        (("Pair", "left", "wrong"), "'Pair' with the fields left, wrong, where this version has left, right"),
        (("Open", "parts"), "'Open' with the fields parts, where this version has back, parts"),
        (("Frozen", "first"), "'Frozen' with the fields first, where this version has first, second"),
    ]:
        changed = a_format(2, upgrades={1: with_fields(*names)})
        if names[0] == "Frozen":
            data = FORM.packed(Frozen(1))
        with pytest.raises(StateError, match=sentence):
            changed.read(data)


# ------------------------------------------------------------------------------------------------------- hostile bytes


def sealed(body: bytes) -> bytes:
    """With a header that says that this is as it should be."""
    return struct.pack("<8s16sHHI", b"\x89HWstat\n", b"test", 1, 0, crc32(body)) + body


def of_tables(shapes: Any, values: Any, objects: Any, root: Any) -> bytes:
    return sealed(msgpack.packb([shapes, values, objects, root]))


@pytest.mark.parametrize(
    "data",
    [
        sealed(b""),
        sealed(b"\xc1"),
        sealed(msgpack.packb({})),
        sealed(msgpack.packb([[], [], []])),
        sealed(msgpack.packb([[], [], [], {1: 2}])),
        sealed(msgpack.packb([[], [], [], msgpack.ExtType(5, b"x")])),
        of_tables([["os.system"]], [], [], None),
        of_tables([["Forgotten"]], [], [[0]], [-1]),
        of_tables([["named", "print"]], [[0]], [], [0]),
        of_tables([["Plain", "__class__"]], [], [[1, 0]], [-1]),
        of_tables([["Plain", "act"]], [], [["x", 0]], [-1]),
        of_tables([["Plain", "seen"]], [], [["x", 0]], [-1]),
        of_tables([["Plain", "a b"]], [], [["x", 0]], [-1]),
        of_tables([["Slotted", "__class__"]], [], [["x", 0]], [-1]),
        of_tables([["Plain", "a"]], [], [[0]], [-1]),
        of_tables([["Plain", "a"]], [], [[1, 2, 0]], [-1]),
        of_tables([["tuple"]], [], [[0]], [-1]),
        of_tables([["list"]], [[0]], [], [0]),
        of_tables([["tuple"]], [[[0], 0]], [], [0]),
        of_tables([["tuple"]], [[[1], 0], [[0], 0]], [], [0]),
        of_tables([["tuple"]], [[[-1], 0]], [], [0]),
        of_tables([["tuple"]], [[[True], 0]], [], [0]),
        of_tables([["tuple"]], [[[], 0]], [], [0]),
        of_tables([["tuple"]], [[[1, 2], 0]], [], [0]),
        of_tables([["tuple"]], [[True]], [], [0]),
        of_tables([["tuple"]], [[-1]], [], [0]),
        of_tables([["tuple"]], [[1]], [], [0]),
        of_tables([["tuple"]], [[]], [], [0]),
        of_tables([["tuple"]], [5], [], [0]),
        of_tables([["tuple", "field"]], [[0]], [], [0]),
        of_tables([[1]], [], [], None),
        of_tables([[]], [], [], None),
        of_tables([5], [], [], None),
        of_tables([["dict"]], [], [[1, 0]], [-1]),
        of_tables([["dict"]], [], [[[-1], 1, 0]], [-1]),
        of_tables([["set"]], [], [[[-1], 0]], [-1]),
        of_tables([["frozenset"], ["list"]], [[[-1], 0]], [[1]], [0]),
        of_tables([["deque", "x"]], [], [[0]], [-1]),
        of_tables([["deque", "9" * 30]], [], [[0]], [-1]),
        of_tables([["defaultdict"]], [], [["eval", 0]], [-1]),
        of_tables([["defaultdict"]], [], [[0]], [-1]),
        of_tables([["bytearray"]], [], [[5, 0]], [-1]),
        of_tables([["Colour"]], [["mro", 0]], [], [0]),
        of_tables([["Colour"]], [[0]], [], [0]),
        of_tables([["Pair", "left", "right"]], [[1, 0]], [], [0]),
        of_tables([["Frozen", "first", "second"]], [[1, 0]], [], [0]),
        of_tables([["Remade", "source"]], [], [[1, 0]], [-1]),
        of_tables([["Remade"]], [], [[1, 0]], [-1]),
        of_tables([["Remade"]], [], [[0]], [-1]),
        of_tables([], [], [], [0]),
        of_tables([], [], [], [-1]),
        of_tables([], [], [], []),
        of_tables([], [], [], ["x"]),
    ],
)
def test_hostile_bytes_are_refused_in_a_sentence(data: bytes) -> None:
    with pytest.raises(StateError, match="saved state"):
        FORM.read(data)


@pytest.mark.parametrize("keyed", ["set", "dict", "frozenset"])
def test_few_bytes_cannot_describe_a_key_that_takes_for_ever_to_hash(keyed: str) -> None:
    doubling = [[0], *([[n], [n], 0] for n in range(200))]
    deep = [[0], *([[n], 0] for n in range(20_000))]
    for values in (doubling, deep):
        key = [len(values) - 1]
        entry = [key, 1, 1] if keyed == "dict" else [key, 1]
        shapes = [["tuple"], [keyed]]
        hostile = (shapes, [*values, entry], [], [0]) if keyed == "frozenset" else (shapes, values, [entry], [-1])
        with pytest.raises(StateError, match="larger than any key"):
            FORM.read(of_tables(*hostile))


def a_state(rng: random.Random, depth: int = 4) -> Any:
    """Something random, with sharing."""
    seen: list[Any] = [None, 1, "a", 2.5, b"b", 10**25]

    def one(depth: int) -> Any:
        if depth == 0 or rng.random() < 0.3:
            return rng.choice(seen)
        parts = [one(depth - 1) for _ in range(rng.randrange(4))]
        flat = [part for part in parts if isinstance(part, int | str | float)]
        makers: list[Callable[[], Any]] = [
            lambda: tuple(parts),
            lambda: parts,
            lambda: dict.fromkeys(flat, parts),
            lambda: set(flat),
            lambda: frozenset(flat),
            lambda: deque(parts, maxlen=rng.choice([None, 7])),
            lambda: Counter(flat),
            lambda: Plain(**{f"f{number}": part for number, part in enumerate(parts)}),
            lambda: Open(parts, rng.choice(seen)),
            lambda: Frozen(tuple(parts), rng.choice(seen)),
            lambda: Pair(parts, rng.choice(seen)),
            lambda: Colour.RED,
        ]
        made = rng.choice(makers)()
        seen.append(made)
        return made

    return [one(depth) for _ in range(6)]


def is_read(data: bytes) -> bool:
    """Whether there is a state in it; anything but a StateError is a failure."""
    try:
        FORM.read(data)
    except StateError:
        return False
    return True


def test_random_states_come_back_and_are_the_same_bytes_again() -> None:
    rng = random.Random(1)
    for _ in range(300):
        again(a_state(rng))


def test_random_damage_gives_a_sentence_and_nothing_else() -> None:
    """Flips, cuts and transplants, behind a checksum that is right: what comes back is a state or a StateError."""
    rng = random.Random(2)
    bodies = [FORM.packed(a_state(rng))[HEADER_BYTES:] for _ in range(20)]
    outcomes = Counter[bool]()
    for _ in range(4_000):
        body = bytearray(rng.choice(bodies))
        for _ in range(rng.randrange(1, 4)):
            place = rng.randrange(len(body))
            match rng.randrange(4):
                case 0:
                    body[place] ^= 1 << rng.randrange(8)
                case 1:
                    body[place] = rng.choice(b"\x00\x01\x7f\x80\x90\x91\x92\xa0\xc0\xc4\xcb\xcf\xd3\xdc\xdd\xff")
                case 2:
                    del body[place : place + rng.randrange(1, 9)]
                case 3:
                    body[place:place] = rng.choice(bodies)[:20]
            if not body:
                break
        outcomes[is_read(sealed(bytes(body)))] += 1
    assert outcomes[False] > 500
    assert outcomes[True] > 50


def test_random_tables_give_a_sentence_and_nothing_else() -> None:
    rng = random.Random(3)
    names = [*(cls.__name__ for cls in CLASSES), "tuple", "list", "dict", "set", "frozenset", "deque", "Counter"]
    names += ["OrderedDict", "defaultdict", "bytearray", "named"]
    fields = {
        "Pair": ["left", "right"],
        "Frozen": ["first", "second"],
        "Open": ["parts", "back"],
        "Checked": ["inside"],
    }
    fields |= {"Remade": ["source"], "Slotted": ["one"], "Later": ["other", "x"], "Plain": ["y"], "named": ["len"]}
    shapes = [[name, *fields.get(name, [])] for name in names]
    is_value = {"Colour", "Pair", "Frozen", "Checked", "tuple", "frozenset", "named"}

    def part(values: int, objects: int) -> Any:
        refs = [[rng.randrange(values)]] if values else []
        refs += [[-1 - rng.randrange(objects)]] if objects else []
        return rng.choice([None, 0, 1, "RED", "list", b"b", 1.5, *refs, *refs, [b"12345678901"]])

    def table(of_values: bool, count: int, others: int) -> list[Any]:
        own = [number for number, name in enumerate(names) if (name in is_value) == of_values]
        made = []
        for number in range(count):
            shape = rng.choice(own)
            length = len(shapes[shape]) - 1 if rng.random() < 0.8 and len(shapes[shape]) > 1 else rng.randrange(4)
            sides = (number, others) if of_values else (others, count)
            made.append([*(part(*sides) for _ in range(length)), shape])
        return made

    outcomes = Counter[bool]()
    for _ in range(4_000):
        counts = rng.randrange(5), rng.randrange(5)
        values, objects = table(True, counts[0], counts[1]), table(False, counts[1], counts[0])
        outcomes[is_read(of_tables(shapes, values, objects, part(*counts)))] += 1
    assert min(outcomes.values()) > 200


def test_bytes_that_are_not_sealed_are_refused() -> None:
    rng = random.Random(4)
    data = FORM.packed(a_state(rng))
    for broken in chain(
        (data[:end] for end in range(len(data))),
        (
            data[:place] + bytes((data[place] ^ 1 << bit,)) + data[place + 1 :]
            for place in range(40)
            for bit in range(8)
        ),
        (rng.randbytes(rng.randrange(200)) for _ in range(200)),
    ):
        if broken[:26] == data[:26] and broken[28:] == data[28:]:
            continue  # two bytes of the header that mean nothing yet
        with pytest.raises(StateError):
            FORM.read(broken)
