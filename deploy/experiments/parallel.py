"""Runs many jobs on several cores, each in its own process."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, Final

from headwater.deploy.experiments.jobs import Job, Runner
from headwater.protocol.errors import HeadwaterError

POLL_S: Final = 0.5  # how often the caller is told, even when nothing ends
TELL_S: Final = 0.25  # how often a run says how far it is


@dataclass(frozen=True, slots=True)
class Failure:
    """A run that ended without a result, and why."""

    job: Job
    reason: str


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_all(
    jobs: Sequence[Job],
    run: Runner,
    processes: int,
    watch: Callable[[Sequence[float]], None] = lambda shares: None,
    *,
    reuse: bool = False,
) -> Iterator[tuple[Job, Any]]:
    """Do all jobs and give their results, or failures, as they end; what a result is does not depend on the order.

    ``run`` must be a function that another process can import. ``watch`` is told the share done of every job.
    Each job has a process of its own, so that its memory is returned when it is done; with ``reuse`` a process does one
    job after the other, since starting one takes longer than a short job does.
    Leaving the loop early ends the runs that are still going.
    """
    context = multiprocessing.get_context("spawn")
    shares = [0.0] * len(jobs)
    waiting = list(range(len(jobs)))[::-1]
    going: dict[Connection, tuple[int, SpawnProcess]] = {}
    try:
        while waiting or going:
            while waiting and len(going) < processes:
                number = waiting.pop()
                here, there = context.Pipe(duplex=reuse)
                arguments = (run, jobs[number], there, gc.get_threshold(), reuse)
                process = context.Process(target=_work, args=arguments, daemon=True)
                process.start()
                there.close()  # so that a run that dies is the end of its pipe
                going[here] = (number, process)
            for pipe in wait(list(going), timeout=POLL_S):
                assert isinstance(pipe, Connection)
                number, process = going[pipe]
                answer = _receive(pipe, process, jobs[number])
                if isinstance(answer, float):
                    shares[number] = answer
                    continue
                shares[number] = 1.0
                if reuse and waiting and _take(pipe, process, jobs[waiting[-1]]):
                    going[pipe] = (waiting.pop(), process)
                else:
                    del going[pipe]
                    pipe.close()
                    process.join()
                yield jobs[number], answer
            watch(shares)
    finally:
        for pipe, (_, process) in going.items():
            process.terminate()
            process.join()
            pipe.close()


def _take(pipe: Connection, process: SpawnProcess, job: Job) -> bool:
    """Give another job to a process that has done one; False if it is no more."""
    try:
        if process.is_alive():
            pipe.send(job)
            return True
    except OSError:
        pass
    return False


def _receive(pipe: Connection, process: SpawnProcess, job: Job) -> Any:
    try:
        answer: Any = pipe.recv()
    except EOFError:
        process.join()
        code = process.exitcode
        how = f"was killed by signal {-code}" if code is not None and code < 0 else f"ended with exit code {code}"
        memory = "; if it was the system, memory ran out: use a shorter --time or fewer processes" if code == -9 else ""
        return Failure(job, f"its process {how}{memory}")
    return Failure(job, answer) if isinstance(answer, str) else answer


def _work(run: Runner, job: Job, pipe: Connection, gc_threshold: tuple[int, int, int], several: bool = False) -> None:
    gc.set_threshold(*gc_threshold)  # as in the process that started us
    # Ctrl-C reaches every process of the terminal; the one that started us decides what becomes of us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _do(run, job, pipe)
    while several:
        try:
            job = pipe.recv()
        except EOFError:  # there is no other
            return
        _do(run, job, pipe)


def _do(run: Runner, job: Job, pipe: Connection) -> None:
    told_s = 0.0

    def progress(share: float) -> None:
        nonlocal told_s
        now = time.monotonic()
        if now - told_s >= TELL_S:
            told_s = now
            try:
                pipe.send(float(share))
            except OSError:  # no process listens any more: the one that started us was killed
                raise SystemExit(1) from None

    try:
        pipe.send(run(job, progress))
    except HeadwaterError as error:
        pipe.send(str(error))
    except MemoryError:
        pipe.send("memory ran out; use a shorter --time or fewer processes")
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        pipe.send(f"{type(error).__name__}: {error} ({where.filename}:{where.lineno})")
