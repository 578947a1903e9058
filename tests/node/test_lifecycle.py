"""The life of a tree on a node: the table is complete, its page is up to date, and nothing happens out of turn."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.node.plans.lifecycle import (
    EARLY_MAX,
    INPUTS,
    STATES,
    TRANSITIONS,
    Input,
    State,
    TreeRecord,
    TreeTable,
)
from headwater.node.plans.lifecycle_page import page
from headwater.node.plans.tree_protocol import Trees
from headwater.protocol.messages.neighbour import TreeReady

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "lifecycle.md"


def early(tree: str, epoch: int) -> TreeReady:
    return TreeReady(tree, epoch, 1, None, None)


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), (
        "run: python -m headwater.node.plans.lifecycle_page > docs/reference/lifecycle.md"
    )


def test_every_state_and_input_has_a_sentence_and_is_used() -> None:
    assert list(STATES) == list(State)
    assert list(INPUTS) == list(Input)
    assert {happened for _, happened in TRANSITIONS} == set(Input)


def test_every_state_can_be_reached_and_every_tree_can_be_forgotten() -> None:
    reached, new = {State.UNKNOWN}, {State.UNKNOWN}
    while new:
        new = {following for (state, _), following in TRANSITIONS.items() if state in new} - reached
        reached |= new
    assert reached == set(State)
    assert all(TRANSITIONS[state, Input.FORGET] == State.GONE for state in State)
    assert {state for state, happened in TRANSITIONS if happened != Input.FORGET} == set(State) - {State.GONE}


def test_what_is_not_in_the_table_is_a_bug() -> None:
    record = TreeRecord("r", 1)
    assert not record.accepts(Input.START)
    with pytest.raises(AssertionError, match="tree r, epoch 1: start cannot follow unknown"):
        record.move(Input.START)
    assert record.state == State.UNKNOWN


def test_an_uneventful_life() -> None:
    record = TreeRecord("r", 1)
    seen = []
    for happened in ("name", "build", "stand", "ready", "advertise", "start", "end", "drain"):
        record.move(Input(happened))
        seen.append(str(record.state))
    assert seen == ["named", "building", "standing", "gathering", "advertised", "running", "ending", "gone"]


def test_early_messages_come_back_in_the_order_in_which_they_came() -> None:
    table = TreeTable()
    for tree, neighbour in (("b", "x"), ("a", "y"), ("b", "y"), ("a", "x")):
        assert table.keep_early(tree, 1, neighbour, early(tree, 1))
    table.forget_neighbour("y")
    assert [(sender, message.tree) for sender, message in table.take_early()] == [("x", "b"), ("x", "a")]  # type: ignore[union-attr]
    assert table.take_early() == []
    assert list(table) == [], "a tree of which nothing is known leaves nothing behind"


def test_early_messages_are_bounded_over_all_trees() -> None:
    table = TreeTable()
    assert all(table.keep_early(f"tree {each}", 1, "liar", early("t", 1)) for each in range(EARLY_MAX))
    assert not table.keep_early("one more", 1, "liar", early("t", 1))
    table.forget_neighbour("liar")
    assert table.keep_early("one more", 1, "x", early("t", 1))


def test_a_tree_that_no_plan_names_any_more_is_dropped_unless_messages_wait_for_it() -> None:
    table = TreeTable()
    for tree in ("r", "s"):
        table.record(tree, 1).move(Input.NAME)
    table.keep_early("s", 1, "x", early("s", 1))
    for record in list(table):
        table.unname(record)
    assert [(record.name, str(record.state)) for record in table] == [(("s", 1), "unknown")]


def test_trees_that_are_gone_do_not_add_up() -> None:
    table = TreeTable()
    trees = Trees("r", {"x": 1}, table)
    for epoch in range(1, 100):
        trees.start("r", epoch)
        trees.forget("r", epoch - 1)
    trees.forget("r", 7)
    assert [(record.name, str(record.state)) for record in table] == [(("r", 98), "gone"), (("r", 99), "building")]
    assert all(trees.is_forgotten("r", epoch) for epoch in range(99))
