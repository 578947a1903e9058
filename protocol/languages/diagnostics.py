"""Mistakes in rule text: where they are, what is wrong, and what would be right."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headwater.protocol.errors import RuleError

if TYPE_CHECKING:
    from headwater.protocol.languages.type_checking import Types

SHOWN_CHARACTERS_MAX: Final = 100
"""A longer line is shown in part, around the place of the mistake."""

SENTENCE_CHARACTERS_MAX: Final = 300
UNKNOWN_EVENT_TYPE: Final = "unknown_event_type"
UNKNOWN_FUNCTION: Final = "unknown_function"
UNKNOWN_TABLE: Final = "unknown_table"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One mistake. Line and column count from 1, columns in characters (a tab is one)."""

    file: str
    line: int
    column: int
    message: str
    hint: str
    shown: str
    """The line of the text, or the part of it around the mistake, with tabs as single spaces."""
    caret: int
    """Where in ``shown`` the mistake is, counted from 0."""
    code: str = ""
    """Which mistake it is, where a program asks: programs compare codes, and messages are for people."""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}: {self.message}"
        pointer = " " * self.caret + "^" + (f" {self.hint}" if self.hint else "")
        return f"{place}\n    {self.shown}\n    {pointer}"


class RuleTextError(RuleError):
    """Rule text that cannot be understood; ``diagnostics`` lists every mistake found, in the order of the text."""

    def __init__(self, diagnostics: Sequence[Diagnostic], types: Types | None = None) -> None:
        """``types``: which event types there are as far as the text can be understood."""
        self.diagnostics = list(diagnostics)
        self.types = types
        super().__init__("\n".join(str(diagnostic) for diagnostic in self.diagnostics))


class Text:
    """A source text that knows its lines."""

    def __init__(self, text: str, name: str) -> None:
        self.text = text
        self.name = name
        self._starts = [0]
        position = text.find("\n")
        while position >= 0:
            self._starts.append(position + 1)
            position = text.find("\n", position + 1)

    def diagnostic(self, at: int, message: str, hint: str = "", code: str = "") -> Diagnostic:
        """A mistake at an offset into the text; the end of the text is after its last visible character."""
        at = max(0, min(at, len(self.text)))
        if at == len(self.text):
            at = len(self.text.rstrip())
        line = bisect_right(self._starts, at)
        start = self._starts[line - 1]
        end = self._starts[line] - 1 if line < len(self._starts) else len(self.text)
        shown, caret = excerpt(self.text, start, end, at)
        return Diagnostic(self.name, line, at - start + 1, brief(message), brief(hint), shown, caret, code)


def brief(sentence: str) -> str:
    """The sentence without the middle of a name that is too long to read."""
    if len(sentence) <= SENTENCE_CHARACTERS_MAX:
        return sentence
    half = SENTENCE_CHARACTERS_MAX // 2
    return f"{sentence[:half]}…{sentence[-half:]}"


def excerpt(text: str, start: int, end: int, at: int) -> tuple[str, int]:
    """At most SHOWN_CHARACTERS_MAX characters of the line from start to end, around a place, and the place in them."""
    while end > max(start, at) and text[end - 1].isspace():
        end -= 1
    first, last = start, end
    if end - start > SHOWN_CHARACTERS_MAX:
        room = SHOWN_CHARACTERS_MAX - 2
        first = min(max(start, at - room // 2), end - room)
        last = first + room
    before, after = "…" * (first > start), "…" * (last < end)
    shown = "".join(character if character.isprintable() else " " for character in text[first:last])
    return (before + shown + after).rstrip(), at - first + len(before)


class Problems:
    """Collects the mistakes of one text."""

    def __init__(self, text: Text) -> None:
        self.text = text
        self.placed: list[tuple[int, Diagnostic]] = []
        self.doubtful: list[Diagnostic] = []
        self._seen: set[tuple[int, str]] = set()

    def add(self, at: int, message: str, hint: str = "", code: str = "") -> None:
        """Note a mistake, once for the same place and message."""
        if (at, message) not in self._seen:
            self._seen.add((at, message))
            self.placed.append((at, self.text.diagnostic(at, message, hint, code)))

    def warn(self, at: int, message: str, hint: str = "") -> None:
        """Note what is allowed and yet may not be what is meant."""
        self.doubtful.append(self.text.diagnostic(at, f"warning: {message}", hint))

    def diagnostics(self) -> list[Diagnostic]:
        return [diagnostic for _, diagnostic in sorted(self.placed, key=lambda pair: pair[0])]
