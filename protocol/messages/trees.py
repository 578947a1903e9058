"""Messages about trees: between neighbours while they build one, and from the coordinator to the nodes.

A tree bears the name of its root; (tree, epoch) names one build of it. Names compare as UTF-8 bytes, which is how
Python compares strings, too (both go by code point).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

Cost: TypeAlias = tuple[int, int]
"""What a path to the root costs: its delay in microseconds, then the number of zero-delay links since its last link
that takes time. Without the second number two nodes joined by a zero-delay link, equally far from the root, could each
take the other for its parent, and both would be cut off. Where all links take time it is 0 and decides nothing."""

ROOT_COST: Cost = (0, 0)


def extended(cost: Cost, delay_us: int) -> Cost:
    """The cost of a path and one more link: always more than the path alone, and never less for a costlier path."""
    delay_sum_us, zero_hops = cost
    return (delay_sum_us + delay_us, 0) if delay_us else (delay_sum_us, zero_hops + 1)


@dataclass(frozen=True, slots=True)
class _AboutOffer:
    tree: str
    epoch: int
    sum_us: int
    zero_hops: int = 0

    @property
    def cost(self) -> Cost:
        """What the offer costs, the link it came over not counted; answers are matched with offers by it."""
        return self.sum_us, self.zero_hops


@dataclass(frozen=True, slots=True)
class CreateTree(_AboutOffer):
    """The sender offers to be the receiver's parent; its own way to the root costs this much."""


@dataclass(frozen=True, slots=True)
class TreeAck(_AboutOffer):
    """The sender is the child of the receiver whose offer it names, and everything below the sender is settled."""


@dataclass(frozen=True, slots=True)
class TreeNack(_AboutOffer):
    """The sender is not, or no longer, the child of the receiver whose offer it names."""


TreeMessage: TypeAlias = CreateTree | TreeAck | TreeNack


@dataclass(frozen=True, slots=True)
class LinkAgain:
    """The sender uses the link again that was lost, for the n-th time; what came before this is of the time before."""

    again: int


@dataclass(frozen=True, slots=True)
class StartTree:
    """To a root: build your tree."""

    tree: str
    epoch: int


@dataclass(frozen=True, slots=True)
class InstallTree:
    """To every node of a tree that was computed rather than built: these are your parent and your children."""

    tree: str
    epoch: int
    parent: str | None
    children: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ForgetTree:
    """This build is not needed any more."""

    tree: str
    epoch: int


@dataclass(frozen=True, slots=True)
class DropLink:
    """The link to this neighbour is lost for good: use it in no tree."""

    neighbour: str


@dataclass(frozen=True, slots=True)
class UseLink:
    """The link to this neighbour is back, for the n-th time: use it in trees that are built from now on."""

    neighbour: str
    again: int


TreeOrder: TypeAlias = StartTree | InstallTree | ForgetTree | DropLink | UseLink
