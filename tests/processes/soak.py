"""Networks of real processes under load, to which random things are done until so many kills were made.

Every round is a network with a load of its own. What its sinks must hold at the end is what a single engine finds over
all events; whatever is missing there, or there twice, is told with the seed that repeats the round. In two rounds of
three, programs subscribe to the same beside the files: they come and go, and must hear of everything at least once,
also where a node has lost its journal, except for what waited for them in that journal alone.
"""

from __future__ import annotations

import argparse
import random
import re
import secrets
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from headwater.node.edge.interfaces import identity
from headwater.protocol.edge import ClientTo, Destination, FileTo
from headwater.protocol.events import Event
from headwater.protocol.messages.control import COORDINATOR
from tests.kit.faults import a_load, found_by_one_engine, names, under_load
from tests.kit.patience import until
from tests.kit.processes import Cluster, difference, lines_of
from tests.kit.programs import Programs, program_name
from tests.law.law import SERVED, TooSlow, time_limit
from tests.law.networks import NetworkCase, network_case, numbered

LOAD_S: Final = 12.0  # sources of a round publish for so long, if nothing holds them up
FAULTS: Final = 9  # what is done to a round
EVENTS: Final = 400  # of a round, about
MATCHES_MAX: Final = 5_000  # a load that explodes measures nothing but itself
ENGINE_SECONDS: Final = 5.0
NOTICED_S: Final = 10.0  # a link that is not noticed to be down for so long never will be
PAUSE_S: Final = 4.0  # twice as long as silence is borne
SNAPSHOT_BYTES: Final = 20_000  # in every other round journals are kept this short, so that kills meet snapshots
PROGRAMS_SHARE: Final = 2 / 3  # of the rounds have programs that subscribe
QUANTILES: Final = (0.5, 0.9, 0.99, 1.0)


@dataclass
class Tally:
    done: Counter[str] = field(default_factory=Counter)
    kills: int = 0
    rounds: int = 0
    events: int = 0
    deliveries: int = 0
    heard: int = 0
    forgiven: int = 0
    missing: int = 0
    repeated: int = 0
    false: int = 0
    bugs: int = 0
    noticed_s: list[float] = field(default_factory=list)
    coordinator_noticed_s: list[float] = field(default_factory=list)
    ready_s: list[float] = field(default_factory=list)
    replayed: list[float] = field(default_factory=list)
    replay_s: list[float] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        return not (self.missing or self.repeated or self.false or self.bugs)

    def lines(self) -> list[str]:
        done = ", ".join(f"{what} {count}" for what, count in sorted(self.done.items()))
        return [
            f"rounds {self.rounds}, kills {self.kills} ({done})",
            f"events {self.events}, deliveries {self.deliveries}, of programs {self.heard} "
            f"({self.forgiven} waited for them in journals that were lost)",
            f"lost {self.missing}, repeated {self.repeated}, false {self.false}, signs of bugs {self.bugs}",
            shown("a killed node is noticed by a neighbour after", self.noticed_s, "s"),
            shown("a killed coordinator is noticed by a node after", self.coordinator_noticed_s, "s"),
            shown("a node is ready again, links up, after its start by", self.ready_s, "s"),
            shown("records replayed at a start", self.replayed, ""),
            shown("time of a replay", self.replay_s, "s"),
        ]


def shown(what: str, values: list[float], unit: str) -> str:
    if not values:
        return f"{what}: never measured"
    ordered = sorted(values)
    found = [ordered[min(len(ordered) - 1, int(share * len(ordered)))] for share in QUANTILES]
    number = "{:.2f}" if unit else "{:.0f}"
    texts = [f"p{100 * share:.0f} {number.format(value)}" for share, value in zip(QUANTILES, found, strict=True)]
    return f"{what}: {', '.join(texts)} {unit} ({len(values)} times)".replace("p100", "most").replace("  ", " ")


# -- loads -------------------------------------------------------------------------------------------------------------


def a_round(seed: int) -> NetworkCase:
    """A load of some hundred events: every third time the star of the other tests, else a random network."""
    if seed % 3 == 0:
        return a_load(EVENTS, seed)
    case = network_case(seed, "small")
    return lengthened(case, max(1, EVENTS // max(1, len(case.births))))


def lengthened(case: NetworkCase, times: int) -> NetworkCase:
    """The births of a case again and again, one after the other."""
    births = [birth for birth in case.births if not case.is_late(birth)]
    most = max((event.seq for _, _, event in births), default=0)
    period_us = case.span_us + 1
    made = [
        (at_us + k * period_us, source, Event.from_row((event.ts + k * period_us, event.node, seq, *event[3:])))
        for k in range(times)
        for at_us, source, event in births
        for seq in (event.seq + k * most,)
    ]
    return NetworkCase(case.network, numbered(made, case.network.sources), case.features, case.seed)


def judged(case: NetworkCase) -> list[list[Any]] | None:
    """What must be delivered; None if that is too much, or nothing."""
    if len(case.network.nodes) < 2 or not case.births:
        return None
    try:
        with time_limit(ENGINE_SECONDS):
            must = found_by_one_engine(case)
    except TooSlow:
        return None
    return must if 0 < sum(map(len, must)) < MATCHES_MAX else None


# -- what is done ------------------------------------------------------------------------------------------------------


class Round:
    """One network while things are done to it."""

    def __init__(self, cluster: Cluster, programs: Programs, chance: random.Random, tally: Tally) -> None:
        self.cluster, self.programs, self.chance, self.tally = cluster, programs, chance, tally
        self.nodes = list(cluster.network.nodes)
        self.faults: dict[str, tuple[int, Callable[[], None]]] = {
            "one node": (5, self.kill_one),
            "one node, until noticed": (5, self.kill_until_noticed),
            "several nodes": (3, self.kill_several),
            "the same node twice": (2, self.kill_twice),
            "coordinator": (2, self.kill_coordinator),
            "coordinator and nodes": (1, self.kill_coordinator_and_nodes),
            "everything": (1, self.kill_everything),
            "paused": (2, self.pause),
            "told to leave": (2, self.terminate),
            "journal lost": (3, self.lose_journal),
        }
        if programs.programs:
            self.faults["journal lost"] = (8, self.lose_journal)
            self.faults["program away"] = (4, self.program_leaves)

    def do_something(self) -> None:
        weights = [weight for weight, _ in self.faults.values()]
        [what] = self.chance.choices(list(self.faults), weights)
        self.tally.done[what] += 1
        self.faults[what][1]()
        time.sleep(self.chance.random() * 0.6)

    def down(self, *victims: str, most_s: float = 0.5) -> None:
        self.cluster.kill(*victims)
        if self.chance.random() < 0.6:
            time.sleep(self.chance.random() * most_s)
        self.cluster.restart(*victims)

    def kill_one(self) -> None:
        self.down(self.chance.choice(self.nodes))

    def kill_several(self) -> None:
        self.down(*self.chance.sample(self.nodes, self.chance.randint(2, min(4, len(self.nodes)))))

    def kill_twice(self) -> None:
        victim = self.chance.choice(self.nodes)
        self.down(victim)
        time.sleep(self.chance.random() * 0.1)
        self.down(victim)

    def kill_coordinator(self) -> None:
        began = time.time()
        self.cluster.kill(COORDINATOR)
        time.sleep(self.chance.random() * 4.0)
        self.tally.coordinator_noticed_s += noticed(self.cluster, COORDINATOR, self.nodes, began).values()
        self.cluster.restart(COORDINATOR)

    def kill_coordinator_and_nodes(self) -> None:
        self.down(COORDINATOR, *self.chance.sample(self.nodes, self.chance.randint(1, len(self.nodes) - 1)))

    def kill_everything(self) -> None:
        self.down(*names(self.cluster.network))

    def pause(self) -> None:
        victim = self.chance.choice(names(self.cluster.network))
        self.cluster.pause(victim)
        time.sleep(self.chance.random() * PAUSE_S)
        self.cluster.go_on(victim)

    def terminate(self) -> None:
        victim = self.chance.choice(names(self.cluster.network))
        self.cluster.terminate(victim)
        self.cluster.restart(victim)

    def lose_journal(self) -> None:
        """One node at a time: what two that forget at once had from each other is gone, which is no fault."""
        self.cluster.wait_until_ready()
        told = sorted({program.sink.node for program in self.programs.programs if program.heard})
        # Where a program has heard something, it must not take what the next life tells it for a repetition.
        victim = self.chance.choice(told if told and self.chance.random() < 0.8 else self.nodes)
        self.cluster.kill(victim)
        for program in self.programs.at(victim):
            number = self.programs.programs.index(program)
            written = {identity(line) for line in lines_of(self.cluster.data(victim) / f"sink-{number}.jsonl")}
            program.forgiven |= written - program.identities
        shutil.rmtree(self.cluster.data(victim) / "journal")
        self.cluster.restart(victim)
        self.cluster.wait_until_ready()

    def program_leaves(self) -> None:
        self.programs.leave(self.chance.choice(self.programs.programs))

    def kill_until_noticed(self) -> None:
        """With nothing else going on: how long do neighbours take to notice, and the node to be back?"""
        self.cluster.wait_until_ready()
        victim = self.chance.choice(self.nodes)
        links = [link for link in self.cluster.network.links if victim in (link.one, link.other)]
        neighbours = sorted({link.end(victim) for link in links})
        began = time.time()
        self.cluster.kill(victim)
        found: dict[str, float] = {}
        while len(found) < len(neighbours) and time.time() - began < NOTICED_S:
            time.sleep(0.05)
            found = noticed(self.cluster, victim, neighbours, began)
        self.tally.noticed_s += [found.get(each, NOTICED_S) for each in neighbours]
        began = time.time()
        self.cluster.restart(victim)
        until(
            lambda: (self.cluster.ask(victim, "/ready") or {}).get("ready"), f"{victim} is ready again",
            why=self.cluster.logs,
        )  # fmt: skip
        self.tally.ready_s.append(time.time() - began)


def noticed(cluster: Cluster, victim: str, witnesses: Sequence[str], began: float) -> dict[str, float]:
    """By witness how long after that moment it has said that the link to the victim is down."""
    found: dict[str, float] = {}
    for witness in witnesses:
        for line in reversed(cluster.said(witness).splitlines()):
            if f"the link to {victim} is down" in line:
                at = datetime.strptime(line[:23], "%Y-%m-%d %H:%M:%S,%f").timestamp()
                if at >= began - 0.001:
                    found[witness] = max(0.0, at - began)
                break
    return found


def replays(cluster: Cluster) -> list[tuple[float, float]]:
    """Records and seconds of every replay of every node."""
    said = "\n".join(cluster.said(node) for node in cluster.network.nodes)
    return [(float(n), float(s)) for n, s in re.findall(r"replayed (\d+) records in ([\d.]+) s", said)]


# -- rounds ------------------------------------------------------------------------------------------------------------


def with_programs(case: NetworkCase) -> tuple[NetworkCase, tuple[Destination, ...]]:
    """The case with every sink twice: a file, and a program at the same node."""
    sinks = case.network.sinks
    files = tuple(FileTo(f"sink-{number}.jsonl") for number in range(len(sinks)))
    programs = tuple(ClientTo(program_name(number)) for number in range(len(sinks)))
    return replace(case, network=replace(case.network, sinks=(*sinks, *sinks))), (*files, *programs)


def soak(seed: int, strategy: str | None, tally: Tally) -> list[str]:
    """One round, unless the seed gives none; what was wrong with it."""
    case = a_round(seed)
    must = judged(case)
    if must is None:
        return []
    chance = random.Random(f"soak {seed}")
    chosen = strategy or chance.choice(SERVED)
    folder = Path(tempfile.mkdtemp(prefix=f"soak-{seed}-"))
    wrong: list[str] = []
    snapshots = chance.choice((None, SNAPSHOT_BYTES))
    options: dict[str, Any] = {"seconds": LOAD_S, "started": False, "snapshot_bytes": snapshots}
    subscribers = case.network.sinks if chance.random() < PROGRAMS_SHARE else ()
    if subscribers:
        case, options["destinations"] = with_programs(case)
    with ExitStack() as stack:
        cluster = stack.enter_context(under_load(case, chosen, folder, **options))
        programs = stack.enter_context(Programs(cluster, subscribers))
        heard_must = must if subscribers else []
        try:
            doing = Round(cluster, programs, chance, tally)
            for _ in range(FAULTS):
                doing.do_something()
            cluster.wait_until_done()
            programs.wait_until_heard(heard_must)
        except AssertionError as error:
            wrong.append(str(error))
            tally.bugs += 1
        else:
            bugs = cluster.bugs()
            for found in (difference(cluster.delivered()[: len(must)], must), programs.difference(heard_must)):
                tally.missing += len(found.missing)
                tally.repeated += len(found.repeated)
                tally.false += len(found.false)
                wrong += [str(found)] if found else []
            tally.bugs += len(bugs)
            wrong += bugs
        for records, seconds in replays(cluster):
            tally.replayed.append(records)
            tally.replay_s.append(seconds)
        tally.rounds += 1
        tally.kills += cluster.kills
        tally.events += len(case.births)
        tally.deliveries += sum(map(len, must))
        tally.heard += sum(len(program.heard) for program in programs.programs)
        tally.forgiven += sum(len(program.forgiven - program.identities) for program in programs.programs)
        print(
            f"seed {seed}, {chosen}: {len(case.network.nodes)} nodes, {len(case.births)} events, "
            f"{sum(map(len, must))} deliveries, {len(programs.programs)} programs, {cluster.kills} kills: "
            f"{'WRONG' if wrong else 'exact'} ({tally.kills} kills so far)",
            flush=True,
        )
    if wrong:
        wrong.append(f"repeat it with scripts/soak --seed {seed} --kills 1 --strategy {chosen}; all is in {folder}")
    else:
        shutil.rmtree(folder)
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--strategy", choices=SERVED, default=None)
    chosen = parser.parse_args()
    seed = secrets.randbelow(10**6) if chosen.seed is None else chosen.seed
    tally = Tally()
    while tally.kills < chosen.kills:
        for sentence in soak(seed, chosen.strategy, tally):
            print(sentence, flush=True)
        seed += 1
    print("\n".join(tally.lines()))
    return 0 if tally.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
