"""Random networks whose rules look into remote tables: wherever they are evaluated and whenever elements come, every
sink receives what the oracle says, which has the tables at hand.

Elements come after a drawn time, from none to longer than the windows, some twice, some never before they are asked for
again, and not at all while no table answers; under every policy and with a cache of any size.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from headwater.deploy.simulation.outcome import Outcome
from headwater.deploy.simulation.remote import SimulatedTables
from headwater.node.remote.caches import CACHES
from headwater.node.remote.memory import ENTRY_BYTES
from headwater.node.remote.policies import POLICIES
from headwater.protocol.analysis.validate import check_rule
from headwater.protocol.expressions import Attribute, Binary, Expression, Remote
from headwater.protocol.network import DescribedTable
from headwater.protocol.pattern import OutputAttribute, Rule, leaves, positive_leaves
from headwater.protocol.remote import ACCEPT, STEADY, WAIT, TableTerms, Versions
from tests import oracle
from tests.law.awaited import along, drawn_strategies, drawn_terms
from tests.law.behind import DATA_SETS, drawn, is_failing, looks_up, with_lookups
from tests.law.generators import TYPES
from tests.law.lineage import wrong_lineage
from tests.law.networks import COUNTED, NetworkCase, Size, network_case

TABLES = ("table", "sets")
OF_ANOTHER = 0.7
SHOWN = 0.2
"""How often a composite shows what was looked up."""
MORE = (0, 0, 1, 1, 2, 3)
"""How many lookups a rule gets beside those that were comparisons."""


def looked_up_case(seed: int, size: Size | None = None) -> NetworkCase:
    """The case of a seed with rules that look something up; as it was if none of its rules can."""
    case = network_case(seed, size, (COUNTED,))
    rng = random.Random(f"looked up {seed}")
    emitted = Counter(rule.emits for rule in case.network.rules)
    more = random.Random(f"more lookups {seed}")
    looking = [with_more(of_another(with_lookups(rule, rng), rng), more) for rule in case.network.rules]
    rules = tuple(showing(rule, rng) if emitted[rule.emits] == 1 else rule for rule in looking)
    network = replace(case.network, rules=rules, tables=placed(case.network.nodes, rng))
    return replace(case, network=network, tick_us=tick_of(case))


def lasting_case(seed: int) -> NetworkCase:
    """A small case in which each table is reached by a node that is not lost for good: one with a source or a sink."""
    case = looked_up_case(seed, "small")
    network = case.network
    rng = random.Random(f"lasting {seed}")
    busy = [source.node for source in network.sources] + [sink.node for sink in network.sinks]
    tables = tuple(
        replace(table, at=tuple(dict.fromkeys((*table.at, rng.choice(busy))))) if table.at and busy else table
        for table in network.tables
    )
    return replace(case, network=replace(network, tables=tables))


def placed(nodes: Sequence[str], rng: random.Random) -> tuple[DescribedTable, ...]:
    """The tables; in two thirds of the cases not every node reaches each of them. Often one reaches all of them."""
    if rng.random() < 0.33:
        return tuple(DescribedTable(table, "") for table in TABLES)
    share = rng.choice((0.0, 0.3, 0.6))
    one = rng.choice(nodes)
    ones = [one if rng.random() < 0.5 else rng.choice(nodes) for _ in TABLES]
    others = [[node for node in nodes if node == sure or rng.random() < share] for sure in ones]
    return tuple(DescribedTable(table, "", tuple(at)) for table, at in zip(TABLES, others, strict=True))


def tick_of(case: NetworkCase) -> int:
    """Versions follow each other as fast as events do."""
    last = max((event.ts for _, _, event in case.births), default=0)
    return max(1, last // 20)


def showing(rule: Rule, rng: random.Random) -> Rule:
    """Now and then with an attribute that was looked up for the first part, if that is one event of a source."""
    first = next(leaves(rule.pattern.root))
    certain = not hasattr(rule.pattern.root, "parts") or rule.pattern.root.parts[0] is first
    if not looks_up(rule) or first.type not in TYPES or not certain or rng.random() >= SHOWN:
        return rule
    shown = OutputAttribute("shown", "any", Remote("table", (Attribute(first.role, "id"),)))
    return replace(rule, attributes=(*rule.attributes, shown))


def of_another(rule: Rule, rng: random.Random) -> Rule:
    """The rule with some comparisons of two parts turned into lookups: a value with what another stands for."""

    def turned(conjunct: Expression) -> Expression:
        match conjunct:
            case Binary("<" | "<=" | ">" | ">=" | "!=", Attribute(one, "v"), Attribute(other, "v", index)) if (
                one != other and rng.random() < OF_ANOTHER
            ):
                return replace(conjunct, right=Remote("table", (Attribute(other, "id", index),)))
        return conjunct

    return replace(rule, pattern=replace(rule.pattern, where=tuple(map(turned, rule.pattern.where))))


def with_more(rule: Rule, rng: random.Random) -> Rule:
    """The rule with further conditions that look something up: about one event of a source, so that it can be judged
    where that is born, or about two, which some part of the rule may bring together."""
    roles = [leaf.role for leaf in leaves(rule.pattern.root) if leaf.type in TYPES]
    parts = [leaf.role for leaf in positive_leaves(rule.pattern.root) if leaf.type in TYPES]
    for _ in range(rng.choice(MORE) if roles else 0):
        role = of = rng.choice(roles)
        if role in parts and rng.random() < 0.3:
            of = rng.choice(parts)
        if rng.random() < 0.7:
            looked_up: Expression = Remote("table", (Attribute(of, "id"),))
            condition = Binary(rng.choice(("<", "<=", ">=", ">", "!=")), Attribute(role, "v"), looked_up)
        else:
            condition = Binary("in", Attribute(role, "v"), Remote("sets", (Attribute(of, "id"),)))
        longer = replace(rule, pattern=replace(rule.pattern, where=(*rule.pattern.where, condition)))
        if not check_rule(longer):
            rule = longer
    return rule


def element(data: int, table: str, tick_us: int, key: tuple[int, ...]) -> Versions | None:
    """What a table of a data set has for a key, its versions as far apart as the case says."""
    versions = drawn(data, table, *key)
    return None if versions is None else Versions(tuple(since * tick_us for since in versions.times), versions.values)


class AtHand:
    """A table for the oracle."""

    def __init__(self, data: int, table: str, tick_us: int, on_failure: str) -> None:
        self._of = partial(element, data, table, tick_us)
        self._data = data
        self._table = table
        self._on_failure = on_failure

    def lookup(self, arguments: tuple[int, ...], ts: int) -> Any:
        if self._on_failure != WAIT and is_failing(self._data, self._table, arguments):
            return oracle.ACCEPTED if self._on_failure == ACCEPT else None
        versions = self._of(arguments)
        return None if versions is None else versions.at(ts)


def terms_of(case: NetworkCase) -> dict[str, TableTerms]:
    """What lookups mean in the tables of a case, where that is not the usual."""
    return drawn_terms(random.Random(f"terms {case.seed}"))


def tables_at_hand(case: NetworkCase) -> dict[str, AtHand]:
    terms, data = terms_of(case), case.seed % DATA_SETS
    return {table: AtHand(data, table, case.tick_us, terms.get(table, STEADY).on_failure) for table in TABLES}


def tables_of(case: NetworkCase, strategy: str, *, faults: bool) -> SimulatedTables | None:
    """The tables as a run finds them; None where the rules of the case look nothing up."""
    if not case.tick_us:
        return None
    rng = random.Random(f"tables {case.seed} {strategy} {faults}")
    tick_us = case.tick_us
    most_us = rng.choice((0, 0, tick_us // 10, tick_us, 5 * tick_us, 30 * tick_us))
    outages = []
    if faults and rng.random() < 0.3:
        begins = rng.randint(0, case.span_us + 1)
        outages.append((begins, begins + rng.randint(1, 10 * tick_us)))
    terms, data = terms_of(case), case.seed % DATA_SETS

    def failing(table: str, key: tuple[Any, ...]) -> bool:
        return terms.get(table, STEADY).on_failure != WAIT and is_failing(data, table, key)

    waits = all(each.on_failure == WAIT for each in terms.values())  # otherwise what fails is decided
    return SimulatedTables(
        {table: partial(element, case.seed % DATA_SETS, table, tick_us) for table in TABLES},
        (rng.choice((0, most_us)), most_us),
        loss=rng.choice((0.0, 0.2)) if faults and waits else 0.0,
        repeats=rng.choice((0.0, 0.2)) if faults else 0.0,
        outages=tuple(outages) if waits else (),
        reached_from={table.name: table.at for table in case.network.tables if table.at},
        strategy=rng.choice(list(POLICIES)),
        strategies=drawn_strategies(random.Random(f"of rules {case.seed} {strategy}"), case.network.rules),
        cache=rng.choice(list(CACHES)),
        cache_bytes=rng.choice((0, 5 * ENTRY_BYTES, 10**6, 10**6)),
        terms=terms,
        failing=failing,
        along=partial(_along, terms),
    )


def lineage_of(case: NetworkCase, outcome: Outcome, strategy: str, *, faults: bool) -> list[str]:
    """What is wrong with what composites say of the tables."""
    tables = tables_of(case, strategy, faults=faults)
    if tables is None:
        return []
    items = [delivery.item for delivery in outcome.delivered]
    elements = partial(_element, tables)
    return wrong_lineage(case.network.rules, items, tables.terms, elements, tables.failing)


def _along(terms: Mapping[str, TableTerms], table: str, key: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """What comes with a key, where the table answers for several; not where some of them cannot be had."""
    of_table = terms.get(table, STEADY)
    return along(table, key) if of_table.whole and of_table.on_failure == WAIT else []


def _element(tables: SimulatedTables, table: str, key: tuple[Any, ...]) -> Versions | None:
    return tables.tables[table](key)
