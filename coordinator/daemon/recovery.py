"""What nodes store for the coordinator: what each was last told, and what each tells a coordinator that recovers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from headwater.coordinator.core import Coordinator
from headwater.coordinator.daemon.inputs import Setup
from headwater.protocol.messages.recovery import (
    Noted,
    NotedNetwork,
    NotedPlan,
    Recall,
    Remember,
    in_portions,
    key_of,
    plan_of,
)
from headwater.protocol.text import listed


@dataclass(slots=True)
class _Recalled:
    """What one node has reported since it has met this coordinator."""

    plan: int = 0
    config: int = 0
    pieces: dict[str, Noted] = field(default_factory=dict)


class CoordinatorMemory:
    """Nodes keep the newest state of the coordinator that it has told a plan of."""

    def __init__(self, pieces: Iterable[Noted] = ()) -> None:
        self.found = tuple(pieces)
        """The newest memory of an earlier life that has turned up; empty if there is none."""
        self.told: dict[str, Noted] = {}
        """What nodes were last told to keep."""
        self._keepers: set[str] = set()
        """Nodes that have all of it."""
        self._recalled: dict[str, _Recalled] = {}

    # --------------------------------------------------------------------------------------------- what nodes remember

    def recalls(self, node: str, message: Recall) -> None:
        """A node tells a part of what it keeps; that this is all shows when it registers."""
        recalled = self._recalled.setdefault(node, _Recalled())
        recalled.plan, recalled.config = message.plan, message.config
        recalled.pieces.update((key_of(piece), piece) for piece in message.pieces)

    def registered(self, node: str) -> bool:
        """Whether what the node has reported is newer than everything that has turned up so far."""
        pieces = self._told_by(node).pieces.values()
        if plan_of(pieces) <= plan_of(self.found):
            return False
        self.found = tuple(pieces)
        return True

    def forget(self, node: str) -> None:
        """Nothing of what was told to the node, or by it, counts any more."""
        self._keepers.discard(node)
        self._recalled.pop(node, None)

    def plan(self, node: str) -> int:
        """The newest plan that a node knows; 0: it remembers nothing."""
        return self._told_by(node).plan

    def newest(self, node: str) -> int:
        """The newest plan that a node has received, even if only to store it."""
        recalled = self._told_by(node)
        return max(recalled.plan, plan_of(recalled.pieces.values()))

    def config(self, node: str) -> int:
        """The version of the configuration that a node has."""
        return self._told_by(node).config

    def _told_by(self, node: str) -> _Recalled:
        return self._recalled.get(node, _Recalled())

    # ------------------------------------------------------------------------------------------ what nodes are to keep

    def news(self, pieces: Iterable[Noted], nodes: Iterable[str]) -> Iterator[tuple[str, Remember]]:
        """Tell these nodes what is new; those that have nothing, everything."""
        now = {key_of(piece): piece for piece in pieces}
        put = [piece for key, piece in now.items() if (old := self.told.get(key)) is not piece and old != piece]
        gone = tuple(key for key in self.told if key not in now)
        for node in nodes:
            anew = node not in self._keepers
            if anew or put or gone:
                # The plan comes last: without it the others are not complete.
                wanted = sorted(now.values() if anew else put, key=lambda piece: isinstance(piece, NotedPlan))
                for number, portion in enumerate(in_portions(wanted)):
                    yield node, Remember(anew and not number, portion, () if anew or number else gone)
        self._keepers.update(nodes)
        self.told = now


def noted_network(setup: Setup, run: str) -> NotedNetwork:
    """What must be the same for a memory to be one of this network, whichever run of it."""
    network = setup.network
    links = sorted(" - ".join(sorted((link.one, link.other))) for link in network.links)
    replayed = any(source.replayed for source in network.sources)
    return NotedNetwork(tuple(sorted(network.nodes)), tuple(links), network.strategy, replayed, run)


def why_not_ours(pieces: Iterable[Noted], setup: Setup) -> str | None:
    """Why a memory cannot be that of this network, in a sentence; None: it can."""
    remembered = next((piece for piece in pieces if isinstance(piece, NotedNetwork)), None)
    if remembered is None:
        return None
    ours = noted_network(setup, remembered.run)
    if remembered == ours:
        return None
    if remembered.strategy != ours.strategy:
        difference = f"the strategy is {remembered.strategy}, not {ours.strategy}"
    elif remembered.nodes != ours.nodes:
        difference = f"the nodes are {listed(remembered.nodes)}"
    elif remembered.links != ours.links:
        difference = f"the links are {listed(remembered.links)}"
    else:
        difference = f"its sources {'replay traces' if remembered.replayed else 'live in the time of the clock'}"
    return (
        f"the nodes remember another network than the network file describes: {difference}; start the coordinator "
        f"with an empty data folder and the file of the network that runs, or everything with empty data folders"
    )


def found_sentence(coordinator: Coordinator, setup: Setup, plans: Mapping[str, int]) -> str:
    """What was found, for the log."""
    live = {planned.rule.name for planned in coordinator.rules.values() if planned.until_us is None}
    filed = {rule.name for rule in setup.network.rules}
    rules = f"rules {listed(sorted(live))}" if live else "no rules"
    parts = [
        f"the memory of this coordinator was lost and found again at its nodes: plan {coordinator.plan}, {rules}, "
        f"{len(coordinator.sinks)} subscriptions, {len(coordinator.sources)} sources"
    ]
    if behind := sorted(node for node, plan in plans.items() if 0 < plan < coordinator.plan):
        parts.append(f"{listed(behind)} did not have that plan and get it now")
    if fresh := sorted(node for node, plan in plans.items() if not plan):
        parts.append(f"{listed(fresh)} remember nothing and start a new life")
    if live != filed:
        different = [f"{name} is only in the file" for name in sorted(filed - live)]
        different += [f"{name} is only in the network" for name in sorted(live - filed)]
        parts.append(f"the network file differs and is not followed: {', '.join(different)}")
    return "; ".join(parts)
