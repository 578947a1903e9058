"""Strategies are rows of one table: nothing else in the product knows their names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headwater.coordinator.planners import PLANNERS
from headwater.coordinator.trees import TreeKeeper
from headwater.protocol.errors import ConfigError
from headwater.protocol.network import Network
from headwater.protocol.strategy import (
    ALL,
    CENTRAL,
    DEFAULT_STRATEGY,
    PLANNED_STRATEGIES,
    STRATEGIES,
    TREE_STRATEGIES,
    strategy_of,
)

ROOT = Path(__file__).resolve().parents[2]


def test_every_row_is_found_by_its_name() -> None:
    assert [strategy_of(row.name) for row in ALL] == list(ALL)
    assert len(set(STRATEGIES)) == len(ALL)


def test_every_planned_strategy_has_a_planner_and_no_other_has_one() -> None:
    assert tuple(PLANNERS) == PLANNED_STRATEGIES


def test_the_rows_say_what_the_strategies_do() -> None:
    assert [row.name for row in ALL if row.one_tree] == ["centr", "st", "st-pp", "inev"]
    assert [row.name for row in ALL if row.pulls] == ["st-pp", "mt-pp"]
    assert [row.name for row in ALL if not row.filters] == [CENTRAL]
    assert [row.name for row in ALL if row.planned] == ["inev"]
    assert TREE_STRATEGIES == ("centr", "st", "mt", "st-pp", "mt-pp")
    assert strategy_of(DEFAULT_STRATEGY).description.startswith("One tree")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("mtt", "unknown strategy 'mtt'; did you mean 'mt'? strategies: centr, st, mt, st-pp, mt-pp, inev"),
        ("gossip", "unknown strategy 'gossip'; strategies: centr, st, mt, st-pp, mt-pp, inev"),
    ],
)
def test_an_unknown_strategy_is_refused_with_the_closest_name(name: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        strategy_of(name)
    assert str(refused.value) == sentence
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        TreeKeeper(Network((), ("a",), (), (), (), ()), name)


def test_no_other_module_compares_the_name_of_a_strategy() -> None:
    compared = re.compile(r"strategy\W*(==|!=|in|not in)\s*\(?[\"'](" + "|".join(STRATEGIES) + r")[\"']")
    places = [
        f"{path.relative_to(ROOT)}:{number}"
        for part in ("protocol", "node", "coordinator", "pipeline", "deploy")
        for path in sorted((ROOT / part).rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if compared.search(line) or 'endswith("-pp")' in line
    ]
    assert places == []
