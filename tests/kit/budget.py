"""A plugin of pytest for the quick loop: when its time is over, the tests that have not begun are skipped.

Loaded with ``-p tests.kit.budget``; HEADWATER_QUICK_SECONDS says how long.
"""

from __future__ import annotations

import os
import time

import pytest

SECONDS = 30.0
THE_LAW = "tests/law/test_law.py::test_random_seeds"  # has a time of its own


class Budget:
    """Counts from the first test of a process on: importing the tests is not counted."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._begun: float | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        now = time.monotonic()
        self._begun = now if self._begun is None else self._begun
        if now - self._begun > self._seconds and item.nodeid != THE_LAW:
            pytest.skip("the quick loop is out of time; ./scripts/test runs this test")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Budget(float(os.environ.get("HEADWATER_QUICK_SECONDS", SECONDS))))
