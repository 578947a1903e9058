"""The law: every sink receives exactly the events that a single engine would find for it over the global trace.

What must be received comes from the oracle, over the events that were really born; the constraints of subscriptions are
judged by the oracle's own expressions. Nothing here knows how a network works.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from headwater.deploy.simulation.outcome import Delivery, Outcome
from headwater.node.engine import Engine
from headwater.node.explain.expressions import Scope as ProductScope
from headwater.node.explain.expressions import holds as product_holds
from headwater.protocol.composites import Composite
from headwater.protocol.events import Event
from headwater.protocol.subscriptions import SUBJECT, Subscription
from headwater.protocol.wire import messages as wire
from headwater.protocol.wire import rows as wire_rows
from tests.kit.patience import TooSlow as TooSlow
from tests.kit.patience import time_limit as time_limit
from tests.law.layouts import impatient, random_planner, strikes
from tests.law.looked_up import lineage_of, tables_at_hand, tables_of
from tests.law.networks import NetworkCase
from tests.oracle import Found, Item, Scope, TooManyMatches, as_item, evaluate, holds, primitive

SERVED: tuple[str, ...] = ("centr", "st", "mt", "st-pp", "mt-pp", "inev")
"""The strategies that are tested now."""

MATCHES_MAX = 2000
READ_MAX = 40  # composites of one rule that others read: their combinations explode
ORACLE_SECONDS = 3.0  # of work: a case on which the oracle takes longer is left out and counted
RUN_SECONDS = 40.0  # of work: a simulated run that takes longer is taken for one that never ends

Identity = str | tuple[str, int]
"""The id of a composite event, or node and seq of a primitive one."""


class Unjudged(Exception):
    """The oracle cannot finish this case."""


# -- what must be received ---------------------------------------------------------------------------------------------


def expected(case: NetworkCase, born: Sequence[Event]) -> list[dict[Identity, Found | Event]]:
    """For every sink what it must receive, by identity. Raises Unjudged if the oracle gives the case up."""
    network = case.network
    try:
        with time_limit(ORACLE_SECONDS):
            remote = tables_at_hand(case) if case.tick_us else None
            found = evaluate(
                network.rules,
                born,
                network.types,
                functions=case.functions,
                remote=remote,
                matches_max=MATCHES_MAX,
                read_max=READ_MAX,
            )
    except (TooManyMatches, TooSlow) as error:
        raise Unjudged(str(error)) from None
    candidates: list[tuple[Item, Found | Event]] = [(primitive(event), event) for event in born]
    candidates += [(as_item(match), match) for match in found]
    return [
        {item.identity: thing for item, thing in candidates if wanted(sink.subscription, item, case.functions)}
        for sink in network.sinks
    ]


def wanted(subscription: Subscription, item: Item, functions: Any = None) -> bool:
    scope = Scope({SUBJECT: item}, functions=functions)
    return item.type == subscription.type and all(holds(conjunct, scope) for conjunct in subscription.where)


# -- differences -------------------------------------------------------------------------------------------------------


def compare(case: NetworkCase, outcome: Outcome, must: Sequence[Mapping[Identity, Found | Event]]) -> list[str]:
    """What is wrong with a run, one sentence each, sink by sink; nothing if it keeps the law."""
    received: list[list[Composite | Event]] = [[] for _ in case.network.sinks]
    wrong: list[str] = []
    for delivery in outcome.delivered:
        received[delivery.sink].append(delivery.item)
        if delivery.node != case.network.sinks[delivery.sink].node:
            wrong.append(f"false: sink {delivery.sink} received {delivery.item!r} at {delivery.node}")
    for number, (items, needed) in enumerate(zip(received, must, strict=True)):
        place = f"sink {number} at {case.network.sinks[number].node}"
        times = Counter(map(identity_of, items))
        wrong += [f"missing: {place} did not receive {shown(needed[key])}" for key in needed if key not in times]
        for item in items:
            key = identity_of(item)
            if key not in needed:
                wrong.append(f"false: {place} received {item!r}")
            elif (told := content(item)) != (right := content(needed[key])):
                wrong.append(f"wrong content: {place} received {told}, not {right}")
        wrong += [
            f"doubled: {place} received {shown(needed[key])} {count} times"
            for key, count in times.items()
            if count > 1 and key in needed
        ]
    return wrong


def births_lost(case: NetworkCase, outcome: Outcome) -> list[str]:
    """Events that were born though they are late or no source bore them, and events that should have been born."""
    should = Counter(facts(event) for at_us, source, event in case.births if not case.is_late((at_us, source, event)))
    born = Counter(map(facts, outcome.born))
    wrong = [f"birth lost: {fact} x {count}" for fact, count in (should - born).items()]
    wrong += [f"birth invented: {fact} x {count}" for fact, count in (born - should).items()]
    identities = Counter((event.node, event.seq) for event in outcome.born)
    return wrong + [f"identity given twice: {node}#{seq}" for (node, seq), n in identities.items() if n > 1]


def births_late(case: NetworkCase, outcome: Outcome) -> list[str]:
    """An event that its source tells in time is not late because its node was down."""
    allowed, late = sum(map(case.is_late, case.births)), outcome.counters["late_events"]
    return [f"{late} events were late, but only {allowed} were told late"] if late > allowed else []


def facts(event: Event) -> tuple[Any, ...]:
    """What is known of an event before it has a number."""
    return (event.ts, event.node, event.type, *event[4:])


def identity_of(item: Composite | Event) -> Identity:
    return item.id if isinstance(item, Composite) else (item.node, item.seq)


def content(item: Composite | Event | Found) -> Any:
    """Everything that a receiver can read of it."""
    match item:
        case Composite():
            parts = [(p["role"], p.get("id") or (p["node"], p["seq"])) for p in item.to_json()["events"]]
            return item.rule, item.version, item.type, item.start, item.end, parts, item.attributes
        case Found():
            attributes = dict(item.attributes)
            return item.rule, item.version, item.type, item.start, item.end, list(item.parts), attributes
        case _:
            return tuple(item)


def shown(thing: Found | Event) -> str:
    if isinstance(thing, Event):
        return repr(thing)
    parts = " ".join(
        f"{role}:{part if isinstance(part, str) else f'{part[0]}#{part[1]}'}" for role, part in thing.parts
    )
    return f"{thing.type}({', '.join(f'{k}={v!r}' for k, v in thing.attributes.items())})@{thing.ts} [{parts}]"


# -- runs --------------------------------------------------------------------------------------------------------------


@dataclass
class Verdict:
    """What became of one case under one strategy."""

    matches: int = 0
    unjudged: bool = False
    wrong: list[str] = field(default_factory=list)

    @property
    def kind(self) -> str:
        """The sort of the first difference, which stays the same while a case is made smaller."""
        return self.wrong[0].split(":")[0] if self.wrong else ""


@contextmanager
def columns_from(count: int) -> Iterator[None]:
    """Within it, so many events that come together are kept as columns, and batches of any size are read by pieces."""
    with patch.object(wire_rows, "LAZY_LEAST", count), patch.object(wire, "PIECEWISE_BYTES", 0):
        yield


def run(case: NetworkCase, strategy: str, faults: bool = False) -> Outcome:
    """Simulate the case with everything watched; every third seed encodes and decodes every message, and then keeps
    columns however short they are: the batches of small networks are."""
    from headwater.deploy.simulation.simulator import simulate
    from headwater.node.core import NodeSettings

    with time_limit(RUN_SECONDS), columns_from(2):
        return simulate(
            case.network,
            case.births,
            strategy=strategy,
            seed=case.seed,
            lay_out=random_planner(case.seed),
            faults=case.chosen_faults() if faults else None,
            check=True,
            wire=case.seed % 3 == 0,
            settings=NodeSettings(
                tick_least_us=50, review_us=100, restless=case.seed % 4 != 0, patience=impatient(case.births)
            ),
            changes=strikes(case.seed, case.births) if strategy == "inev" else (),
            remote=tables_of(case, strategy, faults=faults),
        )


Runner = Callable[[NetworkCase, str, bool], Outcome]


def check(case: NetworkCase, strategy: str, faults: bool = False, runner: Runner = run) -> Verdict:
    """Run the case and hold the outcome against the law.

    A case that the oracle cannot finish is not run at all: it may have more matches than there is memory for.
    """
    try:
        remembered(case, promised(case))
    except Unjudged:
        return Verdict(unjudged=True)
    try:
        outcome = runner(case, strategy, faults)
    except TooSlow as error:
        return Verdict(wrong=[f"too slow: {error}"])
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{where.filename.rsplit('/', 1)[-1]}, line {where.lineno}"
        return Verdict(wrong=[f"raised {type(error).__name__} in {place}: {error}"])
    lost = [f"planner failed: {sentence}" for sentence in outcome.planner_failures]
    lost += births_late(case, outcome) if faults else births_lost(case, outcome)
    try:
        must = remembered(case, tuple(sorted(outcome.born)))
    except Unjudged:
        return Verdict(unjudged=True, wrong=lost)
    lost += lineage_of(case, outcome, strategy, faults=faults)
    return Verdict(sum(map(len, must)), wrong=lost + compare(case, outcome, must))


def promised(case: NetworkCase) -> tuple[Event, ...]:
    """The global trace if every event that is not late is born and numbered as the case numbers it."""
    return tuple(sorted(birth[2] for birth in case.births if not case.is_late(birth)))


_last: list[Any] = [None, None, None]


def remembered(case: NetworkCase, born: tuple[Event, ...]) -> list[dict[Identity, Found | Event]]:
    """``expected``, which for one case and all its strategies is asked for only once."""
    if _last[0] is not case or _last[1] != born:
        try:
            _last[:] = [case, born, expected(case, born)]
        except Unjudged as error:
            _last[:] = [case, born, error]
    if isinstance(_last[2], Unjudged):
        raise _last[2]
    known: list[dict[Identity, Found | Event]] = _last[2]
    return known


def reference(case: NetworkCase, strategy: str = "", faults: bool = False) -> Outcome:
    """The simplest network: every event goes to one engine as it is born, and its matches to the sinks at once."""
    outcome = Outcome("reference")
    engine = Engine(case.network.rules, case.network.types)
    slack_us = max((source.lateness_us for source in case.network.sources), default=0)

    def deliver(items: Iterable[Composite | Event], now_us: int) -> None:
        for item in items:
            row = item.row() if isinstance(item, Composite) else item
            for number, sink in enumerate(case.network.sinks):
                scope = ProductScope({SUBJECT: row})
                matching = all(product_holds(conjunct, scope) for conjunct in sink.subscription.where)
                if item.type == sink.subscription.type and matching:
                    outcome.delivered.append(Delivery(number, sink.node, item, now_us))

    for birth in case.births:
        at_us, _, event = birth
        if not case.is_late(birth):
            outcome.born.append(event)
            deliver([event], at_us)
            deliver(engine.feed([event]), at_us)
        deliver(engine.advance(at_us - slack_us - 1), at_us)
    deliver(engine.close(), case.span_us)
    return outcome
