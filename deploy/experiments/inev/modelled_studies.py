"""The case studies on streams without attributes: 20 nodes, of which only rates can be counted.

Whether events agree cannot be seen in them, so plans are made with the selectivities that the authors of the streams
planned with, and nothing is run.
"""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from random import Random
from typing import Final

from coordinator.inev.baselines import centralised
from coordinator.inev.rules import Statistics
from deploy.experiments.inev.bricks import ring
from deploy.experiments.inev.case_studies import QUERIES, TABLE_3, types_in
from deploy.experiments.inev.simulated import Ruled, modelled, network_of
from protocol.errors import ConfigError

NODES: Final = 20
MODEL_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Stream:
    """A recorded stream: its folder, how long it lasts, and what was asked of it."""

    folder: str
    hours: float
    window: str
    share: float
    """Of pairs of events that agree, as its authors planned with."""
    queries: Mapping[int, tuple[str, ...]]
    ratios: Mapping[int, float]
    """The paper's."""


STREAMS: Final[Mapping[str, Stream]] = {
    "Citi Bike": Stream("inev-citibike", 744.0, "24 h", 0.02, QUERIES, TABLE_3),
    "Citi Bike, share as counted": Stream("inev-citibike", 744.0, "24 h", 0.00027, QUERIES, TABLE_3),
    "Cluster Monitoring": Stream(
        "inev-google-cluster",
        26.75,
        "30 min",
        0.03,
        {1: ("SEQ(A a, H h, B b, I i)",), 2: ("SEQ(A a, B b, G g, F f, I i)",)},
        {1: 0.00006, 2: 0.00008},
    ),
}
"""Citi Bike twice: with the share that was planned with, and with the one counted in the stream that has bikes. Of the
cluster only two queries are known: the stored plans of the other two are not at hand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelledStudy:
    """One query on one stream, on a random topology."""

    stream: str
    query: int
    folder: str
    """Where the data is; it does not tell two studies apart."""

    @property
    def time_s(self) -> float:
        return 0.0

    def fingerprint(self) -> str:
        told = sorted((name, value) for name, value in asdict(self).items() if name != "folder")
        return blake2b(repr((MODEL_VERSION, told)).encode(), digest_size=6).hexdigest()

    def seconds(self) -> float:
        """About how long a run takes: most of it is reading."""
        return 4.0

    def measured(self, seed: int, progress: Callable[[float], None]) -> dict[str, float | None]:
        plan = modelled(ruled(self, seed))
        centre = centralised(plan.problem).cost
        return {
            "ratio": plan.cost / centre,
            "cost": plan.cost,
            "centralised": centre,
            "split": sum(task.placement.split_by is not None and len(task.inputs) > 1 for task in plan.tasks),
        }


def ruled(study: ModelledStudy, seed: int) -> Ruled:
    """The rules of a study on a network with the rates of its stream; it has no events to run."""
    stream = STREAMS[study.stream]
    texts = stream.queries[study.query]
    types = list(map(types_in, texts))
    wanted = set[str]().union(*types)
    rates: dict[str, dict[str, float]] = {kind: {} for kind in sorted(wanted)}
    for (kind, node), times in sorted(counts(Path(study.folder) / stream.folder).items()):
        if kind in wanted:
            rates[kind][f"n{node}"] = times / (stream.hours * 3600)
    rules, shares = [], {}
    for at, text in enumerate(texts):
        name = f"Query{study.query}{'ab'[at] if len(texts) > 1 else ''}"
        roles = sorted(map(str.lower, types[at]))
        rules.append(f"{name}: {text} WHERE SAME[key] WITHIN {stream.window} RETURN {name}(key = {roles[0]}.key)")
        shares[name] = {frozenset(roles): stream.share}
    network = network_of(ring(Random(f"{seed}/links"), NODES, 2), "key", rates, "\n".join(rules), "n0", 5.0)
    return Ruled(network, Statistics(rates, shares), lambda: (), 1)


def counts(folder: Path) -> Counter[tuple[str, int]]:
    """How often each type occurs at each node."""
    found: Counter[tuple[str, int]] = Counter()
    for node in range(NODES):
        file = folder / f"node{node}.csv.gz"
        try:
            with gzip.open(file, "rt", encoding="ascii") as lines:
                of_node = Counter(line.rsplit(",", 1)[1].strip() for line in lines)
        except OSError as error:
            why = error.strerror or error
            raise ConfigError(f"cannot read {file}: {why}; --data is the folder that {folder.name} is in") from None
        except IndexError:
            raise ConfigError(f"{file} does not hold lines of time and type") from None
        found.update({(kind, node): times for kind, times in of_node.items()})
    return found
