"""Garbage in cycles is found in the end, and what a busy second leaves behind is not looked through at once."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from headwater.node.daemon.garbage_collection import CALM, DEEP_EVERY, LOOK_EVERY, Collector


class Knot:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def collector() -> Iterator[Collector]:
    threshold = gc.get_threshold()
    try:
        yield Collector()
    finally:
        gc.unfreeze()
        gc.set_threshold(*threshold)


def a_lost_knot() -> weakref.ref[Any]:
    return weakref.ref(Knot())


def test_a_calm_node_finds_cycles_soon(collector: Collector) -> None:
    lost = a_lost_knot()
    for _ in range(LOOK_EVERY):
        collector.beat()
    assert lost() is None


def test_what_a_busy_second_left_is_set_aside_and_looked_through_in_the_end(collector: Collector) -> None:
    lost = a_lost_knot()
    rows = [[number] for number in range(2 * CALM)]
    collector.beat()
    looked_through = {id(each) for each in gc.get_objects()}
    assert not any(id(row) in looked_through for row in rows)
    for _ in range(LOOK_EVERY):
        collector.beat()
    assert lost() is not None, "nothing was looked through yet"
    for _ in range(DEEP_EVERY):
        collector.beat()
    assert lost() is None
