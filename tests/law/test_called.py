"""Rules that call functions of a user's file, in random networks, for HEADWATER_FUNCTIONS_SECONDS."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from headwater.node.core import NodeCore
from tests.kit.first_seed import first_seed
from tests.law.called import called_case, calls_functions
from tests.law.fuzz_functions import reported, run_seeds
from tests.law.law import SERVED, check, run

SECONDS = 40.0


def test_sinks_receive_what_rules_find_that_call_the_same_functions_on_one_engine() -> None:
    seconds = float(os.environ.get("HEADWATER_FUNCTIONS_SECONDS", SECONDS))
    seeds, tally = run_seeds(first_seed(), None, seconds)
    print(f"{seeds} seeds: {tally}")
    for failure in tally.failures:
        pytest.fail(reported(failure), pytrace=False)
    assert tally.matches


def test_an_oracle_that_means_something_else_by_a_function_disagrees() -> None:
    """The other test could not fail if nothing depended on what functions give."""

    class Otherwise:
        def __init__(self, functions: object) -> None:
            self._functions = functions

        def get(self, name: str) -> object:
            function = self._functions.get(name)  # type: ignore[attr-defined]
            if not name.startswith("failing"):
                return function
            return type(function)(lambda x: x + 1)

    cases = [case for case in map(called_case, range(40)) if calls_functions(case)]
    wrong = [check(replace(case, functions=Otherwise(case.functions)), "st").wrong for case in cases]
    assert any(wrong)


@pytest.mark.parametrize("strategy", SERVED)
def test_nodes_that_call_functions_can_be_saved(strategy: str) -> None:
    case = next(case for case in map(called_case, range(100)) if calls_functions(case))
    cores: list[NodeCore] = []
    handle = NodeCore.handle

    def kept(core: NodeCore, *given: object) -> object:
        if not any(core is other for other in cores):
            cores.append(core)
        return handle(core, *given)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NodeCore, "handle", kept)
        run(case, strategy)
    for core in cores:
        saved = NodeCore.restored(core.save()).save()
        assert NodeCore.restored(saved).save() == saved
