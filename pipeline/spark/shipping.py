"""Packs Headwater's own code into a zip file that Spark ships to its workers."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).parent.parent.parent
HOME: Final = PACKAGE.parent
"""The folder that holds the package headwater, or the zip file that it was loaded from."""

_DATE: Final = (2020, 1, 1, 0, 0, 0)  # of every file, so that equal code makes equal zip files


def is_shipped() -> bool:
    """Whether this code was itself loaded from a zip file, which is already wherever tasks run."""
    return HOME.is_file()


def write_code(target: Path) -> None:
    """Pack the package with the files that it reads. Python loads it from there as from a folder."""
    if is_shipped():
        shutil.copyfile(HOME, target)
        return
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as packed:
        for file in code_files():
            entry = zipfile.ZipInfo(file.relative_to(HOME).as_posix(), _DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            packed.writestr(entry, file.read_bytes())


def code_files() -> Iterator[Path]:
    """All files of the package, in order. In a checkout its parts are links to the folders of the project."""
    parts = (part for part in sorted(PACKAGE.iterdir()) if part.is_dir())
    for file in (*sorted(PACKAGE.glob("*.*")), *(file for part in parts for file in sorted(part.rglob("*")))):
        if file.is_file() and "__pycache__" not in file.parts:
            yield file
