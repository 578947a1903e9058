"""Smoke detectors and thermometers of four areas, as MQTT devices. They know nothing of Headwater.

    python devices.py [--broker 127.0.0.1:1883] [--seconds 20] [--smoke 1] [--heat 40] [--log FILE]

Each reading is one JSON message with the name of its device and a counter. ``--log`` writes down what was published and
when, one JSON object per line.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import json
import random
import sys
import time
from collections.abc import Iterator
from typing import Any

import aiomqtt

AREAS = ("A1", "A2", "A3", "A4")


def readings(smoke_per_s: float, heat_per_s: float, seed: int) -> Iterator[tuple[float, str, dict[str, Any]]]:
    """When (in seconds), on which topic, what; for ever."""
    rng = random.Random(seed)
    begin = time.time_ns() // 1000  # counters must go on when devices are started again: the clock does
    counters: dict[str, int] = {}
    due = [(rng.expovariate(smoke_per_s), "smoke"), (1 / heat_per_s, "temperature")]
    heapq.heapify(due)
    while True:
        at_s, kind = heapq.heappop(due)
        area = rng.choice(AREAS)
        device = f"{kind}-{area}"
        counters[device] = counters.get(device, begin) + 1
        reading: dict[str, Any] = {"device": device, "n": counters[device], "area": area}
        if kind == "temperature":
            reading["value"] = round(rng.gauss(30, 8), 1)
        yield at_s, f"sensors/{area}/{kind}", reading
        gap_s = rng.expovariate(smoke_per_s) if kind == "smoke" else 1 / heat_per_s
        heapq.heappush(due, (at_s + gap_s, kind))


async def publish(host: str, port: int, seconds: float, made: Iterator[Any], log: Any) -> int:
    """Publish until the time is up, each reading when its time has come; how many it were."""
    count = 0
    async with aiomqtt.Client(host, port, identifier="fire-devices") as broker:
        began_s = time.monotonic()
        for at_s, topic, reading in made:
            if at_s >= seconds:
                return count
            await asyncio.sleep(began_s + at_s - time.monotonic())
            await broker.publish(topic, json.dumps(reading), qos=1)
            if log is not None:
                print(json.dumps({"topic": topic, "at": time.time_ns() // 1000, **reading}), file=log)
            count += 1
    return count


def main() -> None:
    options = argparse.ArgumentParser(description="Devices that measure smoke and temperature, over MQTT.")
    options.add_argument("--broker", default="127.0.0.1:1883", help="HOST:PORT")
    options.add_argument("--seconds", type=float, default=20)
    options.add_argument("--smoke", type=float, default=1, help="readings a second of all smoke detectors together")
    options.add_argument("--heat", type=float, default=40, help="readings a second of all thermometers together")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--log", type=argparse.FileType("w"), default=None)
    given = options.parse_args()
    host, _, port = given.broker.rpartition(":")
    made = readings(given.smoke, given.heat, given.seed)
    try:
        count = asyncio.run(publish(host, int(port), given.seconds, made, given.log))
    except aiomqtt.MqttError as error:
        sys.exit(f"devices: the broker at {given.broker} does not answer: {error}; is the network up?")
    print(f"{count} readings published", file=sys.stderr)


if __name__ == "__main__":
    main()
