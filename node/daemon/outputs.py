"""The outputs of a node's machine: what the process does once the records that led to them are durable."""

from __future__ import annotations

from collections import Counter

from headwater.node import effects
from headwater.node.engine.remote_memory import Place
from headwater.protocol.messages import control


class Outputs:
    """What must be done once the records that led to it are durable."""

    __slots__ = ("answers", "configured", "counters", "delivered", "failures", "fetches", "sends", "timers")

    def __init__(self) -> None:
        self.sends: dict[str, list[bytes]] = {}
        self.delivered: set[int] = set()
        self.counters: Counter[str] = Counter()
        self.failures: list[effects.Report] = []
        """Failures of rules on the values that they have met."""
        self.fetches: list[Place] = []
        """Elements of remote tables that are asked for."""
        self.answers: list[control.Answer] = []
        self.configured = False
        self.timers = False
        """Whether a timer may be due earlier than before."""
