"""A plugin of pytest for the quick loop: when its time is over, the tests that have not begun are skipped, and one that
goes on for long is given up. Both are listed: ``./scripts/test`` runs them.

Loaded with ``-p tests.kit.budget``; HEADWATER_QUICK_SECONDS says how long.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

SECONDS = 30.0
GRACE_SECONDS = 15.0  # for the test that is running then
THE_LAW = "tests/law/test_law.py::test_random_seeds"  # has a time of its own


class Budget:
    """Counts from the first test of a process on: importing the tests is not counted."""

    def __init__(self, seconds: float, grace_seconds: float = GRACE_SECONDS) -> None:
        self._seconds, self._grace_seconds = seconds, grace_seconds
        self._begun: float | None = None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Setting a test up and taking it down count as well; only its body is interrupted."""
        self._begun = time.monotonic() if self._begun is None else self._begun
        return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if self._left_s() < 0 and item.nodeid != THE_LAW:
            pytest.skip("the quick loop is out of time; ./scripts/test runs this test")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        if item.nodeid == THE_LAW:
            return (yield)
        before = signal.signal(signal.SIGALRM, _give_up)
        signal.setitimer(signal.ITIMER_REAL, max(0.1, self._left_s() + self._grace_seconds))
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    def _left_s(self) -> float:
        assert self._begun is not None
        return self._begun + self._seconds - time.monotonic()


def _give_up(*_: object) -> None:
    """pytest.skip raises no Exception, so nothing under test takes it for an error of its own."""
    pytest.skip("the quick loop is out of time and has not waited for the end; ./scripts/test runs this test")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Budget(float(os.environ.get("HEADWATER_QUICK_SECONDS", SECONDS))))
