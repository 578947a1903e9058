"""What this machine can do, and running programs of the system."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from headwater.deploy.cli.common import RunFailed
from headwater.deploy.cluster.waiting import Patience, ended
from headwater.protocol.errors import ConfigError

SYSTEM_PYTHON: Final = "/usr/bin/python3"
"""Mininet is a package of the system's own Python; it cannot be installed into a virtual environment."""

_SBIN: Final = ("/usr/local/sbin", "/usr/sbin", "/sbin")  # not in every user's path


def tool(name: str) -> str | None:
    """The path of a program, or None."""
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(_SBIN))


def require_root(option: str) -> None:
    if os.geteuid() != 0:
        raise ConfigError(f"{option} needs root: run it with sudo, or use --on local")


def require_linux(option: str) -> None:
    if not Path("/proc/self/ns/net").exists():
        raise ConfigError(f"{option} needs Linux; use --on local")


def require_tools(option: str, tools: dict[str, str]) -> None:
    """``tools``: which programs, and the package of Debian and Ubuntu that has each."""
    lacking = [name for name in tools if tool(name) is None]
    if lacking:
        packages = " ".join(dict.fromkeys(tools[name] for name in lacking))
        raise ConfigError(
            f"{option} needs {' and '.join(lacking)}, which this machine does not have; install it "
            f"(on Debian or Ubuntu: apt-get install -y --no-install-recommends {packages}), or use --on local"
        )


def call(
    command: Sequence[str],
    *,
    stdin: str | None = None,
    timeout_s: float = 60.0,
    environment: dict[str, str] | None = None,
) -> str:
    """Run a program to its end; its output, or a RunFailed with what it complained of. It may take ``timeout_s`` of a
    machine that has time for it."""
    program = tool(command[0]) or command[0]
    try:
        with subprocess.Popen(
            [program, *command[1:]],
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=None if environment is None else {**os.environ, **environment},
        ) as process:
            try:
                out, err = ended(process, Patience(timeout_s), stdin)
            except BaseException:
                process.kill()
                raise
    except subprocess.TimeoutExpired:
        raise RunFailed(f"{' '.join(command[:4])} .. did not end within {timeout_s:.0f} s") from None
    except OSError as error:
        raise RunFailed(f"cannot run {command[0]}: {error.strerror}") from None
    if process.returncode != 0:
        complaint = (err.strip() or out.strip() or f"exit code {process.returncode}").splitlines()
        raise RunFailed(f"{' '.join(command[:6])} failed: {' / '.join(complaint[-3:])}")
    return str(out)


def succeeds(command: Sequence[str], *, timeout_s: float = 60.0, environment: dict[str, str] | None = None) -> bool:
    try:
        call(command, timeout_s=timeout_s, environment=environment)
    except RunFailed:
        return False
    return True


def batch(program: Sequence[str], lines: Iterable[str]) -> None:
    """Many commands of ``ip`` or ``tc`` in one go; the first that fails ends it."""
    text = "\n".join(lines)
    if text:
        call([*program, "-batch", "-"], stdin=text + "\n")
