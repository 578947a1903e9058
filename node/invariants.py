"""Invariants of a node: what must hold at any time, and what must be empty once no more input will come.

Every sentence names what is wrong and where. The simulator asks after housekeeping; tests may ask at any time between
two calls into the core.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from headwater.node.plans.dataflow import describe
from headwater.node.plans.plan_tasks import PlanTasks
from headwater.node.pull.masters import Slot
from headwater.node.streams.feeds import Feed, Inlet, Merge, Sieve
from headwater.node.streams.sources import EpochFeed
from headwater.node.tasks.aggregates.completion import Completion
from headwater.node.tasks.task import JoinTask

if TYPE_CHECKING:
    from headwater.node.core import NodeCore


def broken(core: NodeCore, now_us: int) -> Iterator[str]:
    """What contradicts itself in a node, or is kept for longer than it may be; right after its housekeeping."""
    core.trees.validate()
    yield from _trees(core)
    yield from _streams(core)
    for tasks in core.works.values():
        for task in tasks.tasks:
            where = _where(tasks, task)
            yield from (f"{where}: {wrong}" for wrong in _inputs(core, tasks, task))
            yield from (f"{where}: {wrong}" for wrong in task.validate(now_us))
    for (neighbour, number), outlet in core.outlets.items():
        yield from (f"stream {number} to {neighbour}: {wrong}" for wrong in outlet.validate())


def unfinished(core: NodeCore) -> Iterator[str]:
    """What still waits for something. Nothing may when all sources have ended and all messages have arrived."""
    for feed in core.local.values():
        if feed.sources and not feed.ended:
            yield f"the source of {feed.type} has not ended"
    for number, inlet in core.inlets.items():
        where = f"stream {number} from {inlet.child} ({describe(inlet.stream)})"
        if inlet.asked:
            yield f"{where}: the watermarks {sorted(inlet.asked)} were asked for and never sent"
        if inlet.seen < inlet.serial:
            yield f"{where}: awakening {inlet.serial} was never answered, only {inlet.seen}"
    for (neighbour, number), outlet in core.outlets.items():
        yield from (f"stream {number} to {neighbour}: {waits}" for waits in outlet.unfinished())
    for tasks in core.works.values():
        if not tasks.is_ready():
            yield f"tree {tasks.tree}: not every child has advertised and subscribed"
        for task in tasks.tasks:
            yield from (f"{_where(tasks, task)}: {waits}" for waits in task.unfinished())
        for completion in tasks.completions:
            rule = describe(completion.stream)
            yield from (f"tree {tasks.tree}, {rule}: {waits}" for waits in completion.unfinished())
        yield from (f"tree {tasks.tree}: {waits}" for waits in tasks.unfinished())


def forgotten_bodies(core: NodeCore, nodes: Mapping[str, NodeCore]) -> Iterator[str]:
    """Events that a node would refer to and a neighbour does not know; while nothing is under way."""
    for neighbour, outbox in core.outboxes.items():
        bodies = nodes[neighbour].inboxes[core.name].bodies
        for identity in outbox.history:
            if identity not in bodies:
                yield f"{neighbour} has forgotten {identity}, to which {core.name} would refer"


def _where(tasks: PlanTasks, task: JoinTask) -> str:
    return f"tree {tasks.tree}, task {task.number} ({describe(task.stream)})"


def _trees(core: NodeCore) -> Iterator[str]:
    for (tree, epoch), tasks in core.works.items():
        if not core.trees.knows(tree, epoch):
            yield f"tree {tree}: there is work in it, but the tree is not known"
            continue
        if tasks.parent != core.trees.parent(tree, epoch):
            yield f"tree {tree}: the parent is {core.trees.parent(tree, epoch)}, the work knows {tasks.parent}"
        if tasks.children != core.trees.children(tree, epoch):
            yield f"tree {tree}: the children are {core.trees.children(tree, epoch)}, the work knows {tasks.children}"
        strangers = (tasks.advertised.keys() | tasks.subscribed | tasks.subscribers.children.keys()) - {*tasks.children}
        if strangers:
            yield f"tree {tree}: {sorted(strangers)} have spoken and are not children"


def _streams(core: NodeCore) -> Iterator[str]:
    inlets_of_trees = {id(inlet): inlet for tasks in core.works.values() for inlet in tasks.inlets.values()}
    inlets_of_node = {id(inlet): inlet for inlet in core.inlets.values()}
    for number, inlet in core.inlets.items():
        if inlet.number != number or id(inlet) not in inlets_of_trees:
            yield f"stream {number} from {inlet.child}: no tree has asked for it under this number"
    for identity, inlet in inlets_of_trees.items():
        if identity not in inlets_of_node:
            yield f"stream {inlet.number} from {inlet.child}: it was asked for, but what comes would not find it"
    outlets_of_node = {id(outlet) for outlet in core.outlets.values()}
    for tasks in core.works.values():
        yield from (f"tree {tasks.tree}: {wrong}" for wrong in tasks.misplaced())
        for number, outlet in tasks.outlets.items():
            if id(outlet) not in outlets_of_node:
                yield f"tree {tasks.tree}: stream {number} to {outlet.neighbour} is not the one that the node knows"


def _inputs(core: NodeCore, tasks: PlanTasks, task: JoinTask) -> Iterator[str]:
    if not task.inputs:
        return
    for feed in task.inputs:
        if feed.rank >= task.rank:
            yield f"it runs before what feeds it ({task.rank} <= {feed.rank})"
        if task not in feed.consumers:
            yield "one of its inputs gives it nothing"
    for origin in _origins(task.inputs):
        wrong = _wrong_origin(core, tasks, origin)
        if wrong is not None:
            yield wrong


def _wrong_origin(core: NodeCore, tasks: PlanTasks, origin: Feed) -> str | None:
    """Why a task cannot read what it reads; None if the node and the tree know it."""
    match origin:
        case EpochFeed() if core.local.get(origin.source.type) is not origin.source:
            return f"it reads a source of {origin.source.type} that is not here"
        case Inlet() if core.inlets.get(origin.number) is not origin:
            return f"it reads stream {origin.number} from {origin.child}, which the node does not know"
        case JoinTask() if origin not in tasks.tasks:
            return f"it reads task {origin.number}, which is not of this tree"
        case Completion() if origin not in tasks.completions:
            return f"it reads completion {origin.number}, which is not of this tree"
        case EpochFeed() | Inlet() | JoinTask() | Completion():
            return None
        case _:
            return f"it reads a {type(origin).__name__}"


def _origins(feeds: tuple[Feed, ...]) -> Iterator[Feed]:
    for feed in feeds:
        match feed:
            case Slot() | Sieve():
                yield from _origins((feed.source,))
            case Merge():
                yield from _origins(feed.inputs)
            case _:
                yield feed
