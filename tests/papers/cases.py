"""A small trace for each of the papers' rules, with the matches that follow from docs/guide/rules.md by hand.

Times are in seconds. ``expected`` lists the matches as role -> time of its event (a list of times for a repeated role);
the events of a case that are not in any match each show one reason why not.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from headwater.protocol.events import Event, EventType
from headwater.protocol.functions import Functions

SECOND_US = 1_000_000

Match = dict[str, Any]


@dataclass(frozen=True)
class PaperCase:
    file: str
    rule: str
    events: tuple[tuple[str, int, dict[str, Any]], ...]
    expected: tuple[Match, ...]
    remote: dict[str, dict[Any, Any]] = field(default_factory=dict)
    """REMOTE tables: table -> argument (or tuple of arguments) -> value."""
    attributes: tuple[dict[str, Any], ...] | None = None
    """The attributes of the composite events, in the order of ``expected``, where the rule defines any."""

    def __str__(self) -> str:
        return f"{self.file}:{self.rule}"

    def trace(self, types: dict[str, EventType]) -> list[Event]:
        """The events, numbered in order; types that the file does not declare take their kinds from the values."""
        return [
            Event(types.get(name, name), at * SECOND_US, "n", number, values)
            for number, (name, at, values) in enumerate(self.events, 1)
        ]


def functions() -> Functions:
    """The user functions of EIRES listing 3: the cell of a boundary, and the higher of two levels."""
    made = Functions()
    made.register("OVERLAP", lambda boundary: boundary.split("/")[0], ("string",), "string")
    made.register("UDF1", lambda *levels: "high" if "high" in levels else "low", ("string", "string"), "string")
    return made


def temp(at: int, area: str, value: float) -> tuple[str, int, dict[str, Any]]:
    return "Temp", at, {"area": area, "value": value}


def smoke(at: int, area: str) -> tuple[str, int, dict[str, Any]]:
    return "Smoke", at, {"area": area}


def plain(text: str, **values: Any) -> tuple[tuple[str, int, dict[str, Any]], ...]:
    """``A@0 B@1``: events with the same attributes each."""
    parts = (word.split("@") for word in text.split())
    return tuple((name, int(at), values) for name, at in parts)


def transaction(at: int, cc: int, vol: int, loc: str, ben: str) -> tuple[str, int, dict[str, Any]]:
    return "T", at, {"cc": cc, "vol": vol, "loc": loc, "user": "u1", "org": "o1", "ben": ben}


def synthetic(name: str, at: int, v1: int, v2: int) -> tuple[str, int, dict[str, Any]]:
    return name, at, {"ID": 1, "v1": v1, "v2": v2}


def satellite(at: int, channel: int, cell: str = "c1", temperature: str = "hot") -> tuple[str, int, dict[str, Any]]:
    level = "low" if channel == 14 else "high"
    values = {"boundary": f"{cell}/{at}", "channel": channel, "time": "12:00", "level": level}
    return "Satellite", at, {**values, "temperature": temperature, "humidity": "dry"}


def task(name: str, at: int, task_id: int = 1, **values: str) -> tuple[str, int, dict[str, Any]]:
    return name, at, {"task_id": task_id, **values}


def person(at: int, personid: int, x: float) -> tuple[str, int, dict[str, Any]]:
    return "persondetected", at, {"personid": personid, "x": x, "y": 0.0}


CASES = (
    PaperCase(
        "r1.tesla",
        "R1",
        (
            temp(99, "A1", 90.0),  # a second too old
            temp(100, "A1", 50.0),  # exactly 5 minutes before: inside
            temp(200, "A1", 45.0),  # not above 45
            temp(250, "A2", 60.0),  # another area
            temp(399, "A1", 46.0),
            smoke(400, "A1"),
            temp(401, "A1", 80.0),  # after the smoke
        ),
        ({"Smoke": 400, "Temp": 100}, {"Smoke": 400, "Temp": 399}),
        attributes=({"area": "A1", "measuredTemp": 50.0}, {"area": "A1", "measuredTemp": 46.0}),
    ),
    PaperCase(
        "r2.tesla",
        "R2",
        (
            ("Rain", 100, {"area": "A1"}),
            temp(400, "A1", 50.0),  # rain exactly 5 minutes before
            temp(401, "A1", 51.0),
            ("Rain", 450, {"area": "A2"}),  # rain elsewhere
            temp(500, "A1", 47.0),
            temp(501, "A1", 40.0),  # not hot
        ),
        ({"Temp": 401}, {"Temp": 500}),
        attributes=({"area": "A1", "measuredTemp": 51.0}, {"area": "A1", "measuredTemp": 47.0}),
    ),
    PaperCase(
        "r3.tesla",
        "R3",
        (
            temp(100, "A1", 40.0),
            temp(200, "A1", 60.0),
            temp(300, "A2", 10.0),
            smoke(400, "A1"),  # (40 + 60) / 2
            smoke(450, "A1"),  # 60 alone
            smoke(501, "A1"),  # no Temp of A1 left: no average, no match
            smoke(600, "A2"),  # 10 is not above 45
        ),
        ({"Smoke": 400}, {"Smoke": 450}),
        attributes=({"area": "A1", "measuredTemp": 50.0}, {"area": "A1", "measuredTemp": 60.0}),
    ),
    PaperCase(
        "r4.tesla",
        "R4",
        plain("E@10 E@20 D@30 C@40 D@45 B@50 A@60 A@350 A@351"),  # D@45 comes after C; A@351 too long after B
        (
            {"A": 60, "B": 50, "C": 40, "D": 30, "E": 20},
            {"A": 350, "B": 50, "C": 40, "D": 30, "E": 20},
        ),
    ),
    PaperCase(
        "r5.tesla",
        "R5",
        (
            ("C", 10, {}),
            ("B", 20, {"v": 1}),
            ("B", 30, {"v": 2}),
            ("A", 40, {"v": 1}),
            ("A", 50, {"v": 2}),
            ("A", 60, {"v": 3}),  # no B agrees
        ),
        ({"A": 40, "B": 20, "C": 10}, {"A": 50, "B": 30, "C": 10}),
    ),
    PaperCase(
        "r6.tesla",
        "R6",
        plain("C@10 D@15 B@20 A@30 C@40 B@50 D@55 A@60"),  # D@15 lies between C and B, D@55 does not
        ({"A": 60, "B": 50, "C": 40},),
    ),
    PaperCase(
        "listing1.sase",
        "Fraud",
        (
            transaction(0, 1, 20_000, "Rome", "Ann"),
            ("D", 60, {"cc": 1}),
            transaction(120, 1, 15_000, "Oslo", "Ann"),
            transaction(130, 1, 15_000, "Paris", "Ann"),  # a known location
            ("L", 140, {"cc": 1, "limit": 9_000}),
            transaction(200, 1, 60_000, "Rome", "Bob"),
            transaction(210, 2, 60_000, "Rome", "Bob"),  # another card
            transaction(220, 1, 60_000, "Rome", "Ann"),  # a known client
        ),
        (
            {"t1": 0, "d": 60, "t2": 120},
            {"t1": 0, "l": 140, "t3": 200},
            {"t1": 120, "l": 140, "t3": 200},
            {"t1": 130, "l": 140, "t3": 200},
        ),
        remote={"locations": {"u1": ("Rome", "Paris")}, "limits": {"o1": 5_000}, "clients": {"o1": ("Ann",)}},
    ),
    PaperCase(
        "listing2.sase",
        "Q1",
        (
            synthetic("A", 0, 1, 9),
            synthetic("B", 1, 2, 0),
            synthetic("C", 2, 0, 0),
            synthetic("D", 3, 5, 0),
            synthetic("B", 4, 0, 0),
            synthetic("C", 5, 0, 0),
            synthetic("A", 6, 0, 0),
            synthetic("D", 7, 6, 9),
            synthetic("D", 8, 6, 8),  # disagrees with a on v2
        ),
        ({"a": 0, "b": 1, "c": 2, "d": 3, "e": 4, "f": 5, "g": 6, "h": 7},),
        remote={"remote": {5: 1, 6: 2}},
    ),
    PaperCase(
        "listing2.sase",
        "Q2",
        (
            synthetic("A", 0, 1, 2),
            synthetic("B", 1, 1, 0),
            synthetic("C", 2, 7, 8),
            synthetic("D", 3, 0, 0),
            synthetic("B", 4, 2, 0),
            synthetic("B", 5, 3, 0),  # fits neither branch
        ),
        ({"a": 0, "b": 1, "d": 2, "f": 3}, {"a": 0, "c": 2, "e": 4}),
        remote={"remote": {1: 7, 2: 8}},
    ),
    PaperCase(
        "listing3.sase",
        "Bushfire",
        (
            satellite(0, 7),
            satellite(30, 7, cell="c2"),  # another area
            satellite(60, 14),
            satellite(120, 16),
            satellite(180, 16, temperature="cold"),
        ),
        ({"a": [0], "b": [60], "c": [120]},),
        remote={"remote": {"hot": 50.0, "cold": 20.0, "dry": 10.0}},
    ),
    PaperCase(
        "listing4.sase",
        "Failing",
        (
            task("Su", 0),
            task("Sc", 1, machine="m1", region="r1"),
            task("Ev", 2, machine="m1"),
            task("Sc", 3, machine="m2", region="r2"),
            task("Ev", 4, machine="m2"),
            task("Sc", 5, machine="m3", region="r3"),
            task("Fa", 6, machine="m3"),
            task("Fa", 7, task_id=2, machine="m3"),  # another task
            task("Fa", 8, machine="m2"),  # another machine
        ),
        ({"a": 0, "b": 1, "c": 2, "d": 3, "e": 4, "f": 5, "g": 6},),
        remote={"remote": {"m2": ("r2",), "m3": ("r3",)}},
    ),
    PaperCase(
        "inev.sase",
        "Tree",
        plain("A@0 C@1 B@2 D@3 B@4 D@5"),
        (
            {"A": 0, "B": 2, "C": 1, "D": 3},
            {"A": 0, "B": 2, "C": 1, "D": 5},
            {"A": 0, "B": 4, "C": 1, "D": 5},
        ),
    ),
    PaperCase("inev.sase", "Absent", plain("A@0 B@1 C@2 A@3 C@4"), ({"A": 3, "C": 4},)),
    PaperCase(
        "inev.sase",
        "Closure",
        plain("A@0 B@1 B@2 C@3"),
        ({"A": 0, "B": [1], "C": 3}, {"A": 0, "B": [2], "C": 3}, {"A": 0, "B": [1, 2], "C": 3}),
    ),
    PaperCase("inev.sase", "Either", plain("B@0 A@1 C@2"), ({"A": 1, "B": 0}, {"A": 1, "C": 2})),
    PaperCase("ced.sase", "All", plain("e3@0 e1@2 e2@5 e2@6"), ({"e1": 2, "e2": 5, "e3": 0},)),
    PaperCase("ced.sase", "Ordered", plain("e1@0 e2@1 e3@5 e3@6"), ({"e1": 0, "e2": 1, "e3": 5},)),
    PaperCase("ced.sase", "One", plain("e1@0 e3@1 e2@2"), ({"e1": 0}, {"e2": 2})),
    PaperCase("ced.sase", "Without", plain("e1@0 e3@2 e2@3 e3@4"), ({"e1": 0, "e3": 2},)),
    # The end of the inner match is e2@2, so e3@6 is near enough although it is 6 s after e1; e3@8 is not.
    PaperCase("ced.sase", "Nested", plain("e1@0 e2@2 e3@6 e3@8"), ({"e1": 0, "e2": 2, "e3": 6},)),
    PaperCase(
        "running_person.sase",
        "runningperson",
        (
            person(0, 1, 0.0),
            person(1, 2, 50.0),  # another person
            person(2, 1, 5.0),  # walks
            person(3, 1, 12.0),
            person(4, 1, 30.0),  # 4 s after the first, 18 m from the one before
        ),
        ({"PD1": 0, "PD2": 3}, {"PD1": 2, "PD2": 4}, {"PD1": 3, "PD2": 4}),
        attributes=(
            {"x": 12.0, "y": 0.0, "personid": 1},
            {"x": 30.0, "y": 0.0, "personid": 1},
            {"x": 30.0, "y": 0.0, "personid": 1},
        ),
    ),
)
