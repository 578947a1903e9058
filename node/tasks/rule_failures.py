"""Rules that fail on the values they meet: what is noted of them while a node goes on.

Conditions and engines are called in many places, deep inside the handling of one input, and what fails for one rule
must not take the work of the others with it. So a failure is noted here, counts as no match, and the core reports what
was noted when it has done with the input.
"""

from __future__ import annotations

from typing import Final

from headwater.node.effects import Report

COUNTER: Final = "rule_errors"


class Failures:
    """How often each rule has failed since the last look, and what was said at last. As many entries as rules."""

    def __init__(self) -> None:
        self._noted: dict[str, tuple[int, str]] = {}

    def note(self, rule: str, sentence: str) -> None:
        self._noted[rule] = (self._noted.get(rule, (0, ""))[0] + 1, sentence)

    def take(self) -> list[Report]:
        """What was noted, in order of the names."""
        if not self._noted:
            return []
        noted, self._noted = self._noted, {}
        return [Report(COUNTER, count, rule, sentence) for rule, (count, sentence) in sorted(noted.items())]


NOTED: Final = Failures()
"""Of the input that is being handled: cores run one at a time, and each takes what it has caused."""
