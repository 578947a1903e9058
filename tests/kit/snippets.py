"""The fenced blocks of README and docs, each with what is to be done with it.

What a block is shows in its first words, or in a comment right above it, which readers of the page do not see:

    <!-- output of: headwater explain fire.tesla --events events.csv -->     the command prints this
    <!-- with a network: a reason -->                                        run by a test that brings a network up
    <!-- not run: a reason -->                                               it cannot be run by a test

The programs of a page are the cells of one session: each goes on where the one before ended. A block of the language
``output`` says what the program above it prints. ``..`` on a line of its own stands for any lines, at the end of a line
for the rest of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).parent.parent.parent
PAGES = [PROJECT / "README.md", *sorted(PROJECT.glob("docs/**/*.md")), *sorted(PROJECT.glob("examples/*/README.md"))]
MARK = re.compile(r"<!-- (output of|with a network|not run): (.+) -->")


@dataclass(frozen=True)
class Snippet:
    page: Path
    line: int
    language: str
    text: str
    mark: str = ""
    """What the comment above says: output of, with a network, not run; or nothing."""
    about: str = ""

    def __str__(self) -> str:
        return f"{self.page.relative_to(PROJECT)}:{self.line}"

    @property
    def kind(self) -> str:
        first = self.text.lstrip().split("\n", 1)[0]
        if self.mark:
            return self.mark
        if self.language in ("python", "yaml", "mermaid"):
            return self.language
        if self.language == "output":
            return "printed"
        if first.startswith("$ "):
            return "session"
        if all(line.startswith("headwater ") for line in self.text.splitlines() if line.strip()):
            return "commands"
        if re.match(r"(define|Rule|event)\b", first) or re.match(r"\w+:( SEQ\(.*)?$", first.partition("#")[0].strip()):
            return "rules"
        return "events" if first.startswith("type,ts") else "unknown"

    @property
    def rule_language(self) -> str:
        return "tesla" if re.search(r"^\s*define\b", self.text, re.M) else "sase"

    def commands(self) -> list[tuple[str, list[str]]]:
        """Each command of a session or a list, and the lines that it is said to print."""
        found: list[tuple[str, list[str]]] = []
        for line in self.text.rstrip("\n").split("\n"):
            if self.kind == "output of":
                found = found or [(self.about, [])]
                found[0][1].append(line)
            elif self.kind == "commands" or line.startswith("$ "):
                if line.strip():
                    found.append((line.removeprefix("$ ").partition(" #")[0].strip(), []))
            else:
                found[-1][1].append(line)
        return found


def snippets() -> list[Snippet]:
    return [snippet for page in PAGES for snippet in on_page(page)]


def on_page(page: Path) -> Iterator[Snippet]:
    lines = page.read_text(encoding="utf-8").split("\n")
    start: int | None = None
    for number, line in enumerate(lines):
        if not line.startswith("```"):
            continue
        if start is None:
            start = number
            continue
        above = MARK.fullmatch(lines[start - 1]) if start else None
        text = "\n".join(lines[start + 1 : number]) + "\n"
        yield Snippet(page, start + 1, lines[start][3:], text, *(above.groups() if above else ("", "")))
        start = None


def agrees(printed: list[str], said: list[str]) -> bool:
    """Whether the page says what was printed, as far as it says it."""
    if not said:
        return not printed
    if said[0] == "..":
        return any(agrees(printed[skipped:], said[1:]) for skipped in range(len(printed) + 1))
    return bool(printed) and _same(printed[0].rstrip(), said[0].rstrip()) and agrees(printed[1:], said[1:])


def _same(printed: str, said: str) -> bool:
    return printed.startswith(said.removesuffix("..")) if said.endswith(" ..") else printed == said
