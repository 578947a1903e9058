"""What pulling saves, and what values in awakenings save on top of it.

The scenario of figure 20 of the T-Rex evaluation (large network, short windows, every type in one rule), with rules
whose events must agree on an attribute: a master event then knows which of the others it can do with. Traffic is that
of events, matches, awakenings and answers; composites are the same for all and left out, watermarks and control too.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

from headwater.deploy.experiments.trex.figures import pull_scenario
from headwater.deploy.experiments.trex.generator import build
from headwater.deploy.simulation.simulator import simulate
from headwater.node.core import NodeSettings

LEFT_OUT = ("watermark", "control", "composite")
RUNS = (("push", "", True), ("pull, windows only", "-pp", False), ("pull, windows and values", "-pp", True))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("strategies", nargs="*", default=["st"], help="st, mt (default: st)")
    parser.add_argument("--seconds", type=float, default=120.0, help="time of the network")
    parser.add_argument("--values", type=int, nargs="*", default=[1, 10], help="values that the attribute can take")
    options = parser.parse_args()
    for values in options.values:
        scenario = replace(pull_scenario(3), values=values, same_value=True)
        network, births = build(scenario, 1)
        for strategy in options.strategies:
            expected = None
            base = 0
            for name, suffix, in_awakenings in RUNS:
                outcome = simulate(
                    network,
                    births(round(options.seconds * 1e6)),
                    strategy=strategy + suffix,
                    seed=1,
                    settings=NodeSettings(values_in_awakenings=in_awakenings),
                )
                events = sum(t.events for (_, _, kind), t in outcome.traffic.items() if kind not in LEFT_OUT)
                sinks = range(len(network.sinks))
                delivered = [sorted(composite.id for composite in outcome.composites(sink)) for sink in sinks]
                assert expected is None or delivered == expected, "no strategy may change results"
                expected, base = delivered, base or events
                print(
                    f"{strategy}, {values} values, {name:<26} {events:>8,} events on links "
                    f"({events / base:.0%} of push)  {len(delivered):,} composites delivered",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
