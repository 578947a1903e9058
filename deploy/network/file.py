"""The network file: YAML that says which nodes, links, sources, sinks and rules there are (docs/network.md)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import yaml

from headwater.deploy.network.brokers import read_brokers
from headwater.deploy.network.check import (
    connected_parts,
    counts_events,
    readers_of_nothing,
    shared_identities,
    silent_rules,
)
from headwater.deploy.network.readings import one_of, quantity
from headwater.deploy.network.rule_texts import is_registered, no_such_function, places_of_rules, rule_texts, unserved
from headwater.deploy.network.sections import (
    SECTIONS,
    RuleEntry,
    SinkEntry,
    SourceEntry,
    read_events,
    read_links,
    read_nodes,
    read_rules,
    read_sinks,
    read_sources,
)
from headwater.deploy.network.sheet import NetworkFileError, Sheet, is_null
from headwater.deploy.network.statistics import Described, GivenStatistics, read_statistics
from headwater.deploy.network.units import duration_us
from headwater.node.explain.certainties import certainties, never_met
from headwater.protocol.analysis.pulling import masters
from headwater.protocol.destinations import placeholders
from headwater.protocol.edge import (
    Broker,
    ClientFeed,
    Destination,
    Feed,
    MqttFeed,
    RateFeed,
    ReplayFeed,
    TraceFeed,
    is_replayed,
)
from headwater.protocol.errors import ConfigError
from headwater.protocol.events import EventType
from headwater.protocol.expressions import Call, walk
from headwater.protocol.functions import Functions
from headwater.protocol.languages import Diagnostic, RuleSet, RuleTextError, parse_rules
from headwater.protocol.languages.diagnostics import UNKNOWN_EVENT_TYPE, UNKNOWN_FUNCTION, closest, listed, suggestion
from headwater.protocol.languages.emitted import composite_types
from headwater.protocol.languages.meaning import Types
from headwater.protocol.languages.sources import LANGUAGES
from headwater.protocol.network import STRATEGIES, Link, Network, Sink, why_not_in_time
from headwater.protocol.pattern import Rule, leaves
from headwater.protocol.subscriptions import Subscription, parse_subscription

__all__ = [
    "ClientFeed", "Destination", "Feed", "MqttFeed", "NetworkFile", "NetworkFileError", "RateFeed",
    "ReplayFeed", "TraceFeed",
    "check_running", "read_network", "running_feeds", "running_network",
]  # fmt: skip

NEVER_ENDS = "never_ends"
"""The code of the warning that a simulation of a source would never end."""

DEFAULT_STRATEGY = "st"
DURABILITIES = ("none", "async", "sync")
DEFAULT_DURABILITY = "sync"
REPLAN_LEAST_US = 5_000_000
LOST_AFTER_LEAST_US = 5_000_000  # a process needs a second or two to be started again


@dataclass(frozen=True, slots=True)
class NetworkFile:
    """A network as its file describes it, checked: what is doubtful but possible is in ``warnings``."""

    path: Path
    network: Network
    feeds: tuple[Feed, ...]
    """Where the events of each source come from in a simulation, in the order of ``network.sources``."""
    duration_us: int | None = None
    seed: int | None = None
    warnings: tuple[Diagnostic, ...] = ()
    destinations: tuple[Destination, ...] = ()
    """Where the deliveries of each sink go in a running network, in the order of ``network.sinks``."""
    durability: str = DEFAULT_DURABILITY
    """What of the inputs of a running node is on disk before anything comes of them: none, async or sync."""
    listen: dict[str, str] = field(default_factory=dict)
    """Where nodes listen, as host:port, by node; the others choose for themselves."""
    replan_us: int | None = None
    """How often a running network looks whether its rates call for a new plan."""
    falls_back: bool = True
    """Whether stages of a plan that cost more than they save fall back by themselves."""
    lost_after_us: int | None = None
    """After so long a silence a node or link counts as lost for good; None: only an operator says so."""
    embedded_broker: Broker | None = None
    """The broker that is started with the network, if one is."""
    live_feeds: tuple[Feed, ...] | None = None
    """Where the events come from in a running network, if that is not the same."""
    only_simulated: tuple[Diagnostic, ...] = ()
    """Why the network can be simulated and cannot run (`check_running`)."""
    statistics: GivenStatistics = field(default_factory=GivenStatistics)
    """Rates and selectivities for planners."""

    def running(self) -> tuple[Feed, ...]:
        """Where the events of each source come from in a running network."""
        return self.feeds if self.live_feeds is None else self.live_feeds


def check_running(network_file: NetworkFile) -> None:
    """A NetworkFileError if this network can be simulated and cannot run."""
    if network_file.only_simulated:
        raise NetworkFileError([*network_file.only_simulated], [*network_file.warnings])


def running_network(network_file: NetworkFile) -> Network:
    """The network as running nodes know it: sources that read a trace, or get one from a replayer, have
    its times, and are not live as in a simulation.

    A NetworkFileError if it cannot run.
    """
    check_running(network_file)
    network = network_file.network
    sources = tuple(
        replace(source, replayed=is_replayed(feed))
        for source, feed in zip(network.sources, network_file.running(), strict=True)
    )
    return replace(network, sources=sources)


def running_feeds(network_file: NetworkFile) -> tuple[Feed, ...]:
    """The feeds as running nodes need them: wherever a node runs, and for as long as the file says."""

    def running(feed: Feed) -> Feed:
        match feed:
            case TraceFeed(path):
                return replace(feed, path=str(Path(path).absolute()))
            case RateFeed():
                return replace(feed, duration_us=network_file.duration_us, seed=network_file.seed or 0)
            case _:
                return feed

    return tuple(running(feed) for feed in network_file.running())


def read_network(
    path: Path | str,
    functions: Functions | None = None,
    strategy: str | None = None,
    duration_us: int | None = None,
    statistics: Path | None = None,
    *,
    counted: bool = True,
) -> NetworkFile:
    """The network of a file, or a NetworkFileError with all that is wrong in it and in the files it names.

    ``functions`` are known by name beside the built-in ones, so that a rule which calls one can be told from a slip of
    the pen; no network serves them. ``strategy`` (one of STRATEGIES), ``duration_us`` and ``statistics`` (a file that
    headwater statistics wrote) take the place of what the file says, before it is asked whether everything fits
    together. Without ``counted`` no file of statistics is read: it may have to be written first.
    """
    if Path(path).suffix.lower() in LANGUAGES:
        raise ConfigError(f"{path} holds rules; name a network file (.yaml) that lists it under rules:")
    reading = _Reading(Sheet(Path(path)), functions or Functions(), strategy, duration_us)
    reading.given_statistics, reading.counted = statistics, counted
    return reading.network_file()


class _Reading:
    """One pass over the sections, in the order in which they need each other."""

    def __init__(self, sheet: Sheet, functions: Functions, strategy: str | None, duration_us: int | None) -> None:
        self.sheet = sheet
        self.functions = functions
        self.given_strategy = strategy
        self.given_duration_us = duration_us
        self.given_statistics: Path | None = None
        self.counted = True
        self.root = sheet.root()
        self.entries = sheet.entries(self.root, "a network file", SECTIONS)

    def _section(self, name: str) -> yaml.Node:
        """The section, or an empty one where it is absent."""
        if name in self.entries:
            return self.entries[name][1]
        mark = self.root.start_mark
        return yaml.ScalarNode("tag:yaml.org,2002:null", "", mark, mark)

    def network_file(self) -> NetworkFile:
        sheet = self.sheet
        types = read_events(sheet, self._section("events"))
        nodes, listen = read_nodes(sheet, self._section("nodes"))
        if not nodes and ("nodes" not in self.entries or is_null(self._section("nodes"))):
            sheet.error(self._section("nodes"), "there are no nodes", "write nodes: [a, b, c]")
        links, links_known = read_links(sheet, self._section("links"), nodes)
        if nodes and links_known:
            self._check_connected(list(nodes), links)
        rule_entries = read_rules(sheet, self._section("rules"))
        rules, known = self._parse_rules(rule_entries, types)
        composites = composite_types(rules.rules) if rules is not None else None
        if rules is not None:
            types = dict(rules.types)
        brokers = read_brokers(sheet, self._section("mqtt"))
        sources = read_sources(sheet, self._section("sources"), nodes, types, composites, brokers)
        self._check_numbering(sources)
        strategy = self._strategy()
        sink_entries = read_sinks(sheet, self._section("sinks"), nodes, brokers)
        subscriptions = self._subscriptions(sink_entries, known)
        self._check_topics(subscriptions, types, composites)
        duration = self._duration(sources)
        seed = self._seed()
        durability = one_of(sheet, self.entries, "durability", DURABILITIES, DEFAULT_DURABILITY)
        lost_after = self._lost_after()
        replan = self._replan(strategy)
        falls_back = self._falls_back(strategy)
        statistics = read_statistics(
            sheet,
            self._section("statistics"),
            Described(types, nodes, None if rules is None else {rule.name: rule for rule in rules.rules}),
            instead=self.given_statistics,
            with_file=self.counted,
        )
        if rules is not None and rule_entries is not None:
            self._check_rules(rules, rule_entries, sources, strategy)
            self._check_sinks(rules, sources, subscriptions)
        sheet.finished()
        assert rules is not None
        feeds = tuple(entry.simulated for entry in sources if entry.simulated is not None)
        live_feeds = tuple(entry.feed for entry in sources if entry.feed is not None)
        assert len(feeds) == len(live_feeds) == len(sources)
        network = Network(
            types=tuple(types.values()),
            nodes=tuple(nodes),
            links=links,
            sources=tuple(entry.source for entry in sources),
            sinks=tuple(Sink(entry.node, subscription) for entry, subscription in subscriptions),
            rules=rules.rules,
            strategy=strategy,
        )
        return NetworkFile(
            sheet.path,
            network,
            feeds,
            duration,
            seed,
            sheet.warnings(),
            destinations=tuple(entry.destination for entry, _ in subscriptions if entry.destination is not None),
            live_feeds=live_feeds,
            durability=durability,
            listen=listen,
            lost_after_us=lost_after,
            replan_us=replan,
            falls_back=falls_back,
            embedded_broker=brokers.embedded,
            only_simulated=self._mixed_times(sources),
            statistics=statistics,
        )

    # Settings

    def _strategy(self) -> str:
        node = self._section("strategy")
        if is_null(node):
            return self.given_strategy or DEFAULT_STRATEGY
        name = self.sheet.word(node, "the strategy", f"write one of {listed(STRATEGIES)}")
        if name is not None and name not in STRATEGIES:
            near = closest(name, STRATEGIES)
            cure = f"did you mean {near!r}? " if near else ""
            self.sheet.error(node, f"unknown strategy {name!r}", f"{cure}strategies: {listed(STRATEGIES)}")
        return self.given_strategy or name or DEFAULT_STRATEGY

    def _duration(self, sources: list[SourceEntry]) -> int | None:
        node = self._section("duration")
        if not is_null(node):
            length = quantity(self.sheet, node, "duration", duration_us)
            if length == 0:
                self.sheet.error(node, "a duration of nothing", "write how long the network runs, as in 10 min")
            return length if self.given_duration_us is None else self.given_duration_us
        if self.given_duration_us is not None:
            return self.given_duration_us
        endless = next((entry for entry in sources if isinstance(entry.feed, RateFeed)), None)
        if endless is not None:
            self.sheet.warn(
                endless.place, "this source never ends", "say how long it runs, as in duration: 10 min", NEVER_ENDS
            )
        return None

    def _lost_after(self) -> int | None:
        node = self._section("lost_after")
        if is_null(node):
            return None
        length = quantity(self.sheet, node, "lost_after", duration_us)
        if length is not None and length < LOST_AFTER_LEAST_US:
            self.sheet.error(
                node, "a node that restarts would count as lost", "write at least 5s; what is lost does not come back"
            )
        return length

    def _replan(self, strategy: str) -> int | None:
        node = self._section("replan")
        if is_null(node):
            return None
        length = quantity(self.sheet, node, "replan", duration_us)
        if length is not None and length < REPLAN_LEAST_US:
            self.sheet.error(node, "a plan would follow the other", "write at least 5s; each new plan costs a set-up")
        if strategy != "inev":
            self.sheet.warn(node, f"the strategy {strategy} has no plan", "write strategy: inev, or leave replan out")
        return length

    def _falls_back(self, strategy: str) -> bool:
        node = self._section("fall_back")
        if is_null(node):
            return True
        word = self.sheet.word(node, "fall_back", "write on or off")
        if word is not None and word not in ("on", "off"):
            self.sheet.error(node, f"{word!r} says nothing about falling back", "write on or off")
        if strategy != "inev":
            self.sheet.warn(
                node, f"the strategy {strategy} has no plan", "write strategy: inev, or leave fall_back out"
            )
        return word != "off"

    def _seed(self) -> int | None:
        node = self._section("seed")
        if is_null(node):
            return None
        text = self.sheet.word(node, "the seed", "write a whole number")
        if text is None:
            return None
        if not re.fullmatch(r"[0-9]{1,18}", text):
            self.sheet.error(node, f"{text!r} is no seed", "write a whole number, 0 or greater")
            return None
        return int(text)

    # Rules and subscriptions

    def _parse_rules(
        self, entries: list[RuleEntry] | None, types: dict[str, EventType]
    ) -> tuple[RuleSet | None, Types]:
        """The rules, if nothing is wrong with them, and which types there are to subscribe to, as far as is known."""
        if entries is None:
            return None, Types(types.values(), is_open=True)
        try:
            rules = parse_rules([entry.source for entry in entries], types.values(), self.functions)
            for made in rules.warnings:
                self._adopt_from_rules(made, entries, warning=True)
            return rules, Types([*rules.types.values(), *composite_types(rules.rules).values()], is_open=False)
        except RuleTextError as error:
            for made in error.diagnostics:
                self._adopt_from_rules(made, entries)
            return None, error.types or Types(types.values(), is_open=True)

    def _adopt_from_rules(self, made: Diagnostic, entries: list[RuleEntry], *, warning: bool = False) -> None:
        """Note what was found in a rule text; what stands in the network file is shown there."""
        inline = {entry.source.name: entry.place for entry in entries if entry.inline}
        hint = _readable(made.hint, inline)
        if made.code == UNKNOWN_EVENT_TYPE and not hint.startswith("did"):
            hint = f"declare it under events: or with a rule; {hint}"
        elif made.code == UNKNOWN_FUNCTION:
            hint = f"a network has only the built-in ones; {hint}"
        hinted = replace(made, hint=hint)
        place = inline.get(made.file)
        self.sheet.adopt(hinted if place is None else self.sheet.relocated(hinted, place), warning=warning)

    def _subscriptions(self, entries: list[SinkEntry], known: Types) -> list[tuple[SinkEntry, Subscription]]:
        found = []
        for entry in entries:
            try:
                made_of = parse_subscription(str(entry.subscribe.value), self.sheet.shown, known, self.functions)
                found.append((entry, made_of))
                for part in (each for conjunct in made_of.where for each in walk(conjunct)):
                    if isinstance(part, Call) and is_registered(part.function, self.functions):
                        self.sheet.error(entry.subscribe, *no_such_function(part.function))
            except RuleTextError as error:
                for made in error.diagnostics:
                    if made.code == UNKNOWN_EVENT_TYPE and not made.hint.startswith("did"):
                        made = replace(made, hint=f"no rule emits it and events: does not declare it; {made.hint}")
                    self.sheet.adopt(self.sheet.relocated(made, entry.subscribe))
        return found

    def _check_topics(
        self,
        subscriptions: list[tuple[SinkEntry, Subscription]],
        types: dict[str, EventType],
        composites: dict[str, EventType] | None,
    ) -> None:
        """What stands in braces in the topic of a sink must be something that its events have."""
        for entry, subscription in subscriptions:
            event_type = types.get(subscription.type) or (composites or {}).get(subscription.type)
            if event_type is None or entry.to is None:
                continue
            known = ["type", *event_type.attributes]
            for name in placeholders(entry.destination):
                if name not in known:
                    cure = suggestion(name, known, f"{event_type.name} has")
                    self.sheet.error(entry.to, f"{event_type.name} has nothing to fill in for {{{name}}}", cure)

    # What must fit together

    def _check_connected(self, nodes: list[str], links: Iterable[Link]) -> None:
        parts = connected_parts(nodes, links)
        if len(parts) > 1:
            shown = " | ".join(listed(part, 6) for part in parts[:6]) + (" | .." if len(parts) > 6 else "")
            place = self.entries["links" if "links" in self.entries else "nodes"][0]
            self.sheet.error(place, f"the network falls into {len(parts)} parts: {shown}", "link them to each other")

    def _check_numbering(self, sources: list[SourceEntry]) -> None:
        """A node gives numbers to all its events or to none: otherwise two events could have the same."""
        by_node: dict[str, list[SourceEntry]] = {}
        for entry in sources:
            by_node.setdefault(entry.source.node, []).append(entry)
        for node, entries in by_node.items():
            giving = [entry for entry in entries if entry.gives_seq]
            if giving and len(giving) < len(entries):
                self.sheet.error(
                    giving[0].place,
                    f"the trace of this source numbers its events (seq), but another source at {node} does not",
                    "give seq in all traces of a node or in none",
                )
        for entry, other in shared_identities([(entry, entry.feed) for entry in sources]):
            self.sheet.warn(
                entry.place,
                f"a message that this source and the source of {other.source.type} both take is one event, "
                "by its device and counter, and not two",
                "let when: choose different messages, or leave device and counter out",
            )

    def _mixed_times(self, sources: list[SourceEntry]) -> tuple[Diagnostic, ...]:
        """Sources that cannot run beside the first one: only virtual time serves traces and rates alike."""
        found = []
        replayed = [entry.feed is not None and is_replayed(entry.feed) for entry in sources]
        for entry, each in zip(sources, replayed, strict=True):
            if (why := why_not_in_time(each, replayed[0])) is not None:
                cure = "give every source a trace or a replay, or none; only a simulation can have both"
                found.append(self.sheet.source.diagnostic(entry.place.start_mark.index, why, cure))
        return tuple(found)

    def _check_rules(self, rules: RuleSet, entries: list[RuleEntry], sources: list[SourceEntry], strategy: str) -> None:
        texts = rule_texts(entries)
        places = places_of_rules(texts)
        for entry, made in unserved(texts, self.functions):
            self.sheet.adopt(self.sheet.relocated(made, entry.place) if entry.inline else made)
        fallback = self.entries["rules"][0] if "rules" in self.entries else self.root
        sourced = {entry.source.type for entry in sources}
        silent = silent_rules(rules.rules, sourced)
        for rule in rules.rules:
            place = places.get(rule.name, fallback)
            if counts_events(rule) and strategy != "centr":
                self.sheet.error(
                    place,
                    f"rule {rule.name!r} has a window that counts events, which only a place that sees them all can do",
                    f"{self._to_centr()}, or give the rule a window of time",
                )
            for name in _primitives(rules, rule):
                if name not in rules.types:
                    self.sheet.error(
                        place,
                        f"rule {rule.name!r} reads {name!r}, which is not declared",
                        f"declare it under events: {name}: {{attribute: kind}}",
                    )
            if rule.name in silent:
                self.sheet.warn(
                    place,
                    f"rule {rule.name!r} can never fire: there is no source of {listed(silent[rule.name])}",
                    "add a source, or leave the rule out",
                )
            never = never_met(rule.pattern.where, masters(rule))
            if never is not None:
                self.sheet.warn(place, f"rule {rule.name!r} can never fire: nothing meets {never}", never.cure)
            for certainty in certainties(rule.pattern.where):
                if certainty != never:
                    self.sheet.warn(place, f"rule {rule.name!r}: {certainty.sentence}", certainty.cure)
        for name, readers in readers_of_nothing(rules.rules, sourced).items():
            self.sheet.warn(
                places.get(readers[0], fallback),
                f"rule {listed(map(repr, readers))} reads {name!r}, which no source advertises",
                "it is as if it never happened; add a source if it can",
            )

    def _to_centr(self) -> str:
        return "use --strategy centr" if self.given_strategy is not None else "write strategy: centr"

    def _check_sinks(
        self, rules: RuleSet, sources: list[SourceEntry], subscriptions: list[tuple[SinkEntry, Subscription]]
    ) -> None:
        sourced = {entry.source.type for entry in sources}
        silent = silent_rules(rules.rules, sourced)
        fired = {rule.emits for rule in rules.rules if rule.name not in silent}
        emitted = {rule.emits for rule in rules.rules}
        for entry, subscription in subscriptions:
            name = subscription.type
            if name in emitted and name not in fired:
                lacking = dict.fromkeys(
                    each for rule in rules.rules if rule.emits == name for each in silent[rule.name]
                )
                cure = f"there is no source of {listed(lacking)}"
                self.sheet.warn(entry.subscribe, f"no rule that emits {name} can ever fire", cure)
            elif name not in emitted and name not in sourced:
                self.sheet.warn(entry.subscribe, f"no source advertises {name!r}", "add a source of it")
            for certainty in certainties(subscription.where):
                sentence = certainty.sentence if certainty.always else f"no event meets {certainty}"
                self.sheet.warn(entry.subscribe, sentence, certainty.cure)
        if not subscriptions and "sinks" not in self.entries:
            self.sheet.warn(self.root, "there are no sinks", "nobody will hear of what is found; add sinks:")
        if not sources and "sources" not in self.entries:
            self.sheet.warn(self.root, "there are no sources", "nothing will ever happen; add sources:")


def _primitives(rules: RuleSet, rule: Rule) -> list[str]:
    """The types that a rule reads and no rule emits."""
    emitted = {rule.emits for rule in rules.rules}
    read = dict.fromkeys(leaf.type for leaf in leaves(rule.pattern.root))
    return [name for name in read if name not in emitted]


def _readable(hint: str, inline: dict[str, yaml.ScalarNode]) -> str:
    """``network.yaml#2, line 1`` is a line of the network file."""

    def line(found: re.Match[str]) -> str:
        place = inline[found[1]]
        first = place.start_mark.line + (place.style in ("|", ">"))
        return f"{found[1].rpartition('#')[0]}, line {first + int(found[2])}"

    names = "|".join(map(re.escape, inline))
    return re.sub(f"({names}), line ([0-9]+)", line, hint) if names else hint
