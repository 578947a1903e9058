"""Labels on a network map: short enough to read, and none over another or over a node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

LONGEST: Final = 20  # letters of a name on a map; the whole name is shown to who points at the node
LETTER: Final = 0.62  # how wide one is, in units of its height: bold ones of most typefaces are narrower
GAP: Final = 4.0  # between a node and its name
SEPARATORS: Final = "-_./: "


@dataclass(frozen=True, slots=True)
class NodeCircle:
    """A node, and how much stands on top of it."""

    x: float
    y: float
    radius: float
    above: float = 0.0


@dataclass(frozen=True, slots=True)
class Label:
    """A text with its middle at x and its base line at y."""

    text: str
    x: float
    y: float


def short_names(names: Sequence[str]) -> dict[str, str]:
    """What to write for each: if some are long, without what all have in common, and cut in the middle if need be."""
    shown = {name: name for name in names}
    if len(names) > 1 and max(map(len, names)) > LONGEST:
        before = _common(names)
        after = len(_common([name[::-1] for name in names]))
        trimmed = {name: name[len(before) : len(name) - after] for name in names}
        if all(trimmed.values()):
            shown = trimmed
    return {name: _cut(text) for name, text in shown.items()}


def _common(names: Sequence[str]) -> str:
    """The beginning that all have in common, up to a separator: half a word is none."""
    same = takewhile(lambda letters: len(set(letters)) == 1, zip(*names, strict=False))
    beginning = "".join(letters[0] for letters in same)
    end = max((beginning.rfind(separator) for separator in SEPARATORS), default=-1)
    return beginning[: end + 1]


def _cut(text: str) -> str:
    if len(text) <= LONGEST:
        return text
    half = (LONGEST - 1) // 2
    return f"{text[:half]}\N{HORIZONTAL ELLIPSIS}{text[-half:]}"


def placed(
    circles: Mapping[str, NodeCircle], texts: Mapping[str, str], height: float, bounds: tuple[float, float]
) -> dict[str, Label]:
    """Where each name is written: below its node, or above, or beside it, wherever nothing else is. Who comes first in
    ``circles`` chooses first; names for which there is no room are left out."""
    boxes = [
        (
            circle.x - circle.radius,
            circle.y - circle.radius - circle.above,
            circle.x + circle.radius,
            circle.y + circle.radius,
        )
        for circle in circles.values()
    ]
    labels: dict[str, Label] = {}
    for node, circle in circles.items():
        wide = LETTER * height * len(texts[node])
        for x, y in _choices(circle, wide, height):
            box = (x - wide / 2, y - 0.8 * height, x + wide / 2, y + 0.2 * height)
            inside = box[0] >= 0 and box[1] >= 0 and box[2] <= bounds[0] and box[3] <= bounds[1]
            if inside and not any(_overlap(box, taken) for taken in boxes):
                boxes.append(box)
                labels[node] = Label(texts[node], x, y)
                break
    return labels


def _choices(circle: NodeCircle, wide: float, height: float) -> Iterable[tuple[float, float]]:
    below = circle.y + circle.radius + GAP + 0.8 * height
    above = circle.y - circle.radius - circle.above - GAP - 0.2 * height
    right, left = (circle.x + sign * (circle.radius + GAP + wide / 2) for sign in (1, -1))
    middle = circle.y + 0.3 * height
    yield circle.x, below
    yield circle.x, above
    yield right, middle
    yield left, middle
    for x in (right, left):
        yield x, below
        yield x, above


def _overlap(first: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    return first[0] < other[2] and other[0] < first[2] and first[1] < other[3] and other[1] < first[3]
