"""Builds a network from the text of its file: reads the sections and checks them against each other."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import yaml

from headwater.deploy.network.brokers import brokers_of
from headwater.deploy.network.check import (
    connected_parts,
    counts_events,
    readers_of_nothing,
    shared_identities,
    silent_rules,
)
from headwater.deploy.network.file import NEVER_ENDS, DescribedTables, NetworkFile
from headwater.deploy.network.function_file import functions_of
from headwater.deploy.network.models.network import NetworkPart
from headwater.deploy.network.reading import read_part
from headwater.deploy.network.rule_texts import places_of_rules, rule_texts
from headwater.deploy.network.sections import (
    RuleEntry,
    SinkEntry,
    SourceEntry,
    event_types,
    links_of,
    nodes_of,
    rules_of,
    sinks_of,
    sources_of,
)
from headwater.deploy.network.statistics import GivenStatistics
from headwater.deploy.network.statistics_reading import Described, given_statistics
from headwater.deploy.network.yaml_file import Sheet
from headwater.deploy.network.yaml_tree import is_null
from headwater.node.explain.constant_conditions import certainties, never_met
from headwater.protocol.analysis.pulling import masters
from headwater.protocol.destinations import placeholders
from headwater.protocol.edge import RateFeed, is_replayed
from headwater.protocol.events import EventType
from headwater.protocol.function_files import declared
from headwater.protocol.languages import Diagnostic, RuleSet, RuleTextError, parse_rules
from headwater.protocol.languages.composite_types import composite_types
from headwater.protocol.languages.diagnostics import UNKNOWN_EVENT_TYPE, UNKNOWN_FUNCTION, UNKNOWN_TABLE
from headwater.protocol.languages.type_checking import Types
from headwater.protocol.network import Link, Network, Sink, why_not_in_time
from headwater.protocol.pattern import Rule, leaves
from headwater.protocol.remote import TableShape
from headwater.protocol.strategy import CENTRAL, DEFAULT_STRATEGY, PLANNED_STRATEGIES, strategy_of
from headwater.protocol.subscriptions import Subscription, parse_subscription
from headwater.protocol.text import listed, suggestion


class NetworkReading:
    """One pass over the sections, in the order in which they need each other."""

    def __init__(self, sheet: Sheet, strategy: str | None, duration_us: int | None) -> None:
        self.sheet = sheet
        self.given_strategy = strategy
        self.given_duration_us = duration_us
        self.given_statistics: Path | None = None
        self.counted = True
        part = read_part(sheet, sheet.root(), NetworkPart)
        assert part is not None  # no section is required
        self.part = part
        self.described_functions = functions_of(sheet, part)
        self.functions = declared(self.described_functions)

    def network_file(self) -> NetworkFile:
        sheet, part = self.sheet, self.part
        types = event_types(sheet, part.events)
        nodes, listen = nodes_of(sheet, part)
        links, links_known = links_of(sheet, part, nodes)
        if nodes and links_known:
            self._check_connected(list(nodes), links)
        rule_entries, complete = rules_of(sheet, part)
        described = self._tables(nodes)
        rules, subscribable = self._parse_rules(rule_entries, types, described.shapes, complete=complete)
        composites = composite_types(rules.rules) if rules is not None else None
        if rules is not None:
            types = dict(rules.types)
        brokers = brokers_of(sheet, part)
        sources = sources_of(sheet, part.sources, nodes, types, composites, subscribable, brokers)
        self._check_numbering(sources)
        strategy = self.given_strategy or part.strategy or DEFAULT_STRATEGY
        sink_entries = sinks_of(sheet, part.sinks, nodes, brokers)
        subscriptions = self._subscriptions(sink_entries, subscribable)
        self._check_topics(subscriptions, types, composites)
        duration = self._duration(sources)
        self._check_planning(strategy)
        statistics = self._statistics(types, nodes, rules)
        if rules is not None:
            self._check_rules(rules, rule_entries, sources, strategy)
            self._check_sinks(rules, sources, subscriptions)
        priorities, strategies = self._priorities(rules), self._remote_strategies(rules)
        sheet.finished()
        assert rules is not None
        feeds = tuple(entry.simulated for entry in sources if entry.simulated is not None)
        live_feeds = tuple(entry.feed for entry in sources if entry.feed is not None)
        assert len(feeds) == len(live_feeds) == len(sources)
        network = Network(
            types=tuple(types.values()),
            nodes=tuple(nodes),
            links=tuple(links),
            sources=tuple(entry.source for entry in sources),
            sinks=tuple(Sink(entry.node, subscription) for entry, subscription in subscriptions),
            rules=rules.rules,
            strategy=strategy,
            tables=described.tables,
            remote_strategy=part.remote_strategy or "",
            functions=self.described_functions,
            remote_cache=part.remote_cache or "",
            remote_priorities=priorities,
            remote_strategies=strategies,
        )
        return NetworkFile(
            sheet.path,
            network,
            feeds,
            duration,
            part.seed,
            sheet.warnings(),
            destinations=tuple(entry.destination for entry, _ in subscriptions if entry.destination is not None),
            live_feeds=live_feeds,
            durability=part.durability,
            listen=listen,
            lost_after_us=part.lost_after,
            replan_us=part.replan,
            falls_back=part.fall_back == "on",
            embedded_broker=brokers.embedded,
            only_simulated=(*self._mixed_times(sources), *described.only_simulated),
            statistics=statistics,
        )

    def _priorities(self, rules: RuleSet | None) -> tuple[tuple[str, float], ...]:
        if self.part.remote_priorities is None or rules is None:
            return ()
        from headwater.deploy.network.remote_tables import priorities_of

        return priorities_of(self.sheet, self.part.at("remote_priorities"), [rule.name for rule in rules.rules])

    def _remote_strategies(self, rules: RuleSet | None) -> tuple[tuple[str, str], ...]:
        if self.part.remote_strategies is None or rules is None:
            return ()
        from headwater.deploy.network.remote_tables import strategies_of

        return strategies_of(self.sheet, self.part.at("remote_strategies"), [rule.name for rule in rules.rules])

    def _tables(self, nodes: Mapping[str, yaml.Node]) -> DescribedTables:
        if not self.part.has("remote") or "remote" in self.part.broken or is_null(self.part.at("remote")):
            return DescribedTables()
        from headwater.deploy.network.remote_tables import tables_of  # with providers, which other files can spare

        return tables_of(self.sheet, self.part.at("remote"), nodes)

    def _check_planning(self, strategy: str) -> None:
        """What says how to plan says nothing under a strategy that has no plan."""
        if strategy_of(strategy).planned:
            return
        for name in ("replan", "fall_back"):
            if getattr(self.part, name) is not None and self.part.has(name):
                cure = f"write strategy: {' or '.join(PLANNED_STRATEGIES)}, or leave {name} out"
                self.sheet.warn(self.part.at(name), f"the strategy {strategy} has no plan", cure)

    def _statistics(
        self, types: dict[str, EventType], nodes: dict[str, yaml.Node], rules: RuleSet | None
    ) -> GivenStatistics:
        return given_statistics(
            self.sheet,
            self.part,
            Described(types, nodes, None if rules is None else {rule.name: rule for rule in rules.rules}),
            instead=self.given_statistics,
            with_file=self.counted,
        )

    def _duration(self, sources: list[SourceEntry]) -> int | None:
        duration_us = self.part.duration if self.given_duration_us is None else self.given_duration_us
        endless = next((entry for entry in sources if isinstance(entry.feed, RateFeed)), None)
        if duration_us is None and "duration" not in self.part.broken and endless is not None:
            cure = "say how long it runs, as in duration: 10 min"
            self.sheet.warn(endless.place, "this source never ends", cure, NEVER_ENDS)
        return duration_us

    # Rules and subscriptions

    def _parse_rules(
        self,
        entries: list[RuleEntry],
        types: dict[str, EventType],
        tables: Mapping[str, TableShape],
        *,
        complete: bool,
    ) -> tuple[RuleSet | None, Types]:
        """The rules, if they are complete and nothing is wrong with them, and which types there are to subscribe to, as
        far as is known."""
        try:
            texts = [entry.source for entry in entries]
            rules = parse_rules(texts, types.values(), self.functions, complete=complete, tables=tables)
            for diagnostic in rules.warnings:
                self._adopt_from_rules(diagnostic, entries, warning=True)
            if not complete:
                return None, Types([*rules.types.values(), *composite_types(rules.rules).values()], is_open=True)
            return rules, Types([*rules.types.values(), *composite_types(rules.rules).values()], is_open=False)
        except RuleTextError as error:
            for diagnostic in error.diagnostics:
                self._adopt_from_rules(diagnostic, entries)
            return None, error.types or Types(types.values(), is_open=True)

    def _adopt_from_rules(self, diagnostic: Diagnostic, entries: list[RuleEntry], *, warning: bool = False) -> None:
        """Note what was found in a rule text; what stands in the network file is shown there."""
        inline = {entry.source.name: entry.place for entry in entries if entry.inline}
        hint = _readable(diagnostic.hint, inline)
        if diagnostic.code == UNKNOWN_EVENT_TYPE and not hint.startswith("did"):
            hint = f"declare it under events: or with a rule; {hint}"
        elif diagnostic.code == UNKNOWN_TABLE:
            hint = re.sub(r"^supply it.* (\w+)=FILE$", r"describe it, as in remote: {\1: {file: \1.csv}}", hint)
        elif diagnostic.code == UNKNOWN_FUNCTION:
            hint = f"{hint}; functions: FILE.py names a file with more"
        hinted = replace(diagnostic, hint=hint)
        place = inline.get(diagnostic.file)
        self.sheet.adopt(hinted if place is None else self.sheet.relocated(hinted, place), warning=warning)

    def _subscriptions(self, entries: list[SinkEntry], types: Types) -> list[tuple[SinkEntry, Subscription]]:
        subscriptions = []
        for entry in entries:
            try:
                subscription = parse_subscription(str(entry.subscribe.value), self.sheet.shown, types, self.functions)
                subscriptions.append((entry, subscription))
            except RuleTextError as error:
                for diagnostic in error.diagnostics:
                    if diagnostic.code == UNKNOWN_EVENT_TYPE and not diagnostic.hint.startswith("did"):
                        diagnostic = replace(
                            diagnostic, hint=f"no rule emits it and events: does not declare it; {diagnostic.hint}"
                        )
                    self.sheet.adopt(self.sheet.relocated(diagnostic, entry.subscribe))
        return subscriptions

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
            fillable = ["type", *event_type.attributes]
            for name in placeholders(entry.destination):
                if name not in fillable:
                    cure = suggestion(name, fillable, f"{event_type.name} has")
                    self.sheet.error(entry.to, f"{event_type.name} has nothing to fill in for {{{name}}}", cure)

    # What must fit together

    def _check_connected(self, nodes: list[str], links: Iterable[Link]) -> None:
        parts = connected_parts(nodes, links)
        if len(parts) > 1:
            shown = " | ".join(listed(part, 6) for part in parts[:6]) + (" | .." if len(parts) > 6 else "")
            place = self.part.at_key("links" if self.part.has("links") else "nodes")
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
        diagnostics = []
        replayed = [entry.feed is not None and is_replayed(entry.feed) for entry in sources]
        for entry, in_trace_time in zip(sources, replayed, strict=True):
            if (why := why_not_in_time(in_trace_time, replayed[0])) is not None:
                cure = "give every source a trace or a replay, or none; only a simulation can have both"
                diagnostics.append(self.sheet.source.diagnostic(entry.place.start_mark.index, why, cure))
        return tuple(diagnostics)

    def _check_rules(
        self,
        rules: RuleSet,
        entries: list[RuleEntry],
        sources: list[SourceEntry],
        strategy: str,
    ) -> None:
        places = places_of_rules(rule_texts(entries))
        fallback = self.part.at_key("rules") if self.part.has("rules") else self.part.place
        sourced = {entry.source.type for entry in sources}
        silent = silent_rules(rules.rules, sourced)
        for rule in rules.rules:
            place = places.get(rule.name, fallback)
            if counts_events(rule) and strategy_of(strategy).filters:
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
        return f"use --strategy {CENTRAL}" if self.given_strategy is not None else f"write strategy: {CENTRAL}"

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
                    type for rule in rules.rules if rule.emits == name for type in silent[rule.name]
                )
                cure = f"there is no source of {listed(lacking)}"
                self.sheet.warn(entry.subscribe, f"no rule that emits {name} can ever fire", cure)
            elif name not in emitted and name not in sourced:
                self.sheet.warn(entry.subscribe, f"no source advertises {name!r}", "add a source of it")
            for certainty in certainties(subscription.where):
                sentence = certainty.sentence if certainty.always else f"no event meets {certainty}"
                self.sheet.warn(entry.subscribe, sentence, certainty.cure)
        if not subscriptions and not self.part.has("sinks"):
            self.sheet.warn(self.part.place, "there are no sinks", "what is found will reach no subscriber; add sinks:")
        if not sources and not self.part.has("sources"):
            self.sheet.warn(self.part.place, "there are no sources", "nothing will ever happen; add sources:")


def _primitives(rules: RuleSet, rule: Rule) -> list[str]:
    """The types that a rule reads and no rule emits."""
    emitted = {rule.emits for rule in rules.rules}
    read = dict.fromkeys(leaf.type for leaf in leaves(rule.pattern.root))
    return [name for name in read if name not in emitted]


def _readable(hint: str, inline: dict[str, yaml.ScalarNode]) -> str:
    """``network.yaml#2, line 1`` is a line of the network file."""

    def line(match: re.Match[str]) -> str:
        place = inline[match[1]]
        first = place.start_mark.line + (place.style in ("|", ">"))
        return f"{match[1].rpartition('#')[0]}, line {first + int(match[2])}"

    names = "|".join(map(re.escape, inline))
    return re.sub(f"({names}), line ([0-9]+)", line, hint) if names else hint
