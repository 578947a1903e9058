"""Shows on a terminal what a running network finds, as a client program at one of its nodes."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from headwater.deploy.cli.common import RunFailed, say
from headwater.deploy.cli.running_network import Json, Running
from headwater.node.client import Client, ClientError
from headwater.protocol.errors import ConfigError
from headwater.protocol.links import Keys, make_keys

CONNECT_S_MAX: Final = 15.0
READ_S: Final = 0.01  # a moment in which the last one counts as read
LEAVE_S_MAX: Final = 10.0  # for giving a subscription up at the end


def address_of(network: Running, node: Json) -> str:
    """Where programs reach a node."""
    if network.run is not None:
        for process in network.run.plan().nodes():
            if process.name == node["name"] and process.address is not None:
                return process.address
    if not node["address"]:
        raise ConfigError(f"{node['name']} has not reported its address; headwater ps shows its state")
    return str(node["address"])


@contextlib.contextmanager
def keys_of(network: Running, name: str, folder: Path | None, *, lasting: bool) -> Iterator[Keys | None]:
    """The keys of the terminal where links are encrypted. In the folder of a run they are made, and removed again with
    a name that does not last."""
    if folder is not None:
        yield Keys.read(folder, name)
        return
    run = network.run
    if run is None or not run.keys.is_dir():
        yield None
        return
    make_keys(run.keys, [name])
    try:
        yield Keys.read(run.keys, name)
    finally:
        if not lasting:
            for ending in ("key", "pub"):
                (run.keys / f"{name}.{ending}").unlink(missing_ok=True)


class TerminalListener:
    """Listens until it is told to stop, by Ctrl-C or SIGTERM, or has heard enough."""

    def __init__(self, node: str, address: str, name: str, network: str, keys: Keys | None, *, lasting: bool) -> None:
        self._client = Client(node, address, name=name, network=network, keys=keys)
        self._lasting = lasting
        """Whether the subscription stays when the terminal leaves."""

    async def listen(
        self, text: str, count: int | None, subscribed: Callable[[], None], show: Callable[[dict[str, Any]], None]
    ) -> None:
        hearing = asyncio.ensure_future(self._hear(text, count, subscribed, show))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop, hearing)
        with contextlib.suppress(asyncio.CancelledError):
            await hearing

    @staticmethod
    def _stop(hearing: asyncio.Future[None]) -> None:
        """The first signal stops in good order; a user who sends a second one does not want to wait for that."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
        hearing.cancel()

    async def _hear(
        self, text: str, count: int | None, subscribed: Callable[[], None], show: Callable[[dict[str, Any]], None]
    ) -> None:
        is_subscribed = asyncio.Event()
        async with self._client as client:
            await self._connected(client)
            deliveries = client.subscribe(text, on_subscribed=is_subscribed.set)
            telling = asyncio.ensure_future(_call_once_set(is_subscribed, subscribed))
            heard = 0
            try:
                async for item in deliveries:
                    show(item)
                    heard += 1
                    if heard == count:
                        with contextlib.suppress(TimeoutError):  # who asks for the next has read the last
                            await asyncio.wait_for(anext(deliveries), READ_S)
                        break
            finally:
                telling.cancel()
                if is_subscribed.is_set():
                    await asyncio.shield(self._leave(deliveries, text))

    @staticmethod
    async def _connected(client: Client) -> None:
        try:
            await client.connected(CONNECT_S_MAX)
        except ClientError as error:
            raise RunFailed(str(error)) from None

    async def _leave(self, deliveries: Any, text: str) -> None:
        """The subscription is given up, unless it is to stay."""
        await deliveries.aclose()
        if self._lasting:
            return
        try:
            await asyncio.wait_for(self._client.unsubscribe(text), LEAVE_S_MAX)
        except (TimeoutError, ClientError):
            say(
                f"{self._client.node} does not answer, so the subscription of {self._client.name} stays; "
                "headwater subscriptions shows its number, headwater unsubscribe ends it"
            )


async def _call_once_set(is_subscribed: asyncio.Event, subscribed: Callable[[], None]) -> None:
    await is_subscribed.wait()
    await asyncio.to_thread(subscribed)
