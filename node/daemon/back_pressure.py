"""Back-pressure that reaches every source: a full node tells all others, and sources wait until it has room.

A node never refuses what its neighbours send because its own buffers are full: two neighbours could wait for each other
for ever. Instead the news that a node is full travels through the network, from neighbour to neighbour, each piece of
news once, and all sources wait. It is whispered, so it may get lost: a node that is full repeats it, and news that is
not repeated expires, for instance because its origin has died.
"""

from __future__ import annotations

from typing import Any, Final

REPEAT_S: Final = 1.0
EXPIRE_S: Final = 3.5
FORGET_S: Final = 60.0  # news of an origin is known for so long: no piece of news travels longer
ORIGINS_MAX: Final = 10_000  # more nodes than any network has; a neighbour that invents names is not believed any more


class Pressure:
    """What one node knows of full nodes."""

    def __init__(self, name: str, started_us: int) -> None:
        self.name = name
        self._serial = started_us
        """Grows with each piece of news; begins with the clock, so that it also grows over a restart."""
        self._full = False
        self._news: dict[str, tuple[int, bool, float]] = {}
        """By origin: serial of its last news, whether it is full, and when that was heard."""

    def own(self, full: bool) -> list[Any] | None:
        """This node is full, or has room; the news for its neighbours, if that has changed."""
        if not full and not self._full:
            return None
        self._full = full
        self._serial += 1
        return [self.name, self._serial, full]

    def heard(self, news: Any, now_s: float) -> bool:
        """Whether the news is new, so that the other neighbours must hear it. Anything else is ignored."""
        match news:
            case [str(origin), int(serial), bool(full)] if origin != self.name:
                last = self._news.get(origin)
                if last is None and len(self._news) >= ORIGINS_MAX:
                    self._news = {name: old for name, old in self._news.items() if now_s - old[2] < FORGET_S}
                    if len(self._news) >= ORIGINS_MAX:
                        return False
                if last is None or serial > last[0] or now_s - last[2] >= FORGET_S:
                    self._news[origin] = (serial, full, now_s)
                    return True
        return False

    def full_nodes(self, now_s: float) -> list[str]:
        """All nodes that are full, as far as this node knows."""
        origins = [origin for origin, (_, full, at_s) in self._news.items() if full and now_s - at_s < EXPIRE_S]
        return sorted([*origins, self.name] if self._full else origins)
