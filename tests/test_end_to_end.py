"""Six hours of a real cluster, from the raw file to the verdict: prepare, count, plan, run, replay, report, verify.

Every step is the command that a user would type, as a process of its own, in a copy of ``examples/borg``.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from pipeline.spark import java_home
from protocol.errors import ConfigError

PROJECT: Final = Path(__file__).parent.parent
STRATEGIES: Final = ("centr", "st-pp", "inev")
PATIENCE_S: Final = 600  # for one command; only so that nothing waits forever
EXPECTED: Final = {"Retried": 115, "Pressed": 0, "Unplaced": 0, "Burst": 0}


class Shell:
    """Commands typed in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *words: str, code: int = 0) -> str:
        found = subprocess.run(
            [sys.executable, "-m", "deploy.command", *words],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(PROJECT), "SPARK_DRIVER_MEMORY": "1g"},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert found.returncode == code, f"{' '.join(words)} ended with {found.returncode}:\n{found.stderr[-3000:]}"
        return found.stdout

    def json(self, *words: str) -> Any:
        return json.loads(self(*words, "--json"))


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    try:
        java_home()
    except ConfigError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("end-to-end") / "borg"
    shutil.copytree(PROJECT / "examples" / "borg", folder)
    typed = Shell(folder)
    yield typed
    for name in STRATEGIES:
        subprocess.run(
            [sys.executable, "-m", "deploy.command", "down", name],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(PROJECT)},
            capture_output=True,
            timeout=PATIENCE_S,
            check=False,
        )


@pytest.fixture(scope="module")
def planned(shell: Shell) -> dict[str, Any]:
    """The trace is prepared and counted, the network knows the statistics; what ``plan`` makes of them."""
    manifest = shell.json("traces", "borg.yaml", "--input", ".", "--out", "trace")
    assert manifest["events"] == 5_192
    shell("statistics", "trace", "--network", "network.yaml", "--out", "statistics.yaml")
    with (shell.folder / "network.yaml").open("a", encoding="utf-8") as file:
        file.write("statistics: statistics.yaml\n")
    plan: dict[str, Any] = shell.json("plan", "network.yaml")
    return plan


@pytest.fixture(scope="module")
def replayed(shell: Shell, planned: dict[str, Any]) -> dict[str, Any]:
    """By strategy, what ``replay`` says of a real network that was fed the trace."""
    said = {}
    for strategy in STRATEGIES:
        shell("up", "network.yaml", "--strategy", strategy, "--name", strategy)
        said[strategy] = shell.json("replay", "trace", "--run", strategy, "--only-known")
        shell("down", strategy)
    return said
