"""``headwater rules``: the rules of a running network."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.deploy.cli.common import say
from headwater.deploy.cli.network_options import HOME, CoordinatorUrl, RunFolder, RunName
from headwater.deploy.cli.tables import print_table
from headwater.protocol.errors import ConfigError
from headwater.protocol.text import closest, listed

if TYPE_CHECKING:
    from headwater.deploy.cli.running_network import Json


def rules(
    rule: Annotated[
        str | None, typer.Argument(help="Print the text of this rule.", metavar="RULE", show_default=False)
    ] = None,
    name: RunName = None,
    folder: RunFolder = HOME,
    coordinator: CoordinatorUrl = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per rule and line.")] = False,
) -> None:
    """List the rules of a running network: since when each holds, and which nodes evaluate it.

    \b
    headwater rules
    headwater rules Fire
    """
    from headwater.deploy.cli.running_network import reached

    network = reached(name, folder, coordinator, None, None, purpose="look at")
    deployed = network.rules()
    if rule is not None:
        deployed = [row for row in deployed if row["name"] == rule] or _missing(rule, [row["name"] for row in deployed])
    places = network.evaluated_at()
    if as_json:
        for row in deployed:
            print(json.dumps({**row, "evaluated_at": places.get(row["name"], [])}, ensure_ascii=False))
    elif rule is not None:
        for row in deployed:
            print(row["text"].rstrip())
    elif not deployed:
        print("no rule is deployed")
    else:
        print_table(
            ("NAME", "VERSION", "EMITS", "READS", "HOLDS FROM", "EVALUATED AT"),
            [_cells(row, places.get(row["name"], [])) for row in deployed],
        )
        if any(row["name"] not in places for row in deployed):
            say("-: no node reports that it evaluates the rule; a rule without a subscription need not be evaluated")


def _missing(rule: str, names: list[str]) -> list[Json]:
    near = closest(rule, names)
    hint = f"did you mean {near!r}?" if near else f"there are: {listed(names) or 'none'}"
    raise ConfigError(f"there is no rule {rule!r}; {hint}")


def _cells(rule: Json, places: list[str]) -> tuple[str, ...]:
    from headwater.protocol.text import show_ts

    holds = "the beginning" if rule["since_us"] is None else show_ts(rule["since_us"])
    if rule["until_us"] is not None:
        holds += f" until {show_ts(rule['until_us'])}"
    return (
        rule["name"],
        str(rule["version"]),
        rule["emits"],
        listed(rule["reads"], 4),
        holds,
        listed(places, 6) or "-",
    )
