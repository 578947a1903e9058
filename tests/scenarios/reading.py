"""Stories of networks, as they are written.

A story is a text file. Its first part says what there is, then what happens, a line each; after ``----`` follows the
outcome. ``#`` begins a comment. What there is:

    strategy every                      the outcome must be the same under each (or name some: strategy st mt)
    link n1-n2 5ms [jitter=2ms] [loss=0.1] [bits_per_s=20000]
    event Smoke(area: int)
    source n1 Smoke [lateness=20ms]
    sink n3 Fire(area = 7)
    rule tesla                          or sase; the lines of the rule follow, indented
    slow n2 3ms                         n2 takes so long for every message
    behind n1 10ms                      the clock of n1 is so far behind
    slow coordinator 400ms              orders and reports take up to so long
    show times                          when each match was delivered
    show traffic                        what crossed each link, by kind, except watermarks and control messages

What happens begins with its time in the network, or with the times of its repetitions (``1s..9s/2s``):

    10ms  publish n1 Smoke area=7 [ts=5ms]
    20ms  cut n1-n2 [given up]          heal n1-n2      without it the link is lost
    20ms  isolate n1,n2                 rejoin n1,n2
    20ms  kill n3 [held]                restart n3 [empty]
    30ms  deploy tesla                  the lines of the rule follow, indented
    30ms  undeploy Fire
    30ms  add sink n2 Fire              remove sink 1
    30ms  add source n2 Smoke           remove source 1

``held``: what the sources of the node publish meanwhile waits for it. ``empty``: it has forgotten everything.
``given up``: the coordinator takes the link for lost until it is back.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from headwater.coordinator.requests import (
    AddSource,
    AddSubscription,
    DeployRules,
    EndSource,
    EndSubscription,
    UndeployRule,
)
from headwater.deploy.simulation.faults import (
    Amnesia,
    ClockSkew,
    LinkOutage,
    NodeOutage,
    Partition,
    SlowCoordinator,
    SlowNode,
)
from headwater.protocol.events import Event, EventType, Value, conform
from headwater.protocol.languages import Source as RuleText
from headwater.protocol.languages import parse_rules
from headwater.protocol.languages.literals import parse_duration
from headwater.protocol.languages.rule_texts import rule_names
from headwater.protocol.network import Link, Sink, Source
from headwater.protocol.pattern import Rule
from headwater.protocol.strategy import STRATEGIES
from headwater.protocol.subscriptions import parse_subscription
from tests.scenarios.story import Story

RULE = "----"
TIMES = re.compile(r"(?P<first>[\d.]+[a-z]+)(\.\.(?P<last>[\d.]+[a-z]+)/(?P<step>[\d.]+[a-z]+))?$")


class StoryError(Exception):
    """A line of a story that says nothing the runner understands."""


@dataclass(frozen=True)
class Line:
    """One line of a story, with the indented lines that belong to it."""

    number: int
    words: tuple[str, ...]
    block: str


def read_story(text: str) -> tuple[Story, str]:
    """The story and the outcome that was recorded below it."""
    told, _, recorded = text.partition(f"\n{RULE}\n")
    reader = Reader()
    for line in lines_of(told):
        try:
            reader.read(line)
        except (KeyError, IndexError, ValueError, StopIteration) as error:
            raise StoryError(f"line {line.number}: cannot read {' '.join(line.words)!r}: {error!r}") from error
    return reader.finished(), recorded


def lines_of(text: str) -> Iterator[Line]:
    """The lines that say something; indented ones belong to the line before unless they begin with a time."""
    lines = [line.split("#", 1)[0].rstrip() if line.lstrip().startswith("#") else line for line in text.splitlines()]
    at = 0
    while at < len(lines):
        number, line = at + 1, lines[at]
        at += 1
        if not line.strip():
            continue
        words = tuple(line.split(" #")[0].split())
        block = []
        while opens_a_block(words) and at < len(lines) and lines[at].startswith("  ") and lines[at].strip():
            block.append(lines[at].strip())
            at += 1
        yield Line(number, words, "\n".join(block))


def opens_a_block(words: Sequence[str]) -> bool:
    return words[0] == "rule" or "deploy" in words[1:2]


class Reader:
    """Builds a story line by line."""

    def __init__(self) -> None:
        self.story = Story()
        self._numbers: Counter[str] = Counter()
        self._texts: list[RuleText] = []
        self._cuts: dict[frozenset[str], tuple[int, bool]] = {}
        self._isolated: dict[frozenset[str], int] = {}
        self._killed: dict[str, tuple[int, bool]] = {}
        self._there: dict[str, Callable[[tuple[str, ...], str], None]] = {
            "strategy": self._strategy,
            "link": self._link,
            "event": self._event,
            "source": self._source,
            "sink": self._sink,
            "rule": self._rule,
            "slow": self._slow,
            "behind": self._behind,
            "show": self._show,
        }
        self._happens: dict[str, Callable[[int, tuple[str, ...], str], None]] = {
            "publish": self._publish,
            "cut": self._cut,
            "heal": self._heal,
            "isolate": self._isolate,
            "rejoin": self._rejoin,
            "kill": self._kill,
            "restart": self._restart,
            "deploy": self._deploy,
            "undeploy": self._undeploy,
            "add": self._add,
            "remove": self._remove,
        }

    def read(self, line: Line) -> None:
        if times := TIMES.match(line.words[0]):
            for at_us in moments(times):
                self._happens[line.words[1]](at_us, line.words[2:], line.block)
        else:
            self._there[line.words[0]](line.words[1:], line.block)

    def finished(self) -> Story:
        """What was cut and never healed, or killed and never restarted, is gone for good."""
        for ends, (from_us, given_up) in self._cuts.items():
            one, other = sorted(ends)
            self.story.faults.append(LinkOutage(one, other, from_us, given_up=given_up))
        for nodes, from_us in self._isolated.items():
            self.story.faults.append(Partition(nodes, from_us))
        for node, (from_us, held) in self._killed.items():
            self.story.faults.append(NodeOutage(node, from_us, held=held))
        self.story.births.sort(key=lambda birth: birth[0])
        self.story.changes.sort(key=lambda change: change[0])
        return self.story

    # what there is

    def _strategy(self, words: tuple[str, ...], _: str) -> None:
        self.story.strategies = STRATEGIES if words == ("every",) else words

    def _link(self, words: tuple[str, ...], _: str) -> None:
        one, other = words[0].split("-")
        named = named_values(words[2:])
        rate = named.pop("bits_per_s", None)
        jitter_us, loss = parse_duration(named.pop("jitter", "")), float(named.pop("loss", 0))
        if named:
            raise ValueError(f"a link has no {named}")
        bandwidth = None if rate is None else int(rate)
        self.story.links.append(Link(one, other, parse_duration(words[1]), bandwidth, jitter_us, loss))

    def _event(self, words: tuple[str, ...], _: str) -> None:
        declared = parse_rules([RuleText(f"event {' '.join(words)}", "story", "tesla")])
        self.story.types.update(declared.types)

    def _source(self, words: tuple[str, ...], _: str) -> None:
        self.story.sources.append(source_of(words))
        self.story.sources_at_first += 1

    def _sink(self, words: tuple[str, ...], _: str) -> None:
        self.story.sinks.append(sink_of(words))

    def _rule(self, words: tuple[str, ...], block: str) -> None:
        self.story.rules.append(self._parsed(words[0], block))

    def _parsed(self, language: str, block: str) -> Rule:
        """The one rule of a text; it may read what the rules before it emit."""
        before = set(rule_names(self._texts))
        self._texts.append(RuleText(block, f"story.{language}", "tesla" if language == "tesla" else "sase"))
        (rule,) = [one for one in parse_rules(self._texts, self.story.types.values()).rules if one.name not in before]
        return rule

    def _slow(self, words: tuple[str, ...], _: str) -> None:
        us = parse_duration(words[1])
        self.story.faults.append(SlowCoordinator(us) if words[0] == "coordinator" else SlowNode(words[0], us))

    def _behind(self, words: tuple[str, ...], _: str) -> None:
        self.story.faults.append(ClockSkew(words[0], parse_duration(words[1])))

    def _show(self, words: tuple[str, ...], _: str) -> None:
        self.story.shown.update(words)
        if unknown := self.story.shown - {"times", "traffic"}:
            raise ValueError(f"nothing is known of {unknown}")

    # what happens

    def _publish(self, at_us: int, words: tuple[str, ...], _: str) -> None:
        node, kind = words[:2]
        named = named_values(words[2:])
        ts = parse_duration(named.pop("ts")) if "ts" in named else at_us
        number = next(n for n, source in enumerate(self.story.sources) if (source.node, source.type) == (node, kind))
        self._numbers[node] += 1
        values = {name: value_of(self.story.types[kind], name, text) for name, text in named.items()}
        event = Event(self.story.types[kind], ts, node, self._numbers[node], values)
        self.story.births.append((at_us, number, event))

    def _cut(self, at_us: int, words: tuple[str, ...], _: str) -> None:
        self._cuts[frozenset(words[0].split("-"))] = at_us, words[1:] == ("given", "up")

    def _heal(self, at_us: int, words: tuple[str, ...], _: str) -> None:
        ends = frozenset(words[0].split("-"))
        from_us, given_up = self._cuts.pop(ends)
        one, other = sorted(ends)
        self.story.faults.append(LinkOutage(one, other, from_us, at_us, given_up))

    def _isolate(self, at_us: int, words: tuple[str, ...], _: str) -> None:
        self._isolated[frozenset(words[0].split(","))] = at_us

    def _rejoin(self, at_us: int, words: tuple[str, ...], _: str) -> None:
        nodes = frozenset(words[0].split(","))
        self.story.faults.append(Partition(nodes, self._isolated.pop(nodes), at_us))

    def _kill(self, at_us: int, words: tuple[str, ...], _: str) -> None:
        self._killed[words[0]] = at_us, words[1:] == ("held",)

    def _restart(self, at_us: int, words: tuple[str, ...], _: str) -> None:
        from_us, held = self._killed.pop(words[0])
        if words[1:] == ("empty",):
            self.story.faults.append(Amnesia(words[0], from_us, at_us))
        else:
            self.story.faults.append(NodeOutage(words[0], from_us, at_us, held))

    def _deploy(self, at_us: int, words: tuple[str, ...], block: str) -> None:
        self.story.changes.append((at_us, DeployRules((self._parsed(words[0], block),))))

    def _undeploy(self, at_us: int, words: tuple[str, ...], _: str) -> None:
        self.story.changes.append((at_us, UndeployRule(words[0])))

    def _add(self, at_us: int, words: tuple[str, ...], _: str) -> None:
        if words[0] == "sink":
            self.story.changes.append((at_us, AddSubscription(sink_of(words[1:]))))
            return
        source = source_of(words[1:])
        self.story.sources.append(source)
        self.story.changes.append((at_us, AddSource(source)))

    def _remove(self, at_us: int, words: tuple[str, ...], _: str) -> None:
        number = int(words[1])
        self.story.changes.append((at_us, EndSubscription(number) if words[0] == "sink" else EndSource(number)))


def moments(times: re.Match[str]) -> range:
    first_us = parse_duration(times["first"])
    if times["last"] is None:
        return range(first_us, first_us + 1)
    return range(first_us, parse_duration(times["last"]) + 1, parse_duration(times["step"]))


def named_values(words: Sequence[str]) -> dict[str, str]:
    """``area=7 value=60.5`` by name."""
    return dict(word.split("=", 1) for word in words)


def value_of(kind: EventType, name: str, text: str) -> Value:
    if kind.kind(name) == "string":
        return text
    return conform(kind, name, float(text) if kind.kind(name) == "float" else int(text))


def source_of(words: tuple[str, ...]) -> Source:
    named = named_values(words[2:])
    return Source(words[0], words[1], parse_duration(named.get("lateness", "")))


def sink_of(words: tuple[str, ...]) -> Sink:
    return Sink(words[0], parse_subscription(" ".join(words[1:])))
