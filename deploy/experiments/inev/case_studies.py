"""The case studies of the INEv evaluation (section 7.3) on recorded streams with attributes: planned, run, compared."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from random import Random
from typing import Final

from headwater.coordinator.inev.model.rules import Statistics
from headwater.deploy.experiments.inev.random_networks import ring
from headwater.deploy.experiments.inev.recordings import DAY_S, RECORDINGS, SECOND_US, Occurrence
from headwater.deploy.experiments.inev.simulated import Ruled, compared, network_of
from headwater.deploy.simulation.simulator import Birth
from headwater.protocol.errors import ConfigError
from headwater.protocol.events import Event

STUDY_VERSION: Final = 3

SPEED: Final = 1000
"""How many times faster than it was recorded a stream is replayed. Nodes look after themselves by the clock, which over
months in which little happens would be most of the work; what events are sent does not depend on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseStudy:
    """One query on the first days of a recording, on a random topology."""

    recording: str
    query: int
    days: int
    folder: str
    """Where the data is; it does not tell two studies apart."""

    @property
    def time_s(self) -> float:
        return float(self.days * DAY_S)

    def fingerprint(self) -> str:
        settings = repr(
            (STUDY_VERSION, sorted((name, value) for name, value in asdict(self).items() if name != "folder"))
        )
        return blake2b(settings.encode(), digest_size=6).hexdigest()

    def seconds(self) -> float:
        recording = RECORDINGS[self.recording]
        return recording.seconds * min(1.0, self.days / recording.days)

    def measured(self, seed: int, progress: Callable[[float], None]) -> dict[str, float | None]:
        return compared(study(self, seed), progress)


def study(case: CaseStudy, seed: int) -> Ruled:
    """The network of a query: rates and how often two events agree are counted in the stream itself."""
    recording = RECORDINGS[case.recording]
    texts = recording.queries[case.query]
    read = list(map(types_in, texts))
    types_read = set[str]().union(*read)
    occurrences = [
        occurrence for occurrence in recording.occurrences(Path(case.folder), case.days) if occurrence[2] in types_read
    ]
    lasts_s = min(case.days, recording.days) * DAY_S
    counts = Counter((kind, node) for _, node, kind, _ in occurrences)
    rates: dict[str, dict[str, float]] = {kind: {} for kind in sorted(types_read)}
    for (kind, node), times in sorted(counts.items()):
        rates[kind][f"n{node}"] = times * SPEED / lasts_s
    silent = [kind for kind, at in rates.items() if not at]
    if silent:
        raise ConfigError(
            f"{case.recording}: no events of type {', '.join(silent)} in the first {case.days} days; take more days"
        )
    rules, shares = [], {}
    for at, (text, types) in enumerate(zip(texts, read, strict=True), 1):
        name = f"Query{case.query}{'ab'[at - 1] if len(texts) > 1 else ''}"
        rules.append(rule_text(name, text, recording.key, f"{recording.window_s * 1000 // SPEED} ms"))
        shares[name] = {frozenset(kind.lower() for kind in types): same_share(occurrences, types, recording.window_s)}
    links = ring(Random(f"{seed}/links"), recording.nodes, 2)
    network = network_of(links, recording.key, rates, "\n".join(rules), "n0", 5.0)

    def births() -> Iterator[Birth]:
        position = {(source.node, source.type): at for at, source in enumerate(network.sources)}
        declared = {event_type.name: event_type for event_type in network.types}
        numbers = Counter[str]()
        for recorded_us, node, kind, value in occurrences:
            name = f"n{node}"
            numbers[name] += 1
            ts = recorded_us // SPEED
            yield ts, position[name, kind], Event.from_row((ts, name, numbers[name], declared[kind], value))

    return Ruled(network, Statistics(rates, shares), births, round(lasts_s * SECOND_US / SPEED), draws=False)


def rule_text(name: str, text: str, key: str, window: str) -> str:
    """A query as a rule: all its events agree in the key, within the window."""
    first = min(types_in(text)).lower()
    return f"{name}: {text} WHERE SAME[{key}] WITHIN {window} RETURN {name}({key} = {first}.{key})"


def types_in(text: str) -> set[str]:
    """The event types of a query: its words of one capital letter."""
    return set(re.findall(r"\b[A-Z]\b", text))


def same_share(occurrences: list[Occurrence], types: set[str], window_s: int) -> float:
    """Of all pairs of events of different types in the same window of the clock, the share that agrees."""
    windows: dict[int, Counter[str]] = {}
    agreeing: dict[tuple[int, int], Counter[str]] = {}
    for ts, _, kind, value in occurrences:
        if kind in types:
            window = ts // (window_s * SECOND_US)
            windows.setdefault(window, Counter())[kind] += 1
            agreeing.setdefault((window, value), Counter())[kind] += 1
    same, pairs = sum(map(_pairs, agreeing.values())), sum(map(_pairs, windows.values()))
    return max(same, 1) / max(pairs, 1)


def _pairs(counts: Counter[str]) -> int:
    """Pairs of different types."""
    return (counts.total() ** 2 - sum(times**2 for times in counts.values())) // 2
