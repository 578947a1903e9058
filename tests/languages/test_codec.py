"""The canonical encoding of rules: equal values give equal bytes, and nothing but CodecError comes out of bad ones."""

from __future__ import annotations

import contextlib
import random

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.protocol.expressions import Attribute, Binary, Constant
from headwater.protocol.pattern import Leaf, Pattern, Rule, Sequence, Window
from headwater.protocol.wire.rule_encoding import CodecError, decode, digest, encode
from tests.law.generators import case_of_seed

A_RULE = Rule(
    "r",
    Pattern(
        Sequence((Leaf("a", "A"), Leaf("b", "B")), Window(5, "us", "span")),
        (Binary("=", Attribute("a", "id"), Attribute("b", "id")), Binary(">", Attribute("a", "v"), Constant(3))),
    ),
    "AB",
)


@pytest.mark.parametrize("seed", range(0, 3000, 10))
def test_every_rule_survives_encoding_and_decoding(seed: int) -> None:
    for rule in case_of_seed(seed).rules:
        assert decode(encode(rule)) == rule
        assert encode(decode(encode(rule))) == encode(rule)


def test_the_order_in_which_conjuncts_were_written_does_not_show() -> None:
    turned = Rule("r", Pattern(A_RULE.pattern.root, tuple(reversed(A_RULE.pattern.where))), "AB")
    assert encode(turned) == encode(A_RULE)
    assert digest(turned) == digest(A_RULE)


def test_the_digest_is_the_same_on_every_machine_and_version() -> None:
    assert digest(A_RULE) == "b47230d20547454a0409d9d4e8191a7f"


def test_integers_of_any_size_survive() -> None:
    rule = Rule("r", Pattern(A_RULE.pattern.root, (Binary(">", Attribute("a", "v"), Constant(10**40)),)), "AB")
    assert decode(encode(rule)) == rule


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not an encoded rule"),
        (b"\xc1", "not an encoded rule"),
        (msgpack.packb("text"), "a version and a value are expected"),
        (msgpack.packb([99, None]), "encoded as version 99; this is version 1"),
        (msgpack.packb([1, ["Spaceship", 1]]), "unknown part 'Spaceship'"),
        (msgpack.packb([1, ["Leaf", "a"]]), "Leaf with 1 fields instead of 2"),
        (msgpack.packb([1, ["Leaf", "a", 7]]), "Leaf.type cannot be 7"),
        (msgpack.packb([1, ["Window", 5, "weeks", "span"]]), "Window.unit cannot be 'weeks'"),
        (msgpack.packb([1, ["Negation", ["Constant", 1]]]), "Negation.part cannot be Constant(value=1)"),
        (msgpack.packb([1, [7, "a"]]), "an encoded value without a name"),
        (msgpack.packb([1, {"a": 1}]), "unexpected dict"),
        (msgpack.packb([1, ["int", "1.5"]]), "malformed integer"),
    ],
)
def test_bad_bytes_are_refused_with_a_sentence(data: bytes, message: str) -> None:
    with pytest.raises(CodecError) as refused:
        decode(data)
    assert message in str(refused.value)


@settings(max_examples=300)
@given(st.integers(0, 10**6))
def test_damaged_encodings_never_raise_anything_else(seed: int) -> None:
    rng = random.Random(seed)
    data = bytearray(encode(A_RULE))
    for _ in range(rng.randint(1, 4)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    with contextlib.suppress(CodecError):
        decode(bytes(data[: rng.randint(0, len(data))] if rng.random() < 0.3 else data))
