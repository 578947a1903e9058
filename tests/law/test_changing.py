"""Tables that are fresh for a while only, in random networks with crashes: a node that starts again from what it had
saved, and is given what its journal holds since then, does what it has done."""

from __future__ import annotations

import random

import pytest

from tests.law.behind import looks_up
from tests.law.changing import journaled
from tests.law.law import SERVED, run
from tests.law.looked_up import looked_up_case


@pytest.mark.parametrize("strategy", SERVED)
def test_the_same_journal_gives_the_same_composites(strategy: str) -> None:
    asked = delivered = 0
    for seed in range(25):
        case = looked_up_case(seed, "small")
        if not any(map(looks_up, case.network.rules)):
            continue
        for faults in (False, True):
            with journaled(random.Random(seed)) as journals:
                run(case, strategy, faults)
            steps = journals.replay()
            asked, delivered = asked + steps[0], delivered + steps[1]
    assert asked
    assert delivered
