"""Random networks whose rules and subscriptions call functions of a user's file: wherever they are evaluated, every
sink receives what the oracle says, which has functions of its own.

Some functions have no value for some arguments, and some raise; a call that fails has no value, at whatever node. Half
of the cases look into remote tables, too, now and then by a key that a function gives.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from headwater.node.user_functions import offer_file
from headwater.protocol.expressions import Attribute, Call, Expression, Same, rewritten
from headwater.protocol.function_files import DescribedFunctions, described, digests_of
from headwater.protocol.functions import Functions, in_file
from headwater.protocol.network import Sink
from headwater.protocol.pattern import Rule
from tests.law.looked_up import looked_up_case
from tests.law.networks import NetworkCase, Size, network_case

FILE = """
def shifted(x):
    return x * 3 % 7


def apart(x, y):
    return x - y


def lacking(x):
    return None if x % 3 == 2 else x


def failing(x):
    if x % 4 == 1:
        raise ValueError(f"nothing is known of {x}")
    return x + 1


FUNCTIONS = {"shifted": shifted, "apart": apart, "lacking": lacking, "failing": failing}
"""
CALLED = 0.6
"""How often an attribute becomes the argument of a call."""


class OracleFunction(NamedTuple):
    call: Callable[..., Any]
    accepts_missing: bool = False


class OracleFunctions:
    """What the file means, said again."""

    def __init__(self, digest: str) -> None:
        meanings: dict[str, Callable[..., Any]] = {
            "shifted": lambda x: (3 * x) % 7,
            "apart": lambda x, y: -(y - x),
            "lacking": lambda x: {0: x, 1: x}.get(x % 3),
            "failing": lambda x: x + 1 if x % 4 in (0, 2, 3) else None,
        }
        self._own = {in_file(name, digest): OracleFunction(meaning) for name, meaning in meanings.items()}

    def get(self, name: str) -> Any:
        return self._own.get(name) or Functions().get(name)


def functions_file() -> DescribedFunctions:
    """The file, loaded in this process as nodes load it."""
    offer_file(FILE.encode(), Path("functions.py"))
    return described(FILE.encode(), "functions.py")


def called_case(seed: int, size: Size | None = "small") -> NetworkCase:
    """The case of a seed with rules and subscriptions that call functions; as it was if none of them can."""
    case = looked_up_case(seed, size) if seed % 2 else network_case(seed, size)
    rng = random.Random(f"called {seed}")
    file = functions_file()
    rules = tuple(_calling(rule, file.digest, rng) for rule in case.network.rules)
    sinks = tuple(_calling_sink(sink, file.digest, rng) for sink in case.network.sinks)
    return replace(
        case,
        network=replace(case.network, rules=rules, sinks=sinks, functions=file),
        functions=OracleFunctions(file.digest),
    )


def calls_functions(case: NetworkCase) -> bool:
    return bool(digests_of(case.network.rules, (sink.subscription for sink in case.network.sinks)))


def _calling(rule: Rule, digest: str, rng: random.Random) -> Rule:
    where = tuple(_with_calls(conjunct, digest, rng) for conjunct in rule.pattern.where)
    attributes = tuple(replace(output, value=_with_calls(output.value, digest, rng)) for output in rule.attributes)
    return replace(rule, pattern=replace(rule.pattern, where=where), attributes=attributes)


def _calling_sink(sink: Sink, digest: str, rng: random.Random) -> Sink:
    where = tuple(_with_calls(conjunct, digest, rng) for conjunct in sink.subscription.where)
    return replace(sink, subscription=replace(sink.subscription, where=where))


def _with_calls(expression: Expression, digest: str, rng: random.Random) -> Expression:
    if isinstance(expression, Same):
        return expression

    def changed(attribute: Attribute) -> Expression:
        if attribute.name not in ("v", "id") or rng.random() >= CALLED:
            return attribute
        name = rng.choice(("shifted", "apart", "lacking", "failing"))
        arguments: tuple[Expression, ...] = (attribute,)
        if name == "apart":
            arguments = (attribute, replace(attribute, name="id"))
        return Call(in_file(name, digest), arguments)

    return rewritten(expression, changed)
