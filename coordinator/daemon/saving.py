"""The machine's state as bytes, and back. Everything in it is plain data but for the horizon of rules, which is given
from outside: it is named and not saved.
"""

from __future__ import annotations

import io
import pickle
from typing import Any, Final

from headwater.coordinator.core import Horizon
from headwater.coordinator.daemon.machine import Machine
from headwater.protocol.errors import HeadwaterError

VERSION: Final = 4
"""Of the saved state; a coordinator does not read what another version has written."""


class StateError(HeadwaterError):
    """Saved state that is damaged or of another version: whoever keeps it must act."""


def save(machine: Machine, horizon: Horizon) -> bytes:
    """Everything, as bytes that only this coordinator should ever read: pickle runs code."""
    out = io.BytesIO()
    _Saver(out, horizon).dump((VERSION, machine))
    return out.getvalue()


def restored(data: bytes, horizon: Horizon) -> Machine:
    """The machine as it was saved."""
    try:
        version, machine = _Loader(io.BytesIO(data), horizon).load()
    except Exception as error:
        raise StateError(f"the saved state of the coordinator is damaged ({type(error).__name__}: {error})") from error
    if version != VERSION:
        raise StateError(f"the state was saved by version {version} of the coordinator, this is version {VERSION}")
    if not isinstance(machine, Machine):
        raise StateError("this is no saved state of a coordinator")
    return machine


class _Saver(pickle.Pickler):
    def __init__(self, out: io.BytesIO, horizon: Horizon) -> None:
        super().__init__(out, protocol=5)
        self._horizon = horizon

    def persistent_id(self, value: Any) -> str | None:
        return "horizon" if value is self._horizon else None


class _Loader(pickle.Unpickler):
    def __init__(self, data: io.BytesIO, horizon: Horizon) -> None:
        super().__init__(data)
        self._horizon = horizon

    def persistent_load(self, name: Any) -> Any:
        return self._horizon
