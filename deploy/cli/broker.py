"""``headwater broker``: the embedded MQTT broker as a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from typing import Annotated

import typer

from headwater.deploy.cli.common import RunFailed
from headwater.deploy.network.units import host_and_port
from headwater.protocol.errors import ConfigError


def broker(
    listen: Annotated[
        str, typer.Option(help="Where to listen; port 1883 is what devices expect.", metavar="HOST:PORT")
    ] = "127.0.0.1:1883",
) -> None:
    """Run a small MQTT broker.

    It is for trials on a machine without a broker: MQTT 3.1.1, QoS 0 and 1, no passwords, no encryption, and nothing on
    disk, so messages that it holds are lost when it is killed. A network that must not lose messages needs a broker
    with persistence, such as Mosquitto (docs/guide/edge.md).

    Example: headwater broker --listen 0.0.0.0:1883
    """
    address = host_and_port(listen)
    if address is None:
        raise ConfigError(f"{listen!r} is not a host and a port; write --listen 127.0.0.1:1883")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    asyncio.run(_until_stopped(*address))


async def _until_stopped(host: str, port: int) -> None:
    from headwater.node.edge.broker import serve

    serving = asyncio.ensure_future(serve(host, port))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        try:
            await serving
        except ConfigError as error:
            raise RunFailed(str(error)) from error  # the address is one, and another process has it
