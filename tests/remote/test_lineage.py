"""Composite events say which values of remote tables they rest on."""

from __future__ import annotations

import json
from typing import Any

import pytest

import headwater as hw
from headwater.node.core import NodeCore
from headwater.node.effects import Deliver, Fetched
from headwater.node.engine import Engine, compile_rules
from headwater.node.remote.memory import Memory
from headwater.node.remote.policies import POLICIES
from headwater.protocol.composites import Composite, LookedUp, from_wire, informed, to_wire, wire_specs
from headwater.protocol.errors import EventError
from headwater.protocol.events import Event, EventType
from headwater.protocol.languages import Source, parse_rules
from headwater.protocol.remote import RemoteTable, TableTerms, Versions
from tests.command.test_command import Desk, desk  # noqa: F401
from tests.node.test_fetches import Node

every_strategy = pytest.mark.parametrize("strategy", POLICIES)
LIMITS = {"x": 4, "y": 6}
EVENTS = [
    {"type": kind, "ts": ts, "k": k, "v": v}
    for ts, (kind, k, v) in enumerate(
        [("A", "x", 5), ("A", "y", 5), ("B", "y", 9), ("C", "x", 1), ("B", "x", 9), ("C", "z", 1), ("B", "z", 9)], 1
    )
]
BOUND = "X: SEQ(A a, B b) WHERE a.v > REMOTE.limits[a.k] AND b.v > REMOTE.limits[b.k] WITHIN 1 s RETURN X(k = a.k)"


def said(match: Composite) -> list[tuple[Any, ...]]:
    return [(value.table, *value.key, value.value) for value in match.remote()]


def found(rule: str, strategy: Any = "hybrid", **tables: Any) -> list[Composite]:
    engine = hw.Engine(rule, remote=tables or {"limits": LIMITS.get}, remote_strategy=strategy, lineage=True)
    return sorted(engine.run(EVENTS), key=lambda match: match.key)


@every_strategy
def test_a_match_says_what_was_looked_up_for_its_own_events(strategy: str) -> None:
    assert [said(match) for match in found(BOUND, strategy)] == [
        [("limits", "x", 4), ("limits", "y", 6)],
        [("limits", "x", 4)],
    ]
    assert all(value.fetched_us for match in found(BOUND, strategy) for value in match.remote())


def test_tables_that_are_at_hand_were_fetched_at_no_time() -> None:
    for table in (LIMITS, RemoteTable.from_mapping(LIMITS)):
        matches = found(BOUND, limits=table)
        assert [said(match) for match in matches] == [[("limits", "x", 4), ("limits", "y", 6)], [("limits", "x", 4)]]
        assert {value.fetched_us for match in matches for value in match.remote()} == {None}


@every_strategy
def test_without_lineage_only_what_is_fresh_is_said(strategy: Any) -> None:
    fresh = {"python": "tests.remote.test_lineage:limit_of", "fresh": "1h"}
    for table, expected in ((LIMITS.get, []), (fresh, [("limits", "x", 4), ("limits", "y", 6)])):
        engine = hw.Engine(BOUND, remote={"limits": table}, remote_strategy=strategy)
        first = min(engine.run(EVENTS), key=lambda match: match.key)
        assert said(first) == expected
        assert ("remote" in first.to_json()) is bool(expected)


def limit_of(k: str) -> int | None:
    return LIMITS.get(k)


@every_strategy
def test_what_was_looked_up_for_a_negated_event_is_said_too(strategy: str) -> None:
    rule = "X: SEQ(A a, !(C c), B b) WHERE SAME[k] AND c.v > REMOTE.limits[c.k] WITHIN 1 s RETURN X(k = a.k)"
    matches = found(rule, strategy)
    assert [(match.attributes["k"], said(match)) for match in matches] == [("y", []), ("x", [("limits", "x", 4)])]


@every_strategy
def test_runs_of_skip_till_next_carry_what_they_rest_on(strategy: str) -> None:
    rule = (
        "X: SEQ(A a, C c, B b) WHERE a.v > REMOTE.limits[a.k] AND b.v > 3 SKIP TILL NEXT MATCH WITHIN 1 s "
        "RETURN X(k = a.k)"
    )
    assert [said(match) for match in found(rule, strategy)] == [[("limits", "x", 4)]]


def test_a_rule_on_rules_rests_on_what_their_composites_rest_on() -> None:
    matches = found(BOUND + "; Y: SEQ(X x, C c) WHERE c.v < REMOTE.limits[x.k] WITHIN 1 s RETURN Y(k = x.k)")
    (pair,) = {tuple(said(match)) for match in matches if match.type == "Y" and match.ts == 4}
    assert pair == (("limits", "x", 4), ("limits", "y", 6))


def test_it_survives_links() -> None:
    rules = parse_rules([Source(BOUND, "r", "sase")]).rules
    for match in found(BOUND):
        over = from_wire(json.loads(json.dumps(to_wire(match))), wire_specs(rules))
        assert over == match
        assert over.remote() == match.remote()
        plain = to_wire(match)
        assert from_wire(plain[:5], wire_specs(rules)).remote() == []
        for wrong in ([["limits"]], [[1, ["()", "x"], 4, 0, ""]], [["limits", "x", 4, 0, ""]], 3):
            with pytest.raises(EventError):
                from_wire([*plain[:5], wrong], wire_specs(rules))


def test_it_survives_snapshots_of_matches_that_wait() -> None:
    types = [EventType(name, {"k": "string", "v": "int"}) for name in "ABC"]
    text = "X: SEQ(A a, B b, !(C c)) WHERE a.v > REMOTE.limits[a.k] WITHIN 10 us RETURN X(k = a.k)"
    memory = Memory(["limits"], terms={"limits": TableTerms(fresh_us=10**9)})
    program = compile_rules(parse_rules([Source(text, "r", "sase")], types), remote=memory.tables)
    engine = Engine(program, memory=memory)
    engine.feed([Event(types[0], 1, "p", 1, {"k": "x", "v": 5}), Event(types[1], 2, "p", 2, {"k": "x", "v": 5})])
    engine.advance(3)
    memory.now_us = 77
    for place in memory.take_wanted():
        element = memory.stamped(place[0], Versions.always(4))
        assert memory.supply(*place, element)
        engine.supplied(*place, element)
    assert engine.supply() == []
    again = Engine(program, memory=memory)
    again.restore(engine.snapshot())
    (match,) = again.advance(100)
    assert match.remote() == [LookedUp("limits", ("x",), 4, 77)]


def test_it_survives_a_crash_of_a_node() -> None:
    node = Node(terms={"limits": TableTerms(fresh_us=10**9)})
    node.born("acme", 1)
    node.born("acme", 200)
    node.core = NodeCore.restored(node.core.save())
    effects = node.given(Fetched((("limits", ("acme",), Versions.always(100)),)))
    (row,) = [row for effect in effects if isinstance(effect, Deliver) for row in effect.rows]
    assert row[3].remote() == [LookedUp("limits", ("acme",), 100, node.now_us)]


def test_a_saved_composite_says_what_it_said() -> None:
    from headwater.node.snapshot import restore, save

    match = found(BOUND)[0]
    again = restore(save(match))
    assert again == match
    assert again.remote() == match.remote()
    assert informed(Composite(match), ()).remote() == []


def test_run_prints_what_composite_events_rest_on(desk: Desk) -> None:  # noqa: F811
    desk.file("r.sase", BOUND)
    desk.file("e.csv", "type,ts,k,v\n" + "".join(f"{e['type']},{e['ts']},{e['k']},{e['v']}\n" for e in EVENTS))
    desk.file("limits.csv", "key,value\nx,4\ny,6\n")
    plain = desk.run("run", "r.sase", "-e", "e.csv", "--remote", "limits=limits.csv").composites
    assert not any("remote" in match for match in plain)
    for arguments in (["limits=limits.csv", "--lineage"], ["limits={file: limits.csv, lineage: yes}"]):
        first, _ = desk.run("run", "r.sase", "-e", "e.csv", "--remote", *arguments).composites
        fetched = {value.pop("fetched") is None for value in first["remote"]}
        assert fetched == {"--lineage" in arguments}
        assert first["remote"] == [
            {"table": "limits", "key": ["x"], "value": 4},
            {"table": "limits", "key": ["y"], "value": 6},
        ]
        assert first | {"remote": None} == plain[0] | {"remote": None}
