"""Writes small pictures as SVG and HTML text that needs nothing from elsewhere."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from types import MappingProxyType
from typing import Final

WIDTH: Final = 720
COLOURS: Final = 8  # that lines are drawn in, one after the other; the page defines them for light and dark


def tag(name: str, attributes: Mapping[str, object], inside: str = "") -> str:
    """An element; attributes that are None are left out, a trailing underscore is none."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_written(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{written}>{inside}</{name}>"


def _written(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return str(value)


def text(x: float, y: float, words: str, class_: str = "", anchor: str = "start") -> str:
    return tag("text", {"x": x, "y": y, "class_": class_ or None, "text_anchor": anchor}, escape(words))


def ticks(most: float, count: int = 4) -> list[float]:
    """Round numbers from nothing up to at least ``most``."""
    if most <= 0:
        return [0.0, 1.0]
    raw = most / count
    scale = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * scale for factor in (1, 2, 2.5, 5, 10) if factor * scale >= raw * 0.999999)
    return [step * number for number in range(math.ceil(most / step - 1e-9) + 1)]


def decades(least: float, most: float) -> list[float]:
    """Powers of ten around a range, for a logarithmic axis."""
    low, high = math.floor(math.log10(least)), math.ceil(math.log10(most))
    return [10.0**exponent for exponent in range(low, max(high, low + 1) + 1)]


def number(value: float) -> str:
    """A number on an axis, short."""
    for unit, factor in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= factor:
            return f"{value / factor:g}{unit}"
    return f"{value:g}"


class Chart:
    """Axes of one picture. Values are given in units of the data."""

    def __init__(
        self, x: tuple[float, float], y: tuple[float, float], *, height: int = 274, log_x: bool = False
    ) -> None:
        self.height = height
        self._x, self._y, self._log = x, y, log_x
        self.left, self.right, self.top, self.bottom = 72, WIDTH - 34, 14, height - 54
        self._parts: list[str] = []

    def at(self, x: float, y: float) -> tuple[float, float]:
        low, high = self._x
        share = (
            (math.log10(max(x, low)) - math.log10(low)) / (math.log10(high) - math.log10(low))
            if self._log
            else (x - low) / ((high - low) or 1)
        )
        up = (y - self._y[0]) / ((self._y[1] - self._y[0]) or 1)
        return self.left + share * (self.right - self.left), self.bottom - up * (self.bottom - self.top)

    def axes(self, xs: Sequence[tuple[float, str]], ys: Sequence[tuple[float, str]], x_title: str) -> None:
        for y, words in ys:
            _, place = self.at(self._x[0], y)
            self._parts.append(
                tag("line", {"x1": self.left, "x2": self.right, "y1": place, "y2": place, "class_": "grid"})
            )
            self._parts.append(text(self.left - 7, place + 4, words, "tick", "end"))
        for x, words in xs:
            place, _ = self.at(x, self._y[0])
            self._parts.append(
                tag("line", {"x1": place, "x2": place, "y1": self.bottom, "y2": self.bottom + 5, "class_": "axis"})
            )
            self._parts.append(text(place, self.bottom + 22, words, "tick", "middle"))
        self._parts.append(
            tag("line", {"x1": self.left, "x2": self.right, "y1": self.bottom, "y2": self.bottom, "class_": "axis"})
        )
        self._parts.append(text((self.left + self.right) / 2, self.height - 5, x_title, "tick", "middle"))

    def line(self, points: Sequence[tuple[float, float]], colour: int, name: str, *, steps: bool = False) -> None:
        """A curve; with ``steps`` each value holds until the next one."""
        placed = [self.at(x, y) for x, y in points]
        path = ""
        for i, (x, y) in enumerate(placed):
            if steps and i:
                path += f"H{x:.1f}"
            path += f"{'L' if i else 'M'}{x:.1f},{y:.1f}"
        self._parts.append(
            tag(
                "path",
                {"d": path, "class_": f"line c{colour % COLOURS}", "data_tip": name},
                f"<title>{escape(name)}</title>",
            )
        )

    def area(self, start: float, steps: Sequence[tuple[float, float]], colour: int, name: str) -> None:
        """Steps one after the other, each up to where and how high, filled down to nothing."""
        path = f"M{self.at(start, 0)[0]:.1f},{self.bottom:.1f}"
        for end, height in steps:
            x, y = self.at(end, height)
            path += f"V{y:.1f}H{x:.1f}"
        path += f"V{self.bottom:.1f}Z"
        self._parts.append(
            tag("path", {"d": path, "class_": f"area c{colour % COLOURS}"}, f"<title>{escape(name)}</title>")
        )

    def cut(self, start: float, end: float, tip: str) -> None:
        """A place where the axis is broken, between two values."""
        (left, _), (right, _) = self.at(start, self._y[0]), self.at(end, self._y[0])
        box = {"x": left, "y": self.top, "width": right - left, "height": self.bottom - self.top + 2}
        title = f"<title>{escape(tip)}</title>"
        self._parts.append(tag("rect", {**box, "class_": "cut", "data_tip": tip}, title))

    def spot(self, x: float, y: float, tip: str, **data: object) -> None:
        """A place that can be pointed at."""
        px, py = self.at(x, y)
        attributes = {f"data_{key}": value for key, value in data.items()}
        self._parts.append(tag("circle", {"cx": px, "cy": py, "r": 9, "class_": "spot", "data_tip": tip, **attributes}))

    def svg(self, label: str) -> str:
        return picture("".join(self._parts), WIDTH, self.height, label)


def picture(inside: str, width: int, height: int, label: str) -> str:
    return tag(
        "div",
        {"class_": "picture"},
        tag("svg", {"viewBox": f"0 0 {width} {height}", "role": "img", "aria_label": label}, inside),
    )


def folded(words: str, head: Sequence[str], rows: Sequence[tuple[str, str]]) -> str:
    """A table that is shown to who asks for it; nothing where it has no rows."""
    return tag("details", {}, tag("summary", {}, escape(words)) + table(head, rows)) if rows else ""


def explained(entries: Sequence[tuple[str, str, str]]) -> str:
    """Names with the class of their colour, and what each of them means."""
    inside = "".join(
        f'<dt><i class="{escape(class_)}"></i>{escape(name)}</dt><dd>{escape(words)}</dd>'
        for name, class_, words in entries
    )
    return tag("dl", {"class_": "kinds"}, inside)


def legend(entries: Sequence[tuple[str, str]]) -> str:
    """Names with the class of their colour."""
    inside = "".join(f'<span><i class="{escape(class_)}"></i>{escape(name)}</span>' for name, class_ in entries)
    return f'<p class="legend">{inside}</p>'


def table(
    head: Sequence[str],
    rows: Sequence[tuple[str, str]],
    class_: str = "figures",
    tips: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """A table that may be wider than the page and is then moved in itself; rows have a name and their cells, which are
    HTML already. ``tips``: what to tell of a column to who points at its name."""
    names = "".join(
        tag("th", {"scope": "col", "data_tip": tips.get(name), "title": tips.get(name)}, escape(name)) for name in head
    )
    body = "".join(f"<tr>{tag('th', {'scope': 'row'}, escape(name))}{cells}</tr>" for name, cells in rows)
    above = f"<thead><tr><th></th>{names}</tr></thead>" if head else ""
    return tag("div", {"class_": "picture"}, tag("table", {"class_": class_}, f"{above}<tbody>{body}</tbody>"))


def bar(name: str, pieces: str, total: str, *, thin: bool = False) -> str:
    """A name, a track with pieces in it, and what they come to."""
    label = tag("span", {"class_": "what wide" if thin else "what"}, escape(name))
    track = tag("span", {"class_": "track"}, pieces)
    return tag("div", {"class_": "bar"}, label + track + tag("span", {"class_": "total"}, escape(total)))


def none(words: str) -> str:
    return tag("p", {"class_": "none"}, escape(words))
