"""The devices of a source: which have been heard, and which have left according to their last wills."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final

from headwater.protocol.edge import MqttFeed
from headwater.protocol.payload_maps import field_place, topic_names, walk

DEVICES_MAX: Final = 100_000
"""As many as a node remembers the counters of; beyond that the one that was silent longest is forgotten."""
NAME_CHARACTERS_MAX: Final = 256  # as in payloads; what a topic says beyond is cut off
SHOWN_MAX: Final = 100  # devices that have left and are named over HTTP; the others are only counted


class Devices:
    """Of one source. A device has left from its last will until the next event of it.

    In memory only: a process that starts knows of no device until it hears of one.
    """

    def __init__(self, event_type: str) -> None:
        self.type = event_type
        self._left_us: dict[str, int | None] = {}
        """Since when a device has left, None if it has not; the one that was silent longest first."""
        self.left_count = 0

    def heard(self, device: str) -> bool:
        """An event of the device has come; whether it had left before."""
        return self._note(device, None) is not None

    def left(self, device: str, now_us: int, *, is_old: bool = False) -> bool:
        """The last will of the device has come; whether it counts. An old one, which the broker had kept, says nothing
        about a device that was heard of since."""
        if is_old and device in self._left_us:
            return False
        self._note(device, now_us)
        return True

    def _note(self, device: str, since_us: int | None) -> int | None:
        before = self._left_us.pop(device, None)
        self._left_us[device] = since_us
        self.left_count += (since_us is not None) - (before is not None)
        if len(self._left_us) > DEVICES_MAX:
            self.left_count -= self._left_us.pop(next(iter(self._left_us))) is not None
        return before

    @property
    def present_count(self) -> int:
        return len(self._left_us) - self.left_count

    @property
    def all_left(self) -> bool:
        """Whether the source has left: devices were heard of, and none is there any more."""
        return 0 < len(self._left_us) == self.left_count

    def shown(self) -> dict[str, Any]:
        """For people: how many are there, and who has left since when (microseconds), the latest first."""
        gone = sorted(((since, name) for name, since in self._left_us.items() if since is not None), reverse=True)
        return {
            "left": self.all_left,
            "devices_present": self.present_count,
            "devices_left": len(gone),
            "who_left": [{"device": name, "since": since} for since, name in gone[:SHOWN_MAX]],
        }


def device_of_will(feed: MqttFeed, topic: str, stood_for: Sequence[str], payload: bytes) -> str:
    """Whose last will it is, named as its events name it.

    With ``device: +1`` that is what this wildcard of the will's topic stands for; with ``topic.area`` what its level
    ``{area}`` stands for; with a field, what the payload of the will says there, if it is a JSON object that has it.
    Otherwise it is what the wildcards of the topic stand for.
    """
    if feed.device is None:
        return device_of_topic(topic, stood_for)
    if re.fullmatch(r"\+[0-9]+", feed.device):
        level: int | None = int(feed.device[1:]) - 1
    else:
        place = field_place(feed.device, in_item=False)
        level = topic_names(feed.will or "").get(str(place.steps[0])) if place.root == "topic" else None
        if place.root == "payload":
            try:
                name = walk(json.loads(payload), place.steps)
            except (ValueError, RecursionError):
                name = None
            if isinstance(name, str | int):
                return str(name)[:NAME_CHARACTERS_MAX]
    if level is not None and level < len(stood_for):
        return stood_for[level][:NAME_CHARACTERS_MAX]
    return device_of_topic(topic, stood_for)


def device_of_topic(topic: str, stood_for: Sequence[str]) -> str:
    """The name of a device that only the topic names: what its wildcards stand for, or the topic itself."""
    return ("/".join(stood_for) or topic)[:NAME_CHARACTERS_MAX]
