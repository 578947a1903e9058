"""The fast way of writing composite events says the same as the plain one."""

from __future__ import annotations

import json
import random

from headwater.deploy.cli.output import JsonLines, in_key_order
from headwater.node.engine import Engine
from headwater.protocol.composites import Composite
from headwater.protocol.events import Event, EventType
from headwater.protocol.languages import Source, parse_rules

A = EventType("A", {"s": "string", "i": "int?", "f": "float", "b": "bool"})
RULES = """
Pair: SEQ(A x, A y) WITHIN 4 us RETURN Pair(s = x.s, i = y.i, f = x.f, b = y.b, mixed = concat(x.s, y.f))
Many: SEQ(A x, A+ z[]) WITHIN 2 us RETURN Many(n = count(z[]), "é" = 1)
Either: SEQ(OR(A p, A q)) WHERE p.i > 1 AND q.b WITHIN 1 us
Twice: SEQ(Pair p, A z) WITHIN 5 us RETURN Twice(s = p.s)
""".replace('"é"', "é")


def composites() -> list[Composite]:
    chance = random.Random(5)
    trace = [
        Event(
            A, chance.randrange(12), chance.choice(['n"1', "nö"]), seq,
            {"s": chance.choice(['a"\\\n', "é\u2028", ""]), "i": chance.choice([None, 1, -(10**20)]),
             "f": chance.choice([0.1, 1e300, -0.0, 3.0]), "b": chance.random() < 0.5},
        )
        for seq in range(16)
    ]  # fmt: skip
    rules = parse_rules([Source(RULES, "r.sase", "sase")], [A])
    engine = Engine(rules)
    return [*engine.feed(trace), *engine.close()]


def test_lines_are_those_of_the_documented_form() -> None:
    lines = JsonLines()
    found = composites()
    assert {composite.rule for composite in found} == {"Pair", "Many", "Either", "Twice"}
    for composite in found:
        assert lines.line(composite) == json.dumps(composite.to_json(), ensure_ascii=False) + "\n"


def test_the_order_is_that_of_keys() -> None:
    found = composites()
    random.Random(1).shuffle(found)
    assert list(in_key_order(found)) == sorted(found, key=lambda composite: composite.key)
