"""Shows a change of a running network: what it waits for, and between which event times something holds."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def waiting(text: str) -> Iterator[None]:
    """On a terminal a line that says what is waited for, while it is; in a pipe nothing."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(text):
        yield


def since(time_us: int | None) -> str:
    """From when on something holds, in words."""
    from headwater.protocol.text import show_ts

    return "from the beginning" if time_us is None else f"from {show_ts(time_us)} on"


def held_until(time_us: int | None) -> str:
    """Up to when something held that has ended, in words."""
    from headwater.protocol.text import show_ts

    return "" if time_us is None else f"; it held until {show_ts(time_us)}"
