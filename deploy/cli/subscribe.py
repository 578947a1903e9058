"""``headwater subscribe``, ``subscriptions`` and ``unsubscribe``: subscriptions of a running network."""

from __future__ import annotations

import asyncio
import json
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from headwater.deploy.cli.changes import held_until, since, waiting
from headwater.deploy.cli.common import say
from headwater.deploy.cli.network_options import HOME, CoordinatorUrl, RunFolder, RunName, Token, TokenFile
from headwater.deploy.cli.tables import print_table
from headwater.protocol.destinations import WAYS
from headwater.protocol.errors import ConfigError
from headwater.protocol.text import closest, listed

if TYPE_CHECKING:
    from headwater.deploy.cli.running_network import Json, Running

TO_EXAMPLE: Final = "write --to file:PATH, mqtt:TOPIC, webhook:URL, client:NAME or stdout"


def subscribe(
    subscription: Annotated[
        str, typer.Argument(help="A type and conditions, as in \"Fire(area = 'A1')\".", metavar="SUBSCRIPTION")
    ],
    at: Annotated[
        str | None,
        typer.Option(
            "--at", help="The node that delivers. [default: the first that is up]", metavar="NODE", show_default=False
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            help="file:PATH, mqtt:TOPIC, webhook:URL, client:NAME or stdout (of the node). [default: this terminal]",
            metavar="WHERE",
            show_default=False,
        ),
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", "-n", help="Stop after N events.", metavar="N", min=1, show_default=False)
    ] = None,
    program: Annotated[
        str | None,
        typer.Option(
            "--as",
            help="Act as the program of this name: the subscription stays, and deliveries wait while it is away.",
            metavar="NAME",
            show_default=False,
        ),
    ] = None,
    keys: Annotated[
        Path | None,
        typer.Option(help="With --coordinator, if links are encrypted: the folder of keys.", metavar="DIR"),
    ] = None,
    name: RunName = None,
    folder: RunFolder = HOME,
    coordinator: CoordinatorUrl = None,
    token: Token = None,
    token_file: TokenFile = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="With --to: print the answer of the coordinator, as one JSON object.")
    ] = False,
) -> None:
    """Subscribe to events of a running network and print them as they are found.

    Prints each event or composite event as a JSON line, until Ctrl-C or --count. The subscription holds from the time
    that is printed first, and is removed when the command ends.

    With --to, the network delivers elsewhere, also after the command has ended; `headwater subscriptions` lists such
    subscriptions, `headwater unsubscribe` removes them. A relative PATH is in the data folder of the node.

    \b
    headwater subscribe Fire
    headwater subscribe "Fire(area = 'A1')" --at p2 --count 10
    headwater subscribe Fire --at p1 --to webhook:https://example.org/fires
    """
    from headwater.deploy.cli.running_network import reached

    destination = None if to is None else _destination(to)
    if destination is not None and (count is not None or program is not None or keys is not None):
        raise ConfigError(
            "--count, --as and --keys are for what is printed here; with --to the network delivers elsewhere"
        )
    network = reached(name, folder, coordinator, token, token_file, purpose="look at")
    node = _node(network, at)
    if destination is None:
        _print_live(network, node, subscription, count, program, keys)
        return
    with waiting(f"waiting until {node['name']} delivers"):
        body = {"node": node["name"], "subscribe": subscription, "to": destination}
        answer = network.change("POST", "/subscriptions", body)
    if as_json:
        print(json.dumps(answer, ensure_ascii=False))
        return
    number = answer["subscription"]
    print(f"subscription {number}: what ends {since(answer['holds_from_us'])} goes from {node['name']} to {to}")
    say(f"headwater unsubscribe {number} removes it")


def _destination(to: str) -> Any:
    """``file:x`` as network files and the coordinator write it."""
    if to in ("stdout", "client"):
        return to
    way, colon, name = to.partition(":")
    if not colon or way not in WAYS or not name.strip():
        near = closest(way, (*WAYS, "stdout"))
        hint = f"did you mean {near!r}? " if near is not None and near != way else ""
        raise ConfigError(f"a subscription cannot go to {to!r}; {hint}{TO_EXAMPLE}")
    return {way: name.strip()}


def _node(network: Running, at: str | None) -> Json:
    """The node that is meant; without a name the first that is up."""
    nodes = network.nodes()
    if at is None:
        return next((node for node in nodes if node["state"] == "up"), nodes[0])
    named = next((node for node in nodes if node["name"] == at), None)
    if named is None:
        names = [node["name"] for node in nodes]
        near = closest(at, names)
        hint = f"did you mean {near!r}?" if near else f"there are: {listed(names)}"
        raise ConfigError(f"the network has no node {at!r}; {hint}")
    return named


# ---------------------------------------------------------------------------------------------------- on this terminal


def _print_live(
    network: Running, node: Json, text: str, count: int | None, program: str | None, keys: Path | None
) -> None:
    from headwater.deploy.cli.terminal_subscriber import TerminalListener, address_of, keys_of

    name = program or f"terminal-{secrets.token_hex(4)}"
    address = address_of(network, node)
    with keys_of(network, name, keys, lasting=program is not None) as link_keys:
        listener = TerminalListener(
            node["name"], address, name, str(network.look("/network")["id"]), link_keys, lasting=program is not None
        )

        def subscribed() -> None:
            ours = [row for row in network.subscriptions() if row["to"] == {"client": name}]
            holds = since(ours[-1]["since_us"]) if ours else "from now on"
            say(f"{node['name']} delivers {text} {holds}; Ctrl-C ends")

        def show(item: Json) -> None:
            shown = {key: value for key, value in item.items() if key != "delivery"}
            print(json.dumps(shown, ensure_ascii=False), flush=True)

        asyncio.run(listener.listen(text, count, subscribed, show))
        if program is not None:
            say(f"the subscription stays: what is found waits at {node['name']} for {name}; "
                f"headwater subscriptions lists it, headwater unsubscribe removes it")  # fmt: skip


# ------------------------------------------------------------------------------------------------------ those that stay


def subscriptions(
    name: RunName = None,
    folder: RunFolder = HOME,
    coordinator: CoordinatorUrl = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per subscription and line.")] = False,
) -> None:
    """List the subscriptions of a running network, including those of the network file."""
    from headwater.deploy.cli.running_network import reached

    rows = reached(name, folder, coordinator, None, None, purpose="look at").subscriptions()
    if as_json:
        for row in rows:
            print(json.dumps(row, ensure_ascii=False))
    elif not rows:
        print("there are no subscriptions")
    else:
        print_table(("NUMBER", "NODE", "SUBSCRIPTION", "TO", "HOLDS FROM"), [_cells(row) for row in rows])


def _cells(row: Json) -> tuple[str, ...]:
    from headwater.protocol.text import show_ts

    to = row["to"]
    where = to if isinstance(to, str) else next(f"{way}:{to[way]}" for way in WAYS if way in to)
    holds = "the beginning" if row["since_us"] is None else show_ts(row["since_us"])
    return str(row["number"]), row["node"], row["subscribe"], where, holds


def unsubscribe(
    numbers: Annotated[
        list[int],
        typer.Argument(help="Numbers of subscriptions, as `headwater subscriptions` shows them.", metavar="NUMBER.."),
    ],
    name: RunName = None,
    folder: RunFolder = HOME,
    coordinator: CoordinatorUrl = None,
    token: Token = None,
    token_file: TokenFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per subscription and line.")] = False,
) -> None:
    """Remove subscriptions from a running network.

    The command returns when all nodes have removed them. Composite events that end before the printed time are still
    delivered.
    """
    from headwater.deploy.cli.running_network import reached

    network = reached(name, folder, coordinator, token, token_file, purpose="change")
    present = [row["number"] for row in network.subscriptions()]
    for number in numbers:
        if number not in present:
            there = f"there are: {listed(map(str, present))}" if present else "there is none at all"
            raise ConfigError(f"there is no subscription {number}; {there}")
    for number in dict.fromkeys(numbers):
        with waiting(f"waiting until all nodes know that subscription {number} ends"):
            answer = network.change("DELETE", f"/subscriptions/{number}")
        if as_json:
            print(json.dumps(answer, ensure_ascii=False))
        else:
            print(f"subscription {number} is ended{held_until(answer['holds_from_us'])}")
