"""Targets of a replay: which node takes which events, whether the trace fits the network, and when all is done."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from headwater.deploy.cluster.pages import ask
from headwater.deploy.cluster.runs import Run
from headwater.deploy.cluster.status import ProcessRow, rows
from headwater.pipeline.prepare.prepared_trace import PreparedTrace
from headwater.pipeline.replay.replay import LISTED_MAX, Targets
from headwater.protocol.errors import ConfigError
from headwater.protocol.links import make_keys
from headwater.protocol.messages.replay import REPLAYER
from headwater.protocol.text import listed

ASKED_AT_ONCE: Final = 16
ANSWER_S_MAX: Final = 5.0
LOOK_S: Final = 0.2  # how often it is asked whether everything has arrived
SAY_S: Final = 5.0  # how often the waiting user is told what for


@dataclass(frozen=True, slots=True)
class Taker:
    """A node, and its sources that are replayed."""

    node: str
    address: str
    http: str
    sources: Mapping[str, Mapping[str, Any]]
    """By type what the node says of the source."""


def takers(run: Run) -> list[Taker]:
    """The nodes of a run with their sources that are replayed; a ConfigError if the run is not up."""
    if not run.is_kept():
        raise ConfigError(f"{run.name} is not up; start it with: headwater up {run.plan().network}")
    nodes = [row for row in rows(run) if row.role == "node"]
    away = [f"{row.name} is {row.state}" for row in nodes if row.state in ("restarting", "dead")]
    if away:
        raise ConfigError(f"{run.name} is not all there: {', '.join(away[:LISTED_MAX])}; look at headwater ps")
    with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
        return list(pool.map(_taker, nodes))


def _taker(row: ProcessRow) -> Taker:
    answer = None if row.http is None else ask(row.http, "/sources", ANSWER_S_MAX)
    if row.http is None or row.address is None or answer is None or answer[0] != 200:
        raise ConfigError(f"{row.name} does not answer at {row.http}; look at headwater ps and headwater logs")
    sources = {source["type"]: source for source in answer[1] if source["feed"] == "replay"}
    return Taker(row.name, row.address, row.http, sources)


def targets_of(run: Run, nodes: list[Taker], prepared: PreparedTrace, *, only_known: bool) -> Targets:
    """Where the events of a trace go. A ConfigError says what of it does not fit the network; that nodes lack sources
    for some of their types shows only when the trace is read."""
    feeding = [taker for taker in nodes if taker.sources]
    if not feeding:
        raise ConfigError(f"no source of {run.name} is replayed; write replay: any for sources in {run.plan().network}")
    manifest = prepared.manifest
    feeding_nodes = {taker.node for taker in feeding}
    if not only_known:
        strange = [
            f"{node} ({share.events:,} events)" for node, share in manifest.nodes.items() if node not in feeding_nodes
        ]
        if strange:
            raise ConfigError(
                f"the trace {prepared.folder} has events for nodes that {run.name} does not have, or that replay "
                f"nothing: {listed(strange, LISTED_MAX)}; name nodes alike, or leave such events out with --only-known"
            )
    declared = {name: source["attributes"] for taker in feeding for name, source in taker.sources.items()}
    wrong = [
        sentence
        for name, attributes in sorted(declared.items())
        if name in manifest.types
        for sentence in _misfits(name, attributes, manifest.types[name].attributes)
    ]
    if wrong:
        raise ConfigError(
            f"the trace {prepared.folder} does not fit the types of {run.name}: {listed(wrong, LISTED_MAX)}"
        )
    for taker in feeding:
        for source in taker.sources.values():
            begun = source["replay"]
            if begun is not None and begun["trace"] != manifest.checksum:
                raise ConfigError(
                    f"{taker.node} has begun to replay another trace (checksum {begun['trace']}, this one has "
                    f"{manifest.checksum}); replay that one, or start the network over (headwater up --fresh)"
                )
    keys = None
    if run.keys.is_dir():
        make_keys(run.keys, [REPLAYER])
        keys = str(run.keys.absolute())
    return Targets(
        run.name,
        {taker.node: taker.address for taker in feeding},
        frozenset((taker.node, name) for taker in feeding for name in taker.sources),
        {name: _sent(attributes, prepared, name) for name, attributes in declared.items()},
        keys,
        {taker.node: _reached(taker) for taker in feeding},
    )


def _reached(taker: Taker) -> int:
    return max(
        0 if source["replay"] is None else int(source["replay"]["last_seq"]) for source in taker.sources.values()
    )


def _sent(declared: Mapping[str, str], prepared: PreparedTrace, name: str) -> tuple[str, ...]:
    """The attributes that the network has declared and the trace has."""
    recorded = prepared.manifest.types.get(name)
    return () if recorded is None else tuple(attribute for attribute in declared if attribute in recorded.attributes)


def _misfits(name: str, declared: Mapping[str, str], recorded: Mapping[str, str]) -> list[str]:
    """What of a type in a trace is not what the network has declared."""
    sentences = []
    for attribute, kind in declared.items():
        word, optional = kind.removesuffix("?"), kind.endswith("?")
        has = recorded.get(attribute)
        if has is None:
            if not optional:
                sentences.append(f"{name} has no {attribute} there, and the network declares it {kind}")
            continue
        if has.endswith("?") and not optional:
            sentences.append(f"some {name} have no {attribute} there; declare it {word}?")
        if word not in ("any", has.removesuffix("?")) and (word, has.removesuffix("?")) != ("float", "int"):
            sentences.append(f"{name}.{attribute} is {has} there, and the network declares it {kind}")
    return sentences


def wait_until_drained(nodes: list[Taker], say: Callable[[str], None]) -> None:
    """Until nothing is under way in the network any more. ``say`` hears what is waited for, now and then."""
    said_s = time.monotonic()
    pause_s = LOOK_S / 4
    with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
        while True:
            waiting = [reason for reason in pool.map(_waiting, nodes) if reason is not None]
            if not waiting:
                return
            if time.monotonic() - said_s > SAY_S:
                said_s = time.monotonic()
                say(f"waiting until the network has drained, at {len(waiting)} of {len(nodes)} nodes: {waiting[0]}")
            time.sleep(pause_s)
            pause_s = min(LOOK_S, 2 * pause_s)


def _waiting(taker: Taker) -> str | None:
    answer = ask(taker.http, "/waiting", ANSWER_S_MAX)
    if answer is None:
        return f"{taker.node} does not answer"
    return f"{taker.node}: {answer[1][0]}" if answer[1] else None
