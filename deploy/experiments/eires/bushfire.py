"""The bushfire case study of the EIRES paper (listing 3), on made-up satellite and sensor data.

The paper says what is asked: channels 7, 14 and 16 of sixteen, thresholds of 46.51 degrees and 23.38 % humidity,
daytime, one hour. Of the data it says nothing more. Here areas are squares anywhere on a map; channels, levels and
hours are equally likely, and so is what the sensors of a cell of the map say, 20 to 55 degrees and 5 to 60 %.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any, Final

from headwater.protocol.events import Event, EventType
from headwater.protocol.languages import RuleSet, Source, parse_rules
from headwater.protocol.remote import RemoteTable, RemoteValue

ATTRIBUTES: Final = {
    "channel": "int", "level": "int", "hour": "int", "x": "float", "y": "float", "cell": "int",
}  # fmt: skip
SATELLITE: Final = EventType("Satellite", ATTRIBUTES)
CHANNELS: Final = 16
LEVELS: Final = 100
HIGH: Final = 40
"""Levels from here on are high."""
HOURS: Final = 24
MAP: Final = 20.0
"""The length of the map's sides."""
SIDE: Final = 6.0
"""The length of an area's sides."""
TABLES: Final = {"temperature": (20.0, 55.0), "humidity": (5.0, 60.0)}

QUERY: Final = f"""Bushfire: SEQ((Satellite a, Satellite b, Satellite c)+)
WHERE a.channel = 7 AND a.hour >= 6 AND a.level >= {HIGH}
AND b.channel = 14 AND a.level + b.level >= {2 * HIGH}
AND c.channel = 16 AND c.hour < 18 AND c.level >= {HIGH}
AND abs(a.x - b.x) < {SIDE} AND abs(a.y - b.y) < {SIDE} AND abs(b.x - c.x) < {SIDE} AND abs(b.y - c.y) < {SIDE}
AND abs(a[i].x - a[i-1].x) < {SIDE} AND abs(a[i].y - a[i-1].y) < {SIDE}
AND REMOTE.temperature[c.cell] >= 46.51 AND REMOTE.humidity[c.cell] <= 23.38"""


@dataclass(frozen=True, slots=True)
class Bushfire:
    """Pictures of areas in sixteen channels; a fire is the repeated occurrence of a pattern of three of them."""

    events: int
    window_events: int = 400
    spacing_us: float = 1000.0

    @property
    def name(self) -> str:
        return "bushfire"

    @property
    def window_us(self) -> int:
        return int(self.window_events * self.spacing_us)

    @property
    def keys(self) -> int:
        return len(TABLES) * int(MAP) ** 2

    @property
    def time_us(self) -> float:
        return self.events * self.spacing_us

    def shortened(self, share: float = 1 / 3) -> Bushfire:
        return replace(self, events=max(int(self.events * share), 2 * self.window_events))

    def rules(self) -> RuleSet:
        text = f"{QUERY}\nWITHIN {self.window_us} us"
        return parse_rules([Source(text, "bushfire.sase", "sase")], [SATELLITE])

    def trace(self, seed: int = 1) -> list[Event]:
        rng = random.Random(f"{seed} bushfire")
        rows = []
        for i in range(self.events):
            x, y = rng.uniform(0, MAP), rng.uniform(0, MAP)
            cell = int(x) * int(MAP) + int(y)
            channel, level, hour = rng.randint(1, CHANNELS), rng.randrange(LEVELS), rng.randrange(HOURS)
            ts = int((i + 1) * self.spacing_us)
            rows.append(Event.from_row((ts, "n", i, SATELLITE, channel, level, hour, x, y, cell)))
        return rows

    def value(self, table: str, key: tuple[Any, ...]) -> RemoteValue:
        """What the sensors of a cell say."""
        return random.Random(f"{table} {key[0]}").uniform(*TABLES[table])

    def tables(self) -> dict[str, RemoteTable]:
        return {
            table: RemoteTable.from_mapping({cell: self.value(table, (cell,)) for cell in range(int(MAP) ** 2)})
            for table in TABLES
        }
