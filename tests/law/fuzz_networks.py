"""The command behind ``scripts/fuzz networks``: the law on random networks, and the smallest failing case of a kind."""

from __future__ import annotations

import argparse
import multiprocessing
import secrets
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from multiprocessing.pool import AsyncResult, Pool
from pathlib import Path
from typing import Any

from headwater.deploy.simulation.faults import Faults
from headwater.node.engine import compile_rules
from headwater.protocol.errors import ConfigError, HeadwaterError
from headwater.protocol.network import Link, Network
from headwater.protocol.pattern import types_of
from headwater.protocol.strategy import STRATEGIES
from tests.law import law
from tests.law.law import SERVED, Verdict, check
from tests.law.networks import Birth, NetworkCase, Size, describe, network_case, numbered
from tests.law.shrinking import smaller_rules

KEPT = Path(__file__).parent / "network_seeds"
STRETCH = 4  # seeds that a worker takes at a time
SLOW_TRIES = 15  # smaller cases to try, at least, for a run that does not end
SHOWN_MAX = 6  # differences of one failure that are printed

Check = Callable[[NetworkCase, str, bool], Verdict]


@dataclass(frozen=True)
class Failure:
    """A run that broke the law; what it takes to repeat it."""

    seed: int
    size: Size | None
    strategy: str
    faults: bool
    wrong: tuple[str, ...]
    kind: str

    def command(self) -> str:
        words = f"scripts/fuzz networks --seed {self.seed} --count 1 --strategies {self.strategy}"
        return words + (f" --size {self.size}" if self.size else "") + (" --faults" if self.faults else "")


@dataclass
class Tally:
    """What a stretch of seeds gave."""

    networks: int = 0
    runs: int = 0
    matches: int = 0
    unjudged: int = 0
    failures: list[Failure] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.networks += other.networks
        self.runs += other.runs
        self.matches += other.matches
        self.unjudged += other.unjudged
        self.failures += other.failures

    def __str__(self) -> str:
        return (
            f"{self.runs} runs over {self.networks} networks, {self.matches} events compared, "
            f"{self.unjudged} networks left out, {len(self.failures)} failures"
        )


@dataclass(frozen=True)
class Task:
    first: int
    count: int
    size: Size | None
    strategies: tuple[str, ...]
    faults: bool


def run_seeds(task: Task, until: float | None = None, failures_max: int | None = None, checked: Check = check) -> Tally:
    """Every strategy on every seed of the task; stops early at ``until`` (a time.monotonic()) or after so many
    failures."""
    tally = Tally()
    for seed in range(task.first, task.first + task.count):
        if until is not None and time.monotonic() > until:
            break
        if failures_max is not None and len(tally.failures) >= failures_max:
            break
        case = network_case(seed, task.size)
        tally.networks += 1
        for strategy in task.strategies:
            verdict = checked(case, strategy, task.faults)
            if verdict.wrong:
                failure = Failure(seed, task.size, strategy, task.faults, tuple(verdict.wrong), verdict.kind)
                tally.failures.append(failure)
            if verdict.unjudged:
                tally.unjudged += 1
                break
            tally.runs += 1
            tally.matches += verdict.matches
    return tally


# -- making failing cases small ----------------------------------------------------------------------------------------


def shrink(
    case: NetworkCase, strategy: str, faults: bool, kind: str, seconds: float = 30.0, checked: Check = check
) -> tuple[NetworkCase, Verdict]:
    """Make the case smaller while a difference of the same kind remains."""
    until = time.monotonic() + seconds
    if faults:
        case = replace(case, faults=case.chosen_faults())
    verdict = checked(case, strategy, faults)
    smaller = True
    while smaller and time.monotonic() < until:
        smaller = False
        for candidate in reductions(case):
            if time.monotonic() > until:
                break
            if not valid(candidate.network):
                continue
            found = checked(candidate, strategy, faults)
            if kind in {sentence.split(":")[0] for sentence in found.wrong}:
                case, verdict, smaller = candidate, found, True
                break
    return case, verdict


def valid(network: Network) -> bool:
    try:
        compile_rules(list(network.rules), network.types)
    except HeadwaterError:
        return False
    return True


def reductions(case: NetworkCase) -> Iterator[NetworkCase]:
    """Cases that are a little smaller than this one, what shrinks most first."""
    yield from fewer_births(case, (16, 4))
    yield from fewer_rules_and_sinks(case)
    yield from fewer_sources(case)
    yield from fewer_links(case)
    yield from fewer_births(case, (1,))
    yield from calmer(case)
    yield from fewer_faults(case)
    yield from simpler_subscriptions(case)
    yield from simpler_rules(case)


def types_read(network: Network) -> set[str]:
    return {name for rule in network.rules for name in types_of(rule.pattern)}


def fewer_rules_and_sinks(case: NetworkCase) -> Iterator[NetworkCase]:
    network = case.network
    read, primitive = types_read(network), {event_type.name for event_type in network.types}
    for i, rule in enumerate(network.rules):
        others = network.rules[:i] + network.rules[i + 1 :]
        emitted = {other.emits for other in others}
        sinks = tuple(s for s in network.sinks if s.subscription.type in emitted | primitive)
        if others and sinks and (rule.emits in emitted or rule.emits not in read):
            yield replace(case, network=replace(network, rules=others, sinks=sinks))
    for i in range(len(network.sinks)):
        if len(network.sinks) > 1:
            yield replace(case, network=replace(network, sinks=network.sinks[:i] + network.sinks[i + 1 :]))


def fewer_sources(case: NetworkCase) -> Iterator[NetworkCase]:
    network = case.network
    needed = types_read(network) | {sink.subscription.type for sink in network.sinks}
    for i, source in enumerate(network.sources):
        rest = network.sources[:i] + network.sources[i + 1 :]
        if rest and (source.type not in needed or any(other.type == source.type for other in rest)):
            births = [(at_us, s - (s > i), event) for at_us, s, event in case.births if s != i]
            yield rebuilt(case, replace(network, sources=rest), births)


def fewer_links(case: NetworkCase) -> Iterator[NetworkCase]:
    network = case.network
    for link in network.links:
        yield merged(case, link.one, link.other)
        yield merged(case, link.other, link.one)
    for i in range(len(network.links)):
        rest_of_links = network.links[:i] + network.links[i + 1 :]
        if connected(network.nodes, rest_of_links):
            yield rebuilt(case, replace(network, links=rest_of_links), case.births)


def simpler_subscriptions(case: NetworkCase) -> Iterator[NetworkCase]:
    network = case.network
    for i, sink in enumerate(network.sinks):
        for j in range(len(sink.subscription.where)):
            where = sink.subscription.where[:j] + sink.subscription.where[j + 1 :]
            simpler = replace(sink, subscription=replace(sink.subscription, where=where))
            yield replace(case, network=replace(network, sinks=(*network.sinks[:i], simpler, *network.sinks[i + 1 :])))


def simpler_rules(case: NetworkCase) -> Iterator[NetworkCase]:
    network = case.network
    read, named = types_read(network), any(sink.subscription.where for sink in network.sinks)
    for i, rule in enumerate(network.rules):
        for shorter in smaller_rules(rule, rule.emits not in read and not named):
            yield replace(case, network=replace(network, rules=(*network.rules[:i], shorter, *network.rules[i + 1 :])))


def fewer_births(case: NetworkCase, widths: Sequence[int]) -> Iterator[NetworkCase]:
    for width in widths:
        if width == 1 or width < len(case.births):
            for i in range(0, len(case.births), width):
                yield rebuilt(case, case.network, case.births[:i] + case.births[i + width :])


def calmer(case: NetworkCase) -> Iterator[NetworkCase]:
    """Without jitter, loss, scarce bandwidth, delay and lateness, in the whole network at once or link by link."""
    network = case.network
    calms: dict[str, object] = {"jitter_us": 0, "loss": 0.0, "bandwidth_bps": None, "delay_us": 0}
    for name, value in calms.items():
        links = tuple(replace(link, **{name: value}) for link in network.links)  # type: ignore[arg-type]
        if links != network.links:
            yield replace(case, network=replace(network, links=links))
    for i, link in enumerate(network.links):
        if link.delay_us:
            quick = (*network.links[:i], replace(link, delay_us=0), *network.links[i + 1 :])
            yield replace(case, network=replace(network, links=quick))
    if any(source.lateness_us for source in network.sources):
        sources = tuple(replace(source, lateness_us=0) for source in network.sources)
        births = [(event.ts, source, event) for _, source, event in case.births]
        yield rebuilt(case, replace(network, sources=sources), births)


def fewer_faults(case: NetworkCase) -> Iterator[NetworkCase]:
    faults = case.faults or Faults()
    for each in fields(faults):
        several = getattr(faults, each.name)
        for i in range(len(several)):
            yield replace(case, faults=replace(faults, **{each.name: several[:i] + several[i + 1 :]}))


def possible_faults(faults: Faults | None, network: Network) -> Faults | None:
    """Those that the network can still have."""
    if faults is None:
        return None
    kept: dict[str, list[Any]] = {each.name: [] for each in fields(faults)}
    for name, found in kept.items():
        for fault in getattr(faults, name):
            with suppress(ConfigError):
                Faults(**{name: (fault,)}).check(network)
                found.append(fault)
    return Faults(**{name: tuple(found) for name, found in kept.items()})


def merged(case: NetworkCase, kept: str, gone: str) -> NetworkCase:
    """One node takes the place of two neighbours."""
    network = case.network

    def name(node: str) -> str:
        return kept if node == gone else node

    links: dict[frozenset[str], Link] = {}
    for link in network.links:
        one, other = name(link.one), name(link.other)
        if one != other:
            links.setdefault(frozenset((one, other)), replace(link, one=one, other=other))
    smaller = replace(
        network,
        nodes=tuple(node for node in network.nodes if node != gone),
        links=tuple(links.values()),
        sources=tuple(replace(source, node=name(source.node)) for source in network.sources),
        sinks=tuple(replace(sink, node=name(sink.node)) for sink in network.sinks),
    )
    return rebuilt(case, smaller, case.births)


def rebuilt(case: NetworkCase, network: Network, births: Iterable[Birth]) -> NetworkCase:
    possible = possible_faults(case.faults, network)
    return replace(case, network=network, births=numbered(births, network.sources), faults=possible)


def connected(nodes: Sequence[str], links: Iterable[Link]) -> bool:
    reached, frontier = {nodes[0]}, [nodes[0]]
    around = [(link.one, link.other) for link in links]
    while frontier:
        here = frontier.pop()
        beyond = {b if a == here else a for a, b in around if here in (a, b)} - reached
        reached |= beyond
        frontier += beyond
    return len(reached) == len(nodes)


# -- the command -------------------------------------------------------------------------------------------------------


def report(failure: Failure, small: NetworkCase, verdict: Verdict) -> str:
    """The failure for people, in comments, and the case as Python: a file for tests/law/network_seeds."""
    told = [
        f"seed {failure.seed} under {failure.strategy}: {failure.wrong[0]}",
        f"repeat with: {failure.command()}",
        "smallest case found:",
        *verdict.wrong[:SHOWN_MAX],
    ]
    lines = ["# " + line for sentence in told for line in sentence.splitlines()]
    return "\n".join([*lines, describe(small), f"strategy, faults = {failure.strategy!r}, {failure.faults}"])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="scripts/fuzz networks", description="The law on random networks.")
    parser.add_argument("--seed", type=int, help="first seed (default: a new random one)")
    parser.add_argument("--count", type=int, help="how many networks (default: until --seconds, else 200)")
    parser.add_argument("--seconds", type=float, help="stop after this time")
    parser.add_argument("--strategies", default=",".join(SERVED), help="separated by commas (default: %(default)s)")
    parser.add_argument("--size", choices=("small", "large"), help="only such networks (default: most are small)")
    parser.add_argument("--faults", action="store_true", help="cut links, crash and restart nodes on the way")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: %(default)s)")
    parser.add_argument("--failures", type=int, default=3, help="stop after this many failing runs (default: 3)")
    parser.add_argument("--shrink", type=float, default=30.0, help="seconds to spend on making each failure small")
    parser.add_argument(
        "--keep", action="store_true", help="write the small failing cases into tests/law/network_seeds"
    )
    options = parser.parse_args(arguments)
    strategies = tuple(options.strategies.split(","))
    if unknown := sorted(set(strategies) - set(STRATEGIES)):
        parser.error(f"no such strategy: {', '.join(unknown)}; there are {', '.join(STRATEGIES)}")
    first = options.seed if options.seed is not None else secrets.randbelow(10**9)
    count = options.count or (10**9 if options.seconds else 200)
    print(f"from seed {first}", flush=True)
    started = time.monotonic()
    total = spread(Task(first, count, options.size, strategies, options.faults), options)
    failures = sorted(total.failures, key=lambda failure: failure.seed)
    for failure in failures[: options.failures]:
        tell(failure, options.shrink, options.keep)
    for failure in failures[options.failures :]:
        print(f"also {failure.strategy}: {failure.wrong[0]}\n    {failure.command()}")
    for (strategy, kind), number in Counter((f.strategy, f.kind) for f in failures).most_common():
        print(f"{number:5d} x {strategy}: {kind}")
    print(f"{total}, {time.monotonic() - started:.0f} s, from seed {first}")
    return 1 if failures else 0


def spread(task: Task, options: argparse.Namespace) -> Tally:
    """The task in stretches over several processes, with progress told every five seconds."""
    total, started, shown = Tally(), time.monotonic(), 0.0
    with multiprocessing.Pool(options.jobs) as pool:
        for tally in tallies(pool, task, options.jobs, options.failures):
            total.add(tally)
            elapsed = time.monotonic() - started
            if elapsed - shown > 5:
                shown = elapsed
                print(f"{total}, {elapsed:.0f} s", flush=True)
            if len(total.failures) >= options.failures or (options.seconds and elapsed > options.seconds):
                break
        pool.terminate()
    return total


def tallies(pool: Pool, task: Task, jobs: int, failures_max: int) -> Iterator[Tally]:
    """Stretches are given out only as workers become free, since the task may be endless."""
    end = task.first + task.count
    running: deque[AsyncResult[Tally]] = deque()
    for at in range(task.first, end, STRETCH):
        stretch = replace(task, first=at, count=min(STRETCH, end - at))
        running.append(pool.apply_async(run_seeds, (stretch, None, failures_max)))
        if len(running) > jobs:
            yield running.popleft().get()
    for rest in running:
        yield rest.get()


def tell(failure: Failure, seconds: float, keep: bool) -> None:
    case = network_case(failure.seed, failure.size)
    verdict = Verdict(wrong=list(failure.wrong))
    if seconds:
        if failure.kind == "too slow":  # what never ends has not ended soon either, and more cases can be tried
            law.RUN_SECONDS = seconds / SLOW_TRIES
        case, verdict = shrink(case, failure.strategy, failure.faults, failure.kind, seconds)
    text = report(failure, case, verdict)
    print(text, end="\n\n", flush=True)
    if keep:
        path = KEPT / f"{failure.seed}-{failure.strategy}{'-faults' if failure.faults else ''}.case"
        path.write_text(text + "\n", encoding="utf-8")
        print(f"kept as {path}")


if __name__ == "__main__":
    sys.exit(main())
