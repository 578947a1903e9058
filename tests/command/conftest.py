"""What tests of network files share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command.network_texts import FIRE


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "fire.tesla").write_text(FIRE)
    (tmp_path / "smoke.csv").write_text("type,ts,area\nSmoke,1000,A1\n")
    return tmp_path
