"""Object graphs as tables of plain values, and back.

Saved state is three tables. *Shapes* say what there is: the name of a class and the names of its fields. *Values* never
change once they are made (tuples, frozen dataclasses, event types, ..); each stands behind everything it is made of.
*Objects* change (lists, dicts, instances, ..), so they may refer to anything, also to each other. An entry of the last
two tables lists its parts and, at the end, the number of its shape. A part is a scalar, or a list of one number: of a
value from 0 on, of an object from -1 down. What is referred to twice is written once, so sharing and cycles survive.

Reading builds nothing but the classes of a ``Vocabulary``, from fields: no bytes can name code, let alone run it.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, NoReturn

import msgpack

from headwater.protocol.functions import FunctionsMissing
from headwater.protocol.state.classes import Made, MadeKind, Name, Recipe, Referent, kind_of
from headwater.protocol.state.kinds import StateError, StateKind, builtin_kinds

SCALARS: Final = frozenset((type(None), bool, int, float, str, bytes))
"""What stands for itself. Integers that msgpack cannot hold become a list of their bytes."""

NESTING_MAX: Final = 100
"""Values inside values that are written by recursion; deeper ones are written from below."""

KEY_WEIGHT_MAX: Final = 100_000
"""How much a key, or what a class is called with, may hold, counting what is in it as often as it is referred to:
hashing it takes as long, and few bytes can describe values of any size."""

KEY_DEPTH_MAX: Final = 1_000
"""How deeply such a value may be nested: the interpreter hashes tuples by recursion that it does not bound."""


class Tables(NamedTuple):
    """Saved state as it is in the bytes. Upgrades of a format work on these."""

    shapes: list[Any]
    values: list[Any]
    objects: list[Any]
    root: Any


class Vocabulary:
    """What saved state may be made of, each class under a name of its own: it stays when the class moves."""

    def __init__(
        self,
        classes: Mapping[str, type],
        *,
        made: Mapping[str, Made] | None = None,
        recipes: Mapping[str, Callable[..., Any]] | None = None,
        named: Mapping[str, Any] | None = None,
    ) -> None:
        """``recipes``: what makes functions that have a ``recipe``: a pair of it and its arguments. ``named``: what is
        only referred to, and not saved."""
        self._by_type: dict[type, StateKind] = {}
        self._by_name: dict[str, StateKind] = {}
        for kind in builtin_kinds():
            self._add(kind)
        for name, cls in classes.items():
            self.allow(name, cls)
        for name, how in (made or {}).items():
            self._add(MadeKind(name, how))
        self._recipes = {make: name for name, make in (recipes or {}).items()}
        for make, name in self._recipes.items():
            self._add(Recipe(name, make))
        self._named = dict(named or {})

    def allow(self, name: str, cls: type) -> None:
        """Let one more class be saved."""
        self._add(kind_of(name, cls))

    def _add(self, kind: StateKind) -> None:
        assert kind.name not in self._by_name, f"two classes are saved as {kind.name!r}"
        assert kind.cls is None or kind.cls not in self._by_type, f"{kind.cls} is saved under two names"
        self._by_name[kind.name] = kind
        if kind.cls is not None:
            self._by_type[kind.cls] = kind

    def classes(self) -> Mapping[str, type]:
        """By name."""
        return {name: kind.cls for name, kind in self._by_name.items() if kind.cls is not None}

    def tables(self, state: Any, named: Mapping[str, Any] | None = None) -> bytes:
        """Everything that can be reached from the state, as msgpack of ``Tables``. The same state gives the same bytes.

        An AssertionError names a class that is not in the vocabulary: the developer who added it must add it there.
        """
        with uncollected():
            return _Writer(self._by_type, self._recipes, {**self._named, **(named or {})}).written(state)

    def unpacked(self, data: bytes) -> Tables:
        """The tables in these bytes, or a StateError."""
        try:
            unpacked = msgpack.unpackb(
                data,
                strict_map_key=False,
                unicode_errors="surrogatepass",
                object_pairs_hook=_refuse,
                ext_hook=_refuse,
                timestamp=1,  # a float: there can be none, but no hook is asked about them
            )
        except Exception as error:
            raise StateError(f"the saved state is damaged: {error!r:.200}") from error
        match unpacked:
            case [list(shapes), list(values), list(objects), root]:
                return Tables(shapes, values, objects, root)
        raise StateError("the saved state is damaged: it does not hold the tables it should")

    def state(self, tables: Tables, named: Mapping[str, Any] | None = None) -> Any:
        """The state that the tables describe, or a StateError. The tables are used up."""
        try:
            return _Reader(self._by_name, {**self._named, **(named or {})}).read(tables)
        except (StateError, FunctionsMissing):
            raise
        except Exception as error:  # whatever a class says of parts that are none of its own
            raise StateError(f"the saved state is damaged: {error!r:.200}") from error


@contextmanager
def uncollected() -> Iterator[None]:
    """Large states are many objects at once and no garbage: looking for it would take most of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


# ------------------------------------------------------------------------------------------------------------- writing


class _Writer:
    def __init__(self, kinds: Mapping[type, StateKind], recipes: Mapping[Any, str], named: Mapping[str, Any]) -> None:
        self._kinds = kinds
        self._recipes = recipes
        self._named = {id(value): name for name, value in named.items()}
        self._shapes: list[tuple[str, ...]] = []
        self._shape_numbers: dict[Any, int] = {}
        self._refs: dict[int, tuple[int]] = {}
        self._interned: dict[Any, Any] = {}
        self._alive: list[Any] = []
        """What was made here: its address must not be given to another object."""
        self._values = msgpack.Packer(default=_big, unicode_errors="surrogatepass", autoreset=False)
        self._value_count = 0
        self._objects = msgpack.Packer(default=_big, unicode_errors="surrogatepass", autoreset=False)
        self._queue: list[tuple[StateKind, Any]] = []
        self._nesting = 0

    def written(self, state: Any) -> bytes:
        root = state if type(state) in SCALARS else self._ref(state)
        for kind, value in self._queue:  # it grows while it is worked off
            self._objects.pack(self._entry(kind, value))
        ends = msgpack.Packer(default=_big, unicode_errors="surrogatepass", autoreset=False)
        ends.pack_array_header(len(Tables._fields))
        ends.pack(self._shapes)
        ends.pack_array_header(self._value_count)
        head = ends.bytes()
        ends.reset()
        ends.pack_array_header(len(self._queue))
        middle = ends.bytes()
        ends.reset()
        ends.pack(root)
        return b"".join((head, self._values.bytes(), middle, self._objects.bytes(), ends.bytes()))

    def _entry(self, kind: StateKind, value: Any) -> list[Any]:
        names, parts = kind.apart(value)
        if kind.makes_parts:
            self._alive.append(parts)
        refs = self._refs
        entry = [
            part if type(part) in SCALARS else refs.get(id(part)) or self._ref(part)
            for part in parts
        ]  # fmt: skip
        shape = self._shape_numbers.get((kind.name, names))
        if shape is None:
            shape = self._shape_numbers[kind.name, names] = len(self._shapes)
            self._shapes.append((kind.name, *names))
        entry.append(shape)
        return entry

    def _ref(self, value: Any) -> tuple[int]:
        """The number of something that is no scalar."""
        ref = self._refs.get(id(value))
        if ref is not None:
            return ref
        kind = self._kinds.get(type(value)) or self._by_itself(value)
        if not kind.is_value:
            self._queue.append((kind, value))
            ref = self._refs[id(value)] = (-len(self._queue),)
            return ref
        if self._nesting >= NESTING_MAX:
            self._write_from_below(kind, value)
            return self._refs[id(value)]
        if kind.is_interned:
            same = self._interned.setdefault((kind, tuple(kind.apart(value)[1])), value)
            if same is not value:
                ref = self._refs[id(value)] = self._ref(same)
                return ref
        self._nesting += 1
        try:
            entry = self._entry(kind, value)
        finally:
            self._nesting -= 1
        self._values.pack(entry)
        ref = self._refs[id(value)] = (self._value_count,)
        self._value_count += 1
        return ref

    def _write_from_below(self, kind: StateKind, value: Any) -> None:
        """Write the values inside a value first, so that nothing is left to recur into."""
        nesting, self._nesting = self._nesting, 0
        waiting = [(kind, value, self._parts_inside(kind, value))]
        while waiting:
            kind, value, inside = waiting[-1]
            for part in inside:
                if type(part) in SCALARS or id(part) in self._refs:
                    continue
                within = self._kinds.get(type(part)) or self._by_itself(part)
                if within.is_value:
                    waiting.append((within, part, self._parts_inside(within, part)))
                    break
            else:
                waiting.pop()
                self._ref(value)
        self._nesting = nesting

    def _parts_inside(self, kind: StateKind, value: Any) -> Iterator[Any]:
        if kind.makes_parts:  # they would be others the next time
            return iter(())
        return iter(kind.apart(value)[1])

    def _by_itself(self, value: Any) -> StateKind:
        """How to write something of which not the class counts."""
        name = self._named.get(id(value))
        if name is not None:
            return Name(name)
        recipe = getattr(value, "recipe", None)
        if recipe is not None and recipe[0] in self._recipes:
            return Recipe(self._recipes[recipe[0]], recipe[0])
        cls = type(value)
        described = f"{cls.__module__}.{cls.__qualname__}"
        if isinstance(value, type) or callable(value):
            described = getattr(value, "__qualname__", described) + f" ({described})"
        raise AssertionError(
            f"{described} cannot be saved: it is not in the vocabulary of saved state (protocol/state)"
        )


def _big(value: Any) -> Any:
    assert type(value) is int, f"{type(value).__name__} among scalars"
    return (value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True),)


# ------------------------------------------------------------------------------------------------------------- reading


class _Reader:
    def __init__(self, kinds: Mapping[str, StateKind], named: Mapping[str, Any]) -> None:
        self._kinds = kinds
        self._named = named
        self._values: list[Any] = []
        self._weights: list[int] = []
        self._depths: list[int] = []
        self._objects: list[Any] = []
        self._weight = self._depth = 0
        """Of the value that is being made, so far."""
        self._is_plain = True
        """Whether no value is so heavy that a key might be too heavy."""

    def read(self, tables: Tables) -> Any:
        shapes = [self._shape(shape) for shape in tables.shapes]
        kinds: list[tuple[StateKind, tuple[str, ...]]] = []
        for entry in tables.objects:
            kind, names = _shape_of(entry, shapes)
            if kind.is_value:
                raise StateError(f"the saved state is damaged: {kind.name!r} among what changes")
            kinds.append((kind, names))
            self._objects.append(kind.new(names))
        values, weights, depths = self._values, self._weights, self._depths
        for entry in tables.values:
            kind, names = _shape_of(entry, shapes)
            if not kind.is_value:
                raise StateError(f"the saved state is damaged: {kind.name!r} among what does not change")
            self._weight = 1 + len(entry)
            self._depth = 0
            parts = [self._looked_up(part) if type(part) is list else part for part in entry]
            self._is_plain = self._is_plain and self._weight <= KEY_WEIGHT_MAX and self._depth < KEY_DEPTH_MAX
            if kind.hashes and (self._weight > KEY_WEIGHT_MAX or self._depth > KEY_DEPTH_MAX):
                raise StateError("the saved state is damaged: a key is larger than any key can be")
            values.append(kind.built(names, parts))
            weights.append(self._weight)
            depths.append(self._depth + 1)
        unsettled = []
        for instance, (kind, names), entry in zip(self._objects, kinds, tables.objects, strict=True):
            if not self._is_plain:
                self._check_keys(kind, entry)
            parts = [self._referred(part) if type(part) is list else part for part in entry]
            if kind.settles:
                unsettled.append((kind, instance, names, parts))
            else:
                kind.fill(instance, names, parts)
        for kind, instance, names, parts in unsettled:  # they may look at everything else
            kind.fill(instance, names, parts)
        return self._referred(tables.root) if type(tables.root) is list else tables.root

    def _shape(self, shape: Any) -> tuple[StateKind, tuple[str, ...]]:
        if not isinstance(shape, list) or not shape or not all(type(name) is str for name in shape):
            raise StateError("the saved state is damaged: a shape is not a list of names")
        name, *names = shape
        kind = self._kinds.get(name)
        if kind is None:
            if name != Name.NAME or len(names) != 1 or names[0] not in self._named:
                raise StateError(f"the saved state holds {' '.join(shape)!r:.80}, which this version does not know")
            return Referent(self._named[names[0]]), ()
        kind.check(tuple(names))
        return kind, tuple(names)

    def _looked_up(self, ref: list[Any]) -> Any:
        """What a part of a value refers to."""
        (number,) = ref
        if type(number) is int and number >= 0:
            self._weight += self._weights[number]
            if self._depths[number] > self._depth:
                self._depth = self._depths[number]
            return self._values[number]
        return self._referred(ref)

    def _referred(self, ref: list[Any]) -> Any:
        (number,) = ref
        if type(number) is int:
            return self._values[number] if number >= 0 else self._objects[-1 - number]
        if type(number) is bytes:
            return int.from_bytes(number, "little", signed=True)
        raise StateError("the saved state is damaged: a reference is not a number")

    def _check_keys(self, kind: StateKind, entry: list[Any]) -> None:
        for part in entry[kind.keys] if kind.keys is not None else ():
            if type(part) is list and len(part) == 1 and type(part[0]) is int and part[0] >= 0:
                number = part[0]
                if self._weights[number] > KEY_WEIGHT_MAX or self._depths[number] > KEY_DEPTH_MAX:
                    raise StateError("the saved state is damaged: a key is larger than any key can be")


def _shape_of(entry: Any, shapes: list[tuple[StateKind, tuple[str, ...]]]) -> tuple[StateKind, tuple[str, ...]]:
    """The shape of an entry, which loses its number."""
    if type(entry) is not list or not entry:
        raise StateError("the saved state is damaged: an entry without a shape")
    number = entry.pop()
    if type(number) is not int or not 0 <= number < len(shapes):
        raise StateError("the saved state is damaged: an entry of an unknown shape")
    return shapes[number]


def _refuse(*_: Any) -> NoReturn:
    raise StateError("a map or an extension, where there can be none")
