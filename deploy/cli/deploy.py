"""``headwater deploy`` and ``undeploy``: rules of a running network."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.deploy.cli.changes import held_until, since, waiting
from headwater.deploy.cli.common import read_sources, say
from headwater.deploy.cli.network_options import HOME, CoordinatorUrl, RunFolder, RunName, Token, TokenFile
from headwater.protocol.errors import ConfigError
from headwater.protocol.languages import Diagnostic, RuleTextError, Source, rule_names
from headwater.protocol.languages.rule_texts import decode
from headwater.protocol.text import closest, listed

if TYPE_CHECKING:
    from headwater.deploy.cli.running_network import Json, Running


def deploy(
    files: Annotated[list[Path], typer.Argument(help="Rule files (.tesla, .sase).", metavar="FILE..")],
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace deployed rules that have the same names.")
    ] = False,
    name: RunName = None,
    folder: RunFolder = HOME,
    coordinator: CoordinatorUrl = None,
    token: Token = None,
    token_file: TokenFile = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the answer of the coordinator, as one JSON object.")
    ] = False,
) -> None:
    """Deploy rules in a running network.

    The command returns when all nodes have the rules. A rule sees events from the printed time on, as if there had been
    none before. Files may declare new event types. Errors are shown as `headwater check` shows them, and then nothing
    is deployed.

    Composite events are delivered to subscriptions: sinks in the network file, or `headwater subscribe`.

    \b
    headwater deploy fire.tesla alarm.sase
    headwater deploy --replace fire.tesla
    """
    from headwater.deploy.cli.running_network import Conflict, reached

    sources = read_sources(files)
    bodies = [{"text": _text(source), "language": source.language, "name": source.name} for source in sources]
    network = reached(name, folder, coordinator, token, token_file, purpose="change")
    before = {rule["name"]: rule for rule in network.rules() if rule["until_us"] is None}
    path = "/rules?replace=true" if replace else "/rules"
    try:
        with waiting("waiting until all nodes have the rules"):
            answer = network.change("POST", path, {"files": bodies})
    except Conflict as error:
        deployed = [rule for rule in rule_names(sources) if rule in before]
        raise ConfigError(_already(deployed, files) if deployed and not replace else str(error)) from None
    if as_json:
        print(json.dumps(answer, ensure_ascii=False))
        return
    after = {rule["name"]: rule for rule in network.rules() if rule["until_us"] is None}
    for rule in answer["rules"]:
        print(_change_line(rule, before.get(rule), after.get(rule)))
    _say_unheard(network, [after[rule] for rule in answer["rules"] if rule in after], list(after.values()))


def _text(source: Source) -> str:
    decoded = decode(source)
    if isinstance(decoded, Diagnostic):
        raise RuleTextError([decoded])
    return decoded.text


def _already(deployed: Sequence[str], files: Sequence[Path]) -> str:
    are, them = ("is", "it") if len(deployed) == 1 else ("are", "them")
    return (
        f"{listed(deployed)} {are} deployed already; `headwater deploy --replace {' '.join(map(str, files))}` puts the "
        f"new in the place of the old, `headwater undeploy {' '.join(deployed)}` ends {them}"
    )


def _change_line(name: str, before: Json | None, after: Json | None) -> str:
    if after is None:
        return f"{name} was deployed, and is undeployed again"
    holds = since(after["since_us"])
    if before is None:
        return f"{name} is deployed; it holds {holds}"
    if after["version"] == before["version"]:
        return f"{name} is deployed as it is already; it holds {holds}"
    return f"{name} is replaced; version {after['version']} holds {holds}"


def _say_unheard(network: Running, deployed: Sequence[Json], rules: Sequence[Json]) -> None:
    """A rule whose composites have no subscription is evaluated nowhere: the user is told."""
    heard_types = {subscription["subscribe"].partition("(")[0].strip() for subscription in network.subscriptions()}
    heard_types |= {kind for rule in rules for kind in rule["reads"]}
    for kind in dict.fromkeys(rule["emits"] for rule in deployed):
        if kind not in heard_types:
            say(f"there is no subscription to {kind} yet; to see what is found: headwater subscribe {kind}")


def undeploy(
    names: Annotated[list[str], typer.Argument(help="Names of rules.", metavar="NAME..")],
    name: RunName = None,
    folder: RunFolder = HOME,
    coordinator: CoordinatorUrl = None,
    token: Token = None,
    token_file: TokenFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per rule and line.")] = False,
) -> None:
    """Remove rules from a running network.

    The command returns when all nodes have removed them. Composite events that end before the printed time are still
    delivered. A rule whose composite events another rule reads can only be removed together with that rule: name both.

    \b
    headwater undeploy Fire
    """
    from headwater.deploy.cli.running_network import in_reading_order, reached

    network = reached(name, folder, coordinator, token, token_file, purpose="change")
    rules = [rule for rule in network.rules() if rule["until_us"] is None]
    deployed = [rule["name"] for rule in rules]
    for rule in names:
        if rule not in deployed:
            raise ConfigError(_unknown(rule, deployed))
    for rule in in_reading_order(names, rules):
        with waiting(f"waiting until all nodes know that {rule} ends"):
            answer = network.change("DELETE", f"/rules/{rule}")
        if as_json:
            print(json.dumps(answer, ensure_ascii=False))
        else:
            print(f"{rule} is undeployed{held_until(answer['holds_from_us'])}")


def _unknown(name: str, deployed: Sequence[str]) -> str:
    near = closest(name, deployed)
    if near is not None:
        return f"no rule {name!r} is deployed; did you mean {near!r}?"
    are = "are" if len(deployed) > 1 else "is"
    return f"no rule {name!r} is deployed; there {are}: {listed(deployed) or 'no rule at all'}"
