"""Patience: seconds in which the machine has no time hardly count, and progress begins again."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time

import pytest

from headwater.deploy.cluster.waiting import COUNTED, Patience, ended, starved_s
from tests.kit.patience import TooSlow, output_of, patiently, run_to_its_end, time_limit, until


class Machine:
    """A clock, and for how long some process has waited for a processor."""

    def __init__(self) -> None:
        self.now = 100.0
        self.starved: float | None = 7.0
        self.load = 1.0

    def patience(self, seconds: float) -> Patience:
        return Patience(seconds, now=lambda: self.now, starved=lambda: self.starved, load=lambda: self.load)


def test_patience_is_over_after_its_seconds_on_a_machine_that_has_time() -> None:
    machine = Machine()
    patience = machine.patience(10)
    machine.now += 9.9
    assert not patience.over
    machine.now += 0.2
    assert patience.over


def test_seconds_in_which_processes_wait_for_a_processor_hardly_count() -> None:
    machine = Machine()
    patience = machine.patience(10)
    machine.now, machine.starved = 200.0, 107.0
    assert patience.spent_s() == pytest.approx(100 * COUNTED)
    machine.now += 6
    assert patience.over, "the machine has had time since"


def test_where_the_system_does_not_tell_the_load_does() -> None:
    machine = Machine()
    machine.starved = None
    patience = machine.patience(10)
    machine.now, machine.load = 150.0, 10.0
    assert patience.spent_s() == pytest.approx(50 - 50 * 0.9 * (1 - COUNTED))
    machine.load = 0.3
    assert patience.spent_s() == pytest.approx(50), "a machine without load takes no time away"


def test_progress_begins_again() -> None:
    machine = Machine()
    patience = machine.patience(10)
    machine.now += 9
    patience.begin_again()
    machine.now += 9
    assert not patience.over


def test_even_a_machine_without_any_time_ends_the_waiting_some_time() -> None:
    machine = Machine()
    patience = machine.patience(1)
    machine.now, machine.starved = machine.now + 1000, 1007.0
    assert patience.over


def test_this_system_tells_or_does_not() -> None:
    told = starved_s()
    assert told is None or told >= 0


def test_the_output_of_a_process_comes_whole_however_often_it_was_asked_for() -> None:
    script = "import sys, time; print('one'); sys.stdout.flush(); time.sleep(0.5); print(sys.stdin.read())"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert ended(process, Patience(60), "two") == ("one\ntwo\n", "")
    assert run_to_its_end([sys.executable, "-c", "print(3)"], text=True, check=True).stdout == "3\n"


def test_a_process_that_does_not_end_is_killed_and_what_it_printed_is_told() -> None:
    script = "import time; print('here I am', flush=True); time.sleep(3600)"
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    with process, pytest.raises(AssertionError, match="has not ended"):
        output_of(process, 0.3)
    assert process.returncode != 0


def test_what_never_happens_ends_with_a_sentence() -> None:
    with pytest.raises(AssertionError, match="it never happened that pigs fly; no wings"):
        until(lambda: False, "pigs fly", why=lambda: "no wings", seconds=0.05)


def test_a_task_that_takes_too_long_is_ended() -> None:
    async def scenario() -> None:
        async with patiently(60):
            await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            async with patiently(0.05):
                await asyncio.sleep(3600)

    asyncio.run(scenario())


def work_without_end() -> None:
    while True:
        pass


def test_a_limit_on_work_counts_work_and_no_waiting() -> None:
    with time_limit(0.2):
        time.sleep(0.4)
    with pytest.raises(TooSlow), time_limit(0.05):
        work_without_end()
