"""The strategies, one row each. A strategy decides where rules are evaluated and what crosses links, never results.

The rest of the system asks a row what it needs to know and compares no names, so a new strategy is a new row. Files and
messages carry the name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from headwater.protocol.errors import ConfigError
from headwater.protocol.text import closest


@dataclass(frozen=True, slots=True)
class Strategy:
    """How the nodes of a network share the evaluation of its rules."""

    name: str
    description: str
    one_tree: bool
    """One tree, rooted at the leader, serves all sinks; otherwise every node with a sink is the root of its own."""
    filters: bool = True
    """Nodes below the root filter events and evaluate parts of rules. Otherwise the root sees every event, which is
    what a window that counts events needs."""
    pulls: bool = False
    """In a tree, streams that do not pay are kept where they arise until they are asked for."""
    planned: bool = False
    """The coordinator lays a graph of placed tasks over the network, by the rates of event types. The tree only spans
    the network: streams may flow over any link."""


ALL: Final = (
    Strategy("centr", "Every event goes to the leader, which evaluates all rules.", one_tree=True, filters=False),
    Strategy("st", "One tree; nodes evaluate what they can on the way to the leader.", one_tree=True),
    Strategy("mt", "A tree for each node with a sink; nodes evaluate what they can on the way.", one_tree=False),
    Strategy("st-pp", "As st, but streams that are cheaper to pull are pulled when needed.", one_tree=True, pulls=True),
    Strategy(
        "mt-pp", "As mt, but streams that are cheaper to pull are pulled when needed.", one_tree=False, pulls=True
    ),
    Strategy("inev", "Parts of rules are placed on nodes by the rates of event types.", one_tree=True, planned=True),
)
"""In the order in which they are shown."""

STRATEGIES: Final = tuple(strategy.name for strategy in ALL)
TREE_STRATEGIES: Final = tuple(strategy.name for strategy in ALL if not strategy.planned)
PLANNED_STRATEGIES: Final = tuple(strategy.name for strategy in ALL if strategy.planned)

CENTRAL: Final = next(strategy.name for strategy in ALL if not strategy.filters)
"""The strategy that others are compared with."""
DEFAULT_STRATEGY: Final = "st"
"""The strategy of a network file that names none."""

_BY_NAME: Final = {strategy.name: strategy for strategy in ALL}


def strategy_of(name: str) -> Strategy:
    """The row of a strategy; a ConfigError with the closest name if there is none."""
    row = _BY_NAME.get(name)
    if row is None:
        raise ConfigError(unknown_strategy(name))
    return row


def unknown_strategy(name: str, *more: str) -> str:
    """Why a name is refused, in one sentence. ``more`` is what else may stand in the place of a strategy."""
    return f"unknown strategy {name!r}; {strategy_hint(name, *more)}"


def strategy_hint(name: str, *more: str) -> str:
    """What to write instead of a name that is no strategy: the closest one, then all of them."""
    choices: Sequence[str] = (*STRATEGIES, *more)
    near = closest(name, choices)
    return f"{f'did you mean {near!r}? ' if near else ''}strategies: {', '.join(choices)}"
