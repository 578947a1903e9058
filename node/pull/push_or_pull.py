"""Decides from time to time which streams to pull and which to push, over all tasks that share them."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.node.pull.masters import PushPull
from headwater.node.step import Work
from headwater.node.streams.feeds import Inlet
from headwater.node.tasks.task import JoinTask


def review(tasks: Sequence[JoinTask], work: Work, *, restless: bool = False) -> None:
    """Choose masters from measured rates and set the modes of streams accordingly.

    A stream is pulled only if every task that reads it agrees. Tasks are asked in turn; what earlier ones have pushed
    costs later ones nothing. ``restless``: change masters every time, whatever it costs.
    """
    managers = [task.push_pull for task in tasks if task.push_pull is not None]
    pushed = _choose_masters(managers, work, restless)
    for manager in managers:
        manager.settle(work)
    for task in tasks:
        if task.push_pull is None:
            # A task that never pulls, and whatever else reads the stream directly, needs it pushed.
            pushed |= {id(feed) for feed in task.inputs}
    _set_modes(managers, pushed, work)


def _choose_masters(managers: Sequence[PushPull], work: Work, restless: bool) -> set[int]:
    """Let every manager choose its master; the inputs, by identity, that are pushed then."""
    measured = [(manager, manager.rates(work.now_us)) for manager in managers]
    pushed: set[int] = set()
    for manager, rates in measured:
        if rates is None:  # not yet known: everything is pushed
            pushed |= {id(slot.source) for slot in manager.slots}
        elif restless:
            pushed |= manager.choose_next()
        else:
            pushed |= manager.choose(rates, pushed)
    return pushed


def _set_modes(managers: Sequence[PushPull], pushed: set[int], work: Work) -> None:
    """Pull what need not be pushed, and promise how far back it will still be asked for."""
    free_from: dict[int, tuple[Inlet, float]] = {}
    for manager in managers:
        for slot in manager.slots:
            inlet = slot.source
            if not isinstance(inlet, Inlet):
                continue
            if id(inlet) in pushed or not _only_slots(inlet, slot):
                inlet.set_mode(False, work)
            elif inlet.pull or all(other.ready() for other in managers if _reads(other, inlet)):
                inlet.set_mode(True, work)
                promise = manager.promise(slot, work.now_us)
                promised = free_from.get(id(inlet), (inlet, promise))[1]
                free_from[id(inlet)] = (inlet, min(promised, promise))
    for inlet, ts in free_from.values():
        inlet.reverse_mark(ts, work)


def _reads(manager: object, inlet: Inlet) -> bool:
    return any(slot.source is inlet for slot in getattr(manager, "slots", ()))


def _only_slots(inlet: Inlet, slot: object) -> bool:
    """Whether all that read the stream are inputs of tasks, not streams to the parent or sinks."""
    return all(type(consumer) is type(slot) for consumer in inlet.consumers)
