"""What the classes of saved states are saved as: the names of their fields, as real states have them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from headwater.coordinator.daemon.snapshot import machine_format
from headwater.deploy.simulation.faults import Faults
from headwater.deploy.simulation.simulator import SETUP_US, Simulation
from headwater.node.daemon.machine import NodeMachine
from headwater.node.snapshot import state_format
from headwater.protocol.state import Format
from headwater.protocol.state.values import MADE
from tests.coordinator.test_random_changes import Storm
from tests.law.layouts import random_planner
from tests.law.networks import network_case
from tests.law.test_partial_aggregates import a_tree, births
from tests.node.test_machine import STRATEGIES, run

SHAPES = Path(__file__).parent / "kept" / "shapes.json"
HEADER_BYTES = 32
SEEDS = (502, 506, 512)
STORMS = 4
SAVES = 3  # of each node in a run

Shapes = dict[str, list[list[str]]]
"""By the name of a class the fields of its instances; there may be several kinds."""


def nodes() -> Iterator[bytes]:
    """Nodes of random networks as they are saved at random moments."""
    for seed in SEEDS:
        for strategy in STRATEGIES:
            world = run(seed, strategy)
            chance = random.Random(f"{seed} {strategy}")
            for node, given in world.records.items():
                machine = NodeMachine(node, f"life of {node}")
                stops = {len(given) - 1, *chance.sample(range(len(given)), min(SAVES, len(given)))}
                for place, record in enumerate(given):
                    machine.apply(record)
                    if place in stops:
                        yield machine.save()
    for machine in run(525, "mt-pp", 20).machines.values():
        yield machine.save()
    tree = a_tree()
    yield from cores(Simulation(tree, "mt-pp", 0, Faults()), births(tree))
    for seed in SEEDS:
        case = network_case(seed)
        planned = Simulation(case.network, "inev", 0, Faults(), lay_out=random_planner(seed))
        yield from cores(planned, [birth for birth in case.births if not case.is_late(birth)])


def cores(simulation: Simulation, given: list[Any]) -> Iterator[bytes]:
    """Nodes as they are in the middle of a run."""
    simulation.set_up(given[0][0] - SETUP_US)
    simulation.run(given, until_us=given[len(given) // 2][0])
    for core in simulation.nodes.values():
        yield core.save()


def coordinators() -> Iterator[bytes]:
    """Coordinators in a storm of changes, and their inputs."""
    for seed in range(STORMS):
        storm = Storm(seed)
        for place in range(600):
            storm.step()
            if place % 100 == 99:
                yield storm.journaled.save()
                yield storm.journaled._base
                yield from storm.journal[-20:]


def in_bytes(form: Format, data: bytes) -> Iterator[list[str]]:
    yield from form.vocabulary.unpacked(data[HEADER_BYTES:]).shapes


def declared(form: Format) -> Iterator[list[str]]:
    """Of the classes that say what fields they have."""
    for name, cls in form.vocabulary.classes().items():
        if cls.__module__.startswith("headwater") and name not in MADE:
            if is_dataclass(cls):
                yield [name, *(field.name for field in fields(cls))]
            elif hasattr(cls, "_fields"):
                yield [name, *cls._fields]


def saved_shapes() -> dict[str, dict[str, Any]]:
    """By kind of state the number of its format and the shapes of its classes."""
    node, coordinator = state_format(), machine_format()
    found: dict[str, Shapes] = {"node": {}, "coordinator": {}}
    for form, states in ((node, nodes()), (coordinator, coordinators())):
        shapes = [shape for data in states for shape in in_bytes(form, data)]
        for name, *names in [*declared(form), *shapes]:
            known = found[form.kind].setdefault(name, [])
            if names not in known:
                known.append(names)
    numbers: Mapping[str, int] = {"node": node.number, "coordinator": coordinator.number}
    return {
        kind: {"number": numbers[kind], "shapes": {name: sorted(shapes[name]) for name in sorted(shapes)}}
        for kind, shapes in found.items()
    }


def as_text(found: dict[str, dict[str, Any]]) -> str:
    """JSON with a line for each class, so that a change of one shows as one."""
    kinds = []
    for kind, about in found.items():
        lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(shapes)}" for name, shapes in about["shapes"].items())
        kinds.append(f'{json.dumps(kind)}: {{"number": {about["number"]}, "shapes": {{\n{lines}\n}}}}')
    return "{" + ",\n".join(kinds) + "}\n"
