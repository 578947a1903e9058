"""Saves the coordinator's state as bytes, and restores it."""

from __future__ import annotations

from functools import cache
from typing import Any, Final, get_args

from headwater.coordinator import core, losses, plan_contents, requests, trees
from headwater.coordinator.daemon import inputs, machine, operations, recovery, registry
from headwater.coordinator.daemon.machine import Machine
from headwater.coordinator.inev.model.latency_bounds import LatencyTerms
from headwater.coordinator.inev.model.rules import Measured, Statistics
from headwater.coordinator.layout import cost_watch, current_layout, fallback, stages
from headwater.coordinator.layout.planner_interface import at_the_middle
from headwater.coordinator.planners import PLANNERS
from headwater.protocol.formats import COORDINATOR_INPUTS, COORDINATOR_SETUP, COORDINATOR_STATE
from headwater.protocol.state import Format, Tables, Vocabulary
from headwater.protocol.state import OldState as OldState
from headwater.protocol.state import StateError as StateError
from headwater.protocol.state.upgrading import EMPTY, with_fields, with_table_terms
from headwater.protocol.state.values import CLASSES, MADE, by_name

HOW_TO_GO_ON: Final = (
    "To go on, move 'network' and 'journal' out of the data folder and start the coordinator again: it begins a new "
    "life with what its network file says, and learns the rest from its nodes"
)
"""For an operator whose folder this version cannot read."""


@cache
def vocabulary() -> Vocabulary:
    """What coordinators may save. A class that one comes to hold is listed here, or in ``protocol.state.values``."""
    from headwater.coordinator.daemon.journaled_machine import LinkState

    classes = {
        **CLASSES,
        **by_name(inputs.Setup, *get_args(inputs.Input), inputs.Answered),
        **by_name(*get_args(requests.Request), requests.ChangeOutcome, *get_args(losses.Fact)),
        "Question": losses.DeliveryQuestion,  # its first name
        **by_name(machine.Machine, machine.Settings, machine.Past, LinkState),
        "Memory": recovery.CoordinatorMemory,  # its first name
        **by_name(recovery._Recalled),
        **by_name(operations.Operation, operations.Waiter, operations.RequestPlanner),
        **by_name(registry.Registry, registry.Registration, registry.KeptSource, registry.KeptSink),
        **by_name(core.Coordinator, plan_contents.Contents, plan_contents._Retired, trees.TreeKeeper),
        **by_name(current_layout.Layings, stages.Home, stages.Stage, fallback.StageName, cost_watch.Watched),
        **by_name(*PLANNERS.values(), Statistics, Measured, LatencyTerms),
    }
    return Vocabulary(classes, made=MADE, named={"at_the_middle": at_the_middle})


def _format(kind: str, number: int) -> Format:
    upgrades = {1: _with_tables, 2: _with_functions_and_ways}
    return Format(kind=kind, number=number, vocabulary=vocabulary(), upgrades=upgrades)


def _with_tables(tables: Tables) -> Tables:
    """From format 1: networks had no remote tables."""
    new = {"tables": EMPTY, "remote_strategy": ""}
    registry = {f"_{name}": value for name, value in new.items()}
    return with_fields(tables, {"Network": new, "NodeConfig": new, "Share": {"everywhere": True}, "Registry": registry})


def _with_functions_and_ways(tables: Tables) -> Tables:
    """From format 2: networks had no functions of a user's file, no tables that are not steady, and said nothing of
    single rules; plans gave no ways to remote tables, and statistics did not count their keys."""
    functions: dict[str, Any] = {"functions": None}
    network = {**functions, "remote_cache": "", "remote_priorities": EMPTY, "remote_strategies": EMPTY}
    classes = {
        "Network": network,
        "NodeConfig": network,
        "Register": functions,
        "Registration": functions,
        "Registry": {**{f"_{name}": value for name, value in network.items()}, "unlinked": EMPTY},
        "Share": {"ways": EMPTY, "reached_from": EMPTY},
        "Statistics": {"keys": EMPTY},
    }
    return with_table_terms(with_fields(tables, classes))


@cache
def machine_format() -> Format:
    return _format("coordinator", COORDINATOR_STATE)


@cache
def input_format() -> Format:
    return _format("input", COORDINATOR_INPUTS)


@cache
def setup_format() -> Format:
    return _format("network", COORDINATOR_SETUP)


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
