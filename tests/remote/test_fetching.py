"""Engines whose remote elements are fetched while they run: the results of tables at hand, whatever the strategy."""

from __future__ import annotations

import asyncio
import json
import random
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import headwater as hw
from headwater.node.engine import compile_rules
from headwater.node.remote import fetching
from headwater.node.remote.call import CallProvider, FunctionFailed
from headwater.node.remote.fetching import FetchingEngine
from headwater.node.remote.policies import POLICIES
from headwater.node.remote.tables import Behind, Tables
from headwater.protocol.events import Event
from headwater.protocol.languages import Source, parse_rules
from headwater.protocol.remote import TableTerms
from tests.command.test_command import Desk, desk  # noqa: F401
from tests.kit.patience import run_to_its_end, until

every_strategy = pytest.mark.parametrize("strategy", POLICIES)
never_waiting = pytest.mark.parametrize("strategy", ["lazy", "hybrid"])

ORGS = 12
LIMITS = {f"o{n}": n % 7 for n in range(ORGS) if n % 5}
RULES = {
    "sequence": """
        X: SEQ(A a, B b) WHERE SAME[k] AND a.v > REMOTE.limits[a.k] AND b.v >= a.v WITHIN 200 us
        RETURN X(k = a.k, limit = REMOTE.limits[b.k])""",
    "negation": "X: SEQ(A a, !C c, B b) WHERE a.v < b.v AND c.v > REMOTE.limits[c.k] WITHIN 30 us RETURN X(k = a.k)",
    "next": """
        X: SEQ(A a, B b, A c) WHERE b.v > REMOTE.limits[b.k] AND c.v > REMOTE.limits[a.k] WITHIN 60 us
        SKIP TILL NEXT MATCH RETURN X(k = a.k)""",
    "repetition": """
        X: SEQ(A a, B+ b[], C c) WHERE b[i].v > REMOTE.limits[b[i].k] AND count(b[]) > 1 WITHIN 20 us
        RETURN X(n = count(b[]))""",
    "next repetition": """
        X: SEQ(A a, B+ b[], C c) WHERE b[i].v > REMOTE.limits[a.k] WITHIN 60 us SKIP TILL NEXT MATCH
        RETURN X(n = count(b[]))""",
    "and or": """
        X: OR(AND(A a, C c), SEQ(B b, C d)) WHERE a.v > REMOTE.limits[c.k] AND b.v = REMOTE.limits[d.k]
        WITHIN 15 us""",
    "events": "X: SEQ(A a, B b) WHERE a.v > REMOTE.limits[b.k] WITHIN 6 events RETURN X(k = a.k)",
    "aggregate": """
        define X(k: string, n: int)
        from B() and 1 < $n = Count(A(v > REMOTE.limits[A.k]) within 30 us from B) where k = B.k, n = $n""",
    "last": """
        define X(k: string)
        from B() and last A(v > REMOTE.limits[A.k]) within 30 us from B and
             not C(v > REMOTE.limits[C.k]) between A and B
        where k = A.k""",
    "rules on rules": """
        P: SEQ(A a, B b) WHERE a.v > REMOTE.limits[a.k] WITHIN 20 us RETURN P(k = b.k, v = b.v)
        X: SEQ(P p, !A a, C c) WHERE c.v > REMOTE.limits[p.k] AND a.v > p.v WITHIN 30 us RETURN X(k = p.k)""",
}
every_rule = pytest.mark.parametrize("rule", RULES)


def drawn_events(count: int = 200) -> list[dict[str, Any]]:
    rng = random.Random(7)
    return [
        {"type": rng.choice("ABC"), "ts": 3 * n, "k": f"o{rng.randrange(ORGS)}", "v": rng.randrange(8)}
        for n in range(count)
    ]


EVENTS = drawn_events()


def slow(org: str) -> int | None:
    time.sleep(0.0003)
    return LIMITS.get(org)


async def slow_later(org: str) -> int | None:
    await asyncio.sleep(0.0003)
    return LIMITS.get(org)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("limits") / "limits.db"
    with sqlite3.connect(file) as made:
        made.execute("create table limits (org text, m int)")
        made.executemany("insert into limits values (?, ?)", LIMITS.items())
    made.close()
    return str(file)


def expected(rule: str) -> list[str]:
    found = sorted(match.id for match in hw.Engine(RULES[rule], remote={"limits": LIMITS}).run(EVENTS))
    assert len(found) > 3, "the rule tells something"
    return found


# --- hw.Engine --------------------------------------------------------------------------------------------------------


@every_strategy
@every_rule
def test_an_engine_finds_what_it_finds_with_the_table_at_hand(rule: str, strategy: Any, database: str) -> None:
    query = "select org, m from limits where org in (select value from json_each(?))"
    for table in (slow_later, {"sqlite": database, "query": query, "keys": ["org"]}):
        engine = hw.Engine(RULES[rule], remote={"limits": table}, remote_strategy=strategy)
        matches = engine.run(EVENTS)
        assert sorted(match.id for match in matches) == expected(rule)
        at_hand = hw.Engine(RULES[rule], remote={"limits": LIMITS}).run(EVENTS)
        assert [match.attributes for match in matches] == [match.attributes for match in at_hand]
        assert engine.count(EVENTS)["X"] == sum(match.type == "X" for match in matches)


@every_strategy
@every_rule
def test_a_stream_gives_every_match_once(rule: str, strategy: Any) -> None:
    engine = hw.Engine(RULES[rule], remote={"limits": slow_later}, remote_strategy=strategy)
    found = []
    for start in range(0, len(EVENTS), 20):
        batch = EVENTS[start : start + 20]
        found += engine.feed(batch)
        found += engine.advance(batch[-1]["ts"] - 1)
        if start == 100:
            found += engine.settle()
        if start == 140:
            saved = engine.snapshot()
            engine = hw.Engine(RULES[rule], remote={"limits": slow}, remote_strategy=strategy)
            engine.restore(saved)
            engine._numbers = {"local": start + 20}
    found += engine.close()
    assert sorted(match.id for match in found) == expected(rule)
    assert engine.settle() == []


@every_strategy
def test_an_iterator_gives_every_match_once(strategy: Any) -> None:
    engine = hw.Engine(RULES["negation"], remote={"limits": slow}, remote_strategy=strategy)
    assert sorted(match.id for match in engine.run(EVENTS, lateness_us=5)) == expected("negation")


@never_waiting
def test_events_are_taken_while_elements_are_fetched(strategy: Any) -> None:
    answer = threading.Event()

    def held_back(org: str) -> int | None:
        answer.wait()
        return LIMITS.get(org)

    engine = hw.Engine(RULES["sequence"], remote={"limits": held_back}, remote_strategy=strategy)
    assert engine.feed(EVENTS) == []
    answer.set()
    assert sorted(match.id for match in engine.close()) == expected("sequence")


def test_an_engine_serves_several_inputs_beside_a_stream() -> None:
    engine = hw.Engine(RULES["sequence"], remote={"limits": slow})
    found = engine.feed(EVENTS)
    for _ in range(2):
        assert sorted(match.id for match in engine.run(EVENTS)) == expected("sequence")
    found += engine.close()
    assert sorted(match.id for match in found) == expected("sequence")


def test_user_functions_are_called_with_the_elements_alone() -> None:
    def above(value: int, limit: int) -> bool:
        return value > limit + 0  # raises where there is no limit

    rule = "X: SEQ(A a, !C c, B b) WHERE above(c.v, REMOTE.limits[c.k]) AND above(b.v, a.v) WITHIN 30 us"
    limits = {f"o{n}": n % 7 for n in range(ORGS)}
    at_hand = hw.Engine(rule, functions={"above": above}, remote={"limits": limits}).run(EVENTS)
    for strategy in POLICIES:
        engine = hw.Engine(
            rule,
            functions={"above": above},
            remote={"limits": lambda org: limits[org]},
            remote_strategy=strategy,  # type: ignore[arg-type]
        )
        assert [match.id for match in engine.run(EVENTS)] == [match.id for match in at_hand]


def test_a_function_that_fails_is_asked_again_when_the_stream_goes_on() -> None:
    failing = ["o3"]

    def limit(org: str) -> int | None:
        if org in failing:
            failing.remove(org)
            raise KeyError(org)
        return LIMITS.get(org)

    engine = hw.Engine(RULES["sequence"], remote={"limits": limit})
    with pytest.raises(FunctionFailed, match=r"failed for \('o3',\): KeyError"):  # noqa: PT012
        found = engine.feed(EVENTS)
        found += engine.settle()
    assert sorted(match.id for match in engine.close()) == expected("sequence")


# --- how much is held -------------------------------------------------------------------------------------------------


def behind(call: Callable[[str], Any], strategy: str = "hybrid") -> Tables:
    return Tables({"limits": Behind(CallProvider(call))}, strategy)


def engine_of(tables: Tables, rule: str = "sequence") -> FetchingEngine:
    parsed = parse_rules([Source(RULES[rule], "r", "sase")])
    engine = tables.engine(compile_rules(parsed, remote=tables.memory.tables))
    assert isinstance(engine, FetchingEngine)
    return engine


def events() -> Iterator[Event]:
    for number, event in enumerate(EVENTS, 1):
        yield Event(event["type"], event["ts"], "local", number, {"k": event["k"], "v": event["v"]})


@pytest.mark.parametrize("name", ["HELD_MAX", "BEHIND_EVENTS_MAX"])
def test_no_more_is_taken_while_too_much_is_held(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, name, 5)
    with behind(slow) as tables:
        engine = engine_of(tables)
        found, held_most = [], 0
        for event in events():
            found += engine.feed([event])
            held_most = max(held_most, engine.waiting())
        found += engine.close()
    assert sorted(match.id for match in found) == expected("sequence")
    assert 0 < held_most <= 12


def test_what_was_asked_for_when_tables_were_closed_is_asked_for_again() -> None:
    answer = threading.Event()

    def held_back(org: str) -> int | None:
        answer.wait()
        return LIMITS.get(org)

    tables = behind(held_back)
    engine = engine_of(tables)
    assert engine.feed(list(events())) == []
    tables.close()
    answer.set()
    assert sorted(match.id for match in engine.close()) == expected("sequence")
    tables.close()


@every_strategy
def test_an_engine_asks_again_for_fresh_elements_that_are_old(strategy: str) -> None:
    now_s, calls = [0.0], []

    def limit(org: str) -> int:
        calls.append(org)
        return 2 * len(calls)

    rule = parse_rules([Source("X: SEQ(A a) WHERE a.v > REMOTE.limits[a.k] WITHIN 1 s RETURN X(v = a.v)", "r", "sase")])
    table = Behind(CallProvider(limit), terms=TableTerms(10_000_000))
    found = []
    with Tables({"limits": table}, strategy, clock=lambda: now_s[0]) as tables:
        engine = tables.engine(compile_rules(rule, remote=tables.memory.tables))
        assert isinstance(engine, FetchingEngine)
        for number, now_s[0] in enumerate((0.0, 9.0, 11.0, 12.0), 1):
            found += engine.feed([Event("A", number, "local", number, {"k": "o1", "v": 3})])
            found += engine.settle()
    assert [match.ts for match in found] == ([1] if strategy == "block" else [1, 2])
    assert len(calls) == (4 if strategy == "block" else 2)


@every_strategy
def test_a_key_that_a_provider_refuses_does_no_harm_where_no_match_needs_it(strategy: str) -> None:
    """An A without a B is reason enough to fetch its limit ahead, and none to fail."""
    asked = []

    def limit(org: str) -> int:
        asked.append(org)
        if org == "refused":
            raise ValueError("no such organisation")
        return 0

    with behind(limit, strategy) as tables:
        engine = engine_of(tables)
        found = engine.feed(
            [
                Event("A", number, "local", number, {"k": k, "v": 1})
                for number, k in enumerate(("refused", "o1", "refused"), 1)
            ]
        )
        found += engine.settle()
        if strategy in ("prefetch", "hybrid"):
            until(lambda: "refused" in asked, "the limit is fetched ahead")
        found += engine.feed([Event("B", 9, "local", 9, {"k": "o1", "v": 2})]) + engine.close()
        assert [match.ts for match in found] == [9]
        again = engine_of(tables)
        pair = [Event(name, 20, name, 1, {"k": "refused", "v": 2}) for name in "AB"]
        with pytest.raises(FunctionFailed, match="no such organisation"):
            again.feed(pair) + again.close()


def test_the_summary_says_how_many_evaluations_waited() -> None:
    with behind(slow, "lazy") as tables:
        engine = engine_of(tables)
        engine.feed(list(events()))
        engine.close()
        table, waited = tables.summary(engine)
        assert engine.asking is not None
    assert table.startswith("remote limits: 11 requests, 0 hits, ")
    assert waited == f"{engine.asking.waited} evaluations waited for elements of remote tables"
    assert engine.asking.waited > 10


# --- headwater run ----------------------------------------------------------------------------------------------------

SLOW = f"""
import time

LIMITS = {LIMITS!r}


def limit(org):
    time.sleep(0.001)
    return LIMITS.get(org)
"""
COMMAND = [sys.executable, "-m", "headwater.deploy.cli.command"]
LIVE = [*COMMAND, "run", "live.sase", "-e", "-", "--format", "jsonl"]
TYPES = "\n".join(f"event {name}(k: string, v: int)" for name in "ABC")


@pytest.fixture
def trace(desk: Desk) -> Desk:  # noqa: F811
    for name, rule in RULES.items():
        desk.file(f"{name}.{'tesla' if 'define' in rule else 'sase'}", rule)
    desk.file("e.jsonl", "".join(json.dumps(event) + "\n" for event in EVENTS))
    desk.file("limits.csv", "key,value\n" + "".join(f"{org},{limit}\n" for org, limit in LIMITS.items()))
    desk.file("slow_limits.py", SLOW)
    return desk


@every_strategy
@pytest.mark.parametrize("rule", ["sequence", "negation", "next", "repetition", "aggregate"])
def test_run_finds_what_it_finds_with_the_table_at_hand(
    rule: str, strategy: str, trace: Desk, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(trace.folder))
    query = "select m from limits where org = ?"
    file = f"{rule}.{'tesla' if 'define' in RULES[rule] else 'sase'}"
    at_hand = trace.run("run", file, "-e", "e.jsonl", "--remote", "limits=limits.csv", "-q")
    assert len(at_hand.composites) > 3
    for table in ("{python: 'slow_limits:limit'}", f"{{sqlite: '{database}', query: '{query}', keys: [org]}}"):
        remote = ("--remote", f"limits={table}", "--remote-strategy", strategy)
        done = trace.run("run", file, "-e", "e.jsonl", *remote)
        assert (done.code, done.out) == (0, at_hand.out)
        assert "remote limits: " in done.err
        assert "waited for elements of remote tables" in done.err
        done = trace.run("run", file, "-e", "e.jsonl", "--count", "--json", *remote)
        assert json.loads(done.out)["X"] == sum(each["type"] == "X" for each in at_hand.composites)
        done = trace.run(
            "run", file, "-e", "-", "--format", "jsonl", *remote, typed=(trace.folder / "e.jsonl").read_text()
        )
        assert sorted(each["id"] for each in done.composites) == sorted(each["id"] for each in at_hand.composites)


def test_run_reads_a_file_that_is_not_in_order_with_elements_under_way(trace: Desk) -> None:
    shuffled = random.Random(1).sample(EVENTS, len(EVENTS))
    trace.file("shuffled.jsonl", "".join(json.dumps(event) + "\n" for event in shuffled))
    at_hand = trace.run("run", "negation.sase", "-e", "shuffled.jsonl", "--remote", "limits=limits.csv")
    done = trace.run("run", "negation.sase", "-e", "shuffled.jsonl", "--remote", "limits={python: 'slow_limits:limit'}")
    assert done.out == at_hand.out


@pytest.mark.parametrize("strategy", ["cache", "hybrid"])
def test_composites_of_a_pipe_come_with_their_elements_though_no_row_follows(strategy: str, trace: Desk) -> None:
    trace.file("live.sase", TYPES + RULES["sequence"])
    at_hand = trace.run("run", "live.sase", "-e", "e.jsonl", "--remote", "limits=limits.csv")
    command = [*LIVE, "-q", "--remote", "limits={python: 'slow_limits:limit'}", "--remote-strategy", strategy]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        running.stdin.write((trace.folder / "e.jsonl").read_text())
        running.stdin.flush()
        lines: list[str] = []
        reading = threading.Thread(target=lambda: lines.extend(running.stdout or ()))
        reading.start()
        until(lambda: len(lines) == len(at_hand.composites) or running.poll() is not None, "all composites have come")
        assert running.poll() is None
        running.stdin.close()
        reading.join()
    assert running.returncode == 0
    assert sorted(lines) == sorted(at_hand.out.splitlines(keepends=True))


def test_a_provider_that_fails_ends_a_pipe_that_is_still_open(trace: Desk) -> None:
    trace.file("live.sase", TYPES + RULES["sequence"])
    trace.file("wrong.py", "import time\n\n\ndef limit(org):\n    time.sleep(0.2)\n    return {}[org]\n")
    command = [*LIVE, "--remote", "limits={python: 'wrong:limit'}"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdin is not None
        assert running.stderr is not None
        running.stdin.write((trace.folder / "e.jsonl").read_text())
        running.stdin.flush()
        said = running.stderr.read()
    assert running.returncode == 1
    assert "the function wrong:limit failed for ('o" in said
    assert "Traceback" not in said


def test_nothing_keeps_a_program_from_ending_while_elements_are_under_way() -> None:
    program = """if True:
        import threading
        import headwater as hw
        rule = "X: SEQ(A a) WHERE a.v > REMOTE.t[a.k] WITHIN 1 s"
        engine = hw.Engine(rule, remote={"t": lambda key: threading.Event().wait()})
        print(engine.feed([{"type": "A", "ts": 1, "k": "o1", "v": 2}]))
    """
    done = run_to_its_end([sys.executable, "-c", program], text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")
