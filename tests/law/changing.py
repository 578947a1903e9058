"""Random networks whose tables answer with something else each time they are asked, and only for a while with the same:
what comes of it depends on when answers come, but the same inputs give the same composites.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from unittest.mock import patch

from headwater.deploy.simulation.remote import Elements, SimulatedTables
from headwater.node.core import NodeCore
from headwater.node.effects import Deliver, Effect, Fetch, Input
from headwater.node.engine.remote_memory import Key
from headwater.protocol.composites import Composite, LookedUp
from headwater.protocol.remote import ON_FAILURE, WAIT, TableTerms, Versions
from tests.law import law
from tests.law.behind import DATA_SETS, drawn, is_failing
from tests.law.looked_up import TABLES, tables_of
from tests.law.networks import NetworkCase


def answering(case: NetworkCase, table: str) -> Elements:
    """A table that has another element for a key each time, or none."""
    asked = count()

    def element(key: Key) -> Versions | None:
        return drawn((case.seed + next(asked)) % DATA_SETS, table, *key)

    return element


def changing_tables(case: NetworkCase, strategy: str, *, faults: bool) -> SimulatedTables | None:
    """The tables of a run; one of them is always fresh for a while only."""
    tables = tables_of(case, strategy, faults=faults)
    if tables is None:
        return None
    rng = random.Random(f"changing {case.seed} {strategy} {faults}")
    terms = {
        table: TableTerms(
            fresh_us=rng.choice((0, 1, tables.latency_us[1] // 2, case.tick_us, 10 * case.tick_us)),
            on_failure=rng.choice(ON_FAILURE),
        )
        for table in TABLES
    }

    def failing(table: str, key: Key) -> bool:
        return terms[table].on_failure != WAIT and is_failing(case.seed % DATA_SETS, table, key)

    answers = {table: answering(case, table) for table in TABLES}
    return replace(tables, tables=answers, terms=terms, failing=failing)


class Journals:
    """What every node of a run was given, and what it did."""

    def __init__(self) -> None:
        self.begun: list[tuple[bytes, list[tuple[Input, int, list[Effect]]]]] = []
        """Nodes as they were saved, and what they were given and did since then."""
        self.latest: dict[int, tuple[NodeCore, list[tuple[Input, int, list[Effect]]]]] = {}

    def replay(self) -> tuple[int, int]:
        """Give every node's inputs to another that is as it was; how many steps asked for elements, and how many
        delivered. A node that does anything else is an AssertionError."""
        asked = delivered = 0
        for saved, inputs in self.begun:
            again = NodeCore.restored(saved)
            for received, now_us, effects in inputs:
                repeated = again.handle(received, now_us)
                assert repeated == effects, f"{repeated!r} instead of {effects!r} at {received!r}"
                assert said_in(repeated) == said_in(effects)
                asked += any(isinstance(effect, Fetch) for effect in effects)
                delivered += any(isinstance(effect, Deliver) for effect in effects)
        return asked, delivered


def said_in(effects: list[Effect]) -> list[list[LookedUp]]:
    """What the composites of these deliveries rest on."""
    delivered = [row[3] for effect in effects if isinstance(effect, Deliver) for row in effect.rows]
    return [item.remote() for item in delivered if isinstance(item, Composite)]


@contextmanager
def journaled(rng: random.Random) -> Iterator[Journals]:
    """Within it, simulations have tables that change, and write down what their nodes are given since they were saved
    last."""
    journals = Journals()
    handle = NodeCore.handle

    def noting(core: NodeCore, received: Input, now_us: int) -> list[Effect]:
        if id(core) not in journals.latest or rng.random() < 0.02:
            journals.latest[id(core)] = core, []
            journals.begun.append((core.save(), journals.latest[id(core)][1]))
        effects = handle(core, received, now_us)
        journals.latest[id(core)][1].append((received, now_us, effects))
        return effects

    with patch.object(NodeCore, "handle", noting), patch.object(law, "tables_of", changing_tables):
        yield journals
