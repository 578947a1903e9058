"""Starts one process of a run: forked from the keeper, or as a program of its own."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, NoReturn

CLONE_NEWNET: Final = 0x40000000
PR_SET_NAME: Final = 15

Entry = Callable[[list[str]], object]


def enter_namespace(handle: int) -> None:
    """Move this process into a network namespace; it must have one thread."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(handle, CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"cannot enter the network namespace: {os.strerror(number)}")


def fork(
    title: str,
    arguments: Sequence[str],
    log: Path,
    *,
    entry: Entry,
    namespace: int | None = None,
    close: Iterable[int] = (),
) -> int:
    """Run ``entry(arguments)`` in a copy of this process; its process id.

    All that the caller has imported is there already, which is why this is fast. The caller must have no thread, no
    event loop and no ZeroMQ context, for these do not survive a fork.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setsid()
        for handle in close:
            os.close(handle)
        _redirect(log)
        _plain_signals()
        if namespace is not None:
            enter_namespace(namespace)
        set_title(title)
        code = _call(entry, list(arguments))
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _call(entry: Entry, arguments: list[str]) -> int:
    try:
        entry(arguments)
    except SystemExit as left:
        if left.code is None or isinstance(left.code, int):
            return left.code or 0
        print(left.code, file=sys.stderr)
        return 1
    return 0


def _redirect(log: Path) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    output = open_log(log)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    for handle in (nothing, output):
        if handle > 2:
            os.close(handle)


def open_log(log: Path) -> int:
    """Appending, so that a log that is cut short goes on at its new end, with any writer."""
    return os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)


def _plain_signals() -> None:
    for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def spawn(command: Sequence[str], log: Path, *, namespace: int | None = None) -> int:
    """Run a program; its process id. It is a child of the caller, who must wait for it."""
    output = open_log(log)

    def prepare() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        if namespace is not None:
            enter_namespace(namespace)

    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=prepare,  # the keeper has one thread
        )
    finally:
        os.close(output)
    child.returncode = 0  # it is waited for by its id; Popen need not
    return child.pid


def set_title(title: str) -> None:
    """Show this as the command line of the process, as far as there is room; without it nothing is amiss."""
    with contextlib.suppress(Exception):
        libc = ctypes.CDLL(None)
        libc.prctl(PR_SET_NAME, f"hw {title}".encode()[:15], 0, 0, 0)
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        begin, end = int(fields[45]), int(fields[46])  # arg_start and arg_end
        room = end - begin
        if room > 1:
            shown = f"headwater: {title}".encode()[: room - 1]
            ctypes.memmove(begin, shown.ljust(room, b"\0"), room)


def headwater(arguments: list[str]) -> NoReturn:
    """The command itself, in this process."""
    from headwater.deploy.cli.command import main

    sys.argv = ["headwater", *arguments]
    main(arguments)
