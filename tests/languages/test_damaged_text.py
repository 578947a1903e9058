"""Damaged, endless and senseless text is read or explained; nothing else happens."""
# ruff: noqa: E501 (the samples show lines as they are)

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.protocol.languages import Language, RuleTextError, Source, parse_rules
from headwater.protocol.languages.rule_texts import TEXT_BYTES_MAX
from tests.languages.test_diagnostics import ABC, FIRE


def test_a_text_of_a_megabyte_is_read() -> None:
    rule = "R{}: SEQ(A a, B b, C c) WHERE SAME[id] AND a.v > {} AND b.v < a.v WITHIN 5 min\n# {}\n"
    text = "".join(rule.format(i, i, "x" * 900) for i in range(1_040))
    assert 1_000_000 < len(text) <= TEXT_BYTES_MAX
    assert len(parse_rules([Source(text, "r.sase", "sase")]).rules) == 1_040


def nested_conjunctions() -> str:
    inner = "a.v = 1"
    for _ in range(50):
        inner = f"NOT ({inner}{' AND a.v = 1' * 50})"
    return inner


@pytest.mark.parametrize(
    "condition",
    [
        nested_conjunctions(),
        "a.s = '" + "\\'" * 200_000,
        "a.x = " + "- " * 200_000 + "a.v",
        "a.x = " + "9" * 500_000,
        "x" * 500_000 + " = 1",
        "a.x IN (" + "1, " * 20_000 + "x)",
    ],
    ids=["nested conjunctions", "many quotes", "many signs", "many digits", "long name", "long list"],
)
def test_outsized_text_is_explained_briefly(condition: str) -> None:
    with pytest.raises(RuleTextError) as caught:
        parse_rules([Source(f"SEQ(A a, B b) WHERE {condition} WITHIN 5 s", "r.sase", "sase")])
    assert len(str(caught.value)) < 1_000


VALID: tuple[tuple[Language, str], ...] = (
    (
        "tesla",
        FIRE
        + "Rule R define Fire(a: string, m: double) from Smoke(area=$a) and each Temp(area=$a and value>45) within 5 min. from Smoke and 45 < $t=Avg(Temp(area=$a).value within 1h 30min from Smoke) and not Temp(count in (1, 2)) between Temp and Smoke where a=Smoke.area, m=$t",
    ),
    (
        "sase",
        ABC
        + "Q: SEQ(A a, !B b, (C c OR SEQ(A+ x[], B y)), AND(A, B) WITHIN 3 s) WHERE SAME[id] AND x[i-1].v < x[i].v AND avg(x[].v) >= 2.5 AND a.s NOT IN REMOTE.t[a.id] WITHIN 5 min SKIP TILL ANY MATCH RETURN X(n = count(x[]), s = concat(a.s, 'x'))",
    ),
    ("sase", "seq(e1, and(e2, !e3; 3 s), or(e4, e5); 5 s) WHERE e1.v = 'a' OR NOT (e2.v BETWEEN 1 AND 2)"),
)
PIECES = (
    "(",
    ")",
    "[",
    "]",
    "'",
    '"',
    "$",
    "$a",
    "+",
    "-",
    "--",
    "!",
    ",",
    ";",
    ":",
    ".",
    "=",
    "<",
    "é",
    "\n",
    "\t",
    "\0",
    "SEQ(",
    "AND(",
    "and ",
    "not ",
    "within ",
    "from ",
    "where ",
    "5",
    "5 s",
    "9" * 30,
    "1e400",
    "event ",
    "Q: ",
    "a.v",
    "b[i-1].v",
    "SAME[",
    "REMOTE[",
    "avg(",
    "as ",
    "last ",
    "define X() ",
)


def mutate(text: str, rng: random.Random) -> str:
    """The text with some stretches left out, doubled, moved or replaced."""
    for _ in range(rng.randint(1, 4)):
        start = rng.randrange(len(text) + 1)
        end = min(len(text), start + rng.choice((0, 1, 1, 2, 5, 20)))
        kind = rng.randrange(4)
        if kind == 0:
            text = text[:start] + text[end:]
        elif kind == 1:
            text = text[:end] + text[start:]
        elif kind == 2:
            text = text[:start] + rng.choice(PIECES) + text[end:]
        else:
            other = rng.randrange(len(text) + 1)
            text = text[:start] + text[other : other + 20] + text[end:]
    return text


def parses_or_explains(text: str | bytes, language: Language) -> None:
    found = None
    try:
        parse_rules([Source(text, "r", language)])
    except RuleTextError as mistake:
        found = mistake.diagnostics
    assert found is None or found
    for each in found or ():
        assert each.line >= 1
        assert each.column >= 1
        assert each.message


@given(st.integers(0, 2**32), st.sampled_from(VALID))
@settings(max_examples=600)
def test_damaged_text_parses_or_is_explained(seed: int, valid: tuple[Language, str]) -> None:
    language, text = valid
    parses_or_explains(mutate(text, random.Random(seed)), language)


@given(
    st.one_of(st.binary(max_size=200), st.text(max_size=200), st.lists(st.sampled_from(PIECES)).map("".join)),
    st.sampled_from(["tesla", "sase"]),
)
@settings(max_examples=400)
def test_noise_is_explained(noise: str | bytes, language: Language) -> None:
    parses_or_explains(noise, language)
