"""File names as Spark needs them. Commands open files themselves, too, so all are on a mounted file system."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_PATTERN: Final = re.compile(r"([\\*?\[\]{},])")


def to_write(path: Path) -> str:
    """A file or folder that Spark writes: without its scheme, a cluster would put it into its own store."""
    return f"file://{path.absolute()}"


def to_read(path: Path) -> str:
    """A file or folder that Spark reads: names may hold signs that would otherwise stand for others."""
    return _PATTERN.sub(r"\\\1", to_write(path))
