"""The case studies of the INEv evaluation, as far as recorded streams are at hand (section 7.3, table 3).

The Citi Bike stream with bike ids holds, for each of 10 nodes, a file ``nodeN.csv.gz`` of times (H:MM:SS), types
(letters) and bikes. On it the queries can really be evaluated: same bike, within 24 hours.
"""

from __future__ import annotations

import gzip
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from random import Random
from typing import Final

from coordinator.inev.rules import Statistics
from deploy.experiments.inev.bricks import ring
from deploy.experiments.inev.simulated import Ruled, compared, network_of
from deploy.simulation.simulator import Birth
from protocol.errors import ConfigError
from protocol.events import Event

BIKES: Final = "inev-citibike-bikes"
NODES: Final = 10
DAY_S: Final = 86_400
DAYS_MAX: Final = 31
STUDY_VERSION: Final = 1

QUERIES: Final = {
    1: ("AND(E e, F f, G g, H h)",),
    2: ("SEQ(C c, D d, E e, I i)",),
    3: ("AND(A a, SEQ(D d, I i), F f)",),
    4: ("SEQ(A a, AND(B b, I i), E e)", "AND(E e, F f, C c, H h)"),
}
"""By number; the fourth is a pair that shares types."""

TABLE_3: Final = {1: 0.00007, 2: 0.0005, 3: 0.00001, 4: 0.00008}
"""The paper's transmission ratios for Citi Bike."""

Trip = tuple[int, int, str, int]
"""Seconds, node, type, bike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseStudy:
    """One query on the first days of the stream, on a random topology."""

    query: int
    days: int
    folder: str
    """Where the data is; it does not tell two studies apart."""

    @property
    def time_s(self) -> float:
        return float(self.days * DAY_S)

    def fingerprint(self) -> str:
        told = repr((STUDY_VERSION, sorted((name, value) for name, value in asdict(self).items() if name != "folder")))
        return blake2b(told.encode(), digest_size=6).hexdigest()

    def seconds(self) -> float:
        return 10.0 * self.days

    def measured(self, seed: int, progress: Callable[[float], None]) -> dict[str, float | None]:
        return compared(study(Path(self.folder), self.query, self.days, seed), progress)


def study(folder: Path, query: int, days: int, seed: int) -> Ruled:
    """The network of a query: rates and how often two trips are of the same bike are counted in the stream itself."""
    texts = QUERIES[query]
    read = list(map(types_in, texts))
    wanted = set[str]().union(*read)
    trips = [trip for trip in _trips(folder, days) if trip[2] in wanted]
    counts = Counter((kind, node) for _, node, kind, _ in trips)
    rates: dict[str, dict[str, float]] = {kind: {} for kind in sorted(wanted)}
    for (kind, node), times in sorted(counts.items()):
        rates[kind][f"n{node}"] = times / (days * DAY_S)
    silent = [kind for kind, at in rates.items() if not at]
    if silent:
        raise ConfigError(f"no trips of type {', '.join(silent)} in the first {days} days; take more days")
    rules, shares = [], {}
    for at, (text, types) in enumerate(zip(texts, read, strict=True), 1):
        name = f"Query{query}{'ab'[at - 1] if len(texts) > 1 else ''}"
        first = min(types)
        rules.append(f"{name}: {text} WHERE SAME[bike] WITHIN 24 h RETURN {name}(bike = {first.lower()}.bike)")
        shares[name] = {frozenset(kind.lower() for kind in types): same_share(trips, types)}
    network = network_of(ring(Random(f"{seed}/links"), NODES, 2), "bike", rates, "\n".join(rules), "n0", 5.0)

    def births() -> Iterator[Birth]:
        position = {(source.node, source.type): at for at, source in enumerate(network.sources)}
        declared = {each.name: each for each in network.types}
        numbers = Counter[str]()
        for second, node, kind, bike in trips:
            name = f"n{node}"
            numbers[name] += 1
            ts = second * 1_000_000
            yield ts, position[name, kind], Event.from_row((ts, name, numbers[name], declared[kind], bike))

    return Ruled(network, Statistics(rates, shares), births, days * DAY_S * 1_000_000)


def types_in(text: str) -> set[str]:
    """The event types of a query: its words of one capital letter."""
    return set(re.findall(r"\b[A-Z]\b", text))


def check_data(folder: Path) -> None:
    """ConfigError if a file is missing, before anything is run."""
    for node in range(NODES):
        file = folder / BIKES / f"node{node}.csv.gz"
        if not file.is_file():
            raise ConfigError(f"there is no {file}; --data is the folder that {BIKES} is in")


def same_share(trips: list[Trip], types: set[str]) -> float:
    """Of all pairs of trips of different types on the same day, the share that is of one bike."""
    days: dict[int, Counter[str]] = {}
    bikes: dict[tuple[int, int], Counter[str]] = {}
    for second, _, kind, bike in trips:
        if kind in types:
            days.setdefault(second // DAY_S, Counter())[kind] += 1
            bikes.setdefault((second // DAY_S, bike), Counter())[kind] += 1
    same, pairs = sum(map(_pairs, bikes.values())), sum(map(_pairs, days.values()))
    return max(same, 1) / max(pairs, 1)


def _pairs(counts: Counter[str]) -> int:
    """Pairs of different types."""
    return (counts.total() ** 2 - sum(times**2 for times in counts.values())) // 2


@lru_cache(maxsize=1)
def _trips(folder: Path, days: int) -> list[Trip]:
    found: list[Trip] = []
    for node in range(NODES):
        file = folder / BIKES / f"node{node}.csv.gz"
        try:
            with gzip.open(file, "rt", encoding="ascii") as lines:
                for line in lines:
                    clock, kind, bike, _ = line.split(",")
                    hours, minutes, seconds = clock.split(":")
                    second = int(hours) * 3600 + int(minutes) * 60 + int(seconds)
                    if second >= days * DAY_S:
                        continue
                    found.append((second, node, kind, int(bike)))
        except OSError as error:
            why = error.strerror or error
            raise ConfigError(f"cannot read {file}: {why}; --data is the folder that {BIKES} is in") from None
        except ValueError:
            raise ConfigError(f"{file} does not hold lines of time, type, bike and bike mod 10") from None
    return sorted(found)
