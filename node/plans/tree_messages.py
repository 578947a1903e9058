"""Handles messages about trees: which tree a message concerns, whether it is allowed now, and what follows from it.

Every message has its function in one of three tables, by what must be true of the tree that it names. What the forest
then does to the tree is in ``forest``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from headwater.node.plans.lifecycle import OVER, STREAMS_OVER_MAX, Input, State, TreeRecord
from headwater.node.step import Work
from headwater.protocol.errors import RuleError
from headwater.protocol.messages.neighbour import (
    Advertise,
    Deploy,
    FetchRules,
    GraphLaid,
    Message,
    RulesFetched,
    Settled,
    SettledHere,
    Subscribe,
    TreeOver,
    TreeReady,
    TreeStart,
)
from headwater.protocol.messages.trees import CreateTree, LinkAgain, TreeAck, TreeNack

if TYPE_CHECKING:
    from headwater.node.plans.forest import Forest


def hear(forest: Forest, neighbour: str, message: Message, work: Work) -> None:
    """A neighbour speaks about trees."""
    kind = type(message)
    if kind in _ABOUT_BUILDS:
        _ABOUT_BUILDS[kind](forest, neighbour, message, work)
    elif kind in _FOR_TASKS:
        if (record := forest.with_tasks(message.tree, message.epoch, work)) is not None:  # type: ignore[union-attr]
            _FOR_TASKS[kind](forest, record, neighbour, message, work)
    elif kind in _FROM_CHILDREN:
        if (record := forest.with_tasks(message.tree, message.epoch, work)) is not None:  # type: ignore[union-attr]
            if neighbour in record.tasks_here().children:
                _FROM_CHILDREN[kind](forest, record, neighbour, message, work)
            else:
                work.report("unknown_child")
    else:
        work.report("unknown_message")


# -- about builds, with tasks or without -------------------------------------------------------------------------------


def _negotiated(forest: Forest, neighbour: str, message: CreateTree | TreeAck | TreeNack, work: Work) -> None:
    if isinstance(message, CreateTree) and not _may_build(forest, message.tree, message.epoch):
        _keep_early(forest, neighbour, message, work)
        return
    before = forest.trees.unknown
    forest.send_all(forest.trees.received(neighbour, message), work)
    if forest.trees.unknown > before:
        forest.report_tree(message.tree, message.epoch, work)
    if message.tree == forest.name:  # only its root sees a tree stand
        forest.look_for_standing(work)


def _link_again(forest: Forest, neighbour: str, message: LinkAgain, work: Work) -> None:
    forest.trees.link_again(neighbour, message.again)


def _ready_above(forest: Forest, neighbour: str, message: TreeReady, work: Work) -> None:
    """The parent says that the tree stands. Where the coordinator puts trees in place, its order may come later."""
    comes = forest.table.state(message.tree, message.epoch) == State.NAMED
    if message.plan <= max(forest.shares, default=-1) and not (comes and _installs(forest, message.plan)):
        forest.ready(message, work)
    else:
        _keep_early(forest, neighbour, message, work)


def _laid(forest: Forest, neighbour: str, message: GraphLaid, work: Work) -> None:
    record = forest.table.get(message.tree, message.epoch)
    if record is not None and record.tasks is not None:
        if record.tasks.partner_ready(neighbour):
            forest.advertise(record, work)
        else:
            work.report("unknown_message")
    elif not _is_past(forest, message.tree, message.epoch):
        _keep_early(forest, neighbour, message, work)


# -- for trees that have tasks here ------------------------------------------------------------------------------------


def _start_below(forest: Forest, record: TreeRecord, neighbour: str, message: TreeStart, work: Work) -> None:
    if record.accepts(Input.START):
        forest.start(record, work)
    else:
        work.report("unknown_message")


def _over(forest: Forest, record: TreeRecord, neighbour: str, message: TreeOver, work: Work) -> None:
    if not record.accepts(Input.OVER):
        work.report("unknown_message")
        return
    for child in record.tasks_here().children:
        work.send(child, message)
    forest.forget(record.tree, record.epoch, Input.OVER)


def _settled_above(forest: Forest, record: TreeRecord, neighbour: str, message: Settled, work: Work) -> None:
    record.tasks_here().settled_above(message, work)


def _fetch(forest: Forest, record: TreeRecord, neighbour: str, message: FetchRules, work: Work) -> None:
    tasks = record.tasks_here()
    forest.shares[tasks.plan].rules.fetch(tasks, message.type, work)


def _fetched(forest: Forest, record: TreeRecord, neighbour: str, message: RulesFetched, work: Work) -> None:
    tasks = record.tasks_here()
    is_complete = forest.shares[tasks.plan].rules.fetched(tasks, neighbour, message.type, message.rules, work)
    if is_complete and record.accepts(Input.START):  # a neighbour may have made the root ask out of turn
        forest.arrange(record, work)


# -- from children in trees that have tasks here -----------------------------------------------------------------------


def _settled_below(forest: Forest, record: TreeRecord, neighbour: str, message: SettledHere, work: Work) -> None:
    record.tasks_here().settled_below(neighbour, message.ts, work)


def _advertised(forest: Forest, record: TreeRecord, neighbour: str, message: Advertise, work: Work) -> None:
    record.tasks_here().advertised[neighbour] = frozenset(message.types)
    forest.advertise(record, work)


def _subscribed(forest: Forest, record: TreeRecord, neighbour: str, message: Subscribe, work: Work) -> None:
    tasks = record.tasks_here()
    if refused := tasks.subscribers.set_child(neighbour, message.subscriptions):
        work.report("unknown_conditions", refused)
    tasks.subscribed.add(neighbour)
    forest.advertise(record, work)


def _deploy(forest: Forest, neighbour: str, message: Deploy, work: Work) -> None:
    """The parent asks for a stream."""
    record = forest.with_tasks(message.tree, message.epoch, work)
    if record is None:
        if len(forest.table.streams_over) < STREAMS_OVER_MAX:
            forest.table.streams_over.add((neighbour, message.number))  # more about it may follow
        return
    tasks, number = record.tasks_here(), message.number
    try:
        served = neighbour == tasks.parent and tasks.serve(
            number, message.stream, work, watermarks_only=message.watermarks_only
        )
    except RuleError:  # the parent does not know the types, or is newer
        served = False
    if not served:
        work.report("unknown_stream")
    forest.took_on(tasks)


# -- what is known of a tree -------------------------------------------------------------------------------------------


def _may_build(forest: Forest, tree: str, epoch: int) -> bool:
    """Whether the coordinator has named this build, or it is known here: no neighbour may begin one."""
    state = forest.table.state(tree, epoch)
    return state != State.UNKNOWN or tree == forest.name or forest.trees.is_forgotten(tree, epoch)


def _is_past(forest: Forest, tree: str, epoch: int) -> bool:
    """Whether a build is over here, or was before this node knew of any."""
    state = forest.table.state(tree, epoch)
    if state in OVER or forest.trees.is_forgotten(tree, epoch):
        return True
    return state == State.UNKNOWN and any(
        record.tree == tree and record.epoch > epoch and record.state != State.UNKNOWN for record in forest.table
    )


def _installs(forest: Forest, plan: int) -> bool:
    """Whether the trees of a plan are put in place by the coordinator, not built."""
    return plan in forest.shares and bool(forest.shares[plan].share.graphs)


def _keep_early(forest: Forest, neighbour: str, message: CreateTree | TreeReady | GraphLaid, work: Work) -> None:
    if not forest.table.keep_early(message.tree, message.epoch, neighbour, message):
        work.report("unknown_tree")


_ABOUT_BUILDS: Final[Mapping[type, Callable[[Forest, str, Any, Work], None]]] = {
    CreateTree: _negotiated,
    TreeAck: _negotiated,
    TreeNack: _negotiated,
    LinkAgain: _link_again,
    TreeReady: _ready_above,
    GraphLaid: _laid,
    Deploy: _deploy,
}
"""Messages that may come in any state of a tree."""

_FOR_TASKS: Final[Mapping[type, Callable[[Forest, TreeRecord, str, Any, Work], None]]] = {
    TreeStart: _start_below,
    TreeOver: _over,
    Settled: _settled_above,
    FetchRules: _fetch,
    RulesFetched: _fetched,
}
"""Messages to trees that have tasks here."""

_FROM_CHILDREN: Final[Mapping[type, Callable[[Forest, TreeRecord, str, Any, Work], None]]] = {
    SettledHere: _settled_below,
    Advertise: _advertised,
    Subscribe: _subscribed,
}
"""The same, of those that only a child may send."""
