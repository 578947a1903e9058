"""What does it cost to save a busy node, and to restore it, beside pickling the same?

    python -m benchmarks.state [--seconds N] [STRATEGY ..]

The default scenario of ``headwater experiment trex`` runs for some seconds of its own time under each strategy; then
the node that holds most is saved and restored several times, by Headwater and by pickle, and the least time of each
counts. Headwater itself does not pickle: a program that can write a pickle can run code where it is read. The restored
node must be saved as the same bytes again.
"""

from __future__ import annotations

import argparse
import io
import pickle
import platform
import time
from collections.abc import Callable
from typing import Any

from benchmarks.simulator import SEED, STRATEGIES, standing
from headwater.deploy.experiments.trex.figures import DEFAULT
from headwater.deploy.experiments.trex.generator import build
from headwater.node.core import NodeCore
from headwater.node.engine import Engine
from headwater.node.snapshot import _engine, _engine_parts
from headwater.protocol.composites import Composite, CompositeSpec
from headwater.protocol.state.values import _composite, _composite_parts, _spec, _spec_parts

ROUNDS = 5


class _Pickler(pickle.Pickler):
    """Everything as pickle would have it, but for what only Headwater can take apart."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, Composite):
            return _composite, _composite_parts(value)
        if type(value) is CompositeSpec:
            return _spec, _spec_parts(value)
        if type(value) is Engine:
            return _engine, _engine_parts(value)
        recipe = getattr(value, "recipe", None)
        return NotImplemented if recipe is None else recipe


def pickled(core: NodeCore) -> bytes:
    out = io.BytesIO()
    _Pickler(out, protocol=5).dump(core)
    return out.getvalue()


def busy_node(strategy: str, seconds: float) -> NodeCore:
    """The node that holds most after so much time of the network."""
    _, births_until = build(DEFAULT, SEED)
    length_us = round(seconds * 1e6)
    births = list(births_until(length_us))
    simulation = standing(strategy, births[0][0], lambda delivery: None)
    simulation.run(births, until_us=length_us)
    return max(simulation.nodes.values(), key=NodeCore.held)


def best(do: Callable[[], Any]) -> float:
    """CPU milliseconds, the least of some rounds."""
    spent = []
    for _ in range(ROUNDS):
        started = time.process_time()
        do()
        spent.append(time.process_time() - started)
    return min(spent) * 1e3


def row(strategy: str, seconds: float) -> tuple[str, ...]:
    core = busy_node(strategy, seconds)
    saved, by_pickle = core.save(), pickled(core)
    assert NodeCore.restored(saved).save() == saved
    assert isinstance(pickle.loads(by_pickle), NodeCore)
    times = [best(do) for do in (core.save, lambda: pickled(core))]
    times += [best(do) for do in (lambda: NodeCore.restored(saved), lambda: pickle.loads(by_pickle))]
    return (
        strategy,
        f"{core.held():,}",
        f"{len(saved):,}",
        f"{len(saved) / len(by_pickle):.2f}",
        f"{times[0]:.1f}",
        f"{times[0] / times[1]:.2f}",
        f"{times[2]:.1f}",
        f"{times[2] / times[3]:.2f}",
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.state", description=__doc__.splitlines()[0])
    parser.add_argument("strategies", nargs="*", metavar="STRATEGY", help=f"default: {' '.join(STRATEGIES)}")
    parser.add_argument("--seconds", type=float, default=40.0, help="time of the network (default: 40)")
    options = parser.parse_args()
    print(f"Python {platform.python_version()}, CPU milliseconds, the least of {ROUNDS} rounds\n")
    columns = ("strategy", "held", "bytes", "of pickle's", "save ms", "of pickle's", "restore ms", "of pickle's")
    print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
    for strategy in options.strategies or STRATEGIES:
        print(f"| {' | '.join(row(strategy, options.seconds))} |", flush=True)


if __name__ == "__main__":
    main()
