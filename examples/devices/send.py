"""Publish the sample messages of a device family, as the devices would: python send.py zigbee2mqtt/messages.txt

The broker is the one at localhost:1883, or the one that a second word names (host:port). In the messages NOW_S and
NOW_MS stand for the time at which a message is sent.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import aiomqtt

BETWEEN_S = 1.0


def messages(file: Path) -> Iterator[tuple[str, str]]:
    """Topic and payload of each line."""
    for line in file.read_text(encoding="utf-8").splitlines():
        topic, _, payload = line.partition(" ")
        if payload:
            yield topic, payload


def sent_now(payload: str) -> str:
    now_ms = time.time_ns() // 1_000_000
    return payload.replace("NOW_S", f"{now_ms / 1000:.2f}").replace("NOW_MS", str(now_ms))


async def main(file: str, broker: str = "localhost:1883") -> None:
    host, _, port = broker.partition(":")
    async with aiomqtt.Client(host, int(port or 1883)) as client:
        for topic, payload in messages(Path(file)):
            print(topic, payload)
            await client.publish(topic, sent_now(payload), qos=1)
            await asyncio.sleep(BETWEEN_S)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
