"""The machine's state as bytes, and back, with what else a coordinator saves."""

from __future__ import annotations

from functools import cache
from typing import Any, Final, get_args

from headwater.coordinator import contents, core, losses, requests, trees
from headwater.coordinator.daemon import inputs, machine, memory, operations, registry
from headwater.coordinator.daemon.machine import Machine
from headwater.coordinator.inev.model.latency_bounds import LatencyTerms
from headwater.coordinator.inev.model.rules import Measured, Statistics
from headwater.coordinator.layout import cost_watch, fallback, history, stages
from headwater.coordinator.layout.ground import at_the_middle
from headwater.coordinator.planners import PLANNERS
from headwater.protocol.state import Format, Tables, Vocabulary
from headwater.protocol.state import OldState as OldState
from headwater.protocol.state import StateError as StateError
from headwater.protocol.state.upgrading import EMPTY, with_fields
from headwater.protocol.state.values import CLASSES, MADE, by_name

MACHINE_NUMBER: Final = 2
"""Of the format of machines; ``protocol.state`` says what a change of it takes."""

INPUT_NUMBER: Final = 1
"""The same of inputs in the journal."""

SETUP_NUMBER: Final = 2
"""The same of what a coordinator was told of its network."""

HOW_TO_GO_ON: Final = (
    "To go on, move 'network' and 'journal' out of the data folder and start the coordinator again: it begins a new "
    "life with what its network file says, and learns the rest from its nodes"
)
"""For an operator whose folder this version cannot read."""


@cache
def vocabulary() -> Vocabulary:
    """What coordinators may save. A class that one comes to hold is listed here, or in ``protocol.state.values``."""
    from headwater.coordinator.daemon.durable import LinkState

    classes = {
        **CLASSES,
        **by_name(inputs.Setup, *get_args(inputs.Input), inputs.Answered),
        **by_name(*get_args(requests.Request), requests.ChangeOutcome, *get_args(losses.Fact), losses.Question),
        **by_name(machine.Machine, machine.Settings, machine.Past, LinkState),
        **by_name(memory.Memory, memory._Recalled),
        **by_name(operations.Operation, operations.Waiter, operations.RequestPlanner),
        **by_name(registry.Registry, registry.Registration, registry.KeptSource, registry.KeptSink),
        **by_name(core.Coordinator, contents.Contents, contents._Retired, trees.TreeKeeper),
        **by_name(history.Layings, stages.Home, stages.Stage, fallback.StageName, cost_watch.Watched),
        **by_name(*PLANNERS.values(), Statistics, Measured, LatencyTerms),
    }
    return Vocabulary(classes, made=MADE, named={"at_the_middle": at_the_middle})


def _format(kind: str, number: int) -> Format:
    return Format(kind=kind, number=number, vocabulary=vocabulary(), upgrades={1: _with_tables})


def _with_tables(tables: Tables) -> Tables:
    """From format 1: networks had no remote tables."""
    new = {"tables": EMPTY, "remote_strategy": ""}
    registry = {f"_{name}": value for name, value in new.items()}
    return with_fields(tables, {"Network": new, "NodeConfig": new, "Share": {"everywhere": True}, "Registry": registry})


@cache
def machine_format() -> Format:
    return _format("coordinator", MACHINE_NUMBER)


@cache
def input_format() -> Format:
    return _format("input", INPUT_NUMBER)


@cache
def setup_format() -> Format:
    return _format("network", SETUP_NUMBER)


def save(state: Any) -> bytes:
    """The state with everything it holds."""
    return machine_format().packed(state)


def restored(data: bytes) -> Any:
    """What was saved; a StateError if it is damaged or cannot be read by this version."""
    return machine_format().read(data)


def restored_machine(data: bytes) -> Machine:
    state = restored(data)
    if not isinstance(state, Machine):
        raise StateError("this is not a saved state of a coordinator")
    return state
