"""Options of the commands that use remote tables."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import typer

from headwater.deploy.cli.common import RunFailed
from headwater.node.remote.caches import CACHES
from headwater.node.remote.policies import DEFAULT, POLICIES
from headwater.node.remote.tables import AT_HAND, Tables, kind_of
from headwater.protocol.edge import TimeUnit
from headwater.protocol.errors import ConfigError
from headwater.protocol.network import Network
from headwater.protocol.text import listed, plural, seconds

UNITS: Final = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9}

RemoteOption = Annotated[
    list[str] | None,
    typer.Option(
        help="A table for REMOTE.NAME[..]: NAME=FILE (columns key or key1, key2.., value, optionally ts), "
        "NAME={sqlite: .., query: .., keys: [..]} and so on for postgres, redis, http and python, or a YAML file that "
        "describes several.",
        metavar="NAME=TABLE",
    ),
]
RemoteStrategyOption = Annotated[
    str,
    typer.Option(
        help="What waits for elements of remote tables that are not at hand; the results are the same. "
        + ". ".join(f"{name}: {policy.about}" for name, policy in POLICIES.items())
        + ".",
        metavar="|".join(POLICIES),
    ),
]
RuleStrategyOption = Annotated[
    list[str] | None,
    typer.Option(help="The same for a single rule.", metavar="RULE=STRATEGY"),
]
RemoteCacheOption = Annotated[
    str,
    typer.Option(help="How much of remote tables is kept, as in 64MB.", metavar="SIZE"),
]
RemoteCachePolicyOption = Annotated[
    str,
    typer.Option(
        help="What makes room when that is full. lru: what was not looked up for longest; cost: what is worth least "
        "for its size, by how many matches need it and how long it takes to fetch.",
        metavar="|".join(CACHES),
    ),
]
RemotePriorityOption = Annotated[
    list[str] | None,
    typer.Option(
        help="How much the matches of a rule count beside those of others where it is decided what to fetch ahead and "
        "what to keep of remote tables; 1 by default.",
        metavar="RULE=NUMBER",
    ),
]


LineageOption = Annotated[
    bool,
    typer.Option(
        "--lineage",
        help="Composite events say which values of remote tables they rest on. Of tables with fresh: they always do.",
    ),
]


def tables_of(
    options: Sequence[str] | None,
    unit: TimeUnit | None,
    strategy: str = DEFAULT,
    cache_size: str = "64MB",
    *,
    cache: str = "lru",
    strategies: Mapping[str, str] | None = None,
    priorities: Mapping[str, float] | None = None,
    lineage: bool = False,
) -> Tables:
    """The tables of ``--remote``; ``strategies`` and ``priorities``: of single rules."""
    if not options:
        return Tables({}, strategy, bytes_of(cache_size), cache=cache, strategies=strategies)
    from headwater.deploy.descriptions.remote import remote_tables  # it needs pydantic, which takes long to import

    return Tables(
        remote_tables(options, unit),
        strategy,
        bytes_of(cache_size),
        cache=cache,
        strategies=strategies,
        priorities=priorities,
        lineage=lineage,
    )


def strategies_of(options: Sequence[str] | None) -> dict[str, str]:
    """``Raised=lazy`` and so on, by rule."""
    strategies: dict[str, str] = {}
    for option in options or ():
        rule, equals, strategy = option.partition("=")
        if not equals:
            raise ConfigError(
                f"--remote-strategy-for {option!r} is no rule with a strategy; write it as in Raised=lazy"
            )
        strategies[rule.strip()] = strategy.strip()
    return strategies


def priorities_of(options: Sequence[str] | None) -> dict[str, float]:
    """``Raised=3`` and so on, by rule."""
    priorities: dict[str, float] = {}
    for option in options or ():
        rule, _, number = option.partition("=")
        try:
            priorities[rule.strip()] = float(number)
        except ValueError:
            raise ConfigError(
                f"--remote-priority {option!r} is no rule with a number; write it as in Raised=3"
            ) from None
    return priorities


def files_of(options: Sequence[str] | None) -> list[str]:
    """The files that the tables are read from."""
    if not options:
        return []
    from headwater.deploy.descriptions.remote import files_in

    return files_in(options)


def bytes_of(text: str) -> int:
    """``64MB``, ``500 kB`` as bytes."""
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]*)\s*", text)
    if found is None or found[2].lower() not in UNITS:
        raise ConfigError(f"{text!r} is not a size; write a number and a unit: kB, MB or GB (as in 64MB)")
    return round(float(found[1]) * UNITS[found[2].lower()])


def checked_tables(options: Sequence[str] | None, unit: TimeUnit | None, *, only_networks: bool, tried: bool) -> Tables:
    """The tables of ``headwater check``."""
    if tried and not options and not only_networks:
        raise ConfigError("--remote-check tries the tables that --remote names; name some")
    if options and only_networks:
        raise ConfigError("--remote is for rule files; a network file describes its tables itself (remote:)")
    return tables_of(options, unit)


def tables_of_network(network: Network) -> Tables:
    """The tables of a network file, as its nodes would ask them."""
    if not network.tables:
        return Tables({})
    from headwater.deploy.descriptions.remote import provided

    return Tables({table.name: provided(table.name, table.description) for table in network.tables})


def kinds_of(network: Network) -> dict[str, str]:
    """What a lookup in each table of a network file means, as far as that is known without asking providers."""
    if not network.tables:
        return {}
    from headwater.deploy.descriptions.remote import versioned_file

    return {table.name: kind_of(table.terms, versioned_file(table.description)) for table in network.tables}


def report_on(tables: Tables, *, tried: bool) -> None:
    """Print a line for each table: of what kind it is and, if they are to be tried, whether it can be used; fail if one
    cannot."""
    if not tried:
        print_kinds({name: tables.kind(name) for name in tables.by_name})
        return
    with tables:
        wrong = [name for name in tables.by_name if not _line_of(tables, name)]
    if wrong:
        raise RunFailed(f"{plural(len(wrong), 'remote table')} cannot be used: {listed(wrong)}")


def print_kinds(kinds: Mapping[str, str]) -> None:
    """A line for each table: what a lookup in it means."""
    for name, kind in kinds.items():
        print(f"remote {name}: {kind}")


def _line_of(tables: Tables, name: str) -> bool:
    started_s = time.monotonic()
    shown, error = tables.tried(name)
    took = f", {seconds(time.monotonic() - started_s)}" if shown != AT_HAND else ""
    print(f"remote {name}: {error}" if error else f"remote {name}: fine, {shown}, {tables.kind(name)}{took}")
    return error is None
