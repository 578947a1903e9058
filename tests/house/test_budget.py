"""The quick loop ends in time, and says which tests it has not run."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.kit.patience import run_to_its_end

PROJECT = Path(__file__).parent.parent.parent
TESTS = """
import time

def test_begun_in_time():
    assert True

def test_that_goes_on_and_on():
    try:
        time.sleep(3600)
    except Exception:
        pass

def test_that_comes_too_late():
    raise AssertionError
"""


def test_what_has_not_begun_or_not_ended_in_time_is_left_for_the_whole(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "conftest.py").write_text(
        "from tests.kit.budget import Budget\n"
        "def pytest_configure(config):\n"
        "    config.pluginmanager.register(Budget(seconds=4.0, grace_seconds=0.1))\n"
    )
    command = [sys.executable, "-m", "pytest", "-rs", "-p", "no:cacheprovider", str(tmp_path)]
    said = run_to_its_end(command, cwd=PROJECT, text=True).stdout
    assert "1 passed, 2 skipped" in said
    assert "has not waited for the end" in said
    assert "is out of time; ./scripts/test runs this test" in said
