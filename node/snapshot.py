"""Saves a node's state as bytes, and restores it.

Everything in a core is plain data but for three things, which are saved as what they are made from: engines (their
rules and a snapshot), compiled conditions (their expressions), and composites (their bindings and values).
"""

from __future__ import annotations

from functools import cache
from operator import itemgetter
from typing import Any

from headwater.node.engine import Engine
from headwater.node.remote.memory import CACHE_BYTES, Memory, with_foresight
from headwater.node.remote.policies import DEFAULT
from headwater.protocol.analysis.partial_rules import Contest, PartialRule
from headwater.protocol.errors import ConfigError
from headwater.protocol.events import EventType
from headwater.protocol.formats import NODE_STATE
from headwater.protocol.links.large_payloads import Joined
from headwater.protocol.links.numbering import Outgoing
from headwater.protocol.messages.tallies import Question, Tally
from headwater.protocol.pattern import Rule
from headwater.protocol.state import Format, Made, Tables, Vocabulary
from headwater.protocol.state import StateError as StateError
from headwater.protocol.state.upgrading import EMPTY, with_fields, with_table_terms
from headwater.protocol.state.values import CLASSES, MADE, by_name
from headwater.protocol.tallies import Extreme, Total
from headwater.protocol.wire import rule_encoding
from headwater.protocol.wire.link_wire import LinkWire


@cache
def state_format() -> Format:
    """How nodes are saved. A class that a node comes to hold must be listed here, or in ``protocol.state.values``."""
    from headwater.node.tasks import predicates

    vocabulary = Vocabulary(
        _classes(),
        made={
            **MADE,
            "Engine": Made(Engine, _engine_parts, _engine),
            "Memory": Made(Memory, Memory.saved, _memory),
            "itemgetter": Made(itemgetter, lambda getter: getter.__reduce__()[1], _item_getter),
        },
        recipes={"row_condition": predicates.row_condition, "known_condition": predicates.known_condition},
        named={"tuple": tuple, "int": int},
    )
    upgrades = {1: _with_memory, 2: _with_ways_and_foresight}
    return Format(kind="node", number=NODE_STATE, vocabulary=vocabulary, upgrades=upgrades)


def _with_memory(tables: Tables) -> Tables:
    """From format 1: nodes did not look into remote tables, and share an empty memory of them now."""
    config = {"tables": EMPTY, "remote_strategy": ""}
    tables = with_fields(
        tables, {"Share": {"everywhere": True}, "NodeConfig": config, "TreeTasks": {"_everywhere": True}}
    )
    memory, shapes = [len(tables.values)], [list(shape) for shape in tables.shapes]
    added = {"NodeCore": ("memory", "_failed"), "Forest": ("_memory",), "Catalog": ("memory",)}
    places = {number: added[shape[0]] for number, shape in enumerate(shapes) if shape[0] in added}
    for number, names in places.items():
        shapes[number] += names
    shapes += [["Memory"], ["dict"]]
    values = [*tables.values, [DEFAULT, CACHE_BYTES, len(shapes) - 2]]
    objects = [list(entry) for entry in tables.objects]
    for entry in list(objects):
        names = places.get(entry[-1], ())
        if "_failed" in names:
            objects.append([len(shapes) - 1])
        entry[-1:-1] = [[-len(objects)] if name == "_failed" else memory for name in names]
    return Tables(shapes, values, objects, tables.root)


def _with_ways_and_foresight(tables: Tables) -> Tables:
    """From format 2: networks had no functions of a user's file, no tables that are not steady, and said nothing of
    single rules; nodes did not know who reaches which table, and learn it with the next plan."""
    config = {"functions": None, "remote_cache": "", "remote_priorities": EMPTY, "remote_strategies": EMPTY}
    share = {"ways": EMPTY, "reached_from": EMPTY}
    catalog = {"node": "", "reached_from": EMPTY}
    tables = with_fields(with_table_terms(tables), {"NodeConfig": config, "Share": share, "Catalog": catalog})
    return _with_foresight(_with_relay(tables))


def _with_relay(tables: Tables) -> Tables:
    """Nodes asked no neighbours for elements of remote tables, and have asked none now."""
    dicts = ("_delays_us", "_ways", "asked", "_until_us", "stranded", "askers", "_silent", "_refusals")
    shapes = [list(shape) for shape in tables.shapes]
    cores = {number: shape.index("memory") - 1 for number, shape in enumerate(shapes) if shape[0] == "NodeCore"}
    for number in cores:
        shapes[number].append("relay")
    shapes += [["Relay", "_memory", *dicts], ["dict"]]
    objects = [list(entry) for entry in tables.objects]
    for entry in list(objects):
        if entry[-1] in cores:
            first = len(objects)
            objects += [[len(shapes) - 1] for _ in dicts]
            inside = [[-number] for number in range(first + 1, len(objects) + 1)]
            objects.append([entry[cores[entry[-1]]], *inside, len(shapes) - 2])
            entry.insert(-1, [-len(objects)])
    return Tables(shapes, tables.values, objects, tables.root)


def _with_foresight(tables: Tables) -> Tables:
    """Nodes kept elements of remote tables, and had learnt nothing of which they will need."""

    def enlarged(entry: Any) -> list[Any]:
        if tables.shapes[entry[-1]][0] != "Memory":
            return list(entry)
        policy, cache_bytes, *content, shape = entry
        return [policy, cache_bytes, with_foresight(policy, cache_bytes, *content), shape]

    return Tables(tables.shapes, list(map(enlarged, tables.values)), list(map(enlarged, tables.objects)), tables.root)


def _classes() -> dict[str, type]:
    """By the names under which they are saved; those that have been renamed keep their first name there.

    The classes are imported here and not above: those of cores and machines import this module.
    """
    from headwater.node import core
    from headwater.node.daemon import duplicates as repeats
    from headwater.node.daemon import journal_records, link_state, machine, sink_state, trace_replays
    from headwater.node.delivery import matches, subscriptions
    from headwater.node.observe import selectivity
    from headwater.node.plans import (
        catalog,
        dataflow,
        forest,
        graph_tasks,
        lifecycle,
        node_plan,
        rule_store,
        stage_cost,
        tree_protocol,
        tree_tasks,
    )
    from headwater.node.pull import awakening, masters
    from headwater.node.remote import relay
    from headwater.node.step import Numbers
    from headwater.node.streams import (
        blockers,
        feeds,
        identity_map,
        neighbour_checks,
        outbox,
        outlets,
        overlaps,
        sources,
    )
    from headwater.node.tasks import task
    from headwater.node.tasks.aggregates import completion, planning, tallies

    return {
        **CLASSES,
        **by_name(Contest, PartialRule, Tally, Question, Total, Extreme),
        **by_name(core.NodeCore, core.NodeSettings, Numbers, relay.Relay),
        **by_name(machine.NodeMachine, sink_state.SinkState, trace_replays.ReplayState, journal_records.Publication),
        "LinkState": link_state.LinkState,
        "Outgoing": Outgoing,
        "JoinedParts": Joined,
        "LinkWire": LinkWire,
        **by_name(repeats._Device),
        "Seen": repeats.SeenCounters,
        "Found": matches.MatchBatch,
        **by_name(subscriptions.Delivered, subscriptions.Subscribers, subscriptions.Dispatcher),
        **by_name(selectivity.Predicate, selectivity.Selected),
        "Past": selectivity.PastCounts,
        "Joined": selectivity.JoinedRoles,
        **by_name(catalog.Catalog, forest.Forest, rule_store.RuleStore, node_plan.PlanShare),
        **by_name(lifecycle.State, lifecycle.TreeRecord, lifecycle.TreeTable),
        **by_name(tree_tasks.TreeTasks, graph_tasks.GraphTasks, dataflow.Dataflow),
        **by_name(stage_cost.StageWatch),
        "Patience": stage_cost.StagePatience,
        "StageCounter": stage_cost._Counter,
        "TreeBuild": tree_protocol.Build,
        "Trees": tree_protocol.Trees,
        **by_name(masters.Slot, masters.PushPull),
        "Reach": awakening.PullReach,
        **by_name(neighbour_checks.Shapes, neighbour_checks.Testimony, blockers.Candidates),
        **by_name(feeds.Inlet, feeds.Merge, feeds.Sieve, overlaps.Once, sources.LocalFeed, sources.EpochFeed),
        "Known": identity_map.IdentityMap,
        **by_name(identity_map._Stretch, outbox.Outbox, outbox.Inbox),
        **by_name(outlets.Outlet, outlets._Tap),
        "OutletWindow": outlets._Window,
        "OutletAsked": outlets._Asked,
        **by_name(task.JoinTask, completion.Completion),
        "CompletionCandidate": completion._Candidate,
        "CompletionPending": completion._Pending,
        **by_name(planning.AskingRule),
        "Asked": planning.AskedAggregate,
        **by_name(tallies.Tallies, tallies.TallyStore, tallies.TallyInlet, tallies.TallyPoint, tallies.TallyOutlet),
        "TallyOpen": tallies._Open,
    }


def _engine_parts(engine: Engine) -> tuple[Any, ...]:
    """All engines of a process with equal rules share a program, so whose rule it holds is chance: the rule is saved in
    its canonical encoding."""
    program = engine.program
    (rule,) = program.rules
    parts = (
        rule_encoding.encode(rule),
        tuple(program.types.values()),
        tuple(program.composites.values()),
        engine.snapshot(),
    )
    return parts if engine.asking is None else (*parts, engine.memory)


def _engine(encoded: Any, types: Any, composites: Any, snapshot: Any, memory: Any = None) -> Engine:
    from headwater.node.plans.catalog import compiled
    from headwater.node.tasks.rule_failures import NOTED

    rule = rule_encoding.decode(encoded)
    declared = (*types, *composites)
    if (
        type(rule) is not Rule
        or type(snapshot) is not bytes
        or not all(type(event_type) is EventType for event_type in declared)
        or (memory is not None and type(memory) is not Memory)
    ):
        raise StateError("the saved state is damaged: an engine that is none")
    accepting = frozenset() if memory is None else memory.accepting()
    engine = Engine(compiled(rule, types, composites, accepting), on_failure=NOTED.note, memory=memory)
    engine.restore(snapshot)
    return engine


def _memory(*parts: Any) -> Memory:
    try:
        return Memory.restored(*parts)
    except (KeyError, TypeError, ValueError, ConfigError) as error:
        raise StateError(
            f"the saved state is damaged: a memory of remote tables that is none ({error!r:.100})"
        ) from None


def _item_getter(place: Any) -> itemgetter[Any]:
    if type(place) is not int:
        raise StateError("the saved state is damaged: a column without a number")
    return itemgetter(place)


def save(state: Any) -> bytes:
    """The state with everything it holds."""
    return state_format().packed(state)


def restore(data: bytes) -> Any:
    """What was saved; a StateError if it is damaged or cannot be read by this version."""
    return state_format().read(data)
