"""Passwords and tokens: from a file or the environment, never from a text that others read, and never shown."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headwater.node.remote.provider import Refused

SECRET_BYTES_MAX = 65_536
FILE_OF_SECRET = "_FILE"
"""``NAME_FILE`` in the environment names a file that holds what ``NAME`` would: containers get their secrets so."""


@dataclass(frozen=True, slots=True)
class Secret:
    """Where a secret is; it is read anew each time, so that it may be changed while a run goes on."""

    file: str | None = None
    variable: str | None = None

    def read(self, environment: Mapping[str, str] = os.environ) -> str | None:
        """The secret, or None if none was named; a Refused if it is not there."""
        if self.file is not None:
            return _in_file(self.file)
        if self.variable is None:
            return None
        text = environment.get(self.variable, "").strip()
        if text:
            if len(text.splitlines()) > 1:
                raise Refused(f"the environment variable {self.variable} should hold a secret: one line of text")
            return text
        if file := environment.get(self.variable + FILE_OF_SECRET):
            return _in_file(file)
        raise Refused(f"the environment variable {self.variable} should hold a secret, but is empty or not set")


def _in_file(file: str) -> str:
    try:
        raw = Path(file).read_bytes()
    except OSError as error:
        raise Refused(f"cannot read the secret in {file}: {error.strerror}") from None
    try:
        text = raw.decode("utf-8").strip() if len(raw) <= SECRET_BYTES_MAX else ""
    except UnicodeDecodeError:
        text = ""
    if len(text.splitlines()) != 1:
        raise Refused(f"{file} should hold a secret: one line of text")
    return text


def without(text: str, secret: str | None) -> str:
    """A text from elsewhere on one line, without the secret should it be in there."""
    line = " ".join(text.split())
    return line.replace(secret, "***") if secret else line


def driver_missing(package: str, what: str) -> Refused:
    return Refused(f"{what} needs the Python package {package}; install headwater[remote]")
