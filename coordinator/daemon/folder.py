"""The data folder of a coordinator: what is written there once, when it first starts."""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Any

from headwater.coordinator.daemon.inputs import Setup
from headwater.coordinator.daemon.snapshot import HOW_TO_GO_ON, OldState, StateError, setup_format
from headwater.protocol.files import write_file


class DataFolder:
    """The folder, made if there is none. Holds a secret and state that is trusted: no other user may read it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.journal = path / "journal"
        self.life = self._made_once("life", secrets.token_hex(16))
        if not self.journal.exists():
            self.new_life()
        self.token = self._made_once("token", secrets.token_urlsafe(32))

    def new_life(self) -> None:
        """The memory that nodes rely on is lost, or a part of it: they must be able to tell."""
        self.life = secrets.token_hex(16)
        write_file(self.path / "life", self.life.encode() + b"\n", mode=0o600)

    def setup(self) -> Setup | None:
        """What the network was when the coordinator first started; None before that."""
        return read_setup(self.path)

    def keep_setup(self, setup: Setup) -> None:
        write_file(self.path / "network", setup_format().packed(setup), mode=0o600)

    def write_endpoints(self, endpoints: dict[str, Any]) -> None:
        """Where the coordinator can be reached, for programs that have started it."""
        write_file(self.path / "endpoints.json", json.dumps(endpoints).encode() + b"\n", mode=0o600)

    def _made_once(self, name: str, fresh: str) -> str:
        file = self.path / name
        if not file.exists():
            write_file(file, fresh.encode() + b"\n", mode=0o600)
        return file.read_text(encoding="utf-8").strip()


def read_setup(path: Path) -> Setup | None:
    """What the network was when the coordinator of this data folder first started; None if it never has."""
    file = path / "network"
    if not file.exists():
        return None
    try:
        setup = setup_format().read(file.read_bytes())
    except OldState as error:
        raise StateError(f"{file} cannot be used: {error}. {HOW_TO_GO_ON}") from error
    except StateError as error:
        raise StateError(f"{file} cannot be used: {error}; restore it or start with another folder") from error
    if not isinstance(setup, Setup):
        raise StateError(f"{file} does not describe a network; restore it or start with another folder")
    return setup
