"""A lock that lets only one process at a time use a folder."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from headwater.protocol.errors import ConfigError

LOCK_NAME = "journal.lock"


def take_lock(folder: Path) -> int:
    """The descriptor that holds the lock until it is closed or the process ends, in whatever way."""
    path = folder / LOCK_NAME
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(descriptor)
        raise ConfigError(
            f"the journal in {folder} is in use by process {holder}; stop that process, or give another data folder"
        ) from None
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode("ascii"), 0)
    except OSError:
        pass  # on a full disk the number is missing from a message, and the lock holds all the same
    return descriptor
