"""What becomes of comparisons with elements that cannot be had: they wait, are false, or are true."""

from __future__ import annotations

from typing import Any

import pytest

import headwater as hw
from headwater.node.core import NodeCore
from headwater.node.effects import FetchFailed, Report, SetTimer
from headwater.node.remote.call import CallProvider
from headwater.node.remote.guard import Limits
from headwater.node.remote.memory import FAILED_US
from headwater.node.remote.policies import POLICIES
from headwater.node.remote.tables import Behind
from headwater.protocol.composites import LookedUp
from headwater.protocol.remote import TableTerms
from tests.command.test_command import Desk, desk  # noqa: F401
from tests.node.test_fetches import Node, delivered, fetches

every_strategy = pytest.mark.parametrize("strategy", POLICIES)
AT_ONCE = Limits(tries=1, wait_s=0.0, failures_max=10**9)
EVENTS = [
    {"type": kind, "ts": ts, "k": k, "v": v}
    for ts, (kind, k, v) in enumerate([("A", "x", 5), ("C", "away", 5), ("A", "away", 5), ("B", "x", 9)], 1)
]


def limit(k: str) -> int:
    if k == "away":
        raise ConnectionRefusedError("nothing listens there")
    return 4


def behind(on_failure: str) -> Behind:
    return Behind(CallProvider(limit), AT_ONCE, TableTerms(on_failure=on_failure))


def found(rule: str, on_failure: str, strategy: Any = "hybrid") -> list[dict[str, Any]]:
    engine = hw.Engine(rule, remote={"limits": behind(on_failure)}, remote_strategy=strategy)
    return [match.attributes for match in sorted(engine.run(EVENTS), key=lambda match: match.key)]


RULES = {
    "a condition": ("SEQ(A a, B b) WHERE a.v > REMOTE.limits[a.k]", ["x"], ["x", "away"]),
    "an equality": ("SEQ(A a, B b) WHERE b.v = REMOTE.limits[a.k]", [], ["away"]),
    "not": ("SEQ(A a, B b) WHERE NOT (a.v > REMOTE.limits[a.k])", ["away"], []),
    "in": ("SEQ(A a, B b) WHERE a.v IN REMOTE.limits[a.k]", [], ["away"]),
    "not in": ("SEQ(A a, B b) WHERE NOT a.v IN REMOTE.limits[a.k]", ["x", "away"], ["x"]),
    "or": ("SEQ(A a, B b) WHERE a.v > 9 OR a.v < REMOTE.limits[a.k] + 1", [], ["away"]),
    "a function": ("SEQ(A a, B b) WHERE abs(REMOTE.limits[a.k]) > 100", [], ["away"]),
    "a lookup in a lookup": ("SEQ(A a, B b) WHERE REMOTE.limits[REMOTE.limits[a.k]] > 100", [], ["away"]),
    "a negated event": ("SEQ(A a, !(C c), B b) WHERE c.v > REMOTE.limits[c.k]", ["x", "away"], ["away"]),
    "a run": ("SEQ(A a, B b) WHERE a.v > REMOTE.limits[a.k] SKIP TILL NEXT MATCH", ["x"], ["x", "away"]),
}


@every_strategy
@pytest.mark.parametrize("place", RULES)
def test_rejected_comparisons_are_false_and_accepted_ones_true(place: str, strategy: str) -> None:
    pattern, *expected = RULES[place]
    for on_failure, keys in zip(("reject", "accept"), expected, strict=True):
        matches = found(f"X: {pattern} WITHIN 1 s RETURN X(k = a.k)", on_failure, strategy)
        assert sorted(match["k"] for match in matches) == sorted(keys), on_failure


def test_repetitions_take_and_aggregates_count_what_is_accepted() -> None:
    repeated = "X: SEQ(A+ a[], B b) WHERE a[i].v > REMOTE.limits[a[i].k] WITHIN 1 s RETURN X(n = count(a[]))"
    assert sorted(match["n"] for match in found(repeated, "reject")) == [1]
    assert sorted(match["n"] for match in found(repeated, "accept")) == [1, 1, 2]
    counted = "define X(n: int) from B() and $n = Count(A(v > REMOTE.limits[k]).v within 1 s from B) where n = $n"
    assert [match["n"] for match in found(counted, "reject")] == [1]
    assert [match["n"] for match in found(counted, "accept")] == [2]


def test_a_selection_passes_over_what_is_rejected() -> None:
    last = "define X(k: string) from B() and last A(v > REMOTE.limits[k]) within 1 s from B where k = A.k"
    assert [match["k"] for match in found(last, "reject")] == ["x"]
    assert [match["k"] for match in found(last, "accept")] == ["away"]


@pytest.mark.parametrize("on_failure", ["reject", "accept"])
def test_an_attribute_that_cannot_be_had_has_no_value(on_failure: str) -> None:
    rule = "X: SEQ(A a, B b) WITHIN 1 s RETURN X(k = a.k, m = REMOTE.limits[a.k] + 1)"
    assert [(match["k"], match["m"]) for match in found(rule, on_failure)] == [("x", 5), ("away", None)]


@every_strategy
def test_the_composite_says_what_was_done_instead(strategy: Any) -> None:
    rule = "X: SEQ(A a, B b) WHERE a.v > REMOTE.limits[a.k] WITHIN 1 s RETURN X(k = a.k)"
    engine = hw.Engine(rule, remote={"limits": behind("accept")}, remote_strategy=strategy)
    said: dict[Any, Any] = {match.attributes["k"]: match.to_json().get("remote") for match in engine.run(EVENTS)}
    assert said["x"] is None
    (value,) = said["away"]
    assert value.pop("fetched") > 10**15
    assert value == {"table": "limits", "key": ["away"], "value": None, "on_failure": "accept"}


def test_run_says_how_many_elements_were_accepted(desk: Desk) -> None:  # noqa: F811
    desk.file("r.sase", "X: SEQ(A a) WHERE a.v > REMOTE.limits[a.k] WITHIN 1 s RETURN X(k = a.k)")
    desk.file("e.csv", "type,ts,k,v\nA,1,away,5\nA,2,x,5\n")
    desk.file("tables_of_test.py", "def limit(k):\n    if k == 'away':\n        raise OSError('away')\n    return 4\n")
    for on_failure, matches in (("reject", 1), ("accept", 2)):
        table = f"limits={{python: 'tables_of_test:limit', on_failure: {on_failure}}}"
        done = desk.run("run", "r.sase", "-e", "e.csv", "--remote", table)
        assert done.code == 0
        assert len(done.composites) == matches
        assert f", 1 {on_failure}ed" in done.err
    done = desk.run("run", "r.sase", "-e", "e.csv", "--remote", "limits={python: 'math:sqrt', on_failure: drop}")
    assert done.code == 2
    assert "write wait, reject (comparisons are false) or accept (they are true)" in done.err


@pytest.mark.parametrize(("on_failure", "matches"), [("reject", 0), ("accept", 1)])
def test_a_node_decides_without_what_failed_and_asks_again_later(on_failure: str, matches: int) -> None:
    place = ("limits", ("acme",))
    node = Node("lazy", terms={"limits": TableTerms(on_failure=on_failure)})
    node.born("acme", 1)
    assert fetches(node.born("acme", 200)) == [(place,)]
    saved = node.core.save()
    failed = node.given(FetchFailed((place,)))
    assert len(delivered(failed)) == matches
    assert Report(f"{on_failure}ed_elements") in failed
    assert not any(isinstance(effect, SetTimer) for effect in failed)
    assert node.core.awaiting() == 0
    again = NodeCore.restored(saved)
    repeated = again.handle(FetchFailed((place,)), node.now_us)
    assert repeated == failed, "the journal has the failure, so a node that crashed decides the same"
    said = [[row[3].remote() for effect in each for row in getattr(effect, "rows", ())] for each in (failed, repeated)]
    assert said[0] == said[1] == [[LookedUp(*place, None, node.now_us, on_failure)]] * matches
    assert fetches(node.born("acme", 300)) == []
    node.now_us += FAILED_US
    assert fetches(node.born("acme", 300)) == [(place,)]


def test_explain_decides_as_a_run_does(desk: Desk) -> None:  # noqa: F811
    desk.file("r.sase", "X: SEQ(A a, B b) WHERE b.v = REMOTE.limits[a.k] WITHIN 1 s RETURN X(k = a.k)")
    desk.file("e.csv", "type,ts,k,v\nA,1,away,5\nA,2,x,5\nB,3,x,9\n")
    desk.file(
        "tables_of_explain.py", "def limit(k):\n    if k == 'away':\n        raise OSError('away')\n    return 4\n"
    )
    for on_failure, matches in (("reject", 0), ("accept", 1)):
        table = f"limits={{python: 'tables_of_explain:limit', on_failure: {on_failure}}}"
        done = desk.run("explain", "r.sase", "-e", "e.csv", "--remote", table, "--json")
        assert done.code == 0, done.err
        assert f'"matches": {matches},' in done.out
