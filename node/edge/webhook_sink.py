"""A sink whose deliveries are posted to a web address."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from headwater.node.edge.backoff import Backoff
from headwater.node.edge.in_flight import ConfirmWindow
from headwater.node.edge.interfaces import Deliveries, Edge, identity
from headwater.node.edge.names import shown
from headwater.node.edge.rate_limited_log import Seldom
from headwater.protocol.edge import WebhookTo

if TYPE_CHECKING:
    import aiohttp

UNDER_WAY_MAX: Final = 16
"""Posts without an answer yet; past it the sink waits, so that a slow receiver is not overrun."""
ANSWER_S_MAX: Final = 30.0
RETRY_AFTER_S_MAX: Final = 300.0  # what a receiver may ask for

log = logging.getLogger("headwater.edge")


class WebhookSinkAdapter:
    """An HTTP POST of the delivery as JSON for each, at least once, with its identity as ``Idempotency-Key``.

    A receiver that is away, overloaded or broken (no answer, 408, 429, 5xx) is tried again until it answers; one that
    refuses (any other answer but 2xx) will refuse for ever, and the delivery becomes a dead letter.
    """

    def __init__(self, number: int, destination: WebhookTo, edge: Edge, *, first_s: float = 0.5) -> None:
        self._number = number
        self._url = destination.url
        self._edge = edge
        self._first_s = first_s
        self._window = ConfirmWindow()
        self._room = asyncio.Event()
        self._back = asyncio.Event()
        """Set when the receiver takes something after it was away."""
        self._seldom = Seldom(log)
        self._refused: set[int] = set()
        """Deliveries that became dead letters and are not confirmed yet."""
        # It is not known before the first delivery; a receiver is not taken for away before it fails.
        self._presence = edge.present("sink", number, "", f"the receiver {shown(self._url)}", is_there=True)

    async def run(self, deliveries: Deliveries, confirmed: int) -> None:
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=ANSWER_S_MAX)
        async with aiohttp.ClientSession(timeout=timeout) as session, asyncio.TaskGroup() as posts:
            while True:
                for number, delivery in await deliveries.next():
                    while len(self._window) >= UNDER_WAY_MAX:
                        self._room.clear()
                        await self._room.wait()
                    self._window.opened(number)
                    posts.create_task(self._post(session, deliveries, number, delivery))

    async def _post(
        self, session: aiohttp.ClientSession, deliveries: Deliveries, number: int, delivery: dict[str, Any]
    ) -> None:
        body = json.dumps(delivery, ensure_ascii=False).encode()
        headers = {"Content-Type": "application/json", "Idempotency-Key": identity(delivery)}
        backoff = Backoff(first_s=self._first_s, most_s=60.0)
        while True:
            trouble, retry_after_s = await self._try(session, body, headers, number)
            if not trouble:
                self._presence.came()
                self._back.set()
                break
            self._edge.count("webhook_retries")
            self._presence.went(trouble)
            self._back.clear()
            await self._pause(backoff.next_s(), retry_after_s)
        last = self._window.answered(number)
        if last is not None:
            refused = {delivery_number for delivery_number in self._refused if delivery_number <= last}
            self._refused -= refused
            deliveries.confirm(last, refused=len(refused))
            self._room.set()

    async def _pause(self, wait_s: float, retry_after_s: float) -> None:
        """Wait so long, or until the receiver takes another delivery; but as long as it asks for."""
        if retry_after_s:
            await asyncio.sleep(max(wait_s, retry_after_s))
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(self._back.wait(), wait_s)

    async def _try(
        self, session: aiohttp.ClientSession, body: bytes, headers: dict[str, str], number: int
    ) -> tuple[str, float]:
        """Why it must be tried again, and not before how many seconds; an empty reason if it is settled."""
        import aiohttp

        try:
            async with session.post(self._url, data=body, headers=headers, allow_redirects=False) as answer:
                status = answer.status
                if status in (408, 429) or status >= 500:
                    return f"answered {status}", _seconds(answer.headers.get("Retry-After"))
                if 200 <= status < 300:
                    self._edge.count("webhook_posts")
                    return "", 0.0
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return str(error) or type(error).__name__, 0.0
        self._edge.count("webhook_refusals")
        self._refused.add(number)
        self._edge.dead_letters.put(f"sink {self._number}", body, f"{self._url} answered {status}")
        self._seldom.say(
            "refused",
            f"sink {self._number}: {shown(self._url)} refused a delivery with {status}; it is a dead letter, "
            "in dead-letters.jsonl",
        )
        return "", 0.0


def _seconds(text: str | None) -> float:
    """What a receiver asks for, in seconds; a date it may write instead is not read."""
    return min(float(text), RETRY_AFTER_S_MAX) if text is not None and text.isdecimal() else 0.0
