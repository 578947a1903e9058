"""Saving and restoring what an engine holds.

A snapshot is msgpack: a fingerprint of the rules and types it belongs to, then per store its buffers, waiting matches,
pending events and open runs. Rows occur many times (in several buffers, in matches), so each is written once into a
table and referred to by its number. Composites that came from outside are written in their wire form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, cast

import msgpack

from headwater.node.engine.doubts import DoubtedRun, with_doubts
from headwater.node.engine.remote_memory import MISSING
from headwater.node.engine.store import Store, StoreState
from headwater.node.engine.sweeps import sweeps_of
from headwater.node.engine.waiting import HeldEvaluation
from headwater.protocol.composites import (
    Composite,
    CompositeSpec,
    LookedUp,
    carrying_spec,
    from_wire,
    informed,
    to_wire,
)
from headwater.protocol.errors import EventError, HeadwaterError
from headwater.protocol.events import EventType
from headwater.protocol.remote import saved_versions

FORMAT = 5
_WITHOUT_FORESIGHT = 4  # as engines were saved that had learnt nothing of what they ask for
_ONE_KEY = 3  # as engines were saved whose skip-till-next runs were kept by one attribute
_WITHOUT_WAITING = 2  # as engines were saved whose evaluations never waited for remote tables
_BIG_INT = 2
_DECIMAL_INT = 1  # as earlier versions wrote them; they have at most 4,300 digits
_PLAIN, _FROM_OUTSIDE = -1, -2  # in place of the number of a rule


@dataclass(frozen=True, slots=True)
class WaitingState:
    """What an engine holds beside its stores: evaluations that wait for remote tables, and input that it was given
    while it paused. ``applied``: how far its input has been evaluated."""

    applied: float
    queue: tuple[tuple[str, Any], ...] = ()
    held: tuple[HeldEvaluation, ...] = ()
    learnt: Sequence[Any] | None = None
    """What it and its stores have learnt of what they ask for, as plain values; None if nothing is asked for."""


class SnapshotError(HeadwaterError):
    """A snapshot that does not belong to this engine or is damaged."""


class _Table:
    """Tuples and composites by number; scalars stand for themselves."""

    def __init__(self, rule_numbers: Mapping[int, int]) -> None:
        self.entries: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._alive: list[Any] = []
        self._rule_numbers = rule_numbers
        self.specs: dict[tuple[str, int], CompositeSpec] = {}
        """Of the rules elsewhere whose composites this engine holds."""

    def ref(self, value: Any) -> Any:
        """Something msgpack can hold: ``[number]`` for tuples and composites, ``{"t": name}`` for event types."""
        if isinstance(value, EventType):
            return {"t": value.name}
        if isinstance(value, list):
            return {"l": [self.ref(item) for item in value]}
        if isinstance(value, DoubtedRun):
            return {"d": [self.ref(tuple(value)), self.ref(value.doubts), value.seen]}
        if value is MISSING:
            return {"m": None}
        if not isinstance(value, tuple):
            return _scalar(value)
        number = self._numbers.get(id(value))
        if number is None:
            if isinstance(value, Composite):
                rule = self._rule_numbers.get(id(value.spec))
                if rule is None:
                    self._note_specs(value)
                    entry = [_FROM_OUTSIDE, to_wire(value)]
                else:
                    entry = [rule, [self.ref(binding) for binding in value[1:]]]
                    if value.looked_up:
                        entry.append([[self.ref(field) for field in said] for said in value.looked_up])
            else:
                entry = [_PLAIN, [self.ref(item) for item in value]]
            number = self._numbers[id(value)] = len(self.entries)
            self.entries.append(entry)
            self._alive.append(value)
        return [number]

    def _note_specs(self, composite: Composite) -> None:
        self.specs[composite.rule, composite.version] = composite.spec
        for _, row in composite.parts():
            if isinstance(row[3], Composite):
                self._note_specs(row[3])


def _plain_spec(spec: CompositeSpec) -> list[Any]:
    return [spec.rule, spec.version, spec.type.declaration(), spec.roles, spec.repeated, spec.plain]


def _spec(plain: Sequence[Any]) -> CompositeSpec:
    rule, version, (name, attributes), roles, repeated, is_plain = plain
    event_type = EventType(name, [(attribute, kind) for attribute, kind in attributes])
    return carrying_spec(rule, version, event_type, tuple(roles), tuple(repeated), is_plain)


def _scalar(value: Any) -> Any:
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        return msgpack.ExtType(_BIG_INT, f"{value:x}".encode())
    return value


def _ext(code: int, data: bytes) -> Any:
    if code == _BIG_INT:
        return int(data, 16)
    if code == _DECIMAL_INT:
        return int(data)
    raise SnapshotError("unknown extension in a snapshot")


def encode_snapshot(
    fingerprint: str,
    watermark: float,
    running: Sequence[Any],
    stores: Sequence[Store],
    late: int,
    waiting: WaitingState,
) -> bytes:
    table = _Table({id(rule.plan.spec): number for number, rule in enumerate(running)})
    saved = []
    for store in stores:
        state = store.state
        buffers = [
            [[table.ref(key), [table.ref(row) for row in rows]] for key, rows in buffer.items()]
            if isinstance(buffer, dict)
            else [table.ref(row) for row in buffer]
            for buffer in state.rows
        ]
        saved.append(
            {
                "buffers": buffers,
                "newest": table.ref(state.newest[0]),
                "number": state.number[0],
                "waiting": [table.ref(entry) for entry in state.waiting],
                "numbered": [table.ref(entry) for entry in state.waiting_numbered],
                "pending": [table.ref(row) for row in state.pending],
                "runs": [
                    [n, [[[table.ref(key), [table.ref(run) for run in runs]] for key, runs in of.items()] for of in by]]
                    for n, by in state.runs_of.items()
                ],
                "watermark": state.watermark,
                "sweeps": store.sweeps(),
                "arrivals": [state.arrival, [[number, table.ref(row)] for number, row in state.arrivals.values()]],
                "logs": [[n, state.log_bases[n][0], [table.ref(row) for row in log]] for n, log in state.logs.items()],
            }
        )
    held = [
        waiting.applied,
        [[name, table.ref(argument)] for name, argument in waiting.queue],
        [
            [
                *(entry.serial, entry.store, entry.rule, table.ref(entry.what)),
                *(entry.end_ts, entry.keeps_ts, entry.number),
                [[table.ref(place), table.ref(element)] for place, element in entry.needs.items()],
            ]
            for entry in waiting.held
        ],
        waiting.learnt,
    ]
    counts = [
        [_scalar(rule.matches[0] if rule.plan.counts else rule.passed_on[0]), rule.over_limit[0]] for rule in running
    ]
    whole = [
        FORMAT,
        fingerprint,
        watermark,
        late,
        counts,
        table.entries,
        saved,
        list(map(_plain_spec, table.specs.values())),
        held,
    ]
    return cast(bytes, msgpack.packb(whole))


def decode_snapshot(
    data: bytes, fingerprint: str, types: Mapping[str, EventType], running: Sequence[Any], stores: Sequence[Store]
) -> tuple[float, int, WaitingState]:
    """Fill the stores; the watermark, the number of late events, and what waits."""
    watermark, late, counts, entries, saved, plain_specs, saved_waiting = _unpacked(data, fingerprint)
    table: list[Any] = []

    def value(ref: Any) -> Any:
        if isinstance(ref, list):
            return table[ref[0]]
        if isinstance(ref, dict):
            ((kind, inside),) = ref.items()
            return kinds[kind](inside)
        return ref

    kinds: Mapping[str, Callable[[Any], Any]] = {
        "t": types.__getitem__,
        "l": lambda items: [value(item) for item in items],
        "d": lambda inside: with_doubts(value(inside[0]), value(inside[1]), *inside[2:]),
        "m": lambda _: MISSING,
    }

    try:
        specs = {(spec.rule, spec.version): spec for spec in map(_spec, plain_specs)}
        for rule, inside, *said in entries:
            if rule == _FROM_OUTSIDE:
                table.append(from_wire(inside, specs))
                continue
            values = tuple(map(value, inside))
            if rule == _PLAIN:
                table.append(values)
                continue
            looked_up = [LookedUp(*map(value, fields)) for fields in said[0]] if said else ()
            table.append(informed(Composite((running[rule].plan.spec, *values)), looked_up))
        states = [_state(store, saved_store, value) for store, saved_store in zip(stores, saved, strict=True)]
        waiting = _waiting(saved_waiting, watermark, value)
        sweeps = [sweeps_of(saved_store.get("sweeps")) for saved_store in saved]
    except (KeyError, IndexError, TypeError, ValueError, EventError) as error:
        raise SnapshotError(f"the snapshot is damaged: {error!r}") from error
    for rule, (counted, over) in zip(running, counts, strict=True):
        rule.over_limit[0] = over
        (rule.matches if rule.plan.counts else rule.passed_on)[0] = counted
    for store, state, due in zip(stores, states, sweeps, strict=True):
        store.replace_state(state)
        if due is not None:
            store.sweep_as(due)
    return watermark, late, waiting


def _unpacked(data: bytes, fingerprint: str) -> Sequence[Any]:
    """What a snapshot holds beside its format and fingerprint, which must be those of this engine."""
    try:
        form, *rest = msgpack.unpackb(data, strict_map_key=False, ext_hook=_ext)
    except SnapshotError:
        raise
    except Exception as error:
        raise SnapshotError(f"this is not a snapshot of an engine: {error}") from error
    if form == _WITHOUT_WAITING and len(rest) == 7:
        rest.append(None)
    elif form not in (FORMAT, _WITHOUT_FORESIGHT, _ONE_KEY) or len(rest) != 8:
        raise SnapshotError(f"the snapshot has format {form!r}; this version reads {FORMAT}")
    content: list[Any]
    belongs_to, *content = rest
    if belongs_to != fingerprint:
        raise SnapshotError("the snapshot belongs to an engine with other rules or event types")
    return content


def _waiting(saved: Any, watermark: float, value: Callable[[Any], Any]) -> WaitingState:
    if saved is None:
        return WaitingState(watermark)
    applied, queue, held, *learnt = saved
    return WaitingState(
        applied,
        tuple((name, value(argument)) for name, argument in queue),
        tuple(
            HeldEvaluation(serial, store, rule, value(what), _elements(needs, value), end_ts, keeps_ts, number)
            for serial, store, rule, what, end_ts, keeps_ts, number, needs in held
        ),
        learnt[0] if learnt else None,
    )


def _elements(needs: Any, value: Callable[[Any], Any]) -> dict[Any, Any]:
    elements = {value(place): value(element) for place, element in needs}
    return {place: saved_versions(*e) if isinstance(e, tuple) else e for place, e in elements.items()}


def _state(store: Store, saved: Mapping[str, Any], value: Any) -> StoreState:
    state = StoreState(store.compiled)
    for rows, saved_rows in zip(state.rows, saved["buffers"], strict=True):
        if isinstance(rows, dict):
            for key, inside in saved_rows:
                rows[value(key)] = [value(row) for row in inside]
        else:
            rows.extend(value(row) for row in saved_rows)
    state.newest[0] = value(saved["newest"])
    state.number[0] = saved["number"]
    state.waiting.extend(value(entry) for entry in saved["waiting"])
    state.waiting_numbered.extend(value(entry) for entry in saved["numbered"])
    serials = [entry[1] for entry in state.waiting] + [entry[1] for entry in state.waiting_numbered]
    state.serial = count(max(serials, default=-1) + 1)
    state.pending.extend(value(row) for row in saved["pending"])
    state.runs_of = {
        number: [{value(key): [value(run) for run in runs] for key, runs in of} for of in by_stage]
        for number, by_stage in saved["runs"]
    }
    state.watermark = saved["watermark"]
    if "arrivals" in saved:
        state.arrival, arrivals = saved["arrivals"]
        rows = [(number, value(row)) for number, row in arrivals]
        state.arrivals |= {0 if row is None else id(row): (number, row) for number, row in rows}
        state.logs = {number: [value(row) for row in log] for number, _, log in saved["logs"]}
        state.log_bases = {number: [base] for number, base, _ in saved["logs"]}
    return state
