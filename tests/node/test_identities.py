"""A second row with the same node and seq is the same event."""

from __future__ import annotations

import random
from pathlib import Path

from typer.testing import CliRunner, Result

from headwater.deploy.cli.command import app
from headwater.node.traces.duplicates import RANGES_MAX, TraceIdentities


def test_a_number_is_new_once_in_whatever_order_numbers_come() -> None:
    for seed in range(50):
        rng, seen, identities = random.Random(seed), set(), TraceIdentities()
        for _ in range(300):
            token = rng.choice("ab"), rng.randrange(60)
            assert identities.is_new(*token) == (token not in seen)
            seen.add(token)


def test_numbers_without_gaps_are_one_range_and_gaps_are_bounded() -> None:
    identities = TraceIdentities()
    for seq in range(10_000):
        identities.is_new("n", seq)
    assert len(identities._ranges["n"]) == 1
    for seq in range(RANGES_MAX + 500):
        identities.is_new("gaps", 2 * seq)
    assert len(identities._ranges["gaps"]) == RANGES_MAX


def run(tmp_path: Path, rows: str, *options: str) -> Result:
    (tmp_path / "q.sase").write_text("Q: SEQ(A a, B b) WHERE a.v < b.v WITHIN 5 s")
    (tmp_path / "t.csv").write_text("type,ts,node,seq,v\n" + rows)
    return CliRunner().invoke(app, ["run", str(tmp_path / "q.sase"), "--events", str(tmp_path / "t.csv"), *options])


def test_the_first_of_two_rows_with_one_identity_counts_and_the_other_is_said(tmp_path: Path) -> None:
    for options in ((), ("--lateness", "1s")):
        none = run(tmp_path, "A,1,n,1,7\nA,1,n,1,1\nB,2,n,2,2\n", "--count", *options)
        assert "0" in none.stdout.splitlines()[-1]
        assert "1 row repeats the node and seq of an earlier row" in none.stderr
        one = run(tmp_path, "A,1,n,1,1\nA,1,n,1,7\nB,2,n,2,2\n", *options)
        assert len(one.stdout.splitlines()) == 1


def test_a_seq_that_restarts_for_each_type_is_noticed(tmp_path: Path) -> None:
    outcome = run(tmp_path, "A,1,n,1,1\nB,2,n,1,2\n", "--count")
    assert "number the rows of each node over all types" in outcome.stderr


def test_explain_sees_the_same_events(tmp_path: Path) -> None:
    run(tmp_path, "A,1,n,1,1\nA,1,n,1,7\nB,2,n,2,2\n")
    arguments = ["explain", str(tmp_path / "q.sase"), "--events", str(tmp_path / "t.csv")]
    outcome = CliRunner().invoke(app, arguments)
    assert "Q: 1 match" in outcome.stdout
    assert "1 row with the node and seq of an earlier row left out" in outcome.stderr
