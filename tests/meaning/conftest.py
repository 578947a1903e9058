"""A rule means the same whoever evaluates it: tests that take ``matches`` run on the oracle and on the engine."""

from __future__ import annotations

import pytest

from tests.kit.builders import EVALUATORS, Evaluator


@pytest.fixture(params=EVALUATORS)
def matches(request: pytest.FixtureRequest) -> Evaluator:
    return EVALUATORS[request.param]
