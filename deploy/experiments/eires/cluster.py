"""The cluster case study of the EIRES paper (listing 4): tasks that are moved from region to region and fail.

Tasks are generated, or read from a sample of a cluster's recorded task events. The sample has no job with all of
listing 4 (of 209,663 events 733 are evictions), so there the query asks for what it has: tasks of a job that was
submitted, scheduled in three regions one after the other, and failed on the machine of the last.
"""

from __future__ import annotations

import csv
import gzip
import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from headwater.protocol.errors import ConfigError
from headwater.protocol.events import Event, EventType
from headwater.protocol.languages import RuleSet, Source, parse_rules
from headwater.protocol.remote import RemoteTable, RemoteValue

TABLE: Final = "regions"
ATTRIBUTES: Final = {"task": "int", "job": "int", "machine": "int", "region": "int"}
TYPES: Final = {name: EventType(name, ATTRIBUTES) for name in ("Submit", "Schedule", "Evict", "Fail", "Finish")}
RECORDED: Final = {"0": "Submit", "3": "Schedule", "4": "Evict", "5": "Fail", "6": "Finish"}
"""Names of the event types of the sample."""
FILE: Final = Path("borg2019") / "instance_events_1.csv.gz"
REGIONS: Final = 8
MACHINES: Final = 2000
RECORDED_MACHINES: Final = 87_501
HOUR_S: Final = 3600.0
STEP_S: Final = 240.0
"""Between two events of a task, on average."""
EVICTED: Final = 0.7
"""The share of scheduled tasks that are evicted and scheduled again."""

GENERATED_QUERY: Final = """Moved: SEQ(Submit a, Schedule b, Evict c, Schedule d, Evict e, Schedule f, Fail g)
WHERE SAME[task] AND b.machine = c.machine AND b.region NOT IN REMOTE.regions[d.machine]
AND d.machine = e.machine AND f.machine = g.machine AND d.region NOT IN REMOTE.regions[f.machine]"""
RECORDED_QUERY: Final = """Moved: SEQ(Submit a, Schedule b, Schedule d, Schedule f, Fail g)
WHERE SAME[job] AND b.region NOT IN REMOTE.regions[d.machine]
AND f.machine = g.machine AND d.region NOT IN REMOTE.regions[f.machine]"""


def region_of(machine: int) -> int:
    return machine * 2654435761 % 2**32 // 1000 % REGIONS


@dataclass(frozen=True, slots=True)
class Cluster:
    """Task events, in so much less time than they took that an engine has something to do."""

    events: int
    speed: float = 1000.0
    """How many times faster they come than they did."""
    folder: str = ""
    """With recorded task events (``borg2019/``); empty: they are generated."""

    @property
    def name(self) -> str:
        return "cluster, recorded" if self.folder else "cluster"

    @property
    def window_us(self) -> int:
        return int(HOUR_S * 1e6 / self.speed)

    @property
    def keys(self) -> int:
        return RECORDED_MACHINES if self.folder else MACHINES

    @property
    def time_us(self) -> float:
        return self.events * 1000.0

    def shortened(self, share: float = 1 / 3) -> Cluster:
        return replace(self, events=int(self.events * share))

    def rules(self) -> RuleSet:
        text = f"{RECORDED_QUERY if self.folder else GENERATED_QUERY}\nWITHIN {self.window_us} us"
        return parse_rules([Source(text, "cluster.sase", "sase")], TYPES.values())

    def trace(self, seed: int = 1) -> list[Event]:
        """The first of them; recorded ones are the same for every seed."""
        occurred = recorded(Path(self.folder)) if self.folder else self._generated(seed)
        rows = []
        latest = 0
        for i, (at_s, name, task, job, machine) in enumerate(occurred[: self.events]):
            latest = max(latest + 1, int(at_s * 1e6 / self.speed))
            row = (latest, "n", i, TYPES[name], task, job, machine, region_of(machine))
            rows.append(Event.from_row(row))
        return rows

    def _generated(self, seed: int) -> list[tuple[float, str, int, int, int]]:
        """One event in a thousandth of a second, at a thousandfold speed."""
        rng = random.Random(f"{seed} cluster")
        occurred: list[tuple[float, str, int, int, int]] = []
        begun_s, task = 0.0, 0
        while begun_s < self.events:  # the last tasks are cut off where the stream ends
            task += 1
            begun_s += rng.expovariate(1 / 7.7)  # a task has 7.7 events on average
            at_s, machine = begun_s, rng.randint(1, MACHINES)
            job = 1 + task // 10
            occurred.append((at_s, "Submit", task, job, machine))
            while True:
                at_s += rng.expovariate(1 / STEP_S)
                machine = rng.randint(1, MACHINES)
                occurred.append((at_s, "Schedule", task, job, machine))
                at_s += rng.expovariate(1 / STEP_S)
                if rng.random() >= EVICTED:
                    break
                occurred.append((at_s, "Evict", task, job, machine))
            occurred.append((at_s, rng.choice(("Fail", "Finish")), task, job, machine))
        return sorted(occurred)

    def value(self, table: str, key: tuple[Any, ...]) -> RemoteValue:
        """The regions that a machine belongs to: its own, and the next one where it is at their border."""
        (machine,) = key
        own = region_of(machine)
        return (own, (own + 1) % REGIONS) if machine % 4 == 0 else (own,)

    def tables(self) -> dict[str, RemoteTable]:
        machines = {machine for *_, machine in recorded(Path(self.folder))} if self.folder else range(1, MACHINES + 1)
        return {TABLE: RemoteTable.from_mapping({machine: self.value(TABLE, (machine,)) for machine in machines})}


def recorded(folder: Path) -> list[tuple[float, str, int, int, int]]:
    """Time, type, task, job and machine; ConfigError if there is no such file, or something else in it."""
    file = folder / FILE
    try:
        with gzip.open(file, "rt", encoding="utf-8", newline="") as lines:
            return [
                (
                    int(row["time_us"]) / 1e6,
                    RECORDED[row["event_type"]],
                    int(row["instance_index"]),
                    int(row["collection_id"]),
                    int(row["machine_id"]),
                )
                for row in csv.DictReader(lines)
                if row["event_type"] in RECORDED
            ]
    except (OSError, EOFError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(f"cannot read {file}: {why}; --data is the folder that {FILE.parent} is in") from None
    except (ValueError, KeyError, TypeError):
        raise ConfigError(
            f"{file} does not hold lines of time_us, event_type, collection_id, instance_index and machine_id"
        ) from None
