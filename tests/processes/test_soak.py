"""Some rounds of ``scripts/soak``: random accidents in random networks, with programs that subscribe."""

from __future__ import annotations

import pytest

from tests.processes.soak import Tally, soak

LIVES = (101, 103, 106)
"""Rounds in which nodes lose their journals after programs have heard of something there: their next lives count
deliveries from 1 again, and a program that took those for repetitions would miss them."""


@pytest.mark.parametrize("seed", LIVES)
def test_a_round_of_random_accidents_loses_and_repeats_nothing(seed: int) -> None:
    tally = Tally()
    assert soak(seed, None, tally) == []
    assert tally.rounds == 1
    assert tally.done["journal lost"] > 0
    assert tally.heard > 0
