"""Failures of rules on the values of events: noted, while the node goes on.

Conditions and engines are called in many places, deep inside the handling of one input, and what fails for one rule
must not take the work of the others with it. So a failure counts as no match and is noted in the step that is running
(``node.step.Work``), which reports it with its other effects. A step that does not come to its end takes its notes with
it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headwater.node.effects import Report

if TYPE_CHECKING:
    from headwater.node.step import Work

COUNTER: Final = "rule_errors"


class Failures:
    """How often each rule has failed in a step, and the last sentence about it. As many entries as rules."""

    def __init__(self) -> None:
        self._noted: dict[str, tuple[int, str]] = {}

    def note(self, rule: str, sentence: str) -> None:
        self._noted[rule] = (self._noted.get(rule, (0, ""))[0] + 1, sentence)

    def reports(self) -> list[Report]:
        """What was noted, in order of the names."""
        return [Report(COUNTER, count, rule, sentence) for rule, (count, sentence) in sorted(self._noted.items())]


class CurrentStep:
    """The way from conditions and engines, which are shared and know no step, to the step that calls them.

    Cores run one at a time: there is one step at most. Outside any step nothing is noted.
    """

    __slots__ = ("step",)

    def __init__(self) -> None:
        self.step: Work | None = None

    def note(self, rule: str, sentence: str) -> None:
        if self.step is not None:
            self.step.failures.note(rule, sentence)


NOTED: Final = CurrentStep()
