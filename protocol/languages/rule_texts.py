"""Reads rule texts into rules: parses them, orders the rules by dependency, and reports all mistakes together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Final

from headwater.protocol.analysis.dependencies import CircularDependency, order_by_need
from headwater.protocol.analysis.validate import check_rule
from headwater.protocol.errors import ConfigError
from headwater.protocol.events import KIND_ALIASES, RESERVED_ATTRIBUTES, EventType
from headwater.protocol.functions import Functions
from headwater.protocol.languages import syntax as s
from headwater.protocol.languages.diagnostics import Diagnostic, Problems, RuleTextError, Text
from headwater.protocol.languages.foreign_syntax import Language
from headwater.protocol.languages.grammar_actions import SyntaxMistake
from headwater.protocol.languages.parser import parse_text
from headwater.protocol.languages.sase import SaseBuilder, leaf_parts
from headwater.protocol.languages.tesla import build_tesla, next_name
from headwater.protocol.languages.tesla_meaning import aggregates_in
from headwater.protocol.languages.type_checking import Types
from headwater.protocol.pattern import Rule
from headwater.protocol.remote import TableShape

TEXT_BYTES_MAX: Final = 1_048_576
"""A rule file larger than this is taken for a mistake; a thousand rules need about a tenth of it."""

LANGUAGES: Final[Mapping[str, Language]] = {".tesla": "tesla", ".sase": "sase"}

_TESLA: Final = re.compile(r"^\s*(?:rule\s+\w+\s*:?\s*|\w+\s*:\s*)?define\b", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Source:
    """A text of rules: its name appears in messages and names rules that have no name of their own."""

    text: str | bytes
    name: str
    language: Language

    @classmethod
    def from_path(cls, path: str | Path) -> Source:
        """The file's text; the extension says which language it is in."""
        path = Path(path)
        language = LANGUAGES.get(path.suffix.lower())
        if language is None:
            raise ConfigError(f"{path}: rule files end in .tesla or .sase")
        try:
            return cls(path.read_bytes(), str(path), language)
        except OSError as mistake:
            raise ConfigError(f"{path}: {mistake.strerror or mistake}") from None


@dataclass(frozen=True, slots=True)
class RuleSet:
    """Rules in an order in which each comes after those whose composites it reads, and the primitive event types."""

    rules: tuple[Rule, ...]
    types: dict[str, EventType] = field(default_factory=dict)
    warnings: tuple[Diagnostic, ...] = ()
    """What is allowed and yet may not be what is meant, with its place."""


def language_of(text: str) -> Language:
    """The language of a text that has no file name to tell it: one that says ``define`` is TESLA, any other SASE."""
    return "tesla" if _TESLA.search(re.sub(r"(?:#|//|--)[^\n]*", "", text)) else "sase"


def rule_names(sources: Iterable[Source]) -> list[str]:
    """The names of the rules of texts, as far as they can be read; what is wrong with them is for ``parse_rules``."""
    assembly = _Assembly(Functions())
    for source in sources:
        if isinstance(text := decode(source), Text):
            assembly.read(text, source)
    return [entry.name for entry in assembly.entries]


def parse_rules(
    sources: Iterable[Source],
    types: Iterable[EventType] | None = None,
    functions: Functions | None = None,
    *,
    complete: bool = True,
    tables: Mapping[str, TableShape] | None = None,
) -> RuleSet:
    """All rules of the sources, or a RuleTextError with every mistake found.

    If no event type is given and none is declared, the set is open: any type and attribute name is accepted. If the
    sources are not complete, other texts may declare any type, too. ``tables``: the remote tables that rules may look
    into; None: any.
    """
    assembly = _Assembly(functions or Functions())
    assembly.tables = tables
    assembly.unread = not complete
    return assembly.assemble(list(sources), list(types or ()))


@dataclass(slots=True)
class _Entry:
    """One rule on its way from syntax to Rule."""

    syntax: s.RuleSyntax
    problems: Problems
    name: str
    emits: str
    reads: list[s.Word]


class _Assembly:
    def __init__(self, functions: Functions) -> None:
        self.functions = functions
        self.all_problems: list[Problems] = []
        self.entries: list[_Entry] = []
        self.names: set[str] = set()
        self.numbers: dict[str, int] = {}
        self.declared: dict[str, EventType] = {}
        self.declared_at: dict[str, str] = {}
        self.tables: Mapping[str, TableShape] | None = None
        self.unread = False
        """Whether some text is not there, or not even grammatical."""

    def assemble(self, sources: list[Source], event_types: list[EventType]) -> RuleSet:
        for event_type in event_types:
            self.declared[event_type.name] = event_type
        broken: list[Diagnostic] = []
        for source in sources:
            text = decode(source)
            if isinstance(text, Diagnostic):
                broken.append(text)
            else:
                self.read(text, source)
        # A text that cannot be read may declare or emit anything, so that no name in the others can be called unknown.
        types = Types(self.declared.values(), is_open=not self.declared or bool(broken) or self.unread)
        types.tables = self.tables
        rules = self._build(types)
        if not broken and not self._diagnostics():
            doubtful = tuple(diagnostic for problems in self.all_problems for diagnostic in problems.doubtful)
            return RuleSet(tuple(rules), dict(self.declared), doubtful)
        raise RuleTextError(broken + self._diagnostics(), types)

    def _diagnostics(self) -> list[Diagnostic]:
        return [diagnostic for problems in self.all_problems for diagnostic in problems.diagnostics()]

    # Reading

    def read(self, text: Text, source: Source) -> None:
        problems = Problems(text)
        self.all_problems.append(problems)
        try:
            items = parse_text(text, source.language)
        except SyntaxMistake as mistake:
            problems.add(mistake.at, mistake.message, mistake.hint)
            self.unread = True
            return
        if not items:
            problems.add(0, "there is no rule in this text", example(source.language))
        for item in items:
            if isinstance(item, s.TypeDeclaration):
                self._declare(item, problems)
            else:
                self._enter(item, problems, source)

    def _declare(self, item: s.TypeDeclaration, problems: Problems) -> None:
        name = item.name.text
        pairs: dict[str, str] = {}
        for attribute in item.fields:
            if attribute.name.text in pairs:
                problems.add(
                    attribute.name.at, f"{name} has two attributes called {attribute.name.text!r}", "leave one out"
                )
            if attribute.name.text in RESERVED_ATTRIBUTES:
                problems.add(
                    attribute.name.at, f"every event has {attribute.name.text!r} already", "choose another name"
                )
                continue
            kind = KIND_ALIASES.get(attribute.kind.text.lower())
            if kind is None:
                problems.add(
                    attribute.kind.at, f"unknown kind {attribute.kind.text!r}", "write int, float, string, bool or any"
                )
            pairs[attribute.name.text] = (kind or "any") + "?" * attribute.optional
        event_type = EventType(name, pairs)
        earlier = self.declared.get(name)
        if earlier is not None and (name in self.declared_at or earlier is not event_type):
            where = self.declared_at.get(name)
            hint = f"first declared in {where}" if where else f"already known as {earlier!r}"
            problems.add(item.name.at, f"event type {name!r} is declared twice", hint)
        self.declared[name] = event_type
        line = problems.text.diagnostic(item.name.at, "").line
        self.declared_at.setdefault(name, f"{problems.text.name}, line {line}")

    def _enter(self, item: s.RuleSyntax, problems: Problems, source: Source) -> None:
        taken = self.names
        if isinstance(item, s.TeslaRule):
            name = item.name.text if item.name else item.emits.text
            emits = item.emits.text
            hint = "name it: Rule OtherName in front of define" if item.name is None else "choose another name"
        else:
            hint = "choose another name"
            name = item.name.text if item.name else self._free_rule_name(identifier(source.name))
            emits = item.emits.text if item.emits else name
        if name in taken:
            problems.add(item.at, f"there is already a rule called {name!r}", hint)
        self.names.add(name)
        self.entries.append(_Entry(item, problems, name, emits, list(types_read(item))))

    def _free_rule_name(self, stem: str) -> str:
        """The name of the file for its first rule without a name, then file_2, file_3, .."""
        return next_name(stem, self.names, self.numbers)

    # Building

    def _build(self, types: Types) -> list[Rule]:
        order = self._ordered()
        if order is None:
            types.is_open = True
            return []
        rules: list[Rule] = []
        for entry in order:
            before = len(entry.problems.placed)
            rule = self._build_one(entry, types)
            understood = entry.syntax.output_names <= {attribute.name for attribute in rule.attributes}
            if len(entry.problems.placed) > before and not understood:
                types.vague.add(rule.emits)
            else:
                self._publish(entry, rule, types)
            rules.append(rule)
        return rules

    def _build_one(self, entry: _Entry, types: Types) -> Rule:
        before = len(entry.problems.placed)
        at: dict[object, int] = {}
        if isinstance(entry.syntax, s.TeslaRule):
            rule = build_tesla(entry.syntax, entry.name, entry.problems, types, self.functions)
        else:
            builder = SaseBuilder(entry.syntax, entry.name, entry.problems, types, self.functions)
            rule = builder.build()
            at = builder.at
        if len(entry.problems.placed) == before:
            for flaw in check_rule(rule):
                entry.problems.add(at.get(flaw.subject, entry.syntax.at), flaw.message, flaw.hint)
        return rule

    def _publish(self, entry: _Entry, rule: Rule, types: Types) -> None:
        """Make the composites of a rule known to the rules that come after it."""
        at = entry.syntax.emits_at
        if rule.emits in self.declared:
            entry.problems.add(
                at, f"{rule.emits!r} is an event type of the sources already", "give the composite event another name"
            )
            return
        pairs = {
            attribute.name: attribute.kind for attribute in rule.attributes if attribute.name not in RESERVED_ATTRIBUTES
        }
        earlier = types.declared.get(rule.emits)
        if earlier is not None:
            if earlier.attributes != tuple(pairs):
                listing = ", ".join(earlier.attributes) or "none"
                entry.problems.add(
                    at, f"another rule defines {rule.emits!r} with other attributes", f"the other has: {listing}"
                )
                return
            pairs = {name: common_kind(kind, earlier.kind(name)) for name, kind in pairs.items()}
        types.declared[rule.emits] = EventType(rule.emits, {name: kind + "?" for name, kind in pairs.items()})

    def _ordered(self) -> list[_Entry] | None:
        """Every rule after those whose composites it reads, otherwise in the order of the text; None for a cycle."""
        makers: dict[str, list[int]] = {}
        for i, entry in enumerate(self.entries):
            makers.setdefault(entry.emits, []).append(i)
        needs = [{maker for word in entry.reads for maker in makers.get(word.text, ())} for entry in self.entries]
        try:
            return [self.entries[i] for i in order_by_need(needs)]
        except CircularDependency as error:
            self._report_cycle(error.positions)
            return None

    def _report_cycle(self, cycle: Sequence[int]) -> None:
        names = " -> ".join(self.entries[i].name for i in cycle)
        entry = self.entries[cycle[0]]
        emitted = self.entries[cycle[1]].emits
        word = next(word for word in entry.reads if word.text == emitted)
        message = f"the rule {entry.name!r} reads what it emits itself"
        if len(cycle) > 2:
            message = f"these rules read each other in a circle: {names}"
        entry.problems.add(word.at, message, f"{self.entries[cycle[1]].name!r} emits {emitted}")


def decode(source: Source) -> Text | Diagnostic:
    """The text of a source, or what is wrong with its bytes."""
    raw = source.text
    size = len(raw)
    if size > TEXT_BYTES_MAX:
        message = f"this text is {size / 1e6:.1f} MB large; a rule file may have {TEXT_BYTES_MAX / 1e6:.1f} MB"
        return Diagnostic(source.name, 1, 1, message, "split it into several files", "", 0)
    if isinstance(raw, bytes):
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as mistake:
            shown = Text(raw.decode("utf-8", "replace"), source.name)
            at = len(raw[: mistake.start].decode("utf-8"))
            return shown.diagnostic(at, f"byte 0x{raw[mistake.start]:02x} is not UTF-8", "save the file as UTF-8")
    else:
        text = raw
        bad = re.search(r"[\ud800-\udfff]", text)
        if bad:
            shown = Text(re.sub(r"[\ud800-\udfff]", "\ufffd", text), source.name)
            return shown.diagnostic(bad.start(), "half a character (a lone surrogate) is not UTF-8", "")
    # A byte order mark takes no column.
    return Text(text.removeprefix("\ufeff"), source.name)


def types_read(rule: s.RuleSyntax) -> Iterable[s.Word]:
    """The event types a rule names, where it names them."""
    if isinstance(rule, s.SaseRule):
        return [leaf.type for leaf in leaf_parts(rule.root)]
    types = [rule.anchor.type]
    for step in rule.steps:
        if isinstance(step, s.ConditionStep):
            types += [call.selector.type for call in aggregates_in(step.condition)]
        else:
            types.append(step.selector.type)
    for assignment in rule.assignments:
        types += [call.selector.type for call in aggregates_in(assignment.value)]
    return types


def identifier(name: str) -> str:
    """The stem of a file name as a rule name: whatever cannot stand in a name becomes ``_``."""
    stem = re.sub(r"\W", "_", PurePath(name).stem)
    return stem if re.match(r"[^\W\d]", stem) else f"_{stem}"


def common_kind(one: str, other: str) -> str:
    if one == other:
        return one
    return "float" if {one, other} == {"int", "float"} else "any"


def example(language: str) -> str:
    if language == "tesla":
        return "expected a rule such as: define Fire() from Smoke() and last Temp() within 5 min from Smoke"
    return "expected a rule such as: Fire: SEQ(Temp t, Smoke s) WITHIN 5 min"
