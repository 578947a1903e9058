"""The demo: seven nodes detect fires as real processes that MQTT devices feed. ``scripts/demo`` runs it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from headwater.deploy.network.file import NetworkFile, read_network
from headwater.deploy.simulation.simulator import Birth, simulate
from headwater.node.observe.accounts import Traffic
from headwater.protocol.events import Event
from headwater.protocol.strategy import CENTRAL

EXAMPLE: Final = Path(__file__).resolve().parent.parent / "examples" / "fire"
SECONDS: Final = 15
SHOWN_MAX: Final = 12  # fires that are printed one by one
QUIET_S: Final = 3.0  # after the devices have stopped, how long nothing must come before everything has


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="headwater-demo-") as folder:
        _demonstrate(Path(folder))


def _demonstrate(folder: Path) -> None:
    file = read_network(EXAMPLE / "network.yaml")
    _say("Seven nodes: smoke is measured at p7, temperature at p6; sinks at p1 and p5 subscribe to fires.")
    print(_sketch())
    _say("A fire is smoke and, at most five minutes before it in the same area, a temperature above 45 degrees:")
    print((EXAMPLE / "fire.tesla").read_text(encoding="utf-8").strip())
    with _network(folder) as run:
        _say(f"MQTT devices publish for {SECONDS} seconds. p1 publishes these alarms as fires are detected:")
        fires, log = asyncio.run(_watch(run["broker"], folder))
        statistics = [_ask(node, "/statistics") for node in run["nodes"]]
    _report(file, fires, log, statistics)


# ------------------------------------------------------------------------------------------------------- the network


@contextmanager
def _network(folder: Path) -> Iterator[dict[str, Any]]:
    """The network of the example, up; where its nodes and its broker are."""
    _command("up", str(EXAMPLE / "network.yaml"), "--name", "demo", "--folder", str(folder))
    try:
        run = json.loads((folder / "demo" / "run.json").read_text(encoding="utf-8"))
        (broker,) = (process["address"] for process in run["processes"] if process["role"] == "broker")
        nodes = [process["http"] for process in run["processes"] if process["role"] == "node"]
        yield {"nodes": nodes, "broker": broker.partition("://")[2]}
    finally:
        _command("down", "--name", "demo", "--folder", str(folder))


def _command(*arguments: str) -> None:
    print(f"\n$ headwater {' '.join(arguments)}", flush=True)
    done = subprocess.run([sys.executable, "-m", "headwater.deploy.cli.command", *arguments], check=False)
    if done.returncode:
        sys.exit(done.returncode)


def _ask(address: str, path: str) -> Any:
    with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as answer:
        return json.load(answer)


# --------------------------------------------------------------------------------------------------- devices and fires


async def _watch(broker: str, folder: Path) -> tuple[int, list[dict[str, Any]]]:
    """Run the devices and print what consumers hear; how many fires that were, and what was published."""
    import aiomqtt

    host, _, port = broker.rpartition(":")
    count = 0
    async with aiomqtt.Client(host, int(port), identifier="fire-brigade") as consumer:
        await consumer.subscribe("alarms/#", qos=1)
        log = folder / "published.jsonl"
        script = [str(EXAMPLE / "devices.py"), "--broker", broker, "--seconds", str(SECONDS), "--log", str(log)]
        devices = await asyncio.create_subprocess_exec(sys.executable, *script)
        messages = aiter(consumer.messages)
        while True:
            try:
                message = await asyncio.wait_for(anext(messages), QUIET_S)
            except TimeoutError:
                if devices.returncode is not None:
                    break
                continue
            count += 1
            fire = json.loads(message.payload)
            if count <= SHOWN_MAX:
                attributes = fire["attributes"]
                parts = " and ".join(f"{part['type']} of {part['node']}" for part in fire["events"])
                print(
                    f"  {message.topic}: {attributes['temperature']} degrees in {attributes['area']} ({parts})",
                    flush=True,
                )
            elif count == SHOWN_MAX + 1:
                print("  ..", flush=True)
    return count, [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]


# ------------------------------------------------------------------------------------------------------------ traffic


def _report(file: NetworkFile, fires: int, published: list[dict[str, Any]], statistics: list[dict[str, Any]]) -> None:
    central = _centralised(file, published)
    _say("What crossed the links, compared with what a centralised system would have sent for the same readings:")
    measured = _measured(statistics)
    print(f"  {'':22}{'Headwater, measured':>22}{'centralised, computed':>24}")
    for unit in ("events", "messages", "bytes"):
        ours, theirs = getattr(measured, unit), getattr(central, unit)
        share = f"{ours / theirs:.1%}" if theirs else ""
        print(f"  {unit:22}{ours:>22,}{theirs:>24,}   {share}")
    print(f"\n{len(published)} readings, {fires} fires published by p1. Watermarks and control are included.")


def _measured(statistics: list[dict[str, Any]]) -> Traffic:
    """What nodes have sent to their neighbours, by receiver and kind."""
    total = Traffic()
    for node in statistics:
        for kinds in node["links"].values():
            for amount in kinds.values():
                total.events += amount["events"]
                total.messages += amount["messages"]
                total.bytes += amount["bytes"]
    return total


def _centralised(file: NetworkFile, published: list[dict[str, Any]]) -> Traffic:
    """Everything to one node, and composites back: computed by the simulator over the very same readings."""
    types = {declared.name: declared for declared in file.network.types}
    numbers = {source.type: number for number, source in enumerate(file.network.sources)}
    births: list[Birth] = []
    for reading in published:
        name = "Smoke" if reading["topic"].endswith("smoke") else "Temp"
        values = {attribute: reading[attribute] for attribute in types[name].attributes}
        event = Event(types[name], reading["at"], reading["device"], reading["n"], values)
        births.append((reading["at"], numbers[name], event))
    births.sort(key=lambda birth: birth[0])
    outcome = simulate(replace(file.network, strategy=CENTRAL), births)
    total = Traffic()
    for amount in outcome.traffic.values():
        total.events += amount.events
        total.messages += amount.messages
        total.bytes += amount.bytes
    return total


def _sketch() -> str:
    lines = (EXAMPLE / "network.yaml").read_text(encoding="utf-8").splitlines()
    drawn = [line.removeprefix("#") for line in lines if line.startswith("#  ")]
    return "\n".join(drawn)


def _say(sentence: str) -> None:
    bold, plain = ("\033[1m", "\033[0m") if sys.stdout.isatty() else ("", "")
    print(f"\n{bold}{sentence}{plain}", flush=True)


if __name__ == "__main__":
    main()
