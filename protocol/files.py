"""Atomic files and folders: a file or folder appears under its name only when it is complete."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO


def sync_folder(folder: Path) -> None:
    """Make new and changed names durable, which syncing the files alone does not."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def new_file(file: Path, *, mode: int = 0o666, sync: bool = True) -> Iterator[BinaryIO]:
    """What is written here is under the file's name when the block ends: all of it, also after a crash, unless
    ``sync`` is off. If the block raises, the file stays as it was.

    ``mode`` holds from the first byte on; as usual the process's mask is taken off.
    """
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    with suppress(FileNotFoundError):
        beside.unlink()  # of a process that had this number before; its mode may be another
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as out:
            yield out
            out.flush()
            if sync:
                os.fsync(descriptor)
        os.replace(beside, file)
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise
    if sync:
        sync_folder(file.parent)


def write_file(file: Path, data: bytes | str, *, mode: int = 0o666, sync: bool = True) -> None:
    """Either the old contents or the new ones are there, also after a crash; text is written as UTF-8."""
    with new_file(file, mode=mode, sync=sync) as out:
        out.write(data.encode() if isinstance(data, str) else data)


class NewFolder:
    """A folder that is being written, beside the one that it will be. Use it in a ``with`` block, and ``publish``."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.folder = target.parent / f".{target.name}.unfinished"

    def __enter__(self) -> NewFolder:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        return self

    def publish(self) -> None:
        """Everything is there: give it its name."""
        if self.target.exists():
            shutil.rmtree(self.target)
        self.folder.rename(self.target)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
