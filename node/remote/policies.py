"""How rules come by the elements of remote tables: the strategies of EIRES as rows of one table.

None of them changes results. They differ in what waits for an element that is not at hand, and in what is fetched
before anything needs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from headwater.node.engine.remote_memory import Waiting
from headwater.protocol.errors import ConfigError
from headwater.protocol.text import closest, suggestion


@dataclass(frozen=True, slots=True)
class Policy:
    """One strategy."""

    name: str
    paper: str
    """Its name in the EIRES paper."""
    waiting: Waiting
    about: str
    keeps: bool = True
    """Whether elements are kept for the next lookup."""
    prefetches: bool = False
    """Whether elements are fetched that a match may need later."""


POLICIES: Final[Mapping[str, Policy]] = {
    policy.name: policy
    for policy in (
        Policy(
            "block",
            "BL1",
            Waiting(pauses=True, one_by_one=True, postpones=False),
            "every lookup asks the provider, and the stream waits for the answer",
            keeps=False,
        ),
        Policy(
            "cache",
            "BL2",
            Waiting(pauses=True, one_by_one=True, postpones=False),
            "a lookup of what is not in the cache asks the provider, and the stream waits for the answer",
        ),
        Policy(
            "last",
            "BL3",
            Waiting(pauses=True, only_last=True),
            "remote conditions are judged on complete matches only, and the stream waits for the answers",
        ),
        Policy(
            "prefetch",
            "PFetch",
            Waiting(pauses=True, one_by_one=True, postpones=False),
            "elements are fetched before they are needed; the stream waits for one that comes too late",
            prefetches=True,
        ),
        Policy(
            "lazy",
            "LzEval",
            Waiting(),
            "what needs an element that is not at hand waits for it or goes on without; the stream never waits",
        ),
        Policy(
            "hybrid",
            "Hybrid",
            Waiting(),
            "elements are fetched before they are needed, and the stream never waits for one that comes too late",
            prefetches=True,
        ),
    )
}
DEFAULT: Final = "hybrid"


def checked_priorities(priorities: Mapping[str, float], rules: Iterable[str]) -> dict[str, float]:
    """The priorities of rules for remote data, if they are numbers above 0 and each is of a rule that there is."""
    names = list(rules)
    for rule, priority in priorities.items():
        if rule not in names:
            raise ConfigError(f"there is no rule {rule!r} to give a priority to; {suggestion(rule, names, 'rules')}")
        if not isinstance(priority, int | float) or not 0 < priority < float("inf"):
            raise ConfigError(f"the priority of {rule} is {priority!r}; write a number above 0, as in {rule}=3")
    return {rule: float(priority) for rule, priority in priorities.items()}


def checked_strategies(strategies: Mapping[str, str], rules: Iterable[str]) -> dict[str, str]:
    """The remote strategies of single rules, if there are such rules and strategies."""
    names = list(rules)
    for rule in strategies:
        if rule not in names:
            raise ConfigError(
                f"there is no rule {rule!r} to give a remote strategy to; {suggestion(rule, names, 'rules')}"
            )
    return {rule: policy_named(strategy).name for rule, strategy in strategies.items()}


def policy_named(name: str) -> Policy:
    """The row of the table; a ConfigError if there is none of this name."""
    if name in POLICIES:
        return POLICIES[name]
    near = closest(name, list(POLICIES))
    cure = f"did you mean {near}? " if near else ""
    raise ConfigError(f"there is no remote strategy {name!r}; {cure}write one of {', '.join(POLICIES)}")
