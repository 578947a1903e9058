"""A YAML file as a tree in which every part knows its place, with the list of its mistakes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import yaml

from headwater.protocol.errors import ConfigError
from headwater.protocol.languages.diagnostics import Diagnostic, Text

SHEET_BYTES_MAX = 16_777_216
"""A network file larger than this is taken for a mistake: a hundred thousand links need about a third of it."""


class NetworkFileError(ConfigError):
    """A file that cannot be used; ``diagnostics`` lists every mistake found, ``warnings`` the rest."""

    def __init__(self, diagnostics: list[Diagnostic], warnings: list[Diagnostic]) -> None:
        self.diagnostics = diagnostics
        self.warnings = warnings
        super().__init__("\n".join(str(diagnostic) for diagnostic in [*diagnostics, *warnings]))


class Sheet:
    """The text of a file, its YAML tree, and everything found wrong with it so far."""

    def __init__(
        self,
        path: Path,
        kind: str = "network file",
        sections: str = "events, nodes, links, sources, sinks and rules",
        *,
        text: str | None = None,
    ) -> None:
        """``kind``: what such a file is called; ``sections``: what it has; ``text``: what it would say, if there is no
        such file. Messages then call the text by the path, and files that it names are looked for beside it."""
        self.path = path
        self.kind = kind
        self._sections = sections
        self.shown = str(path)
        self.errors: list[tuple[tuple[int, int], Diagnostic]] = []
        self.warned: list[tuple[tuple[int, int], Diagnostic]] = []
        self.source = Text(self._read() if text is None else text, self.shown)

    def _read(self) -> str:
        if not self.path.exists():
            raise ConfigError(f"there is no {self.kind} {self.path}")
        if self.path.is_dir():
            raise ConfigError(f"{self.path} is a folder; name a {self.kind} (.yaml)")
        try:
            raw = self.path.read_bytes()
        except OSError as error:
            raise ConfigError(f"cannot read {self.path}: {error.strerror}") from None
        if len(raw) > SHEET_BYTES_MAX:
            raise ConfigError(f"{self.path} has {len(raw) / 1e6:.1f} MB; a {self.kind} has a few kB, so this is none")
        try:
            return raw.decode("utf-8").removeprefix("\ufeff").replace("\r\n", "\n")
        except UnicodeDecodeError as error:
            line = raw[: error.start].count(b"\n") + 1
            raise ConfigError(
                f"{self.path}:{line}: byte 0x{raw[error.start]:02x} is not UTF-8; save the file as UTF-8"
            ) from None

    # What is wrong

    def error(self, node: yaml.Node | int, message: str, cure: str = "") -> None:
        self._note(self.errors, node, message, cure)

    def warn(self, node: yaml.Node | int, message: str, cure: str = "", code: str = "") -> None:
        self._note(self.warned, node, f"warning: {message}", cure, code)

    def _note(
        self,
        to: list[tuple[tuple[int, int], Diagnostic]],
        node: yaml.Node | int,
        message: str,
        cure: str,
        code: str = "",
    ) -> None:
        at = node if isinstance(node, int) else node.start_mark.index
        diagnostic = self.source.diagnostic(at, message, cure, code)
        to.append(((diagnostic.line, diagnostic.column), diagnostic))

    def adopt(self, diagnostic: Diagnostic, *, warning: bool = False) -> None:
        """A mistake, or a warning, that already has its place, in this file or in one that it names."""
        to = self.warned if warning else self.errors
        place = (diagnostic.line, diagnostic.column) if diagnostic.file == self.shown else (1 << 30, len(to))
        to.append((place, diagnostic))

    def relocated(self, diagnostic: Diagnostic, node: yaml.ScalarNode) -> Diagnostic:
        """A mistake in a text that stands in this file, shown where it stands."""
        lines = self.source.text.split("\n")
        first = node.start_mark.line
        above = diagnostic.line if node.style in ("|", ">") else diagnostic.line - 1
        number = min(first + above, len(lines) - 1)
        start = sum(len(line) + 1 for line in lines[:number])
        if node.style in ("|", ">"):
            content = next((line for line in lines[first + 1 :] if line.strip()), "")
            offset = len(content) - len(content.lstrip(" "))
        elif number == first:
            offset = node.start_mark.column + (node.style is not None)
        else:
            offset = len(lines[number]) - len(lines[number].lstrip(" "))
        placed = self.source.diagnostic(
            start + offset + diagnostic.column - 1, diagnostic.message, diagnostic.hint, diagnostic.code
        )
        return replace(placed, line=number + 1)

    def finished(self) -> None:
        """Raise what is wrong, if anything is."""
        if self.errors:
            raise NetworkFileError(self._in_order(self.errors), self._in_order(self.warned))

    def warnings(self) -> tuple[Diagnostic, ...]:
        return tuple(self._in_order(self.warned))

    @staticmethod
    def _in_order(noted: list[tuple[tuple[int, int], Diagnostic]]) -> list[Diagnostic]:
        unique = {str(diagnostic): (place, diagnostic) for place, diagnostic in noted}
        return [diagnostic for _, diagnostic in sorted(unique.values(), key=lambda pair: pair[0])]

    # The tree

    def root(self) -> yaml.MappingNode:
        """The outermost mapping, or a NetworkFileError: without it there is nothing more to look at."""
        tree: yaml.Node | None = None
        try:
            tree = yaml.compose(_OPTIONAL.sub(_STAND_IN, self.source.text), Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            self._not_yaml(error)
        except yaml.YAMLError as error:  # a character that no YAML may hold
            self.error(getattr(error, "position", 0) or 0, "this is not YAML: a control character", "delete it")
        except RecursionError:
            self.error(0, f"this is not a {self.kind}: it is nested too deeply")
        self.finished()
        if tree is None:
            self.error(0, "the file is empty", f"a {self.kind} has {self._sections}")
        elif not isinstance(tree, yaml.MappingNode):
            self.error(tree, f"this is YAML, but not a {self.kind}", f"it has {self._sections}")
        else:
            _restore(tree)
            return tree
        self.finished()
        raise AssertionError

    def _not_yaml(self, error: yaml.MarkedYAMLError) -> None:
        mark = error.problem_mark or error.context_mark
        at = mark.index if mark is not None else 0
        line = (mark.line if mark is not None else 0) + 1
        shown = self.source.text.split("\n")[line - 1] if self.source.text else ""
        # A tab anywhere in an indentation confuses YAML somewhere later; it is the first thing to cure.
        tabbed = next((i for i, text in enumerate(self.source.text.split("\n")) if _indent(text).count("\t")), None)
        if tabbed is not None:
            start = sum(len(text) + 1 for text in self.source.text.split("\n")[:tabbed])
            here = start + _indent(self.source.text.split("\n")[tabbed]).index("\t")
            self.error(here, "a tab in the indentation, which YAML does not allow", "indent with spaces only")
            return
        problem = (error.problem or "it cannot be read").replace("\t", " ")
        if _SECRET.search(shown):
            raise ConfigError(
                f"{self.shown}:{line}: this is not YAML: {problem}; it is not shown, for it seems to hold a secret"
            )
        cure = ""
        if ": " in shown.partition(": ")[2] or "mapping values" in problem:
            cure = "a text that holds ': ' must stand in quotes"
        elif "expected ',' or" in problem:
            cure = "a bracket or a quote above is not closed, or a comma is missing"
        self.error(at, f"this is not YAML: {problem}", cure)


# PyYAML stumbles over ``{value: float?}``, though YAML allows it: in its eyes a question mark ends a plain word inside
# braces. So question marks at the end of a word are hidden from it, place for place.
_OPTIONAL = re.compile(r"(?<=\w)\?")
_STAND_IN = "\ue000"

_SECRET = re.compile(r"\b(password|passwd|token|secret)['\"]?\s*[:=]|://[^/\s@]*:\S*@", re.IGNORECASE)


def _restore(tree: yaml.Node) -> None:
    waiting, visited = [tree], {id(tree)}
    while waiting:
        node = waiting.pop()
        if isinstance(node, yaml.ScalarNode):
            node.value = node.value.replace(_STAND_IN, "?")
            continue
        inside = node.value if isinstance(node, yaml.SequenceNode) else [child for pair in node.value for child in pair]
        for child in inside:
            if id(child) not in visited:
                visited.add(id(child))
                waiting.append(child)


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))] if line.strip() else ""
