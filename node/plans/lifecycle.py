"""The life of a tree or graph on one node: its states, what moves it from one to the next, and the table of all trees.

A tree is known by its name and its epoch: the coordinator replaces a tree by rebuilding it under the next epoch. One
``TreeRecord`` holds everything that a node keeps of one (tree, epoch), and ``TRANSITIONS`` says how its state may move.
A pair of state and input that is absent from ``TRANSITIONS`` cannot happen to a node that obeys the protocol: inputs of
neighbours are checked with ``accepts`` and reported if they come out of turn, everything else is a bug and fails.

docs/reference/lifecycle.md is written from the tables below (``python -m headwater.node.plans.lifecycle_page``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from headwater.node.plans.plan_tasks import PlanTasks
    from headwater.node.plans.tree_protocol import Build
    from headwater.protocol.messages.neighbour import Message

TreeName: TypeAlias = tuple[str, int]
"""The name of a tree, which is that of its root, and its epoch."""

EARLY_MAX: Final = 10_000  # messages kept until an order arrives: far more than all builds of a large network take
STREAMS_OVER_MAX: Final = 100_000  # streams of trees that are not here, which a neighbour may invent


class State(StrEnum):
    """Where a tree is in its life on this node."""

    UNKNOWN = "unknown"
    NAMED = "named"
    BUILDING = "building"
    STANDING = "standing"
    GATHERING = "gathering"
    ADVERTISED = "advertised"
    RUNNING = "running"
    ENDING = "ending"
    BROKEN = "broken"
    LOST = "lost"
    GONE = "gone"


class Input(StrEnum):
    """What can happen to a tree on this node."""

    NAME = "name"
    UNNAME = "unname"
    BUILD = "build"
    STAND = "stand"
    READY = "ready"
    ADVERTISE = "advertise"
    START = "start"
    END = "end"
    DRAIN = "drain"
    OVER = "over"
    CUT = "cut"
    RESET = "reset"
    FORGET = "forget"


STATES: Final[dict[State, str]] = {
    State.UNKNOWN: "No plan that this node holds names the tree. Messages about it wait until a plan does.",
    State.NAMED: "A plan names the tree, and this node has no place in it yet.",
    State.BUILDING: "The node negotiates its parent and children, or the coordinator has installed them.",
    State.STANDING: "At the root only: the whole tree is settled, and the coordinator has been told.",
    State.GATHERING: "The node has its tables and waits until all children have advertised and subscribed.",
    State.ADVERTISED: "The parent knows what is available here and below; at the root the rules are being arranged.",
    State.RUNNING: "Sources feed the tree, and its matches reach the sinks.",
    State.ENDING: "The next plan begins at a known time; the tree still finds what ends before it.",
    State.BROKEN: "A link of the tree was lost before its tasks existed; the coordinator rebuilds it.",
    State.LOST: "A neighbour lost its memory, so the tasks were freed. How far they had delivered is kept until the "
    "coordinator has decided what takes their place.",
    State.GONE: "Everything is freed. Messages that were still on their way are counted as forgotten. Of several "
    "epochs only the latest keeps its record.",
}

INPUTS: Final[dict[Input, str]] = {
    Input.NAME: "The coordinator's plan (Adopt) names the tree.",
    Input.UNNAME: "The last plan that names the tree has been dropped.",
    Input.BUILD: "The coordinator orders StartTree or InstallTree, or a neighbour offers its way to the root.",
    Input.STAND: "The last neighbour of the root has answered; the root tells the coordinator (TreeStands).",
    Input.READY: "The tree stands: the coordinator tells the root (BeginTree), every parent its children (TreeReady).",
    Input.ADVERTISE: "The last child has advertised and subscribed, in a graph the last partner is ready, too; the "
    "node tells its parent (Advertise, Subscribe).",
    Input.START: "Everything is deployed above (TreeStart; the root has arranged its rules): sources begin.",
    Input.END: "A later plan says where it begins.",
    Input.DRAIN: "At the root: everything that the tree must find has reached the sinks (TreeDrained, TreeOver).",
    Input.OVER: "The parent says that the tree is over (TreeOver).",
    Input.CUT: "A link that the tree uses here is lost; the coordinator is told (TreeBroken). Existing tasks still "
    "serve what reaches them until the tree is replaced.",
    Input.RESET: "A neighbour that the tasks exchange streams with has lost its memory.",
    Input.FORGET: "The coordinator orders ForgetTree.",
}

TRANSITIONS: Final[dict[tuple[State, Input], State]] = {
    (State.UNKNOWN, Input.NAME): State.NAMED,
    (State.UNKNOWN, Input.BUILD): State.BUILDING,
    (State.UNKNOWN, Input.FORGET): State.GONE,
    (State.NAMED, Input.UNNAME): State.UNKNOWN,
    (State.NAMED, Input.BUILD): State.BUILDING,
    (State.NAMED, Input.FORGET): State.GONE,
    (State.BUILDING, Input.STAND): State.STANDING,
    (State.BUILDING, Input.READY): State.GATHERING,
    (State.BUILDING, Input.CUT): State.BROKEN,
    (State.BUILDING, Input.FORGET): State.GONE,
    (State.STANDING, Input.READY): State.GATHERING,
    (State.STANDING, Input.CUT): State.BROKEN,
    (State.STANDING, Input.FORGET): State.GONE,
    (State.GATHERING, Input.ADVERTISE): State.ADVERTISED,
    (State.GATHERING, Input.CUT): State.GATHERING,
    (State.GATHERING, Input.RESET): State.LOST,
    (State.GATHERING, Input.FORGET): State.GONE,
    (State.ADVERTISED, Input.START): State.RUNNING,
    (State.ADVERTISED, Input.CUT): State.ADVERTISED,
    (State.ADVERTISED, Input.RESET): State.LOST,
    (State.ADVERTISED, Input.FORGET): State.GONE,
    (State.RUNNING, Input.END): State.ENDING,
    (State.RUNNING, Input.OVER): State.GONE,
    (State.RUNNING, Input.CUT): State.RUNNING,
    (State.RUNNING, Input.RESET): State.LOST,
    (State.RUNNING, Input.FORGET): State.GONE,
    (State.ENDING, Input.END): State.ENDING,
    (State.ENDING, Input.DRAIN): State.GONE,
    (State.ENDING, Input.OVER): State.GONE,
    (State.ENDING, Input.CUT): State.ENDING,
    (State.ENDING, Input.RESET): State.LOST,
    (State.ENDING, Input.FORGET): State.GONE,
    (State.BROKEN, Input.BUILD): State.BUILDING,
    (State.BROKEN, Input.FORGET): State.GONE,
    (State.LOST, Input.CUT): State.LOST,
    (State.LOST, Input.FORGET): State.GONE,
    (State.GONE, Input.FORGET): State.GONE,
}

BEFORE_TASKS: Final = frozenset({State.NAMED, State.BUILDING, State.STANDING, State.BROKEN})
"""A plan may wait for the tree, and it delivers nothing here yet."""
STARTED: Final = frozenset({State.RUNNING, State.ENDING})
OVER: Final = frozenset({State.LOST, State.GONE})
"""The tree was here and delivers nothing any more."""


@dataclass(slots=True, eq=False)
class TreeRecord:
    """What a node keeps of one tree in one epoch."""

    tree: str
    epoch: int
    state: State = State.UNKNOWN
    build: Build | None = None
    """Parent and children, and what is left to negotiate about them (``tree_protocol``)."""
    tasks: PlanTasks | None = None
    """From GATHERING to ENDING: the streams and tasks of this node."""
    reached_us: float | None = None
    """While no tasks know it, up to where the sinks have everything that this tree would otherwise deliver. Before the
    tasks: as far as the trees before it deliver (None: the newest plan does not wait for it). LOST: as far as the tree
    had delivered."""
    early: list[tuple[int, str, Message]] = field(default_factory=list)
    """Messages that came before the order that they depend on, numbered in the order in which they came, with their
    senders."""

    @property
    def name(self) -> TreeName:
        return self.tree, self.epoch

    def tasks_here(self) -> PlanTasks:
        """The tasks of a tree that has some."""
        assert self.tasks is not None, f"tree {self.tree}, epoch {self.epoch}, is {self.state} and has no tasks"
        return self.tasks

    def accepts(self, happened: Input) -> bool:
        """Whether this may happen now."""
        return (self.state, happened) in TRANSITIONS

    def move(self, happened: Input) -> None:
        """Take the next state. A pair that is not in the table is a bug."""
        following = TRANSITIONS.get((self.state, happened))
        assert following is not None, f"tree {self.tree}, epoch {self.epoch}: {happened} cannot follow {self.state}"
        self.state = following


class TreeTable:
    """All trees that a node knows, by name and epoch.

    ``streams_over`` is the one index: a batch names only its stream, and every batch that comes late for a tree that is
    over asks.
    """

    def __init__(self) -> None:
        self._records: dict[TreeName, TreeRecord] = {}
        self.streams_over: set[tuple[str, int]] = set()
        """Streams of trees that are over, by neighbour and number: something of them may still be on its way."""
        self._early_kept = 0
        self._early_number = 0

    def __iter__(self) -> Iterator[TreeRecord]:
        return iter(self._records.values())

    def builds(self) -> list[tuple[TreeRecord, Build]]:
        """The trees in which this node has a place, with that, in order of (tree, epoch)."""
        built = [(record, record.build) for record in self if record.build is not None]
        return sorted(built, key=lambda record_and_build: record_and_build[0].name)

    def get(self, tree: str, epoch: int) -> TreeRecord | None:
        return self._records.get((tree, epoch))

    def state(self, tree: str, epoch: int) -> State:
        record = self._records.get((tree, epoch))
        return State.UNKNOWN if record is None else record.state

    def record(self, tree: str, epoch: int) -> TreeRecord:
        """The record of a tree; a new one if the table has none."""
        record = self._records.get((tree, epoch))
        if record is None:
            record = self._records[tree, epoch] = TreeRecord(tree, epoch)
        return record

    def drop_gone_before(self, tree: str, epoch: int) -> None:
        """Of the epochs of a tree that are gone the latest tells it of all: they would add up for ever."""
        for record in list(self):
            if record.tree == tree and record.epoch < epoch and record.state == State.GONE and not record.early:
                del self._records[record.name]

    def clear(self) -> None:
        self._records.clear()
        self._early_kept = 0

    # ------------------------------------------------------------------------------------------------- early messages

    def keep_early(self, tree: str, epoch: int, neighbour: str, message: Message) -> bool:
        """Keep a message for later; false if too many wait already."""
        if self._early_kept >= EARLY_MAX:
            return False
        self._early_kept += 1
        self._early_number += 1
        self.record(tree, epoch).early.append((self._early_number, neighbour, message))
        return True

    def take_early(self) -> list[tuple[str, Message]]:
        """The messages that wait, with their senders, in the order in which they came. They wait no more."""
        waiting: list[tuple[int, str, Message]] = []
        for record in list(self):
            if record.early:
                waiting += record.early
                record.early = []
                self._drop_if_empty(record)
        self._early_kept = 0
        waiting.sort(key=lambda early: early[0])
        return [(neighbour, message) for _, neighbour, message in waiting]

    def forget_neighbour(self, neighbour: str) -> None:
        """What a neighbour said before it lost its memory is void."""
        for record in list(self):
            if record.early:
                kept = [early for early in record.early if early[1] != neighbour]
                self._early_kept -= len(record.early) - len(kept)
                record.early = kept
                self._drop_if_empty(record)
        self.streams_over = {stream for stream in self.streams_over if stream[0] != neighbour}

    def unname(self, record: TreeRecord) -> None:
        """No plan names the tree any more."""
        record.move(Input.UNNAME)
        record.reached_us = None
        self._drop_if_empty(record)

    def _drop_if_empty(self, record: TreeRecord) -> None:
        if record.state == State.UNKNOWN and not record.early:
            del self._records[record.name]
