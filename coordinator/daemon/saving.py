"""The machine's state as bytes, and back."""

from __future__ import annotations

import pickle
from typing import Final

from headwater.coordinator.daemon.machine import Machine
from headwater.protocol.errors import HeadwaterError

VERSION: Final = 5
"""Of the saved state; a coordinator does not read what another version has written."""


class StateError(HeadwaterError):
    """Saved state that is damaged or of another version: whoever keeps it must act."""


def save(machine: Machine) -> bytes:
    """Everything, as bytes that only this coordinator should ever read: pickle runs code."""
    return pickle.dumps((VERSION, machine), protocol=5)


def restored(data: bytes) -> Machine:
    """The machine as it was saved."""
    try:
        version, machine = pickle.loads(data)
    except Exception as error:
        raise StateError(f"the saved state of the coordinator is damaged ({type(error).__name__}: {error})") from error
    if version != VERSION:
        raise StateError(f"the state was saved by version {version} of the coordinator, this is version {VERSION}")
    if not isinstance(machine, Machine):
        raise StateError("this is no saved state of a coordinator")
    return machine
