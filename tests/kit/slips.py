"""A slip in a description is shown where it stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.deploy.descriptions.traces import read_description
from headwater.protocol.errors import ConfigError


def is_shown(folder: Path, good: str, right: str, wrong: str, caret: str, said: str) -> None:
    """In a line that is read without complaint, ``wrong`` instead of ``right`` is complained of at ``caret``."""
    file = folder / "slip.yaml"
    assert right in good
    file.write_text(good)
    read_description(file)
    text = good.replace(right, wrong)
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_description(file)
    assert f"slip.yaml:1:{text.index(caret) + 1}: {said}" in str(caught.value)
