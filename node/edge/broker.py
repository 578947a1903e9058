"""The embedded MQTT broker: amqtt, with what QoS 1 promises.

amqtt forgets a message when the connection breaks or the receiver takes more than five seconds to acknowledge it, keeps
nothing for a session without a username, and does not notice a client that falls silent. A node acknowledges when its
journal is on disk, so here a message is kept until it is acknowledged, and sent again to a session that has come back.
All of it is in memory: what the broker holds ends with its process.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Any, Final

from headwater.protocol.errors import ConfigError

SILENCE_S: Final = 5  # how much longer than its keep-alive a client may be silent

log = logging.getLogger("headwater.broker")


class EmbeddedBroker:
    """A broker in this process, for MQTT 3.1.1, QoS 0 and 1, without passwords and encryption: for one machine."""

    def __init__(self, host: str = "127.0.0.1", port: int = 1883) -> None:
        self.host = host
        self.port = port
        self._broker: Any = None

    async def start(self) -> None:
        """Listen, or a ConfigError that says why that is impossible."""
        quiet()
        from headwater.node.edge.qos1_broker import HeadwaterBroker

        bind = f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
        settings = {
            "listeners": {"default": {"type": "tcp", "bind": bind}},
            "plugins": {},
            "timeout_disconnect_delay": SILENCE_S,
        }
        self._broker = HeadwaterBroker(settings)
        logger = logging.getLogger("amqtt.broker")
        level = logger.level
        logger.setLevel(logging.CRITICAL)  # amqtt would show a traceback of what is said in a sentence here
        try:
            await self._broker.start()
        except Exception as error:
            self._broker = None
            why = error.__cause__
            number = why.errno if isinstance(why, OSError) else None
            shown = os.strerror(number) if number is not None and number > 0 else str(why or error)
            raise ConfigError(
                f"the broker cannot listen at {self.host}:{self.port}: {shown}; choose another address"
            ) from error
        finally:
            logger.setLevel(level)

    async def stop(self) -> None:
        if self._broker is not None:
            await self._broker.shutdown()
            self._broker = None


async def serve(host: str, port: int) -> None:
    """A broker until the task is cancelled."""
    broker = EmbeddedBroker(host, port)
    await broker.start()
    log.info("listening at %s:%d", host, port)
    try:
        await asyncio.Event().wait()
    finally:
        await broker.stop()


def quiet() -> None:
    """amqtt logs every client that comes or goes, and every packet: keep only what is wrong."""
    for name in ("amqtt", "transitions", "transitions.core"):
        logging.getLogger(name).setLevel(logging.ERROR)
